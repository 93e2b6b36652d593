//! The codes in the URLs of `deny_info`: Squid's letters behind a percent sign.

use std::net::SocketAddr;

use humboldt_base::civil::civil_from_days;
use humboldt_http::{date, escape};

use crate::errors::product;
use crate::request::{Request, unmapped};

/// The facts that codes stand for.
pub(crate) struct Facts<'a> {
    /// The request that was denied, or whose answer was.
    pub(crate) request: &'a Request,
    /// The server that was asked.
    pub(crate) server: Option<SocketAddr>,
    /// Unix seconds.
    pub(crate) now_s: i64,
}

/// The URL of a redirect. A code that Squid does not know stays as it is.
///
/// Values are percent-encoded, so that no text from a client can end the field or start another
/// part of the URL; only the path (`%R`), as in Squid, and the host (`%H`) are not. Both are those
/// of a URL that was read.
pub(crate) fn expand(template: &str, facts: &Facts<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(template.len() + facts.request.url.as_bytes().len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.extend_from_slice(before.as_bytes());
        let code = after.chars().next().unwrap_or('%');
        rest = after.get(code.len_utf8()..).unwrap_or_default();
        match value(code, facts) {
            Some(value) if matches!(code, 'R' | 'H') => out.extend_from_slice(&value),
            Some(value) => escape::write_percent(&mut out, &value),
            None => {
                out.push(b'%');
                out.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out.retain(|byte| !byte.is_ascii_control());
    out
}

/// The value of a code; `None` if there is no such code.
pub(crate) fn value(code: char, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let request = facts.request;
    let (names, config) = (&request.snapshot().names, &request.snapshot().config);
    let local = request.facts().chosen();
    Some(match code {
        'u' | 'U' | 's' => request.url.as_bytes().to_vec(),
        'H' => host(request.url.host()),
        'p' => request.url.port().to_string().into_bytes(),
        'P' => request.url.scheme().to_vec(),
        'R' => request.url.path_and_query().to_vec(),
        'M' => request.head.method_bytes().to_vec(),
        'i' => unmapped(request.client_ip()).to_string().into_bytes(),
        'A' => unmapped(local.ip()).to_string().into_bytes(),
        'b' => local.port().to_string().into_bytes(),
        'I' => match facts.server {
            Some(server) => unmapped(server.ip()).to_string().into_bytes(),
            None => Vec::new(),
        },
        'h' => names.hostname.as_bytes().to_vec(),
        'w' => names.contact.as_bytes().to_vec(),
        'S' => product(!config.httpd_suppress_version_string).as_bytes().to_vec(),
        'T' => date::format(facts.now_s).to_vec(),
        't' => local_time(facts.now_s).into_bytes(),
        'a' => request.user_name().unwrap_or("-").as_bytes().to_vec(),
        'o' => message_of_helper(request),
        'e' => b"0".to_vec(),
        'E' => b"[No Error]".to_vec(),
        'D' => b"[No Error Detail]".to_vec(),
        '%' => b"%".to_vec(),
        // About errors other than a denial, or for pages only: empty in URLs.
        'B' | 'c' | 'f' | 'F' | 'g' | 'l' | 'L' | 'm' | 'O' | 'W' | 'x' | 'z' | 'Z' => Vec::new(),
        _ => return None,
    })
}

/// `message=` of a helper of `external_acl_type`.
fn message_of_helper(request: &Request) -> Vec<u8> {
    let facts = request.helped.facts();
    facts.as_deref().and_then(|facts| facts.message.as_deref()).unwrap_or_default().to_vec()
}

/// The host as URLs have it.
fn host(host: &[u8]) -> Vec<u8> {
    match host.contains(&b':') {
        true => [b"[", host, b"]"].concat(),
        false => host.to_vec(),
    }
}

/// The time as access.log has it in its common format.
fn local_time(now_s: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let offset_s = humboldt_sys::local_time::utc_offset_s(now_s);
    let local_s = now_s + i64::from(offset_s);
    let (days, second) = (local_s.div_euclid(86_400), local_s.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let month = usize::try_from(month - 1).ok().and_then(|at| MONTHS.get(at)).unwrap_or(&"-");
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (sign, zone) = (if offset_s < 0 { '-' } else { '+' }, offset_s.unsigned_abs() / 60);
    let (hours, minutes) = (zone / 60, zone % 60);
    format!(
        "{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {sign}{hours:02}{minutes:02}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_time_is_that_of_the_common_format() {
        let text = local_time(784_111_777);
        assert_eq!(text.len(), "06/Nov/1994:08:49:37 +0000".len(), "{text}");
        assert!(text.contains("/Nov/1994:"), "{text}");
    }
}
