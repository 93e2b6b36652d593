//! The comparison at the ages that all caches have in common: its table, and its sentence.

use super::ages::Ages;
use super::groups::Group;
use super::pairs::{Bound, Compared, PAIRS_MIN, has_result};
use super::statistics::Ratio;
use super::{REPEAT_COLUMNS, REPEAT_NOTE};
use crate::document::Warning;
use crate::format::{NOTHING, counted, percent, rough};
use crate::run_page;
use crate::table::Table;
use humboldt_lab_record::Run;

/// Begins every lead that names no ratio.
const NONE: &str = "No comparison in a sentence";

/// All settings at the same age: the table to compare by.
pub(super) fn table(groups: &[Group<'_>]) -> Table {
    let first = ["subject", "#runs", "#answers/s"];
    let columns = [&first[..], &REPEAT_COLUMNS, &["#hit ratio", "last quarter", ""]].concat();
    let ages = common_ages(groups);
    let at = ages.map_or_else(|| "no common fill ratio".to_owned(), at_fill);
    let mut table = Table::new(&format!("Throughput at the same age: {at}"), &columns);
    for group in groups {
        let rates = group.at_common.map(|common| common.per_s).unwrap_or_default();
        let hits = group.at_common.map(|common| common.hit_ratio).filter(|hits| hits.count > 0);
        let mean = Some(rates.mean).filter(|_| rates.count > 0);
        let first = [
            group.name.clone(),
            group.runs.len().to_string(),
            mean.map_or(NOTHING.to_owned(), rough),
        ];
        let last = [
            hits.map_or(NOTHING.to_owned(), |hits| percent(hits.mean)),
            Ages::common(group.runs.iter().copied()).map_or(NOTHING.to_owned(), Ages::words),
            group.marks(),
        ];
        table.row(first.into_iter().chain(rates.cells()).chain(last));
    }
    table.note(&format!(
        "Compare by this table: an empty cache is faster than a full one, so every figure is of the same fill ratios. They \
         are those of all last quarters, or of the last quarter of the least filled run. Last quarter: each setting's own. \
         {REPEAT_NOTE}",
    ))
    .without_empty_columns()
}

fn at_fill(ages: Ages) -> String {
    format!("fill ratio {}", ages.words())
}

/// The ages of the table.
pub(super) fn common_ages(groups: &[Group<'_>]) -> Option<Ages> {
    groups.iter().find_map(|group| group.at_common).map(|common| common.ages)
}

/// The fastest and the slowest setting that nothing speaks against, at the ages of both. A ratio
/// stands here only if its interval leaves out 1.
pub(super) fn lead(groups: &[Group<'_>], not_comparable: &[Warning]) -> String {
    if let Some(objection) = not_comparable.iter().find(|warning| warning.grave) {
        return format!("{NONE}: {}.", objection.heading);
    }
    let is_sound = |group: &&Group<'_>| group.runs.iter().all(|run| has_nothing_grave(run));
    let sound: Vec<&Group<'_>> = groups.iter().filter(is_sound).collect();
    let grave = groups.len() - sound.len();
    let (Some(fast), Some(slow)) = (sound.first(), sound.last()) else {
        return if groups.is_empty() { String::new() } else { format!("{NONE}: {}.", all(grave)) };
    };
    if groups.len() == 1 {
        return format!("{} answers {} requests/s.", fast.name, rough(fast.throughput.mean));
    }
    if sound.len() == 1 {
        return format!("{NONE}: {}.", all(grave));
    }
    let both = || fast.runs.iter().chain(&slow.runs).copied();
    if Ages::overlap(both()).is_none() {
        return format!("{NONE}: {} and {} have different ages.", fast.name, slow.name);
    }
    // They are the extremes of all, not two that were chosen before.
    let compared = Compared::of(&in_pairs(slow, fast)).of_extremes(sound.len());
    let Some(ages) = compared.ages.or_else(|| Ages::overlap(both())) else {
        return String::new();
    };
    let per_s = |group: &Group<'_>| {
        let rates = group.runs.iter().filter_map(|run| ages.rates(run)).map(|(per_s, _)| per_s);
        rough(super::Repeats::of(rates).mean)
    };
    let ratio = match compared.ratio {
        _ if compared.pairs < PAIRS_MIN => {
            format!("their ratio is not known ({} of {PAIRS_MIN} pairs)", compared.pairs)
        }
        _ if matches!(compared.bound(), Bound::Both | Bound::AtMost) => {
            "their ratio is not known (no limit was found)".to_owned()
        }
        Some(Ratio { low, high, .. }) if low <= 1.0 && high >= 1.0 => {
            format!("which of the two is faster is not known ({})", compared.factor())
        }
        _ => format!("{} times as many", compared.factor()),
    };
    let left_out = match grave {
        0 => String::new(),
        _ => format!(" Left out: {}.", all(grave)),
    };
    format!(
        "{} answers {} requests/s at {}, {} {}: {ratio}.{left_out}",
        fast.name,
        per_s(fast),
        at_fill(ages),
        slow.name,
        per_s(slow)
    )
}

fn all(grave: usize) -> String {
    let settings = counted(grave as u64, "setting");
    format!("{settings} with a grave warning")
}

fn has_nothing_grave(run: &Run) -> bool {
    has_result(run) && !run_page::warnings(run).iter().any(|warning| warning.grave)
}

/// Repeats in the order in which they were made: the first of one with the first of the other.
fn in_pairs<'a>(before: &Group<'a>, after: &Group<'a>) -> Vec<(&'a Run, &'a Run)> {
    let in_order = |group: &Group<'a>| {
        let mut runs = group.runs.clone();
        runs.sort_by_key(|run| run.started_s);
        runs
    };
    in_order(before).into_iter().zip(in_order(after)).collect()
}
