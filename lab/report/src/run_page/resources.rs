//! The plots of the resources of the subject and the laboratory, over time.

use crate::document::Figure;
use crate::format::mib;
use crate::plot::{Axis, Line, Plot, Size};
use humboldt_lab_record::{Resources, Run, Sample};

/// Seconds as a time axis shows them: the unit's name, and how many seconds it has.
fn time_unit(run: &Run) -> (&'static str, f64) {
    match run.samples.last().map_or(0.0, |sample| sample.at_s) {
        end if end <= 900.0 => ("s", 1.0),
        end if end <= 14_400.0 => ("min", 60.0),
        _ => ("h", 3600.0),
    }
}

/// The plots of the subject's processes; none if they were not watched.
pub(crate) fn subject(run: &Run) -> Vec<Figure> {
    if run.samples.iter().all(|sample| sample.resources.is_none()) {
        return Vec::new();
    }
    vec![cpu(run), memory(run), disk_bytes(run), disk_calls(run), descriptors(run), faults(run)]
}

fn figure(run: &Run, id: &str, title: &str, y: Axis, lines: Vec<Line>, caption: &str) -> Figure {
    let plot = Plot {
        title: title.to_owned(),
        description: caption.to_owned(),
        size: Size::Half,
        x: Axis::linear(&format!("time, {}", time_unit(run).0)).tight(),
        y,
        lines,
        bands: Vec::new(),
        rules: Vec::new(),
    };
    Figure::draw(id, caption, &plot)
}

/// One value of every watched sample over time.
fn level(run: &Run, name: &str, look: usize, value: fn(&Resources) -> f64) -> Line {
    let unit_s = time_unit(run).1;
    let point =
        |sample: &Sample| (sample.at_s / unit_s, sample.resources.as_ref().map_or(f64::NAN, value));
    Line::straight(name, look, run.samples.iter().map(point).collect())
}

/// Growth of a total between samples, per second.
fn growth(run: &Run, name: &str, look: usize, value: impl Fn(&Resources) -> f64) -> Line {
    let unit_s = time_unit(run).1;
    let mut before: Option<&Resources> = None;
    let mut points = Vec::with_capacity(run.samples.len());
    for sample in &run.samples {
        let Some(now) = &sample.resources else { continue };
        if let Some(before) = before {
            points.push((sample.at_s / unit_s, per_second(before, now, &value)));
        }
        before = Some(now);
    }
    Line::straight(name, look, points)
}

/// Never negative: a total can sink when a process ends whose share was not inherited.
fn per_second(before: &Resources, now: &Resources, value: impl Fn(&Resources) -> f64) -> f64 {
    let seconds = now.at_us.saturating_sub(before.at_us) as f64 / 1e6;
    if seconds > 0.0 { (value(now) - value(before)).max(0.0) / seconds } else { f64::NAN }
}

fn cpu(run: &Run) -> Figure {
    let lines = vec![
        growth(run, "user + system", 0, |now| (now.cpu.user_us + now.cpu.system_us) as f64 / 1e6),
        growth(run, "user", 1, |now| now.cpu.user_us as f64 / 1e6),
        growth(run, "system", 2, |now| now.cpu.system_us as f64 / 1e6),
    ];
    figure(
        run,
        "cpu",
        "CPU of the subject",
        Axis::linear("cores"),
        lines,
        "Cores that all its processes kept busy.",
    )
}

fn memory(run: &Run) -> Figure {
    let lines = vec![
        level(run, "resident", 0, |now| mib(now.resident_bytes)),
        level(run, "anonymous", 1, |now| mib(now.anonymous_bytes)),
        level(run, "shared", 2, |now| mib(now.shared_bytes)),
    ];
    let caption =
        "Resident memory of all its processes, and which part of it is anonymous or shared.";
    figure(run, "memory", "Memory of the subject", Axis::linear("MiB"), lines, caption)
}

/// Whether the store has block devices of its own.
fn has_devices(run: &Run) -> bool {
    run.samples
        .iter()
        .filter_map(|sample| sample.resources.as_ref())
        .any(|now| now.device_reads + now.device_writes > 0)
}

fn disk_bytes(run: &Run) -> Figure {
    let (lines, caption) = if has_devices(run) {
        let lines = vec![
            growth(run, "written", 0, |now| mib(now.device_write_bytes)),
            growth(run, "read", 1, |now| mib(now.device_read_bytes)),
        ];
        (lines, "Bytes that reached the store's own block devices.")
    } else {
        let lines = vec![
            growth(run, "written", 0, |now| mib(now.write_bytes)),
            growth(run, "read", 1, |now| mib(now.read_bytes)),
        ];
        (lines, "Bytes that its processes made the disks read and write.")
    };
    figure(run, "disk", "Disk, bytes", Axis::linear("MiB/s"), lines, caption)
}

fn disk_calls(run: &Run) -> Figure {
    let (lines, caption) = if has_devices(run) {
        let lines = vec![
            growth(run, "writes", 0, |now| now.device_writes as f64),
            growth(run, "reads", 1, |now| now.device_reads as f64),
        ];
        (lines, "Completed operations of the store's own block devices.")
    } else {
        let lines = vec![
            growth(run, "write calls", 0, |now| now.write_calls as f64),
            growth(run, "read calls", 1, |now| now.read_calls as f64),
        ];
        (lines, "Read and write calls of its processes, to files and to sockets.")
    };
    figure(run, "operations", "Disk, operations", Axis::linear("operations/s"), lines, caption)
}

fn descriptors(run: &Run) -> Figure {
    let lines = vec![
        level(run, "descriptors", 0, |now| f64::from(now.descriptors)),
        level(run, "threads", 1, |now| f64::from(now.threads)),
        level(run, "processes", 2, |now| f64::from(now.processes)),
    ];
    figure(
        run,
        "descriptors",
        "Descriptors and threads",
        Axis::linear("open"),
        lines,
        "At the end of every sample.",
    )
}

fn faults(run: &Run) -> Figure {
    let lines = vec![
        growth(run, "voluntary switches", 0, |now| now.voluntary_switches as f64),
        growth(run, "involuntary switches", 1, |now| now.involuntary_switches as f64),
        growth(run, "minor page faults", 2, |now| now.minor_faults as f64),
        growth(run, "major page faults", 3, |now| now.major_faults as f64),
    ];
    let caption = "A voluntary switch: it waited for something. A major page fault: memory had to be read from disk.";
    figure(
        run,
        "switches",
        "Context switches and page faults",
        Axis::linear("per second"),
        lines,
        caption,
    )
}

/// The plots of the laboratory itself.
pub(crate) fn laboratory(run: &Run) -> Vec<Figure> {
    if run.samples.is_empty() {
        return Vec::new();
    }
    let unit_s = time_unit(run).1;
    let over_time = |name: &str, look: usize, value: fn(&Sample) -> f64| {
        let points = run.samples.iter().map(|sample| (sample.at_s / unit_s, value(sample)));
        Line::straight(name, look, points.collect())
    };
    // Too short a time for a logarithmic axis is drawn as 1 µs.
    let lag = vec![
        over_time("users", 0, |sample| sample.tally.lag.percentile_us(99.0).max(1) as f64 / 1e3),
        over_time("servers", 1, |sample| sample.origin.lag.percentile_us(99.0).max(1) as f64 / 1e3),
    ];
    let cpu = vec![
        over_time("users", 0, |sample| {
            busy_percent(sample.tally.cpu_us, sample.tally.period_us, sample.tally.threads)
        }),
        over_time("servers", 1, |sample| {
            busy_percent(sample.origin.cpu_us, sample.origin.period_us, sample.origin.threads)
        }),
    ];
    vec![
        figure(
            run,
            "labcpu",
            "CPU of the laboratory",
            Axis::linear("% of its threads").at_least(0.0, 100.0),
            cpu,
            "Near 100 % the laboratory is the limit, not the cache.",
        ),
        figure(
            run,
            "lablag",
            "Lateness of the laboratory",
            Axis::log("p99, ms"),
            lag,
            "How late users send and servers answer although nothing keeps them from it.",
        ),
    ]
}

/// CPU time of threads in per cent of the available time; not a number without a period.
fn busy_percent(cpu_us: u64, period_us: u64, threads: u32) -> f64 {
    let possible_us = period_us as f64 * f64::from(threads);
    if possible_us > 0.0 { 100.0 * cpu_us as f64 / possible_us } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_and_never_negative() {
        let before = Resources { at_us: 1_000_000, write_calls: 100, ..Resources::default() };
        let now = Resources { at_us: 3_000_000, write_calls: 300, ..Resources::default() };
        let calls = |now: &Resources| now.write_calls as f64;
        assert_eq!(per_second(&before, &now, calls), 100.0);
        assert_eq!(per_second(&now, &Resources { at_us: 4_000_000, ..before }, calls), 0.0);
        assert!(per_second(&now, &now, calls).is_nan());
    }
}
