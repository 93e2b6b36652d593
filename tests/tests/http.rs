//! Passing messages on: methods, bodies, interim answers, tunnels, upgrades, and the fields a proxy
//! must touch.

use humboldt_tests::message::Reader;
use humboldt_tests::wait::Gate;
use humboldt_tests::{Origin, Proxy, Reply, World, proxy};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

#[test]
fn a_forward_proxy_fetches_what_the_absolute_target_names() {
    let world = World::forward("");
    world.origin.on("/page?q=1", Reply::ok("hello").with("X-Own", "kept"));
    let answer = world.get("/page?q=1").expect(200);
    assert_eq!((answer.text().as_str(), answer.field("X-Own")), ("hello", Some("kept")));
    assert_eq!(world.origin.last("/page?q=1").target(), "/page?q=1");
}

#[test]
fn an_accelerator_serves_its_origin_under_the_public_name() {
    let world = World::reverse("");
    world.origin.on("/page", Reply::ok("hello"));
    assert_eq!(world.get("/page").expect(200).text(), "hello");
    assert_eq!(world.origin.last("/page").field("Host"), Some("site.test"));
}

#[test]
fn an_accelerator_without_a_host_uses_its_default_site() {
    let world = World::reverse("");
    world.origin.on("/page", Reply::ok("hello"));
    let mut client = world.client();
    assert_eq!(client.send("GET /page HTTP/1.0\r\n\r\n").response().expect(200).text(), "hello");
    assert_eq!(world.origin.last("/page").field("Host"), Some("site.test"));
}

#[test]
fn every_method_gets_through_with_its_body_known_or_not() {
    let world = World::forward("");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "BREW"] {
        let path = format!("/{method}");
        world.origin.on(&path, Reply::ok("done"));
        let body: &[u8] =
            if matches!(method, "POST" | "PUT" | "PATCH" | "BREW") { b"some text" } else { b"" };
        let mut client = world.client();
        let answer =
            client.request(method, &world.target(&path), &[], body).response_to(method).expect(200);
        assert_eq!(answer.text(), "done");
        let request = world.origin.last(&path);
        assert_eq!((request.method(), request.body.bytes.as_slice()), (method, body));
    }
}

#[test]
fn head_gets_the_fields_of_get_and_no_body() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello"));
    let mut client = world.client();
    let head =
        client.request("HEAD", &world.target("/a"), &[], b"").response_to("HEAD").expect(200);
    assert_eq!(head.field("Content-Length"), Some("5"));
    let next = client.request("GET", &world.target("/a"), &[], b"").response().expect(200);
    assert_eq!(next.text(), "hello", "the connection is in step after HEAD");
}

#[test]
fn chunked_answers_keep_their_trailers() {
    let world = World::forward("");
    world.origin.handle("/a", |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n");
        wire.send("4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\nX-Sum: 9\r\n\r\n");
    });
    let answer = world.ask("GET", "/a", &[("TE", "trailers")]).expect(200);
    assert!(answer.is_complete);
    assert_eq!(answer.text(), "wikipedia");
    assert_eq!(answer.trailers, [("X-Sum".to_owned(), "9".to_owned())]);
}

#[test]
fn chunked_request_bodies_reach_the_origin_whole() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("thanks"));
    let mut client = world.client();
    client.send(format!(
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        world.target("/a")
    ));
    client.send("3\r\nabc\r\n").send("A\r\n0123456789\r\n").send("0\r\n\r\n");
    let _ = client.response().expect(200);
    let request = world.origin.last("/a");
    assert!(request.body.is_complete);
    assert_eq!(request.body.bytes, b"abc0123456789");
}

#[test]
fn a_client_of_1_0_gets_no_chunks_and_a_closed_connection() {
    let world = World::forward("");
    world.origin.handle("/a", |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    });
    let mut client = world.client();
    let answer =
        client.send(format!("GET {} HTTP/1.0\r\n\r\n", world.target("/a"))).response().expect(200);
    assert_eq!(answer.field("Transfer-Encoding"), None);
    assert_eq!(answer.text(), "hello");
    assert!(client.closes());
}

#[test]
fn an_origin_of_1_0_ends_its_body_by_closing() {
    let world = World::forward("");
    world.origin.on(
        "/a",
        Reply::raw("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nas long as it lasts"),
    );
    let mut client = world.client();
    let answer = client.request("GET", &world.target("/a"), &[], b"").response().expect(200);
    assert!(answer.is_complete);
    assert_eq!(answer.text(), "as long as it lasts");
    assert!(answer.head.start.starts_with("HTTP/1.1 "), "a proxy speaks its own version");
}

#[test]
fn a_request_body_is_streamed_and_not_collected_first() {
    let world = World::forward("");
    let seen = Arc::new(Gate::default());
    let seen_by_origin = Arc::clone(&seen);
    world.origin.handle("/upload", move |head, wire| {
        let first = wire.reader.exactly(1_000).unwrap_or_default();
        seen_by_origin.open();
        let rest = wire.reader.exactly(1_000_000 - 1_000).unwrap_or_default();
        assert_eq!(head.field("Content-Length"), Some("1000000"));
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{:07}",
            first.len() + rest.len()
        ));
    });
    let mut client = world.client();
    client.send(format!(
        "PUT {} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        world.target("/upload")
    ));
    client.send(vec![b'a'; 1_000]);
    seen.pass();
    client.send(vec![b'b'; 999_000]);
    assert_eq!(client.response().expect(200).text(), "1000000");
}

#[test]
fn a_client_that_expects_100_continue_hears_it_before_it_sends() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("thanks"));
    let mut client = world.client();
    let fields = [("Expect", "100-continue"), ("Content-Length", "5")];
    client.request("POST", &world.target("/a"), &fields, b"");
    let interim = client.head();
    assert!(interim.start.starts_with("HTTP/1.1 100"), "{interim:?}");
    assert_eq!(client.send("hello").response().expect(200).text(), "thanks");
    assert_eq!(world.origin.last("/a").body.bytes, b"hello");
}

#[test]
fn early_hints_are_passed_on() {
    let world = World::forward("");
    world.origin.handle("/a", |_, wire| {
        wire.send("HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\n\r\n");
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let answer = world.get("/a").expect(200);
    assert_eq!(answer.text(), "ok");
    let hints = answer.interim.iter().find(|head| head.word(1) == "103").expect("103 before 200");
    assert_eq!(hints.field("Link"), Some("</s.css>; rel=preload"));
}

/// Listens once and sends the received bytes back, in capitals.
fn shouting_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || shout(stream));
        }
    });
    address
}

fn shout(mut stream: TcpStream) {
    let mut reader = Reader::new(stream.try_clone().expect("a second handle"));
    while let Ok(bytes) = reader.exactly(5) {
        if bytes.is_empty() || stream.write_all(&bytes.to_ascii_uppercase()).is_err() {
            break;
        }
    }
}

#[test]
fn connect_opens_a_tunnel_for_any_bytes() {
    let proxy = Proxy::forward("");
    let server = shouting_server();
    let mut client = proxy.client();
    // The first bytes for the server may come along with the request.
    client.send(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\nhello"));
    let answer = client.response_to("CONNECT").expect(200);
    assert_eq!((answer.field("Content-Length"), answer.field("Transfer-Encoding")), (None, None));
    assert_eq!(client.bytes(5), b"HELLO");
    assert_eq!(client.send("world").bytes(5), b"WORLD");
    client.half_close();
    assert!(client.closes());
    assert!(proxy.logged("CONNECT").contains("TCP_TUNNEL/200"), "{}", proxy.text("access.log"));
}

#[test]
fn connect_to_a_closed_port_is_an_error_and_no_tunnel() {
    let proxy = Proxy::forward("");
    let nobody = humboldt_tests::wait::free_address();
    let mut client = proxy.client();
    let status = client
        .send(format!("CONNECT {nobody} HTTP/1.1\r\nHost: {nobody}\r\n\r\n"))
        .response()
        .status();
    assert!(matches!(status, 502 | 503), "{status}");
}

#[test]
fn a_websocket_upgrade_turns_into_a_tunnel() {
    for world in [World::forward(""), World::reverse("")] {
        world.origin.handle("/socket", |head, wire| {
            assert_eq!(head.field("Upgrade"), Some("websocket"));
            wire.send(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nready",
            );
            while let Ok(bytes) = wire.reader.exactly(5) {
                if bytes.is_empty() {
                    break;
                }
                wire.send(bytes.to_ascii_uppercase());
            }
        });
        let mut client = world.client();
        let fields = [
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        client.request("GET", &world.target("/socket"), &fields, b"");
        let answer = client.response().expect(101);
        assert_eq!(answer.field("Upgrade"), Some("websocket"));
        assert_eq!(client.bytes(5), b"ready");
        assert_eq!(client.send("hello").bytes(5), b"HELLO");
    }
}

#[test]
fn fields_of_one_hop_stay_on_that_hop() {
    let world = World::forward("");
    world
        .origin
        .on("/a", Reply::ok("x").with("Connection", "X-Reply-Hop").with("X-Reply-Hop", "1"));
    let fields = [
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "Basic YTpi"),
        ("TE", "gzip"),
        ("X-End", "2"),
    ];
    let answer = world.ask("GET", "/a", &fields).expect(200);
    assert_eq!(answer.field("X-Reply-Hop"), None);
    let request = world.origin.last("/a");
    for name in ["X-Hop", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization"] {
        assert_eq!(request.field(name), None, "{name} went on");
    }
    assert_eq!(request.field("X-End"), Some("2"));
}

#[test]
fn connection_cannot_nominate_what_framing_and_routing_need() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    client.request(
        "POST",
        &world.target("/a"),
        &[("Connection", "Host, Content-Length")],
        b"hello",
    );
    let _ = client.response().expect(200);
    let request = world.origin.last("/a");
    assert_eq!(request.body.bytes, b"hello");
    assert_eq!(request.field("Host"), Some(world.host().as_str()));
}

#[test]
fn via_and_x_forwarded_for_name_the_proxy_and_the_client() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x").with("Via", "1.1 inner"));
    let fields = [("Via", "1.0 outer"), ("X-Forwarded-For", "192.0.2.7")];
    let answer = world.ask("GET", "/a", &fields).expect(200);
    let request = world.origin.last("/a");
    let via: Vec<&str> = request.head.all("Via").flat_map(|value| value.split(", ")).collect();
    assert_eq!(via.first(), Some(&"1.0 outer"));
    assert!(via.last().is_some_and(|last| last.starts_with("1.1 proxy.test")), "{via:?}");
    let forwarded: Vec<&str> =
        request.head.all("X-Forwarded-For").flat_map(|value| value.split(", ")).collect();
    assert_eq!(forwarded, ["192.0.2.7", "127.0.0.1"]);
    let via: Vec<&str> = answer.head.all("Via").flat_map(|value| value.split(", ")).collect();
    assert_eq!(via[0], "1.1 inner");
    assert!(via[1].starts_with("1.1 proxy.test"), "{via:?}");
}

#[test]
fn via_and_x_forwarded_for_can_be_turned_off() {
    let world = World::forward("via off\nforwarded_for delete\n");
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
    let request = world.origin.last("/a");
    assert_eq!((request.field("Via"), request.field("X-Forwarded-For")), (None, None));
}

#[test]
fn a_forwarding_loop_is_noticed() {
    let proxy = Proxy::forward("");
    let mut client = proxy.client();
    let target = format!("http://{}/", proxy.address());
    let answer = client.request("GET", &target, &[], b"").response();
    assert!((400..600).contains(&answer.status()), "{:?}", answer.head);
    assert!(proxy.text("access.log").lines().count() < 10, "it went round in circles");
}

#[test]
fn trace_and_options_count_down_max_forwards() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("from the origin"));
    for method in ["TRACE", "OPTIONS"] {
        let answer = world.ask(method, "/a", &[("Max-Forwards", "0"), ("Cookie", "secret")]);
        assert!(answer.status() < 500, "{:?}", answer.head);
        assert!(!answer.text().contains("secret"), "a TRACE must not give away credentials");
        assert_eq!(world.origin.count("/a"), 0, "{method} went on although Max-Forwards is 0");
    }
    let _ = world.ask("OPTIONS", "/a", &[("Max-Forwards", "5")]).expect(200);
    assert_eq!(world.origin.last("/a").field("Max-Forwards"), Some("4"));
}

#[test]
fn an_origin_with_an_ipv6_address_is_reached() {
    let Ok(probe) = TcpListener::bind("[::1]:0") else { return }; // this machine has no IPv6
    drop(probe);
    let origin = Origin::at_address("[::1]:0");
    origin.on("/a", Reply::ok("six"));
    let proxy = Proxy::forward("");
    let mut client = proxy.client();
    assert_eq!(
        client.request("GET", &origin.url("/a"), &[], b"").response().expect(200).text(),
        "six"
    );
}

#[test]
fn names_come_from_the_hosts_file_and_a_dead_address_is_skipped() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("found"));
    let folder = proxy::open_folder();
    let hosts = folder.path().join("hosts");
    // The origin listens on the second address only.
    std::fs::write(&hosts, "127.0.0.2 named.test\n127.0.0.1 named.test\n").expect("a hosts file");
    let proxy = Proxy::forward(&format!("hosts_file {}\n", hosts.display()));
    let target = format!("http://named.test:{}/a", origin.address().port());
    let mut client = proxy.client();
    assert_eq!(client.request("GET", &target, &[], b"").response().expect(200).text(), "found");
    let host = format!("named.test:{}", origin.address().port());
    assert_eq!(origin.last("/a").field("Host"), Some(host.as_str()));
}

#[test]
fn large_answers_arrive_whole_and_unchanged() {
    let world = World::forward("maximum_object_size 64 MB\n");
    let body: Vec<u8> =
        (0..20_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    world.origin.on("/large", Reply::ok(&body).cachable(60));
    for _ in 0..2 {
        let answer = world.get("/large").expect(200);
        assert!(answer.is_complete && answer.body == body);
    }
}
