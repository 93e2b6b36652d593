//! Error pages that a person can read and that reflect nothing unescaped.

use humboldt_tests::dns::NameServer;
use humboldt_tests::wait::free_address;
use humboldt_tests::{Proxy, Reply, World};

fn page(proxy: &Proxy, target: &str, accept: &str) -> humboldt_tests::Response {
    let mut client = proxy.client();
    client.request("GET", target, &[("Accept", accept)], b"").response()
}

#[test]
fn a_name_that_does_not_exist_is_explained() {
    let names = NameServer::new();
    let proxy = Proxy::forward(&names.lines());
    let answer = page(&proxy, "http://does-not-exist.invalid/", "text/html");
    assert!(matches!(answer.status(), 502..=504), "{:?}", answer.head);
    assert!(answer.text().contains("does-not-exist.invalid"), "{}", answer.text());
}

#[test]
fn a_refused_connection_is_explained() {
    let proxy = Proxy::forward("");
    let nobody = free_address();
    let answer = page(&proxy, &format!("http://{nobody}/"), "text/html");
    assert!(matches!(answer.status(), 502 | 503), "{:?}", answer.head);
    assert!(answer.text().to_ascii_lowercase().contains("refused"), "{}", answer.text());
}

#[test]
fn a_denied_request_gets_403_and_never_reaches_the_origin() {
    let world = World::forward("acl bad dstdomain .bad.test\nhttp_access deny bad\n");
    let answer = page(&world.proxy, "http://www.bad.test/", "text/html");
    assert_eq!(answer.status(), 403);
    assert!(world.proxy.logged("www.bad.test").contains("TCP_DENIED/403"));
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
}

#[test]
fn html_or_plain_text_as_the_client_prefers() {
    let proxy = Proxy::forward("http_access deny all\n");
    for (accept, wanted) in [
        ("text/html,application/xhtml+xml", "text/html"),
        ("text/plain", "text/plain"),
        ("text/html;q=0, text/plain", "text/plain"),
    ] {
        let answer = page(&proxy, "http://a.test/", accept).expect(403);
        let kind = answer.field("Content-Type").unwrap_or_default();
        assert!(kind.starts_with(wanted), "Accept: {accept} got {kind}");
        assert_eq!(answer.text().contains("<html"), wanted == "text/html", "{}", answer.text());
    }
}

#[test]
fn nothing_of_the_request_is_reflected_unescaped() {
    let proxy = Proxy::forward("http_access deny all\n");
    let attack = "<script>alert(1)</script>";
    for (target, field) in [
        (format!("http://a.test/{attack}"), "x".to_owned()),
        (format!("http://a.test/?q=\"'>{attack}"), "x".to_owned()),
        ("http://a.test/".to_owned(), attack.to_owned()),
    ] {
        let mut client = proxy.client();
        let fields =
            [("Accept", "text/html"), ("User-Agent", field.as_str()), ("X-Attack", field.as_str())];
        let answer = client.request("GET", &target, &fields, b"").response();
        assert!((400..500).contains(&answer.status()));
        assert!(!answer.text().contains("<script>"), "{}", answer.text());
        assert!(!format!("{:?}", answer.head).contains("<script>"), "{:?}", answer.head);
    }
}

#[test]
fn errors_are_not_stored_and_say_that_they_are_the_proxys_own() {
    let proxy = Proxy::forward("");
    let nobody = free_address();
    let first = page(&proxy, &format!("http://{nobody}/"), "text/html");
    assert_eq!(first.cache(), "MISS");
    let second = page(&proxy, &format!("http://{nobody}/"), "text/html");
    assert_eq!((second.cache(), second.field("Age")), ("MISS", None));
}

#[test]
fn a_scheme_that_is_not_spoken_is_refused_politely() {
    let proxy = Proxy::forward("");
    let answer = page(&proxy, "gopher://a.test/", "text/html");
    assert!((400..600).contains(&answer.status()), "{:?}", answer.head);
}

#[test]
fn a_request_body_beyond_the_limit_gets_413() {
    let world = World::forward("request_body_max_size 1 KB\n");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    let answer = client.request("POST", &world.target("/a"), &[], &[b'a'; 5_000]).response();
    assert_eq!(answer.status(), 413);
    assert_eq!(world.origin.count("/a"), 0);
}

/// Both would overflow a 32-bit number, and neither sends a byte of the body.
#[test]
fn a_request_body_of_more_than_4_gb_is_refused_when_it_is_announced() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x"));
    for (fields, chunk) in [
        (("Content-Length", "4294967301"), ""),
        (("Transfer-Encoding", "chunked"), "100000005\r\n"),
    ] {
        let mut client = world.client();
        client.request("POST", &world.target("/a"), &[fields], b"").send(chunk);
        assert_eq!(client.response().status(), 413, "{fields:?}");
        let _ = client.closes();
    }
    assert_eq!(world.origin.count("/a"), 0);
}

#[test]
fn several_chunks_count_together_before_the_last_one_has_come() {
    let world = World::forward("request_body_max_size 1 KB\n");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    client.request("POST", &world.target("/a"), &[("Transfer-Encoding", "chunked")], b"");
    client.send(format!("200\r\n{}\r\n201\r\n", "a".repeat(0x200)));
    assert_eq!(client.response().status(), 413);
    assert_eq!(world.origin.count("/a"), 0);
}

#[test]
fn an_answer_body_beyond_the_limit_is_not_passed_on_whole() {
    let world = World::forward("reply_body_max_size 1 KB\n");
    world.origin.on("/a", Reply::ok([b'a'; 5_000]));
    let answer = world.get("/a");
    assert!((400..600).contains(&answer.status()), "{:?}", answer.head);
    assert!(!answer.text().contains("aaaaaaaa"));
}
