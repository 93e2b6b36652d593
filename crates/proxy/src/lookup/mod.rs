//! Looks up stored answers for a request; sends nothing.

pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod parts;
pub(crate) mod selection;

use humboldt_freshness::{self as freshness, Disposition, Times};

use crate::request::Request;

/// The permitted use of a stored answer with these times.
pub(crate) fn judge_age(request: &Request, times: &Times) -> Disposition {
    let snapshot = request.snapshot();
    let rule = || snapshot.refresh_rule(request.cache_url());
    let now_s = request.judged_at_s(times);
    freshness::judge(times, &request.cc, &snapshot.freshness, rule, now_s)
}
