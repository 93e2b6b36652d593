//! Whether an answer may be stored (RFC 9111 section 3), and whether storing it could ever be
//! useful.

use humboldt_http::{FieldName, Method, RequestHead, ResponseHead};
use thiserror::Error;

use crate::directives::CacheControl;
use crate::lifetime::{
    has_explicit_lifetime, is_heuristically_cacheable, is_lasting_error, is_negatively_cacheable,
};
use crate::settings::{RefreshRule, Settings};
use crate::times::{Times, TimesFlags};
use crate::vary::{self, Vary};

/// Why an answer is not stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum WhyNot {
    /// Only answers to GET are stored, and those to POST that say how long they are fresh.
    #[error("method is not GET")]
    Method,
    /// The request had a body, which the key does not cover.
    #[error("request has a body")]
    RequestBody,
    /// The client said so.
    #[error("request says no-store")]
    RequestNoStore,
    /// Not final, partial, an answer to a condition, or a proxy's challenge.
    #[error("status cannot be stored")]
    Status,
    /// `must-understand` with a status whose caching rules are not known (RFC 9111 section
    /// 5.2.2.3).
    #[error("must-understand, and the status is not understood")]
    NotUnderstood,
    /// The origin said so.
    #[error("response says no-store")]
    NoStore,
    /// For one user, and this cache is shared.
    #[error("response is private")]
    Private,
    /// The request was authenticated, and the origin did not allow sharing (RFC 9111 section 3.5).
    #[error("request has Authorization")]
    Authorization,
    /// `Vary: *`, or a Vary beyond what is supported.
    #[error("response varies on everything")]
    VaryStar,
    /// Neither explicit freshness nor a status that allows a guess.
    #[error("no freshness information")]
    NoFreshness,
    /// Stale too soon, and cannot be validated.
    #[error("stale at once and without validator")]
    NotReusable,
}

/// Decides whether the answer may be stored. `times` was made by [`crate::times`] from the same
/// answer. An answer to POST may be stored for GET, if it declares itself the answer to GET (RFC
/// 9110 section 9.3.3); the caller checks that.
///
/// # Errors
/// The first reason against it.
pub fn storability(
    method: Method,
    request: &RequestHead,
    request_cc: &CacheControl,
    response: &ResponseHead,
    response_cc: &CacheControl,
    settings: &Settings,
    rule: &RefreshRule,
    times: &Times,
) -> Result<(), WhyNot> {
    request_allows(method, request, request_cc)?;
    if method == Method::Post && !has_own_word(response, response_cc, settings) {
        return Err(WhyNot::Method);
    }
    response_allows(response, response_cc, settings, rule)?;
    if settings.shared && request.fields.has(FieldName::Authorization) && !is_shareable(response_cc)
    {
        return Err(WhyNot::Authorization);
    }
    if vary::of(&response.fields) == Vary::Any {
        return Err(WhyNot::VaryStar);
    }
    if !has_basis(response, response_cc, settings, rule, times) {
        return Err(WhyNot::NoFreshness);
    }
    if !rule.store_stale && !is_reusable(times, settings) {
        return Err(WhyNot::NotReusable);
    }
    Ok(())
}

fn request_allows(method: Method, request: &RequestHead, cc: &CacheControl) -> Result<(), WhyNot> {
    if cc.no_store() {
        return Err(WhyNot::RequestNoStore);
    }
    match method {
        Method::Get => {}
        Method::Post => return Ok(()),
        _ => return Err(WhyNot::Method),
    }
    let empty = request.fields.get(FieldName::ContentLength).is_none_or(|length| length == b"0");
    if !empty || request.fields.has(FieldName::TransferEncoding) {
        return Err(WhyNot::RequestBody);
    }
    Ok(())
}

/// A success with an explicit lifetime.
fn has_own_word(response: &ResponseHead, cc: &CacheControl, settings: &Settings) -> bool {
    response.status == 200 && has_explicit_lifetime(&response.fields, cc, settings)
}

fn response_allows(
    response: &ResponseHead,
    cc: &CacheControl,
    settings: &Settings,
    rule: &RefreshRule,
) -> Result<(), WhyNot> {
    let status = response.status;
    // A 407 is about the connection to the next proxy, and its challenge is not stored.
    if !(200..=599).contains(&status) || matches!(status, 206 | 304 | 407) {
        return Err(WhyNot::Status);
    }
    if cc.must_understand() && !is_understood(status) {
        return Err(WhyNot::NotUnderstood);
    }
    may_stay(cc, settings, rule)
}

/// Whether a stored answer may stay stored with these directives, as they are after an update of
/// its head by a 304 or a HEAD.
///
/// # Errors
/// The first reason against it.
pub fn may_stay(cc: &CacheControl, settings: &Settings, rule: &RefreshRule) -> Result<(), WhyNot> {
    // With must-understand, no-store is there for caches that do not know that (section 5.2.2.3).
    if cc.no_store() && !cc.must_understand() && !rule.ignore_no_store {
        return Err(WhyNot::NoStore);
    }
    if settings.shared && cc.private() && !rule.ignore_private {
        return Err(WhyNot::Private);
    }
    Ok(())
}

/// Whether an answer to a request with credentials may be stored and used for others (RFC 9111
/// section 3.5).
pub fn is_shareable(cc: &CacheControl) -> bool {
    cc.public() || cc.must_revalidate() || cc.s_maxage_s().is_some()
}

/// Final statuses of RFC 9110 (and 308) that ask no more of a cache than this one does.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

/// The last item of the list in RFC 9111 section 3, with `negative_ttl` as the operator's licence
/// for errors.
fn has_basis(
    response: &ResponseHead,
    cc: &CacheControl,
    settings: &Settings,
    rule: &RefreshRule,
    times: &Times,
) -> bool {
    cc.public()
        || has_explicit_lifetime(&response.fields, cc, settings)
        || is_heuristically_cacheable(response.status)
        || is_lasting_error(response.status, times.last_modified())
        || (settings.negative_ttl_s > 0 && is_negatively_cacheable(response.status))
        || (cc.private() && (!settings.shared || rule.ignore_private))
}

/// It can be validated, or it stays usable for longer than the operator's minimum.
fn is_reusable(times: &Times, settings: &Settings) -> bool {
    if times.flags.contains(TimesFlags::HAS_VALIDATOR) {
        return true;
    }
    if times.flags.contains(TimesFlags::NO_CACHE) {
        return false;
    }
    let may_be_stale = !times.flags.contains(TimesFlags::MUST_REVALIDATE);
    let grace_s = if may_be_stale { times.swr_s.max(times.sie_s) } else { 0 };
    let usable_s = times.lifetime_s.saturating_add(grace_s).saturating_sub(times.initial_age_s);
    let minimum_s =
        if times.flags.contains(TimesFlags::NEGATIVE) { 0 } else { settings.minimum_expiry_time_s };
    usable_s > minimum_s
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RefreshRule;
    use crate::testing::{request, response, times_of};

    fn verdict(
        method: Method,
        client: &str,
        status: u16,
        answer: &str,
        settings: &Settings,
        rule: &RefreshRule,
    ) -> Result<(), WhyNot> {
        let (request, response) = (request(client), response(status, answer));
        let request_cc = CacheControl::of_request(&request.fields);
        let response_cc = CacheControl::of_response(&response.fields, &settings.target_list);
        let times = times_of(&response, rule, settings);
        storability(method, &request, &request_cc, &response, &response_cc, settings, rule, &times)
    }

    fn check(rows: &[(&str, u16, &str, Result<(), WhyNot>)]) {
        let (settings, rule) = (Settings::default(), RefreshRule::default());
        for (client, status, answer, want) in rows {
            let got = verdict(Method::Get, client, *status, answer, &settings, &rule);
            assert_eq!(got, *want, "{client} / {status} {answer}");
        }
    }

    #[test]
    fn status_and_freshness() {
        let hour = "Cache-Control: max-age=3600";
        let rows = [
            ("", 200, hour, Ok(())),
            ("", 200, "Expires: @3600", Ok(())),
            ("", 200, "Last-Modified: @-1000", Ok(())),
            ("", 200, "ETag: \"a\"", Ok(())),
            ("", 200, "", Err(WhyNot::NotReusable)),
            ("", 200, "Cache-Control: public", Err(WhyNot::NotReusable)),
            ("", 200, "Cache-Control: max-age=0", Err(WhyNot::NotReusable)),
            ("", 200, "Cache-Control: max-age=0|ETag: \"a\"", Ok(())),
            ("", 200, "Cache-Control: max-age=60", Err(WhyNot::NotReusable)),
            ("", 200, "Cache-Control: max-age=61", Ok(())),
            ("", 200, "Cache-Control: max-age=10, stale-while-revalidate=60", Ok(())),
            ("", 200, "Cache-Control: max-age=10, stale-if-error=60", Ok(())),
            ("", 200, "Cache-Control: max-age=3600|Age: 3600", Err(WhyNot::NotReusable)),
            ("", 200, "Cache-Control: max-age=3600|Age: 3600|Last-Modified: @-9", Ok(())),
            ("", 200, "Cache-Control: max-age=junk", Err(WhyNot::NotReusable)),
            ("", 302, "", Err(WhyNot::NoFreshness)),
            ("", 302, "Last-Modified: @-1000", Err(WhyNot::NoFreshness)),
            ("", 302, hour, Ok(())),
            ("", 302, "Cache-Control: public|ETag: \"a\"", Ok(())),
            ("", 404, "ETag: \"a\"", Err(WhyNot::NoFreshness)),
            ("", 404, "Last-Modified: @-1000", Ok(())),
            ("", 403, "Last-Modified: @-1000", Err(WhyNot::NoFreshness)),
            ("", 404, hour, Ok(())),
            ("", 500, hour, Ok(())),
            ("", 299, hour, Ok(())),
            ("", 206, hour, Err(WhyNot::Status)),
            ("", 304, hour, Err(WhyNot::Status)),
            ("", 103, hour, Err(WhyNot::Status)),
            ("", 101, hour, Err(WhyNot::Status)),
            ("", 999, hour, Err(WhyNot::Status)),
            ("Range: bytes=0-5", 200, hour, Ok(())),
        ];
        check(&rows);
    }

    #[test]
    fn directives_and_requests() {
        let hour = "Cache-Control: max-age=3600";
        let rows = [
            ("", 200, "Cache-Control: no-store, max-age=3600", Err(WhyNot::NoStore)),
            ("", 200, "Cache-Control: max-age=3600|Cache-Control: NO-STORE", Err(WhyNot::NoStore)),
            ("", 200, "Cache-Control: no-store=x, max-age=3600", Err(WhyNot::NoStore)),
            ("", 200, "Cache-Control: no-store, must-understand, max-age=3600", Ok(())),
            (
                "",
                299,
                "Cache-Control: no-store, must-understand, max-age=3600",
                Err(WhyNot::NotUnderstood),
            ),
            ("", 299, "Cache-Control: must-understand, max-age=3600", Err(WhyNot::NotUnderstood)),
            ("", 200, "Cache-Control: private, max-age=3600", Err(WhyNot::Private)),
            ("", 200, "Cache-Control: private, public, max-age=3600", Err(WhyNot::Private)),
            (
                "",
                200,
                "Cache-Control: private=\"Set-Cookie\", max-age=3600|Set-Cookie: a=b",
                Ok(()),
            ),
            ("", 200, "Cache-Control: max-age=3600|Set-Cookie: a=b", Ok(())),
            ("", 200, "Cache-Control: no-cache, max-age=3600", Err(WhyNot::NotReusable)),
            ("", 200, "Cache-Control: no-cache, max-age=3600|ETag: \"a\"", Ok(())),
            ("", 200, "Pragma: no-cache|Cache-Control: max-age=3600", Ok(())),
            ("Cache-Control: no-store", 200, hour, Err(WhyNot::RequestNoStore)),
            ("Cache-Control: no-cache", 200, hour, Ok(())),
            ("Pragma: no-cache", 200, hour, Ok(())),
            // bodies, authentication, Vary
            ("Content-Length: 5", 200, hour, Err(WhyNot::RequestBody)),
            ("Content-Length: 0", 200, hour, Ok(())),
            ("Transfer-Encoding: chunked", 200, hour, Err(WhyNot::RequestBody)),
            ("Authorization: x", 200, hour, Err(WhyNot::Authorization)),
            ("Authorization: x", 200, "Cache-Control: public, max-age=3600", Ok(())),
            ("Authorization: x", 200, "Cache-Control: must-revalidate, max-age=3600", Ok(())),
            ("Authorization: x", 200, "Cache-Control: s-maxage=3600", Ok(())),
            (
                "Authorization: x",
                200,
                "Cache-Control: proxy-revalidate, max-age=3600",
                Err(WhyNot::Authorization),
            ),
            ("Cookie: x", 200, hour, Ok(())),
            ("", 200, "Cache-Control: max-age=3600|Vary: *", Err(WhyNot::VaryStar)),
            ("", 200, "Cache-Control: max-age=3600|Vary: Accept, *", Err(WhyNot::VaryStar)),
            ("", 200, "Cache-Control: max-age=3600|Vary: Accept", Ok(())),
        ];
        check(&rows);
    }

    #[test]
    fn only_get_is_stored() {
        let (settings, rule) = (Settings::default(), RefreshRule::default());
        let hour = "Cache-Control: max-age=3600";
        for method in [Method::Head, Method::Options, Method::Other, Method::Put] {
            assert_eq!(verdict(method, "", 200, hour, &settings, &rule), Err(WhyNot::Method));
        }
        let post = |client, status, answer| {
            verdict(Method::Post, client, status, answer, &settings, &rule)
        };
        assert_eq!(post("Content-Length: 5", 200, hour), Ok(()));
        assert_eq!(post("", 201, hour), Err(WhyNot::Method));
        assert_eq!(post("", 200, "Last-Modified: @-1000"), Err(WhyNot::Method));
        assert_eq!(post("Cache-Control: no-store", 200, hour), Err(WhyNot::RequestNoStore));
        assert_eq!(post("", 200, "Cache-Control: no-store, max-age=9"), Err(WhyNot::NoStore));
    }

    #[test]
    fn options_of_the_operator() {
        let plain = RefreshRule::default();
        let brave = RefreshRule {
            ignore_no_store: true,
            ignore_private: true,
            store_stale: true,
            ..RefreshRule::default()
        };
        let shared = Settings::default();
        let own = Settings { shared: false, ..Settings::default() };
        let eager = Settings { minimum_expiry_time_s: 0, negative_ttl_s: 5, ..Settings::default() };
        let rows = [
            (200, "Cache-Control: no-store, max-age=3600", &shared, &brave, Ok(())),
            (200, "Cache-Control: private, max-age=3600", &shared, &brave, Ok(())),
            (200, "Cache-Control: max-age=0", &shared, &brave, Ok(())),
            (200, "Cache-Control: private, max-age=3600", &own, &plain, Ok(())),
            (302, "Cache-Control: private|ETag: \"a\"", &own, &plain, Ok(())),
            (302, "Cache-Control: s-maxage=3600", &own, &plain, Err(WhyNot::NoFreshness)),
            (200, "Cache-Control: max-age=1", &eager, &plain, Ok(())),
            (200, "Cache-Control: max-age=0", &eager, &plain, Err(WhyNot::NotReusable)),
            (404, "", &eager, &plain, Ok(())),
            (503, "", &eager, &plain, Ok(())),
            (401, "", &eager, &plain, Err(WhyNot::NoFreshness)),
        ];
        for (status, answer, settings, rule, want) in rows {
            assert_eq!(
                verdict(Method::Get, "", status, answer, settings, rule),
                want,
                "{status} {answer}"
            );
        }
        let negative = Settings { negative_ttl_s: 5, ..Settings::default() };
        assert_eq!(
            verdict(Method::Get, "", 404, "", &negative, &plain),
            Ok(()),
            "below minimum_expiry_time"
        );
        let authorized = verdict(
            Method::Get,
            "Authorization: x",
            200,
            "Cache-Control: max-age=99",
            &own,
            &plain,
        );
        assert_eq!(authorized, Ok(()));
    }

    proptest! {
        #[test]
        fn arbitrary_heads_are_harmless(
            status in any::<u16>(),
            values in proptest::collection::vec("[ -~]{0,60}", 8),
            numbers in proptest::collection::vec(any::<i64>(), 2),
        ) {
            let names = ["Cache-Control", "CDN-Cache-Control", "Expires", "Date", "Age", "Last-Modified", "Vary"];
            let mut head = response(status, "");
            for (name, value) in names.iter().zip(&values) {
                head.fields.push_named(name.as_bytes(), value.as_bytes());
            }
            let settings = Settings { target_list: vec![b"cdn-cache-control".as_slice().into()], ..Settings::default() };
            let rule = RefreshRule::default();
            let client = request("");
            let cc = CacheControl::of_response(&head.fields, &settings.target_list);
            let times = crate::times(numbers[0], numbers[1], &head, &cc, &rule, &settings);
            prop_assert_eq!(crate::Times::from_bytes(&times.to_bytes()), times);
            let request_cc = CacheControl::parse(std::iter::once(values[7].as_bytes()));
            let stored =
                storability(Method::Get, &client, &request_cc, &head, &cc, &settings, &rule, &times).is_ok();
            prop_assert!(!(stored && cc.private()));
        }
    }
}
