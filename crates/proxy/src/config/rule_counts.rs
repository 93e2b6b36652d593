//! How often each line of the lists that refuse has decided.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use humboldt_acl::RuleList;
use humboldt_conf::{List, RuleSource};

/// Most lines of one list that are counted one by one; those behind them are counted together.
pub const LINES_COUNTED_MAX: usize = 1000;

/// The counters of the lists of a configuration.
#[derive(Default)]
pub(crate) struct RuleCounts {
    lists: Vec<ListCounts>,
}

struct ListCounts {
    list: List,
    /// One for each line up to [`LINES_COUNTED_MAX`], then perhaps one for all others, and the last
    /// one for requests to which no line applies.
    lines: Vec<Line>,
    /// How many lines the list has.
    len: usize,
}

struct Line {
    of: LineOf,
    source: Option<Arc<RuleSource>>,
    /// Set when the configuration comes into force.
    cells: OnceLock<Arc<Cells>>,
}

/// The lines that a counter is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum LineOf {
    /// One.
    Line,
    /// Those behind the first [`LINES_COUNTED_MAX`].
    Others,
    /// None: no line applied, so the opposite of the last one held.
    None,
}

/// The counters of one line: one cell for each core, which alone writes to it.
struct Cells(Box<[Cell]>);

#[derive(Default)]
#[repr(align(64))]
struct Cell {
    decided: AtomicU64,
    reported: AtomicU64,
}

/// The counts of a line, summed over all cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// The list.
    pub list: List,
    /// Which of its lines.
    pub of: LineOf,
    /// The line, if it is one.
    pub source: Option<Arc<RuleSource>>,
    /// Decisions.
    pub decided: u64,
    /// Refusals among them that were only reported.
    pub reported: u64,
}

impl RuleCounts {
    /// The counters of these lists.
    pub(crate) fn new<'l>(lists: impl IntoIterator<Item = (List, &'l RuleList)>) -> Self {
        let lists = lists.into_iter().map(|(list, rules)| ListCounts::new(list, rules));
        Self { lists: lists.collect() }
    }

    /// Comes into force. A line that was there before goes on with its counts; of several with the
    /// same words, each with those of its like.
    pub(crate) fn begin(&self, cores: usize, earlier: Option<&Self>) {
        let mut kept = HashMap::new();
        for list in earlier.into_iter().flat_map(|earlier| &earlier.lists) {
            list.each_named(|name, line| _ = kept.insert(name, line.cells.get().cloned()));
        }
        for list in &self.lists {
            list.each_named(|name, line| {
                let before = kept.get(&name).cloned().flatten();
                line.cells.get_or_init(|| before.unwrap_or_else(|| Arc::new(Cells::new(cores))));
            });
        }
    }

    /// Counts a decision of a core: of the rule with this index, or of none.
    pub(crate) fn count(&self, core: usize, list: List, rule: Option<usize>, is_reported: bool) {
        let Some(counts) = self.lists.iter().find(|counts| counts.list == list) else { return };
        let line = counts.lines.get(counts.index(rule));
        let cells = line.and_then(|line| line.cells.get());
        let Some(cell) = cells.and_then(|cells| cells.0.get(core)) else { return };
        // Without a locked instruction: only the owning core writes.
        let add = |to: &AtomicU64| to.store(to.load(Relaxed).wrapping_add(1), Relaxed);
        add(&cell.decided);
        if is_reported {
            add(&cell.reported);
        }
    }

    /// All counts, in the order of the lists and of their lines.
    pub(crate) fn read(&self) -> Vec<RuleCount> {
        let all = self.lists.iter().flat_map(|counts| {
            counts.lines.iter().map(|line| {
                let cells = line.cells.get().map(|cells| &*cells.0).unwrap_or_default();
                let sum = |of: fn(&Cell) -> &AtomicU64| {
                    cells.iter().map(|cell| of(cell).load(Relaxed)).sum()
                };
                RuleCount {
                    list: counts.list,
                    of: line.of,
                    source: line.source.clone(),
                    decided: sum(|cell| &cell.decided),
                    reported: sum(|cell| &cell.reported),
                }
            })
        });
        all.collect()
    }
}

impl ListCounts {
    fn new(list: List, rules: &RuleList) -> Self {
        let line = |of, source| Line { of, source, cells: OnceLock::new() };
        let counted = (0..rules.len()).take(LINES_COUNTED_MAX);
        let mut lines: Vec<Line> =
            counted.map(|rule| line(LineOf::Line, rules.source(Some(rule)).cloned())).collect();
        if rules.len() > LINES_COUNTED_MAX {
            lines.push(line(LineOf::Others, None));
        }
        lines.push(line(LineOf::None, None));
        Self { list, lines, len: rules.len() }
    }

    /// The place of the counter of a rule, or of none.
    fn index(&self, rule: Option<usize>) -> usize {
        match rule.filter(|rule| *rule < self.len) {
            Some(rule) => rule.min(LINES_COUNTED_MAX),
            None => self.lines.len() - 1,
        }
    }

    /// Calls `with` with each line and its name: its words, and how many lines before it have the
    /// same.
    fn each_named<'a>(&'a self, mut with: impl FnMut((List, LineOf, &'a str, u32), &'a Line)) {
        let mut seen: HashMap<&str, u32> = HashMap::new();
        for line in &self.lines {
            let words = line.source.as_ref().map_or("", |source| &*source.text);
            let before = seen.entry(words).or_default();
            with((self.list, line.of, words, *before), line);
            *before += 1;
        }
    }
}

impl Cells {
    fn new(cores: usize) -> Self {
        Self((0..cores.max(1)).map(|_| Cell::default()).collect())
    }
}

#[cfg(test)]
mod tests {
    use humboldt_acl::AclSet;

    use super::*;

    fn counts(rules: &str) -> RuleCounts {
        let text = format!("http_port 1\nacl a src 10.0.0.1\nacl b src 10.0.0.2\n{rules}");
        let (config, found) = humboldt_conf::parse_str("t.conf", &text);
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = AclSet::compile(&config.acl).expect("compiles");
        let list = RuleList::compile(&acls, &config.http_access, false).expect("compiles");
        RuleCounts::new([(List::HttpAccess, &list)])
    }

    fn decided(counts: &RuleCounts) -> Vec<u64> {
        counts.read().iter().map(|count| count.decided).collect()
    }

    #[test]
    fn each_core_counts_and_the_reader_adds_up() {
        let counts = counts("http_access allow a\nhttp_access deny b\n");
        counts.begin(2, None);
        counts.count(0, List::HttpAccess, Some(0), false);
        counts.count(1, List::HttpAccess, Some(0), false);
        counts.count(1, List::HttpAccess, Some(1), true);
        counts.count(1, List::HttpAccess, None, false);
        counts.count(7, List::HttpAccess, Some(0), false);
        counts.count(0, List::MissAccess, Some(0), false);
        assert_eq!(decided(&counts), [2, 1, 1]);
        let read = counts.read();
        assert_eq!((read[1].reported, read[2].of), (1, LineOf::None));
        assert_eq!(read[0].source.as_ref().map(|source| source.line), Some(4));
    }

    #[test]
    fn the_same_line_goes_on_counting_and_a_changed_one_begins_again() {
        let first = counts("http_access allow a\nhttp_access deny b\nhttp_access allow a\n");
        first.begin(1, None);
        for (rule, times) in [(0, 5), (1, 3), (2, 2)] {
            (0..times).for_each(|_| first.count(0, List::HttpAccess, Some(rule), false));
        }
        let second = counts("http_access deny a\nhttp_access allow a\nhttp_access allow a\n");
        second.begin(1, Some(&first));
        assert_eq!(decided(&second), [0, 5, 2, 0]);
        // A request that began before.
        first.count(0, List::HttpAccess, Some(0), false);
        assert_eq!(decided(&second), [0, 6, 2, 0]);
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_together() {
        let rules = "http_access allow a\n".repeat(LINES_COUNTED_MAX + 5);
        let counts = counts(&rules);
        counts.begin(1, None);
        for rule in [LINES_COUNTED_MAX - 1, LINES_COUNTED_MAX, LINES_COUNTED_MAX + 4] {
            counts.count(0, List::HttpAccess, Some(rule), false);
        }
        counts.count(0, List::HttpAccess, None, false);
        let read = counts.read();
        assert_eq!(read.len(), LINES_COUNTED_MAX + 2);
        let last: Vec<_> =
            read[LINES_COUNTED_MAX - 1..].iter().map(|c| (c.of, c.decided)).collect();
        assert_eq!(last, [(LineOf::Line, 1), (LineOf::Others, 2), (LineOf::None, 1)]);
    }
}
