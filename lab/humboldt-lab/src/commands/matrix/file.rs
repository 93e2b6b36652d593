//! An experiment file, as it is written.

use super::places;
use crate::Failure;
use serde::Deserialize;
use std::path::Path;
use toml::{Table, Value};

/// An experiment file is written by people: larger is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Load of a run of a trial, and requests of a pass.
const TRIAL_TIME: &str = "20s";
const TRIAL_REQUESTS: i64 = 300;

/// An option that may be given several times, for different words: lists of it add up where options
/// lie over others.
const ADDING: &str = "set";

/// An experiment file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// Heading of the page.
    pub(super) title: String,
    /// Its subject; not shown anywhere else.
    #[serde(default, rename = "description")]
    _description: String,
    /// The kind of run.
    #[serde(default)]
    pub(super) command: Kind,
    /// Repeats of each combination.
    #[serde(default = "once")]
    pub(super) repeats: u32,
    /// Whether its rows have counterparts among the schemes that the book compares on one file
    /// system, so that the page has both.
    #[serde(default)]
    pub(super) beside_published: bool,
    /// Pause between runs.
    #[serde(default)]
    pub(super) rest: Option<String>,
    /// Length of a session: a run that may end later is left to the next one.
    #[serde(default)]
    pub(super) session: Option<String>,
    /// Pieces, each the beginning of its subjects' names: a session does one repeat of one piece,
    /// so that what is compared ran within the same hours. "" is all subjects.
    #[serde(default)]
    pub(super) pieces: Vec<String>,
    /// Another experiment file in the same folder: its [common], [full] and [[expected]] are below
    /// those of this file.
    #[serde(default)]
    machine: Option<String>,
    /// What is expected of runs, the first that fits: how long they take follows from it.
    #[serde(default)]
    pub(super) expected: Vec<Expected>,
    /// Options of all runs.
    #[serde(default)]
    pub(super) common: Table,
    /// Options over those with `--full`: the original experiment's own sizes and times.
    #[serde(default)]
    full: Table,
    /// Options over those of each run.
    #[serde(skip)]
    pub(super) above: Table,
    /// Options with a list of values: every combination runs.
    #[serde(default)]
    pub(super) axes: Table,
    /// The axes with `--cross`, which has no further runs and no repeats.
    #[serde(default)]
    cross: Table,
    /// With `--cross` the file's [[run]]s: each combination has the options of the one with its
    /// subject below its own.
    #[serde(skip)]
    pub(super) rows: Vec<Table>,
    /// Excluded combinations: those that have all of these values.
    #[serde(default)]
    pub(super) exclude: Vec<Table>,
    /// Further runs, each with options of its own over the common ones.
    #[serde(default)]
    pub(super) run: Vec<Table>,
    /// The subjects of claims and steps without subjects of their own.
    #[serde(default)]
    pub(super) subjects: Vec<String>,
    /// Claims, each a pair of runs for every subject.
    #[serde(default)]
    pub(super) claim: Vec<ClaimEntry>,
    /// Options that add up: a run for each, for every subject.
    #[serde(default)]
    pub(super) step: Vec<StepEntry>,
}

/// The rate that is expected of a full cache, for runs that have these options.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Expected {
    /// Answers per second.
    pub(super) answers: f64,
    #[serde(flatten)]
    pub(super) options: Table,
}

/// The command that carries out a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// `humboldt-lab peak`
    #[default]
    Peak,
    /// `humboldt-lab bang`
    Bang,
}

impl Kind {
    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::Bang => "bang",
        }
    }
}

/// A statement, and the settings that test it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClaimEntry {
    /// In a word or two.
    pub(super) name: String,
    /// The statement in its author's words.
    pub(super) says: String,
    /// Published figures, if there are any.
    #[serde(default)]
    pub(super) published: String,
    /// Instead of the file's.
    #[serde(default)]
    pub(super) subjects: Vec<String>,
    /// Options over the common ones before, and after.
    #[serde(default)]
    pub(super) before: Table,
    #[serde(default)]
    pub(super) after: Table,
    /// The two in words, where the options alone say too little.
    #[serde(default)]
    pub(super) from: String,
    #[serde(default)]
    pub(super) to: String,
}

/// A setting on the way from untuned to tuned.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StepEntry {
    /// The added options.
    pub(super) name: String,
    /// Options over those of the step before.
    #[serde(default)]
    pub(super) options: Table,
    /// Subjects for which this step makes sense, if not for all.
    #[serde(default)]
    pub(super) subjects: Vec<String>,
}

fn once() -> u32 {
    1
}

/// Which of the runs of a file are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scale {
    /// As large and as long as the original experiment.
    pub(super) full: bool,
    /// Every combination.
    pub(super) cross: bool,
    /// Each run once, for seconds only.
    pub(super) trial: bool,
}

/// Options over all others, by the kind of run, of runs that are only to show that they can be
/// done.
fn of_a_trial(command: Kind) -> Table {
    let options: &[(&str, Value)] = match command {
        Kind::Peak => &[
            ("time-max", Value::String(TRIAL_TIME.to_owned())),
            ("tolerate-others", Value::Boolean(true)),
        ],
        Kind::Bang => &[
            ("time-max", Value::String(TRIAL_TIME.to_owned())),
            ("generate", Value::Integer(TRIAL_REQUESTS)),
        ],
    };
    options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// Reads a file, for the runs that are wanted.
pub(super) fn read(path: &Path, scale: Scale) -> Result<File, Failure> {
    let say_where =
        |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    if path.metadata().map_err(|error| say_where(&error))?.len() > FILE_BYTES_MAX {
        return Err(say_where(&"longer than 1 MB, this is no experiment file"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| say_where(&error))?;
    let machine = |name: &str| {
        let path = path.with_file_name(name);
        let text = std::fs::read_to_string(&path);
        text.map_err(|error| format!("machine = \"{name}\": {error}"))
    };
    parse_with(&text, scale, machine).map_err(|error| say_where(&error))
}

/// The parsing of [`read`], from the text of a file that stands alone.
#[cfg(test)]
pub(super) fn parse(text: &str, scale: Scale) -> Result<File, String> {
    parse_with(text, scale, |name| Err(format!("machine = \"{name}\": not in this test")))
}

/// The same; `machine` reads another file.
fn parse_with(
    text: &str,
    scale: Scale,
    machine: impl Fn(&str) -> Result<String, String>,
) -> Result<File, String> {
    let mut file: File = toml::from_str(text).map_err(|error| one_line(&error, text))?;
    places::check(text)?;
    if let Some(name) = &file.machine {
        let text = machine(name)?;
        let below: File = toml::from_str(&text)
            .map_err(|error| format!("machine = \"{name}\": {}", one_line(&error, &text)))?;
        if below.machine.is_some() {
            return Err(format!("machine = \"{name}\" has a machine of its own"));
        }
        places::check(&text).map_err(|error| format!("machine = \"{name}\": {error}"))?;
        file.common = over(&below.common, &file.common);
        file.full = over(&below.full, &file.full);
        file.expected.extend(below.expected);
    }
    if scale.full {
        file.expected.clear(); // it is another machine's
        if file.full.is_empty() {
            return Err("there is no [full] in it: run it without --full".to_owned());
        }
        file.common = over(&file.common, &file.full);
        // What the original did not have, such as a limit, no row has.
        let sides = file.claim.iter_mut().flat_map(|claim| [&mut claim.before, &mut claim.after]);
        let steps = file.step.iter_mut().map(|step| &mut step.options);
        for options in file.run.iter_mut().chain(sides).chain(steps) {
            options.retain(|name, _| file.full.get(name).and_then(Value::as_str) != Some(""));
        }
    }
    if scale.trial {
        (file.repeats, file.session) = (1, None);
        file.pieces.clear();
        file.expected.clear();
        file.above = of_a_trial(file.command);
    }
    if scale.cross {
        if file.cross.is_empty() {
            return Err("there is no [cross] in it: run it without --cross".to_owned());
        }
        file.axes = std::mem::take(&mut file.cross);
        file.rows = std::mem::take(&mut file.run);
        file.repeats = 1; // it is long enough
        file.claim.clear();
        file.step.clear();
    }
    let is_empty = file.axes.is_empty()
        && file.run.is_empty()
        && file.claim.is_empty()
        && file.step.is_empty();
    if file.repeats == 0 || is_empty {
        return Err(
            "nothing to run: give [axes], [[run]], [[claim]] or [[step]], and repeats of 1 or more"
                .to_owned(),
        );
    }
    if file.command == Kind::Bang && !(file.claim.is_empty() && file.step.is_empty()) {
        return Err(
            "claims and steps are about sustained throughput: they need command = \"peak\""
                .to_owned(),
        );
    }
    let needs_subjects =
        file.claim.iter().any(|claim| claim.subjects.is_empty()) || !file.step.is_empty();
    if needs_subjects && file.subjects.is_empty() {
        return Err(
            "claims and steps need subjects: give subjects = [\"squid:aufs\", …]".to_owned()
        );
    }
    Ok(file)
}

/// Position and message.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join("; ");
    match error.span() {
        Some(span) => format!("{}: {message}", places::place(text, span)),
        None => message,
    }
}

/// Options that lie over others.
pub(super) fn over(below: &Table, above: &Table) -> Table {
    let mut all = below.clone();
    for (name, value) in above {
        let value = match (all.get(name), value) {
            (Some(Value::Array(first)), Value::Array(then)) if name == ADDING => {
                Value::Array(first.iter().chain(then).cloned().collect())
            }
            _ => value.clone(),
        };
        all.insert(name.clone(), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_cross_are_one_option_away() {
        let text = "title = 'T'\nrepeats = 3\n[common]\ncache-size = '1MB'\nset = ['a=1']\n[full]\ncache-size = '21GB'\nset = ['b=2']\n\
                    [axes]\nsubject = ['squid:ufs']\n[cross]\nfs = ['ext2', 'ext4']\n[[run]]\nsubject = 'nginx'\n";
        let small = parse(text, Scale::default()).unwrap();
        assert_eq!((small.common["cache-size"].as_str(), small.run.len()), (Some("1MB"), 1));
        let full = parse(text, Scale { full: true, ..Scale::default() }).unwrap();
        assert_eq!(full.common["cache-size"].as_str(), Some("21GB"));
        assert_eq!(full.common["set"].as_array().map(Vec::len), Some(2));
        let of_all = Scale { cross: true, ..Scale::default() };
        let cross = parse(text, of_all).unwrap();
        assert!(
            cross.axes.contains_key("fs")
                && !cross.axes.contains_key("subject")
                && cross.run.is_empty()
                && cross.rows.len() == 1
                && (small.repeats, cross.repeats) == (3, 1)
        );
        let plain = "title = 'T'\n[[run]]\nsubject = 'nginx'\n";
        let full = parse(plain, Scale { full: true, ..Scale::default() });
        assert!(full.unwrap_err().contains("[full]"));
        assert!(parse(plain, of_all).unwrap_err().contains("[cross]"));
    }

    #[test]
    fn a_row_at_full_size_has_no_limit_that_the_original_had_not() {
        let text = "title = 'T'\n[full]\nmemory-limit = ''\nsample = '60s'\n\
                    [[run]]\nsubject = 'nginx'\nmemory-limit = '64MB'\nsample = '20s'\n";
        let full = parse(text, Scale { full: true, ..Scale::default() }).unwrap();
        assert!(!full.run[0].contains_key("memory-limit"));
        assert_eq!(full.run[0]["sample"].as_str(), Some("20s"));
        let small = parse(text, Scale::default()).unwrap();
        assert_eq!(small.run[0]["memory-limit"].as_str(), Some("64MB"));
    }

    #[test]
    fn a_machine_is_described_once() {
        let machine = "title = 'M'\n[common]\ncache-size = '1MB'\nset = ['a=1']\n\
                       [[run]]\nsubject = 'squid'\n[[expected]]\nanswers = 5\n";
        let text = "title = 'T'\nmachine = 'm.toml'\n[common]\nset = ['b=2']\n\
                    [[run]]\nsubject = 'nginx'\n[[expected]]\nsubject = 'nginx'\nanswers = 7\n";
        let of = |name: &str| match name {
            "m.toml" => Ok(machine.to_owned()),
            other => Err(other.to_owned()),
        };
        let file = parse_with(text, Scale::default(), of).unwrap();
        assert_eq!((file.title.as_str(), file.run.len()), ("T", 1));
        assert_eq!(file.common["cache-size"].as_str(), Some("1MB"));
        assert_eq!(file.common["set"].as_array().map(Vec::len), Some(2));
        let answers: Vec<f64> = file.expected.iter().map(|expected| expected.answers).collect();
        assert_eq!(answers, [7.0, 5.0], "its own come first");
        let missing = parse(text, Scale::default()).unwrap_err();
        assert!(missing.contains("m.toml"), "{missing}");
        let twice = parse_with(text, Scale::default(), |_| Ok(text.to_owned())).unwrap_err();
        assert!(twice.contains("of its own"), "{twice}");
    }

    #[test]
    fn mistakes_have_their_line() {
        let message = |text: &str| parse(text, Scale::default()).unwrap_err();
        assert!(
            message("title = 'T'\nrepeat = 3\n").starts_with("line 2, column 1: "),
            "{}",
            message("repeat = 3")
        );
        assert!(message("title = 'T'\n").contains("nothing to run"));
        assert!(message("title = 'T'\n[[step]]\nname = 'a'\n").contains("subjects"));
        assert!(
            message("title = 'T'\ncommand = 'bang'\nsubjects = ['nginx']\n[[step]]\nname = 'a'\n")
                .contains("peak")
        );
    }
}
