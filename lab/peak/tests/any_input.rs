//! Whatever a controller is told, its next load is a load, and a subject that works is found again
//! afterwards.
#![allow(clippy::print_stdout, reason = "the caller sees how long it took")]

use humboldt_lab_peak::{Controller, ControllerSettings, LOAD_MAX_PER_S, LOAD_MIN_PER_S, View};
use humboldt_lab_record::{FaultKind, Tally};

const PERIOD_US: u64 = 1_200_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// From 0 to 10^`digits`, all orders of magnitude alike.
    fn any(&mut self, digits: u32) -> u64 {
        let digits = u32::try_from(self.below(u64::from(digits) + 1)).unwrap_or(0);
        self.below(10_u64.pow(digits))
    }

    /// A tally that no robots would make.
    fn tally(&mut self) -> Tally {
        let mut tally = Tally {
            period_us: if self.below(4) == 0 { self.any(9) } else { PERIOD_US },
            due: self.any(9),
            aborted: self.any(6),
            backlog: self.any(9),
            oldest_us: self.any(9),
            ..Tally::default()
        };
        for _ in 0..self.any(3) {
            let added_us = self.any(7);
            tally.hits.add(1, added_us, added_us);
            tally.misses.add(1, self.any(7), added_us);
        }
        if self.below(3) == 0 {
            tally.faults.insert(FaultKind::ALL[self.below(12) as usize], self.any(5));
        }
        tally
    }
}

/// A subject that serves 500 requests a second at once and lets the others wait, without chance.
#[derive(Default)]
struct Fluid {
    queue: f64,
}

impl Fluid {
    const CAPACITY_PER_S: f64 = 500.0;
    const TIMEOUT_S: f64 = 10.0;

    fn sample(&mut self, load_per_s: f64) -> Tally {
        let seconds = PERIOD_US as f64 / 1e6;
        let due = load_per_s * seconds;
        let answers = (self.queue + due).min(Self::CAPACITY_PER_S * seconds).floor();
        let waited_before_us = self.queue / Self::CAPACITY_PER_S * 1e6;
        self.queue += due - answers;
        let waited_us = self.queue / Self::CAPACITY_PER_S * 1e6;
        let mut tally = Tally { period_us: PERIOD_US, due: due as u64, ..Tally::default() };
        (0..answers as u64).for_each(|index| {
            let part = index as f64 / answers;
            let added_us = (waited_before_us * (1.0 - part) + waited_us * part) as u64 + 2_000;
            tally.hits.add(1, added_us, added_us);
        });
        let lost = (self.queue - Self::CAPACITY_PER_S * Self::TIMEOUT_S).max(0.0);
        if lost >= 1.0 {
            self.queue -= lost;
            tally.faults.insert(FaultKind::TimedOut, lost as u64);
        }
        tally.backlog = self.queue as u64;
        tally.oldest_us = waited_us as u64;
        tally
    }
}

fn controllers() -> Vec<Box<dyn Controller>> {
    ["robust", "classic", "constant"]
        .into_iter()
        .map(|name| ControllerSettings::named(name).expect("a name"))
        .map(|settings| settings.build(0.02).expect("defaults are allowed"))
        .collect()
}

/// Samples until the load stays near the capacity: of 20 in a row at least 15 answer 90 % of it.
fn samples_until_found(controller: &mut dyn Controller, mut load_per_s: f64) -> Option<usize> {
    let mut subject = Fluid::default();
    let mut near = Vec::new();
    for index in 0..400 {
        let tally = subject.sample(load_per_s);
        near.push(tally.answers() as f64 > 0.9 * Fluid::CAPACITY_PER_S * PERIOD_US as f64 / 1e6);
        let view = View { index: index as u32, load_per_s, ..View::default() };
        load_per_s = controller.judge(&view, &tally).next_load_per_s;
        if index >= 20
            && near[index - 20..index].iter().filter(|near| **near).count() >= 15
            && subject.queue < 600.0
        {
            return Some(index - 20);
        }
    }
    None
}

#[test]
fn the_next_load_is_a_load_whatever_was_counted() {
    let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300];
    for mut controller in controllers() {
        let mut random = Random(5);
        let mut load_per_s = controller.first_load_per_s();
        for index in 0..3_000 {
            if random.below(50) == 0 {
                load_per_s = odd[random.below(7) as usize];
            }
            let view =
                View { index, load_per_s, filling: random.below(2) == 0, fill_ratio: f64::NAN };
            let verdict = controller.judge(&view, &random.tally());
            load_per_s = verdict.next_load_per_s;
            assert!(
                (LOAD_MIN_PER_S..=LOAD_MAX_PER_S).contains(&load_per_s),
                "{index}: {verdict:?}"
            );
            assert!(
                !verdict.reason.contains("NaN") && !verdict.reason.contains("inf"),
                "{verdict:?}"
            );
            assert!(!verdict.state.is_empty() && !verdict.reason.is_empty());
        }
    }
}

#[test]
fn after_any_confusion_a_working_subject_is_found_again() {
    for seed in 0..10 {
        for mut controller in controllers().into_iter().take(2) {
            let mut random = Random(seed);
            let mut load_per_s = 400.0;
            for index in 0..60 {
                let view = View { index, load_per_s, ..View::default() };
                load_per_s = controller.judge(&view, &random.tally()).next_load_per_s;
            }
            let name = controller.name();
            let samples = samples_until_found(controller.as_mut(), load_per_s);
            assert!(
                samples.is_some_and(|samples| samples < 150),
                "{name}, seed {seed}: {samples:?}"
            );
        }
    }
}

#[test]
fn any_first_load_leads_to_the_capacity() {
    for name in ["robust", "classic"] {
        for first in [0.01, 1.0, 499.0, 1e4, 1e7] {
            let mut settings = ControllerSettings::named(name).unwrap();
            settings.set_first_load(first);
            let mut controller = settings.build(0.02).unwrap();
            let first_per_s = controller.first_load_per_s();
            let samples = samples_until_found(controller.as_mut(), first_per_s);
            println!("{name}, from {first}/s to 500/s: {samples:?} samples");
            assert!(
                samples.is_some_and(|samples| samples < 120),
                "{name} from {first}: {samples:?}"
            );
        }
    }
}
