//! A scheme that keeps everything in a map and fails on demand. The real schemes have a battery of
//! their own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use crate::body::Borrowed;
use crate::key::Key;
use crate::object::About;
use crate::scheme::{
    Confirmed, Extent, IoFuture, OpenObject, Reader, Record, Scheme, SchemeError, SchemeStats,
    Writer,
};

/// Faults to inject.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) create: AtomicBool,
    pub(crate) write: AtomicBool,
    pub(crate) update: AtomicBool,
    /// While this is set, a removed key leaves the index, and then waits for the disk.
    pub(crate) removal_hangs: AtomicBool,
    /// The index has not been read: no stored record is known.
    pub(crate) unread: AtomicBool,
    /// Out of service.
    pub(crate) down: AtomicBool,
    /// Bodies that turn out larger are refused.
    pub(crate) write_bytes_max: AtomicU64,
    /// Reads from this offset on do not verify.
    pub(crate) read_from: AtomicU64,
    /// An open object has its body at hand (no fault, but a way to be).
    pub(crate) at_hand: AtomicBool,
    /// Objects are stored at once (the same).
    pub(crate) at_once: AtomicBool,
    /// Slow steps let other threads go first (the same).
    pub(crate) is_slow: AtomicBool,
}

impl Faults {
    fn wait(&self) {
        if self.is_slow.load(SeqCst) {
            std::thread::yield_now();
        }
    }
}

type Stored = Arc<Mutex<HashMap<Key, (Record, Arc<Vec<u8>>)>>>;

pub(crate) struct TestScheme {
    pub(crate) stored: Stored,
    pub(crate) faults: Arc<Faults>,
    pub(crate) load: AtomicU16,
    pub(crate) body_bytes_max: AtomicU64,
    /// Larger bodies are written as they come.
    pub(crate) whole_bytes_max: AtomicU64,
    pub(crate) creates: AtomicUsize,
    pub(crate) capacity_bytes: AtomicU64,
    path: &'static str,
}

impl TestScheme {
    pub(crate) fn new(path: &'static str) -> Arc<Self> {
        let (read_from, write_bytes_max) = (AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
        let faults = Faults { read_from, write_bytes_max, ..Faults::default() };
        Arc::new(Self {
            stored: Stored::default(),
            faults: Arc::new(faults),
            load: AtomicU16::new(0),
            body_bytes_max: AtomicU64::new(u64::MAX),
            whole_bytes_max: AtomicU64::new(0),
            creates: AtomicUsize::new(0),
            capacity_bytes: AtomicU64::new(0),
            path,
        })
    }

    pub(crate) fn body(&self, key: &Key) -> Option<Vec<u8>> {
        self.stored.lock().get(key).map(|(_, body)| body.to_vec())
    }

    pub(crate) fn place(&self, record: Record, body: &[u8]) {
        self.stored.lock().insert(record.key, (record, Arc::new(body.to_vec())));
    }
}

/// Bytes as a scheme lends them.
pub(crate) fn borrowed(bytes: &[u8]) -> Borrowed {
    Borrowed::new(Arc::new(bytes.to_vec()), 0..bytes.len()).expect("all of it")
}

fn done<'a, T: 'a>(result: Result<T, SchemeError>) -> IoFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

fn fault(flag: &AtomicBool) -> Result<(), SchemeError> {
    if flag.load(SeqCst) { Err(SchemeError::Busy("told to")) } else { Ok(()) }
}

impl Scheme for TestScheme {
    fn name(&self) -> &'static str {
        "test"
    }

    fn path(&self) -> &Path {
        Path::new(self.path)
    }

    fn admits(&self, body_bytes: Option<u64>) -> bool {
        body_bytes.is_none_or(|bytes| bytes <= self.body_bytes_max.load(SeqCst))
    }

    fn load(&self) -> u16 {
        self.load.load(SeqCst)
    }

    fn contains(&self, key: &Key) -> bool {
        self.knows_all() && self.stored.lock().contains_key(key)
    }

    fn knows_all(&self) -> bool {
        !self.faults.down.load(SeqCst) && !self.faults.unread.load(SeqCst)
    }

    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<OpenObject>> {
        let found = self.stored.lock().get(key).cloned();
        self.faults.wait();
        done(Ok(found.map(|(record, body)| {
            let extent = Extent { start: 0, end: body.len() as u64 };
            let faults = self.faults.clone();
            OpenObject { record, reader: Box::new(TestReader { body, extents: [extent], faults }) }
        })))
    }

    fn create<'a>(&'a self, record: Record, _: Option<u64>) -> IoFuture<'a, Box<dyn Writer>> {
        self.creates.fetch_add(1, SeqCst);
        let (stored, faults) = (self.stored.clone(), self.faults.clone());
        let writer =
            || Box::new(TestWriter { record, body: Vec::new(), stored, faults }) as Box<dyn Writer>;
        done(fault(&self.faults.create).map(|()| writer()))
    }

    fn whole_bytes_max(&self) -> u64 {
        self.whole_bytes_max.load(SeqCst)
    }

    fn put(&self, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
        if !self.faults.at_once.load(SeqCst) {
            return None;
        }
        self.faults.wait();
        let body = body.concat();
        self.place(about.record(), &body);
        Some(borrowed(&body))
    }

    fn update<'a>(&'a self, record: &'a Record, confirmed: &'a Confirmed) -> IoFuture<'a, ()> {
        done(fault(&self.faults.update).map(|()| {
            let mut stored = self.stored.lock();
            match stored.get_mut(&record.key) {
                Some((old, _)) if confirmed.is(&old.head, &old.times) => old.clone_from(record),
                _ => drop(stored.remove(&record.key)),
            }
        }))
    }

    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool> {
        if self.faults.down.load(SeqCst) {
            return done(Err(SchemeError::Down));
        }
        let (stored, faults) = (self.stored.clone(), self.faults.clone());
        Box::pin(async move {
            let was_there = stored.lock().remove(key).is_some();
            std::future::poll_fn(|cx| match faults.removal_hangs.load(SeqCst) {
                true => {
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
                false => std::task::Poll::Ready(()),
            })
            .await;
            // It may have gone down meanwhile.
            if faults.down.load(SeqCst) { Err(SchemeError::Down) } else { Ok(was_there) }
        })
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        done(Ok(()))
    }

    fn close(&self) -> Result<(), SchemeError> {
        Ok(())
    }

    fn stats(&self) -> SchemeStats {
        SchemeStats {
            rebuild_percent: if self.faults.unread.load(SeqCst) { 0 } else { 100 },
            capacity_bytes: self.capacity_bytes.load(SeqCst),
            down: self.faults.down.load(SeqCst),
            ..SchemeStats::default()
        }
    }
}

struct TestReader {
    body: Arc<Vec<u8>>,
    extents: [Extent; 1],
    faults: Arc<Faults>,
}

impl Reader for TestReader {
    fn body_bytes(&self) -> Option<u64> {
        Some(self.body.len() as u64)
    }

    fn extents(&self) -> &[Extent] {
        &self.extents
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        if offset >= self.faults.read_from.load(SeqCst) {
            return done(Err(SchemeError::Corrupt("told to")));
        }
        let rest = self.body.get(offset as usize..).unwrap_or_default();
        // Never all that was asked for, as a real read may give less.
        let take = rest.len().min(buf.len()).min(10_007);
        buf[..take].copy_from_slice(&rest[..take]);
        done(Ok(take))
    }

    fn at_hand(&self, offset: u64) -> &[u8] {
        let is_there = self.faults.at_hand.load(SeqCst);
        self.body.get(offset as usize..).filter(|_| is_there).unwrap_or_default()
    }
}

struct TestWriter {
    record: Record,
    body: Vec<u8>,
    stored: Stored,
    faults: Arc<Faults>,
}

impl Writer for TestWriter {
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()> {
        assert_eq!(offset, self.body.len() as u64);
        parts.iter().for_each(|part| self.body.extend_from_slice(part));
        if self.body.len() as u64 > self.faults.write_bytes_max.load(SeqCst) {
            return done(Err(SchemeError::Busy("too large")));
        }
        done(fault(&self.faults.write))
    }

    fn commit(self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()> {
        assert_eq!(body_bytes, Some(self.body.len() as u64));
        self.faults.wait();
        self.stored.lock().insert(self.record.key, (self.record, Arc::new(self.body)));
        done(Ok(()))
    }
}
