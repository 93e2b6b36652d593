//! Whether a cache stays as fast while it gets full: the slope of throughput over fill ratio.

use humboldt_lab_record::{Flatness, Sample};

/// The fill ratios between which it is looked for: from half full to replaced once.
const FROM: f64 = 0.5;
const TO: f64 = 2.0;

/// Neighbouring samples are alike, because the load follows them: an interval from single samples
/// would be too narrow. So the means of this many equal parts of the window are the points.
const BLOCKS: usize = 10;

/// Good samples of each part.
const SAMPLES_MIN: usize = 2;

/// Two-sided 95 % point of Student's t distribution for `BLOCKS` − 2 degrees of freedom.
const STUDENT_95: f64 = 2.306;

/// The mean of some samples.
#[derive(Clone, Copy, Default)]
struct Block {
    samples: usize,
    fill: f64,
    per_s: f64,
}

/// The slope with its 95 % interval: least squares through the means of the ten parts. `None` if
/// one of the parts has fewer than two good samples: the run did not fill the cache so far, or too
/// few samples say something.
pub(crate) fn of(samples: &[Sample]) -> Option<Flatness> {
    let mut blocks = [Block::default(); BLOCKS];
    let good = |sample: &&Sample| !sample.is_spoiled() && !sample.verdict.unjudged;
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
    let rest = |(x, y): &(f64, f64)| (y - mean_y - slope * (x - mean_x)).powi(2);
    let deviation = (points.iter().map(rest).sum::<f64>() / (count - 2.0) / xx).sqrt();
    let half = STUDENT_95 * deviation;
    Some(Flatness {
        slope: slope / mean_y,
        low: (slope - half) / mean_y,
        high: (slope + half) / mean_y,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples every 0.01 of fill, as fast as this.
    fn samples(to: f64, per_s: impl Fn(f64) -> f64) -> Vec<Sample> {
        let mut samples = Vec::new();
        for index in 0..(to * 100.0) as u32 {
            let fill_ratio = f64::from(index) / 100.0;
            let mut sample = Sample { fill_ratio, ..Sample::default() };
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
        // Alike for half a unit of fill, and no trend.
        let waves = samples(2.1, |fill| 1_000.0 + 200.0 * (fill * 12.0).sin());
        let flatness = of(&waves).unwrap();
        assert!(flatness.low < 0.0 && flatness.high > 0.0, "{flatness:?}");
        assert!(flatness.high - flatness.low > 0.2, "{flatness:?}");
    }

    #[test]
    fn it_is_not_known_without_the_whole_window() {
        assert_eq!(of(&samples(1.6, |_| 1_000.0)), None);
        assert_eq!(of(&[]), None);
        let mut all = samples(2.1, |_| 1_000.0);
        for sample in &mut all {
            // Nothing is known about a tenth of the window.
            sample.verdict.unjudged = (0.8..1.0).contains(&sample.fill_ratio);
        }
        assert_eq!(of(&all), None);
    }
}
