//! What a stored answer needs to be judged later, and its age (RFC 9111 section 4.2.3).

use std::ops::{BitOr, BitOrAssign};

use crate::directives::MAX_SECONDS;

/// Properties of a stored answer that [`crate::judge`] looks at; a set of bits.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct TimesFlags(u32);

impl TimesFlags {
    /// Must not be served stale: `must-revalidate`, and in a shared cache `proxy-revalidate` or `s-maxage`.
    pub const MUST_REVALIDATE: Self = Self(1);
    /// `no-cache`: every use needs a successful validation.
    pub const NO_CACHE: Self = Self(1 << 1);
    /// `immutable` (RFC 8246): a reload without `no-cache` is answered from the cache while fresh.
    pub const IMMUTABLE: Self = Self(1 << 2);
    /// The lifetime is a guess (RFC 9111 section 4.2.2), not the origin's word.
    pub const HEURISTIC: Self = Self(1 << 3);
    /// There is an ETag or a Last-Modified to validate with.
    pub const HAS_VALIDATOR: Self = Self(1 << 4);
    /// An error kept for `negative_ttl`.
    pub const NEGATIVE: Self = Self(1 << 5);
    /// The origin gave `stale-if-error`, so that it, not `max_stale`, bounds staleness on errors.
    pub const HAS_STALE_IF_ERROR: Self = Self(1 << 6);
    /// `refresh-ims`: a client's If-Modified-Since is validated with the origin.
    pub const REFRESH_IMS: Self = Self(1 << 7);

    const ALL: u32 = (1 << 8) - 1;

    /// Every bit of `other` is in this set.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for TimesFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for TimesFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The condensed freshness information of a stored answer: 48 bytes in memory, [`Times::BYTES`] on disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// When the answer (or the 304 that last confirmed it) arrived; unix seconds.
    pub response_time: i64,
    /// The Date field, or `response_time` where it was missing or malformed; unix seconds.
    pub date: i64,
    /// Last-Modified in unix seconds, or [`Times::UNKNOWN`].
    pub last_modified: i64,
    /// corrected_initial_age, seconds (RFC 9111 section 4.2.3).
    pub initial_age_s: u32,
    /// Freshness lifetime, seconds (section 4.2.1), capped at [`MAX_SECONDS`].
    pub lifetime_s: u32,
    /// `stale-while-revalidate`, seconds beyond the lifetime; 0 without.
    pub swr_s: u32,
    /// `stale-if-error`, seconds beyond the lifetime; counts if [`TimesFlags::HAS_STALE_IF_ERROR`].
    pub sie_s: u32,
    /// The rest.
    pub flags: TimesFlags,
}

impl Times {
    /// Value of [`Times::last_modified`] when there is none.
    pub const UNKNOWN: i64 = i64::MIN;

    /// Length of the serialised form.
    pub const BYTES: usize = 44;

    /// The serialised form: the fields in order of declaration, little-endian.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        for wide in [self.response_time, self.date, self.last_modified] {
            put(&wide.to_le_bytes());
        }
        for narrow in [self.initial_age_s, self.lifetime_s, self.swr_s, self.sie_s, self.flags.0] {
            put(&narrow.to_le_bytes());
        }
        bytes
    }

    /// Reads the serialised form. Any bytes are safe: durations are capped and unknown flags dropped.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let wide = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(part)
        };
        let narrow = |at: usize| {
            let mut part = [0; 4];
            part.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(part)
        };
        Self {
            response_time: wide(0),
            date: wide(8),
            last_modified: wide(16),
            initial_age_s: narrow(24).min(MAX_SECONDS),
            lifetime_s: narrow(28).min(MAX_SECONDS),
            swr_s: narrow(32).min(MAX_SECONDS),
            sie_s: narrow(36).min(MAX_SECONDS),
            flags: TimesFlags(narrow(40) & TimesFlags::ALL),
        }
    }

    /// The last modification, if the origin told one.
    pub fn last_modified(&self) -> Option<i64> {
        (self.last_modified != Self::UNKNOWN).then_some(self.last_modified)
    }
}

/// current_age in seconds (RFC 9111 section 4.2.3), at most [`MAX_SECONDS`]: what the Age field says.
/// A clock that went back counts as no time having passed.
#[inline]
pub fn age(times: &Times, now: i64) -> u32 {
    let resident_s = now.saturating_sub(times.response_time).max(0);
    let age_s = resident_s.saturating_add(i64::from(times.initial_age_s));
    u32::try_from(age_s).unwrap_or(MAX_SECONDS).min(MAX_SECONDS)
}

/// Seconds of freshness left, negative once stale: the `ttl` of Cache-Status (RFC 9211 section 2.4).
#[inline]
pub fn ttl(times: &Times, now: i64) -> i64 {
    i64::from(times.lifetime_s) - i64::from(age(times, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Times = Times {
        response_time: 1_000_000,
        date: 999_990,
        last_modified: Times::UNKNOWN,
        initial_age_s: 10,
        lifetime_s: 60,
        swr_s: 5,
        sie_s: 7,
        flags: TimesFlags(TimesFlags::IMMUTABLE.0 | TimesFlags::NEGATIVE.0),
    };

    #[test]
    fn round_trip() {
        assert_eq!(Times::from_bytes(&SAMPLE.to_bytes()), SAMPLE);
        assert!(size_of::<Times>() <= 64);
        assert_eq!(SAMPLE.last_modified(), None);
    }

    #[test]
    fn arbitrary_bytes_are_harmless() {
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            let times = Times::from_bytes(&[fill; Times::BYTES]);
            for now in [i64::MIN, -1, 0, 1, i64::MAX] {
                assert!(age(&times, now) <= MAX_SECONDS);
                assert!(ttl(&times, now).abs() <= i64::from(MAX_SECONDS));
            }
            assert_eq!(Times::from_bytes(&times.to_bytes()), times, "reading is idempotent");
        }
    }

    #[test]
    fn age_grows_with_time_and_never_shrinks_below_the_initial_one() {
        assert_eq!(age(&SAMPLE, 1_000_000), 10);
        assert_eq!(age(&SAMPLE, 1_000_049), 59);
        assert_eq!(age(&SAMPLE, 0), 10);
        assert_eq!(age(&SAMPLE, i64::MAX), MAX_SECONDS);
        assert_eq!(ttl(&SAMPLE, 1_000_049), 1);
        assert_eq!(ttl(&SAMPLE, 1_000_060), -10);
    }
}
