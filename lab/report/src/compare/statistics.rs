//! Means of repeats, and how far to trust them.

/// Repeats that differ by more than this from one another are marked.
pub(crate) const SPREAD_MAX: f64 = 0.05;

/// Two-sided 95 % points of Student's t distribution for 1 to 30 degrees of freedom.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The point of the normal distribution, for more degrees of freedom than the table has.
const NORMAL_95: f64 = 1.96;

/// Where points of the distribution are looked for, and how often the range is halved.
const STUDENT_MAX: f64 = 1e4;
const HALVINGS: u32 = 60;

/// The result of repeats of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Repeats {
    /// Number of finite values.
    pub count: usize,
    /// Their mean; 0 of none.
    pub mean: f64,
    /// Standard deviation of the sample; `None` of fewer than two.
    pub deviation: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean; `None` of fewer than two.
    pub interval: Option<f64>,
    /// (largest − smallest) ÷ mean; `None` of fewer than two, or around zero.
    pub spread: Option<f64>,
}

impl Repeats {
    /// Of these values. Values that are not finite do not count.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let count = values.len();
        if count == 0 {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        if count == 1 {
            return Self { count, mean, ..Self::default() };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        let student = STUDENT_95.get(count - 2).copied().unwrap_or(NORMAL_95);
        let (lo, hi) = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)));
        Self {
            count,
            mean,
            deviation: Some(deviation),
            interval: Some(student * deviation / (count as f64).sqrt()),
            spread: (mean.abs() > f64::EPSILON).then(|| (hi - lo) / mean.abs()),
        }
    }

    /// Whether the repeats differ too much to be called repeats.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.spread.is_some_and(|spread| spread > SPREAD_MAX)
    }
}

/// A ratio of two settings with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    /// The ends of the interval; those of everything for a single pair.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// Of pairs (before, after), all positive: the geometric mean of their ratios, with Student's
    /// interval of the logarithms. (A bootstrap of five pairs leaves the truth out in 13 of 100
    /// cases, not in 5.) `None` without a pair.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs = Repeats::of(pairs.iter().map(|(before, after)| (after / before).ln()));
        let half = logs.interval.unwrap_or(f64::INFINITY);
        (logs.count > 0 && logs.count == pairs.len()).then(|| Self {
            mean: logs.mean.exp(),
            low: (logs.mean - half).exp(),
            high: (logs.mean + half).exp(),
        })
    }
}

impl Ratio {
    /// With a wider interval, because it is the most extreme of several comparisons: 95 % for all
    /// of them together (Bonferroni).
    pub(crate) fn of_extremes(self, pairs: usize, comparisons: usize) -> Self {
        let Some(freedom) = pairs.checked_sub(1).filter(|freedom| *freedom > 0) else {
            return self;
        };
        let share = 1.0 - 0.05 / comparisons.max(1) as f64;
        let wider = student(share, freedom) / student(0.95, freedom);
        let to = |end: f64| self.mean * (end / self.mean).powf(wider);
        Self { low: to(self.low), high: to(self.high), ..self }
    }
}

/// The point of Student's t distribution below which, in either direction, this share lies.
fn student(share: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, STUDENT_MAX);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if within(middle, freedom) < share { low = middle } else { high = middle }
    }
    low
}

/// The probability of a value between −t and t: the finite series for whole degrees of freedom.
fn within(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, square) = (angle.sin(), angle.cos().powi(2));
    let is_odd = freedom % 2 == 1;
    let mut term = if is_odd { angle.cos() } else { 1.0 };
    let (mut sum, mut step) = (0.0, if is_odd { 1 } else { 0 });
    while step + 2 <= freedom {
        sum += term;
        step += 2;
        term *= square * (step - 1) as f64 / step as f64;
    }
    if is_odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_points_are_those_of_the_tables() {
        for (place, point) in STUDENT_95.iter().enumerate() {
            let found = student(0.95, place + 1);
            assert!((found - point).abs() < 0.001, "{}: {found}, {point}", place + 1);
        }
        assert!(
            (student(0.99, 4) - 4.604).abs() < 0.001 && (student(0.99, 5) - 4.032).abs() < 0.001
        );
    }

    #[test]
    fn the_extremes_of_many_settings_need_more_evidence() {
        let ratio = Ratio { mean: 1.1, low: 1.02, high: 1.1 * 1.1 / 1.02 };
        let same = ratio.of_extremes(5, 1);
        assert!((same.low - 1.02).abs() < 1e-6 && (same.high - ratio.high).abs() < 1e-6);
        // Of ten settings there are 45 pairs.
        let wide = ratio.of_extremes(5, 45);
        assert!(wide.low < 1.0 && wide.high > 1.2 && wide.mean == 1.1, "{wide:?}");
    }

    #[test]
    fn a_ratio_has_the_interval_of_its_pairs() {
        let pairs = [(100.0, 150.0), (90.0, 140.0), (110.0, 160.0), (100.0, 148.0), (95.0, 141.0)];
        let ratio = Ratio::of(&pairs).expect("pairs");
        assert!((1.47..1.53).contains(&ratio.mean), "{ratio:?}");
        // Deviation of the logarithms 0.0263; half width 2.776 · 0.0263 / √5.
        assert!((ratio.low / ratio.mean).ln() + 0.0326 < 0.002, "{ratio:?}");
        assert!(ratio.low > 1.4 && ratio.high < 1.6, "{ratio:?}");
        let same = [(100.0, 104.0), (100.0, 96.0), (100.0, 101.0), (100.0, 98.0), (100.0, 103.0)];
        let ratio = Ratio::of(&same).expect("pairs");
        assert!(ratio.low < 1.0 && ratio.high > 1.0, "{ratio:?}");
        assert_eq!(Ratio::of(&[(0.0, 1.0)]), None);
        assert_eq!(Ratio::of(&[(1.0, 2.0)]).map(|ratio| ratio.low), Some(0.0));
    }

    #[test]
    fn the_interval_is_that_of_student() {
        // 100, 104, 108: deviation 4, half width 4.303 · 4 / √3.
        let repeats = Repeats::of([104.0, 100.0, 108.0, f64::NAN]);
        assert_eq!((repeats.count, repeats.mean, repeats.deviation), (3, 104.0, Some(4.0)));
        assert!((repeats.interval.unwrap() - 9.937).abs() < 0.001, "{repeats:?}");
        assert!((repeats.spread.unwrap() - 8.0 / 104.0).abs() < 1e-12);
        assert!(repeats.is_unsteady());
    }

    #[test]
    fn one_value_has_no_interval_and_none_has_nothing() {
        assert_eq!(Repeats::of([7.0]), Repeats { count: 1, mean: 7.0, ..Repeats::default() });
        assert_eq!(Repeats::of([f64::NAN]), Repeats::default());
        assert!(!Repeats::of([7.0]).is_unsteady());
        let many = Repeats::of((0..40).map(|index| f64::from(index % 2)));
        assert!(many.interval.is_some_and(|half| half < 0.2));
    }
}
