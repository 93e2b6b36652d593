//! Rules about answers: `reply_body_max_size` and `http_reply_access`.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{Config, Need};

use super::conditions::{compile_optional, with_conditions};

/// No limit for a body.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The compiled rules.
pub struct ReplyRules {
    pub(crate) access: Option<RuleList>,
    /// Whether `access` has a slow ACL.
    pub(crate) access_may_wait: bool,
    /// Limits in bytes, each with its condition.
    pub(crate) sizes: Vec<(u64, RuleList)>,
}

impl ReplyRules {
    /// The lists that do not wait.
    pub(crate) fn fast_lists(&self) -> impl Iterator<Item = &RuleList> {
        self.sizes.iter().map(|(_, condition)| condition)
    }

    /// Compiles the rules; `None` when there are none.
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Option<Self>, Vec<AclError>> {
        let access = compile_optional(acls, &config.http_reply_access, true)?;
        let sizes = with_conditions(acls, &config.reply_body_max_size, |rule| {
            let limit = rule.limit_bytes.filter(|&bytes| bytes > 0);
            (limit.unwrap_or(UNLIMITED), &rule.terms)
        })?;
        let exist = access.is_some() || !sizes.is_empty();
        let mut slow = Need::ALL.into_iter().filter(|need| need.is_slow());
        let may_wait = |list: &RuleList| slow.any(|need| list.may_need(need));
        let access_may_wait = access.as_ref().is_some_and(may_wait);
        Ok(exist.then_some(Self { access, access_may_wait, sizes }))
    }
}
