//! The output of a benchmark of the stores, which `docs/storage.md` also shows between two marks.

use super::table;
use crate::prose::wrapped;
use crate::{Outcome, marks, workspace};
use std::fs;

/// The page, relative to the root of the checkout.
const PAGE: &str = "docs/storage.md";

/// The sentence in the heading of a run that kept its processors awake.
const AWAKE: &str = " Idle processors were kept from sleeping.";

/// Text and tables in the order in which they were made.
pub(super) struct Report {
    name: &'static str,
    awake: bool,
    text: String,
}

impl Report {
    /// The report of the command `cargo xtask bench {name}`; `awake`: processors are kept from
    /// sleeping.
    pub(super) fn new(name: &'static str, awake: bool) -> Self {
        Self { name, awake, text: String::new() }
    }

    /// Prints a paragraph.
    pub(super) fn prose(&mut self, text: &str) {
        println!("\n{text}");
        self.add(text);
    }

    /// Prints a table.
    pub(super) fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) {
        let text = table::text(heading, rows);
        println!("\n{text}");
        self.add(text.trim_end());
    }

    fn add(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
    }

    /// Writes all of it to the page, in place of the last run's text.
    pub(super) fn write(&self) -> Outcome {
        let path = workspace::root().join(PAGE);
        let page = fs::read_to_string(&path)?;
        let awake = if self.awake { AWAKE } else { "" };
        let text = wrapped(&format!("{}{awake}\n\n{}", machine()?, self.text));
        let label = format!("bench {}", self.name);
        let page = marks::replaced(&page, &label, &text);
        fs::write(&path, page.ok_or_else(|| format!("{PAGE} has no marks for `{label}`"))?)?;
        println!("\n{PAGE} is written");
        Ok(())
    }
}

/// One line about this machine.
fn machine() -> Outcome<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(':'))
        .map_or("an unknown processor", |(_, name)| name.trim());
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let release = release.split('.').take(2).collect::<Vec<_>>().join(".");
    let cores = std::thread::available_parallelism()?;
    Ok(format!("Measured on {cores} cores of {model}, Linux {release}."))
}
