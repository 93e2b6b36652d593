//! The request as it goes to a server: always serialised anew, never passed on as bytes (RFC 9110
//! 7.6).

use std::io::Write as _;
use std::net::IpAddr;

use humboldt_conf::ForwardedFor;
use humboldt_http::h1::{Framing, HopByHop, write_field, write_request_line};
use humboldt_http::{FieldName, Method, Version};
use humboldt_store::StoredHead;

use crate::access::unmapped;
use crate::header_rules::Fate;
use crate::request::Request;

/// How the request is sent on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Manner<'a> {
    /// To another proxy: absolute-form target, credentials for it kept.
    pub to_proxy: bool,
    /// Host field to send instead of the URL's (`forceddomain=`).
    pub forced_host: Option<&'a str>,
    /// Value of an Authorization (to a server) or Proxy-Authorization (to a proxy) field to add
    /// (`login=`).
    pub login: Option<&'a str>,
    /// Ask only for what the stored answer does not say already.
    pub validate: Option<&'a StoredHead>,
    /// The answer may be stored: leave out the client's own conditions and ranges.
    pub whole: bool,
    /// Ask to switch to this protocol.
    pub upgrade: Option<&'a [u8]>,
}

/// Writes the head of the request.
pub(crate) fn write_head(out: &mut Vec<u8>, request: &Request, manner: &Manner<'_>) {
    let url = &request.url;
    let method = request.head.method_bytes();
    let asterisk = request.head.method == Method::Options && !url.has_path();
    let target = match (manner.to_proxy, asterisk) {
        (true, true) => url.as_bytes().strip_suffix(b"/").unwrap_or(url.as_bytes()),
        (true, false) => url.as_bytes(),
        (false, true) => b"*",
        (false, false) => url.path_and_query(),
    };
    // GET fills the cache for HEAD too only if the whole answer is fetched; a HEAD that may not is
    // sent as it is.
    write_request_line(out, method, target, Version::Http11);
    let host = manner.forced_host.map_or(url.authority(), str::as_bytes);
    write_field(out, b"Host", host);
    copy_fields(out, request, manner);
    write_via(out, request);
    write_forwarded_for(out, request);
    if let Some(stored) = manner.validate {
        write_conditions(out, stored);
    }
    if let Some(login) = manner.login {
        let name: &[u8] = if manner.to_proxy { b"Proxy-Authorization" } else { b"Authorization" };
        write_field(out, name, login.as_bytes());
    }
    write_framing(out, request.framing);
    if let Some(protocol) = manner.upgrade {
        write_field(out, b"Connection", b"Upgrade");
        write_field(out, b"Upgrade", protocol);
    } else if !request.snapshot().config.server_persistent_connections {
        write_field(out, b"Connection", b"close");
    }
    request.snapshot().header_rules.add_to_request(out, request);
    out.extend_from_slice(b"\r\n");
}

/// Copies the end-to-end fields that are not made anew.
fn copy_fields(out: &mut Vec<u8>, request: &Request, manner: &Manner<'_>) {
    let hops = HopByHop::of(&request.head.fields);
    let rules = &request.snapshot().header_rules;
    for (id, name, value) in request.head.fields.iter() {
        let made_anew = match id {
            FieldName::Host | FieldName::ContentLength | FieldName::TransferEncoding => true,
            FieldName::Via | FieldName::XForwardedFor => true,
            // Credentials for a proxy are for this one, unless it asks the next to check them.
            FieldName::ProxyAuthorization => !manner.to_proxy || manner.login.is_some(),
            FieldName::Authorization => manner.login.is_some() && !manner.to_proxy,
            FieldName::IfNoneMatch | FieldName::IfModifiedSince => {
                manner.whole || manner.validate.is_some()
            }
            FieldName::IfMatch | FieldName::IfUnmodifiedSince => manner.whole,
            FieldName::Range | FieldName::IfRange => manner.whole,
            FieldName::MaxForwards => forwards_left(request).is_some(),
            FieldName::Expect => request.framing == Framing::None,
            // Our own word for it follows where it is wanted.
            FieldName::Upgrade | FieldName::Http2Settings => true,
            _ => false,
        };
        if made_anew || hops.is_hop(id, name) {
            continue;
        }
        match rules.request_field(request, name) {
            Fate::Kept => write_field(out, name, value),
            Fate::Replaced(text) => write_field(out, name, text),
            Fate::Removed => {}
        }
    }
    if let Some(left) = forwards_left(request) {
        write_field(
            out,
            b"Max-Forwards",
            itoa::Buffer::new().format(left.saturating_sub(1)).as_bytes(),
        );
    }
}

/// Max-Forwards of a TRACE or OPTIONS request, where it counts (RFC 9110 7.6.2).
pub(crate) fn forwards_left(request: &Request) -> Option<u32> {
    if !matches!(request.head.method, Method::Trace | Method::Options) {
        return None;
    }
    let value = request.head.fields.get(FieldName::MaxForwards)?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn write_via(out: &mut Vec<u8>, request: &Request) {
    if !is_kept(out, request, b"Via") {
        return;
    }
    for value in request.head.fields.get_all(FieldName::Via) {
        write_field(out, b"Via", value);
    }
    out.extend_from_slice(request.snapshot().names.via(request.head.version));
}

/// Whether a field that we make goes on as it is made; its replacement, if any, is written.
fn is_kept(out: &mut Vec<u8>, request: &Request, name: &[u8]) -> bool {
    match request.snapshot().header_rules.request_field(request, name) {
        Fate::Kept => return true,
        Fate::Replaced(text) => write_field(out, name, text),
        Fate::Removed => {}
    }
    false
}

fn write_forwarded_for(out: &mut Vec<u8>, request: &Request) {
    if !is_kept(out, request, b"X-Forwarded-For") {
        return;
    }
    let mode = request.snapshot().config.forwarded_for;
    let earlier = request.head.fields.get_all(FieldName::XForwardedFor);
    match mode {
        ForwardedFor::Delete => {}
        ForwardedFor::Transparent => {
            earlier.for_each(|value| write_field(out, b"X-Forwarded-For", value))
        }
        ForwardedFor::Truncate => write_client(out, &[], request, true),
        ForwardedFor::On | ForwardedFor::Off => {
            let earlier: Vec<&[u8]> = earlier.collect();
            write_client(out, &earlier, request, mode == ForwardedFor::On);
        }
    }
}

fn write_client(out: &mut Vec<u8>, earlier: &[&[u8]], request: &Request, known: bool) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    for value in earlier {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    if known {
        write_ip(out, unmapped(request.client_ip()));
    } else {
        out.extend_from_slice(b"unknown");
    }
    out.extend_from_slice(b"\r\n");
}

fn write_ip(out: &mut Vec<u8>, ip: IpAddr) {
    let IpAddr::V4(ip) = ip else {
        // Writing to a Vec cannot fail.
        _ = write!(out, "{ip}");
        return;
    };
    // Formatting costs several times as much.
    for (at, number) in ip.octets().into_iter().enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

/// The stored answer's validators as conditions (RFC 9111 4.3.1).
fn write_conditions(out: &mut Vec<u8>, stored: &StoredHead) {
    if let Some(tag) = stored.etag() {
        write_field(out, b"If-None-Match", tag);
    }
    if let Some(modified) = stored.last_modified {
        write_field(out, b"If-Modified-Since", &humboldt_http::date::format(modified));
    }
}

fn write_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => {
            write_field(out, b"Content-Length", itoa::Buffer::new().format(length).as_bytes())
        }
        Framing::Chunked => write_field(out, b"Transfer-Encoding", b"chunked"),
        Framing::None | Framing::UntilClose => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_text() {
        for text in ["0.0.0.0", "127.0.0.1", "255.10.99.100", "::1", "2001:db8::7"] {
            let mut out = Vec::new();
            write_ip(&mut out, text.parse().unwrap());
            assert_eq!(out, text.as_bytes());
        }
    }
}
