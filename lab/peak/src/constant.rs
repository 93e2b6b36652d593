//! A constant load.

use crate::words;
use crate::{ConstantSettings, Controller, SettingsError, Unjudged, View};
use humboldt_lab_record::{Tally, Verdict};

/// Keeps one load, whatever happens. A sample counts as sustained if its answers came: see
/// [`ConstantSettings`].
#[derive(Clone, Debug)]
pub struct Constant {
    settings: ConstantSettings,
}

impl Constant {
    /// From its settings.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn new(settings: &ConstantSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self { settings: settings.clone() })
    }

    fn complaint(&self, tally: &Tally) -> Option<String> {
        let errors = tally.faults_total();
        let answers = tally.answers();
        if let Some((kind, count)) = tally.faults.iter().find(|(kind, _)| kind.is_wrong_content()) {
            return Some(format!("wrong content: {count} × {kind}"));
        }
        let error_share = errors as f64 / (errors + answers).max(1) as f64;
        if error_share > self.settings.error_share_max {
            return Some(format!("errors {}", words::share(error_share)));
        }
        let answered_share = (answers + tally.aborted) as f64 / tally.due.max(1) as f64;
        if tally.due > 0 && answered_share < self.settings.throughput_share_min {
            return Some(format!("answered {} of the load", words::share(answered_share)));
        }
        None
    }
}

impl Controller for Constant {
    fn first_load_per_s(&self) -> f64 {
        self.settings.load_per_s
    }

    fn judge(&mut self, _: &View, tally: &Tally) -> Verdict {
        let complaint = self.complaint(tally);
        Verdict {
            next_load_per_s: self.settings.load_per_s,
            sustained: complaint.is_none() && tally.answers() > 0,
            unjudged: false,
            state: "constant".into(),
            reason: complaint.unwrap_or_else(|| format!("{} answers", tally.answers())),
        }
    }

    fn pass_over(&mut self, _: &View, _: &Tally, why: Unjudged<'_>) -> Verdict {
        why.verdict(self.settings.load_per_s)
    }

    fn name(&self) -> &'static str {
        "constant"
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![("load".into(), words::rate(self.settings.load_per_s))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{FaultKind, Tally};

    #[test]
    fn the_load_stays_and_the_sample_is_judged() {
        let mut constant =
            Constant::new(&ConstantSettings { load_per_s: 50.0, ..ConstantSettings::default() })
                .unwrap();
        let mut tally = Tally { due: 100, ..Tally::default() };
        let verdict = constant.judge(&View::default(), &tally);
        assert!(!verdict.sustained, "{verdict:?}");

        (0..98).for_each(|_| tally.hits.add(10, 1_000, 1_000));
        let verdict = constant.judge(&View::default(), &tally);
        assert!(verdict.sustained, "{verdict:?}");
        assert_eq!(verdict.next_load_per_s, 50.0);

        tally.faults.insert(FaultKind::Stale, 1);
        let verdict = constant.judge(&View::default(), &tally);
        assert!(!verdict.sustained);
        assert_eq!(verdict.reason, "wrong content: 1 × stale");
    }
}
