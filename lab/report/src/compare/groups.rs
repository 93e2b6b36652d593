//! Repeats: runs of the same subject in the same variant under the same conditions.

use super::ages::Ages;
use super::pairs::has_result;
use super::statistics::Repeats;
use crate::format::{percent, plain};
use crate::run_page;
use humboldt_lab_record::{Outcome, Plan, Run};

/// As many characters of a reason for a failure are shown in a table.
const REASON_CHARS_MAX: usize = 80;

/// As many characters of a workload's name are shown.
const WORKLOAD_CHARS_MAX: usize = 40;

/// Runs that repeat one another, the fastest first. Never empty.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// Subject and variant, and the workload if others have another.
    pub name: String,
    /// The fastest first.
    pub runs: Vec<&'a Run>,
    /// Answers per second in the last quarter.
    pub throughput: Repeats,
    /// The same at the ages that all groups have in common; `None` if there are none.
    pub at_common: Option<AtCommon>,
}

/// Repeats at the ages that all groups have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtCommon {
    pub ages: Ages,
    /// Answers per second.
    pub per_s: Repeats,
    /// Hits in the answers to plain GETs.
    pub hit_ratio: Repeats,
}

impl AtCommon {
    fn of(ages: Ages, runs: &[&Run]) -> Self {
        let usable = runs.iter().filter(|run| has_result(run));
        let rates: Vec<(f64, f64)> = usable.filter_map(|run| ages.rates(run)).collect();
        Self {
            ages,
            per_s: Repeats::of(rates.iter().map(|(per_s, _)| *per_s)),
            hit_ratio: Repeats::of(rates.iter().map(|(_, hits)| *hits)),
        }
    }
}

impl<'a> Group<'a> {
    /// One of the runs: all have the same subject, variant and conditions.
    pub(crate) fn first(&self) -> &'a Run {
        self.runs[0]
    }

    /// Answers per second at the common ages; in the last quarter where there are none.
    pub(crate) fn per_s(&self) -> f64 {
        self.common_per_s().unwrap_or(self.throughput.mean)
    }

    /// Answers per second at the common ages; `None` if there are none.
    pub(crate) fn common_per_s(&self) -> Option<f64> {
        let common = self.at_common.map(|common| common.per_s);
        common.filter(|rates| rates.count > 0).map(|rates| rates.mean)
    }

    /// The mean slope of the repeats that have a result, with the interval of several.
    pub(crate) fn flatness(&self) -> String {
        let usable = self.runs.iter().filter(|run| has_result(run));
        let slopes = usable.filter_map(|run| run.summary.flatness).map(|known| known.slope);
        let slopes = Repeats::of(slopes);
        match slopes.interval {
            _ if slopes.count == 0 => "not known".to_owned(),
            None => percent(slopes.mean),
            Some(half) => {
                let [mean, low, high] =
                    [slopes.mean, slopes.mean - half, slopes.mean + half].map(percent);
                format!("{mean} ({low} to {high})")
            }
        }
    }

    /// The run with the median throughput.
    pub(crate) fn median(&self) -> &'a Run {
        self.runs[self.runs.len() / 2]
    }

    /// The mean of a figure over the repeats that have it.
    pub(crate) fn mean_of(&self, of: impl Fn(&Run) -> f64) -> Option<f64> {
        let repeats = Repeats::of(self.runs.iter().map(|run| of(run)));
        (repeats.count > 0).then_some(repeats.mean)
    }

    /// The marks that a reader must know with the figures, in a word each.
    pub(crate) fn marks(&self) -> String {
        let any = |of: fn(&Run) -> bool| self.runs.iter().any(|run| of(run));
        let marks = [
            (any(|run| run.summary.wrong_content > 0), "wrong content"),
            (any(|run| run.summary.lab_limited_share > 0.0), "samples spoiled"),
            (any(|run| run.summary.limit_reached == Some(false)), "limit not reached"),
            (any(|run| run.summary.limit_reached.is_none()), "limit not recorded"),
            (
                any(|run| matches!(run.outcome, Outcome::Failed(_) | Outcome::Interrupted)),
                "not finished",
            ),
            (any(|run| run.outcome == Outcome::TimeUp), "time was up"),
        ];
        marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect::<Vec<_>>().join(", ")
    }
}

/// The end of a run, in a few words.
pub(crate) fn outcome(run: &Run) -> String {
    match &run.outcome {
        Outcome::Running => "running".to_owned(),
        Outcome::Filled => "filled".to_owned(),
        Outcome::TimeUp => "time up".to_owned(),
        Outcome::Interrupted => "interrupted".to_owned(),
        Outcome::Failed(reason) => format!("failed: {}", plain(reason, REASON_CHARS_MAX)),
    }
}

fn are_repeats(one: &Run, other: &Run) -> bool {
    let conditions = |run: &Run| (run.plan.time_scale.to_bits(), run.plan.cache_bytes);
    one.plan.subject == other.plan.subject
        && one.plan.variant == other.plan.variant
        && one.plan.workload == other.plan.workload
        && one.plan.controller == other.plan.controller
        && conditions(one) == conditions(other)
}

/// The conditions that all runs have in common, which names need not repeat.
pub(crate) fn common_conditions(runs: &[Run]) -> Vec<String> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    if others.is_empty() {
        return Vec::new();
    }
    let is_common =
        |word: &&str| others.iter().all(|run| conditions(run).any(|other| other == *word));
    conditions(first).filter(is_common).map(ToOwned::to_owned).collect()
}

/// The conditions of a run, one by one.
fn conditions(run: &Run) -> impl Iterator<Item = &str> {
    run.plan.variant.split(", ").filter(|word| !word.is_empty())
}

/// The subject, and the text that distinguishes it from the other runs.
fn name(run: &Run, common: &[String], same_workload: bool) -> String {
    let own: Vec<&str> =
        conditions(run).filter(|word| !common.iter().any(|other| other == word)).collect();
    let own = Run { plan: Plan { variant: own.join(", "), ..run.plan.clone() }, ..Run::default() };
    let title = run_page::title(&own);
    if same_workload {
        title
    } else {
        format!("{title}, {}", plain(&run.plan.workload, WORKLOAD_CHARS_MAX))
    }
}

/// Groups of repeats, the fastest at the common ages first.
pub(crate) fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let common = common_conditions(runs);
    let same_workload = runs.iter().all(|run| run.plan.workload == runs[0].plan.workload);
    let mut together: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match together.iter_mut().find(|group| are_repeats(group[0], run)) {
            Some(group) => group.push(run),
            None => together.push(vec![run]),
        }
    }
    let mut groups: Vec<Group<'_>> = together
        .into_iter()
        .map(|mut runs| {
            runs.sort_by(|a, b| b.summary.throughput_per_s.total_cmp(&a.summary.throughput_per_s));
            let name = name(runs[0], &common, same_workload);
            let throughput = Repeats::of(runs.iter().map(|run| run.summary.throughput_per_s));
            Group { name, throughput, at_common: None, runs }
        })
        .collect();
    // A run that filled nothing has no age.
    let has_age = |run: &&Run| has_result(run) && run.summary.to_fill_ratio > 0.0;
    if let Some(ages) = Ages::common(runs.iter().filter(has_age)) {
        for group in &mut groups {
            group.at_common = Some(AtCommon::of(ages, &group.runs));
        }
    }
    groups.sort_by(|a, b| b.per_s().total_cmp(&a.per_s()));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{Flatness, Sample};

    #[test]
    fn flatness_is_that_of_the_repeats_with_a_result() {
        let run = |slope| {
            let mut run = Run { outcome: Outcome::Filled, ..Run::default() };
            run.samples.push(Sample::default());
            run.summary.flatness = Some(Flatness { slope, low: slope - 0.3, high: slope + 0.3 });
            run
        };
        let mut runs = [run(-0.1), run(-0.1), run(0.1)];
        let words = |runs: &[Run]| groups(runs)[0].flatness();
        // Deviation 0.1155, half width 4.303 · 0.1155 / √3.
        assert_eq!(words(&runs), "−3.3 % (−32.0 % to 25.4 %)");
        runs[1].summary.wrong_content = 1;
        runs[2].outcome = Outcome::Failed("it ended".to_owned());
        assert_eq!(words(&runs), "−10.0 %", "one has no interval of repeats");
        runs[0].summary.flatness = None;
        assert_eq!(words(&runs), "not known");
    }
}
