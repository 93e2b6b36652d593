//! Requests with a body, and tunnels.

use humboldt_exchange::memory::Pipe;

use super::*;

const MISS: &str = "TCP_MISS/200 POST HIER_DIRECT/192.0.2.1";

#[test]
fn a_body_goes_to_the_server_and_its_answer_to_the_client() {
    play("", async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        let server = world.server().await;
        asking.client.send_body(b"one");
        assert_eq!(server.asked().await.length, BodyLength::Unknown);
        asking.client.send_body(b"two");
        asking.client.end_body();
        assert_eq!(server.upload().await, b"onetwo");
        say(&server, b"hello");
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        assert!(world.asks_no_more());
        assert_eq!(world.lines(), [MISS]);
    });
}

#[test]
fn an_early_answer_comes_while_the_body_is_on_its_way() {
    play("", async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nContent-Length: 10\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        let server = world.server().await;
        asking.client.send_body(b"01234");
        server.asked().await;
        server.send_head(head(200, "Content-Length: 10\r\n"));
        server.send_body(b"hello");
        // The answer is read while the server still gets the body.
        assert_eq!(asking.client.body(5).await, b"hello");
        asking.client.send_body(b"56789");
        asking.client.end_body();
        assert_eq!(server.upload().await, b"0123456789");
        server.send_body(b"world");
        server.end(None);
        assert_eq!(short(&asking.whole().await), (200, &b"helloworld"[..]));
        assert_eq!(world.lines(), [MISS]);
    });
}

#[test]
fn a_whole_answer_does_not_wait_for_the_rest_of_a_body() {
    play("", async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nContent-Length: 10\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        let server = world.server().await;
        asking.client.send_body(b"01234");
        server.asked().await;
        server.send_head(head(200, "Content-Length: 5\r\n"));
        server.send_body(b"hello");
        server.end(None);
        assert_eq!(asking.client.end().await.body, b"hello");
        given_up_soon(&server).await;
        assert_eq!(short(&asking.whole().await), (200, &b"hello"[..]));
        assert_eq!(world.lines(), [MISS]);
    });
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    play("request_body_max_size 8 bytes", async |world| {
        let text = format!("POST {SITE}/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n");
        let asking = world.ask(&text, OPEN_BYTES);
        asking.client.send_body(b"01234");
        let server = world.server().await;
        server.asked().await;
        asking.client.send_body(b"56789");
        assert_eq!(short(&asking.whole().await).0, 413);
        given_up_soon(&server).await;
        assert_eq!(world.lines().len(), 1);
        assert!(world.lines()[0].contains("/413 POST "), "{:?}", world.lines());
    });
}

async fn read(pipe: &Pipe, bytes: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 100]);
    while all.len() < bytes {
        let read = poll_fn(|cx| pipe.poll_read(cx, &mut buffer)).await.expect("not broken");
        assert_ne!(read, 0, "an early end");
        all.extend_from_slice(&buffer[..read]);
    }
    all
}

async fn write(pipe: &Pipe, bytes: &[u8]) {
    let written = poll_fn(|cx| pipe.poll_write(cx, bytes)).await.expect("not broken");
    assert_eq!(written, bytes.len());
}

async fn at_end(pipe: &Pipe) -> bool {
    poll_fn(|cx| pipe.poll_read(cx, &mut [0; 1])).await.expect("not broken") == 0
}

#[test]
fn a_tunnel_leads_both_ways_until_both_sides_have_ended() {
    play("", async |world| {
        let asking = world.ask("CONNECT 192.0.2.1:443 HTTP/1.1\r\n", OPEN_BYTES);
        let (peer, server) = world.reached().await;
        assert_eq!(peer, "192.0.2.1:443".parse().expect("an address"));
        assert_eq!(asking.client.head().await.status, 200);
        let (client_end, server_end) = (asking.client.tunnel().await, server.tunnel().await);
        write(&client_end, b"hello").await;
        assert_eq!(read(&server_end, 5).await, b"hello");
        write(&server_end, b"welcome").await;
        assert_eq!(read(&client_end, 7).await, b"welcome");
        server_end.shut_down();
        assert!(at_end(&client_end).await);
        client_end.shut_down();
        assert!(at_end(&server_end).await);
        let answer = asking.over().await;
        assert_eq!(answer.end, Some(End::Tunnel));
        assert_eq!(world.lines(), ["TCP_TUNNEL/200 CONNECT HIER_DIRECT/192.0.2.1"]);
    });
}

#[test]
fn a_tunnel_that_one_side_breaks_is_over_for_the_other() {
    play("", async |world| {
        for is_client in [true, false] {
            let asking = world.ask("CONNECT 192.0.2.1:443 HTTP/1.1\r\n", OPEN_BYTES);
            let server = world.server().await;
            let (client_end, server_end) = (asking.client.tunnel().await, server.tunnel().await);
            if is_client {
                client_end.reset()
            } else {
                server_end.reset()
            };
            let start = Instant::now();
            asking.over().await;
            assert!(start.elapsed() <= Duration::from_secs(1));
        }
        let line = "TCP_TUNNEL/200 CONNECT HIER_DIRECT/192.0.2.1";
        assert_eq!(world.lines(), [line, line]);
    });
}

#[test]
fn a_tunnel_that_nobody_uses_ends() {
    play("read_timeout 5 minutes", async |world| {
        let asking = world.ask("CONNECT 192.0.2.1:443 HTTP/1.1\r\n", OPEN_BYTES);
        let server = world.server().await;
        let _ends = (asking.client.tunnel().await, server.tunnel().await);
        let start = Instant::now();
        asking.over().await;
        let (waited, minutes) = (start.elapsed(), Duration::from_secs(300));
        assert!(waited >= minutes && waited <= minutes + Duration::from_secs(1), "{waited:?}");
        assert_eq!(world.lines(), ["TCP_TUNNEL_TIMEDOUT/200 CONNECT HIER_DIRECT/192.0.2.1"]);
    });
}

#[test]
fn a_tunnel_to_a_closed_port_is_refused() {
    play("", async |world| {
        world.close("192.0.2.1:443");
        let answer = world.ask("CONNECT 192.0.2.1:443 HTTP/1.1\r\n", OPEN_BYTES).over().await;
        assert_eq!(short(&answer).0, 503);
        assert_eq!(world.lines().len(), 1);
        assert!(world.lines()[0].starts_with("TCP_TUNNEL/503 CONNECT "), "{:?}", world.lines());
    });
}
