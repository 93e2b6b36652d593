//! The default controller: looks at everything that shows overload.

use crate::controller::{Bounds, offered_or};
use crate::reading::{Finding, Limits, Reader, Reading};
use crate::search::{Move, Search};
use crate::words;
use crate::{Controller, RobustSettings, SettingsError, Unjudged, View};
use humboldt_lab_record::{Tally, Verdict};

/// Finds the highest load at which a chosen percentile of added time (hits and misses apart), mean
/// added time, errors, throughput and backlog keep within their limits, and follows it when it
/// changes.
///
/// A sample of which something is wrong with the content is never sustained, but does not lower the
/// load: less load does not make a wrong answer right.
#[derive(Clone, Debug)]
pub struct Robust {
    settings: RobustSettings,
    reader: Reader,
    search: Search,
}

impl Robust {
    /// From its settings, with times multiplied by `time_scale`.
    ///
    /// # Errors
    /// If a setting or the time scale is outside its range.
    pub fn new(settings: &RobustSettings, time_scale: f64) -> Result<Self, SettingsError> {
        settings.check(time_scale)?;
        let first_per_s = settings.first_load_per_s.min(settings.load_max_per_s);
        Ok(Self {
            settings: settings.clone(),
            reader: Reader::new(Limits::new(settings, time_scale)),
            search: Search::new(first_per_s, settings.step, settings.hold_samples),
        })
    }
}

impl Controller for Robust {
    fn first_load_per_s(&self) -> f64 {
        self.settings.first_load_per_s.min(self.settings.load_max_per_s)
    }

    fn judge(&mut self, view: &View, tally: &Tally) -> Verdict {
        let load_per_s = offered_or(view, self.search.level());
        let bounds = Bounds::new(tally.period_us, self.settings.load_max_per_s);
        let reading = self.reader.read(load_per_s, tally);
        let next = self.search.next(load_per_s, &reading, &bounds, tally.period_us);
        verdict(&next, reading)
    }

    fn pass_over(&mut self, view: &View, tally: &Tally, why: Unjudged<'_>) -> Verdict {
        let load_per_s = offered_or(view, self.search.level());
        let bounds = Bounds::new(tally.period_us, self.settings.load_max_per_s);
        let before = self.reader.clone();
        let reading = self.reader.pass_over(tally);
        if why == Unjudged::WarmUp && reading.is_burdened {
            // Far too much is far too much, also for a subject that is warm.
            self.reader = before;
            return self.judge(view, tally);
        }
        let next = self.search.pass_over(load_per_s, &reading, why, &bounds, tally.period_us);
        Verdict { state: next.state.into(), ..why.verdict(next.load_per_s) }
    }

    fn name(&self) -> &'static str {
        "robust"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let limits = self.reader.limits();
        let percentile = words::percentile(limits.percentile);
        let at_most = |us: f64| format!("≤ {}", words::duration(us));
        let mut table = vec![
            ("first load".into(), words::rate(self.first_load_per_s())),
            ("highest load".into(), words::highest(self.settings.load_max_per_s)),
            (format!("{percentile} added to hits"), at_most(limits.hits_added_us)),
            (format!("{percentile} added to misses"), at_most(limits.misses_added_us)),
            ("mean added".into(), at_most(limits.mean_added_us)),
        ];
        if let Some(limit_us) = limits.mean_response_us {
            table.push(("mean response".into(), at_most(limit_us)));
        }
        table.extend([
            ("errors".into(), format!("≤ {}", words::share(limits.error_share_max))),
            (
                "answered".into(),
                format!("≥ {} of the load", words::share(limits.throughput_share_min)),
            ),
            ("patience".into(), words::duration(limits.patience_us)),
            ("step".into(), words::share(self.settings.step)),
            ("hold".into(), format!("{} samples", self.settings.hold_samples)),
        ]);
        table
    }
}

fn verdict(next: &Move, reading: Reading) -> Verdict {
    let is_sustained = matches!(reading.finding, Finding::Sustained { .. });
    let is_unjudged = next.was_drain || reading.finding == Finding::TooFew;
    let reason = match (reading.wrong_content.as_ref(), next.was_drain) {
        (Some(wrong), _) => format!("{wrong}; {}", reading.reason),
        (None, true) if reading.is_burdened => {
            format!("{:.0} requests of an overload still wait", reading.excess)
        }
        (None, true) => "the queue of the overload is gone".into(),
        (None, false) => reading.reason,
    };
    Verdict {
        next_load_per_s: next.load_per_s,
        sustained: is_sustained && !next.was_drain && reading.wrong_content.is_none(),
        unjudged: is_unjudged,
        state: next.state.into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of 10 s at 1,000/s with 500 answers per second, all quick, and `backlog` requests
    /// left over.
    fn quick(backlog: u64) -> Tally {
        let mut tally = Tally { period_us: 10_000_000, due: 5_000, backlog, ..Tally::default() };
        (0..5_000).for_each(|_| tally.hits.add(1, 2_000, 2_000));
        tally
    }

    #[test]
    fn samples_that_drain_are_not_sustained_however_quick_the_answers() {
        let mut robust = Robust::new(&RobustSettings::default(), 1.0).unwrap();
        let mut view = View { load_per_s: 1_000.0, ..View::default() };
        let mut states = Vec::new();
        let overload = Tally { due: 10_000, ..quick(5_000) };
        for tally in [overload, quick(2_000), quick(500), quick(0), quick(0)] {
            let verdict = robust.judge(&view, &tally);
            view.load_per_s = verdict.next_load_per_s;
            states.push((verdict.state, verdict.sustained, verdict.next_load_per_s));
        }
        let wanted = [
            ("drain".into(), false, 73.5),
            ("drain".into(), false, 73.5),
            ("drain".into(), false, 73.5),
            ("resume".into(), false, 490.0),
            ("climb".into(), true, 700.0),
        ];
        assert_eq!(states, wanted);
    }
}
