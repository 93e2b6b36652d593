//! The display of a run in the terminal: one line per sample, and below it a bar.

use super::calibrate::Calibration;
use crate::{output::say, units};
use humboldt_lab_peak::Controller;
use humboldt_lab_record::{Outcome, Run};
use humboldt_lab_report::{live_header, live_line, summary_text};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

/// The bar counts thousandths of the goal.
const BAR_LENGTH: u64 = 1000;

/// The header is repeated after this many lines, about a screen.
const HEADER_EVERY: usize = 40;

/// The terminal's view of a run. On a pipe only the lines are written.
pub(crate) struct Live {
    bar: ProgressBar,
    start: Instant,
    lines: usize,
}

impl Live {
    /// Nothing is shown yet.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(BAR_LENGTH), crate::output::bars());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Self { bar, start: Instant::now(), lines: 0 }
    }

    /// Shows the present step.
    pub(crate) fn step(&self, what: &str) {
        if self.bar.is_hidden() {
            say!("{what}");
        } else {
            self.bar.set_message(what.to_owned());
            self.bar.tick();
        }
    }

    /// Shows the highest rate of the laboratory itself.
    pub(super) fn calibrated(&self, found: &Calibration) {
        let limit = found.limit.map_or(String::new(), |limit| format!("; then {limit}"));
        self.line(&format!(
            "the laboratory by itself: {:.0} answers/s at {:.1} µs for a user's request and {:.1} µs for a \
             server's answer{limit}",
            found.per_s, found.robots_us, found.origin_us
        ));
    }

    /// Shows the beginning.
    pub(super) fn begin(&mut self, run: &Run, controller: &dyn Controller) {
        let plan = &run.plan;
        self.line(&format!(
            "{} under {}: {} controller, cache of {}, until filled {} times; ideal hit ratio {:.1} %",
            plan.subject,
            plan.workload,
            controller.name(),
            units::show_bytes(plan.cache_bytes),
            plan.goal.fill_ratio,
            plan.ideal_hit_ratio * 100.0
        ));
        if (plan.time_scale - 1.0).abs() > f64::EPSILON {
            self.line(&format!(
                "time scale {}: think times, thresholds and sample periods are {} times the published",
                plan.time_scale, plan.time_scale
            ));
        }
        for skipped in &run.manifest.skipped {
            self.line(&format!("left out: {skipped}"));
        }
        if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {msg}") {
            self.bar.set_style(style.progress_chars("=> "));
        }
        self.start = Instant::now();
    }

    /// Shows the newest sample.
    pub(super) fn update(&mut self, run: &Run) {
        if self.lines.is_multiple_of(HEADER_EVERY) {
            self.line(&live_header());
        }
        self.lines += 1;
        self.line(&live_line(run));
        let (share, left_s) = progress(run, self.start.elapsed().as_secs_f64());
        self.bar.set_position((share * BAR_LENGTH as f64) as u64);
        self.bar.set_message(format!("about {} left", units::show_seconds(left_s)));
    }

    /// Shows the result.
    pub(super) fn end(&mut self, run: &Run) {
        self.bar.finish_and_clear();
        if !run.samples.is_empty() {
            say!("\n{}", summary_text(run).trim_end());
        } else if let Outcome::Failed(_) = run.outcome {
            say!("nothing was measured");
        }
    }

    /// Writes a line, or several.
    pub(super) fn line(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }
}

/// The finished part of the run (0 to 1), and the remaining time at the present pace, in seconds.
fn progress(run: &Run, elapsed_s: f64) -> (f64, f64) {
    let fill_ratio = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    let by_fill = fill_ratio / run.plan.goal.fill_ratio.max(f64::MIN_POSITIVE);
    let by_time =
        run.plan.goal.time_max_s.map_or(0.0, |time_max_s| elapsed_s / time_max_s.max(1.0));
    let share = by_fill.max(by_time).clamp(0.0, 1.0);
    let left_s = if share > 0.0 { elapsed_s * (1.0 - share) / share } else { 0.0 };
    (share, left_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{Goal, Sample};

    #[test]
    fn progress_follows_what_ends_the_run_first() {
        let mut run = Run::default();
        run.plan.goal = Goal { fill_ratio: 2.0, time_max_s: Some(100.0) };
        assert_eq!(progress(&run, 25.0), (0.25, 75.0));
        run.samples.push(Sample { fill_ratio: 1.0, ..Sample::default() });
        assert_eq!(progress(&run, 25.0), (0.5, 25.0));
        run.plan.goal = Goal::default();
        assert!(progress(&run, 0.0).1.is_finite());
    }
}
