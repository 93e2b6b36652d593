//! Request targets, `Host`, and the URL they make together (RFC 3986 as narrowed by RFC 9110 4.2).

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use memchr::{memchr, memchr3};
use thiserror::Error;

use crate::head::{RequestHead, Target};
use crate::name::FieldName;
use crate::syntax::{is_host_byte, parse_digits};

/// Longest host name in bytes (RFC 1035 with dots and a final dot).
pub const HOST_BYTES_MAX: usize = 255;

/// Longest scheme in bytes.
const SCHEME_BYTES_MAX: usize = 32;

/// A URL that cannot be served; answered 400.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum UriError {
    /// Neither the target nor `Host` names a server.
    #[error("no host")]
    NoHost,
    /// The text does not follow the grammar, or has user information.
    #[error("malformed URL")]
    Malformed,
}

/// `host[:port]`, taken apart but not changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Authority<'a> {
    /// Host name or address; an IPv6 address without its brackets.
    pub host: &'a [u8],
    /// Whether `host` was an IPv6 literal in brackets.
    pub is_ipv6_literal: bool,
    /// The port, if one was given. `host:` counts as none.
    pub port: Option<u16>,
}

/// An absolute URL, taken apart but not changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UrlParts<'a> {
    /// The scheme as received.
    pub scheme: &'a [u8],
    /// Host and port.
    pub authority: Authority<'a>,
    /// Path and query without fragment; may be empty, or start with `?`.
    pub path_and_query: &'a [u8],
}

/// The places of the parts of an absolute URL that was taken apart once, and has no fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    scheme_len: u32,
    host_len: u32,
    is_ipv6_literal: bool,
    port: Option<u16>,
    path_start: u32,
}

impl Places {
    /// Those of the parts of `text`, which is bounded far below 4 GiB.
    pub(crate) fn of(text: &[u8], parts: &UrlParts<'_>) -> Self {
        Self {
            scheme_len: parts.scheme.len() as u32,
            host_len: parts.authority.host.len() as u32,
            is_ipv6_literal: parts.authority.is_ipv6_literal,
            port: parts.authority.port,
            path_start: (text.len() - parts.path_and_query.len()) as u32,
        }
    }

    /// The authority in the same text.
    pub(crate) fn authority(self, text: &[u8]) -> &[u8] {
        text.get(self.authority_start()..self.path_start as usize).unwrap_or_default()
    }

    fn authority_start(self) -> usize {
        self.scheme_len as usize + b"://".len()
    }

    /// The parts of the same text.
    fn parts(self, text: &[u8]) -> UrlParts<'_> {
        let Self { is_ipv6_literal, port, .. } = self;
        let start = self.authority_start() + usize::from(is_ipv6_literal);
        let host = text.get(start..start + self.host_len as usize).unwrap_or_default();
        UrlParts {
            scheme: text.get(..self.scheme_len as usize).unwrap_or_default(),
            authority: Authority { host, is_ipv6_literal, port },
            path_and_query: text.get(self.path_start as usize..).unwrap_or_default(),
        }
    }
}

/// Takes `host[:port]` apart: a target of CONNECT, or the value of `Host`. `None` when it is empty
/// or malformed: user information, an empty label, port 0, a byte that no host name in use has. RFC
/// 3986 would also allow sub-delimiters and percent-encoding, which only serve to confuse.
#[must_use]
pub fn split_authority(text: &[u8]) -> Option<Authority<'_>> {
    if let [b'[', rest @ ..] = text {
        let end = rest.iter().position(|&byte| byte == b']')?;
        let (host, tail) = rest.split_at_checked(end)?;
        std::str::from_utf8(host).ok()?.parse::<Ipv6Addr>().ok()?;
        let port = port_suffix(tail.get(1..)?)?;
        return Some(Authority { host, is_ipv6_literal: true, port });
    }
    let end = memchr(b':', text).unwrap_or(text.len());
    let (host, tail) = text.split_at_checked(end)?;
    let port = port_suffix(tail)?;
    is_host_name(host).then_some(Authority { host, is_ipv6_literal: false, port })
}

/// The host, if it is an address. A name never contains a colon, and its last label never has
/// digits only, so most names are rejected without parsing.
#[must_use]
pub fn host_ip(host: &[u8]) -> Option<IpAddr> {
    let last = host.last()?;
    if !last.is_ascii_digit() && !host.contains(&b':') {
        return None;
    }
    std::str::from_utf8(host).ok()?.parse().ok()
}

/// Takes an absolute URL `scheme://authority[/path][?query][#fragment]` apart. `None` when it is
/// malformed.
#[must_use]
pub fn split_absolute(text: &[u8]) -> Option<UrlParts<'_>> {
    let colon = text.iter().take(SCHEME_BYTES_MAX + 1).position(|&byte| byte == b':')?;
    let (scheme, rest) = text.split_at_checked(colon)?;
    if scheme != b"http" && !is_scheme(scheme) {
        return None;
    }
    let rest = rest.strip_prefix(b"://")?;
    let end = memchr3(b'/', b'?', b'#', rest).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let path_and_query = without_fragment(path);
    Some(UrlParts { scheme, authority: split_authority(authority)?, path_and_query })
}

/// A letter, then letters, digits, `+`, `-`, `.`, or the `_` that Squid's `cache_object` has.
fn is_scheme(scheme: &[u8]) -> bool {
    let is_scheme_byte =
        |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_');
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(is_scheme_byte)
}

/// The port that a scheme implies; `None` for a scheme without one.
#[must_use]
pub fn default_port(scheme: &[u8]) -> Option<u16> {
    match scheme {
        b"http" | b"ws" => Some(80),
        b"https" | b"wss" => Some(443),
        b"ftp" => Some(21),
        _ => None,
    }
}

/// The part before `#`.
fn without_fragment(text: &[u8]) -> &[u8] {
    memchr(b'#', text).and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The rest after a host: nothing, or a colon and perhaps a port. The outer `None` means malformed.
fn port_suffix(text: &[u8]) -> Option<Option<u16>> {
    match text {
        [] | [b':'] => Some(None),
        [b':', digits @ ..] if digits.len() <= 5 => {
            let port = parse_digits(digits)?;
            u16::try_from(port).ok().filter(|&port| port != 0).map(Some)
        }
        _ => None,
    }
}

/// Host bytes only; no empty label except after a final dot.
fn is_host_name(host: &[u8]) -> bool {
    // Without branches in the loop: every request passes here.
    let mut is_valid = !host.is_empty() && host.len() <= HOST_BYTES_MAX;
    let mut before = b'.';
    for &byte in host {
        is_valid &= is_host_byte(byte) & !((byte == b'.') & (before == b'.'));
        before = byte;
    }
    is_valid
}

/// A URL in the canonical form that keys, access rules and logs use: scheme and host in lower case,
/// a final dot of the host and the default port removed, an IPv6 address in its shortest form (RFC
/// 5952) or as the IPv4 address that it stands for, an empty path `/`, no fragment; nothing else
/// changed. For a CONNECT target it is `host:port`, without scheme and path.
///
/// Reusable: setting it again keeps the buffer.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Url {
    text: Vec<u8>,
    scheme_len: usize,
    /// The host with its brackets, if any.
    host_start: usize,
    host_end: usize,
    path_start: usize,
    port: u16,
    is_path_given: bool,
}

impl Url {
    /// Empties it and keeps its capacity.
    pub fn clear(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = Self { text, ..Self::default() };
    }

    /// The URL of a request: an absolute target as it is; an origin or asterisk target with `Host`,
    /// or `default_host` when there is none (HTTP/1.0), under `scheme`.
    ///
    /// # Errors
    /// No host, or a malformed one; parsed heads are well-formed, but `Host` can be absent in
    /// HTTP/1.0.
    pub fn set_from_request(
        &mut self,
        head: &RequestHead,
        scheme: &[u8],
        default_host: Option<&[u8]>,
    ) -> Result<(), UriError> {
        let target = head.target_bytes();
        match head.target {
            Target::Absolute => match head.places {
                Some(places) => {
                    if !self.assign_canonical(target, places) {
                        self.assign(&places.parts(target));
                    }
                    Ok(())
                }
                None => self.set_absolute(target),
            },
            Target::Authority => self.set_authority(target),
            Target::Origin | Target::Asterisk => {
                let host =
                    head.fields.get(FieldName::Host).or(default_host).ok_or(UriError::NoHost)?;
                let path_and_query = if head.target == Target::Asterisk { b"" } else { target };
                self.set_parts(scheme, host, path_and_query)
            }
        }
    }

    /// Sets from an absolute URL.
    ///
    /// # Errors
    /// The text is malformed.
    pub fn set_absolute(&mut self, text: &[u8]) -> Result<(), UriError> {
        let parts = split_absolute(text).ok_or(UriError::Malformed)?;
        self.assign(&parts);
        Ok(())
    }

    /// Sets from a CONNECT target.
    ///
    /// # Errors
    /// The text is malformed or has no port.
    pub fn set_authority(&mut self, text: &[u8]) -> Result<(), UriError> {
        let authority = split_authority(text)
            .filter(|parts| parts.port.is_some())
            .ok_or(UriError::Malformed)?;
        self.assign(&UrlParts { scheme: b"", authority, path_and_query: b"" });
        Ok(())
    }

    /// Sets from a scheme, a `host[:port]` and a path with query.
    ///
    /// # Errors
    /// The host is malformed, or the path is neither empty nor starts with `/` or `?`.
    pub fn set_parts(
        &mut self,
        scheme: &[u8],
        host: &[u8],
        path_and_query: &[u8],
    ) -> Result<(), UriError> {
        let authority = split_authority(host).ok_or(UriError::Malformed)?;
        if !matches!(path_and_query.first(), None | Some(b'/' | b'?')) {
            return Err(UriError::Malformed);
        }
        self.assign(&UrlParts {
            scheme,
            authority,
            path_and_query: without_fragment(path_and_query),
        });
        Ok(())
    }

    /// The whole canonical text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The scheme in lower case; empty for a CONNECT target.
    #[must_use]
    pub fn scheme(&self) -> &[u8] {
        self.text.get(..self.scheme_len).unwrap_or_default()
    }

    /// The host in lower case, an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        let host = self.text.get(self.host_start..self.host_end).unwrap_or_default();
        host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host)
    }

    /// `host[:port]` as a `Host` field carries it: the port only where it is not the scheme's
    /// default.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.text.get(self.host_start..self.path_start).unwrap_or_default()
    }

    /// The port, given or implied; 0 when the scheme is unknown and none was given.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query, as an origin-form target carries them; empty for a CONNECT target.
    #[must_use]
    pub fn path_and_query(&self) -> &[u8] {
        self.text.get(self.path_start..).unwrap_or_default()
    }

    /// Whether the URL came with a path or query of its own. An OPTIONS request without one goes to
    /// the origin server with the target `*` (RFC 9112 3.2.4).
    #[must_use]
    pub fn has_path(&self) -> bool {
        self.is_path_given
    }

    /// Appends `text` in lower case.
    fn push_lower(&mut self, text: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        self.text.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
    }

    /// Appends an IPv6 address in its one form, so that no rule about it can be evaded.
    fn push_ipv6(&mut self, host: &[u8]) {
        let ip = std::str::from_utf8(host).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
        let Some(ip) = ip else { return self.push_lower(host) };
        // Writing to memory succeeds.
        _ = match ip.to_ipv4_mapped() {
            Some(mapped) => write!(self.text, "{mapped}"),
            None => write!(self.text, "[{ip}]"),
        };
    }

    /// Sets from a URL that is canonical already, as nearly all are: one copy. `false`: it is not.
    fn assign_canonical(&mut self, text: &[u8], places: Places) -> bool {
        let UrlParts { scheme, authority, path_and_query } = places.parts(text);
        let implied = default_port(scheme);
        let has_upper =
            |text: &[u8]| text.iter().fold(false, |any, b| any | b.is_ascii_uppercase());
        let has_port_text = match places.authority(text).get(authority.host.len()..) {
            Some([]) => authority.port.is_none(),
            // Neither the default one, nor with zeros before it.
            Some([b':', b'1'..=b'9', ..]) => authority.port != implied,
            _ => false,
        };
        let is_canonical = has_port_text
            && !authority.is_ipv6_literal
            && path_and_query.first() == Some(&b'/')
            && authority.host.last() != Some(&b'.')
            && !has_upper(scheme)
            && !has_upper(authority.host);
        if is_canonical {
            self.text.clear();
            self.text.extend_from_slice(text);
            self.scheme_len = scheme.len();
            self.host_start = places.authority_start();
            self.host_end = self.host_start + authority.host.len();
            self.port = authority.port.or(implied).unwrap_or(0);
            self.path_start = places.path_start as usize;
            self.is_path_given = true;
        }
        is_canonical
    }

    fn assign(&mut self, parts: &UrlParts<'_>) {
        self.text.clear();
        self.push_lower(parts.scheme);
        self.scheme_len = self.text.len();
        if self.scheme_len > 0 {
            self.text.extend_from_slice(b"://");
        }
        let implied = default_port(self.scheme());
        self.host_start = self.text.len();
        let host = parts.authority.host;
        if parts.authority.is_ipv6_literal {
            self.push_ipv6(host);
        } else {
            self.push_lower(host.strip_suffix(b".").unwrap_or(host));
        }
        self.host_end = self.text.len();
        if let Some(port) = parts.authority.port.filter(|&port| Some(port) != implied) {
            self.text.push(b':');
            self.text.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
        }
        self.port = parts.authority.port.or(implied).unwrap_or(0);
        self.path_start = self.text.len();
        self.is_path_given = !parts.path_and_query.is_empty();
        if self.scheme_len > 0 && parts.path_and_query.first() != Some(&b'/') {
            self.text.push(b'/');
        }
        self.text.extend_from_slice(parts.path_and_query);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that was read once gives the URL that its text gives.
    #[test]
    fn what_was_read_gives_the_same_url() {
        for text in [
            "http://a.test/",
            "http://a.test:8080/x?y=1/2",
            "http://127.0.0.1:34567/1024/0",
            "HTTP://A.Test:80/X",
            "http://a.TEST/x",
            "hTTp://a.test/x",
            "http://a.test./x",
            "http://a.test:/x",
            "http://a.test:80/x",
            "http://a.test:080/x",
            "http://a.test:0081/x",
            "http://a.test?x",
            "http://a.test",
            "http://[2001:DB8::1]:81/x",
            "http://[::ffff:1.2.3.4]/x",
            "https://a.test:80/x",
            "https://a.test:443/x",
            "other://a.test/x",
            "other://a.test:7/x",
        ] {
            let input = format!("GET {text} HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let mut head = RequestHead::default();
            let read = crate::h1::parse_request(
                input.as_bytes(),
                &crate::HeadLimits::default(),
                &mut head,
            );
            assert_eq!(read, Ok(Some(input.len())), "{text}");
            // Whatever was there before.
            let mut url = Url::default();
            url.set_absolute(b"https://earlier.test/").unwrap();
            url.set_from_request(&head, b"http", None).unwrap();
            let mut wanted = Url::default();
            wanted.set_absolute(text.as_bytes()).unwrap();
            assert_eq!(url, wanted, "{text}");
        }
    }

    fn canonical(text: &str) -> Option<String> {
        let mut url = Url::default();
        url.set_absolute(text.as_bytes()).ok()?;
        Some(String::from_utf8(url.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn canonical_form() {
        let cases = [
            ("http://Example.ORG", "http://example.org/"),
            ("HTTP://example.org:80/A?B#c", "http://example.org/A?B"),
            ("http://example.org:/%7euser/../x", "http://example.org/%7euser/../x"),
            ("https://example.org.:443?q", "https://example.org/?q"),
            ("https://example.org:80/", "https://example.org:80/"),
            ("http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080/"),
            ("http://[2001:0db8:0:0:0::1]/", "http://[2001:db8::1]/"),
            ("http://[::FFFF:192.0.2.1]:8080/", "http://192.0.2.1:8080/"),
            ("http://[::ffff:c000:201]/", "http://192.0.2.1/"),
            ("ftp://a_b/x", "ftp://a_b/x"),
            ("cache_object://localhost/info", "cache_object://localhost/info"),
        ];
        for (text, want) in cases {
            assert_eq!(canonical(text).as_deref(), Some(want));
        }
    }

    #[test]
    fn malformed_urls() {
        for text in [
            "http:///x",
            "http://u@h/",
            "http://u:p@h/",
            "http://h:0/",
            "http://h:65536/",
            "http://h:8x/",
            "://h/",
            "1http://h/",
            "http:/h",
            "http://a..b/",
            "http://.a/",
            "http://[::1/",
            "http://[::g]/",
            "http://[::1]x/",
            "http://a b/",
            "http://a,b/",
            "http://a%41/",
            "http://h:+80/",
            "urn:x",
            "",
            "http://.",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    #[test]
    fn parts_of_a_url() {
        let mut url = Url::default();
        url.set_absolute(b"http://[::1]:3128/a?b").unwrap();
        assert_eq!((url.scheme(), url.host(), url.port()), (&b"http"[..], &b"::1"[..], 3128));
        assert_eq!((url.authority(), url.path_and_query()), (&b"[::1]:3128"[..], &b"/a?b"[..]));
        url.set_authority(b"Example.org:443").unwrap();
        assert_eq!(
            (url.as_bytes(), url.port(), url.path_and_query()),
            (&b"example.org:443"[..], 443, &b""[..])
        );
        assert_eq!(url.set_authority(b"example.org"), Err(UriError::Malformed));
        url.set_parts(b"http", b"Host:81", b"").unwrap();
        assert_eq!((url.as_bytes(), url.has_path()), (&b"http://host:81/"[..], false));
        assert!(url.set_parts(b"http", b"h", b"x").is_err());
    }

    #[test]
    fn url_of_a_request() {
        let mut head = RequestHead::default();
        head.set_line(b"GET", b"/p", Target::Origin, crate::Version::Http10);
        let mut url = Url::default();
        assert_eq!(url.set_from_request(&head, b"http", None), Err(UriError::NoHost));
        url.set_from_request(&head, b"http", Some(b"site")).unwrap();
        assert_eq!(url.as_bytes(), b"http://site/p");
        head.fields.push(FieldName::Host, b"h:8080");
        url.set_from_request(&head, b"http", Some(b"site")).unwrap();
        assert_eq!(url.as_bytes(), b"http://h:8080/p");
    }
}
