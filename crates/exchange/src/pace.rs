//! The pace at which a client is sent bytes, where buckets limit it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::token_bucket::{CLOCK_START_NS, TokenBucket};
use tokio::time::{Instant, Sleep};

/// Longest wait in ns before a look whether others have given back what they had ordered.
const LOOK_EVERY_NS: u64 = 200_000_000;

/// The time for buckets, in ns.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    let passed = now.saturating_duration_since(*START.get_or_init(|| now));
    CLOCK_START_NS.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
}

/// Buckets that limit one client together, and the bytes that it may send now. It waits for one
/// time, with one timer.
#[derive(Debug)]
pub(crate) struct Pace {
    buckets: Vec<Arc<TokenBucket>>,
    /// Bytes that were taken from the buckets and may be sent.
    granted: u64,
    /// Bytes that were taken from the buckets, and the time at which they are there.
    ordered: Option<(u64, u64)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// The pace of these buckets; `None` without any.
    pub(crate) fn new(buckets: Vec<Arc<TokenBucket>>) -> Option<Self> {
        (!buckets.is_empty()).then(|| Self { buckets, granted: 0, ordered: None, timer: None })
    }

    /// How many of `most` bytes, at least one, may be sent now. If it is none, bytes are on order:
    /// [`Pace::poll`] is ready when they are there.
    pub(crate) fn allowance(&mut self, most: u64) -> u64 {
        if self.granted == 0 {
            self.order(most.max(1), now_ns());
        }
        self.granted.min(most)
    }

    fn order(&mut self, most: u64, now_ns: u64) {
        let (bytes, ready_ns) = self.ordered.take().unwrap_or_else(|| {
            let shares = self.buckets.iter().map(|bucket| bucket.share(now_ns));
            let bytes = shares.min().unwrap_or(most).min(most);
            let times = self.buckets.iter().map(|bucket| bucket.take(bytes, now_ns));
            (bytes, times.max().unwrap_or(now_ns))
        });
        match ready_ns <= now_ns {
            true => self.granted = bytes,
            false => self.ordered = Some((bytes, ready_ns)),
        }
    }

    /// Whether bytes are on order, and none may be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        self.ordered.is_some()
    }

    /// Ready when the bytes on order are there.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some((bytes, ready_ns)) = self.ordered {
            let now_ns = now_ns();
            let spent_until_ns = self.buckets.iter().map(|bucket| bucket.spent_until_ns()).max();
            let ready_ns = ready_ns.min(spent_until_ns.unwrap_or(ready_ns));
            if ready_ns <= now_ns {
                (self.granted, self.ordered) = (bytes, None);
                break;
            }
            let wait = Duration::from_nanos((ready_ns - now_ns).min(LOOK_EVERY_NS));
            let at = Instant::now() + wait;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(at),
                None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
            }
            let Some(timer) = &mut self.timer else { break };
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(())
    }

    /// As [`Pace::allowance`], but waits until it is not 0.
    pub(crate) fn poll_allowance(&mut self, cx: &mut Context<'_>, most: u64) -> Poll<u64> {
        loop {
            match self.allowance(most) {
                0 => ready!(self.poll(cx)),
                bytes => return Poll::Ready(bytes),
            }
        }
    }

    /// Notes bytes that were sent. More than were allowed, as with the frame of a body, are taken
    /// from what comes next.
    pub(crate) fn spend(&mut self, bytes: u64) {
        let beyond = bytes.saturating_sub(self.granted);
        self.granted = self.granted.saturating_sub(bytes);
        if beyond > 0 {
            let now_ns = now_ns();
            self.buckets.iter().for_each(|bucket| _ = bucket.take(beyond, now_ns));
        }
    }

    /// Gives back what the client does not use now: it is for others.
    pub(crate) fn give_back(&mut self) {
        let ordered = self.ordered.take().map_or(0, |(bytes, _)| bytes);
        let unused = std::mem::take(&mut self.granted) + ordered;
        if unused > 0 {
            self.buckets.iter().for_each(|bucket| bucket.give_back(unused));
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn in_a_runtime(test: impl Future<Output = ()>) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(test);
    }

    fn bucket(rate: u64, size: u64, level: u64) -> Arc<TokenBucket> {
        Arc::new(TokenBucket::new(rate, size, level, now_ns()))
    }

    /// The bytes that a client with this pace gets in ten seconds of the clock.
    async fn in_ten_seconds(mut pace: Pace) -> u64 {
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(10) {
            let bytes = poll_fn(|cx| pace.poll_allowance(cx, 4096)).await;
            pace.spend(bytes);
            sent += bytes;
        }
        sent
    }

    #[test]
    fn a_client_has_the_pace_of_the_slowest_of_its_buckets() {
        in_a_runtime(async {
            let both = vec![bucket(50_000, 50_000, 0), bucket(8_000, 8_000, 0)];
            let sent = in_ten_seconds(Pace::new(both).expect("a pace")).await;
            assert!((79_000..=84_000).contains(&sent), "{sent}");
            assert!(Pace::new(Vec::new()).is_none());
        });
    }

    #[test]
    fn clients_of_one_bucket_share_it() {
        in_a_runtime(async {
            let shared = bucket(80_000, 8_000, 0);
            let pace = || Pace::new(vec![Arc::clone(&shared)]).expect("a pace");
            let (one, other) = tokio::join!(in_ten_seconds(pace()), in_ten_seconds(pace()));
            assert!((780_000..=830_000).contains(&(one + other)), "{one} + {other}");
            assert!(one.abs_diff(other) < 10_000, "{one} and {other}");
        });
    }

    #[test]
    fn one_who_leaves_gives_back_what_it_has_on_order() {
        in_a_runtime(async {
            let shared = bucket(1_000, 1_000, 0);
            let mut leaves = Pace::new(vec![Arc::clone(&shared)]).expect("a pace");
            assert_eq!(leaves.allowance(500), 0);
            assert!(leaves.is_waiting());
            drop(leaves);
            assert_eq!(shared.take(1, now_ns()) - now_ns(), 1_000_000);
        });
    }

    #[test]
    fn those_who_wait_move_up_when_others_leave() {
        in_a_runtime(async {
            let shared = bucket(1_000, 1_000, 0);
            let mut paces: Vec<Pace> =
                (0..20).map(|_| Pace::new(vec![Arc::clone(&shared)]).expect("a pace")).collect();
            // The orders of all take more than a second.
            paces.iter_mut().for_each(|pace| assert_eq!(pace.allowance(500), 0));
            let mut last = paces.pop().expect("the last");
            drop(paces);
            let start = Instant::now();
            assert!(poll_fn(|cx| last.poll_allowance(cx, 500)).await > 0);
            assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
        });
    }

    #[test]
    fn bytes_beyond_the_allowance_are_a_debt() {
        in_a_runtime(async {
            let own = bucket(1_000, 1_000, 100);
            let mut pace = Pace::new(vec![Arc::clone(&own)]).expect("a pace");
            assert_eq!(pace.allowance(100), 100);
            pace.spend(600);
            let start = Instant::now();
            assert_eq!(poll_fn(|cx| pace.poll_allowance(cx, 100)).await, 100);
            assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
        });
    }
}
