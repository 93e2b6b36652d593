//! Squid's own format, written by hand: it is the default, and a line is written for every request.

use super::{AccessRecord, Peer};
use crate::text::{Escape, push_escaped, push_ip, push_number, push_padded};

/// Appends `%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt`, without a newline.
pub(super) fn write(out: &mut Vec<u8>, record: &AccessRecord<'_>, strip_query_terms: bool) {
    push_number(out, record.ended.secs());
    out.push(b'.');
    push_padded(out, record.ended.millis_of_sec(), 3, b'0');
    out.push(b' ');
    push_padded(out, record.elapsed_ms, 6, b' ');
    out.push(b' ');
    push_ip(out, record.client.ip());
    out.push(b' ');
    record.tag.write(out);
    out.push(b'/');
    push_padded(out, record.status, 3, b'0');
    out.push(b' ');
    push_number(out, record.bytes_out);
    out.push(b' ');
    push_word(out, record.method, Escape::Url);
    out.push(b' ');
    push_word(out, record.url(strip_query_terms), Escape::Url);
    out.push(b' ');
    push_word(out, record.any_user(), Escape::PercentAll);
    out.push(b' ');
    out.extend_from_slice(record.hierarchy.name().as_bytes());
    out.push(b'/');
    match record.peer {
        Peer::None => out.push(b'-'),
        Peer::Ip(ip) => push_ip(out, ip),
        Peer::Name(name) => push_word(out, name, Escape::Url),
    }
    out.push(b' ');
    push_word(out, media_type(record.content_type.unwrap_or_default()), Escape::Url);
}

fn push_word(out: &mut Vec<u8>, text: &[u8], escape: Escape) {
    match text {
        [] => out.push(b'-'),
        text => push_escaped(out, text, escape),
    }
}

/// The media type without its parameters.
pub(super) fn media_type(content_type: &[u8]) -> &[u8] {
    let end = memchr::memchr2(b';', b' ', content_type);
    end.and_then(|end| content_type.get(..end)).unwrap_or(content_type)
}
