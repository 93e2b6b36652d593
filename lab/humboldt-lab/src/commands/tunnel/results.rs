//! The results of `humboldt-lab tunnel`: for the terminal, for programs, and as a folder.

use crate::Failure;
use crate::output::say;
use humboldt_lab_record::{FaultKind, FaultSample, Manifest, TimesSummary};
use humboldt_lab_robots::TunnelReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Faults that are shown with their evidence.
const FAULTS_SHOWN: usize = 3;

/// From this share of one processor on, an end of the laboratory may be the limit.
const BUSY: f64 = 0.85;

/// The kernel counts CPU time in ticks of 10 ms: less than ten of them is no figure.
const CPU_US_MIN: f64 = 100_000.0;

/// Why a measurement was ended that is not the proxy's fault.
const OWN_LIMIT: &str = "this host has no more ports or descriptors";

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    subject: String,
    /// Tunnels at a time.
    tunnels: u32,
    pub(super) parts: Vec<Measured>,
    manifest: Manifest,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    name: &'static str,
    #[serde(skip)]
    is_set_ups: bool,
    elapsed_s: f64,
    tunnels_begun: u64,
    tunnels_done: u64,
    tunnels_done_per_s: f64,
    /// From the begin of a connection to the first byte from the far end.
    first_byte: TimesSummary,
    up_bytes: u64,
    down_bytes: u64,
    gb_per_s: f64,
    /// CPU time of all processes of the proxy; `None` if they are not watched.
    subject_cpu_s: Option<f64>,
    /// `None` too below [`CPU_US_MIN`], as for each tunnel.
    subject_cpu_s_per_gb: Option<f64>,
    subject_cpu_us_per_tunnel: Option<f64>,
    /// Shares of one processor that the laboratory's two ends used.
    near_end_busy: f64,
    far_end_busy: f64,
    /// What this host had no more of for the laboratory, if that ended it.
    own_limit: Option<String>,
    faults: BTreeMap<FaultKind, u64>,
    fault_samples: Vec<FaultSample>,
}

impl Measured {
    pub(super) fn new(
        name: &'static str,
        is_set_ups: bool,
        report: &TunnelReport,
        subject_cpu_us: Option<u64>,
    ) -> Self {
        let wall_us = report.wall_us.max(1) as f64;
        let bytes = (report.up_bytes + report.down_bytes) as f64;
        let cpu_us = subject_cpu_us.map(|us| us as f64);
        let enough_cpu_us = cpu_us.filter(|us| *us >= CPU_US_MIN);
        Self {
            name,
            is_set_ups,
            elapsed_s: wall_us / 1e6,
            tunnels_begun: report.begun,
            tunnels_done: report.done,
            tunnels_done_per_s: report.done as f64 * 1e6 / wall_us,
            first_byte: TimesSummary::from(&report.opened),
            up_bytes: report.up_bytes,
            down_bytes: report.down_bytes,
            gb_per_s: bytes / 1e3 / wall_us,
            subject_cpu_s: cpu_us.map(|us| us / 1e6),
            subject_cpu_s_per_gb: enough_cpu_us
                .filter(|_| !is_set_ups && bytes > 0.0)
                .map(|us| us * 1e3 / bytes),
            subject_cpu_us_per_tunnel: enough_cpu_us
                .filter(|_| is_set_ups && report.done > 0)
                .map(|us| us / report.done as f64),
            near_end_busy: report.near_cpu_us as f64 / wall_us,
            far_end_busy: report.far_cpu_us as f64 / wall_us,
            own_limit: report.own_limit.clone(),
            faults: report.faults.clone(),
            fault_samples: report.fault_samples.clone(),
        }
    }

    fn write(&self, out: &mut String) {
        let mut row = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<17} {value}");
        };
        let Self { tunnels_done: done, tunnels_begun: begun, elapsed_s, .. } = self;
        if self.is_set_ups {
            let per_s = self.tunnels_done_per_s;
            row(self.name, format!("{done} in {elapsed_s:.2} s: {per_s:.1} per second"));
        } else {
            // The same unit as that of the rate: 1 GB = 10⁹ bytes.
            let gb = (self.up_bytes + self.down_bytes) as f64 / 1e9;
            let rate = self.gb_per_s;
            row(
                self.name,
                format!("{gb:.3} GB in {elapsed_s:.2} s: {rate:.3} GB/s, every byte checked"),
            );
            row("", format!("{done} of {begun} tunnels complete"));
        }
        if self.first_byte.count > 0 {
            let times = &self.first_byte;
            row(
                "  first byte, ms",
                format!(
                    "mean {:.3}, median {:.3}, p95 {:.3}, p99 {:.3}, slowest {:.3}",
                    times.mean_ms, times.p50_ms, times.p95_ms, times.p99_ms, times.max_ms
                ),
            );
        }
        if let Some(per_gb) = self.subject_cpu_s_per_gb {
            row("  CPU time", format!("{per_gb:.3} s per GB"));
        }
        if let Some(per_tunnel_us) = self.subject_cpu_us_per_tunnel {
            row("  CPU time", format!("{per_tunnel_us:.1} µs per tunnel"));
        }
        if self.subject_cpu_s.is_some_and(|s| s * 1e6 < CPU_US_MIN) {
            row("  CPU time", "less than 0.1 s: too little for a figure".to_owned());
        }
        let busiest = self.near_end_busy.max(self.far_end_busy);
        if busiest > BUSY {
            let share = busiest * 100.0;
            row("  laboratory", format!("{share:.0} % of a processor: it may be the limit"));
        }
        if let Some(limit) = &self.own_limit {
            row("  ended early", format!("{OWN_LIMIT}: {limit}"));
        }
        for kind in FaultKind::ALL {
            if let Some(count) = self.faults.get(&kind) {
                row(&format!("  {}", kind.label()), count.to_string());
            }
        }
        for sample in self.fault_samples.iter().take(FAULTS_SHOWN) {
            let fault = &sample.fault;
            let (expected, got) = (&fault.expected, &fault.got);
            row("", format!("{}: {}: expected {expected}, got {got}", sample.url, fault.kind));
        }
    }
}

impl Results {
    pub(super) fn new(subject: String, tunnels: u32, manifest: Manifest) -> Self {
        Self { subject, tunnels, parts: Vec::new(), manifest }
    }

    fn text(&self) -> String {
        let mut out = format!(
            "{:<17} {}, at most {} at a time\n",
            "tunnels through", self.subject, self.tunnels
        );
        self.parts.iter().for_each(|part| part.write(&mut out));
        if self.parts.iter().all(|part| part.subject_cpu_s.is_none()) {
            let _ = writeln!(out, "{:<17} not known: give --pid", "  CPU time");
        }
        out
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self).map_err(Failure::run)
    }

    /// Prints what there is, also of a measurement that was ended early.
    pub(super) fn show(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            say!("{}", self.json()?);
        } else if !self.parts.is_empty() {
            say!("{}", self.text().trim_end());
        }
        Ok(())
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        for (name, text) in [("tunnel.json", self.json()?), ("tunnel.txt", self.text())] {
            let path = folder.join(name);
            std::fs::write(&path, text)
                .map_err(|error| Failure::run(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Whether anything went through each time, and nothing but what was sent.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let limit =
            |part: &Measured| part.own_limit.as_ref().map(|limit| (part.name, limit.clone()));
        if let Some((name, limit)) = self.parts.iter().find_map(limit) {
            return Err(Failure::run(format!("{name}: {OWN_LIMIT}: {limit}")));
        }
        let nothing = |part: &&Measured| part.up_bytes + part.down_bytes == 0;
        let Some(part) = self.parts.iter().find(nothing) else { return self.content() };
        let why = part.fault_samples.first().map_or_else(
            || "none was open in time".to_owned(),
            |first| format!("{}, {}", first.fault.kind, first.fault.got),
        );
        Err(Failure::run(format!(
            "{}: no byte went through any of {} tunnels: {why}",
            part.name, part.tunnels_begun
        )))
    }

    /// Whether all bytes were those that were sent.
    fn content(&self) -> Result<(), Failure> {
        let is_wrong = |part: &&Measured| part.faults.keys().any(|kind| kind.is_wrong_content());
        let Some(part) = self.parts.iter().find(is_wrong) else { return Ok(()) };
        Err(Failure::run(format!("{}: wrong bytes went through; see above", part.name)))
    }
}

/// Makes the folder before the measurement. One that has results is refused.
pub(super) fn prepare(folder: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
    if folder.join("tunnel.json").exists() {
        return Err(Failure::usage(format!(
            "{}: it has results already: choose another folder",
            folder.display()
        )));
    }
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::Fault;

    fn report(up_bytes: u64, down_bytes: u64) -> TunnelReport {
        let mut report = TunnelReport {
            begun: 5,
            done: 4,
            up_bytes,
            down_bytes,
            wall_us: 2_000_000,
            far_cpu_us: 1_900_000,
            ..TunnelReport::default()
        };
        (0..4).for_each(|_| report.opened.record_us(1_000));
        report.faults.insert(FaultKind::WrongByte, 1);
        let kind = FaultKind::WrongByte;
        let fault = Fault { kind, offset: Some(7), expected: "aa".into(), got: "ab".into() };
        report.fault_samples.push(FaultSample { at_us: 1, url: "tunnel 3".into(), fault });
        report
    }

    #[test]
    fn rates_and_costs_follow_from_what_was_counted() {
        let mut results = Results::new("squid:null".into(), 5, Manifest::default());
        results.parts.push(Measured::new("set-ups", true, &report(0, 4), Some(100_000)));
        results.parts.push(Measured::new("short", false, &report(0, 4_000_000), Some(90_000)));
        results.parts.push(Measured::new(
            "download",
            false,
            &report(0, 4_000_000_000),
            Some(500_000),
        ));
        let text = results.text();
        for part in [
            "squid:null, at most 5 at a time\n",
            "set-ups           4 in 2.00 s: 2.0 per second\n",
            "25000.0 µs per tunnel",
            "  CPU time        less than 0.1 s: too little for a figure\n",
            "4.000 GB in 2.00 s: 2.000 GB/s",
            "                  4 of 5 tunnels complete\n",
            "0.125 s per GB",
            "95 % of a processor",
            "  wrong byte      1\n",
            "tunnel 3: wrong byte: expected aa, got ab",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let failure = results.verdict().unwrap_err();
        assert_eq!(failure.code(), 1);
        let says = "set-ups: wrong bytes went through; see above";
        assert_eq!(failure.to_string(), says);
        results.parts.iter_mut().for_each(|part| part.faults.clear());
        assert!(results.verdict().is_ok());
        // An upload that was ended by the time has sent nothing down but may have come far.
        let mut short = report(0, 9);
        (short.own_limit, short.faults) = (Some("too many open files".into()), [].into());
        results.parts.push(Measured::new("download", false, &short, None));
        assert!(results.text().contains("no more ports or descriptors: too many open files"));
        assert!(results.verdict().unwrap_err().to_string().contains("no more ports"));
        results.parts.pop();
        let mut slow = report(9, 0);
        slow.faults = [(FaultKind::TimedOut, 5)].into();
        results.parts.push(Measured::new("upload", false, &slow, None));
        assert!(results.verdict().is_ok());
        results.parts.push(Measured::new("upload", false, &report(0, 0), None));
        let failure = results.verdict().unwrap_err();
        assert!(failure.code() == 1 && failure.to_string().contains("upload"), "{failure}");
    }

    #[test]
    fn results_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = prepare(&folder.path().join("out")).unwrap();
        Results::new("x".into(), 1, Manifest::default()).write(&path).unwrap();
        assert_eq!(prepare(&path).unwrap_err().code(), 2);
    }
}
