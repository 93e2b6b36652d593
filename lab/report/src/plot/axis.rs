//! Axes: from values to pixels, and ticks at 1, 2 and 5.

use crate::format::number;

/// The scale of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Equal differences are equally long.
    Linear,
    /// Equal ratios are equally long; only values above zero have a place.
    Log,
}

/// The contents of an axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// With the unit.
    pub label: String,
    /// The scale of values.
    pub scale: Scale,
    /// Whether a linear axis begins at zero.
    pub from_zero: bool,
    /// Whether it ends at the last value in place of the next tick.
    pub tight: bool,
    /// Values that it must reach at least; `None` lets the data decide.
    pub at_least: Option<(f64, f64)>,
}

impl Axis {
    /// From zero to the tick above the largest value.
    pub(crate) fn linear(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            scale: Scale::Linear,
            from_zero: true,
            tight: false,
            at_least: None,
        }
    }

    /// Logarithmic, from tick to tick around the values.
    pub(crate) fn log(label: &str) -> Self {
        Self { scale: Scale::Log, from_zero: false, ..Self::linear(label) }
    }

    /// The same, ending at the last value.
    pub(crate) fn tight(self) -> Self {
        Self { tight: true, ..self }
    }

    /// The same, showing at least these values.
    pub(crate) fn at_least(self, lo: f64, hi: f64) -> Self {
        Self { at_least: Some((lo, hi)), ..self }
    }

    /// The same, showing at least all of these values, and those that it showed already.
    pub(crate) fn reaching(self, values: impl Iterator<Item = f64>) -> Self {
        let before = self.at_least.into_iter().flat_map(|(lo, hi)| [lo, hi]);
        let all = values.chain(before).filter(|value| has_place(*value, self.scale));
        let around = all.fold(None, |around: Option<(f64, f64)>, value| {
            around.map_or(Some((value, value)), |(lo, hi)| Some((lo.min(value), hi.max(value))))
        });
        Self { at_least: around, ..self }
    }
}

/// A tick: where, and its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// The value.
    pub value: f64,
    /// The value for people.
    pub label: String,
}

/// An axis laid over pixels.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// The smallest value.
    pub lo: f64,
    /// The largest.
    pub hi: f64,
    /// The scale of values.
    pub scale: Scale,
    /// In ascending order.
    pub ticks: Vec<Tick>,
    from_px: f64,
    to_px: f64,
}

impl Span {
    /// Fits an axis around `values` with about `ticks_wanted` ticks. Values without a place on it
    /// are ignored.
    pub(crate) fn fit(axis: &Axis, values: impl Iterator<Item = f64>, ticks_wanted: usize) -> Self {
        let usable = values.chain(axis.at_least.iter().flat_map(|(lo, hi)| [*lo, *hi]));
        let usable = usable.filter(|value| has_place(*value, axis.scale));
        let (mut lo, mut hi) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), value| {
                (lo.min(value), hi.max(value))
            });
        if lo > hi {
            (lo, hi) = if axis.scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        let (lo, hi, ticks) = match axis.scale {
            Scale::Linear => linear(lo, hi, axis, ticks_wanted),
            Scale::Log => logarithmic(lo, hi, ticks_wanted),
        };
        Self { lo, hi, scale: axis.scale, ticks, from_px: 0.0, to_px: 1.0 }
    }

    /// Lays it over pixels: the smallest value at `from`, the largest at `to`.
    pub(crate) fn over(self, from_px: f64, to_px: f64) -> Self {
        Self { from_px, to_px, ..self }
    }

    /// The position of a value, in pixels; `None` for a value without one (not finite, or not above
    /// zero on a logarithmic axis). A value outside is moved to the edge.
    pub(crate) fn px(&self, value: f64) -> Option<f64> {
        has_place(value, self.scale).then(|| {
            let value = value.clamp(self.lo, self.hi);
            let share = match self.scale {
                Scale::Linear => (value - self.lo) / (self.hi - self.lo),
                Scale::Log => (value / self.lo).ln() / (self.hi / self.lo).ln(),
            };
            self.from_px + share * (self.to_px - self.from_px)
        })
    }
}

fn has_place(value: f64, scale: Scale) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `value` (above zero).
fn nice_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let digit = value / power;
    // A hair of tolerance, so that 0.2 computed as 0.20000000000000001 stays 0.2.
    let nice =
        [1.0, 2.0, 5.0].into_iter().find(|nice| digit <= nice * (1.0 + 1e-9)).unwrap_or(10.0);
    nice * power
}

fn decimals_of(step: f64) -> usize {
    // Steps are 1, 2 or 5 times a power of ten: one below one needs as many decimals as its power.
    (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize
}

fn linear(lo: f64, hi: f64, axis: &Axis, ticks_wanted: usize) -> (f64, f64, Vec<Tick>) {
    let lo = if axis.from_zero { lo.min(0.0) } else { lo };
    let hi = if hi > lo { hi } else { lo + lo.abs().max(1.0) };
    let step = nice_step((hi - lo) / ticks_wanted.max(1) as f64);
    let (first, last) = if axis.tight {
        ((lo / step - 1e-9).ceil(), (hi / step + 1e-9).floor())
    } else {
        ((lo / step + 1e-9).floor(), (hi / step - 1e-9).ceil())
    };
    let decimals = decimals_of(step);
    let tick = |index: f64| Tick { value: index * step, label: number(index * step, decimals) };
    let steps = (last - first).clamp(0.0, 100.0) as u32;
    let ticks: Vec<Tick> = (0..=steps).map(|index| tick(first + f64::from(index))).collect();
    if axis.tight { (lo, hi, ticks) } else { (first * step, last * step, ticks) }
}

fn logarithmic(lo: f64, hi: f64, ticks_wanted: usize) -> (f64, f64, Vec<Tick>) {
    let first_decade = lo.log10().floor().clamp(-12.0, 12.0) as i32;
    let last_decade = hi.log10().ceil().clamp(-12.0, 13.0) as i32;
    let candidates = |digits: &'static [f64]| {
        (first_decade..=last_decade)
            .flat_map(move |decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)))
    };
    let all: Vec<f64> = candidates(&[1.0, 2.0, 5.0]).collect();
    let from = all.iter().rev().find(|value| **value <= lo * (1.0 + 1e-9)).copied().unwrap_or(lo);
    let to = all.iter().find(|value| **value >= hi * (1.0 - 1e-9) && **value > from * 1.5).copied();
    let to = to.unwrap_or(from * 10.0);
    let inside = |value: &f64| *value >= from * (1.0 - 1e-9) && *value <= to * (1.0 + 1e-9);
    let mut ticks: Vec<f64> = all.iter().copied().filter(inside).collect();
    if ticks.len() > ticks_wanted * 3 / 2 {
        ticks = candidates(&[1.0]).filter(inside).collect();
    }
    let label = |value: f64| number(value, decimals_of(value));
    (from, to, ticks.into_iter().map(|value| Tick { value, label: label(value) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(span: &Span) -> Vec<&str> {
        span.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_at_1_2_and_5() {
        let span = Span::fit(&Axis::linear("y"), [3.0, 1234.0].into_iter(), 5);
        assert_eq!(labels(&span), ["0", "500", "1,000", "1,500"]);
        let span = Span::fit(&Axis::linear("x").tight(), [0.0, 2.03].into_iter(), 6);
        assert_eq!(labels(&span), ["0.0", "0.5", "1.0", "1.5", "2.0"]);
        assert_eq!(span.hi, 2.03);
        let span = Span::fit(&Axis::log("ms"), [0.3, 4000.0].into_iter(), 6);
        assert_eq!(labels(&span), ["1", "10", "100", "1,000"]);
        assert_eq!((span.lo, span.hi), (0.2, 5000.0));
        let span = Span::fit(&Axis::log("ms"), [30.0, 90.0].into_iter(), 6);
        assert_eq!(labels(&span), ["20", "50", "100"]);
    }

    #[test]
    fn no_values_one_value_and_strange_values_have_an_axis_too() {
        let nothing = [f64::NAN, f64::INFINITY];
        for axis in [Axis::linear("a"), Axis::linear("a").tight(), Axis::log("a")] {
            for values in [&nothing[..], &[0.0], &[7.0], &[-3.0], &[1e300, 1e-300]] {
                let span = Span::fit(&axis, values.iter().copied(), 5);
                assert!(span.lo < span.hi, "{axis:?} {values:?} {span:?}");
                assert!(span.ticks.len() <= 101, "{axis:?} {values:?}");
                assert!(span.px(5.0).is_some_and(f64::is_finite), "{axis:?} {values:?} {span:?}");
            }
        }
        assert_eq!(Span::fit(&Axis::log("a"), [1.0].into_iter(), 5).px(0.0), None);
    }

    #[test]
    fn an_axis_reaches_values_of_other_drawings() {
        let axis = Axis::linear("a").tight().reaching([0.5, f64::NAN, 2.0].into_iter());
        let span = Span::fit(&axis, [0.1, 0.4].into_iter(), 5);
        assert_eq!((span.lo, span.hi), (0.0, 2.0));
        let axis = Axis::linear("a").at_least(0.0, 60.0).reaching([30.0].into_iter());
        assert_eq!(axis.at_least, Some((0.0, 60.0)));
        assert_eq!(Axis::log("a").reaching([0.0].into_iter()).at_least, None);
    }

    #[test]
    fn values_land_on_their_pixels() {
        let span = Span::fit(&Axis::log("a"), [1.0, 100.0].into_iter(), 5).over(10.0, 110.0);
        assert!((span.px(10.0).unwrap() - 60.0).abs() < 1e-9);
        let span = Span::fit(&Axis::linear("a"), [0.0, 10.0].into_iter(), 5).over(100.0, 0.0);
        assert!((span.px(2.5).unwrap() - 75.0).abs() < 1e-9);
    }
}
