//! The interface that every storage scheme implements.
//!
//! A scheme owns its bytes on disk: their places, their recovery after a crash, their verification.
//! It does not know about HTTP semantics, memory, or waiting clients. Futures are not `Send`: they
//! run on the core that created them, so that a scheme may use that core's I/O ring.
//!
//! **An object may be partial**: a record plus a set of extents of its body. A complete object has
//! one extent from 0 to `body_bytes`.
//!
//! **Never a wrong byte**: a reader returns only bytes that it has verified against the key, the
//! URL and the checksums of the record; whatever does not verify is [`SchemeError::Corrupt`], which
//! callers treat as a miss.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use humboldt_freshness::Times;

use crate::body::Borrowed;
use crate::head::StoredHead;
use crate::key::Key;
use crate::object::{About, Object};

/// Most parts of a body that are handed to [`Scheme::put`] or [`Writer::write`] at a time.
pub const PUT_PARTS_MAX: usize = 64;

/// The result of every operation on a scheme.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SchemeError>> + 'a>>;

/// The reason why a scheme could not carry out an operation. All but [`SchemeError::Corrupt`] leave
/// stored data unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SchemeError {
    /// The operating system refused. Counted against the directory: repeated errors take it out of
    /// service.
    #[error("{operation}: {source}")]
    Io {
        /// The operation, for the log line: `open /cache/00/1A/00001A2B`.
        operation: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The bytes read are not the bytes written, or not this key's. The record has been dropped
    /// from the index.
    #[error("record does not verify: {0}")]
    Corrupt(&'static str),
    /// No room, too many open files, or the queue of the scheme is full: the object is not stored,
    /// or not read.
    #[error("busy or full: {0}")]
    Busy(&'static str),
    /// The directory is out of service.
    #[error("out of service")]
    Down,
}

/// The kind of a stored record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An answer: head and body.
    Object,
    /// A list of the request fields that select among the variants of a URL; its body is empty and
    /// its `head` is the serialised list.
    Vary,
}

/// Everything that is stored besides the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Full key, compared on every read.
    pub key: Key,
    /// Its kind.
    pub kind: RecordKind,
    /// The URL, compared by the caller on every hit.
    pub url: Box<[u8]>,
    /// Serialised response head (see `StoredHead`) or the Vary list.
    pub head: Box<[u8]>,
    /// Freshness of the answer.
    pub times: Times,
}

impl About<'_> {
    /// The directory's record without the body.
    pub fn record(&self) -> Record {
        let (url, head) = (self.url.into(), self.head.bytes().into());
        Record { key: self.key, kind: RecordKind::Object, url, head, times: *self.times }
    }
}

impl Object {
    /// The directory's record without the body.
    pub fn record(&self) -> Record {
        self.about().record()
    }
}

impl Record {
    /// Moves the record out; URL and head are empty then.
    pub fn take(&mut self) -> Self {
        let (url, head) = (std::mem::take(&mut self.url), std::mem::take(&mut self.head));
        Self { url, head, ..*self }
    }
}

/// A stored answer that a server has confirmed. Two answers of one second may have the same head:
/// the serial number in their times tells them apart.
#[derive(Clone, Debug)]
pub struct Confirmed {
    head: Box<[u8]>,
    response_time: i64,
    serial: u32,
}

impl Confirmed {
    /// The answer with this head and these times.
    pub fn new(head: &StoredHead, times: &Times) -> Self {
        Self { head: head.bytes().into(), response_time: times.response_time, serial: times.serial }
    }

    /// The answer that is stored as this record.
    pub fn of(record: &Record) -> Self {
        let Record { head, times, .. } = record;
        Self { head: head.clone(), response_time: times.response_time, serial: times.serial }
    }

    /// Whether a record with this head and these times is this answer.
    pub fn is(&self, head: &[u8], times: &Times) -> bool {
        (times.response_time, times.serial) == (self.response_time, self.serial)
            && *head == *self.head
    }
}

/// Bytes `start..end` of a body are stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
}

/// Figures of one cache directory, for manager pages and metrics.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemeStats {
    /// Objects in the index.
    pub objects: u64,
    /// Bytes in use, rounded up to what the file system allocates.
    pub used_bytes: u64,
    /// Configured size.
    pub capacity_bytes: u64,
    /// Bytes of memory that the index needs.
    pub index_bytes: u64,
    /// Files open now.
    pub open_files: u64,
    /// Objects read since the start.
    pub reads: u64,
    /// Objects written since the start.
    pub writes: u64,
    /// Objects removed to make room since the start.
    pub evictions: u64,
    /// Errors since the start, records that did not verify among them.
    pub errors: u64,
    /// Objects that were not stored, or hits that were not read, because too much was waiting
    /// already.
    pub shed: u64,
    /// The part of them that were hits.
    pub shed_hits: u64,
    /// New objects whose clients have waited for the disk (`overload=wait`).
    pub waits: u64,
    /// Reads that were asked of the device or file system since the start.
    pub read_ops: u64,
    /// Bytes that they brought.
    pub read_bytes: u64,
    /// Writes that were asked of the device or file system since the start.
    pub write_ops: u64,
    /// Bytes that they wrote. Divided by `object_bytes`: write amplification.
    pub write_bytes: u64,
    /// Bytes of URLs, heads and bodies that were stored for requests since the start.
    pub object_bytes: u64,
    /// Progress of the rebuild in percent, 100 when the index is complete.
    pub rebuild_percent: u8,
    /// Whether the directory has been taken out of service.
    pub down: bool,
}

/// One cache directory. Shared by all cores.
pub trait Scheme: Send + Sync {
    /// The scheme's name in squid.conf.
    fn name(&self) -> &'static str;

    /// The directory or file.
    fn path(&self) -> &Path;

    /// Whether an object with a body of `body_bytes` (`None`: not known yet) may be offered to this
    /// directory now: size limits, room, health.
    fn admits(&self, body_bytes: Option<u64>) -> bool;

    /// Its load, 0 to 1000, for `store_dir_select_algorithm least-load`.
    fn load(&self) -> u16;

    /// Whether the index has this key. `false` is certain only while [`Scheme::knows_all`].
    fn contains(&self, key: &Key) -> bool;

    /// Whether the index is complete, and the directory in service: an index that is being read, or
    /// cannot be asked, does not know all the records that a later instance may find. It does not
    /// know of records either that left it without a line in the log of removals; a crash, or an
    /// opening after a failure, can bring those back.
    fn knows_all(&self) -> bool;

    /// The turn of a new object, which is to be waited for before its body is fetched: clients
    /// shall wait for a disk that cannot keep up (`overload=wait`). It gives the object a place,
    /// for [`Writer::hold`]. An error after a while: it goes on without. `None`: there is nothing
    /// to wait for.
    fn turn(&self, _body_bytes: Option<u64>) -> Option<IoFuture<'_, Place>> {
        None
    }

    /// Opens a stored object. `None` when it is not there.
    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<OpenObject>>;

    /// Starts to write an object; it replaces any record of the same key when committed, and not
    /// before.
    fn create<'a>(
        &'a self,
        record: Record,
        body_bytes: Option<u64>,
    ) -> IoFuture<'a, Box<dyn Writer>>;

    /// Largest body in bytes that is best handed over when all of it is in memory, rather than
    /// piece by piece while it arrives: by [`Scheme::put`], and where that is not possible, by
    /// [`Scheme::create`]. 0 for none.
    fn whole_bytes_max(&self) -> u64 {
        0
    }

    /// Stores a complete answer without waiting for anything. `body` has at most [`PUT_PARTS_MAX`]
    /// parts. Returns the body where the scheme has it in memory itself, to be read from there by
    /// somebody who does not wait. `None`: that is not possible now, or never with this scheme, and
    /// nothing has happened.
    fn put(&self, _about: &About<'_>, _body: &[&[u8]]) -> Option<Borrowed> {
        None
    }

    /// After a 304: the stored object that was confirmed gets the head and times of `record`. A
    /// scheme that cannot do so in place removes the object instead: it must never keep the old
    /// head with the new times. Another version is removed too, as a head must never meet the body
    /// of another version.
    fn update<'a>(&'a self, record: &'a Record, confirmed: &'a Confirmed) -> IoFuture<'a, ()>;

    /// Removes a key. After the first poll of the future, the index does not have it, during a
    /// rebuild as well: callers that do not wait for disks rely on that. When it resolves, neither
    /// a reader nor a crash brings the record back.
    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool>;

    /// Housekeeping, called about once a second on one core: eviction by the water marks, log
    /// compaction, slices of the rebuild. Bounded work per call.
    fn maintain(&self) -> IoFuture<'_, ()>;

    /// Makes a clean stop: after it, the next start finds everything without a scan. Called once,
    /// blocking. The lock on the directory is released, so that it can be opened again, with other
    /// options, while readers and writers of this instance still exist: these get
    /// [`SchemeError::Down`], and touch no file any more.
    fn close(&self) -> Result<(), SchemeError>;

    /// Figures.
    fn stats(&self) -> SchemeStats;
}

/// A stored object that has been opened.
pub struct OpenObject {
    /// Its record, already verified against the key.
    pub record: Record,
    /// Reads its body.
    pub reader: Box<dyn Reader>,
}

/// Reads the body of an open object. It can be read to its end even if the object is removed
/// meanwhile. A scheme may bound the space that it keeps for readers, and fails reads with
/// [`SchemeError`] beyond that.
pub trait Reader: Send + Sync {
    /// Length of the whole body when it is known.
    fn body_bytes(&self) -> Option<u64>;

    /// The parts of the body that are stored, ascending, not touching each other. At least one for
    /// a non-empty body.
    fn extents(&self) -> &[Extent];

    /// Reads verified bytes at `offset` into the start of `buf`; returns how many, at least 1
    /// inside an extent and 0 outside.
    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize>;

    /// Verified bytes from `offset` on that are in memory already, as many as lie together; empty
    /// when they have to be read.
    fn at_hand(&self, offset: u64) -> &[u8];

    /// Most bytes of memory that it keeps from one read to the next; 0 if the scheme bounds them
    /// itself.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Memory is short: gives up what it can read again. From now on each read may read less, and
    /// keeps nothing. A scheme that cannot read it again keeps it.
    fn let_go(&mut self) {}
}

/// A place among the stores of a directory, for an object whose body is still to come. Dropped, it
/// is given back.
pub struct Place(Box<dyn Send + Sync>);

impl Place {
    /// A place that is kept as long as `held` is.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:p})", &*self.0)
    }
}

/// An object being written. Dropped without [`Writer::commit`], it leaves nothing that could be
/// found.
pub trait Writer {
    /// Appends `parts` at `offset`. Offsets only grow; a gap starts a new extent.
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()>;

    /// The object has this place. It is given back when the directory counts the object otherwise:
    /// when the first write of it begins.
    fn hold(&mut self, place: Place) {
        drop(place);
    }

    /// Makes the object visible and lasting. `body_bytes` is the length of the whole body, or
    /// `None` if it is not known because only a part was received.
    fn commit(self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()>;
}
