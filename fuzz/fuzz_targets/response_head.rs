//! A response head never panics the parser; an accepted one, written again from its parts, reads
//! the same.
#![no_main]

use humboldt_http::h1::{
    parse_response, response_framing, write_end, write_field, write_status_line,
};
use humboldt_http::{HeadLimits, Method, ResponseHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for relaxed in [false, true] {
        read(input, &HeadLimits { relaxed, ..HeadLimits::default() });
    }
});

fn read(input: &[u8], limits: &HeadLimits) {
    let mut head = ResponseHead::default();
    let Ok(Some(head_len)) = parse_response(input, limits, &mut head) else { return };
    assert_eq!(parse_response(&input[..head_len - 1], limits, &mut ResponseHead::default()), Ok(None));
    let mut again = Vec::new();
    write_status_line(&mut again, head.version, head.status, head.reason());
    for (_, name, value) in head.fields.iter() {
        write_field(&mut again, name, value);
    }
    write_end(&mut again);
    let mut reread = ResponseHead::default();
    let limits = HeadLimits { max_head_bytes: 2 * limits.max_head_bytes, relaxed: false, ..*limits };
    assert_eq!(parse_response(&again, &limits, &mut reread), Ok(Some(again.len())));
    assert_eq!((reread.status, reread.reason(), reread.version), (head.status, head.reason(), head.version));
    assert!(head.fields.iter().eq(reread.fields.iter()));
    for method in [Method::Get, Method::Head, Method::Connect] {
        assert_eq!(response_framing(&head, &method), response_framing(&reread, &method));
    }
}
