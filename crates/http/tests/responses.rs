//! Response heads: those that a server may send, and those that make its answer unusable.

use humboldt_http::h1::{HeadError, parse_response};
use humboldt_http::{FieldName, HeadLimits, ResponseHead, Version};

fn parse(input: &[u8]) -> Result<Option<ResponseHead>, HeadError> {
    let mut head = ResponseHead::default();
    Ok(parse_response(input, &HeadLimits::default(), &mut head)?.map(|head_len| {
        assert!(head_len <= input.len());
        head
    }))
}

#[test]
fn usable_heads() {
    let head =
        parse(b"HTTP/1.0 404 Not  Found\r\nServer : x\r\nAge:\r\n\r\nbody").unwrap().unwrap();
    assert_eq!(
        (head.version, head.status, head.reason()),
        (Version::Http10, 404, &b"Not  Found"[..])
    );
    // RFC 9112 5.1: a proxy removes white space before the colon of a response.
    assert_eq!(head.fields.get(FieldName::Server), Some(&b"x"[..]));
    assert_eq!(head.fields.get(FieldName::Age), Some(&b""[..]));
    for (line, reason) in [
        ("HTTP/1.1 200", ""),
        ("HTTP/1.1 200 ", ""),
        ("HTTP/1.1 299 \u{e9}t\u{e9}", "\u{e9}t\u{e9}"),
    ] {
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
    let many = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert_eq!(parse(many(1000).as_bytes()).unwrap().map(|head| head.fields.len()), Some(1000));
    assert_eq!(parse(many(1001).as_bytes()).err(), Some(HeadError::TooManyFields));
    let limits = HeadLimits { max_fields: 100, ..HeadLimits::default() };
    let few = parse_response(many(101).as_bytes(), &limits, &mut ResponseHead::default());
    assert_eq!(few, Err(HeadError::TooManyFields));
    let options = format!("HTTP/1.1 200 OK\r\nConnection: {}\r\n\r\n", "a,".repeat(64));
    assert_eq!(parse(options.as_bytes()).err(), Some(HeadError::TooLarge));
    let endless = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(70_000));
    assert_eq!(parse(endless.as_bytes()).err(), Some(HeadError::TooLarge));
}

#[test]
fn heads_that_are_repaired_on_request() {
    let limits = HeadLimits { relaxed: true, ..HeadLimits::default() };
    let read = |input: &str| {
        let mut head = ResponseHead::default();
        let used = parse_response(input.as_bytes(), &limits, &mut head)?;
        Ok::<_, HeadError>(used.map(|used| (used, head.repaired, head)))
    };
    let (used, repaired, head) = read("HTTP/1.0 200 OK\nA: b\n c\n\nbody").unwrap().unwrap();
    assert_eq!((used, repaired, head.reason()), (25, true, &b"OK"[..]));
    assert_eq!(head.fields.get_by_name(b"a"), Some(&b"b c"[..]));
    assert!(matches!(read("HTTP/1.1 200 OK\r\nA: b\r\n\r\n"), Ok(Some((_, false, _)))));
    for cut in ["HTTP/1.1 200 OK\nA: b\n", "HTTP/1.1 200 OK\r\nA: b\r\n c"] {
        assert!(matches!(read(cut), Ok(None)), "{cut:?}");
    }
    for bad in [
        "HTTP/1.1 200 OK\nA b\n\n",
        "HTTP/1.1 200 OK\n: b\n\n",
        "HTTP/1.1 20 OK\n\n",
        "\nHTTP/1.1 200 OK\n\n",
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\nA: b\n {}", "x".repeat(70_000));
    assert_eq!(read(&endless).err(), Some(HeadError::TooLarge));
    let long = format!("HTTP/1.1 200 OK\nA: b\n {}\n\n", "x".repeat(70_000));
    assert_eq!(read(&long).err(), Some(HeadError::TooLarge));
}
