//! Repeats in tables and warnings: the same of runs and of bangs.

use super::statistics::Repeats;
use crate::document::Warning;
use crate::format::{NOTHING, counted, percent, rough};

/// The columns beside the mean of repeats.
pub(crate) const REPEAT_COLUMNS: [&str; 3] = ["#± 95 %", "#deviation", "#spread"];

/// Their meaning.
pub(crate) const REPEAT_NOTE: &str = "± 95 %: half the width of the confidence interval of the mean (Student's t). \
    Spread: slowest to fastest repeat, in per cent of the mean; (!) marks more than 5 %.";

/// The word about the lines of repeats in a drawing.
pub(crate) fn repeats_drawn(figure: &str) -> String {
    format!("Of repeats, the one with the median {figure} is bold, and the others are thin. ")
}

impl Repeats {
    /// The cells of [`REPEAT_COLUMNS`].
    pub(crate) fn cells(&self) -> [String; 3] {
        let or_nothing = |value: Option<f64>| value.map_or(NOTHING.to_owned(), rough);
        let unsteady = if self.is_unsteady() { " (!)" } else { "" };
        let spread = self.spread.map(|spread| format!("{}{unsteady}", percent(spread)));
        [
            or_nothing(self.interval),
            or_nothing(self.deviation),
            spread.unwrap_or(NOTHING.to_owned()),
        ]
    }

    /// Said of repeats of `name` that differ too much.
    pub(crate) fn warning(&self, name: &str) -> Option<Warning> {
        let spread = self.spread.filter(|_| self.is_unsteady())?;
        Some(Warning {
            grave: false,
            heading: format!("{name}: repeats differ"),
            text: format!(
                "The slowest and the fastest of {} differ by {} of the mean; more repeats are needed.",
                counted(self.count as u64, "repeat"),
                percent(spread)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_are_those_of_the_columns() {
        let repeats = Repeats::of([100.0, 104.0, 108.0]);
        assert_eq!(repeats.cells(), ["9.94", "4.00", "7.7 % (!)"]);
        assert!(repeats.warning("a").is_some_and(|warning| warning.text.contains("3 repeats")));
        let one = Repeats::of([100.0]);
        assert_eq!(one.cells(), [NOTHING; 3]);
        assert!(one.warning("a").is_none());
    }
}
