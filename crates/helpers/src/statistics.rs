//! Figures for manager pages.

use std::time::Duration;

use crate::definition::{Definition, Kind};
use crate::state::{Phase, Slot, State};

/// The average service time is that of about as many answers, as in Squid.
const AVERAGED: u32 = 10;

/// Figures of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) replies: u64,
    pub(crate) timed_out: u64,
    pub(crate) releases: u64,
    /// Service time of the last answer.
    pub(crate) last: Duration,
}

/// Figures of all processes of a helper since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) replies: u64,
    pub(crate) timed_out: u64,
    average: Duration,
}

impl Totals {
    pub(crate) fn reply(&mut self, elapsed: Duration) {
        self.replies += 1;
        let weight = u32::try_from(self.replies).unwrap_or(AVERAGED).min(AVERAGED);
        self.average = (self.average * (weight - 1) + elapsed) / weight;
    }
}

/// The figures of a helper.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Its purpose.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The program.
    pub program: String,
    /// The configuration in force has it. Otherwise it is leaving.
    pub is_in_force: bool,
    /// Processes that take questions.
    pub active: usize,
    /// Most of them.
    pub max: u32,
    /// Processes that are ending.
    pub ending: usize,
    /// Questions sent.
    pub requests: u64,
    /// Answers received.
    pub replies: u64,
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Questions that wait for a process.
    pub queue: usize,
    /// Average time from question to answer, of late.
    pub average: Duration,
    /// Its processes.
    pub children: Vec<ChildStatistics>,
}

/// The figures of one process.
#[derive(Clone, Debug)]
pub struct ChildStatistics {
    /// Number among the processes of its helper, from 1.
    pub number: u64,
    /// Process number.
    pub pid: u32,
    /// Questions sent.
    pub requests: u64,
    /// Answers received.
    pub replies: u64,
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Reservations that have ended.
    pub releases: u64,
    /// Questions without an answer.
    pub pending: usize,
    /// Reserved for a client.
    pub is_reserved: bool,
    /// About to end.
    pub is_ending: bool,
    /// Time from the last answered question to its answer.
    pub last: Duration,
}

impl Statistics {
    pub(crate) fn of(definition: &Definition, state: &State) -> Self {
        let active = state.active();
        Self {
            kind: definition.kind,
            name: definition.name.clone(),
            program: definition.program().to_owned(),
            is_in_force: state.phase == Phase::Serving,
            active,
            max: definition.children.max,
            ending: state.slots.len() - active,
            requests: state.totals.requests,
            replies: state.totals.replies,
            timed_out: state.totals.timed_out,
            queue: state.queue.len(),
            average: state.totals.average,
            children: state.slots.iter().map(ChildStatistics::of).collect(),
        }
    }
}

impl ChildStatistics {
    fn of(slot: &Slot) -> Self {
        Self {
            number: slot.number,
            pid: slot.pid,
            requests: slot.counts.requests,
            replies: slot.counts.replies,
            timed_out: slot.counts.timed_out,
            releases: slot.counts.releases,
            pending: slot.pending,
            is_reserved: slot.seat.is_some(),
            is_ending: slot.is_ending,
            last: slot.counts.last,
        }
    }
}
