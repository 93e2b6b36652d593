//! The course of a pass, second by second.

use humboldt_lab_record::BangSecond;

/// A day and more. Later seconds are not kept; the totals go on.
const SECONDS_MAX: usize = 100_000;

/// Counts the requests that end in each second.
#[derive(Debug, Default)]
pub(super) struct Course {
    seconds: Vec<BangSecond>,
    current: BangSecond,
}

impl Course {
    /// An answer, or a fault without one, at this moment of the pass.
    pub(super) fn add(&mut self, at_us: u64, body_bytes: Option<u64>) {
        self.go_on_to(at_us);
        match body_bytes {
            Some(body_bytes) => {
                self.current.answers += 1;
                self.current.body_bytes += body_bytes;
            }
            None => self.current.faults += 1,
        }
    }

    /// This many requests are under way at this moment.
    pub(super) fn tick(&mut self, at_us: u64, open: u32) {
        self.go_on_to(at_us);
        self.current.open = open;
    }

    /// All whole seconds. The part of one at the end would look like a slow one; it is in the
    /// totals.
    pub(super) fn end(mut self, at_us: u64) -> Vec<BangSecond> {
        self.go_on_to(at_us);
        self.seconds
    }

    fn go_on_to(&mut self, at_us: u64) {
        while self.seconds.len() < SECONDS_MAX && at_us / 1_000_000 > self.seconds.len() as u64 {
            let at_s = (self.seconds.len() + 1) as f64;
            let next = BangSecond { open: self.current.open, ..BangSecond::default() };
            self.seconds.push(BangSecond { at_s, ..std::mem::replace(&mut self.current, next) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_without_answers_are_seconds_too() {
        let mut course = Course::default();
        course.add(10, Some(100));
        course.tick(500_000, 7);
        course.add(999_999, Some(50));
        course.add(3_200_000, None);
        course.add(3_300_000, Some(1));
        let second = |at_s, answers, body_bytes, faults, open| BangSecond {
            at_s,
            answers,
            body_bytes,
            faults,
            open,
        };
        let expected = [
            second(1.0, 2, 150, 0, 7),
            second(2.0, 0, 0, 0, 7),
            second(3.0, 0, 0, 0, 7),
            second(4.0, 1, 1, 1, 7),
        ];
        assert_eq!(course.end(4_300_000), expected);
        assert!(Course::default().end(999_999).is_empty());
    }
}
