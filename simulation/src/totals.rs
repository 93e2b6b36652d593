//! What a simulation has seen: one that sees nothing proves nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// Counts by name.
#[derive(Default)]
pub(crate) struct Totals(RefCell<BTreeMap<String, u64>>);

/// Between the counts of a line.
const BETWEEN: &str = ", ";

impl Totals {
    pub(crate) fn add(&self, name: &str, count: u64) {
        let mut counts = self.0.borrow_mut();
        match counts.get_mut(name) {
            Some(known) => *known += count,
            None => _ = counts.insert(name.to_owned(), count),
        }
    }

    /// Adds the counts of a line.
    pub(crate) fn add_line(&self, line: &str) {
        for (count, name) in line.split(BETWEEN).filter_map(|part| part.split_once(' ')) {
            if let Ok(count) = count.parse() {
                self.add(name, count);
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.borrow().get(name).copied().unwrap_or(0)
    }

    /// All counts in one line.
    pub(crate) fn line(&self) -> String {
        let parts = self.0.borrow();
        let parts: Vec<String> =
            parts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        parts.join(BETWEEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let (one, other) = (Totals::default(), Totals::default());
        one.add("hits", 3);
        one.add("lives", 2);
        one.add("hits", 1);
        other.add_line(&one.line());
        other.add_line("no counts");
        assert_eq!(other.line(), "4 hits, 2 lives");
        assert_eq!((other.get("hits"), other.get("misses")), (4, 0));
    }
}
