//! summary.json: a run as it is kept.
//!
//! It is the JSON of [`Run`], so any version of this program and any JSON tool reads it. The
//! histograms of the whole run and of its last quarter are complete. Those of single samples keep
//! count, sum, maximum and the percentiles of [`KEPT`], as a dozen `[value_us, count]` pairs in
//! place of thousands, and the evidence of errors is kept once, in the whole run's tally. So
//! `jq '.samples[] | [.at_s, .tally.hits.answers]' summary.json` works, and a run that was read
//! draws the same plots. (Only percentiles over all classes of a single sample, `response_p50_ms`
//! and the like in samples.csv, are coarser when they are made from a run that was read.)

use crate::ReportError;
use humboldt_lab_record::{BangRun, Class, Histogram, RUN_FORMAT, Run, Sample, Tally};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The name of the file in a run's folder.
pub(crate) const SUMMARY_JSON: &str = "summary.json";

/// The percentiles of a sample that are kept exactly.
const KEPT: [f64; 11] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Largest summary.json that is read: ten times the size of 100,000 samples.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The JSON of a run, with a line end.
pub(crate) fn json(run: &Run) -> Result<Vec<u8>, serde_json::Error> {
    let all_kept = |samples: &[Sample]| samples.iter().map(kept).collect();
    let run = Run {
        samples: all_kept(&run.samples),
        curve_samples: all_kept(&run.curve_samples),
        ..without_samples(run)
    };
    let mut text = serde_json::to_vec(&run)?;
    text.push(b'\n');
    Ok(text)
}

/// The same, small enough for a repository: the histograms of the whole run are those of a sample.
/// No figure of a page is made of them; those of the last quarter are complete.
pub(crate) fn published_json(run: &Run) -> Result<Vec<u8>, serde_json::Error> {
    let whole = Sample { tally: run.total.clone(), ..Sample::default() };
    let total = Tally { fault_samples: run.total.fault_samples.clone(), ..kept(&whole).tally };
    json(&Run {
        total,
        samples: run.samples.clone(),
        curve_samples: run.curve_samples.clone(),
        ..without_samples(run)
    })
}

/// Everything but the samples.
fn without_samples(run: &Run) -> Run {
    Run {
        format: RUN_FORMAT,
        started_s: run.started_s,
        plan: run.plan.clone(),
        manifest: run.manifest.clone(),
        calibration: run.calibration,
        samples: Vec::new(),
        total: run.total.clone(),
        last_quarter: run.last_quarter.clone(),
        summary: run.summary.clone(),
        curve: run.curve.clone(),
        curve_samples: Vec::new(),
        curve_of_per_s: run.curve_of_per_s,
        outcome: run.outcome.clone(),
    }
}

/// The kept part of a sample.
pub(crate) fn kept(sample: &Sample) -> Sample {
    let tally = &sample.tally;
    let tally = Tally {
        hits: kept_class(&tally.hits),
        misses: kept_class(&tally.misses),
        others: kept_class(&tally.others),
        lag: tally.lag.thinned(&KEPT),
        fault_samples: Vec::new(),
        faults: tally.faults.clone(),
        by_type: tally.by_type.clone(),
        by_kind: tally.by_kind.clone(),
        ..*tally
    };
    let origin_lag = sample.origin.lag.thinned(&KEPT);
    Sample {
        tally,
        origin: humboldt_lab_record::OriginTally { lag: origin_lag, ..sample.origin },
        verdict: sample.verdict.clone(),
        lab_limited: sample.lab_limited.clone(),
        ..*sample
    }
}

fn kept_class(class: &Class) -> Class {
    let thinned = |times: &Histogram| times.thinned(&KEPT);
    Class { response: thinned(&class.response), added: thinned(&class.added), ..*class }
}

/// Reads a run again: from its folder, or from its summary.json.
///
/// # Errors
/// If there is no such file, if it is not the summary of a run, or if a later version wrote it.
pub fn read_run(path: &Path) -> Result<Run, ReportError> {
    read(path)
}

/// Reads a bang, or one pass of several, again: from its folder, or from its summary.json.
///
/// # Errors
/// As [`read_run`].
pub fn read_bang(path: &Path) -> Result<BangRun, ReportError> {
    read(path)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ReportError> {
    let file = if path.is_dir() { path.join(SUMMARY_JSON) } else { path.to_owned() };
    if path.is_dir() && !file.exists() {
        return Err(ReportError::NoRun(path.to_owned()));
    }
    let mut text = Vec::new();
    let reader = File::open(&file).map_err(|error| ReportError::read(&file, error))?;
    BufReader::new(reader)
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| ReportError::read(&file, error))?;
    parse(file, &text)
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn parse<T: DeserializeOwned>(path: PathBuf, text: &[u8]) -> Result<T, ReportError> {
    // The format first: a file of a later version may not parse as a run of this one.
    match serde_json::from_slice::<Format>(text) {
        Ok(Format { format }) if format > RUN_FORMAT => {
            Err(ReportError::TooNew { path, found: format, known: RUN_FORMAT })
        }
        Ok(_) => serde_json::from_slice(text)
            .map_err(|error| ReportError::NotARun { path, reason: error.to_string() }),
        Err(error) => Err(ReportError::NotARun { path, reason: error.to_string() }),
    }
}
