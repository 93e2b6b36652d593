//! The removal of a URL from directories, as far as others must know of it.

use std::sync::Arc;

use crate::key::Key;

use super::{Identity, State, Versions};

/// A removal of a URL from directories. Until it is done, records read from them do not go to
/// memory; until all indexes are without the URL, nothing is read.
#[derive(Debug)]
pub struct Voiding {
    versions: Arc<Versions>,
    primary: Key,
    since: u64,
    is_hiding: bool,
}

impl Voiding {
    pub(crate) fn new(versions: &Arc<Versions>, primary: Key) -> Self {
        let mut shard = versions.shard(&primary);
        let known = shard.entry(primary).or_default();
        (known.holders, known.voidings, known.hidings) =
            (known.holders + 1, known.voidings + 1, known.hidings + 1);
        let since = versions.now();
        drop(shard);
        Self { versions: Arc::clone(versions), primary, since, is_hiding: true }
    }

    pub(crate) fn primary(&self) -> Key {
        self.primary
    }

    /// Complete answers that were asked for since: directories may have them, and they are not
    /// void.
    pub(crate) fn newer(&self) -> Vec<Identity> {
        let shard = self.versions.shard(&self.primary);
        let notes = shard.get(&self.primary).into_iter().flat_map(|known| &known.notes);
        let newer = notes.filter(|note| {
            note.key == self.primary && note.stamp.asked > self.since && note.state != State::Coming
        });
        newer.filter_map(|note| note.identity).collect()
    }

    /// No index has it any more, and nothing older is on its way.
    pub(crate) fn show(&mut self) {
        if std::mem::take(&mut self.is_hiding)
            && let Some(known) = self.versions.shard(&self.primary).get_mut(&self.primary)
        {
            known.hidings -= 1;
        }
    }
}

impl Drop for Voiding {
    fn drop(&mut self) {
        self.show();
        if let Some(known) = self.versions.shard(&self.primary).get_mut(&self.primary) {
            known.voidings -= 1;
            known.voided = self.versions.now();
        }
        self.versions.release(&self.primary);
        self.versions.settled.notify_waiters();
    }
}
