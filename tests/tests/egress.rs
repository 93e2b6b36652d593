//! The destinations of requests: rules about the addresses of servers, and the local addresses of
//! connections.

use humboldt_tests::dns::{NameServer, Says, loopback};
use humboldt_tests::wait::{LIMIT, free_listener, until};
use humboldt_tests::{Client, Origin, Proxy, Reply, Response, Scripts, WEB_SOCKET, proxy};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A forbidden address.
const BAD: &str = "acl bad dst 127.0.0.2\nhttp_access deny bad\n";

/// Two origins with one port: the one at 127.0.0.1 that clients may ask, and one at 127.0.0.2 with
/// a secret.
fn good_and_bad() -> (Origin, Origin) {
    for _ in 0..50 {
        let listener = free_listener();
        let port = listener.local_addr().expect("its address").port();
        let Ok(neighbour) = TcpListener::bind(("127.0.0.2", port)) else { continue };
        let (good, bad) = (Origin::on_listener(listener), Origin::on_listener(neighbour));
        for path in ["/", "/a", "/open", "/closed", "/part", "/fails"] {
            bad.on(path, Reply::ok("SECRET"));
            good.on(path, Reply::ok("good"));
        }
        return (good, bad);
    }
    panic!("no port that is free at both addresses");
}

/// The URL of a path at `name`, with the port of `origin`.
fn url(name: &str, origin: &Origin, path: &str) -> String {
    format!("http://{name}:{}{path}", origin.address().port())
}

fn get(proxy: &Proxy, url: &str) -> Response {
    proxy.client().request("GET", url, &[], b"").response()
}

#[test]
fn a_rule_about_addresses_refuses_when_the_look_up_fails() {
    let (dns, origin) = (NameServer::new(), Origin::new());
    origin.on("/", Reply::ok("SECRET"));
    for (name, first) in
        [("gone.test", Says::NoSuchName), ("empty.test", Says::Addresses(Vec::new()))]
    {
        // The second question is answered: its request would go to the place that the rule forbids.
        dns.on_each(name, vec![first, loopback(1)]);
    }
    dns.on("broken.test", Says::Failure);
    dns.on("silent.test", Says::Nothing);
    let rules = format!("{}dns_timeout 3 seconds\nhttp_access deny to_localhost\n", dns.lines());
    let proxy = Proxy::forward(&rules);
    for name in ["gone.test", "empty.test", "broken.test", "silent.test"] {
        let answer = get(&proxy, &url(name, &origin, "/")).expect(503);
        assert_eq!(
            answer.field("X-Squid-Error").map(|error| &error[..12]),
            Some("ERR_DNS_FAIL"),
            "{name}"
        );
        let mut client = proxy.client();
        client.send(format!(
            "CONNECT {name}:{} HTTP/1.1\r\nHost: x\r\n\r\n",
            origin.address().port()
        ));
        let status = client.response_to("CONNECT").status();
        // The second question about some of them is answered, with an address that is denied.
        assert_eq!(status, if name.starts_with(['g', 'e']) { 403 } else { 503 }, "{name}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn none_matches_a_host_without_addresses_and_no_other_set_is_guessed() {
    let (dns, parent) = (NameServer::new(), Origin::new());
    parent.on("/", Reply::ok("from the parent"));
    let peer = format!(
        "cache_peer 127.0.0.1 parent {} 0 no-query\nnever_direct allow all\n{}",
        parent.address().port(),
        dns.lines()
    );
    for (rules, status) in [
        ("acl lost dst none\nhttp_access allow lost\nhttp_access deny all\n", 200),
        ("acl lost dst none\nhttp_access deny lost\n", 403),
        ("acl lan dst none 10.0.0.0/8\nhttp_access deny !lan\n", 200),
        ("acl lan dst 10.0.0.0/8\nhttp_access deny !lan\n", 503),
        ("acl lan dst 10.0.0.0/8\nhttp_access deny lan\n", 503),
        ("acl lan dst 10.0.0.0/8\nmiss_access deny lan\n", 503),
        ("acl lan dst 10.0.0.0/8\nhttp_reply_access deny lan\n", 503),
        ("acl lan dst 10.0.0.0/8\nreply_body_max_size 1 KB lan\n", 503),
        ("acl lan dst -n 10.0.0.0/8\nhttp_access deny lan\n", 200),
        // Rules that choose are not followed where they cannot be answered.
        ("acl lan dst 10.0.0.0/8\nalways_direct allow lan\n", 200),
        ("acl lan dst 10.0.0.0/8\nhttp_access allow all\nhttp_access deny lan\n", 200),
    ] {
        let before = parent.count("/");
        let proxy = Proxy::forward(&format!("{rules}{peer}"));
        let answer = get(&proxy, "http://nowhere.test/");
        assert_eq!(answer.status(), status, "{rules}\n{}", answer.text());
        if !rules.contains("reply") {
            assert_eq!(parent.count("/") - before, usize::from(status == 200), "{rules}");
        }
    }
}

#[test]
fn the_log_names_the_rule_that_has_no_answer_and_the_client_does_not_learn_it() {
    let (dns, parent) = (NameServer::new(), Origin::new());
    parent.on("/", Reply::ok("from the parent"));
    let lines = format!(
        "cache_peer 127.0.0.1 parent {} 0 no-query\nnever_direct allow all\n{}\
         logformat mine %Ss/%03>Hs %err_code %err_detail\naccess_log stdio:{{dir}}/mine.log mine\n",
        parent.address().port(),
        dns.lines()
    );
    let lan = "acl lan dst 10.0.0.0/8\nacl far dst 192.0.2.0/24\nacl site dstdomain nowhere.test\n";
    for rule in [
        "http_access deny site lan",
        "acl group any-of far lan\nhttp_access deny site !far\nhttp_access deny group",
        "miss_access deny lan",
        "http_reply_access deny lan",
        "reply_body_max_size 1 KB lan",
    ] {
        let proxy = Proxy::forward(&format!("{lan}{rule}\n{lines}"));
        let page = get(&proxy, "http://nowhere.test/").expect(503).text();
        assert!(page.contains("ERR_DNS_FAIL") && !page.contains("lan"), "{page}");
        let line = until("a line", || proxy.text("mine.log").lines().next().map(str::to_owned));
        let acl = if rule.contains("far") { "far" } else { "lan" };
        let wanted = format!("NONE_NONE/503 ERR_DNS_FAIL acl%20{acl}:%20");
        assert!(line.starts_with(&wanted), "{rule}\n{line}");
        assert!(line.len() > wanted.len(), "and why: {line}");
    }
}

#[test]
fn what_rules_judged_is_what_is_connected_to_however_a_request_goes_out() {
    let (dns, (good, bad)) = (NameServer::new(), good_and_bad());
    good.on("/a", Reply::status("404 Not Found", "good"));
    let proxy = Proxy::forward(&format!("{}{BAD}", dns.lines()));
    let port = good.address().port();
    let ways: [(&str, String); 5] = [
        ("get", "GET http://get.test:{p}/a HTTP/1.1\r\nHost: x\r\n\r\n".into()),
        ("head", "HEAD http://head.test:{p}/a HTTP/1.1\r\nHost: x\r\n\r\n".into()),
        ("post", "POST http://post.test:{p}/a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".into()),
        (
            "switch",
            "GET http://switch.test:{p}/a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                .into(),
        ),
        ("tunnel", "CONNECT tunnel.test:{p} HTTP/1.1\r\nHost: x\r\n\r\n".into()),
    ];
    for (way, request) in ways {
        let name = format!("{way}.test");
        dns.on_each(&name, vec![loopback(1), loopback(2)]);
        let method = request.split(' ').next().unwrap_or_default().to_owned();
        let mut client = proxy.client();
        client.send(request.replace("{p}", &port.to_string()));
        let mut answer = client.response_to(&method);
        if way == "tunnel" {
            assert_eq!(answer.status(), 200);
            answer = client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").response();
        }
        assert_eq!(answer.status(), 404, "{way}: {}", answer.text());
        assert_eq!(dns.asked(&name), 1, "{way}");
    }
    assert_eq!(bad.connections(), 0);
    let _ = get(&proxy, &url("get.test", &good, "/a")).expect(403);
}

#[test]
fn a_retry_after_a_connection_died_goes_to_the_address_that_was_judged() {
    let (dns, (good, bad)) = (NameServer::new(), good_and_bad());
    dns.on("turns.test", loopback(1));
    let proxy = Proxy::forward(&format!("{}{BAD}", dns.lines()));
    let (turning, times) = (dns.clone(), AtomicUsize::new(0));
    good.handle("/fails", move |_, wire| {
        // The first time on the connection that was kept: the name leads elsewhere by the time that
        // it dies.
        turning.on("turns.test", loopback(2));
        if times.fetch_add(1, Ordering::SeqCst) > 0 {
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
        }
    });
    let mut client = proxy.client();
    let _ = client.request("GET", &url("turns.test", &good, "/a"), &[], b"").response().expect(200);
    let answer = client.request("GET", &url("turns.test", &good, "/fails"), &[], b"").response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "good"));
    assert_eq!((good.count("/fails"), bad.connections()), (2, 0));
    let _ =
        client.request("GET", &url("turns.test", &good, "/fails"), &[], b"").response().expect(403);
}

#[test]
fn validation_and_the_fetch_of_a_gap_go_to_the_address_that_was_judged() {
    let (dns, (good, bad)) = (NameServer::new(), good_and_bad());
    let proxy = Proxy::forward(&format!("{}{BAD}", dns.lines()));
    dns.on_each("part.test", vec![loopback(1), loopback(1), loopback(2)]);
    good.handle("/part", |head, wire| {
        let range = head.field("Range").unwrap_or("bytes=0-9").trim_start_matches("bytes=").to_owned();
        let (first, last) = range.split_once('-').unwrap_or_default();
        let (first, last): (usize, usize) = (first.parse().unwrap_or(0), last.parse().unwrap_or(9));
        let body = "0123456789".get(first..=last).unwrap_or_default();
        wire.send(format!(
            "HTTP/1.1 206 Partial Content\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\nConnection: close\r\n\
             Content-Range: bytes {first}-{last}/10\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    });
    dns.on_each("old.test", vec![loopback(1), loopback(1), loopback(2)]);
    good.on(
        "/a",
        Reply::ok("good")
            .with("ETag", "\"a\"")
            .with("Cache-Control", "max-age=0")
            .with("Connection", "close"),
    );
    let mut client = proxy.client();
    for (range, body) in [("bytes=0-4", "01234"), ("bytes=2-7", "234567")] {
        let target = url("part.test", &good, "/part");
        let answer =
            client.request("GET", &target, &[("Range", range)], b"").response().expect(206);
        assert_eq!(answer.text(), body);
    }
    assert_eq!(good.last("/part").field("Range"), Some("bytes=5-7"), "a gap was fetched");
    for _ in 0..2 {
        let target = url("old.test", &good, "/a");
        assert_eq!(client.request("GET", &target, &[], b"").response().expect(200).text(), "good");
    }
    assert_eq!(good.last("/a").field("If-None-Match"), Some("\"a\""), "it was validated");
    assert_eq!((dns.asked("part.test"), dns.asked("old.test"), bad.connections()), (2, 2, 0));
}

#[test]
fn the_rest_of_an_answer_comes_from_the_address_that_was_judged() {
    let (dns, (good, bad)) = (NameServer::new(), good_and_bad());
    // Two clients ask; a third question would come from a client that is too slow, and fetches the
    // rest by itself.
    dns.on_each("large.test", vec![loopback(1), loopback(1), loopback(2)]);
    let body: Vec<u8> = (0..32_000_000_u32).map(|n| (n >> 8) as u8 ^ n as u8).collect();
    let sent = body.clone();
    good.handle("/large", move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"1\"\r\n");
        wire.send(format!("Content-Length: {}\r\n\r\n", sent.len()));
        wire.send(&sent);
    });
    let proxy = Proxy::forward(&format!("{}{BAD}workers 1\ncache_mem 16 MB\n", dns.lines()));
    let target = url("large.test", &good, "/large");
    let mut slow = proxy.client();
    slow.request("GET", &target, &[], b"");
    let _ = slow.head();
    assert!(proxy.client().request("GET", &target, &[], b"").response().expect(200).body == body);
    assert!(slow.bytes(body.len()) == body, "the slow client");
    assert!(good.count("/large") >= 2, "nobody asked for the rest");
    assert_eq!((dns.asked("large.test"), bad.connections()), (2, 0));
}

#[test]
fn a_kept_connection_to_another_address_is_not_for_who_may_not_go_there() {
    let (dns, (good, bad)) = (NameServer::new(), good_and_bad());
    let rules = "acl open urlpath_regex ^/open\nhttp_access allow open\n";
    let proxy = Proxy::forward(&format!("{}{rules}{BAD}", dns.lines()));
    dns.on_each("turns.test", vec![loopback(2), loopback(1)]);
    let mut client = proxy.client();
    let secret = client.request("GET", &url("turns.test", &good, "/open"), &[], b"").response();
    assert_eq!(secret.text(), "SECRET", "who may go there does");
    let other = client
        .request("GET", &url("turns.test", &good, "/closed"), &[], b"")
        .response()
        .expect(200);
    assert_eq!((other.text().as_str(), bad.count("/closed")), ("good", 0));
}

#[test]
fn of_several_addresses_only_those_that_are_allowed_are_connected_to() {
    let (dns, (good, bad)) = (NameServer::new(), good_and_bad());
    let both = [2, 1].map(|last| Ipv4Addr::new(127, 0, 0, last)).to_vec();
    let scripts = Scripts::new();
    // Rules on trial, whose refusals are noted between the lists in force.
    let trial = "http_access_report_only deny all\n".to_owned();
    let rewriter = format!("{trial}url_rewrite_program {}\n", scripts.helper("as-is", "echo ERR"));
    for (list, more) in [
        ("http_access", ""),
        ("miss_access", ""),
        ("http_access", &*trial),
        ("adapted_http_access", &*rewriter),
    ] {
        let rules = format!("acl fine dst 127.0.0.1\n{list} allow fine\n{list} deny all\n{more}");
        let proxy = Proxy::forward(&format!("{}{rules}", dns.lines()));
        dns.on("both.test", Says::Addresses(both.clone()));
        assert_eq!(
            get(&proxy, &url("both.test", &good, "/a")).expect(200).text(),
            "good",
            "{list}"
        );
        let mut client = proxy.client();
        client.send(format!(
            "CONNECT both.test:{} HTTP/1.1\r\nHost: x\r\n\r\n",
            good.address().port()
        ));
        assert_eq!(client.response_to("CONNECT").status(), 200, "{list}");
        assert_eq!(
            client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").response().text(),
            "good",
            "{list}"
        );
        assert_eq!(bad.connections(), 0, "{list}");
    }
    let proxy = Proxy::forward(&format!("{}{BAD}", dns.lines()));
    let _ = get(&proxy, &url("both.test", &good, "/a")).expect(403);
    // A tunnel by Upgrade goes where one by CONNECT may.
    let rules = "acl fine dst 127.0.0.1\nhttp_access deny CONNECT !fine\n";
    let proxy = Proxy::forward(&format!("{}{rules}", dns.lines()));
    let answer =
        proxy.client().request("GET", &url("both.test", &good, "/a"), &WEB_SOCKET, b"").response();
    assert_eq!((answer.text().as_str(), bad.connections()), ("good", 0));
}

/// A proxy for which `near.test` is at 127.0.0.1, which rules do not see as a literal.
fn with_names(rules: &str) -> Proxy {
    let dns = NameServer::new();
    dns.on("near.test", loopback(1));
    Proxy::forward(&format!("{}acl near dst 127.0.0.1\n{rules}", dns.lines()))
}

#[test]
fn lists_that_deny_see_the_addresses_of_names() {
    let origin = Origin::new();
    origin.on("/", Reply::ok("x".repeat(3_000)).cachable(60).with("X-Secret", "yes"));
    let target = url("near.test", &origin, "/");
    for (rules, status) in [
        ("miss_access deny near\n", 403),
        ("http_reply_access deny near\n", 403),
        ("adapted_http_access deny near\n", 403),
        ("reply_body_max_size 1 KB near\n", 403),
        ("never_direct allow near\n", 502),
    ] {
        let proxy = with_names(rules);
        for _ in 0..2 {
            let answer = get(&proxy, &target);
            let refused =
                if status == 502 { answer.status() >= 500 } else { answer.status() == status };
            assert!(refused, "{rules}{:?}", answer.head);
        }
        let _ = get(&with_names(&rules.replace("near", "!near")), &target).expect(200);
    }
}

#[test]
fn an_answer_from_memory_waits_for_what_its_list_needs() {
    let origin = Origin::new();
    origin.on("/", Reply::ok("0123456789").cachable(60));
    let target = url("near.test", &origin, "/");
    let proxy = with_names("http_reply_access allow near\nhttp_reply_access deny all\n");
    for cache in ["MISS", "HIT", "HIT"] {
        let answer = get(&proxy, &target).expect(200);
        assert_eq!((answer.cache(), answer.text().as_str()), (cache, "0123456789"));
    }
    let part = [("Range", "bytes=1-2,5-6")];
    let parts = proxy.client().request("GET", &target, &part, b"").response().expect(206).text();
    assert!(parts.contains("bytes 5-6/10"), "{parts}");
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn lists_about_fields_and_the_cache_see_the_addresses_of_names() {
    let origin = Origin::new();
    origin.on("/", Reply::ok("x".repeat(3_000)).cachable(60).with("X-Secret", "yes"));
    origin.on("/b", Reply::ok("0123456789").cachable(60));
    let target = url("near.test", &origin, "/");
    let proxy = with_names(
        "cache deny near\nreply_header_access X-Secret deny near\nrequest_header_access X-Own deny near\n\
         request_header_add X-Added yes near\nreply_header_add X-Near yes near\n",
    );
    for _ in 0..2 {
        let before = origin.count("/");
        let answer =
            proxy.client().request("GET", &target, &[("X-Own", "1")], b"").response().expect(200);
        assert_eq!(origin.count("/"), before + 1, "it was stored");
        assert_eq!((answer.field("X-Secret"), answer.field("X-Near")), (None, Some("yes")));
        let sent = origin.last("/");
        assert_eq!((sent.field("X-Own"), sent.field("X-Added")), (None, Some("yes")));
    }
    let proxy = with_names(
        "reply_header_access X-Secret deny near\naccess_log stdio:{dir}/near.log squid near\n",
    );
    for cache in ["MISS", "HIT"] {
        let answer = get(&proxy, &target).expect(200);
        assert_eq!((answer.cache(), answer.field("X-Secret")), (cache, None));
    }
    until("two lines of the log", || (proxy.text("near.log").lines().count() >= 2).then_some(()));
    let proxy = with_names("range_offset_limit none near\n");
    let part = url("near.test", &origin, "/b");
    let _ =
        proxy.client().request("GET", &part, &[("Range", "bytes=2-3")], b"").response().expect(206);
    assert_eq!(origin.last("/b").field("Range"), None, "it was fetched whole");
}

#[test]
fn lists_that_choose_a_way_see_the_addresses_of_names() {
    let (origin, parent) = (Origin::new(), Origin::new());
    origin.on("/", Reply::ok("direct"));
    parent.on("/", Reply::ok("parent"));
    let target = url("near.test", &origin, "/");
    let peer =
        format!("cache_peer 127.0.0.1 parent {} 0 no-query name=p\n", parent.address().port());
    for (rules, wanted) in [
        ("prefer_direct off\nnonhierarchical_direct off\n", "parent"),
        ("always_direct allow near\n", "direct"),
        ("never_direct allow near\nprefer_direct on\n", "parent"),
        ("cache_peer_access p deny near\n", "direct"),
        ("cache_peer_access p allow !near\n", "direct"),
    ] {
        assert_eq!(
            get(&with_names(&format!("{peer}{rules}")), &target).expect(200).text(),
            wanted,
            "{rules}"
        );
    }
}

#[test]
fn lists_of_protocols_to_switch_to_see_the_addresses_of_names() {
    let origin = Origin::new();
    origin.on("/", Reply::ok("x"));
    let target = url("near.test", &origin, "/");
    let fields = [("Connection", "upgrade"), ("Upgrade", "own/1")];
    for (rules, offered) in [
        ("http_upgrade_request_protocols own allow near\n", Some("own/1")),
        (
            "http_upgrade_request_protocols own deny near\nhttp_upgrade_request_protocols own allow all\n",
            None,
        ),
    ] {
        let proxy = with_names(rules);
        let _ = proxy.client().request("GET", &target, &fields, b"").response().expect(200);
        assert_eq!(origin.last("/").field("Upgrade"), offered, "{rules}");
    }
    // A tunnel by Upgrade is for clients that may have one with CONNECT.
    for (rules, offered) in [("deny CONNECT near", None), ("deny CONNECT !near", Some("websocket"))]
    {
        let proxy = with_names(&format!("http_access {rules}\n"));
        let _ = proxy.client().request("GET", &target, &WEB_SOCKET, b"").response().expect(200);
        assert_eq!(origin.last("/").field("Upgrade"), offered, "{rules}");
    }
}

#[test]
fn a_list_that_is_asked_before_any_look_up_takes_no_rule_that_needs_one() {
    let folder = proxy::open_folder();
    let file = folder.path().join("squid.conf");
    let check = |acl: &str| {
        let text = format!("http_port 3128\nacl front {acl}\nfollow_x_forwarded_for allow front\n");
        std::fs::write(&file, text).expect("a configuration file");
        let output = proxy::run(&["-k", "parse", "-f", &file.display().to_string()]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_fine, said) = check("dst 127.0.0.1");
    assert!(
        !is_fine
            && said.contains("`front` is of type `dst`, which needs the addresses of the host"),
        "{said}"
    );
    assert!(said.contains("follow_x_forwarded_for cannot wait for that"), "{said}");
    assert!(said.contains("squid.conf:3:30"), "{said}");
    let (is_fine, said) = check("dst -n 127.0.0.1");
    assert!(is_fine, "{said}");
}

#[test]
fn a_list_that_waits_looks_up_only_where_it_comes_to_the_question() {
    let (dns, parent) = (NameServer::new(), Origin::new());
    parent.on("/", Reply::ok("from the parent"));
    dns.on("far.test", loopback(2));
    let way = format!(
        "cache_peer 127.0.0.1 parent {} 0 no-query\n{}acl far dst 127.0.0.2\nacl post method POST\n",
        parent.address().port(),
        dns.lines()
    );
    let mut questions = 0;
    for (rules, status, asks) in [
        ("never_direct allow all\nmiss_access deny post far\n", 200, 0),
        ("never_direct allow all\nmiss_access deny !post far\n", 403, 1),
        ("never_direct allow all\nalways_direct allow post far\n", 200, 0),
        ("never_direct allow !post far\n", 200, 1),
        ("never_direct allow all\nnever_direct allow far\n", 200, 0),
        ("never_direct allow all\nhttp_access deny post far\n", 200, 0),
        ("never_direct allow all\nhttp_access deny !post far\n", 403, 1),
        ("never_direct allow all\nhttp_reply_access deny post far\n", 200, 0),
        ("never_direct allow all\nhttp_reply_access deny !post far\n", 403, 1),
        ("never_direct allow all\ncache deny post far\n", 200, 0),
        ("never_direct allow all\ncache deny !post far\n", 200, 1),
    ] {
        let proxy = Proxy::forward(&format!("{way}{rules}"));
        let answer = get(&proxy, "http://far.test/");
        assert_eq!(answer.status(), status, "{rules}\n{}", answer.text());
        questions += asks;
        assert_eq!(dns.asked("far.test"), questions, "{rules}");
    }
}

/// A server that keeps connections and reports the address from which each came.
fn mirror() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = free_listener();
    let (address, seen) =
        (listener.local_addr().expect("its address"), Arc::<Mutex<Vec<String>>>::default());
    let accepted = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(peer) = stream.peer_addr() else { continue };
            accepted.lock().expect("no thread panics here").push(peer.ip().to_string());
            std::thread::spawn(move || {
                let Ok(mut writing) = stream.try_clone() else { return };
                let mut lines = BufReader::new(stream).lines();
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() {
                        let body = peer.ip().to_string();
                        let head =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        let _ = writing.write_all(format!("{head}{body}").as_bytes());
                    }
                }
            });
        }
    });
    (address, seen)
}

#[test]
fn a_kept_connection_is_for_those_who_come_from_the_same_address() {
    let (address, seen) = mirror();
    let rules = "acl guests urlpath_regex ^/guests\nacl staff urlpath_regex ^/staff\ncache deny all\n\
                 tcp_outgoing_address 127.0.0.2 guests\ntcp_outgoing_address 127.0.0.3 staff\n";
    let proxy = Proxy::forward(rules);
    let mut client = proxy.client();
    for _ in 0..3 {
        for (path, from) in
            [("guests", "127.0.0.2"), ("staff", "127.0.0.3"), ("others", "127.0.0.1")]
        {
            let target = format!("http://{address}/{path}");
            assert_eq!(
                client.request("GET", &target, &[], b"").response().expect(200).text(),
                from,
                "{path}"
            );
        }
    }
    let mut seen = seen.lock().expect("no thread panics here").clone();
    seen.sort();
    assert_eq!(seen, ["127.0.0.1", "127.0.0.2", "127.0.0.3"], "connections are kept for each");
}

#[test]
fn outgoing_addresses_are_chosen_by_the_addresses_of_names() {
    let (address, _) = mirror();
    let proxy = with_names("tcp_outgoing_address 127.0.0.4 near\ntcp_outgoing_address 127.0.0.5\n");
    let port = address.port();
    assert_eq!(get(&proxy, &format!("http://near.test:{port}/")).expect(200).text(), "127.0.0.4");
    let far = get(
        &with_names("tcp_outgoing_address 127.0.0.4 !near\n"),
        &format!("http://near.test:{port}/"),
    );
    assert_eq!(far.expect(200).text(), "127.0.0.1");
}

#[test]
fn outgoing_addresses_are_chosen_by_the_parent() {
    let (address, _) = mirror();
    let rules = "name=up\nacl up peername up\nacl away urlpath_regex ^/away\n\
                 always_direct allow away\nnever_direct deny away\nnever_direct allow all\n\
                 tcp_outgoing_address 127.0.0.2 up\ntcp_outgoing_address 127.0.0.3 !up\n";
    let peer = format!("cache_peer 127.0.0.1 parent {} 0 no-query {rules}", address.port());
    let proxy = Proxy::forward(&peer);
    for (path, from) in [("", "127.0.0.2"), ("away", "127.0.0.3")] {
        assert_eq!(get(&proxy, &format!("http://{address}/{path}")).expect(200).text(), from);
    }
}

/// Clients that wait for names of one zone whose server is silent, one connection each.
fn wait_for_silent_names(proxy: &Proxy, dns: &NameServer, count: usize) -> Vec<Client> {
    dns.on("*.silent.test", Says::Nothing);
    let ask = |n| {
        let mut client = proxy.client();
        client.request("GET", &format!("http://n{n}.silent.test/"), &[], b"");
        client
    };
    let waiting = (0..count).map(ask).collect();
    until("questions at the name server", || {
        (dns.names_asked(".silent.test") >= 200).then_some(())
    });
    waiting
}

#[test]
fn names_whose_servers_are_silent_take_nobody_elses_look_ups() {
    let (dns, origin) = (NameServer::new(), Origin::new());
    dns.on("*.fine.example", loopback(1));
    origin.on("/", Reply::ok("x"));
    let proxy = Proxy::forward(&format!("{}workers 1\n", dns.lines()));
    // Of one client: only the zone of the names tells them from others.
    let waiting = wait_for_silent_names(&proxy, &dns, 1_200);
    for n in 0..3 {
        let began = Instant::now();
        let _ = get(&proxy, &url(&format!("n{n}.fine.example"), &origin, "/")).expect(200);
        assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    }
    drop(waiting);
}

#[test]
fn a_rule_about_addresses_refuses_while_there_is_no_place_for_questions() {
    let (dns, origin) = (NameServer::new(), Origin::new());
    origin.on("/", Reply::ok("SECRET"));
    let proxy =
        Proxy::forward(&format!("{}workers 1\nhttp_access deny to_localhost\n", dns.lines()));
    let waiting = wait_for_silent_names(&proxy, &dns, 1_200);
    let statuses: Vec<u16> = (0..40)
        .map(|n| {
            dns.on(&format!("home{n}.silent.test"), loopback(1));
            get(&proxy, &url(&format!("home{n}.silent.test"), &origin, "/")).status()
        })
        .collect();
    assert!(statuses.iter().all(|status| matches!(status, 503 | 403)), "{statuses:?}");
    assert!(statuses.contains(&503), "{statuses:?}");
    assert_eq!(origin.connections(), 0);
    drop(waiting);
}
