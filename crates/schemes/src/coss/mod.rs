//! `coss`: one file or device of stripes of 1 MiB, filled in memory, written whole, overwritten in
//! turn.
//!
//! The format is in `docs/formats/coss.md`. From the outside in: this file implements the trait;
//! `reader` and `writer` work on one object each; `dir` is their common state; `stripes` is the log
//! in memory; `worker` is the thread that writes it; `rebuild` and `snapshot` fill the index at the
//! start; `claim`, `geometry`, `data`, `format`, `record` and `purges` each own one kind of thing
//! on disk.

mod claim;
mod data;
mod dir;
mod format;
mod geometry;
mod purges;
mod reader;
mod rebuild;
mod record;
mod snapshot;
mod stripes;
#[cfg(test)]
mod tests;
mod worker;
mod writer;

use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{
    Confirmed, IoFuture, OpenObject, Place, Record, Scheme, SchemeError, SchemeStats, Writer,
};
use humboldt_store::{About, Borrowed, Key};

use self::claim::Claimed;
use self::dir::Dir;
use self::dir::{Job, JobKind};
use self::format::{PURGES_OFFSET, Superblock};
use self::purges::Purges;
use self::stripes::Log;
use self::writer::CossWriter;
use crate::overload::place_bytes;
use crate::{CossOptions, OpenError};

/// What `cache_dir` says about one directory of this scheme.
pub(crate) type DirOptions = crate::DirOptions<CossOptions>;

/// Name in squid.conf.
pub(crate) const NAME: &str = "coss";

/// Makes the file or directory, if there is none.
pub(crate) fn create(options: &DirOptions) -> Result<(), OpenError> {
    let Claimed { data, superblock, is_new, .. } = claim::claim(options)?;
    if !is_new {
        return Ok(());
    }
    let made = claim::write_superblock(&data, &superblock);
    made.and_then(|()| data.set_len(superblock.snapshot_offset())).map_err(|source| OpenError::Io {
        operation: "write",
        path: data.path,
        source,
    })
}

/// A store of this scheme.
pub(crate) struct Coss {
    dir: Arc<Dir>,
}

impl Coss {
    /// Claims the store and reads its index, or begins to.
    pub(crate) fn open(options: &DirOptions) -> Result<Self, OpenError> {
        let Claimed { data, lock, superblock: found, geometry, is_new } = claim::claim(options)?;
        let path = data.path.clone();
        let failed =
            |operation, source: io::Error| OpenError::Io { operation, path: path.clone(), source };
        let opens = found.opens.checked_add(1).ok_or_else(|| OpenError::Foreign {
            path: options.path.clone(),
            reason: "it has been opened too often".to_owned(),
        })?;
        let mut area = vec![0; found.purge_bytes as usize];
        data.read_blocking(PURGES_OFFSET, &mut area)
            .map_err(|e| failed("read the purge log of", e))?;
        let (purges, known) = Purges::load(&area, found.id);
        let now = Superblock { opens, snapshot_bytes: 0, ..found };
        let written = claim::write_superblock(&data, &now).and_then(|()| data.sync());
        written.map_err(|e| failed("write the superblock of", e))?;
        let kind = match found.snapshot_bytes {
            _ if is_new => JobKind::Nothing,
            0 => JobKind::Scan,
            _ => JobKind::Load,
        };
        let log = Log::new(purges, u64::from(opens) << 32, geometry.stripes);
        let job = Job { kind, purges: known };
        let dir = Arc::new(Dir::new(options.clone(), geometry, data, lock, found, log, job));
        rebuild::begin(&dir);
        Ok(Self { dir })
    }

    /// Writes the index, and notes it in the superblock.
    fn write_snapshot(&self) -> io::Result<()> {
        let dir = &self.dir;
        let now = dir.superblock();
        let Some(snapshot_bytes) = snapshot::write(dir, &now)? else {
            tracing::info!(
                "{}: no room for an index snapshot, the next start will scan",
                self.path().display()
            );
            return Ok(());
        };
        dir.data.sync()?;
        claim::write_superblock(&dir.data, &Superblock { snapshot_bytes, ..now })
    }
}

impl Drop for Coss {
    fn drop(&mut self) {
        self.dir.stop();
        self.dir.release_lock();
    }
}

impl Scheme for Coss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn admits(&self, body_bytes: Option<u64>) -> bool {
        let dir = &self.dir;
        let fits = match body_bytes {
            Some(bytes) => (dir.options.min_bytes..=dir.geometry.body_bytes_max).contains(&bytes),
            None => dir.options.min_bytes == 0,
        };
        fits && dir.in_service().is_ok() && dir.is_rebuilt() && dir.has_free_membuf()
    }

    fn load(&self) -> u16 {
        self.dir.load()
    }

    fn contains(&self, key: &Key) -> bool {
        let dir = &self.dir;
        dir.in_service().is_ok()
            && dir.is_rebuilt()
            && dir.index.peek(IndexKey::from(key)).is_some()
    }

    fn knows_all(&self) -> bool {
        self.dir.in_service().is_ok() && self.dir.is_rebuilt()
    }

    fn turn(&self, body_bytes: Option<u64>) -> Option<IoFuture<'_, Place>> {
        self.dir.turns.turn(place_bytes(body_bytes))
    }

    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<OpenObject>> {
        self.dir.turns.in_time(Box::pin(reader::open(&self.dir, key)))
    }

    fn create<'a>(
        &'a self,
        record: Record,
        body_bytes: Option<u64>,
    ) -> IoFuture<'a, Box<dyn Writer>> {
        let writer = CossWriter::create(&self.dir, &record, body_bytes);
        Box::pin(ready(writer.map(|writer| Box::new(writer) as Box<dyn Writer>)))
    }

    fn whole_bytes_max(&self) -> u64 {
        writer::PUT_NOW_BYTES_MAX.min(self.dir.geometry.body_bytes_max)
    }

    fn put(&self, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
        writer::put_now(&self.dir, about, body)
    }

    fn update<'a>(&'a self, record: &'a Record, confirmed: &'a Confirmed) -> IoFuture<'a, ()> {
        Box::pin(reader::update(&self.dir, record, confirmed))
    }

    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool> {
        Box::pin(self.dir.remove(key))
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        Box::pin(self.dir.maintain())
    }

    fn close(&self) -> Result<(), SchemeError> {
        if !self.dir.stop() {
            return Ok(());
        }
        let is_written = worker::write_all(&self.dir);
        let outcome = match is_written && self.dir.is_rebuilt() {
            true => self.write_snapshot().map_err(|e| self.dir.io_error("write the index to", e)),
            false => Ok(()),
        };
        self.dir.release_lock();
        outcome
    }

    fn stats(&self) -> SchemeStats {
        self.dir.stats()
    }
}
