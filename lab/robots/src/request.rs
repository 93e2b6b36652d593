//! The bytes of a request.

use crate::plan::Route;
use humboldt_lab_wire::http_date;
use humboldt_lab_workload::protocol::{DENIED_TARGET, REQUEST_ID};
use humboldt_lab_workload::{Ask, AskKind, Facts, POST_BODY_BYTES_MAX, Workload};

pub(crate) const COMMON_FIELDS: &str = "User-Agent: humboldt-lab\r\nAccept: */*\r\n";

/// The form of targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner<'r> {
    pub(crate) route: &'r Route,
    /// Address of the origin that has the object, as text.
    pub(crate) origin: &'r [u8],
    /// Inside a tunnel the other end is the origin itself.
    pub(crate) tunnelled: bool,
}

/// Appends the URL of an object.
pub(crate) fn write_url(
    workload: &Workload,
    scheme: &str,
    origin: &[u8],
    ask: &Ask,
    out: &mut Vec<u8>,
) {
    if ask.kind == (AskKind::Connect { allowed: false }) {
        out.extend_from_slice(DENIED_TARGET.as_bytes());
        return;
    }
    out.extend_from_slice(scheme.as_bytes());
    out.extend_from_slice(b"://");
    out.extend_from_slice(origin);
    ask.name.write_path(workload, out);
}

/// Appends a CONNECT.
pub(crate) fn write_connect(allowed: bool, origin: &[u8], out: &mut Vec<u8>) {
    let target = if allowed { origin } else { DENIED_TARGET.as_bytes() };
    for part in [
        b"CONNECT ",
        target,
        b" HTTP/1.1\r\nHost: ",
        target,
        b"\r\n",
        COMMON_FIELDS.as_bytes(),
        b"\r\n",
    ] {
        out.extend_from_slice(part);
    }
}

/// Appends a whole request for an object, with its body if it has one.
pub(crate) fn write_request(
    workload: &Workload,
    manner: Manner<'_>,
    ask: &Ask,
    facts: &Facts,
    now_unix_us: u64,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(crate::expected::method(&ask.kind));
    out.push(b' ');
    let host = match manner.route {
        Route::Forward { .. } if !manner.tunnelled => {
            out.extend_from_slice(b"http://");
            out.extend_from_slice(manner.origin);
            manner.origin
        }
        Route::Accelerator { host, .. } => host.as_bytes(),
        Route::Forward { .. } | Route::Direct => manner.origin,
    };
    ask.name.write_path(workload, out);
    for part in [
        b" HTTP/1.1\r\nHost: ",
        host,
        b"\r\n",
        COMMON_FIELDS.as_bytes(),
        REQUEST_ID.as_bytes(),
        b": ",
    ] {
        out.extend_from_slice(part);
    }
    push_id(ask.id, out);
    out.extend_from_slice(b"\r\n");
    write_kind(ask, facts, now_unix_us, out);
}

/// The fields that depend on the kind, the empty line, and the body.
fn write_kind(ask: &Ask, facts: &Facts, now_unix_us: u64, out: &mut Vec<u8>) {
    let mut body_bytes = 0;
    match ask.kind {
        AskKind::Plain | AskKind::Head | AskKind::Connect { .. } => {}
        AskKind::Ims304 => write_since(facts.version_at(now_unix_us).modified_s, out),
        // One second before the last modification: a client with an older version has an older
        // date.
        AskKind::Ims200 => {
            write_since(facts.version_at(now_unix_us).modified_s.saturating_sub(1), out)
        }
        AskKind::Reload => {
            out.extend_from_slice(b"Cache-Control: no-cache\r\nPragma: no-cache\r\n")
        }
        AskKind::Range { first, last } => {
            out.extend_from_slice(b"Range: bytes=");
            push_decimal(first, out);
            out.push(b'-');
            push_decimal(last, out);
            out.extend_from_slice(b"\r\n");
        }
        AskKind::Post { body_bytes: wanted } => {
            body_bytes = wanted.min(POST_BODY_BYTES_MAX);
            out.extend_from_slice(b"Content-Type: application/octet-stream\r\nContent-Length: ");
            push_decimal(body_bytes, out);
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
    let head_end = out.len();
    // At most POST_BODY_BYTES_MAX, so the cast is exact.
    out.resize(head_end + body_bytes as usize, 0);
    if body_bytes > 0 {
        facts.body(0).fill(0, &mut out[head_end..]);
    }
}

fn write_since(unix_s: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"If-Modified-Since: ");
    http_date(unix_s, out);
    out.extend_from_slice(b"\r\n");
}

fn push_id(id: u64, out: &mut Vec<u8>) {
    let digit = |place: u32| b"0123456789abcdef"[(id >> (4 * place)) as usize & 15];
    out.extend((0..16).rev().map(digit));
}

fn push_decimal(mut number: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    loop {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[begin..].reverse();
}
