//! Messages about a helper, which are written when its lock is free again.

use std::ops::{Deref, DerefMut};

use parking_lot::MutexGuard;

use crate::definition::Definition;
use crate::state::State;

/// A message.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Questions wait, and no more processes may be started.
    Busy { processes: usize, waiting: usize },
    /// No more questions wait than may.
    Calm { refused: u64 },
}

/// The state of a helper while its lock is held. What there is to say is said afterwards.
pub(crate) struct Locked<'p> {
    // In this order: the lock is free before anything is said.
    state: MutexGuard<'p, State>,
    said: Said<'p>,
}

struct Said<'p> {
    definition: &'p Definition,
    notices: Vec<Notice>,
}

impl<'p> Locked<'p> {
    pub(crate) fn new(state: MutexGuard<'p, State>, definition: &'p Definition) -> Self {
        Self { state, said: Said { definition, notices: Vec::new() } }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.said.notices = std::mem::take(&mut self.state.notices);
    }
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        let name = &self.definition.name;
        for notice in &self.notices {
            match notice {
                Notice::Busy { processes, waiting } => tracing::warn!(
                    "{name}: all {processes} processes are busy, and {waiting} questions wait; \
                     consider more processes"
                ),
                Notice::Calm { refused } => tracing::warn!(
                    "{name}: no longer overloaded; {refused} questions had no answer"
                ),
            }
        }
    }
}
