//! An experiment: its runs, and what its page is made of. With `experiment.json` and the files of
//! the runs, every figure of the page can be computed again.

use crate::bang;
use crate::bangs::bang_page;
use crate::compare::{Pairs, peak_page};
use crate::document::{Document, INDEX, Made, Section};
use crate::folder::write_whole;
use crate::run_page;
use crate::stored::{self, SUMMARY_JSON};
use crate::{ReportError, read_bang, read_run};
use humboldt_lab_record::{BangRun, Run};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Component, Path};

/// The name of the file in the folder of an experiment.
pub(crate) const EXPERIMENT_JSON: &str = "experiment.json";

/// Version of its format. A reader refuses newer ones.
const FORMAT: u32 = 1;

/// The folder of the runs below a published page.
const RUNS: &str = "runs";

/// Files of a run that are published as they are, if they are there: one line per sample of a
/// peak, and per second of a bang.
const SAMPLES: [&str; 2] = ["samples.csv", "seconds.csv"];

/// The short report of a run.
pub(crate) const SUMMARY_MD: &str = "summary.md";

/// The kind of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `humboldt-lab peak`
    #[default]
    Peak,
    /// `humboldt-lab bang`
    Bang,
}

/// An experiment, without its figures: the contents of `experiment.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Experiment {
    format: u32,
    /// The title of its page.
    pub title: String,
    /// The kind of its runs.
    pub kind: Kind,
    /// Whether its rows have counterparts among the schemes that the book compares.
    pub beside_published: bool,
    /// The folders of its runs below its own, in the order in which they were carried out.
    pub folders: Vec<String>,
    /// The comparisons that it was made for. Their places are those in `folders`.
    pub pairs: Pairs,
}

/// The figures of an experiment, in the order of its folders.
#[derive(Clone, Debug)]
pub enum Results {
    /// Of peaks.
    Peaks(Vec<Run>),
    /// Of bangs, each pass by itself.
    Bangs(Vec<BangRun>),
}

impl Results {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Peaks(runs) => runs.is_empty(),
            Self::Bangs(bangs) => bangs.is_empty(),
        }
    }
}

impl Experiment {
    /// An experiment that has no runs yet.
    #[must_use]
    pub fn new(title: &str, kind: Kind, beside_published: bool, pairs: Pairs) -> Self {
        Self {
            format: FORMAT,
            title: title.to_owned(),
            kind,
            beside_published,
            folders: Vec::new(),
            pairs,
        }
    }

    /// The experiment in a folder.
    ///
    /// # Errors
    /// If there is none, or its file cannot be read, or a later version wrote it, or a folder of a
    /// run is not below it.
    pub fn read(dir: &Path) -> Result<Self, ReportError> {
        let path = dir.join(EXPERIMENT_JSON);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReportError::WithoutSamples(dir.to_owned()),
            _ => ReportError::read(&path, error),
        })?;
        let not_one = |reason: String| ReportError::NotAnExperiment { path: path.clone(), reason };
        let experiment: Self =
            serde_json::from_slice(&text).map_err(|error| not_one(error.to_string()))?;
        if experiment.format > FORMAT {
            let (found, known) = (experiment.format, FORMAT);
            return Err(ReportError::TooNew { path, found, known });
        }
        match experiment.folders.iter().find(|folder| !is_below(folder)) {
            Some(folder) => Err(not_one(format!("the folder `{folder}` is not below it"))),
            None => Ok(experiment),
        }
    }

    /// The results of all its runs.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn results(&self, dir: &Path) -> Result<Results, ReportError> {
        let folders = self.folders.iter().map(|folder| dir.join(folder));
        Ok(match self.kind {
            Kind::Peak => {
                Results::Peaks(folders.map(|folder| read_run(&folder)).collect::<Result<_, _>>()?)
            }
            Kind::Bang => {
                Results::Bangs(folders.map(|folder| read_bang(&folder)).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Writes index.html, index.md with its drawings, index.csv, claims.csv and steps.csv if there
    /// are any, and experiment.json. Other files in the folder stay.
    ///
    /// # Errors
    /// If there are no results, or something cannot be written.
    pub fn write_page(&self, dir: &Path, results: &Results) -> Result<(), ReportError> {
        let (document, made) = self.page(results, "report.html")?;
        fs::create_dir_all(dir).map_err(|error| ReportError::write(dir, error))?;
        write_all(dir, &made)?;
        self.write(dir)?;
        write_whole(&dir.join(format!("{INDEX}.html")), document.html().as_bytes())
    }

    /// Writes the page for a repository into `to`, without HTML, and beside it all figures that it
    /// is made of: `runs/NAME/` has summary.json, summary.md, and samples.csv or seconds.csv.
    /// `from` has the folders of the runs. Other files in `to` stay.
    ///
    /// # Errors
    /// If a run cannot be read, or something cannot be written.
    pub fn publish(&self, from: &Path, to: &Path) -> Result<(), ReportError> {
        let mut published = self.clone();
        for (folder, place) in self.folders.iter().zip(&mut published.folders) {
            *place = format!("{RUNS}/{folder}");
            publish_run(self.kind, &from.join(folder), &to.join(&*place))?;
        }
        published.write(to)?;
        published.write_again(to)
    }

    /// Writes all that is made of the files of the runs, in a folder that was published.
    ///
    /// # Errors
    /// If a run cannot be read, or something cannot be written.
    pub fn write_again(&self, dir: &Path) -> Result<(), ReportError> {
        write_all(dir, &self.made(&self.results(dir)?)?)
    }

    /// All files of a published folder that are made of others.
    pub(crate) fn made(&self, results: &Results) -> Result<Vec<Made>, ReportError> {
        let (_, mut made) = self.page(results, SUMMARY_MD)?;
        let reports: Vec<String> = match results {
            Results::Peaks(runs) => {
                runs.iter().map(|run| run_page::document(run).markdown()).collect()
            }
            Results::Bangs(bangs) => {
                bangs.iter().map(|bang| bang::document(bang).markdown()).collect()
            }
        };
        let names = self.folders.iter().map(|folder| format!("{folder}/{SUMMARY_MD}"));
        made.extend(names.zip(reports));
        Ok(made)
    }

    /// The page with the files that belong to it. `report` is the name of each run's report.
    fn page(&self, results: &Results, report: &str) -> Result<(Document, Vec<Made>), ReportError> {
        if results.is_empty() {
            return Err(ReportError::NoRuns);
        }
        Ok(match results {
            Results::Peaks(runs) => {
                let reports = Section::of_reports("The report of each run", &self.folders, report);
                peak_page(&self.title, runs, &self.pairs, self.beside_published, reports)
            }
            Results::Bangs(bangs) => {
                let reports = Section::of_reports("The report of each pass", &self.folders, report);
                bang_page(&self.title, bangs, reports)
            }
        })
    }

    fn write(&self, dir: &Path) -> Result<(), ReportError> {
        let path = dir.join(EXPERIMENT_JSON);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| ReportError::write(&path, io::Error::other(error)))?;
        text.push(b'\n');
        write_whole(&path, &text)
    }
}

/// Whether a path leads to something below its beginning.
fn is_below(folder: &str) -> bool {
    let mut parts = Path::new(folder).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn write_all(dir: &Path, made: &[Made]) -> Result<(), ReportError> {
    made.iter().try_for_each(|(name, text)| write_whole(&dir.join(name), text.as_bytes()))
}

fn publish_run(kind: Kind, from: &Path, to: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(to).map_err(|error| ReportError::write(to, error))?;
    let summary = to.join(SUMMARY_JSON);
    match kind {
        Kind::Peak => {
            let json = stored::published_json(&read_run(from)?)
                .map_err(|error| ReportError::write(&summary, io::Error::other(error)))?;
            write_whole(&summary, &json)?;
        }
        Kind::Bang => copy(&from.join(SUMMARY_JSON), &summary)?,
    }
    for name in SAMPLES {
        let samples = from.join(name);
        if samples.exists() {
            copy(&samples, &to.join(name))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), ReportError> {
    let bytes = fs::read(from).map_err(|error| ReportError::read(from, error))?;
    write_whole(to, &bytes)
}

/// Writes report.html of a run or of a bang again, from its folder or its summary.json.
///
/// # Errors
/// As [`read_run`], or if the page cannot be written.
pub fn write_report(from: &Path, page: &Path) -> Result<(), ReportError> {
    // Only a run has samples.
    let document = match read_run(from) {
        Ok(run) => run_page::document(&run),
        Err(error @ ReportError::NotARun { .. }) => {
            let bang = read_bang(from).map_err(|_| error)?;
            bang::document(&bang)
        }
        Err(error) => return Err(error),
    };
    write_whole(page, document.html().as_bytes())
}
