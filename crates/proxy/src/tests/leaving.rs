//! Clients that leave: whatever is waited for ends.

use super::*;

#[test]
fn before_the_head() {
    play("", async |world| {
        let asking = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        asking.client.leave();
        given_up_soon(&server).await;
        let answer = asking.over().await;
        assert_eq!((short(&answer), answer.end), ((0, &b""[..]), Some(End::Cut)));
        assert_eq!(world.lines(), ["TCP_MISS_ABORTED/000 GET HIER_DIRECT/192.0.2.1"]);
    });
}

#[test]
fn before_the_head_of_a_fetch_that_repeats_a_failed_validation() {
    play("", async |world| {
        store_to_validate(world).await;
        let asking = world.get("/a");
        let server = world.server().await;
        server.asked().await;
        // This confirms another answer than the stored one.
        server.send_head(head(304, "ETag: \"2\"\r\n"));
        let server = world.server().await;
        server.asked().await;
        asking.client.leave();
        given_up_soon(&server).await;
        assert_eq!(short(&asking.over().await), (0, &b""[..]));
        assert_eq!(
            world.lines()[1..],
            ["TCP_REFRESH_MODIFIED_ABORTED/000 GET HIER_DIRECT/192.0.2.1"]
        );
    });
}

#[test]
fn in_mid_body() {
    // What is as good as complete would be fetched to its end (`quick_abort_min`).
    play("", async |world| {
        let asking = world.ask(&format!("GET {SITE}/a HTTP/1.1\r\n"), 1000);
        let server = world.server().await;
        let fields = "Cache-Control: max-age=60\r\nContent-Length: 1000000\r\n";
        server.send_head(head(200, fields));
        server.send_body(&pattern(2000));
        assert_eq!(asking.client.body(1000).await, pattern(1000));
        asking.client.leave();
        given_up_soon(&server).await;
        let answer = asking.over().await;
        assert_eq!((short(&answer), answer.end), ((200, &*pattern(1000)), Some(End::Cut)));
        assert_eq!(world.lines(), ["TCP_MISS_ABORTED/200 GET HIER_DIRECT/192.0.2.1"]);
    });
}

#[test]
fn during_an_upload() {
    play("", async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nContent-Length: 10\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        let server = world.server().await;
        asking.client.send_body(b"01234");
        assert_eq!(server.asked().await.length, BodyLength::Known(10));
        asking.client.leave();
        given_up_soon(&server).await;
        assert_eq!(short(&asking.over().await), (0, &b""[..]));
        assert_eq!(world.lines(), ["TCP_MISS_ABORTED/000 POST HIER_DIRECT/192.0.2.1"]);
    });
}

#[test]
fn after_an_upload_and_before_the_head() {
    play("", async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nContent-Length: 5\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        let server = world.server().await;
        asking.client.send_body(b"01234");
        asking.client.end_body();
        assert_eq!(server.upload().await, b"01234");
        asking.client.leave();
        given_up_soon(&server).await;
        assert_eq!(short(&asking.over().await), (0, &b""[..]));
        assert_eq!(world.lines(), ["TCP_MISS_ABORTED/000 POST HIER_DIRECT/192.0.2.1"]);
    });
}

#[test]
fn in_the_middle_of_a_hit() {
    play("", async |world| {
        let asking = world.get("/a");
        say(&world.server().await, &pattern(100_000));
        asking.whole().await;
        let asking = world.ask(&format!("GET {SITE}/a HTTP/1.1\r\n"), 1000);
        asking.client.body(1000).await;
        asking.client.leave();
        let start = Instant::now();
        let answer = asking.over().await;
        assert!(start.elapsed() <= Duration::from_secs(1));
        assert_eq!((short(&answer), answer.end), ((200, &*pattern(1000)), Some(End::Cut)));
        assert_eq!(world.lines()[1..], ["TCP_MEM_HIT_ABORTED/200 GET HIER_NONE/-"]);
    });
}

#[test]
fn one_of_two_who_share_a_fetch() {
    play("collapsed_forwarding on", async |world| {
        let first = world.get("/shared");
        let server = world.server().await;
        server.asked().await;
        let second = world.get("/shared");
        // It has joined.
        tokio::time::sleep(Duration::from_secs(1)).await;
        first.client.leave();
        first.over().await;
        say(&server, b"hello");
        assert_eq!(short(&second.whole().await), (200, &b"hello"[..]));
        assert!(world.asks_no_more());
        let first = "TCP_MISS_ABORTED/000 GET HIER_DIRECT/192.0.2.1";
        assert_eq!(world.lines(), [first, "TCP_CF_MISS/200 GET HIER_NONE/-"]);
    });
}
