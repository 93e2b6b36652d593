//! Emptying the oldest segments, so that they can be overwritten.
//!
//! The objects of a segment are found in one of two ways. Its footer lists them: that takes a read,
//! and for each object a look at its place in the index, which is in none of the processor's
//! caches. Or one pass over the whole index finds those of all segments that are reclaimed
//! together: far more places, but in sequence, and without a read. The second costs less in all but
//! very large stores (`cargo xtask bench full`).

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::copies::Patience;
use super::format::{FooterEntry, Kind};
use super::index::{Entry, Hash64, RingIndex};
use super::purges::{Removal, Unlogged};
use super::reader::{self, Loaded};
use super::recover::{self, Listing};
use super::segments::{Closed, SegmentSet};
use super::store::Store;

/// The index is gone through when at least one in this many segments is reclaimed: for each object
/// that goes, about as many slots are looked at.
const SWEPT_ONE_IN: u32 = 128;

/// Places in the index that are fetched ahead, of the records that a footer lists.
const EXPECTED_AHEAD: usize = 8;

impl Store {
    /// Empties the oldest segments; objects in demand are copied to the open one. `false` if there
    /// is none.
    pub(crate) fn reclaim_oldest(self: &Arc<Self>, count: u32) -> bool {
        let mut oldest = self.segments.oldest(count);
        let unwritten =
            oldest.iter().position(|segment| self.log.is_pending_in(&self.part(segment.number)));
        oldest.truncate(unwritten.unwrap_or(oldest.len()));
        let Some(index) = self.index.get().filter(|_| !oldest.is_empty()) else { return false };
        // Their objects must not come back after a crash: the records that replaced them elsewhere
        // may be gone by then.
        let ends = oldest.iter().map(|segment| Removal::Segment { generation: segment.generation });
        match self.wait_for(self.purges.log(&ends.collect::<Vec<_>>())) {
            Ok(()) => {}
            // A checkpoint begins a new file.
            Err(Unlogged::Full) => return false,
            Err(Unlogged::Failed(kind)) => {
                self.failed("log the end of segments of", &kind.into());
                return false;
            }
        }
        let swept = self.swept(&oldest);
        let mut patience = Patience::default();
        if !swept.is_empty() {
            self.sweep(index, &swept, &mut patience);
        }
        for segment in oldest {
            if !swept.has(segment.number.into()) {
                self.empty(index, segment, &mut patience);
            }
            self.segments.reclaimed(segment.number);
        }
        self.progress.notify_waiters();
        true
    }

    fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        match self.keeper.given.disk() {
            Some(disk) => disk.block_on(future),
            None => block_on(future),
        }
    }

    /// The place of a segment in the data, in bytes.
    fn part(&self, number: u32) -> Range<u64> {
        let start = u64::from(number) * self.geometry.segment_bytes;
        start..start + self.geometry.segment_bytes
    }

    /// Those for which the index is gone through: of parts of large objects it does not know.
    fn swept(&self, oldest: &[Closed]) -> SegmentSet {
        let swept = oldest.iter().filter(|segment| !segment.has_fragments);
        let is_worth_it = swept.clone().count() >= (self.segments.count() / SWEPT_ONE_IN) as usize;
        let numbers = swept.filter(|_| is_worth_it).map(|segment| segment.number);
        self.segment_set(numbers)
    }

    /// Goes through the index and removes the objects of these segments.
    fn sweep(self: &Arc<Self>, index: &RingIndex, swept: &SegmentSet, patience: &mut Patience) {
        // At most as many as make up a segment: the right to copy more cannot be saved up.
        let mut in_demand = Vec::new();
        let is_there = |location| swept.holds(location);
        let dropped = index.sweep(is_there, |entry| {
            let is_copied = entry.freq > 0 && self.log.may_copy(entry.length.bytes_max());
            if is_copied {
                in_demand.push(*entry);
            }
            is_copied
        });
        self.counts.evictions.fetch_add(dropped, Ordering::Relaxed);
        // As they lie on the device.
        in_demand.sort_unstable_by_key(|entry| entry.location);
        if self.copy_all(index, &in_demand, patience).contains(&false) {
            let dropped = index.sweep(is_there, |_| false);
            self.counts.evictions.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Removes the objects that the footer of a segment lists.
    fn empty(self: &Arc<Self>, index: &RingIndex, segment: Closed, patience: &mut Patience) {
        let Closed { number, generation, .. } = segment;
        let first_unit = u64::from(number) * self.geometry.segment_units();
        let found = recover::entries(self, number, generation);
        let listing = found.unwrap_or_else(|error| {
            self.failed("read a segment of", &error);
            Listing { entries: Vec::new(), is_complete: false }
        });
        let mut parents = HashSet::new();
        let mut in_demand = Vec::new();
        for (at, entry) in listing.entries.iter().enumerate() {
            if let Some(later) = listing.entries.get(at + EXPECTED_AHEAD) {
                index.expect(Hash64(later.hash));
            }
            let location = first_unit + u64::from(entry.unit);
            let wanted = self.reclaim_record(index, *entry, location, &mut parents);
            in_demand.extend(wanted.map(|wanted| (wanted, Hash64(entry.hash))));
        }
        in_demand.sort_unstable_by_key(|(entry, _)| entry.location);
        let entries: Vec<Entry> = in_demand.iter().map(|(entry, _)| *entry).collect();
        let copied = self.copy_all(index, &entries, patience);
        for ((entry, hash), _) in in_demand.iter().zip(copied).filter(|(_, is_copied)| !is_copied) {
            self.evict(index, *hash, entry.location);
        }
        if !listing.is_complete {
            // Any object that the list did not have.
            let end = first_unit + self.geometry.segment_units();
            let dropped = index.sweep(|location| (first_unit..end).contains(&location), |_| false);
            self.counts.evictions.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Removes an object that is listed, or returns its entry: it is in demand, and may be copied.
    fn reclaim_record(
        self: &Arc<Self>,
        index: &RingIndex,
        listed: FooterEntry,
        location: u64,
        parents: &mut HashSet<u64>,
    ) -> Option<Entry> {
        let hash = Hash64(listed.hash);
        let entry = index.get(hash)?;
        if listed.kind == Kind::Fragment {
            if entry.kind == Kind::Large as u8 && parents.insert(listed.hash) {
                self.reclaim_parent(index, hash, entry, location);
            }
            return None;
        }
        if entry.location != location {
            return None;
        }
        if entry.freq > 0 && self.log.may_copy(entry.length.bytes_max()) {
            return Some(entry);
        }
        self.evict(index, hash, location);
        None
    }

    fn evict(&self, index: &RingIndex, hash: Hash64, location: u64) {
        if index.remove_if(hash, location) {
            self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A fragment goes: so does its object, unless the fragment is of an older one with the same
    /// key.
    fn reclaim_parent(
        self: &Arc<Self>,
        index: &RingIndex,
        hash: Hash64,
        entry: Entry,
        fragment: u64,
    ) {
        let segment = fragment / self.geometry.segment_units();
        let uses = |loaded: &Loaded| {
            let lies_there = |location: u64| location / self.geometry.segment_units() == segment;
            loaded.found.fragments.iter().any(|fragment| lies_there(fragment.location))
        };
        let is_other = reader::load_blocking(self, entry).is_ok_and(|loaded| !uses(&loaded));
        if !is_other {
            self.evict(index, hash, entry.location);
        }
    }
}

/// Waits for a future on a thread that is no core.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
