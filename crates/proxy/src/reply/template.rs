//! Error pages from templates: Squid's letters behind a percent sign, and `@Squid{%…}`.
//!
//! Every value is escaped, so that no text from a client or a server becomes HTML. Only what the
//! administrator provides is not: the style sheet, `err_html_text`, and the messages of helpers
//! where a template asks for them as HTML (`%O`).

use std::net::SocketAddr;

use humboldt_exchange::as_message;
use humboldt_http::{FieldName, Method, date, escape};
use humboldt_logs::access::{AccessFormat, LogFormat};

use crate::errors::ErrorPage;
use crate::request::{Request, unmapped};
use crate::rules::codes::{self, Facts};
use crate::rules::format;

/// Most bytes of a page; the rest is cut off.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The beginning of a code of `logformat` in a template.
const LOG_CODE: &[u8] = b"@Squid{";

/// What `%S` stands for.
const SIGNATURE: &[u8] =
    b"\n<br>\n<hr>\n<div id=\"footer\">\nGenerated %T by %h (%s)\n</div>\n</body></html>\n";

/// The facts about one request on a page.
pub(crate) struct PageFacts<'a> {
    /// The request.
    pub(crate) request: &'a Request,
    /// The URL as the client sent it; empty if it could not be read.
    pub(crate) url: &'a [u8],
    /// The name of the page.
    pub(crate) name: &'a str,
    /// The error in detail, written by this program.
    pub(crate) detail: &'a str,
    /// The server that was asked.
    pub(crate) server: Option<SocketAddr>,
    /// Unix seconds.
    pub(crate) now_s: i64,
}

/// The page that a template makes.
pub(crate) fn expand(template: &[u8], facts: &PageFacts<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(template.len() + 512);
    append(&mut out, template, facts, true);
    out.truncate(PAGE_BYTES_MAX);
    out
}

fn append(out: &mut Vec<u8>, template: &[u8], facts: &PageFacts<'_>, may_sign: bool) {
    let mut rest = template;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'%' | b'@')) {
        if out.len() >= PAGE_BYTES_MAX {
            return;
        }
        let (before, code) = rest.split_at(at);
        out.extend_from_slice(before);
        rest = match code {
            [b'%', letter, after @ ..] => {
                append_code(out, *letter, facts, may_sign);
                after
            }
            _ => match log_code(code) {
                Some((value, after)) => {
                    append_log_code(out, value, facts);
                    after
                }
                None => {
                    out.extend(code.first());
                    code.get(1..).unwrap_or_default()
                }
            },
        };
    }
    out.extend_from_slice(rest);
}

fn append_code(out: &mut Vec<u8>, letter: u8, facts: &PageFacts<'_>, may_sign: bool) {
    match letter {
        b'S' if may_sign => append(out, SIGNATURE, facts, false),
        b'l' => out.extend_from_slice(&facts.request.snapshot().pages.style),
        b'W' => out.extend_from_slice(&mail(facts)),
        b'O' => out.extend_from_slice(&message(facts)),
        b'L' => {
            let text = facts.request.snapshot().config.err_html_text.as_deref();
            out.extend_from_slice(text.unwrap_or_default().as_bytes());
        }
        _ => match value(letter, facts) {
            Some(value) => append_escaped(out, &value),
            // As it is: a percent sign of a style, for example.
            None => out.extend_from_slice(&[b'%', letter]),
        },
    }
}

fn append_escaped(out: &mut Vec<u8>, value: &[u8]) {
    let mut text = String::with_capacity(value.len());
    escape::write_html(&mut text, value);
    out.extend_from_slice(text.as_bytes());
}

/// The text that a code stands for; `None` if there is no such code.
fn value(letter: u8, facts: &PageFacts<'_>) -> Option<Vec<u8>> {
    let request = facts.request;
    let known = || {
        let facts = Facts { request, server: facts.server, now_s: facts.now_s };
        codes::value(char::from(letter), &facts)
    };
    let has_url = !facts.url.is_empty();
    let or_unknown = |what: &str| match has_url {
        true => known(),
        false => Some(format!("[unknown {what}]").into_bytes()),
    };
    Some(match letter {
        b'U' if has_url => inert(&shown_url(facts)),
        b'u' if has_url => inert(facts.url),
        b'U' | b'u' => b"[no URL]".to_vec(),
        b'R' if has_url => as_message(&request.head, is_secret),
        b'R' => b"[no request]".to_vec(),
        b'H' => or_unknown("host")?,
        b'p' => or_unknown("port")?,
        b'P' => or_unknown("protocol")?,
        b'M' => or_unknown("method")?,
        b'I' => match facts.server {
            Some(server) => unmapped(server.ip()).to_string().into_bytes(),
            None => b"[unknown]".to_vec(),
        },
        b'c' => facts.name.as_bytes().to_vec(),
        b'D' if is_about_tls(facts) => facts.detail.as_bytes().to_vec(),
        b'x' if is_about_tls(facts) => name_of_fault(facts.detail).as_bytes().to_vec(),
        b'E' if !facts.detail.is_empty() => facts.detail.as_bytes().to_vec(),
        b'z' | b'Z' if !facts.detail.is_empty() => facts.detail.as_bytes().to_vec(),
        b'z' | b'Z' => b"[unknown]".to_vec(),
        b's' => codes::value('S', &Facts { request, server: None, now_s: facts.now_s })?,
        b'S' => b"[%S]".to_vec(),
        b'o' => message(facts),
        b'm' => b"[not available]".to_vec(),
        b'x' => b"[Unknown Error Code]".to_vec(),
        b'f' | b'F' => b"nothing".to_vec(),
        b'B' | b'g' => Vec::new(),
        _ => known()?,
    })
}

fn is_about_tls(facts: &PageFacts<'_>) -> bool {
    facts.name == ErrorPage::NoTls.name() && !facts.detail.is_empty()
}

/// The name of the fault, which stands in brackets behind its description.
fn name_of_fault(detail: &str) -> &str {
    let name = detail.rsplit_once('(').and_then(|(_, name)| name.strip_suffix(')'));
    name.unwrap_or_default()
}

/// `message=` of a helper of `external_acl_type`.
fn message(facts: &PageFacts<'_>) -> Vec<u8> {
    let facts = Facts { request: facts.request, server: None, now_s: 0 };
    codes::value('o', &facts).unwrap_or_default()
}

/// The URL without its query, which may be private; that of a tunnel to the port of https as the
/// whole site.
fn shown_url(facts: &PageFacts<'_>) -> Vec<u8> {
    let (request, url) = (facts.request, facts.url);
    if request.head.method == Method::Connect && request.url.port() == 443 {
        return [b"https://", request.url.host(), b"/*"].concat();
    }
    let end = url.iter().position(|&byte| byte == b'?').map(|at| at + 1);
    let end = end.filter(|_| request.snapshot().config.strip_query_terms);
    url.get(..end.unwrap_or(url.len())).unwrap_or(url).to_vec()
}

/// A URL in which no browser finds a program, wherever a template puts it.
fn inert(url: &[u8]) -> Vec<u8> {
    const SAFE: [&[u8]; 5] = [b"http", b"https", b"ftp", b"ws", b"wss"];
    let colon = url.iter().position(|&byte| byte == b':');
    let Some((scheme, rest)) = colon.map(|colon| url.split_at(colon)) else { return url.to_vec() };
    let is_scheme = scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'+');
    // Behind a host comes a number.
    let is_port = rest.get(1..).is_some_and(|port| port.iter().all(u8::is_ascii_digit));
    match SAFE.iter().any(|safe| scheme.eq_ignore_ascii_case(safe)) || is_port || !is_scheme {
        true => url.to_vec(),
        false => [scheme, b"%3A", rest.get(1..).unwrap_or_default()].concat(),
    }
}

fn is_secret(name: FieldName) -> bool {
    matches!(name, FieldName::Authorization | FieldName::ProxyAuthorization | FieldName::Cookie)
}

/// The subject and body of a mail to the administrator, behind its address in a link.
fn mail(facts: &PageFacts<'_>) -> Vec<u8> {
    let snapshot = facts.request.snapshot();
    let mut out = Vec::new();
    if !snapshot.config.email_err_data || snapshot.names.contact.is_empty() {
        return out;
    }
    let time = date::format(facts.now_s);
    let mut body = format!(
        "CacheHost: {}\r\nErrPage: {}\r\nTimeStamp: {}\r\n\r\nClientIP: {}\r\n",
        snapshot.names.hostname,
        facts.name,
        String::from_utf8_lossy(&time),
        unmapped(facts.request.client_ip())
    )
    .into_bytes();
    if let Some(host) = value(b'H', facts).filter(|_| !facts.url.is_empty()) {
        body.extend_from_slice(b"ServerIP: ");
        body.extend_from_slice(&host);
        body.extend_from_slice(b"\r\n");
    }
    if !facts.detail.is_empty() {
        body.extend_from_slice(format!("Err: {}\r\n", facts.detail).as_bytes());
    }
    body.extend_from_slice(b"\r\nHTTP Request:\r\n");
    body.extend_from_slice(&value(b'R', facts).unwrap_or_default());
    out.extend_from_slice(b"?subject=");
    escape::write_percent(&mut out, format!("CacheErrorInfo - {}", facts.name).as_bytes());
    out.extend_from_slice(b"&body=");
    escape::write_percent(&mut out, &body);
    out
}

/// Splits `@Squid{CODE}` from the text behind it.
fn log_code(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(LOG_CODE)?;
    // A name of a field may follow in braces of its own.
    let mut depth = 0usize;
    for (at, byte) in inner.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some((inner.get(..at)?, inner.get(at + 1..)?)),
            b'}' => depth -= 1,
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

fn append_log_code(out: &mut Vec<u8>, code: &[u8], facts: &PageFacts<'_>) {
    let text = String::from_utf8_lossy(code);
    let format = Some(&*text).filter(|text| text.starts_with('%')).map(LogFormat::compile);
    match format {
        Some(Ok(format)) => {
            append_escaped(out, &format::early(&AccessFormat::Template(format), facts.request));
        }
        _ => {
            out.extend_from_slice(LOG_CODE);
            out.extend_from_slice(code);
            out.push(b'}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_no_program() {
        for (url, wanted) in [
            ("http://a/b", "http://a/b"),
            ("HTTPS://a/b", "HTTPS://a/b"),
            ("/path:x", "/path:x"),
            ("a.test:443", "a.test:443"),
            ("javascript:alert(1)", "javascript%3Aalert(1)"),
            ("JavaScript://a/%0aalert(1)", "JavaScript%3A//a/%0aalert(1)"),
            ("data:text/html,x", "data%3Atext/html,x"),
        ] {
            assert_eq!(inert(url.as_bytes()), wanted.as_bytes(), "{url}");
        }
    }

    #[test]
    fn codes_of_logs_end_with_their_brace() {
        let split = |text: &'static str| {
            log_code(text.as_bytes())
                .map(|(code, rest)| (String::from_utf8_lossy(code).into_owned(), rest.len()))
        };
        assert_eq!(split("@Squid{%>a}..").unwrap(), ("%>a".to_owned(), 2));
        assert_eq!(split("@Squid{%{Host}>h}").unwrap(), ("%{Host}>h".to_owned(), 0));
        assert_eq!(split("@Squid{%>a\n}"), None);
        assert_eq!(split("@Squid"), None);
        assert_eq!(split("@media{}"), None);
    }
}
