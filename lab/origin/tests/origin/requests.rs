//! What requests may look like.

use crate::client::Client;
use crate::world::{PAGE_BYTES, World, page};
use humboldt_lab_origin::{Origin, OriginError};

#[test]
fn posts_are_read_and_answered() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    let path = running.path(page(1));
    client.send(format!("POST {path} HTTP/1.1\r\nContent-Length: 100000\r\n\r\n").as_bytes());
    client.send(&[b'x'; 100_000]);
    let got = client.answer("POST");
    assert_eq!((got.status, got.body.len() as u64, got.field("Expires")), (200, PAGE_BYTES, None));
    assert!(
        got.field("Cache-Control").unwrap().contains("no-store")
            || got.field("Cache-Control") == Some("private")
    );
    client.send(
        format!("POST {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            .as_bytes(),
    );
    client.send(b"0\r\n\r\n");
    assert_eq!(client.answer("POST").status, 200);
    client.send(format!("POST {path} HTTP/1.1\r\nContent-Length: 0\r\n\r\n").as_bytes());
    assert_eq!(client.answer("POST").status, 200);
    assert_eq!(client.get(&path).status, 200, "the connection is still good");
    assert_eq!(running.origin.sample().requests, 4);
}

#[test]
fn a_client_that_asks_first_is_invited() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    let fields = "Content-Length: 3\r\nExpect: 100-continue\r\n";
    assert_eq!(client.ask("POST", &running.path(page(1)), fields).status, 100);
    client.send(b"abc");
    assert_eq!(client.answer("POST").status, 200);
}

#[test]
fn targets_may_be_whole_urls_and_clients_old() {
    let running = World::default().start();
    let path = running.path(page(1));
    let mut client = Client::connect(running.address());
    assert_eq!(client.get(&format!("http://any.example:81{path}")).status, 200);
    client.send(format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").as_bytes());
    let got = client.answer("GET");
    assert_eq!((got.status, got.field("Connection")), (200, Some("keep-alive")));
    client.send(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    let got = client.answer("GET");
    assert_eq!((got.status, got.field("Connection")), (200, Some("close")));
    assert!(client.is_closed());
}

#[test]
fn requests_in_a_row_are_answered_in_order() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    let asks = |number: u64| {
        format!("GET {} HTTP/1.1\r\nLab-Request: {number:016x}\r\n\r\n", running.path(page(number)))
    };
    let all: String = (0..200).map(asks).collect();
    // In odd pieces, so that heads are split.
    all.as_bytes().chunks(977).for_each(|piece| client.send(piece));
    for number in 0..200 {
        assert_eq!(client.answer("GET").field("Lab-Request"), Some(&format!("{number:016x}")[..]));
    }
}

#[test]
fn what_no_server_has_is_refused() {
    let running = World::default().start();
    let path = running.path(page(1));
    for (request, status, stays_open) in [
        ("GET /nothing HTTP/1.1\r\n\r\n".to_owned(), 404, true),
        ("GET /l/0/77/1.html HTTP/1.1\r\n\r\n".to_owned(), 404, true),
        ("CONNECT a:443 HTTP/1.1\r\n\r\n".to_owned(), 405, true),
        (format!("DELETE {path} HTTP/1.1\r\n\r\n"), 405, true),
        (format!("GET {path} HTTP/1.1\nHost: a\r\n\r\n"), 400, false),
        (format!("POST {path} HTTP/1.1\r\nContent-Length: 67108865\r\n\r\n"), 413, false),
        (format!("POST {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nz"), 400, false),
    ] {
        let mut client = Client::connect(running.address());
        client.send(request.as_bytes());
        let got = client.answer("GET");
        assert_eq!((got.status, got.keep_alive), (status, stays_open), "{request}");
        assert_eq!(got.field("Cache-Control"), Some("no-store"));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(client.is_closed());
    }
    assert_eq!(running.origin.sample().refused, 7);
    let mut client = Client::connect(running.address());
    let got = client.get("/health");
    assert_eq!((got.status, &got.body[..]), (200, &b"ok"[..]));
    assert_eq!(running.origin.stop().refused, 0);
}

#[test]
fn a_plan_that_cannot_be_is_one_clear_line() {
    let world = World { threads: 2, ..World::default() };
    let first = world.start();
    let mut plan = world.plan();
    plan.listen = vec![first.address()];
    let error = Origin::start(plan.clone()).unwrap_err();
    assert!(matches!(error, OriginError::Listen { address, .. } if address == first.address()));
    let text = error.to_string();
    assert!(text.starts_with(&format!(
        "origin: cannot listen on {}: Address already in use",
        first.address()
    )));
    assert!(text.ends_with("choose another with --origin ADDRESS:PORT"), "{text}");
    first.origin.stop();
    Origin::start(plan).unwrap().stop();
    for broken in [
        humboldt_lab_origin::OriginPlan { threads: 0, ..world.plan() },
        humboldt_lab_origin::OriginPlan { listen: Vec::new(), ..world.plan() },
        humboldt_lab_origin::OriginPlan { time_scale: 0.0, ..world.plan() },
        humboldt_lab_origin::OriginPlan { chunked_share: 1.5, ..world.plan() },
    ] {
        assert!(matches!(Origin::start(broken), Err(OriginError::Plan(_))));
    }
    let pinned = humboldt_lab_origin::OriginPlan { cores: vec![100_000], ..world.plan() };
    assert!(matches!(Origin::start(pinned), Err(OriginError::Pin { core: 100_000, .. })));
}
