//! The tables of a run.

use super::{figures, filling};
use crate::format::{
    NOTHING, bytes, count, counted, duration, milliseconds, minutes, number, percent, plain, rough,
    share,
};
use crate::table::Table;
use humboldt_lab_record::{FaultKind, FaultSample, KindTally, Manifest, Run, Sample, TimesSummary};
use std::collections::BTreeMap;

/// As many decisions are listed from the beginning, and as many from the end.
const DECISIONS_EACH_END: usize = 200;
/// As many characters of a URL or of evidence are shown.
const URL_CHARS_MAX: usize = 300;
const EVIDENCE_CHARS_MAX: usize = 120;

/// The columns of decisions.
const DECISION_COLUMNS: [&str; 9] = [
    "#sample",
    "#at",
    "#fill",
    "#load/s",
    "#answers/s",
    "#mean response",
    "state",
    "why",
    "#next/s",
];

/// The last quarter in a few figures.
pub(crate) fn summary(run: &Run) -> Table {
    let (summary, tally) = (&run.summary, &run.last_quarter);
    let caption = format!(
        "Last quarter: fill ratio {} to {}, {}",
        number(summary.from_fill_ratio, 2),
        number(summary.to_fill_ratio, 2),
        counted(u64::from(summary.samples), "sample")
    );
    let mut table = Table::new(&caption, &["", "#measured", "to compare with"]);
    let mut row = |name: &str, measured: String, beside: String| {
        table.row([name.to_owned(), measured, beside])
    };
    let seconds = tally.period_us as f64 / 1e6;
    let offered = if seconds > 0.0 { tally.due as f64 / seconds } else { f64::NAN };
    row(
        "Throughput, answers/s",
        rough(summary.throughput_per_s),
        format!("{} requests/s came due", rough(offered)),
    );
    let ceiling =
        run.calibration.map(|limit| format!("{} requests/s without a cache between", rough(limit)));
    row(
        "Sustained, answers/s",
        match (summary.sustained_per_s, summary.limit_reached) {
            (None, _) => NOTHING.to_owned(),
            (Some(sustained), Some(false)) => format!("at least {}", rough(sustained)),
            (Some(sustained), None) => format!("{} (limit not recorded)", rough(sustained)),
            (Some(sustained), _) => rough(sustained),
        },
        ceiling.unwrap_or_default(),
    );
    if let Some(known) = summary.steadiness {
        let [low, high] = [known.throughput_low_per_s, known.throughput_high_per_s].map(rough);
        let [cheap, dear] = [known.lab_cpu_low_us, known.lab_cpu_high_us].map(rough);
        row(
            "Its slowest and fastest sixth, answers/s",
            format!("{low} to {high}"),
            format!("{cheap} to {dear} µs of the laboratory's own work for an answer"),
        );
    }
    row(
        "Hits/s",
        rough(per_s(run, tally.hits.answers)),
        format!("{}/s saved from the servers", bytes(per_s(run, tally.hits.body_bytes))),
    );
    if let Some(held) = summary.held.first() {
        let samples = counted(u64::from(held.samples), "sample");
        row(
            "Highest load held, requests/s",
            rough(held.load_per_s),
            format!("in {samples}, to fill ratio {}", number(held.fill_ratio, 2)),
        );
    }
    row(
        "Mean response time",
        milliseconds(summary.response.mean_ms),
        format!(
            "p95 of hits {}, of misses {}",
            milliseconds(summary.hits.p95_ms),
            milliseconds(summary.misses.p95_ms)
        ),
    );
    let ideal = run.plan.ideal_hit_ratio;
    row(
        "Hit ratio",
        percent(summary.hit_ratio),
        format!(
            "{} offered by these requests, {} ideal",
            percent(summary.offered_hit_ratio),
            percent(ideal)
        ),
    );
    let plain_bytes = tally.hits.body_bytes + tally.misses.body_bytes;
    let offered_bytes = tally.offered_hit_bytes as f64 / plain_bytes.max(1) as f64;
    row(
        "Byte hit ratio",
        percent(summary.byte_hit_ratio),
        format!("{} offered by these requests", percent(offered_bytes)),
    );
    row(
        "Errors, whole run",
        count(summary.faults),
        format!("of them {} with wrong content", counted(summary.wrong_content, "answer")),
    );
    costs(run, &mut table);
    table
}

/// A count of the last quarter, per second; not a number without one.
pub(crate) fn per_s(run: &Run, count: u64) -> f64 {
    count as f64 * 1e6 / run.last_quarter.period_us as f64
}

/// Rows of what the answers cost: processor time, memory, room and writes; and how flat they were.
fn costs(run: &Run, table: &mut Table) {
    let summary = &run.summary;
    let mut row = |name: &str, measured: String, beside: String| {
        table.row([name.to_owned(), measured, beside])
    };
    if let Some(cpu_us) = summary.cpu_us_per_answer {
        let cores = cpu_us * summary.throughput_per_s / 1e6;
        row("CPU time per answer, µs", rough(cpu_us), format!("{} cores busy", rough(cores)));
    }
    if let Some(resident) = summary.resident_bytes_max {
        let cache = bytes(run.plan.cache_bytes as f64);
        row("Largest resident memory", bytes(resident as f64), format!("cache size {cache}"));
        row(
            "Memory per object",
            filling::or_nothing(summary.resident_bytes_per_object, bytes),
            "growth of resident memory, its objects in memory included".to_owned(),
        );
    }
    let fill = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    row(
        "Stored at the end, ÷ cache size",
        filling::stored(summary),
        format!("{} could have been stored since the start", number(fill, 2)),
    );
    if let Some(offered) = summary.written_per_offered {
        row(
            "Written per byte stored",
            filling::or_nothing(summary.written_per_stored, |ratio| number(ratio, 2)),
            format!("{} per byte that could have been stored", number(offered, 2)),
        );
    }
    row(
        "Flatness, fill 0.5 to 2.0",
        filling::flatness(run),
        flatness_note(&run.plan.controller).to_owned(),
    );
}

/// How flatness is found, and what it means under this controller.
fn flatness_note(controller: &str) -> &'static str {
    match controller {
        "classic" => {
            "slope of answers/s, with its 95 % interval; a part of it may be the slow climb of the \
             classic search"
        }
        _ => "slope of answers/s, with its 95 % interval, from the means of parts",
    }
}

/// Response times by class.
pub(crate) fn times(run: &Run) -> Table {
    let columns = ["", "#answers", "#mean", "#p50", "#p95", "#p99", "#slowest"];
    let mut table = Table::new("Response times in the last quarter", &columns);
    let summary = &run.summary;
    let rows: [(&str, &TimesSummary); 5] = [
        ("All answers", &summary.response),
        ("Hits", &summary.hits),
        ("Misses", &summary.misses),
        ("Added to hits", &summary.hits_added),
        ("Added to misses", &summary.misses_added),
    ];
    for (name, times) in rows {
        let all = [times.mean_ms, times.p50_ms, times.p95_ms, times.p99_ms, times.max_ms];
        let shown = |ms: f64| if times.count == 0 { NOTHING.to_owned() } else { milliseconds(ms) };
        table.row(
            [name.to_owned(), count(times.count)].into_iter().chain(all.into_iter().map(shown)),
        );
    }
    table.note(
        "From the moment a request was due to the last byte. Added: without think time and links.",
    )
}

/// Errors by kind, and the evidence; nothing if there were none.
pub(crate) fn fault_tables(
    faults: &BTreeMap<FaultKind, u64>,
    samples: &[FaultSample],
    answers: u64,
) -> Vec<Table> {
    let total: u64 = faults.values().sum();
    if total == 0 && samples.is_empty() {
        return Vec::new();
    }
    let mut kinds =
        Table::new("Errors by kind, whole run", &["kind", "#count", "#of all requests", "is"]);
    for kind in FaultKind::ALL {
        let Some(number) = faults.get(&kind).copied().filter(|number| *number > 0) else {
            continue;
        };
        let what = if kind.is_wrong_content() { "wrong content" } else { "no right answer" };
        let share = share(number, answers + total);
        kinds.row([kind.label().to_owned(), count(number), share, what.to_owned()]);
    }
    if samples.is_empty() {
        return vec![kinds];
    }
    let caption = format!("The first {} of them", samples.len());
    let columns = ["kind", "URL", "#offset", "expected", "got", "#unix time, s"];
    let mut evidence = Table::new(&caption, &columns);
    for sample in samples {
        let fault = &sample.fault;
        evidence.row([
            fault.kind.label().to_owned(),
            plain(&sample.url, URL_CHARS_MAX),
            fault.offset.map_or(NOTHING.to_owned(), count),
            plain(&fault.expected, EVIDENCE_CHARS_MAX),
            plain(&fault.got, EVIDENCE_CHARS_MAX),
            format!("{:.3}", sample.at_us as f64 / 1e6),
        ]);
    }
    vec![kinds, evidence]
}

/// Answers by content type or by kind of request.
pub(crate) fn kinds(caption: &str, first: &str, tallies: &BTreeMap<String, KindTally>) -> Table {
    let columns = [first, "#answers", "#share", "#hits", "#hit ratio", "#mean size", "#bytes"];
    let mut table = Table::new(caption, &columns);
    let total: u64 = tallies.values().map(|tally| tally.answers).sum();
    let mut sorted: Vec<_> = tallies.iter().collect();
    sorted.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.answers));
    for (name, tally) in sorted {
        let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        table.row([
            plain(name, URL_CHARS_MAX),
            count(tally.answers),
            percent(of(tally.answers, total)),
            count(tally.hits),
            percent(of(tally.hits, tally.answers)),
            bytes(of(tally.body_bytes, tally.answers)),
            bytes(tally.body_bytes as f64),
        ]);
    }
    table
}

/// Events besides answers, over the whole run.
pub(crate) fn totals(run: &Run) -> Table {
    let total = &run.total;
    let mut table = Table::new("Both sides, whole run", &["", "#users", "#servers"]);
    let origin = |count_of: fn(&humboldt_lab_record::OriginTally) -> u64| -> u64 {
        run.samples.iter().map(|sample| count_of(&sample.origin)).sum()
    };
    let origin_cpu_s = origin(|tally| tally.cpu_us) as f64 / 1e6;
    let rows = [
        ("Requests", count(total.sent), count(origin(|tally| tally.requests))),
        ("Came due", count(total.due), String::new()),
        ("Right answers", count(total.answers()), String::new()),
        ("Cut short on purpose", count(total.aborted), String::new()),
        ("Not modified (304)", String::new(), count(origin(|tally| tally.not_modified))),
        ("Partial (206)", String::new(), count(origin(|tally| tally.partial))),
        ("Refused as unknown", String::new(), count(origin(|tally| tally.refused))),
        (
            "Bytes of bodies",
            bytes(total.body_bytes() as f64),
            bytes(origin(|tally| tally.body_bytes) as f64),
        ),
        ("Connections made", count(total.connects), count(origin(|tally| tally.connects))),
        (
            "TLS handshakes, full",
            count(total.handshakes.full),
            count(origin(|tally| tally.handshakes.full)),
        ),
        (
            "TLS handshakes, resumed",
            count(total.handshakes.resumed),
            count(origin(|tally| tally.handshakes.resumed)),
        ),
        ("Written by reloads and IMS", bytes(total.refill_bytes as f64), String::new()),
        ("CPU time, s", rough(total.cpu_us as f64 / 1e6), rough(origin_cpu_s)),
    ];
    for (name, users, servers) in rows {
        table.row([name.to_owned(), users, servers]);
    }
    table
}

/// The plan of the run.
pub(crate) fn settings(run: &Run) -> Table {
    let plan = &run.plan;
    let mut table = Table::new("Settings", &["", "value"]);
    let goal = match plan.goal.time_max_s {
        Some(time) => {
            let fill = number(plan.goal.fill_ratio, 2);
            format!("fill ratio {fill}, or at most {}", minutes(time))
        }
        None => format!("fill ratio {}", number(plan.goal.fill_ratio, 2)),
    };
    let own = [
        ("controller", plain(&plan.controller, URL_CHARS_MAX)),
        ("cache size", bytes(plan.cache_bytes as f64)),
        ("goal", goal),
        ("sample period", format!("{} s", rough(plan.sample_s))),
        ("time scale", plan.time_scale.to_string()),
        ("seed", plan.seed.to_string()),
    ];
    own.into_iter().for_each(|(name, value)| table.row([name.to_owned(), value]));
    for (name, value) in &plan.settings {
        table.row([plain(name, URL_CHARS_MAX), plain(value, URL_CHARS_MAX)]);
    }
    table
}

/// The controller's judgement of every sample; of very many, of the first and the last.
pub(crate) fn decisions(run: &Run) -> Table {
    let mut table = Table::new("Decisions", &DECISION_COLUMNS);
    let samples = run.samples.len();
    let mut left_out = 0;
    for (position, sample) in run.samples.iter().enumerate() {
        if position >= DECISIONS_EACH_END && position + DECISIONS_EACH_END < samples {
            left_out += 1;
        } else {
            table.row(decision(sample));
        }
    }
    let note = format!("{left_out} samples in the middle are left out here; samples.csv has all.");
    if left_out > 0 { table.note(&note) } else { table }
}

/// The last decisions, the newest first.
pub(crate) fn last_decisions(run: &Run, count_max: usize) -> Table {
    let mut table = Table::new("Last decisions", &DECISION_COLUMNS);
    run.samples.iter().rev().take(count_max).for_each(|sample| table.row(decision(sample)));
    table
}

fn decision(sample: &Sample) -> [String; 9] {
    let mut why = plain(&sample.verdict.reason, URL_CHARS_MAX);
    if let Some(limit) = &sample.lab_limited
        && sample.verdict.reason != *limit
    {
        why.push_str(&format!(" [spoiled: {}]", plain(limit, URL_CHARS_MAX)));
    }
    let sustained = if sample.verdict.sustained { " ✓" } else { "" };
    [
        sample.index.to_string(),
        duration(sample.at_s),
        number(sample.fill_ratio, 3),
        rough(sample.load_per_s),
        rough(sample.throughput_per_s()),
        milliseconds(figures::mean_response_ms(sample)),
        format!("{}{sustained}", plain(&sample.verdict.state, URL_CHARS_MAX)),
        why,
        rough(sample.verdict.next_load_per_s),
    ]
}

/// The machine and software of the run.
pub(crate) fn facts(manifest: &Manifest) -> Table {
    let mut table = Table::new("Environment", &["", "value"]);
    for (name, value) in &manifest.facts {
        table.row([plain(name, URL_CHARS_MAX), plain(value, 2 * URL_CHARS_MAX)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_page::lead;
    use crate::testing::synthetic;

    /// The measured cell and the one beside it, of a row of the summary.
    fn row(run: &Run, name: &str) -> (String, String) {
        let table = summary(run);
        let row = table.rows.into_iter().find(|row| row[0].starts_with(name)).expect(name);
        (row[1].clone(), row[2].clone())
    }

    #[test]
    fn a_limit_that_was_not_recorded_is_neither_reached_nor_not() {
        let mut run = synthetic("squid:aufs", 100.0, 40);
        run.summary.sustained_per_s = Some(97.0);
        let says = |run: &Run| (row(run, "Sustained").0, lead(run).contains("is not recorded"));
        run.summary.limit_reached = Some(true);
        assert_eq!(says(&run), ("97.0".to_owned(), false));
        run.summary.limit_reached = Some(false);
        assert_eq!(says(&run), ("at least 97.0".to_owned(), false));
        // An older summary.json.
        run.summary.limit_reached = None;
        // It goes on, in its last quarter.
        run.outcome = humboldt_lab_record::Outcome::Running;
        run.plan.goal.fill_ratio = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
        assert_eq!(says(&run), ("97.0 (limit not recorded)".to_owned(), true));
    }

    #[test]
    fn the_summary_has_response_times_and_what_was_stored() {
        let mut run = synthetic("squid:aufs", 100.0, 40);
        (run.summary.response.mean_ms, run.summary.hits.p95_ms) = (12.0, 34.0);
        let (mean, beside) = row(&run, "Mean response time");
        assert!(mean == "12.0 ms" && beside.contains("34.0 ms"), "{mean}, {beside}");
        assert_eq!(row(&run, "Stored at the end").0, "not known");
        assert_eq!(row(&run, "Memory per object").0, NOTHING);
        run.plan.controller = "classic".to_owned();
        assert!(row(&run, "Flatness, fill 0.5 to 2.0").1.contains("slow climb"));
        run.summary.stored_ratio = Some(0.5);
        assert_eq!(row(&run, "Stored at the end").0, "0.50");
        assert_eq!(decisions(&run).columns[5].label, "mean response");
    }
}
