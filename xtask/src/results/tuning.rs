//! The gain of tuning: a text's statements about single steps, and all steps in sequence.

use super::csv::Row;
use super::figures::{
    NOTHING, at_least, bound_ratio, number, over, per_s, ratio, table, with_hits,
};
use super::{Inputs, Made};

/// Requests per second before and after all steps, "from about 50 to over 100". Source: "High
/// Performance Web Caching With Squid" (devshed.com, 2000), whose single statements are in
/// `experiments/tuning.toml`.
const ALL_STEPS_PER_S: (f64, f64) = (50.0, 100.0);

/// Statement by statement: the text's claim, and the measurement.
pub(super) fn claims(inputs: &Inputs) -> Made {
    let all = [inputs.csv("tuning/claims.csv")?, inputs.csv("tuning-more/claims.csv")?];
    if all.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut rows = Vec::new();
    for row in all.iter().flatten().flat_map(|csv| csv.rows()) {
        let (before_per_s, after_per_s) = (row.number("before_per_s")?, row.number("after_per_s")?);
        rows.push([
            or_nothing(row.text("claim")?),
            or_nothing(row.text("says")?),
            or_nothing(row.text("subject")?),
            format!("{} → {}", or_nothing(row.text("before")?), or_nothing(row.text("after")?)),
            with_hits(&marked(before_per_s, &row, "before"), row.number("before_hit_ratio")?),
            with_hits(&marked(after_per_s, &row, "after"), row.number("after_hit_ratio")?),
            bound_ratio(are_bound(&row), row.number("ratio")?.or(over(after_per_s, before_per_s))),
            published(row.text("published")?),
            or_nothing(row.text("verdict")?),
        ]);
    }
    let columns = [
        "claim",
        "the text says",
        "subject",
        "before → after",
        "#answers/s before · hits",
        "#after · hits",
        "#factor",
        "#published",
        "verdict",
    ];
    Ok(Some(table(columns, rows)))
}

fn or_nothing(text: &str) -> String {
    if text.is_empty() { NOTHING.to_owned() } else { text.to_owned() }
}

/// Whether no limit was found, of "before_limit_reached" and the like. Older files do not say it.
fn is_bound(row: &Row<'_>, column: &str) -> bool {
    row.number(column).ok().flatten() == Some(0.0)
}

/// Whether no limit was found before and after.
fn are_bound(row: &Row<'_>) -> (bool, bool) {
    (is_bound(row, "before_limit_reached"), is_bound(row, "after_limit_reached"))
}

/// The rate of a side, "before" or "after", marked where no limit was found.
fn marked(rate_per_s: Option<f64>, row: &Row<'_>, side: &str) -> String {
    at_least(is_bound(row, &format!("{side}_limit_reached")), &per_s(rate_per_s))
}

/// The factor of the hits a second. If no limit was found before and after, it is of the load that
/// both were allowed, so it says which of them has more hits.
fn factor_of_hits(row: &Row<'_>, of_hits: Option<f64>) -> String {
    match are_bound(row) {
        (true, true) => ratio(of_hits),
        are_bound => bound_ratio(are_bound, of_hits),
    }
}

/// A factor if it is one, else the text's words.
fn published(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(factor) => ratio(Some(factor)),
        Err(_) => or_nothing(text),
    }
}

/// The schemes before they were mended, and today.
pub(super) fn mended(inputs: &Inputs) -> Made {
    let Some(csv) = inputs.csv("mended/claims.csv")? else { return Ok(None) };
    let mut rows = Vec::new();
    for row in csv.rows() {
        let (before_per_s, after_per_s) = (row.number("before_per_s")?, row.number("after_per_s")?);
        let (before_hits, after_hits) =
            (row.number("before_hit_ratio")?, row.number("after_hit_ratio")?);
        let hits_per_s = |per_s: Option<f64>, hits: Option<f64>| Some(per_s? * hits?);
        let of_hits =
            over(hits_per_s(after_per_s, after_hits), hits_per_s(before_per_s, before_hits));
        rows.push([
            or_nothing(row.text("subject")?),
            with_hits(&marked(before_per_s, &row, "before"), before_hits),
            with_hits(&marked(after_per_s, &row, "after"), after_hits),
            bound_ratio(are_bound(&row), row.number("ratio")?.or(over(after_per_s, before_per_s))),
            factor_of_hits(&row, of_hits),
            or_nothing(row.text("repeats")?),
        ]);
    }
    let columns = [
        "subject",
        "#answers/s before · hits",
        "#answers/s today · hits",
        "#factor",
        "#factor of hits/s",
        "#pairs",
    ];
    Ok(Some(table(columns, rows)))
}

/// The steps of a subject.
#[derive(Default)]
struct Steps<'a> {
    subject: &'a str,
    /// Whether each found no limit.
    are_bound: Vec<bool>,
    lines: Vec<[String; 4]>,
}

/// A table for each subject: every step beside the one before it and beside the first.
pub(super) fn steps(inputs: &Inputs) -> Made {
    let Some(csv) = inputs.csv("tuning/steps.csv")? else { return Ok(None) };
    let mut tables: Vec<Steps<'_>> = Vec::new();
    for row in csv.rows() {
        let subject = row.text("subject")?;
        let known = tables.iter().position(|steps| steps.subject == subject);
        let place = known.unwrap_or_else(|| {
            tables.push(Steps { subject, ..Steps::default() });
            tables.len() - 1
        });
        let steps = &mut tables[place];
        let is_bound = is_bound(&row, "limit_reached");
        let over = |base: Option<&bool>, figure| match base {
            Some(base) => bound_ratio((*base, is_bound), figure),
            // The first one has 1 over itself.
            None => ratio(figure),
        };
        let line = [
            or_nothing(row.text("step")?),
            with_hits(&at_least(is_bound, &per_s(row.number("per_s")?)), row.number("hit_ratio")?),
            over(steps.are_bound.last(), row.number("over_previous")?),
            over(steps.are_bound.first(), row.number("over_first")?),
        ];
        steps.lines.push(line);
        steps.are_bound.push(is_bound);
    }
    let mut text = String::new();
    for Steps { subject, lines: mut rows, .. } in tables {
        rows.push(all_steps());
        let rows = table(["step", "#answers/s · hits", "#× previous", "#× first"], rows);
        text += &format!("**{subject}**\n\n{rows}\n");
    }
    Ok(Some(text))
}

/// The last line of each table: the published figures of all steps together.
fn all_steps() -> [String; 4] {
    let (before, after) = ALL_STEPS_PER_S;
    let words = format!(
        "published: about {} to over {} requests/s",
        number(Some(before), 0),
        number(Some(after), 0)
    );
    [words, NOTHING.to_owned(), NOTHING.to_owned(), ratio(over(Some(after), Some(before)))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::testing::{cells, inputs};

    #[test]
    fn a_claim_is_a_line() {
        let csv = "claim,says,published,subject,before,after,before_per_s,before_hit_ratio,after_per_s,after_hit_ratio,ratio,verdict,repeats,spread\n\
            noatime,\"faster, by far\",1.53,squid:aufs,strictatime,noatime,100,0.5,150,0.4,,agrees,3,0.01\n\
            logs,a | b,a little,squid:ufs,on,off,1000,,1100,,1.2,,3,0.01\n";
        let (_folder, inputs) = inputs(&[("tuning/claims.csv", csv)]);
        let text = claims(&inputs).unwrap().unwrap();
        let first = [
            "faster, by far",
            "squid:aufs",
            "strictatime → noatime",
            "100 · 50.0 %",
            "150 · 40.0 %",
            "1.50",
            "1.53",
            "agrees",
        ];
        assert_eq!(cells(&text, "noatime"), first);
        assert_eq!(cells(&text, "logs")[5..], ["1.20", "a little", "–"]);
        assert!(text.contains("a \\| b"));
    }

    #[test]
    fn the_mended_schemes_are_compared_by_hits_too() {
        let csv = "claim,says,published,subject,before,after,before_per_s,before_hit_ratio,after_per_s,after_hit_ratio,ratio,verdict,repeats,before_limit_reached,after_limit_reached\n\
            mended,it keeps its speed,,humboldt:aufs,62a6be3,today,1000,0.2,1500,0.5,,faster,3,1,0\n";
        let (_folder, inputs) = inputs(&[("mended/claims.csv", csv)]);
        let text = mended(&inputs).unwrap().unwrap();
        let expected = ["1,000 · 20.0 %", "≥ 1,500 · 50.0 %", "≥ 1.50", "≥ 3.75", "3"];
        assert_eq!(cells(&text, "humboldt:aufs"), expected);
    }

    #[test]
    fn steps_end_with_what_was_published() {
        let csv = "subject,step,per_s,hit_ratio,over_previous,over_first,limit_reached\n\
            squid:aufs,as it comes,50,0.5,,1,1\n\
            squid:aufs,noatime,75,0.5,1.5,1.5,1\n\
            squid:aufs,ext4,100,0.5,1.33,2,0\n\
            squid:aufs,memory,100,0.5,1,2,0\n\
            squid:aufs,logs,,,,,\n\
            humboldt:ufs,as it comes,1000,0.5,,1,0\n";
        let (_folder, inputs) = inputs(&[("tuning/steps.csv", csv)]);
        let text = steps(&inputs).unwrap().unwrap();
        assert!(text.starts_with("**squid:aufs**\n"));
        assert!(text.contains("\n\n**humboldt:ufs**\n"));
        assert_eq!(cells(&text, "noatime"), ["75.0 · 50.0 %", "1.50", "1.50"]);
        // Where no limit was found a factor may be larger, or anything.
        assert_eq!(cells(&text, "ext4"), ["≥ 100 · 50.0 %", "≥ 1.33", "≥ 2.00"]);
        assert_eq!(cells(&text, "memory"), ["≥ 100 · 50.0 %", "–", "≥ 2.00"]);
        assert_eq!(cells(&text, "logs")[1..], ["–", "–"], "not run yet");
        assert!(text.contains("≥ 1,000 · 50.0 % | "), "{text}");
        assert_eq!(cells(&text, "published: about 50 to over 100 requests/s"), ["–", "–", "2.00"]);
        assert_eq!(text.matches("published").count(), 2);
    }
}
