//! Claims, each as a pair of settings, before and after; and settings that add up, step by step.

use super::ages::Ages;
use super::statistics::{Ratio, Repeats};
use crate::csv::field;
use crate::document::Section;
use crate::format::{NOTHING, number, percent, plain, rough};
use crate::table::Table;
use humboldt_lab_record::{Outcome as End, Run};
use serde::{Deserialize, Serialize};

/// As many characters of a claim are shown.
const CHARS_MAX: usize = 300;

/// A statement that somebody makes, as a pair of settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Claim {
    /// In a word or two.
    pub name: String,
    /// The statement in its author's words.
    pub says: String,
    /// Published figures for it, if there are any.
    pub published: String,
    /// The measured subject.
    pub subject: String,
    /// The setting before.
    pub before: Side,
    /// The setting after.
    pub after: Side,
}

/// One of the two settings of a claim.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Side {
    /// Its difference.
    pub text: String,
    /// Its repeats: places in the list of all runs. One that is not in the list has not been done
    /// yet.
    pub runs: Vec<usize>,
}

/// A setting that adds something to the one before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    /// The measured subject.
    pub subject: String,
    /// The added options.
    pub name: String,
    /// Its repeats: places in the list of all runs.
    pub runs: Vec<usize>,
}

/// The comparisons of an experiment, apart from the order of its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pairs {
    /// Claims, in their order.
    pub claims: Vec<Claim>,
    /// Steps of each subject, in their order.
    pub steps: Vec<Step>,
}

/// Hit ratios that are no further apart than this are called the same: longer and shorter runs of
/// one cache are.
const HITS_APART_MAX: f64 = 0.03;

/// A verdict needs this many pairs.
pub(super) const PAIRS_MIN: usize = 5;

/// The result of repeats of one setting, at the ages at which it is compared.
#[derive(Clone, Debug, Default)]
struct Outcome {
    per_s: Repeats,
    /// Hits in the answers to plain GETs.
    hit_ratio: Repeats,
    /// Whether all runs found a limit. `Some(false)`: one did not, mostly because it came to the
    /// highest load that it was allowed, so the cache may be faster. `None`: one does not say.
    limit_reached: Option<bool>,
}

impl Outcome {
    /// Of answers per second and hit ratios.
    fn of(rates: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        Self {
            per_s: Repeats::of(rates.clone().map(|(per_s, _)| per_s)),
            hit_ratio: Repeats::of(rates.map(|(_, hits)| hits)),
            limit_reached: None,
        }
    }

    /// The same, of these runs at these ages.
    fn bound_by<'a>(self, ages: Ages, runs: impl Iterator<Item = &'a Run>) -> Self {
        let reached: Vec<Option<bool>> = runs.map(|run| ages.limit_reached(run)).collect();
        let limit_reached = match () {
            () if reached.contains(&Some(false)) => Some(false),
            () if reached.contains(&None) => None,
            () => Some(true),
        };
        Self { limit_reached, ..self }
    }

    fn is_bound(&self) -> bool {
        self.limit_reached == Some(false)
    }

    fn at(ages: Option<Ages>, runs: &[Run], places: &[usize]) -> Self {
        let Some(ages) = ages else { return Self::default() };
        let done = places.iter().filter_map(|place| runs.get(*place));
        let usable = done.filter(|run| has_result(run));
        let rated: Vec<_> = usable.filter_map(|run| Some((run, ages.rates(run)?))).collect();
        let rates = rated.iter().map(|(_, rates)| *rates);
        Self::of(rates).bound_by(ages, rated.iter().map(|(run, _)| *run))
    }

    /// 1 or 0 as in index.csv; empty if nothing is known.
    fn limit_reached_csv(&self) -> &'static str {
        match self.limit_reached.filter(|_| self.per_s.count > 0) {
            None => "",
            Some(false) => "0",
            Some(true) => "1",
        }
    }

    /// Answers per second, with "≥" where no limit was found.
    fn words(&self) -> String {
        let mark = if self.is_bound() && self.per_s.count > 0 { "≥ " } else { "" };
        format!("{mark}{}", rough(self.per_s.mean))
    }
}

/// Whether a run says something about its cache: it ended as planned, or for lack of time, with
/// right content, and most of its last quarter was not spoiled.
pub(super) fn has_result(run: &Run) -> bool {
    let summary = &run.summary;
    matches!(run.outcome, End::Filled | End::TimeUp)
        && !run.samples.is_empty()
        && summary.wrong_content == 0
        && !summary.is_spoiled()
}

/// Where the true factor of two settings lies: a rate without a limit may be higher.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// Where it was measured.
    None,
    /// There or below: the first setting found no limit.
    AtMost,
    /// There or above: the second one found none.
    AtLeast,
    /// Anywhere.
    Both,
}

impl Bound {
    fn of(before: &Outcome, after: &Outcome) -> Self {
        match (before.is_bound(), after.is_bound()) {
            (false, false) => Self::None,
            (true, false) => Self::AtMost,
            (false, true) => Self::AtLeast,
            (true, true) => Self::Both,
        }
    }

    /// The factor with its mark; nothing if it may be anywhere.
    fn marked(self, factor: Option<String>) -> String {
        let mark = match self {
            Self::None => "",
            Self::AtMost => "≤ ",
            Self::AtLeast => "≥ ",
            Self::Both => return NOTHING.to_owned(),
        };
        factor.map_or(NOTHING.to_owned(), |factor| format!("{mark}{factor}"))
    }
}

/// Two settings at the same ages.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) ages: Option<Ages>,
    before: Outcome,
    after: Outcome,
    pub(super) ratio: Option<Ratio>,
    /// Pairs of which both runs have a result, and the others.
    pub(super) pairs: usize,
    left_out: usize,
}

impl Compared {
    /// Of repeats: the first before with the first after, and so on.
    fn new(runs: &[Run], before: &[usize], after: &[usize]) -> Self {
        let of = |places: &(usize, usize)| Some((runs.get(places.0)?, runs.get(places.1)?));
        let done: Vec<(&Run, &Run)> =
            before.iter().copied().zip(after.iter().copied()).filter_map(|p| of(&p)).collect();
        Self::of(&done)
    }

    /// Of pairs (before, after).
    pub(super) fn of<'a>(done: &[(&'a Run, &'a Run)]) -> Self {
        let usable = done.iter().filter(|(before, after)| has_result(before) && has_result(after));
        let usable: Vec<(&'a Run, &'a Run)> = usable.copied().collect();
        let Some(ages) = Ages::common(usable.iter().flat_map(|(a, b)| [*a, *b])) else {
            return Self { left_out: done.len(), ..Self::default() };
        };
        // A run without a good sample at these ages takes its partner with it.
        let rated = |(a, b): &(&'a Run, &'a Run)| Some((*a, ages.rates(a)?, *b, ages.rates(b)?));
        let compared: Vec<_> = usable.iter().filter_map(rated).collect();
        let rates: Vec<_> = compared.iter().map(|(_, a, _, b)| (*a, *b)).collect();
        let per_s: Vec<(f64, f64)> = rates.iter().map(|(a, b)| (a.0, b.0)).collect();
        Self {
            ages: Some(ages),
            before: Outcome::of(rates.iter().map(|(before, _)| *before))
                .bound_by(ages, compared.iter().map(|(before, ..)| *before)),
            after: Outcome::of(rates.iter().map(|(_, after)| *after))
                .bound_by(ages, compared.iter().map(|(_, _, after, _)| *after)),
            ratio: Ratio::of(&per_s),
            pairs: rates.len(),
            left_out: done.len() - rates.len(),
        }
    }

    /// The same, if the two are the fastest and the slowest of this many settings.
    pub(super) fn of_extremes(self, settings: usize) -> Self {
        let comparisons = settings * settings.saturating_sub(1) / 2;
        let ratio = self.ratio.map(|ratio| ratio.of_extremes(self.pairs, comparisons));
        Self { ratio, ..self }
    }

    /// Faster, slower or not known. A cache that keeps less is faster for that alone, and the other
    /// way round.
    fn verdict(&self) -> String {
        let word = match self.ratio {
            _ if self.pairs == 0 && self.left_out == 0 => return "not run yet".to_owned(),
            _ if self.pairs < PAIRS_MIN => {
                return format!("not known: {} of {PAIRS_MIN} pairs", self.pairs);
            }
            None => return "not known: one of the two answered nothing".to_owned(),
            Some(_) if self.bound() == Bound::Both => "not known: no limit was found",
            Some(ratio) if ratio.low > 1.0 && self.bound() == Bound::AtMost => {
                "not known: no limit before"
            }
            Some(ratio) if ratio.high < 1.0 && self.bound() == Bound::AtLeast => {
                "not known: no limit after"
            }
            Some(ratio) if ratio.low > 1.0 => "faster",
            Some(ratio) if ratio.high < 1.0 => "slower",
            _ => "not known",
        };
        let left_out = match self.left_out {
            0 => String::new(),
            pairs => format!(", {pairs} more pairs have no result"),
        };
        let hits = match self.after.hit_ratio.mean - self.before.hit_ratio.mean {
            more if more > HITS_APART_MAX => ", with more hits",
            more if more < -HITS_APART_MAX => ", with fewer hits",
            _ => "",
        };
        format!("{word}{hits}{left_out}")
    }

    /// How the true factor lies to the measured one.
    pub(super) fn bound(&self) -> Bound {
        Bound::of(&self.before, &self.after)
    }

    /// "1.53 (1.40–1.66)", with "≥" or "≤" where one of the two found no limit; nothing if none of
    /// them did.
    pub(super) fn factor(&self) -> String {
        let factor = self.ratio.map(|Ratio { mean, low, high }| match self.pairs {
            0 | 1 => number(mean, 2),
            _ => format!("{} ({}–{})", number(mean, 2), number(low, 2), number(high, 2)),
        });
        self.bound().marked(factor)
    }
}

/// A step, its throughput, and what it is compared with.
struct Course<'a> {
    step: &'a Step,
    outcome: Outcome,
    /// That of the step before; `None` of a subject's first.
    previous: Option<Outcome>,
    /// That of its subject's first.
    first: Outcome,
}

impl Course<'_> {
    /// The factor over another step, with its mark.
    fn over(&self, base: &Outcome) -> String {
        let (value, base_value) = (self.outcome.per_s.mean, base.per_s.mean);
        let factor = (base_value > 0.0 && value > 0.0).then(|| number(value / base_value, 2));
        Bound::of(base, &self.outcome).marked(factor)
    }

    /// The factor over the first one, which has 1 over itself.
    fn over_first(&self) -> String {
        match &self.previous {
            Some(_) => self.over(&self.first),
            None if self.outcome.per_s.mean > 0.0 => number(1.0, 2),
            None => NOTHING.to_owned(),
        }
    }
}

impl Pairs {
    /// Whether there is nothing to compare.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.steps.is_empty()
    }

    /// A part of the page with the tables that there are.
    pub(super) fn section(&self, runs: &[Run]) -> Section {
        let mut tables = Vec::new();
        if !self.claims.is_empty() {
            tables.push(self.claims_table(runs));
        }
        if !self.steps.is_empty() {
            tables.push(self.steps_table(runs));
        }
        Section { short: true, tables, ..Section::new("Before and after") }
    }

    fn claims_table(&self, runs: &[Run]) -> Table {
        let columns = [
            "claim",
            "subject",
            "before → after",
            "#before/s",
            "#hits",
            "#after/s",
            "#hits",
            "#factor (95 %)",
            "fill",
            "",
            "published",
        ];
        let mut table = Table::new("Claims", &columns);
        for claim in &self.claims {
            let compared = Compared::new(runs, &claim.before.runs, &claim.after.runs);
            let (before, after) = (&compared.before, &compared.after);
            table.row([
                format!("{}: {}", plain(&claim.name, CHARS_MAX), plain(&claim.says, CHARS_MAX)),
                claim.subject.clone(),
                plain(&format!("{} → {}", claim.before.text, claim.after.text), CHARS_MAX),
                before.words(),
                hits(before),
                after.words(),
                hits(after),
                compared.factor(),
                compared.ages.map_or(NOTHING.to_owned(), Ages::words),
                compared.verdict(),
                plain(&claim.published, CHARS_MAX),
            ]);
        }
        table.note(
            "Answers/s at the same ages: where the last quarters of all repeats overlap, or in the last quarter of the least \
             filled. Factor: geometric mean of the pairs, with its 95 % interval (Student's t, of the logarithms). Not known: \
             fewer than five pairs, the interval contains 1, or no limit was found (≥), mostly because of the highest load that was allowed. \
             Hits: in the answers to plain GETs; more or fewer by more than 3 of 100.",
        )
    }

    fn steps_table(&self, runs: &[Run]) -> Table {
        let mut table = Table::new(
            "Step by step",
            &["subject", "step", "#answers/s", "#hits", "#× the step before", "#× the first"],
        );
        for course in self.course(runs) {
            table.row([
                course.step.subject.clone(),
                plain(&course.step.name, CHARS_MAX),
                course.outcome.words(),
                hits(&course.outcome),
                course.previous.as_ref().map_or(NOTHING.to_owned(), |base| course.over(base)),
                course.over_first(),
            ]);
        }
        table.note("Each step has what the steps before it have. Means over the repeats, at the ages that all steps of a subject have in common. ≥: no limit was found.")
    }

    /// Every step with its throughput, that of the step before, and that of its subject's first: at
    /// the ages that all steps of the subject have in common.
    fn course(&self, runs: &[Run]) -> Vec<Course<'_>> {
        let mut course: Vec<Course<'_>> = Vec::new();
        for step in &self.steps {
            let of_subject = self.steps.iter().filter(|other| other.subject == step.subject);
            let places = of_subject.flat_map(|step| &step.runs);
            let done = places.filter_map(|place| runs.get(*place));
            let ages = Ages::common(done.filter(|run| has_result(run)));
            let outcome = Outcome::at(ages, runs, &step.runs);
            let before = course.last().filter(|other| other.step.subject == step.subject);
            let previous = before.map(|before| before.outcome.clone());
            let first = before.map_or(&outcome, |before| &before.first).clone();
            course.push(Course { step, outcome, previous, first });
        }
        course
    }

    /// claims.csv.
    pub(super) fn claims_csv(&self, runs: &[Run]) -> String {
        let mut out = String::from(
            "claim,says,published,subject,before,after,before_per_s,before_hit_ratio,after_per_s,after_hit_ratio,ratio,verdict,repeats,\
             ratio_low,ratio_high,from_fill_ratio,to_fill_ratio,before_limit_reached,after_limit_reached\n",
        );
        for claim in &self.claims {
            let compared = Compared::new(runs, &claim.before.runs, &claim.after.runs);
            let (before, after) = (&compared.before, &compared.after);
            let of_ratio =
                |part: fn(Ratio) -> f64| compared.ratio.map(part).map(exact).unwrap_or_default();
            let of_ages =
                |part: fn(Ages) -> f64| compared.ages.map(part).map(exact).unwrap_or_default();
            let texts = [
                &claim.name,
                &claim.says,
                &claim.published,
                &claim.subject,
                &claim.before.text,
                &claim.after.text,
            ];
            out.push_str(&format!(
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                texts.map(|text| field(text)).join(","),
                exact(before.per_s.mean),
                exact_share(&before.hit_ratio),
                exact(after.per_s.mean),
                exact_share(&after.hit_ratio),
                of_ratio(|ratio| ratio.mean),
                field(&compared.verdict()),
                compared.pairs,
                of_ratio(|ratio| ratio.low),
                of_ratio(|ratio| ratio.high),
                of_ages(|ages| ages.from),
                of_ages(|ages| ages.to),
                before.limit_reached_csv(),
                after.limit_reached_csv(),
            ));
        }
        out
    }

    /// steps.csv.
    pub(super) fn steps_csv(&self, runs: &[Run]) -> String {
        let mut out =
            String::from("subject,step,per_s,hit_ratio,over_previous,over_first,limit_reached\n");
        for Course { step, outcome, previous, first } in self.course(runs) {
            let per_s = outcome.per_s.mean;
            out.push_str(&format!(
                "{},{},{},{},{},{},{}\n",
                field(&step.subject),
                field(&step.name),
                exact(per_s),
                exact_share(&outcome.hit_ratio),
                previous.map(|base| exact(per_s / base.per_s.mean)).unwrap_or_default(),
                exact(per_s / first.per_s.mean),
                outcome.limit_reached_csv(),
            ));
        }
        out
    }
}

fn hits(outcome: &Outcome) -> String {
    if outcome.per_s.count == 0 { NOTHING.to_owned() } else { percent(outcome.hit_ratio.mean) }
}

/// A share as it is, which may be 0; empty if nothing is known.
fn exact_share(share: &Repeats) -> String {
    if share.count == 0 { String::new() } else { share.mean.to_string() }
}

/// A positive number as it is; empty if it is none.
fn exact(value: f64) -> String {
    if value.is_finite() && value > 0.0 { value.to_string() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{Sample, Tally};

    /// Runs that answered this many requests per second all the time, half of them hits.
    fn runs(rates: &[u64]) -> Vec<Run> {
        rates.iter().map(|rate| run(*rate, 50)).collect()
    }

    fn run(rate: u64, hits_of_100: u64) -> Run {
        let mut run = Run { outcome: End::Filled, ..Run::default() };
        for index in 1..=20 {
            let mut tally = Tally { period_us: 1_000_000, ..Tally::default() };
            tally.hits.answers = rate * hits_of_100 / 100;
            tally.misses.answers = rate - tally.hits.answers;
            let fill_ratio = f64::from(index) / 10.0;
            run.samples.push(Sample { fill_ratio, tally, ..Sample::default() });
        }
        (run.summary.from_fill_ratio, run.summary.to_fill_ratio) = (1.5, 2.0);
        run.summary.limit_reached = Some(true);
        run
    }

    fn side(text: &str, runs: &[usize]) -> Side {
        Side { text: text.to_owned(), runs: runs.to_vec() }
    }

    /// The verdict on repeats before and after, each a rate and hits of 100.
    fn verdict(before: &[(u64, u64)], after: &[(u64, u64)]) -> String {
        let runs: Vec<Run> =
            before.iter().chain(after).map(|(rate, hits)| run(*rate, *hits)).collect();
        let (before, after): (Vec<usize>, Vec<usize>) =
            (0..runs.len()).partition(|place| *place < before.len());
        Compared::new(&runs, &before, &after).verdict()
    }

    #[test]
    fn a_verdict_needs_five_pairs_and_an_interval_without_one() {
        let five = |rates: [u64; 5]| rates.map(|rate| (rate, 50));
        let before = five([1000, 1020, 980, 1010, 990]);
        assert_eq!(verdict(&before, &five([1200, 1230, 1190, 1220, 1200])), "faster");
        assert_eq!(verdict(&before, &five([800, 830, 790, 820, 800])), "slower");
        assert_eq!(verdict(&before, &five([1000, 960, 1040, 1000, 1010])), "not known");
        assert_eq!(verdict(&before[..4], &before[..4]), "not known: 4 of 5 pairs");
        assert_eq!(verdict(&before, &[]), "not run yet");
        let dead = verdict(&before, &five([0, 0, 0, 0, 1020]));
        assert_eq!(dead, "not known: one of the two answered nothing");
    }

    #[test]
    fn a_run_without_a_result_takes_its_partner_with_it() {
        let mut all = runs(&[1000, 1010, 990, 1000, 1005, 1000, 1200, 1210, 1190, 1200, 1205, 1]);
        all[11].outcome = End::Failed("it ended".to_owned());
        let (before, after): (Vec<usize>, Vec<usize>) = (0..12).partition(|place| *place < 6);
        let compared = Compared::new(&all, &before, &after);
        assert_eq!(compared.verdict(), "faster, 1 more pairs have no result");
        assert_eq!(compared.ages, Some(Ages { from: 1.5, to: 2.0 }));
        all[0].summary.wrong_content = 1;
        assert_eq!(Compared::new(&all, &before, &after).verdict(), "not known: 4 of 5 pairs");
    }

    #[test]
    fn a_cache_that_keeps_less_is_said_to() {
        let five = |rate, hits| [(rate, hits); 5];
        assert_eq!(verdict(&five(1000, 50), &five(2000, 51)), "faster");
        assert_eq!(verdict(&five(1000, 50), &five(2000, 30)), "faster, with fewer hits");
        assert_eq!(verdict(&five(1000, 30), &five(1000, 50)), "not known, with more hits");
    }

    #[test]
    fn rates_at_the_highest_load_are_marked_and_bear_no_verdict() {
        let mut all = runs(&[1000, 1010, 990, 1000, 1005, 1200, 1210, 1190, 1200, 1205]);
        let (before, after): (Vec<usize>, Vec<usize>) = (0..10).partition(|place| *place < 5);
        all[7].summary.limit_reached = Some(false);
        let compared = Compared::new(&all, &before, &after);
        assert_eq!(compared.verdict(), "faster", "at least as much faster");
        let rates = (compared.before.words(), compared.after.words());
        assert_eq!(rates, ("1,001".to_owned(), "≥ 1,201".to_owned()));
        assert!(compared.factor().starts_with("≥ 1.20 ("), "{}", compared.factor());
        let back = Compared::new(&all, &after, &before);
        assert_eq!(back.verdict(), "slower", "at least as much slower");
        all[2].summary.limit_reached = Some(false);
        let compared = Compared::new(&all, &before, &after);
        assert_eq!(compared.verdict(), "not known: no limit was found");
        assert_eq!(compared.factor(), NOTHING);
        all[7].summary.limit_reached = Some(true);
        let compared = Compared::new(&all, &before, &after);
        assert_eq!(compared.verdict(), "not known: no limit before");
        all[2].summary.limit_reached = None;
        let compared = Compared::new(&all, &before, &after);
        let known = (compared.before.limit_reached_csv(), compared.after.limit_reached_csv());
        assert_eq!(known, ("", "1"));
    }

    #[test]
    fn steps_add_up_within_a_subject() {
        let step = |subject: &str, name: &str, place| Step {
            subject: subject.to_owned(),
            name: name.to_owned(),
            runs: vec![place],
        };
        let steps = vec![
            step("a", "one", 0),
            step("a", "two", 1),
            step("a", "three", 9),
            step("b", "one", 2),
        ];
        let mut runs = runs(&[50, 100, 30]);
        let pairs = Pairs { steps, claims: Vec::new() };
        let table = pairs.section(&runs).tables.remove(0);
        let factors: Vec<&[String]> = table.rows.iter().map(|row| &row[4..]).collect();
        assert_eq!(factors[0], ["–", "1.00"]);
        assert_eq!(factors[1], ["2.00", "2.00"]);
        assert_eq!(factors[2], ["–", "–"], "not run yet");
        assert_eq!(factors[3], ["–", "1.00"]);
        assert_eq!(crate::csv::tests::parsed(&pairs.steps_csv(&runs)).len(), 5);
        runs[1].summary.limit_reached = Some(false);
        runs[2].summary.limit_reached = Some(false);
        let table = pairs.section(&runs).tables.remove(0);
        assert_eq!(table.rows[1][4..], ["≥ 2.00", "≥ 2.00"]);
        assert_eq!(table.rows[3][4..], ["–", "1.00"]);
    }

    #[test]
    fn claims_are_a_table_and_a_file() {
        let claim = Claim {
            name: "no access times".to_owned(),
            says: "saves \"one write\", for every read".to_owned(),
            subject: "squid:aufs".to_owned(),
            before: side("strictatime", &[0]),
            after: side("noatime", &[1]),
            ..Claim::default()
        };
        let pairs = Pairs { claims: vec![claim], steps: Vec::new() };
        let runs = runs(&[110, 168]);
        let table = pairs.section(&runs).tables.remove(0);
        assert_eq!(table.rows[0][2], "strictatime → noatime");
        let row = &table.rows[0];
        assert_eq!((row[7].as_str(), row[8].as_str()), ("1.53", "1.50–2.00"));
        assert_eq!(row[9], "not known: 1 of 5 pairs");
        let rows = crate::csv::tests::parsed(&pairs.claims_csv(&runs));
        assert_eq!(rows[0].len(), rows[1].len());
        assert_eq!(rows[1][11], "not known: 1 of 5 pairs");
    }
}
