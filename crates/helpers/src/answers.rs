//! Answers that are kept by their questions, and equal questions that are asked once at a time.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

use humboldt_runtime::mailbox;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::no_answer::NoAnswer;
use crate::pool::Helper;
use crate::reply::{Outcome, Reply};

/// Most bytes of the kept answers of one helper, with their questions.
pub(crate) const ANSWERS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Void turns beside as many as there are answers.
const VOID_TURNS_MAX: usize = 16;

/// Bytes that an answer needs beside its text.
const OVERHEAD_BYTES: usize = 256;

/// How long answers are kept.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// `OK`.
    pub ok: Duration,
    /// `ERR`.
    pub err: Duration,
    /// Last part of these times, in percent, in which the helper is asked again while the kept
    /// answer still serves.
    pub grace_percent: u32,
    /// Most answers; 0: none, and equal questions are asked each.
    pub entries_max: usize,
}

/// An answer.
type Told = Result<Arc<Reply>, NoAnswer>;

/// The kept answers of a helper. Every answer in it is `OK` or `ERR`.
pub struct Answers {
    keeping: Keeping,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<Arc<[u8]>, Kept>,
    /// The questions of kept answers, in the order in which they are forgotten. Those that were
    /// used since their last turn get another one. An answer knows the number of its turn: others
    /// with its question are void.
    turns: VecDeque<(u64, Arc<[u8]>)>,
    last_turn: u64,
    bytes: usize,
    /// Those who wait for an answer that another one has asked for.
    asked: HashMap<Arc<[u8]>, Vec<oneshot::Sender<Told>>>,
}

struct Kept {
    reply: Arc<Reply>,
    since: Instant,
    bytes: usize,
    turn: u64,
    is_used: bool,
}

impl Keeping {
    fn lifetime(&self, reply: &Reply) -> Duration {
        if reply.outcome == Outcome::Ok { self.ok } else { self.err }
    }

    fn keeps(&self, reply: &Reply) -> bool {
        self.entries_max > 0 && !self.lifetime(reply).is_zero()
    }
}

impl Answers {
    /// None yet.
    pub fn new(keeping: Keeping) -> Self {
        Self { keeping, inner: Mutex::default() }
    }

    /// Number of kept answers.
    pub fn len(&self) -> usize {
        self.inner.lock().kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kept answer to a question, and whether it is time to ask again.
    pub fn find(&self, question: &[u8]) -> Option<(Arc<Reply>, bool)> {
        let mut inner = self.inner.lock();
        let kept = inner.kept.get_mut(question)?;
        let (age, lifetime) = (kept.since.elapsed(), self.keeping.lifetime(&kept.reply));
        if age >= lifetime {
            return None;
        }
        kept.is_used = true;
        let reply = Arc::clone(&kept.reply);
        let fresh = lifetime * 100_u32.saturating_sub(self.keeping.grace_percent) / 100;
        let is_due = age >= fresh && !inner.asked.contains_key(question);
        Some((reply, is_due))
    }

    /// Asks the helper, or waits for the answer that another one has asked for.
    ///
    /// # Errors
    /// There is no answer `OK` or `ERR`.
    pub async fn ask(&self, helper: &Helper, question: &[u8]) -> Result<Arc<Reply>, NoAnswer> {
        if self.keeping.entries_max == 0 {
            return helper.ask(question).await.and_then(clear);
        }
        let question: Arc<[u8]> = question.into();
        loop {
            let Some(mut waiting) = self.join(&question) else {
                return self.lead(helper, question).await;
            };
            let told = poll_fn(|context| {
                let waker = mailbox::waker(context);
                Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker))
            });
            // If its asker has left, somebody else has to ask.
            if let Ok(told) = told.await {
                return told;
            }
        }
    }

    /// Joins those who wait for the answer to a question; `None`: it has to be asked.
    fn join(&self, question: &Arc<[u8]>) -> Option<oneshot::Receiver<Told>> {
        let mut inner = self.inner.lock();
        if let Some(others) = inner.asked.get_mut(question) {
            let (sender, receiver) = oneshot::channel();
            others.push(sender);
            return Some(receiver);
        }
        inner.asked.insert(Arc::clone(question), Vec::new());
        None
    }

    async fn lead(&self, helper: &Helper, question: Arc<[u8]>) -> Told {
        let mut leading = Leading { answers: self, question: &question, told: None };
        let told = helper.ask(&question).await.and_then(clear);
        match &told {
            Ok(reply) => self.keep(&question, Arc::clone(reply)),
            // As in Squid it then forgets what it has known, unless it was not even asked.
            Err(NoAnswer::Overloaded) => {}
            Err(_) => self.inner.lock().forget(&question),
        }
        leading.told = Some(told.clone());
        told
    }

    fn keep(&self, question: &Arc<[u8]>, reply: Arc<Reply>) {
        let mut inner = self.inner.lock();
        inner.forget(question);
        if !self.keeping.keeps(&reply) {
            return;
        }
        let texts: usize = reply.pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = question.len() + texts + reply.text.len() + OVERHEAD_BYTES;
        let turn = inner.turn(Arc::clone(question));
        let kept = Kept { reply, since: Instant::now(), bytes, turn, is_used: false };
        inner.kept.insert(Arc::clone(question), kept);
        inner.bytes += bytes;
        while inner.kept.len() > self.keeping.entries_max || inner.bytes > ANSWERS_BYTES_MAX {
            inner.take_turn();
        }
        if inner.turns.len() > 2 * inner.kept.len() + VOID_TURNS_MAX {
            let Inner { turns, kept, .. } = &mut *inner;
            turns.retain(|(turn, question)| {
                kept.get(question).is_some_and(|kept| kept.turn == *turn)
            });
        }
    }
}

/// Only `OK` and `ERR` are answers.
fn clear(reply: Reply) -> Told {
    match reply.outcome {
        Outcome::Ok | Outcome::Err => Ok(Arc::new(reply)),
        Outcome::Broken | Outcome::Challenge | Outcome::Unknown => Err(NoAnswer::Unclear),
    }
}

impl Inner {
    fn forget(&mut self, question: &[u8]) {
        if let Some(kept) = self.kept.remove(question) {
            self.bytes -= kept.bytes;
        }
    }

    /// Forgets the answer whose turn it is, or gives it another turn.
    fn take_turn(&mut self) {
        let Some((turn, question)) = self.turns.pop_front() else { return };
        match self.kept.get_mut(&question).filter(|kept| kept.turn == turn) {
            Some(kept) if kept.is_used => {
                kept.is_used = false;
                let turn = self.turn(Arc::clone(&question));
                if let Some(kept) = self.kept.get_mut(&question) {
                    kept.turn = turn;
                }
            }
            Some(_) => self.forget(&question),
            None => {}
        }
    }

    /// The last turn, for this question.
    fn turn(&mut self, question: Arc<[u8]>) -> u64 {
        self.last_turn += 1;
        self.turns.push_back((self.last_turn, question));
        self.last_turn
    }
}

/// A question that is being asked. When it ends, those who wait for it get its answer, or none if
/// its asker has left.
struct Leading<'a> {
    answers: &'a Answers,
    question: &'a [u8],
    told: Option<Told>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let others = self.answers.inner.lock().asked.remove(self.question).unwrap_or_default();
        let Some(told) = self.told.take() else { return };
        for other in others {
            _ = other.send(told.clone()); // it may have left
        }
    }
}
