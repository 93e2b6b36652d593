//! Sets of closed ranges, searched in logarithmic time.

/// Of this many values one is also in a small table that the processor's caches have room for. A
/// search begins there, and touches little of the rest.
pub(crate) const SAMPLED: usize = 64;

/// Disjoint ranges in ascending order. The first values are apart from the last ones: only they are
/// searched, and so they are all that has to be in the processor's caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeSet<T> {
    samples: Box<[T]>,
    firsts: Box<[T]>,
    lasts: Box<[T]>,
}

impl<T: Ord + Copy> RangeSet<T> {
    /// The union of `ranges`, each `(first, last)` with `first <= last`.
    pub(crate) fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut firsts: Vec<T> = Vec::with_capacity(ranges.len());
        let mut lasts: Vec<T> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match lasts.last_mut() {
                Some(previous) if first <= *previous => *previous = last.max(*previous),
                _ => {
                    firsts.push(first);
                    lasts.push(last);
                }
            }
        }
        firsts.shrink_to_fit();
        lasts.shrink_to_fit();
        let samples = firsts.iter().step_by(SAMPLED).copied().collect();
        Self { samples, firsts: firsts.into_boxed_slice(), lasts: lasts.into_boxed_slice() }
    }

    /// Whether `value` is in one of the ranges.
    #[inline]
    pub(crate) fn contains(&self, value: T) -> bool {
        let block = self.samples.partition_point(|first| *first <= value);
        let begin = block.saturating_sub(1) * SAMPLED;
        let end = (block * SAMPLED).min(self.firsts.len());
        let firsts = self.firsts.get(begin..end).unwrap_or_default();
        let after = begin + firsts.partition_point(|first| *first <= value);
        after.checked_sub(1).and_then(|at| self.lasts.get(at)).is_some_and(|last| value <= *last)
    }
}

/// Reads `first-last` or a single number.
pub(crate) fn parse_numbers(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_merged() {
        let set = RangeSet::new(vec![(20, 30), (1, 5), (4, 9), (22, 25), (9, 9)]);
        assert_eq!((set.firsts.as_ref(), set.lasts.as_ref()), (&[1, 20][..], &[9, 30][..]));
        for (value, inside) in
            [(0, false), (1, true), (9, true), (10, false), (20, true), (30, true), (31, false)]
        {
            assert_eq!(set.contains(value), inside, "{value}");
        }
        assert!(!RangeSet::new(Vec::new()).contains(1));
    }

    #[test]
    fn each_value_of_a_long_set_is_found() {
        for count in [1, SAMPLED - 1, SAMPLED, SAMPLED + 1, 3 * SAMPLED, 1000] {
            let set = RangeSet::new((1..=count).map(|n| (3 * n, 3 * n + 1)).collect());
            for value in 0..3 * count + 6 {
                let inside = (3..3 * count + 2).contains(&value) && value % 3 != 2;
                assert_eq!(set.contains(value), inside, "{value} of {count}");
            }
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_numbers("80"), Some((80, 80)));
        assert_eq!(parse_numbers("1025-65535"), Some((1025, 65535)));
        for bad in ["", "-", "x", "9-8", "65536", "80-", "-80"] {
            assert_eq!(parse_numbers(bad), None, "{bad}");
        }
    }
}
