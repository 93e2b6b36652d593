//! Claims, each as a pair of settings, before and after; and settings that add up, step by step.

use super::statistics::{Repeats, SPREAD_MAX};
use crate::csv::field;
use crate::document::Section;
use crate::format::{NOTHING, number, percent, plain, rough};
use crate::table::Table;
use humboldt_lab_record::Run;

/// As many characters of a claim are shown.
const CHARS_MAX: usize = 300;

/// A statement that somebody makes, as a pair of settings.
#[derive(Clone, Debug, Default)]
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
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Its difference.
    pub text: String,
    /// Its repeats: places in the list of all runs. One that is not in the list has not been done
    /// yet.
    pub runs: Vec<usize>,
}

/// A setting that adds something to the one before.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The measured subject.
    pub subject: String,
    /// The added options.
    pub name: String,
    /// Its repeats: places in the list of all runs.
    pub runs: Vec<usize>,
}

/// The comparisons of an experiment, apart from the order of its runs.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Claims, in their order.
    pub claims: Vec<Claim>,
    /// Steps of each subject, in their order.
    pub steps: Vec<Step>,
}

/// Hit ratios that are no further apart than this are called the same: longer and shorter runs of
/// one cache are.
const HITS_APART_MAX: f64 = 0.03;

/// The result of repeats of one setting.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    per_s: Repeats,
    /// Hits in the answers to plain GETs.
    hit_ratio: Repeats,
}

impl Outcome {
    fn of(runs: &[Run], places: &[usize]) -> Self {
        let done = || places.iter().filter_map(|place| runs.get(*place)).map(|run| &run.summary);
        Self {
            per_s: Repeats::of(done().map(|summary| summary.throughput_per_s)),
            hit_ratio: Repeats::of(done().map(|summary| summary.hit_ratio)),
        }
    }
}

/// Whether two settings differ by more than their repeats do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Faster,
    Slower,
    Same,
    Open,
}

/// The verdict in words. Whoever keeps less is faster for that alone, and the other way round.
fn verdict(before: &Outcome, after: &Outcome) -> String {
    let word = Verdict::of(&before.per_s, &after.per_s).word();
    let more = after.hit_ratio.mean - before.hit_ratio.mean;
    let is_open = before.per_s.count == 0 || after.per_s.count == 0;
    match more {
        _ if is_open => word.to_owned(),
        more if more > HITS_APART_MAX => format!("{word}, with more hits"),
        more if more < -HITS_APART_MAX => format!("{word}, with fewer hits"),
        _ => word.to_owned(),
    }
}

impl Verdict {
    fn of(before: &Repeats, after: &Repeats) -> Self {
        if before.count == 0 || after.count == 0 || before.mean <= 0.0 || after.mean <= 0.0 {
            return Self::Open;
        }
        let noise = noise(before, after);
        match after.mean / before.mean {
            ratio if ratio > 1.0 + noise => Self::Faster,
            ratio if ratio < 1.0 / (1.0 + noise) => Self::Slower,
            _ => Self::Same,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "no difference",
            Self::Open => "not run yet",
        }
    }
}

/// Largest difference of two means by chance: the difference that steady repeats may have.
fn noise(before: &Repeats, after: &Repeats) -> f64 {
    [before.spread, after.spread].into_iter().flatten().fold(SPREAD_MAX, f64::max)
}

fn ratio(value: f64, base: f64) -> String {
    if base > 0.0 && value > 0.0 { number(value / base, 2) } else { NOTHING.to_owned() }
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
            "#factor",
            "#spread",
            "",
            "published",
        ];
        let mut table = Table::new("Claims", &columns);
        for claim in &self.claims {
            let (before, after) =
                (Outcome::of(runs, &claim.before.runs), Outcome::of(runs, &claim.after.runs));
            table.row([
                format!("{}: {}", plain(&claim.name, CHARS_MAX), plain(&claim.says, CHARS_MAX)),
                claim.subject.clone(),
                plain(&format!("{} → {}", claim.before.text, claim.after.text), CHARS_MAX),
                rough(before.per_s.mean),
                hits(&before),
                rough(after.per_s.mean),
                hits(&after),
                ratio(after.per_s.mean, before.per_s.mean),
                larger_spread(&before, &after).map_or(NOTHING.to_owned(), percent),
                verdict(&before, &after),
                plain(&claim.published, CHARS_MAX),
            ]);
        }
        table.note(
            "Answers/s in the last quarter. No difference: the two are closer than repeats of one of them are, or than 5 %. \
             Spread: the larger of the two. Hits: in the answers to plain GETs; more or fewer by more than 3 of 100.",
        )
    }

    fn steps_table(&self, runs: &[Run]) -> Table {
        let mut table = Table::new(
            "Step by step",
            &["subject", "step", "#answers/s", "#hits", "#× the step before", "#× the first"],
        );
        for (step, of_step, before, first) in self.course(runs) {
            table.row([
                step.subject.clone(),
                plain(&step.name, CHARS_MAX),
                rough(of_step),
                hits(&Outcome::of(runs, &step.runs)),
                before.map_or(NOTHING.to_owned(), |before| ratio(of_step, before)),
                ratio(of_step, first),
            ]);
        }
        table.note("Each step has what the steps before it have. Means over the repeats.")
    }

    /// Every step with its throughput, that of the step before, and that of its subject's first.
    fn course(&self, runs: &[Run]) -> Vec<(&Step, f64, Option<f64>, f64)> {
        let mut course: Vec<(&Step, f64, Option<f64>, f64)> = Vec::new();
        for step in &self.steps {
            let per_s = Outcome::of(runs, &step.runs).per_s.mean;
            let before = course.last().filter(|(other, ..)| other.subject == step.subject);
            let (previous, first) =
                before.map_or((None, per_s), |(_, previous, _, first)| (Some(*previous), *first));
            course.push((step, per_s, previous, first));
        }
        course
    }

    /// claims.csv.
    pub(super) fn claims_csv(&self, runs: &[Run]) -> String {
        let mut out = String::from(
            "claim,says,published,subject,before,after,before_per_s,before_hit_ratio,after_per_s,after_hit_ratio,ratio,verdict,repeats,\
             spread\n",
        );
        for claim in &self.claims {
            let (before, after) =
                (Outcome::of(runs, &claim.before.runs), Outcome::of(runs, &claim.after.runs));
            let texts = [
                &claim.name,
                &claim.says,
                &claim.published,
                &claim.subject,
                &claim.before.text,
                &claim.after.text,
            ];
            out.push_str(&format!(
                "{},{},{},{},{},{},{},{},{}\n",
                texts.map(|text| field(text)).join(","),
                exact(before.per_s.mean),
                exact_share(&before.hit_ratio),
                exact(after.per_s.mean),
                exact_share(&after.hit_ratio),
                exact(after.per_s.mean / before.per_s.mean),
                field(&verdict(&before, &after)),
                before.per_s.count.min(after.per_s.count),
                larger_spread(&before, &after).map(exact).unwrap_or_default(),
            ));
        }
        out
    }

    /// steps.csv.
    pub(super) fn steps_csv(&self, runs: &[Run]) -> String {
        let mut out = String::from("subject,step,per_s,hit_ratio,over_previous,over_first\n");
        for (step, per_s, before, first) in self.course(runs) {
            out.push_str(&format!(
                "{},{},{},{},{},{}\n",
                field(&step.subject),
                field(&step.name),
                exact(per_s),
                exact_share(&Outcome::of(runs, &step.runs).hit_ratio),
                before.map(|before| exact(per_s / before)).unwrap_or_default(),
                exact(per_s / first),
            ));
        }
        out
    }
}

fn larger_spread(before: &Outcome, after: &Outcome) -> Option<f64> {
    [before.per_s.spread, after.per_s.spread].into_iter().flatten().reduce(f64::max)
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
    use crate::synthetic;
    use crate::testing::CACHE_BYTES;

    fn runs(rates: &[f64]) -> Vec<Run> {
        let run = |rate: &f64| {
            let mut run = synthetic::run("squid:aufs", "ext2", *rate, CACHE_BYTES, 20, 1);
            run.summary.throughput_per_s = *rate;
            run.summary.hit_ratio = 0.5;
            run
        };
        rates.iter().map(run).collect()
    }

    fn side(text: &str, runs: &[usize]) -> Side {
        Side { text: text.to_owned(), runs: runs.to_vec() }
    }

    #[test]
    fn a_claim_is_judged_by_the_spread_of_its_repeats() {
        let verdict = |before: &[f64], after: &[f64]| {
            Verdict::of(&Repeats::of(before.iter().copied()), &Repeats::of(after.iter().copied()))
        };
        assert_eq!(verdict(&[100.0], &[120.0]), Verdict::Faster);
        assert_eq!(verdict(&[100.0], &[80.0]), Verdict::Slower);
        assert_eq!(verdict(&[100.0], &[104.0]), Verdict::Same);
        assert_eq!(verdict(&[100.0, 130.0], &[125.0, 130.0]), Verdict::Same);
        assert_eq!(verdict(&[100.0], &[]), Verdict::Open);
    }

    #[test]
    fn who_keeps_less_is_said_to() {
        let outcome = |per_s: f64, hit_ratio: f64| Outcome {
            per_s: Repeats::of([per_s]),
            hit_ratio: Repeats::of([hit_ratio]),
        };
        let of = |before, after| verdict(&before, &after);
        assert_eq!(of(outcome(100.0, 0.5), outcome(200.0, 0.51)), "faster");
        assert_eq!(of(outcome(100.0, 0.5), outcome(200.0, 0.3)), "faster, with fewer hits");
        assert_eq!(of(outcome(100.0, 0.3), outcome(100.0, 0.5)), "no difference, with more hits");
        assert_eq!(of(outcome(100.0, 0.5), Outcome::default()), "not run yet");
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
        let runs = runs(&[50.0, 100.0, 30.0]);
        let pairs = Pairs { steps, claims: Vec::new() };
        let table = pairs.section(&runs).tables.remove(0);
        let factors: Vec<&[String]> = table.rows.iter().map(|row| &row[4..]).collect();
        assert_eq!(factors[0], ["–", "1.00"]);
        assert_eq!(factors[1], ["2.00", "2.00"]);
        assert_eq!(factors[2], ["–", "–"], "not run yet");
        assert_eq!(factors[3], ["–", "1.00"]);
        assert_eq!(crate::csv::tests::parsed(&pairs.steps_csv(&runs)).len(), 5);
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
        let runs = runs(&[110.0, 168.5]);
        let table = pairs.section(&runs).tables.remove(0);
        assert_eq!(table.rows[0][2], "strictatime → noatime");
        assert_eq!((table.rows[0][7].as_str(), table.rows[0][9].as_str()), ("1.53", "faster"));
        let rows = crate::csv::tests::parsed(&pairs.claims_csv(&runs));
        assert_eq!(rows[0].len(), rows[1].len());
        assert_eq!(rows[1][11], "faster");
    }
}
