//! A change beside the program before it: both in one interleaved run, compared round by round.

use super::load::Sample;
use super::subjects::Subject;
use super::table;

/// CPU of the newer program over that of the older one, at most. Two processes of one program
/// differ by as much; a verdict needs several runs.
pub(super) const RATIO_MAX: f64 = 1.03;

/// Prints the ratio of `humboldt` to `old`, where both took part.
pub(super) fn print(all: &[Subject], samples: &[Vec<Sample>]) {
    let of = |wanted: &str| {
        let index = all.iter().position(|subject| subject.name == wanted)?;
        Some(samples[index].iter().map(Sample::cpu_us_per_request).collect::<Vec<_>>())
    };
    let (Some(new), Some(old)) = (of("humboldt"), of("old")) else { return };
    let ratios: Vec<f64> = new.iter().zip(&old).map(|(new, old)| new / old).collect();
    let verdict = if table::median(&ratios) <= RATIO_MAX { "reached" } else { "missed" };
    println!(
        "\nhumboldt ÷ old: {} (asked: ≤ {RATIO_MAX}): {verdict}",
        table::with_range(&ratios, 3)
    );
}
