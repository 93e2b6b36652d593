//! `deny_info`: the answers to clients whose requests a rule denies.

use humboldt_conf::Config;

use crate::errors::ErrorPage;

/// An answer in place of the usual page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Another page, perhaps with another status.
    Page(ErrorPage, Option<u16>),
    /// A redirect: its status, if the line has one, and a URL with codes in it.
    Redirect(Option<u16>, String),
    /// Nothing: the connection is reset.
    Reset,
}

/// All `deny_info` lines.
pub struct Denials(Vec<(Vec<String>, Instead)>);

impl Denials {
    /// Reads the lines. A line that cannot be obeyed as written is reported, and obeyed as far as
    /// possible.
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

    /// The same for a client that has to log in before anything else is decided: as in Squid, no
    /// redirect and no other status takes the place of that.
    pub(crate) fn find_page(&self, acl: &str) -> Option<usize> {
        let is_about = |acls: &[String]| acls.iter().any(|name| name.eq_ignore_ascii_case(acl));
        self.0.iter().position(|(acls, instead)| {
            is_about(acls) && matches!(instead, Instead::Page(_, None) | Instead::Reset)
        })
    }

    /// The answer of a line.
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
                Ok(status @ 200..=599) => (Some(status), rest),
                Ok(_) => (None, rest),
                Err(_) => (None, text),
            },
            _ => (None, text),
        };
        let is_url = rest.contains(':') || rest.starts_with('/');
        // A page may have any status that is no redirect.
        let usable = status.filter(|status| is_url == (300..=399).contains(status));
        if usable != status {
            tracing::warn!(
                "deny_info {text}: this status does not go with that; the usual one is used"
            );
        }
        if is_url {
            return Self::Redirect(usable, rest.to_owned());
        }
        let page = ErrorPage::from_name(rest).unwrap_or_else(|| {
            tracing::warn!("deny_info {text}: there is no page {rest}; ERR_ACCESS_DENIED is shown");
            ErrorPage::AccessDenied
        });
        Self::Page(page, usable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_page_a_place_or_a_reset() {
        let redirect = |status, url: &str| Instead::Redirect(status, url.to_owned());
        for (text, wanted) in [
            ("TCP_RESET", Instead::Reset),
            ("http://x.test/?%u", redirect(None, "http://x.test/?%u")),
            ("307:http://x.test/", redirect(Some(307), "http://x.test/")),
            ("200:http://x.test/", redirect(None, "http://x.test/")),
            ("ERR_DNS_FAIL", Instead::Page(ErrorPage::DnsFailure, None)),
            ("404:ERR_ACCESS_DENIED", Instead::Page(ErrorPage::AccessDenied, Some(404))),
            ("200:ERR_ACCESS_DENIED", Instead::Page(ErrorPage::AccessDenied, Some(200))),
            ("302:ERR_ACCESS_DENIED", Instead::Page(ErrorPage::AccessDenied, None)),
            ("ERR_OF_OUR_OWN", Instead::Page(ErrorPage::AccessDenied, None)),
        ] {
            assert_eq!(Instead::parse(text), wanted, "{text}");
        }
    }
}
