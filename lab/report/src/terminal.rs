//! A run as lines of text for a terminal. No colours: the caller knows whether there is a terminal.

use crate::format::{NOTHING, count, duration, milliseconds, number, percent, plain, rough};
use crate::run_page;
use humboldt_lab_record::{CurveStep, Outcome, Run, Sample};

/// As many characters of the controller's state are shown, and of its reason.
const STATE_CHARS_MAX: usize = 60;
const REASON_CHARS_MAX: usize = 400;
/// Width of the last column in characters. A longer reason goes on in the next line.
const DECISION_WIDTH: usize = 72;
/// The time left is estimated from this many samples.
const RECENT_SAMPLES: usize = 10;

/// Widths of the columns of a live line, but the last.
const WIDTHS: [usize; 11] = [8, 9, 9, 9, 9, 9, 8, 7, 8, 7, 8];
const NAMES: [&str; 11] = [
    "time",
    "load/s",
    "answers/s",
    "mean",
    "p95 hit",
    "p95 miss",
    "hits",
    "fill",
    "backlog",
    "errors",
    "left",
];

/// Width of the columns before the last one.
fn indent() -> usize {
    WIDTHS.iter().map(|width| width + 1).sum::<usize>() + 1
}

fn columns<T: AsRef<str>>(cells: [T; WIDTHS.len()], last: &str) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        line.push_str(&format!("{:>width$} ", cell.as_ref()));
    }
    line.push(' ');
    line.push_str(last);
    line.trim_end().to_owned()
}

/// The names of the columns of [`live_line`].
#[must_use]
pub fn live_header() -> String {
    columns(NAMES, "controller")
}

/// The last sample of a run as one line, or more if the reason of the decision is long; empty
/// without a sample. Of a sustained sample, only the criterion that is nearest to its limit is
/// shown: the report has the others.
#[must_use]
pub fn live_line(run: &Run) -> String {
    let Some(sample) = run.samples.last() else { return String::new() };
    let tally = &sample.tally;
    let shown = |count: u64, text: String| if count > 0 { text } else { NOTHING.to_owned() };
    let p95 = |times: &humboldt_lab_record::Histogram| {
        shown(times.count(), milliseconds(times.percentile_us(95.0) as f64 / 1e3))
    };
    let cells = [
        duration(sample.at_s),
        rough(sample.load_per_s),
        rough(sample.throughput_per_s()),
        shown(tally.answers(), milliseconds(run_page::mean_response_ms(sample))),
        p95(&tally.hits.response),
        p95(&tally.misses.response),
        shown(tally.hits.answers + tally.misses.answers, percent(sample.hit_ratio())),
        number(sample.fill_ratio, 3),
        count(tally.backlog),
        count(tally.faults_total()),
        time_left_s(run).map_or(NOTHING.to_owned(), duration),
    ];
    let mut lines = wrapped(&decision(sample), DECISION_WIDTH).into_iter();
    let mut out = columns(cells, &lines.next().unwrap_or_default());
    for line in lines {
        out.push_str(&format!("\n{:indent$}{line}", "", indent = indent()));
    }
    out
}

/// The decision after a sample: state and reason.
pub(crate) fn decision(sample: &Sample) -> String {
    let verdict = &sample.verdict;
    let mut text = plain(&verdict.state, STATE_CHARS_MAX);
    let reason = match verdict.reason.split_once(", ") {
        Some((nearest, _)) if verdict.sustained => nearest,
        _ => &verdict.reason,
    };
    if !reason.is_empty() {
        text = format!("{text}: {}", plain(reason, REASON_CHARS_MAX));
    }
    if sample.is_spoiled() {
        text.push_str(" [spoiled]");
    }
    text
}

/// `text` in lines of at most `width` characters, broken between words. A longer word has a line of
/// its own.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The basis of an estimate of the time left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The fill of this many last samples.
    Fill {
        /// Their number.
        samples: usize,
    },
    /// The longest time of the run.
    Time,
}

/// Remaining time of a run at the pace of its last samples, in seconds; `None` if it is not known.
#[must_use]
pub fn time_left_s(run: &Run) -> Option<f64> {
    pace(run).map(|(left_s, _)| left_s)
}

/// The same with its basis.
pub(crate) fn pace(run: &Run) -> Option<(f64, Pace)> {
    let last = run.samples.last()?;
    let goal = run.plan.goal;
    let first: &Sample = run.samples.get(run.samples.len().saturating_sub(RECENT_SAMPLES + 1))?;
    let (filled, seconds) = match run.samples.len() {
        1 => (last.fill_ratio, last.at_s),
        _ => (last.fill_ratio - first.fill_ratio, last.at_s - first.at_s),
    };
    let samples = run.samples.len().min(RECENT_SAMPLES);
    let until_filled = (goal.fill_ratio - last.fill_ratio).max(0.0) * seconds / filled;
    let until_filled = (filled > 0.0 && until_filled.is_finite())
        .then_some((until_filled, Pace::Fill { samples }));
    let until_time = goal.time_max_s.map(|end| ((end - last.at_s).max(0.0), Pace::Time));
    match (until_filled, until_time) {
        (Some(filled), Some(time)) => Some(if time.0 < filled.0 { time } else { filled }),
        (filled, time) => filled.or(time),
    }
}

/// The end of a run in a few lines: the sentence, the warnings, the times, and the course as a
/// sparkline.
#[must_use]
pub fn summary_text(run: &Run) -> String {
    let mut out = format!("{}\n{}\n", run_page::title(run), run_page::lead(run));
    let rates: Vec<f64> = run.samples.iter().map(Sample::throughput_per_s).collect();
    if rates.len() > 1 {
        let highest = rates.iter().copied().fold(0.0, f64::max);
        out.push_str(&format!("answers/s  {}  up to {}\n", sparkline(&rates, 60), rough(highest)));
    }
    let summary = &run.summary;
    for (name, times) in [("hits", summary.hits), ("misses", summary.misses)] {
        if times.count > 0 {
            let [p50, p95, p99] = [times.p50_ms, times.p95_ms, times.p99_ms].map(milliseconds);
            let mean = milliseconds(times.mean_ms);
            out.push_str(&format!("{name:<9}  mean {mean}, p50 {p50}, p95 {p95}, p99 {p99}\n"));
        }
    }
    out.push_str(&figures_text(run));
    for warning in run_page::warnings(run) {
        let word = if warning.grave { "WARNING" } else { "note" };
        out.push_str(&format!("{word}: {}. {}\n", warning.heading, warning.text));
    }
    if run.outcome == Outcome::Running {
        out.push_str("(still running)\n");
    }
    out
}

/// Flatness, what was stored, its cost, and the curve, as far as they are known.
fn figures_text(run: &Run) -> String {
    let mut out = format!("flatness   {}\n", run_page::flatness(run));
    out.push_str(&format!("stored     {}\n", run_page::filled(run)));
    if let Some(written) = run_page::written(&run.summary) {
        out.push_str(&format!("written    {written}\n"));
    }
    if !run.curve.is_empty() {
        out.push_str("response times at parts of the load:\n");
    }
    for step in &run.curve {
        out.push_str(&format!("{}\n", curve_line(step)));
    }
    out
}

/// One load of a curve as a line.
#[must_use]
pub fn curve_line(step: &CurveStep) -> String {
    let times = |times: &humboldt_lab_record::TimesSummary| {
        let shown = [times.p50_ms, times.p95_ms, times.p99_ms].map(milliseconds);
        if times.count > 0 { shown.join(" / ") } else { NOTHING.to_owned() }
    };
    format!(
        "{:>6}  offered {}/s, answered {}/s, mean {}, p50 / p95 / p99 of hits {}, of misses {}",
        percent(step.share),
        rough(step.offered_per_s),
        rough(step.answered_per_s),
        milliseconds(step.response.mean_ms),
        times(&step.hits),
        times(&step.misses),
    )
}

/// `values` as a line of at most `width` block characters from zero to the largest; of several
/// values that share a character, the mean is shown. A value that is not finite is a blank.
#[must_use]
pub fn sparkline(values: &[f64], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if width == 0 || values.is_empty() {
        return String::new();
    }
    let width = width.min(values.len());
    let means: Vec<f64> = (0..width)
        .map(|column| {
            let part =
                values.get(column * values.len() / width..(column + 1) * values.len() / width);
            let finite: Vec<f64> =
                part.unwrap_or_default().iter().copied().filter(|v| v.is_finite()).collect();
            if finite.is_empty() {
                f64::NAN
            } else {
                finite.iter().sum::<f64>() / finite.len() as f64
            }
        })
        .collect();
    let highest = means.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let block = |value: &f64| {
        if !value.is_finite() {
            return ' ';
        }
        let share = if highest > 0.0 { (value / highest).clamp(0.0, 1.0) } else { 0.0 };
        BLOCKS.get((share * 7.0).round() as usize).copied().unwrap_or(' ')
    };
    means.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;
    use humboldt_lab_record::Flatness;

    #[test]
    fn a_live_line_stands_under_its_header() {
        let mut run = synthetic("squid:aufs", 100.0, 40);
        if let Some(sample) = run.samples.last_mut() {
            sample.verdict.state = "climb\u{1b}[2J".to_owned();
        }
        let (header, line) = (live_header(), live_line(&run));
        let begins =
            |text: &str, last: &str| text.split(last).next().map(|before| before.chars().count());
        assert_eq!(begins(&header, "controller"), begins(&line, "climb"), "\n{header}\n{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
        assert_eq!(live_line(&Run::default()), "");
    }

    #[test]
    fn a_reason_is_shortened_to_the_nearest_criterion_and_never_cut() {
        let mut run = synthetic("squid:aufs", 100.0, 40);
        let verdict = &mut run.samples.last_mut().unwrap().verdict;
        verdict.state = "hold".to_owned();
        verdict.sustained = true;
        verdict.reason = "mean added 55 ms of 500 ms, p95 added to hits 10 ms".to_owned();
        assert!(live_line(&run).ends_with("  hold: mean added 55 ms of 500 ms"), "{run:?}");
        let long = "1,200 requests queue, the oldest for 12.00 s, and many a word more of what went \
                    wrong here until the end";
        let verdict = &mut run.samples.last_mut().unwrap().verdict;
        (verdict.sustained, verdict.reason) = (false, long.to_owned());
        let line = live_line(&run);
        assert!(line.lines().count() == 2 && !line.contains('…'), "{line}");
        let below = line.lines().nth(1).unwrap();
        assert_eq!(below.chars().take_while(|c| *c == ' ').count(), indent());
        assert!(below.ends_with("until the end"), "{line}");
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert!(wrapped("", 7).is_empty());
    }

    #[test]
    fn the_time_left_follows_the_pace() {
        let mut run = Run::default();
        run.plan.goal.fill_ratio = 2.0;
        assert_eq!(time_left_s(&run), None);
        for index in 1..=20u32 {
            let (at_s, fill_ratio) = (f64::from(index) * 10.0, f64::from(index) * 0.05);
            run.samples.push(Sample { at_s, fill_ratio, ..Sample::default() });
        }
        assert!(time_left_s(&run).is_some_and(|left| (left - 200.0).abs() < 1e-6));
        run.plan.goal.time_max_s = Some(230.0);
        assert_eq!(time_left_s(&run), Some(30.0));
    }

    #[test]
    fn sparklines_keep_their_width_and_shape() {
        assert_eq!(sparkline(&[0.0, 7.0, 3.5, f64::NAN], 10), "▁█▅ ");
        let long: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(sparkline(&long, 8).chars().count(), 8);
        assert_eq!(sparkline(&[0.0, 0.0], 8), "▁▁");
        assert_eq!(sparkline(&[], 8), "");
    }

    #[test]
    fn the_summary_has_flatness_and_curve_or_says_that_they_are_not_known() {
        let mut run = synthetic("squid:aufs", 100.0, 40);
        run.summary.flatness = None;
        assert!(summary_text(&run).contains("flatness   not known"));
        run.summary.flatness = Some(Flatness { slope: -0.1, low: -0.15, high: -0.05 });
        run.summary.stored_ratio = Some(0.93);
        let mut step = CurveStep { share: 0.25, offered_per_s: 250.0, ..CurveStep::default() };
        (step.hits.count, step.hits.p95_ms) = (9, 12.0);
        run.curve = vec![step];
        let text = summary_text(&run);
        assert!(text.contains("−10.0 % (−15.0 % to −5.0 %)"), "{text}");
        assert!(text.contains("stored     0.93 of the cache, "), "{text}");
        assert!(text.contains("25.0 %  offered 250/s"), "{text}");
        assert!(text.contains("/ 12.0 ms /") && text.contains("of misses –"), "{text}");
    }

    #[test]
    fn the_summary_says_what_is_wrong() {
        let mut run = synthetic("squid:aufs", 100.0, 40);
        run.summary.lab_limited_share = 0.8;
        run.summary.lab_limited = Some("robots had 3 % CPU left".to_owned());
        let text = summary_text(&run);
        assert!(text.contains("WARNING: Not measured: the laboratory"), "{text}");
        assert!(text.starts_with("squid:aufs"), "{text}");
    }
}
