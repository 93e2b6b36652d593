//! A token bucket that all cores share: a rate, a size, and one atomic number.
//!
//! The number is the time up to which the income of the bucket is given away. Tokens are ordered:
//! who takes some learns when they are there. So nobody waits in a queue, every waiting client has
//! one time to wait for, and clients that order in turn get equal shares. The clock is an argument.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// The start of the clock in ns: a bucket may be full for times before the program started.
pub const CLOCK_START_NS: u64 = 1 << 62;

/// Longest time in ns that a number of bytes stands for: 36 years.
const LONGEST_NS: u64 = 1 << 60;

/// The time in ns that the share of a client stands for if it is alone.
const TURN_NS: u64 = 100_000_000;

/// Bytes of the smallest share, if they come within a second.
const SHARE_BYTES_MIN: u64 = 512;

/// See the module's text.
#[derive(Debug)]
pub struct TokenBucket {
    /// Bytes that come in each second, at least 1.
    rate: u64,
    /// Most bytes that it holds.
    size: u64,
    /// The time up to which its income is given away, in ns.
    spent_until_ns: AtomicU64,
    /// Bytes above its size, which it had at its beginning. They are spent first.
    extra: AtomicU64,
}

impl TokenBucket {
    /// A bucket that holds `level` bytes at `now_ns`, perhaps more than its size.
    pub fn new(rate: u64, size: u64, level: u64, now_ns: u64) -> Self {
        let bucket = Self {
            rate: rate.max(1),
            size,
            spent_until_ns: AtomicU64::new(0),
            extra: AtomicU64::new(level.saturating_sub(size)),
        };
        let held_ns = bucket.time_ns(level.min(size));
        bucket.spent_until_ns.store(now_ns.saturating_sub(held_ns), Relaxed);
        bucket
    }

    /// Bytes that come in each second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Most bytes that it holds.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The time in which as many bytes come in.
    fn time_ns(&self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.rate);
        u64::try_from(ns).unwrap_or(LONGEST_NS).min(LONGEST_NS)
    }

    fn bytes_in(&self, ns: u64) -> u64 {
        let bytes = u128::from(ns) * u128::from(self.rate) / u128::from(SECOND_NS);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The bytes in it; 0 if more are ordered than have come in.
    pub fn level(&self, now_ns: u64) -> u64 {
        let spent_until_ns = self.spent_until_ns.load(Relaxed);
        let held = self.bytes_in(now_ns.saturating_sub(spent_until_ns)).min(self.size);
        held.saturating_add(self.extra.load(Relaxed))
    }

    /// Whether it is full, so that nothing is lost with it.
    pub fn is_full(&self, now_ns: u64) -> bool {
        self.level(now_ns) >= self.size
    }

    /// Takes bytes out of it. Returns the time at which they are there: not after `now_ns` if they
    /// are there already.
    pub fn take(&self, bytes: u64, now_ns: u64) -> u64 {
        let bytes = bytes - self.take_extra(bytes);
        let cost_ns = self.time_ns(bytes);
        let earliest_ns = now_ns.saturating_sub(self.time_ns(self.size));
        let after = |before: u64| before.max(earliest_ns).saturating_add(cost_ns);
        let update = |before| Some(after(before));
        match self.spent_until_ns.fetch_update(Relaxed, Relaxed, update) {
            Ok(before) | Err(before) => after(before),
        }
    }

    /// Takes as many of these bytes as there are above its size.
    fn take_extra(&self, bytes: u64) -> u64 {
        if self.extra.load(Relaxed) == 0 {
            return 0;
        }
        let left = |extra: u64| Some(extra.saturating_sub(bytes));
        match self.extra.fetch_update(Relaxed, Relaxed, left) {
            Ok(before) | Err(before) => before.min(bytes),
        }
    }

    /// The time at which all that is ordered has come in. An order may come in earlier than it was
    /// said, since others give back.
    pub fn spent_until_ns(&self) -> u64 {
        self.spent_until_ns.load(Relaxed)
    }

    /// Puts bytes back that were taken and not used. As long as there are bytes above its size,
    /// these were such.
    pub fn give_back(&self, bytes: u64) {
        let more = |extra: u64| (extra > 0).then(|| extra.saturating_add(bytes));
        if self.extra.fetch_update(Relaxed, Relaxed, more).is_ok() {
            return;
        }
        let cost_ns = self.time_ns(bytes);
        _ = self
            .spent_until_ns
            .fetch_update(Relaxed, Relaxed, |before| Some(before.saturating_sub(cost_ns)));
    }

    /// The bytes that one client should take now: a quarter of those that are there, so that others
    /// have some of them too, otherwise what comes in a tenth of a second; less if many clients
    /// wait, so that the turn of each comes soon.
    pub fn share(&self, now_ns: u64) -> u64 {
        let least = SHARE_BYTES_MIN.min(self.rate);
        let ordered_ns = self.spent_until_ns.load(Relaxed).saturating_sub(now_ns).min(LONGEST_NS);
        let turn_ns = u128::from(TURN_NS) * u128::from(TURN_NS) / u128::from(TURN_NS + ordered_ns);
        let turn = self.bytes_in(u64::try_from(turn_ns).unwrap_or(TURN_NS));
        let level = self.level(now_ns);
        turn.max(level / 4).max(level.min(SHARE_BYTES_MIN)).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = CLOCK_START_NS;

    fn after(bucket: &TokenBucket, bytes: u64, now: u64) -> u64 {
        bucket.take(bytes, now).saturating_sub(START)
    }

    #[test]
    fn what_is_there_is_taken_at_once_and_the_rest_comes_at_the_rate() {
        let bucket = TokenBucket::new(1000, 4000, 2000, START);
        assert_eq!(bucket.level(START), 2000);
        assert!(bucket.take(2000, START) <= START);
        assert_eq!(after(&bucket, 500, START), SECOND_NS / 2);
        assert_eq!(after(&bucket, 500, START), SECOND_NS);
        // After 11 seconds without use it is full, and holds no more than its size.
        let later = START + 11 * SECOND_NS;
        assert_eq!(bucket.level(later), 4000);
        assert!(bucket.is_full(later));
        assert!(bucket.take(4000, later) <= later);
        assert_eq!(bucket.take(1, later), later + SECOND_NS / 1000);
    }

    /// What each of the clients gets in the first ten seconds.
    fn ten_seconds(bucket: &TokenBucket, clients: usize) -> Vec<u64> {
        ten_seconds_after(0, bucket, clients)
    }

    /// What each of the clients gets in the ten seconds after `seconds`, if it orders again when
    /// its bytes are there.
    fn ten_seconds_after(seconds: u64, bucket: &TokenBucket, clients: usize) -> Vec<u64> {
        let (mut next, mut sent) = (vec![START; clients], vec![0_u64; clients]);
        let begin = START + seconds * SECOND_NS;
        let end = begin + 10 * SECOND_NS;
        // The earliest has its turn.
        while let Some(one) = (0..clients).min_by_key(|one| next[*one])
            && next[one] < end
        {
            let bytes = bucket.share(next[one]).min(262_144);
            next[one] = bucket.take(bytes, next[one]).max(next[one]);
            if (begin..=end).contains(&next[one]) {
                sent[one] += bytes;
            }
        }
        sent
    }

    #[test]
    fn in_ten_seconds_no_more_passes_than_level_and_income_for_any_number_of_clients() {
        for clients in [1, 3, 50] {
            let bucket = TokenBucket::new(100_000, 100_000, 50_000, START);
            let all: u64 = ten_seconds(&bucket, clients).iter().sum();
            assert!((1_020_000..=1_050_000).contains(&all), "{clients} clients: {all}");
        }
    }

    #[test]
    fn the_income_is_shared_fairly() {
        for clients in [2, 10, 50] {
            // The first order of each is smaller than that of the one before: at the beginning the
            // difference is that of the turn of a client that is alone, and later it is small.
            for (seconds, most_apart) in [(0, 12_000), (2, 1_000_000 / clients as u64 / 10)] {
                let bucket = TokenBucket::new(100_000, 100_000, 0, START);
                let sent = ten_seconds_after(seconds, &bucket, clients);
                let (least, most) = (sent.iter().min(), sent.iter().max());
                let (least, most) = (least.expect("clients"), most.expect("clients"));
                assert!(most - least <= most_apart, "{clients} clients: {least} to {most}");
            }
        }
    }

    #[test]
    fn an_oversized_beginning_is_spent_first_and_does_not_come_back() {
        let bucket = TokenBucket::new(100, 1000, 2500, START);
        assert_eq!(bucket.level(START), 2500);
        assert!(bucket.take(1500, START) <= START);
        let later = START + 100 * SECOND_NS;
        assert_eq!(bucket.level(later), 1000);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let bucket = TokenBucket::new(1000, 1000, 0, START);
        assert_eq!(after(&bucket, 1000, START), SECOND_NS);
        bucket.give_back(1000);
        assert_eq!(after(&bucket, 500, START), SECOND_NS / 2);
    }

    #[test]
    fn an_oversized_beginning_outlives_an_order_that_is_given_back() {
        let bucket = TokenBucket::new(100, 1000, 2500, START);
        assert!(bucket.take(600, START) <= START);
        bucket.give_back(500);
        assert_eq!(bucket.level(START), 2400);
        assert!(bucket.take(1400, START) <= START);
        bucket.give_back(100);
        assert_eq!(bucket.level(START), 1000, "none is above its size any more");
    }

    #[test]
    fn extreme_values_neither_overflow_nor_stop_the_clock() {
        for (rate, size) in [(1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (0, 0)] {
            let bucket = TokenBucket::new(rate, size, size, START);
            for bytes in [0, 1, u64::MAX, u64::MAX] {
                let _ = bucket.take(bytes, START);
            }
            bucket.give_back(u64::MAX);
            assert!(bucket.share(START) >= 1);
        }
    }

    #[test]
    fn the_share_shrinks_when_much_is_ordered() {
        let bucket = TokenBucket::new(1_000_000, 1_000_000, 0, START);
        assert_eq!(bucket.share(START), 100_000);
        let _ = bucket.take(900_000, START);
        assert_eq!(bucket.share(START), 10_000);
        let slow = TokenBucket::new(10, 10, 0, START);
        assert_eq!(slow.share(START), 10);
    }
}
