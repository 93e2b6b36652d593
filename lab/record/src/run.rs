//! A run: its plan, its samples, its summary.

use crate::{CurveStep, Histogram, Manifest, OriginTally, Resources, Tally};
use serde::{Deserialize, Serialize};

/// Version of the format of `summary.json`. A reader refuses newer ones.
pub const RUN_FORMAT: u32 = 1;

/// The plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the subject: `squid:aufs`, `humboldt:ufs`, `attach`.
    pub subject: String,
    /// Text that distinguishes this run from others of the same subject: file system, mount
    /// options, … May be empty.
    pub variant: String,
    /// Name of the workload.
    pub workload: String,
    /// Text of the workload file.
    pub workload_text: String,
    /// Name of the controller: `robust`, `classic`, `constant`.
    pub controller: String,
    /// Its settings, as a table for people: name → value with unit.
    pub settings: Vec<(String, String)>,
    /// All choices of the robots follow from it.
    pub seed: u64,
    /// Think times, thresholds and sample periods are multiplied by this. 1 = as published.
    pub time_scale: f64,
    /// Size of the cache in bytes, the unit of fill.
    pub cache_bytes: u64,
    /// When to stop.
    pub goal: Goal,
    /// Length of a sample in seconds, after scaling.
    pub sample_s: f64,
    /// Share of plain GETs that are offered hits (for something cachable that was asked for
    /// before), by simulation of the workload's stream: the ideal by the classic definition.
    pub ideal_hit_ratio: f64,
}

/// When a run ends by itself.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Goal {
    /// At this fill ratio (fill ÷ cache size).
    pub fill_ratio: f64,
    /// Or after this time in seconds, whatever the fill.
    pub time_max_s: Option<f64>,
}

/// The controller's judgement of a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The load from now on, in requests per second.
    pub next_load_per_s: f64,
    /// Whether the subject sustained the sample's load.
    pub sustained: bool,
    /// Whether the sample says nothing about the subject: the subject warms up, or works off a
    /// queue, or the laboratory or its host spoiled the sample.
    #[serde(default)]
    pub unjudged: bool,
    /// The controller's state: "climb", "hold", "drain", "back off", …
    pub state: String,
    /// Why: "p95 of hits 312 ms > 200 ms".
    pub reason: String,
}

/// The state of a controller that may not raise the load any more.
pub const AT_LOAD_MAX: &str = "at the highest allowed load";

/// The last quarter of a run begins at this share of the fill ratio that it reached.
pub const LAST_QUARTER: f64 = 0.75;

/// If more than this share of the last quarter was spoiled, nothing is known about the subject.
pub const SPOILED_SHARE_MAX: f64 = 0.5;

/// One sample period: a line of `samples.csv`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the sample, from 0.
    pub index: u32,
    /// End of the period, in seconds since the load began.
    pub at_s: f64,
    /// The load that was to be offered, in requests per second.
    pub load_per_s: f64,
    /// Fill ÷ cache size at the period's end.
    pub fill_ratio: f64,
    /// The robots' counts.
    pub tally: Tally,
    /// The origins' counts.
    pub origin: OriginTally,
    /// The subject's resources at the period's end, if it is watched.
    pub resources: Option<Resources>,
    /// The controller's judgement.
    pub verdict: Verdict,
    /// The share of the run's processors that the host of a virtual machine took (steal); `None`
    /// if nobody looked.
    #[serde(default)]
    pub steal: Option<f64>,
    /// The share that other processes took; `None` if nobody looked.
    #[serde(default)]
    pub foreign: Option<f64>,
    /// The reason why this sample shows the limits of the laboratory rather than of the subject, if
    /// so.
    pub lab_limited: Option<String>,
}

impl Sample {
    /// Gives the memory of the histograms' counters back (200 KB each): call it before a sample is
    /// kept.
    pub fn compact(&mut self) {
        self.tally.compact();
        self.origin.lag.compact();
    }

    /// Whether it shows the laboratory or its machine, and says nothing about the subject.
    #[must_use]
    pub fn is_spoiled(&self) -> bool {
        self.lab_limited.is_some()
    }

    /// Right answers per second.
    #[must_use]
    pub fn throughput_per_s(&self) -> f64 {
        per_second(self.tally.answers(), self.tally.period_us)
    }

    /// Hits ÷ answers to plain GETs; 0 without answers.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.tally.hits.answers, self.tally.hits.answers + self.tally.misses.answers)
    }

    /// The same in bytes.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> f64 {
        ratio(self.tally.hits.body_bytes, self.tally.hits.body_bytes + self.tally.misses.body_bytes)
    }
}

/// `count` per second over a period in µs; 0 for an empty period.
pub(crate) fn per_second(count: u64, period_us: u64) -> f64 {
    if period_us == 0 { 0.0 } else { count as f64 * 1e6 / period_us as f64 }
}

/// `part` ÷ `whole`; 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A few points of a distribution, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimesSummary {
    /// Number of answers.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95 of 100 were faster.
    pub p95_ms: f64,
    /// 99 of 100 were faster.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

impl From<&Histogram> for TimesSummary {
    fn from(times: &Histogram) -> Self {
        let percentile_ms = |percentile| times.percentile_us(percentile) as f64 / 1e3;
        Self {
            count: times.count(),
            mean_ms: times.mean_us() / 1e3,
            p50_ms: percentile_ms(50.0),
            p95_ms: percentile_ms(95.0),
            p99_ms: percentile_ms(99.0),
            max_ms: times.max_us() as f64 / 1e3,
        }
    }
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is still going on.
    #[default]
    Running,
    /// The fill goal was reached.
    Filled,
    /// The time was up before the fill goal was reached.
    TimeUp,
    /// Someone stopped it.
    Interrupted,
    /// It could not go on: one line with the reason.
    Failed(String),
}

/// The last quarter of a run in a few figures: a row of the summary table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// From which fill ratio on the samples count.
    pub from_fill_ratio: f64,
    /// To which.
    pub to_fill_ratio: f64,
    /// Number of these samples.
    pub samples: u32,
    /// Right answers per second, mean over those samples: the throughput of the book's tables.
    pub throughput_per_s: f64,
    /// The same over samples that the controller judged sustained; `None` if there is none, if the
    /// mean over all samples is far below it (less than four fifths), or if most samples were
    /// spoiled. Spoiled samples count in neither.
    pub sustained_per_s: Option<f64>,
    /// Whether a load near that rate, or a higher one, was too much for the subject. If not, the
    /// rate is a lower bound: the limit was not reached. `None`: an older laboratory did not look.
    #[serde(default)]
    pub limit_reached: Option<bool>,
    /// Levels that were held during the whole run, the highest first.
    #[serde(default)]
    pub held: Vec<Held>,
    /// Response times of all answers.
    pub response: TimesSummary,
    /// Of hits.
    pub hits: TimesSummary,
    /// Of misses.
    pub misses: TimesSummary,
    /// Time that cache and waiting added to hits.
    pub hits_added: TimesSummary,
    /// Time that cache and waiting added to misses.
    pub misses_added: TimesSummary,
    /// Hits ÷ answers to plain GETs.
    pub hit_ratio: f64,
    /// The same in bytes.
    pub byte_hit_ratio: f64,
    /// The hit ratio of an ideal cache on exactly these requests.
    pub offered_hit_ratio: f64,
    /// Wrong answers during the whole run, by label.
    pub faults: u64,
    /// Of them, wrong content.
    pub wrong_content: u64,
    /// CPU time of the subject per answer in µs, if it was watched.
    pub cpu_us_per_answer: Option<f64>,
    /// Largest resident memory of the subject in bytes during the whole run, if it was watched.
    pub resident_bytes_max: Option<u64>,
    /// How the throughput depends on fill; `None`: not known.
    #[serde(default)]
    pub flatness: Option<Flatness>,
    /// How steady the last quarter was; `None`: not known.
    #[serde(default)]
    pub steadiness: Option<Steadiness>,
    /// Bytes of the store at the end ÷ cache size, if the subject says it.
    #[serde(default)]
    pub stored_ratio: Option<f64>,
    /// Bytes that the disks wrote in the last quarter ÷ bytes of objects that the subject says it
    /// stored in that time.
    #[serde(default)]
    pub written_per_stored: Option<f64>,
    /// The same ÷ bytes that could have been stored: fill and refill. `None` without writes.
    #[serde(default)]
    pub written_per_offered: Option<f64>,
    /// Growth of the subject's resident memory ÷ growth of the number of stored objects during the
    /// run, in bytes. The subject's cache of objects in memory is part of it.
    #[serde(default)]
    pub resident_bytes_per_object: Option<f64>,
    /// Share of the samples in which the laboratory was the limit.
    pub lab_limited_share: f64,
    /// The commonest reason for that.
    pub lab_limited: Option<String>,
}

impl Summary {
    /// Whether so much was spoiled that nothing is known about the subject.
    #[must_use]
    pub fn is_spoiled(&self) -> bool {
        self.lab_limited_share > SPOILED_SHARE_MAX
    }
}

/// The slope of throughput over fill ratio: how much faster or slower a cache becomes while it gets
/// full and replaces. All three are parts of the mean throughput, per unit of fill ratio: with −0.1
/// it answers 10 % of the mean less at fill 2 than at fill 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flatness {
    /// The slope.
    pub slope: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How steady the last quarter was, from the means of its six parts. What changes within a run also
/// changes from one run to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steadiness {
    /// Half of the 95 % interval of the throughput, as a part of it.
    pub throughput_half_interval: f64,
    /// Right answers per second in the slowest part.
    pub throughput_low_per_s: f64,
    /// In the fastest.
    pub throughput_high_per_s: f64,
    /// CPU time of the laboratory's users and servers per answer, in µs, in the cheapest part. It
    /// does the same work for each answer, so what changes much is the machine's speed.
    pub lab_cpu_low_us: f64,
    /// In the dearest.
    pub lab_cpu_high_us: f64,
}

/// A load that was sustained in several samples in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The load, in requests per second.
    pub load_per_s: f64,
    /// Right answers per second in these samples.
    pub throughput_per_s: f64,
    /// Number of these samples.
    pub samples: u32,
    /// Fill ÷ cache size at the end of the last of them.
    pub fill_ratio: f64,
}

/// A whole run: the contents of `summary.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// [`RUN_FORMAT`].
    pub format: u32,
    /// Unix time of its start in seconds.
    pub started_s: u64,
    /// The plan.
    pub plan: Plan,
    /// Its machine and software.
    pub manifest: Manifest,
    /// The laboratory's highest rate without a cache: requests per second. `None` if it was not
    /// calibrated.
    pub calibration: Option<f64>,
    /// All samples, in order.
    pub samples: Vec<Sample>,
    /// All samples of the whole run as one, with the errors of the curve's samples.
    pub total: Tally,
    /// All samples of the last quarter as one: the source of the summary and the CDFs.
    pub last_quarter: Tally,
    /// The summary so far.
    pub summary: Summary,
    /// Response times at parts of the sustained load, measured after the run; empty if that was not
    /// asked for.
    #[serde(default)]
    pub curve: Vec<CurveStep>,
    /// All samples of the curve, in order. Their errors are in `total`; nothing else of theirs is.
    #[serde(default)]
    pub curve_samples: Vec<Sample>,
    /// The load of 100 % of the curve, if it was asked for: otherwise it is the sustained one.
    #[serde(default)]
    pub curve_of_per_s: Option<f64>,
    /// Its end.
    pub outcome: Outcome,
}
