//! The controller of the book's runs: mean response time against a window.

use crate::controller::{Bounds, SPOILED_MAX, offered_or};
use crate::reading::{Classes, wrong_content};
use crate::words;
use crate::{ClassicSettings, Controller, SettingsError, Unjudged, View};
use humboldt_lab_record::{AT_LOAD_MAX, Tally, Verdict};

/// From this many equal verdicts in a row on, the step doubles.
const ACCELERATE_AFTER: u32 = 3;

/// A step up grows to at most this share of the load: small, because the overload that ends it is
/// drained only by the steps down that follow.
const STEP_UP_MAX: f64 = 0.4;

/// A step up grows only while the time that the subject itself adds is below this part of the
/// window's lower end, in the mean: a subject that becomes slower is near its limit.
const QUICK: f64 = 0.25;

/// A load that the subject keeps up with has answers for at least this share of its requests.
const KEPT_UP_MIN: f64 = 0.97;

/// A step down grows to at most this.
const STEP_DOWN_MAX: f64 = 0.4;

/// A load is kept for a subject that works off a backlog in this many samples; a slower one gets
/// less load.
const CATCH_UP_SAMPLES_MAX: u64 = 20;

/// An inherited queue must become shorter by more than this part of it in a sample, and by more
/// than this many deviations of a queue that changes by chance.
const QUEUE_FALL_PART: u64 = 10;
const QUEUE_DEVIATIONS: f64 = 3.0;

/// Raises the load by a step if the mean response time of all answers of a sample is below the
/// window, and lowers it by a step if it is above. [`View::filling`] chooses the window.
///
/// Differences from Polygraph: the load needs no preset ceiling; response times include waiting, so
/// a subject that falls behind shows it; a sample with a backlog and no answers, or with many
/// errors, counts as above the window; zero is not a trap; and steps may grow (see
/// [`ClassicSettings::step_accelerates`]).
#[derive(Clone, Debug)]
pub struct Classic {
    settings: ClassicSettings,
    time_scale: f64,
    load_per_s: f64,
    last: Side,
    in_a_row: u32,
    /// Spoiled samples in a row.
    spoiled: u32,
    /// Whether a spoiled sample may have left a queue.
    has_foreign_queue: bool,
    /// Requests that waited at the end of the sample before, if its load was too high; else 0.
    queue_before: u64,
    /// The last load that was not too high.
    good_per_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Inside,
    Above,
}

impl Classic {
    /// From its settings, with times multiplied by `time_scale`.
    ///
    /// # Errors
    /// If a setting or the time scale is outside its range.
    pub fn new(settings: &ClassicSettings, time_scale: f64) -> Result<Self, SettingsError> {
        settings.check(time_scale)?;
        Ok(Self {
            settings: settings.clone(),
            time_scale,
            load_per_s: settings.first_load_per_s.min(settings.load_max_per_s),
            last: Side::Inside,
            in_a_row: 0,
            spoiled: 0,
            has_foreign_queue: false,
            queue_before: 0,
            good_per_s: None,
        })
    }

    /// Ends of the window in µs.
    fn window_us(&self, filling: bool) -> (f64, f64) {
        let window = if filling { self.settings.filling } else { self.settings.measuring };
        let us = |seconds: f64| seconds * 1e6 * self.time_scale;
        (us(window.min_s), us(window.max_s))
    }

    fn side(&self, filling: bool, tally: &Tally) -> (Side, String) {
        let answers = tally.answers();
        let (min_us, max_us) = self.window_us(filling);
        // The few answers of a subject that has stopped may have been quick: then those that wait
        // are the measure.
        if tally.backlog > answers && (answers == 0 || tally.oldest_us as f64 > max_us) {
            return (Side::Above, format!("{answers} answers; {} requests wait", tally.backlog));
        }
        let errors = tally.faults_total();
        let error_share = errors as f64 / (errors + answers).max(1) as f64;
        if error_share > self.settings.error_share_max {
            let (got, limit) =
                (words::share(error_share), words::share(self.settings.error_share_max));
            return (Side::Above, format!("errors {got} > {limit}"));
        }
        if answers == 0 {
            return (Side::Below, "no request came due".into());
        }
        let mean_us = tally.response().mean_us();
        let (mean, min, max) =
            (words::duration(mean_us), words::duration(min_us), words::duration(max_us));
        if mean_us < min_us {
            (Side::Below, format!("mean response {mean} < {min}"))
        } else if mean_us > max_us {
            (Side::Above, format!("mean response {mean} > {max}"))
        } else {
            (Side::Inside, format!("mean response {mean} within {min} to {max}"))
        }
    }

    /// Whether the subject is far from its limit.
    fn is_quick(&self, filling: bool, tally: &Tally) -> bool {
        let (min_us, _) = self.window_us(filling);
        Classes::of(tally).mean_added_us() < min_us * QUICK && is_keeping_up(tally)
    }

    /// The step after `in_a_row` equal verdicts.
    fn step(&self, step_max: f64) -> f64 {
        if !self.settings.step_accelerates {
            return self.settings.step;
        }
        let doublings = self.in_a_row.saturating_sub(ACCELERATE_AFTER).min(16) as i32;
        (self.settings.step * 2_f64.powi(doublings)).min(step_max.max(self.settings.step))
    }
}

/// Whether the subject works off a backlog: then its response times do not depend on the present
/// load.
fn is_catching_up(tally: &Tally) -> bool {
    let gained = tally.answers().saturating_sub(tally.due);
    gained > tally.due / 50 && gained.saturating_mul(CATCH_UP_SAMPLES_MAX) > tally.backlog
}

/// Whether nearly as many requests were answered as came.
fn is_keeping_up(tally: &Tally) -> bool {
    tally.answers() as f64 >= tally.due as f64 * KEPT_UP_MIN
}

/// Whether a queue of `before` requests, which an earlier load left, became clearly shorter in this
/// sample. Then the response times are those of that queue, and say nothing about this load.
fn is_draining(before: u64, tally: &Tally) -> bool {
    let chance = (QUEUE_DEVIATIONS * (before as f64).sqrt()) as u64;
    let fall = before.saturating_sub(tally.backlog);
    tally.answers() > tally.due && fall > (before / QUEUE_FALL_PART).max(chance)
}

impl Controller for Classic {
    fn first_load_per_s(&self) -> f64 {
        self.settings.first_load_per_s.min(self.settings.load_max_per_s)
    }

    fn judge(&mut self, view: &View, tally: &Tally) -> Verdict {
        let load_per_s = offered_or(view, self.load_per_s);
        let (side, reason) = self.side(view.filling, tally);
        if self.has_foreign_queue && side == Side::Above {
            self.has_foreign_queue = is_catching_up(tally);
            self.load_per_s = load_per_s;
            return Verdict {
                next_load_per_s: load_per_s,
                sustained: false,
                unjudged: true,
                state: "catching up".into(),
                reason,
            };
        }
        (self.spoiled, self.has_foreign_queue) = (0, false);
        let is_catching_up = self.settings.step_accelerates && is_catching_up(tally);
        let is_kept = side == Side::Above && is_catching_up;
        let is_draining = side == Side::Above && is_draining(self.queue_before, tally);
        self.queue_before = if side == Side::Above { tally.backlog } else { 0 };
        let overshot = self.last == Side::Below && side == Side::Above;
        let is_near = side == Side::Below && !self.is_quick(view.filling, tally);
        let goes_on = side == self.last && !is_kept && !is_near;
        self.in_a_row = if goes_on { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = side;
        if side != Side::Above && is_keeping_up(tally) {
            self.good_per_s = Some(load_per_s);
        }
        let (factor, state) = match side {
            Side::Above if is_kept => (1.0, "catching up"),
            // A long step led here. Short ones down would leave a queue for many samples.
            Side::Above if overshot && self.settings.step_accelerates => {
                let back = self.good_per_s.map_or(1.0, |good_per_s| good_per_s / load_per_s);
                (back.clamp(1.0 - STEP_DOWN_MAX, 1.0 - self.settings.step), "step back")
            }
            Side::Below => (1.0 + self.step(STEP_UP_MAX), "up"),
            Side::Above if is_draining => (1.0 - self.step(STEP_DOWN_MAX), "drain"),
            Side::Above => (1.0 - self.step(STEP_DOWN_MAX), "down"),
            Side::Inside => (1.0, "stay"),
        };
        let bounds = Bounds::new(tally.period_us, self.settings.load_max_per_s);
        self.load_per_s = bounds.clamp(load_per_s * factor);
        let wrong = wrong_content(tally);
        // As in the other search, so that a page can say that no limit was found.
        let is_good = side == Side::Below && wrong.is_none();
        let state = if is_good && bounds.is_top(load_per_s) { AT_LOAD_MAX } else { state };
        Verdict {
            next_load_per_s: self.load_per_s,
            sustained: side != Side::Above && tally.answers() > 0 && wrong.is_none(),
            unjudged: is_kept || is_draining,
            state: state.into(),
            reason: wrong.map_or(reason.clone(), |wrong| format!("{wrong}; {reason}")),
        }
    }

    fn pass_over(&mut self, view: &View, tally: &Tally, why: Unjudged<'_>) -> Verdict {
        let load_per_s = offered_or(view, self.load_per_s);
        self.spoiled += u32::from(matches!(why, Unjudged::Spoiled(_)));
        self.has_foreign_queue = why != Unjudged::WarmUp && tally.backlog > 0;
        let is_given_up = self.spoiled >= SPOILED_MAX;
        if is_given_up {
            // What follows goes up in short steps again.
            (self.spoiled, self.in_a_row, self.last) = (0, 0, Side::Inside);
        }
        let lower_per_s = load_per_s * (1.0 - self.settings.step);
        let next_per_s = match self.good_per_s {
            _ if !is_given_up => load_per_s,
            Some(good_per_s) => good_per_s.min(lower_per_s),
            None => lower_per_s,
        };
        let bounds = Bounds::new(tally.period_us, self.settings.load_max_per_s);
        self.load_per_s = bounds.clamp(next_per_s);
        why.verdict(self.load_per_s)
    }

    fn name(&self) -> &'static str {
        "classic"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let window = |filling: bool| {
            let (min_us, max_us) = self.window_us(filling);
            format!("{} to {}", words::duration(min_us), words::duration(max_us))
        };
        vec![
            ("first load".into(), words::rate(self.first_load_per_s())),
            ("highest load".into(), words::highest(self.settings.load_max_per_s)),
            ("mean response".into(), window(false)),
            ("mean response while filling".into(), window(true)),
            ("step".into(), words::share(self.settings.step)),
            ("step accelerates".into(), self.settings.step_accelerates.to_string()),
            ("errors".into(), format!("≤ {}", words::share(self.settings.error_share_max))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::FaultKind;

    /// The next load after each of these mean response times, in ms.
    fn loads(settings: &ClassicSettings, filling: bool, means_ms: &[u64]) -> Vec<f64> {
        let mut classic = Classic::new(settings, 1.0).unwrap();
        let mut view = View { load_per_s: classic.first_load_per_s(), filling, ..View::default() };
        let judge = |mean_ms: &u64| {
            let mut tally = Tally { period_us: 60_000_000, due: 1_000, ..Tally::default() };
            // Servers that think for a second, where the answer takes that long.
            let added_us = (mean_ms * 1_000).saturating_sub(1_000_000);
            (0..1_000).for_each(|_| tally.misses.add(10, mean_ms * 1_000, added_us));
            view.load_per_s = classic.judge(&view, &tally).next_load_per_s;
            (view.load_per_s * 100.0).round() / 100.0
        };
        means_ms.iter().map(judge).collect()
    }

    #[test]
    fn the_books_steps_are_five_per_cent_and_the_window_depends_on_the_phase() {
        let settings = ClassicSettings { step_accelerates: false, ..ClassicSettings::default() };
        assert_eq!(
            loads(&settings, false, &[1_400, 1_600, 1_800, 1_400]),
            [105.0, 105.0, 99.75, 104.74]
        );
        assert_eq!(loads(&settings, true, &[2_700, 2_800, 3_100]), [105.0, 105.0, 99.75]);
        assert_eq!(loads(&settings, false, &[9_000; 4]), [95.0, 90.25, 85.74, 81.45]);
    }

    #[test]
    fn at_the_highest_load_it_says_so_until_a_sample_is_too_slow() {
        let settings = ClassicSettings { load_max_per_s: 200.0, ..ClassicSettings::default() };
        let mut classic = Classic::new(&settings, 1.0).unwrap();
        let mut judge = |load_per_s: f64, mean_ms: u64| {
            let mut tally = Tally { period_us: 60_000_000, due: 1_000, ..Tally::default() };
            (0..1_000).for_each(|_| tally.misses.add(10, mean_ms * 1_000, mean_ms * 1_000));
            let verdict = classic.judge(&View { load_per_s, ..View::default() }, &tally);
            (verdict.state, verdict.next_load_per_s, verdict.sustained)
        };
        let (state, next_load_per_s, _) = judge(199.0, 100);
        assert_eq!((state.as_str(), next_load_per_s), ("up", 200.0));
        assert_eq!(judge(200.0, 100), (AT_LOAD_MAX.to_owned(), 200.0, true));
        let (state, next_load_per_s, is_sustained) = judge(200.0, 9_000);
        assert!(state != AT_LOAD_MAX && next_load_per_s < 200.0 && !is_sustained);
    }

    #[test]
    fn steps_grow_while_the_subject_adds_little_to_the_delays_of_its_servers() {
        let means_ms = [1_300, 1_300, 1_300, 1_300, 1_300, 1_800];
        let next = loads(&ClassicSettings::default(), false, &means_ms);
        assert_eq!(next, [105.0, 110.25, 115.76, 127.34, 152.81, 127.34]);
        let means_ms = [1_300, 1_300, 1_300, 1_300, 1_400, 1_450];
        let next = loads(&ClassicSettings::default(), false, &means_ms);
        assert_eq!(next, [105.0, 110.25, 115.76, 127.34, 133.71, 140.39], "slower: near its limit");
    }

    #[test]
    fn a_step_back_goes_to_the_last_load_that_was_kept_up_with() {
        let mut classic = Classic::new(&ClassicSettings::default(), 1.0).unwrap();
        let mut judge = |load_per_s: f64, due: u64, answers: u64, mean_ms: u64| {
            let mut tally = Tally { period_us: 60_000_000, due, ..Tally::default() };
            (0..answers).for_each(|_| tally.misses.add(10, mean_ms * 1_000, mean_ms * 1_000));
            classic.judge(&View { load_per_s, ..View::default() }, &tally)
        };
        judge(100.0, 1_000, 1_000, 100);
        // Quick still, but a queue grows.
        judge(120.0, 1_200, 1_100, 300);
        let back = judge(140.0, 1_400, 1_100, 2_000);
        assert_eq!((back.state.as_str(), back.next_load_per_s), ("step back", 100.0));
    }

    #[test]
    fn a_queue_of_an_earlier_overload_is_not_blamed_on_the_present_load() {
        for step_accelerates in [true, false] {
            let settings = ClassicSettings { step_accelerates, ..ClassicSettings::default() };
            let mut classic = Classic::new(&settings, 1.0).unwrap();
            let mut judge = |due: u64, answers: u64, backlog: u64| {
                let period_us = 60_000_000;
                let mut tally = Tally { period_us, due, backlog, ..Tally::default() };
                (0..answers).for_each(|_| tally.hits.add(10, 9_000_000, 9_000_000));
                let view = View { load_per_s: due as f64 / 60.0, index: 9, ..View::default() };
                classic.judge(&view, &tally)
            };
            assert!(!judge(2_000, 1_500, 500).unjudged, "this load made the queue");
            let verdict = judge(1_425, 1_525, 400);
            assert!(verdict.unjudged && !verdict.sustained, "{verdict:?}");
            assert!(!judge(1_500, 1_505, 395).unjudged, "it is as long as before");
            assert!(!judge(1_500, 1_400, 495).unjudged, "it grows");
        }
    }

    #[test]
    fn no_answers_errors_and_a_backlog_are_above_any_window() {
        let mut classic = Classic::new(&ClassicSettings::default(), 1.0).unwrap();
        let view = View { load_per_s: 100.0, ..View::default() };
        let mut tally =
            Tally { period_us: 60_000_000, due: 6_000, backlog: 6_000, ..Tally::default() };
        let mut reasons = Vec::new();
        for _ in 0..3 {
            let verdict = classic.judge(&view, &tally);
            assert!(!verdict.sustained && verdict.next_load_per_s == 95.0, "{verdict:?}");
            reasons.push(verdict.reason);
            tally.oldest_us = 50_000_000;
            (0..100).for_each(|_| tally.hits.add(10, 1_000, 1_000));
            if reasons.len() == 2 {
                tally.backlog = 0;
                tally.faults.insert(FaultKind::WrongStatus, 10);
            }
            classic.in_a_row = 0;
        }
        let wanted = [
            "0 answers; 6000 requests wait",
            "100 answers; 6000 requests wait",
            "errors 4.8 % > 1.0 %",
        ];
        assert_eq!(reasons, wanted);
    }
}
