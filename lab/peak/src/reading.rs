//! The evaluation of a tally: whether the load was sustained, the reason, and the unfinished work
//! that it leaves behind.

use crate::{RobustSettings, words};
use humboldt_lab_record::{Class, Tally};

/// A percentile needs this many answers beyond it: `p95` needs 100 answers, `p99` 500.
const TAIL_ANSWERS_MIN: f64 = 5.0;

/// A load is held for at most this many samples to collect enough answers for a percentile; then it
/// is judged by the present ones.
const EXTENDED_SAMPLES_MAX: u32 = 10;

/// The time that the simulated world takes is known from this many answers on.
const WORLD_ANSWERS_MIN: u64 = 20;

/// A load is sustained clearly, and the next may be much higher, if added times are below this
/// share of their limits.
const CLEAR_SHARE: f64 = 0.5;

/// This many requests more or less are chance at any load.
const SLACK_REQUESTS: f64 = 5.0;

/// A number of requests in flight that is `n` on average is seldom above n + 3·√n.
const DEVIATIONS: f64 = 3.0;

/// A queue below this part of the tolerable one comes and goes at any load near the peak. A longer
/// queue that *also* grew by more than the share of the load that may be missing will go on
/// growing; a queue left by an overload spoils the next sample.
const QUEUE_BY_CHANCE: f64 = 0.25;

/// One missing answer condemns no load: in a sample of a few hundred answers it would be a share
/// above any limit.
const ERRORS_EXCUSED: u64 = 1;

/// Patience is never scaled below this, in µs: processes of a busy machine may pause that long.
const PATIENCE_FLOOR_US: f64 = 1e6;

/// The limits for a load, with scaled times.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) percentile: f64,
    pub(crate) hits_added_us: f64,
    pub(crate) misses_added_us: f64,
    pub(crate) mean_added_us: f64,
    pub(crate) mean_response_us: Option<f64>,
    pub(crate) error_share_max: f64,
    pub(crate) throughput_share_min: f64,
    pub(crate) patience_us: f64,
}

impl Limits {
    /// For a run at this time scale.
    pub(crate) fn new(settings: &RobustSettings, time_scale: f64) -> Self {
        let scaled_us = |ms: f64| ms * 1e3 * time_scale;
        let added_us = |ms: f64| scaled_us(ms).max(settings.added_floor_ms * 1e3);
        Self {
            percentile: settings.percentile,
            hits_added_us: added_us(settings.hits_added_ms),
            misses_added_us: added_us(settings.misses_added_ms),
            mean_added_us: added_us(settings.mean_added_ms),
            mean_response_us: settings.mean_response_ms.map(scaled_us),
            error_share_max: settings.error_share_max,
            throughput_share_min: settings.throughput_share_min,
            patience_us: scaled_us(settings.patience_ms).max(PATIENCE_FLOOR_US),
        }
    }

    fn answers_min(&self) -> u64 {
        (TAIL_ANSWERS_MIN / (1.0 - self.percentile / 100.0)).ceil() as u64
    }
}

/// Whether a load is sustained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Yes; `clearly` if much more seems possible.
    Sustained { clearly: bool },
    /// No.
    Overloaded,
    /// Nothing is wrong, but there are too few answers to judge a percentile.
    TooFew,
}

/// The evaluation of a sample.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) finding: Finding,
    /// Why, for a person.
    pub(crate) reason: String,
    /// Answers with wrong content, if there are any: no load makes them right, so they do not steer
    /// the search.
    pub(crate) wrong_content: Option<String>,
    /// Right answers per second: the subject's capacity, if it was busy all the time.
    pub(crate) answered_per_s: f64,
    /// Requests that wait at the sample's end and would not without overload.
    pub(crate) excess: f64,
    /// Whether the queue would spoil the next sample.
    pub(crate) is_burdened: bool,
}

/// Reads samples one after another, since some things only show in a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    limits: Limits,
    /// Mean time that think times and links take, in µs; `None` before there were answers.
    world_us: Option<f64>,
    /// Requests that were in flight at the last sample's end only because the world takes its time.
    in_flight_before: f64,
    extended: Option<Extended>,
}

/// Samples at one load that had too few answers each.
#[derive(Clone, Debug)]
struct Extended {
    load_per_s: f64,
    samples: u32,
    classes: Classes,
}

#[derive(Clone, Debug)]
pub(crate) struct Classes {
    hits: Class,
    misses: Class,
    others: Class,
}

/// The facts that follow from a sample's counts alone.
struct Flow {
    answered_per_s: f64,
    in_flight: f64,
    excess: f64,
    /// This many requests may wait because that is how long a hit may wait.
    tolerable: f64,
}

impl Flow {
    /// What it says alone: nothing about times.
    fn reading(&self) -> Reading {
        Reading {
            finding: Finding::TooFew,
            reason: String::new(),
            wrong_content: None,
            answered_per_s: self.answered_per_s,
            excess: self.excess,
            is_burdened: self.excess > self.tolerable * QUEUE_BY_CHANCE,
        }
    }
}

impl Reader {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, world_us: None, in_flight_before: 0.0, extended: None }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reads the sample that was taken at this load.
    pub(crate) fn read(&mut self, load_per_s: f64, tally: &Tally) -> Reading {
        let classes = Classes::of(tally);
        let flow = self.flow(tally, &classes);
        let (finding, reason) = match self.complaint(tally, &flow) {
            Some(complaint) => (Finding::Overloaded, complaint),
            None => self.times(load_per_s, classes),
        };
        self.in_flight_before = flow.in_flight;
        if finding != Finding::TooFew {
            self.extended = None;
        }
        Reading { finding, reason, wrong_content: wrong_content(tally), ..flow.reading() }
    }

    /// The unfinished work after a sample that is not judged.
    pub(crate) fn pass_over(&mut self, tally: &Tally) -> Reading {
        let flow = self.flow(tally, &Classes::of(tally));
        self.in_flight_before = flow.in_flight;
        flow.reading()
    }

    /// Little's law: requests in flight = rate × time. The part that the simulated delays do not
    /// explain is a queue.
    fn flow(&mut self, tally: &Tally, classes: &Classes) -> Flow {
        if classes.answers() >= WORLD_ANSWERS_MIN {
            self.world_us = Some(classes.world_us());
        }
        let seconds = (tally.period_us as f64 / 1e6).max(1e-6);
        let due_per_s = tally.due as f64 / seconds;
        let answered_per_s = tally.answers() as f64 / seconds;
        let in_flight = due_per_s * self.world_us.unwrap_or(0.0) / 1e6;
        let is_old = tally.oldest_us as f64 > self.limits.patience_us;
        let excess = if self.world_us.is_some() || is_old {
            (tally.backlog as f64 - in_flight - DEVIATIONS * in_flight.sqrt()).max(0.0)
        } else {
            0.0
        };
        let tolerable = answered_per_s * self.limits.hits_added_us / 1e6 + SLACK_REQUESTS;
        Flow { answered_per_s, in_flight, excess, tolerable }
    }

    /// Complaints apart from times.
    fn complaint(&self, tally: &Tally, flow: &Flow) -> Option<String> {
        let errors = tally.faults_total() - wrong_contents(tally);
        let error_share = errors as f64 / (tally.faults_total() + tally.answers()).max(1) as f64;
        if errors > ERRORS_EXCUSED && error_share > self.limits.error_share_max {
            let kind =
                tally.faults.iter().max_by_key(|(kind, count)| (!kind.is_wrong_content(), **count));
            let kind = kind.map_or("", |(kind, _)| kind.label());
            let (got, limit) =
                (words::share(error_share), words::share(self.limits.error_share_max));
            return Some(format!("errors {got} > {limit}, mostly {kind}"));
        }
        let oldest = words::duration(tally.oldest_us as f64);
        let is_old = tally.oldest_us as f64 > self.limits.patience_us;
        if tally.answers() == 0 && is_old {
            return Some(format!(
                "no answers; {} requests wait, the oldest for {oldest}",
                tally.backlog
            ));
        }
        let answered = tally.answers() + tally.aborted + tally.faults_total();
        let missing = tally.due as f64 - answered as f64;
        let more_in_flight =
            (flow.in_flight - self.in_flight_before).max(0.0) + DEVIATIONS * flow.in_flight.sqrt();
        let missing_max = tally.due as f64 * (1.0 - self.limits.throughput_share_min)
            + more_in_flight
            + SLACK_REQUESTS;
        let is_queue = flow.excess > flow.tolerable * QUEUE_BY_CHANCE;
        if is_queue && missing > missing_max {
            let got = words::share(answered as f64 / tally.due.max(1) as f64);
            let limit = words::share(self.limits.throughput_share_min);
            return Some(format!("answered {got} of the load < {limit}"));
        }
        if flow.excess > flow.tolerable && is_old {
            return Some(format!("{:.0} requests queue, the oldest for {oldest}", flow.excess));
        }
        None
    }

    /// Judges times, or reports that there are too few.
    fn times(&mut self, load_per_s: f64, classes: Classes) -> (Finding, String) {
        let mut extended = match self.extended.take() {
            Some(mut before) if before.load_per_s == load_per_s => {
                before.classes.merge(&classes);
                before
            }
            _ => Extended { load_per_s, samples: 0, classes },
        };
        extended.samples += 1;
        let answers_min = self.limits.answers_min();
        let most = extended.classes.largest();
        if most < answers_min && extended.samples < EXTENDED_SAMPLES_MAX {
            self.extended = Some(extended);
            return (Finding::TooFew, format!("too few answers to judge: {most} < {answers_min}"));
        }
        self.judge_times(&extended.classes)
    }

    fn judge_times(&self, classes: &Classes) -> (Finding, String) {
        let limits = &self.limits;
        let percentile = words::percentile(limits.percentile);
        let mut is_clear = true;
        let mut good = Vec::new();
        let judged = [
            ("hits", &classes.hits, limits.hits_added_us),
            ("misses", &classes.misses, limits.misses_added_us),
        ];
        for (name, class, limit_us) in judged {
            if class.added.count() < limits.answers_min() {
                continue;
            }
            let got_us = class.added.percentile_us(limits.percentile) as f64;
            let got = words::duration(got_us);
            if got_us > limit_us {
                let limit = words::duration(limit_us);
                return (
                    Finding::Overloaded,
                    format!("{percentile} added to {name} {got} > {limit}"),
                );
            }
            is_clear &= got_us < limit_us * CLEAR_SHARE;
            good.push((got_us / limit_us, format!("{percentile} added to {name} {got}"), limit_us));
        }
        let (added_us, response_us) = (classes.mean_added_us(), classes.mean_response_us());
        let means = [
            ("added", added_us, Some(limits.mean_added_us)),
            ("response", response_us, limits.mean_response_us),
        ];
        for (name, got_us, limit_us) in means {
            let Some(limit_us) = limit_us else { continue };
            let got = words::duration(got_us);
            if got_us > limit_us {
                return (
                    Finding::Overloaded,
                    format!("mean {name} {got} > {}", words::duration(limit_us)),
                );
            }
            is_clear &= got_us < limit_us * CLEAR_SHARE || name == "response";
            good.push((got_us / limit_us, format!("mean {name} {got}"), limit_us));
        }
        (Finding::Sustained { clearly: is_clear }, nearest_first(good))
    }
}

/// Criteria with the shares of their limits that were used up, and the limits in µs: the nearest to
/// its limit first, and with it. Who has room for one only shows that.
fn nearest_first(mut criteria: Vec<(f64, String, f64)>) -> String {
    criteria.sort_by(|a, b| b.0.total_cmp(&a.0));
    let limit_us = criteria.first().map_or(0.0, |nearest| nearest.2);
    let mut texts: Vec<String> = criteria.into_iter().map(|criterion| criterion.1).collect();
    if let Some(nearest) = texts.first_mut() {
        nearest.push_str(&format!(" of {}", words::duration(limit_us)));
    }
    texts.join(", ")
}

impl Classes {
    pub(crate) fn of(tally: &Tally) -> Self {
        Self {
            hits: tally.hits.clone(),
            misses: tally.misses.clone(),
            others: tally.others.clone(),
        }
    }

    fn all(&self) -> [&Class; 3] {
        [&self.hits, &self.misses, &self.others]
    }

    fn merge(&mut self, other: &Self) {
        self.hits.merge(&other.hits);
        self.misses.merge(&other.misses);
        self.others.merge(&other.others);
    }

    fn answers(&self) -> u64 {
        self.all().iter().map(|class| class.added.count()).sum()
    }

    fn largest(&self) -> u64 {
        self.all().iter().map(|class| class.added.count()).max().unwrap_or(0)
    }

    /// Mean of all response times without the simulated delays.
    pub(crate) fn mean_added_us(&self) -> f64 {
        let sum_us: u128 = self.all().iter().map(|class| class.added.sum_us()).sum();
        sum_us as f64 / self.answers().max(1) as f64
    }

    fn mean_response_us(&self) -> f64 {
        let sum_us: u128 = self.all().iter().map(|class| class.response.sum_us()).sum();
        sum_us as f64 / self.answers().max(1) as f64
    }

    /// Mean simulated delay of a response.
    fn world_us(&self) -> f64 {
        (self.mean_response_us() - self.mean_added_us()).max(0.0)
    }
}

fn wrong_contents(tally: &Tally) -> u64 {
    tally.faults.iter().filter(|(kind, _)| kind.is_wrong_content()).map(|(_, count)| count).sum()
}

/// The complaint about wrong content, if there is any.
pub(crate) fn wrong_content(tally: &Tally) -> Option<String> {
    let wrong: Vec<String> = tally
        .faults
        .iter()
        .filter(|(kind, count)| kind.is_wrong_content() && **count > 0)
        .map(|(kind, count)| format!("{count} × {kind}"))
        .collect();
    if wrong.is_empty() { None } else { Some(format!("wrong content: {}", wrong.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::FaultKind;

    const PERIOD_US: u64 = 10_000_000;

    fn reader() -> Reader {
        Reader::new(Limits::new(&RobustSettings::default(), 1.0))
    }

    /// A sample of 10 s in which all is well: 1,000 hits at 10 ms and 1,000 misses at 2 s, of which
    /// 1.9 s are thought.
    fn good() -> Tally {
        let mut tally = Tally { period_us: PERIOD_US, due: 2_000, ..Tally::default() };
        for _ in 0..1_000 {
            tally.hits.add(100, 10_000, 10_000);
            tally.misses.add(100, 2_000_000, 100_000);
        }
        tally
    }

    fn finding(tally: &Tally) -> (Finding, String) {
        let reading = reader().read(200.0, tally);
        (reading.finding, reading.reason)
    }

    #[test]
    fn what_keeps_to_all_limits_is_sustained() {
        let (found, reason) = finding(&good());
        assert_eq!(found, Finding::Sustained { clearly: true });
        assert_eq!(
            reason,
            "mean added 55 ms of 500 ms, p95 added to misses 100 ms, p95 added to hits 10 ms"
        );
    }

    #[test]
    fn hits_and_misses_are_judged_apart() {
        let mut tally = good();
        (0..80).for_each(|_| tally.hits.add(100, 800_000, 800_000));
        let (found, reason) = finding(&tally);
        assert_eq!(found, Finding::Overloaded);
        assert_eq!(reason, "p95 added to hits 800 ms > 750 ms");

        let mut tally = good();
        (0..80).for_each(|_| tally.misses.add(100, 3_500_000, 1_600_000));
        assert_eq!(finding(&tally).1, "p95 added to misses 1.60 s > 1.50 s");
        let mut tally = good();
        (0..80).for_each(|_| tally.misses.add(100, 3_500_000, 1_400_000));
        assert_eq!(finding(&tally).0, Finding::Sustained { clearly: false });
    }

    #[test]
    fn other_requests_show_in_the_mean() {
        let mut tally = good();
        (0..400).for_each(|_| tally.others.add(100, 4_000_000, 4_000_000));
        assert_eq!(finding(&tally).1, "mean added 712 ms > 500 ms");
        let settings =
            RobustSettings { mean_response_ms: Some(1_000.0), ..RobustSettings::default() };
        let mut reader = Reader::new(Limits::new(&settings, 1.0));
        assert_eq!(reader.read(200.0, &good()).reason, "mean response 1.00 s > 1.00 s");
    }

    #[test]
    fn errors_beyond_their_share_are_overload_and_one_alone_is_not() {
        let mut tally = good();
        tally.faults.insert(FaultKind::TimedOut, 1);
        assert_eq!(finding(&tally).0, Finding::Sustained { clearly: true });
        tally.faults.insert(FaultKind::TimedOut, 5);
        assert_eq!(finding(&tally).1, "errors 0.25 % > 0.10 %, mostly timed out");
    }

    #[test]
    fn wrong_content_is_told_apart_from_load() {
        let mut tally = good();
        tally.faults.insert(FaultKind::WrongByte, 7);
        let reading = reader().read(200.0, &tally);
        assert_eq!(reading.finding, Finding::Sustained { clearly: true });
        assert_eq!(reading.wrong_content.as_deref(), Some("wrong content: 7 × wrong byte"));
    }

    #[test]
    fn a_backlog_that_think_times_explain_is_no_queue() {
        // 200/s × 0.95 s of thinking on average.
        let mut tally = Tally { backlog: 200, due: 2_200, oldest_us: 2_500_000, ..good() };
        let reading = reader().read(200.0, &tally);
        assert_eq!((reading.finding, reading.excess), (Finding::Sustained { clearly: true }, 0.0));

        tally.due = 2_800;
        tally.backlog = 800;
        let reading = reader().read(200.0, &tally);
        assert_eq!(reading.finding, Finding::Overloaded);
        assert_eq!(reading.reason, "answered 71.4 % of the load < 97.0 %");
        assert!(reading.is_burdened && reading.excess > 400.0, "{reading:?}");
    }

    #[test]
    fn an_old_queue_is_overload_even_if_it_does_not_grow() {
        let tally = Tally { backlog: 1_000, oldest_us: 12_000_000, ..good() };
        let (found, reason) = finding(&tally);
        assert_eq!(found, Finding::Overloaded);
        assert!(reason.ends_with(" requests queue, the oldest for 12.00 s"), "{reason}");
    }

    #[test]
    fn without_answers_patience_decides() {
        let mut tally =
            Tally { period_us: PERIOD_US, due: 2_000, backlog: 2_000, ..Tally::default() };
        tally.oldest_us = 9_900_000;
        assert_eq!(finding(&tally).0, Finding::TooFew);
        tally.oldest_us = 10_100_000;
        assert_eq!(finding(&tally).1, "no answers; 2000 requests wait, the oldest for 10.10 s");
        assert!(reader().read(200.0, &tally).is_burdened);
    }

    #[test]
    fn few_answers_are_collected_over_samples_at_the_same_load() {
        let mut few = Tally { period_us: PERIOD_US, due: 40, ..Tally::default() };
        (0..40).for_each(|_| few.hits.add(100, 10_000, 10_000));
        let mut reader = reader();
        assert_eq!(reader.read(4.0, &few).reason, "too few answers to judge: 40 < 100");
        assert_eq!(reader.read(5.0, &few).reason, "too few answers to judge: 40 < 100");
        assert_eq!(reader.read(5.0, &few).reason, "too few answers to judge: 80 < 100");
        assert_eq!(reader.read(5.0, &few).finding, Finding::Sustained { clearly: true });
        assert_eq!(
            reader.read(5.0, &few).finding,
            Finding::TooFew,
            "what was judged is not judged again"
        );
    }

    #[test]
    fn collecting_ends() {
        let mut one = Tally { period_us: PERIOD_US, due: 1, ..Tally::default() };
        one.hits.add(100, 10_000, 10_000);
        let mut reader = reader();
        let findings: Vec<_> =
            (0..EXTENDED_SAMPLES_MAX).map(|_| reader.read(0.1, &one).finding).collect();
        let (last, before) = findings.split_last().unwrap();
        assert!(before.iter().all(|finding| *finding == Finding::TooFew));
        assert_eq!(*last, Finding::Sustained { clearly: true });
    }
}
