//! Copying objects in demand out of segments that will be overwritten.
//!
//! An operation of a device costs more than the bytes of a small object, so those that lie close
//! together are read at once. Where the page cache has all that is stored, they come from there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use humboldt_sys::aligned::Buffer;

use super::format::{self, UNIT_BYTES};
use super::index::{Entry, RingIndex};
use super::log::Job;
use super::reader::{self, Loaded};
use super::store::{Store, span};

/// Most bytes between two records that are read together.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Most bytes that are read together; a record that is longer is read alone.
const AREA_BYTES_MAX: u64 = 256 << 10;

/// How long the copies out of segments that are emptied together wait for room, in all.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

/// How often they look.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// Time that copies may still spend waiting.
pub(crate) struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(ROOM_WAIT_MAX)
    }
}

impl Store {
    /// Copies the records of `entries`, which are in the order of their places, to the open
    /// segment. Says of each whether it was copied: not if it cannot be read, does not verify, or
    /// finds no room.
    pub(crate) fn copy_all(
        self: &Arc<Self>,
        index: &RingIndex,
        entries: &[Entry],
        patience: &mut Patience,
    ) -> Vec<bool> {
        let is_cached = self.is_all_cached.load(Ordering::Relaxed);
        // Bytes that nobody has asked for need not be in the page cache.
        let gap_bytes_max = if is_cached { 0 } else { GAP_BYTES_MAX };
        let mut copied = Vec::with_capacity(entries.len());
        let mut rest = entries;
        while let Some((together, others)) = rest.split_at_checked(near(rest, gap_bytes_max)) {
            let (Some(first), Some(last)) = (together.first(), together.last()) else { break };
            if !self.has_room(patience) {
                break;
            }
            // Of an area that cannot be read, each record is asked for alone.
            let area = Area::read(self, *first, *last, is_cached).ok();
            copied.extend(together.iter().map(|entry| self.copy(index, *entry, area.as_ref())));
            rest = others;
        }
        copied.resize(entries.len(), false);
        copied
    }

    /// Whether the device takes more. Copies come in bursts, of a segment at most, and shall not
    /// crowd out what clients store: while more than half of what may wait for the device is on its
    /// way to it, they wait, but not while clients need the segments that are being emptied.
    fn has_room(&self, patience: &mut Patience) -> bool {
        let is_half_full = || self.log.sealed_bytes() > self.log.pending_bytes_max() / 2;
        while is_half_full() {
            let is_wanted = self.segments.free() <= 1 || self.keeper.is_stopped();
            if is_wanted || self.health.is_down() || patience.0.is_zero() {
                return false;
            }
            if self.keeper.given.disk().is_some() {
                return true; // its time does not pass by itself
            }
            thread::sleep(ROOM_LOOK);
            patience.0 = patience.0.saturating_sub(ROOM_LOOK);
        }
        true
    }

    /// Copies a record, which `area` may have.
    fn copy(self: &Arc<Self>, index: &RingIndex, entry: Entry, area: Option<&Area>) -> bool {
        // If something is wrong with it there, the device is asked for this record alone: a bad
        // sector beside it does no harm, and neither does the page cache.
        let found = area.and_then(|area| area.record(self, entry));
        let Some(loaded) = found.or_else(|| reader::load_blocking(self, entry).ok()) else {
            return false;
        };
        let Some(record) = loaded.record_bytes() else { return false };
        let hash = self.hash(&loaded.found.record.key);
        let surroundings_bytes = loaded.found.bytes();
        let job = Job {
            kind: loaded.found.kind,
            hash: hash.0,
            record_bytes: record.len(),
            from: entry.location,
        };
        let appended = self.append(
            job,
            |place, out| {
                out.copy_from_slice(record);
                out.get_mut(..surroundings_bytes).map_or(0, |front| format::set_place(front, place))
            },
            |new| {
                index.replace_if(hash, entry.location, Entry { freq: entry.freq - 1, ..new });
            },
        );
        appended.is_ok()
    }
}

/// The bytes of the data at which the record of an entry begins, and before which it ends.
fn bounds(entry: &Entry) -> (u64, u64) {
    let start = entry.location * UNIT_BYTES;
    (start, start + entry.length.bytes_max())
}

/// How many of the first entries lie so close together that they are read at once.
fn near(entries: &[Entry], gap_bytes_max: u64) -> usize {
    let mut bounds = entries.iter().map(bounds);
    let Some((start, mut end)) = bounds.next() else { return 0 };
    let others = bounds.take_while(|(next, its_end)| {
        let is_close = (start..=end + gap_bytes_max).contains(next);
        end = *its_end;
        is_close && end <= start + AREA_BYTES_MAX
    });
    1 + others.count()
}

/// A part of the data that has been read.
struct Area {
    start: u64,
    buffer: Buffer,
}

impl Area {
    /// From the first record to the last, through the page cache or past it.
    fn read(store: &Store, first: Entry, last: Entry, is_cached: bool) -> io::Result<Self> {
        let (start, end) = (bounds(&first).0, bounds(&last).1);
        let (start, bytes) = span(store, start, end - start);
        let mut buffer = Buffer::new(bytes);
        let file = if is_cached { &store.cached } else { &store.data };
        let read = file.read_blocking(start, &mut buffer)?;
        store.counts.read(read as u64);
        buffer.set_len(read);
        Ok(Self { start, buffer })
    }

    /// The record of an entry, if it lies here and verifies.
    fn record(&self, store: &Store, entry: Entry) -> Option<Loaded> {
        let (start, end) = bounds(&entry);
        let at = usize::try_from(start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(end - self.start).ok()?.min(self.buffer.len());
        let bytes = self.buffer.get(at..end)?;
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        let generation = store.generation_at(entry.location);
        Loaded::verify(buffer, 0, entry.location, generation).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::length::LengthClass;

    /// Records of this many KiB, each so many KiB behind the one before.
    fn entries(records: &[(u64, u64)]) -> Vec<Entry> {
        let mut at = 1 << 20;
        let entry = |(kib, behind_kib): &(u64, u64)| {
            at += behind_kib << 10;
            let length = LengthClass::of_bytes(kib << 10).expect("a record can be so long");
            let entry = Entry { location: at / UNIT_BYTES, length, freq: 1, kind: 1 };
            at += length.bytes_max();
            entry
        };
        records.iter().map(entry).collect()
    }

    #[test]
    fn records_that_lie_close_together_are_read_at_once() {
        let together = |records: &[(u64, u64)]| near(&entries(records), GAP_BYTES_MAX);
        assert_eq!(together(&[]), 0);
        assert_eq!(together(&[(4, 0)]), 1);
        assert_eq!(together(&[(4, 0), (4, 64), (4, 0), (4, 65), (4, 0)]), 3);
        assert_eq!(together(&[(4, 0); 100]), 64, "no more than the bound");
        assert_eq!(together(&[(512, 0), (4, 0)]), 1, "a long one is alone");
        assert_eq!(near(&entries(&[(4, 0), (4, 0), (4, 1)]), 0), 2);
    }
}
