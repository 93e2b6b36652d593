//! Attempts to have an answer stored where others find it who did not ask for it.
//!
//! A server may use a field that is not part of the key as it likes, unless it names it in Vary.
//! These tests show that the proxy adds nothing to that: one object in the cache is one object at
//! the server, byte for byte.

#[path = "poisoning/echo.rs"]
mod echo;

use echo::{Echo, answer, send};
use humboldt_tests::Proxy;
use humboldt_tests::wait::{Gate, until};
use std::sync::Arc;

/// Fields that some servers take for the host, the scheme, the target or the method.
const OVERRIDES: &[(&str, &str)] = &[
    ("X-Forwarded-Host", "evil.test"),
    ("X-Forwarded-Server", "evil.test"),
    ("X-Forwarded-Scheme", "https"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Port", "444"),
    ("X-Forwarded-Prefix", "/evil"),
    ("X-Host", "evil.test"),
    ("X-HTTP-Host-Override", "evil.test"),
    ("X-Original-URL", "/evil"),
    ("X-Rewrite-URL", "/evil"),
    ("X-Original-Host", "evil.test"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-HTTP-Method", "DELETE"),
    ("X-Method-Override", "DELETE"),
    ("Forwarded", "host=evil.test;proto=https"),
    ("X-Real-IP", "10.0.0.1"),
    ("True-Client-IP", "10.0.0.1"),
    ("Surrogate-Capability", "evil=\"ESI/1.0\""),
];

#[test]
fn fields_that_pretend_another_host_or_target_change_nothing_here() {
    let server = Echo::of_identity();
    let proxy = server.accelerator("");
    for (index, (name, value)) in OVERRIDES.iter().enumerate() {
        let head = format!("GET /{index} HTTP/1.1\nHost: site.test");
        let first = send(&proxy, &format!("{head}\n{name}: {value}"));
        assert_eq!(first.text(), format!("GET site.test /{index}"), "{name}");
        assert_eq!(server.last().list(name), *value, "{name} is the server's affair and goes on");
        let second = send(&proxy, &head);
        assert_eq!((second.cache(), second.text()), ("HIT", first.text()), "{name}");
    }
}

#[test]
fn a_server_that_obeys_such_a_field_is_safe_if_it_says_so_with_vary() {
    let server = Echo::new(|seen| {
        let host = seen.list("X-Forwarded-Host");
        answer("302 Found", &format!("Vary: x-forwarded-host\r\nLocation: http://{host}/\r\n"), "")
    });
    let proxy = server.accelerator("");
    for host in ["evil.test", "site.test", "evil.test"] {
        let head = format!("GET / HTTP/1.1\nHost: site.test\nX-Forwarded-Host: {host}");
        assert_eq!(send(&proxy, &head).field("Location"), Some(format!("http://{host}/").as_str()));
    }
    assert_eq!(server.seen().len(), 2);
}

/// Targets that some reader may take for equal. None is changed on its way, so each is an object of
/// its own here and at the server.
const SPELLINGS: &[&str] = &[
    "/a/b",
    "/a/b/",
    "/a//b",
    "//a/b",
    "/a/./b",
    "/a/../b",
    "/a/%2e%2e/b",
    "/a/%2E%2E/b",
    "/a/%252e%252e/b",
    "/a/..%2fb",
    "/a%2fb",
    "/a%2Fb",
    "/a%252Fb",
    "/a\\b",
    "/a%5cb",
    "/%61/b",
    "/A/b",
    "/a/b;x",
    "/a/b%3bx",
    "/a/b;x=1",
    "/a/b%3Fx",
    "/a/b?",
    "/a/b?x",
    "/a/b?x=",
    "/a/b?x=1&y=2",
    "/a/b?x=1;y=2",
    "/a/b?x=1%26y=2",
    "/a/b?x=1&amp;y=2",
    "/a/b?y=2&x=1",
    "/a/b?x=1&x=2",
    "/a/b?x=2&x=1",
    "/a/b?X=1&y=2",
    "/a/b??x",
    "/a/b?x?y",
    "/a/b%23x",
    "/a/b%00",
    "/a/b%0d%0aX:1",
    "/a/b%20",
    "/a/b+",
    "/a/b%2b",
    "/%",
    "/%zz",
    "/%e9",
    "/%E9",
    "/a/b?utm_content=x;callback=y",
    "/a/b,x",
    "/a/b|x",
    "/a/b\"x",
    "/a/b{x}",
    "/a/b~",
    "/a/b%7e",
    "/@evil.test/",
    "/:80/",
    "/http://evil.test/",
    "/?http://evil.test/",
    "/*",
    "/a/b'x",
    "/a/b<x>",
    "/a/b^",
];

#[test]
fn what_differs_in_a_byte_is_another_thing_here_and_at_the_server() {
    let server = Echo::of_identity();
    let (forward, reverse) = (Proxy::forward(""), server.accelerator(""));
    let host = server.address().to_string();
    for round in ["MISS", "HIT"] {
        for target in SPELLINGS {
            let answer =
                send(&forward, &format!("GET http://{host}{target} HTTP/1.1\nHost: {host}"));
            assert_eq!((answer.cache(), answer.text()), (round, format!("GET {host} {target}")));
            let answer = send(&reverse, &format!("GET {target} HTTP/1.1\nHost: site.test"));
            assert_eq!((answer.cache(), answer.text()), (round, format!("GET site.test {target}")));
        }
    }
    assert_eq!(server.seen().len(), 2 * SPELLINGS.len());
}

#[test]
fn targets_that_nobody_should_send_are_refused() {
    let server = Echo::of_identity();
    let (forward, reverse) = (Proxy::forward(""), server.accelerator(""));
    let host = server.address().to_string();
    let ends = [
        "/a#b", "/a#", "/#/../b", "/a?b#c", "/a\x01", "/a\tb", "/a\0b", "/a\x7f", "/a\x0bb",
        "/a\rb", "/a\x1b",
    ];
    for end in ends {
        for proxy in [&forward, &reverse] {
            for target in [end.to_owned(), format!("http://{host}{end}")] {
                let answer = send(proxy, &format!("GET {target} HTTP/1.1\nHost: {host}"));
                assert_eq!(answer.status(), 400, "{target:?}: {:?}", answer.head);
            }
        }
    }
    let authorities = [
        "user@{h}",
        "user:password@{h}",
        "evil.test@{h}",
        "{h}@evil.test",
        "{h},evil.test",
        "{h}\\evil.test",
        "{h}%2eevil.test",
        "{h}%00",
        "{h}:80",
        "[{h}]",
        "",
        ":80",
        "{h}..",
        ".{h}",
        "evil.test..",
        "%31%32%37.0.0.1",
        "127.0.0.1:+80",
        "127.0.0.1:0",
        "127.0.0.1:65616",
        "127.0.0.1:000080",
        "127.0.0.1:8O",
        "127.0.0.1:-80",
        "127.0.0.1:0x50",
        "127.0.0.1;x",
        "[::1",
        "::1",
        "[::1]x",
        "[::1%25lo]",
        "127.0.0.1:80:80",
    ];
    for authority in authorities {
        let authority = authority.replace("{h}", &host);
        let answer = send(&forward, &format!("GET http://{authority}/ HTTP/1.1\nHost: {host}"));
        assert_eq!(answer.status(), 400, "{authority:?}: {:?}", answer.head);
        if !authority.is_empty() {
            let answer = send(&reverse, &format!("GET / HTTP/1.1\nHost: {authority}"));
            assert_eq!(answer.status(), 400, "{authority:?}: {:?}", answer.head);
        }
    }
    assert!(server.seen().is_empty(), "{:?}", server.seen());
}

/// Host as sent, and as the server sees it: the answer to each always speaks of its own canonical
/// form, whether stored or not.
#[test]
fn spellings_of_a_host_are_one_host_here_and_at_the_server() {
    let server = Echo::of_identity();
    let proxy = server.accelerator("");
    let hosts = [
        ("site.test", "site.test"),
        ("SITE.Test", "site.test"),
        ("site.test.", "site.test"),
        ("site.test:80", "site.test"),
        ("site.test:", "site.test"),
        ("site.test.:00080", "site.test"),
        ("site.test:81", "site.test:81"),
        ("site.test:443", "site.test:443"),
        ("evil.test", "evil.test"),
        ("xsite.test", "xsite.test"),
    ];
    for (sent, canonical) in hosts {
        let answer = send(&proxy, &format!("GET /a HTTP/1.1\nHost: {sent}"));
        assert_eq!(answer.text(), format!("GET {canonical} /a"), "Host: {sent}");
        assert_eq!(server.last().head.all("Host").count(), 1);
    }
    assert_eq!(server.seen().len(), 5);
}

#[test]
fn the_target_decides_where_host_says_something_else() {
    let (first, second) = (Echo::of_identity(), Echo::of_identity());
    let proxy = Proxy::forward("");
    let (a, b) = (first.address(), second.address());
    for (target, host) in [(a, b), (b, a), (a, a), (b, b)] {
        let answer = send(&proxy, &format!("GET http://{target}/x HTTP/1.1\nHost: {host}"));
        assert_eq!(answer.text(), format!("GET {target} /x"));
    }
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
}

/// Redirects that a server builds from Host, stored: each host has its own, and with `no-vhost`
/// there is one host only.
#[test]
fn a_redirect_built_from_host_stays_with_that_host() {
    let redirect = |seen: &echo::Seen| {
        answer(
            "301 Moved Permanently",
            &format!("Location: http://{}/new\r\n", seen.list("Host")),
            "",
        )
    };
    let heads = [
        ("GET /old HTTP/1.1\nHost: evil.test", "evil.test"),
        ("GET http://evil.test/old HTTP/1.1\nHost: site.test", "evil.test"),
        ("GET http://site.test/old HTTP/1.1\nHost: evil.test", "site.test"),
        ("GET /old HTTP/1.1\nHost: site.test", "site.test"),
        ("GET /old HTTP/1.0", "site.test"),
    ];
    let server = Echo::new(redirect);
    let proxy = server.accelerator("");
    for (head, host) in heads {
        assert_eq!(
            send(&proxy, head).field("Location"),
            Some(format!("http://{host}/new").as_str()),
            "{head}"
        );
    }
    assert_eq!(server.seen().len(), 2);
    let server = Echo::new(redirect);
    let proxy = server.accelerator("no-vhost");
    for (head, _) in heads {
        assert_eq!(
            send(&proxy, head).field("Location"),
            Some("http://site.test/new"),
            "no-vhost, {head}"
        );
    }
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn errors_that_one_request_brought_about_are_not_for_others() {
    let server = Echo::new(|seen| {
        let status = seen.list("X-Status");
        match status.is_empty() {
            true => answer("200 OK", "", "good"),
            false => answer(&status, "Cache-Control: x\r\n", "bad"),
        }
    });
    let proxy = server.accelerator("");
    let statuses = [
        "400 Bad Request",
        "403 Forbidden",
        "404 Not Found",
        "405 Method Not Allowed",
        "408 Request Timeout",
        "413 Content Too Large",
        "414 URI Too Long",
        "416 Range Not Satisfiable",
        "417 Expectation Failed",
        "421 Misdirected Request",
        "429 Too Many Requests",
        "431 Request Header Fields Too Large",
        "500 Internal Server Error",
        "501 Not Implemented",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "505 HTTP Version Not Supported",
        "301 Moved Permanently",
        "302 Found",
        "308 Permanent Redirect",
        "204 No Content",
        "206 Partial Content",
        "300 Multiple Choices",
        "410 Gone",
    ];
    let large = "x".repeat(30_000);
    for (index, status) in statuses.iter().enumerate() {
        let head = format!("GET /{index} HTTP/1.1\nHost: site.test");
        let bad = send(&proxy, &format!("{head}\nX-Status: {status}\nX-Large: {large}"));
        assert!(status.starts_with(&bad.status().to_string()), "{status}: {:?}", bad.head);
        assert_eq!(send(&proxy, &head).text(), "good", "{status} was stored");
    }
    // The proxy's own refusal is not stored either.
    let head = "GET /own HTTP/1.1\nHost: site.test";
    assert_eq!(send(&proxy, &format!("{head}\nX-Large: {}", "x".repeat(70_000))).status(), 431);
    assert_eq!(send(&proxy, head).text(), "good");
}

#[test]
fn an_answer_to_head_is_never_the_body_of_get() {
    let server = Echo::of_identity();
    let proxy = server.accelerator("");
    for _ in 0..2 {
        assert_eq!(send(&proxy, "HEAD /a HTTP/1.1\nHost: site.test").status(), 200);
    }
    assert_eq!(send(&proxy, "GET /a HTTP/1.1\nHost: site.test").text(), "GET site.test /a");
    let head = send(&proxy, "HEAD /a HTTP/1.1\nHost: site.test");
    assert_eq!((head.field("Content-Length"), head.cache()), (Some("16"), "HIT"));
    for method in ["get", "Get", "GETT", "POST", "BREW"] {
        let answer =
            send(&proxy, &format!("{method} /a HTTP/1.1\nHost: site.test\nContent-Length: 0"));
        assert_eq!(
            answer.text(),
            format!("{method} site.test /a"),
            "methods are told apart by their bytes"
        );
    }
}

/// The key knows no body: such a request is neither answered from the cache nor its answer stored.
#[test]
fn get_with_a_body_stays_away_from_the_cache() {
    let server =
        Echo::new(|seen| answer("200 OK", "", &format!("{}:{}", seen.list("X-A"), seen.body)));
    let proxy = server.accelerator("");
    let bodies = ["Content-Length: 3\n\nabc", "Transfer-Encoding: chunked\n\n3\nabc\n0"];
    let fat = |body: &str, path: &str| {
        let text = format!("GET {path} HTTP/1.1\nHost: site.test\nX-A: fat\n{body}");
        // `send` ends the head with an empty line: that of the last chunk, or one before the next
        // request.
        send(&proxy, &text).text()
    };
    let thin = |path: &str| {
        send(&proxy, &format!("GET {path} HTTP/1.1\nHost: site.test\nX-A: thin")).text()
    };
    for (index, body) in bodies.iter().enumerate() {
        let path = format!("/{index}");
        assert_eq!(fat(body, &path), "fat:abc");
        assert_eq!(thin(&path), "thin:", "the answer to GET with a body was stored");
        assert_eq!(fat(body, &path), "fat:abc", "GET with a body was answered from the cache");
        assert_eq!(thin(&path), "thin:");
    }
    assert_eq!(server.seen().len(), 6);
}

#[test]
fn what_was_made_for_one_user_is_for_that_user() {
    let server = Echo::new(|seen| {
        let lines = if seen.head.word(1) == "/vary" {
            "Vary: Cookie, Authorization\r\nCache-Control: public, max-age=60\r\n"
        } else {
            ""
        };
        answer("200 OK", lines, &format!("{}|{}", seen.list("Authorization"), seen.list("Cookie")))
    });
    let proxy = server.accelerator("");
    let ask = |path: &str, lines: &str| {
        send(&proxy, &format!("GET {path} HTTP/1.1\nHost: site.test{lines}"))
    };
    assert_eq!(ask("/plain", "\nAuthorization: Basic YTpi").text(), "Basic YTpi|");
    assert_eq!(ask("/plain", "").text(), "|", "an answer to credentials was stored without leave");
    let users = [
        "",
        "\nCookie: a=1",
        "\nCookie: a=2",
        "\nAuthorization: a=1",
        "\nCookie: a=1\nAuthorization: a=1",
        "\nCookie: a=1, a=2",
    ];
    for round in ["MISS", "HIT"] {
        for user in users {
            let answer = ask("/vary", user);
            let of = |name: &str| {
                user.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
            };
            let wanted = format!("{}|{}", of("Authorization: "), of("Cookie: "));
            assert_eq!((answer.cache(), answer.text()), (round, wanted), "{user:?}");
        }
    }
}

#[test]
fn a_part_is_never_stored_as_the_whole() {
    let server = Echo::new(|seen| match seen.list("Range").as_str() {
        "" => answer("200 OK", "", "whole"),
        "bytes=0-1" => answer("206 Partial Content", "Content-Range: bytes 0-1/5\r\n", "wh"),
        "bytes=0-" => answer("206 Partial Content", "Content-Range: bytes 0-4/5\r\n", "whole"),
        "bytes=0-0,2-2" => answer(
            "206 Partial Content",
            "Content-Type: multipart/byteranges; boundary=x\r\n",
            "--x--",
        ),
        "lines=1" => answer("200 OK", "", "whole"),
        _ => answer("416 Range Not Satisfiable", "Content-Range: bytes */5\r\n", "bad"),
    });
    let proxy = server.accelerator("");
    for (index, range) in
        ["bytes=0-1", "bytes=0-", "bytes=0-0,2-2", "bytes=9-", "bytes=-0", "lines=1", "bytes=x"]
            .iter()
            .enumerate()
    {
        let head = format!("GET /{index} HTTP/1.1\nHost: site.test");
        let part = send(&proxy, &format!("{head}\nRange: {range}"));
        assert!(matches!(part.status(), 200 | 206 | 416), "{range}: {:?}", part.head);
        for _ in 0..2 {
            let whole = send(&proxy, &head);
            assert_eq!((whole.status(), whole.text().as_str()), (200, "whole"), "{range}");
        }
    }
}

#[test]
fn values_that_imitate_other_variants_have_their_own_answers() {
    let server = Echo::new(|seen| {
        answer(
            "200 OK",
            "Vary: X-A\r\nVary: ,x-b,, X-A\r\n",
            &format!("[{}][{}]", seen.list("X-A"), seen.list("X-B")),
        )
    });
    let proxy = server.accelerator("");
    let variants = [
        "",
        "\nX-A: 1",
        "\nX-B: 1",
        "\nX-A: 1\nX-B: 1",
        "\nX-A: 1, X-B: 1",
        "\nX-A: 1,x-b=1",
        "\nX-A: 1&x-b=1",
        "\nX-A: \"1\"",
        "\nX-A: 1;x-b:1",
        "\nX-A: %31",
        "\nX-A: -",
        "\nX-A: 11",
        "\nX-A: A",
        "\nX-A: a",
        "\nX-A: 1, 1",
        "\nX-A: 1\nX-A: 2",
        "\nX-A: 2\nX-A: 1",
        "\nX-A: 1\n\tx",
    ];
    for _ in 0..2 {
        for variant in &variants[..variants.len() - 1] {
            let answer = send(&proxy, &format!("GET /a HTTP/1.1\nHost: site.test{variant}"));
            let of = |name: &str| {
                let values: Vec<&str> =
                    variant.lines().filter_map(|line| line.strip_prefix(name)).collect();
                values.join(", ")
            };
            assert_eq!(answer.text(), format!("[{}][{}]", of("X-A: "), of("X-B: ")), "{variant:?}");
        }
    }
    let last = variants[variants.len() - 1];
    assert_eq!(
        send(&proxy, &format!("GET /a HTTP/1.1\nHost: site.test{last}")).status(),
        400,
        "a folded field"
    );
}

#[test]
fn vary_that_cannot_be_kept_is_not_stored() {
    for vary in ["*", "X-A, *", "*, X-A", "X-A\r\nVary: *", "x a", "\"X-A\"", "X-A;q=1"] {
        let server = Echo::new(move |seen| {
            answer("200 OK", &format!("Vary: {vary}\r\n"), &seen.list("X-A"))
        });
        let proxy = server.accelerator("");
        for value in ["1", "2", "1"] {
            let answer = send(&proxy, &format!("GET /a HTTP/1.1\nHost: site.test\nX-A: {value}"));
            assert_eq!(answer.text(), value, "Vary: {vary}");
        }
    }
}

/// RFC 9110 7.6.1: Connection must not name fields that are meant for all. A client that does so
/// nevertheless strips no field that matters.
#[test]
fn connection_takes_nothing_from_a_request_that_matters_later() {
    let server = Echo::of_identity();
    let proxy = server.accelerator("");
    let fields = [
        ("Authorization", "Basic YTpi"),
        ("Cookie", "a=1"),
        ("Cache-Control", "no-cache"),
        ("If-None-Match", "\"a\""),
        ("Range", "bytes=0-1"),
        ("Forwarded", "for=10.0.0.1"),
        ("X-Forwarded-Host", "a.test"),
        ("X-Forwarded-Proto", "https"),
        ("CDN-Loop", "a"),
    ];
    for (index, (name, value)) in fields.iter().enumerate() {
        let options = format!("close, {}", name.to_lowercase());
        let head = format!(
            "GET /{index} HTTP/1.1\nHost: site.test\nConnection: {options}\n{name}: {value}"
        );
        // The server sends the whole; a stored part of it gives a range.
        assert_eq!(send(&proxy, &head).status(), if *name == "Range" { 206 } else { 200 });
        assert_eq!(server.last().list(name), *value, "{name} was stripped");
    }
    let head = "GET /x HTTP/1.1\nHost: site.test\nConnection: close, X-Forwarded-For, Host, Via\nX-Forwarded-For: 10.9.9.9\nVia: 1.1 a";
    assert_eq!(send(&proxy, head).text(), "GET site.test /x");
    assert_eq!(server.last().list("X-Forwarded-For"), "10.9.9.9, 127.0.0.1");
    assert!(server.last().list("Via").starts_with("1.1 a, 1.1 proxy.test"), "{:?}", server.last());
}

/// A field that Connection removes does not exist for Vary either: otherwise the answer to a
/// request without the field would be stored for clients that send it.
#[test]
fn what_connection_removes_does_not_choose_a_variant() {
    let server = Echo::new(|seen| {
        let name = if seen.head.word(1) == "/known" { "Accept-Language" } else { "X-A" };
        answer("200 OK", &format!("Vary: {name}\r\n"), &format!("[{}]", seen.list(name)))
    });
    let proxy = server.accelerator("");
    for (path, name) in [("/known", "Accept-Language"), ("/other", "X-A")] {
        let head = format!("GET {path} HTTP/1.1\nHost: site.test\n{name}: de");
        assert_eq!(
            send(&proxy, &format!("{head}\nConnection: close, {name}")).text(),
            "[]",
            "{name} goes on"
        );
        let victim = send(&proxy, &head);
        assert_eq!(
            victim.text(),
            "[de]",
            "the answer to a request without {name} was stored for {name}: de"
        );
    }
}

/// The same from the server's side: fields that decide about storing count although Connection
/// names them.
#[test]
fn connection_in_an_answer_hides_no_rule_of_the_cache() {
    for line in ["Cache-Control: no-store", "Cache-Control: private, max-age=60", "Vary: *"] {
        let name = line.split(':').next().unwrap_or_default();
        let lines =
            format!("Connection: {name}\r\nExpires: Fri, 01 Jan 2100 00:00:00 GMT\r\n{line}\r\n");
        let server = Echo::new(move |seen| answer("200 OK", &lines, &seen.list("X-A")));
        let proxy = server.accelerator("");
        for value in ["1", "2"] {
            let answer = send(&proxy, &format!("GET /a HTTP/1.1\nHost: site.test\nX-A: {value}"));
            assert_eq!(answer.text(), value, "{line}");
            assert_eq!(
                answer.field(name),
                Some(&line[name.len() + 2..]),
                "{line} is for clients too"
            );
        }
    }
}

/// Requests that come while the answer to another one is on its way share it only if it is theirs.
#[test]
fn who_asks_at_the_same_time_gets_an_answer_of_their_own() {
    let others = [
        ("X-A: 2", "[2][]"),
        ("X-A: 1\nAuthorization: Basic YTpi", "[1][Basic YTpi]"),
        ("X-A: 1\nContent-Length: 0", "[1][]"),
        ("X-B: 1", "[][]"),
    ];
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let server = Echo::new(move |seen| {
        if seen.list("X-First") == "1" {
            held.pass();
        }
        answer(
            "200 OK",
            "Vary: X-A\r\n",
            &format!("[{}][{}]", seen.list("X-A"), seen.list("Authorization")),
        )
    });
    let proxy = server.accelerator("");
    let ask = |lines: &str| {
        let mut client = proxy.client();
        client.send(format!("GET /a HTTP/1.1\nHost: site.test\n{lines}\n\n").replace('\n', "\r\n"));
        client
    };
    let mut first = ask("X-First: 1\nX-A: 1");
    until("the first request", || (!server.seen().is_empty()).then_some(()));
    let mut clients = others.map(|(lines, wanted)| (ask(lines), lines, wanted));
    // Those behind them are served meanwhile, so that they have been seen by now.
    assert_eq!(send(&proxy, "GET /b HTTP/1.1\nHost: site.test").text(), "[][]");
    gate.open();
    assert_eq!(first.response().text(), "[1][]");
    for (client, lines, wanted) in &mut clients {
        assert_eq!(client.response().text(), *wanted, "{lines}");
    }
}
