//! What was stored of what could have been, how much was written for it, and whether the cache
//! stayed as fast, in words.

use crate::format::{NOTHING, number, percent};
use humboldt_lab_record::{Flatness, Run, Summary};

/// Flatness in words: per cent of the mean throughput for each unit of fill.
pub(crate) fn flatness(run: &Run) -> String {
    let Some(Flatness { slope, low, high }) = run.summary.flatness else {
        let first = run.samples.first().map(|sample| sample.load_per_s);
        let is_one_load = run.samples.iter().all(|sample| Some(sample.load_per_s) == first);
        let why = match is_one_load && first.is_some() {
            true => "at one load the answers say nothing about the cache",
            false => "fill 0.5 to 2.0 has too few good samples",
        };
        return format!("not known: {why}");
    };
    format!("{} ({} to {}) per fill ratio", percent(slope), percent(low), percent(high))
}

/// What was stored, and what was offered: both ÷ cache size.
pub(crate) fn filled(run: &Run) -> String {
    let offered = number(run.samples.last().map_or(0.0, |sample| sample.fill_ratio), 2);
    match run.summary.stored_ratio {
        Some(_) => format!("{} of the cache, {offered} offered", stored(&run.summary)),
        None => format!("not known, {offered} of the cache offered"),
    }
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
    use humboldt_lab_record::Sample;

    #[test]
    fn what_is_not_known_is_said_and_what_is_known_has_its_interval() {
        let mut run = Run::default();
        run.summary.flatness = Some(Flatness { slope: -0.1, low: -0.2, high: 0.0 });
        assert_eq!(flatness(&run), "−10.0 % (−20.0 % to 0.0 %) per fill ratio");
        run.summary.flatness = None;
        let at = |load_per_s| Sample { load_per_s, ..Sample::default() };
        run.samples = vec![at(5.0), at(5.0)];
        assert!(flatness(&run).contains("one load"), "{}", flatness(&run));
        run.samples.push(at(6.0));
        assert!(flatness(&run).contains("too few good samples"), "{}", flatness(&run));
        assert_eq!(filled(&run), "not known, 0.00 of the cache offered");
        run.summary.stored_ratio = Some(0.98);
        assert_eq!(filled(&run), "0.98 of the cache, 0.00 offered");
        let mut summary = Summary::default();
        assert_eq!((stored(&summary).as_str(), written(&summary)), ("not known", None));
        (summary.stored_ratio, summary.written_per_offered) = (Some(0.987), Some(1.5));
        assert_eq!(stored(&summary), "0.99");
        let words = written(&summary).expect("something was written");
        assert_eq!(words, "not known for each byte stored, 1.50 for each offered");
    }
}
