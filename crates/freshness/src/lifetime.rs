//! Freshness lifetime and initial age of an arriving answer (RFC 9111 sections 4.2.1 to 4.2.3).

use humboldt_http::{FieldName, Fields, ResponseHead, date};

use crate::directives::{CacheControl, MAX_SECONDS, delta_seconds};
use crate::settings::{RefreshRule, Settings};
use crate::times::{Times, TimesFlags, storable};

/// Longest heuristic lifetime of an error, in seconds: the default of Squid's `negative_ttl` for
/// years.
const ERROR_GUESS_MAX_S: u32 = 300;

/// Condenses an answer into the facts that later judgements need. `request_time` and
/// `response_time` are the times at which the request was sent and the head received, in unix
/// seconds. After a 304 the head is the one [`crate::update_304`] made.
pub fn times(
    request_time: i64,
    response_time: i64,
    response: &ResponseHead,
    response_cc: &CacheControl,
    rule: &RefreshRule,
    settings: &Settings,
) -> Times {
    let fields = &response.fields;
    let date = instant(fields, FieldName::Date).unwrap_or(response_time);
    let last_modified = instant(fields, FieldName::LastModified);
    let (lifetime_s, mut flags) =
        lifetime(response, response_cc, date, last_modified, rule, settings);
    if last_modified.is_some() || fields.has(FieldName::Etag) {
        flags |= TimesFlags::HAS_VALIDATOR;
    }
    if response_cc.no_cache() {
        flags |= TimesFlags::NO_CACHE;
    }
    if response_cc.immutable() {
        flags |= TimesFlags::IMMUTABLE;
    }
    if rule.refresh_ims {
        flags |= TimesFlags::REFRESH_IMS;
    }
    let shared_only = response_cc.proxy_revalidate() || response_cc.s_maxage_s().is_some();
    if response_cc.must_revalidate() || settings.shared && shared_only {
        flags |= TimesFlags::MUST_REVALIDATE;
    }
    if response_cc.stale_if_error_s().is_some() {
        flags |= TimesFlags::HAS_STALE_IF_ERROR;
    }
    Times {
        response_time: storable(response_time),
        date: storable(date),
        last_modified: last_modified.unwrap_or(Times::UNKNOWN),
        initial_age_s: initial_age_s(request_time, response_time, date, fields),
        lifetime_s,
        swr_s: response_cc.stale_while_revalidate_s().unwrap_or(0),
        sie_s: response_cc.stale_if_error_s().unwrap_or(0),
        flags,
        purge_number: 0,
        serial: 0,
    }
}

/// Statuses that a cache may store without explicit freshness (RFC 9110 section 15.1), other than
/// errors.
pub(crate) fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 410)
}

/// Errors that a cache may store without explicit freshness (section 15.1). Last-Modified is
/// required: it shows that the error page was written on purpose and is no accident.
pub(crate) fn is_lasting_error(status: u16, last_modified: Option<i64>) -> bool {
    last_modified.is_some() && matches!(status, 404 | 405 | 414 | 501)
}

/// Errors that `negative_ttl` is for.
pub(crate) fn is_negatively_cacheable(status: u16) -> bool {
    matches!(status, 400 | 403 | 404 | 405 | 414 | 500..=504)
}

/// The answer has an explicit lifetime (RFC 9111 section 4.2.1).
pub(crate) fn has_explicit_lifetime(
    fields: &Fields,
    cc: &CacheControl,
    settings: &Settings,
) -> bool {
    (settings.shared && cc.s_maxage_s().is_some())
        || cc.max_age_s().is_some()
        || (!cc.is_targeted() && fields.has(FieldName::Expires))
}

fn lifetime(
    response: &ResponseHead,
    cc: &CacheControl,
    date: i64,
    last_modified: Option<i64>,
    rule: &RefreshRule,
    settings: &Settings,
) -> (u32, TimesFlags) {
    if let Some(explicit_s) = explicit_s(&response.fields, cc, date, settings) {
        let at_least_s = if rule.override_expire { rule.min_s } else { 0 };
        return (explicit_s.max(at_least_s), TimesFlags::default());
    }
    if is_heuristically_cacheable(response.status) || cc.public() {
        return (heuristic_s(date, last_modified, rule), TimesFlags::HEURISTIC);
    }
    if is_negatively_cacheable(response.status) {
        let modified = last_modified.filter(|modified| *modified < date);
        let guess_s = match modified.filter(|_| is_lasting_error(response.status, modified)) {
            Some(_) => heuristic_s(date, modified, rule).min(ERROR_GUESS_MAX_S),
            None => 0,
        };
        let lifetime_s = settings.negative_ttl_s.min(MAX_SECONDS).max(guess_s);
        return (lifetime_s, TimesFlags::HEURISTIC | TimesFlags::NEGATIVE);
    }
    (0, TimesFlags::HEURISTIC)
}

fn explicit_s(fields: &Fields, cc: &CacheControl, date: i64, settings: &Settings) -> Option<u32> {
    let s_maxage_s = cc.s_maxage_s().filter(|_| settings.shared);
    s_maxage_s.or(cc.max_age_s()).or_else(|| {
        if cc.is_targeted() {
            return None;
        }
        // Malformed Expires, such as the common "0", is in the past (RFC 9111 section 5.3).
        let expires = fields.get(FieldName::Expires)?;
        Some(date::parse(expires).map_or(0, |expires| seconds(expires.saturating_sub(date))))
    })
}

/// Squid's refresh_pattern arithmetic: a share of the age at last modification, or `min_s` where
/// that is unknown.
fn heuristic_s(date: i64, last_modified: Option<i64>, rule: &RefreshRule) -> u32 {
    let guess_s = match last_modified {
        Some(modified) if modified < date => {
            let unchanged_s = date.saturating_sub(modified);
            // `as` saturates and makes NaN 0: every percentage is safe.
            let share_s = (unchanged_s as f64 * rule.percent / 100.0) as u32;
            if rule.override_lastmod { share_s.max(rule.min_s) } else { share_s }
        }
        _ => rule.min_s,
    };
    guess_s.min(rule.max_s).min(MAX_SECONDS)
}

/// corrected_initial_age (RFC 9111 section 4.2.3).
fn initial_age_s(request_time: i64, response_time: i64, date: i64, fields: &Fields) -> u32 {
    let apparent_s = seconds(response_time.saturating_sub(date));
    let delay_s = seconds(response_time.saturating_sub(request_time));
    // The first member of a list counts; a malformed one does not (section 5.1).
    let age_s = fields.list(FieldName::Age).next().and_then(delta_seconds).unwrap_or(0);
    apparent_s.max(age_s.saturating_add(delay_s)).min(MAX_SECONDS)
}

fn instant(fields: &Fields, name: FieldName) -> Option<i64> {
    fields.get(name).and_then(date::parse)
}

/// A difference as a duration: 0 if negative, capped at [`MAX_SECONDS`].
fn seconds(difference: i64) -> u32 {
    u32::try_from(difference.max(0)).unwrap_or(MAX_SECONDS).min(MAX_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ARRIVAL, response, times_of};

    fn lifetime_s(status: u16, head: &str, rule: &RefreshRule, settings: &Settings) -> u32 {
        times_of(&response(status, head), rule, settings).lifetime_s
    }

    #[test]
    fn explicit_lifetimes() {
        let rows = [
            ("Cache-Control: max-age=60", 60),
            ("Cache-Control: max-age=60, s-maxage=10", 10),
            ("Cache-Control: max-age=60|Expires: @3600", 60),
            ("Cache-Control: s-maxage=7|Expires: @3600", 7),
            ("Date: @0|Expires: @3600", 3600),
            ("Expires: @3600", 3600),
            ("Date: @-100|Expires: @3600", 3700),
            ("Date: @100|Expires: @50", 0),
            ("Expires: 0", 0),
            ("Expires: -1", 0),
            ("Expires: ", 0),
            ("Expires: @3600|Expires: 0", 3600),
            ("Expires: 0|Expires: @3600", 0),
            ("Cache-Control: max-age=abc|Expires: @3600", 0),
            ("Cache-Control: public|Expires: @3600", 3600),
            ("Cache-Control: max-age=999999999999", MAX_SECONDS),
            ("Date: junk|Expires: @3600", 3600),
            ("Last-Modified: @-1000|Cache-Control: max-age=0", 0),
        ];
        for (head, want) in rows {
            let got = lifetime_s(200, head, &RefreshRule::default(), &Settings::default());
            assert_eq!(got, want, "{head}");
        }
    }

    #[test]
    fn heuristics_follow_refresh_pattern() {
        let plain = RefreshRule::default();
        let floor = RefreshRule::new(600, 20.0, 86400);
        let none = RefreshRule::new(0, 0.0, 0);
        let lastmod = RefreshRule { override_lastmod: true, ..floor.clone() };
        let expire = RefreshRule { override_expire: true, ..floor.clone() };
        let rows = [
            (200, "Last-Modified: @-1000", &plain, 200),
            (200, "Last-Modified: @-1000|Date: @-500", &plain, 100),
            (200, "Last-Modified: @-99999999", &plain, 3 * 24 * 3600),
            (200, "Last-Modified: @-1000", &none, 0),
            (200, "", &plain, 0),
            (200, "", &floor, 600),
            (200, "Last-Modified: @0", &floor, 600),
            (200, "Last-Modified: @1000", &floor, 600),
            (200, "Last-Modified: @-1000", &floor, 200),
            (200, "Last-Modified: @-1000", &lastmod, 600),
            (200, "Last-Modified: junk", &floor, 600),
            (200, "Cache-Control: max-age=60", &floor, 60),
            (200, "Cache-Control: max-age=60", &expire, 600),
            (200, "Cache-Control: max-age=900", &expire, 900),
            (301, "Last-Modified: @-1000", &plain, 200),
            (410, "", &floor, 600),
            (302, "Last-Modified: @-1000", &plain, 0),
            (302, "Last-Modified: @-1000|Cache-Control: public", &plain, 200),
            (404, "Last-Modified: @-1000", &plain, 200),
            (501, "Last-Modified: @-1000", &floor, 200),
            (410, "Last-Modified: @-100000", &plain, 20_000),
            (404, "Last-Modified: @-100000", &plain, 300),
            (404, "Last-Modified: @0", &floor, 0),
            (404, "", &floor, 0),
            (403, "Last-Modified: @-1000", &plain, 0),
            (503, "Last-Modified: @-1000", &plain, 0),
        ];
        for (status, head, rule, want) in rows {
            assert_eq!(
                lifetime_s(status, head, rule, &Settings::default()),
                want,
                "{status} {head} {rule:?}"
            );
        }
    }

    #[test]
    fn odd_percentages_are_harmless() {
        for (percent, want) in [(f64::NAN, 0), (-5.0, 0), (f64::INFINITY, 86400), (150.0, 1500)] {
            let rule = RefreshRule::new(0, percent, 86400);
            assert_eq!(lifetime_s(200, "Last-Modified: @-1000", &rule, &Settings::default()), want);
        }
    }

    #[test]
    fn negative_answers_live_for_negative_ttl() {
        let settings = Settings { negative_ttl_s: 30, ..Settings::default() };
        let rule = RefreshRule::new(600, 20.0, 86400);
        for (status, want) in [(404, 30), (503, 30), (403, 30), (302, 0), (401, 0), (200, 600)] {
            assert_eq!(lifetime_s(status, "", &rule, &settings), want, "{status}");
        }
        assert_eq!(lifetime_s(404, "Cache-Control: max-age=5", &rule, &settings), 5);
    }

    #[test]
    fn private_caches_ignore_shared_directives() {
        let settings = Settings { shared: false, ..Settings::default() };
        let head = response(200, "Cache-Control: s-maxage=5, max-age=60, proxy-revalidate");
        let times = times_of(&head, &RefreshRule::default(), &settings);
        assert_eq!(times.lifetime_s, 60);
        assert!(!times.flags.contains(TimesFlags::MUST_REVALIDATE));
    }

    #[test]
    fn targeted_fields_replace_cache_control_and_expires() {
        let target_list = vec![
            b"Humboldt-Cache-Control".as_slice().into(),
            b"CDN-Cache-Control".as_slice().into(),
        ];
        let settings = Settings { target_list, ..Settings::default() };
        let rule = RefreshRule::new(7, 0.0, 7);
        let rows = [
            ("CDN-Cache-Control: max-age=60|Cache-Control: no-store, max-age=1", 60),
            ("CDN-Cache-Control: max-age=60|Humboldt-Cache-Control: max-age=5", 5),
            ("CDN-Cache-Control: max-age=60,|Cache-Control: max-age=1", 1),
            ("CDN-Cache-Control: |Cache-Control: max-age=1", 1),
            ("CDN-Cache-Control: public|Cache-Control: max-age=1|Expires: @3600", 7),
            ("CDN-Cache-Control: max-age=\"60\"|Cache-Control: max-age=1", 0),
            ("CDN-Cache-Control: max-age=1, max-age=9", 9),
            ("CDN-Cache-Control: max-age=1|CDN-Cache-Control: max-age=9", 9),
        ];
        for (head, want) in rows {
            assert_eq!(lifetime_s(200, head, &rule, &settings), want, "{head}");
        }
    }

    #[test]
    fn initial_age() {
        // Age and Date, request sent this many seconds before arrival, corrected initial age
        let rows = [
            ("", 0, 0),
            ("Age: 10", 0, 10),
            ("Age: 10", 3, 13),
            ("Date: @-20", 3, 20),
            ("Date: @-20|Age: 30", 3, 33),
            ("Date: @500", 0, 0),
            ("Date: junk|Age: 4", 0, 4),
            ("Age: 99999999999", 5, MAX_SECONDS),
            ("Age: -5", 0, 0),
            ("Age: 1.5", 0, 0),
            ("Age: x", 2, 2),
            ("Age: 7, 100", 0, 7),
            ("Age: 7|Age: 100", 0, 7),
            ("Age: 5", -9, 5),
        ];
        for (head, delay_s, want) in rows {
            let response = response(200, head);
            let cc = CacheControl::default();
            let rule = RefreshRule::default();
            let times =
                times(ARRIVAL - delay_s, ARRIVAL, &response, &cc, &rule, &Settings::default());
            assert_eq!(times.initial_age_s, want, "{head}");
        }
    }

    #[test]
    fn flags() {
        let rule = RefreshRule { refresh_ims: true, ..RefreshRule::default() };
        let head = response(
            200,
            "Cache-Control: no-cache, immutable, s-maxage=1, stale-if-error=3, stale-while-revalidate=4|ETag: \"a\"",
        );
        let times = times_of(&head, &rule, &Settings::default());
        let all = TimesFlags::NO_CACHE
            | TimesFlags::IMMUTABLE
            | TimesFlags::MUST_REVALIDATE
            | TimesFlags::HAS_VALIDATOR
            | TimesFlags::HAS_STALE_IF_ERROR
            | TimesFlags::REFRESH_IMS;
        assert_eq!(times.flags, all);
        assert_eq!((times.sie_s, times.swr_s), (3, 4));
        assert_eq!(times.last_modified(), None);
        let dated = times_of(&response(404, "Last-Modified: @-5"), &rule, &Settings::default());
        assert_eq!(dated.last_modified(), Some(ARRIVAL - 5));
        assert!(
            dated
                .flags
                .contains(TimesFlags::HAS_VALIDATOR | TimesFlags::NEGATIVE | TimesFlags::HEURISTIC)
        );
    }
}
