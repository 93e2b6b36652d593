//! Work on the directories of a cache outside of requests: upkeep, and an end in order.

use std::pin::Pin;
use std::sync::Arc;

use crate::cache::Cache;
use crate::dirs::Dir;
use crate::together;

impl Cache {
    /// Housekeeping of all directories at the same time, to be called about once a second on one
    /// core. A directory whose last round has not ended is left out.
    pub async fn maintain(&self) {
        self.for_each_dir(async |dir: &Dir| dir.maintain(&self.commits).await).await;
    }

    /// Resolves when every complete answer has been written where it belongs, and older ones have
    /// been removed. To be awaited while the cores still run: if the program ends before, a
    /// directory may keep an answer that is older than one already served.
    pub async fn settled(&self) {
        self.in_flight().versions().settled().await;
    }

    /// Removes records from the directories that could not be removed yet because their indexes
    /// were being read. To be awaited before [`Cache::close`].
    pub async fn prepare_close(&self) {
        self.for_each_dir(async |dir: &Dir| dir.remove_hidden().await).await;
    }

    /// Closes all directories. Blocking; the last thing that is done with a cache.
    pub fn close(&self) {
        for dir in &self.table().dirs {
            if let Err(error) = dir.scheme.close() {
                tracing::warn!(path = %dir.scheme.path().display(), %error, "not closed cleanly");
            }
        }
    }

    /// One that hangs keeps no other from its turn.
    async fn for_each_dir(&self, turn: impl AsyncFn(&Dir)) {
        let table = self.table();
        let begin = |dir: &Arc<Dir>| -> Pin<Box<dyn Future<Output = ()> + '_>> {
            let (dir, turn) = (Arc::clone(dir), &turn);
            Box::pin(async move { turn(&dir).await })
        };
        together::all(table.dirs.iter().map(begin).collect()).await;
    }
}
