//! Whether a cache stays as fast while it gets full: the slope of throughput over fill ratio.

use humboldt_lab_record::{Flatness, Sample};

/// The fill ratios between which it is looked for: from half full to replaced once.
const FROM: f64 = 0.5;
const TO: f64 = 2.0;

/// Neighbouring samples are alike, because the load follows them: an interval from single samples
/// would be too narrow. So the means of this many equal parts of the window are the points.
pub(crate) const BLOCKS: usize = 6;

/// Good samples of each part. The means of fewer are still alike.
pub(crate) const SAMPLES_MIN: usize = 5;

/// What is left of the likeness of neighbouring parts is in the interval too, up to this
/// correlation: so few parts do not show more.
const ALIKE_MAX: f64 = 0.8;

/// Two-sided 95 % point of Student's t distribution for `BLOCKS` − 2 degrees of freedom.
const STUDENT_95: f64 = 2.776;

/// The mean of some samples.
#[derive(Clone, Copy, Default)]
struct Block {
    samples: usize,
    fill: f64,
    per_s: f64,
}

/// The slope with its 95 % interval: least squares through the means of the parts. `None` if one
/// of the parts has fewer than five good samples: the run did not fill the cache so far, or too few
/// samples say something. `None` also at one load: then the answers are the load, not the cache's.
pub(crate) fn of(samples: &[Sample]) -> Option<Flatness> {
    let mut blocks = [Block::default(); BLOCKS];
    let good = |sample: &&Sample| !sample.is_spoiled() && !sample.verdict.unjudged;
    let loads = || samples.iter().filter(good).map(|sample| sample.load_per_s);
    if loads().all(|load_per_s| Some(load_per_s) == loads().next()) {
        return None;
    }
    for sample in samples.iter().filter(good) {
        let place = (sample.fill_ratio - FROM) / (TO - FROM) * BLOCKS as f64;
        // A run ends a little above its goal: what is beyond the window by one part at most counts
        // as the last part. `as` turns what is below into 0, so that is asked before.
        let is_inside = place >= 0.0 && place < (BLOCKS + 1) as f64;
        let index = (place as usize).min(BLOCKS - 1);
        if let Some(block) = blocks.get_mut(index).filter(|_| is_inside) {
            block.samples += 1;
            block.fill += sample.fill_ratio;
            block.per_s += sample.throughput_per_s();
        }
    }
    if blocks.iter().any(|block| block.samples < SAMPLES_MIN) {
        return None;
    }
    let points = blocks.map(|block| {
        let samples = block.samples as f64;
        (block.fill / samples, block.per_s / samples)
    });
    slope(&points)
}

/// Ordinary least squares, in parts of the mean of y.
fn slope(points: &[(f64, f64); BLOCKS]) -> Option<Flatness> {
    let count = BLOCKS as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let xx: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let xy: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    if xx <= 0.0 || mean_y <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let rests = points.map(|(x, y)| y - mean_y - slope * (x - mean_x));
    let squares: f64 = rests.iter().map(|rest| rest.powi(2)).sum();
    let deviation = (squares / (count - 2.0) / xx).sqrt() * wider(&rests, squares);
    let half = STUDENT_95 * deviation;
    Some(Flatness {
        slope: slope / mean_y,
        low: (slope - half) / mean_y,
        high: (slope + half) / mean_y,
    })
}

/// How much wider an interval is because neighbouring parts are alike.
pub(crate) fn wider(rests: &[f64; BLOCKS], squares: f64) -> f64 {
    if squares <= 0.0 {
        return 1.0;
    }
    let products: f64 = rests.windows(2).map(|pair| pair.iter().product::<f64>()).sum();
    // Around a fitted line or mean the correlation of so few points seems to be less than it is, by
    // about (2 + 4 × correlation) ÷ points.
    let count = BLOCKS as f64;
    let alike = (products / squares + 2.0 / count) / (1.0 - 4.0 / count);
    let alike = alike.clamp(0.0, ALIKE_MAX);
    ((1.0 + alike) / (1.0 - alike)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples every 0.01 of fill, as fast as this.
    fn samples(to: f64, per_s: impl Fn(f64) -> f64) -> Vec<Sample> {
        let mut samples = Vec::new();
        for index in 0..(to * 100.0) as u32 {
            let fill_ratio = f64::from(index) / 100.0;
            let load_per_s = f64::from(index % 7);
            let mut sample = Sample { fill_ratio, load_per_s, ..Sample::default() };
            sample.tally.period_us = 1_000_000;
            sample.tally.hits.answers = per_s(fill_ratio) as u64;
            samples.push(sample);
        }
        samples
    }

    #[test]
    fn a_line_is_found_and_a_flat_one_is_flat() {
        let falling = of(&samples(2.1, |fill| 1_250.0 - 200.0 * fill)).unwrap();
        // At fill 1.25, the middle of the window, it answers 1,000.
        assert!((falling.slope + 0.2).abs() < 0.01, "{falling:?}");
        assert!(falling.high < -0.18 && falling.low > -0.22, "{falling:?}");
        let flat = of(&samples(2.1, |_| 1_000.0)).unwrap();
        assert_eq!(flat, Flatness::default());
    }

    #[test]
    fn slow_waves_widen_the_interval() {
        // Alike for longer than a part of the window, and no trend.
        let waves = samples(2.1, |fill| 1_000.0 + 200.0 * (fill * 4.0).sin());
        let flatness = of(&waves).unwrap();
        assert!(flatness.low < 0.0 && flatness.high > 0.0, "{flatness:?}");
        assert!(flatness.high - flatness.low > 0.2, "{flatness:?}");
    }

    /// Sixty samples of a cache that neither gains nor loses, each like the one before by `alike`.
    fn alike(alike: f64, random: &mut impl FnMut() -> f64) -> Vec<Sample> {
        let mut value = random() / (1.0 - alike * alike).sqrt();
        let mut samples = Vec::new();
        for index in 0..60u32 {
            value = alike * value + random();
            let fill_ratio = FROM + (TO - FROM) * (f64::from(index) + 0.5) / 60.0;
            let load_per_s = f64::from(index);
            let mut sample = Sample { fill_ratio, load_per_s, ..Sample::default() };
            sample.tally.period_us = 1_000_000;
            sample.tally.hits.answers = (100_000.0 + 1_000.0 * value) as u64;
            samples.push(sample);
        }
        samples
    }

    #[test]
    fn the_interval_has_the_truth_in_it_as_often_as_it_says() {
        let mut state = 20_260_726u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / f64::from(1u32 << 31)
        };
        // Nearly normal: the sum of twelve.
        let mut random = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        for likeness in [0.0, 0.5, 0.8] {
            let is_in = |flat: Flatness| flat.low <= 0.0 && flat.high >= 0.0;
            let runs = (0..1_000).map(|_| of(&alike(likeness, &mut random)).expect("it is known"));
            let covered = runs.filter(|flat| is_in(*flat)).count();
            assert!(covered >= 900, "{covered} of 1000 at {likeness}");
        }
    }

    #[test]
    fn one_load_says_nothing_about_the_cache() {
        let mut all = samples(2.1, |_| 1_000.0);
        all.iter_mut().for_each(|sample| sample.load_per_s = 1_000.0);
        assert_eq!(of(&all), None);
    }

    #[test]
    fn it_is_not_known_without_the_whole_window() {
        assert_eq!(of(&samples(1.6, |_| 1_000.0)), None);
        assert_eq!(of(&[]), None);
        let mut all = samples(2.1, |_| 1_000.0);
        for sample in &mut all {
            // Nothing is known about a part of the window.
            sample.verdict.unjudged = (0.75..1.0).contains(&sample.fill_ratio);
        }
        assert_eq!(of(&all), None);
    }
}
