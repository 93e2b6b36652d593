//! Mistakes that were in the program once, put back one at a time. A simulation that does not find
//! them proves nothing.
//!
//! `simulation/mistakes.toml` has them: each replaces some text of a source file. They are made in
//! a copy of the sources, with a target directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::{Outcome, workspace};

/// The mistakes, relative to the root of the checkout.
const FILE: &str = "simulation/mistakes.toml";

/// The table of results, relative to the root of the checkout.
const TABLE: &str = "docs/results/simulation-mistakes.md";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistakes {
    mistake: Vec<Mistake>,
}

/// One mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    /// A short name for the command line.
    name: String,
    /// The finding that it was, or a resemblance.
    origin: String,
    /// What goes wrong.
    what: String,
    /// It needs more seeds than most: that it is not found is no error.
    #[serde(default)]
    is_rare: bool,
    /// The texts that are replaced.
    edit: Vec<Edit>,
}

/// Some text of a file, which occurs once, and its replacement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: PathBuf,
    find: String,
    replace: String,
}

/// What came of one mistake.
struct Found {
    /// Seeds that were run, the failing one included; `None` if none failed.
    after: Option<u64>,
    /// The first complaint.
    complaint: String,
}

pub(crate) fn run(names: &[String], seeds: u64) -> Outcome {
    let root = workspace::root();
    let known = read(&root)?;
    if let Some(unknown) = names.iter().find(|name| known.iter().all(|one| one.name != **name)) {
        return Err(format!("{FILE} has no mistake called {unknown}").into());
    }
    let copy = workspace::target_dir(&root)?.join("mistakes");
    copy_sources(&root, &copy)?;
    let chosen = known.iter().filter(|one| names.is_empty() || names.contains(&one.name));
    let mut table = Table::read(&root)?;
    let mut missed = Vec::new();
    for mistake in chosen {
        let found = try_one(&root, &copy, mistake, seeds)?;
        match found.after {
            Some(after) => println!("{}: seed {after}: {}", mistake.name, found.complaint),
            None => {
                println!("{}: NOT FOUND in {seeds} seeds", mistake.name);
                missed.extend((!mistake.is_rare).then(|| mistake.name.clone()));
            }
        }
        table.put(mistake, row(mistake, &found, seeds));
        // After each: all of them take long.
        fs::write(root.join(TABLE), table.page(&known))?;
    }
    println!("{TABLE} is written");
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", ")).into()) }
}

fn read(root: &Path) -> Outcome<Vec<Mistake>> {
    let text = fs::read_to_string(root.join(FILE))?;
    let mistakes: Mistakes = toml::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    Ok(mistakes.mistake)
}

/// Copies the sources as they are in the checkout, changed or not.
fn copy_sources(root: &Path, copy: &Path) -> Outcome {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(root).output()?;
    for file in String::from_utf8(listed.stdout)?.lines() {
        let (from, to) = (root.join(file), copy.join(file));
        if !from.is_file() {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        // A file that is the same keeps its time, so that less is compiled.
        let bytes = fs::read(&from)?;
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::write(&to, bytes)?;
        }
    }
    Ok(())
}

/// The text of a file with an edit.
fn edited(text: &str, edit: &Edit) -> Outcome<String> {
    match text.matches(edit.find.as_str()).count() {
        1 => Ok(text.replacen(&edit.find, &edit.replace, 1)),
        count => {
            let file = edit.file.display();
            Err(format!("{FILE}: this is {count} times in {file}, not once: {}", edit.find).into())
        }
    }
}

fn try_one(root: &Path, copy: &Path, mistake: &Mistake, seeds: u64) -> Outcome<Found> {
    for edit in &mistake.edit {
        let path = copy.join(&edit.file);
        let text = fs::read_to_string(&path)?;
        fs::write(&path, edited(&text, edit)?)?;
    }
    let found = simulate(copy, seeds);
    for edit in &mistake.edit {
        fs::copy(root.join(&edit.file), copy.join(&edit.file))?;
    }
    found.map_err(|error| format!("{}: {error}", mistake.name).into())
}

/// Runs seeds until one fails.
fn simulate(copy: &Path, seeds: u64) -> Outcome<Found> {
    let target = copy.join("target");
    let mut build = Command::new(workspace::cargo());
    build.args(["build", "--quiet", "--package", "humboldt-simulation"]);
    build.current_dir(copy).env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", "-Awarnings");
    if !build.status()?.success() {
        return Err("it does not compile".into());
    }
    let mut run = Command::new(target.join("debug/humboldt-simulation"));
    let output = run.args(["--stop", "--seeds", &seeds.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = text.lines().filter_map(|line| {
        let (seed, complaint) = line.strip_prefix("seed ")?.split_once(" FAILED: ")?;
        Some((seed.parse::<u64>().ok()?, complaint.to_owned()))
    });
    Ok(match failed.min() {
        Some((seed, complaint)) => Found { after: Some(seed + 1), complaint },
        None => Found { after: None, complaint: String::new() },
    })
}

fn row(mistake: &Mistake, found: &Found, seeds: u64) -> String {
    let after = found.after.map_or(format!("not in {seeds}"), |after| after.to_string());
    let complaint = found.complaint.trim_start_matches("WRONG: ");
    format!("{} | {} | {} | {complaint}", mistake.what, mistake.origin, after)
}

/// The rows of the table, each with what its mistake is.
struct Table(Vec<(String, String)>);

impl Table {
    /// The present one; a run of some mistakes keeps the rows of the others.
    fn read(root: &Path) -> Outcome<Self> {
        let text = fs::read_to_string(root.join(TABLE))?;
        let rows = text.lines().filter_map(|line| {
            let (what, _) = line.split_once(" | ")?;
            Some((what.to_owned(), line.to_owned()))
        });
        Ok(Self(rows.collect()))
    }

    fn put(&mut self, mistake: &Mistake, row: String) {
        self.0.retain(|(what, _)| *what != mistake.what);
        self.0.push((mistake.what.clone(), row));
    }

    /// The page, in the order of the mistakes.
    fn page(&self, known: &[Mistake]) -> String {
        let row = |mistake: &Mistake| {
            self.0.iter().find(|(what, _)| *what == mistake.what).map(|(_, row)| row.clone())
        };
        page(&known.iter().filter_map(row).collect::<Vec<_>>())
    }
}

fn page(rows: &[String]) -> String {
    format!(
        "# Mistakes that the simulation finds\n\n\
         <!-- Made by `cargo xtask simulate --mistakes`; do not edit. -->\n\n\
         Mistakes that the program had once, put back one at a time: the number of seeds, counted\n\
         from the first, after which `cargo xtask simulate` finds each. A run of some of them\n\
         (`--mistakes NAMES`) renews their rows.\n\n\
         mistake | it was | seeds | first complaint\n\
         --- | --- | --- | ---\n\
         {}\n",
        rows.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_can_still_be_made() {
        let root = workspace::root();
        let known = read(&root).expect("they can be read");
        assert!(known.len() >= 15, "{}", known.len());
        for edit in known.iter().flat_map(|mistake| &mistake.edit) {
            let text = fs::read_to_string(root.join(&edit.file)).expect("a source file");
            let changed = edited(&text, edit).unwrap_or_else(|error| panic!("{error}"));
            assert_ne!(changed, text, "{}", edit.find);
        }
    }
}
