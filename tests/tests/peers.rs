//! The choice of a parent for a request, and the effect of options of ports and peers.

use humboldt_tests::servers::Server;
use humboldt_tests::wait::{LIMIT, free_listener};
use humboldt_tests::{Client, Origin, Proxy, Reply, proxy};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

/// Three servers that answer everything, and a proxy that has them as parents, each with the
/// options of its row.
fn behind(options: [&str; 3]) -> ([Origin; 3], Proxy) {
    let origins = [Origin::new(), Origin::new(), Origin::new()];
    let mut lines = "never_direct allow all\n".to_owned();
    for (n, (origin, options)) in origins.iter().zip(options).enumerate() {
        for path in 0..60 {
            origin.on(&format!("/{path}"), Reply::ok("x").with("Cache-Control", "no-store"));
        }
        let (ip, port) = (origin.address().ip(), origin.address().port());
        lines.push_str(&format!(
            "cache_peer {ip} parent {port} 0 no-query originserver name=p{n} {options}\n"
        ));
    }
    (origins, Proxy::forward(&lines))
}

/// Asks for `count` different URLs; how many each server got.
fn ask(origins: &[Origin; 3], proxy: &Proxy, count: usize) -> [usize; 3] {
    let mut client = proxy.client();
    for path in 0..count {
        let url = format!("http://site.test/{path}");
        let _ = client.request("GET", &url, &[], b"").response().expect(200);
    }
    std::array::from_fn(|n| (0..count).map(|path| origins[n].count(&format!("/{path}"))).sum())
}

#[test]
fn parents_take_turns_as_often_as_their_weight_says() {
    let (origins, proxy) =
        behind(["round-robin weight=3", "round-robin", "weighted-round-robin weight=2"]);
    assert_eq!(ask(&origins, &proxy, 60), [30, 10, 20]);
    assert!(proxy.logged("/1 ").contains("ROUNDROBIN_PARENT"));
}

#[test]
fn with_carp_the_url_decides() {
    let (origins, proxy) = behind(["carp", "carp", "carp"]);
    let first = ask(&origins, &proxy, 60);
    assert!(first.iter().all(|&count| count > 5), "{first:?}");
    let again = ask(&origins, &proxy, 60);
    assert_eq!(again, first.map(|count| 2 * count), "each URL goes where it went before");
    assert!(proxy.logged("/1 ").contains("CARP"));
}

#[test]
fn with_sourcehash_the_client_decides() {
    let (origins, proxy) = behind(["sourcehash", "sourcehash", "sourcehash"]);
    let mut counts = ask(&origins, &proxy, 20);
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 20]);
    assert!(proxy.logged("/1 ").contains("SOURCEHASH_PARENT"));
}

#[test]
fn userhash_is_the_order_of_the_file() {
    let (origins, proxy) = behind(["userhash", "userhash", "userhash"]);
    assert_eq!(ask(&origins, &proxy, 9), [9, 0, 0]);
    assert!(proxy.logged("/1 ").contains("FIRSTUP_PARENT"));
    assert!(proxy.output().contains("`userhash` has no effect"), "{}", proxy.output());
}

#[test]
fn vport_takes_the_place_of_the_port_that_the_client_names() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("x").cachable(60));
    let (ip, port) = (origin.address().ip(), origin.address().port());
    let peer = format!("cache_peer {ip} parent {port} 0 no-query originserver\n");
    let proxy = Proxy::start("accel vport=8080", &peer);
    let mut client = proxy.client();
    for host in ["site.test:99", "site.test", "SITE.test:1"] {
        let _ = client.request("GET", "/a", &[("Host", host)], b"").response().expect(200);
    }
    assert_eq!(origin.count("/a"), 1, "one URL, one object");
    assert!(
        proxy.logged("/a").contains(" http://site.test:8080/a "),
        "{}",
        proxy.text("access.log")
    );
}

#[test]
fn a_port_whose_name_does_not_resolve_does_not_become_every_address() {
    let folder = proxy::open_folder();
    let path = folder.path().join("squid.conf");
    let dir = folder.path().display();
    let lines =
        "http_port no-such-host.invalid:3128\naccess_log none\nhttp_access allow localhost\n";
    fs::write(&path, format!("{lines}pid_filename {dir}/pid\ncache_log {dir}/cache.log\n"))
        .expect("a file");
    let output = proxy::run(&["-N", "-f", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no port that can be opened"), "{said}");
}

/// A parent that gives this answer to every CONNECT and then stops reading, and the number of
/// CONNECTs.
fn refusing(answer: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = free_listener();
    let address = listener.local_addr().expect("its address");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            count.fetch_add(1, SeqCst);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, asked)
}

fn parents(addresses: &[SocketAddr]) -> String {
    let peers = addresses.iter().enumerate().map(|(n, address)| {
        let (ip, port) = (address.ip(), address.port());
        format!("cache_peer {ip} parent {port} 0 no-query name=p{n}\n")
    });
    peers.collect::<String>() + "never_direct allow all\n"
}

/// A client that has sent CONNECT, and behind it bytes for the tunnel.
fn asks_for_tunnel(proxy: &Proxy) -> Client {
    let mut client = proxy.client();
    client.send("CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\n\r\n");
    client.send("GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n");
    client
}

#[test]
fn what_a_parent_says_that_refuses_a_tunnel_goes_to_the_client() {
    for (answer, status, body) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"a\"\r\n\
             Content-Length: 8\r\n\r\nwho asks",
            407,
            "who asks",
        ),
        ("HTTP/1.1 403 Forbidden\r\nA: b\r\nContent-Length: 2\r\n\r\nno", 403, "no"),
        (
            "HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nlater\r\n0\r\n\r\n",
            503,
            "later",
        ),
        ("HTTP/1.0 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nfar", 502, "far"),
    ] {
        let (parent, asked) = refusing(answer);
        let proxy = Proxy::forward(&parents(&[parent]));
        let mut client = asks_for_tunnel(&proxy);
        let refusal = client.response().expect(status);
        assert_eq!((refusal.text().as_str(), refusal.is_complete), (body, true));
        assert_eq!(refusal.field("Connection"), Some("close"));
        let challenge = (status == 407).then_some("Basic realm=\"a\"");
        assert_eq!(refusal.field("Proxy-Authenticate"), challenge, "{answer}");
        assert!(client.closes(), "what is meant for the tunnel is no request: {answer}");
        let line = proxy.logged("CONNECT site.test:443");
        assert!(line.contains(&format!(" TCP_TUNNEL/{status} ")), "{line}");
        assert!(line.contains(&format!("PARENT/{}", parent.ip())), "{line}");
        assert_eq!(asked.load(SeqCst), 1);
    }
}

#[test]
fn where_a_parent_finds_no_server_for_a_tunnel_another_is_asked() {
    for (answer, status, is_second_asked) in [
        ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nfar", 200, true),
        ("HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 3\r\n\r\nfar", 200, true),
        // Another protocol, which nobody asked for.
        ("HTTP/1.1 101 Other\r\nUpgrade: x\r\n\r\nHTTP/1.1 200 Here\r\n\r\n", 200, true),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403, false),
        ("HTTP/1.1 407 Who\r\nContent-Length: 2\r\n\r\nno", 407, false),
    ] {
        let (first, _) = refusing(answer);
        let (second, asked) = refusing("HTTP/1.1 200 Here\r\n\r\n");
        let proxy = Proxy::forward(&parents(&[first, second]));
        assert_eq!(asks_for_tunnel(&proxy).head().word(1), status.to_string(), "{answer}");
        assert_eq!(asked.load(SeqCst), usize::from(is_second_asked), "{answer}");
    }
}

#[test]
fn what_squid_says_that_refuses_a_tunnel_goes_to_the_client() {
    let squid = Server::squid("http_access deny CONNECT");
    let proxy = Proxy::forward(&parents(&[squid.address]));
    let refusal = asks_for_tunnel(&proxy).response().expect(403);
    assert!(refusal.is_complete && refusal.text().contains("Access Denied"), "{}", refusal.text());
    assert_eq!(refusal.field("X-Squid-Error"), Some("ERR_ACCESS_DENIED 0"));
}

/// A proxy behind a parent with this option, which answers each connection's request with 407 and
/// the challenges Basic and NTLM.
fn behind_a_parent(login: &str) -> (Proxy, TcpListener) {
    let listener = free_listener();
    let address = listener.local_addr().expect("its address");
    let (ip, port) = (address.ip(), address.port());
    let peer = format!("cache_peer {ip} parent {port} 0 no-query {login}\n");
    (Proxy::forward(&format!("{peer}never_direct allow all\n")), listener)
}

/// The credentials that a parent with this option gets in the request of a client that sends these,
/// and the challenges that the client gets.
fn passed(login: &str, line: &str, credentials: &str) -> (Option<String>, Vec<String>) {
    let (proxy, listener) = behind_a_parent(login);
    let mut client = proxy.client();
    let fields = format!("Host: site.test\r\nProxy-Authorization: {credentials}\r\n");
    client.send(format!("{line}\r\n{fields}Connection: close\r\n\r\n"));
    let (mut parent, _) = listener.accept().expect("the proxy");
    let lines = BufReader::new(parent.try_clone().expect("a second handle")).lines();
    let lines: Vec<String> =
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let challenges = "Proxy-Authenticate: Basic realm=\"a\"\r\nProxy-Authenticate: NTLM\r\n";
    let _ = parent
        .write_all(format!("HTTP/1.1 407 Who\r\n{challenges}Content-Length: 0\r\n\r\n").as_bytes());
    let answer = client.response().expect(407);
    let field = lines.iter().find_map(|line| line.strip_prefix("Proxy-Authorization: "));
    let challenges = answer.head.fields.iter().filter(|(name, _)| name == "Proxy-Authenticate");
    (field.map(str::to_owned), challenges.map(|(_, value)| value.clone()).collect())
}

#[test]
fn a_parent_gets_the_credentials_that_login_says() {
    let (basic, own) = ("Basic YTpi", "Basic eDp5");
    let challenge = vec!["Basic realm=\"a\"".to_owned()];
    for (login, credentials, expected) in [
        ("", basic, None),
        ("login=PASS", basic, Some(basic)),
        ("login=PASSTHRU", basic, Some(basic)),
        ("login=x:y", basic, Some(own)),
        // It would authenticate a connection that other clients use later.
        ("login=PASS", "NTLM TlRMTVNTUAAD", None),
        ("login=PASS", "negotiate YII=", None),
    ] {
        let expected = expected.map(str::to_owned);
        let (got, challenges) = passed(login, "GET http://site.test/ HTTP/1.1", credentials);
        assert_eq!(got, expected, "{login} {credentials}");
        let can_log_in = login.starts_with("login=PASS");
        assert_eq!(challenges, if can_log_in { challenge.clone() } else { Vec::new() }, "{login}");
        let (got, challenges) = passed(login, "CONNECT site.test:443 HTTP/1.1", credentials);
        assert_eq!((got, challenges), (expected, challenge.clone()), "{login} {credentials}");
    }
    let denied = "login=PASS\nrequest_header_access Proxy-Authorization deny all";
    for line in ["GET http://site.test/ HTTP/1.1", "CONNECT site.test:443 HTTP/1.1"] {
        assert_eq!(passed(denied, line, basic).0, None, "{line}");
    }
}

/// Two parents whose answers have these statuses, and a proxy with these lines.
fn with_statuses(statuses: [&str; 2], lines: &str) -> ([Origin; 2], Proxy) {
    let origins = [Origin::new(), Origin::new()];
    let mut text = format!("never_direct allow all\n{lines}");
    for (origin, status) in origins.iter().zip(statuses) {
        origin.on("/a", Reply::status(status, status));
        let (ip, port) = (origin.address().ip(), origin.address().port());
        text.push_str(&format!(
            "cache_peer {ip} parent {port} 0 no-query originserver name=p{port}\n"
        ));
    }
    (origins, Proxy::forward(&text))
}

#[test]
fn another_parent_is_asked_when_one_cannot_reach_the_server() {
    let get = |proxy: &Proxy, method: &str| {
        proxy.client().request(method, "http://site.test/a", &[], b"").response_to(method).status()
    };
    let (ok, bad) = ("200 OK", "502 Bad Gateway");
    let (origins, proxy) = with_statuses([bad, ok], "");
    assert_eq!(get(&proxy, "GET"), 200);
    // A second time over the connection that is kept.
    assert_eq!(get(&proxy, "GET"), 200);
    assert_eq!((origins[0].count("/a"), origins[1].count("/a")), (2, 2));
    // If all are the same, the client gets the answer of one.
    let (origins, proxy) = with_statuses([bad, "504 Gateway Timeout"], "");
    assert_eq!(get(&proxy, "GET"), 504);
    assert_eq!((origins[0].count("/a"), origins[1].count("/a")), (1, 1));
    let (origins, proxy) = with_statuses([bad, ok], "forward_max_tries 1\n");
    assert_eq!((get(&proxy, "GET"), get(&proxy, "GET")), (502, 502));
    assert_eq!(origins[1].count("/a"), 0, "also over the connection that is kept");
}

#[test]
fn another_parent_is_asked_when_one_closes_without_an_answer() {
    let ask = |proxy: &Proxy, method: &str| {
        let mut client = proxy.client();
        client.request(method, "http://site.test/a", &[], b"").response_to(method).status()
    };
    let closing = |closing: &[usize], lines: &str| {
        let (origins, proxy) = with_statuses(["200 OK", "200 OK"], lines);
        closing.iter().for_each(|&n| origins[n].handle("/a", |_, wire| wire.close()));
        (origins, proxy)
    };
    let counts = |origins: &[Origin; 2]| (origins[0].count("/a"), origins[1].count("/a"));
    let (origins, proxy) = closing(&[0], "");
    assert_eq!((ask(&proxy, "GET"), counts(&origins)), (200, (1, 1)));
    assert!(proxy.logged("/a ").contains(&origins[1].address().ip().to_string()));
    assert_eq!((ask(&proxy, "POST"), counts(&origins)), (502, (2, 1)), "it may have been done");
    let (origins, proxy) = closing(&[0, 1], "");
    assert_eq!((ask(&proxy, "GET"), counts(&origins)), (502, (1, 1)));
    let (origins, proxy) = closing(&[0], "forward_max_tries 1\n");
    assert_eq!((ask(&proxy, "GET"), counts(&origins)), (502, (1, 0)));
}

#[test]
fn the_server_is_asked_when_a_parent_closes_without_an_answer() {
    let (parent, server) = (Origin::new(), Origin::new());
    let ftp = format!("ftp://{}/a", server.address());
    parent.handle("/a", |_, wire| wire.close());
    parent.handle(&ftp, |_, wire| wire.close());
    server.on("/a", Reply::ok("here"));
    let (ip, port) = (parent.address().ip(), parent.address().port());
    let proxy = Proxy::forward(&format!("cache_peer {ip} parent {port} 0 no-query name=p\n"));
    let mut client = proxy.client();
    let url = format!("http://{}/a", server.address());
    assert_eq!(client.request("GET", &url, &[], b"").response().expect(200).text(), "here");
    assert_eq!((parent.count("/a"), server.count("/a")), (1, 1));
    // A way that cannot be tried is not the reason.
    client.request("GET", &ftp, &[], b"");
    assert_eq!(client.response().expect(502).field("X-Squid-Error"), Some("ERR_READ_ERROR 0"));
    assert!(proxy.logged("ftp://").contains("PARENT/"));
}

#[test]
fn with_retry_on_error_another_parent_is_asked_after_other_errors_too() {
    for status in ["403 Forbidden", "500 Error", "501 Not Implemented", "503 Unavailable"] {
        for (lines, wanted) in [("retry_on_error on\n", "200"), ("", &status[..3])] {
            let (_origins, proxy) = with_statuses([status, "200 OK"], lines);
            let mut client = proxy.client();
            client.request("GET", "http://site.test/a", &[], b"");
            assert_eq!(client.response().status().to_string(), wanted, "{lines}{status}");
        }
    }
    let (_origins, proxy) = with_statuses(["404 Not Found", "200 OK"], "retry_on_error on\n");
    let mut client = proxy.client();
    client.request("GET", "http://site.test/a", &[], b"");
    assert_eq!(client.response().status(), 404, "no error of the way");
}

#[test]
fn an_answer_in_reserve_outlives_a_parent_that_says_nothing() {
    let (origins, proxy) =
        with_statuses(["502 Bad Gateway", "200 OK"], "forward_timeout 3 seconds\n");
    let silent = Arc::new(Gate::default());
    let held = Arc::clone(&silent);
    origins[1].handle("/a", move |_, _| held.wait());
    let mut client = proxy.client();
    client.request("GET", "http://site.test/a", &[], b"");
    assert_eq!(client.response().expect(502).text(), "502 Bad Gateway");
    assert_eq!(origins[1].count("/a"), 1);
    assert!(proxy.logged("/a ").contains("/502 "));
    silent.open();
}

#[test]
fn an_answer_in_reserve_does_not_take_the_place_of_a_newer_one() {
    // Cores do not share connections.
    let (origins, proxy) = with_statuses(["502 Bad Gateway", "200 OK"], "workers 1\n");
    let (old, new) = (Reply::status("502 Bad Gateway", "old"), Reply::ok("new"));
    origins[0].on_each("/a", vec![old.cachable(60), new.cachable(60)]);
    origins[0].on("/warm", Reply::status("502 Bad Gateway", ""));
    origins[1].on("/warm", Reply::ok(""));
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    origins[1].handle("/a", move |_, wire| {
        held.wait();
        wire.close();
    });
    let ask = |path: &str, fields: &[(&str, &str)]| {
        let mut client = proxy.client();
        client.request("GET", &format!("http://site.test{path}"), fields, b"");
        client
    };
    // The second parent gets the request on a connection that turns out to be dead, so it is asked
    // once more, after the newer answer.
    let _ = ask("/warm", &[]).response().expect(200);
    let mut slow = ask("/a", &[]);
    origins[1].wait_for("/a", 1);
    let newer = ask("/a", &[("Cache-Control", "no-cache")]).response().expect(200);
    assert_eq!(newer.text(), "new");
    gate.open();
    assert_eq!(slow.response().expect(502).text(), "old");
    assert_eq!(origins[1].count("/a"), 2);
    assert_eq!(ask("/a", &[]).response().expect(200).text(), "new");
}

/// Holds answers back until it is open.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let is_open = self.is_open.lock().expect("the gate");
        drop(self.opened.wait_timeout_while(is_open, 3 * LIMIT, |is_open| !*is_open));
    }

    fn open(&self) {
        *self.is_open.lock().expect("the gate") = true;
        self.opened.notify_all();
    }
}
