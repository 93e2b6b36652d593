//! The results of a bang: for the terminal, and as a folder.

use super::pass::End;
use crate::Failure;
use crate::output::say;
use crate::units::show_bytes;
use humboldt_lab_record::{BangRun, FaultKind, Handshakes, TimesSummary};
use humboldt_lab_report::{BANG_S_MIN, is_short_bang, write_bang};
use humboldt_lab_robots::BangReport;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// More passes than this are compared in the table, but not on each other's pages.
const COMPARED_MAX: usize = 8;

/// Faults that are shown with their evidence.
const FAULTS_SHOWN: usize = 3;

/// An answer with this status is not worth a line.
const USUAL_STATUS: u16 = 200;

/// Shows a pass: the only one as a list, one of several as a row, so that they stand side by side.
pub(super) fn show(run: &BangRun, end: &End, number: usize, passes: u32) {
    if run.requests == 0 {
        return;
    }
    if passes == 1 {
        say!("{}", text(run, end).trim_end());
        return;
    }
    if number == 1 {
        say!("subject           {}: {}", run.subject, run.urls);
        say!("connections       at most {}\n\n{}", run.connections_max, heading());
    }
    say!("{}{}", row(run), exceptions(run, end));
}

/// Says that passes were too short, if any was.
pub(super) fn say_short(runs: &[BangRun]) {
    let short = runs.iter().filter(|run| is_short_bang(run)).map(|run| run.elapsed_us).min();
    if let Some(elapsed_us) = short {
        say!(
            "note: a pass of {:.1} s means little; use more URLs (--generate COUNT, or a longer list), so that each \
             pass lasts {BANG_S_MIN} s or more",
            elapsed_us as f64 / 1e6
        );
    }
}

/// Reports unusable targets: once, because they are the same in every pass.
pub(super) fn say_unusable(report: &BangReport, pass: u32) {
    if let (1, Some(first)) = (pass, &report.first_unusable) {
        say!("passed over       {} that cannot be requested; the first: {first}", report.unusable);
    }
}

fn text(run: &BangRun, end: &End) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<17} {value}");
    };
    let elapsed_s = run.elapsed_us as f64 / 1e6;
    let variant = if run.variant.is_empty() { String::new() } else { format!(", {}", run.variant) };
    row("subject", format!("{}{variant}: {}", run.subject, run.urls));
    row("requests", format!("{} over at most {} connections", run.requests, run.connections_max));
    row(
        "answers",
        format!("{} in {elapsed_s:.2} s: {:.1} per second", run.answers, run.rate_per_s()),
    );
    if run.answers > 0 {
        let per_s = run.body_bytes as f64 / 1e6 / elapsed_s;
        row("bytes of bodies", format!("{}: {per_s:.2} MB/s", show_bytes(run.body_bytes)));
        row("service time, ms", times_line(run));
    }
    for (name, value) in derived(run) {
        row(name, value);
    }
    for (status, answers) in &run.statuses {
        row(&format!("status {status}"), answers.to_string());
    }
    for (name, value) in failures(run, end) {
        row(&name, value);
    }
    out
}

/// Faults with their evidence, and the reason of an early end: name and value.
fn failures(run: &BangRun, end: &End) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for kind in FaultKind::ALL {
        if let Some(count) = run.faults.get(&kind) {
            rows.push((kind.label().to_owned(), count.to_string()));
        }
    }
    for sample in run.fault_samples.iter().take(FAULTS_SHOWN) {
        let fault = &sample.fault;
        let (expected, got) = (&fault.expected, &fault.got);
        let evidence = format!("{}: {}: expected {expected}, got {got}", sample.url, fault.kind);
        rows.push((String::new(), evidence));
    }
    let early = match end {
        End::Done => None,
        End::TimeUp => Some(format!("the time was up; {} were under way", unfinished(run))),
        End::Interrupted => Some(format!("interrupted; {} were under way", unfinished(run))),
        End::Failed(_) => Some("see below".to_owned()),
    };
    rows.extend(early.map(|why| ("ended early".to_owned(), why)));
    rows
}

/// The lines below a row: only what is unusual.
fn exceptions(run: &BangRun, end: &End) -> String {
    let statuses = run.statuses.iter().filter(|(status, _)| **status != USUAL_STATUS);
    let statuses = statuses.map(|(status, count)| (format!("status {status}"), count.to_string()));
    let mut out = String::new();
    for (name, value) in statuses.chain(failures(run, end)) {
        let _ = write!(out, "\n  {name:<15} {value}");
    }
    out
}

fn times_line(run: &BangRun) -> String {
    let times = TimesSummary::from(&run.service);
    format!(
        "mean {:.3}, median {:.3}, p90 {:.3}, p95 {:.3}, p99 {:.3}, slowest {:.3}",
        times.mean_ms,
        times.p50_ms,
        run.service.percentile_us(90.0) as f64 / 1e3,
        times.p95_ms,
        times.p99_ms,
        times.max_ms
    )
}

fn unfinished(run: &BangRun) -> u64 {
    run.requests.saturating_sub(run.answers + run.faults.values().sum::<u64>())
}

/// Facts that only some bangs have.
fn derived(run: &BangRun) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if run.verified > 0 {
        let share = run.hits as f64 * 100.0 / run.verified as f64;
        rows.push((
            "hits",
            format!("{} of {} verified answers: {share:.1} %", run.hits, run.verified),
        ));
    }
    let Handshakes { full, resumed, .. } = run.handshakes;
    if full + resumed > 0 {
        rows.push(("TLS handshakes", format!("{full} full, {resumed} resumed")));
    }
    if let Some((descriptors, resident_bytes)) = peaks(run) {
        rows.push(("descriptors", format!("{descriptors} at most")));
        rows.push(("memory", format!("{} at most", show_bytes(resident_bytes))));
    }
    rows
}

/// Most descriptors and resident bytes that the subject had in a pass, as seen once a second.
fn peaks(run: &BangRun) -> Option<(u32, u64)> {
    let descriptors = run.resources.iter().map(|used| used.descriptors).max()?;
    let resident_bytes = run.resources.iter().map(|used| used.resident_bytes).max()?;
    Some((descriptors, resident_bytes))
}

/// Puts passes side by side on each other's pages, if they are few.
pub(super) fn compare(runs: &mut [BangRun]) {
    let rows: Vec<_> = runs.iter().map(|run| (run.variant.clone(), line(run))).collect();
    for run in runs.iter_mut() {
        let own = derived(run).into_iter().map(|(name, value)| (name.to_owned(), value));
        run.settings.extend(own);
        if (2..=COMPARED_MAX).contains(&rows.len()) {
            run.settings.extend(rows.iter().cloned());
        }
    }
}

/// The figures of the published comparison, for one pass.
fn line(run: &BangRun) -> String {
    let times = TimesSummary::from(&run.service);
    let mut out = format!(
        "{:.2} s, {:.1} per second, median service time {:.3} ms",
        run.elapsed_us as f64 / 1e6,
        run.rate_per_s(),
        times.p50_ms
    );
    if let Some((descriptors, _)) = peaks(run) {
        let _ = write!(out, ", at most {descriptors} descriptors");
    }
    out
}

/// The names of the columns of [`row`].
fn heading() -> String {
    format!(
        "{:<26} {:>9} {:>9} {:>9} {:>10} {:>10} {:>10} {:>7} {:>7} {:>6} {:>9}",
        "",
        "answers",
        "time, s",
        "per s",
        "median, ms",
        "p95, ms",
        "p99, ms",
        "hits, %",
        "errors",
        "fds",
        "memory"
    )
}

/// A pass in one line.
fn row(run: &BangRun) -> String {
    let times = TimesSummary::from(&run.service);
    let hits = run.hits as f64 * 100.0 / run.verified as f64;
    let peaks = peaks(run);
    format!(
        "{:<26} {:>9} {:>9.2} {:>9.1} {:>10.3} {:>10.3} {:>10.3} {:>7} {:>7} {:>6} {:>9}",
        run.variant,
        run.answers,
        run.elapsed_us as f64 / 1e6,
        run.rate_per_s(),
        times.p50_ms,
        times.p95_ms,
        times.p99_ms,
        if run.verified > 0 { format!("{hits:.1}") } else { "-".to_owned() },
        run.faults.values().sum::<u64>(),
        peaks.map_or_else(|| "-".to_owned(), |(descriptors, _)| descriptors.to_string()),
        peaks.map_or_else(|| "-".to_owned(), |(_, bytes)| show_bytes(bytes)),
    )
}

/// The only pass has the folder of the bang for itself.
pub(super) fn folder_of_pass(folder: &Path, index: usize, passes: u32) -> PathBuf {
    if passes == 1 { folder.to_owned() } else { folder.join(format!("pass-{}", index + 1)) }
}

/// The place of the report.
pub(super) struct Folder {
    path: PathBuf,
    passes: u32,
}

impl Folder {
    /// Makes the folder before the measurement, with an empty report, so that a folder that cannot
    /// be written is noticed at once.
    pub(super) fn prepare(path: &Path, passes: u32) -> Result<Self, Failure> {
        let folder = Self { path: path.to_owned(), passes };
        write_bang(&folder.of_pass(0), &BangRun::default()).map_err(Failure::usage)?;
        Ok(folder)
    }

    fn of_pass(&self, index: usize) -> PathBuf {
        folder_of_pass(&self.path, index, self.passes)
    }

    fn write_table(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::run(format!("{}: {error}", path.display())))
    }

    /// Keeps a pass as soon as it is over.
    pub(super) fn write(&self, index: usize, run: &BangRun) -> Result<(), Failure> {
        write_bang(&self.of_pass(index), run).map_err(Failure::run)
    }

    /// Writes the parts that are known only at the end.
    pub(super) fn finish(&self, runs: &[BangRun]) -> Result<(), Failure> {
        for (index, run) in runs.iter().enumerate() {
            self.write(index, run)?;
        }
        if self.passes > 1 {
            self.write_table("passes.csv", &csv(runs))?;
        }
        if runs.iter().any(|run| !run.resources.is_empty()) {
            self.write_table("resources.csv", &resources_csv(runs))?;
        }
        say!("report: {}", self.of_pass(0).join("report.html").display());
        Ok(())
    }
}

fn resources_csv(runs: &[BangRun]) -> String {
    let mut out = String::from(
        "pass,at_s,descriptors,threads,resident_bytes,anonymous_bytes,shared_bytes,user_s,system_s,read_bytes,\
         write_bytes\n",
    );
    for (index, run) in runs.iter().enumerate() {
        for used in &run.resources {
            let _ = writeln!(
                out,
                "{},{:.3},{},{},{},{},{},{:.3},{:.3},{},{}",
                index + 1,
                used.at_us as f64 / 1e6 - run.started_s as f64,
                used.descriptors,
                used.threads,
                used.resident_bytes,
                used.anonymous_bytes,
                used.shared_bytes,
                used.cpu.user_us as f64 / 1e6,
                used.cpu.system_us as f64 / 1e6,
                used.read_bytes,
                used.write_bytes,
            );
        }
    }
    out
}

fn csv(runs: &[BangRun]) -> String {
    let mut out = String::from(
        "pass,requests,answers,errors,elapsed_s,answers_per_s,body_bytes,verified,hits,mean_ms,p50_ms,p95_ms,p99_ms,\
         max_ms,descriptors_max,resident_bytes_max\n",
    );
    for (index, run) in runs.iter().enumerate() {
        let times = TimesSummary::from(&run.service);
        let (descriptors, resident_bytes) = peaks(run)
            .map_or_else(Default::default, |(fds, bytes)| (fds.to_string(), bytes.to_string()));
        let _ = writeln!(
            out,
            "{},{},{},{},{},{:.3},{},{},{},{:.3},{:.3},{:.3},{:.3},{:.3},{descriptors},{resident_bytes}",
            index + 1,
            run.requests,
            run.answers,
            run.faults.values().sum::<u64>(),
            run.elapsed_us as f64 / 1e6,
            run.rate_per_s(),
            run.body_bytes,
            run.verified,
            run.hits,
            times.mean_ms,
            times.p50_ms,
            times.p95_ms,
            times.p99_ms,
            times.max_ms,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{Fault, FaultSample, Resources};

    fn run(variant: &str, hits: u64) -> BangRun {
        let mut run = BangRun {
            subject: "squid:aufs".to_owned(),
            variant: variant.to_owned(),
            urls: "4 of uniform-unique".to_owned(),
            connections_max: 63,
            elapsed_us: 2_000_000,
            requests: 6,
            answers: 4,
            verified: 4,
            hits,
            body_bytes: 4 << 20,
            ..BangRun::default()
        };
        [1_000, 2_000, 3_000, 4_000].iter().for_each(|time_us| run.service.record_us(*time_us));
        run.statuses.insert(200, 4);
        run.faults.insert(FaultKind::TimedOut, 1);
        let fault = Fault {
            kind: FaultKind::TimedOut,
            offset: None,
            expected: "all".into(),
            got: "half".into(),
        };
        run.fault_samples.push(FaultSample { at_us: 1, url: "http://a/".into(), fault });
        let at_us = 2_500_000;
        let used = |descriptors| Resources {
            at_us,
            descriptors,
            resident_bytes: 5 << 20,
            ..Resources::default()
        };
        run.resources = vec![used(40), used(260), used(30)];
        run
    }

    #[test]
    fn a_pass_is_told_whole() {
        let text = text(&run("pass 1 of 2, cache empty", 3), &End::TimeUp);
        for part in [
            "squid:aufs, pass 1 of 2, cache empty: 4 of uniform-unique\n",
            "6 over at most 63 connections",
            "4 in 2.00 s: 2.0 per second",
            "4 MB: 2.10 MB/s",
            "mean 2.5",
            "3 of 4 verified answers: 75.0 %",
            "260 at most",
            "5 MB at most",
            "status 200        4\n",
            "timed out         1\n",
            "http://a/: timed out: expected all, got half",
            "the time was up; 1 were under way",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!super::text(&BangRun::default(), &End::Done).contains("hits"));
        let below = exceptions(&run("pass 1 of 2", 3), &End::TimeUp);
        assert!(
            below.contains("timed out       1") && below.contains("the time was up"),
            "{below}"
        );
        assert!(!below.contains("status 200"), "{below}");
    }

    #[test]
    fn passes_stand_side_by_side_everywhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut runs = vec![run("pass 1 of 2, cache empty", 0), run("pass 2 of 2, cache full", 4)];
        let out = Folder::prepare(&path, 2).unwrap();
        out.write(0, &runs[0]).unwrap();
        compare(&mut runs);
        out.finish(&runs).unwrap();
        assert!(row(&runs[1]).contains(" 100.0 ") && row(&runs[1]).lines().count() == 1);
        assert_eq!(row(&runs[0]).chars().count(), heading().chars().count());
        let passes = std::fs::read_to_string(path.join("passes.csv")).unwrap();
        assert!(
            passes.lines().nth(2).unwrap().starts_with("2,6,4,1,2,2.000,4194304,4,4,2.5"),
            "{passes}"
        );
        let resources = std::fs::read_to_string(path.join("resources.csv")).unwrap();
        assert_eq!(resources.lines().nth(5), Some("2,2.500,260,0,5242880,0,0,0.000,0.000,0,0"));
        for (own, other) in [(1, "pass 2 of 2, cache full"), (2, "pass 1 of 2, cache empty")] {
            let page =
                std::fs::read_to_string(path.join(format!("pass-{own}/report.html"))).unwrap();
            assert!(page.contains(other) && page.contains("at most 260 descriptors"));
        }
        // A second bang may write over the first.
        Folder::prepare(&path, 2).unwrap();
    }

    #[test]
    fn a_folder_of_someone_else_is_refused_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis.tex"), "years of work").unwrap();
        assert_eq!(Folder::prepare(folder.path(), 1).err().map(|failure| failure.code()), Some(2));
    }
}
