//! Names that lead to addresses which are not public: refused, unless a rule names them or
//! `private_destinations` opens them.

use humboldt_tests::dns::{NameServer, Says, loopback};
use humboldt_tests::proxy::{self, open_folder};
use humboldt_tests::spaces::{Space, in_a_namespace, ip};
use humboldt_tests::wait::{Gate, free_listener, until};
use humboldt_tests::{Client, Origin, Proxy, Reply, Response};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

/// An address that is public, and where nobody is.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);

/// A line to give up soon on the way there.
const SOON: &str = "connect_timeout 1 second\nforward_max_tries 2\n";

/// An origin with a secret.
fn secret() -> Origin {
    let origin = Origin::new();
    for path in ["/", "/a", "/b"] {
        origin.on(path, Reply::ok("SECRET").cachable(60));
    }
    origin
}

fn url(name: &str, origin: &Origin, path: &str) -> String {
    format!("http://{name}:{}{path}", origin.address().port())
}

fn get(proxy: &Proxy, url: &str, fields: &[(&str, &str)]) -> Response {
    proxy.client().request("GET", url, fields, b"").response()
}

/// The requests of each sort for `NAME:PORT`, with their methods.
fn all_ways(name: &str, port: u16) -> [(&'static str, String); 5] {
    let at = format!("{name}:{port}");
    let head = |line: String, rest: &str| format!("{line} HTTP/1.1\r\nHost: x\r\n{rest}\r\n");
    [
        ("GET", head(format!("GET http://{at}/a"), "")),
        ("HEAD", head(format!("HEAD http://{at}/a"), "")),
        ("POST", head(format!("POST http://{at}/a"), "Content-Length: 3\r\n") + "abc"),
        (
            "GET",
            head(
                format!("GET http://{at}/b"),
                "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            ),
        ),
        ("CONNECT", head(format!("CONNECT {at}"), "")),
    ]
}

#[test]
fn no_way_leads_to_a_private_address_of_a_name_by_default() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("near.test", loopback(1));
    let lines = "logformat own %Ss/%03>Hs %rm %rule %err_code %Sh\n\
                 access_log stdio:{dir}/own.log own\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    for (method, request) in all_ways("near.test", origin.address().port()) {
        let mut client = proxy.client();
        client.send(&request);
        let answer = client.response_to(method).expect(403);
        let error = answer.field("X-Squid-Error").unwrap_or_default();
        assert!(error.starts_with("ERR_PRIVATE_DESTINATION"), "{request}: {error}");
        let status = answer.field("Proxy-Status").expect("the field");
        for part in ["error=destination_ip_prohibited", "127.0.0.1 (loopback)", "\\\"allow\\\""] {
            assert!(status.contains(part), "{part}: {status}");
        }
        let line = format!("TCP_DENIED/403 {method} private_destinations ERR_PRIVATE_DESTINATION");
        until("the log", || proxy.text("own.log").contains(&line).then_some(()));
    }
    assert!(proxy.text("own.log").contains("HIER_DIRECT"), "{}", proxy.text("own.log"));
    assert_eq!(origin.connections(), 0);
    let hints = proxy.text("cache.log").matches("open them with private_destinations").count();
    assert_eq!(hints, 1, "said once: {}", proxy.text("cache.log"));
    let page = proxy.page("metrics");
    let metrics = get(&proxy, &page, &[]).expect(200).text();
    assert!(metrics.contains("humboldt_client_http_private_destinations_total 5\n"), "{metrics}");
    // Who asks for JSON gets the directive.
    let json = get(&proxy, &url("near.test", &origin, "/"), &[("Accept", "application/json")]);
    let json = json.expect(403).text();
    assert!(json.contains("\"directive\":\"private_destinations\""), "{json}");
}

/// A rule that has let the request in is not asked again when the address is known: there may be
/// more connections by now, or no place at a helper.
#[test]
fn what_has_let_a_request_in_holds_when_its_address_is_known() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("near.test", Says::Nothing);
    let rules = "acl near dstdomain near.test\nacl here urlpath_regex ^/$\nacl two maxconn 1\n\
                 http_access deny two\nhttp_access allow near\nhttp_access allow here\n\
                 http_access deny all\n";
    let proxy = Proxy::forward(&format!("{}{rules}", dns.closed_lines()));
    let mut first = proxy.client();
    // The connection that found the port open is counted until it has ended.
    let here = url("127.0.0.1", &origin, "/");
    until("the only connection", || {
        let answer = first.request("GET", &here, &[], b"").response();
        (answer.status() == 200).then_some(())
    });
    first.request("GET", &url("near.test", &origin, "/a"), &[], b"");
    until("the question", || (dns.asked("near.test") >= 1).then_some(()));
    // It stays open.
    let mut second = proxy.client();
    second.request("GET", &url("near.test", &origin, "/b"), &[], b"");
    let _ = second.response().expect(403);
    // The question is repeated until there is an answer, which is not before there were two.
    dns.on("near.test", loopback(1));
    assert_eq!(first.response().expect(200).text(), "SECRET");
}

#[test]
fn each_kind_of_private_network_is_closed() {
    let (dns, proxies) = (NameServer::new(), ["", "explain_refusals off\n"]);
    for (number, lines) in proxies.into_iter().enumerate() {
        let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
        for [a, b, c, d] in [
            [10, 1, 2, 3],
            [100, 64, 0, 1],
            [169, 254, 169, 254],
            [168, 63, 129, 16],
            [172, 20, 0, 1],
            [192, 168, 0, 1],
            [0, 0, 0, 0],
            [224, 0, 0, 1],
            [255, 255, 255, 255],
        ] {
            let name = format!("n{a}-{b}-{number}.test");
            dns.on(&name, Says::Addresses(vec![Ipv4Addr::new(a, b, c, d)]));
            let answer = get(&proxy, &format!("http://{name}/"), &[]).expect(403);
            let is_told = answer.text().contains(&format!("{a}.{b}.{c}.{d}"));
            assert_eq!(is_told, number == 0, "{}", answer.text());
        }
    }
}

#[test]
fn a_name_that_leads_elsewhere_a_moment_later_gains_nothing() {
    let (dns, origin) = (NameServer::new(), secret());
    let port = origin.address().port();
    // A rule judges the first answer, which is public; then the name leads here.
    for rules in ["", "acl far dst 203.0.113.0/24\nhttp_access allow far\nhttp_access deny all\n"] {
        let proxy = Proxy::forward(&format!("{}{SOON}{rules}", dns.closed_lines()));
        for (method, request) in all_ways("turns.test", port) {
            let public = Says::Addresses(vec![NOWHERE]);
            dns.on_each("turns.test", vec![public, loopback(1)]);
            let mut client = proxy.client();
            client.send(&request);
            let status = client.response_to(method).status();
            assert!(matches!(status, 503 | 504), "{request}: {status}");
            assert_eq!(dns.asked("turns.test"), 1, "{request}");
            // And the next request is judged by what it gets.
            let mut client = proxy.client();
            client.send(&request);
            assert_eq!(client.response_to(method).status(), 403, "{request}");
        }
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn of_several_addresses_only_the_public_ones_are_connected_to() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("both.test", Says::Addresses(vec![Ipv4Addr::LOCALHOST, NOWHERE]));
    let proxy = Proxy::forward(&format!("{}{SOON}", dns.closed_lines()));
    for (method, request) in all_ways("both.test", origin.address().port()) {
        let mut client = proxy.client();
        client.send(&request);
        let status = client.response_to(method).status();
        assert!(matches!(status, 503 | 504), "{request}: {status}");
    }
    assert_eq!(origin.connections(), 0);
    // Of two private ones, the one that a line opens.
    let neighbour = loop {
        let listener = free_listener();
        let port = listener.local_addr().expect("its address").port();
        if let Ok(neighbour) = TcpListener::bind(("127.0.0.2", port)) {
            break (Origin::on_listener(listener), Origin::on_listener(neighbour));
        }
    };
    let (open, closed) = neighbour;
    open.on("/", Reply::ok("open"));
    let both = [2, 1].map(|last| Ipv4Addr::new(127, 0, 0, last)).to_vec();
    dns.on("both.test", Says::Addresses(both));
    let lines = "acl one dst 127.0.0.1\nprivate_destinations allow one\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    assert_eq!(get(&proxy, &url("both.test", &open, "/"), &[]).expect(200).text(), "open");
    assert_eq!(closed.connections(), 0);
}

#[test]
fn names_on_a_list_of_their_own_are_open_and_those_let_in_by_others_are_not() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("wiki.example.com", loopback(1));
    dns.on("evil.example.net", loopback(1));
    let wiki = url("wiki.example.com", &origin, "/a");
    let evil = url("evil.example.net", &origin, "/a");
    for (rules, wiki_status, evil_status) in [
        ("acl own dstdomain .example.com\nhttp_access allow own\n", 200, 403),
        ("acl own dstdom_regex ^wiki\\.example\\.com$\nhttp_access allow own\n", 200, 403),
        ("acl own dstdomain .example.com\nalways_direct allow own\n", 200, 403),
        (
            "acl own dstdomain .example.com\nnever_direct deny own\nnever_direct deny all\n",
            200,
            403,
        ),
        ("acl own dstdomain .example.com\nhttp_access deny !own\n", 200, 403),
        // Anybody can have such a name.
        ("acl own dstdom_regex ^wiki\\. ^evil\nhttp_access allow own\n", 403, 403),
        ("acl own url_regex example\nhttp_access allow own\n", 403, 403),
        ("acl own dstdom_regex ^evil\nalways_direct allow own\n", 403, 403),
        ("acl own url_regex ^http://wiki\\.example\\.com[:/]\nhttp_access allow own\n", 200, 403),
        ("acl own dst 127.0.0.1\nhttp_access allow own\n", 200, 200),
        (
            "acl own dstdomain .example.com\nadapted_http_access allow own\n\
          adapted_http_access allow all\n",
            200,
            403,
        ),
        // What would hold for other hosts as well names none.
        ("acl own url_regex /a$\nhttp_access allow own\n", 403, 403),
        ("acl own dstdomain .com .net\nhttp_access allow own\n", 403, 403),
        ("acl own dst 0.0.0.0/0\nhttp_access allow own\n", 403, 403),
        ("acl bad dstdomain evil.example.net\nhttp_access allow !bad\n", 403, 403),
        // A line of the directive counts for more.
        (
            "acl own dstdomain .example.com\nhttp_access allow own\n\
          private_destinations deny all\n",
            403,
            403,
        ),
        ("acl own dstdomain .example.com\nprivate_destinations deny own\n", 403, 403),
        ("private_destinations allow all\n", 200, 200),
        ("acl own dstdomain .example.com\nprivate_destinations allow own\n", 200, 403),
    ] {
        let proxy = Proxy::forward(&format!("{}{rules}", dns.closed_lines()));
        assert_eq!(get(&proxy, &wiki, &[]).status(), wiki_status, "{rules}");
        assert_eq!(get(&proxy, &evil, &[]).status(), evil_status, "{rules}");
    }
}

#[test]
fn addresses_in_urls_localhost_and_the_hosts_file_are_not_judged() {
    let (dns, origin) = (NameServer::new(), secret());
    let folder = open_folder();
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 printer.corp printer\n").expect("names");
    // Never asked: these names are known without.
    dns.on("localhost", loopback(2));
    let lines = format!("{}hosts_file {}\n", dns.closed_lines(), hosts.display());
    let proxy = Proxy::forward(&lines);
    for host in ["127.0.0.1", "localhost", "app.localhost", "printer.corp", "printer"] {
        assert_eq!(get(&proxy, &url(host, &origin, "/a"), &[]).expect(200).text(), "SECRET");
    }
    // Rules about them do what they say.
    let proxy = Proxy::forward(&format!("{lines}http_access deny to_localhost\n"));
    for host in ["127.0.0.1", "localhost", "printer.corp"] {
        let _ = get(&proxy, &url(host, &origin, "/b"), &[]).expect(403);
    }
}

#[test]
fn lines_of_the_directive_are_asked_for_every_address() {
    let (dns, origin) = (NameServer::new(), secret());
    let folder = open_folder();
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 printer.corp\n").expect("names");
    let lines = format!("{}hosts_file {}\n", dns.closed_lines(), hosts.display());
    let proxy = Proxy::forward(&format!(
        "{lines}acl open urlpath_regex ^/b\nprivate_destinations allow open\n\
         private_destinations deny all\n"
    ));
    for host in ["127.0.0.1", "localhost", "printer.corp"] {
        let _ = get(&proxy, &url(host, &origin, "/a"), &[]).expect(403);
        let _ = get(&proxy, &url(host, &origin, "/b"), &[]).expect(200);
    }
    let port = origin.address().port();
    let site = format!("accel no-vhost defaultsite=127.0.0.1:{port}");
    let lines = format!("{lines}always_direct allow all\n");
    for (more, status) in [("", 200), ("private_destinations deny all\n", 403)] {
        let proxy = Proxy::start(&site, &format!("{lines}{more}"));
        let mut client = Client::to(proxy.address());
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().status(), status, "{more}");
    }
}

#[test]
fn names_without_a_dot_are_of_the_domain_of_the_file() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("wiki.corp.example.com", loopback(1));
    dns.on("wiki", loopback(1));
    let ask = |lines: &str, host: &str| {
        let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
        get(&proxy, &url(host, &origin, "/a"), &[]).status()
    };
    assert_eq!(ask("append_domain .corp.example.com\n", "wiki"), 200);
    assert_eq!(ask("append_domain .corp.example.com\n", "wiki.corp.example.com"), 403);
    assert_eq!(ask("", "wiki"), 403);
}

#[test]
fn parents_and_sites_of_accelerators_are_where_the_file_says() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("parent.test", loopback(1));
    dns.on("site.test", loopback(1));
    dns.on("other.test", loopback(1));
    let port = origin.address().port();
    let parent = format!(
        "{}cache_peer parent.test parent {port} 0 no-query no-digest\nnever_direct allow all\n",
        dns.closed_lines()
    );
    let _ = get(&Proxy::forward(&parent), "http://anything.test/a", &[]).expect(200);
    let lines = format!("{}always_direct allow all\n", dns.closed_lines());
    let site = format!("accel vhost defaultsite=site.test:{port}");
    let reverse = Proxy::start(&site, &lines);
    let ask_at = |host: &str, port: u16| {
        let mut client = Client::to(reverse.address());
        client.send(format!("GET /a HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"));
        client.response()
    };
    let ask = |host: &str| ask_at(host, port);
    for host in ["site.test", "site.test.", "SITE.test"] {
        assert_eq!(ask(host).expect(200).text(), "SECRET", "{host}");
    }
    // Nor is another port of it, an address, or what the proxy's machine calls so.
    for host in ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"] {
        let _ = ask(host).expect(403);
    }
    let _ = ask_at("site.test", port.wrapping_add(1).max(1)).expect(403);
    // A host that the client chooses is no site of the file.
    let closed = ask("other.test").expect(403);
    assert!(!closed.text().contains("127.0.0.1"), "the public: {}", closed.text());
    let status = closed.field("Proxy-Status").expect("the field");
    assert!(status.ends_with("error=destination_ip_prohibited"), "{status}");
}

#[test]
fn a_kept_connection_is_not_for_those_who_may_not_go_there() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("near.test", loopback(1));
    let lines = "workers 1\ncache deny all\nacl open urlpath_regex ^/a\n\
                 private_destinations allow open\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    let mut client = proxy.client();
    for (path, status) in [("/a", 200), ("/b", 403), ("/a", 200)] {
        let answer = client.request("GET", &url("near.test", &origin, path), &[], b"").response();
        assert_eq!(answer.status(), status, "{path}");
    }
    assert_eq!((origin.count("/b"), origin.connections()), (0, 1));
}

#[test]
fn who_joins_a_fetch_is_judged_too_and_a_stored_answer_connects_to_nothing() {
    let (dns, origin) = (NameServer::new(), Origin::new());
    dns.on("near.test", loopback(1));
    let lines = "collapsed_forwarding on\nacl vip req_header X-Vip yes\n\
                 private_destinations allow vip\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    let (early, late) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let at_origin = (Arc::clone(&early), Arc::clone(&late));
    origin.handle("/a", move |_, wire| {
        at_origin.0.pass();
        wire.send("HTTP/1.1 103 Early Hints\r\nLink: </secret>\r\n\r\n");
        wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\nSEC");
        at_origin.1.pass();
        wire.send("RET");
    });
    let target = url("near.test", &origin, "/a");
    let mut vip = proxy.client();
    vip.request("GET", &target, &[("X-Vip", "yes")], b"");
    origin.wait_for("/a", 1);
    let mut guest = proxy.client();
    guest.request("GET", &target, &[], b"");
    until("it has joined", || {
        let metrics = get(&proxy, &proxy.page("metrics"), &[]).text();
        metrics.contains("humboldt_client_http_collapsed_total 1\n").then_some(())
    });
    early.open();
    let answer = guest.response();
    assert_eq!(answer.status(), 403, "{}", answer.text());
    assert!(answer.interim.is_empty() && !answer.text().contains("SEC"), "{:?}", answer.head);
    late.open();
    let whole = vip.response().expect(200);
    assert_eq!((whole.text().as_str(), whole.interim.len()), ("SECRET", 1));
    assert_eq!(origin.connections(), 1);
    // What is stored is for all whom http_access lets in, as documented.
    assert_eq!(get(&proxy, &target, &[]).expect(200).cache(), "HIT");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn who_leads_a_fetch_that_is_refused_does_not_refuse_others() {
    let (dns, origin) = (NameServer::new(), secret());
    let lines = "collapsed_forwarding on\nacl vip req_header X-Vip yes\n\
                 private_destinations allow vip\n";
    let proxy = Proxy::forward(&format!("{}{lines}dns_timeout 30 seconds\n", dns.closed_lines()));
    // The answer comes when both have asked.
    dns.on("slow.test", Says::Nothing);
    let target = url("slow.test", &origin, "/a");
    let mut guest = proxy.client();
    guest.request("GET", &target, &[], b"");
    until("a question", || (dns.asked("slow.test") > 0).then_some(()));
    let mut vip = proxy.client();
    vip.request("GET", &target, &[("X-Vip", "yes")], b"");
    until("it has joined", || {
        let metrics = get(&proxy, &proxy.page("metrics"), &[]).text();
        metrics.contains("humboldt_client_http_collapsed_total 1\n").then_some(())
    });
    dns.on("slow.test", loopback(1));
    let _ = guest.response().expect(403);
    assert_eq!(vip.response().expect(200).text(), "SECRET");
}

#[test]
fn a_validation_that_is_refused_does_not_serve_what_is_stale() {
    let (dns, origin) = (NameServer::new(), Origin::new());
    origin.on("/a", Reply::ok("old").with("Cache-Control", "max-age=0").with("ETag", "\"1\""));
    dns.on("near.test", loopback(1));
    let lines = "acl vip req_header X-Vip yes\nprivate_destinations allow vip\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    let target = url("near.test", &origin, "/a");
    let _ = get(&proxy, &target, &[("X-Vip", "yes")]).expect(200);
    let _ = get(&proxy, &target, &[]).expect(403);
    assert_eq!(get(&proxy, &target, &[("X-Vip", "yes")]).expect(200).text(), "old");
    assert_eq!(origin.last("/a").field("If-None-Match"), Some("\"1\""));
}

#[test]
fn a_line_without_an_answer_opens_nothing_and_its_rule_is_named() {
    let (dns, origin) = (NameServer::new(), secret());
    dns.on("near.test", loopback(1));
    let target = url("near.test", &origin, "/a");
    let lines = "acl marked client_connection_mark 1\nprivate_destinations allow marked\n\
                 private_destinations allow all\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    // Whether the kernel knows the mark (then the second line decides) or not.
    let status = get(&proxy, &target, &[]).status();
    assert!(matches!(status, 200 | 403), "{status}");
    let lines = "acl lo dst 127.0.0.0/8\nprivate_destinations deny lo\n";
    let proxy = Proxy::forward(&format!("{}{lines}", dns.closed_lines()));
    let text = get(&proxy, &target, &[]).expect(403).text();
    assert!(text.contains("refused by private_destinations deny lo (squid.conf:"), "{text}");
}

#[test]
fn explain_knows_private_destinations() {
    let folder = open_folder();
    let file = folder.path().join("squid.conf");
    let ask = |lines: &str, arguments: &[&str]| {
        fs::write(&file, format!("http_port 3128\n{lines}")).expect("a configuration");
        let file = file.display().to_string();
        let output = proxy::run(&[&["-f", &file, "-k", "explain", "GET"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let wiki = "acl own dstdomain .example.com\nhttp_access allow own\nhttp_access allow all\n";
    for (url, dst, code, part) in [
        ("http://wiki.example.com/", "10.0.0.1", 0, "10.0.0.1 (private): yes"),
        ("http://evil.example.net/", "10.0.0.1", 3, "10.0.0.1 (private): refused by private_d"),
        ("http://evil.example.net/", "203.0.113.77", 0, "The request is let in."),
        ("http://10.0.0.1/", "10.0.0.1", 0, "The request is let in."),
        ("http://localhost/", "127.0.0.1", 0, "the owner of no name has chosen it"),
    ] {
        let (status, text) = ask(wiki, &[url, "--dst", dst]);
        assert!(status == Some(code) && text.contains(part), "{url} {dst}: {text}");
    }
    let (status, text) =
        ask("http_access allow all\nprivate_destinations deny all\n", &["http://10.0.0.1/"]);
    assert!(status == Some(3) && text.contains("private_destinations deny all"), "{text}");
    let (_, text) = ask(wiki, &["http://evil.example.net/"]);
    assert!(text.contains("are not known here (--dst)"), "{text}");
}

#[test]
fn public_addresses_are_open_but_for_those_of_this_machine() {
    in_a_namespace("a_public_server_and_this_machine");
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn a_public_server_and_this_machine() {
    let server = Space::new();
    let folder = open_folder();
    ip("link set lo up");
    ip(&format!("link add out type veth peer name eth0 netns {}", server.0.id()));
    ip("address add 192.0.2.1/24 dev out");
    // The kernel sends to a second one of the same network from the first one.
    ip("address add 192.0.2.2/24 dev out");
    ip("route add local 198.51.100.0/24 dev lo");
    ip("link set out up");
    server.run("link set eth0 up");
    server.run("address add 192.0.2.10/24 dev eth0");
    let _nginx = server.nginx(folder.path(), "192.0.2.10:8080", "public");
    let own = Origin::on_listener(TcpListener::bind("0.0.0.0:8080").expect("all addresses"));
    own.on("/", Reply::ok("SECRET"));
    let dns = NameServer::new();
    dns.on("far.test", Says::Addresses(vec![Ipv4Addr::new(192, 0, 2, 10)]));
    dns.on("both.test", Says::Addresses(vec![Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 10)]));
    let proxy = Proxy::forward(&dns.closed_lines());
    for name in ["far.test", "both.test"] {
        let target = format!("http://{name}:8080/");
        assert_eq!(get(&proxy, &target, &[]).expect(200).text(), "public", "{name}");
    }
    for (number, own) in [[192, 0, 2, 1], [192, 0, 2, 2], [198, 51, 100, 7]].iter().enumerate() {
        let (name, own) = (format!("own{number}.test"), Ipv4Addr::from(*own));
        dns.on(&name, Says::Addresses(vec![own]));
        let refused = get(&proxy, &format!("http://{name}:8080/"), &[]).expect(403);
        let text = refused.text();
        assert!(text.contains(&format!("{own} (this proxy's machine)")), "{text}");
    }
    assert_eq!(own.connections(), 0);
    // Nor does the proxy ask itself, by whatever address.
    let port = proxy.address().port();
    let lines =
        format!("{}private_destinations allow all\nhttp_port 0.0.0.0:3129\n", dns.closed_lines());
    let open = Proxy::forward(&lines);
    assert_ne!(port, 3129);
    for own in ["192.0.2.1", "192.0.2.2", "198.51.100.7"] {
        let _ = get(&open, &format!("http://{own}:3129/"), &[]).expect(508);
    }
    // A system that lets sockets have foreign addresses has no more of its own.
    fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").expect("a setting");
    let proxy = Proxy::forward(&dns.closed_lines());
    assert_eq!(get(&proxy, "http://far.test:8080/", &[]).expect(200).text(), "public");
}
