//! What follows from the decision of a list that can refuse: it is counted, and a refusal is made,
//! or only reported.

use std::sync::Arc;

use humboldt_base::counters::Counter;
use humboldt_conf::{List, RuleSource};
use humboldt_http::Method;

use crate::core::Core;
use crate::request::Request;
use crate::rules::access;
use crate::rules::decision::Decision;
use crate::rules::denial::Refusal;
use crate::rules::notes::Before;
use crate::rules::own::is_internal;

/// Counts the decision of a list, by the rule with the index `rule` or by none, and lets its
/// refusal pass if it is only to be reported. A list that has no answer is not asked here: it
/// refuses in any case.
pub(crate) fn apply(
    request: &Request,
    list: List,
    rule: Option<usize>,
    decided: Result<(), Refusal>,
) -> Result<(), Refusal> {
    let is_reported = decided.is_err() && reports_only(request);
    if is_first(request, list, rule) {
        count(request, list, rule, is_reported);
    }
    match decided {
        Err(refusal) if is_reported => {
            note(request, refusal.rule);
            Ok(())
        }
        decided => decided,
    }
}

/// The same of a decision that is not counted: about an interim answer.
pub(crate) fn apply_uncounted(
    request: &Request,
    decided: Result<(), Refusal>,
) -> Result<(), Refusal> {
    match decided {
        Err(refusal) if reports_only(request) => {
            note(request, refusal.rule);
            Ok(())
        }
        decided => decided,
    }
}

/// Whether a list that is asked at several steps of a request has not decided by this rule already.
fn is_first(request: &Request, list: List, rule: Option<usize>) -> bool {
    let counted = match list {
        List::MissAccess => &request.counted.0,
        List::HttpReplyAccess => &request.counted.1,
        _ => return true,
    };
    counted.replace(Some(rule)) != Some(rule)
}

/// Counts the decision of a list.
pub(crate) fn count(request: &Request, list: List, rule: Option<usize>, is_reported: bool) {
    request.snapshot().rule_counts.count(request.facts().core, list, rule, is_reported);
}

/// Notes a refusal that is not made. The first one of a request is in the log.
pub(crate) fn note(request: &Request, rule: Option<Arc<RuleSource>>) {
    request.reported.get_or_init(|| rule);
}

/// Whether refusals of this request are only reported (`report_only`). The proxy's own pages and
/// PURGE are no traffic that new rules are tried with: they stay refused. Only a line that allows
/// says yes: the opposite of a last line that denies would open the proxy to everybody else.
pub(crate) fn reports_only(request: &Request) -> bool {
    let Some(list) = &request.snapshot().report_only else { return false };
    request.head.method != Method::Purge
        && !is_internal(request)
        && Before::of(request).what_if(request, || {
            // Annotations that the list makes are forgotten.
            matches!(access::ask(list, request, None), Decision::Allowed(Some(_)))
        })
}

/// Counts a request that has ended, and had a refusal that was only reported; not one about which
/// rules on trial had no answer.
pub(crate) fn count_reported(core: &Core, request: &Request) {
    if matches!(request.reported.get(), Some(Some(_))) {
        core.count(Counter::ClientReported, 1);
    }
}
