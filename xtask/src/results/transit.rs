//! Objects in transit in memory and on disk: the comparison that was published of Squid, and ours.

use super::csv::{Csv, Row};
use super::figures::{mebibytes, milliseconds, number, over, per_s, published_per_s, ratio, table};
use super::{Inputs, Made};
use crate::Outcome;

/// The place of objects in transit, in the published table and in ours.
const PLACES: [(&str, &str); 2] =
    [("memory", "in transit in memory"), ("disk", "in transit on disk")];

/// The cache's state at the start, in the published table and in ours.
const CACHES: [(&str, &str); 2] = [("empty", "cache empty"), ("full", "cache full")];

const COLUMNS: [&str; 8] = [
    "run",
    "#published requests/s",
    "#median, s",
    "#peak descriptors",
    "#here requests/s",
    "#median, ms",
    "#peak descriptors",
    "#peak memory",
];

/// Of a subject without that choice.
const COLUMNS_HERE: [&str; 5] =
    ["run", "#here requests/s", "#median, ms", "#peak descriptors", "#peak memory"];

/// The figures of one run.
#[derive(Clone, Copy, Default)]
struct Run {
    per_s: Option<f64>,
    median_s: Option<f64>,
    descriptors: Option<f64>,
    memory_bytes: Option<f64>,
}

impl Run {
    /// Figure by figure, how many times as much as in another run.
    fn over(self, other: Self) -> Self {
        Self {
            per_s: over(self.per_s, other.per_s),
            median_s: over(self.median_s, other.median_s),
            descriptors: over(self.descriptors, other.descriptors),
            memory_bytes: over(self.memory_bytes, other.memory_bytes),
        }
    }
}

/// A table for each subject.
pub(super) fn in_transit(inputs: &Inputs) -> Made {
    let Some(csv) = inputs.csv("in-transit/index.csv")? else { return Ok(None) };
    let mut subjects: Vec<&str> = Vec::new();
    for row in csv.rows() {
        let subject = row.text("subject")?;
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let mut text = String::new();
    for subject in subjects {
        let made = if has_choice(&csv, subject)? {
            table(COLUMNS, rows(inputs, &csv, subject)?)
        } else {
            table(COLUMNS_HERE, rows_here(&csv, subject)?)
        };
        text += &format!("**{subject}**\n\n{made}\n");
    }
    Ok(Some(text))
}

/// Whether it was run with both places.
fn has_choice(csv: &Csv, subject: &str) -> Outcome<bool> {
    for row in csv.rows() {
        let variant = row.text("variant")?;
        if row.text("subject")? == subject && PLACES.iter().any(|place| place.1 == variant) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The runs of a subject that has no such choice.
fn rows_here(csv: &Csv, subject: &str) -> Outcome<Vec<[String; 5]>> {
    let mut rows = Vec::new();
    for row in csv.rows() {
        if row.text("subject")? == subject {
            let [per_s, median, descriptors, memory] = here_cells(run(&row)?);
            rows.push([row.text("pass")?.to_owned(), per_s, median, descriptors, memory]);
        }
    }
    Ok(rows)
}

/// The four runs, and the ratios of disk to memory.
fn rows(inputs: &Inputs, csv: &Csv, subject: &str) -> Outcome<Vec<[String; 8]>> {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for cache in CACHES {
        let [in_memory, on_disk] = PLACES.map(|place| published(inputs, place.0, cache.0));
        let published_ratio = on_disk.over(in_memory);
        let here_in_memory = here(csv, subject, PLACES[0].1, cache.1)?;
        let here_on_disk = here(csv, subject, PLACES[1].1, cache.1)?;
        rows.push(run_row(format!("in memory, {}", cache.1), in_memory, here_in_memory));
        rows.push(run_row(format!("on disk, {}", cache.1), on_disk, here_on_disk));
        let name = format!("disk ÷ memory, {}", cache.1);
        ratios.push(ratio_row(name, published_ratio, here_on_disk.over(here_in_memory)));
    }
    rows.append(&mut ratios);
    Ok(rows)
}

fn published(inputs: &Inputs, place: &str, cache: &str) -> Run {
    let run = inputs.book.transit(place, cache);
    run.map_or_else(Run::default, |run| Run {
        per_s: run.per_s,
        median_s: run.median_s,
        descriptors: run.descriptors,
        memory_bytes: None,
    })
}

/// Our measurements; nothing if there was no such run.
fn here(csv: &Csv, subject: &str, variant: &str, pass: &str) -> Outcome<Run> {
    for row in csv.rows() {
        if row.text("subject")? == subject
            && row.text("variant")? == variant
            && row.text("pass")? == pass
        {
            return run(&row);
        }
    }
    Ok(Run::default())
}

fn run(row: &Row<'_>) -> Outcome<Run> {
    Ok(Run {
        per_s: row.number("answers_per_s")?,
        median_s: row.number("p50_ms")?.map(|ms| ms / 1e3),
        descriptors: row.number("descriptors_max")?,
        memory_bytes: row.number("resident_bytes_max")?,
    })
}

fn run_row(name: String, published: Run, here: Run) -> [String; 8] {
    let [per_s, median, descriptors, memory] = here_cells(here);
    [
        name,
        published_per_s(published.per_s),
        number(published.median_s, 2),
        number(published.descriptors, 0),
        per_s,
        median,
        descriptors,
        memory,
    ]
}

/// The cells of a run of ours.
fn here_cells(here: Run) -> [String; 4] {
    [
        per_s(here.per_s),
        milliseconds(here.median_s.map(|median_s| median_s * 1e3)),
        number(here.descriptors, 0),
        mebibytes(here.memory_bytes),
    ]
}

fn ratio_row(name: String, published: Run, here: Run) -> [String; 8] {
    [
        name,
        ratio(published.per_s),
        ratio(published.median_s),
        ratio(published.descriptors),
        ratio(here.per_s),
        ratio(here.median_s),
        ratio(here.descriptors),
        ratio(here.memory_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::testing::{cells, inputs};

    #[test]
    fn the_disk_is_divided_by_the_memory() {
        let csv = "subject,variant,pass,answers_per_s,p50_ms,descriptors_max,resident_bytes_max\n\
            humboldt,in transit in memory,cache empty,4000,2.5,100,104857600\n\
            humboldt,in transit on disk,cache empty,1000,10,150,52428800\n\
            squid,Squid,cache full,300,20,120,52428800\n";
        let (_folder, inputs) = inputs(&[("in-transit/index.csv", csv)]);
        let text = in_transit(&inputs).unwrap().unwrap();
        assert!(text.starts_with("**humboldt**\n\n| run "));
        let memory = ["15.4", "3.46", "140", "4,000", "2.50", "100", "100 MiB"];
        assert_eq!(cells(&text, "in memory, cache empty"), memory);
        let disk = ["14.5", "3.59", "260", "1,000", "10.0", "150", "50 MiB"];
        assert_eq!(cells(&text, "on disk, cache empty"), disk);
        let ratio = ["0.94", "1.04", "1.86", "0.25", "4.00", "1.50", "0.50"];
        assert_eq!(cells(&text, "disk ÷ memory, cache empty"), ratio);
        let full = ["0.97", "0.94", "1.27", "–", "–", "–", "–"];
        assert_eq!(cells(&text, "disk ÷ memory, cache full"), full);
        let squid = text.split_once("**squid**").expect("its own table").1;
        assert_eq!(cells(squid, "cache full"), ["300", "20.0", "120", "50 MiB"]);
        assert!(!squid.contains("disk ÷ memory"));
    }
}
