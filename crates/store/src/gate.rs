//! Commits to disk, and purges that wait for them.
//!
//! An acknowledged purge must hold after a crash. So a record that is under way to a directory when
//! the purge arrives must either be there, to be removed, or not get there at all. A task that
//! commits goes behind the gate, then looks at the epoch of the URL, and commits. A purge begins a
//! new epoch, then waits for the tasks of its URL behind the gate, and then removes.
//!
//! No task waits at the gate, and a purge does not wait for later tasks: they see the new epoch. So
//! a commit that hangs delays only purges of its own URL.

use std::pin::pin;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::Key;

/// A power of two: URLs share locks by hash.
const SHARDS: usize = 256;

/// The gate of a cache.
pub(crate) struct Gate {
    shards: Box<[Shard]>,
}

#[derive(Default)]
struct Shard {
    inside: Mutex<Inside>,
    /// Notified whenever a task has come out.
    left: Notify,
}

#[derive(Default)]
struct Inside {
    /// The number of the next task behind the gate.
    next: u64,
    /// URLs of the tasks behind the gate, with their numbers.
    commits: Vec<(u64, Key)>,
}

/// Somebody behind the gate, until it is dropped.
pub(crate) struct Commit<'a> {
    shard: &'a Shard,
    number: u64,
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        let mut inside = self.shard.inside.lock();
        let at = inside.commits.iter().position(|(number, _)| *number == self.number);
        at.map(|at| inside.commits.swap_remove(at));
        drop(inside);
        self.shard.left.notify_waiters();
    }
}

impl Inside {
    fn has_before(&self, number: u64, primary: &Key) -> bool {
        self.commits.iter().any(|(entered, url)| *entered < number && url == primary)
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, primary: &Key) -> &Shard {
        &self.shards[primary.low64() as usize & (SHARDS - 1)]
    }

    /// Goes behind the gate, to look at the epoch of this URL and then commit something under it.
    pub(crate) fn enter(&self, primary: &Key) -> Commit<'_> {
        let shard = self.shard(primary);
        let mut inside = shard.inside.lock();
        let number = inside.next;
        inside.next += 1;
        inside.commits.push((number, *primary));
        Commit { shard, number }
    }

    /// Whether no task is behind the gate under this URL.
    pub(crate) fn is_clear(&self, primary: &Key) -> bool {
        !self.shard(primary).inside.lock().has_before(u64::MAX, primary)
    }

    /// Waits until all tasks that are behind the gate now under this URL have come out.
    pub(crate) async fn let_pass(&self, primary: &Key) {
        let shard = self.shard(primary);
        let next = shard.inside.lock().next;
        loop {
            let mut left = pin!(shard.left.notified());
            left.as_mut().enable();
            if !shard.inside.lock().has_before(next, primary) {
                return;
            }
            left.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::testing::{block_on, key};

    #[test]
    fn a_commit_that_hangs_keeps_only_purges_of_its_url_waiting() {
        let gate = Gate::new();
        // Of two shards' worth of URLs, some share the lock.
        let others = || (2..2 * SHARDS as u64 + 2).map(key);
        let hanging = gate.enter(&key(1));
        let url = key(1);
        let mut purge = pin!(gate.let_pass(&url));
        let mut poll = || purge.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        assert!(!gate.is_clear(&key(1)));
        for other in others() {
            block_on(gate.let_pass(&other));
            assert!(gate.is_clear(&other));
            drop(gate.enter(&other));
        }
        // Nor does it wait for later tasks.
        let later = gate.enter(&key(1));
        assert_eq!(poll(), Poll::Pending);
        drop(hanging);
        assert_eq!(poll(), Poll::Ready(()));
        drop(later);
        assert!(gate.is_clear(&key(1)));
    }
}
