//! Differences that are meant, each with its reason (docs/squid-differences.md).

use crate::requests::{By, Case, Verdict};
use crate::sets::RuleSet;

/// Whether the verdicts of Squid and of ours differ where they should not.
pub(crate) fn difference(set: &RuleSet, case: &Case, (theirs, ours): &(Verdict, Verdict)) -> bool {
    if alike(case, theirs) == alike(case, ours) || is_login_refused(case, ours) {
        return false;
    }
    // Neither refused: the ways to servers are another test's subject.
    let is_plain = case.target.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    if !theirs.is_refusal() && !ours.is_refusal() {
        let is_asked = |verdict: &Verdict| verdict.by == By::Origin;
        return is_plain && is_asked(theirs) && is_asked(ours) && case.twice;
    }
    !is_error_refused(set, theirs, ours) && !is_deny_info_obeyed(set, case, theirs, ours)
}

/// Squid does not ask `deny_info` when `miss_access` denies a tunnel. When `http_reply_access`
/// denies an answer, it sends a page with the name TCP_RESET instead of a reset.
fn is_deny_info_obeyed(set: &RuleSet, case: &Case, theirs: &Verdict, ours: &Verdict) -> bool {
    let is_page = |name: &str| theirs.by == By::Proxy(name.to_owned()) && theirs.status == 403;
    let of_tunnel = case.method == "CONNECT" && is_page("ERR_FORWARDING_DENIED");
    let of_reset = is_page("TCP_RESET") && ours.by == By::Nobody;
    let is_refused = !matches!(ours.by, By::Tunnel | By::Origin);
    !set.deny_infos.is_empty()
        && theirs.asked == ours.asked
        && is_refused
        && (of_tunnel || of_reset)
}

/// In Squid, `http_reply_access` is asked about pages of the proxy's own too, if they are about
/// errors. A page that is refused is another page, also where it would have been a redirect because
/// `miss_access` denies.
fn is_error_refused(set: &RuleSet, theirs: &Verdict, ours: &Verdict) -> bool {
    let has = |list: &str| set.rules.iter().any(|rule| rule.list == list);
    let is_asked = has("http_reply_access");
    let is_sent_away = matches!(ours.by, By::Redirect(_))
        && has("miss_access")
        && theirs.by == By::Proxy("ERR_ACCESS_DENIED".to_owned());
    let is_of_miss = ours.by == By::Proxy("ERR_FORWARDING_DENIED".to_owned());
    let is_page =
        matches!(ours.by, By::Proxy(_)) && !ours.is_refusal() || is_of_miss || is_sent_away;
    is_asked && is_page && theirs.is_refusal() && theirs.asked == 0 && ours.asked == 0
}

/// Login data in a URL: RFC 9110, section 4.2.4, calls it an error.
fn is_login_refused(case: &Case, ours: &Verdict) -> bool {
    let Some((_, rest)) = case.target.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@') && ours.status == 400 && ours.asked == 0
}

/// A verdict without what differs in the text of a redirect or in the name of a page only.
fn alike(case: &Case, verdict: &Verdict) -> Verdict {
    let by = match &verdict.by {
        // Methods have case (RFC 9110, section 9.1). Squid takes `get` for GET.
        By::Redirect(_) if case.method == "get" => By::Redirect(String::new()),
        // Squid escapes fewer characters, and some of them twice, for HTML and for the URL.
        By::Redirect(place) => {
            let place = String::from_utf8_lossy(&percent_decoded(place)).into_owned();
            let place = place.replace("&amp;", "&");
            // Once a parent was asked, the code for the host is the parent's name in Squid.
            let host = place.split_once("&h=").filter(|_| verdict.asked > 0);
            By::Redirect(host.map(|(before, _)| before.to_owned()).unwrap_or(place))
        }
        // A page with a status of its own is another page in Squid.
        By::Proxy(page) => match page.split_once(':') {
            Some((_, page)) => By::Proxy(page.to_owned()),
            None => By::Proxy(page.clone()),
        },
        by => by.clone(),
    };
    let is_of_get = case.method == "get" && matches!(by, By::Redirect(_));
    let status = if is_of_get && verdict.status == 307 { 302 } else { verdict.status };
    Verdict { by, status, ..verdict.clone() }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, after @ ..] = rest {
        let digits = if *byte == b'%' { after.get(..2) } else { None };
        let hex = digits.and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(decoded) => (out.push(decoded), rest = &after[2..]).0,
            None => (out.push(*byte), rest = after).0,
        }
    }
    out
}
