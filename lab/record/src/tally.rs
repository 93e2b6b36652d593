//! The counts of robots and origins over a period. Tallies of threads and agents add up.

use crate::{FaultKind, FaultSample, Histogram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Wrong answers that are kept with their evidence; all are counted.
const FAULT_SAMPLES_MAX: usize = 100;

/// Of each kind this many are kept beyond that; otherwise a frequent kind would hide the evidence
/// of the others.
const FAULT_SAMPLES_OF_KIND: usize = 5;

/// Answers of one class: how many, how large, how fast.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Class {
    /// Complete answers.
    pub answers: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// From the moment a request was due to the last byte of its answer.
    pub response: Histogram,
    /// The same without the simulated delays (think time and link of the server, if the answer came
    /// from there; link of the client): the time that cache and waiting add.
    pub added: Histogram,
}

impl Class {
    /// Counts one answer.
    pub fn add(&mut self, body_bytes: u64, response_us: u64, added_us: u64) {
        self.answers += 1;
        self.body_bytes += body_bytes;
        self.response.record_us(response_us);
        self.added.record_us(added_us);
    }

    /// Adds another period, thread or agent.
    pub fn merge(&mut self, other: &Self) {
        self.answers += other.answers;
        self.body_bytes += other.body_bytes;
        self.response.merge(&other.response);
        self.added.merge(&other.added);
    }
}

/// Answers by content type or kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTally {
    /// Complete answers.
    pub answers: u64,
    /// Of them, hits.
    pub hits: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
}

/// Handshakes of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handshakes {
    /// With certificates and signatures.
    pub full: u64,
    /// In which the session of an earlier connection went on.
    pub resumed: u64,
    /// That failed, as the servers saw it. For users they are faults.
    pub failed: u64,
}

impl Handshakes {
    /// Counts one that is done.
    pub fn add(&mut self, is_resumed: bool) {
        self.resumed += u64::from(is_resumed);
        self.full += u64::from(!is_resumed);
    }

    /// Adds another period, thread or agent.
    pub fn merge(&mut self, other: &Self) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
    }
}

/// The robots' counts of one period.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Length of the period in µs.
    pub period_us: u64,
    /// Requests whose moment came in the period: the offered load.
    pub due: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers to plain GETs that the origin did not see ("hit: the server did not see this very
    /// request").
    pub hits: Class,
    /// Answers to plain GETs that the origin gave.
    pub misses: Class,
    /// Everything else: IMS, reload, POST, HEAD, tunnels.
    pub others: Class,
    /// Plain GETs for a cachable object that was requested before: the hits of an ideal cache.
    pub offered_hits: u64,
    /// Bytes of their bodies.
    pub offered_hit_bytes: u64,
    /// Bytes of answers to plain GETs that may be stored and were not hits: Polygraph's fill.
    pub fill_bytes: u64,
    /// Bytes that IMS and reload requests make a cache write besides. Not part of `fill_bytes`.
    pub refill_bytes: u64,
    /// Requests cut short on purpose.
    pub aborted: u64,
    /// Hits after reloads and the like that the subject's file declares to be its habit. Not
    /// faults.
    pub excused: u64,
    /// Wrong answers by kind. A wrong answer is in no class above.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The first of them, with evidence.
    pub fault_samples: Vec<FaultSample>,
    /// At the period's end: due, and neither answered nor given up.
    pub backlog: u64,
    /// Of them, not even sent: they wait for a connection.
    pub waiting: u64,
    /// How long the oldest of the backlog has been due, in µs.
    pub oldest_us: u64,
    /// Open connections at the period's end.
    pub connections: u64,
    /// Connections made in the period.
    pub connects: u64,
    /// Handshakes of TLS in the period.
    #[serde(default)]
    pub handshakes: Handshakes,
    /// By name of content type.
    pub by_type: BTreeMap<String, KindTally>,
    /// By kind of request: plain, ims_200, ims_304, reload, post, head, range, connect.
    pub by_kind: BTreeMap<String, KindTally>,
    /// From the moment something was to be done to the moment the robots' thread got to do it,
    /// while nothing else kept it from doing so: how late the laboratory itself is.
    pub lag: Histogram,
    /// CPU time of the robots' threads in the period, in µs.
    pub cpu_us: u64,
    /// Number of these threads.
    pub threads: u32,
}

impl Tally {
    /// Counts a wrong answer, and keeps it if there is room.
    pub fn add_fault(&mut self, sample: FaultSample) {
        *self.faults.entry(sample.fault.kind).or_default() += 1;
        self.keep_fault(sample);
    }

    /// Adds the wrong answers of another period, and nothing else of it.
    pub fn add_faults_of(&mut self, other: &Self) {
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        other.fault_samples.iter().for_each(|sample| self.keep_fault(sample.clone()));
    }

    fn keep_fault(&mut self, sample: FaultSample) {
        let of_kind = || {
            self.fault_samples.iter().filter(|kept| kept.fault.kind == sample.fault.kind).count()
        };
        if self.fault_samples.len() < FAULT_SAMPLES_MAX || of_kind() < FAULT_SAMPLES_OF_KIND {
            self.fault_samples.push(sample);
        }
    }

    /// Complete, right answers of all classes.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.hits.answers + self.misses.answers + self.others.answers
    }

    /// Bytes of the bodies of all right answers.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.hits.body_bytes + self.misses.body_bytes + self.others.body_bytes
    }

    /// Wrong answers of all kinds.
    #[must_use]
    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Response times of all classes together.
    #[must_use]
    pub fn response(&self) -> Histogram {
        let mut all = self.hits.response.clone();
        all.merge(&self.misses.response);
        all.merge(&self.others.response);
        all
    }

    /// Gives the memory of the histograms' counters back: for a tally that is kept and not counted
    /// into any more.
    pub fn compact(&mut self) {
        for class in [&mut self.hits, &mut self.misses, &mut self.others] {
            class.response.compact();
            class.added.compact();
        }
        self.lag.compact();
    }

    /// Adds the counts of another thread or agent for the same period.
    pub fn merge_parallel(&mut self, other: &Self) {
        self.period_us = self.period_us.max(other.period_us);
        self.backlog += other.backlog;
        self.waiting += other.waiting;
        self.oldest_us = self.oldest_us.max(other.oldest_us);
        self.connections += other.connections;
        self.threads += other.threads;
        self.merge_counts(other);
    }

    /// Adds a later period of the same robots.
    pub fn merge_later(&mut self, later: &Self) {
        self.period_us += later.period_us;
        self.backlog = later.backlog;
        self.waiting = later.waiting;
        self.oldest_us = later.oldest_us;
        self.connections = later.connections;
        self.threads = later.threads;
        self.merge_counts(later);
    }

    fn merge_counts(&mut self, other: &Self) {
        self.due += other.due;
        self.sent += other.sent;
        self.hits.merge(&other.hits);
        self.misses.merge(&other.misses);
        self.others.merge(&other.others);
        self.offered_hits += other.offered_hits;
        self.offered_hit_bytes += other.offered_hit_bytes;
        self.fill_bytes += other.fill_bytes;
        self.refill_bytes += other.refill_bytes;
        self.aborted += other.aborted;
        self.excused += other.excused;
        self.add_faults_of(other);
        self.connects += other.connects;
        self.handshakes.merge(&other.handshakes);
        merge_kinds(&mut self.by_type, &other.by_type);
        merge_kinds(&mut self.by_kind, &other.by_kind);
        self.lag.merge(&other.lag);
        self.cpu_us += other.cpu_us;
    }
}

fn merge_kinds(into: &mut BTreeMap<String, KindTally>, from: &BTreeMap<String, KindTally>) {
    for (name, tally) in from {
        let sum = into.entry(name.clone()).or_default();
        sum.answers += tally.answers;
        sum.hits += tally.hits;
        sum.body_bytes += tally.body_bytes;
    }
}

/// The origins' counts of one period.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OriginTally {
    /// Length of the period in µs.
    pub period_us: u64,
    /// Requests with a complete head.
    pub requests: u64,
    /// Answers without a body because the validators matched (304).
    pub not_modified: u64,
    /// Answers with a part (206).
    pub partial: u64,
    /// Requests for names that no workload has, or that are not HTTP.
    pub refused: u64,
    /// Bytes of bodies sent.
    pub body_bytes: u64,
    /// Connections accepted.
    pub connects: u64,
    /// Handshakes of TLS in the period.
    #[serde(default)]
    pub handshakes: Handshakes,
    /// Connections open at the period's end.
    pub connections: u64,
    /// From the moment an answer was due to be sent (after think time and link) to the moment it
    /// was handed to the kernel: how late the laboratory itself is.
    pub lag: Histogram,
    /// CPU time of the origins' threads in the period, in µs.
    pub cpu_us: u64,
    /// Number of these threads.
    pub threads: u32,
}

impl OriginTally {
    /// Adds the counts of another thread or agent for the same period.
    pub fn merge_parallel(&mut self, other: &Self) {
        self.period_us = self.period_us.max(other.period_us);
        self.connections += other.connections;
        self.threads += other.threads;
        self.merge_counts(other);
    }

    /// Adds a later period of the same origins.
    pub fn merge_later(&mut self, later: &Self) {
        self.period_us += later.period_us;
        self.connections = later.connections;
        self.threads = later.threads;
        self.merge_counts(later);
    }

    fn merge_counts(&mut self, other: &Self) {
        self.requests += other.requests;
        self.not_modified += other.not_modified;
        self.partial += other.partial;
        self.refused += other.refused;
        self.body_bytes += other.body_bytes;
        self.connects += other.connects;
        self.handshakes.merge(&other.handshakes);
        self.lag.merge(&other.lag);
        self.cpu_us += other.cpu_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    fn fault(kind: FaultKind) -> FaultSample {
        let fault = Fault { kind, offset: None, expected: String::new(), got: String::new() };
        FaultSample { at_us: 0, url: String::new(), fault }
    }

    #[test]
    fn a_frequent_fault_does_not_hide_a_rare_one() {
        let mut frequent = Tally::default();
        (0..1_000).for_each(|_| frequent.add_fault(fault(FaultKind::UncachableHit)));
        (0..50).for_each(|_| frequent.add_fault(fault(FaultKind::Stale)));
        let mut sum = frequent.clone();
        sum.merge_later(&frequent);
        for tally in [&frequent, &sum] {
            let kept = |kind| {
                tally.fault_samples.iter().filter(|sample| sample.fault.kind == kind).count()
            };
            assert_eq!(kept(FaultKind::UncachableHit), FAULT_SAMPLES_MAX);
            assert_eq!(kept(FaultKind::Stale), FAULT_SAMPLES_OF_KIND);
        }
        assert_eq!(sum.faults_total(), 2_100);
    }
}
