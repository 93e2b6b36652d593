//! `deny_info`: the answers to clients whose requests a rule denies.

use std::sync::Arc;

use humboldt_conf::{Config, DenyInfo};

use crate::errors::ErrorPage;

/// An answer in place of the usual page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Another page, perhaps with another status.
    Page(ErrorPage, Option<u16>),
    /// A page of the administrator's own: its name, its template, perhaps a status.
    Own(Box<str>, Arc<[u8]>, Option<u16>),
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
                .map(|line| (line.acls.clone(), Instead::of_line(line)))
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
            is_about(acls)
                && matches!(
                    instead,
                    Instead::Page(_, None) | Instead::Own(_, _, None) | Instead::Reset
                )
        })
    }

    /// The answer of a line.
    pub(crate) fn get(&self, index: usize) -> Option<&Instead> {
        self.0.get(index).map(|(_, instead)| instead)
    }
}

impl Instead {
    fn of_line(line: &DenyInfo) -> Self {
        Self::parse(&line.page, line.text.as_ref())
    }

    /// `template`: that of the page which the text names, if there is one.
    fn parse(text: &str, template: Option<&Arc<[u8]>>) -> Self {
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
        match (ErrorPage::from_name(rest), template) {
            (Some(page), _) => Self::Page(page, usable),
            (None, Some(template)) => Self::Own(rest.into(), Arc::clone(template), usable),
            (None, None) => {
                tracing::warn!(
                    "deny_info {text}: there is no page {rest}; ERR_ACCESS_DENIED is shown"
                );
                Self::Page(ErrorPage::AccessDenied, usable)
            }
        }
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
            assert_eq!(Instead::parse(text, None), wanted, "{text}");
        }
        let template: Arc<[u8]> = b"own"[..].into();
        let own = |status| Instead::Own("ERR_OWN".into(), Arc::clone(&template), status);
        assert_eq!(Instead::parse("ERR_OWN", Some(&template)), own(None));
        assert_eq!(Instead::parse("404:ERR_OWN", Some(&template)), own(Some(404)));
        let built_in = Instead::Page(ErrorPage::DnsFailure, None);
        assert_eq!(Instead::parse("ERR_DNS_FAIL", Some(&template)), built_in);
    }
}
