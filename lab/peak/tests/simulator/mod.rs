//! A simulated subject whose capacity is known: one server, first come, first served, Poisson
//! arrivals, and a fixed service time (M/D/1). Its queue lives on from sample to sample, so an
//! overload burdens the next one.

use humboldt_lab_peak::{Controller, Unjudged, View, decide, summarise};
use humboldt_lab_record::{FaultKind, FaultSample, Run, Sample, Tally};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What the subject is like.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Requests per second that it can serve, by part of the run (0 to 1): the last entry that has
    /// begun holds. 0 is a total stall.
    pub(crate) capacity: Vec<(f64, f64)>,
    /// Service times differ by up to this share from the mean, anew every tenth of a second.
    pub(crate) jitter: f64,
    /// Share of hits.
    pub(crate) hit_share: f64,
    /// Think time of the origin before a miss is answered, in µs. It does not occupy the subject.
    pub(crate) think_us: u64,
    /// Arrivals per second above which the subject answers 503 at once.
    pub(crate) errors_above: Option<f64>,
    /// One answer in this many has wrong content.
    pub(crate) wrong_every: Option<u64>,
    /// Requests that waited this long are given up by the robots.
    pub(crate) timeout_us: u64,
    /// Whether the host takes the processors away for half of the sample with this number and load.
    pub(crate) spoils: fn(u32, f64) -> bool,
}

impl Subject {
    /// With this capacity, hits only.
    pub(crate) fn new(capacity_per_s: f64) -> Self {
        Self {
            capacity: vec![(0.0, capacity_per_s)],
            jitter: 0.0,
            hit_share: 1.0,
            think_us: 0,
            errors_above: None,
            wrong_every: None,
            timeout_us: 60_000_000,
            spoils: |_, _| false,
        }
    }
}

/// How the run is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Samples in all.
    pub(crate) samples: u32,
    /// Length of each in µs.
    pub(crate) period_us: u64,
    /// Choices follow from it.
    pub(crate) seed: u64,
}

/// A line of the trace.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "the example prints fewer columns than the tests look at")]
pub(crate) struct Line {
    pub(crate) load_per_s: f64,
    pub(crate) answered_per_s: f64,
    pub(crate) backlog: u64,
    pub(crate) sustained: bool,
    pub(crate) state: String,
    pub(crate) reason: String,
}

/// A finished run: all lines, and the run with the samples of its last quarter.
pub(crate) struct Finished {
    pub(crate) lines: Vec<Line>,
    pub(crate) run: Run,
}

impl Finished {
    /// What the run says that the subject sustains.
    pub(crate) fn sustained_per_s(&self) -> f64 {
        self.run.summary.sustained_per_s.unwrap_or(0.0)
    }
}

/// Lets a controller search on a subject.
pub(crate) fn run(subject: &Subject, controller: &mut dyn Controller, course: Course) -> Finished {
    let mut world = World::new(subject.clone(), course);
    let mut load_per_s = controller.first_load_per_s();
    let mut finished = Finished { lines: Vec::new(), run: Run::default() };
    for index in 0..course.samples {
        let is_spoiled = (subject.spoils)(index, load_per_s);
        if is_spoiled {
            world.pause();
        }
        let tally = world.sample(load_per_s);
        let fill_ratio = f64::from(index + 1) / f64::from(course.samples) * 2.0;
        let view = View { index, load_per_s, filling: false, fill_ratio };
        let verdict =
            decide(controller, &view, &tally, is_spoiled.then_some(Unjudged::Spoiled("busy")));
        finished.lines.push(Line {
            load_per_s,
            answered_per_s: tally.answers() as f64 * 1e6 / course.period_us as f64,
            backlog: tally.backlog,
            sustained: verdict.sustained,
            state: verdict.state.clone(),
            reason: verdict.reason.clone(),
        });
        assert!(
            verdict.next_load_per_s.is_finite() && verdict.next_load_per_s > 0.0,
            "{verdict:?}"
        );
        let offered_per_s = std::mem::replace(&mut load_per_s, verdict.next_load_per_s);
        // Earlier samples are not part of the summary, and their histograms would fill the memory.
        if fill_ratio >= 1.5 {
            let sample = Sample {
                index,
                load_per_s: offered_per_s,
                fill_ratio,
                tally,
                verdict,
                lab_limited: is_spoiled.then(|| "the host was busy".into()),
                ..Sample::default()
            };
            finished.run.samples.push(sample);
        }
    }
    summarise(&mut finished.run);
    finished
}

struct Waiting {
    due_us: f64,
    is_hit: bool,
}

/// A request that is served and waits for the origin: when it ends, when it was due, what the cache
/// added, is it a hit.
type Served = (u64, u64, u64, bool);

struct World {
    subject: Subject,
    course: Course,
    random: Random,
    now_us: f64,
    next_arrival_us: f64,
    free_at_us: f64,
    queue: VecDeque<Waiting>,
    served: BinaryHeap<Reverse<Served>>,
    answers: u64,
    /// Arrivals beyond the rate that brings errors, and when they were counted.
    bucket: f64,
    bucket_at_us: f64,
}

impl World {
    fn new(subject: Subject, course: Course) -> Self {
        Self {
            subject,
            course,
            random: Random(course.seed),
            now_us: 0.0,
            next_arrival_us: 0.0,
            free_at_us: 0.0,
            queue: VecDeque::new(),
            served: BinaryHeap::new(),
            answers: 0,
            bucket: 0.0,
            bucket_at_us: 0.0,
        }
    }

    /// Nothing is served for half of the next sample.
    fn pause(&mut self) {
        self.free_at_us = self.free_at_us.max(self.now_us) + self.course.period_us as f64 / 2.0;
    }

    fn sample(&mut self, load_per_s: f64) -> Tally {
        let mut tally = Tally { period_us: self.course.period_us, threads: 1, ..Tally::default() };
        let end_us = self.now_us + self.course.period_us as f64;
        // Exponential intervals have no memory, so a new load may begin with a new one.
        self.next_arrival_us = self.now_us + self.random.exponential(1e6 / load_per_s);
        while self.next_arrival_us < end_us {
            self.arrive(&mut tally);
            self.next_arrival_us += self.random.exponential(1e6 / load_per_s);
        }
        self.serve_until(end_us, &mut tally);
        self.finish_until(end_us, &mut tally);
        self.now_us = end_us;
        tally.backlog = (self.queue.len() + self.served.len()) as u64;
        let oldest_us = self.queue.front().map_or(end_us, |first| first.due_us);
        let oldest_us = self.served.iter().map(|entry| entry.0.1 as f64).fold(oldest_us, f64::min);
        tally.oldest_us = (end_us - oldest_us) as u64;
        tally
    }

    fn arrive(&mut self, tally: &mut Tally) {
        let due_us = self.next_arrival_us;
        tally.due += 1;
        tally.sent += 1;
        if let Some(errors_above) = self.subject.errors_above {
            // A bucket of a second's worth of arrivals, which leaks at that rate.
            let leaked = (due_us - self.bucket_at_us) * errors_above / 1e6;
            self.bucket = (self.bucket - leaked).max(0.0);
            self.bucket_at_us = due_us;
            if self.bucket >= errors_above {
                return fault(FaultKind::WrongStatus, tally);
            }
            self.bucket += 1.0;
        }
        let is_hit = self.random.unit() < self.subject.hit_share;
        self.queue.push_back(Waiting { due_us, is_hit });
    }

    fn serve_until(&mut self, end_us: f64, tally: &mut Tally) {
        while let Some(first) = self.queue.front() {
            let start_us = self.free_at_us.max(first.due_us);
            if start_us - first.due_us > self.subject.timeout_us as f64 {
                fault(FaultKind::TimedOut, tally);
                self.queue.pop_front();
                continue;
            }
            let capacity = self.capacity_at(start_us);
            if start_us >= end_us || capacity <= 0.0 {
                if capacity <= 0.0 {
                    self.free_at_us = self.free_at_us.max(end_us);
                }
                break;
            }
            let done_us = start_us + 1e6 / capacity;
            let think_us = if first.is_hit { 0 } else { self.subject.think_us };
            let entry = (
                done_us as u64 + think_us,
                first.due_us as u64,
                (done_us - first.due_us) as u64,
                first.is_hit,
            );
            self.served.push(Reverse(entry));
            self.free_at_us = done_us;
            self.queue.pop_front();
        }
        while self
            .queue
            .front()
            .is_some_and(|first| end_us - first.due_us > self.subject.timeout_us as f64)
        {
            fault(FaultKind::TimedOut, tally);
            self.queue.pop_front();
        }
    }

    fn finish_until(&mut self, end_us: f64, tally: &mut Tally) {
        while let Some(Reverse((done_us, due_us, added_us, is_hit))) = self.served.peek().copied() {
            if done_us as f64 > end_us {
                break;
            }
            self.served.pop();
            self.answers += 1;
            if self.subject.wrong_every.is_some_and(|every| self.answers.is_multiple_of(every)) {
                fault(FaultKind::WrongByte, tally);
                continue;
            }
            let class = if is_hit { &mut tally.hits } else { &mut tally.misses };
            class.add(10_000, done_us - due_us, added_us);
        }
    }

    fn capacity_at(&self, at_us: f64) -> f64 {
        let part = at_us / (self.course.period_us as f64 * f64::from(self.course.samples));
        let begun = self.subject.capacity.iter().rev().find(|(from, _)| *from <= part);
        let capacity = begun.map_or(0.0, |(_, capacity)| *capacity);
        if self.subject.jitter == 0.0 {
            return capacity;
        }
        let luck = Random(self.course.seed ^ (at_us / 1e5) as u64).unit();
        capacity * (1.0 + self.subject.jitter * (2.0 * luck - 1.0))
    }
}

fn fault(kind: FaultKind, tally: &mut Tally) {
    let fault = humboldt_lab_record::Fault {
        kind,
        offset: None,
        expected: String::new(),
        got: String::new(),
    };
    tally.add_fault(FaultSample { at_us: 0, url: String::new(), fault });
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}
