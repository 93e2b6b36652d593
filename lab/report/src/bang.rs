//! The report of a bang: how long one proxy takes for a list of URLs.

use crate::ReportError;
use crate::compare::novm;
use crate::csv;
use crate::document::{Document, Fold, Section, Warning};
use crate::folder::{prepare, write_whole};
use crate::format::{bytes, count, counted, date_time, milliseconds, number, plain, rough, share};
use crate::plot::{Axis, Line, Plot, Size};
use crate::provenance;
use crate::run_page::{distribution, fault_tables};
use crate::table::Table;
use humboldt_lab_record::{BangRun, BangSecond, TimesSummary};
use std::io;
use std::path::Path;

/// As many characters of a name or setting are shown.
const CHARS_MAX: usize = 300;

/// A shorter pass means little, in seconds: its first moments are unlike the rest, and the cache's
/// resources are read once a second.
pub const BANG_S_MIN: f64 = 5.0;

/// Whether a pass answered requests, but for less than [`BANG_S_MIN`].
#[must_use]
pub fn is_short_bang(bang: &BangRun) -> bool {
    bang.answers > 0 && (bang.elapsed_us as f64) < BANG_S_MIN * 1e6
}

/// Writes the report of a bang: report.html, summary.json (the [`BangRun`]), summary.md,
/// seconds.csv and cdf.csv, each whole or not at all.
///
/// # Errors
/// If the folder holds files that no run or bang writes, or a file cannot be written.
pub fn write_bang(dir: &Path, bang: &BangRun) -> Result<(), ReportError> {
    prepare(dir)?;
    write_whole(&dir.join("seconds.csv"), seconds(bang).as_bytes())?;
    let mut json = serde_json::to_vec(bang)
        .map_err(|error| ReportError::write(dir.join("summary.json"), io::Error::other(error)))?;
    json.push(b'\n');
    write_whole(&dir.join("summary.json"), &json)?;
    write_whole(
        &dir.join("cdf.csv"),
        csv::distributions(&[("service", &bang.service)]).as_bytes(),
    )?;
    let document = document(bang);
    write_whole(&dir.join("summary.md"), document.markdown().as_bytes())?;
    write_whole(&dir.join("report.html"), document.html().as_bytes())
}

/// The text of seconds.csv.
pub(crate) fn seconds(bang: &BangRun) -> String {
    let mut out = String::from("at_s,answers,body_bytes,faults,open\n");
    for BangSecond { at_s, answers, body_bytes, faults, open } in &bang.seconds {
        out.push_str(&format!("{at_s},{answers},{body_bytes},{faults},{open}\n"));
    }
    out
}

pub(crate) fn document(bang: &BangRun) -> Document {
    let elapsed_s = bang.elapsed_us as f64 / 1e6;
    let times = TimesSummary::from(&bang.service);
    let lead = format!(
        "{} answers in {} s: {} per second over at most {} connections; half of them took less than {}, 95 of 100 less \
         than {}.",
        count(bang.answers),
        rough(elapsed_s),
        rough(bang.rate_per_s()),
        count(u64::from(bang.connections_max)),
        milliseconds(times.p50_ms),
        milliseconds(times.p95_ms),
    );
    let title = [&bang.subject, &bang.variant].map(|name| plain(name, CHARS_MAX));
    let title: Vec<&str> =
        title.iter().filter(|name| !name.is_empty()).map(String::as_str).collect();
    Document {
        title: format!("Bang: {}", title.join(" · ")),
        subtitle: format!(
            "URLs: {} · started {}",
            plain(&bang.urls, CHARS_MAX),
            date_time(bang.started_s)
        ),
        lead,
        warnings: warnings(bang),
        sections: sections(bang, &times),
    }
}

fn sections(bang: &BangRun, times: &TimesSummary) -> Vec<Section> {
    let result = Section {
        short: true,
        tables: vec![totals(bang, times), statuses(bang)],
        ..Section::new("Result")
    };
    let course = Section {
        figures: vec![
            distribution(
                "cdf",
                "Distribution of service times",
                &[("service time", &bang.service)],
            ),
            crate::document::Figure::draw(
                "rate",
                "Answers in every second, and requests under way at its end.",
                &rate(bang),
            ),
        ],
        ..Section::new("Course")
    };
    let errors = Section {
        tables: fault_tables(&bang.faults, &bang.fault_samples, bang.answers),
        ..Section::new("Errors")
    };
    let mut settings = Table::new("Settings and environment", &["", "value"]);
    for (name, value) in bang.settings.iter().chain(&bang.manifest.facts) {
        settings.row([plain(name, CHARS_MAX), plain(value, CHARS_MAX)]);
    }
    let published = Fold {
        title: "The published NOVM comparison".to_owned(),
        tables: vec![novm()],
        text: String::new(),
    };
    let environment = Section {
        tables: vec![provenance::of_one(&bang.manifest), settings],
        folds: vec![published],
        ..Section::new("Settings and environment")
    };
    vec![result, course, errors, environment]
}

fn warnings(bang: &BangRun) -> Vec<Warning> {
    let faults: u64 = bang.faults.values().sum();
    let wrong = bang
        .faults
        .iter()
        .filter(|(kind, _)| kind.is_wrong_content())
        .map(|(_, count)| count)
        .sum::<u64>();
    let mut found = Vec::new();
    if wrong > 0 {
        found.push(Warning {
            grave: true,
            heading: "Wrong content".to_owned(),
            text: format!("{} had wrong content; see Errors.", counted(wrong, "answer")),
        });
    }
    if faults > wrong {
        let share = share(faults - wrong, bang.answers + faults);
        found.push(Warning {
            grave: true,
            heading: "Errors".to_owned(),
            text: format!(
                "{} got no right answer: {share} of all.",
                counted(faults - wrong, "request")
            ),
        });
    }
    if is_short_bang(bang) {
        found.push(Warning {
            grave: false,
            heading: "Too short to mean much".to_owned(),
            text: format!(
                "The pass lasted {} s. Below {BANG_S_MIN} s its first moments, which are unlike the rest, weigh too much: \
                 use more URLs.",
                rough(bang.elapsed_us as f64 / 1e6)
            ),
        });
    }
    let skipped = bang.manifest.skipped.iter().map(|reason| plain(reason, CHARS_MAX));
    found.extend(skipped.map(|text| Warning {
        grave: false,
        heading: "Options that were skipped".to_owned(),
        text,
    }));
    found
}

fn totals(bang: &BangRun, times: &TimesSummary) -> Table {
    let mut table = Table::new("Totals", &["", "#"]);
    let seconds = bang.elapsed_us as f64 / 1e6;
    let per_s = if seconds > 0.0 { bang.body_bytes as f64 / seconds } else { 0.0 };
    let rows = [
        ("Answers", count(bang.answers)),
        ("Total time, s", number(seconds, 2)),
        ("Answers/s", rough(bang.rate_per_s())),
        ("Bytes of bodies", bytes(bang.body_bytes as f64)),
        ("Bytes per second", format!("{}/s", bytes(per_s))),
        ("Connections at most", count(u64::from(bang.connections_max))),
        ("Service time, mean", milliseconds(times.mean_ms)),
        ("Service time, median", milliseconds(times.p50_ms)),
        ("Service time, p95", milliseconds(times.p95_ms)),
        ("Service time, p99", milliseconds(times.p99_ms)),
        ("Service time, slowest", milliseconds(times.max_ms)),
    ];
    rows.into_iter().for_each(|(name, value)| table.row([name.to_owned(), value]));
    table.note("From the moment a connection was begun to the last byte of the answer.")
}

fn statuses(bang: &BangRun) -> Table {
    let mut table = Table::new("Answers by status", &["status", "#answers"]);
    for (status, answers) in &bang.statuses {
        table.row([status.to_string(), count(*answers)]);
    }
    table
}

fn rate(bang: &BangRun) -> Plot {
    let over_time = |of: fn(&BangSecond) -> f64| {
        bang.seconds.iter().map(|second| (second.at_s, of(second))).collect()
    };
    Plot {
        title: "Answers per second".to_owned(),
        description: "Answers in every second and requests under way, over time.".to_owned(),
        size: Size::Half,
        x: Axis::linear("time, s").tight(),
        y: Axis::linear("answers/s, requests"),
        lines: vec![
            Line::straight("answers/s", 0, over_time(|second| second.answers as f64)),
            Line::straight("under way", 1, over_time(|second| f64::from(second.open))),
        ],
        bands: Vec::new(),
        rules: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_page, hostile};
    use humboldt_lab_record::{Fault, FaultKind, FaultSample};

    #[test]
    fn a_bang_is_written_whole_and_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut bang = BangRun {
            answers: 3,
            elapsed_us: 1_500_000,
            connections_max: 63,
            ..BangRun::default()
        };
        bang.subject = hostile();
        [1000, 2000, 4000].iter().for_each(|value| bang.service.record_us(*value));
        bang.seconds = vec![BangSecond { at_s: 1.0, answers: 2, ..BangSecond::default() }];
        let fault =
            Fault { kind: FaultKind::Stale, offset: None, expected: hostile(), got: hostile() };
        bang.fault_samples.push(FaultSample { at_us: 1, url: hostile(), fault });
        bang.faults.insert(FaultKind::Stale, 1);
        write_bang(dir.path(), &bang).unwrap();
        write_bang(dir.path(), &bang).unwrap();
        assert_page(&std::fs::read_to_string(dir.path().join("report.html")).unwrap());
        let json = std::fs::read(dir.path().join("summary.json")).unwrap();
        let again: BangRun = serde_json::from_slice(&json).unwrap();
        assert_eq!((again.service.count(), &again.seconds), (3, &bang.seconds));
        let markdown = std::fs::read_to_string(dir.path().join("summary.md")).unwrap();
        assert!(markdown.contains("3 answers in 1.50 s: 2.00 per second"), "{markdown}");
        assert!(markdown.contains("Too short to mean much"), "{markdown}");
        bang.elapsed_us = 5_000_000;
        assert!(!document(&bang).markdown().contains("Too short"), "5 s are enough");
    }

    #[test]
    fn an_empty_bang_has_a_page() {
        assert_page(&document(&BangRun::default()).html());
    }
}
