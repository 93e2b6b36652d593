//! The slots of an object being written, and the writes to them that are under way.
//!
//! A [`Chain`] belongs to its writer and to every write under way. When the last of them lets go,
//! and the object has not been published, the slots are given back: so a writer may be dropped at
//! any time, and no slot is used again while something is still being written to it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::SchemeError;
use humboldt_sys::append_buffer::AppendBuffer;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::device::{Pass, Stored};
use super::dir::Dir;
use super::purge;
use super::slots::{Run, Tag, Taken};

/// The slots of an object that is not in the index yet.
pub(crate) struct Chain {
    dir: Arc<Dir>,
    tag: Tag,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// All slots but the first one of a long object, in order; of a short object all.
    runs: Vec<Run>,
    /// The first slot of a long object, which is taken last.
    first: Vec<Run>,
    /// Stale slots among them that have not been overwritten.
    covered: Vec<(Tag, u32)>,
    /// The place of the record, now or as soon as a write ends.
    begins: Option<u32>,
    is_published: bool,
}

/// The use of a chain when its last part has been written.
#[derive(Copy, Clone)]
pub(crate) struct Publication {
    pub(crate) key: IndexKey,
    pub(crate) entry: FileEntry,
    /// Bytes of URL, head and body.
    pub(crate) object_bytes: u64,
}

impl Chain {
    pub(crate) fn new(dir: &Arc<Dir>, key: IndexKey) -> Arc<Self> {
        Arc::new(Self { dir: Arc::clone(dir), tag: Tag::from(key), held: Mutex::default() })
    }

    /// Adds slots at the end.
    pub(crate) fn append(&self, taken: &Taken) {
        let mut held = self.held.lock();
        held.runs.extend_from_slice(&taken.runs);
        held.covered.extend_from_slice(&taken.covered);
    }

    /// Adds the first slot of a long object.
    pub(crate) fn put_first(&self, taken: &Taken) {
        let mut held = self.held.lock();
        held.first.clone_from(&taken.runs);
        held.covered.extend_from_slice(&taken.covered);
    }

    /// A run has been overwritten: stale objects in it are gone.
    fn overwritten(&self, run: Run) {
        let mut held = self.held.lock();
        if held.covered.is_empty() {
            return;
        }
        let mut slots = self.dir.slots.lock();
        held.covered.retain(|(tag, slot)| {
            let is_over = (run.start..run.start + run.len).contains(slot);
            if is_over {
                slots.forget_stale(*tag, *slot);
            }
            !is_over
        });
    }

    fn publish(&self, publication: &Publication) {
        let runs = {
            let mut held = self.held.lock();
            held.is_published = true;
            let mut runs = std::mem::take(&mut held.first);
            runs.append(&mut held.runs);
            runs
        };
        self.dir.counts.object_bytes.fetch_add(publication.object_bytes, Ordering::Relaxed);
        if let Some((first, runs)) = self.dir.publish(publication.key, publication.entry, &runs) {
            purge::discard(&self.dir, self.tag, first, runs);
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let held = self.held.get_mut();
        if held.is_published {
            return;
        }
        {
            let mut slots = self.dir.slots.lock();
            if let Some(first) = held.begins {
                slots.give_back_stale(first, self.tag);
            }
            for (tag, slot) in &held.covered {
                slots.give_back_stale(*slot, *tag);
            }
            slots.give_back(&held.first);
            slots.give_back(&held.runs);
        }
        self.dir.changed.notify_waiters();
    }
}

/// Writes under way at the same time; when all are done, the chain is published if that is wanted,
/// and the writer hears.
struct Batch {
    chain: Arc<Chain>,
    left: AtomicUsize,
    failure: Mutex<Option<SchemeError>>,
    publication: Option<Publication>,
    reply: Mutex<Option<oneshot::Sender<Result<(), SchemeError>>>>,
}

impl Batch {
    fn done(&self, run: Run, outcome: Result<(), SchemeError>) {
        match outcome {
            Ok(()) => self.chain.overwritten(run),
            Err(error) => {
                self.chain.dir.note_failure(&error);
                *self.failure.lock() = Some(error);
            }
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let outcome = self.failure.lock().take().map_or(Ok(()), Err);
        let reply = self.reply.lock().take();
        // A commit that was given up may have been followed by a younger one, whose place this
        // object must not take.
        let is_wanted = reply.as_ref().is_some_and(|reply| !reply.is_closed());
        if let (Ok(()), Some(publication), true) = (&outcome, &self.publication, is_wanted) {
            self.chain.publish(publication);
        }
        self.chain.dir.changed.notify_waiters();
        if let Some(reply) = reply {
            let _ = reply.send(outcome); // the writer may have gone
        }
    }
}

/// A part of a buffer that goes to consecutive slots.
pub(crate) struct Part {
    pub(crate) run: Run,
    pub(crate) data: Arc<AppendBuffer>,
    pub(crate) range: Range<usize>,
    /// The buffer's memory, counted until it has been written.
    pub(crate) stored: Option<Arc<Stored>>,
}

/// The end of a batch of writes.
pub(crate) type Written = oneshot::Receiver<Result<(), SchemeError>>;

/// Submits the writes of `parts`, at least one. The caller has sealed all slots in them.
pub(crate) fn write(
    chain: &Arc<Chain>,
    pass: &Pass<'_>,
    parts: Vec<Part>,
    publication: Option<Publication>,
) -> Written {
    let dir = Arc::clone(&chain.dir);
    if let Some(publication) = &publication {
        // From now on the object may be on disk: a purge must know.
        chain.held.lock().begins = Some(publication.entry.file);
        dir.slots.lock().add_stale(chain.tag, publication.entry.file);
    }
    dir.device.charge(parts.len().saturating_sub(1));
    let (reply, written) = oneshot::channel();
    let batch = Arc::new(Batch {
        chain: Arc::clone(chain),
        left: AtomicUsize::new(parts.len()),
        failure: Mutex::new(None),
        publication,
        reply: Mutex::new(Some(reply)),
    });
    for Part { run, data, range, stored } in parts {
        let batch = Arc::clone(&batch);
        let offset = dir.device.geometry.offset(run.start);
        dir.device.write(pass, offset, &data, range, move |outcome| {
            batch.done(run, outcome);
            drop(stored);
        });
    }
    written
}
