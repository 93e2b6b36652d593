//! Quantities as people write them: "4.5 KB", "30 d", "65 %", "lognormal(30 d, 7 d)".

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::distribution::{Distribution, ZIPF_MAX};

/// The unit of a number. 1 KB is 1024 bytes, as in Polygraph's files, where these workloads come
/// from.
pub(crate) trait Unit {
    /// An example for error messages.
    const EXAMPLE: &'static str;
    /// Suffixes and their factors.
    const SUFFIXES: &'static [(&'static str, f64)];
}

/// Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes;

/// Microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Micros;

/// Plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count;

/// Shares, 1 = all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share;

/// Per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerSecond;

impl Unit for Bytes {
    const EXAMPLE: &'static str = "4.5 KB (units: B, KB = 1024 B, MB, GB)";
    const SUFFIXES: &'static [(&'static str, f64)] = &[
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("KB", 1024.0),
        ("MB", 1_048_576.0),
        ("GB", 1_073_741_824.0),
        ("B", 1.0),
    ];
}

impl Unit for Micros {
    const EXAMPLE: &'static str = "2.5 s (units: us, ms, s, min, h, d, y = 365 d)";
    const SUFFIXES: &'static [(&'static str, f64)] = &[
        ("us", 1.0),
        ("ms", 1e3),
        ("min", 60e6),
        ("s", 1e6),
        ("h", 3_600e6),
        ("d", 86_400e6),
        ("y", 365.0 * 86_400e6),
    ];
}

impl Unit for Count {
    const EXAMPLE: &'static str = "16";
    const SUFFIXES: &'static [(&'static str, f64)] = &[("", 1.0)];
}

impl Unit for Share {
    const EXAMPLE: &'static str = "65 %";
    const SUFFIXES: &'static [(&'static str, f64)] = &[("%", 0.01)];
}

impl Unit for PerSecond {
    const EXAMPLE: &'static str = "0.4 / s";
    const SUFFIXES: &'static [(&'static str, f64)] = &[("/ s", 1.0), ("/s", 1.0)];
}

/// One number of a unit; never negative, always finite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount<U> {
    pub(crate) value: f64,
    unit: PhantomData<U>,
}

/// A distribution of a unit; none of its numbers is negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread<U> {
    pub(crate) distribution: Distribution,
    unit: PhantomData<U>,
}

/// How long an object lives: `lognormal(30 d, 7 d) ± 50 %`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifeCycle {
    /// In µs.
    pub(crate) cycle: Distribution,
    /// Share of the cycle.
    pub(crate) variance: f64,
}

/// Parses "12.5 UNIT".
fn amount<U: Unit>(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let wrong = || format!("\"{text}\" is not understood; write it like {}", U::EXAMPLE);
    let found = U::SUFFIXES.iter().find_map(|(suffix, factor)| {
        let number: f64 = text.strip_suffix(suffix)?.trim_end().replace('_', "").parse().ok()?;
        Some(number * factor)
    });
    let value = found.filter(|value| value.is_finite()).ok_or_else(wrong)?;
    if value < 0.0 {
        Err(format!("\"{text}\" is negative; it must be 0 or more"))
    } else {
        Ok(value)
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value = amount::<Share>(text)?;
    if value > 1.0 {
        Err(format!("\"{text}\" is too much; it must be between 0 % and 100 %"))
    } else {
        Ok(value)
    }
}

fn spread<U: Unit>(text: &str) -> Result<Distribution, String> {
    let text = text.trim();
    let known = "write constant(x), uniform(min, max), exp(mean), normal(mean, deviation), \
                 lognormal(mean, deviation) or zipf(N)";
    let (name, arguments) = text
        .strip_suffix(')')
        .and_then(|text| text.split_once('('))
        .ok_or_else(|| format!("\"{text}\" is not a distribution; {known}"))?;
    let values: Vec<f64> = match name.trim() {
        "zipf" => arguments.split(',').map(amount::<Count>).collect::<Result<_, _>>()?,
        _ => arguments.split(',').map(amount::<U>).collect::<Result<_, _>>()?,
    };
    match (name.trim(), values.as_slice()) {
        ("constant", [value]) => Ok(Distribution::Constant(*value)),
        ("uniform", [min, max]) if min <= max => Ok(Distribution::Uniform { min: *min, max: *max }),
        ("uniform", [_, _]) => Err(format!("\"{text}\": the minimum is above the maximum")),
        ("exp", [mean]) if *mean > 0.0 => Ok(Distribution::Exponential { mean: *mean }),
        ("normal", [mean, deviation]) => {
            Ok(Distribution::Normal { mean: *mean, deviation: *deviation })
        }
        ("lognormal", [mean, deviation]) if *mean > 0.0 => {
            Ok(Distribution::log_normal(*mean, *deviation))
        }
        ("exp" | "lognormal", [_] | [_, _]) => Err(format!("\"{text}\": the mean must be above 0")),
        ("zipf", [max]) if (1.0..=ZIPF_MAX).contains(max) && max.fract() == 0.0 => {
            Ok(Distribution::zipf(*max))
        }
        ("zipf", [_]) => Err(format!("\"{text}\": N must be a whole number from 1 to {ZIPF_MAX}")),
        ("constant" | "uniform" | "exp" | "normal" | "lognormal" | "zipf", _) => {
            Err(format!("\"{text}\" has the wrong number of values; {known}"))
        }
        _ => Err(format!("\"{text}\" is not a distribution; {known}")),
    }
}

fn life_cycle(text: &str) -> Result<LifeCycle, String> {
    let (cycle, variance) = match text.split_once('±').or_else(|| text.split_once("+-")) {
        Some((cycle, variance)) => (cycle, share(variance.trim())?),
        None => (text, 0.0),
    };
    if variance > crate::facts::VARIANCE_MAX {
        return Err(format!(
            "\"{text}\": the variance may be at most ± 50 %, so that modifications keep their order"
        ));
    }
    Ok(LifeCycle { cycle: spread::<Micros>(cycle)?, variance })
}

/// Calls a parser on a TOML string.
struct Text<T>(fn(&str) -> Result<T, String>, &'static str);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text like \"{}\"", self.1)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

macro_rules! amounts {
    ($($unit:ty: $parse:expr),*) => {$(
        impl<'de> Deserialize<'de> for Amount<$unit> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = deserializer.deserialize_str(Text($parse, <$unit>::EXAMPLE))?;
                Ok(Self { value, unit: PhantomData })
            }
        }
    )*};
}

amounts!(Bytes: amount::<Bytes>, Micros: amount::<Micros>, Share: share, PerSecond: amount::<PerSecond>);

impl<'de, U: Unit> Deserialize<'de> for Spread<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let distribution =
            deserializer.deserialize_str(Text(spread::<U>, "constant(…), exp(…) or zipf(…)"))?;
        Ok(Self { distribution, unit: PhantomData })
    }
}

impl<'de> Deserialize<'de> for LifeCycle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(life_cycle, "lognormal(30 d, 7 d) ± 50 %"))
    }
}

/// How many names repeats are chosen from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WorkingSet {
    /// As many as have cachable bytes for this share of the cache.
    OfCache(f64),
    Objects(u64),
    Unlimited,
}

/// Which name a repeat takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Uniform,
    Zipf(f64),
    /// One after the other (fixed sets only).
    InTurn,
}

fn working_set(text: &str) -> Result<WorkingSet, String> {
    let text = text.trim();
    if text == "unlimited" {
        return Ok(WorkingSet::Unlimited);
    }
    if let Some(of_cache) = text.strip_suffix("of cache") {
        let value = amount::<Share>(of_cache)?;
        return if value > 0.0 {
            Ok(WorkingSet::OfCache(value))
        } else {
            Err("must be above 0 %".to_owned())
        };
    }
    let objects =
        text.strip_suffix("objects").and_then(|number| number.trim().replace('_', "").parse().ok());
    match objects {
        Some(0) => Err("a working set needs at least 1 object".to_owned()),
        Some(objects) => Ok(WorkingSet::Objects(objects)),
        None => Err(format!(
            "\"{text}\" is not understood; write \"50 % of cache\", \"20000 objects\" or \"unlimited\""
        )),
    }
}

/// Largest exponent of popularity.
const EXPONENT_MAX: f64 = 5.0;

fn choice(text: &str) -> Result<Choice, String> {
    let exponent = text.trim().strip_prefix("zipf(").and_then(|text| text.strip_suffix(')'));
    match (text.trim(), exponent.map(amount::<Count>)) {
        ("uniform", _) => Ok(Choice::Uniform),
        ("in turn", _) => Ok(Choice::InTurn),
        (_, Some(Ok(exponent))) if exponent > 0.0 && exponent <= EXPONENT_MAX => {
            Ok(Choice::Zipf(exponent))
        }
        (_, Some(Ok(_))) => {
            Err(format!("\"{text}\": the exponent must be above 0 and at most {EXPONENT_MAX}"))
        }
        _ => Err(format!(
            "\"{text}\" is not understood; write \"uniform\", \"zipf(0.8)\" or (fixed sets) \"in turn\""
        )),
    }
}

impl<'de> Deserialize<'de> for WorkingSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(working_set, "50 % of cache"))
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(choice, "uniform"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(amount::<Bytes>("4.5 KB"), Ok(4_608.0));
        assert_eq!(amount::<Bytes>("1 MiB"), Ok(1_048_576.0));
        assert_eq!(amount::<Bytes>("10 B"), Ok(10.0));
        assert_eq!(amount::<Micros>("30 d"), Ok(30.0 * 86_400e6));
        assert_eq!(amount::<Micros>("40ms"), Ok(40_000.0));
        assert_eq!(amount::<Micros>("0.5 min"), Ok(30e6));
        assert_eq!(amount::<PerSecond>("0.4 / s"), Ok(0.4));
        assert_eq!(share("68.75 %"), Ok(0.6875));
        for wrong in ["4.5", "KB", "4,5 KB", "-1 KB", "nan KB", "inf KB", "1 kb", "1e400 KB"] {
            assert!(amount::<Bytes>(wrong).is_err(), "{wrong}");
        }
        assert!(share("101 %").is_err());
    }

    #[test]
    fn distributions_are_read_with_their_units() {
        assert_eq!(spread::<Bytes>("exp(4.5 KB)"), Ok(Distribution::Exponential { mean: 4_608.0 }));
        assert_eq!(spread::<Count>("zipf(64)"), Ok(Distribution::zipf(64.0)));
        assert_eq!(spread::<Bytes>("constant(0 B)"), Ok(Distribution::Constant(0.0)));
        for wrong in [
            "exp",
            "exp(0 B)",
            "exp(1 B, 2 B)",
            "uniform(2 B, 1 B)",
            "lognormal(0 B, 1 B)",
            "lognormal(1 B)",
            "zipf(1.5)",
            "zipf(0)",
            "poisson(1 B)",
            "exp(4.5)",
        ] {
            assert!(spread::<Bytes>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn life_cycles_have_a_variance() {
        let life = life_cycle("lognormal(7 d, 1 d) ± 33 %").unwrap();
        assert!((life.variance - 0.33).abs() < 1e-12);
        assert_eq!(life.cycle, Distribution::log_normal(7.0 * 86_400e6, 86_400e6));
        assert!(life_cycle("constant(1 d) +- 51 %").is_err());
    }

    #[test]
    fn popularity_is_read() {
        assert_eq!(working_set("50 % of cache"), Ok(WorkingSet::OfCache(0.5)));
        assert_eq!(working_set("20_000 objects"), Ok(WorkingSet::Objects(20_000)));
        assert_eq!(working_set("unlimited"), Ok(WorkingSet::Unlimited));
        assert!(working_set("0 objects").is_err() && working_set("half").is_err());
        assert_eq!(choice("zipf(0.8)"), Ok(Choice::Zipf(0.8)));
        assert!(choice("zipf(0)").is_err() && choice("zipf").is_err());
    }
}
