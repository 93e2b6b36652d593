//! A hostile server: whatever it sends, its client gets a right answer, 502, or an answer that
//! shows that it is cut; the next request gets its own answer; and nothing wrong is stored.

#[path = "hostile/answers.rs"]
mod answers;
#[path = "hostile/fields.rs"]
mod fields;
#[path = "hostile/server.rs"]
mod server;

use answers::{CHUNKS, Case, HEADS, LENGTHS, REPAIRED, Want};
use humboldt_tests::wait::{Gate, LIMIT, until};
use humboldt_tests::{Client, Proxy, Reply, Response, World};
use server::{Act, End, Hostile, right};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// One core, so that every request finds the pooled connection of the one before.
const ONE_CORE: &str = "workers 1\n";

/// GET on a connection that may have been closed after the last answer.
fn get(client: &mut Client, proxy: &Proxy, url: &str) -> Response {
    if let Some(answer) = client.request("GET", url, &[], b"").try_response_to("GET") {
        return answer;
    }
    *client = proxy.client();
    client.request("GET", url, &[], b"").response()
}

/// The fault of an answer, if any.
fn objection(want: Want, answer: &Response) -> Option<String> {
    let is_right =
        |body: &str| answer.status() == 200 && answer.is_complete && answer.text() == body;
    let is_refused = answer.status() == 502 && answer.is_complete;
    let is_as_wanted = match want {
        Want::Refused => is_refused,
        Want::Right(body) => is_right(body),
        Want::RefusedOr(body) => is_refused || is_right(body),
        Want::Cut => is_refused || (answer.status() == 200 && !answer.is_complete),
    };
    let is_poisoned =
        answer.text().contains("POISON") || format!("{:?}", answer.head).contains("POISON");
    let framings =
        answer.head.all("Content-Length").count() + answer.head.all("Transfer-Encoding").count();
    (!is_as_wanted || is_poisoned || framings > 1)
        .then(|| format!("wanted {want:?}, got {:?} {:?}", answer.head, answer.text()))
}

/// A proxy in front of a hostile server: a forward proxy with memory alone, or an accelerator that
/// stores on disk alone.
struct Stage {
    server: Hostile,
    proxy: Proxy,
    is_reverse: bool,
}

impl Stage {
    fn forward(lines: &str) -> Self {
        let proxy = Proxy::forward(&format!("{ONE_CORE}{lines}"));
        Self { server: Hostile::new(), proxy, is_reverse: false }
    }

    fn reverse(lines: &str) -> Self {
        let server = Hostile::new();
        let lines = format!(
            "{ONE_CORE}cache_dir ufs {{dir}}/cache 64 2 2\nmaximum_object_size_in_memory 0 KB\n{lines}"
        );
        Self { proxy: Proxy::reverse(server.address(), &lines), server, is_reverse: true }
    }

    fn get(&self, client: &mut Client, path: &str) -> Response {
        let target = if self.is_reverse { path.to_owned() } else { self.server.url(path) };
        get(client, &self.proxy, &target)
    }

    /// Plays a case and returns its fault.
    fn play(
        &self,
        client: &mut Client,
        index: usize,
        case: &Case,
        first_lines: &str,
    ) -> Vec<String> {
        let (name, end, want, text) = case;
        let (path, next, warm) =
            (format!("/case{index}"), format!("/next{index}"), format!("/warm{index}"));
        let text =
            format!("{first_lines}{text}").replacen("\r\n", "\r\nCache-Control: max-age=60\r\n", 1);
        // Latin-1: `\u{e9}` is one byte
        let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
        self.server.once(&path, Act::new(bytes, *end));
        let mut wrong = Vec::new();
        if self.get(client, &warm).text() != right(&warm) {
            wrong.push(format!("before {name}: a wrong answer"));
        }
        let first = self.get(client, &path);
        // A connection that has served before may have died of age: then the request is sent again,
        // and answered well.
        let was_sent_again =
            first.text() == right(&path) && self.server.seen(&path).len() == 2 && *end != End::Keep;
        if !was_sent_again && let Some(objection) = objection(*want, &first) {
            wrong.push(format!("{name}: {objection}"));
        }
        let following = self.get(client, &next);
        if following.text() != right(&next) {
            wrong.push(format!(
                "{name}: the next request got {:?} {:?}",
                following.head,
                following.text()
            ));
        }
        // Stored, if it was good, or requested again: a directory may still be writing.
        let is_first_good = first.status() == 200 && first.is_complete;
        let second = self.get(client, &path);
        let is_second_good =
            second.text() == right(&path) || (is_first_good && second.text() == first.text());
        if second.status() != 200 || !second.is_complete || !is_second_good {
            wrong.push(format!(
                "{name}: the next client got {:?} {:?}",
                second.head,
                second.text()
            ));
        }
        wrong
    }
}

/// Plays each case on both stages and reports every deviation at once.
fn run_table(cases: &[Case], first_lines: &str) {
    run_table_with("", cases, first_lines);
}

/// As [`run_table`], with these configuration lines.
fn run_table_with(lines: &str, cases: &[Case], first_lines: &str) {
    for stage in [Stage::forward(lines), Stage::reverse(lines)] {
        let mut client = stage.proxy.client();
        let play = |(index, case)| stage.play(&mut client, index, case, first_lines);
        let wrong: Vec<String> = cases.iter().enumerate().flat_map(play).collect();
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    }
}

#[test]
fn malformed_heads_are_refused() {
    run_table(HEADS, "");
}

#[test]
fn what_can_be_repaired_is_unless_relaxed_header_parser_is_off() {
    run_table(REPAIRED, "");
    let refused: Vec<Case> =
        REPAIRED.iter().map(|&(name, end, _, text)| (name, end, Want::Refused, text)).collect();
    run_table_with("relaxed_header_parser off\n", &refused, "");
}

#[test]
fn what_is_repaired_is_told_where_that_is_asked_for() {
    let server = Hostile::new();
    let proxy = Proxy::forward(&format!("{ONE_CORE}relaxed_header_parser warn\n"));
    for (path, text) in [
        ("/good", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        ("/lf", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"),
    ] {
        server.once(path, Act::new(text, End::Keep));
        assert_eq!(get(&mut proxy.client(), &proxy, &server.url(path)).text(), "hello");
    }
    until("a line in cache.log", || {
        proxy.text("cache.log").contains("/lf: the answer's head").then_some(())
    });
    assert!(!proxy.text("cache.log").contains("/good: "));
}

#[test]
fn contradictory_lengths_are_refused_and_what_is_too_much_is_nobodys_answer() {
    run_table(LENGTHS, "");
}

#[test]
fn malformed_chunks_cut_the_answer() {
    run_table(CHUNKS, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
}

/// Answers whose status or request forbids a body, to GET unless it is HEAD: the client's answer,
/// and the server's.
const BODILESS: &[(&str, &str, u16, &str)] = &[
    ("204 with a length", "GET", 204, "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nPOISON"),
    (
        "204 with chunks",
        "GET",
        204,
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nPOISON\r\n0\r\n\r\n",
    ),
    (
        "204 with an answer",
        "GET",
        204,
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
    ("HEAD with a body", "HEAD", 200, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"),
    (
        "HEAD with chunks",
        "HEAD",
        200,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nPOISON\r\n0\r\n\r\n",
    ),
    (
        "HEAD with an answer",
        "HEAD",
        200,
        "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
    ("HEAD with two lengths", "HEAD", 200, "HTTP/1.1 200 OK\r\nContent-Length: 6, 7\r\n\r\n"),
];

#[test]
fn a_body_where_there_is_none_is_nobodys_answer() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    for (index, (name, method, status, text)) in BODILESS.iter().enumerate() {
        let (path, next) = (format!("/case{index}"), format!("/next{index}"));
        server.once(&path, Act::new(text, End::Keep));
        let mut client = proxy.client();
        client.request(method, &server.url(&path), &[], b"");
        let answer = client.response_to(method);
        assert_eq!(answer.status(), *status, "{name}: {:?}", answer.head);
        assert!(answer.head.all("Content-Length").count() < 2, "{name}: {:?}", answer.head);
        for wanted in [&next, &path] {
            let answer = get(&mut client, &proxy, &server.url(wanted));
            let is_stored_204 = *status == 204 && wanted == &path && answer.status() == 204;
            assert!(
                answer.text() == right(wanted) || is_stored_204,
                "{name}: {:?} {}",
                answer.head,
                answer.text()
            );
        }
    }
}

/// Bytes on a pooled connection without a request cannot be the answer to the next request.
#[test]
fn an_answer_on_an_idle_connection_is_never_taken_for_the_next_one() {
    let world = World::forward(ONE_CORE);
    let (is_idle, was_sent) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (handler_is_idle, handler_was_sent) = (Arc::clone(&is_idle), Arc::clone(&was_sent));
    world.origin.handle("/first", move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
        handler_is_idle.pass();
        wire.send(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\nPOISON",
        );
        handler_was_sent.open();
        let _ = wire.reader.head(); // swallows a request that comes here
    });
    world.origin.on("/second", Reply::ok("second").cachable(60));
    let mut client = world.client();
    assert_eq!(client.request("GET", &world.target("/first"), &[], b"").response().text(), "first");
    is_idle.open();
    was_sent.pass();
    assert_eq!(
        client.request("GET", &world.target("/second"), &[], b"").response().text(),
        "second"
    );
    assert_eq!(world.get("/second").text(), "second");
    assert_eq!(world.origin.connections(), 2);
}

/// The server answers before it has the body. Its connection then holds half a request, and must
/// not get another one.
#[test]
fn an_answer_before_the_body_leaves_no_connection_in_doubt() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let early = |path: &str| {
        let text = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nearly";
        server.once(path, Act { is_early: true, ..Act::new(text, End::Keep) });
    };
    let ask = |client: &mut Client, path: &str| {
        let head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", server.url(path), server.address());
        client.send(head + "Content-Length: 40\r\n\r\nGET /stolen");
        client.response()
    };
    // A client that never sends the rest.
    early("/a");
    let mut client = proxy.client();
    assert_eq!(ask(&mut client, "/a").status(), 413);
    assert_eq!(get(&mut proxy.client(), &proxy, &server.url("/b")).text(), right("/b"));
    drop(client);
    assert_eq!(get(&mut proxy.client(), &proxy, &server.url("/c")).text(), right("/c"));
    // A client that sends the rest, and another request behind it.
    early("/d");
    let mut client = proxy.client();
    assert_eq!(ask(&mut client, "/d").status(), 413);
    client.send(" HTTP/1.1\r\nHost: a.test\r\n\r\n....");
    assert_eq!(get(&mut client, &proxy, &server.url("/e")).text(), right("/e"));
    // A client that waits for leave to send, and gets the answer instead: the meaning of its next
    // bytes is in doubt.
    early("/f");
    let mut client = proxy.client();
    client.request(
        "POST",
        &server.url("/f"),
        &[("Expect", "100-continue"), ("Content-Length", "40")],
        b"",
    );
    assert_eq!(client.response().status(), 413);
    client.send(format!("GET {} HTTP/1.1\r\nHost: a.test\r\n\r\n", server.url("/stolen")));
    assert!(client.closes());
    let connections: Vec<usize> =
        ["/a", "/b", "/d"].iter().map(|path| server.seen(path)[0].connection).collect();
    assert!(
        connections[0] != connections[1] && connections[0] != connections[2],
        "{connections:?}"
    );
    assert!(server.seen("/stolen").is_empty());
}

#[test]
fn a_flood_of_interim_answers_is_cut_to_a_few() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let flood = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(10_000);
    server.once(
        "/a",
        Act::new(flood + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", End::Keep),
    );
    let mut client = proxy.client();
    let answer = client.request("GET", &server.url("/a"), &[], b"").response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    assert!(answer.interim.len() <= 16, "{} interim answers", answer.interim.len());
    assert_eq!(get(&mut client, &proxy, &server.url("/b")).text(), right("/b"));
}

/// HTTP/1.0 knows no interim answers: such a client would take one for the answer.
#[test]
fn old_clients_get_no_interim_answers() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    server.once("/a", Act::new(text, End::Keep));
    let mut client = proxy.client();
    let answer = client.send(format!("GET {} HTTP/1.0\r\n\r\n", server.url("/a"))).response();
    assert_eq!((answer.text().as_str(), answer.interim.len()), ("hello", 0));
}

/// Endless messages, as a beginning and a repeated part. The first four are heads, the others
/// bodies.
const ENDLESS: &[(&str, &str, &str)] = &[
    ("a status line", "HTTP/1.1 200 ", "x"),
    ("a field", "HTTP/1.1 200 OK\r\nX-A: ", "x"),
    ("fields", "HTTP/1.1 200 OK\r\n", "X-A: b\r\n"),
    ("a name", "HTTP/1.1 200 OK\r\n", "x"),
    ("a chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0"),
    ("a chunk extension", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", "x"),
    (
        "chunk extensions",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "1;x=yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n1\r\n",
    ),
    ("a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: ", "x"),
    ("trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-T: 1\r\n"),
];

#[test]
fn what_never_ends_is_given_up() {
    const SENT_BYTES_MAX: usize = 256 << 20;
    let world = World::forward(ONE_CORE);
    for (index, (name, first, again)) in ENDLESS.iter().enumerate() {
        let path = format!("/case{index}");
        let (sender, sent) = channel();
        world.origin.handle(&path, move |_, wire| {
            wire.send(first);
            let piece = again.repeat(65_536 / again.len());
            let mut sent_bytes = 0;
            while sent_bytes < SENT_BYTES_MAX && wire.try_send(&piece) {
                sent_bytes += piece.len();
            }
            let _ = sender.send(sent_bytes);
        });
        let answer = world.get(&path);
        assert!(answer.status() == 502 || !answer.is_complete, "{name}: {:?}", answer.head);
        assert!(answer.status() == 502 || index >= 4, "{name}: {:?}", answer.head);
        let sent_bytes = sent.recv_timeout(LIMIT).expect("the proxy has closed the connection");
        assert!(sent_bytes < SENT_BYTES_MAX, "{name}: the proxy took {sent_bytes} bytes");
    }
}

/// Buffers of requests are used again: nothing of an earlier one may show where a later one has no
/// URL of its own.
#[test]
fn a_request_without_a_host_is_not_told_about_others() {
    let world = World::forward(ONE_CORE);
    world.origin.on("/secret?word=xyzzy", Reply::ok("a").cachable(60));
    for _ in 0..3 {
        // A miss, then hits.
        let _ = world.get("/secret?word=xyzzy").expect(200);
    }
    for head in ["GET /mine HTTP/1.0\r\n\r\n", "GET /mine HTTP/1.1\r\n\r\n"] {
        let mut client = world.client();
        client.send(head.as_bytes());
        let answer = client.response();
        assert_eq!(answer.status(), 400, "{head}");
        assert!(!answer.text().contains("xyzzy"), "{}", answer.text());
    }
    assert!(world.proxy.logged("/mine").contains("/mine"));
}

/// Interim answers without end are silence about the answer itself: `read_timeout` ends them, and
/// others are served meanwhile.
#[test]
fn interim_answers_without_end_are_given_up_in_time() {
    let world = World::forward(&format!("{ONE_CORE}read_timeout 3 seconds\n"));
    world.origin.on("/b", Reply::ok("b"));
    world.origin.handle("/a", |_, wire| {
        let piece = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1_000);
        while wire.try_send(&piece) {}
    });
    let mut client = world.client();
    client.request("GET", &world.target("/a"), &[], b"");
    world.origin.wait_for("/a", 1);
    assert_eq!(world.get("/b").expect(200).text(), "b");
    assert_eq!(client.response().status(), 504);
}

/// A byte now and then is no progress: a head has `read_timeout` as a whole.
#[test]
fn a_head_that_drips_is_given_up_in_time() {
    let world = World::forward("read_timeout 1 second\n");
    world.origin.handle("/a", |_, wire| {
        let mut drip = "HTTP/1.1 200 OK\r\nX-A: ".bytes().chain(std::iter::repeat(b'x'));
        while wire.try_send([drip.next().unwrap_or(b'x')]) {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let _ = world.get("/a").expect(504);
}

#[test]
fn trailers_bring_no_fields_that_belong_into_the_head() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let text = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\
                Content-Length: 2\r\nTransfer-Encoding: chunked\r\nSet-Cookie: POISON=1\r\nCache-Control: POISON\r\n\
                Location: /POISON\r\nContent-Type: text/POISON\r\nContent-Encoding: POISON\r\nVary: POISON\r\n\
                Host: POISON\r\nConnection: POISON\r\nAge: 7\r\nX-T: fine\r\n\r\n";
    server.once("/a", Act::new(text, End::Keep));
    for _ in 0..2 {
        let mut client = proxy.client();
        let answer = client.request("GET", &server.url("/a"), &[], b"").response();
        assert_eq!(
            (answer.status(), answer.text().as_str(), answer.is_complete),
            (200, "hello", true)
        );
        let all = format!("{:?} {:?}", answer.head, answer.trailers);
        assert!(!all.contains("POISON") && answer.age() != Some(7), "{all}");
        assert!(
            answer
                .trailers
                .iter()
                .all(|(name, value)| (name.as_str(), value.as_str()) == ("X-T", "fine"))
        );
        assert_eq!(get(&mut client, &proxy, &server.url("/b")).text(), right("/b"));
    }
    assert_eq!(server.seen("/a").len(), 1, "a good answer with trailers is stored");
}

/// Statuses beyond those of the standard, and answers to other requests: passed on or refused,
/// never stored as the next client's answer.
const UNASKED: &[(&str, &str)] = &[
    ("status 600", "HTTP/1.1 600 What\r\nContent-Length: 6\r\n\r\nPOISON"),
    ("status 999", "HTTP/1.1 999 What\r\nContent-Length: 6\r\n\r\nPOISON"),
    ("a 304", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
    ("a 304 with a body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nPOISON"),
    (
        "a 206",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-5/9\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
    (
        "a 206 of everything",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-5/6\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
    (
        "a 206 without Content-Range",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
    (
        "a 416",
        "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */6\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
];

/// Ranges that were asked for and that the server lies about.
const LIES: &[(&str, &str)] = &[
    ("another range", "Content-Range: bytes 2-7/20"),
    ("a range that is too long", "Content-Range: bytes 0-19/20"),
    ("another unit", "Content-Range: lines 0-5/20"),
    ("a range beyond the total", "Content-Range: bytes 30-35/20"),
    ("a range backwards", "Content-Range: bytes 5-0/20"),
    ("an unreadable range", "Content-Range: POISON"),
    ("a total beyond 64 bits", "Content-Range: bytes 0-5/99999999999999999999999"),
    ("two ranges", "Content-Range: bytes 0-5/20\r\nContent-Range: bytes 6-11/20"),
];

#[test]
fn answers_that_nobody_asked_for_are_not_stored() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let play = |path: &str, name: &str, text: &str, fields: &[(&str, &str)]| {
        let text = text.replacen("\r\n", "\r\nCache-Control: max-age=60\r\n", 1);
        server.once(path, Act::new(text, End::Keep));
        let mut client = proxy.client();
        let first = client.request("GET", &server.url(path), fields, b"").response();
        assert!((200..1000).contains(&first.status()), "{name}: {:?}", first.head);
        for wanted in [&format!("{path}/next"), path] {
            let answer = get(&mut client, &proxy, &server.url(wanted));
            assert_eq!((answer.status(), answer.text()), (200, right(wanted)), "{name}");
        }
    };
    for (index, (name, text)) in UNASKED.iter().enumerate() {
        if matches!(*name, "a 416") {
            continue; // an error with explicit freshness, and stored as such: see poisoning.rs
        }
        play(&format!("/case{index}"), name, text, &[]);
    }
    for (index, (name, field)) in LIES.iter().enumerate() {
        let text =
            format!("HTTP/1.1 206 Partial Content\r\n{field}\r\nContent-Length: 6\r\n\r\nPOISON");
        play(&format!("/lie{index}"), name, &text, &[("Range", "bytes=0-5")]);
    }
}

/// A server that does not switch protocols leaves an HTTP connection: the client's next bytes are a
/// request like any other.
#[test]
fn a_refused_upgrade_opens_no_tunnel() {
    let server = Hostile::new();
    let proxy = Proxy::forward(&format!(
        "{ONE_CORE}acl secret urlpath_regex ^/secret\nhttp_access deny secret\n"
    ));
    for (index, status) in
        ["426 Upgrade Required", "200 OK", "400 Bad Request", "100 Continue\r\n\r\nHTTP/1.1 200 OK"]
            .iter()
            .enumerate()
    {
        let path = format!("/{index}");
        let text = format!(
            "HTTP/1.1 {status}\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno"
        );
        server.once(&path, Act::new(text, End::Keep));
        let mut client = proxy.client();
        let fields =
            [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "777")];
        client.request("GET", &server.url(&path), &fields, b"");
        assert_eq!(client.response().text(), "no", "{status}");
        let answer = get(&mut client, &proxy, &server.url("/secret"));
        assert_eq!(answer.status(), 403, "{status}: {:?}", answer.head);
    }
    assert!(server.seen("/secret").is_empty());
}

/// Requests in one packet: each gets its own answer, although the server sends two answers to the
/// first.
#[test]
fn pipelined_requests_get_no_answer_of_another() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON";
    server.once("/a", Act::new(two, End::Keep));
    let mut client = proxy.client();
    for path in ["/a", "/b", "/c"] {
        client.send(format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n",
            server.url(path),
            server.address()
        ));
    }
    for wanted in ["hello".to_owned(), right("/b"), right("/c")] {
        assert_eq!(client.response().text(), wanted);
    }
}

/// A 304 means "your stored answer is good": to a client without one it means nothing.
#[test]
fn a_304_without_a_condition_is_no_answer() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    server.once("/a", Act::new("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", End::Keep));
    let mut client = proxy.client();
    assert_eq!(get(&mut client, &proxy, &server.url("/a")).status(), 502);
}
