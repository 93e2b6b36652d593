//! Answers that come whole: from servers, from memory, by rules.

use super::*;

const DIRECT: &str = "HIER_DIRECT/192.0.2.1";

fn miss(method: &str) -> String {
    format!("TCP_MISS/200 {method} {DIRECT}")
}

#[test]
fn a_miss_is_stored_and_then_a_hit() {
    play("", async |world| {
        let asking = world.get("/a");
        let (peer, server) = world.reached().await;
        assert_eq!(peer, "192.0.2.1:80".parse().expect("an address"));
        let asked = server.asked().await;
        assert_eq!((&*asked.method, &*asked.url), (&b"GET"[..], &b"http://192.0.2.1/a"[..]));
        assert_eq!(asked.length, BodyLength::None);
        assert_eq!(value(&asked.fields, FieldName::Host).as_deref(), Some("192.0.2.1"));
        say(&server, b"hello");
        let answer = asking.whole().await;
        assert_eq!((short(&answer), answer.length), ((200, &b"hello"[..]), Some(5)));
        server.given_up().await;
        let answer = world.get("/a").whole().await;
        assert_eq!((short(&answer), answer.length), ((200, &b"hello"[..]), Some(5)));
        assert!(world.asks_no_more());
        assert_eq!(world.lines(), [&*miss("GET"), "TCP_MEM_HIT/200 GET HIER_NONE/-"]);
    });
}

#[test]
fn a_miss_streams_at_the_pace_of_its_client() {
    play("", async |world| {
        let asking = world.ask(&format!("GET {SITE}/slow HTTP/1.1\r\n"), 1000);
        let server = world.server().await;
        let body = pattern(300_000);
        server.send_head(head(200, "Cache-Control: max-age=60\r\nContent-Length: 300000\r\n"));
        server.send_body(&body[..100_000]);
        // The head and the first bytes do not wait for the rest.
        assert_eq!(asking.client.head().await.status, 200);
        assert_eq!(asking.client.body(1000).await, body[..1000]);
        server.send_body(&body[100_000..]);
        server.end(None);
        for read in (1000..300_000).step_by(23_000) {
            assert_eq!(asking.client.body(read).await, body[..read]);
            asking.client.read(23_000);
        }
        assert_eq!(asking.whole().await.body, body);
        assert_eq!(world.lines(), [miss("GET")]);
        // It is stored like any other.
        assert_eq!(world.get("/slow").whole().await.body, body);
    });
}

#[test]
fn a_length_that_nobody_knows_and_trailers_come_to_the_client() {
    play("", async |world| {
        let asking = world.get("/chunked");
        let server = world.server().await;
        server.send_head(head(200, "Cache-Control: no-store\r\n"));
        server.send_body(b"one");
        assert_eq!(asking.client.body(3).await, b"one");
        server.send_body(b"two");
        let mut trailers = Fields::new();
        trailers.push_named(b"Checksum", b"6");
        server.end(Some(trailers));
        let answer = asking.whole().await;
        assert_eq!((short(&answer), answer.length), ((200, &b"onetwo"[..]), None));
        let trailers = answer.trailers.expect("trailers");
        assert!(trailers.iter().any(|(_, name, value)| (name, value) == (b"Checksum", b"6")));
        assert_eq!(world.lines(), [miss("GET")]);
    });
}

#[test]
fn interim_answers_come_before_the_final_one() {
    play("", async |world| {
        let asking = world.get("/hints");
        let server = world.server().await;
        server.asked().await;
        server.send_head(head(103, "Link: </a.css>\r\n"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let interims = asking.client.answer().interims;
        assert_eq!(interims.iter().map(|head| head.status).collect::<Vec<_>>(), [103]);
        say(&server, b"hello");
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        assert_eq!(world.lines(), [miss("GET")]);
    });
}

#[test]
fn what_is_stored_answers_head_conditions_and_ranges() {
    play("", async |world| {
        let asking = world.get("/a");
        say(&world.server().await, b"0123456789");
        asking.whole().await;
        for (method, field, status, body, length, line) in [
            ("HEAD", "", 200, &b""[..], Some(10), "TCP_MEM_HIT/200"),
            ("GET", "If-None-Match: \"1\"\r\n", 304, b"", None, "TCP_INM_HIT/304"),
            ("GET", "Range: bytes=2-4\r\n", 206, b"234", Some(3), "TCP_MEM_HIT/206"),
            ("GET", "Range: bytes=20-\r\n", 416, b"", Some(0), "TCP_MEM_HIT/416"),
        ] {
            let text = format!("{method} {SITE}/a HTTP/1.1\r\n{field}");
            let answer = world.ask(&text, OPEN_BYTES).whole().await;
            assert_eq!((short(&answer), answer.length), ((status, body), length), "{text}");
            let last = world.lines().pop();
            assert_eq!(last, Some(format!("{line} {method} HIER_NONE/-")));
        }
        assert!(world.asks_no_more());
        assert_eq!(world.lines().len(), 5);
    });
}

#[test]
fn head_of_what_is_not_stored_goes_to_the_server() {
    play("", async |world| {
        let asking = world.ask(&format!("HEAD {SITE}/a HTTP/1.1\r\n"), OPEN_BYTES);
        let server = world.server().await;
        assert_eq!(server.asked().await.method, b"HEAD");
        server.send_head(head(200, "Content-Length: 10\r\n"));
        let answer = asking.whole().await;
        assert_eq!((short(&answer), answer.length), ((200, &b""[..]), Some(10)));
        assert_eq!(world.lines(), [miss("HEAD")]);
    });
}

#[test]
fn two_clients_share_one_fetch() {
    play("collapsed_forwarding on", async |world| {
        let first = world.get("/shared");
        let server = world.server().await;
        server.asked().await;
        let second = world.ask(&format!("GET {SITE}/shared HTTP/1.1\r\n"), 10);
        let body = pattern(50_000);
        server.send_head(head(200, "Cache-Control: max-age=60\r\nContent-Length: 50000\r\n"));
        server.send_body(&body[..20_000]);
        assert_eq!(first.client.body(20_000).await, body[..20_000]);
        assert_eq!(second.client.body(10).await, body[..10]);
        second.client.read(OPEN_BYTES);
        server.send_body(&body[20_000..]);
        server.end(None);
        assert_eq!(first.whole().await.body, body);
        assert_eq!(second.whole().await.body, body);
        assert!(world.asks_no_more());
        let mut lines = world.lines();
        lines.sort();
        assert_eq!(lines, ["TCP_CF_MISS/200 GET HIER_NONE/-", &*miss("GET")]);
    });
}

#[test]
fn what_a_rule_denies_asks_no_server() {
    let rules = "acl secret urlpath_regex ^/secret\nhttp_access deny secret";
    play(rules, async |world| {
        let answer = world.get("/secret/a").whole().await;
        assert_eq!(short(&answer).0, 403);
        assert_eq!(answer.length, Some(answer.body.len() as u64));
        assert!(world.asks_no_more());
        assert_eq!(world.lines(), ["TCP_DENIED/403 GET HIER_NONE/-"]);
    });
}

#[test]
fn a_rule_about_answers_denies_what_a_server_has_said() {
    let rules = "acl text rep_mime_type ^text/evil\nhttp_reply_access deny text";
    play(rules, async |world| {
        let asking = world.get("/a");
        let server = world.server().await;
        server.send_head(head(200, "Content-Type: text/evil\r\nContent-Length: 5\r\n"));
        server.send_body(b"hello");
        server.end(None);
        let answer = asking.whole().await;
        assert_eq!(short(&answer).0, 403);
        assert!(!answer.body.windows(5).any(|part| part == b"hello"));
        assert_eq!(world.lines(), [format!("TCP_DENIED_REPLY/403 GET {DIRECT}")]);
    });
}

#[test]
fn a_part_of_a_newer_version_replaces_the_whole_of_an_older_one() {
    let fields = "Cache-Control: max-age=60\r\n";
    play("", async |world| {
        world.pass(Duration::ZERO);
        let asking = world.get("/a");
        say_whole(&world.server().await, fields, b"old!");
        asking.whole().await;
        world.pass(Duration::from_secs(100));
        // It has become stale. The whole of the newer one breaks off, and then a part comes.
        let text = format!("GET {SITE}/a HTTP/1.1\r\nRange: bytes=2-3\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        let server = world.server().await;
        assert_eq!(server.asked().await.fields.get(FieldName::Range), None);
        server.send_head(head(200, &format!("{fields}Content-Length: 4\r\n")));
        server.fail();
        let server = world.server().await;
        assert!(server.asked().await.fields.has(FieldName::Range));
        let range = "Content-Range: bytes 2-3/4\r\nContent-Length: 2\r\n";
        server.send_head(head(206, &format!("{fields}{range}")));
        server.send_body(b"w!");
        server.end(None);
        assert_eq!(short(&asking.whole().await), (206, &b"w!"[..]));
        world.close("192.0.2.1:80");
        let answer = world.get("/a").over().await;
        assert_eq!(answer.head.map(|head| head.status), Some(503), "the old one would be wrong");
    });
}

fn say_whole(server: &Server, fields: &str, body: &[u8]) {
    server.send_head(head(200, &format!("{fields}Content-Length: {}\r\n", body.len())));
    server.send_body(body);
    server.end(None);
}

#[test]
fn an_answer_that_became_stale_while_it_arrived_is_not_joined() {
    play("collapsed_forwarding on", async |world| {
        world.pass(Duration::ZERO);
        let first = world.get("/a");
        let slow = world.server().await;
        slow.send_head(head(200, "Cache-Control: max-age=60\r\nContent-Length: 4\r\n"));
        slow.send_body(b"ol");
        assert_eq!(first.client.body(2).await, b"ol");
        world.pass(Duration::from_secs(100));
        let second = world.get("/a");
        say(&world.server().await, b"new!");
        assert_eq!(short(&second.whole().await), (200, &b"new!"[..]));
        slow.send_body(b"d!");
        slow.end(None);
        assert_eq!(short(&first.whole().await), (200, &b"old!"[..]));
    });
}

#[test]
fn a_part_that_is_not_stored_makes_older_answers_void() {
    play("", async |world| {
        let text = format!("GET {SITE}/a HTTP/1.1\r\nRange: bytes=0-1\r\n");
        let part = world.ask(&text, OPEN_BYTES);
        let late = world.server().await;
        late.asked().await;
        let whole = world.get("/a");
        say(&world.server().await, b"older");
        assert_eq!(short(&whole.whole().await), (200, &b"older"[..]));
        let fields = "Content-Range: bytes 0-1/5\r\nContent-Length: 2\r\n";
        late.send_head(head(206, &format!("Cache-Control: no-store\r\n{fields}")));
        late.send_body(b"ne");
        late.end(None);
        assert_eq!(short(&part.whole().await), (206, &b"ne"[..]));
        // A later request gets nothing older.
        let next = world.get("/a");
        say(&world.server().await, b"newer");
        assert_eq!(short(&next.whole().await), (200, &b"newer"[..]));
    });
}
