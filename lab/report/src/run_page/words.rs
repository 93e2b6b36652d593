//! The result in a sentence, and the warnings.

use super::now;
use crate::document::Warning;
use crate::format::{
    count, counted, date_time, duration, milliseconds, number, percent, plain, rough, share,
};
use humboldt_lab_record::{FaultKind, Outcome, Run, Steadiness};

/// Above this share of the laboratory's rate without a cache, the laboratory may be the limit.
const NEAR_CALIBRATION: f64 = 0.8;
/// A last quarter of fewer samples has little meaning.
const FEW_SAMPLES: u32 = 20;
/// A smaller share of requests without a right answer may be chance.
const FAULT_SHARE_GRAVE: f64 = 0.001;
/// A result that may differ more from that of the next run is not steady.
const HALF_INTERVAL_STEADY: f64 = 0.05;
/// If the laboratory's own work takes this many times as long in one part of a run as in another,
/// the machine has changed its speed.
const SPEEDS_UNLIKE: f64 = 1.25;
/// As many characters of a reason are shown.
const REASON_CHARS_MAX: usize = 400;
/// As many of each part of the evidence.
const EVIDENCE_CHARS_MAX: usize = 200;

/// The title of the page: subject and variant.
pub(crate) fn title(run: &Run) -> String {
    let subject = plain(&run.plan.subject, 80);
    let subject = if subject.is_empty() { "a subject without a name".to_owned() } else { subject };
    if run.plan.variant.is_empty() {
        subject
    } else {
        format!("{subject} · {}", plain(&run.plan.variant, 120))
    }
}

/// Workload, controller, date, version.
pub(crate) fn subtitle(run: &Run) -> String {
    let plan = &run.plan;
    let mut parts = vec![
        format!("workload {}", plain(&plan.workload, 60)),
        format!("controller {}", plain(&plan.controller, 60)),
        format!("seed {}", plan.seed),
        format!("started {}", date_time(run.started_s)),
    ];
    if !run.manifest.lab_version.is_empty() {
        parts.push(format!("humboldt-lab {}", plain(&run.manifest.lab_version, 60)));
    }
    parts.join(" · ")
}

/// The result in one sentence.
pub(crate) fn lead(run: &Run) -> String {
    let summary = &run.summary;
    let Some(last) = run.samples.last() else {
        return "No sample was completed, so there is no result.".to_owned();
    };
    let so_far = match run.outcome {
        Outcome::Running => format!(
            "So far ({} since the load began, fill ratio {} of {}): ",
            duration(last.at_s),
            number(last.fill_ratio, 2),
            number(run.plan.goal.fill_ratio, 2)
        ),
        _ => String::new(),
    };
    if let Some(from) = now::judged_from(run) {
        return format!(
            "{so_far}answered {} requests/s in the last sample. The result is the last quarter, from fill ratio {} on.",
            rough(last.throughput_per_s()),
            number(from, 2)
        );
    }
    let rate = format!("{}{}", rate(run), interval(run));
    let text = format!(
        "{so_far}{rate} (last quarter, fill ratio {}–{}) with a hit ratio of {} (ideal {}) and a mean response time \
         of {} (p95 of hits {}, of misses {}).",
        number(summary.from_fill_ratio, 2),
        number(summary.to_fill_ratio, 2),
        percent(summary.hit_ratio),
        percent(run.plan.ideal_hit_ratio),
        milliseconds(summary.response.mean_ms),
        milliseconds(summary.hits.p95_ms),
        milliseconds(summary.misses.p95_ms),
    );
    let text = format!("{text}{}", held_before(run));
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The gravest reason why a run has no result, in a few words; `None` if it has one.
#[must_use]
pub fn objection(run: &Run) -> Option<String> {
    let grave = warnings(run).into_iter().find(|warning| warning.grave)?;
    let mut letters = grave.heading.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
    Some(first + letters.as_str())
}

/// The rate in words. Under a grave warning there is no result, only what was seen.
fn rate(run: &Run) -> String {
    let (summary, answered) = (&run.summary, rough(run.summary.throughput_per_s));
    let is_over = run.outcome != Outcome::Running;
    match (summary.sustained_per_s, objection(run)) {
        (_, Some(objection)) if is_over => {
            format!("no result: {objection}. It answered {answered} requests/s")
        }
        (None, _) => format!("answered {answered} requests/s and sustained no load"),
        (Some(sustained), _) if summary.limit_reached == Some(false) => {
            format!("sustains at least {} answers/s; its limit was not reached", rough(sustained))
        }
        (Some(sustained), _) if summary.limit_reached.is_none() => format!(
            "sustains {} answers/s (whether its limit was reached is not recorded)",
            rough(sustained)
        ),
        (Some(sustained), _) => format!("sustains {} answers/s", rough(sustained)),
    }
}

/// How far the rate may be from that of a repeat, by what changed within the last quarter.
fn interval(run: &Run) -> String {
    let known = run.summary.steadiness.filter(|_| run.outcome != Outcome::Running);
    known.map_or(String::new(), |known| format!(" ± {}", percent(known.throughput_half_interval)))
}

/// The highest load that was held, where the end of the run does not show it.
fn held_before(run: &Run) -> String {
    match run.summary.held.first() {
        Some(held) if run.summary.sustained_per_s.is_none() => format!(
            " The highest load that it held was {}/s, in {} (to fill ratio {}).",
            rough(held.load_per_s),
            counted(u64::from(held.samples), "sample"),
            number(held.fill_ratio, 2)
        ),
        _ => String::new(),
    }
}

fn grave(heading: &str, text: String) -> Warning {
    Warning { grave: true, heading: heading.to_owned(), text }
}

fn mild(heading: &str, text: String) -> Warning {
    Warning { grave: false, heading: heading.to_owned(), text }
}

/// Everything that a reader must know before believing the figures, the gravest first. Of a run
/// that has not come to its last quarter, nothing about that quarter.
pub(crate) fn warnings(run: &Run) -> Vec<Warning> {
    let is_judged = now::judged_from(run).is_none();
    let of_quarter = [lab_limited(run), other_faults(run), near_calibration(run)];
    let of_quarter = of_quarter.into_iter().flatten().filter(|_| is_judged);
    let always = [wrong_content(run), ended(run)].into_iter().flatten();
    let mut found: Vec<Warning> = always.chain(of_quarter).collect();
    found.extend(not_steady(run).filter(|_| is_judged));
    found.extend(not_calibrated(run));
    found.extend(time_scale(run));
    found.extend(few_samples(run));
    found.extend(excused(run));
    if !run.manifest.skipped.is_empty() {
        let reasons: Vec<String> =
            run.manifest.skipped.iter().map(|reason| plain(reason, REASON_CHARS_MAX)).collect();
        found.push(mild("Options that were skipped", format!("{}.", reasons.join("; "))));
    }
    found.sort_by_key(|warning| !warning.grave);
    found
}

fn ended(run: &Run) -> Option<Warning> {
    let reached = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    let kept = format!(
        "fill ratio {} of {} was reached",
        number(reached, 2),
        number(run.plan.goal.fill_ratio, 2)
    );
    match &run.outcome {
        Outcome::Failed(reason) => Some(grave(
            "The run failed",
            format!(
                "{}. The measurements until then are kept: {kept}.",
                plain(reason, REASON_CHARS_MAX)
            ),
        )),
        Outcome::Interrupted => Some(grave(
            "The run was interrupted",
            format!("The measurements until then are kept: {kept}."),
        )),
        Outcome::TimeUp if reached < run.plan.goal.fill_ratio => Some(grave(
            "The time was up before the cache was filled as planned",
            format!(
                "Only {kept}; the figures may be those of a cache with more room, which is faster."
            ),
        )),
        _ => None,
    }
}

fn kinds(run: &Run, wrong_content: bool) -> (u64, String) {
    let chosen = FaultKind::ALL.iter().filter(|kind| kind.is_wrong_content() == wrong_content);
    let counts: Vec<(&str, u64)> = chosen
        .filter_map(|kind| run.total.faults.get(kind).map(|count| (kind.label(), *count)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let names: Vec<String> =
        counts.iter().map(|(name, n)| format!("{name} {}", count(*n))).collect();
    (counts.iter().map(|(_, count)| count).sum(), names.join(", "))
}

fn wrong_content(run: &Run) -> Option<Warning> {
    let (wrong, names) = kinds(run, true);
    (wrong > 0).then(|| {
        grave(
            "Wrong content",
            format!(
                "{} had wrong content ({names}). A cache must give none; see Errors.{}",
                counted(wrong, "answer"),
                first_evidence(run)
            ),
        )
    })
}

/// Enough of the first wrong answer to look for its cause.
fn first_evidence(run: &Run) -> String {
    let Some(sample) =
        run.total.fault_samples.iter().find(|sample| sample.fault.kind.is_wrong_content())
    else {
        return String::new();
    };
    let fault = &sample.fault;
    let place = fault.offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
    let [url, expected, got] =
        [&sample.url, &fault.expected, &fault.got].map(|text| plain(text, EVIDENCE_CHARS_MAX));
    format!(" The first: {url}: {}{place}: expected {expected}, got {got}.", fault.kind)
}

fn other_faults(run: &Run) -> Option<Warning> {
    let (faults, names) = kinds(run, false);
    let share = share(faults, run.total.answers() + run.total.faults_total());
    // A cache that refuses what is too much for it makes errors whenever the search goes there.
    let (last, late_faults) = (&run.last_quarter, run.last_quarter.faults_total());
    let late_share = late_faults as f64 / (last.answers() + late_faults).max(1) as f64;
    let is_grave = run.summary.sustained_per_s.is_none() && late_share > FAULT_SHARE_GRAVE;
    (faults > 0).then(|| Warning {
        grave: is_grave,
        heading: "Errors".to_owned(),
        text: format!(
            "{} got no right answer ({names}): {share} of all.",
            counted(faults, "request")
        ),
    })
}

fn lab_limited(run: &Run) -> Option<Warning> {
    let share = run.summary.lab_limited_share;
    let reason = run.summary.lab_limited.as_deref().unwrap_or("no reason was kept");
    let spoiled = format!(
        "{} of the samples of the last quarter were spoiled: {}.",
        percent(share),
        plain(reason, REASON_CHARS_MAX)
    );
    if run.summary.is_spoiled() {
        let text = format!("{spoiled} They say nothing about the cache.");
        return Some(grave("Not measured: the laboratory or its machine was the limit", text));
    }
    (share > 0.0).then(|| {
        mild("Spoiled samples", format!("{spoiled} They are in no figure of the last quarter."))
    })
}

/// Said of a run whose repeat would hardly give the same.
fn not_steady(run: &Run) -> Option<Warning> {
    let known = run.summary.steadiness?;
    (known.throughput_half_interval > HALF_INTERVAL_STEADY).then(|| {
        mild(
            "Not steady",
            format!(
                "In six parts of the last quarter it answered from {} to {} requests/s, so a repeat may differ by \
                 {} (95 % interval).{}",
                rough(known.throughput_low_per_s),
                rough(known.throughput_high_per_s),
                percent(known.throughput_half_interval),
                unlike_speeds(&known)
            ),
        )
    })
}

fn unlike_speeds(known: &Steadiness) -> String {
    let (low_us, high_us) = (known.lab_cpu_low_us, known.lab_cpu_high_us);
    if high_us <= low_us * SPEEDS_UNLIKE {
        return String::new();
    }
    format!(
        " The laboratory does the same work for each answer, and it took from {} to {} µs: the machine itself was \
         not always equally fast, as on a host that others share. Repeat the run at another time, or elsewhere.",
        rough(low_us),
        rough(high_us)
    )
}

/// Said of a run whose nearness to the laboratory's own limit nobody knows.
fn not_calibrated(run: &Run) -> Option<Warning> {
    (run.calibration.is_none() && !run.samples.is_empty()).then(|| {
        mild(
            "Not calibrated",
            "How many requests/s the laboratory reaches without a cache was not measured, so it is not known how near \
             this run came to that."
                .to_owned(),
        )
    })
}

fn near_calibration(run: &Run) -> Option<Warning> {
    let calibration = run.calibration?;
    let throughput = run.summary.throughput_per_s;
    // A lower bound remains one.
    let is_bound = run.summary.limit_reached == Some(false);
    (!is_bound && throughput > NEAR_CALIBRATION * calibration).then(|| {
        grave(
            "Near the limit of the laboratory",
            format!(
                "Without a cache the laboratory itself reached {} requests/s, and this run {}.",
                rough(calibration),
                rough(throughput)
            ),
        )
    })
}

fn time_scale(run: &Run) -> Option<Warning> {
    let scale = run.plan.time_scale;
    (scale != 1.0 && scale.is_finite() && scale > 0.0).then(|| {
        let times = if scale == 0.1 { "a tenth".to_owned() } else { format!("{scale} times those") };
        mild(
            &format!("Time scale {scale}"),
            format!(
                "Think times, thresholds and sample periods are {times} of the published ones, and so are the response \
                 times that can be compared with others' ({} for 1 s).",
                milliseconds(1000.0 * scale)
            ),
        )
    })
}

fn few_samples(run: &Run) -> Option<Warning> {
    let samples = run.summary.samples;
    (samples < FEW_SAMPLES && !run.samples.is_empty() && run.outcome != Outcome::Running).then(
        || {
            mild(
                "Few samples",
                format!(
                    "The last quarter of the run consists of {} only.",
                    counted(u64::from(samples), "sample")
                ),
            )
        },
    )
}

fn excused(run: &Run) -> Option<Warning> {
    (run.total.excused > 0).then(|| {
        mild(
            "Excused hits",
            format!(
                "{} hits after a reload or the like were not counted as errors, because the subject's file excuses \
                 them.",
                count(run.total.excused)
            ),
        )
    })
}
