//! A record through a compiled `logformat`.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use humboldt_base::clock::UnixMillis;
use humboldt_base::notes::Notes;
use humboldt_conf::LogCode as Code;
use humboldt_http::{Fields, Version};
use humboldt_sys::local_time;

use super::compile::{LogFormat, Step, Value};
use super::{AccessRecord, Peer, bump, native};
use crate::text::{Calendar, Escape, push_escaped, push_ip, push_number, push_padded};

/// In place of a rule that would have refused: one had no answer.
const UNANSWERED: &[u8] = b"unanswered";

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
                cut(out, start, value);
                if value.escape == Some(Escape::Shell) && out[start..].contains(&b' ') {
                    out.insert(start, b'"');
                    out.push(b'"');
                }
                pad(out, start, value);
            }
        }
    }
}

/// Cuts the text written since `start`; for shells not within an escape, which would hide a quote.
fn cut(out: &mut Vec<u8>, start: usize, value: &Value) {
    let Some(most) = value.precision.filter(|most| start + most < out.len()) else { return };
    out.truncate(start + most);
    let escapes = out[start..].iter().rev().take_while(|byte| **byte == b'\\').count();
    if value.escape == Some(Escape::Shell) && escapes % 2 == 1 {
        out.pop();
    }
}

/// Pads it.
fn pad(out: &mut Vec<u8>, start: usize, value: &Value) {
    let missing = value.width.saturating_sub(out.len() - start);
    let fill = if value.zero && !value.left { b'0' } else { b' ' };
    out.extend(std::iter::repeat_n(fill, missing));
    if !value.left {
        out[start..].rotate_right(missing);
    }
}

/// Appends the bare value; nothing when it is not known.
pub(super) fn push_value(
    out: &mut Vec<u8>,
    value: &Value,
    record: &AccessRecord<'_>,
    strip_query: bool,
) {
    let as_url = value.escape.unwrap_or(Escape::Url);
    let Some(code) = value.code else { return };
    let Some(url) = url_of(code, record, strip_query) else { return };
    match code {
        Code::Percent => out.push(b'%'),
        Code::ClientName if record.client_name.is_some() => {
            push_escaped(out, record.client_name.unwrap_or_default().as_bytes(), as_url);
        }
        Code::ClientIp | Code::ClientName => push_ip(out, record.client.ip()),
        Code::ClientPort => push_number(out, record.client.port()),
        Code::LocalIp | Code::ListenIp => push_opt_ip(out, record.local.map(|local| local.ip())),
        Code::LocalPort | Code::ListenPort => {
            push_opt(out, record.local.as_ref().map(SocketAddr::port))
        }
        Code::PeerIp => push_peer(out, record.peer, as_url),
        Code::PeerName => push_escaped(out, record.server_name, as_url),
        Code::PeerPort => push_opt(out, record.peer_port),
        Code::ServerLocalIp => push_opt_ip(out, record.server_local.map(|local| local.ip())),
        Code::ServerLocalPort => push_opt(out, record.server_local.as_ref().map(SocketAddr::port)),
        Code::Attempts => push_number(out, record.attempts),
        Code::ClientHardware => push_hardware(out, record.hardware),
        Code::RequestField | Code::AdaptedField => {
            push_field(out, value, record.request, strip_query)
        }
        Code::ResponseField => push_response_field(out, value, record.response, strip_query),
        Code::Note => push_notes(out, value, record.notes),
        Code::ErrorDetail => {
            push_escaped(out, record.error_detail.unwrap_or_default().as_bytes(), as_url);
        }
        Code::Rule => {
            push_place(out, record.rule, as_url);
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
        Code::MediaType => {
            let media_type = native::media_type(record.content_type.unwrap_or_default());
            push_escaped(out, media_type, as_url);
        }
        Code::ServerMethod if !record.has_asked() => {}
        Code::Method | Code::ClientMethod | Code::ServerMethod => {
            push_escaped(out, record.method, as_url);
        }
        Code::Url | Code::ClientUrl | Code::ServerUrl => push_escaped(out, url, as_url),
        Code::Path
        | Code::ClientPath
        | Code::ServerPath
        | Code::Scheme
        | Code::UrlScheme
        | Code::ServerScheme
        | Code::Domain
        | Code::UrlDomain
        | Code::ServerDomain
        | Code::Port
        | Code::UrlPort
        | Code::ServerPort => push_escaped(out, UrlPieces::of(url).part(code), as_url),
        Code::RequestVersion | Code::ClientVersion => push_version(out, record.version),
        Code::BytesOut => push_number(out, record.bytes_out),
        Code::ReportedRule => match record.reported {
            None => {}
            Some(None) => out.extend_from_slice(UNANSWERED),
            Some(place) => push_place(out, place, as_url),
        },
        Code::Generation => push_number(out, record.generation),
        Code::SequenceNumber | Code::Transaction => push_number(out, record.number),
        Code::ErrorName => push_escaped(out, record.error.unwrap_or_default().as_bytes(), as_url),
        _ => push_of_tls(out, code, value, record),
    }
}

/// Appends a fact about TLS, or a time.
fn push_of_tls(out: &mut Vec<u8>, code: Code, value: &Value, record: &AccessRecord<'_>) {
    let as_url = value.escape.unwrap_or(Escape::Url);
    match code {
        Code::CertificateUser
        | Code::CertificateSubject
        | Code::CertificateIssuer
        | Code::TlsVersion
        | Code::TlsCipher => push_escaped(out, tls(code, record).as_bytes(), as_url),
        Code::Sni
        | Code::BumpMode
        | Code::ClientHelloVersion
        | Code::ClientTlsVersion
        | Code::ServerSubject
        | Code::ServerIssuer
        | Code::ServerFaults
        | Code::ServerCertificate
        | Code::ServerTlsVersion
        | Code::ServerTlsCipher
        | Code::ServerHelloVersion
        | Code::ServerSupportedVersion => {
            if let Some(facts) = record.bump {
                bump::push(out, code, value, facts, as_url);
            }
        }
        _ => push_time(out, code, value, record),
    }
}

/// A fact about TLS with the client; empty where it is not known.
fn tls<'a>(code: Code, record: &AccessRecord<'a>) -> &'a str {
    let certificate = record.certificate;
    match code {
        Code::CertificateSubject => certificate.map(|own| own.subject.line.as_str()),
        Code::CertificateIssuer => certificate.map(|own| own.issuer.line.as_str()),
        Code::CertificateUser => certificate.and_then(|own| own.subject.value("emailAddress")),
        Code::TlsVersion => record.tls.map(|(version, _)| version),
        _ => record.tls.map(|(_, cipher)| cipher),
    }
    .unwrap_or_default()
}

/// The URL that a code is about: the client's, or that of the request as it goes on. `None` if it
/// is about the server's, and no server was asked.
fn url_of<'a>(code: Code, record: &AccessRecord<'a>, strip_query: bool) -> Option<&'a [u8]> {
    match code {
        Code::ClientUrl | Code::ClientPath | Code::Scheme | Code::Domain | Code::Port => {
            Some(record.client_url(strip_query))
        }
        Code::ServerUrl
        | Code::ServerPath
        | Code::ServerScheme
        | Code::ServerDomain
        | Code::ServerPort
            if !record.has_asked() =>
        {
            None
        }
        _ => Some(record.url(strip_query)),
    }
}

/// File and line of a rule.
fn push_place(out: &mut Vec<u8>, place: Option<(&str, u32)>, escape: Escape) {
    if let Some((file, line)) = place {
        push_escaped(out, file.as_bytes(), escape);
        // A rule that is in no file has no line.
        if line > 0 {
            out.push(b':');
            push_number(out, line);
        }
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
        Code::DnsMs => push_opt(out, record.dns_ms),
        Code::IsoTime => push_iso_time(out, record.ended),
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

/// `2026-11-26T05:50:23.004Z`
fn push_iso_time(out: &mut Vec<u8>, at: UnixMillis) {
    let time = Calendar::at(at.secs(), 0);
    push_padded(out, time.year, 4, b'0');
    for (before, part) in [(b'-', time.month), (b'-', time.day), (b'T', time.hour)] {
        out.push(before);
        push_padded(out, part, 2, b'0');
    }
    for part in [time.minute, time.second] {
        out.push(b':');
        push_padded(out, part, 2, b'0');
    }
    out.push(b'.');
    push_padded(out, at.millis_of_sec(), 3, b'0');
    out.push(b'Z');
}

/// `00:1a:2b:3c:4d:5e`
fn push_hardware(out: &mut Vec<u8>, address: Option<[u8; 6]>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for (n, byte) in address.into_iter().flatten().enumerate() {
        if n > 0 {
            out.push(b':');
        }
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
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

/// One field of the request, all its lines joined, or without a name all fields.
fn push_field(out: &mut Vec<u8>, value: &Value, fields: Option<&Fields>, strip_query: bool) {
    let Some(fields) = fields else { return };
    let escape = value.escape.unwrap_or(Escape::Percent);
    match &value.field {
        Some(name) => {
            let lines = fields.get_all_by_name(name);
            push_lines(out, value, lines.map(|text| fit_for_logs(name, text, strip_query)));
        }
        None => {
            for (_, name, text) in fields.iter() {
                push_named(out, name, fit_for_logs(name, text, strip_query), escape);
            }
        }
    }
}

/// The same of the answer.
fn push_response_field(out: &mut Vec<u8>, value: &Value, head: Option<&[u8]>, strip_query: bool) {
    let lines = head.unwrap_or_default().split(|byte| *byte == b'\n').skip(1);
    let fields = lines.filter_map(|line| {
        let (name, text) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        Some((name, fit_for_logs(name, text.get(1..)?.trim_ascii(), strip_query)))
    });
    match &value.field {
        Some(wanted) => {
            let fields = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            push_lines(out, value, fields.map(|(_, text)| text));
        }
        None => {
            let escape = value.escape.unwrap_or(Escape::Percent);
            fields.for_each(|(name, text)| push_named(out, name, text, escape));
        }
    }
}

fn push_named(out: &mut Vec<u8>, name: &[u8], text: &[u8], escape: Escape) {
    for piece in [name, b": ", text, b"\r\n"] {
        push_escaped(out, piece, escape);
    }
}

/// The lines of a field, with commas between them; or the first member of their lists that has the
/// wanted name: what is behind its `=`, as in Squid.
fn push_lines<'a>(out: &mut Vec<u8>, value: &Value, lines: impl Iterator<Item = &'a [u8]>) {
    let escape = value.escape.unwrap_or(Escape::Percent);
    if let Some((separator, name)) = &value.member {
        let members = lines.flat_map(|line| line.split(|byte| byte == separator));
        let mut values = members
            .filter_map(|member| member.trim_ascii().strip_prefix(&**name)?.strip_prefix(b"="));
        push_escaped(out, values.next().unwrap_or_default(), escape);
        return;
    }
    for (n, text) in lines.enumerate() {
        if n > 0 {
            push_escaped(out, b", ", escape);
        }
        push_escaped(out, text, escape);
    }
}

/// The value of a field in a log, which has no credentials: of those only the scheme. A URL in it
/// has its query cut, as that of the request has.
fn fit_for_logs<'a>(name: &[u8], text: &'a [u8], strip_query: bool) -> &'a [u8] {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    let scheme = || text.split(|byte| matches!(byte, b' ' | b'\t')).next();
    if is("Authorization") || is("Proxy-Authorization") {
        return scheme().filter(|scheme| scheme.len() < text.len()).unwrap_or_default();
    }
    if is("WWW-Authenticate") || is("Proxy-Authenticate") {
        // A step of a handshake, not a challenge.
        let is_step =
            |one: &&[u8]| [&b"Negotiate"[..], b"NTLM"].iter().any(|s| one.eq_ignore_ascii_case(s));
        return scheme().filter(is_step).unwrap_or(text);
    }
    if is("Referer") || is("Location") || is("Content-Location") {
        return super::record::cut(text, strip_query);
    }
    text
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

    /// The part that a code is about.
    fn part(&self, code: Code) -> &'a [u8] {
        match code {
            Code::Path | Code::ClientPath | Code::ServerPath => self.path,
            Code::Scheme | Code::UrlScheme | Code::ServerScheme => self.scheme,
            Code::Domain | Code::UrlDomain | Code::ServerDomain => self.host,
            _ => self.port,
        }
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
