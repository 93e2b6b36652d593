//! Distance between two parties: delay and loss, added by the laboratory itself.

use crate::mix::{Luck, unit};

/// Bytes of payload in one segment (Ethernet without options).
const SEGMENT_BYTES: u64 = 1_460;

/// Segments that a server sends before the first acknowledgement (RFC 6928).
const FIRST_WINDOW_SEGMENTS: u64 = 10;

/// Most segments in flight: 1.5 MB, what receivers of today allow on such distances.
const WINDOW_SEGMENTS_MAX: u64 = 1_024;

/// Fewest segments in flight with which the loss of one is noticed by duplicate acknowledgements.
const FAST_RETRANSMIT_SEGMENTS: u64 = 4;

/// How long a sender waits before it repeats what nobody acknowledged, in µs (Linux' minimum).
const RETRANSMIT_TIMEOUT_US: u64 = 200_000;

/// A stretch of network between two parties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Delay in one direction, in µs.
    pub one_way_us: u64,
    /// Share of segments lost in each direction, 0 to 1.
    pub loss: f64,
}

impl Link {
    /// No delay, no loss.
    pub const NONE: Self = Self { one_way_us: 0, loss: 0.0 };

    /// How an answer of `bytes` arrives, counted from the moment its request was sent (without the
    /// server's own time). The same `luck` loses the same segments.
    #[must_use]
    pub fn delivery(&self, bytes: u64, luck: u64) -> Delivery {
        let mut source = Luck::new(luck);
        let round_trip_us = self.one_way_us.saturating_mul(2);
        let request_lost = self.loss > 0.0 && unit(source.draw()) < self.loss;
        let first_byte_us =
            round_trip_us.saturating_add(if request_lost { RETRANSMIT_TIMEOUT_US } else { 0 });
        Delivery { link: *self, bytes, first_byte_us, luck: source }
    }
}

/// The schedule of one answer.
#[derive(Clone, Debug)]
pub struct Delivery {
    link: Link,
    bytes: u64,
    first_byte_us: u64,
    luck: Luck,
}

impl Delivery {
    /// When the first byte can arrive, in µs after the request was sent: one round trip if nothing
    /// is lost.
    #[must_use]
    pub fn first_byte_us(&self) -> u64 {
        self.first_byte_us
    }

    /// The windows of segments, as (µs after the request was sent, bytes arrived until then). Both
    /// never sink; the last one has all bytes. There is at least one.
    #[must_use]
    pub fn steps(&self) -> Steps {
        Steps {
            link: self.link,
            bytes: self.bytes,
            sent_bytes: 0,
            at_us: self.first_byte_us,
            window_segments: FIRST_WINDOW_SEGMENTS,
            luck: self.luck.clone(),
            done: false,
        }
    }

    /// When the last byte arrives, in µs after the request was sent.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.steps().last().map_or(self.first_byte_us, |(at_us, _)| at_us)
    }
}

/// Iterator over the windows of a [`Delivery`].
#[derive(Clone, Debug)]
pub struct Steps {
    link: Link,
    bytes: u64,
    sent_bytes: u64,
    at_us: u64,
    window_segments: u64,
    luck: Luck,
    done: bool,
}

impl Iterator for Steps {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.done {
            return None;
        }
        if self.link == Link::NONE {
            self.done = true;
            return Some((self.at_us, self.bytes));
        }
        let round_trip_us = self.link.one_way_us.saturating_mul(2);
        if self.sent_bytes > 0 {
            self.at_us = self.at_us.saturating_add(round_trip_us);
        }
        let left_segments = (self.bytes - self.sent_bytes).div_ceil(SEGMENT_BYTES);
        let segments = left_segments.min(self.window_segments);
        if self.loses_one_of(segments.max(1)) {
            let repair_us = if segments < FAST_RETRANSMIT_SEGMENTS {
                RETRANSMIT_TIMEOUT_US
            } else {
                round_trip_us
            };
            self.at_us = self.at_us.saturating_add(repair_us);
            self.window_segments = (self.window_segments / 2).max(1);
        } else {
            self.window_segments = (self.window_segments * 2).min(WINDOW_SEGMENTS_MAX);
        }
        self.sent_bytes = self.bytes.min(self.sent_bytes + segments * SEGMENT_BYTES);
        self.done = self.sent_bytes == self.bytes;
        Some((self.at_us, self.sent_bytes))
    }
}

impl Steps {
    fn loses_one_of(&mut self, segments: u64) -> bool {
        let exponent = i32::try_from(segments).unwrap_or(i32::MAX);
        self.link.loss > 0.0 && self.luck.draw_unit() > (1.0 - self.link.loss).powi(exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Link = Link { one_way_us: 40_000, loss: 0.0 };

    #[test]
    fn without_distance_everything_is_there_at_once() {
        let delivery = Link::NONE.delivery(1 << 30, 7);
        assert_eq!(delivery.steps().collect::<Vec<_>>(), [(0, 1 << 30)]);
        assert_eq!((delivery.first_byte_us(), delivery.total_us()), (0, 0));
    }

    #[test]
    fn windows_double_every_round_trip() {
        let steps: Vec<_> = FAR.delivery(100_000, 7).steps().collect();
        assert_eq!(steps, [(80_000, 14_600), (160_000, 43_800), (240_000, 100_000)]);
        assert_eq!(FAR.delivery(0, 7).steps().collect::<Vec<_>>(), [(80_000, 0)]);
        assert_eq!(FAR.delivery(14_600, 7).total_us(), 80_000);
        assert_eq!(FAR.delivery(14_601, 7).total_us(), 160_000);
    }

    #[test]
    fn a_loss_costs_a_round_trip_or_a_timeout() {
        let lossy = Link { one_way_us: 40_000, loss: 0.01 };
        let small: Vec<u64> =
            (0..10_000).map(|luck| lossy.delivery(1_000, luck).total_us()).collect();
        let timeouts = small.iter().filter(|total_us| **total_us == 280_000).count();
        assert!((150..250).contains(&timeouts), "request or answer lost: {timeouts}");
        let medium: Vec<u64> =
            (0..10_000).map(|luck| lossy.delivery(14_600, luck).total_us()).collect();
        let repaired = medium.iter().filter(|total_us| **total_us == 160_000).count();
        assert!((850..1_050).contains(&repaired), "1 - 0.99^10 of all: {repaired}");
    }

    #[test]
    fn the_same_luck_gives_the_same_schedule() {
        let lossy = Link { one_way_us: 10, loss: 0.2 };
        for luck in 0..100 {
            let delivery = lossy.delivery(3_000_000, luck);
            let steps: Vec<_> = delivery.steps().collect();
            assert_eq!(steps, lossy.delivery(3_000_000, luck).steps().collect::<Vec<_>>());
            assert!(steps.is_sorted());
            assert_eq!(steps.last().map(|step| step.1), Some(3_000_000));
            assert_eq!(steps.last().map(|step| step.0), Some(delivery.total_us()));
        }
    }
}
