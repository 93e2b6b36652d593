//! `deny_info`: what a client gets to see when a rule denies its request.

use humboldt_conf::Config;
use humboldt_http::escape;
use humboldt_logs::access::Tag;

use crate::errors::ErrorPage;
use crate::request::Request;

/// A request or an answer that a rule denies.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The page, where `deny_info` names no other.
    pub page: ErrorPage,
    /// Result code for the log.
    pub tag: Tag,
    /// Which of [`Denials`] applies.
    pub info: Option<usize>,
    /// The ACL that has no answer, where that is the reason.
    pub unanswered: Option<Box<str>>,
}

impl Refusal {
    fn new(page: ErrorPage, tag: Tag, info: Option<usize>) -> Self {
        Self { page, tag, info, unanswered: None }
    }

    /// By `http_access`.
    pub(crate) fn of_request(info: Option<usize>) -> Self {
        Self::new(ErrorPage::AccessDenied, Tag::Denied, info)
    }

    /// By `miss_access`.
    pub(crate) fn of_miss(info: Option<usize>) -> Self {
        Self::new(ErrorPage::ForwardingDenied, Tag::Miss, info)
    }

    /// By `http_reply_access`.
    pub(crate) fn of_reply(info: Option<usize>) -> Self {
        Self::new(ErrorPage::AccessDenied, Tag::DeniedReply, info)
    }

    /// By a rule with this ACL, which is about addresses of a host whose look-up failed.
    pub(crate) fn unanswered(acl: &str) -> Self {
        Self { unanswered: Some(acl.into()), ..Self::without_answer() }
    }

    /// The same where no rule has been asked.
    pub(crate) fn without_answer() -> Self {
        Self::new(ErrorPage::DnsFailure, Tag::None, None)
    }

    /// By `reply_body_max_size`.
    pub(crate) fn too_large() -> Self {
        Self::new(ErrorPage::ReplyTooLarge, Tag::DeniedReply, None)
    }
}

/// What is answered instead of the usual page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Another page, perhaps with another status.
    Page(ErrorPage, Option<u16>),
    /// Another place: status, and a URL with codes in it.
    Redirect(u16, String),
    /// Nothing: the connection is reset.
    Reset,
}

/// All `deny_info` lines.
pub struct Denials(Vec<(Vec<String>, Instead)>);

impl Denials {
    /// Reads the lines. One that cannot be obeyed as it is written is obeyed as far as it can, and
    /// reported.
    pub(crate) fn compile(config: &Config) -> Self {
        Self(
            config
                .deny_info
                .iter()
                .map(|line| (line.acls.clone(), Instead::parse(&line.page)))
                .collect(),
        )
    }

    /// The first line that names the ACL which decided.
    pub(crate) fn find(&self, last_acl: Option<&str>) -> Option<usize> {
        let name = last_acl?;
        self.0.iter().position(|(acls, _)| acls.iter().any(|acl| acl.eq_ignore_ascii_case(name)))
    }

    /// What a line says.
    pub(crate) fn get(&self, index: usize) -> Option<&Instead> {
        self.0.get(index).map(|(_, instead)| instead)
    }
}

impl Instead {
    fn parse(text: &str) -> Self {
        if text == "TCP_RESET" {
            return Self::Reset;
        }
        let (status, rest) = match text.split_once(':') {
            Some((number, rest)) if number.len() == 3 => match number.parse::<u16>() {
                Ok(status) => (Some(status), rest),
                Err(_) => (None, text),
            },
            _ => (None, text),
        };
        let is_url = rest.contains(':') || rest.starts_with('/');
        let fitting = if is_url { 300..=399 } else { 400..=599 };
        let usable = status.filter(|status| fitting.contains(status));
        if usable != status {
            tracing::warn!(
                "deny_info {text}: this status does not go with that; the usual one is used"
            );
        }
        if is_url {
            return Self::Redirect(usable.unwrap_or(302), rest.to_owned());
        }
        let page = ErrorPage::from_name(rest).unwrap_or_else(|| {
            tracing::warn!("deny_info {text}: there is no page {rest}; ERR_ACCESS_DENIED is shown");
            ErrorPage::AccessDenied
        });
        Self::Page(page, usable)
    }
}

/// The URL to redirect to: `%u`, `%U`, `%s` and `%B` become the URL that was asked for, `%H` its
/// host, `%p` its port, `%P` its scheme, `%R` its path, `%M` the method, `%i` the client's address,
/// `%h` our name, `%w` the administrator. All of it percent-encoded, so that nothing a client sends
/// can end the field or start another part of the URL.
pub(crate) fn expand(template: &str, request: &Request) -> Vec<u8> {
    let names = &request.snapshot().names;
    let mut out = Vec::with_capacity(template.len() + request.url.as_bytes().len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.extend_from_slice(before.as_bytes());
        let code = after.chars().next().unwrap_or('%');
        rest = after.get(code.len_utf8()..).unwrap_or_default();
        let mut put = |value: &[u8]| escape::write_percent(&mut out, value);
        match code {
            'u' | 'U' | 's' | 'B' => put(request.url.as_bytes()),
            'H' => put(request.url.host()),
            'p' => put(request.url.port().to_string().as_bytes()),
            'P' => put(request.url.scheme()),
            'R' => put(request.url.path_and_query()),
            'M' => put(request.head.method_bytes()),
            'i' => put(crate::access::unmapped(request.client_ip()).to_string().as_bytes()),
            'h' => put(names.hostname.as_bytes()),
            'w' => put(names.contact.as_bytes()),
            '%' => out.push(b'%'),
            other => {
                out.push(b'%');
                out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out.retain(|byte| !byte.is_ascii_control());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_page_a_place_or_a_reset() {
        let redirect = |status, url: &str| Instead::Redirect(status, url.to_owned());
        for (text, wanted) in [
            ("TCP_RESET", Instead::Reset),
            ("http://x.test/?%u", redirect(302, "http://x.test/?%u")),
            ("307:http://x.test/", redirect(307, "http://x.test/")),
            ("200:http://x.test/", redirect(302, "http://x.test/")),
            ("ERR_DNS_FAIL", Instead::Page(ErrorPage::DnsFailure, None)),
            ("404:ERR_ACCESS_DENIED", Instead::Page(ErrorPage::AccessDenied, Some(404))),
            ("302:ERR_ACCESS_DENIED", Instead::Page(ErrorPage::AccessDenied, None)),
            ("ERR_OF_OUR_OWN", Instead::Page(ErrorPage::AccessDenied, None)),
        ] {
            assert_eq!(Instead::parse(text), wanted, "{text}");
        }
    }
}
