//! The appending side of a log: one buffer per core.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use humboldt_base::vital;
use parking_lot::Mutex;

use crate::patience::{ABANDONED_STALL_MAX, STALL_MAX};
use crate::service::Inbox;
use crate::target::Told;

/// Most bytes waiting to be written for one core and one log. Beyond it lines are dropped and
/// counted until the writer has caught up. (The line that crosses the bound is kept whole.)
pub const BUFFER_BYTES_MAX: usize = 4 << 20;

/// The writer is woken early when a buffer holds this much.
const BUFFER_BYTES_URGENT: usize = 1 << 20;

/// Called with the number of lines that were lost, from the thread that noticed it.
pub type OnDropped = Arc<dyn Fn(u64) + Send + Sync>;

/// Fewest bytes of a core's buffer (`buffer-size=`).
const BUFFER_BYTES_MIN: usize = 16 << 10;

/// The name of a log that ends the program.
const DYING: &str = "a log with on-error=die";

/// The settings of a log.
#[derive(Clone, Default)]
pub struct SinkOptions {
    /// Cores that will append. One more buffer is kept for everything else.
    pub cores: usize,
    /// Most bytes that wait, of all cores together (`buffer-size=`); `None`:
    /// [`BUFFER_BYTES_MAX`] for each core.
    pub buffer_bytes: Option<usize>,
    /// A line that is lost ends the program (`on-error=die`).
    pub is_vital: bool,
    /// Old files that a rotation keeps (`rotate=`), if not as many as of other logs.
    pub rotate: Option<u32>,
    /// Lines are collected for the receiver (`buffered_logs`).
    pub is_buffered: bool,
    /// Told when lines are lost, for a counter.
    pub on_dropped: Option<OnDropped>,
}

impl SinkOptions {
    /// What a receiver is told.
    pub(crate) fn told(&self) -> Told {
        Told { rotate: self.rotate.unwrap_or_default(), is_buffered: self.is_buffered }
    }
}

/// A log that cores append lines to. Made by [`crate::LogService::open`].
pub struct LineSink {
    /// One per core, and a last one for other threads.
    buffers: Box<[CoreBuffer]>,
    /// Bound of each of them.
    buffer_bytes: usize,
    discard: bool,
    /// Longer lines are cut off.
    line_bytes_max: usize,
    is_vital: bool,
    dropped: AtomicU64,
    on_dropped: Option<OnDropped>,
    inbox: Arc<Inbox>,
}

/// Padded, so that two cores never write to the same cache line.
#[repr(align(128))]
#[derive(Default)]
struct CoreBuffer(Mutex<Vec<u8>>);

impl fmt::Debug for LineSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineSink").field("cores", &(self.buffers.len() - 1)).finish_non_exhaustive()
    }
}

impl LineSink {
    pub(crate) fn new(
        options: SinkOptions,
        discard: bool,
        line_bytes_max: usize,
        inbox: Arc<Inbox>,
    ) -> Self {
        let buffers = (0..=options.cores).map(|_| CoreBuffer::default()).collect();
        let buffer_bytes = options.buffer_bytes.map_or(BUFFER_BYTES_MAX, |bytes| {
            (bytes / options.cores.max(1)).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX)
        });
        Self {
            buffers,
            buffer_bytes,
            discard,
            line_bytes_max,
            is_vital: options.is_vital,
            dropped: AtomicU64::new(0),
            on_dropped: options.on_dropped,
            inbox,
        }
    }

    /// Most bytes that wait of one core, but for the last line.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Most bytes of a line; the rest of a longer one is cut off.
    pub fn line_bytes_max(&self) -> usize {
        self.line_bytes_max
    }

    /// Whether lines are discarded, so that the caller need not make them.
    pub fn is_none(&self) -> bool {
        self.discard
    }

    /// Appends the text that `write` adds to the buffer, as one line of `core`; the newline is
    /// added when missing.
    ///
    /// Takes an uncontended lock; allocates only while the buffer grows to its usual size. `write`
    /// is not called when the line is dropped. Lines of one core stay in order; those of different
    /// cores may be out of order by as much as a writing interval.
    pub fn append(&self, core: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if self.discard {
            return;
        }
        let shared = self.buffers.len() - 1;
        let CoreBuffer(buffer) = &self.buffers[core.min(shared)];
        let mut buffer = buffer.lock();
        let before = buffer.len();
        if before >= self.buffer_bytes {
            drop(buffer);
            self.count_dropped(1);
            return;
        }
        write(&mut buffer);
        if buffer.len() > before && buffer.last() != Some(&b'\n') {
            buffer.push(b'\n');
        }
        let much = BUFFER_BYTES_URGENT.min(self.buffer_bytes / 4);
        let urgent = before < much && buffer.len() >= much;
        drop(buffer);
        self.inbox.notice_line(urgent);
    }

    /// [`Self::append`] from a thread that is no core.
    pub fn append_shared(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.append(usize::MAX, write);
    }

    /// Lines lost so far, because the writer could not keep up or the write failed.
    pub fn dropped_lines(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn count_dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        if self.is_vital {
            vital::fail(DYING);
        }
        if let Some(on_dropped) = &self.on_dropped {
            on_dropped(lines);
        }
    }

    /// Whether lines wait to be written.
    pub(crate) fn has_lines(&self) -> bool {
        self.buffers.iter().any(|CoreBuffer(buffer)| !buffer.lock().is_empty())
    }

    /// How many buffers it has.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Exchanges the content of a buffer for `spare`, which must be empty. So no lock is held while
    /// it is written.
    pub(crate) fn exchange(&self, index: usize, spare: &mut Vec<u8>) {
        if let Some(CoreBuffer(buffer)) = self.buffers.get(index) {
            let mut held = buffer.lock();
            // An empty one stays: it may have more room than the spare one.
            if !held.is_empty() {
                std::mem::swap(&mut *held, spare);
            }
        }
    }

    /// Whether nobody but the writer has it: no line will be appended.
    pub(crate) fn is_abandoned(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    /// Whether a receiver that has taken nothing since then is given up.
    pub(crate) fn is_stalled(self: &Arc<Self>, since: Instant) -> bool {
        match self.stop_until() {
            Some(until) => Instant::now() >= until,
            None if self.is_abandoned() => since.elapsed() >= ABANDONED_STALL_MAX,
            None => since.elapsed() >= STALL_MAX,
        }
    }

    /// When the last lines must have been written, once the service ends.
    pub(crate) fn stop_until(&self) -> Option<Instant> {
        self.inbox.stop_until()
    }
}
