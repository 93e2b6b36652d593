//! Threads of one file that make blocking calls.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use humboldt_base::vital::Vital;
use humboldt_sys::cpu;
use humboldt_sys::uring::Transfer;
use parking_lot::{Condvar, Mutex};

use super::ticket::{Ticket, queue_full};

/// Most operations of one file that wait for a thread; further ones fail with `WouldBlock`.
pub(crate) const QUEUED_MAX: usize = 1024;

/// Number of reads that may go before a write that waits.
const READS_BEFORE_WRITE: u8 = 3;

/// A short transfer of direct I/O that is no multiple of this has come to the end of the file.
const SECTOR_BYTES: usize = 512;

/// An operation that waits for a thread.
struct Job {
    ticket: Ticket,
    offset: u64,
    transfer: Transfer,
}

/// The threads of a file. When this is dropped, they finish the queue and end.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    threads_max: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    /// They go first: clients wait for them.
    reads: VecDeque<Job>,
    writes: VecDeque<Job>,
    /// Reads that have gone before a write since the last one.
    reads_before: u8,
    running: usize,
    /// Threads that wait for work.
    waiting: usize,
    is_closed: bool,
}

impl Queue {
    fn like(&mut self, transfer: &Transfer) -> &mut VecDeque<Job> {
        match transfer {
            Transfer::Read(_) => &mut self.reads,
            Transfer::Append(..) => &mut self.writes,
        }
    }

    fn queued(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// Reads that were given up leave.
    fn forget_unwanted(&mut self) {
        self.reads.retain(|job| job.ticket.is_wanted());
    }

    /// The next operation: a read, but not for ever while writes wait, for which purges wait. Reads
    /// that were given up are not begun.
    fn next(&mut self) -> Option<Job> {
        if !self.writes.is_empty() && self.reads_before >= READS_BEFORE_WRITE {
            self.reads_before = 0;
            return self.writes.pop_front();
        }
        while self.reads.pop_front_if(|job| !job.ticket.is_wanted()).is_some() {}
        match self.reads.pop_front() {
            Some(read) => {
                self.reads_before = self.reads_before.saturating_add(1);
                Some(read)
            }
            None => self.writes.pop_front(),
        }
    }
}

impl Threads {
    /// No thread is started yet.
    pub(crate) fn new(threads_max: u32) -> Self {
        Self { shared: Arc::default(), threads_max: threads_max.max(1) as usize }
    }

    /// Queues an operation; a full queue, or a system without threads, is told at once.
    pub(crate) fn push(&self, ticket: Ticket, offset: u64, transfer: Transfer) {
        let mut queue = self.shared.queue.lock();
        if queue.reads.len() >= QUEUED_MAX {
            queue.forget_unwanted();
        }
        if queue.like(&transfer).len() >= QUEUED_MAX {
            drop(queue);
            return ticket.complete(transfer, Err(queue_full()));
        }
        if queue.waiting <= queue.queued() && queue.running < self.threads_max {
            queue.running += 1;
            if let Err(error) = self.start() {
                queue.running -= 1;
                if queue.running == 0 {
                    drop(queue);
                    return ticket.complete(transfer, Err(error));
                }
            }
        }
        queue.like(&transfer).push_back(Job { ticket, offset, transfer });
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Reads that were given up leave the queue.
    pub(crate) fn forget_unwanted(&self) {
        self.shared.queue.lock().forget_unwanted();
    }

    fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            // Nothing depends on it.
            _ = cpu::work_in_batches();
            let _vital = Vital::new("a thread that reads and writes a cache_dir");
            shared.run();
        };
        thread::Builder::new().name("block-io".to_owned()).spawn(work).map(drop)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(Job { ticket, offset, mut transfer }) = queue.next() {
                drop(queue);
                let result = perform(&ticket, offset, &mut transfer);
                ticket.complete(transfer, result);
                queue = self.queue.lock();
            } else if queue.is_closed {
                queue.running -= 1;
                return;
            } else {
                queue.waiting += 1;
                self.work.wait(&mut queue);
                queue.waiting -= 1;
            }
        }
    }
}

fn perform(ticket: &Ticket, offset: u64, transfer: &mut Transfer) -> io::Result<usize> {
    let file = &ticket.open.file;
    match transfer {
        Transfer::Read(buffer) => read_fully(file, ticket.open.direct, offset, buffer),
        Transfer::Append(data, range) => {
            let bytes = data.read(range.clone()).ok_or_else(humboldt_sys::uring::unpublished)?;
            file.write_all_at(bytes, offset).map(|()| bytes.len())
        }
    }
}

/// Reads until `into` is full or the file ends.
pub(crate) fn read_fully(
    file: &File,
    direct: bool,
    offset: u64,
    into: &mut [u8],
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => {
                filled += read;
                if direct && !read.is_multiple_of(SECTOR_BYTES) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use humboldt_sys::aligned::Buffer;
    use tokio::sync::oneshot;

    use super::*;
    use crate::block::ticket::{Finish, OpenFile};

    fn read_job(open: &Arc<OpenFile>) -> (Job, oneshot::Receiver<(Buffer, io::Result<usize>)>) {
        let (reply, end) = oneshot::channel();
        let ticket = Ticket::new(open, Finish::Read(reply));
        (Job { ticket, offset: 0, transfer: Transfer::Read(Buffer::new(512)) }, end)
    }

    #[test]
    fn reads_that_were_given_up_are_not_begun() {
        let open = Arc::new(OpenFile::new(tempfile::tempfile().expect("a file"), false));
        let mut queue = Queue::default();
        let mut ends = Vec::new();
        for _ in 0..6 {
            let (job, end) = read_job(&open);
            queue.reads.push_back(job);
            ends.push(end);
        }
        ends.drain(..3).for_each(drop);
        assert!(queue.next().is_some_and(|job| job.ticket.is_wanted()));
        assert_eq!((queue.reads.len(), open.in_flight()), (2, 2), "those of the others are over");
        drop(ends);
        queue.forget_unwanted();
        assert_eq!((queue.queued(), open.in_flight()), (0, 0));
        assert!(queue.next().is_none());
    }

    #[test]
    fn threads_do_what_is_queued_and_end_with_their_file() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(100 * 512).expect("longer");
        let open = Arc::new(OpenFile::new(file, false));
        let threads = Threads::new(3);
        let replies: Vec<_> = (0..100)
            .map(|index| {
                let (reply, end) = oneshot::channel();
                let ticket = Ticket::new(&open, Finish::Read(reply));
                threads.push(ticket, index * 512, Transfer::Read(Buffer::new(512)));
                end
            })
            .collect();
        assert!(threads.shared.queue.lock().running <= 3);
        let shared = Arc::downgrade(&threads.shared);
        drop(threads);
        for end in replies {
            assert_eq!(end.blocking_recv().expect("done").1.expect("read"), 512);
        }
        let start = Instant::now();
        while shared.strong_count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "a thread goes on");
            thread::yield_now();
        }
    }
}
