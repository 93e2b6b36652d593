//! A highest rate for requests.

/// This much of a stall, in µs, is made up for at once; the rest is lost, or a burst would follow.
const CATCH_UP_MAX_US: f64 = 10_000.0;

/// When the next request may begin. All times are in µs since the begin of the run.
#[derive(Debug)]
pub(super) struct Pace {
    interval_us: f64,
    due_us: f64,
}

impl Pace {
    pub(super) fn new(requests_per_s_max: f64) -> Self {
        Self { interval_us: 1e6 / requests_per_s_max, due_us: 0.0 }
    }

    /// How long the next request has to wait.
    pub(super) fn until_next_us(&self, now_us: u64) -> u64 {
        (self.due_us - now_us as f64).max(0.0).ceil() as u64
    }

    /// A request begins.
    pub(super) fn begin(&mut self, now_us: u64) {
        self.due_us = (self.due_us + self.interval_us).max(now_us as f64 - CATCH_UP_MAX_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that may begin at this moment.
    fn burst(pace: &mut Pace, now_us: u64) -> u32 {
        let mut count = 0;
        while pace.until_next_us(now_us) == 0 {
            pace.begin(now_us);
            count += 1;
        }
        count
    }

    #[test]
    fn the_rate_is_kept_and_only_a_short_stall_is_made_up_for() {
        let mut pace = Pace::new(2_500.0);
        assert_eq!(burst(&mut pace, 0), 1);
        assert_eq!(pace.until_next_us(0), 400);
        let sum: u32 = (1..=1_000).map(|at_ms| burst(&mut pace, at_ms * 1_000)).sum();
        assert_eq!(sum, 2_500);
        assert_eq!(burst(&mut pace, 10_000_000), 27);
    }
}
