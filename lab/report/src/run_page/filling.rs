//! What was stored of what could have been, how much was written for it, and whether the cache
//! stayed as fast, in words.

use crate::format::{NOTHING, number, percent};
use humboldt_lab_record::{Flatness, Run, Summary};

/// Flatness in words: per cent of the mean throughput for each unit of fill.
pub(crate) fn flatness(flatness: Option<Flatness>) -> String {
    let Some(Flatness { slope, low, high }) = flatness else {
        return "not known: fill 0.5 to 2.0 has too few good samples".to_owned();
    };
    format!("{} ({} to {}) per fill ratio", percent(slope), percent(low), percent(high))
}

/// Flatness of repeats in a few words: of one run its interval, of several their range.
pub(crate) fn flatness_of(repeats: impl Iterator<Item = Option<Flatness>>) -> String {
    let known: Vec<Flatness> = repeats.flatten().collect();
    let (low, high) = match known[..] {
        [] => return "not known".to_owned(),
        [one] => (one.low, one.high),
        _ => known.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), run| {
            (low.min(run.slope), high.max(run.slope))
        }),
    };
    let mean = known.iter().map(|run| run.slope).sum::<f64>() / known.len() as f64;
    format!("{} ({} to {})", percent(mean), percent(low), percent(high))
}

/// Fill, and what was stored: both ÷ cache size.
pub(crate) fn filled(run: &Run) -> String {
    let offered = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    format!("offered {}, stored {}", number(offered, 2), stored(&run.summary))
}

/// Stored ÷ cache size at the end.
pub(crate) fn stored(summary: &Summary) -> String {
    summary.stored_ratio.map_or("not known".to_owned(), |ratio| number(ratio, 2))
}

/// Bytes written for each byte stored, or that could have been; `None` if nothing was written.
pub(crate) fn written(summary: &Summary) -> Option<String> {
    let offered = summary.written_per_offered?;
    let stored = summary.written_per_stored.map_or("not known".to_owned(), |n| number(n, 2));
    Some(format!("{stored} for each byte stored, {} for each offered", number(offered, 2)))
}

/// A figure, or a dash.
pub(crate) fn or_nothing(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or(NOTHING.to_owned(), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said_and_what_is_known_has_its_interval() {
        let one = Flatness { slope: -0.1, low: -0.2, high: 0.0 };
        let other = Flatness { slope: 0.05, low: 0.0, high: 0.1 };
        assert_eq!(flatness_of([None, None].into_iter()), "not known");
        assert_eq!(flatness_of([Some(one)].into_iter()), "−10.0 % (−20.0 % to 0.0 %)");
        assert_eq!(
            flatness_of([Some(one), None, Some(other)].into_iter()),
            "−2.5 % (−10.0 % to 5.0 %)",
            "the range of the repeats"
        );
        let mut summary = Summary::default();
        assert_eq!((stored(&summary).as_str(), written(&summary)), ("not known", None));
        (summary.stored_ratio, summary.written_per_offered) = (Some(0.987), Some(1.5));
        assert_eq!(stored(&summary), "0.99");
        let words = written(&summary).expect("something was written");
        assert_eq!(words, "not known for each byte stored, 1.50 for each offered");
    }
}
