//! The tables of `bench store`: one for each thing that was measured, and one with the bounds.

use super::Series;
use super::subjects::{Family, SQUID_DISKER};
use super::turns::{Course, DISKD_MISSES_PER_S, DISKD_REQUESTS, Turn};
use crate::bench::beside_old;
use crate::bench::report::Report;
use crate::bench::table;

/// The measurements of every subject.
#[derive(Clone, Copy)]
enum Phase {
    Miss,
    Warm,
    Cold,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Miss, Self::Warm, Self::Cold];

    fn turns(self, series: &Series) -> &[Turn] {
        match self {
            Self::Miss => &series.misses,
            Self::Warm => &series.warm,
            Self::Cold => &series.cold,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Miss => "miss, stored",
            Self::Warm => "hit, warm",
            Self::Cold => "hit, cold",
        }
    }

    fn share(self) -> &'static str {
        match self {
            Self::Miss => "stored",
            Self::Warm | Self::Cold => "from disk",
        }
    }

    /// CPU time of each turn, if all of them count.
    fn cpu_us(self, series: &Series) -> Option<Vec<f64>> {
        let turns = self.turns(series);
        let all_count = !turns.is_empty() && turns.iter().all(Turn::counts);
        all_count.then(|| turns.iter().map(|turn| turn.cpu_us).collect())
    }
}

pub(super) fn print(
    report: &mut Report,
    all: &[Series],
    floor: &[Turn],
    rounds: usize,
    course: &Course,
) {
    let Course { requests, lead_in, .. } = course;
    report.prose(&format!(
        "CPU time of the server, its threads and its helpers for each request: median of {rounds} rounds of {requests} requests, and \
         range; {lead_in} requests before each round are not counted. Objects of 13 KiB, 64 connections in a closed loop, `cache_mem 8 MB`. `diskd`: at most {DISKD_REQUESTS} requests, 8 connections, \
         misses at {DISKD_MISSES_PER_S} a second; at a higher rate Squid's `diskd` does not store all of them. Misses are measured until \
         1.5 s after the last answer. Warm: in the page cache, if the store uses it. Cold: files taken out of it with `posix_fadvise`. A \
         figure is refused if fewer than 95 % of the misses were stored, or of the hits read from disk. Floor: a relay that reads and \
         writes each message once and does nothing else."
    ));
    for phase in Phase::ALL {
        let floor = if let Phase::Miss = phase { floor } else { &[] };
        print_phase(report, all, floor, phase);
    }
    print_device(report, all);
    print_bounds(report, all, floor);
}

fn print_phase(report: &mut Report, all: &[Series], floor: &[Turn], phase: Phase) {
    let measured = all.iter().filter(|series| !phase.turns(series).is_empty());
    let mut rows: Vec<Vec<String>> = measured.map(|series| row(all, series, phase)).collect();
    if !floor.is_empty() {
        let [requests_per_s, p99_ms] = throughput(floor);
        let cpu_us: Vec<f64> = floor.iter().map(|turn| turn.cpu_us).collect();
        let cpu_us = table::with_range(&cpu_us, 1);
        rows.insert(
            0,
            vec!["floor".to_owned(), requests_per_s, cpu_us, String::new(), p99_ms, String::new()],
        );
    }
    if !rows.is_empty() {
        let heading = [
            phase.name(),
            "req/s",
            "CPU µs/request",
            phase.share(),
            "p99 ms",
            "Squid's same scheme ÷ it",
        ];
        report.table(&heading, &rows);
    }
}

fn row(all: &[Series], series: &Series, phase: Phase) -> Vec<String> {
    let turns = phase.turns(series);
    let [requests_per_s, p99_ms] = throughput(turns);
    let share = table::median(&turns.iter().map(|turn| turn.share).collect::<Vec<_>>());
    let same = squid_like(all, series.kind.scheme, phase)
        .filter(|_| series.kind.family == Family::Humboldt);
    vec![
        series.kind.name.to_owned(),
        requests_per_s,
        phase.cpu_us(series).map_or("refused".to_owned(), |cpu| table::with_range(&cpu, 1)),
        format!("{:.1} %", share * 100.0),
        p99_ms,
        same.and_then(|squid| ratios(squid, series, phase))
            .map(|ratios| table::with_range(&ratios, 2))
            .unwrap_or_default(),
    ]
}

/// Medians of requests per second, and of the 99th percentile.
fn throughput(turns: &[Turn]) -> [String; 2] {
    let median = |of: fn(&Turn) -> f64| table::median(&turns.iter().map(of).collect::<Vec<_>>());
    [
        format!("{:.0}", median(|turn| turn.requests_per_s)),
        format!("{:.1}", median(|turn| turn.p99_ms)),
    ]
}

fn print_device(report: &mut Report, all: &[Series]) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .filter(|series| series.reads_per_hit.is_some())
        .map(|series| {
            let cell =
                |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
            vec![
                series.kind.name.to_owned(),
                cell(series.reads_per_hit),
                cell(series.amplification),
            ]
        })
        .collect();
    if !rows.is_empty() {
        report.table(&["device", "reads for a hit", "bytes written for a byte stored"], &rows);
    }
}

/// Humboldt's subject of a scheme.
fn ours<'s>(all: &'s [Series], scheme: &str) -> Option<&'s Series> {
    all.iter().find(|series| series.kind.family == Family::Humboldt && series.kind.scheme == scheme)
}

/// Squid's subject of a scheme: the better one, where there are two.
fn squid_like<'s>(all: &'s [Series], scheme: &str, phase: Phase) -> Option<&'s Series> {
    squids_best(all, phase, |series| series.kind.scheme == scheme)
}

fn squids_best(
    all: &[Series],
    phase: Phase,
    is_meant: impl Fn(&Series) -> bool,
) -> Option<&Series> {
    let of_squid =
        all.iter().filter(|series| series.kind.family == Family::Squid && is_meant(series));
    let with_cpu =
        of_squid.filter_map(|series| Some((series, table::median(&phase.cpu_us(series)?))));
    with_cpu.min_by(|(_, left), (_, right)| left.total_cmp(right)).map(|(series, _)| series)
}

/// CPU time of `upper` over that of `lower`, round by round, so that a disturbed round disturbs
/// both sides.
fn ratios(upper: &Series, lower: &Series, phase: Phase) -> Option<Vec<f64>> {
    let (upper, lower) = (phase.cpu_us(upper)?, phase.cpu_us(lower)?);
    Some(upper.iter().zip(&lower).map(|(upper, lower)| upper / lower).collect())
}

/// The bound of a ratio.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn verdict(self, ratio: f64) -> String {
        let (text, is_met) = match self {
            Self::AtMost(bound) => (format!("≤ {bound}"), ratio <= bound),
            Self::AtLeast(bound) => (format!("≥ {bound}"), ratio >= bound),
        };
        format!("{text}: {}", if is_met { "reached" } else { "missed" })
    }
}

fn print_bounds(report: &mut Report, all: &[Series], floor: &[Turn]) {
    let mut rows = Vec::new();
    let mut add = |what: String,
                   upper: Option<&Series>,
                   lower: Option<&Series>,
                   phase: Phase,
                   bound: Bound| {
        let ratios = upper.zip(lower).and_then(|(upper, lower)| ratios(upper, lower, phase));
        if let Some(ratios) = ratios {
            let verdict = bound.verdict(table::median(&ratios));
            rows.push(vec![
                format!("{}: {what}", phase.name()),
                table::with_range(&ratios, 2),
                verdict,
            ]);
        }
    };
    let ring = ours(all, "ring");
    add("ring ÷ null".to_owned(), ring, ours(all, "null"), Phase::Miss, Bound::AtMost(1.25));
    for scheme in ["aufs", "rock"] {
        let squid = squid_like(all, scheme, Phase::Miss);
        add(format!("{} ÷ ring", named(squid)), squid, ring, Phase::Miss, Bound::AtLeast(5.0));
    }
    // rock is cheaper without it, but Squid started as a service has it.
    let disker = all.iter().find(|series| series.kind.name == SQUID_DISKER);
    let as_started = format!("{}, as a service has it, ÷ ring", named(disker));
    add(as_started, disker, ring, Phase::Miss, Bound::AtLeast(5.0));
    for phase in [Phase::Warm, Phase::Cold] {
        let squid = squids_best(all, phase, |_| true);
        add(format!("{}, its best, ÷ ring", named(squid)), squid, ring, phase, Bound::AtLeast(4.0));
    }
    for phase in Phase::ALL {
        for scheme in ["ufs", "aufs", "diskd", "rock"] {
            let squid = squid_like(all, scheme, phase);
            add(
                format!("{} ÷ {scheme}", named(squid)),
                squid,
                ours(all, scheme),
                phase,
                Bound::AtLeast(2.0),
            );
        }
    }
    for old in all.iter().filter(|series| series.kind.family == Family::Old) {
        for phase in Phase::ALL {
            let (what, new) =
                (format!("{0} ÷ old {0}", old.kind.scheme), ours(all, old.kind.scheme));
            add(what, new, Some(old), phase, Bound::AtMost(beside_old::RATIO_MAX));
        }
    }
    rows.extend(above_floor(all, floor));
    if !rows.is_empty() {
        report.table(&["bound", "ratio", "wanted"], &rows);
    }
}

/// Distance of Squid's rock from the floor, round by round: the best that a proxy could reach that
/// reads and writes and does nothing else.
fn above_floor(all: &[Series], floor: &[Turn]) -> Option<Vec<String>> {
    let squid = squid_like(all, "rock", Phase::Miss)?;
    let squid_us = Phase::Miss.cpu_us(squid)?;
    let measured = squid_us.iter().zip(floor).filter(|(_, turn)| turn.cpu_us > 0.0);
    let ratios: Vec<f64> = measured.map(|(squid_us, turn)| squid_us / turn.cpu_us).collect();
    let what = format!("{}: {} ÷ floor", Phase::Miss.name(), named(Some(squid)));
    (!ratios.is_empty())
        .then(|| vec![what, table::with_range(&ratios, 2), "for comparison".to_owned()])
}

fn named(series: Option<&Series>) -> &'static str {
    match series.map(|series| series.kind.name) {
        Some(SQUID_DISKER) => "squid rock (disker)",
        Some(name) => name,
        None => "squid",
    }
}

#[cfg(test)]
mod tests {
    use super::super::subjects::KINDS;
    use super::*;

    fn series(name: &str, cpu_us: [f64; 3], share: f64) -> Series {
        let kind = KINDS.into_iter().find(|kind| kind.name == name).unwrap();
        let turn = |cpu_us| Turn { cpu_us, requests_per_s: 1.0, p99_ms: 1.0, share };
        Series { misses: cpu_us.map(turn).to_vec(), ..Series::new(kind) }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let (squid, ring) = (
            series("squid aufs", [100.0, 300.0, 200.0], 1.0),
            series("ring", [10.0, 10.0, 40.0], 1.0),
        );
        assert_eq!(ratios(&squid, &ring, Phase::Miss).unwrap(), [10.0, 30.0, 5.0]);
        assert_eq!(ratios(&squid, &ring, Phase::Warm), None, "nothing was measured");
    }

    #[test]
    fn figures_of_what_was_not_stored_are_refused() {
        let (squid, ring) = (series("squid aufs", [1.0; 3], 0.5), series("ring", [1.0; 3], 1.0));
        assert_eq!(ratios(&squid, &ring, Phase::Miss), None);
        assert_eq!(row(&[], &squid, Phase::Miss)[2], "refused");
    }

    #[test]
    fn the_better_of_squids_rocks_is_compared() {
        let all = [
            series("squid rock", [9.0; 3], 1.0),
            series(SQUID_DISKER, [8.0; 3], 1.0),
            series("rock", [1.0; 3], 1.0),
        ];
        assert_eq!(squid_like(&all, "rock", Phase::Miss).unwrap().kind.name, SQUID_DISKER);
        assert_eq!(ours(&all, "rock").unwrap().kind.name, "rock");
    }

    #[test]
    fn a_bound_is_reached_or_missed() {
        assert_eq!(Bound::AtMost(1.25).verdict(1.25), "≤ 1.25: reached");
        assert_eq!(Bound::AtLeast(5.0).verdict(4.99), "≥ 5: missed");
    }
}
