//! Whether a full store slows a cache down, and whether the same run gives the same figure again.

use super::figures::{NOTHING, over, ratio, spread, table};
use super::peaks::Group;
use super::{Inputs, Made};

/// Full stores beside no store at all.
pub(super) fn flatness(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix("flatness")? else { return Ok(None) };
    let rows = matrix.groups().iter().map(|group| {
        let (program, scheme) = group.subject.split_once(':').unwrap_or((&group.subject, ""));
        let null_per_s = matrix.without_disk(program).map(Group::mean_per_s);
        [
            group.subject.clone(),
            group.shown(),
            ratio(over(Some(group.mean_per_s()), null_per_s)),
            ratio(over(inputs.book.scheme(scheme), inputs.book.null())),
            spread(group.spread()),
        ]
    });
    let columns = ["subject", "#answers/s", "#÷ no disk here", "#published ÷ no disk", "#spread"];
    Ok(Some(table(columns, rows)))
}

/// The differences between the repeats of the schemes.
pub(super) fn repeat(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix("schemes")? else { return Ok(None) };
    let rows = matrix.groups().iter().map(|group| {
        let conditions = if group.variant.is_empty() { NOTHING } else { group.variant.as_str() };
        [
            group.subject.clone(),
            conditions.to_owned(),
            group.runs().to_string(),
            group.shown(),
            spread(group.spread()),
        ]
    });
    Ok(Some(table(["subject", "conditions", "#runs", "#answers/s", "#spread"], rows)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::testing::{cells, inputs};

    const CSV: &str = "subject,variant,outcome,throughput_per_s,lab_limited_share\n\
        humboldt:null,0.4 CPU,filled,1000,0\n\
        humboldt:coss,0.4 CPU,filled,850,0\n\
        humboldt:coss,0.4 CPU,filled,950,0\n\
        humboldt:ring,0.4 CPU,filled,800,0\n";

    #[test]
    fn full_stores_are_divided_by_none() {
        let (_folder, inputs) = inputs(&[("flatness/index.csv", CSV)]);
        let text = flatness(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "humboldt:null"), ["1,000", "1.00", "1.00", "–"]);
        assert_eq!(cells(&text, "humboldt:coss"), ["900", "0.90", "0.98", "11.1 % (!)"]);
        assert_eq!(cells(&text, "humboldt:ring"), ["800", "0.80", "–", "–"]);
    }

    #[test]
    fn repeats_are_counted() {
        let (_folder, inputs) = inputs(&[("schemes/index.csv", CSV)]);
        let text = repeat(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "humboldt:coss"), ["0.4 CPU", "2", "900", "11.1 % (!)"]);
    }
}
