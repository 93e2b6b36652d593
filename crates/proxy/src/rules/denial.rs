//! Refusals: requests and answers that a rule denies, and the place to which `deny_info` redirects
//! their clients.

use humboldt_acl::Question;
use humboldt_conf::Need;
use humboldt_http::escape;
use humboldt_logs::access::Tag;

use crate::errors::ErrorPage;
use crate::request::{Request, unmapped};
use crate::rules::login;

/// A request or an answer that a rule denies.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The page, if `deny_info` names no other.
    pub page: ErrorPage,
    /// Result code for the log.
    pub tag: Tag,
    /// Index of the line in [`Denials`](crate::config::denials::Denials) that applies.
    pub info: Option<usize>,
    /// The reason, if it is that a rule has no answer.
    pub unanswered: Option<Unanswered>,
}

/// A rule that has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    /// The ACL that has none; empty if no rule has been asked.
    pub acl: Box<str>,
    /// The fact that it needs.
    pub need: Need,
}

impl Refusal {
    fn new(page: ErrorPage, tag: Tag, info: Option<usize>) -> Self {
        Self { page, tag, info, unanswered: None }
    }

    /// By `http_access`.
    pub(crate) fn of_request(info: Option<usize>) -> Self {
        Self::new(ErrorPage::AccessDenied, Tag::Denied, info)
    }

    /// By `http_access`: the client is to log in, or to log in as another user.
    pub(crate) fn login(request: &Request, info: Option<usize>) -> Self {
        Self::new(login::page(request), Tag::Denied, info)
    }

    /// By `miss_access`.
    pub(crate) fn of_miss(info: Option<usize>) -> Self {
        Self::new(ErrorPage::ForwardingDenied, Tag::Miss, info)
    }

    /// By `http_reply_access`.
    pub(crate) fn of_reply(info: Option<usize>) -> Self {
        Self::new(ErrorPage::AccessDenied, Tag::DeniedReply, info)
    }

    /// There is no answer to this question of a rule.
    pub(crate) fn unanswered(question: Question<'_>) -> Self {
        Self::unmet(question.acl(), question.need())
    }

    /// The host's addresses are not known, and no rule has been asked.
    pub(crate) fn without_answer() -> Self {
        Self::unmet("", Need::DstIps)
    }

    fn unmet(acl: &str, need: Need) -> Self {
        let page = match need {
            Need::DstIps => ErrorPage::DnsFailure,
            _ => ErrorPage::Undecided,
        };
        let unanswered = Some(Unanswered { acl: acl.into(), need });
        Self { unanswered, ..Self::new(page, Tag::None, None) }
    }

    /// The host that the request names is not the one that it was sent to.
    pub(crate) fn of_host() -> Self {
        Self::new(ErrorPage::HostConflict, Tag::None, None)
    }

    /// By `reply_body_max_size`.
    pub(crate) fn too_large() -> Self {
        Self::new(ErrorPage::ReplyTooLarge, Tag::DeniedReply, None)
    }
}

/// The URL of a redirect. `%u`, `%U`, `%s` and `%B` become the requested URL, `%H` its host, `%p`
/// its port, `%P` its scheme, `%R` its path, `%M` the method, `%i` the client's address, `%a` its
/// user, `%o` the `message=` of a helper, `%h` our name, `%w` the administrator. All values are
/// percent-encoded, so that no text from elsewhere can end the field or start another part of the
/// URL.
pub(crate) fn expand(template: &str, request: &Request) -> Vec<u8> {
    let names = &request.snapshot().names;
    let facts = request.helped.facts();
    let message = facts.as_deref().and_then(|facts| facts.message.as_deref());
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
            'i' => put(unmapped(request.client_ip()).to_string().as_bytes()),
            'a' => put(request.user_name().unwrap_or("-").as_bytes()),
            'o' => put(message.unwrap_or_default()),
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
