//! The results of a simulation: for the terminal, and for other programs.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::course::{Chooser, Contestant};
use crate::Failure;
use crate::units::show_bytes;

/// Everything that a simulation found.
pub(super) struct Results<'a> {
    pub(super) trace: String,
    /// Different objects and their bytes; known only if the trace was kept.
    pub(super) distinct: Option<(u64, u64)>,
    pub(super) contestants: &'a [Contestant],
}

#[derive(Serialize)]
struct Report<'a> {
    trace: &'a str,
    requests: u64,
    bytes: u64,
    distinct_objects: Option<u64>,
    distinct_bytes: Option<u64>,
    results: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    policy: &'a str,
    cache_bytes: u64,
    hits: u64,
    hit_bytes: u64,
    object_hit_ratio: f64,
    byte_hit_ratio: f64,
    ns_per_request: f64,
}

impl Results<'_> {
    fn totals(&self) -> (u64, u64) {
        self.contestants.first().map_or((0, 0), |first| (first.requests(), first.bytes()))
    }

    /// A table for people.
    pub(super) fn text(&self) -> String {
        let (requests, bytes) = self.totals();
        let mut out =
            format!("trace     {}\nrequests  {requests}, {}\n", self.trace, show_bytes(bytes));
        if let Some((objects, bytes)) = self.distinct {
            let _ = writeln!(out, "objects   {objects} different ones, {}", show_bytes(bytes));
        }
        let labels =
            self.contestants.iter().map(|contestant| contestant.size_label.chars().count());
        let width = labels.max().unwrap_or(0).max(5);
        let _ = writeln!(
            out,
            "\n{:<width$}  {:<14}  {:>9}  {:>10}  {:>10}",
            "cache", "policy", "hits", "hit bytes", "ns/request"
        );
        let mut before = "";
        for contestant in self.contestants {
            let label =
                if contestant.size_label == before { "" } else { contestant.size_label.as_str() };
            if !label.is_empty() && !before.is_empty() {
                out.push('\n');
            }
            before = &contestant.size_label;
            let _ = writeln!(
                out,
                "{label:<width$}  {:<14}  {:>7.2} %  {:>8.2} %  {:>10.0}",
                contestant.chooser.name(),
                contestant.object_hit_ratio() * 100.0,
                contestant.byte_hit_ratio() * 100.0,
                contestant.ns_per_request()
            );
        }
        if self.contestants.iter().any(|one| one.chooser == Chooser::Optimum { exact: false }) {
            out.push_str(
                "\n`furthest first` knows the future. With objects of different sizes it is no bound: a policy can have more \
                 hits.\n",
            );
        }
        out
    }

    /// One object.
    pub(super) fn json(&self) -> Result<String, serde_json::Error> {
        let (requests, bytes) = self.totals();
        let rows = self.contestants.iter().map(|contestant| Row {
            policy: contestant.chooser.name(),
            cache_bytes: contestant.capacity_bytes,
            hits: contestant.hits(),
            hit_bytes: contestant.hit_bytes(),
            object_hit_ratio: contestant.object_hit_ratio(),
            byte_hit_ratio: contestant.byte_hit_ratio(),
            ns_per_request: contestant.ns_per_request(),
        });
        let report = Report {
            trace: &self.trace,
            requests,
            bytes,
            distinct_objects: self.distinct.map(|(objects, _)| objects),
            distinct_bytes: self.distinct.map(|(_, bytes)| bytes),
            results: rows.collect(),
        };
        serde_json::to_string_pretty(&report).map(|text| text + "\n")
    }

    /// A line for each cache.
    pub(super) fn csv(&self) -> String {
        let mut out =
            "policy,cache_bytes,requests,hits,bytes,hit_bytes,object_hit_ratio,byte_hit_ratio,ns_per_request\n"
                .to_owned();
        for contestant in self.contestants {
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{:.6},{:.6},{:.1}",
                contestant.chooser.name(),
                contestant.capacity_bytes,
                contestant.requests(),
                contestant.hits(),
                contestant.bytes(),
                contestant.hit_bytes(),
                contestant.object_hit_ratio(),
                contestant.byte_hit_ratio(),
                contestant.ns_per_request()
            );
        }
        out
    }
}

/// Writes a file, or prints the text if the file is `-`.
pub(super) fn deliver(path: &Path, text: &str) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        crate::output::line(format_args!("{}", text.trim_end()));
        return Ok(());
    }
    std::fs::write(path, text)
        .map_err(|error| Failure::run(format_args!("{}: cannot write it: {error}", path.display())))
}
