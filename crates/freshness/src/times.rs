//! Facts with which a stored answer is judged later, and its age (RFC 9111 section 4.2.3).

use std::ops::{BitOr, BitOrAssign};

use crate::directives::MAX_SECONDS;

/// Bits of a response time on disk, with its sign: 17,000 years.
const TIME_BITS: u32 = 40;

/// Bits of the flags on disk; the rest of their word is for the purge number.
const FLAG_BITS: u32 = 8;

const _: () = assert!(TimesFlags::ALL < 1 << FLAG_BITS, "flags and purge number share a word");

/// Serial numbers are below this one: as many bits as two times leave.
const SERIAL_END: u32 = 1 << (64 - TIME_BITS);

/// A stored answer may be this many seconds ahead of `now`: the time of a request is that of its
/// beginning, and an answer that it waited for is younger. An answer farther ahead was stored while
/// the clock was wrong.
pub const AHEAD_S_MAX: i64 = 60;

/// Response times are before this one, in unix seconds.
const TIME_END: i64 = 1 << (TIME_BITS - 1);

/// A time that has a place on disk: this one, unless the clock is off by millennia.
pub(crate) fn storable(time: i64) -> i64 {
    time.clamp(-TIME_END, TIME_END - 1)
}

/// Properties of a stored answer that [`crate::judge`] looks at; a set of bits.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct TimesFlags(u32);

impl TimesFlags {
    /// Must not be served stale: `must-revalidate`, and in a shared cache `proxy-revalidate` or
    /// `s-maxage`.
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

/// The condensed freshness information of a stored answer: 56 bytes in memory, [`Times::BYTES`] on
/// disk.
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
    /// Number of the newest purge by tag or prefix at the request for the answer, at most
    /// [`Times::PURGE_NUMBER_MAX`]. Purges with larger numbers may apply to it. 0 before the first
    /// such purge. The sender of the request sets it; nothing here reads it.
    pub purge_number: u64,
    /// Tells answers of one second apart; below 2^24, 0 if it was never set. The code that stores
    /// an answer sets it; nothing here reads it.
    pub serial: u32,
}

impl Times {
    /// Value of [`Times::last_modified`] when there is none.
    pub const UNKNOWN: i64 = i64::MIN;

    /// Length of the serialised form.
    pub const BYTES: usize = 44;

    /// Largest [`Times::purge_number`]: it has 48 bits on disk.
    pub const PURGE_NUMBER_MAX: u64 = (1 << 48) - 1;

    /// The serialised form: the fields in order of declaration, little-endian. Times need 40 bits
    /// with their sign and have 64, so the purge number and the serial number share their places:
    ///
    /// ```text
    /// bytes   lower bits                   upper 24 bits
    ///  0..8   response time, 40, signed    bits 24..48 of the purge number, XOR the sign
    ///  8..16  Date, 40, signed             serial number, XOR the sign
    /// 40..44  flags, 8                     bits  0..24 of the purge number
    /// ```
    ///
    /// In a record from before these numbers the upper bits repeat the sign, and the numbers are 0.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        let number = self.purge_number.min(Self::PURGE_NUMBER_MAX);
        let response_time = storable(self.response_time);
        let response_time = response_time ^ ((number >> 24) << TIME_BITS) as i64;
        let date = storable(self.date) ^ (i64::from(self.serial % SERIAL_END) << TIME_BITS);
        for wide in [response_time, date, self.last_modified] {
            put(&wide.to_le_bytes());
        }
        let flags = self.flags.0 | ((number & 0xff_ffff) as u32) << FLAG_BITS;
        for narrow in [self.initial_age_s, self.lifetime_s, self.swr_s, self.sie_s, flags] {
            put(&narrow.to_le_bytes());
        }
        bytes
    }

    /// Reads the serialised form. Any bytes are safe: durations are capped and unknown flags
    /// dropped.
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
        // A time, and the value in the bits that the time does not need.
        let apart = |both: i64| {
            let time = both << (64 - TIME_BITS) >> (64 - TIME_BITS);
            (time, ((both ^ time) as u64) >> TIME_BITS)
        };
        let (time, upper) = apart(wide(0));
        let (date, serial) = apart(wide(8));
        let flags = narrow(40);
        Self {
            response_time: time,
            date,
            last_modified: wide(16),
            initial_age_s: narrow(24).min(MAX_SECONDS),
            lifetime_s: narrow(28).min(MAX_SECONDS),
            swr_s: narrow(32).min(MAX_SECONDS),
            sie_s: narrow(36).min(MAX_SECONDS),
            flags: TimesFlags(flags & TimesFlags::ALL),
            purge_number: upper << 24 | u64::from(flags >> FLAG_BITS),
            serial: serial as u32,
        }
    }

    /// The last modification, if the origin told one.
    pub fn last_modified(&self) -> Option<i64> {
        (self.last_modified != Self::UNKNOWN).then_some(self.last_modified)
    }
}

/// current_age in seconds (RFC 9111 section 4.2.3), at most [`MAX_SECONDS`]: the value of the Age
/// field. An answer from the future ([`AHEAD_S_MAX`]) has the highest age: it was stored while the
/// clock was ahead, at an unknown time.
#[inline]
pub fn age(times: &Times, now: i64) -> u32 {
    let resident_s = now.saturating_sub(times.response_time);
    if resident_s < -AHEAD_S_MAX {
        return MAX_SECONDS;
    }
    let resident_s = resident_s.max(0);
    let age_s = resident_s.saturating_add(i64::from(times.initial_age_s));
    u32::try_from(age_s).unwrap_or(MAX_SECONDS).min(MAX_SECONDS)
}

/// The second at which an answer with these times is judged for a request: when the request came,
/// or later, if the answer came while the request waited. After the clock was set back an answer
/// may be from the future all the same: at most `now` is taken.
#[inline]
pub fn judged_at(times: &Times, received_s: i64, now: impl FnOnce() -> i64) -> i64 {
    if times.response_time <= received_s {
        return received_s;
    }
    now().clamp(received_s, times.response_time)
}

/// Seconds of freshness left, negative once stale: the `ttl` of Cache-Status (RFC 9211 section
/// 2.4).
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
        purge_number: 0x1234_5678_9abc,
        serial: 0xab_cdef,
    };

    #[test]
    fn round_trip() {
        assert_eq!(Times::from_bytes(&SAMPLE.to_bytes()), SAMPLE);
        assert!(size_of::<Times>() <= 64);
        assert_eq!(SAMPLE.last_modified(), None);
    }

    #[test]
    fn an_answer_that_came_while_its_request_waited_is_not_from_the_future() {
        let came_s = SAMPLE.response_time;
        let age_of = |received_s, now_s| age(&SAMPLE, judged_at(&SAMPLE, received_s, || now_s));
        assert_eq!(age_of(came_s + 5, came_s + 9), 15, "it was there before");
        assert_eq!(age_of(came_s - 100, came_s + 9), 10, "it came 100 s after the request");
        assert_eq!(age_of(came_s - 100, came_s - 1), 10, "a second before the clock was set back");
        assert_eq!(age_of(came_s - 100, came_s - 99), MAX_SECONDS, "the clock was set back");
        assert_eq!(age_of(came_s - 100, came_s - 300), MAX_SECONDS, "before the request came");
    }

    #[test]
    fn a_purge_number_fits_beside_everything_else() {
        for response_time in [-TIME_END, -1, 0, 1_700_000_000, TIME_END - 1] {
            for purge_number in [0, 1, 0xff_ffff, 0x100_0000, Times::PURGE_NUMBER_MAX] {
                let times = Times { response_time, purge_number, ..SAMPLE };
                assert_eq!(Times::from_bytes(&times.to_bytes()), times);
            }
        }
        let beyond = Times { response_time: i64::MAX, purge_number: u64::MAX, ..SAMPLE };
        let read = Times::from_bytes(&beyond.to_bytes());
        assert_eq!(
            (read.response_time, read.purge_number),
            (TIME_END - 1, Times::PURGE_NUMBER_MAX)
        );
    }

    #[test]
    fn records_from_before_there_were_purge_numbers_have_none() {
        for response_time in [-5_i64, 0, 1_700_000_000] {
            let times =
                Times { purge_number: 0, serial: 0, response_time, date: response_time, ..SAMPLE };
            let mut bytes = times.to_bytes();
            assert_eq!(bytes[..8], response_time.to_le_bytes(), "as it was written before");
            assert_eq!(bytes[8..16], response_time.to_le_bytes(), "the Date too");
            assert_eq!(bytes[41..44], [0; 3]);
            bytes[40] = 0xff;
            let read = Times::from_bytes(&bytes);
            assert_eq!((read.response_time, read.purge_number), (response_time, 0));
            assert_eq!((read.date, read.serial), (response_time, 0));
        }
    }

    #[test]
    fn a_serial_number_fits_beside_any_date() {
        for date in [-TIME_END, -1, 0, 1_700_000_000, TIME_END - 1] {
            for serial in [0, 1, SERIAL_END - 1] {
                let times = Times { date, serial, ..SAMPLE };
                assert_eq!(Times::from_bytes(&times.to_bytes()), times);
            }
        }
    }

    #[test]
    fn an_answer_from_the_future_is_stale() {
        assert_eq!(age(&SAMPLE, 1_000_000 - AHEAD_S_MAX - 1), MAX_SECONDS);
        assert!(ttl(&SAMPLE, 0) < 0);
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
        assert_eq!(age(&SAMPLE, 1_000_000 - AHEAD_S_MAX), 10);
        assert_eq!(age(&SAMPLE, i64::MAX), MAX_SECONDS);
        assert_eq!(ttl(&SAMPLE, 1_000_049), 1);
        assert_eq!(ttl(&SAMPLE, 1_000_060), -10);
    }
}
