//! A request head never panics the parser; a head that is accepted is unambiguous: written again
//! from its parts it is accepted again with the same meaning, and none of its proper prefixes is
//! accepted.
#![no_main]

use humboldt_http::h1::{
    HopByHop, keep_alive, parse_request, request_framing, write_end, write_field,
    write_request_line,
};
use humboldt_http::{HeadLimits, RequestHead, Url};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let limits = HeadLimits::default();
    let mut head = RequestHead::default();
    let Ok(Some(head_len)) = parse_request(input, &limits, &mut head) else { return };
    let text = &input[..head_len];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!(!text.contains(&0));
    for (at, &byte) in text.iter().enumerate() {
        assert!(byte != b'\n' || text[at - 1] == b'\r', "bare LF");
        assert!(byte != b'\r' || text[at + 1] == b'\n', "bare CR");
    }
    let mut prefix = RequestHead::default();
    for cut in [head_len / 2, head_len - 1] {
        assert_eq!(parse_request(&text[..cut], &limits, &mut prefix), Ok(None));
    }

    let mut again = Vec::new();
    write_request_line(&mut again, head.method_bytes(), head.target_bytes(), head.version);
    for (_, name, value) in head.fields.iter() {
        write_field(&mut again, name, value);
    }
    write_end(&mut again);
    let mut reread = RequestHead::default();
    let limits = HeadLimits { max_head_bytes: 2 * limits.max_head_bytes, ..limits };
    assert_eq!(parse_request(&again, &limits, &mut reread), Ok(Some(again.len())));
    assert_eq!(request_framing(&reread), request_framing(&head));
    assert_eq!((reread.target, reread.version), (head.target, head.version));
    assert!(head.fields.iter().eq(reread.fields.iter()));

    let _ = (keep_alive(head.version, &head.fields), HopByHop::of(&head.fields));
    let mut url = Url::default();
    if url.set_from_request(&head, b"http", Some(b"default")).is_ok() && !url.scheme().is_empty() {
        let mut canonical = Url::default();
        canonical.set_absolute(url.as_bytes()).expect("a canonical URL is a URL");
        assert_eq!(url.as_bytes(), canonical.as_bytes());
    }
});
