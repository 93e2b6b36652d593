//! Several bangs beside one another: the page of an experiment of bangs, with the published NOVM
//! comparison.

use crate::compare::{REPEAT_COLUMNS, REPEAT_NOTE, Repeats, novm, overlay, repeats_drawn};
use crate::csv::field;
use crate::document::{Document, Figure, INDEX, Made, Section, Warning};
use crate::format::{NOTHING, bytes, count, milliseconds, number, percent, plain, rough};
use crate::plot::{Axis, LOOKS, Line};
use crate::provenance;
use crate::run_page::cumulative;
use crate::table::Table;
use humboldt_lab_record::{BangRun, Manifest, Resources, TimesSummary};

/// As many characters of a name are shown.
const CHARS_MAX: usize = 120;
/// Bytes in a MiB, for axes.
const MIB: f64 = 1_048_576.0;

/// Bangs that repeat one another: the same subject, setting and state of its store. Never empty.
struct Group<'a> {
    name: String,
    /// The fastest first.
    bangs: Vec<&'a BangRun>,
    per_s: Repeats,
}

impl<'a> Group<'a> {
    fn first(&self) -> &'a BangRun {
        self.bangs[0]
    }

    /// All of them, the one with the median rate first.
    fn median_first(&self) -> impl Iterator<Item = &'a BangRun> {
        let median = self.bangs.len() / 2;
        let (before, from) = self.bangs.split_at(median);
        from.iter().take(1).chain(before).chain(from.iter().skip(1)).copied()
    }

    fn mean_of(&self, of: impl Fn(&BangRun) -> Option<f64>) -> Option<f64> {
        let repeats = Repeats::of(self.bangs.iter().filter_map(|bang| of(bang)));
        (repeats.count > 0).then_some(repeats.mean)
    }

    fn most(&self, of: fn(&Resources) -> u64) -> Option<u64> {
        self.bangs.iter().flat_map(|bang| &bang.resources).map(of).max()
    }

    fn total(&self, of: impl Fn(&BangRun) -> u64) -> u64 {
        self.bangs.iter().map(|bang| of(bang)).sum()
    }
}

fn groups(bangs: &[BangRun]) -> Vec<Group<'_>> {
    let key = |bang: &BangRun| (bang.subject.clone(), bang.setting.clone(), bang.cache.clone());
    let mut together: Vec<Vec<&BangRun>> = Vec::new();
    for bang in bangs {
        match together.iter_mut().find(|group| key(group[0]) == key(bang)) {
            Some(group) => group.push(bang),
            None => together.push(vec![bang]),
        }
    }
    together
        .into_iter()
        .map(|mut bangs| {
            bangs.sort_by(|a, b| b.rate_per_s().total_cmp(&a.rate_per_s()));
            let per_s = Repeats::of(bangs.iter().map(|bang| bang.rate_per_s()));
            Group { name: name(bangs[0]), bangs, per_s }
        })
        .collect()
}

fn name(bang: &BangRun) -> String {
    let cache = if bang.cache.is_empty() { String::new() } else { format!("cache {}", bang.cache) };
    let words = [&bang.subject, &bang.setting, &cache].map(|word| plain(word, CHARS_MAX));
    words.iter().filter(|word| !word.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" · ")
}

/// The page of an experiment of bangs, with links to the report of each pass, and the files that
/// belong to it.
pub(crate) fn bang_page(title: &str, bangs: &[BangRun], reports: Section) -> (Document, Vec<Made>) {
    let groups = groups(bangs);
    let mut document = document(title, bangs, &groups);
    document.sections.push(reports);
    let mut made = document.files(INDEX);
    made.push((format!("{INDEX}.csv"), csv(&groups)));
    (document, made)
}

fn document(title: &str, bangs: &[BangRun], groups: &[Group<'_>]) -> Document {
    let result = Section {
        short: true,
        tables: vec![table(groups), novm()],
        ..Section::new("Beside one another")
    };
    let course =
        Section { text: drawn(groups), figures: figures(groups), ..Section::new("Course") };
    Document {
        title: title.to_owned(),
        subtitle: format!("{} passes of {} settings", bangs.len(), groups.len()),
        lead: lead(groups),
        warnings: all_warnings(bangs, groups),
        sections: vec![result, course, provenance::of_many(manifests(bangs))],
    }
}

fn manifests(bangs: &[BangRun]) -> impl Iterator<Item = &Manifest> {
    bangs.iter().map(|bang| &bang.manifest)
}

fn all_warnings(bangs: &[BangRun], groups: &[Group<'_>]) -> Vec<Warning> {
    let mut all = provenance::differences(manifests(bangs));
    if bangs.windows(2).all(|two| two[0].urls == two[1].urls) {
        all.extend(provenance::workload_differs(manifests(bangs)));
    }
    all.extend(warnings(groups));
    all.sort_by_key(|warning| !warning.grave);
    all
}

fn lead(groups: &[Group<'_>]) -> String {
    let first = groups.first().map(Group::first);
    let urls = first.map_or(String::new(), |bang| plain(&bang.urls, CHARS_MAX));
    let connections = first.map_or(0, |bang| bang.connections_max);
    format!("{urls}, over at most {} connections at a time.", count(u64::from(connections)))
}

fn warnings(groups: &[Group<'_>]) -> Vec<Warning> {
    let mut found = Vec::new();
    for group in groups {
        let faults = group.total(|bang| bang.faults.values().sum());
        if faults > 0 {
            found.push(Warning {
                grave: true,
                heading: format!("{}: errors", group.name),
                text: format!("{} requests got no right answer.", count(faults)),
            });
        }
        found.extend(group.per_s.warning(&group.name));
    }
    found.sort_by_key(|warning| !warning.grave);
    found
}

fn table(groups: &[Group<'_>]) -> Table {
    let own = [
        "#total time, s",
        "#median service time",
        "#p95",
        "#hits",
        "#peak descriptors",
        "#peak memory",
        "#errors",
    ];
    let columns = [&["run", "#repeats", "#requests/s"][..], &REPEAT_COLUMNS, &own].concat();
    let mut table = Table::new("Requests, service times, descriptors and memory", &columns);
    for group in groups {
        let time = |of: fn(&TimesSummary) -> f64| {
            group.mean_of(|bang| Some(of(&TimesSummary::from(&bang.service))))
        };
        let or_nothing = |cell: Option<String>| cell.unwrap_or(NOTHING.to_owned());
        let first = [group.name.clone(), group.bangs.len().to_string(), rough(group.per_s.mean)];
        let own = [
            or_nothing(group.mean_of(|bang| Some(elapsed_s(bang))).map(|s| number(s, 2))),
            or_nothing(time(|times| times.p50_ms).map(milliseconds)),
            or_nothing(time(|times| times.p95_ms).map(milliseconds)),
            or_nothing(group.mean_of(hit_ratio).map(percent)),
            or_nothing(group.most(|used| u64::from(used.descriptors)).map(count)),
            or_nothing(group.most(|used| used.resident_bytes).map(|most| bytes(most as f64))),
            count(group.total(|bang| bang.faults.values().sum())),
        ];
        table.row(first.into_iter().chain(group.per_s.cells()).chain(own));
    }
    table
        .note(&format!("Means over the repeats; peaks of all of them. {REPEAT_NOTE}"))
        .without_empty_columns()
}

/// What the drawings show, where it is not everything alike.
fn drawn(groups: &[Group<'_>]) -> String {
    let mut text = String::new();
    if groups.iter().any(|group| group.bangs.len() > 1) {
        text.push_str(&repeats_drawn("rate"));
    }
    if groups.len() > LOOKS {
        text.push_str(&format!("They are of the first {LOOKS} settings."));
    }
    text
}

fn elapsed_s(bang: &BangRun) -> f64 {
    bang.elapsed_us as f64 / 1e6
}

fn hit_ratio(bang: &BangRun) -> Option<f64> {
    (bang.verified > 0).then(|| bang.hits as f64 / bang.verified as f64)
}

fn figures(groups: &[Group<'_>]) -> Vec<Figure> {
    let draw = |id: &str,
                title: &str,
                caption: &str,
                x: Axis,
                y: Axis,
                points: &dyn Fn(&BangRun) -> Vec<(f64, f64)>| {
        let drawn = groups.iter().take(LOOKS).enumerate();
        let lines = drawn.flat_map(|(look, group)| {
            Line::repeats(&group.name, look, group.median_first().map(points))
        });
        overlay(id, title, x, y, lines.collect(), caption)
    };
    let time = || Axis::linear("time, s").tight();
    vec![
        draw(
            "requests",
            "Requests answered against time",
            "How soon each run had all answers; the slope is the request rate.",
            time(),
            Axis::linear("answers"),
            &answered,
        ),
        draw(
            "service",
            "Service times",
            "The share of the answers that took no longer than a time, from the beginning of their connections.",
            Axis::log("time, ms"),
            Axis::linear("% of answers").at_least(0.0, 100.0),
            &|bang| cumulative(&bang.service),
        ),
        draw(
            "descriptors",
            "Open descriptors against time",
            "Of the cache, once a second.",
            time(),
            Axis::linear("descriptors"),
            &|bang| over_time(bang, |used| f64::from(used.descriptors)),
        ),
        draw(
            "memory",
            "Resident memory against time",
            "Of the cache, once a second. A run with a full cache begins where the one with an empty cache ended.",
            time(),
            Axis::linear("MiB"),
            &|bang| over_time(bang, |used| used.resident_bytes as f64 / MIB),
        ),
        draw(
            "page-faults",
            "Page faults against time",
            "Of the cache since its start, once a second: pages that it got anew, or from a disk.",
            time(),
            Axis::linear("page faults"),
            &|bang| over_time(bang, |used| (used.minor_faults + used.major_faults) as f64),
        ),
    ]
}

fn answered(bang: &BangRun) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    let mut answers = 0;
    for second in &bang.seconds {
        answers += second.answers;
        points.push((second.at_s, answers as f64));
    }
    points.push((elapsed_s(bang), bang.answers as f64));
    points
}

fn over_time(bang: &BangRun, value: fn(&Resources) -> f64) -> Vec<(f64, f64)> {
    let at_s = |used: &Resources| used.at_us as f64 / 1e6 - bang.started_s as f64;
    bang.resources.iter().map(|used| (at_s(used), value(used))).collect()
}

fn csv(groups: &[Group<'_>]) -> String {
    let mut out = String::from(
        "subject,variant,pass,repeats,answers,elapsed_s,answers_per_s,interval_per_s,deviation_per_s,spread,mean_ms,p50_ms,p95_ms,p99_ms,hits,verified,errors,\
         descriptors_max,resident_bytes_max\n",
    );
    let exact = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let whole = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    for group in groups {
        let bang = group.first();
        let pass =
            if bang.cache.is_empty() { String::new() } else { format!("cache {}", bang.cache) };
        let time = |of: fn(&TimesSummary) -> f64| {
            group.mean_of(|bang| Some(of(&TimesSummary::from(&bang.service))))
        };
        let cells = [
            field(&bang.subject),
            field(&bang.setting),
            pass,
            group.bangs.len().to_string(),
            group.total(|bang| bang.answers).to_string(),
            exact(group.mean_of(|bang| Some(elapsed_s(bang)))),
            group.per_s.mean.to_string(),
            exact(group.per_s.interval),
            exact(group.per_s.deviation),
            exact(group.per_s.spread),
            exact(time(|times| times.mean_ms)),
            exact(time(|times| times.p50_ms)),
            exact(time(|times| times.p95_ms)),
            exact(time(|times| times.p99_ms)),
            group.total(|bang| bang.hits).to_string(),
            group.total(|bang| bang.verified).to_string(),
            group.total(|bang| bang.faults.values().sum()).to_string(),
            whole(group.most(|used| u64::from(used.descriptors))),
            whole(group.most(|used| used.resident_bytes)),
        ];
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Pairs;
    use crate::testing::{assert_page, hostile};
    use crate::{Experiment, Kind, ReportError, Results};
    use humboldt_lab_record::BangSecond;
    use std::fs;

    fn bang(setting: &str, cache: &str, elapsed_us: u64) -> BangRun {
        let mut bang = BangRun {
            subject: "humboldt:ring".to_owned(),
            setting: setting.to_owned(),
            cache: cache.to_owned(),
            answers: 10_000,
            verified: 10_000,
            hits: if cache == "full" { 10_000 } else { 0 },
            elapsed_us,
            started_s: 100,
            connections_max: 63,
            ..BangRun::default()
        };
        [1000, 2000, 4000].iter().for_each(|value| bang.service.record_us(*value));
        bang.seconds = vec![BangSecond { at_s: 1.0, answers: 4000, ..BangSecond::default() }];
        let used = Resources {
            at_us: 101_000_000,
            descriptors: 140,
            resident_bytes: 5 << 20,
            ..Resources::default()
        };
        bang.resources.push(used);
        bang
    }

    #[test]
    fn repeats_are_one_row_and_every_setting_has_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let bangs = [
            bang("in transit in memory", "empty", 2_000_000),
            bang("in transit in memory", "full", 1_000_000),
            bang(&hostile(), "empty", 4_000_000),
            bang("in transit in memory", "empty", 2_500_000),
        ];
        let experiment = |title: &str| {
            let mut experiment = Experiment::new(title, Kind::Bang, false, Pairs::default());
            experiment.folders.push("a".to_owned());
            experiment
        };
        let results = Results::Bangs(bangs.to_vec());
        experiment(&hostile()).write_page(dir.path(), &results).unwrap();
        let html = fs::read_to_string(dir.path().join("index.html")).unwrap();
        assert_page(&html);
        assert!(html.contains("the median rate is bold, and the others are thin"), "{html}");
        let rows =
            crate::csv::tests::parsed(&fs::read_to_string(dir.path().join("index.csv")).unwrap());
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
        assert_eq!(rows[1][..4], ["humboldt:ring", "in transit in memory", "cache empty", "2"]);
        assert_eq!((rows[1][6].as_str(), rows[1][17].as_str()), ("4500", "140"));
        // 4,000 and 5,000: deviation 1,000 ÷ √2, half width 12.706 · 707.1 ÷ √2.
        let interval_per_s: f64 = rows[1][7].parse().unwrap();
        assert!((interval_per_s - 6_353.0).abs() < 0.01, "{interval_per_s}");
        let page = fs::read_to_string(dir.path().join("index.md")).unwrap();
        assert_eq!(page.matches("\n![").count(), 5, "{page}");
        assert!(page.contains("| 4,500 | 6,353 | 707 | 22.2 % (!) |"), "{page}");
        let drawing = fs::read_to_string(dir.path().join("index-1.svg")).unwrap();
        assert_eq!(drawing.matches("class=\"line s0 thin\"").count(), 1, "{drawing}");
        assert!(matches!(
            experiment("").write_page(dir.path(), &Results::Bangs(Vec::new())),
            Err(ReportError::NoRuns)
        ));
    }

    #[test]
    fn answers_add_up_over_time() {
        assert_eq!(
            answered(&bang("", "", 2_000_000)),
            [(0.0, 0.0), (1.0, 4000.0), (2.0, 10_000.0)]
        );
    }
}
