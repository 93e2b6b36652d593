//! Commits to disk and purges take turns.
//!
//! A purge that is acknowledged must hold after a crash. So what was on its way to a directory when it came must be there, to be
//! removed, or not get there at all. Who commits looks at the epoch of the URL and commits behind the gate; a
//! purge begins a new epoch, then lets pass who is behind the gate, and then removes.

use tokio::sync::{RwLock, RwLockReadGuard};

use crate::key::Key;

/// A power of two: URLs share gates by hash, and a purge waits for the commits of a few others too.
const GATES: usize = 256;

/// The gates of a cache.
pub(crate) struct Gate {
    shards: Box<[RwLock<()>]>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { shards: (0..GATES).map(|_| RwLock::new(())).collect() }
    }

    fn shard(&self, primary: &Key) -> &RwLock<()> {
        &self.shards[primary.low64() as usize & (GATES - 1)]
    }

    /// Goes behind the gate, to commit something under this URL. Waits for purges that are about to begin.
    pub(crate) async fn enter(&self, primary: &Key) -> RwLockReadGuard<'_, ()> {
        self.shard(primary).read().await
    }

    /// The same, if no purge waits.
    pub(crate) fn try_enter(&self, primary: &Key) -> Option<RwLockReadGuard<'_, ()>> {
        self.shard(primary).try_read().ok()
    }

    /// Whether nobody is behind the gate now.
    pub(crate) fn try_let_pass(&self, primary: &Key) -> bool {
        self.shard(primary).try_write().is_ok()
    }

    /// Waits until all who are behind the gate now have come out.
    pub(crate) async fn let_pass(&self, primary: &Key) {
        drop(self.shard(primary).write().await);
    }
}
