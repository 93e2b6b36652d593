//! The thread that keeps house: it reads the index at the start, has segments reclaimed and writes
//! checkpoints, so that no core waits for any of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::checkpoint::{self, Head};
use super::recover;
use super::store::Store;
use crate::PageCache;
use crate::memory;
use crate::simulated::{Background, Next};

/// Time between two looks at the available memory.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two syncs of writes that went through the page cache, which also show whether the
/// device took them. The system has written most of them by then (after 30 s by default), so this
/// costs next to nothing.
const WRITE_BACK_INTERVAL: Duration = Duration::from_secs(60);

/// Reads leave the page cache when stored objects take more than this share of the available
/// memory, in percent ...
const MEMORY_SHARE_PCT: u64 = 80;

/// ... and come back to it when it is less than this.
const MEMORY_SHARE_AGAIN_PCT: u64 = 60;

/// Takes the store out of service when its keeper panics: otherwise writers would wait for room for
/// ever.
struct OutOfService<'a>(&'a Store);

impl Drop for OutOfService<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.health.give_up(self.0.options.path.display(), "its thread has failed");
            self.0.progress.notify_waiters();
        }
    }
}

impl Store {
    /// Starts the keeper, if that has not been done: with the first operation, as no thread may
    /// exist before privileges are dropped.
    pub(crate) fn start_keeper(self: &Arc<Self>) {
        if self.may_store.load(Ordering::Acquire) {
            return;
        }
        let mut thread = self.keeper.thread.lock();
        if thread.is_some() || self.keeper.is_stopped() {
            return;
        }
        let (of_thread, of_steps) = (Arc::clone(self), Arc::clone(self));
        let mut has_begun = false;
        let step = move || of_steps.keep_a_step(&mut has_begun);
        match self.keeper.given.start("ring keeper", move || of_thread.keep(), step) {
            Ok(started) => *thread = Some(started),
            Err(error) => drop(self.failed("start a thread for", &error)),
        }
    }

    /// There may be something to reclaim.
    pub(crate) fn wake_keeper(&self) {
        self.keeper.wake();
    }

    fn keep(self: Arc<Self>) {
        let _guard = OutOfService(&self);
        self.begin();
        let mut looked_at_memory: Option<Instant> = None;
        let mut written_back = Instant::now();
        while self.keeper.wait() {
            if looked_at_memory.is_none_or(|at| at.elapsed() >= MEMORY_INTERVAL) {
                self.look_at_memory();
                looked_at_memory = Some(Instant::now());
            }
            if written_back.elapsed() >= WRITE_BACK_INTERVAL {
                self.write_back();
                written_back = Instant::now();
            }
            self.keep_house();
            self.keeper.orders.lock().is_working = false;
            self.progress.notify_waiters();
        }
    }

    fn begin(self: &Arc<Self>) {
        recover::recover(self);
        self.look_at_memory();
        if self.checkpoint() {
            self.may_store.store(true, Ordering::Release);
        } else {
            self.health.give_up(self.options.path.display(), "no checkpoint can be written");
        }
        self.progress.notify_waiters();
    }

    /// The work of the thread on a simulated disk.
    fn keep_a_step(self: &Arc<Self>, has_begun: &mut bool) -> Next {
        if !std::mem::replace(has_begun, true) {
            self.begin();
            return Next::Again;
        }
        {
            let mut orders = self.keeper.orders.lock();
            if orders.stop {
                return Next::Ended;
            }
            if !std::mem::take(&mut orders.is_wanted) {
                return Next::Rest;
            }
            orders.is_working = true;
        }
        self.write_back();
        self.keep_house();
        self.keeper.orders.lock().is_working = false;
        self.progress.notify_waiters();
        Next::Again
    }

    /// Buffers take no more than a share of the memory that there is. With `page-cache=auto`, reads
    /// go through the page cache while all that is stored fits into it. When it does not, pages
    /// come and go, and cost more of the processor than they save (`cargo xtask bench page-cache`);
    /// unless the device is a slow disk, of which every read that is saved counts.
    fn look_at_memory(&self) {
        if self.keeper.given.disk().is_some() {
            return; // the machine's memory does not follow from a seed
        }
        let Some(available_bytes) = memory::available_bytes() else { return };
        let room_bytes = memory::room_for_buffers(available_bytes);
        self.log.fit_into(room_bytes);
        memory::limit_spare_buffers(room_bytes);
        self.turns.look(); // it may have become more
        if self.options.own.page_cache != PageCache::Auto {
            return;
        }
        let used_bytes = u64::from(self.segments.used()) * self.geometry.segment_bytes;
        let is_cached = self.uses_page_cache.load(Ordering::Relaxed);
        let share_pct = if is_cached { MEMORY_SHARE_PCT } else { MEMORY_SHARE_AGAIN_PCT };
        let fits = used_bytes <= available_bytes / 100 * share_pct;
        let are_slow = self.device_reads.are_slow();
        self.uses_page_cache.store(fits || are_slow, Ordering::Relaxed);
        self.is_all_cached.store(fits, Ordering::Relaxed);
    }

    /// Syncs writes that went through the page cache, on a thread of its own, because a slow device
    /// may take minutes. Without it, a failing device would not be noticed before a read.
    fn write_back(self: &Arc<Self>) {
        if self.data.alignment_bytes() != 1 || !self.is_written_back.swap(false, Ordering::AcqRel) {
            return;
        }
        let store = Arc::clone(self);
        let written = Background::once("ring write-back", move || {
            if let Err(error) = store.data.sync_blocking() {
                store.failed("write back", &error);
            }
            store.is_written_back.store(true, Ordering::Release);
        });
        // Nobody waits for its end.
        if let Err(error) = written {
            self.is_written_back.store(true, Ordering::Release);
            self.failed("start a thread for", &error);
        }
    }

    /// Sees to it that there are free segments, and that the log of removals stays short.
    pub(crate) fn keep_house(self: &Arc<Self>) {
        while !self.keeper.is_stopped() && !self.health.is_down() {
            let wanted = self.segments.to_reclaim();
            if wanted > 0 && self.reclaim_oldest(wanted) {
                continue;
            }
            let is_due = self.segments.wants_checkpoint() || self.purges.wants_checkpoint();
            if !is_due || !self.keeper.may_try() {
                return;
            }
            let is_done = self.checkpoint();
            self.keeper.tried(is_done);
            if !is_done {
                return;
            }
        }
    }

    /// Writes a checkpoint: older segments may be reclaimed after it. `false` if that failed.
    pub(crate) fn checkpoint(&self) -> bool {
        let number = self.checkpoint.load(Ordering::Acquire) + 1;
        let Some(file) = self.checkpoints.get((number % 2) as usize) else { return false };
        if let Err(error) = self.purges.prepare(number) {
            self.failed("begin a log of removals of", &error);
            return false;
        }
        // An entry that leaves the index from now on may be in the checkpoint.
        let doubts = self.doubts.counted();
        let head = {
            let _settled = self.log.settling.write();
            let (segments, next_generation) = self.segments.begin_checkpoint();
            self.purges.switch(number);
            Head {
                number,
                store_id: self.store_id,
                segment_bytes: self.geometry.segment_bytes,
                sequence: self.log.sequence(),
                next_generation,
                parts: 0,
                segments,
            }
        };
        let next_generation = head.next_generation;
        match checkpoint::write(&**file, head, self.index.get()) {
            Ok(bytes) => {
                self.counts.write(bytes);
                self.checkpoint.store(number, Ordering::Release);
                self.segments.end_checkpoint(next_generation);
                self.doubts.settle(doubts);
                true
            }
            Err(error) => {
                self.failed("write a checkpoint of", &error);
                false
            }
        }
    }
}
