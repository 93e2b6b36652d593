//! A change beside the program before it: both in one interleaved run, compared round by round.

use super::load::Sample;
use super::subjects::Subject;
use super::table;

/// CPU of the newer program over that of the older one, at most. Two processes of one program
/// differ by as much; a verdict needs several runs.
pub(super) const RATIO_MAX: f64 = 1.03;

/// Prints the ratio of `humboldt` to `old`, where both took part.
pub(super) fn print(all: &[Subject], samples: &[Vec<Sample>]) {
    let Some(ratios) = ratios("humboldt", "old", all, samples) else { return };
    let verdict = if table::median(&ratios) <= RATIO_MAX { "reached" } else { "missed" };
    println!(
        "\nhumboldt ÷ old: {} (asked: ≤ {RATIO_MAX}): {verdict}",
        table::with_range(&ratios, 3)
    );
}

/// CPU of one subject over that of another, round by round, where both took part.
pub(super) fn ratios(
    one: &str,
    other: &str,
    all: &[Subject],
    samples: &[Vec<Sample>],
) -> Option<Vec<f64>> {
    let of = |wanted: &str| {
        let index = all.iter().position(|subject| subject.name == wanted)?;
        Some(samples[index].iter().map(Sample::cpu_us_per_request).collect::<Vec<_>>())
    };
    Some(of(one)?.iter().zip(&of(other)?).map(|(one, other)| one / other).collect())
}
