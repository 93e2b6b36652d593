//! Refusals: requests and answers that a rule denies.

use std::sync::Arc;

use humboldt_acl::Question;
use humboldt_conf::{Need, RuleSource};
use humboldt_logs::access::Tag;

use crate::errors::ErrorPage;

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
    /// The line of the rule that denies.
    pub rule: Option<Arc<RuleSource>>,
    /// The facts by which it does, in words.
    pub facts: Option<Box<str>>,
    /// Retry-After, in seconds.
    pub retry_after_s: Option<u64>,
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
        Self { page, tag, info, unanswered: None, rule: None, facts: None, retry_after_s: None }
    }

    /// The same, by the rule of this line.
    pub(crate) fn by(self, rule: Option<&Arc<RuleSource>>) -> Self {
        Self { rule: rule.cloned(), ..self }
    }

    /// By `http_access`.
    pub(crate) fn of_request(info: Option<usize>) -> Self {
        Self::new(ErrorPage::AccessDenied, Tag::Denied, info)
    }

    /// By `http_access`: the client is to log in, or to log in as another user, as this page says.
    pub(crate) fn login(page: ErrorPage, info: Option<usize>) -> Self {
        Self::new(page, Tag::Denied, info)
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

    /// By `private_destinations`: the name of the host leads to an address that is not public.
    pub(crate) fn of_destination(facts: String, rule: Option<Arc<RuleSource>>) -> Self {
        let facts = Some(facts.into());
        Self { facts, rule, ..Self::new(ErrorPage::PrivateDestination, Tag::Denied, None) }
    }

    /// By `client_budget`.
    pub(crate) fn of_budget(why: &str, retry_after_s: u64) -> Self {
        let (facts, retry_after_s) = (Some(why.into()), Some(retry_after_s));
        Self { facts, retry_after_s, ..Self::new(ErrorPage::OverBudget, Tag::Denied, None) }
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
