//! `cargo xtask results`: the tables of `docs/results/README.md`, which put published figures
//! beside ours.
//!
//! Published are the tables of the book on Squid and a comparison of objects in transit; ours are
//! the laboratory's results in the folders beside the page. Every figure is computed here, so that
//! none can be stale or mistyped: without `--write` the command fails if the page differs.

mod csv;
mod disks;
mod figures;
mod pages;
mod peaks;
mod published;
mod samples;
mod schemes;
mod steady;
#[cfg(test)]
mod testing;
mod transit;
mod tuning;

use crate::{Outcome, marks, workspace};
use csv::Csv;
use peaks::Matrix;
use published::Book;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Relative to the root of the checkout, like the folder of the measurements.
const PAGE: &str = "docs/results/README.md";
const FOLDER: &str = "docs/results";

/// Stands for a table whose experiment has left nothing yet.
const NOT_RUN: &str = "*not run yet*";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Put the tables into docs/results/README.md; without this, the present ones are checked
    #[arg(long)]
    write: bool,
    /// Write all pages of docs/results as HTML, with their drawings and data, into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "write")]
    pages: Option<PathBuf>,
}

/// A table's text; `None` if its figures were not measured yet.
type Made = Outcome<Option<String>>;

/// A table between two marks of the page.
struct Table {
    name: &'static str,
    make: fn(&Inputs) -> Made,
    /// The folder whose own page is linked below the table.
    folder: Option<&'static str>,
}

const TABLES: [Table; 17] = [
    Table { name: "schemes", make: schemes::schemes, folder: Some("schemes") },
    Table { name: "schemes-order", make: schemes::order, folder: None },
    Table { name: "others", make: schemes::others, folder: None },
    Table {
        name: "schemes-unthrottled",
        make: schemes::unthrottled,
        folder: Some("schemes-unthrottled"),
    },
    Table { name: "others-unthrottled", make: schemes::others_unthrottled, folder: None },
    Table { name: "file-systems", make: schemes::file_systems, folder: None },
    Table { name: "noatime", make: schemes::noatime, folder: None },
    Table { name: "other-systems", make: disks::other_systems, folder: None },
    Table { name: "spindles", make: disks::spindles, folder: Some("spindles") },
    Table { name: "in-transit", make: transit::in_transit, folder: Some("in-transit") },
    Table { name: "tuning", make: tuning::claims, folder: Some("tuning") },
    Table { name: "tuning-steps", make: tuning::steps, folder: None },
    Table { name: "flatness", make: steady::flatness, folder: Some("flatness") },
    Table { name: "repeat", make: steady::repeat, folder: None },
    Table { name: "mended", make: tuning::mended, folder: Some("mended") },
    Table { name: "classic", make: steady::controllers, folder: Some("classic") },
    Table { name: "scale", make: steady::scales, folder: Some("scale") },
];

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if let Some(folder) = &arguments.pages {
        let pages = pages::write(&workspace::root().join(FOLDER), folder)?;
        println!("{pages} pages are in {}", folder.display());
    } else if arguments.write {
        let path = workspace::root().join(PAGE);
        let (page, _) = renewed(&fs::read_to_string(&path)?, &Inputs::here()?)?;
        fs::write(&path, page)?;
        println!("{PAGE} is written");
    } else {
        println!("results: {}", check()?);
    }
    Ok(())
}

/// The part of `cargo xtask test`: returns a summary, and fails if a table differs from its
/// figures.
pub(crate) fn check() -> Outcome<String> {
    let page = fs::read_to_string(workspace::root().join(PAGE))?;
    match renewed(&page, &Inputs::here()?)? {
        (_, Some(name)) => {
            let mend = "cargo xtask results --write";
            Err(format!("{PAGE}: the table `{name}` is not what the figures say: run `{mend}`")
                .into())
        }
        (_, None) => Ok(format!("{} tables are what the figures say", TABLES.len())),
    }
}

/// The part of `cargo xtask test` that computes the figures of all folders again. Returns a
/// summary.
pub(crate) fn recompute() -> Outcome<String> {
    samples::recompute(&workspace::root().join(FOLDER))
}

/// The page with all tables made again, and the name of the first that differs.
fn renewed(page: &str, inputs: &Inputs) -> Outcome<(String, Option<&'static str>)> {
    let (mut page, mut stale) = (page.to_owned(), None);
    for table in &TABLES {
        let label = format!("results {}", table.name);
        let next = marks::replaced(&page, &label, &table.text(inputs)?);
        let next = next.ok_or_else(|| format!("{PAGE} has no marks for `{label}`"))?;
        if next != page {
            stale = stale.or(Some(table.name));
        }
        page = next;
    }
    Ok((page, stale))
}

impl Table {
    fn text(&self, inputs: &Inputs) -> Outcome<String> {
        let made =
            (self.make)(inputs).map_err(|error| format!("the table `{}`: {error}", self.name))?;
        let Some(text) = made else { return Ok(NOT_RUN.to_owned()) };
        let has_page = |folder: &&str| inputs.folder.join(folder).join("index.md").exists();
        Ok(match self.folder.filter(has_page) {
            Some(folder) => {
                let all = format!("All that was measured: [{folder}]({folder}/index.md).");
                let text = format!("{}\n\n{all}", text.trim_end());
                match samples::has_samples(&inputs.folder.join(folder)) {
                    true => text,
                    false => format!("{text}\n{}", samples::WITHOUT),
                }
            }
            None => text,
        })
    }
}

/// The source of all figures.
struct Inputs {
    /// Has a folder for each experiment.
    folder: PathBuf,
    book: Book,
}

impl Inputs {
    fn here() -> Outcome<Self> {
        Self::new(workspace::root().join(FOLDER))
    }

    fn new(folder: PathBuf) -> Outcome<Self> {
        Ok(Self { folder, book: Book::read()? })
    }

    /// The peaks that an experiment found; `None` if it was not run yet.
    fn matrix(&self, experiment: &str) -> Outcome<Option<Matrix>> {
        let csv = self.csv(&format!("{experiment}/index.csv"))?;
        csv.map(|csv| Matrix::of(&csv)).transpose()
    }

    /// A file of the folder; `None` if it is not there.
    fn csv(&self, name: &str) -> Outcome<Option<Csv>> {
        let path = self.folder.join(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        };
        let csv = Csv::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(csv))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::inputs;
    use super::*;

    const FLATNESS: &str = "subject,variant,outcome,throughput_per_s,lab_limited_share\n\
        humboldt:null,0.4 CPU,filled,1000,0\n";

    /// Nothing but marks.
    fn page() -> String {
        let marks = |table: &Table| {
            format!("<!-- begin results {0} -->\n<!-- end results {0} -->\nwords\n", table.name)
        };
        TABLES.iter().map(marks).collect()
    }

    #[test]
    fn tables_are_made_between_the_marks_and_stay() {
        let files = [("flatness/index.csv", FLATNESS), ("flatness/index.md", "# Flatness\n")];
        let (_folder, inputs) = inputs(&files);
        let (once, stale) = renewed(&page(), &inputs).unwrap();
        assert_eq!(stale, Some("schemes"));
        assert!(once.contains(
            "<!-- begin results schemes -->\n\n*not run yet*\n\n<!-- end results schemes -->"
        ));
        let all = "All that was measured: [flatness](flatness/index.md).\n";
        assert!(once.contains(&format!("{all}{}\n\n<!-- end", samples::WITHOUT)), "{once}");
        let json = inputs.folder.join("flatness/experiment.json");
        fs::write(&json, "{}\n").unwrap();
        let (with_samples, _) = renewed(&page(), &inputs).unwrap();
        assert!(with_samples.contains(&format!("{all}\n<!-- end")));
        fs::remove_file(json).unwrap();
        assert_eq!(once.matches("words\n").count(), TABLES.len());
        assert_eq!(once.matches(NOT_RUN).count(), TABLES.len() - 2);
        assert_eq!(renewed(&once, &inputs).unwrap(), (once.clone(), None));
        let touched = once.replace("1,000", "1,001");
        assert_eq!(renewed(&touched, &inputs).unwrap(), (once, Some("flatness")));
    }

    #[test]
    fn a_page_without_marks_and_a_file_without_columns_are_errors() {
        let (_folder, empty) = inputs(&[]);
        assert!(renewed("# Results\n", &empty).is_err());
        let (_folder, odd) = inputs(&[("schemes/index.csv", "subject,outcome\na,filled\n")]);
        let error = renewed(&page(), &odd).unwrap_err().to_string();
        assert_eq!(error, "the table `schemes`: there is no column `throughput_per_s`");
    }

    #[test]
    fn the_real_page_has_all_marks() {
        let (_folder, inputs) = inputs(&[]);
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        assert!(renewed(&page, &inputs).is_ok());
    }
}
