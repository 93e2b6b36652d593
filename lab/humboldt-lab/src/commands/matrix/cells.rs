//! The runs of an experiment file: each the options of a command, and a folder.

use super::file::{ClaimEntry, Expected, File, Kind, StepEntry, over};
use crate::cli::{BangArgs, Cli, Command, PeakArgs};
use crate::{Failure, wording};
use clap::Parser;
use humboldt_lab_report::{Claim, Pairs, Side, Step};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// More runs than anyone waits for.
const RUNS_MAX: usize = 10_000;

/// A search begins with this share of the expected rate: an empty cache takes more than that.
const FIRST_LOAD_SHARE: f64 = 0.5;

/// Stands for a setting without an option of its own.
const AS_IT_COMES: &str = "as it comes";

/// One run of the matrix.
pub(super) struct Cell {
    pub(super) folder: PathBuf,
    pub(super) label: String,
    pub(super) task: Task,
    /// Its options over the common ones, and the number of the repeat: two cells that have both in
    /// common are one.
    options: Table,
    repeat: u32,
    /// The piece of the experiment that it is in: the number of the repeat, and which of the file's
    /// pieces; `None` if the file has none.
    pub(super) piece: Option<(u32, usize)>,
    /// The rate that is expected of the full cache, in answers per second.
    pub(super) expected_per_s: Option<f64>,
}

/// The work of a run.
pub(super) enum Task {
    Peak(Box<PeakArgs>),
    Bang(Box<BangArgs>),
}

/// All runs, and the purpose of their comparison.
pub(super) struct Cells {
    pub(super) cells: Vec<Cell>,
    pub(super) pairs: Pairs,
}

/// All runs in the order in which they are done: repeats outermost, so that an interrupted matrix
/// has every row. Every second repeat is done backwards (A B, B A, A B …), so that what changes
/// slowly, such as the machine's temperature or its neighbours, favours none.
pub(super) fn cells(file: &File, path: &Path, out: &Path) -> Result<Cells, Failure> {
    let mut combinations = product(&file.axes, path)?;
    combinations.retain(|options| !file.exclude.iter().any(|excluded| includes(options, excluded)));
    combinations.extend(file.run.iter().cloned());
    let mut plan = Plan { file, path, out, cells: Vec::new(), folders: BTreeSet::new() };
    let mut pairs = Pairs::default();
    for repeat in 1..=file.repeats {
        for options in &combinations {
            let cell = plan.cell(options, &label_of_values(options), repeat)?;
            plan.push(cell)?;
        }
        for (index, (claim, subject)) in claims(file).into_iter().enumerate() {
            let sides = [&claim.before, &claim.after];
            let [before, after] =
                sides.map(|options| plan.place(options, subject, &differences(options), repeat));
            if repeat == 1 {
                pairs.claims.push(empty_claim(claim, subject));
            }
            if let Some(pair) = pairs.claims.get_mut(index) {
                pair.before.runs.push(before?);
                pair.after.runs.push(after?);
            }
        }
        for (index, (step, subject, options)) in steps(file).into_iter().enumerate() {
            if repeat == 1 {
                let (subject, name) = (subject.to_owned(), step.name.clone());
                pairs.steps.push(Step { subject, name, runs: Vec::new() });
            }
            let number =
                1 + pairs.steps.iter().take(index).filter(|other| other.subject == subject).count();
            let place =
                plan.place(&options, subject, &format!("step {number}: {}", step.name), repeat)?;
            if let Some(pair) = pairs.steps.get_mut(index) {
                pair.runs.push(place);
            }
        }
    }
    Ok(alternating(plan.cells, pairs))
}

/// Turns every second repeat around. Places in the list follow.
fn alternating(cells: Vec<Cell>, mut pairs: Pairs) -> Cells {
    let mut order: Vec<usize> = (0..cells.len()).collect();
    for repeat in order.chunk_by_mut(|one, other| cells[*one].repeat == cells[*other].repeat) {
        if repeat.first().is_some_and(|first| cells[*first].repeat.is_multiple_of(2)) {
            repeat.reverse();
        }
    }
    let mut place = vec![0; cells.len()];
    order.iter().enumerate().for_each(|(now, before)| place[*before] = now);
    let sides = pairs.claims.iter_mut().flat_map(|claim| [&mut claim.before, &mut claim.after]);
    let runs = sides.flat_map(|side| &mut side.runs);
    let steps = pairs.steps.iter_mut().flat_map(|step| &mut step.runs);
    runs.chain(steps).for_each(|run| *run = place[*run]);
    let mut cells: Vec<(usize, Cell)> = place.into_iter().zip(cells).collect();
    cells.sort_by_key(|(place, _)| *place);
    Cells { cells: cells.into_iter().map(|(_, cell)| cell).collect(), pairs }
}

/// Every claim with every subject that it is measured with.
fn claims(file: &File) -> Vec<(&ClaimEntry, &str)> {
    let mut all = Vec::new();
    for claim in &file.claim {
        let subjects = if claim.subjects.is_empty() { &file.subjects } else { &claim.subjects };
        all.extend(subjects.iter().map(|subject| (claim, subject.as_str())));
    }
    all
}

/// Every step of every subject, with all options up to it.
fn steps(file: &File) -> Vec<(&StepEntry, &str, Table)> {
    let mut all = Vec::new();
    for subject in &file.subjects {
        let mut options = Table::new();
        for step in &file.step {
            if step.subjects.is_empty() || step.subjects.contains(subject) {
                options = over(&options, &step.options);
                all.push((step, subject.as_str(), options.clone()));
            }
        }
    }
    all
}

fn empty_claim(claim: &ClaimEntry, subject: &str) -> Claim {
    let side = |text: &String, options: &Table| {
        let text = if text.is_empty() { differences(options) } else { text.clone() };
        Side { text, runs: Vec::new() }
    };
    Claim {
        name: claim.name.clone(),
        says: claim.says.clone(),
        published: claim.published.clone(),
        subject: subject.to_owned(),
        before: side(&claim.from, &claim.before),
        after: side(&claim.to, &claim.after),
    }
}

/// Runs that are being gathered.
struct Plan<'a> {
    file: &'a File,
    path: &'a Path,
    out: &'a Path,
    cells: Vec<Cell>,
    folders: BTreeSet<PathBuf>,
}

impl Plan<'_> {
    fn push(&mut self, cell: Cell) -> Result<usize, Failure> {
        if !self.folders.insert(cell.folder.clone()) {
            return Err(self.wrong(&cell.label, "is there twice"));
        }
        if self.cells.len() >= RUNS_MAX {
            return Err(Failure::usage(format!(
                "{}: more than {RUNS_MAX} runs",
                self.path.display()
            )));
        }
        self.cells.push(cell);
        Ok(self.cells.len() - 1)
    }

    /// The place of the run with these options in the list: claims and steps share runs with equal
    /// options. A new run has this text in its name.
    fn place(
        &mut self,
        options: &Table,
        subject: &str,
        text: &str,
        repeat: u32,
    ) -> Result<usize, Failure> {
        // A claim may compare two subjects: then its options name one of its own.
        let subject = options.get("subject").and_then(Value::as_str).unwrap_or(subject);
        let mut all = options.clone();
        all.insert("subject".to_owned(), Value::String(subject.to_owned()));
        let known = self.cells.iter().position(|cell| cell.repeat == repeat && cell.options == all);
        if let Some(known) = known {
            return Ok(known);
        }
        all.entry("variant").or_insert_with(|| Value::String(text.to_owned()));
        let mut cell = self.cell(&all, &format!("{subject} {text}"), repeat)?;
        cell.options.clone_from(options);
        cell.options.insert("subject".to_owned(), Value::String(subject.to_owned()));
        self.push(cell)
    }

    fn cell(&self, options: &Table, label: &str, repeat: u32) -> Result<Cell, Failure> {
        let subject = options.get("subject").unwrap_or(&Value::Boolean(false));
        let own = |row: &&Table| row.get("subject") == Some(subject);
        let row = self.file.rows.iter().find(own).cloned().unwrap_or_default();
        let below = over(&self.file.common, &row);
        let mut all = over(&over(&below, options), &self.file.above);
        let mut label = label.to_owned();
        if self.file.repeats > 1 {
            label = format!("{label} #{repeat}");
            // Repeats see other URLs and other moments, or they would repeat the accident too.
            let seed =
                all.get("seed").and_then(Value::as_integer).unwrap_or(1) + i64::from(repeat) - 1;
            all.insert("seed".to_owned(), Value::Integer(seed));
        }
        let fits = |expected: &&Expected| includes(&all, &expected.options);
        let expected_per_s = self.file.expected.iter().find(fits).map(|found| found.answers);
        if let (Some(per_s), Kind::Peak) = (expected_per_s, self.file.command) {
            // The search begins near the end that it comes to in any case.
            let first_load = (per_s * FIRST_LOAD_SHARE).round();
            all.entry("first-load").or_insert(Value::Float(first_load));
        }
        let subject = all.get("subject").and_then(Value::as_str).unwrap_or_default();
        let pieces = &self.file.pieces;
        let piece = match pieces.iter().position(|piece| subject.starts_with(piece.as_str())) {
            Some(piece) => Some((repeat, piece)),
            None if pieces.is_empty() => None,
            None => return Err(self.wrong(&label, "is in none of the `pieces`")),
        };
        let words = command_line(self.file.command, &all);
        let as_command = shell_line(&words);
        let cli = Cli::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first =
                text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Failure::usage(format!("{}: {label}: {first}", self.path.display()))
        })?;
        let task = match cli.command {
            Command::Peak(mut arguments) => {
                arguments.as_command = Some(as_command);
                Task::Peak(arguments)
            }
            Command::Bang(mut arguments) => {
                arguments.as_command = Some(as_command);
                Task::Bang(arguments)
            }
            _ => return Err(self.wrong(&label, "is no run")),
        };
        let folder = self.out.join(folder_name(&label));
        let options = options.clone();
        Ok(Cell { folder, label, task, options, repeat, piece, expected_per_s })
    }

    fn wrong(&self, label: &str, what: &str) -> Failure {
        Failure::usage(format!("{}: `{label}` {what}", self.path.display()))
    }
}

/// Every combination of the axes' values.
fn product(axes: &Table, path: &Path) -> Result<Vec<Table>, Failure> {
    let mut all = if axes.is_empty() { Vec::new() } else { vec![Table::new()] };
    for (name, values) in axes {
        let values = values.as_array().filter(|values| !values.is_empty()).ok_or_else(|| {
            Failure::usage(format!("{}: axes.{name} must be a list of values", path.display()))
        })?;
        let mut longer = Vec::new();
        for table in &all {
            for value in values {
                let mut table = table.clone();
                table.insert(name.clone(), value.clone());
                longer.push(table);
            }
        }
        if longer.len() > RUNS_MAX {
            return Err(Failure::usage(format!("{}: more than {RUNS_MAX} runs", path.display())));
        }
        all = longer;
    }
    Ok(all)
}

fn includes(options: &Table, excluded: &Table) -> bool {
    excluded.iter().all(|(name, value)| options.get(name) == Some(value))
}

/// As on the command line: `peak SUBJECT --name=value …`. An empty value or `false` leaves an
/// option out.
pub(super) fn command_line(kind: Kind, options: &Table) -> Vec<String> {
    let mut words = vec!["humboldt-lab".to_owned(), kind.name().to_owned()];
    for (name, value) in options {
        match value {
            Value::String(subject) if name == "subject" && kind == Kind::Peak => {
                words.push(subject.clone())
            }
            Value::Boolean(true) => words.push(format!("--{name}")),
            Value::Boolean(false) => {}
            Value::String(text) if text.is_empty() => {}
            Value::Array(values) => {
                words.extend(values.iter().map(|value| format!("--{name}={}", plain(value))))
            }
            value => words.push(format!("--{name}={}", plain(value))),
        }
    }
    words
}

/// The words as a shell would take them.
fn shell_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%".contains(c);
    let quoted = words.iter().map(|word| match word.chars().all(is_plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    }
}

/// The name of a run in a matrix: the values of its options.
fn label_of_values(options: &Table) -> String {
    let values: Vec<String> =
        options.values().map(plain).filter(|value| !value.is_empty()).collect();
    values.join(" ")
}

/// The differences of a setting, in words.
fn differences(options: &Table) -> String {
    let own = options.iter().filter(|(name, _)| *name != "variant");
    let words = own.flat_map(|(name, value)| match value {
        Value::Array(values) => values.iter().map(|one| in_words(name, one)).collect(),
        value => vec![in_words(name, value)],
    });
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() { AS_IT_COMES.to_owned() } else { words.join(", ") }
}

fn in_words(name: &str, value: &Value) -> String {
    wording::option(name, &plain(value).replace('\n', "; "))
}

fn folder_name(label: &str) -> String {
    /// Longer names are cut: file systems end at 255 bytes.
    const BYTES_MAX: usize = 150;
    let name: String = label
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' })
        .take(BYTES_MAX)
        .collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::file::{Scale, parse};
    use super::*;

    fn all_of(text: &str) -> Result<Cells, Failure> {
        cells(&parse(text, Scale::default()).unwrap(), Path::new("test.toml"), Path::new("out"))
    }

    fn peaks(cells: &[Cell]) -> Vec<&PeakArgs> {
        cells
            .iter()
            .filter_map(|cell| match &cell.task {
                Task::Peak(arguments) => Some(&**arguments),
                Task::Bang(_) => None,
            })
            .collect()
    }

    #[test]
    fn every_combination_runs_but_the_excluded() {
        let text = "title = 'T'\nrepeats = 2\n[common]\nquick = true\n[axes]\nfs = ['ext4', 'xfs']\n\
                    subject = ['squid:ufs', 'squid:aufs']\n[[exclude]]\nfs = 'xfs'\nsubject = 'squid:aufs'\n\
                    [[run]]\nsubject = 'squid:rock'\n";
        let cells = all_of(text).unwrap().cells;
        assert_eq!(cells.len(), 8);
        assert_eq!(cells[0].label, "ext4 squid:ufs #1");
        assert_eq!(cells[0].folder, Path::new("out/ext4-squid-ufs--1"));
        let peaks = peaks(&cells);
        assert!(peaks.len() == 8 && peaks.iter().all(|peak| peak.quick));
        assert_eq!((peaks[0].world.seed, peaks[7].world.seed), (1, 2));
    }

    #[test]
    fn a_combination_has_the_options_of_its_subjects_row() {
        let text = "title = 'T'\n[common]\nload-max = 9\n[cross]\nfs = ['ext4']\n\
                    subject = ['squid:ufs', 'squid:rock']\n\
                    [[run]]\nsubject = 'squid:rock'\nload-max = 7\nfs = 'xfs'\n";
        let cross = parse(text, Scale { cross: true, ..Scale::default() }).unwrap();
        let cells = cells(&cross, Path::new("test.toml"), Path::new("out")).unwrap().cells;
        assert_eq!(cells[1].label, "ext4 squid:rock");
        let loads = peaks(&cells).iter().map(|peak| peak.search.load_max).collect::<Vec<_>>();
        assert_eq!(loads, [Some(9.0), Some(7.0)]);
        assert!(peaks(&cells).iter().all(|peak| peak.ground.fs.as_deref() == Some("ext4")));
    }

    #[test]
    fn every_second_repeat_is_done_backwards() {
        let text = "title = 'T'\nrepeats = 3\nsubjects = ['nginx']\n\
                    [[claim]]\nname = 'a'\nsays = 'x'\nafter = { memory = '8MB' }\n\
                    [[claim]]\nname = 'b'\nsays = 'y'\nafter = { memory = '9MB' }\n";
        let Cells { cells, pairs } = all_of(text).unwrap();
        let labels: Vec<&str> = cells.iter().map(|cell| cell.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "nginx as it comes #1",
                "nginx memory 8MB #1",
                "nginx memory 9MB #1",
                "nginx memory 9MB #2",
                "nginx memory 8MB #2",
                "nginx as it comes #2",
                "nginx as it comes #3",
                "nginx memory 8MB #3",
                "nginx memory 9MB #3",
            ]
        );
        assert_eq!(pairs.claims[0].before.runs, [0, 5, 6]);
        assert_eq!(pairs.claims[0].after.runs, [1, 4, 7]);
        assert_eq!(pairs.claims[1].after.runs, [2, 3, 8]);
    }

    #[test]
    fn a_run_knows_its_own_command() {
        let text = "title = 'T'\n[[run]]\nsubject = 'squid:aufs'\nset = [\"extra=it's a b\"]\n";
        let cells = all_of(text).unwrap().cells;
        assert_eq!(
            peaks(&cells)[0].as_command.as_deref(),
            Some("humboldt-lab peak '--set=extra=it'\\''s a b' squid:aufs")
        );
    }

    #[test]
    fn a_trial_is_every_run_once_for_seconds() {
        let text = "title = 'T'\nrepeats = 3\npieces = ['squid']\n[common]\ntime-max = '1h'\n\
                    [axes]\nsubject = ['squid:aufs', 'squid:ufs']\n[[expected]]\nanswers = 900\n";
        let file = parse(text, Scale { trial: true, ..Scale::default() }).unwrap();
        let cells = cells(&file, Path::new("test.toml"), Path::new("out")).unwrap().cells;
        let peaks = peaks(&cells);
        assert_eq!(peaks.len(), 2);
        let of = |peak: &&PeakArgs| (peak.search.time_max, peak.search.first_load);
        assert!(peaks.iter().all(|peak| of(peak) == (Some(20.0), None)));
        assert!(cells.iter().all(|cell| cell.piece.is_none()));
    }

    #[test]
    fn runs_are_in_pieces_by_their_subjects() {
        let text = "title = 'T'\nrepeats = 2\npieces = ['squid:ufs', 'squid']\n\
                    [axes]\nsubject = ['squid:aufs', 'squid:ufs']\n";
        let cells = all_of(text).unwrap().cells;
        let pieces: Vec<_> = cells.iter().filter_map(|cell| cell.piece).collect();
        assert_eq!(pieces, [(1, 1), (1, 0), (2, 0), (2, 1)]);
        let without = text.replace("'squid']", "'nginx']");
        let message = all_of(&without).err().unwrap().to_string();
        assert!(message.contains("squid:aufs") && message.contains("pieces"), "{message}");
    }

    #[test]
    fn a_search_begins_with_half_of_what_is_expected() {
        let text = "title = 'T'\n[axes]\nsubject = ['squid:ufs', 'squid:aufs', 'nginx']\n\
                    [[run]]\nsubject = 'squid:null'\nfirst-load = 7\n\
                    [[expected]]\nsubject = 'squid:ufs'\nanswers = 96\n\
                    [[expected]]\nsubject = 'squid:null'\nanswers = 500\n\
                    [[expected]]\nsubject = 'squid:aufs'\nfs = 'xfs'\nanswers = 1\n";
        let cells = all_of(text).unwrap().cells;
        let expected: Vec<_> = cells.iter().map(|cell| cell.expected_per_s).collect();
        assert_eq!(expected, [Some(96.0), None, None, Some(500.0)]);
        let first: Vec<_> = peaks(&cells).iter().map(|peak| peak.search.first_load).collect();
        assert_eq!(first, [Some(48.0), None, None, Some(7.0)]);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |text: &str| all_of(text).err().unwrap().to_string();
        let alone = "title = 'T'\n[axes]\nsubject = ['squid:ufs']\n[common]\nread-iops = 9\n";
        assert!(message(alone).contains("squid:ufs: "), "{}", message(alone));
        let twice = "title = 'T'\n[[run]]\nsubject = 'nginx'\n[[run]]\nsubject = 'nginx'\n";
        assert!(message(twice).contains("twice"));
        assert!(message("title = 'T'\n[axes]\nsubject = 'nginx'\n").contains("must be a list"));
    }

    #[test]
    fn claims_and_steps_share_what_they_have_in_common() {
        let text = "title = 'T'\nrepeats = 2\nsubjects = ['squid:aufs', 'humboldt:aufs']\n[common]\nfs = 'ext4'\n\
                    mount-options = 'strictatime'\n\
                    [[claim]]\nname = 'atime'\nsays = 'x'\nafter = { mount-options = 'noatime' }\n\
                    [[claim]]\nname = 'memory'\nsays = 'y'\nsubjects = ['squid:aufs']\nafter = { memory = '8MB' }\n\
                    [[step]]\nname = 'untuned'\n\
                    [[step]]\nname = 'noatime'\noptions = { mount-options = 'noatime', set = ['extra=a'] }\n\
                    [[step]]\nname = 'directories'\noptions = { set = ['l1_l2=1 256'] }\n";
        let Cells { cells, pairs } = all_of(text).unwrap();
        // Of each subject: as it comes, noatime, two more steps; of Squid less memory too. Twice.
        assert_eq!(cells.len(), 2 * (4 + 4 + 1));
        assert_eq!((pairs.claims.len(), pairs.steps.len()), (3, 6));
        assert_eq!(pairs.claims[0].before.runs, pairs.claims[2].before.runs);
        assert_eq!(pairs.steps[0].runs, pairs.claims[0].before.runs);
        assert_eq!(
            (pairs.claims[0].before.text.as_str(), pairs.claims[0].after.text.as_str()),
            ("as it comes", "noatime")
        );
        let tuned = &cells[pairs.steps[2].runs[0]];
        assert_eq!(tuned.label, "squid:aufs step 3: directories #1");
        let peaks = peaks(&cells);
        assert_eq!(peaks[pairs.steps[2].runs[0]].ground.variables, ["extra=a", "l1_l2=1 256"]);
        assert_eq!(peaks[pairs.claims[2].after.runs[1]].variant, "memory 8MB");
    }

    #[test]
    fn a_file_may_be_of_bangs() {
        let text = "title = 'T'\ncommand = 'bang'\n[common]\nsubject = 'humboldt:ring'\n[[run]]\nvariant = 'on disk'\n";
        let cells = all_of(text).unwrap().cells;
        let Task::Bang(bang) = &cells[0].task else { panic!("a peak") };
        assert_eq!(
            (bang.subject.as_deref(), bang.variant.as_str()),
            (Some("humboldt:ring"), "on disk")
        );
        assert_eq!(cells[0].folder, Path::new("out/on-disk"));
    }

    #[test]
    fn a_claim_may_compare_two_subjects() {
        let text = "title = 'T'\nsubjects = ['squid:aufs']\n\
                    [[claim]]\nname = 'threads'\nsays = 'x'\nbefore = { subject = 'squid:ufs' }\n\
                    [[claim]]\nname = 'memory'\nsays = 'y'\nafter = { memory = '8MB' }\n";
        let Cells { cells, pairs } = all_of(text).unwrap();
        assert_eq!(cells.len(), 3, "aufs as it comes is shared");
        let subject = |index: usize| cells[index].options["subject"].as_str().expect("a name");
        let [threads, memory] = &pairs.claims[..] else { panic!("two claims") };
        assert_eq!(subject(threads.before.runs[0]), "squid:ufs");
        assert_eq!(subject(threads.after.runs[0]), "squid:aufs");
        assert_eq!(memory.before.runs, threads.after.runs);
    }
}
