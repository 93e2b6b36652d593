//! What the rules say about an answer before it goes to a client: `reply_body_max_size` and
//! `http_reply_access`.
//!
//! They are asked for every client anew, also for hits. Without such rules nothing is done at all.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::Config;
use humboldt_http::{Method, ResponseHead};
use humboldt_store::StoredHead;

use crate::access;
use crate::denial::Refusal;
use crate::hit::is_bodiless_status;
use crate::request::Request;

/// No limit for a body.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The compiled rules.
pub struct ReplyRules {
    access: Option<RuleList>,
    /// Limits in bytes, each with its condition.
    sizes: Vec<(u64, RuleList)>,
}

impl ReplyRules {
    /// All lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &RuleList> {
        self.access.iter().chain(self.sizes.iter().map(|(_, condition)| condition))
    }

    /// Compiles the rules; `None` when there are none.
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Option<Self>, Vec<AclError>> {
        let access = match config.http_reply_access.as_slice() {
            [] => None,
            rules => Some(RuleList::compile(acls, rules, true)?),
        };
        let mut sizes = Vec::new();
        for rule in &config.reply_body_max_size {
            let limit = rule.limit_bytes.filter(|&bytes| bytes > 0).unwrap_or(UNLIMITED);
            sizes.push((limit, access::compile_condition(acls, &rule.terms)?));
        }
        let exist = access.is_some() || !sizes.is_empty();
        Ok(exist.then_some(Self { access, sizes }))
    }

    /// The limit of the first line that matches, in bytes. A refusal: a line before it cannot be
    /// answered.
    fn limit(&self, request: &Request, response: &ResponseHead) -> Result<u64, Refusal> {
        for (limit, condition) in &self.sizes {
            if access::says_or_refuses(condition, request, response)? {
                return Ok(*limit);
            }
        }
        Ok(UNLIMITED)
    }
}

/// How many bytes the body of this answer may have for this request; none where that cannot be
/// answered.
pub(crate) fn limit_bytes(request: &Request, response: &ResponseHead) -> u64 {
    let rules = request.snapshot().reply_rules.as_ref();
    rules.map_or(UNLIMITED, |rules| rules.limit(request, response).unwrap_or(0))
}

/// Whether an answer may go to the client that asked, and how many bytes of it if its length is not
/// known yet. Answers that cannot have a body always may, as in Squid.
pub(crate) fn check(
    request: &Request,
    head: &StoredHead,
    body_bytes: Option<u64>,
) -> Result<u64, Refusal> {
    let snapshot = request.snapshot();
    let Some(rules) = &snapshot.reply_rules else { return Ok(UNLIMITED) };
    if is_bodiless_status(head.status) {
        return Ok(UNLIMITED);
    }
    let response = head.to_response_head();
    let limit = rules.limit(request, &response)?;
    if request.head.method != Method::Head && body_bytes.is_some_and(|bytes| bytes > limit) {
        return Err(Refusal::too_large());
    }
    let Some(list) = &rules.access else { return Ok(limit) };
    access::may_reply(list, request, &response).map(|()| limit)
}
