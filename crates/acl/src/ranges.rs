//! Sets of closed ranges, searched in logarithmic time.

/// Disjoint ranges in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeSet<T>(Box<[(T, T)]>);

impl<T: Ord + Copy> RangeSet<T> {
    /// The union of `ranges`, each `(first, last)` with `first <= last`.
    pub(crate) fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(previous) if first <= previous.1 => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into_boxed_slice())
    }

    /// Whether `value` is in one of the ranges.
    #[inline]
    pub(crate) fn contains(&self, value: T) -> bool {
        let after = self.0.partition_point(|range| range.0 <= value);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|range| value <= range.1)
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
        assert_eq!(set.0.as_ref(), [(1, 9), (20, 30)]);
        for (value, inside) in
            [(0, false), (1, true), (9, true), (10, false), (20, true), (30, true), (31, false)]
        {
            assert_eq!(set.contains(value), inside, "{value}");
        }
        assert!(!RangeSet::new(Vec::new()).contains(1));
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
