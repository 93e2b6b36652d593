//! `bench index`: memory of the stores' indexes with ten million objects. Two examples measure,
//! this puts side by side.

use super::programs;
use super::report::Report;
use crate::Outcome;
use std::path::Path;
use std::process::Command;

/// Bytes of memory for an object, at most.
const RING_BYTES_MAX: f64 = 9.0;
const FILE_BYTES_MAX: f64 = 48.0;

pub(super) fn run(write: bool) -> Outcome {
    let ring = output(&programs::example("humboldt-schemes", "ring_index")?)?;
    let files = output(&programs::example("humboldt-store", "index_memory")?)?;
    let value = |label: &str| {
        labelled(&ring, label).ok_or_else(|| format!("ring_index does not say `{label}`"))
    };
    let (bytes, resident, occupancy) =
        (value("memory:")?, value("resident:")?, value("occupancy:")?);
    let mut rows = vec![
        row(&format!("ring, {occupancy:.1} % occupied"), bytes, RING_BYTES_MAX),
        row("ring, resident memory of the process", resident, RING_BYTES_MAX),
    ];
    rows.extend(worst_by_policy(&files).iter().map(|(policy, bytes)| {
        row(&format!("ufs, aufs, diskd: {policy}, at worst"), *bytes, FILE_BYTES_MAX)
    }));
    if rows.len() < 3 {
        return Err(format!("index_memory says nothing that can be read: {files}").into());
    }
    let mut report = Report::new("index", false);
    report.prose("Bytes of memory for each object in the index, of up to ten million.");
    report.table(&["index", "bytes an object", "wanted"], &rows);
    if write { report.write() } else { Ok(()) }
}

fn output(program: &Path) -> Outcome<String> {
    let output = Command::new(program).output()?;
    if !output.status.success() {
        return Err(
            format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn row(what: &str, bytes: f64, bound: f64) -> Vec<String> {
    let verdict = if bytes <= bound { "reached" } else { "missed" };
    vec![what.to_owned(), format!("{bytes:.2}"), format!("≤ {bound}: {verdict}")]
}

/// The first number behind a label at the beginning of a line.
fn labelled(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().find_map(|word| word.parse().ok())
}

/// Lines that begin with words and go on with numbers: the words, and the largest number.
fn worst_by_policy(text: &str) -> Vec<(String, f64)> {
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name: Vec<&str> =
            words.iter().copied().take_while(|word| word.parse::<f64>().is_err()).collect();
        let numbers = words.iter().skip(name.len()).filter_map(|word| word.parse::<f64>().ok());
        let worst = numbers.fold(f64::NEG_INFINITY, f64::max);
        (!name.is_empty() && worst.is_finite()).then(|| (name.join(" "), worst))
    };
    // The heading has a number in its words.
    text.lines().filter(|line| !line.starts_with("bytes each")).filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_the_examples_print() {
        let text = "objects:    10000000 in 256 shards\noccupancy:   86.92 %\nmemory:       8.63 bytes an object\n";
        assert_eq!(
            (labelled(text, "memory:"), labelled(text, "occupancy:")),
            (Some(8.63), Some(86.92))
        );
        assert_eq!(labelled(text, "resident:"), None);
        let text = "bytes each   worst from 1e6 on   at 1e7 churning\nlru           44.1    40.2   41.0\nheap GDSF   45.0 46.5   44.0\n";
        assert_eq!(
            worst_by_policy(text),
            [("lru".to_owned(), 44.1), ("heap GDSF".to_owned(), 46.5)]
        );
    }
}
