//! The exchange of messages with the helper: messages under way, calls in line, waiting tasks.
//!
//! Cores hand in [`Call`]s. A call is sent at once if no more than Q2 are away, and waits in line
//! otherwise. One thread per helper, the clerk, receives replies, finishes the calls, and sends
//! calls from the line.
//!
//! **Order**: of two calls of one core the later one is done later, because the line is first in,
//! first out, and no call overtakes it (`is_sending`). **No endless wait**: when the helper ends,
//! all calls fail; only unlinking is done by the next one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use humboldt_sys::give_back;
use humboldt_sys::sysv::QueueMessage;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::call::{Call, Outcome};
use super::link::{Link, SLOT_BYTES, slots};
use super::protocol::{MESSAGE_BYTES, Message, Op};
use crate::Overload;
use crate::overload::{Room, Turns};
use crate::tree::EngineError;

/// Most calls in line, besides closing and unlinking, which are bounded by the open files and by
/// [`UNLINKS_MAX`].
const LINE_MAX: usize = 4096;

/// With more than this many times Q1 away, nothing is stored. From Q1 on, objects wait or are
/// turned away that come for the first time.
const STORES_PER_Q1: u32 = 2;

/// With more than this many times Q1 away, no file is opened to be read. Long before that, nothing
/// is stored any more.
const HITS_PER_Q1: u32 = 4;

/// With more files waiting to be unlinked, nothing is evicted, and no object is begun to be stored:
/// everything behind them in line waits for them.
pub(super) const UNLINKS_MAX: usize = 256;

/// Calls of a line that were given up are dropped when something is refused, if they are at least
/// this share of it: fewer are not worth looking at all of them.
const GIVEN_UP_SHARE: usize = 8;

/// After so many buffers that cores have allocated, and the clerk has freed, it gives up what it
/// keeps of them. Only calls from the line are sent by the clerk, so a fast disk never comes to it.
const FREED_MAX: u32 = 64;

/// Replies that are handed out together at most.
const BATCH_MAX: usize = 32;

/// Largest error number that the system has.
const ERRNO_MAX: i32 = 4095;

/// The phase of the helper's life.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It was never needed yet.
    Idle,
    /// It is being started; calls wait in line.
    Starting,
    /// It works.
    Running,
    /// It has ended too often, or could not be started: for a while calls fail at once.
    Resting,
    /// Operations under way are being finished; no new one is taken.
    Closing,
    /// For ever; the helper may still be at its last operation.
    Closed,
    /// The keeper has ended, and with it the helper.
    Gone,
}

/// Bounds of one directory's exchange.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    /// With more away, nothing is opened or created.
    pub(super) q1: u32,
    /// With more away, calls wait in line.
    pub(super) q2: u32,
    /// A helper that does nothing for this long, while something is asked of it, is ended.
    pub(super) stall: Duration,
}

/// Figures since the start.
#[derive(Default)]
pub(super) struct Figures {
    /// Replies that were none.
    pub(super) violations: AtomicU64,
    /// Helpers that were started.
    pub(super) helpers: AtomicU64,
}

struct State {
    phase: Phase,
    link: Option<Arc<Link>>,
    /// Calls under way, by the lower half of their id; the upper half tells those apart that had
    /// the same place.
    calls: Vec<Option<(u64, Call)>>,
    free_places: Vec<u32>,
    free_slots: Vec<u32>,
    line: VecDeque<Call>,
    /// The clerk is sending from the line.
    is_sending: bool,
    /// Buffers of writes that the clerk has freed since it gave up what it keeps of them.
    freed_by_clerk: u32,
    away: u32,
    unlinks: usize,
    next_id: u32,
    next_handle: u32,
    /// When the helper did something, or had nothing to do, last.
    last_progress: Instant,
}

/// The exchange of one directory.
pub(super) struct Exchange {
    /// The directory, for messages.
    path: PathBuf,
    limits: Limits,
    state: Mutex<State>,
    /// The phase, or whether anything is under way, has changed.
    changed: Condvar,
    pub(super) figures: Figures,
    /// Those who wait until fewer messages are not answered.
    pub(super) turns: Turns,
    /// What room there is depends on it.
    amounts: Arc<Amounts>,
    /// Reads that were given up since those were dropped for which nobody waits.
    given_up: Arc<AtomicUsize>,
}

/// Copies of the state's, for those who do not lock it.
#[derive(Default)]
struct Amounts {
    /// See [`State::begun`].
    begun: AtomicU32,
    unlinks: AtomicUsize,
}

impl Exchange {
    pub(super) fn new(
        path: &Path,
        limits: Limits,
        overload: Overload,
        capacity_bytes: u64,
    ) -> Self {
        let amounts = Arc::<Amounts>::default();
        let asked = Arc::clone(&amounts);
        // Unlinks bound the room only if there are any.
        let half = (u64::from(limits.q1) + 1).min(UNLINKS_MAX as u64);
        let room = move || {
            let unlinks_left = UNLINKS_MAX.saturating_sub(asked.unlinks.load(Ordering::Relaxed));
            let begun = asked.begun.load(Ordering::Relaxed);
            Room::beside(begun.into(), half).at_most(unlinks_left as u64)
        };
        let turns = Turns::new(overload, capacity_bytes, room);
        let state = State {
            phase: Phase::Idle,
            link: None,
            calls: Vec::new(),
            free_places: Vec::new(),
            free_slots: Vec::new(),
            line: VecDeque::new(),
            is_sending: false,
            freed_by_clerk: 0,
            away: 0,
            unlinks: 0,
            next_id: 0,
            next_handle: 0,
            last_progress: Instant::now(),
        };
        Self {
            path: path.to_owned(),
            limits,
            state: Mutex::new(state),
            changed: Condvar::new(),
            figures: Figures::default(),
            turns,
            amounts,
            given_up: Arc::default(),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// The connection with the helper that runs.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.state.lock().link.clone()
    }

    /// Squid's figure: messages that are not answered, in thousandths of Q2. Those in line count
    /// too, and files to be unlinked do not: nothing waits for them.
    pub(super) fn load(&self) -> u16 {
        let begun = u64::from(self.amounts.begun.load(Ordering::Relaxed));
        (begun * 1000 / u64::from(self.limits.q2.max(1))).min(1000) as u16
    }

    /// Whether a file could be opened or created now.
    pub(super) fn admits(&self) -> bool {
        let state = self.state.lock();
        state.begun() <= STORES_PER_Q1 * self.limits.q1 && state.phase < Phase::Resting
    }

    /// Whether half of the messages are away with which nothing is stored any more.
    pub(super) fn is_half_full(&self) -> bool {
        self.amounts.begun.load(Ordering::Relaxed) > self.limits.q1
    }

    /// Counts reads that are given up.
    pub(super) fn given_up(&self) -> &Arc<AtomicUsize> {
        &self.given_up
    }

    /// Some calls were taken on, or have ended.
    fn count(&self, state: &State) {
        self.amounts.begun.store(state.begun(), Ordering::Relaxed);
        self.amounts.unlinks.store(state.unlinks, Ordering::Relaxed);
    }

    /// Whether files may be handed in for unlinking.
    pub(super) fn takes_unlinks(&self) -> bool {
        self.state.lock().unlinks < UNLINKS_MAX
    }

    /// A number for a file to be opened. It comes back after 2^32 others; a helper that was started
    /// meanwhile does not know the numbers of the one before.
    pub(super) fn new_handle(&self) -> u32 {
        let mut state = self.state.lock();
        state.next_handle = state.next_handle.wrapping_add(1);
        state.next_handle
    }

    /// Hands in a call. Its outcome arrives by its own way, also if it is refused.
    pub(super) fn submit(&self, call: Call) {
        let mut state = self.state.lock();
        let mut refused = self.refuse(&state, &call);
        if refused == Err(EngineError::Shed) {
            let unwanted = self.take_unwanted(&mut state);
            if !unwanted.is_empty() {
                MutexGuard::unlocked(&mut state, || self.finish_unwanted(unwanted));
                refused = self.refuse(&state, &call);
            }
        }
        if let Err(failure) = refused {
            drop(state);
            call.finish(Err(failure));
            return;
        }
        state.unlinks += usize::from(call.op() == Op::Unlink);
        if state.is_sending || !state.line.is_empty() || !self.can_send(&state, &call) {
            state.line.push_back(call);
            self.count(&state);
            return;
        }
        let departure = state.depart(call);
        self.count(&state);
        drop(state);
        let Some(departure) = departure else { return };
        self.send(departure);
    }

    /// Takes calls out of the line for which nobody waits any more.
    fn take_unwanted(&self, state: &mut State) -> Vec<Call> {
        let least = state.line.len().div_ceil(GIVEN_UP_SHARE);
        if self.given_up.load(Ordering::Relaxed) < least {
            return Vec::new();
        }
        self.given_up.store(0, Ordering::Relaxed);
        let (kept, unwanted): (VecDeque<_>, VecDeque<_>) =
            state.line.drain(..).partition(Call::is_wanted);
        state.line = kept;
        self.count(state);
        if state.pending() == 0 {
            self.changed.notify_all();
        }
        unwanted.into()
    }

    /// Drops calls that were not begun, which makes room. They may hold open files, whose closing
    /// is a call: so not under the lock.
    fn finish_unwanted(&self, unwanted: Vec<Call>) {
        unwanted.into_iter().for_each(|call| call.finish(Err(EngineError::Gone)));
        self.turns.look();
    }

    /// Whether a call cannot even wait in line.
    fn refuse(&self, state: &State, call: &Call) -> Result<(), EngineError> {
        let op = call.op();
        match state.phase {
            Phase::Closed | Phase::Gone => return Err(EngineError::Gone),
            Phase::Closing if call.begins() => return Err(EngineError::Gone),
            // Files to be unlinked wait for the next helper.
            Phase::Resting if op != Op::Unlink => {
                return Err(EngineError::Gone);
            }
            _ => {}
        }
        // Hits outlast stores.
        let begun_max = if call.stores() { STORES_PER_Q1 } else { HITS_PER_Q1 } * self.limits.q1;
        let is_too_much = call.begins() && state.begun() > begun_max
            || !matches!(op, Op::Close | Op::Unlink) && state.line.len() >= LINE_MAX;
        if is_too_much {
            return Err(EngineError::Shed);
        }
        Ok(())
    }

    fn can_send(&self, state: &State, call: &Call) -> bool {
        let is_up = matches!(state.phase, Phase::Running | Phase::Closing) && state.link.is_some();
        is_up
            && state.away <= self.limits.q2
            && (!call.op().needs_slot() || !state.free_slots.is_empty())
    }

    /// Puts a call's bytes into its slot and sends it.
    fn send(&self, departure: Departure) {
        let Departure { link, message, bytes } = departure;
        let is_copied = bytes.is_none_or(|bytes| {
            link.memory.copy_in(message.slot as usize * SLOT_BYTES as usize, &bytes).is_ok()
        });
        // The queue has room for all that may be away, so it is full, or gone, only with the
        // helper.
        let is_sent = is_copied && matches!(link.requests.send(&message.encode(), false), Ok(true));
        if !is_sent {
            // The call shares the fate of all others: the clerk of this connection, which ends now,
            // fails them or leaves them to the next helper.
            link.cut();
        }
    }

    /// Sends as much of the line as possible. Only the clerk does this.
    fn send_line(&self) {
        let mut state = self.state.lock();
        let mut unwanted = Vec::new();
        while let Some(front) = state.line.front() {
            if !front.is_wanted() {
                unwanted.extend(state.line.pop_front());
                continue;
            }
            if !self.can_send(&state, front) {
                break;
            }
            state.is_sending = true;
            let Some(call) = state.line.pop_front() else { break };
            if let Some(departure) = state.depart(call) {
                state.freed_by_clerk += u32::from(departure.bytes.is_some());
                MutexGuard::unlocked(&mut state, || self.send(departure));
            }
        }
        state.is_sending = false;
        let has_freed_many = state.freed_by_clerk >= FREED_MAX;
        if has_freed_many {
            state.freed_by_clerk = 0;
        }
        self.count(&state);
        if state.pending() == 0 {
            self.changed.notify_all();
        }
        drop(state);
        if !unwanted.is_empty() {
            self.finish_unwanted(unwanted);
        }
        if has_freed_many {
            give_back::give_freed_blocks_up();
        }
    }

    /// Calls in line.
    #[cfg(test)]
    pub(super) fn in_line(&self) -> usize {
        self.state.lock().line.len()
    }

    /// The life of the clerk: replies, until the queue is removed or a reply makes no sense.
    /// Everything fails then.
    pub(super) fn receive_replies(&self, link: &Link) {
        let mut outcomes = Vec::with_capacity(BATCH_MAX);
        let mut is_sound = true;
        while is_sound {
            let mut received = link.replies.receive(true);
            while let Ok(Some(reply)) = received {
                is_sound = self.take_reply(link, reply, &mut outcomes);
                if !is_sound || outcomes.len() >= BATCH_MAX {
                    break;
                }
                received = link.replies.receive(false);
            }
            outcomes.drain(..).for_each(|(call, outcome)| call.finish(outcome));
            // Reads make room too.
            self.turns.look();
            if received.is_err() {
                break;
            }
            self.send_line();
        }
        if !is_sound {
            self.figures.violations.fetch_add(1, Ordering::Relaxed);
            let path = self.path.display();
            tracing::error!("{path}: the diskd helper sends what makes no sense; it is killed");
            link.cut();
        }
        self.fail_all();
    }

    /// `false` if it is no reply to anything.
    fn take_reply(
        &self,
        link: &Link,
        reply: QueueMessage<MESSAGE_BYTES>,
        outcomes: &mut Vec<(Call, Outcome)>,
    ) -> bool {
        let QueueMessage::Text(bytes) = reply else { return false };
        let Some(reply) = Message::decode(&bytes) else { return false };
        let mut state = self.state.lock();
        state.last_progress = Instant::now();
        if reply.op == Op::Hello {
            link.hide_memory();
            let was_starting = state.phase == Phase::Starting;
            if was_starting {
                state.phase = Phase::Running;
                self.changed.notify_all();
            }
            return was_starting || state.phase == Phase::Closing;
        }
        let Some(asked) = state.message(reply.id) else { return false };
        let is_reply = Message { status: 0, length: 0, ..reply } == Message { length: 0, ..asked }
            && reply.length <= asked.length
            && (0..=ERRNO_MAX).contains(&reply.status);
        if !is_reply {
            return false;
        }
        let Some(mut call) = state.arrive_but_keep_slot(reply.id) else { return false };
        self.count(&state);
        drop(state);
        let outcome = match reply.status {
            0 => call.take_bytes(&link.memory, asked.slot, reply.length),
            status => Err(EngineError::System(Errno::from_raw_os_error(status))),
        };
        if call.op().needs_slot() {
            self.state.lock().free_slots.push(asked.slot);
        }
        outcomes.push((call, outcome));
        true
    }

    /// The helper has ended: every call fails but unlinking, which the next helper shall do.
    pub(super) fn fail_all(&self) {
        let mut state = self.state.lock();
        state.link = None;
        if state.phase == Phase::Running {
            state.phase = Phase::Resting; // the keeper decides how long
        }
        let mut all: Vec<Call> = state.calls.drain(..).flatten().map(|(_, call)| call).collect();
        all.extend(state.line.drain(..));
        state.free_places.clear();
        state.away = 0;
        let is_last = state.phase >= Phase::Closing;
        let is_kept = |call: &Call| call.op() == Op::Unlink && !is_last;
        let (kept, failed): (Vec<Call>, Vec<Call>) = all.into_iter().partition(is_kept);
        state.unlinks = kept.len();
        state.line.extend(kept);
        self.count(&state);
        self.changed.notify_all();
        drop(state);
        failed.into_iter().for_each(|call| call.finish(Err(EngineError::Gone)));
        self.turns.look();
    }

    /// A helper is being started, with this connection; `false` if it is not wanted any more.
    pub(super) fn attach(&self, link: &Arc<Link>) -> bool {
        let mut state = self.state.lock();
        if state.phase >= Phase::Closed {
            return false;
        }
        state.link = Some(Arc::clone(link));
        state.free_slots = (0..slots(self.limits.q2)).rev().collect();
        state.last_progress = Instant::now();
        self.figures.helpers.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Moves on to `phase`; `false` if it is being closed, which is final. Without a helper, calls
    /// in line fail unless a helper will come.
    pub(super) fn enter(&self, phase: Phase) -> bool {
        let mut state = self.state.lock();
        if state.phase >= Phase::Closing && phase <= state.phase {
            return false;
        }
        state.phase = phase;
        self.changed.notify_all();
        let is_hopeless =
            state.link.is_none() && (phase == Phase::Resting || phase >= Phase::Closed);
        drop(state);
        if is_hopeless {
            self.fail_all();
        }
        true
    }

    /// Waits until the phase is at least `phase`, or `limit` has passed.
    pub(super) fn wait_for_phase(&self, phase: Phase, limit: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.phase < phase, limit);
    }

    /// Waits until nothing is under way, or `limit` has passed.
    pub(super) fn wait_until_quiet(&self, limit: Duration) {
        let mut state = self.state.lock();
        let is_busy = |state: &mut State| state.pending() > 0 && state.phase < Phase::Closed;
        self.changed.wait_while_for(&mut state, is_busy, limit);
    }

    /// Ends a helper that has done nothing for too long. Called about once a second.
    pub(super) fn end_stalled(&self) {
        self.end_stalled_at(Instant::now());
    }

    /// As [`Exchange::end_stalled`], at this time.
    pub(super) fn end_stalled_at(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.away == 0 && state.phase != Phase::Starting {
            state.last_progress = now;
        }
        let is_stalled = now.saturating_duration_since(state.last_progress) > self.limits.stall;
        let link = state.link.clone().filter(|_| is_stalled);
        drop(state);
        if let Some(link) = link {
            let stall_s = self.limits.stall.as_secs();
            let path = self.path.display();
            tracing::error!(
                "{path}: the diskd helper has not answered for {stall_s} s; it is killed"
            );
            link.cut();
        }
    }
}

/// A call on its way.
struct Departure {
    link: Arc<Link>,
    message: Message,
    bytes: Option<Vec<u8>>,
}

impl State {
    /// Calls that are not answered.
    fn pending(&self) -> u32 {
        self.away.saturating_add(u32::try_from(self.line.len()).unwrap_or(u32::MAX))
    }

    /// The same without unlinking, for which nothing waits.
    fn begun(&self) -> u32 {
        self.pending().saturating_sub(u32::try_from(self.unlinks).unwrap_or(u32::MAX))
    }

    /// Gives a call that can be sent an id and a slot.
    fn depart(&mut self, mut call: Call) -> Option<Departure> {
        let link = Arc::clone(self.link.as_ref()?);
        if call.op().needs_slot() {
            call.request.slot = self.free_slots.pop()?;
        }
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.calls.len() as u32 - 1
        });
        self.next_id = self.next_id.wrapping_add(1);
        call.request.id = u64::from(self.next_id) << 32 | u64::from(place);
        let departure = Departure { link, message: call.request, bytes: call.take_outgoing() };
        if self.away == 0 {
            self.last_progress = Instant::now();
        }
        self.away += 1;
        let entry = self.calls.get_mut(place as usize)?;
        *entry = Some((call.request.id, call));
        Some(departure)
    }

    fn message(&self, id: u64) -> Option<Message> {
        let place = (id & u64::from(u32::MAX)) as usize;
        let (found, call) = self.calls.get(place)?.as_ref()?;
        (*found == id).then_some(call.request)
    }

    fn arrive_but_keep_slot(&mut self, id: u64) -> Option<Call> {
        self.message(id)?;
        let place = id as u32;
        let (_, call) = self.calls.get_mut(place as usize)?.take()?;
        self.free_places.push(place);
        self.away -= 1;
        self.unlinks -= usize::from(call.op() == Op::Unlink);
        Some(call)
    }
}
