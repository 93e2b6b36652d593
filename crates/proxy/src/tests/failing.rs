//! Servers that fail.

use super::*;

/// Two parents, the first of which is asked first.
const PARENTS: &str = "cache_peer 192.0.2.11 parent 8080 0 no-query name=one
cache_peer 192.0.2.12 parent 8080 0 no-query name=two
never_direct allow all";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The next server that is connected to is asked, and answers with an error that another way may
/// spare the client.
async fn bad_gateway(world: &World) {
    let server = world.server().await;
    server.asked().await;
    server.send_head(head(502, "Content-Length: 5\r\n"));
    server.send_body(b"sorry");
    server.end(None);
}

/// The second parent answers, and nobody else is asked.
async fn answered_by_the_second(world: &World, asking: Asking) {
    let (peer, server) = world.reached().await;
    assert_eq!(peer, address("192.0.2.12:8080"));
    say(&server, b"hello");
    assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
    assert!(world.asks_no_more());
    let lines = world.lines();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("TCP_MISS/200 GET ") && lines[0].ends_with("/192.0.2.12"));
}

#[test]
fn a_way_that_ends_without_an_answer_gives_way_to_the_next() {
    play(PARENTS, async |world| {
        let asking = world.get("/a");
        assert_eq!(world.fails_unanswered().await, address("192.0.2.11:8080"));
        answered_by_the_second(world, asking).await;
    });
}

#[test]
fn each_way_is_asked_once() {
    play(PARENTS, async |world| {
        let asking = world.get("/a");
        for _ in 0..2 {
            world.fails_unanswered().await;
        }
        assert_eq!(short(&asking.whole().await).0, 502);
        assert!(world.asks_no_more());
        let lines = world.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("TCP_MISS/502 GET ") && lines[0].ends_with("/192.0.2.12"));
    });
}

#[test]
fn after_forward_timeout_no_other_way_is_asked() {
    play(&format!("{PARENTS}\nforward_timeout 10 seconds"), async |world| {
        world.pass(Duration::ZERO);
        let asking = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        world.pass(Duration::from_secs(10));
        server.fail();
        assert_eq!(short(&asking.whole().await).0, 502);
        assert!(world.asks_no_more());
    });
}

#[test]
fn after_a_way_without_an_answer_one_that_cannot_be_reached_is_the_reason() {
    play(PARENTS, async |world| {
        world.close("192.0.2.12:8080");
        let asking = world.get("/a");
        world.fails_unanswered().await;
        // As in Squid.
        assert_eq!(short(&asking.whole().await).0, 503);
        assert!(world.lines()[0].ends_with("/two"), "{:?}", world.lines());
    });
}

#[test]
fn a_way_that_cannot_be_tried_does_not_hide_the_one_that_was_asked() {
    // Only a parent can be asked for such a URL.
    play("cache_peer 192.0.2.11 parent 8080 0 no-query name=one", async |world| {
        let asking = world.ask("GET wais://192.0.2.1/a HTTP/1.1\r\n", OPEN_BYTES);
        world.fails_unanswered().await;
        assert_eq!(short(&asking.whole().await).0, 502);
        assert!(world.asks_no_more());
        assert!(world.lines()[0].ends_with("/192.0.2.11"), "{:?}", world.lines());
    });
}

#[test]
fn a_stored_answer_covers_for_all_ways_that_fail() {
    play(PARENTS, async |world| {
        store_as(world, "max-age=0, stale-if-error=600").await;
        let asking = world.get("/a");
        for _ in 0..2 {
            world.fails_unanswered().await;
        }
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        assert!(world.asks_no_more());
    });
}

#[test]
fn an_answer_in_reserve_covers_for_a_later_way_that_ends_without_one() {
    play(PARENTS, async |world| {
        let asking = world.get("/a");
        bad_gateway(world).await;
        world.fails_unanswered().await;
        assert_eq!(short(&asking.whole().await), (502, &b"sorry"[..]));
        assert!(world.asks_no_more());
        let lines = world.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("/192.0.2.11"), "{lines:?}");
    });
}

#[test]
fn a_way_without_an_answer_between_one_in_reserve_and_the_last() {
    let three = format!("{PARENTS}\ncache_peer 192.0.2.13 parent 8080 0 no-query name=three");
    for (last_answers, status) in [(true, 200), (false, 502)] {
        play(&three, async |world| {
            let asking = world.get("/a");
            bad_gateway(world).await;
            world.fails_unanswered().await;
            let (peer, server) = world.reached().await;
            assert_eq!(peer, address("192.0.2.13:8080"));
            match last_answers {
                true => say(&server, b"hello"),
                false => server.fail(),
            }
            let body = if last_answers { b"hello" } else { b"sorry" };
            assert_eq!(short(&asking.whole().await), (status, &body[..]));
            assert!(world.asks_no_more());
        });
    }
}

#[test]
fn a_parent_that_cannot_be_reached_gives_way_to_the_next() {
    play(PARENTS, async |world| {
        world.close("192.0.2.11:8080");
        let asking = world.get("/a");
        answered_by_the_second(world, asking).await;
    });
}

#[test]
fn a_parent_that_cannot_be_reached_gives_way_also_before_an_upload() {
    play(PARENTS, async |world| {
        world.close("192.0.2.11:8080");
        let text = format!("POST {SITE}/a HTTP/1.1\r\nContent-Length: 5\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        asking.client.send_body(b"01234");
        asking.client.end_body();
        let (peer, server) = world.reached().await;
        assert_eq!(peer, address("192.0.2.12:8080"));
        assert_eq!(server.upload().await, b"01234");
        say(&server, b"hello");
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        assert_eq!(world.lines().len(), 1);
    });
}

#[test]
fn during_an_upload_nobody_else_gets_the_body() {
    play(PARENTS, async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nContent-Length: 10\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        asking.client.send_body(b"01234");
        world.fails_unanswered().await;
        assert_eq!(short(&asking.whole().await).0, 502);
        assert!(world.asks_no_more());
        let lines = world.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("TCP_MISS/502 POST "), "{lines:?}");
    });
}

#[test]
fn nobody_listens() {
    play("", async |world| {
        world.close("192.0.2.1:80");
        assert_eq!(short(&world.get("/a").whole().await).0, 503);
        assert_eq!(world.lines().len(), 1);
        assert!(world.lines()[0].starts_with("TCP_MISS/503 GET HIER_DIRECT/"));
    });
}

#[test]
fn in_mid_body_its_client_sees_a_cut_and_nothing_is_stored() {
    play("", async |world| {
        for length in ["", "Content-Length: 10000\r\n"] {
            let asking = world.get("/a");
            let server = world.server().await;
            server.send_head(head(200, &format!("Cache-Control: max-age=60\r\n{length}")));
            server.send_body(&pattern(1000));
            asking.client.body(1000).await;
            server.fail();
            let answer = asking.over().await;
            assert_eq!((short(&answer), answer.end), ((200, &*pattern(1000)), Some(End::Cut)));
        }
        let line = "TCP_MISS_ABORTED/200 GET HIER_DIRECT/192.0.2.1";
        assert_eq!(world.lines(), [line, line]);
    });
}

#[test]
fn all_who_share_a_fetch_see_the_cut() {
    play("collapsed_forwarding on", async |world| {
        let first = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        let second = world.get("/a");
        server.send_head(head(200, "Cache-Control: max-age=60\r\nContent-Length: 10000\r\n"));
        server.send_body(&pattern(1000));
        first.client.body(1000).await;
        second.client.body(1000).await;
        server.fail();
        for asking in [first, second] {
            let answer = asking.over().await;
            assert_eq!((short(&answer), answer.end), ((200, &*pattern(1000)), Some(End::Cut)));
        }
        assert_eq!(world.lines().len(), 2);
        assert!(world.lines().iter().all(|line| line.contains("_ABORTED/200 ")));
    });
}

#[test]
fn a_stored_answer_covers_for_an_error_where_it_may() {
    play("", async |world| {
        store_as(world, "max-age=0, stale-if-error=600").await;
        let asking = world.get("/a");
        let server = world.server().await;
        let asked = server.asked().await;
        assert_eq!(value(&asked.fields, FieldName::IfNoneMatch).as_deref(), Some("\"1\""));
        server.fail();
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        let line = "TCP_REFRESH_FAIL_OLD/200 GET HIER_DIRECT/192.0.2.1";
        assert_eq!(world.lines()[1..], [line]);
    });
}

#[test]
fn a_server_confirms_what_is_stored() {
    play("", async |world| {
        store_to_validate(world).await;
        let asking = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        server.send_head(head(304, "Cache-Control: max-age=60\r\nETag: \"1\"\r\n"));
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        assert_eq!(short(&world.get("/a").whole().await), (200, &b"hello"[..]));
        assert!(world.asks_no_more());
        let line = "TCP_REFRESH_UNMODIFIED/200 GET HIER_DIRECT/192.0.2.1";
        assert_eq!(world.lines()[1..], [line, "TCP_MEM_HIT/200 GET HIER_NONE/-"]);
    });
}

#[test]
fn a_proxy_that_asks_for_credentials_says_nothing_about_what_is_stored() {
    play("", async |world| {
        store_to_validate(world).await;
        let asking = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        server.send_head(head(407, "Content-Length: 0\r\n"));
        server.end(None);
        assert_eq!(short(&asking.whole().await).0, 407);
        // It is still there to be validated.
        let asking = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        server.send_head(head(304, "ETag: \"1\"\r\n"));
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
    });
}
