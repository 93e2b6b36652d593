//! A helper: its definition, its state under a lock, and the calls of cores and of the helpers'
//! thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::asking::{Asking, Reserving};
use crate::definition::Definition;
use crate::no_answer::NoAnswer;
use crate::notices::Locked;
use crate::reply::Reply;
use crate::state::{Job, Life, Phase, QUESTION_BYTES_MAX, Seat, State, Waiting, Wanted};
use crate::statistics::Statistics;

/// How often a question is sent again after `BH`, as in Squid. After the end of its process it is
/// sent again once only: the question may be the reason.
const QUESTION_RETRIES_MAX: u8 = 2;

/// A process that has lived this long has failed for another reason than its start.
const CALM: Duration = Duration::from_secs(60);

pub(crate) struct Pool {
    pub(crate) definition: Definition,
    state: Mutex<State>,
    /// Wakes the keeper.
    pub(crate) keeper: Notify,
}

/// Ends its helper when the last one that could ask has left.
pub(crate) struct Lease(pub(crate) Arc<Pool>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.enter(Phase::Ended);
    }
}

/// A helper program that can be asked. Clones are the same one. When a reconfiguration has replaced
/// it, it still answers, and ends with the last clone.
#[derive(Clone)]
pub struct Helper(pub(crate) Arc<Lease>);

impl Helper {
    /// Asks. `line` is the question without the end of the line and without the number of a
    /// channel. The question is under way when this returns. It is given up when the future is
    /// dropped.
    pub fn ask(&self, line: &[u8]) -> Asking {
        let pool = &self.0.0;
        if !is_sendable(line) {
            return Asking::refused(NoAnswer::Unsendable);
        }
        let (answer, receiver) = oneshot::channel();
        let now = Instant::now();
        pool.submit(now, |number| {
            Wanted::Answer(Job { number, line: line.into(), answer, asked: now, retries: 0 })
        })
        .map_or_else(Asking::refused, |number| Asking::new(Arc::clone(pool), number, receiver))
    }

    /// Reserves a process, for a conversation of several questions.
    pub fn reserve(&self) -> Reserving {
        let pool = &self.0.0;
        let (answer, receiver) = oneshot::channel();
        pool.submit(Instant::now(), |_| Wanted::Seat(answer))
            .map_or_else(Reserving::refused, |number| {
                Reserving::new(Arc::clone(pool), number, receiver)
            })
    }

    /// The settings.
    pub fn definition(&self) -> &Definition {
        &self.0.0.definition
    }
}

fn is_sendable(line: &[u8]) -> bool {
    line.len() <= QUESTION_BYTES_MAX && !line.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0))
}

/// How the conversation with a process has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to end.
    Told,
    /// It closed its output, or its input.
    Itself,
    /// It broke the protocol, or was too slow.
    Fault(&'static str),
}

impl Pool {
    pub(crate) fn new(definition: Definition) -> Arc<Self> {
        Arc::new(Self { definition, state: Mutex::new(State::new()), keeper: Notify::new() })
    }

    fn lock(&self) -> Locked<'_> {
        Locked::new(self.state.lock(), &self.definition)
    }

    /// Hands a question in; returns its number.
    fn submit(&self, now: Instant, want: impl FnOnce(u64) -> Wanted) -> Result<u64, NoAnswer> {
        let mut state = self.lock();
        let number = state.number();
        let waiting = Waiting { number, since: now, wanted: want(number) };
        let is_queued = state.submit(&self.definition, waiting, now)?;
        drop(state);
        if is_queued {
            self.keeper.notify_one();
        }
        Ok(number)
    }

    /// Goes on to a later phase.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        if state.phase >= phase {
            return;
        }
        state.phase = phase;
        if phase == Phase::Hurrying {
            state.fail_waiting(&NoAnswer::NotRunning);
        }
        state.end_idle();
        // Those that are ending already may have to hurry.
        state.slots.iter().for_each(|slot| slot.wake.notify_one());
        drop(state);
        self.keeper.notify_one();
    }

    pub(crate) fn hurries(&self) -> bool {
        self.lock().phase == Phase::Hurrying
    }

    pub(crate) fn with_state<T>(&self, see: impl FnOnce(&mut State, &Definition) -> T) -> T {
        see(&mut self.lock(), &self.definition)
    }

    /// Takes a question that nobody waits for out of the queue.
    pub(crate) fn give_up(&self, number: u64) {
        self.lock().queue.retain(|waiting| waiting.number != number);
    }

    /// Sends a line to a reserved process.
    pub(crate) fn ask_reserved(&self, seat: Seat, line: &[u8]) -> Asking {
        if !is_sendable(line) {
            return Asking::refused(NoAnswer::Unsendable);
        }
        let (answer, receiver) = oneshot::channel();
        let mut state = self.lock();
        let number = state.number();
        let holds = |seat_now: Option<Seat>| seat_now.is_some_and(|now| now.number == seat.number);
        match state.slot(seat.child) {
            Some(slot) if holds(slot.seat) && !slot.is_ending && slot.pending == 0 => {
                let (line, asked) = (line.into(), Instant::now());
                slot.give(Job { number, line, answer, asked, retries: QUESTION_RETRIES_MAX });
                Asking::reserved(receiver)
            }
            _ => Asking::refused(NoAnswer::Unreserved),
        }
    }

    /// Ends a reservation.
    pub(crate) fn release(&self, seat: Seat) {
        let mut state = self.lock();
        if let Some(slot) = state.slot(seat.child)
            && slot.seat.is_some_and(|now| now.number == seat.number)
        {
            slot.seat = None;
            slot.counts.releases += 1;
        }
        state.kick(&self.definition, Instant::now());
    }

    /// The questions that a process has got since the last call, and whether it is to end.
    pub(crate) fn take(&self, child: u64, mut send: impl FnMut(Job)) -> bool {
        let mut state = self.lock();
        let hurries = state.phase == Phase::Hurrying;
        let Some(slot) = state.slot(child) else { return true };
        let mut sent = 0;
        while let Some(job) = slot.inbox.pop_front() {
            if job.answer.is_closed() {
                slot.pending -= 1;
            } else {
                sent += 1;
                send(job);
            }
        }
        slot.counts.requests += sent;
        let is_ending = slot.is_ending && (slot.pending == 0 || hurries);
        state.totals.requests += sent;
        if sent == 0 {
            state.kick(&self.definition, Instant::now());
        }
        is_ending
    }

    /// A process has answered a question after `elapsed`.
    pub(crate) fn answered(&self, child: u64, job: Job, reply: Reply, elapsed: Duration) {
        let is_retried = reply.outcome == crate::reply::Outcome::Broken
            && job.retries < QUESTION_RETRIES_MAX
            && !job.answer.is_closed();
        let (mut state, now) = (self.lock(), Instant::now());
        let mut lives_long = false;
        if let Some(slot) = state.slot(child) {
            slot.pending = slot.pending.saturating_sub(1);
            slot.counts.replies += 1;
            slot.counts.last = elapsed;
            lives_long = now.duration_since(slot.started) >= CALM;
        }
        state.totals.reply(elapsed);
        if lives_long {
            state.calm();
        }
        if is_retried {
            state.retry(Job { retries: job.retries + 1, ..job });
            state.kick(&self.definition, now);
            // Nobody waits for the lock while the message is written.
            drop(state);
            let name = &self.definition.name;
            let why = String::from_utf8_lossy(reply.get("message").unwrap_or_default());
            tracing::warn!("{name} #{child} says that it is broken ({why}): asked again");
        } else {
            state.kick(&self.definition, now);
            drop(state);
            _ = job.answer.send(Ok(reply)); // the client may have left
        }
    }

    /// A question has had no answer in time.
    pub(crate) fn timed_out(&self, child: u64, job: Job) {
        let mut state = self.lock();
        state.totals.timed_out += 1;
        if let Some(slot) = state.slot(child) {
            slot.pending = slot.pending.saturating_sub(1);
            slot.late += 1;
            slot.counts.timed_out += 1;
        }
        drop(state);
        _ = job.answer.send(Err(NoAnswer::TimedOut)); // the client may have left
    }

    /// The answer has come to a question that was given up for its lateness.
    pub(crate) fn late_answer(&self, child: u64) {
        let mut state = self.lock();
        if let Some(slot) = state.slot(child) {
            slot.late = slot.late.saturating_sub(1);
        }
        state.kick(&self.definition, Instant::now());
    }

    /// The conversation with a process is over; `left` are the questions without an answer. Its
    /// slot stays until the process has ended.
    pub(crate) fn conversation_ended(&self, child: u64, end: &End, left: Vec<Job>) {
        let (mut state, now) = (self.lock(), Instant::now());
        let hurries = state.phase == Phase::Hurrying;
        let (mut unseen, mut life) = (Vec::new(), Life::Long);
        if let Some(slot) = state.slot(child) {
            slot.is_ending = true;
            slot.pending = 0;
            slot.seat = None;
            unseen.extend(slot.inbox.drain(..));
            life = match slot.counts.replies {
                _ if now.duration_since(slot.started) >= CALM => Life::Long,
                1.. => Life::OfUse,
                0 => Life::Useless,
            };
        }
        let rest = (*end != End::Told).then(|| state.rest_after(life, now));
        for job in left {
            let is_again = *end == End::Itself && job.retries == 0 && !hurries;
            match is_again && !job.answer.is_closed() {
                true => state.retry(Job { retries: QUESTION_RETRIES_MAX, ..job }),
                false => _ = job.answer.send(Err(NoAnswer::ProcessEnded)), // it may have left
            }
        }
        // The process has not seen these. Those for its reserved seat have no other.
        for job in unseen {
            match !hurries && job.retries < QUESTION_RETRIES_MAX && !job.answer.is_closed() {
                true => state.retry(job),
                false => _ = job.answer.send(Err(NoAnswer::ProcessEnded)),
            }
        }
        if state.has_failed(now) {
            state.fail_waiting(&NoAnswer::NoProcess);
        }
        state.kick(&self.definition, now);
        drop(state);
        self.keeper.notify_one();
        rest.inspect(|rest| self.report_end(child, end, *rest));
    }

    /// Says that a process has ended that was not told to.
    fn report_end(&self, child: u64, end: &End, rest: Duration) {
        let name = &self.definition.name;
        let what = match end {
            End::Fault(why) => format!("is ended, because {why}"),
            _ => "has ended".to_owned(),
        };
        match rest.is_zero() {
            true => tracing::warn!("{name} #{child} {what}"),
            false => tracing::error!(
                "{name} #{child} {what}; no other process is started within {} ms",
                rest.as_millis()
            ),
        }
    }

    /// No process could be started.
    pub(crate) fn start_failed(&self, why: &std::io::Error) {
        let (mut state, now) = (self.lock(), Instant::now());
        let rest = state.rest_after(Life::Useless, now);
        if state.active() == 0 {
            state.fail_waiting(&NoAnswer::NoProcess);
        }
        drop(state);
        tracing::error!(
            "{}: cannot run {}: {why}; tried again after {} ms",
            self.definition.name,
            self.definition.program(),
            rest.as_millis()
        );
    }

    /// A process has ended and has been waited for.
    pub(crate) fn gone(&self, child: u64) {
        self.lock().slots.retain(|slot| slot.number != child);
        self.keeper.notify_one();
    }

    /// The figures for the manager page.
    pub(crate) fn statistics(&self) -> Statistics {
        Statistics::of(&self.definition, &self.lock())
    }
}
