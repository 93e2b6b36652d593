//! Fields of a hostile or careless server that the cache reads: lifetimes, validators, a 304's
//! fields.

use super::server::{Act, End, Hostile, right};
use super::{ONE_CORE, get};
use humboldt_tests::Proxy;

/// Field lines that are nonsense in fields that the proxy reads.
const NONSENSE: &[&str] = &[
    "Age: -1",
    "Age: 99999999999999999999",
    "Age: 2147483648",
    "Age: 5, 6",
    "Age: 1.5",
    "Age: ,",
    "Cache-Control: max-age=99999999999999999999",
    "Cache-Control: max-age=-1",
    "Cache-Control: max-age=\"60",
    "Cache-Control: =",
    "Cache-Control: ,,,,=,\"",
    "Cache-Control: stale-while-revalidate=9223372036854775807",
    "Cache-Control: s-maxage=9223372036854775807",
    "Date: Thu, 01 Jan 0000 00:00:00 GMT",
    "Date: Fri, 31 Dec 9999 23:59:59 GMT",
    "Date: Mon, 99 Foo 2026 99:99:99 GMT",
    "Date: 0",
    "Date: Sun, 06 Nov 1994 08:49:37 GMT",
    "Date: Sunday, 06-Nov-94 08:49:37 GMT",
    "Date: Sun Nov  6 08:49:37 1994",
    "Date:",
    "Expires: Fri, 31 Dec 9999 23:59:59 GMT",
    "Expires: -1",
    "Expires: Thu, 01 Jan 0000 00:00:00 GMT",
    "Last-Modified: Fri, 31 Dec 9999 23:59:59 GMT",
    "Last-Modified: Thu, 01 Jan 0000 00:00:00 GMT",
    "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT",
    "ETag: \"",
    "ETag: W/",
    "ETag: \"a\"\"b\"",
    "ETag: a, b",
    "ETag:",
    "ETag: \"\u{e9}\"",
    "Vary: ,",
    "Vary: \"*\"",
    "Vary: (",
    "Vary: content-length, host",
    "Content-Range: bytes 9223372036854775807-18446744073709551615/*",
    "Content-Range: bytes */*",
    "Content-Type: /",
    "Content-Type:",
    "Content-Encoding: \"",
    "Warning: 199 - \"",
    "Via: 1.1 proxy.test (humboldt/0.1.0)",
    "Connection: ,\"",
    "Connection: close, content-length, \"",
    "Keep-Alive: timeout=-1",
    "Trailer: Content-Length",
    "Upgrade: h2c",
    "Location: http://[",
    "Content-Location: //",
    "Set-Cookie: \"",
    "CDN-Cache-Control: max-age=99999999999999999999",
    "Surrogate-Control: content=\"",
    "X-Cache: HIT",
    "Cache-Status: \"",
    "Retry-After: 99999999999999999999",
    "Link: <",
    "Alt-Svc: \"",
    "Proxy-Authenticate: \"",
    "Strict-Transport-Security: max-age=x",
];

#[test]
fn nonsense_in_fields_that_the_proxy_reads_does_no_harm() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let mut client = proxy.client();
    for (index, line) in NONSENSE.iter().enumerate() {
        for (status, body) in
            [("200 OK", "hello"), ("404 Not Found", "hello"), ("301 Moved Permanently", "hello")]
        {
            let path = format!("/{index}/{}", &status[..3]);
            let text = format!("HTTP/1.1 {status}\r\n{line}\r\nContent-Length: 5\r\n\r\n{body}");
            let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
            server.once(&path, Act::new(bytes, End::Keep));
            for _ in 0..2 {
                let answer = get(&mut client, &proxy, &server.url(&path));
                assert!(
                    answer.text() == body || answer.text() == right(&path),
                    "{line}: {:?}",
                    answer.head
                );
                assert!(answer.is_complete, "{line}: {:?}", answer.head);
            }
        }
    }
    let log = proxy.text("cache.log");
    assert!(!log.contains("panic"), "{log}");
}

/// A rule against storing counts however it is wrapped up.
#[test]
fn no_store_cannot_be_hidden() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    let values = [
        "max-age=60, no-store",
        "no-store,max-age=60",
        "max-age=60,,,no-store,",
        "max-age=60, NO-STORE",
        "max-age=60, no-store=",
        "max-age=60, no-store=\"x\"",
        "max-age=60\r\nCache-Control: no-store",
        "max-age=60, x=\"a, b\", no-store",
        "max-age=60, x=\"\\\"\", no-store",
        "max-age=60, x=\"a, no-store",
        "x=\", max-age=60, no-store",
        "max-age=60\t,\tno-store",
        "private, max-age=60",
        "max-age=60, private=\"",
    ];
    for (index, value) in values.iter().enumerate() {
        let path = format!("/{index}");
        let text =
            format!("HTTP/1.1 200 OK\r\nCache-Control: {value}\r\nContent-Length: 6\r\n\r\nsecret");
        server.once(&path, Act::new(text, End::Keep));
        let mut client = proxy.client();
        assert_eq!(get(&mut client, &proxy, &server.url(&path)).text(), "secret", "{value}");
        assert_eq!(
            get(&mut client, &proxy, &server.url(&path)).text(),
            right(&path),
            "stored in spite of {value}"
        );
    }
}

/// A server's answer to a validation, and whether the stored answer is served afterwards.
const VALIDATIONS: &[(&str, bool, &str)] = &[
    ("yes", true, "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
    (
        "yes, with another length",
        true,
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 500\r\n\r\n",
    ),
    (
        "yes, with chunks",
        true,
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    (
        "yes, with a part's fields",
        true,
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Range: bytes 0-1/5\r\nContent-Encoding: gzip\r\n\r\n",
    ),
    (
        "yes, with a body",
        true,
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 6\r\n\r\nPOISON",
    ),
    (
        "yes, but to another",
        false,
        "HTTP/1.1 304 Not Modified\r\nETag: \"b\"\r\nX-A: POISON\r\n\r\n",
    ),
    (
        "a part",
        false,
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/5\r\nContent-Length: 2\r\n\r\nhe",
    ),
    ("a malformed answer", false, "HTTP/1.1 304 Not Modified\r\nX-A: POISON\rb\r\n\r\n"),
    ("a cut answer", false, "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nPOISON"),
];

#[test]
fn a_validation_changes_nothing_about_the_stored_body() {
    let server = Hostile::new();
    let proxy = Proxy::forward(ONE_CORE);
    for (index, (name, is_confirmed, text)) in VALIDATIONS.iter().enumerate() {
        let path = format!("/{index}");
        let stored = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nCache-Control: no-cache\r\nContent-Length: 5\r\n\r\nhello";
        server.once(&path, Act::new(stored, End::Keep));
        let text = text.replacen("\r\n", "\r\nCache-Control: max-age=60\r\n", 1);
        let end = if name.contains("cut") { End::Close } else { End::Keep };
        server.once(&path, Act::new(text, end));
        let mut client = proxy.client();
        assert_eq!(get(&mut client, &proxy, &server.url(&path)).text(), "hello", "{name}");
        let validated = get(&mut client, &proxy, &server.url(&path));
        let later = get(&mut client, &proxy, &server.url(&path));
        assert_eq!(server.seen(&path)[1].head.field("If-None-Match"), Some("\"a\""), "{name}");
        let all = format!("{:?} {:?}", validated.head, later.head);
        assert!(!all.contains("POISON") && !later.text().contains("POISON"), "{name}: {all}");
        if *is_confirmed {
            for answer in [&validated, &later] {
                assert_eq!(
                    (answer.status(), answer.text().as_str()),
                    (200, "hello"),
                    "{name}: {:?}",
                    answer.head
                );
                assert_eq!(answer.field("Content-Length"), Some("5"), "{name}");
                for field in ["Transfer-Encoding", "Content-Range", "Content-Encoding"] {
                    assert_eq!(answer.field(field), None, "{name}");
                }
            }
        } else {
            // Nothing of it is used: there is an error, or the answer is fetched again.
            let is_right = validated.status() == 200 && validated.text() == right(&path);
            assert!(
                is_right || validated.status() != 200 || !validated.is_complete,
                "{name}: {:?}",
                validated.head
            );
            assert_eq!(later.text(), right(&path), "{name}");
        }
    }
}
