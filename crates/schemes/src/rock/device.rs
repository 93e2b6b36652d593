//! The way to the slot file: counted, measured, and shut at the end.
//!
//! A task that changes stored data holds a [`Pass`] from the decision to the submission of the
//! write. A stop waits for the passes and then for the writes, so that the snapshot of the index
//! sees no half of a change.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use humboldt_store::scheme::SchemeError;
use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;

use super::format::{Corrupt, Geometry};
use super::pace::{Pace, Rate, Started};
use crate::RockOptions;
use crate::block::{BlockFile, ReadFuture};
use crate::bounds::{Bounds, Stores};
use crate::health::{DISK_FULL, Health, is_disk_full};
use crate::overload::Turns;

/// How long a stop waits for reads and writes that are under way.
pub(super) const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

/// With this many operations under way, the device is as busy as can be: load 1000.
const LOAD_DEPTH: u64 = 64;

/// With this many writes under way no object is begun to be stored, and with fewer where memory is
/// short ([`Bounds`]). Reads have a queue of their own.
const WRITES_MAX: usize = 1024;

/// Most bytes of objects that are being collected or written: beyond it none is begun, and one that
/// needs more is given up. As with `coss`.
const STORED_BYTES_MAX: u64 = 32 << 20;

/// Where memory is short they take this part of the directory's room.
const STORED_SHARE: u64 = 4;

/// Lower bound of that part. With slots of up to 64 KiB: two long objects, of each a piece that is
/// written and one that is collected, and small ones beside them.
const STORED_BYTES_LEAST: u64 = 8 << 20;

/// A quarter of these bytes is not for long objects, which may come slowly: they leave some for all
/// others.
const SHORT_ONLY_SHARE: u64 = 4;

/// One write counts no more bytes than this in the queue of writes, in which a piece of a long
/// object would take the places of a hundred others: its memory has a bound of its own.
const COUNTED_BYTES_MAX: u64 = 128 * 1024;

/// Most bytes of objects that are being collected or written in a directory with this part of the
/// memory: of all, and of long ones.
fn stored_bytes_max(part_bytes: u64) -> (u64, u64) {
    let all = (part_bytes / STORED_SHARE).clamp(STORED_BYTES_LEAST, STORED_BYTES_MAX);
    (all, all - all / SHORT_ONLY_SHARE)
}

/// Why something was not read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It does not verify.
    Corrupt(Corrupt),
    /// The operating system, or a bound of ours, is in the way.
    Refused(SchemeError),
}

impl From<Corrupt> for Failure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl From<SchemeError> for Failure {
    fn from(error: SchemeError) -> Self {
        Self::Refused(error)
    }
}

/// Counters since the start.
#[derive(Default)]
pub(crate) struct IoCounts {
    pub(crate) read_ops: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_ops: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) shed: AtomicU64,
    pub(crate) shed_hits: AtomicU64,
}

/// The slot file and the facts about its disk.
pub(crate) struct Device {
    pub(crate) file: Arc<dyn BlockFile>,
    pub(crate) geometry: Geometry,
    pub(crate) counts: IoCounts,
    /// Path for messages.
    pub(crate) name: String,
    pace: Pace,
    rate: Option<Rate>,
    timeout: Option<Duration>,
    began: tokio::time::Instant,
    is_closed: AtomicBool,
    passes: AtomicUsize,
    /// Writes under way.
    writes: Stores,
    pub(super) bounds: Arc<Bounds>,
    /// Bytes of all [`Stored`].
    stored_bytes: AtomicU64,
    /// Bytes of those of long objects.
    long_bytes: AtomicU64,
    /// Those who wait until there are fewer.
    pub(crate) turns: Turns,
    pub(crate) health: Health,
}

/// The right to change stored data. While there is one, the directory is not closed.
pub(crate) struct Pass<'a>(&'a Device);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.passes.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Memory of an object that is being collected or written, counted until it is dropped.
pub(crate) struct Stored {
    device: Arc<Device>,
    bytes: u64,
    /// The part of them that counts among those of long objects.
    long_bytes: u64,
}

impl Stored {
    /// Counts `bytes`; `Busy` beyond the bound.
    pub(crate) fn take(
        device: &Arc<Device>,
        bytes: usize,
        is_long: bool,
    ) -> Result<Arc<Self>, SchemeError> {
        let bytes = bytes as u64;
        let long_bytes = if is_long { bytes } else { 0 };
        let stored = Self { device: Arc::clone(device), bytes, long_bytes };
        let all = device.stored_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let of_long = device.long_bytes.fetch_add(long_bytes, Ordering::Relaxed) + long_bytes;
        let (all_max, long_max) = stored_bytes_max(device.bounds.share.part_bytes());
        if all > all_max || (is_long && of_long > long_max) {
            return Err(device.shed("too much is being stored"));
        }
        Ok(Arc::new(stored))
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.device.stored_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.device.long_bytes.fetch_sub(self.long_bytes, Ordering::Relaxed);
    }
}

/// An operation that counts as under way until it is dropped.
struct Timed {
    device: Arc<Device>,
    started: Started,
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.device.pace.finish(self.started, self.device.now_ns());
    }
}

impl Device {
    pub(crate) fn new(
        file: Arc<dyn BlockFile>,
        geometry: Geometry,
        name: String,
        own: &RockOptions,
        capacity_bytes: u64,
    ) -> Self {
        let writes = Stores::default();
        let bounds = Arc::new(Bounds::new(WRITES_MAX));
        let (all, most) = (writes.clone(), Arc::clone(&bounds));
        let room = move || most.room(&all);
        Self {
            file,
            geometry,
            name,
            counts: IoCounts::default(),
            pace: Pace::default(),
            rate: own.max_swap_rate.map(Rate::new),
            timeout: own.swap_timeout,
            began: tokio::time::Instant::now(),
            is_closed: AtomicBool::new(false),
            passes: AtomicUsize::new(0),
            writes,
            bounds,
            stored_bytes: AtomicU64::new(0),
            long_bytes: AtomicU64::new(0),
            turns: Turns::new(own.overload, capacity_bytes, room),
            health: Health::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it can be used at all.
    pub(crate) fn in_service(&self) -> Result<(), SchemeError> {
        if self.health.is_down() || self.is_closed.load(Ordering::Acquire) {
            return Err(SchemeError::Down);
        }
        Ok(())
    }

    /// The right to change something, if the directory is not closed.
    pub(crate) fn pass(&self) -> Result<Pass<'_>, SchemeError> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        let pass = Pass(self);
        if self.is_closed.load(Ordering::SeqCst) { Err(SchemeError::Down) } else { Ok(pass) }
    }

    /// Ends all changes and waits for operations under way. Returns whether it was closed before,
    /// and whether none is under way any more.
    pub(crate) fn close(&self, patience: Duration) -> (bool, bool) {
        let was_closed = self.is_closed.swap(true, Ordering::SeqCst);
        self.bounds.share.leave();
        (was_closed, self.settle(patience))
    }

    /// Waits for a moment without passes, and then for one without anything under way; returns
    /// whether it has come.
    pub(crate) fn settle(&self, patience: Duration) -> bool {
        while self.passes.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now(); // nobody waits for anything while holding one
        }
        self.file.wait_idle(patience)
    }

    /// Squid's measure of how busy it is, or how full the queue of writes is.
    pub(crate) fn load(&self) -> u16 {
        let busy = (self.pace.in_flight() * 1000 / LOAD_DEPTH).min(1000);
        u16::try_from(busy).unwrap_or(1000).max(self.bounds.load(&self.writes))
    }

    /// Refuses operations that would wait longer than `swap-timeout`.
    pub(crate) fn check_timeout(&self) -> Result<(), SchemeError> {
        if self.timeout.is_some_and(|timeout| self.pace.expected() > timeout) {
            return Err(self.shed("swap-timeout"));
        }
        Ok(())
    }

    /// Has another thread look at the memory, of which its bounds are parts.
    pub(crate) async fn look_at_memory(&self) {
        if self.bounds.share.look_from_core().await {
            self.turns.look(); // it may have become more
        }
    }

    /// Whether half of the writes are under way with which nothing is stored any more.
    pub(crate) fn is_half_full(&self) -> bool {
        self.bounds.is_half_full(&self.writes)
    }

    /// Refuses to store while too much is being written already.
    pub(crate) fn check_writes(&self) -> Result<(), SchemeError> {
        if !self.bounds.may_begin(&self.writes) {
            return Err(self.shed("too many writes are waiting"));
        }
        Ok(())
    }

    /// Waits for the turn of a write (`max-swap-rate`), if that is not too long.
    pub(crate) async fn wait_for_turn(&self) -> Result<(), SchemeError> {
        let Some(rate) = &self.rate else { return Ok(()) };
        match rate.turn(self.now_ns()) {
            Some(Duration::ZERO) => {}
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(self.shed("max-swap-rate")),
        }
        Ok(())
    }

    /// Counts writes that did not wait for a turn.
    pub(crate) fn charge(&self, writes: usize) {
        if let Some(rate) = &self.rate {
            rate.charge(writes as u64);
        }
    }

    /// Counts something that was not done since too much is waiting.
    pub(crate) fn shed(&self, why: &'static str) -> SchemeError {
        self.counts.shed.fetch_add(1, Ordering::Relaxed);
        SchemeError::Busy(why)
    }

    /// Starts to write a published range. `done` is called exactly once, on any thread.
    pub(crate) fn write(
        self: &Arc<Self>,
        _pass: &Pass<'_>,
        offset: u64,
        data: &Arc<AppendBuffer>,
        range: std::ops::Range<usize>,
        done: impl FnOnce(Result<(), SchemeError>) + Send + 'static,
    ) {
        self.counts.write_ops.fetch_add(1, Ordering::Relaxed);
        self.counts.write_bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
        let bytes = (range.len() as u64).min(COUNTED_BYTES_MAX);
        let timed = Timed { device: Arc::clone(self), started: self.pace.start(self.now_ns()) };
        self.writes.begin(bytes);
        let finish = move |outcome: io::Result<()>| {
            let device = Arc::clone(&timed.device);
            drop(timed);
            device.writes.end(bytes);
            device.turns.look();
            done(device.judge("write", outcome));
        };
        self.file.write(offset, Arc::clone(data), range, Box::new(finish));
    }

    /// Reads ranges (offset, length), all of them at the same time. Bytes in the page cache are
    /// read at once.
    pub(crate) async fn read(
        self: &Arc<Self>,
        ranges: &[(u64, usize)],
    ) -> Result<Vec<Buffer>, Failure> {
        let mut buffers: Vec<Option<Buffer>> = Vec::with_capacity(ranges.len());
        let mut waiting: Vec<(usize, usize, ReadFuture, Timed)> = Vec::new();
        for (at, (offset, len)) in ranges.iter().enumerate() {
            let mut buffer = Buffer::new(*len);
            match self.file.read_now(*offset, &mut buffer) {
                Some(outcome) => {
                    self.got(outcome, *len)?;
                    buffers.push(Some(buffer));
                }
                None => {
                    self.check_timeout().inspect_err(|_| self.count_shed_hit())?;
                    let timed =
                        Timed { device: Arc::clone(self), started: self.pace.start(self.now_ns()) };
                    waiting.push((at, *len, self.file.read(*offset, buffer), timed));
                    buffers.push(None);
                }
            }
        }
        for (at, len, read, timed) in waiting {
            let (buffer, outcome) = read.await;
            drop(timed);
            self.got(outcome, len)?;
            if let Some(place) = buffers.get_mut(at) {
                *place = Some(buffer);
            }
        }
        Ok(buffers.into_iter().flatten().collect())
    }

    fn count_shed_hit(&self) {
        self.counts.shed_hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a read and judges its outcome.
    fn got(&self, outcome: io::Result<usize>, len: usize) -> Result<(), Failure> {
        if matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.count_shed_hit();
        }
        self.counts.read_ops.fetch_add(1, Ordering::Relaxed);
        let read = self.judge("read", outcome)?;
        self.counts.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        if read < len { Err(Corrupt("file is short").into()) } else { Ok(()) }
    }

    /// Reads on this thread, as the scan does; returns how much there was.
    pub(crate) fn read_blocking(&self, offset: u64, into: &mut [u8]) -> Result<usize, SchemeError> {
        let read = self.judge("read", self.file.read_blocking(offset, into))?;
        self.counts.read_ops.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    /// Writes on this thread, as rebuild and stop do.
    pub(crate) fn write_blocking(&self, offset: u64, data: &[u8]) -> Result<(), SchemeError> {
        self.counts.write_ops.fetch_add(1, Ordering::Relaxed);
        self.counts.write_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.judge("write", self.file.write_blocking(offset, data))
    }

    /// Turns the system's error into the error for the caller, and counts it.
    pub(crate) fn judge<T>(
        &self,
        operation: &str,
        outcome: io::Result<T>,
    ) -> Result<T, SchemeError> {
        let error = match outcome {
            Ok(value) => {
                self.health.success();
                return Ok(value);
            }
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::WouldBlock => return Err(self.shed("too many operations are waiting")),
            io::ErrorKind::OutOfMemory => return Err(SchemeError::Busy("no memory")),
            _ => self.health.failure(operation, &self.name, &error),
        }
        if is_disk_full(&error) {
            return Err(SchemeError::Busy(DISK_FULL));
        }
        Err(SchemeError::Io { operation: format!("{operation} {}", self.name), source: error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Io;
    use crate::battery::run;
    use crate::bounds::HALF_BYTES_LEAST;
    use crate::health::ERRORS_TO_DOWN;

    fn device(own: &RockOptions) -> (tempfile::TempDir, Arc<Device>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let options = crate::block::OpenBlock {
            path: &path,
            io: Io::Threads,
            direct: false,
            lasting: false,
            threads: 1,
            create: true,
            read_only: false,
        };
        let file = crate::block::open(&options).expect("opened");
        let geometry = Geometry { store_id: 1, slot_bytes: 4096 };
        (dir, Arc::new(Device::new(file, geometry, "file".to_owned(), own, 0)))
    }

    #[test]
    fn what_would_wait_longer_than_the_timeout_is_not_begun() {
        let swap_timeout = Some(Duration::from_millis(20));
        let own = RockOptions { swap_timeout, ..RockOptions::default() };
        let (_dir, device) = device(&own);
        // An operation took 8 ms by the clock of the measurement.
        device.pace.finish(device.pace.start(0), 8_000_000);
        let mut held = Vec::new();
        let mut begun = 0;
        while device.check_timeout().is_ok() {
            held.push(Timed { device: Arc::clone(&device), started: device.pace.start(0) });
            begun += 1;
            assert!(begun < 100);
        }
        assert_eq!(begun, 2, "the third would end after 24 ms");
        assert_eq!(device.counts.shed.load(Ordering::Relaxed), 1);
        assert_eq!(device.load(), 2000 / 64);
        held.clear();
        assert!(device.check_timeout().is_ok(), "an idle disk is tried again, however slow it was");
        let (_dir, patient) = self::device(&RockOptions::default());
        patient.pace.finish(patient.pace.start(0), u64::MAX);
        patient.pace.start(0);
        assert!(patient.check_timeout().is_ok());
    }

    #[test]
    fn where_memory_is_short_fewer_bytes_are_written_at_a_time() {
        let (_dir, device) = device(&RockOptions::default());
        device.bounds.share.set_whole(0);
        let pass = device.pass().expect("a pass");
        let write = |bytes: usize, done: Box<dyn FnOnce() + Send>| {
            let data = AppendBuffer::new(bytes);
            _ = data.reserve(bytes).expect("room").publish();
            device.write(&pass, 0, &data, 0..bytes, move |_| done());
        };
        // The only thread of the file stands still at the end of a write, which counts no longer.
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        write(
            4096,
            Box::new(move || {
                _ = begun.send(());
                _ = released.recv();
            }),
        );
        has_begun.recv().expect("written");
        for at in 0..HALF_BYTES_LEAST / COUNTED_BYTES_MAX {
            assert!(!device.is_half_full(), "{at}");
            assert_eq!(u64::from(device.load()), at * 1000 / 16);
            write(1 << 20, Box::new(|| ()));
        }
        assert!(device.is_half_full() && device.check_writes().is_ok());
        (0..8).for_each(|_| write(1 << 20, Box::new(|| ())));
        assert!(matches!(device.check_writes(), Err(SchemeError::Busy(_))));
        assert_eq!(device.load(), 1000);
        release.send(()).expect("it waits");
        drop(pass);
        assert!(device.settle(Duration::from_secs(30)));
        assert!(!device.is_half_full() && device.check_writes().is_ok());
    }

    #[test]
    fn what_is_collected_follows_the_memory() {
        const MIB: u64 = 1 << 20;
        assert_eq!(stored_bytes_max(u64::MAX), (32 * MIB, 24 * MIB));
        assert_eq!(stored_bytes_max(40 * MIB), (10 * MIB, 10 * MIB - 10 * MIB / 4));
        assert_eq!(stored_bytes_max(0), (8 * MIB, 6 * MIB));
        let (_dir, device) = device(&RockOptions::default());
        device.bounds.share.set_whole(0);
        let take = |is_long| {
            (0..9).map_while(|_| Stored::take(&device, 1 << 20, is_long).ok()).collect::<Vec<_>>()
        };
        let (long, short) = (take(true), take(false));
        assert_eq!((long.len(), short.len()), (6, 2));
        drop((long, short));
        let (short, long) = (take(false), take(true));
        assert_eq!((short.len(), long.len()), (8, 0));
        run(device.look_at_memory());
        assert!(device.bounds.share.part_bytes() > 0, "this machine has some");
    }

    #[test]
    fn a_closed_device_gives_no_passes_and_waits_for_those_it_gave() {
        let (_dir, device) = device(&RockOptions::default());
        let pass = device.pass().expect("a pass");
        let other = Arc::clone(&device);
        let closing = std::thread::spawn(move || other.close(Duration::from_secs(5)));
        while !device.is_closed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(device.pass().is_err() && device.in_service().is_err());
        assert!(!closing.is_finished(), "somebody is changing something");
        drop(pass);
        assert_eq!(closing.join().expect("closed"), (false, true));
        assert_eq!(device.close(Duration::ZERO), (true, true));
    }

    #[test]
    fn errors_in_a_row_take_the_directory_down_but_full_queues_and_disks_do_not() {
        let (_dir, device) = device(&RockOptions::default());
        let fails = |kind: io::ErrorKind| device.judge("read", Err::<(), _>(kind.into()));
        for _ in 0..50 {
            assert!(matches!(fails(io::ErrorKind::WouldBlock), Err(SchemeError::Busy(_))));
            assert!(matches!(fails(io::ErrorKind::StorageFull), Err(SchemeError::Busy(DISK_FULL))));
        }
        (1..ERRORS_TO_DOWN).for_each(|_| {
            assert!(matches!(fails(io::ErrorKind::Other), Err(SchemeError::Io { .. })))
        });
        assert!(device.judge("read", Ok(())).is_ok());
        (1..ERRORS_TO_DOWN).for_each(|_| drop(fails(io::ErrorKind::Other)));
        assert!(!device.health.is_down());
        drop(fails(io::ErrorKind::Other));
        assert!(device.health.is_down() && matches!(device.in_service(), Err(SchemeError::Down)));
        assert_eq!(device.counts.shed.load(Ordering::Relaxed), 50);
    }
}
