//! The use of a stored answer for a request (RFC 9111 section 4.2.4 and 5.2.1, RFC 5861, RFC 8246).

use crate::directives::CacheControl;
use crate::settings::{RefreshRule, Settings};
use crate::times::{Times, TimesFlags, age};

/// The decision.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Serve it: fresh, or as stale as the client or the operator accepts.
    Fresh,
    /// Serve it and validate it in the background (RFC 5861 section 3).
    StaleWhileRevalidate,
    /// Validate it first, or fetch it again if it has no validator.
    Revalidate {
        /// Whether the stored answer may be served if the origin fails: no answer, or status 500,
        /// 502, 503 or 504.
        may_serve_stale_on_error: bool,
    },
    /// Fetch it again without conditions: the client asked for a reload.
    Refetch,
    /// The client wants a stored answer or none, and this one will not do: 504 (RFC 9111 section
    /// 5.2.1.7).
    GatewayTimeout,
}

/// Judges a stored answer. `rule` looks up the `refresh_pattern` of the URL; it is not called for
/// the common hit, which is a handful of comparisons.
#[inline]
pub fn judge<'r>(
    times: &Times,
    request_cc: &CacheControl,
    settings: &Settings,
    rule: impl FnOnce() -> &'r RefreshRule,
    now: i64,
) -> Disposition {
    let age_s = age(times, now);
    if request_cc.is_empty()
        && age_s < times.lifetime_s
        && !times.flags.contains(TimesFlags::NO_CACHE)
    {
        return Disposition::Fresh;
    }
    if settings.offline {
        return Disposition::Fresh;
    }
    let case = Case { times, request_cc, settings, rule: rule(), age_s };
    match case.disposition() {
        Disposition::Revalidate { .. } | Disposition::Refetch if request_cc.only_if_cached() => {
            Disposition::GatewayTimeout
        }
        disposition => disposition,
    }
}

/// Everything that a judgement needs.
struct Case<'a> {
    times: &'a Times,
    request_cc: &'a CacheControl,
    settings: &'a Settings,
    rule: &'a RefreshRule,
    age_s: u32,
}

impl Case<'_> {
    fn disposition(&self) -> Disposition {
        let validate =
            Disposition::Revalidate { may_serve_stale_on_error: self.may_serve_on_error() };
        if self.request_cc.no_cache() && !self.rule.ignore_reload {
            let cheaply = self.settings.reload_into_ims || self.rule.reload_into_ims;
            return if cheaply { validate } else { Disposition::Refetch };
        }
        if self.is(TimesFlags::NO_CACHE) || self.client_wants_newer() {
            return validate;
        }
        if self.is_fresh() {
            return Disposition::Fresh;
        }
        if self.is(TimesFlags::MUST_REVALIDATE) {
            return validate;
        }
        if self.request_cc.max_stale_s().is_some_and(|max_s| self.stale_by_s() <= max_s) {
            return Disposition::Fresh;
        }
        if self.stale_by_s() < self.times.swr_s {
            return Disposition::StaleWhileRevalidate;
        }
        validate
    }

    /// `max-age` and `min-fresh` of the request, and the operator's `refresh-ims` and
    /// `refresh_all_ims`.
    fn client_wants_newer(&self) -> bool {
        let too_old = self.request_cc.max_age_s().is_some_and(|max_s| {
            let exempt = self.is_fresh() && self.is(TimesFlags::IMMUTABLE)
                || max_s == 0 && self.rule.ignore_reload;
            !exempt && (self.age_s > max_s || max_s == 0)
        });
        let left_s = self.times.lifetime_s.saturating_sub(self.age_s);
        let too_short = self.request_cc.min_fresh_s().is_some_and(|min_s| left_s < min_s);
        let asks_origin = self.settings.refresh_all_ims || self.is(TimesFlags::REFRESH_IMS);
        too_old || too_short || asks_origin && self.request_cc.is_conditional()
    }

    /// Whether the stored answer may be served when the origin fails. A stale answer needs the
    /// consent of the origin (`stale-if-error`), of the client (likewise) or of the operator
    /// (`max_stale`).
    fn may_serve_on_error(&self) -> bool {
        if self.is(TimesFlags::NO_CACHE) {
            return false;
        }
        if self.is_fresh() {
            return true;
        }
        if self.is(TimesFlags::MUST_REVALIDATE) || self.is(TimesFlags::NEGATIVE) {
            return false;
        }
        let bound_s = if self.is(TimesFlags::HAS_STALE_IF_ERROR) {
            self.times.sie_s
        } else {
            self.rule.max_stale_s.unwrap_or(self.settings.max_stale_s)
        };
        self.stale_by_s() <= bound_s.max(self.request_cc.stale_if_error_s().unwrap_or(0))
    }

    fn is_fresh(&self) -> bool {
        self.age_s < self.times.lifetime_s
    }

    /// Seconds since the end of freshness; 0 while fresh and in the first stale second.
    fn stale_by_s(&self) -> u32 {
        self.age_s.saturating_sub(self.times.lifetime_s)
    }

    fn is(&self, flag: TimesFlags) -> bool {
        self.times.flags.contains(flag)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{ARRIVAL, request, response, times_of};

    const F: Disposition = Disposition::Fresh;
    const W: Disposition = Disposition::StaleWhileRevalidate;
    const RELOAD: Disposition = Disposition::Refetch;
    const GONE: Disposition = Disposition::GatewayTimeout;
    /// Validate; the stored answer may cover for the origin, or may not.
    const V: Disposition = Disposition::Revalidate { may_serve_stale_on_error: true };
    const STRICT: Disposition = Disposition::Revalidate { may_serve_stale_on_error: false };

    fn judged(
        answer: &str,
        client: &str,
        after_s: i64,
        rule: &RefreshRule,
        settings: &Settings,
    ) -> Disposition {
        let times = times_of(&response(200, answer), rule, settings);
        let request_cc = CacheControl::of_request(&request(client).fields);
        judge(&times, &request_cc, settings, || rule, ARRIVAL + after_s)
    }

    #[test]
    fn dispositions() {
        let settings = Settings { max_stale_s: 100, ..Settings::default() };
        let rule = RefreshRule::default();
        let ten = "Cache-Control: max-age=10";
        let rows = [
            // the answer alone
            (ten, "", 0, F),
            (ten, "", 9, F),
            (ten, "", 10, V),
            (ten, "", 110, V),
            (ten, "", 111, STRICT),
            ("Cache-Control: max-age=10|Age: 5", "", 4, F),
            ("Cache-Control: max-age=10|Age: 5", "", 5, V),
            ("Cache-Control: max-age=10|Age: 50", "", 0, V),
            ("Cache-Control: max-age=10, no-cache", "", 0, STRICT),
            ("Cache-Control: max-age=10, must-revalidate", "", 9, F),
            ("Cache-Control: max-age=10, must-revalidate", "", 10, STRICT),
            ("Cache-Control: max-age=10, proxy-revalidate", "", 10, STRICT),
            ("Cache-Control: s-maxage=10", "", 10, STRICT),
            ("Cache-Control: max-age=10, stale-while-revalidate=5", "", 14, W),
            ("Cache-Control: max-age=10, stale-while-revalidate=5", "", 15, V),
            (
                "Cache-Control: max-age=10, stale-while-revalidate=5, must-revalidate",
                "",
                12,
                STRICT,
            ),
            ("Cache-Control: max-age=10, stale-if-error=5", "", 15, V),
            ("Cache-Control: max-age=10, stale-if-error=5", "", 16, STRICT),
            ("Cache-Control: max-age=10, stale-if-error=5, must-revalidate", "", 11, STRICT),
            ("Cache-Control: max-age=10, stale-if-error=1000", "", 500, V),
            // the client's wishes
            (ten, "Cache-Control: no-cache", 0, RELOAD),
            (ten, "Pragma: no-cache", 0, RELOAD),
            (ten, "Pragma: foo, No-Cache", 0, RELOAD),
            (ten, "Pragma: no-cache|Cache-Control: max-age=100", 0, F),
            (ten, "Cache-Control: max-age=0", 0, V),
            (ten, "Cache-Control: max-age=5", 5, F),
            (ten, "Cache-Control: max-age=5", 6, V),
            (ten, "Cache-Control: max-age=junk", 5, V),
            (ten, "Cache-Control: max-age=100", 50, V),
            (ten, "Cache-Control: min-fresh=4", 6, F),
            (ten, "Cache-Control: min-fresh=4", 7, V),
            (ten, "Cache-Control: max-stale", 100_000, F),
            (ten, "Cache-Control: max-stale=5", 15, F),
            (ten, "Cache-Control: max-stale=5", 16, V),
            (ten, "Cache-Control: max-stale=junk", 16, V),
            ("Cache-Control: s-maxage=10", "Cache-Control: max-stale", 11, STRICT),
            ("Cache-Control: no-cache", "Cache-Control: max-stale", 11, STRICT),
            (ten, "Cache-Control: stale-if-error=500", 400, V),
            (ten, "Cache-Control: no-store", 5, F),
            (
                "Cache-Control: max-age=10, stale-while-revalidate=5",
                "Cache-Control: max-age=11",
                12,
                V,
            ),
            // immutable
            ("Cache-Control: max-age=10, immutable", "Cache-Control: max-age=0", 9, F),
            ("Cache-Control: max-age=10, immutable", "Cache-Control: max-age=0", 10, V),
            ("Cache-Control: max-age=10, immutable", "Cache-Control: no-cache", 0, RELOAD),
            // only-if-cached
            (ten, "Cache-Control: only-if-cached", 9, F),
            (ten, "Cache-Control: only-if-cached", 10, GONE),
            (ten, "Cache-Control: only-if-cached, max-stale", 10, F),
            (ten, "Cache-Control: only-if-cached, no-cache", 0, GONE),
            ("Cache-Control: no-cache", "Cache-Control: only-if-cached", 0, GONE),
            // a condition changes nothing
            (ten, "If-Modified-Since: @0", 9, F),
            (ten, "If-Modified-Since: @0", 10, V),
            // stored while the clock was ahead, by more than the waiting time of a request
            (ten, "", -60, F),
            (ten, "", -61, STRICT),
        ];
        for (answer, client, after_s, want) in rows {
            let got = judged(answer, client, after_s, &rule, &settings);
            assert_eq!(got, want, "{answer} / {client} / after {after_s}");
        }
    }

    #[test]
    fn options_of_the_operator() {
        let settings = Settings::default();
        let plain = RefreshRule::default();
        let ignore = RefreshRule { ignore_reload: true, ..plain.clone() };
        let into_ims = RefreshRule { reload_into_ims: true, ..plain.clone() };
        let ims = RefreshRule { refresh_ims: true, ..plain.clone() };
        let bounded = RefreshRule { max_stale_s: Some(5), ..plain.clone() };
        let offline = Settings { offline: true, ..settings.clone() };
        let cheap = Settings { reload_into_ims: true, ..settings.clone() };
        let ten = "Cache-Control: max-age=10";
        let reload = "Cache-Control: no-cache";
        let rows = [
            (ten, reload, 0, &ignore, &settings, F),
            (ten, "Cache-Control: max-age=0", 5, &ignore, &settings, F),
            (ten, reload, 10, &ignore, &settings, V),
            (ten, reload, 0, &into_ims, &settings, V),
            (ten, reload, 0, &plain, &cheap, V),
            (ten, "If-Modified-Since: @0", 0, &ims, &settings, V),
            (ten, "", 0, &ims, &settings, F),
            (ten, "", 15, &bounded, &settings, V),
            (ten, "", 16, &bounded, &settings, STRICT),
            (ten, reload, 1000, &plain, &offline, F),
        ];
        for (answer, client, after_s, rule, settings, want) in rows {
            assert_eq!(
                judged(answer, client, after_s, rule, settings),
                want,
                "{answer} / {client} / {after_s}"
            );
        }
    }

    #[test]
    fn stale_errors_do_not_cover_for_the_origin() {
        let settings = Settings { negative_ttl_s: 10, ..Settings::default() };
        let rule = RefreshRule::default();
        let times = times_of(&response(404, ""), &rule, &settings);
        let cc = CacheControl::default();
        assert_eq!(judge(&times, &cc, &settings, || &rule, ARRIVAL + 9), F);
        assert_eq!(judge(&times, &cc, &settings, || &rule, ARRIVAL + 10), STRICT);
    }

    #[test]
    fn the_common_hit_does_not_look_up_the_rule() {
        let settings = Settings::default();
        let times = times_of(
            &response(200, "Cache-Control: max-age=10"),
            &RefreshRule::default(),
            &settings,
        );
        let rule = || -> &RefreshRule { panic!("looked up") };
        assert_eq!(judge(&times, &CacheControl::default(), &settings, rule, ARRIVAL), F);
    }

    /// How far a disposition is from serving at once.
    fn reluctance(disposition: Disposition) -> u8 {
        match disposition {
            F => 0,
            W => 1,
            V => 2,
            STRICT => 3,
            RELOAD | GONE => 4,
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_never_gets_fresher(
            bytes in proptest::array::uniform32(any::<u8>()),
            tail in proptest::array::uniform12(0_u8..4),
            client in "(no-cache|only-if-cached|(max-age|max-stale|min-fresh|stale-if-error)=[0-9]{1,11}|[ -~]{0,20})\
                       (, ?(max-stale|max-age=[0-9]{1,4}))?",
            earlier in any::<i64>(),
            later_by in 0_i64..i64::MAX,
        ) {
            let mut stored = [0; Times::BYTES];
            stored[..32].copy_from_slice(&bytes);
            stored[32..].copy_from_slice(&tail);
            let times = Times::from_bytes(&stored);
            let cc = CacheControl::parse(std::iter::once(client.as_bytes()));
            let (settings, rule) = (Settings::default(), RefreshRule::default());
            // From the time on when it could have been stored.
            let earlier = earlier.max(times.response_time.saturating_sub(crate::times::AHEAD_S_MAX));
            let first = judge(&times, &cc, &settings, || &rule, earlier);
            let second = judge(&times, &cc, &settings, || &rule, earlier.saturating_add(later_by));
            prop_assert!(reluctance(first) <= reluctance(second), "{:?} then {:?}", first, second);
        }

        #[test]
        fn small_steps_never_get_fresher(
            lifetime in 0_u32..50, swr in 0_u32..50, sie in 0_u32..50, flags in 0_u8..=255,
            client in "(|max-age=[0-9]{1,2}|max-stale=[0-9]{1,2}|min-fresh=[0-9]{1,2}|only-if-cached)",
            at in 0_i64..120,
        ) {
            let rule = RefreshRule::default();
            let settings = Settings { max_stale_s: 20, ..Settings::default() };
            let mut bytes = times_of(&response(200, ""), &rule, &settings).to_bytes();
            bytes[28..32].copy_from_slice(&lifetime.to_le_bytes());
            bytes[32..36].copy_from_slice(&swr.to_le_bytes());
            bytes[36..40].copy_from_slice(&sie.to_le_bytes());
            bytes[40] = flags;
            let times = Times::from_bytes(&bytes);
            let cc = CacheControl::parse(std::iter::once(client.as_bytes()));
            let first = judge(&times, &cc, &settings, || &rule, ARRIVAL + at);
            let second = judge(&times, &cc, &settings, || &rule, ARRIVAL + at + 1);
            prop_assert!(reluctance(first) <= reluctance(second), "{:?} then {:?}", first, second);
        }
    }
}
