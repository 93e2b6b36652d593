//! The folder of a run: written while the run goes on, every file whole or not at all.

use crate::ReportError;
use crate::csv;
use crate::run_page;
use crate::stored::{self, SUMMARY_JSON};
use humboldt_lab_record::{Histogram, Run};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const REPORT_HTML: &str = "report.html";
const SUMMARY_MD: &str = "summary.md";
const SAMPLES_CSV: &str = "samples.csv";
const CDF_CSV: &str = "cdf.csv";
const SECONDS_CSV: &str = "seconds.csv";

/// The files that a run or a bang writes into its folder.
const OWN_FILES: [&str; 6] =
    [REPORT_HTML, SUMMARY_JSON, SUMMARY_MD, SAMPLES_CSV, CDF_CSV, SECONDS_CSV];

/// A file that begins like this was written here, so the folder is one of ours, whatever else lies
/// in it (a log of the subject, for instance).
const OWN_BEGINNINGS: [(&str, &str); 2] =
    [(SAMPLES_CSV, "sample,at_s,"), (SECONDS_CSV, "at_s,answers,")];

/// The ending of files that an interrupted write leaves behind.
const PARTIAL: &str = ".partial";

/// While a run goes on, all files but samples.csv are written at most so often: drawing costs CPU
/// time that the run itself may need.
const REFRESH: Duration = Duration::from_secs(30);

/// The folder of a run, written while the run goes on. After a crash it holds the run as it was at
/// most half a minute earlier, and all of its samples.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    samples: File,
    samples_written: usize,
    refreshed: Option<Instant>,
    refresh: Duration,
}

impl RunFolder {
    /// Makes the folder, or takes one without a result.
    ///
    /// # Errors
    /// If it holds the result of a run, or anything that no run writes, or cannot be made or
    /// written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        if path.join(SUMMARY_JSON).exists() {
            return Err(ReportError::HasRun(path.to_owned()));
        }
        Self::begin_again(path)
    }

    /// The same, also if a run that was not finished wrote it: that one is given up.
    ///
    /// # Errors
    /// If it holds anything that no run writes, or cannot be made or written.
    pub fn begin_again(path: &Path) -> Result<Self, ReportError> {
        prepare(path)?;
        let file = path.join(SAMPLES_CSV);
        // Files of an earlier run must not be taken for this one's.
        for old in [REPORT_HTML, SUMMARY_JSON, SUMMARY_MD, CDF_CSV] {
            remove(&path.join(old))?;
        }
        write_whole(&file, csv::samples_header().as_bytes())?;
        let samples = OpenOptions::new().append(true).open(&file);
        let samples = samples.map_err(|error| ReportError::write(&file, error))?;
        Ok(Self {
            path: path.to_owned(),
            samples,
            samples_written: 0,
            refreshed: None,
            refresh: REFRESH,
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Call it after every new sample: adds the lines of new samples to samples.csv; the other
    /// files follow with the first sample and then every 30 s.
    ///
    /// # Errors
    /// If something cannot be written, for instance because the disk is full; the last complete
    /// files stay.
    pub fn sample(&mut self, run: &Run) -> Result<(), ReportError> {
        let new = run.samples.get(self.samples_written..).unwrap_or_default();
        let lines: String = new.iter().map(csv::sample_line).collect();
        self.samples
            .write_all(lines.as_bytes())
            .map_err(|error| ReportError::write(self.path.join(SAMPLES_CSV), error))?;
        self.samples_written = run.samples.len();
        if self.refreshed.is_none_or(|last| last.elapsed() >= self.refresh) {
            write_figures(&self.path, run)?;
            self.refreshed = Some(Instant::now());
        }
        Ok(())
    }

    /// Writes everything once more, complete.
    ///
    /// # Errors
    /// As [`write_run`].
    pub fn finish(self, run: &Run) -> Result<(), ReportError> {
        write_run(&self.path, run)
    }
}

/// Writes report.html, summary.json, summary.md, samples.csv and cdf.csv of a run, each whole or
/// not at all.
///
/// # Errors
/// If the folder holds files that no run writes, or a file cannot be written; earlier complete
/// files stay.
pub fn write_run(dir: &Path, run: &Run) -> Result<(), ReportError> {
    prepare(dir)?;
    let lines = run.samples.iter().map(csv::sample_line);
    let samples: String = std::iter::once(csv::samples_header()).chain(lines).collect();
    write_whole(&dir.join(SAMPLES_CSV), samples.as_bytes())?;
    write_figures(dir, run)
}

/// Everything but samples.csv. The data first: with it all the rest can be made again.
fn write_figures(dir: &Path, run: &Run) -> Result<(), ReportError> {
    let json = stored::json(run)
        .map_err(|error| ReportError::write(dir.join(SUMMARY_JSON), io::Error::other(error)))?;
    write_whole(&dir.join(SUMMARY_JSON), &json)?;
    let tally = &run.last_quarter;
    let classes: [(&str, &Histogram); 6] = [
        ("hits", &tally.hits.response),
        ("misses", &tally.misses.response),
        ("others", &tally.others.response),
        ("hits_added", &tally.hits.added),
        ("misses_added", &tally.misses.added),
        ("others_added", &tally.others.added),
    ];
    write_whole(&dir.join(CDF_CSV), csv::distributions(&classes).as_bytes())?;
    let document = run_page::document(run);
    write_whole(&dir.join(SUMMARY_MD), document.markdown().as_bytes())?;
    write_whole(&dir.join(REPORT_HTML), document.html().as_bytes())
}

/// Makes a folder for results, or accepts one of ours, and removes the remains of an interrupted
/// write.
pub(crate) fn prepare(dir: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(dir).map_err(|error| ReportError::write(dir, error))?;
    let ours =
        OWN_BEGINNINGS.iter().any(|(name, beginning)| begins_with(&dir.join(name), beginning));
    let mut partial = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| ReportError::read(dir, error))? {
        let entry = entry.map_err(|error| ReportError::read(dir, error))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        match name.strip_suffix(PARTIAL) {
            Some(own) if is_file && OWN_FILES.contains(&own) => partial.push(entry.path()),
            _ if ours => {}
            _ => return Err(ReportError::ForeignFolder(dir.to_owned())),
        }
    }
    partial.iter().try_for_each(|path| remove(path))
}

fn begins_with(path: &Path, beginning: &str) -> bool {
    let mut first = vec![0; beginning.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && first == beginning.as_bytes()
}

fn remove(path: &Path) -> Result<(), ReportError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ReportError::write(path, error))
        }
        _ => Ok(()),
    }
}

/// Writes a file beside its place and then moves it there, so that no reader sees half of it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(PARTIAL);
    let partial = PathBuf::from(partial);
    // Not forced to the disk: that would disturb the very disks that a run measures.
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        // A second failure has nothing to add to the first.
        let _ = fs::remove_file(&partial);
        ReportError::write(path, error)
    })
}

#[cfg(test)]
mod tests;
