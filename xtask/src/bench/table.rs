//! Tables of figures: medians with their range.

/// Sorted copies are cheap here; there are a handful of rounds.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// `median (min–max)`, with a fixed number of decimals.
pub(super) fn with_range(values: &[f64], decimals: usize) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.decimals$} ({min:.decimals$}–{max:.decimals$})", median(values))
}

/// Prints rows under a heading; see [`text`].
pub(super) fn print(heading: &[&str], rows: &[Vec<String>]) {
    print!("{}", text(heading, rows));
}

/// Rows under a heading as Markdown, with columns of equal width; all but the first are
/// right-aligned.
pub(super) fn text(heading: &[&str], rows: &[Vec<String>]) -> String {
    aligned(heading, rows, |column| column > 0)
}

/// The same with the given columns right-aligned.
pub(crate) fn aligned(
    heading: &[&str],
    rows: &[Vec<String>],
    is_right: impl Fn(usize) -> bool,
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let line = |cells: &[String]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            if is_right(column) {
                format!("{cell:>w$}", w = width(column))
            } else {
                format!("{cell:<w$}", w = width(column))
            }
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rules = (0..heading.len()).map(|column| {
        let dashes = "-".repeat(width(column).saturating_sub(1));
        if is_right(column) { format!("{dashes}:") } else { format!("{dashes}-") }
    });
    let first = line(&heading.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>());
    let rules = line(&rules.collect::<Vec<_>>());
    rows.iter().fold(first + &rules, |text, row| text + &line(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(with_range(&[3.0, 1.0, 2.0], 1), "2.0 (1.0–3.0)");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["ring".to_owned(), "µs".to_owned()]];
        assert_eq!(
            text(&["a", "title"], &rows),
            "| a    | title |\n| ---- | ----: |\n| ring |    µs |\n"
        );
    }
}
