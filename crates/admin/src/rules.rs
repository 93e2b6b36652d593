//! How often each access rule has decided: a page, and samples for the metrics.

use std::collections::BTreeMap;
use std::fmt::Write;

use humboldt_proxy::config::rule_counts::{LINES_COUNTED_MAX, LineOf, RuleCount};

use crate::figures::Figures;
use crate::metrics::Samples;

/// Most samples of each metric about rules; the lines behind them are added up as `others`, one
/// more sample for each list.
const RULE_SERIES_MAX: usize = 500;

/// Most bytes of the words of a line in a label. Lines with the same beginning are one series.
const RULE_LABEL_BYTES_MAX: usize = 200;

/// The labels of metrics about rules.
pub(crate) const LABELS: &[&str] = &["list", "rule", "action"];

/// In place of a line, where none applied.
const NO_LINE: &str = "none";

/// Lines that have no sample of their own.
const OTHERS: &str = "others";

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let since = humboldt_http::date::format(figures.in_force_since.secs());
    let since = String::from_utf8_lossy(&since);
    let mut out = format!(
        "Configuration: generation {}, in force since {since}\nFailed reconfigurations: {}\n\n\
         Decisions and, of these, refusals that were only reported. A line that a reconfiguration\n\
         leaves as it was goes on counting.\n",
        figures.generation, figures.failed_reconfigurations
    );
    let mut list = None;
    for count in &figures.rules {
        if list.replace(count.list) != Some(count.list) {
            _ = writeln!(out, "\n{}:", count.list.name());
        }
        let line = match (&count.source, count.of) {
            (Some(source), _) => format!("{}: {}", source.place(), source.text),
            (None, LineOf::None) => "no line applies: the opposite of the last one".to_owned(),
            (None, LineOf::Others) => format!("all lines behind the first {LINES_COUNTED_MAX}"),
            (None, LineOf::Line) => "a line of the program's own".to_owned(),
        };
        _ = writeln!(out, "{:>12} {:>8}  {line}", count.decided, count.reported);
    }
    out
}

/// Writes a sample for each line, by its words: a line that a reconfiguration moves stays what it
/// is, unless it moves across [`RULE_SERIES_MAX`]. Several with the same words are one.
pub(crate) fn write_samples(
    figures: &Figures,
    out: &mut Samples<'_>,
    read: impl Fn(&RuleCount) -> u64,
) {
    let mut sums: BTreeMap<[String; 3], u64> = BTreeMap::new();
    for count in &figures.rules {
        let list = count.list.name();
        let mut name = [list.to_owned(), rule_name(count), action(count).to_owned()];
        if sums.len() >= RULE_SERIES_MAX && !sums.contains_key(&name) {
            name = [list, OTHERS, NO_LINE].map(ToOwned::to_owned);
        }
        *sums.entry(name).or_default() += read(count);
    }
    for (name, sum) in sums {
        out.add(&name.each_ref().map(String::as_str), sum);
    }
}

/// The words of the line behind the name of its list.
fn rule_name(count: &RuleCount) -> String {
    match (&count.source, count.of) {
        (_, LineOf::None) => NO_LINE.to_owned(),
        (Some(source), LineOf::Line) => {
            let words = source.text.split_once(' ').map_or(&*source.text, |(_, words)| words);
            words.get(..words.floor_char_boundary(RULE_LABEL_BYTES_MAX)).unwrap_or(words).to_owned()
        }
        (None, LineOf::Line) | (_, LineOf::Others) => OTHERS.to_owned(),
    }
}

/// `allow` or `deny`.
fn action(count: &RuleCount) -> &'static str {
    let text = count.source.as_ref().map_or("", |source| &*source.text);
    match text.split(' ').nth(1) {
        Some("allow") => "allow",
        Some("deny") => "deny",
        _ => NO_LINE,
    }
}

/// For tests: rules with awkward places.
#[cfg(test)]
pub(crate) fn for_tests() -> Vec<RuleCount> {
    use humboldt_conf::{List, RuleSource};
    let line = |file: &str, line, text: &str, decided, reported| RuleCount {
        list: List::HttpAccess,
        of: LineOf::Line,
        source: Some(std::sync::Arc::new(RuleSource {
            text: text.to_owned(),
            file: file.to_owned(),
            line,
        })),
        decided,
        reported,
    };
    let rest =
        |of, decided| RuleCount { list: List::MissAccess, of, source: None, decided, reported: 0 };
    vec![
        line("/etc/a/x \"y\".conf", 3, "http_access deny \"bad\"", 7, 2),
        line("/etc/b/x \"y\".conf", 3, "http_access deny \"bad\"", 5, 0),
        line("squid.conf", 9, "http_access allow all", 1, 0),
        rest(LineOf::Others, 4),
        rest(LineOf::None, 6),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn the_page_has_each_line_under_its_list() {
        let page = render(&Figures::busy());
        for line in [
            "Configuration: generation 3, in force since Tue, 14 Nov 2023 22:13:20 GMT",
            "Failed reconfigurations: 1",
            "http_access:",
            "           7        2  /etc/a/x \"y\".conf:3: http_access deny \"bad\"",
            "miss_access:",
            "           6        0  no line applies: the opposite of the last one",
        ] {
            assert!(page.contains(&format!("{line}\n")), "{line}: {page}");
        }
    }

    #[test]
    fn lines_with_one_name_are_one_series_and_there_are_not_too_many() {
        let mut figures = Figures::busy();
        let page = metrics::render(&figures);
        for line in [
            "rule_decisions_total{list=\"http_access\",rule=\"deny \\\"bad\\\"\",action=\"deny\"} 12",
            "rule_decisions_total{list=\"miss_access\",rule=\"none\",action=\"none\"} 6",
            "rule_refusals_reported_total{list=\"http_access\",rule=\"allow all\",action=\"allow\"} 0",
        ] {
            assert!(page.contains(&format!("\nhumboldt_{line}\n")), "{line}: {page}");
        }
        let one = figures.rules[2].clone();
        figures.rules = (0..2000)
            .map(|line| {
                let mut count = one.clone();
                let source = count.source.as_mut().map(std::sync::Arc::make_mut);
                let text = |line: u32| format!("http_access allow {line} {}", "x".repeat(300));
                source.into_iter().for_each(|source| source.text = text(line));
                count
            })
            .collect();
        let page = metrics::render(&figures);
        let series = page.matches("\nhumboldt_rule_decisions_total{").count();
        assert_eq!(series, RULE_SERIES_MAX + 1);
        let others = format!("rule=\"others\",action=\"none\"}} {}\n", 2000 - RULE_SERIES_MAX);
        assert!(page.contains(&others), "{page}");
        let longest = page.lines().filter(|line| line.contains("allow 1 x")).map(str::len).max();
        assert!(longest.is_some_and(|bytes| bytes < 2 * RULE_LABEL_BYTES_MAX), "{longest:?}");
    }
}
