//! Response heads: what an upstream server may send and what makes its answer unusable.

use humboldt_http::h1::{HeadError, HeadLimits, parse_response};
use humboldt_http::{FieldName, ResponseHead, Version};

fn parse(input: &[u8]) -> Result<Option<ResponseHead>, HeadError> {
    let mut head = ResponseHead::default();
    Ok(parse_response(input, &HeadLimits::default(), &mut head)?.map(|head_len| {
        assert!(head_len <= input.len());
        head
    }))
}

#[test]
fn usable_heads() {
    let head = parse(b"HTTP/1.0 404 Not  Found\r\nServer : x\r\nAge:\r\n\r\nbody").unwrap().unwrap();
    assert_eq!((head.version, head.status, head.reason()), (Version::Http10, 404, &b"Not  Found"[..]));
    // RFC 9112 5.1: a proxy removes white space before the colon of a response.
    assert_eq!(head.fields.get(FieldName::Server), Some(&b"x"[..]));
    assert_eq!(head.fields.get(FieldName::Age), Some(&b""[..]));
    for (line, reason) in
        [("HTTP/1.1 200", ""), ("HTTP/1.1 200 ", ""), ("HTTP/1.1 299 \u{e9}t\u{e9}", "\u{e9}t\u{e9}")]
    {
        let head = parse(format!("{line}\r\n\r\n").as_bytes()).unwrap().unwrap();
        assert_eq!(head.reason(), reason.as_bytes());
    }
    assert!(parse(b"HTTP/1.1 200 OK\r\nA: b\r\n").unwrap().is_none());
}

#[test]
fn unusable_heads() {
    for input in [
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "<html>",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n\n",
    ] {
        assert!(parse(input.as_bytes()).is_err(), "{input:?}");
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(129));
    assert_eq!(parse(many.as_bytes()).err(), Some(HeadError::TooLarge));
    let options = format!("HTTP/1.1 200 OK\r\nConnection: {}\r\n\r\n", "a,".repeat(64));
    assert_eq!(parse(options.as_bytes()).err(), Some(HeadError::TooLarge));
    let endless = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(70_000));
    assert_eq!(parse(endless.as_bytes()).err(), Some(HeadError::TooLarge));
}
