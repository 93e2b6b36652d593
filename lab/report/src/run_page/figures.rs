//! The plots of a run over its fill ratio, and its distributions.

use super::now;
use crate::document::Figure;
use crate::format::percent;
use crate::plot::{Axis, Band, Line, Plot, Rule, Size};
use humboldt_lab_record::{Histogram, Run, Sample};

/// As many thresholds are drawn: more would hide the plot.
const RULES_MAX: usize = 4;

/// One value of every sample over the fill ratio (over time if nothing was filled).
pub(crate) fn over_fill(run: &Run, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let by_fill = fills(run);
    let x = |sample: &Sample| if by_fill { sample.fill_ratio } else { sample.at_s };
    run.samples.iter().map(|sample| (x(sample), value(sample))).collect()
}

fn fills(run: &Run) -> bool {
    run.samples.last().is_none_or(|sample| sample.fill_ratio > 0.0)
}

fn fill_axis(run: &Run) -> Axis {
    let label = if fills(run) { "fill ratio (bytes filled ÷ cache size)" } else { "time, s" };
    Axis::linear(label).tight()
}

fn last_quarter(run: &Run) -> Vec<Band> {
    let (from, to) = (run.summary.from_fill_ratio, run.summary.to_fill_ratio);
    if !fills(run) || to <= 0.0 || from >= to || now::judged_from(run).is_some() {
        return Vec::new();
    }
    vec![Band { from, to, name: "last quarter".to_owned() }]
}

fn plot_over_fill(run: &Run, title: &str, description: &str, y: Axis, lines: Vec<Line>) -> Plot {
    Plot {
        title: title.to_owned(),
        description: description.to_owned(),
        size: Size::Half,
        x: fill_axis(run),
        y,
        lines,
        bands: last_quarter(run),
        rules: Vec::new(),
    }
}

/// `value` if there is something behind it, else a gap.
fn known(count: u64, value: f64) -> f64 {
    if count > 0 { value } else { f64::NAN }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

/// Throughput against fill ratio, with the offered load: the book's figure.
pub(crate) fn trace(run: &Run) -> Figure {
    let lines = vec![
        Line::straight("answers/s", 0, over_fill(run, Sample::throughput_per_s)),
        Line::step("offered load", 1, over_fill(run, |sample| sample.load_per_s)),
    ];
    let description = "Answers per second and offered requests per second against the fill ratio.";
    let axis = Axis::linear("answers/s");
    let plot = Plot {
        size: Size::Whole,
        ..plot_over_fill(run, "Throughput against fill ratio", description, axis, lines)
    };
    let caption = "Fill counts the bytes that could be stored. At 1 a cache that stored all of \
                   them is full; one that stored less is not. Where the offered load lies above \
                   the answers, the cache did not keep up.";
    Figure::draw("trace", caption, &plot)
}

/// What the store holds against what could have been stored; none if the subject does not say it.
pub(crate) fn stored(run: &Run) -> Option<Figure> {
    run.summary.stored_ratio?;
    let size = run.plan.cache_bytes.max(1) as f64;
    let held = |sample: &Sample| {
        let bytes = sample.resources.and_then(|resources| resources.stored_bytes);
        bytes.map_or(f64::NAN, |bytes| bytes as f64 / size)
    };
    let lines = vec![
        Line::straight("stored", 0, over_fill(run, held)),
        Line::straight("could have been", 1, over_fill(run, |sample| sample.fill_ratio.min(1.0))),
    ];
    let description = "Bytes in the store ÷ cache size, and fill, cut at a full cache.";
    let plot = plot_over_fill(run, "Stored", description, Axis::linear("÷ cache size"), lines);
    let caption = "The cache is full, and replaces, where the upper line has become level. Where \
                   stored lies far below, the cache refused to store what it could have.";
    Some(Figure::draw("stored", caption, &plot))
}

/// Response times against fill ratio.
pub(crate) fn response_times(run: &Run) -> Figure {
    let hits = |sample: &Sample| {
        let times = &sample.tally.hits.response;
        known(times.count(), ms(times.percentile_us(95.0)))
    };
    let misses = |sample: &Sample| {
        let times = &sample.tally.misses.response;
        known(times.count(), ms(times.percentile_us(95.0)))
    };
    let all = |sample: &Sample| known(sample.tally.answers(), mean_response_ms(sample));
    let lines = vec![
        Line::straight("mean of all", 0, over_fill(run, all)),
        Line::straight("p95 of hits", 1, over_fill(run, hits)),
        Line::straight("p95 of misses", 2, over_fill(run, misses)),
    ];
    let description = "Mean of all response times, 95th percentiles of hits and of misses, against the fill ratio.";
    let axis = Axis::log("response time, ms");
    let mut plot = plot_over_fill(run, "Response times", description, axis, lines);
    plot.rules = thresholds(run, |name| !name.contains("added") && is_of_response(name));
    Figure::draw(
        "response",
        "Logarithmic. Misses contain the servers' think time. Dotted: the controller's thresholds.",
        &plot,
    )
}

/// The mean of a sample's response times without merging its histograms.
pub(crate) fn mean_response_ms(sample: &Sample) -> f64 {
    let classes = [&sample.tally.hits, &sample.tally.misses, &sample.tally.others];
    let sum_us: u128 = classes.iter().map(|class| class.response.sum_us()).sum();
    let count: u64 = classes.iter().map(|class| class.response.count()).sum();
    if count == 0 { 0.0 } else { sum_us as f64 / count as f64 / 1e3 }
}

/// Time that the cache and waiting added, against fill ratio.
pub(crate) fn added_times(run: &Run) -> Figure {
    let line = |name: &str, look: usize, times: fn(&Sample) -> &Histogram, percentile: f64| {
        let value = move |sample: &Sample| {
            let times = times(sample);
            known(times.count(), ms(times.percentile_us(percentile)))
        };
        Line::straight(name, look, over_fill(run, value))
    };
    let lines = vec![
        line("p95, hits", 0, |sample| &sample.tally.hits.added, 95.0),
        line("p50, hits", 1, |sample| &sample.tally.hits.added, 50.0),
        line("p95, misses", 2, |sample| &sample.tally.misses.added, 95.0),
        line("p50, misses", 3, |sample| &sample.tally.misses.added, 50.0),
    ];
    let description = "Median and 95th percentile of the time added to hits and to misses, against the fill ratio.";
    let mut plot = plot_over_fill(
        run,
        "Time added by the cache",
        description,
        Axis::log("added time, ms"),
        lines,
    );
    plot.rules = thresholds(run, |name| name.contains("added"));
    Figure::draw(
        "added",
        "Without the servers' think time and the links: the time in the cache and in queues.",
        &plot,
    )
}

fn is_of_response(name: &str) -> bool {
    ["response", "mean", "rptm", "measuring", "filling"].iter().any(|word| name.contains(word))
}

/// The durations among the controller's settings whose names are chosen, as horizontal lines.
fn thresholds(run: &Run, chosen: impl Fn(&str) -> bool) -> Vec<Rule> {
    let named = run.plan.settings.iter().filter(|(name, _)| chosen(&name.to_lowercase()));
    let rules = named.flat_map(|(name, value)| {
        durations_ms(value).into_iter().map(move |y| Rule { y, name: format!("{name}: {value}") })
    });
    rules.take(RULES_MAX).collect()
}

/// Every duration in a text such as `250 ms` or `1.50–1.75 s`, in ms.
fn durations_ms(text: &str) -> Vec<f64> {
    let mut found = Vec::new();
    let mut without_unit: Vec<f64> = Vec::new();
    for word in
        text.split(|c: char| c.is_whitespace() || matches!(c, '–' | '…' | ',' | '(' | ')' | ';'))
    {
        let factor = match word {
            "ms" => 1.0,
            "s" => 1000.0,
            _ => {
                match word.parse::<f64>() {
                    Ok(value) if value > 0.0 && value.is_finite() => without_unit.push(value),
                    // "1.50 to 1.75 s" is a range; any other word ends it.
                    _ if matches!(word, "" | "to" | "and") => {}
                    _ => without_unit.clear(),
                }
                continue;
            }
        };
        found.extend(without_unit.drain(..).map(|value| value * factor));
    }
    found
}

/// Hit ratio against fill ratio.
pub(crate) fn hit_ratio(run: &Run) -> Figure {
    let plain = |sample: &Sample| sample.tally.hits.answers + sample.tally.misses.answers;
    let offered = |sample: &Sample| {
        known(plain(sample), 100.0 * sample.tally.offered_hits as f64 / plain(sample).max(1) as f64)
    };
    let hits = |sample: &Sample| known(plain(sample), 100.0 * sample.hit_ratio());
    let lines = vec![
        Line::straight("hit ratio", 0, over_fill(run, hits)),
        Line::straight("offered", 1, over_fill(run, offered)),
    ];
    let description =
        "Hits in per cent of answers to plain GETs, and the hits that the requests offered.";
    let axis = Axis::linear("% of plain answers").at_least(0.0, 60.0);
    let mut plot = plot_over_fill(run, "Hit ratio", description, axis, lines);
    let ideal = run.plan.ideal_hit_ratio;
    if ideal > 0.0 {
        plot.rules.push(Rule { y: 100.0 * ideal, name: format!("ideal {}", percent(ideal)) });
    }
    Figure::draw(
        "hits",
        "Offered: repeats of something cachable, which an ideal cache would have answered.",
        &plot,
    )
}

/// Byte hit ratio against fill ratio.
pub(crate) fn byte_hit_ratio(run: &Run) -> Figure {
    let plain = |sample: &Sample| sample.tally.hits.body_bytes + sample.tally.misses.body_bytes;
    let offered = |sample: &Sample| {
        known(
            plain(sample),
            100.0 * sample.tally.offered_hit_bytes as f64 / plain(sample).max(1) as f64,
        )
    };
    let hits = |sample: &Sample| known(plain(sample), 100.0 * sample.byte_hit_ratio());
    let lines = vec![
        Line::straight("byte hit ratio", 0, over_fill(run, hits)),
        Line::straight("offered", 1, over_fill(run, offered)),
    ];
    let description = "Bytes from hits in per cent of all bytes of plain answers, and those that the requests offered.";
    let axis = Axis::linear("% of plain bytes").at_least(0.0, 60.0);
    let plot = plot_over_fill(run, "Byte hit ratio", description, axis, lines);
    Figure::draw("bytehits", "Large objects weigh more here than in the hit ratio.", &plot)
}

/// Requests that wait.
pub(crate) fn backlog(run: &Run) -> Figure {
    let lines = vec![
        Line::straight("backlog", 0, over_fill(run, |sample| sample.tally.backlog as f64)),
        Line::straight("waiting", 1, over_fill(run, |sample| sample.tally.waiting as f64)),
        Line::straight("connections", 2, over_fill(run, |sample| sample.tally.connections as f64)),
    ];
    let description =
        "Requests due and not answered, those of them not sent, and open connections.";
    let axis = Axis::linear("at the end of the sample");
    let plot = plot_over_fill(run, "Backlog", description, axis, lines);
    let caption = "Requests that are due and not answered; waiting: not even sent. A backlog that grows means overload.";
    Figure::draw("backlog", caption, &plot)
}

/// The classes whose distributions are drawn, with their names.
pub(crate) fn classes(run: &Run) -> Vec<(&'static str, &Histogram)> {
    let tally = &run.last_quarter;
    vec![
        ("hits", &tally.hits.response),
        ("misses", &tally.misses.response),
        ("added to hits", &tally.hits.added),
        ("added to misses", &tally.misses.added),
    ]
}

/// Cumulative distributions of times, over a logarithmic axis.
pub(crate) fn distribution(id: &str, title: &str, classes: &[(&str, &Histogram)]) -> Figure {
    let lines = classes
        .iter()
        .enumerate()
        .map(|(look, (name, times))| Line::straight(name, look, cumulative(times)));
    let plot = Plot {
        title: title.to_owned(),
        description: "Share of answers that took no longer than a time.".to_owned(),
        size: Size::Half,
        x: Axis::log("time, ms"),
        y: Axis::linear("% of answers").at_least(0.0, 100.0),
        lines: lines.collect(),
        bands: Vec::new(),
        rules: Vec::new(),
    };
    Figure::draw(id, "The share of the answers that took no longer than a time.", &plot)
}

/// (time in ms, share in per cent of values up to it), rising from zero.
pub(crate) fn cumulative(times: &Histogram) -> Vec<(f64, f64)> {
    let total = times.count().max(1) as f64;
    let mut below: u64 = 0;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (value_us, count) in times.buckets() {
        // A duration of 0 µs has no place on a logarithmic axis; it is less than one.
        let value_ms = ms(value_us.max(1));
        if points.is_empty() {
            points.push((value_ms, 0.0));
        }
        below = below.saturating_add(count);
        points.push((value_ms, 100.0 * below as f64 / total));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_found_in_settings() {
        assert_eq!(durations_ms("250 ms"), [250.0]);
        assert_eq!(durations_ms("1.50–1.75 s"), [1500.0, 1750.0]);
        assert_eq!(durations_ms("1.50 to 1.75 s"), [1500.0, 1750.0]);
        assert_eq!(durations_ms("2 samples, 20 ms"), [20.0]);
        assert!(durations_ms("5 %").is_empty());
    }

    #[test]
    fn a_distribution_ends_at_100_per_cent() {
        let mut times = Histogram::default();
        [0, 5, 5, 1000].iter().for_each(|value| times.record_us(*value));
        let points = cumulative(&times);
        assert_eq!(points.first().map(|point| point.1), Some(0.0));
        assert_eq!(points.last().map(|point| point.1), Some(100.0));
        assert!(points.iter().all(|point| point.0 > 0.0));
        assert!(cumulative(&Histogram::default()).is_empty());
    }
}
