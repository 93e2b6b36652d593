//! `rock`: one file of fixed slots; an object is a chain of them.
//!
//! The format is in `docs/formats/rock.md`. From the outside in: this file implements the trait;
//! `reader`, `writer`, `update` and `purge` work on one object each; `dir` is their common state;
//! `rebuild` fills it at the start, from a `snapshot` or by a `scan`; `slots`, `held`, `chain`,
//! `device`, `pace`, `format` and `layout` each own one kind of thing on disk or of book-keeping.

mod chain;
mod device;
mod dir;
mod files;
mod format;
mod held;
mod layout;
mod pace;
mod purge;
mod reader;
mod rebuild;
mod refill;
mod scan;
mod slots;
mod snapshot;
#[cfg(test)]
mod tests;
mod update;
mod writer;

use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;

use humboldt_store::Key;
use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{
    Confirmed, IoFuture, OpenObject, Place, Record, Scheme, SchemeError, SchemeStats, Writer,
};

use self::device::CLOSE_PATIENCE;
use self::device::Device;
use self::dir::{Dir, header_for_start, write_header_copies};
use self::files::{PURGE_FILE, SLOT_FILE};
use self::format::{FILE_HEADER_BYTES, FileHeader, Geometry, HEADER_COPY_BYTES, Shape};
use self::layout::{Claimed, failed};
use self::rebuild::{Job, Rebuild};
use self::slots::{Run, Slots};
use self::writer::{RockWriter, WHOLE_AT_END_BYTES_MAX};
use crate::block::{self, BlockFile, OpenBlock};
use crate::{OpenError, RockOptions};

/// What `cache_dir` says about one directory of this scheme.
pub(crate) type DirOptions = crate::DirOptions<RockOptions>;

/// Name in squid.conf.
pub(crate) const NAME: &str = "rock";

/// Creates the directory and the slot file.
pub(crate) fn create(options: &DirOptions) -> Result<(), OpenError> {
    layout::claim(options)?;
    let path = options.path.join(SLOT_FILE);
    block::open(&open_block(options, &path)).map(drop).map_err(|e| failed("create", &path, e))
}

fn open_block<'a>(options: &DirOptions, path: &'a Path) -> OpenBlock<'a> {
    OpenBlock {
        path,
        io: options.own.io,
        direct: false,
        lasting: false,
        threads: options.own.threads,
        create: true,
        read_only: false,
    }
}

/// A cache directory of this scheme.
pub(crate) struct Rock {
    dir: Arc<Dir>,
}

impl Rock {
    /// Claims the directory and reads the snapshot of its index, or begins to look for objects.
    pub(crate) fn open(options: &DirOptions) -> Result<Self, OpenError> {
        let Claimed { root, lock } = layout::claim(options)?;
        let path = options.path.join(SLOT_FILE);
        let file =
            block::open(&open_block(options, &path)).map_err(|e| failed("open", &path, e))?;
        let found = read_header(&*file).map_err(|e| failed("read", &path, e))?;
        let slot_bytes = options.own.slot_bytes as usize;
        let sized = Geometry { store_id: 0, slot_bytes };
        let slots = sized.slots_in(options.capacity_bytes);
        let header = header_for_start(found, options.own.slot_bytes, slots);
        let geometry = Geometry { store_id: header.store_id, ..sized };
        let is_new = found.is_none_or(|found| found.store_id != header.store_id);
        fit(&*file, geometry, slots, is_new).map_err(|e| failed("shorten", &path, e))?;
        let written_bytes = file.len().map_err(|e| failed("read", &path, e))?;
        let device = Device::new(
            file,
            geometry,
            path.display().to_string(),
            &options.own,
            options.capacity_bytes,
        );
        write_header_copies(&device, &header)
            .map_err(|error| failed("write", &path, error_of(error)))?;
        let (rebuild, mut slots) = match found.filter(|_| !is_new) {
            Some(found) => (begin_rebuild(options, &found)?, Slots::taken(slots)),
            None => {
                let mut all = Slots::taken(slots);
                all.give_back(&[Run { start: 0, len: slots }]);
                (Rebuild::done(), all)
            }
        };
        slots.set_written(geometry.slots_in(written_bytes));
        let dir = Dir::new(options.clone(), (root, lock), device, header, slots, rebuild);
        let dir = Arc::new(dir);
        refill::begin(&dir);
        Ok(Self { dir })
    }
}

fn error_of(error: SchemeError) -> io::Error {
    match error {
        SchemeError::Io { source, .. } => source,
        other => io::Error::other(other),
    }
}

fn read_header(file: &dyn BlockFile) -> io::Result<Option<FileHeader>> {
    let mut both = vec![0; 2 * HEADER_COPY_BYTES];
    let read = file.read_blocking(0, &mut both)?;
    Ok(FileHeader::decode(both.get(..read).unwrap_or_default()))
}

/// Cuts off the part behind the last slot, so that it cannot return if the directory grows again;
/// of a file that is not of this store, everything.
fn fit(file: &dyn BlockFile, geometry: Geometry, slots: u32, is_new: bool) -> io::Result<()> {
    let keep =
        if is_new { 0 } else { FILE_HEADER_BYTES + u64::from(slots) * geometry.slot_bytes as u64 };
    if file.len()? > keep { file.set_len(keep) } else { Ok(()) }
}

fn begin_rebuild(options: &DirOptions, found: &FileHeader) -> Result<Rebuild, OpenError> {
    let path = options.path.join(PURGE_FILE);
    let log = block::open(&OpenBlock { threads: 1, ..open_block(options, &path) });
    let log = log.map_err(|e| failed("open", &path, e))?;
    let job = if found.snapshot == 0 { Job::Scan } else { Job::Read(found.snapshot) };
    Rebuild::new(job, log, found.store_id).map_err(|e| failed("read", &path, e))
}

impl Drop for Rock {
    /// As a crash would: nothing is written any more, and the directory is free.
    fn drop(&mut self) {
        self.dir.rebuild.stop();
        self.dir.device.close(CLOSE_PATIENCE);
        self.dir.unlock();
    }
}

impl Scheme for Rock {
    fn name(&self) -> &'static str {
        NAME
    }

    fn path(&self) -> &Path {
        &self.dir.options.path
    }

    fn admits(&self, body_bytes: Option<u64>) -> bool {
        let options = &self.dir.options;
        let fits = match body_bytes {
            Some(bytes) => (options.min_bytes..=options.max_bytes).contains(&bytes),
            None => options.min_bytes == 0,
        };
        let slots = Shape::new(self.dir.device.geometry, body_bytes.unwrap_or(0)).slots();
        fits && self.dir.device.in_service().is_ok()
            && self.dir.rebuild.may_store()
            && slots.is_some_and(|slots| self.dir.admits(slots))
    }

    fn load(&self) -> u16 {
        self.dir.device.load()
    }

    fn contains(&self, key: &Key) -> bool {
        self.dir.device.in_service().is_ok() && self.dir.index.peek(IndexKey::from(key)).is_some()
    }

    fn knows_all(&self) -> bool {
        self.dir.device.in_service().is_ok() && self.dir.rebuild.is_done()
    }

    fn turn(&self, _body_bytes: Option<u64>) -> Option<IoFuture<'_, Place>> {
        self.dir.device.turns.turn(1)
    }

    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<OpenObject>> {
        self.dir.device.turns.in_time(Box::pin(reader::open(&self.dir, key)))
    }

    fn create<'a>(
        &'a self,
        record: Record,
        body_bytes: Option<u64>,
    ) -> IoFuture<'a, Box<dyn Writer>> {
        let writer = RockWriter::create(&self.dir, record, body_bytes);
        Box::pin(ready(writer.map(|writer| Box::new(writer) as Box<dyn Writer>)))
    }

    fn whole_bytes_max(&self) -> u64 {
        WHOLE_AT_END_BYTES_MAX
    }

    fn update<'a>(&'a self, record: &'a Record, confirmed: &'a Confirmed) -> IoFuture<'a, ()> {
        Box::pin(update::update(&self.dir, record, confirmed))
    }

    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool> {
        Box::pin(purge::remove(&self.dir, key))
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        Box::pin(async {
            let device = &self.dir.device;
            if device.in_service().is_ok() {
                refill::go_on(&self.dir);
                self.dir.evict_some();
                device.look_at_memory().await;
            }
            Ok(())
        })
    }

    fn close(&self) -> Result<(), SchemeError> {
        self.dir.rebuild.stop();
        let (was_closed, is_idle) = self.dir.device.close(CLOSE_PATIENCE);
        if was_closed {
            return Ok(());
        }
        let outcome =
            match is_idle && self.dir.rebuild.is_done() && !self.dir.device.health.is_down() {
                true => self.dir.write_snapshot(),
                // Operations that are under way for longer, or not known yet, are searched for at
                // the next start.
                false => Ok(()),
            };
        self.dir.unlock();
        outcome
    }

    fn stats(&self) -> SchemeStats {
        self.dir.stats()
    }
}
