//! Budgets of clients: requests, bytes and tunnels.

use humboldt_tests::proxy::{self, open_folder};
use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::{Gate, LIMIT, until};
use humboldt_tests::{Client, Origin, Reply, Response, WEB_SOCKET, World};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A world whose origin has small pages that are not stored.
fn world(lines: &str) -> World {
    let world = World::forward(lines);
    world.origin.on("/a", Reply::ok("hello"));
    world.origin.on("/hit", Reply::ok("hello").cachable(60));
    world
}

/// A GET from one of this machine's addresses.
fn get_from(world: &World, last: u8, path: &str) -> Response {
    let own = Ipv4Addr::new(127, 0, 0, last).into();
    let mut client = Client::from_to(own, world.proxy.address());
    client.request("GET", &world.target(path), &[], b"");
    client.response()
}

/// The refusal of a client whose last answer has just come: its bytes are taken when all of them
/// have been sent.
fn until_refused(world: &World, last: u8) -> Response {
    until("a refusal", || {
        let answer = get_from(world, last, "/a");
        (answer.status() == 429).then_some(answer)
    })
}

fn retry_after(answer: &Response) -> u64 {
    answer.field("Retry-After").expect("Retry-After").parse().expect("seconds")
}

#[test]
fn a_network_can_be_one_client() {
    let world = world("client_budget requests=1/hour prefix4=30\n");
    let _ = get_from(&world, 5, "/a").expect(200);
    let refused = get_from(&world, 6, "/a").expect(429);
    let status = refused.field("Proxy-Status").expect("the field");
    assert!(status.contains("prefix4=30"), "{status}");
    let _ = get_from(&world, 8, "/a").expect(200);
}

#[test]
fn requests_over_budget_get_429_and_hits_count_as_well() {
    let lines = "client_budget requests=6/hour burst=3\nlogformat own %Ss/%03>Hs %rule %err_code\n\
                 access_log stdio:{dir}/own.log own\n";
    let world = world(lines);
    let _ = get_from(&world, 1, "/hit").expect(200);
    assert_eq!(get_from(&world, 1, "/hit").expect(200).cache(), "HIT");
    let _ = get_from(&world, 1, "/a").expect(200);
    for path in ["/hit", "/a"] {
        let answer = get_from(&world, 1, path).expect(429);
        // The fourth request comes back 10 minutes after the first.
        let seconds = retry_after(&answer);
        assert!((500..=600).contains(&seconds), "{seconds}");
        let status = answer.field("Proxy-Status").expect("the field");
        assert!(status.contains("error=http_request_denied; details=\"the budget of requests"));
        assert!(status.contains("client_budget requests=6/hour burst=3 (squid.conf:"), "{status}");
        assert!(answer.field("X-Squid-Error").is_some_and(|e| e.starts_with("ERR_OVER_BUDGET")));
    }
    // Another client has its own.
    let _ = get_from(&world, 2, "/a").expect(200);
    let json = [("Accept", "application/problem+json")];
    let json = world.ask("GET", "/a", &json).expect(429);
    assert_eq!(json.field("Content-Type"), Some("application/problem+json"));
    assert!(json.text().contains("\"status\":429") && json.text().contains("\"rule\":{"));
    let place = world.proxy.configuration();
    let line = until("the log", || {
        let log = world.proxy.text("own.log");
        log.lines().find(|line| line.contains("/429")).map(str::to_owned)
    });
    assert!(line.starts_with(&format!("TCP_DENIED/429 {place}:")), "{line}");
    assert!(line.ends_with("ERR_OVER_BUDGET"), "{line}");
    assert_eq!(world.metric("humboldt_client_http_over_budget_total"), 3);
    assert_eq!(world.metric("humboldt_client_budgets "), 2);
    let page = world.proxy.page("squid-internal-mgr/budgets");
    let page = world.client().request("GET", &page, &[], b"").response().expect(200).text();
    assert!(page.contains("127.0.0.1 ") && page.contains("127.0.0.2 "), "{page}");
}

#[test]
fn what_was_used_comes_back_with_time() {
    let world = world("client_budget requests=20/s burst=1\n");
    let _ = get_from(&world, 1, "/a").expect(200);
    until("a request that passes again", || {
        (get_from(&world, 1, "/a").status() == 200).then_some(())
    });
}

#[test]
fn the_first_line_that_holds_counts_and_none_is_no_limit() {
    let world = world(
        "acl vip src 127.0.0.2\nacl post method POST\nclient_budget none vip\n\
         client_budget requests=1/day post\nclient_budget requests=2/day\n",
    );
    for _ in 0..5 {
        let _ = get_from(&world, 2, "/a").expect(200);
    }
    let post = || {
        let mut client = world.client();
        client.request("POST", &world.target("/a"), &[], b"abc");
        client.response().status()
    };
    assert_eq!((post(), post()), (200, 429));
    let _ = get_from(&world, 1, "/a").expect(200);
    let _ = get_from(&world, 1, "/a").expect(200);
    let _ = get_from(&world, 1, "/a").expect(429);
    // Those whom http_access refuses do not use it up.
    let world =
        self::world("acl a urlpath_regex ^/a\nhttp_access deny a\nclient_budget requests=1/day\n");
    for _ in 0..3 {
        let _ = get_from(&world, 1, "/a").expect(403);
    }
    let _ = get_from(&world, 1, "/hit").expect(200);
    let _ = get_from(&world, 1, "/hit").expect(429);
    // Nor do the proxy's own pages, which stay open.
    assert_eq!(world.metric("humboldt_client_http_over_budget_total"), 1);
}

#[test]
fn users_have_budgets_of_their_own_wherever_they_come_from() {
    let folder = open_folder();
    let file = folder.path().join("passwd");
    // The password of both is `secret`.
    let hash = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    fs::write(&file, format!("anna:{hash}\nbo:{hash}\n")).expect("a password file");
    let world = world(&format!(
        "auth_param basic program /x/basic_ncsa_auth {}\nacl users proxy_auth REQUIRED\n\
         client_budget requests=2/day key=user\nhttp_access allow users\nhttp_access deny all\n",
        file.display()
    ));
    let ask = |last: u8, login: &str| {
        let own = Ipv4Addr::new(127, 0, 0, last).into();
        let mut client = Client::from_to(own, world.proxy.address());
        client.request("GET", &world.target("/a"), &[("Proxy-Authorization", login)], b"");
        client.response().status()
    };
    let (anna, bo) = ("Basic YW5uYTpzZWNyZXQ=", "Basic Ym86c2VjcmV0");
    assert_eq!([ask(1, anna), ask(2, anna), ask(3, anna)], [200, 200, 429]);
    assert_eq!([ask(1, bo), ask(1, bo), ask(1, bo)], [200, 200, 429]);
}

#[test]
fn the_user_may_be_one_whom_a_helper_names() {
    let scripts = Scripts::new();
    let helper = scripts.helper("who", "echo OK user=anna");
    let world = world(&format!(
        "external_acl_type who ttl=0 %SRC {helper}\nacl known external who\n\
         client_budget requests=2/day key=user\nhttp_access allow known\nhttp_access deny all\n"
    ));
    assert_eq!([1, 2, 3].map(|last| get_from(&world, last, "/a").status()), [200, 200, 429]);
    let page = world.proxy.page("squid-internal-mgr/budgets");
    let page = world.client().request("GET", &page, &[], b"").response().expect(200).text();
    assert!(page.contains("anna "), "{page}");
}

#[test]
fn bytes_of_answers_and_of_uploads_are_taken() {
    let world = world("client_budget bytes=100KB/day\n");
    world.origin.on("/large", Reply::ok(vec![b'x'; 60 << 10]).cachable(60));
    world.origin.on("/post", Reply::ok("ok"));
    assert_eq!(get_from(&world, 1, "/large").expect(200).body.len(), 60 << 10);
    assert_eq!(get_from(&world, 1, "/large").expect(200).cache(), "HIT");
    let answer = until_refused(&world, 1);
    // 20 KB too much, of 100 KB a day.
    let seconds = retry_after(&answer);
    assert!((15_000..20_000).contains(&seconds), "{seconds}");
    assert!(answer.text().contains("the budget of bytes is used up"), "{}", answer.text());
    let own = Ipv4Addr::new(127, 0, 0, 3).into();
    let mut client = Client::from_to(own, world.proxy.address());
    client.request("POST", &world.target("/post"), &[], &vec![b'y'; 90 << 10]);
    let _ = client.response().expect(200);
    client.request("POST", &world.target("/post"), &[], &vec![b'y'; 20 << 10]);
    assert!(matches!(client.response().status(), 200 | 429));
    let _ = until_refused(&world, 3);
    let _ = get_from(&world, 4, "/a").expect(200);
}

#[test]
fn an_answer_that_uses_the_budget_up_is_cut_off() {
    let world = world("client_budget bytes=1MB/day\n");
    world.origin.handle("/endless", |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while wire.try_send(vec![b'x'; 64 << 10]) {}
    });
    let mut client = world.client();
    client.request("GET", &world.target("/endless"), &[], b"");
    assert_eq!(client.head().word(1), "200");
    // Panics if it has no end.
    let _ = client.closes();
    let line = world.proxy.logged("/endless");
    assert!(line.contains("TCP_MISS_ABORTED/200"), "{line}");
    let _ = get_from(&world, 1, "/a").expect(429);
    assert_eq!(world.metric("humboldt_client_connections_cut_total{reason=\"over_budget\"}"), 1);
}

#[test]
fn an_upload_that_uses_the_budget_up_is_refused_while_it_runs() {
    let world = world("client_budget bytes=1MB/day\n");
    world.origin.on("/post", Reply::ok("done"));
    let mut client = world.client();
    let length = 1_u64 << 30;
    client.send(format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n",
        world.target("/post")
    ));
    client.stuff(4 << 20);
    let answer = client.response().expect(429);
    assert!(answer.text().contains("the budget of bytes is used up"), "{}", answer.text());
    assert!(retry_after(&answer) >= 1);
    let _ = get_from(&world, 1, "/a").expect(429);
    let _ = get_from(&world, 2, "/a").expect(200);
}

#[test]
fn an_answer_whose_end_uses_the_budget_up_is_whole() {
    let world = world("client_budget bytes=50KB/day\n");
    let big = "x".repeat(60 << 10);
    world.origin.on("/big", Reply::ok(&big));
    assert_eq!(get_from(&world, 1, "/big").expect(200).text().len(), big.len());
    let _ = until_refused(&world, 1);
}

#[test]
fn who_waits_as_long_as_retry_after_says_gets_in() {
    // A client that is refused again and again owes no more for it.
    let world = world("client_budget bytes=2KB/s\n");
    let big = "x".repeat(5 << 10);
    world.origin.on("/big", Reply::ok(&big));
    let _ = get_from(&world, 1, "/big").expect(200);
    let first = until_refused(&world, 1);
    let begun = Instant::now();
    let wait = Duration::from_secs(retry_after(&first));
    while get_from(&world, 1, "/a").status() == 429 {
        assert!(begun.elapsed() < wait + LIMIT, "{wait:?}");
    }
    // It is in whole seconds, rounded up.
    let took = begun.elapsed();
    assert!(took + Duration::from_secs(1) >= wait, "{took:?} instead of {wait:?}");
}

/// A server that sends back what it gets, on connections that end when the test does.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 16 << 10];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

fn tunnel(world: &World, port: u16) -> (Client, Response) {
    let mut client = world.client();
    client.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let answer = client.response_to("CONNECT");
    (client, answer)
}

#[test]
fn tunnels_are_counted_while_they_are_open() {
    let world = world("client_budget tunnels=2\n");
    let port = echo();
    let (first, answer) = tunnel(&world, port);
    assert_eq!(answer.status(), 200);
    let (second, answer) = tunnel(&world, port);
    assert_eq!(answer.status(), 200);
    let (_, refused) = tunnel(&world, port);
    assert_eq!((refused.status(), retry_after(&refused)), (429, 10));
    assert!(refused.text().contains("as many tunnels"), "{}", refused.text());
    // Other requests are not tunnels.
    let _ = get_from(&world, 1, "/a").expect(200);
    drop(first);
    until("a place", || (tunnel(&world, port).1.status() == 200).then_some(()));
    drop(second);
    // One by Upgrade is one too.
    let world = self::world("client_budget tunnels=0\n");
    let _ = world.ask("GET", "/a", &WEB_SOCKET).expect(429);
    assert_eq!(world.origin.count("/a"), 0);
    // A tunnel that is never made gives its place back.
    let world = self::world("client_budget tunnels=2\n");
    let closed = free_port();
    until("all places", || (tunnel(&world, closed).1.status() == 503).then_some(()));
    for _ in 0..5 {
        assert_eq!(tunnel(&world, closed).1.status(), 503);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

#[test]
fn a_tunnel_that_uses_the_budget_up_is_closed_and_no_other_is_opened() {
    let world = world("client_budget bytes=1MB/day tunnels=5\n");
    let port = echo();
    let (mut client, answer) = tunnel(&world, port);
    assert_eq!(answer.status(), 200);
    // Both directions count: 256 KB each are half of it.
    let piece = vec![b'x'; 64 << 10];
    for _ in 0..4 {
        client.send(&piece);
        assert_eq!(client.bytes(piece.len()).len(), piece.len());
    }
    client.stuff(4 << 20);
    // Panics if it stays open.
    let _ = client.closes();
    let line = world.proxy.logged("CONNECT");
    assert!(line.contains("TCP_TUNNEL_ABORTED/200"), "{line}");
    let (_, refused) = tunnel(&world, port);
    assert_eq!(refused.status(), 429);
    assert!(retry_after(&refused) >= 1);
}

#[test]
fn a_reconfiguration_keeps_what_was_used_under_lines_that_stay() {
    let lines = "client_budget requests=2/day\n";
    let world = world(lines);
    let _ = get_from(&world, 1, "/a").expect(200);
    let _ = get_from(&world, 1, "/a").expect(200);
    // Another line before it, and another place in the file.
    world.proxy.reconfigure(&format!("acl vip src 127.0.0.9\nclient_budget none vip\n{lines}"));
    let _ = get_from(&world, 1, "/a").expect(429);
    // Other words are another budget.
    world.proxy.reconfigure("client_budget requests=3/day\n");
    assert_eq!(world.metric("humboldt_client_budgets "), 0);
    let _ = get_from(&world, 1, "/a").expect(200);
    world.proxy.reconfigure("");
    for _ in 0..5 {
        let _ = get_from(&world, 1, "/a").expect(200);
    }
}

#[test]
fn explain_names_the_line_that_holds() {
    let folder = open_folder();
    let file = folder.path().join("squid.conf");
    fs::write(
        &file,
        "http_port 3128\nacl vip src 10.0.0.1\nhttp_access allow all\nclient_budget none vip\n\
         client_budget requests=5/s\n",
    )
    .expect("a configuration");
    let file = file.display().to_string();
    let ask = |src: &str| {
        let words = ["-f", &file, "-k", "explain", "GET", "http://192.0.2.1/", "--src", src];
        String::from_utf8_lossy(&proxy::run(&words).stdout).into_owned()
    };
    assert!(ask("10.0.0.1").contains("client_budget none vip: holds"), "{}", ask("10.0.0.1"));
    let other = ask("10.0.0.2");
    assert!(other.contains("none vip: does not hold"), "{other}");
    assert!(other.contains("client_budget requests=5/s: holds"), "{other}");
}

#[test]
fn budgets_are_shared_by_all_cores() {
    let world = world("workers 2\nclient_budget requests=20/day\n");
    let gate = Arc::new(Gate::default());
    let statuses: Vec<_> = (0..40)
        .map(|_| {
            let (gate, target) = (Arc::clone(&gate), world.target("/a"));
            let mut client = world.client();
            std::thread::spawn(move || {
                gate.pass();
                client.request("GET", &target, &[], b"").response().status()
            })
        })
        .collect();
    gate.open();
    let passed = statuses.into_iter().map(|one| one.join().expect("a status"));
    assert_eq!(passed.filter(|status| *status == 200).count(), 20);
    let origin: &Origin = &world.origin;
    assert_eq!(origin.count("/a"), 20);
}
