//! The data of a helper that cores and the helpers' thread share under one lock: the queue, and the
//! processes with their questions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_conf::HelperChildren;
use tokio::sync::{Notify, oneshot};

use crate::definition::{Definition, Overload};
use crate::no_answer::NoAnswer;
use crate::notices::Notice;
use crate::reply::Reply;
use crate::statistics::{Counts, Totals};

/// Most bytes of a question.
pub(crate) const QUESTION_BYTES_MAX: usize = 128 * 1024;

/// Most questions that wait for a process of one helper, whatever `queue-size` says.
pub(crate) const QUESTIONS_WAITING_MAX: usize = 8192;

/// Most bytes of these questions, as far as there are more than [`QUESTIONS_SMALL`] of them.
pub(crate) const QUESTIONS_BYTES_MAX: usize = 16 << 20;

/// So few questions cannot have too many bytes.
const QUESTIONS_SMALL: usize = QUESTIONS_BYTES_MAX / QUESTION_BYTES_MAX;

/// Most processes of one helper for each that `children` allows: those that are ending count too.
pub(crate) const PROCESSES_PER_CHILD_MAX: usize = 2;

/// Longest overload during which more questions than `queue-size` may wait, as in Squid.
const OVERLOAD_TIME_MAX: Duration = Duration::from_secs(180);

/// Time between two warnings that all processes are busy, as in Squid.
const WARNING_INTERVAL: Duration = Duration::from_secs(600);

/// Rest before the next process after one that has failed. Doubled each time, up to the longest.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(30);

/// A question on its way to a process.
pub(crate) struct Job {
    /// Its number among those of the helper.
    pub(crate) number: u64,
    /// The line without its end.
    pub(crate) line: Box<[u8]>,
    pub(crate) answer: oneshot::Sender<Result<Reply, NoAnswer>>,
    pub(crate) asked: Instant,
    /// How often it was sent again.
    pub(crate) retries: u8,
}

/// The right to be the only one that asks a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// The process.
    pub(crate) child: u64,
    /// Its number among those of the helper.
    pub(crate) number: u64,
    pub(crate) since: Instant,
}

/// The result that a place in the queue is for.
pub(crate) enum Wanted {
    Answer(Job),
    Seat(oneshot::Sender<Result<Seat, NoAnswer>>),
}

/// A place in the queue.
pub(crate) struct Waiting {
    pub(crate) number: u64,
    pub(crate) since: Instant,
    pub(crate) wanted: Wanted,
}

impl Waiting {
    fn is_given_up(&self) -> bool {
        match &self.wanted {
            Wanted::Answer(job) => job.answer.is_closed(),
            Wanted::Seat(seat) => seat.is_closed(),
        }
    }

    /// Ends it without an answer. Its asker may have left.
    fn fail(self, why: NoAnswer) {
        match self.wanted {
            Wanted::Answer(job) => _ = job.answer.send(Err(why)),
            Wanted::Seat(seat) => _ = seat.send(Err(why)),
        }
    }
}

/// A process as its askers see it.
pub(crate) struct Slot {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) pid: u32,
    pub(crate) started: Instant,
    /// Questions that its task has not taken yet.
    pub(crate) inbox: VecDeque<Job>,
    /// Questions in the inbox, or sent and without an answer.
    pub(crate) pending: usize,
    /// Questions that nobody waits for any more, and whose channels the process may still use.
    pub(crate) late: usize,
    pub(crate) seat: Option<Seat>,
    /// It gets no more questions, and is to end after those that it has.
    pub(crate) is_ending: bool,
    /// Wakes its task.
    pub(crate) wake: Arc<Notify>,
    pub(crate) counts: Counts,
}

impl Slot {
    fn has_room(&self, capacity: usize) -> bool {
        !self.is_ending && self.seat.is_none() && self.pending + self.late < capacity
    }

    fn is_idle(&self) -> bool {
        self.pending == 0 && self.seat.is_none()
    }

    pub(crate) fn end(&mut self) {
        self.is_ending = true;
        self.wake.notify_one();
    }

    pub(crate) fn give(&mut self, job: Job) {
        self.inbox.push_back(job);
        self.pending += 1;
        self.wake.notify_one();
    }
}

/// The life of a process that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has lived so long that its start was not the fault.
    Long,
    /// It has answered.
    OfUse,
    /// It has not.
    Useless,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// A configuration in force has it.
    Serving,
    /// Only requests with an older configuration do: a process ends as soon as it has no question.
    Leaving,
    /// Nobody can ask any more.
    Ended,
    /// The program ends: so do all processes, whether or not they have questions.
    Hurrying,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) queue: VecDeque<Waiting>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) totals: Totals,
    next_number: u64,
    next_child: u64,
    rest: Duration,
    rest_until: Option<Instant>,
    overload_since: Option<Instant>,
    refused_in_overload: u64,
    warned: Option<Instant>,
    /// What is said when the lock is free.
    pub(crate) notices: Vec<Notice>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Serving,
            queue: VecDeque::new(),
            slots: Vec::new(),
            totals: Totals::default(),
            next_number: 0,
            next_child: 0,
            rest: Duration::ZERO,
            rest_until: None,
            overload_since: None,
            refused_in_overload: 0,
            warned: None,
            notices: Vec::new(),
        }
    }

    /// A number for a question or a seat.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn slot(&mut self, child: u64) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.number == child)
    }

    /// Processes that take questions.
    pub(crate) fn active(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.is_ending).count()
    }

    /// Gives a question to a process, or puts it into the queue (`true`), or says why there is no
    /// answer.
    pub(crate) fn submit(
        &mut self,
        definition: &Definition,
        waiting: Waiting,
        now: Instant,
    ) -> Result<bool, NoAnswer> {
        if self.phase >= Phase::Ended {
            return Err(NoAnswer::NotRunning);
        }
        let waiting = match self.hand_out(definition, waiting, now) {
            None => return Ok(false),
            Some(waiting) => waiting,
        };
        if self.has_failed(now) {
            return Err(NoAnswer::NoProcess);
        }
        self.admit(definition, now)?;
        self.queue.push_back(waiting);
        Ok(true)
    }

    /// Gives it to a process that has room; returns it if none has. Like Squid, it prefers the
    /// first process without a question, and then the one with fewest.
    fn hand_out(
        &mut self,
        definition: &Definition,
        waiting: Waiting,
        now: Instant,
    ) -> Option<Waiting> {
        let capacity = definition.capacity();
        match waiting.wanted {
            Wanted::Answer(job) => {
                let free = self.slots.iter_mut().filter(|slot| slot.has_room(capacity));
                match free.min_by_key(|slot| slot.pending + slot.late) {
                    Some(slot) => {
                        slot.give(job);
                        None
                    }
                    None => Some(Waiting { wanted: Wanted::Answer(job), ..waiting }),
                }
            }
            Wanted::Seat(answer) => {
                let number = waiting.number;
                match self.seatable(definition, now) {
                    Some(slot) => {
                        let seat = Seat { child: slot.number, number, since: now };
                        if answer.send(Ok(seat)).is_ok() {
                            slot.seat = Some(seat);
                        }
                        None
                    }
                    None => Some(Waiting { wanted: Wanted::Seat(answer), ..waiting }),
                }
            }
        }
    }

    /// A process that may be reserved: one without questions, or the one whose reservation has
    /// lasted longest, if it is too long.
    fn seatable(&mut self, definition: &Definition, now: Instant) -> Option<&mut Slot> {
        let is_open = |slot: &&mut Slot| !slot.is_ending && slot.pending == 0 && slot.late == 0;
        let mut open = self.slots.iter_mut().filter(is_open);
        let first = open.by_ref().min_by_key(|slot| slot.seat.map(|seat| seat.since))?;
        let limit = definition.children.reservation_timeout;
        let is_over = |seat: &Seat| now.duration_since(seat.since) > limit;
        first.seat.as_ref().is_none_or(is_over).then_some(first)
    }

    /// Whether one more question may wait.
    fn admit(&mut self, definition: &Definition, now: Instant) -> Result<(), NoAnswer> {
        self.queue.retain(|waiting| !waiting.is_given_up());
        let (waiting, queue) = (self.queue.len(), definition.children.queue_size as usize);
        let may_grow = self.active() < definition.children.max as usize && !self.is_resting(now);
        let is_full = match definition.overload {
            _ if waiting >= QUESTIONS_WAITING_MAX => true,
            _ if waiting >= QUESTIONS_SMALL && self.bytes_waiting() >= QUESTIONS_BYTES_MAX => true,
            Overload::Refuse => waiting >= queue && !may_grow,
            Overload::Tolerate if waiting > queue => {
                let since = *self.overload_since.get_or_insert(now);
                now.duration_since(since) > OVERLOAD_TIME_MAX
            }
            Overload::Tolerate => false,
        };
        if waiting >= queue && !may_grow {
            self.warn(now);
        }
        if is_full {
            self.refused_in_overload += 1;
            return Err(NoAnswer::Overloaded);
        }
        Ok(())
    }

    fn bytes_waiting(&self) -> usize {
        let bytes = |waiting: &Waiting| match &waiting.wanted {
            Wanted::Answer(job) => job.line.len(),
            Wanted::Seat(_) => 0,
        };
        self.queue.iter().map(bytes).sum()
    }

    fn warn(&mut self, now: Instant) {
        if self.warned.is_some_and(|at| now.duration_since(at) < WARNING_INTERVAL) {
            return;
        }
        self.warned = Some(now);
        let (processes, waiting) = (self.active(), self.queue.len());
        self.notices.push(Notice::Busy { processes, waiting });
    }

    /// Gives waiting questions to processes that have room.
    pub(crate) fn kick(&mut self, definition: &Definition, now: Instant) {
        while let Some(waiting) = self.queue.pop_front() {
            if waiting.is_given_up() {
                continue;
            }
            if let Some(waiting) = self.hand_out(definition, waiting, now) {
                self.queue.push_front(waiting);
                break;
            }
        }
        if self.overload_since.is_some()
            && self.queue.len() <= definition.children.queue_size as usize
        {
            self.overload_since = None;
            if self.refused_in_overload > 0 {
                let refused = std::mem::take(&mut self.refused_in_overload);
                self.notices.push(Notice::Calm { refused });
            }
        }
        self.end_idle();
    }

    /// Ends the processes without questions of a helper that is leaving.
    pub(crate) fn end_idle(&mut self) {
        if self.phase == Phase::Serving || !self.queue.is_empty() {
            return;
        }
        let hurries = self.phase == Phase::Hurrying;
        let idle = |slot: &&mut Slot| !slot.is_ending && (hurries || slot.is_idle());
        self.slots.iter_mut().filter(idle).for_each(Slot::end);
    }

    /// Sends a question once more, before those that wait.
    pub(crate) fn retry(&mut self, job: Job) {
        let (number, since) = (job.number, job.asked);
        self.queue.push_front(Waiting { number, since, wanted: Wanted::Answer(job) });
    }

    /// Ends all that wait without an answer.
    pub(crate) fn fail_waiting(&mut self, why: &NoAnswer) {
        self.queue.drain(..).for_each(|waiting| waiting.fail(why.clone()));
    }

    /// Ends those that have waited too long.
    pub(crate) fn expire(&mut self, definition: &Definition, now: Instant) {
        let is_late = |waiting: &Waiting| now.duration_since(waiting.since) >= definition.timeout;
        while self.queue.front().is_some_and(is_late) {
            if let Some(waiting) = self.queue.pop_front() {
                self.totals.timed_out += 1;
                waiting.fail(NoAnswer::TimedOut);
            }
        }
    }

    /// Whether no process may be started for now.
    pub(crate) fn is_resting(&self, now: Instant) -> bool {
        self.rest_until.is_some_and(|until| now < until)
    }

    /// Whether there is no process, and none is to be had soon.
    pub(crate) fn has_failed(&self, now: Instant) -> bool {
        self.active() == 0 && self.is_resting(now) && self.rest > REST_MIN
    }

    /// Number of processes to start.
    pub(crate) fn processes_wanted(&self, definition: &Definition, now: Instant) -> usize {
        if self.phase == Phase::Hurrying || self.is_resting(now) {
            return 0;
        }
        let children: &HelperChildren = &definition.children;
        let (active, max) = (self.active(), children.max as usize);
        // Processes that do not end must not pile up.
        let room = (PROCESSES_PER_CHILD_MAX * max).saturating_sub(self.slots.len());
        let room = room.min(max.saturating_sub(active));
        let missing = (children.startup as usize).saturating_sub(active);
        if self.phase == Phase::Serving && missing > 0 {
            return missing.min(room);
        }
        match self.queue.is_empty() {
            true => 0,
            false => (children.idle.max(1) as usize).min(room),
        }
    }

    /// The next moment at which the keeper has something to do by itself.
    pub(crate) fn next_deadline(&self, definition: &Definition, now: Instant) -> Option<Instant> {
        let queue = self.queue.front().map(|waiting| waiting.since + definition.timeout);
        let rest = self.rest_until.filter(|until| *until > now);
        let is_seat = |waiting: &Waiting| matches!(waiting.wanted, Wanted::Seat(_));
        let seat = self.queue.front().filter(|waiting| is_seat(waiting)).and_then(|_| {
            // An answer to one that is asked something wakes the keeper by itself.
            let is_open = |slot: &&Slot| !slot.is_ending && slot.pending == 0 && slot.late == 0;
            let seats = self.slots.iter().filter(is_open).filter_map(|slot| slot.seat);
            let over = |seat: Seat| seat.since + definition.children.reservation_timeout;
            seats.map(over).min().map(|at| at.max(now) + Duration::from_millis(1))
        });
        [queue, rest, seat].into_iter().flatten().min()
    }

    /// Notes a new process; returns its number.
    pub(crate) fn add(&mut self, pid: u32, wake: Arc<Notify>, now: Instant) -> u64 {
        self.next_child += 1;
        self.slots.push(Slot {
            number: self.next_child,
            pid,
            started: now,
            inbox: VecDeque::new(),
            pending: 0,
            late: 0,
            seat: None,
            is_ending: false,
            wake,
            counts: Counts::default(),
        });
        self.next_child
    }

    /// Sets the time before which no other process is started, after one has ended; returns the
    /// rest. After one that has lived long the next one starts at once.
    pub(crate) fn rest_after(&mut self, life: Life, now: Instant) -> Duration {
        self.rest = match life {
            Life::Long => Duration::ZERO,
            Life::OfUse => self.rest.max(REST_MIN),
            Life::Useless => (self.rest * 2).clamp(REST_MIN, REST_MAX),
        };
        self.rest_until = Some(now + self.rest);
        self.rest
    }

    /// A process has answered that lives long: the next one that fails counts as the first again.
    pub(crate) fn calm(&mut self) {
        self.rest = Duration::ZERO;
    }

    /// Whether there is nothing left to keep.
    pub(crate) fn is_over(&self) -> bool {
        self.phase >= Phase::Ended && self.queue.is_empty() && self.slots.is_empty()
    }
}
