//! A record through a compiled `logformat`.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use humboldt_base::notes::Notes;
use humboldt_conf::LogCode as Code;
use humboldt_http::{FieldName, Fields, Version};
use humboldt_sys::local_time;

use super::compile::{LogFormat, Step, Value};
use super::{AccessRecord, Peer, native};
use crate::text::{Escape, push_escaped, push_ip, push_number, push_padded};

/// Appends the record, without a newline.
pub(super) fn write(
    out: &mut Vec<u8>,
    format: &LogFormat,
    record: &AccessRecord<'_>,
    strip_query: bool,
) {
    for step in &format.steps {
        match step {
            Step::Literal(text) => out.extend_from_slice(text),
            Step::Value(value) => {
                let start = out.len();
                push_value(out, value, record, strip_query);
                if out.len() == start {
                    out.push(b'-');
                }
                fit(out, start, value);
            }
        }
    }
}

/// Cuts and pads the text written since `start`.
fn fit(out: &mut Vec<u8>, start: usize, value: &Value) {
    if let Some(most) = value.precision {
        out.truncate(start + most);
    }
    let missing = value.width.saturating_sub(out.len() - start);
    let fill = if value.zero && !value.left { b'0' } else { b' ' };
    out.extend(std::iter::repeat_n(fill, missing));
    if !value.left {
        out[start..].rotate_right(missing);
    }
}

/// Appends the bare value; nothing when it is not known.
fn push_value(out: &mut Vec<u8>, value: &Value, record: &AccessRecord<'_>, strip_query: bool) {
    let as_url = value.escape.unwrap_or(Escape::Url);
    let Some(code) = value.code else { return };
    let url = match code {
        Code::ClientUrl | Code::ClientPath | Code::Scheme | Code::Domain | Code::Port => {
            record.client_url(strip_query)
        }
        _ => record.url(strip_query),
    };
    match code {
        Code::Percent => out.push(b'%'),
        Code::ClientIp | Code::ClientName => push_ip(out, record.client.ip()),
        Code::ClientPort => push_number(out, record.client.port()),
        Code::LocalIp | Code::ListenIp => push_opt_ip(out, record.local.map(|local| local.ip())),
        Code::LocalPort | Code::ListenPort => {
            push_opt(out, record.local.as_ref().map(SocketAddr::port))
        }
        Code::PeerIp | Code::PeerName => push_peer(out, record.peer, as_url),
        Code::PeerPort => push_opt(out, record.peer_port),
        Code::RequestField => push_field(out, value, record.request),
        Code::Note => push_notes(out, value, record.notes),
        Code::ErrorDetail => {
            push_escaped(out, record.error_detail.unwrap_or_default().as_bytes(), as_url);
        }
        Code::Rule => {
            let place = record.rule.map(|(file, line)| match line {
                0 => file.to_owned(),
                line => format!("{file}:{line}"),
            });
            push_escaped(out, place.unwrap_or_default().as_bytes(), as_url);
        }
        Code::User => push_user(out, value, record.any_user()),
        Code::Login => push_user(out, value, record.user.unwrap_or_default().as_bytes()),
        Code::ExtUser => push_user(out, value, record.ext_user.unwrap_or_default()),
        Code::ExtTag => push_escaped(out, record.ext_tag.unwrap_or_default(), as_url),
        Code::ExtLog => push_escaped(out, record.ext_log.unwrap_or_default(), as_url),
        Code::Status | Code::OldStatus => push_number(out, record.status),
        Code::ServerStatus => push_opt(out, record.server_status),
        Code::ResultName => record.tag.write(out),
        Code::HierarchyName => out.extend_from_slice(record.hierarchy.name().as_bytes()),
        Code::MediaType => native::push_media_type(out, record.content_type.unwrap_or_default()),
        Code::Method | Code::ClientMethod => push_escaped(out, record.method, as_url),
        Code::Url | Code::ClientUrl => push_escaped(out, url, as_url),
        Code::Path | Code::ClientPath => push_escaped(out, UrlPieces::of(url).path, as_url),
        Code::Scheme | Code::UrlScheme => push_escaped(out, UrlPieces::of(url).scheme, as_url),
        Code::Domain | Code::UrlDomain => push_escaped(out, UrlPieces::of(url).host, as_url),
        Code::Port | Code::UrlPort => push_escaped(out, UrlPieces::of(url).port, as_url),
        Code::RequestVersion | Code::ClientVersion => push_version(out, record.version),
        Code::BytesOut => push_number(out, record.bytes_out),
        Code::ErrorName => out.extend_from_slice(record.error.unwrap_or_default().as_bytes()),
        _ => push_time(out, code, value, record),
    }
}

/// The name of a user: one word in any case.
fn push_user(out: &mut Vec<u8>, value: &Value, name: &[u8]) {
    let escape = value.escape.filter(|escape| *escape != Escape::Brackets);
    push_escaped(out, name, escape.unwrap_or(Escape::PercentAll));
}

fn push_time(out: &mut Vec<u8>, code: Code, value: &Value, record: &AccessRecord<'_>) {
    let ended_s = record.ended.secs();
    match code {
        Code::EndedSecs => push_number(out, ended_s),
        Code::EndedMillis => push_number(out, record.ended.millis_of_sec()),
        Code::ElapsedMs => push_number(out, record.elapsed_ms),
        Code::StartedSecs => {
            let elapsed_ms = i64::try_from(record.elapsed_ms).unwrap_or(i64::MAX);
            let started_ms = record.ended.0.saturating_sub(elapsed_ms);
            push_number(out, started_ms.div_euclid(1000));
            out.push(b'.');
            push_padded(out, started_ms.rem_euclid(1000), 3, b'0');
        }
        Code::LocalTime => value.time.write(out, ended_s, local_time::utc_offset_s(ended_s)),
        _ => value.time.write(out, ended_s, 0),
    }
}

fn push_opt(out: &mut Vec<u8>, number: Option<impl itoa::Integer>) {
    if let Some(number) = number {
        push_number(out, number);
    }
}

fn push_opt_ip(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    if let Some(ip) = ip {
        push_ip(out, ip);
    }
}

fn push_peer(out: &mut Vec<u8>, peer: Peer<'_>, escape: Escape) {
    match peer {
        Peer::None => {}
        Peer::Ip(ip) => push_ip(out, ip),
        Peer::Name(name) => push_escaped(out, name, escape),
    }
}

fn push_version(out: &mut Vec<u8>, version: Option<Version>) {
    out.extend_from_slice(version.map_or("0.0", Version::number).as_bytes());
}

/// One field, all its lines joined, or without a name all fields.
fn push_field(out: &mut Vec<u8>, value: &Value, fields: Option<&Fields>) {
    let Some(fields) = fields else { return };
    let escape = value.escape.unwrap_or(Escape::Percent);
    match &value.field {
        Some(name) => {
            let id = FieldName::from_bytes(name);
            for (n, text) in fields.get_all_by_name(name).enumerate() {
                if n > 0 {
                    push_escaped(out, b", ", escape);
                }
                push_escaped(out, without_secret(id, text), escape);
            }
        }
        None => {
            for (id, name, text) in fields.iter() {
                for piece in [name, b": ", without_secret(id, text), b"\r\n"] {
                    push_escaped(out, piece, escape);
                }
            }
        }
    }
}

/// The value of a field in a log, which has no credentials: of those only the scheme.
fn without_secret(id: FieldName, text: &[u8]) -> &[u8] {
    match id {
        FieldName::Authorization | FieldName::ProxyAuthorization => {
            let scheme = text.split(|byte| matches!(byte, b' ' | b'\t')).next();
            scheme.filter(|scheme| scheme.len() < text.len()).unwrap_or_default()
        }
        _ => text,
    }
}

/// The values of one note, or without a name all notes.
fn push_notes(out: &mut Vec<u8>, value: &Value, notes: Option<&RefCell<Notes>>) {
    let Some(notes) = notes.map(RefCell::borrow) else { return };
    let escape = value.escape.unwrap_or(Escape::Percent);
    let Some(wanted) = &value.field else {
        for (name, text) in notes.iter() {
            for piece in [name.as_bytes(), b": ", text, b"\r\n"] {
                push_escaped(out, piece, escape);
            }
        }
        return;
    };
    let (name, separator) = name_and_separator(wanted);
    let values = notes.iter().filter(|(known, _)| known.as_bytes() == name);
    for (n, (_, text)) in values.enumerate() {
        if n > 0 {
            push_escaped(out, separator, escape);
        }
        push_escaped(out, text, escape);
    }
}

/// The name and the separator in `NAME`, `NAME:,`, `NAME:;` or `NAME::`, as in Squid.
fn name_and_separator(argument: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = argument.iter().position(|byte| *byte == b':') else {
        return (argument, b",");
    };
    let separator = argument.get(colon + 1..colon + 2).filter(|one| b",;:".contains(&one[0]));
    (&argument[..colon], separator.unwrap_or(b","))
}

/// The parts of a logged URL. It has been validated long before; whatever is not there is empty.
struct UrlPieces<'a> {
    scheme: &'a [u8],
    host: &'a [u8],
    port: &'a [u8],
    path: &'a [u8],
}

impl<'a> UrlPieces<'a> {
    fn of(url: &'a [u8]) -> Self {
        let scheme_end = url.windows(3).position(|window| window == b"://");
        let (scheme, rest) = match scheme_end {
            Some(at) => (&url[..at], &url[at + 3..]),
            None => (&url[..0], url),
        };
        let path_start =
            rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_start);
        let after_brackets = authority.iter().rposition(|byte| *byte == b']').unwrap_or(0);
        let colon = authority[after_brackets..].iter().position(|byte| *byte == b':');
        let (host, port) = match colon {
            Some(at) => (&authority[..after_brackets + at], &authority[after_brackets + at + 1..]),
            None => (authority, default_port(scheme)),
        };
        Self { scheme, host, port, path }
    }
}

fn default_port(scheme: &[u8]) -> &'static [u8] {
    match scheme {
        b"http" => b"80",
        b"https" => b"443",
        b"ftp" => b"21",
        _ => b"",
    }
}
