//! Whether a full store slows a cache down, and whether the same run gives the same figure again.

use super::figures::{NOTHING, milliseconds, over, ratio, spread, table, with_hits};
use super::peaks::{Group, Matrix};
use super::{Inputs, Made};

/// Full stores beside no store at all.
pub(super) fn flatness(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix("flatness")? else { return Ok(None) };
    let rows = matrix.groups().iter().map(|group| {
        let (program, scheme) = group.subject.split_once(':').unwrap_or((&group.subject, ""));
        [
            group.subject.clone(),
            with_hits(&group.shown(), group.hit_ratio()),
            group.over(matrix.without_disk(program)),
            ratio(over(inputs.book.scheme(scheme), inputs.book.null())),
            spread(group.spread()),
            group.slope(),
        ]
    });
    let columns = [
        "subject",
        "#answers/s · hits",
        "#÷ no disk here",
        "#published ÷ no disk",
        "#spread",
        "#slope for each fill ratio, lowest to highest repeat",
    ];
    Ok(Some(table(columns, rows)))
}

/// What the book's controller finds, beside ours in the table of the schemes.
pub(super) fn controllers(inputs: &Inputs) -> Made {
    let Some(classic) = inputs.matrix("classic")? else { return Ok(None) };
    let robust = inputs.matrix("schemes")?;
    let rows = classic.groups().iter().map(|group| {
        let beside = robust.iter().flat_map(Matrix::groups);
        let beside = beside.into_iter().find(|other| other.subject == group.subject);
        [
            group.subject.clone(),
            beside.map_or(NOTHING.to_owned(), Group::shown),
            group.shown(),
            group.over(beside),
            group.last_quarter_per_s(),
            milliseconds(group.last_response_ms()),
        ]
    });
    let columns = [
        "subject",
        "#robust, answers/s",
        "#classic, answers/s",
        "#÷ robust",
        "#last quarter of classic, answers/s at fill ratio",
        "#its mean response, ms",
    ];
    Ok(Some(table(columns, rows)))
}

/// The same machine at two time scales.
pub(super) fn scales(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix("scale")? else { return Ok(None) };
    let rows = matrix.groups().iter().map(|group| {
        let first = matrix.groups().iter().find(|other| other.subject == group.subject);
        [
            group.subject.clone(),
            group.time_scale.map_or(NOTHING.to_owned(), |scale| scale.to_string()),
            group.variant.clone(),
            with_hits(&group.shown(), group.hit_ratio()),
            group.over(first),
            milliseconds(group.last_response_ms()),
            milliseconds(group.last_response_at_scale_1_ms()),
        ]
    });
    let columns = [
        "subject",
        "#time scale",
        "conditions",
        "#answers/s · hits",
        "#÷ the first of the subject",
        "#mean response in the last quarter, ms",
        "#÷ time scale",
    ];
    Ok(Some(table(columns, rows)))
}

/// The differences between the repeats of the schemes, and how each run ended.
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
            group.last_quarter_per_s(),
            milliseconds(group.last_response_ms()),
        ]
    });
    let columns = [
        "subject",
        "conditions",
        "#runs",
        "#answers/s",
        "#spread",
        "#last quarters, answers/s at fill ratio",
        "#mean response, ms",
    ];
    Ok(Some(table(columns, rows)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::testing::{cells, inputs};

    const CSV: &str = "subject,variant,outcome,throughput_per_s,lab_limited_share,flatness\n\
        humboldt:null,0.4 CPU,filled,1000,0,\n\
        humboldt:coss,0.4 CPU,filled,850,0,-0.02\n\
        humboldt:coss,0.4 CPU,filled,950,0,0.0502\n\
        humboldt:ring,0.4 CPU,filled,800,0,\n";

    #[test]
    fn full_stores_are_divided_by_none() {
        let (_folder, inputs) = inputs(&[("flatness/index.csv", CSV)]);
        let text = flatness(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "humboldt:null"), ["1,000", "1.00", "1.00", "–", "–"]);
        let coss = ["900", "0.90", "0.98", "11.1 % (!)", "1.5 % (−2.0 to 5.0)"];
        assert_eq!(cells(&text, "humboldt:coss"), coss);
        assert_eq!(cells(&text, "humboldt:ring"), ["800", "0.80", "–", "–", "–"]);
    }

    #[test]
    fn controllers_and_scales_are_compared_within_a_subject() {
        let files =
            [("classic/index.csv", CSV), ("schemes/index.csv", CSV), ("scale/index.csv", CSV)];
        let (_folder, alone) = inputs(&files[..1]);
        let text = controllers(&alone).unwrap().unwrap();
        assert_eq!(cells(&text, "humboldt:ring"), ["–", "800", "–", "800", "–"]);
        let (_folder, inputs) = inputs(&files);
        let text = controllers(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "humboldt:coss"), ["900", "900", "1.00", "900", "–"]);
        let text = scales(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "humboldt:coss"), ["–", "0.4 CPU", "900", "1.00", "–", "–"]);
    }

    #[test]
    fn scales_are_rows_of_their_own() {
        const CSV: &str = "subject,variant,outcome,throughput_per_s,lab_limited_share,time_scale,\
            response_mean_ms\n\
            a,,filled,1000,0,1,2000\n\
            b,,filled,1100,0,0.05,90\n\
            b,,filled,1000,0,1,2000\n";
        let (_folder, inputs) = inputs(&[("scale/index.csv", CSV)]);
        let text = scales(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "a"), ["1", "", "1,000", "1.00", "2,000", "2,000"]);
        assert_eq!(cells(&text, "b"), ["0.05", "", "1,100", "1.00", "90.0", "1,800"]);
    }

    #[test]
    fn repeats_are_counted() {
        let (_folder, inputs) = inputs(&[("schemes/index.csv", CSV)]);
        let text = repeat(&inputs).unwrap().unwrap();
        assert_eq!(
            cells(&text, "humboldt:coss"),
            ["0.4 CPU", "2", "900", "11.1 % (!)", "900", "–"]
        );
    }
}
