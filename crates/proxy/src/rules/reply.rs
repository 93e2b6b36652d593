//! The rules about an answer before it goes to a client: `reply_body_max_size` and
//! `http_reply_access`.
//!
//! They are asked for each client, also for hits. Without such rules, this costs nothing.

use humboldt_acl::RuleList;
use humboldt_exchange::is_bodiless_status;
use humboldt_http::{Method, ResponseHead};
use humboldt_store::StoredHead;

use crate::config::reply_rules::{ReplyRules, UNLIMITED};
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::{access, permission};

/// Most bytes that the body of this answer may have for this request; 0 if the rules have no
/// answer.
pub(crate) fn limit_bytes(request: &Request, response: &ResponseHead) -> u64 {
    let rules = request.snapshot().reply_rules.as_ref();
    rules.map_or(UNLIMITED, |rules| limit(rules, request, response).unwrap_or(0))
}

/// The list `http_reply_access` and the answer with this head, if the list needs a fact to decide
/// about it that is not known yet: see [`access::decide`].
pub(crate) fn undecided<'r>(
    request: &'r Request,
    head: &StoredHead,
) -> Option<(&'r RuleList, ResponseHead)> {
    let rules = request.snapshot().reply_rules.as_ref().filter(|rules| rules.access_may_wait)?;
    let list = rules.access.as_ref()?;
    // See `check` and `check_interim`.
    if is_bodiless_status(head.status) && head.status >= 200 {
        return None;
    }
    let response = head.to_response_head();
    access::is_undecided(list, request, &response).then_some((list, response))
}

/// Whether an answer may go to the client, and how many bytes of it if its length is not known yet.
/// Answers that cannot have a body always may, as in Squid.
///
/// The lists do not wait here. One that needs a fact that is not known refuses.
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
    let limit = limit(rules, request, &response)?;
    if request.head.method != Method::Head && body_bytes.is_some_and(|bytes| bytes > limit) {
        return Err(Refusal::too_large());
    }
    let Some(list) = &rules.access else { return Ok(limit) };
    permission::may_reply(list, request, &response, false).map(|()| limit)
}

/// Whether an interim answer, or one that switches protocols, may go to the client
/// (`http_reply_access`).
pub(crate) fn check_interim(request: &Request, response: &ResponseHead) -> Result<(), Refusal> {
    let rules = request.snapshot().reply_rules.as_ref();
    match rules.and_then(|rules| rules.access.as_ref()) {
        Some(list) => {
            let is_interim = response.status != 101;
            permission::may_reply(list, request, response, is_interim)
        }
        None => Ok(()),
    }
}

/// The limit of the first line that matches, in bytes. If a line before it has no answer, the
/// result is a refusal.
fn limit(rules: &ReplyRules, request: &Request, response: &ResponseHead) -> Result<u64, Refusal> {
    for (limit, condition) in &rules.sizes {
        if access::says_or_refuses(condition, request, response)? {
            return Ok(*limit);
        }
    }
    Ok(UNLIMITED)
}
