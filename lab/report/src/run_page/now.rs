//! A run that goes on: how far it has come, how long it may take, and the present decision.

use super::tables;
use crate::document::Section;
use crate::format::{NOTHING, duration, number, percent, rough};
use crate::table::Table;
use crate::terminal::{Pace, pace};
use humboldt_lab_record::{Outcome, Run};

/// Last decisions that are shown.
const DECISIONS: usize = 8;

/// The result is the part of a run after this share of the planned fill ratio.
const JUDGED_FROM: f64 = 0.75;

/// The fill ratio from which on the samples of a run that goes on are its result; `None` if it is
/// over, or has come there.
pub(crate) fn judged_from(run: &Run) -> Option<f64> {
    let from = run.plan.goal.fill_ratio * JUDGED_FROM;
    let reached = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    (run.outcome == Outcome::Running && reached < from).then_some(from)
}

/// The state of a run that goes on; nothing if it is over.
pub(crate) fn section(run: &Run) -> Section {
    let Some(last) = run.samples.last().filter(|_| run.outcome == Outcome::Running) else {
        return Section::default();
    };
    let share = progress(run);
    let mut state = Table::new("The run now", &["", "", "how this is known"]);
    let goal = format!(
        "fill ratio {} of {}, {} since the load began",
        number(last.fill_ratio, 2),
        number(run.plan.goal.fill_ratio, 2),
        duration(last.at_s)
    );
    let (left, basis) = time_left(run);
    let next = format!("{} requests/s", rough(last.verdict.next_load_per_s));
    let rows = [
        ("Progress", percent(share), goal),
        ("Time left", left, basis),
        ("Decision", crate::terminal::decision(last), "the last sample".to_owned()),
        ("Next load", next, "the controller's choice".to_owned()),
    ];
    rows.into_iter().for_each(|(name, value, basis)| state.row([name.to_owned(), value, basis]));
    let decisions = tables::last_decisions(run, DECISIONS);
    Section { progress: Some(share), tables: vec![state, decisions], ..Section::new("Now") }
}

/// The finished share of a run, 0 to 1: of its fill or of its time, whichever ends it first.
fn progress(run: &Run) -> f64 {
    let Some(last) = run.samples.last() else { return 0.0 };
    let by_fill = last.fill_ratio / run.plan.goal.fill_ratio.max(f64::MIN_POSITIVE);
    let by_time =
        run.plan.goal.time_max_s.map_or(0.0, |time_max_s| last.at_s / time_max_s.max(1.0));
    let share = by_fill.max(by_time);
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// The time left, and the basis of that estimate.
fn time_left(run: &Run) -> (String, String) {
    match pace(run) {
        None => (NOTHING.to_owned(), "nothing has been filled yet".to_owned()),
        Some((left_s, Pace::Fill { samples })) if left_s > 0.0 => (
            format!("about {}", duration(left_s)),
            format!("at the pace of the last {samples} samples"),
        ),
        Some((_, Pace::Fill { .. })) => (
            "soon".to_owned(),
            "the cache is filled; the last quarter needs more good samples".to_owned(),
        ),
        Some((left_s, Pace::Time)) => {
            (format!("at most {}", duration(left_s)), "the longest time of the run".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{document, warnings};
    use super::*;
    use crate::testing::synthetic;

    fn going_on(samples: u32) -> Run {
        let mut run = synthetic("squid:aufs", 100.0, samples);
        run.outcome = Outcome::Running;
        run
    }

    #[test]
    fn a_run_that_goes_on_begins_with_its_state() {
        let mut run = going_on(20);
        let last = run.samples.last_mut().unwrap();
        last.fill_ratio = 0.5;
        (run.plan.goal.fill_ratio, run.plan.goal.time_max_s) = (2.0, None);
        let page = document(&run).main_html();
        let now = &page[page.find("<h2>Now</h2>").unwrap()..page.find("<h2>Trace</h2>").unwrap()];
        for part in
            ["<progress max=\"1\" value=\"0.25\">", "25.0 %", "at the pace of the last 10 samples"]
        {
            assert!(now.contains(part), "{part}: {now}");
        }
        assert!(now.contains("Next load") && now.contains("Decision"), "{now}");
        assert_eq!(now.matches("<tr>").count(), 1 + 4 + 1 + DECISIONS, "{now}");
        run.outcome = Outcome::Filled;
        assert!(!document(&run).main_html().contains("<h2>Now</h2>"));
    }

    #[test]
    fn what_is_not_reached_is_not_judged() {
        let mut run = going_on(20);
        run.plan.goal.fill_ratio = run.samples.last().unwrap().fill_ratio * 2.0;
        run.summary.lab_limited_share = 1.0;
        run.summary.lab_limited = Some("its users were busy".to_owned());
        let page = document(&run).main_html();
        assert!(page.contains("Not judged yet") && !page.contains("class=\"grave\""), "{page}");
        assert!(!page.contains("Sustained, answers/s"), "no result before its time");
        assert!(!page.contains("class=\"band\""), "no last quarter before its time");
        run.plan.goal.fill_ratio = run.samples.last().unwrap().fill_ratio;
        assert!(warnings(&run).iter().any(|warning| warning.grave));
        run.plan.goal.fill_ratio *= 2.0;
        run.total.faults.insert(humboldt_lab_record::FaultKind::WrongByte, 1);
        assert!(warnings(&run).iter().any(|warning| warning.heading == "Wrong content"));
    }

    #[test]
    fn what_ends_a_run_first_is_its_progress() {
        let mut run = going_on(20);
        let last = run.samples.last_mut().unwrap();
        (last.fill_ratio, last.at_s) = (0.5, 90.0);
        (run.plan.goal.fill_ratio, run.plan.goal.time_max_s) = (2.0, Some(100.0));
        assert_eq!(progress(&run), 0.9);
        assert_eq!(time_left(&run).0, "at most 0:10");
        run.plan.goal.fill_ratio = 0.5;
        assert_eq!(time_left(&run).0, "soon");
        assert_eq!(progress(&Run::default()), 0.0);
    }
}
