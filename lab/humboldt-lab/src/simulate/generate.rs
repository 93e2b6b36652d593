//! Generated traces: popularity by Zipf's law, with scans and objects that are never requested
//! again.

use std::str::FromStr;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::trace::Request;
use crate::units;

/// Most requests or objects of a recipe.
const COUNT_MAX: f64 = 4e9;

/// Largest object that is made, in bytes.
const OBJECT_BYTES_MAX: f64 = (1 << 30) as f64;

/// First ids of objects with one request, and of scanned ones; popular ones are below or count
/// downwards from `DRIFT_FIRST`.
const ONCE_FIRST: u64 = 1 << 60;
const SCAN_FIRST: u64 = 2 << 60;
const DRIFT_FIRST: u64 = 1 << 40;

/// The sizes of objects.
#[derive(Clone, Debug, PartialEq)]
enum Sizes {
    Lognormal,
    Exponential,
    Equal(u64),
}

/// The parts of a generated trace, as in `--generate`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recipe {
    text: String,
    objects: f64,
    requests: u64,
    alpha: f64,
    sizes: Sizes,
    mean_bytes: f64,
    sigma: f64,
    once: f64,
    scan: f64,
    scan_objects: u64,
    scan_length: u64,
    drift: u64,
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut recipe = Self {
            text: text.to_owned(),
            objects: 1e6,
            requests: 10_000_000,
            alpha: 0.9,
            sizes: Sizes::Lognormal,
            mean_bytes: 13.0 * 1024.0,
            sigma: 1.5,
            once: 0.0,
            scan: 0.0,
            scan_objects: 0,
            scan_length: 10_000,
            drift: 0,
        };
        match name {
            "zipf" => {}
            "once" => recipe.once = 0.4,
            "scan" => recipe.scan = 0.3,
            _ => return Err(format!("`{name}` is none of zipf, once, scan")),
        }
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not a key=value"))?;
            recipe.set(key.trim(), value.trim())?;
        }
        if recipe.scan_objects == 0 {
            recipe.scan_objects = recipe.objects as u64;
        }
        if recipe.once + recipe.scan > 1.0 {
            return Err("once and scan are more than all requests".to_owned());
        }
        Ok(recipe)
    }
}

impl Recipe {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let share = || units::share(value).map_err(|error| format!("{key}: {error}"));
        match key {
            "objects" => self.objects = count(key, value)?,
            "requests" => self.requests = count(key, value)? as u64,
            "alpha" => self.alpha = in_range(key, value, 0.0, 10.0)?,
            "sigma" => self.sigma = in_range(key, value, 0.0, 5.0)?,
            "mean" => self.mean_bytes = bytes(key, value)? as f64,
            "once" => self.once = share()?,
            "scan" => self.scan = share()?,
            "scan-objects" => self.scan_objects = count(key, value)? as u64,
            "scan-length" => self.scan_length = count(key, value)? as u64,
            "drift" => self.drift = count(key, value)? as u64,
            "sizes" => {
                self.sizes = match value {
                    "lognormal" => Sizes::Lognormal,
                    "exponential" => Sizes::Exponential,
                    equal => Sizes::Equal(bytes(key, equal)?),
                }
            }
            _ => {
                return Err(format!(
                    "`{key}` is none of objects, requests, alpha, sizes, mean, sigma, once, scan, \
                     scan-objects, scan-length, drift"
                ));
            }
        }
        Ok(())
    }

    /// As it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn count(key: &str, value: &str) -> Result<f64, String> {
    in_range(key, value, 1.0, COUNT_MAX).map(f64::floor)
}

fn in_range(key: &str, value: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = value.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{key}: `{value}` is not a number from {least} to {most}"))
}

fn bytes(key: &str, value: &str) -> Result<u64, String> {
    let found = units::bytes(value).map_err(|error| format!("{key}: {error}"))?;
    if found as f64 > OBJECT_BYTES_MAX {
        return Err(format!("{key}: objects have at most 1 GB"));
    }
    Ok(found)
}

/// A trace that is being made.
pub(super) struct Generated {
    recipe: Recipe,
    seed: u64,
    random: StdRng,
    popularity: Zipf<f64>,
    made: u64,
    once: u64,
    /// Start of the next run, and the rest of this one.
    scanned: u64,
    scan_left: u64,
    /// Chance that a request which belongs to no run begins one.
    scan_begins: f64,
}

impl Generated {
    pub(super) fn new(recipe: &Recipe, seed: u64) -> Result<Self, String> {
        let popularity =
            Zipf::new(recipe.objects, recipe.alpha).map_err(|error| error.to_string())?;
        let length = recipe.scan_length as f64;
        let scan_begins = recipe.scan / (length * (1.0 - recipe.scan) + recipe.scan);
        Ok(Self {
            recipe: recipe.clone(),
            seed,
            random: StdRng::seed_from_u64(seed),
            popularity,
            made: 0,
            once: 0,
            scanned: 0,
            scan_left: 0,
            scan_begins,
        })
    }

    fn id(&mut self) -> u64 {
        if self.scan_left == 0
            && self.recipe.scan > 0.0
            && self.random.random_bool(self.scan_begins)
        {
            self.scan_left = self.recipe.scan_length;
        }
        if self.scan_left > 0 {
            self.scan_left -= 1;
            self.scanned = (self.scanned + 1) % self.recipe.scan_objects;
            return SCAN_FIRST + self.scanned;
        }
        // Of the requests outside runs, so that the share is one of all.
        if self.recipe.once > 0.0
            && self.random.random_bool(self.recipe.once / (1.0 - self.recipe.scan))
        {
            self.once += 1;
            return ONCE_FIRST + self.once;
        }
        let rank = self.popularity.sample(&mut self.random) as u64;
        let arrived = self.made.checked_div(self.recipe.drift).unwrap_or(0);
        DRIFT_FIRST + rank - arrived.min(DRIFT_FIRST)
    }

    /// The size follows from the id.
    fn bytes(&self, id: u64) -> u32 {
        let mut draw = mix(id ^ self.seed.rotate_left(32));
        let mut uniform = || {
            draw = mix(draw);
            ((draw >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        let mean = self.recipe.mean_bytes;
        let bytes = match self.recipe.sizes {
            Sizes::Equal(bytes) => bytes as f64,
            Sizes::Exponential => -mean * uniform().ln(),
            Sizes::Lognormal => {
                let sigma = self.recipe.sigma;
                let normal =
                    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                (mean.ln() - sigma * sigma / 2.0 + sigma * normal).exp()
            }
        };
        bytes.clamp(1.0, OBJECT_BYTES_MAX) as u32
    }
}

/// SplitMix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Iterator for Generated {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.made == self.recipe.requests {
            return None;
        }
        let id = self.id();
        self.made += 1;
        Some(Request { id, bytes: self.bytes(id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn made(recipe: &str) -> Vec<Request> {
        Generated::new(&recipe.parse().expect("a recipe"), 1).expect("possible").collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_trace() {
        assert_eq!(made("zipf:requests=1000"), made("zipf:requests=1000"));
        let other =
            Generated::new(&"zipf:requests=1000".parse().expect("a recipe"), 2).expect("possible");
        assert_ne!(made("zipf:requests=1000"), other.collect::<Vec<_>>());
    }

    #[test]
    fn shares_and_sizes_are_as_said() {
        let requests =
            made("zipf:objects=1000,requests=200000,once=0.4,scan=0.3,scan-length=100,mean=10KB");
        let share = |range: std::ops::Range<u64>| {
            requests.iter().filter(|request| range.contains(&request.id)).count() as f64 / 200_000.0
        };
        assert!(
            (share(ONCE_FIRST..SCAN_FIRST) - 0.4).abs() < 0.03,
            "{}",
            share(ONCE_FIRST..SCAN_FIRST)
        );
        assert!(
            (share(SCAN_FIRST..u64::MAX) - 0.3).abs() < 0.04,
            "{}",
            share(SCAN_FIRST..u64::MAX)
        );
        let once = requests.iter().filter(|request| (ONCE_FIRST..SCAN_FIRST).contains(&request.id));
        let mean =
            once.clone().map(|request| f64::from(request.bytes)).sum::<f64>() / once.count() as f64;
        assert!((mean / 10_240.0 - 1.0).abs() < 0.1, "{mean}");
        let mut sizes = HashMap::new();
        assert!(requests.iter().all(|r| *sizes.entry(r.id).or_insert(r.bytes) == r.bytes));
        assert!(made("zipf:requests=99,sizes=4KB").iter().all(|request| request.bytes == 4096));
    }

    #[test]
    fn popular_objects_are_popular_and_drift_away() {
        let share_of_first = |recipe: &str| {
            let requests = made(recipe);
            let first = requests.iter().filter(|request| request.id == DRIFT_FIRST + 1).count();
            first as f64 / requests.len() as f64
        };
        // Of 1000 objects with exponent 1, the first has 1 / H(1000) of the requests.
        let share = share_of_first("zipf:objects=1000,requests=100000,alpha=1");
        assert!((share - 1.0 / 7.4855).abs() < 0.01, "{share}");
        let drifting = share_of_first("zipf:objects=1000,requests=100000,alpha=1,drift=100");
        assert!(drifting < 0.02, "{drifting}");
    }

    #[test]
    fn mistakes_are_named() {
        for (bad, word) in [
            ("zip", "zip"),
            ("zipf:objects", "objects"),
            ("zipf:objects=0", "objects"),
            ("zipf:alpha=nan", "alpha"),
            ("zipf:once=0.7,scan=0.7", "more than all"),
            ("zipf:size=1", "sizes"),
            ("zipf:sizes=huge", "sizes"),
            ("zipf:mean=5GB", "1 GB"),
        ] {
            let error = bad.parse::<Recipe>().expect_err(bad);
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
