//! Requests and answers whose end is in doubt: refused, never forwarded, never guessed.

use humboldt_tests::{Client, Origin, Reply, World, proxy};
use std::process::Command;

/// The required treatment of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Want {
    /// 400 and a closed connection; the origin sees nothing.
    Refused,
    /// An error status of its own and a closed connection; the origin sees nothing.
    Status(u16),
    /// Forwarded with its meaning intact.
    Passed,
}
use Want::{Passed, Refused, Status};

/// `{t}` is the target of the case, `{h}` the host; `\r\n` are written out as in the standard.
const REQUESTS: &[(&str, Want, &str)] = &[
    ("a plain request", Passed, "GET {t} HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    ("an empty line before the request", Passed, "\r\nGET {t} HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    (
        "a body with its length",
        Passed,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (
        "a chunked body",
        Passed,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "chunked in capitals",
        Passed,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk extension",
        Passed,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "leading zeros in a chunk size",
        Passed,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a trailer",
        Passed,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
    ),
    ("an empty field value", Passed, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-Empty:\r\n\r\n"),
    ("high bytes in a value", Passed, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A: \u{fc}\r\n\r\n"),
    ("a 1.0 request without Host", Passed, "GET {t} HTTP/1.0\r\nX-A: b\r\n\r\n"),
    // The end of the head, and the form of fields.
    ("a bare CR in a value", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A: b\rc\r\n\r\n"),
    (
        "a bare CR that hides a field",
        Refused,
        "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A: b\rContent-Length: 5\r\n\r\n",
    ),
    ("NUL in a value", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A: b\0c\r\n\r\n"),
    ("NUL in a name", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX\0A: b\r\n\r\n"),
    ("a blank before the colon", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A : b\r\n\r\n"),
    (
        "a tab before the colon of Content-Length",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length\t: 5\r\n\r\nhello",
    ),
    ("a folded line", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A: b\r\n c\r\n\r\n"),
    (
        "a folded Transfer-Encoding",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a blank before the first field", Refused, "GET {t} HTTP/1.1\r\n X-A: b\r\nHost: {h}\r\n\r\n"),
    ("a line without a colon", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX-A\r\n\r\n"),
    ("an empty name", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\n: b\r\n\r\n"),
    ("a separator in a name", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nX(A): b\r\n\r\n"),
    ("three words too many", Refused, "GET {t} x HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    ("no version", Refused, "GET {t}\r\nHost: {h}\r\n\r\n"),
    ("a version in small letters", Refused, "GET {t} http/1.1\r\nHost: {h}\r\n\r\n"),
    ("a version of the future", Status(505), "GET {t} HTTP/2.7\r\nHost: {h}\r\n\r\n"),
    ("a method that is no token", Refused, "G@T {t} HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    // Host.
    ("no Host", Refused, "GET {t} HTTP/1.1\r\nX-A: b\r\n\r\n"),
    ("two Hosts", Refused, "GET {t} HTTP/1.1\r\nHost: {h}\r\nHost: {h}\r\n\r\n"),
    ("a Host with a blank", Refused, "GET {t} HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("a Host with a path", Refused, "GET {t} HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ("a Host with a user", Refused, "GET {t} HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    ("a list of Hosts", Refused, "GET {t} HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    // Two lengths.
    (
        "Transfer-Encoding with Content-Length",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET {s} HTTP/1.1\r\nHost: {h}\r\n\r\n",
    ),
    (
        "the same in the other order",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET {s} HTTP/1.1\r\nHost: {h}\r\n\r\n",
    ),
    (
        "two lengths",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (
        "two lengths in a list",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0, 5\r\n\r\nhello",
    ),
    (
        "a length with a sign",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: +5\r\n\r\nhello",
    ),
    (
        "a negative length",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: -5\r\n\r\nhello",
    ),
    (
        "a hexadecimal length",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0x5\r\n\r\nhello",
    ),
    (
        "a length with a blank",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5 0\r\n\r\nhello",
    ),
    ("an empty length", Refused, "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: \r\n\r\nhello"),
    (
        "a length beyond 64 bits",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
    ),
    // Transfer-Encoding.
    (
        "a final coding other than chunked",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip\r\n\r\nGET {s} HTTP/1.1\r\nHost: {h}\r\n\r\n",
    ),
    (
        "chunked before another coding",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "an unknown coding",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "identity",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: identity\r\n\r\nGET {s} HTTP/1.1\r\nHost: {h}\r\n\r\n",
    ),
    (
        "Transfer-Encoding in HTTP/1.0",
        Refused,
        "POST {t} HTTP/1.0\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    // Chunk sizes. The origin may have seen the start of such a request, never the whole.
    (
        "a chunk size with 0x",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk size with a sign",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "no chunk size",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk size that overflows",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk longer than its size",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a bare LF behind a chunk size",
        Refused,
        "POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    ),
];

/// Runs the table through one proxy and reports every deviation at once.
fn run_table(world: &World) {
    let mut wrong = Vec::new();
    let smuggled = world.target("/smuggled");
    for (index, (name, want, text)) in REQUESTS.iter().enumerate() {
        let path = format!("/case{index}");
        world.origin.on(&path, Reply::ok("fine"));
        let text = text
            .replace("{t}", &world.target(&path))
            .replace("{s}", &smuggled)
            .replace("{h}", &world.host());
        // Latin-1: `\u{fc}` is one byte
        let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
        let mut client = world.client();
        let answer = client.send(bytes).try_response_to("POST");
        let seen = world.origin.count(&path);
        let status = answer.as_ref().map_or(0, humboldt_tests::Response::status);
        let (wanted_status, wanted_seen) = match want {
            Refused => (400, 0),
            Status(status) => (*status, 0),
            Passed => (200, 1),
        };
        if (status, seen) != (wanted_status, wanted_seen) {
            wrong.push(format!(
                "{name}: status {status}, {seen} requests at the origin; wanted {want:?}"
            ));
        } else if *want != Passed && !client.closes() {
            wrong.push(format!("{name}: something follows the error"));
        }
    }
    assert_eq!(world.origin.count("/smuggled"), 0, "a request was smuggled");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), REQUESTS.len(), wrong.join("\n"));
}

#[test]
fn ambiguous_requests_are_refused_by_the_forward_proxy() {
    run_table(&World::forward(""));
}

#[test]
fn ambiguous_requests_are_refused_by_the_accelerator() {
    run_table(&World::reverse(""));
}

/// Answers of an origin that must not reach a client as they are.
const BAD_ANSWERS: &[(&str, &str)] = &[
    ("no HTTP at all", "SSH-2.0-server\r\n\r\n"),
    (
        "an answer of 1.0 with both lengths",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "an answer with two lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    ),
    ("an answer with a bad length", "HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nabc"),
    ("an answer with a NUL", "HTTP/1.1 200 OK\r\nX-A: b\0\r\nContent-Length: 3\r\n\r\nabc"),
    ("a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 3\r\n\r\nabc"),
    ("an answer in an unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, x\r\n\r\nabc"),
    ("nothing", ""),
];

#[test]
fn ambiguous_answers_become_502_and_are_not_stored() {
    let world = World::forward("");
    let mut wrong = Vec::new();
    for (index, (name, text)) in BAD_ANSWERS.iter().enumerate() {
        let path = format!("/bad{index}");
        let text = text.replace("\r\nContent", "\r\nCache-Control: max-age=60\r\nContent");
        world.origin.on_each(&path, vec![Reply::raw(text), Reply::ok("good").cachable(60)]);
        let first = world.get(&path).status();
        let second = world.get(&path);
        // A proxy may ask again at once when nothing came, and then has a good answer to give.
        let is_retried = first == 200 && second.text() == "good" && text_is_empty(index);
        if first != 502 && !is_retried {
            wrong.push(format!("{name}: {first}"));
        }
        if second.text() != "good" {
            wrong.push(format!("{name}: the next client got {:?}", second.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// RFC 9112 5.1: a proxy removes such a blank from an answer, or gives up on it.
#[test]
fn a_blank_before_a_colon_in_an_answer_is_not_passed_on() {
    let world = World::forward("");
    world
        .origin
        .on("/a", Reply::raw("HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length : 3\r\n\r\nabc"));
    let answer = world.get("/a");
    let names: Vec<&str> = answer.head.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.iter().all(|name| !name.ends_with(' ')), "{names:?}");
    assert!(answer.status() == 502 || answer.text() == "abc", "{:?}", answer.head);
}

fn text_is_empty(index: usize) -> bool {
    BAD_ANSWERS[index].1.is_empty()
}

#[test]
fn an_answer_that_ends_early_reaches_the_client_as_truncated_and_is_not_stored() {
    let world = World::forward("");
    for (path, text) in [
        (
            "/sized",
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhello",
        ),
        (
            "/chunked",
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ),
        (
            "/mid-chunk",
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
        ),
    ] {
        world.origin.on_each(path, vec![Reply::raw(text), Reply::ok("hello, again").cachable(60)]);
        let first = world.get(path).expect(200);
        assert!(!first.is_complete, "{path}: an answer that was cut off looks whole");
        let second = world.get(path).expect(200);
        assert_eq!(second.text(), "hello, again", "{path}: a part was stored as the whole");
    }
}

#[test]
fn an_answer_that_ends_early_is_not_complete_for_an_old_client_either() {
    let world = World::forward("");
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
    world.origin.on("/cut", Reply::raw(text));
    let mut client = world.client();
    client.send(format!("GET {} HTTP/1.0\r\n\r\n", world.target("/cut")));
    assert!(!client.response().is_complete);
}

#[test]
fn leftover_bytes_of_an_answer_are_never_given_to_the_next_client() {
    let world = World::forward("");
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    world.origin.handle("/a", move |_, wire| {
        wire.send(poison);
        let _ = wire.reader.head(); // keeps the connection open and swallows what comes next
    });
    world.origin.on("/b", Reply::ok("clean"));
    assert_eq!(world.get("/a").expect(200).text(), "ok");
    assert_eq!(world.get("/b").expect(200).text(), "clean");
}

#[test]
fn messages_are_written_anew_for_the_origin() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok(""));
    let target = world.target("/a");
    let mut client = world.client();
    client.send(format!(
        "\r\nPOST {target} HTTP/1.1\r\nHost: elsewhere.test\r\nTransfer-Encoding:  Chunked\r\n"
    ));
    client.send("\r\n0003;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let _ = client.response().expect(200);
    let request = world.origin.last("/a");
    assert_eq!(request.body.bytes, b"abcde");
    assert_eq!(
        request.field("Host"),
        Some(world.host().as_str()),
        "the authority of the target wins"
    );
    assert_eq!(request.head.all("Host").count(), 1);
    assert_eq!(request.target(), "/a");
}

/// The project's wider list of payloads is a program of its own; this runs it if it is installed.
#[test]
fn the_external_smuggling_probe_finds_nothing_if_it_is_at_hand() {
    let Some(script) = std::env::var_os("HUMBOLDT_SMUGGLE") else { return };
    let world = World::forward("");
    let reverse = World::reverse("");
    let origin = reverse.origin.address().port().to_string();
    drop(reverse.origin);
    for (proxy, mode, more) in [
        (&world.proxy, "forward", vec![]),
        (&reverse.proxy, "reverse", vec!["--origin-port", &origin]),
    ] {
        let output = Command::new("python3")
            .arg(&script)
            .args(["--proxy", &proxy.address().to_string(), "--mode", mode])
            .args(more)
            .output()
            .expect("python3");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{mode}:\n{text}");
    }
}

#[test]
fn heads_beyond_the_limit_get_431_and_long_targets_414() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("fine"));
    let proxy = proxy::Proxy::forward("request_header_max_size 16 KB\n");
    for (wanted, request) in [
        (
            431,
            format!(
                "GET {} HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n\r\n",
                origin.url("/a"),
                "x".repeat(20_000)
            ),
        ),
        (
            431,
            format!(
                "GET {} HTTP/1.1\r\nHost: a\r\n{}\r\n",
                origin.url("/a"),
                "A: b\r\n".repeat(4_000)
            ),
        ),
        (
            414,
            format!("GET {}?{} HTTP/1.1\r\nHost: a\r\n\r\n", origin.url("/a"), "x".repeat(40_000)),
        ),
    ] {
        let mut client = Client::to(proxy.address());
        let status = client.send(request).response().status();
        assert!(
            status == wanted || (wanted == 414 && status == 431),
            "{status} instead of {wanted}"
        );
        client.closes();
    }
    assert_eq!(origin.count("/a"), 0);
}

#[test]
fn white_space_in_a_target_is_treated_as_the_file_says() {
    for (lines, wanted) in [
        ("", None),
        ("uri_whitespace deny\n", None),
        ("uri_whitespace strip\n", Some("/ab")),
        ("uri_whitespace encode\n", Some("/a%20b")),
        ("uri_whitespace allow\n", Some("/a%20b")),
        ("uri_whitespace chop\n", Some("/a")),
    ] {
        let world = World::forward(lines);
        if let Some(path) = wanted {
            world.origin.on(path, Reply::ok("x"));
        }
        let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", world.origin.url("/a b"));
        let mut client = world.client();
        // A second request behind it is not touched.
        client.send(request.repeat(2));
        let status = if wanted.is_some() { 200 } else { 400 };
        assert_eq!(client.response().status(), status, "{lines}");
        if let Some(path) = wanted {
            assert_eq!(client.response().status(), 200, "{lines}");
            assert_eq!(world.origin.count(path), 2, "{lines}");
            assert!(world.proxy.logged(path).contains("TCP_MISS/200"));
        }
    }
}
