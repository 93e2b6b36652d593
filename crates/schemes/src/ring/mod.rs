//! `ring`: a log of segments that is written round and round, with an index of eight bytes an
//! object.
//!
//! The format is in `docs/formats/ring.md`. From the outside in: this file implements the trait;
//! `reader` and `writer` work on one object each; `log` appends; `keeper` is the thread that has
//! segments reclaimed (`reclaim`, `copies`) and writes checkpoints, `recover` is its first work;
//! `index`, `segments`, `purges`, `checkpoint`, `format` and `layout` each own one kind of thing.

mod checkpoint;
mod copies;
mod device_reads;
mod doubts;
mod format;
mod geometry;
mod housekeeping;
mod index;
mod keeper;
mod layout;
mod length;
mod log;
mod purges;
mod reader;
mod reclaim;
mod recover;
mod segments;
#[cfg(test)]
mod sim;
mod store;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use humboldt_store::scheme::{
    Confirmed, IoFuture, OpenObject, Place, Record, Scheme, SchemeError, SchemeStats, Writer,
};
use humboldt_store::{About, Borrowed, Key};

use self::store::Store;
use self::writer::RingWriter;
use crate::overload::place_bytes;
use crate::{OpenError, RingOptions};

/// What `cache_dir` says about one directory of this scheme.
pub(crate) type DirOptions = crate::DirOptions<RingOptions>;

/// Name in squid.conf.
pub(crate) const NAME: &str = "ring";

/// How long the end waits for writes under way.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// How long a round of upkeep waits for the device and for the keeper.
const FLUSH_WAIT: Duration = Duration::from_secs(5);

/// Creates the directory and its files.
pub(crate) fn create(options: &DirOptions) -> Result<(), OpenError> {
    layout::claim(options).map(drop)
}

/// A cache directory of this scheme.
pub(crate) struct Ring {
    store: Arc<Store>,
}

impl Ring {
    /// Claims the directory. The index is read by a thread that starts with the first operation.
    pub(crate) fn open(options: &DirOptions) -> Result<Self, OpenError> {
        let claimed = layout::claim(options)?;
        let store = Store::new(options, claimed).map_err(|source| OpenError::Io {
            operation: "read the log of removals of",
            path: options.path.clone(),
            source,
        })?;
        Ok(Self { store: Arc::new(store) })
    }

    /// Nothing of this instance touches the files any more; the directory is free for another one.
    fn release(&self) {
        self.store.is_closed.store(true, Ordering::Release);
        self.store.keeper.stop();
        if !self.store.data.wait_idle(CLOSE_WAIT) || !self.store.purges.wait_idle(CLOSE_WAIT) {
            tracing::warn!("{}: the device did not finish in time", self.path().display());
        }
        self.store.progress.notify_waiters();
        if let Some(lock) = self.store.lock.lock().take() {
            crate::lock::release(lock);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.store.lock.lock().is_some() {
            self.release();
        }
    }
}

impl Scheme for Ring {
    fn name(&self) -> &'static str {
        NAME
    }

    fn path(&self) -> &Path {
        &self.store.options.path
    }

    fn admits(&self, body_bytes: Option<u64>) -> bool {
        let options = &self.store.options;
        let fits = match body_bytes {
            Some(bytes) => (options.min_bytes..=options.max_bytes.min(self.store.body_bytes_max()))
                .contains(&bytes),
            None => options.min_bytes == 0,
        };
        fits && self.store.may_store()
    }

    fn load(&self) -> u16 {
        (self.store.log.sealed_bytes() * 1000 / self.store.log.pending_bytes_max()).min(1000) as u16
    }

    fn contains(&self, key: &Key) -> bool {
        let index = self.store.index.get();
        self.store.in_service().is_ok()
            && index.is_some_and(|index| index.get(self.store.hash(key)).is_some())
    }

    fn knows_all(&self) -> bool {
        self.store.may_store()
    }

    fn turn(&self, body_bytes: Option<u64>) -> Option<IoFuture<'_, Place>> {
        self.store.turns.turn(place_bytes(body_bytes))
    }

    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<OpenObject>> {
        self.store.start_keeper();
        self.store.turns.in_time(Box::pin(reader::open(&self.store, key)))
    }

    fn create<'a>(
        &'a self,
        record: Record,
        body_bytes: Option<u64>,
    ) -> IoFuture<'a, Box<dyn Writer>> {
        self.store.start_keeper();
        let writer = RingWriter::create(&self.store, record, body_bytes);
        Box::pin(std::future::ready(writer.map(|writer| Box::new(writer) as Box<dyn Writer>)))
    }

    fn whole_bytes_max(&self) -> u64 {
        writer::PUT_NOW_BYTES_MAX.min(self.store.geometry.inline_bytes_max() as u64)
    }

    fn put(&self, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
        self.store.start_keeper();
        writer::put_now(&self.store, about, body)
    }

    fn update<'a>(&'a self, record: &'a Record, confirmed: &'a Confirmed) -> IoFuture<'a, ()> {
        Box::pin(writer::update(&self.store, record, confirmed))
    }

    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool> {
        self.store.start_keeper();
        Box::pin(self.store.remove(key))
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        Box::pin(async {
            if self.store.in_service().is_ok() {
                self.store.start_keeper();
                self.store.flush();
                self.store.keeper.be_patient();
                self.store.wake_keeper();
                // A slow device is told by its load; the next round looks again.
                let _ = tokio::time::timeout(FLUSH_WAIT, self.store.settled()).await;
            }
            Ok(())
        })
    }

    fn close(&self) -> Result<(), SchemeError> {
        // It may be copying objects that are in demand.
        self.store.keeper.stop();
        if self.store.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // Appends that began before are part of what is written now.
        drop(self.store.log.settling.write());
        self.store.finish();
        let is_idle = self.store.data.wait_idle(CLOSE_WAIT);
        let is_saved =
            is_idle && (!self.store.may_store.load(Ordering::Acquire) || self.store.checkpoint());
        self.release();
        let error = std::io::ErrorKind::TimedOut.into();
        if is_saved {
            Ok(())
        } else {
            Err(self.store.failed("write the last checkpoint of", &error))
        }
    }

    fn stats(&self) -> SchemeStats {
        self.store.stats()
    }
}

#[cfg(test)]
mod tests {
    use humboldt_store::scheme::Extent;

    use super::format::{Kind, Plan};
    use super::log::Full;
    use super::*;
    use crate::battery::{record, wait_for_rebuild};

    #[test]
    fn nothing_is_appended_to_a_closed_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let ring = Ring::open(&DirOptions::new(dir.path(), 64 << 20)).expect("opened");
        wait_for_rebuild(&ring);
        let record = record("http://a/", 1);
        let plan = Plan {
            kind: Kind::Object,
            key: record.key,
            url: &record.url,
            head: &record.head,
            times: &record.times,
            body_bytes: Some(3),
            extents: &[Extent { start: 0, end: 3 }],
            fragments: &[],
            fragment_number: 0,
            inline_bytes: 3,
        };
        let put = || ring.store.put(&plan, std::iter::once(&b"abc"[..])).err();
        assert_eq!(put(), None);
        ring.close().expect("closed");
        // A writer that has waited for room comes here without a look at the directory.
        assert_eq!(put(), Some(Full::Closed));
    }
}
