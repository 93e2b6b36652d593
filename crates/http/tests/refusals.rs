//! Forbidden requests, as a table: every known way to make two implementations disagree about the
//! end of a message, its destination, or its content; and beside it requests that must be accepted.

use humboldt_http::h1::{
    BodyDecoder, BodyError, DecodeState, HopByHop, LEADING_CRLF_MAX, parse_request, request_framing,
};
use humboldt_http::{FieldName, HeadLimits, METHOD_BYTES_MAX, RequestHead};

/// The result of one input.
#[derive(PartialEq, Eq, Debug)]
enum End {
    /// A complete request with this body; the number of bytes after it.
    Whole(Vec<u8>, usize),
    /// The head is refused with this status.
    Head(u16),
    /// The body is refused.
    Body(BodyError),
    /// More input is needed.
    Partial,
}

/// Reads one request.
fn read(input: &[u8]) -> End {
    let mut head = RequestHead::default();
    let head_len = match parse_request(input, &HeadLimits::default(), &mut head) {
        Ok(Some(head_len)) => head_len,
        Ok(None) => return End::Partial,
        Err(error) => return End::Head(error.status()),
    };
    let mut decoder = BodyDecoder::new(request_framing(&head).expect("checked by parse_request"));
    let mut rest = &input[head_len..];
    let mut body = Vec::new();
    loop {
        let step = match decoder.decode(rest) {
            Ok(step) => step,
            Err(error) => return End::Body(error),
        };
        body.extend_from_slice(&rest[step.data]);
        rest = &rest[step.consumed..];
        if step.state == DecodeState::Done {
            return End::Whole(body, rest.len());
        }
        if rest.is_empty() {
            return End::Partial;
        }
    }
}

/// A POST to a fixed host with these further lines, and the bytes after the head.
fn post(lines: &str, rest: &str) -> Vec<u8> {
    format!("POST /p HTTP/1.1\r\nHost: h.example\r\n{lines}\r\n{rest}").into_bytes()
}

/// A GET with this `Host` line and these further lines.
fn get(lines: &str) -> Vec<u8> {
    format!("GET /p HTTP/1.1\r\n{lines}\r\n").into_bytes()
}

/// A request with this request line.
fn line(request_line: &str) -> Vec<u8> {
    format!("{request_line}\r\nHost: h.example\r\n\r\n").into_bytes()
}

/// Replaces `@` with a byte that a Rust string literal cannot hold.
fn with_byte(mut input: Vec<u8>, byte: u8) -> Vec<u8> {
    for place in input.iter_mut().filter(|place| **place == b'@') {
        *place = byte;
    }
    input
}

const HIDDEN: &str = "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h.example\r\n\r\n";

#[track_caller]
fn refused(status: u16, input: &[u8]) {
    assert_eq!(read(input), End::Head(status), "{}", input.escape_ascii());
}

#[track_caller]
fn whole(body: &str, rest_bytes: usize, input: &[u8]) {
    assert_eq!(read(input), End::Whole(body.into(), rest_bytes), "{}", input.escape_ascii());
}

#[test]
fn valid_messages_pass() {
    whole("", 0, &get("Host: h.example\r\n"));
    whole("hello", 0, &post("Content-Length: 5\r\n", "hello"));
    whole("hello", 0, &post("Content-Length: 005\r\n", "hello"));
    whole("hello", 0, &post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"));
    whole(
        "hello",
        0,
        &post(
            "Transfer-Encoding:\t ChUnKeD \t\r\n",
            "0005 ;a=b;c=\"d e\"\r\nhello\r\n000;x\r\nX-T: 1\r\n\r\n",
        ),
    );
    whole("", HIDDEN.len(), &post("", HIDDEN));
    whole("hello", 3, &post("Content-Length: 5\r\nExpect: 100-Continue\r\n", "helloGET"));
    whole("", 0, b"GET /p HTTP/1.0\r\n\r\n");
    whole("", 0, &[b"\r\n".repeat(LEADING_CRLF_MAX), get("Host: h.example\r\n")].concat());
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "BREW"] {
        let request = format!("{method} /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
        whole("hi", 0, request.as_bytes());
    }
    for request_line in [
        "GET http://other.example:8080/x?y HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT h.example:443 HTTP/1.1",
        "CONNECT [::1]:443 HTTP/1.0",
        "GET /%00?a|b{c}\"<> HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
    ] {
        whole("", 0, &line(request_line));
    }
    // Look-alikes of the framing fields are other fields.
    whole("", 1, &post("Content_Length: 1\r\nTransfer_Encoding: chunked\r\n", "x"));
}

#[test]
fn both_length_fields() {
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
    ] {
        refused(400, &post(lines, HIDDEN));
    }
}

#[test]
fn transfer_encodings() {
    for value in [
        "xchunked",
        "cow",
        "identity",
        "gzip",
        "chunked, identity",
        "chunked, chunked",
        ",chunked",
        "chunked,",
        "chunked;q=1",
        "\"chunked\"",
        "'chunked'",
        "chu nked",
        "",
        ": chunked",
        "chunked, gzip, chunked",
        "\"x\", chunked",
        "x y, chunked",
        ",",
    ] {
        refused(400, &post(&format!("Transfer-Encoding: {value}\r\n"), HIDDEN));
    }
    for value in
        ["gzip, chunked", "identity, chunked", "cow,chunked", "gzip;q=1, deflate , Chunked"]
    {
        refused(501, &post(&format!("Transfer-Encoding: {value}\r\n"), HIDDEN));
    }
    refused(400, &post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", HIDDEN));
    refused(400, &post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", HIDDEN));
    refused(501, &post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", HIDDEN));
    for byte in [0, 0x0b, 0x0c, 0x7f, 0x85, 0xa0, 0xff] {
        for value in ["@chunked", "chunked@", "@chunked@"] {
            refused(
                400,
                &with_byte(post(&format!("Transfer-Encoding: {value}\r\n"), HIDDEN), byte),
            );
        }
    }
    for version_line in ["", "Connection: keep-alive\r\n"] {
        let old =
            format!("POST /p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n{version_line}\r\n{HIDDEN}");
        refused(400, old.as_bytes());
    }
}

#[test]
fn content_lengths() {
    for value in [
        "+5",
        "-5",
        "-0",
        "0x5",
        "0_5",
        "5.0",
        "5e0",
        "5 0",
        "5Z",
        "",
        " ",
        "\"5\"",
        "5, 5",
        "5,5",
        "0, 5",
        "5,",
        ",5",
        "5;",
        "\u{ff15}",
        "9223372036854775808",
        "18446744073709551621",
        &format!("1{}5", "0".repeat(99)),
    ] {
        refused(400, &post(&format!("Content-Length: {value}\r\n"), "hello"));
    }
    for (first, second) in [("5", "5"), ("0", "5"), ("5", "0"), ("5", "05"), ("", "5"), ("5", "")] {
        refused(
            400,
            &post(&format!("Content-Length: {first}\r\nContent-Length: {second}\r\n"), "hello"),
        );
    }
    for byte in [0, 0x0b, 0xa0] {
        refused(400, &with_byte(post("Content-Length: @5\r\n", "hello"), byte));
    }
    assert_eq!(read(&post("Content-Length: 9223372036854775807\r\n", "hello")), End::Partial);
}

#[test]
fn white_space_around_names() {
    for lines in [
        "Content-Length : 5\r\n",
        "Content-Length\t: 5\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X-Foo : bar\r\n",
        "X Foo: bar\r\n",
        " X-Foo: bar\r\n",
        "X-Foo: a\r\n b\r\n",
        "X-Foo: a\r\n \r\nX-Bar: b\r\n",
        "Content-Length:\r\n 5\r\n",
        "Content-Length: 5\r\n 0\r\n",
        "Transfer-Encoding:\r\n\tchunked\r\n",
        "Transfer-Encoding: chunked\r\n \r\n",
        "X-A: b\r\n Transfer-Encoding: chunked\r\n",
    ] {
        refused(400, &post(lines, "hello"));
    }
    refused(400, &get("Host : h.example\r\n"));
    refused(400, &get("Host:\r\n h.example\r\n"));
    refused(400, b"GET /p HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: h.example\r\n\r\n");
}

#[test]
fn line_ends() {
    let valid = String::from_utf8(post("X-A: b\r\n", "")).expect("ASCII");
    refused(400, valid.replace("\r\n", "\n").as_bytes());
    refused(400, valid.replace("\r\n", "\r").as_bytes());
    // One line end after the other replaced: no position is forgiven.
    for (at, _) in valid.match_indices("\r\n") {
        let (before, after) = (&valid[..at], &valid[at + 2..]);
        refused(400, [before, "\n", after].concat().as_bytes());
        refused(400, [before, "\r\r\n", after].concat().as_bytes());
        refused(400, [before, "\r", after, "\r\n\r\n"].concat().as_bytes());
    }
    for lines in [
        "X-A: b\nContent-Length: 5\r\n",
        "X-A: b\rTransfer-Encoding: chunked\r\n",
        "X-A: b\rc\r\n",
        "X-\rA: b\r\n",
        "\rZ: a\r\n",
        "X-A:\n\nGET /hidden HTTP/1.1\r\nHost: h.example\r\n",
        "X-A:\n",
        "X-A: \n",
        "Transfer-Encoding: chunked\r\r\n",
    ] {
        refused(400, &post(lines, "hello"));
    }
    refused(400, b"\n\nGET /p HTTP/1.1\r\nHost: h\r\n\r\n");
    refused(400, b"\rGET /p HTTP/1.1\r\nHost: h\r\n\r\n");
    refused(400, &[b"\r\n".repeat(LEADING_CRLF_MAX + 1), get("Host: h\r\n")].concat());
}

#[test]
fn names_and_control_bytes() {
    for lines in [
        "X-Foo\r\n",
        "Content-Length 5\r\n",
        ": b\r\n",
        ":\r\n",
        "X(a)@b: c\r\n",
        "Transfer-\r\nEncoding: chunked\r\n",
    ] {
        refused(400, &post(lines, "hello"));
    }
    for byte in (0..=8).chain(10..=31).chain([127]).filter(|byte| !b"\r\n".contains(byte)) {
        for lines in ["X-A: b@c\r\n", "X-A: @\r\n", "X@A: b\r\n", "Content-Length@: 5\r\n"] {
            refused(400, &with_byte(post(lines, "hello"), byte));
        }
        refused(400, &with_byte(line("GET /a@b HTTP/1.1"), byte));
        refused(400, &with_byte(line("G@T / HTTP/1.1"), byte));
    }
    for byte in [0x80, 0x85, 0xff] {
        refused(400, &with_byte(post("Transfer-Encoding@: chunked\r\n", HIDDEN), byte));
    }
    assert_eq!(read(&with_byte(post("X-A: b@c\r\n", ""), b'\t')), End::Whole(vec![], 0));
}

#[test]
fn request_lines() {
    for request_line in [
        "GET /p",
        "GET  /p  HTTP/1.1",
        "GET\t/p\tHTTP/1.1",
        "GET /p HTTP/1.1 ",
        " GET /p HTTP/1.1",
        "GET /p\rHTTP/1.1",
        "GET /p\nHTTP/1.1",
        "GET /p x HTTP/1.1",
        "GET /p HTTP/1.1\tX HTTP/1.1",
        "GET /p#f HTTP/1.1",
        "GET  HTTP/1.1",
        "GET /p HTTP/01.1",
        "GET /p HTTP/1.10",
        "GET /p http/1.1",
        "GET /p HTTP/\r\r1.1",
        "GET /p HTTP/1",
        "GET /p XTTP/1.1",
        "G=\":<>(e),[T];?\" /p HTTP/1.1",
        "",
        "GET",
        "GET p HTTP/1.1",
        "GET * HTTP/1.1",
        "GET h.example:80 HTTP/1.1",
        "CONNECT h.example HTTP/1.1",
        "CONNECT /p HTTP/1.1",
        "CONNECT http://h/ HTTP/1.1",
        "CONNECT h:0 HTTP/1.1",
        "CONNECT u@h:1 HTTP/1.1",
        "GET http:///p HTTP/1.1",
        "GET http://u@h/ HTTP/1.1",
        "GET http://h:x/ HTTP/1.1",
    ] {
        refused(400, &line(request_line));
    }
    for request_line in ["GET /p HTTP/2.0", "GET /p HTTP/1.2", "GET /p HTTP/0.9", "GET /p HTTP/9.9"]
    {
        refused(505, &line(request_line));
    }
    refused(505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    refused(501, &line(&format!("{} /p HTTP/1.1", "M".repeat(METHOD_BYTES_MAX + 1))));
}

#[test]
fn hosts() {
    refused(400, &get(""));
    refused(400, b"GET http://h.example/ HTTP/1.1\r\n\r\n");
    for host in [
        "", "h/x", "h@evil", "h evil", "h,evil", "h:80x", "h:99999", "h:0", "a..b", "[::1", "::1",
        "h%2e", "h?", "h\\x", "u:p@h:80", "[::1]80", "http://h",
    ] {
        refused(400, &get(&format!("Host: {host}\r\n")));
        refused(400, format!("GET http://h.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    }
    refused(400, &with_byte(get("Host: h@.x\r\n"), 0));
    refused(400, &get("Host: h\r\nHost: evil\r\n"));
    refused(400, &get("Host: h\r\nhost: h\r\n"));
    refused(400, b"GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n");
    for host in ["h", "h:", "H.Example.:8080", "[2001:db8::1]:80", "127.0.0.1", "a_b", "xn--e1a"] {
        whole("", 0, &get(&format!("Host: {host}\r\n")));
    }
}

#[test]
fn content_where_there_is_none() {
    for method in ["TRACE /p", "CONNECT h:1"] {
        for lines in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            refused(
                400,
                format!("{method} HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\nhello").as_bytes(),
            );
        }
        whole(
            "",
            0,
            format!("{method} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
    }
    refused(417, &post("Content-Length: 5\r\nExpect: 100-continueX\r\n", "hello"));
}

#[test]
fn chunked_bodies() {
    let body = |body: &str| read(&post("Transfer-Encoding: chunked\r\n", body));
    for bad in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n-0\r\n\r\n",
        "5these\r\nhello",
        "\r\n\r\n",
        "5\0\r\nhello",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\r\nhello",
        "5\r\r;a\r\nhello",
        "5\rXhello",
        "5;a=b\rc\r\nhello",
        "10000000000000005\r\nhello",
        "ffffffffffffffff\r\nhello",
        "5\r\nhello\r\n\r\n0\r\n\r\n",
    ] {
        assert_eq!(body(bad), End::Body(BodyError::ChunkSize), "{bad:?}");
    }
    for bad in [
        "2;\nxx\r\n5\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5;a=b\nhello\r\n",
        "5;a=\"\r\nhello\r\n0\r\n\r\n\";b\r\n0\r\n\r\n",
        "5;\r\nhello",
        "5;a=\x01\r\nhello",
    ] {
        assert_eq!(body(bad), End::Body(BodyError::ChunkExtension), "{bad:?}");
    }
    for bad in
        ["5\r\nhello0\r\n\r\n", "3\r\nhello\r\n", "5\r\nhelloXX0\r\n\r\n", "5\r\nhello\n0\r\n\r\n"]
    {
        assert_eq!(body(bad), End::Body(BodyError::ChunkEnd), "{bad:?}");
    }
    for bad in [
        "0\r\n\n",
        "0\r\nX: 1\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\nX : 1\r\n\r\n",
        "0\r\nX: 1\r\n 2\r\n\r\n",
        "0\r\nX: \0\r\n\r\n",
    ] {
        assert_eq!(body(bad), End::Body(BodyError::Trailer), "{bad:?}");
    }
    assert_eq!(
        body(&format!("5;{}\r\nhello\r\n", "a".repeat(8192))),
        End::Body(BodyError::ChunkOverhead)
    );
    for dropped in [
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
        "Host: evil.example",
        "X:GET /x HTTP/1.1",
    ] {
        assert_eq!(
            body(&format!("2\r\nhi\r\n0\r\n{dropped}\r\n\r\nrest")),
            End::Whole(b"hi".to_vec(), 4)
        );
    }
    assert_eq!(body("100000005\r\nhello\r\n0\r\n\r\n"), End::Partial);
}

#[test]
fn connection_cannot_remove_framing() {
    let named = "Connection: keep-alive, Content-Length, Transfer-Encoding, Host, X-Own, Upgrade, HTTP2-Settings\r\n";
    let input = post(&format!("{named}Content-Length: 2\r\nX-Own: 1\r\n"), "hi");
    whole("hi", 0, &input);
    let mut head = RequestHead::default();
    parse_request(&input, &HeadLimits::default(), &mut head).expect("valid");
    let hops = HopByHop::of(&head.fields);
    assert!(
        !hops.is_hop(FieldName::Host, b"Host")
            && !hops.is_hop(FieldName::ContentLength, b"Content-Length")
    );
    for (id, name) in
        [(FieldName::Other, "x-own"), (FieldName::Upgrade, ""), (FieldName::Http2Settings, "")]
    {
        assert!(hops.is_hop(id, name.as_bytes()));
    }
}

#[test]
fn bounds() {
    let limits = HeadLimits {
        max_head_bytes: 400,
        max_fields: 4,
        max_target_bytes: 100,
        ..HeadLimits::default()
    };
    let status = |input: &str| {
        let mut head = RequestHead::default();
        parse_request(input.as_bytes(), &limits, &mut head).map_err(|error| error.status())
    };
    let fields =
        |count: usize| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a: b\r\n".repeat(count - 1));
    assert!(matches!(status(&fields(4)), Ok(Some(_))));
    assert_eq!(status(&fields(5)), Err(431));
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(len - 1));
    assert!(matches!(status(&target(100)), Ok(Some(_))));
    assert_eq!(status(&target(101)), Err(414));
    assert_eq!(status(&format!("GET /{}", "x".repeat(100))), Ok(None));
    assert_eq!(status(&format!("GET /{}", "x".repeat(200))), Err(414));
    let padded =
        |pad: usize| format!("GET / HTTP/1.1\r\nHost: h\r\na: {}\r\n\r\n", "x".repeat(pad));
    let rest = padded(0).len();
    assert!(matches!(status(&padded(400 - rest)), Ok(Some(400))));
    assert_eq!(status(&padded(401 - rest)), Err(431));
    assert_eq!(status(&padded(500)[..400]), Ok(None));
    assert_eq!(status(&padded(500)[..401]), Err(431));
}

/// Each option may name a field: both together must not multiply.
#[test]
fn options_of_connection_are_bounded() {
    let limits = HeadLimits::default();
    let status = |options: usize| {
        let lists =
            ["a,".repeat(options / 2), "a,".repeat(options - options / 2)].map(|mut list| {
                list.pop();
                list
            });
        let text = format!(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: {}\r\nconnection: {}\r\n\r\n",
            lists[0], lists[1]
        );
        let mut head = RequestHead::default();
        parse_request(text.as_bytes(), &limits, &mut head).map_err(|error| error.status())
    };
    assert!(matches!(status(64), Ok(Some(_))));
    assert_eq!(status(65), Err(431));
}
