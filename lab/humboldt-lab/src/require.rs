//! `--require`: conditions that the result of a run must meet, for scripts and CI.

use crate::units;
use humboldt_lab_record::{Run, Summary};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    PerSecond,
    Milliseconds,
    Share,
    Microseconds,
    Bytes,
    Count,
}

/// A figure of the last quarter: `None` if it is not known.
type Of = fn(&Summary, &Run) -> Option<f64>;

/// Every figure that may be required.
const FIGURES: [(&str, Unit, Of); 17] = [
    ("sustained", Unit::PerSecond, |s, _| s.sustained_per_s),
    ("throughput", Unit::PerSecond, |s, _| Some(s.throughput_per_s)),
    ("hits", Unit::PerSecond, |s, _| Some(s.throughput_per_s * hits_share(s))),
    ("hit_ratio", Unit::Share, |s, _| Some(s.hit_ratio)),
    ("byte_hit_ratio", Unit::Share, |s, _| Some(s.byte_hit_ratio)),
    ("mean", Unit::Milliseconds, |s, _| times(s.response.count, s.response.mean_ms)),
    ("p50_hit", Unit::Milliseconds, |s, _| times(s.hits.count, s.hits.p50_ms)),
    ("p95_hit", Unit::Milliseconds, |s, _| times(s.hits.count, s.hits.p95_ms)),
    ("p99_hit", Unit::Milliseconds, |s, _| times(s.hits.count, s.hits.p99_ms)),
    ("p50_miss", Unit::Milliseconds, |s, _| times(s.misses.count, s.misses.p50_ms)),
    ("p95_miss", Unit::Milliseconds, |s, _| times(s.misses.count, s.misses.p95_ms)),
    ("p99_miss", Unit::Milliseconds, |s, _| times(s.misses.count, s.misses.p99_ms)),
    ("p95_hit_added", Unit::Milliseconds, |s, _| times(s.hits_added.count, s.hits_added.p95_ms)),
    ("fill", Unit::Count, |s, _| Some(s.to_fill_ratio)),
    ("cpu", Unit::Microseconds, |s, _| s.cpu_us_per_answer),
    ("memory", Unit::Bytes, |s, _| s.resident_bytes_max.map(|bytes| bytes as f64)),
    ("errors", Unit::Count, |_, run| Some(run.total.faults_total() as f64)),
];

fn hits_share(summary: &Summary) -> f64 {
    summary.hits.count as f64 / summary.response.count.max(1) as f64
}

fn times(count: u64, ms: f64) -> Option<f64> {
    (count > 0).then_some(ms)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Each as it is written, the longer ones first.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

impl Comparison {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Less => value < bound,
            Self::AtMost => value <= bound,
            Self::More => value > bound,
            Self::AtLeast => value >= bound,
        }
    }
}

/// One condition.
#[derive(Clone, Debug)]
pub(crate) struct Requirement {
    text: String,
    name: &'static str,
    of: Of,
    comparison: Comparison,
    bound: f64,
}

/// A condition that cannot be understood.
#[derive(Debug, Error)]
pub(crate) enum RequirementError {
    #[error(
        "write FIGURE, then <, <=, > or >=, then a value, as in sustained>3000 or p99_hit<20ms"
    )]
    Form,
    #[error("there is no figure `{0}`; there are: {names}", names = names())]
    Name(String),
    #[error("{0}")]
    Value(String),
}

fn names() -> String {
    FIGURES.map(|(name, ..)| name).join(", ")
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let at = text.find(['<', '>']).ok_or(RequirementError::Form)?;
        let (name, rest) = text.split_at(at);
        let written = |(sign, comparison)| Some((comparison, rest.strip_prefix(sign)?));
        let found = COMPARISONS.into_iter().find_map(written);
        let (comparison, value) = found.ok_or(RequirementError::Form)?;
        let name = name.trim();
        let known = FIGURES.iter().find(|(known, ..)| *known == name);
        let (name, unit, of) = *known.ok_or_else(|| RequirementError::Name(name.to_owned()))?;
        let bound = bound(unit, value.trim()).map_err(RequirementError::Value)?;
        Ok(Self { text: text.to_owned(), name, of, comparison, bound })
    }
}

/// The value in the unit of the figure.
fn bound(unit: Unit, text: &str) -> Result<f64, String> {
    let found = match unit {
        Unit::PerSecond => units::positive(text.trim_end_matches("/s")),
        Unit::Milliseconds => units::seconds(text).map(|seconds| seconds * 1e3),
        Unit::Microseconds => units::seconds(text).map(|seconds| seconds * 1e6),
        Unit::Share => units::share(text),
        Unit::Bytes => units::bytes(text).map(|bytes| bytes as f64),
        Unit::Count => {
            let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
            return number.ok_or_else(|| format!("`{text}` is not a number"));
        }
    };
    found.map_err(|error| error.to_string())
}

/// The outcome of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) is_met: bool,
    /// The condition, and what was found.
    line: String,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_met { "ok    " } else { "FAILED" }, self.line)
    }
}

impl Requirement {
    /// Checks it on a run that is over. A figure that is not known does not meet anything; nor does
    /// any figure of a run against which there is an `objection`, apart from its errors.
    pub(crate) fn check(&self, run: &Run, objection: Option<&str>) -> Checked {
        let found = (self.of)(&run.summary, run);
        let is_lower_bound = self.name == "sustained" && run.summary.limit_reached == Some(false);
        let wants_less = matches!(self.comparison, Comparison::Less | Comparison::AtMost);
        let (is_met, found) = match (found, objection) {
            (_, Some(objection)) if self.name != "errors" => {
                (false, format!("no result: {objection}"))
            }
            (None, _) => (false, "not known".to_owned()),
            (Some(value), _) if is_lower_bound && wants_less => {
                (false, format!("at least {value:.1}, its limit was not reached"))
            }
            (Some(value), _) => (self.comparison.holds(value, self.bound), shown(value)),
        };
        Checked { is_met, line: format!("{}: {found}", self.text) }
    }
}

fn shown(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, objection: Option<&str>) -> bool {
        let mut run = Run::default();
        run.summary.sustained_per_s = Some(3000.0);
        run.summary.limit_reached = Some(false);
        run.summary.hit_ratio = 0.58;
        run.summary.hits.count = 10;
        run.summary.hits.p99_ms = 20.0;
        text.parse::<Requirement>().expect(text).check(&run, objection).is_met
    }

    #[test]
    fn conditions_are_met_or_not() {
        for met in
            ["sustained>2999", "sustained >= 3000/s", "p99_hit<=20ms", "p99_hit<0.021s", "errors<1"]
        {
            assert!(check(met, None), "{met}");
        }
        assert!(check("hit_ratio>57%", None) && check("hit_ratio<0.6", None));
        for not in ["sustained>3000", "p99_hit<20ms", "p99_miss<1s", "cpu<1ms"] {
            assert!(!check(not, None), "{not}");
        }
        assert!(!check("sustained<4000", None), "it is a lower bound");
        assert!(!check("sustained>2999", Some("wrong content")));
        assert!(check("errors<1", Some("the time was up")));
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        for (text, says) in [
            ("sustained", "FIGURE"),
            ("fastness>3", "there is no figure `fastness`"),
            ("p99_hit<20 parsecs", "parsecs"),
            ("errors<few", "not a number"),
        ] {
            let error = text.parse::<Requirement>().expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
