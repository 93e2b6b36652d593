//! The implementation of [`BlockFile`] on a simulated disk.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::file::{BlockFile, DIRECT_ALIGN_BYTES, OpenBlock, ReadFuture, WriteDone};
use super::ticket::given_up;
use crate::simulated::{Disk, Target};

/// One read in this many finds nothing in the page cache.
const COLD_ONE_IN: u64 = 2;

/// A file on a simulated disk.
struct Simulated {
    disk: Arc<Disk>,
    target: Arc<Target>,
    is_direct: bool,
    owner: u64,
    in_flight: Arc<AtomicUsize>,
}

/// Opens a file.
pub(super) fn open(disk: &Arc<Disk>, options: &OpenBlock<'_>) -> io::Result<Arc<dyn BlockFile>> {
    if disk.is_off() {
        return Err(Errno::IO.into());
    }
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(options.create && !options.read_only);
    let file = how.open(options.path)?;
    let target = Target::new(disk, file, options.path.to_owned(), options.lasting, true)?;
    Ok(Arc::new(Simulated {
        disk: Arc::clone(disk),
        target: Arc::new(target),
        is_direct: options.direct,
        owner: disk.new_id(),
        in_flight: Arc::default(),
    }))
}

/// An operation under way. Its end is told exactly once.
struct UnderWay {
    in_flight: Arc<AtomicUsize>,
    done: Option<WriteDone>,
}

impl UnderWay {
    fn new(file: &Simulated, done: Option<WriteDone>) -> Self {
        file.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { in_flight: Arc::clone(&file.in_flight), done }
    }

    fn end(mut self, outcome: io::Result<()>) {
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(given_up()));
        }
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Simulated {
    fn is_aligned(&self, offset: u64, len: usize) -> bool {
        let align = self.alignment_bytes();
        offset.is_multiple_of(align as u64) && len.is_multiple_of(align)
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        if self.is_aligned(offset, len) { Ok(()) } else { Err(Errno::INVAL.into()) }
    }
}

impl BlockFile for Simulated {
    fn read(&self, offset: u64, mut buffer: Buffer) -> ReadFuture {
        let (reply, end) = oneshot::channel();
        let (disk, target) = (Arc::clone(&self.disk), Arc::clone(&self.target));
        let (aligned, under_way) = (self.check(offset, buffer.len()), UnderWay::new(self, None));
        let work = move || {
            let outcome = aligned.and_then(|()| disk.read(&target, offset, &mut buffer));
            let _ = reply.send((buffer, outcome)); // perhaps nobody is there any more
            drop(under_way);
        };
        self.disk.begin(self.owner, None, Box::new(work));
        Box::pin(async { end.await.unwrap_or_else(|_| (Buffer::new(0), Err(given_up()))) })
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<io::Result<usize>> {
        if self.is_direct || self.disk.rng_below(COLD_ONE_IN) == 0 {
            return None;
        }
        let read = self.disk.read(&self.target, offset, into);
        read.map(|read| (read == into.len()).then_some(read)).transpose()
    }

    fn write(&self, offset: u64, data: Arc<AppendBuffer>, range: Range<usize>, done: WriteDone) {
        let under_way = UnderWay::new(self, Some(done));
        let Some(bytes) = data.read(range.clone()) else {
            return under_way.end(Err(Errno::INVAL.into()));
        };
        let write = match self.target.to_write(offset, bytes) {
            Ok(write) => write,
            Err(error) => return under_way.end(Err(error)),
        };
        let (disk, target) = (Arc::clone(&self.disk), Arc::clone(&self.target));
        let aligned = self.check(offset, range.len());
        let work = move || {
            let outcome = aligned.and_then(|()| {
                let bytes = data.read(range).ok_or(Errno::INVAL)?;
                disk.write(&target, offset, bytes)
            });
            drop(data);
            under_way.end(outcome);
        };
        self.disk.begin(self.owner, Some(write), Box::new(work));
    }

    fn read_blocking(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.check(offset, into.len())?;
        self.disk.read(&self.target, offset, into)
    }

    fn write_blocking(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        self.disk.write(&self.target, offset, data)
    }

    fn sync_blocking(&self) -> io::Result<()> {
        self.disk.sync(&self.target)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.target.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(&self.target, len)
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn alignment_bytes(&self) -> usize {
        if self.is_direct { DIRECT_ALIGN_BYTES } else { 1 }
    }

    fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Ends operations of the whole disk, in its own order.
    fn wait_idle(&self, _: Duration) -> bool {
        while self.in_flight() > 0 && self.disk.end_one() {}
        self.in_flight() == 0
    }
}
