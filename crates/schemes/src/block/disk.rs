//! The one implementation of [`BlockFile`] for real files and devices.

use std::fs::{File, OpenOptions};
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::{Duration, Instant};

use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;
use humboldt_sys::uring::{Transfer, probe};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::sync::oneshot;

use super::file::{BlockFile, DIRECT_ALIGN_BYTES, Ended, OpenBlock, ReadFuture, WriteDone};
use super::threads::{Threads, read_fully};
use super::ticket::{Finish, OpenFile, Ticket, given_up};
use super::uring;
use crate::Io;

/// Rights of a file that is created.
const FILE_MODE: u32 = 0o640;

/// A core that waits for a file looks after its ring as often.
const DRIVE_STEP: Duration = Duration::from_millis(5);

/// A file and the ways to it.
struct Disk {
    open: Arc<OpenFile>,
    alignment_bytes: usize,
    /// Whether cores use their rings.
    uses_uring: bool,
    /// For everybody else.
    threads: Threads,
}

/// Opens a real one.
pub(super) fn open(options: &OpenBlock<'_>) -> io::Result<Arc<dyn BlockFile>> {
    let uses_uring = uses_uring(options.io)?;
    let (file, direct) = open_file(options)?;
    let alignment_bytes = if direct { direct_alignment(&file) } else { 1 };
    let open = Arc::new(OpenFile::new(file, direct));
    Ok(Arc::new(Disk { open, alignment_bytes, uses_uring, threads: Threads::new(options.threads) }))
}

/// Which way to the device it will be: true for io_uring.
pub(crate) fn uses_uring(choice: Io) -> io::Result<bool> {
    static SAID: Once = Once::new();
    if choice == Io::Threads {
        return Ok(false);
    }
    match probe() {
        Ok(()) => Ok(true),
        Err(error) if choice == Io::Auto => {
            SAID.call_once(|| {
                tracing::info!("io_uring cannot be used here ({error}): threads do disk I/O")
            });
            Ok(false)
        }
        Err(error) => {
            let message =
                format!("io_uring cannot be used here ({error}): use io=threads or io=auto");
            Err(io::Error::new(error.kind(), message))
        }
    }
}

/// Opens it with direct I/O, if that is wanted and possible; returns whether it was.
fn open_file(options: &OpenBlock<'_>) -> io::Result<(File, bool)> {
    let mut how = OpenOptions::new();
    how.read(true)
        .write(!options.read_only)
        .create(options.create && !options.read_only)
        .mode(FILE_MODE);
    let lasting = if options.lasting { OFlags::DSYNC } else { OFlags::empty() };
    how.custom_flags(lasting.bits().cast_signed());
    if options.direct {
        match how
            .clone()
            .custom_flags((OFlags::DIRECT | lasting).bits().cast_signed())
            .open(options.path)
        {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let path = options.path.display();
                tracing::info!(
                    "{path}: this file system has no direct I/O, the page cache is used"
                );
            }
            opened => return Ok((opened?, true)),
        }
    }
    let file = how.open(options.path)?;
    // Objects lie there in order of arrival, so the neighbours of a requested one are of no use. A
    // hint, which a system may not know.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    Ok((file, false))
}

/// Offsets and lengths of direct I/O must be multiples of this.
fn direct_alignment(file: &File) -> usize {
    let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let told =
        told.map_or(0, |stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align) as usize);
    if told.is_power_of_two() && told <= DIRECT_ALIGN_BYTES { told } else { DIRECT_ALIGN_BYTES }
}

impl Disk {
    fn start(&self, offset: u64, transfer: Transfer, finish: Finish) {
        let ticket = Ticket::new(&self.open, finish);
        if !self.uses_uring {
            self.threads.push(ticket, offset, transfer);
        } else if let Err((ticket, transfer)) = uring::begin(ticket, offset, transfer) {
            self.threads.push(ticket, offset, transfer);
        }
    }

    /// The result of an operation with a buffer of its own.
    fn end<R: 'static>(&self, mut end: oneshot::Receiver<(Buffer, io::Result<R>)>) -> Ended<R> {
        let uses_uring = self.uses_uring;
        Box::pin(poll_fn(move |cx| {
            match super::poll_reply(!uses_uring, &mut end, cx) {
                Poll::Ready(ended) => {
                    Poll::Ready(ended.unwrap_or_else(|_| (Buffer::new(0), Err(given_up()))))
                }
                Poll::Pending => {
                    if uses_uring {
                        // It may have begun in another runtime than this one.
                        uring::watch();
                    }
                    Poll::Pending
                }
            }
        }))
    }
}

impl BlockFile for Disk {
    fn read(&self, offset: u64, buffer: Buffer) -> ReadFuture {
        let (reply, end) = oneshot::channel();
        self.start(offset, Transfer::Read(buffer), Finish::Read(reply));
        self.end(end)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<io::Result<usize>> {
        if self.open.direct {
            return None;
        }
        let len = into.len();
        loop {
            let mut parts = [IoSliceMut::new(into)];
            return match rustix::io::preadv2(
                &self.open.file,
                &mut parts,
                offset,
                ReadWriteFlags::NOWAIT,
            ) {
                Ok(read) => (read == len).then_some(Ok(read)),
                Err(Errno::INTR) => continue,
                // Old file systems do not know the question.
                Err(Errno::AGAIN | Errno::OPNOTSUPP) => None,
                Err(error) => Some(Err(error.into())),
            };
        }
    }

    fn write(&self, offset: u64, data: Arc<AppendBuffer>, range: Range<usize>, done: WriteDone) {
        self.start(offset, Transfer::Append(data, range), Finish::Call(done));
    }

    fn read_blocking(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read_fully(&self.open.file, self.open.direct, offset, into)
    }

    fn write_blocking(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.open.file.write_all_at(data, offset)
    }

    fn sync_blocking(&self) -> io::Result<()> {
        self.open.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        // The size of a device is only known by seeking to its end. All other I/O has explicit
        // offsets, so the position is not needed.
        Ok(rustix::fs::seek(&self.open.file, SeekFrom::End(0))?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.open.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.open.file, FallocateFlags::empty(), offset, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn alignment_bytes(&self) -> usize {
        self.alignment_bytes
    }

    fn ends_on_threads(&self) -> bool {
        !self.uses_uring
    }

    fn in_flight(&self) -> usize {
        self.open.in_flight()
    }

    fn forget_unwanted(&self) {
        if self.uses_uring {
            uring::forget_unwanted();
        }
        self.threads.forget_unwanted();
    }

    fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        // Nobody but this thread drives its ring.
        while self.in_flight() > 0 && uring::drive(DRIVE_STEP) {
            if Instant::now() >= deadline {
                return self.in_flight() == 0;
            }
        }
        self.open.wait_idle(deadline)
    }
}
