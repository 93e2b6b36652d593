//! The start: the newest checkpoint, and later operations.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::checkpoint::{self, Head};
use super::format::{
    self, ENTRY_BYTES, FROM_NOWHERE, FooterEntry, IO_BYTES, Kind, SEGMENT_HEADER_BYTES,
    TRAILER_BYTES, UNIT_BYTES,
};
use super::index::{Entry, Hash64, RingIndex};
use super::length::LengthClass;
use super::log::PENDING_BYTES_MAX;
use super::purges::Removal;
use super::reader;
use super::segments::{SegmentEntry, SegmentSet, Use};
use super::store::{Store, read_data};

/// Reads the index and later operations. After any failure the ring starts empty, and logs it.
pub(crate) fn recover(store: &Arc<Store>) {
    let path = store.options.path.display();
    let begin = Instant::now();
    let index = match restore(store) {
        Ok(index) => index,
        Err(error) => {
            tracing::warn!("{path}: {error}; the store begins empty");
            None
        }
    };
    let index = index.unwrap_or_else(|| begin_empty(store));
    let mut early = store.early.lock();
    for hash in std::mem::take(&mut *early) {
        index.remove(Hash64(hash));
    }
    tracing::info!(
        "{path}: {} objects, index {:.0} % full, read in {:.2} s",
        index.len(),
        index.occupancy() * 100.0,
        begin.elapsed().as_secs_f64()
    );
    if store.index.set(index).is_err() {
        tracing::error!("{path}: read twice");
    }
}

/// No old bytes in the files may be taken for a later write at the next start.
fn begin_empty(store: &Store) -> RingIndex {
    // Checkpoints get numbers that the logs do not know, or these would speak of a newer one.
    let logged = store.purges.read(0).unwrap_or_default();
    store.checkpoint.fetch_max(logged.newest, Ordering::AcqRel);
    // The clock may be behind its former time.
    let written =
        (0..store.geometry.segments).filter_map(|number| segment_generation(store, number).ok()?);
    let beyond = written.max().map_or(0, |newest| newest.saturating_add(1));
    store.segments.restore(&[], store.first_generation().max(beyond));
    RingIndex::new(store.objects_expected(), store.objects_max())
}

/// Why a checkpoint is of no use.
#[derive(Debug, thiserror::Error)]
enum Useless {
    #[error("a checkpoint cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the newest checkpoint is damaged: {0}")]
    Index(#[from] super::index::MalformedIndex),
    #[error("the newest checkpoint is lost")]
    Outdated,
}

fn restore(store: &Arc<Store>) -> Result<Option<RingIndex>, Useless> {
    let (head, is_doubtful) =
        checkpoint::newest(store.store_id, store.geometry.segment_bytes, &store.checkpoints)?;
    let Some(head) = head else {
        return if is_doubtful { Err(Useless::Outdated) } else { Ok(None) };
    };
    let logged = store.purges.read(head.number)?;
    let mut known = head.segments.clone();
    known.truncate(store.geometry.segments as usize);
    let ended = end_reclaimed(&mut known, &logged.removals);
    // The log of the next checkpoint is begun after this one, that of the one after it when the
    // next one was there.
    if logged.newest > head.number + 1 || is_doubtful && was_overwritten(store, &known)? {
        return Err(Useless::Outdated);
    }
    let file = store.checkpoints.get((head.number % 2) as usize).ok_or(Useless::Outdated)?;
    let index = checkpoint::read_index(&**file, &head, store.objects_max())?;
    let (mut segments, written) = find_written(store, &head, known);
    let is_open = |segment: &SegmentEntry| segment.is == Use::Open;
    let is_clean = written.is_empty() && !head.segments.iter().any(is_open);
    let copies = Copies::of_ended(&index, store.segment_set(ended), &written);
    replay(store, &index, &head, (written, copies), &logged.removals);
    end_reclaimed(&mut segments, &logged.removals);
    keep_what_exists(store, &index, &segments);
    store
        .segments
        .restore(&segments, store.first_generation().max(head.next_generation + SEGMENTS_GAP));
    if !is_clean {
        drop_incomplete(store, &index, &segments);
    }
    Ok(Some(index))
}

/// Generations of a run are higher than those of all runs before: there are fewer segments than
/// this.
const SEGMENTS_GAP: u64 = 1 << 32;

/// Whether a segment has been overwritten although its end is not logged: then a newer checkpoint
/// existed, and a log is lost.
fn was_overwritten(store: &Store, segments: &[SegmentEntry]) -> io::Result<bool> {
    for (number, segment) in (0..).zip(segments) {
        if segment.is == Use::Closed
            && segment_generation(store, number)? != Some(segment.generation)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn segment_generation(store: &Store, number: u32) -> io::Result<Option<u64>> {
    let first =
        read_data(store, u64::from(number) * store.geometry.segment_bytes, IO_BYTES as usize)?;
    let header = first.get(..SEGMENT_HEADER_BYTES).unwrap_or_default();
    Ok(format::decode_segment_header(store.store_id, number, header))
}

/// An operation that is in the log, but perhaps not in the checkpoint.
struct Written {
    entry: FooterEntry,
    location: u64,
}

/// The present table of segments, and the operations since the checkpoint; `segments` is the
/// checkpoint's table without the segments reclaimed since.
fn find_written(
    store: &Store,
    head: &Head,
    mut segments: Vec<SegmentEntry>,
) -> (Vec<SegmentEntry>, Vec<Written>) {
    let mut written = Vec::new();
    for (number, segment) in
        (0..).zip(&mut segments).filter(|(_, segment)| segment.is != Use::Closed)
    {
        let found = written_in(store, head, number, *segment).unwrap_or_else(|error| {
            // As if never written: the lost operations are newer than the checkpoint, and removals
            // are in a log of their own.
            store.failed("read a segment of", &error);
            None
        });
        *segment = match found {
            Some((generation, news)) => {
                written.extend(news);
                SegmentEntry { generation, is: Use::Closed }
            }
            None => SegmentEntry { is: Use::Free, ..*segment },
        };
    }
    (segments, written)
}

/// The generation of a segment that is free or open in the checkpoint, and later operations in it;
/// `None` if it is free.
fn written_in(
    store: &Store,
    head: &Head,
    number: u32,
    segment: SegmentEntry,
) -> io::Result<Option<(u64, Vec<Written>)>> {
    let goes_on = segment_generation(store, number)?.filter(|generation| match segment.is {
        Use::Free => *generation >= head.next_generation,
        Use::Open | Use::Closed => *generation == segment.generation,
    });
    let Some(generation) = goes_on else { return Ok(None) };
    let first_unit = u64::from(number) * store.geometry.segment_units();
    let listed = entries(store, number, generation)?.entries.into_iter();
    let news = listed.filter(|entry| entry.sequence >= head.sequence);
    let written = news.map(|entry| Written { entry, location: first_unit + u64::from(entry.unit) });
    Ok(Some((generation, written.collect())))
}

/// Objects copied out of segments that have been reclaimed since the checkpoint. Their old places
/// may hold other records by now, so the index forgets them before any other operation.
struct Copies {
    /// Segments that have been reclaimed.
    ended: SegmentSet,
    /// By hash, where an object lay that has been copied.
    from: HashMap<u64, u64>,
}

impl Copies {
    /// Removes the objects of these segments from the index.
    fn of_ended(index: &RingIndex, ended: SegmentSet, written: &[Written]) -> Self {
        let mut copies = Self { ended, from: HashMap::new() };
        for Written { entry, .. } in written {
            let lay_there =
                || index.get(Hash64(entry.hash)).is_some_and(|found| found.location == entry.from);
            if entry.from != FROM_NOWHERE && copies.ended.holds(entry.from) && lay_there() {
                copies.from.insert(entry.hash, entry.from);
            }
        }
        if !copies.ended.is_empty() {
            index.sweep(|location| copies.ended.holds(location), |_| false);
        }
        copies
    }

    /// Repeats the effect of the copy on the index; nothing if the object had left before.
    fn copied(&mut self, index: &RingIndex, hash: Hash64, from: u64, new: Entry) {
        if !self.ended.holds(from) {
            index.replace_if(hash, from, new);
        } else if self.from.get(&hash.0) == Some(&from) {
            self.from.remove(&hash.0);
            index.insert(hash, new);
        }
    }

    fn insert(&mut self, index: &RingIndex, hash: Hash64, new: Entry) {
        self.from.remove(&hash.0);
        index.insert(hash, new);
    }

    fn remove(&mut self, index: &RingIndex, hash: u64) {
        self.from.remove(&hash);
        index.remove(Hash64(hash));
    }
}

/// Repeats the operations since the checkpoint on the index, in the same order.
fn replay(
    store: &Store,
    index: &RingIndex,
    head: &Head,
    (mut written, mut copies): (Vec<Written>, Copies),
    removals: &[Removal],
) {
    written.sort_unstable_by_key(|written| written.entry.sequence);
    let mut keys: Vec<(u64, u64)> = removals
        .iter()
        .filter_map(|removal| match removal {
            Removal::Key { hash, sequence } if *sequence >= head.sequence => {
                Some((*sequence, *hash))
            }
            _ => None,
        })
        .collect();
    keys.sort_unstable();
    let mut keys = keys.into_iter().peekable();
    let mut last = head.sequence;
    for Written { entry, location } in written {
        while let Some((_, hash)) = keys.next_if(|(sequence, _)| *sequence < entry.sequence) {
            copies.remove(index, hash);
        }
        last = last.max(entry.sequence);
        if entry.kind == Kind::Fragment {
            continue;
        }
        let hash = Hash64(entry.hash);
        let length = LengthClass::from_bits(entry.length_class);
        let new = Entry { location, length, freq: 0, kind: entry.kind as u8 };
        match entry.from {
            FROM_NOWHERE => copies.insert(index, hash, new),
            from => copies.copied(index, hash, from, new),
        }
    }
    for (sequence, hash) in keys {
        last = last.max(sequence);
        copies.remove(index, hash);
    }
    store.log.restore(last + checkpoint::SEQUENCE_GAP);
}

/// Makes segments free that had been reclaimed; returns their numbers.
fn end_reclaimed(segments: &mut [SegmentEntry], removals: &[Removal]) -> Vec<u32> {
    let ends = removals.iter().filter_map(|removal| match removal {
        Removal::Segment { generation } => Some(*generation),
        Removal::Key { .. } => None,
    });
    let ends: HashSet<u64> = ends.collect();
    let mut ended = Vec::new();
    for (number, segment) in (0..).zip(segments) {
        if segment.is != Use::Free && ends.contains(&segment.generation) {
            segment.is = Use::Free;
            ended.push(number);
        }
    }
    ended
}

fn keep_what_exists(store: &Store, index: &RingIndex, segments: &[SegmentEntry]) {
    let existing = (0..).zip(segments).filter(|(_, segment)| segment.is == Use::Closed);
    let existing = store.segment_set(existing.map(|(number, _)| number));
    index.sweep(|location| !existing.holds(location), |_| false);
}

/// The newest segments, of which a crash may have taken parts: as many as may have been waiting for
/// the device.
fn in_doubt(store: &Store, segments: &[SegmentEntry]) -> SegmentSet {
    let mut closed: Vec<(u64, u32)> = (0..)
        .zip(segments)
        .filter(|(_, segment)| segment.is == Use::Closed)
        .map(|(number, segment)| (segment.generation, number))
        .collect();
    closed.sort_unstable();
    let count = PENDING_BYTES_MAX.div_ceil(store.geometry.segment_bytes) as usize + 1;
    store.segment_set(closed.into_iter().rev().take(count).map(|(_, number)| number))
}

/// Buffers get to the device in any order: a crash may have taken a part of a large object, and
/// left its record. A reader would find out in the middle of an answer.
fn drop_incomplete(store: &Store, index: &RingIndex, segments: &[SegmentEntry]) {
    let in_doubt = in_doubt(store, segments);
    let is_in_doubt = |location| in_doubt.holds(location);
    let keep = |entry: &Entry| {
        entry.kind != Kind::Large as u8 || reader::has_fragments(store, *entry, is_in_doubt)
    };
    let dropped = index.sweep(is_in_doubt, keep);
    if dropped > 0 {
        let path = store.options.path.display();
        tracing::info!("{path}: {dropped} objects of which a part is not there");
    }
}

/// The records found in a segment.
pub(crate) struct Listing {
    pub(crate) entries: Vec<FooterEntry>,
    /// From its footer. A search may have missed records behind an unreadable part.
    pub(crate) is_complete: bool,
}

fn trailer(store: &Store, number: u32, generation: u64) -> io::Result<Option<(usize, u64)>> {
    let end = u64::from(number + 1) * store.geometry.segment_bytes;
    let last = read_data(store, end - IO_BYTES, IO_BYTES as usize)?;
    let trailer = last.get(IO_BYTES as usize - TRAILER_BYTES..).unwrap_or_default();
    let found = format::decode_trailer(store.store_id, generation, trailer);
    Ok(found.filter(|(count, _)| format::footer_bytes(*count) < store.geometry.segment_bytes))
}

/// The records of a segment: from its footer, or, if there is none, by a search.
pub(crate) fn entries(store: &Store, number: u32, generation: u64) -> io::Result<Listing> {
    if let Some((count, checksum)) = trailer(store, number, generation)? {
        let end = u64::from(number + 1) * store.geometry.segment_bytes;
        let bytes = format::footer_bytes(count);
        let footer = read_data(store, end - bytes, bytes as usize)?;
        let listed = footer.get(..count * ENTRY_BYTES).unwrap_or_default();
        if let Ok(entries) = format::decode_entries(listed, generation, checksum) {
            return Ok(Listing { entries, is_complete: true });
        }
    }
    Ok(Listing { entries: search(store, number, generation)?, is_complete: false })
}

/// Looks for records in a segment without a footer. Between two writes there can be a gap, of which
/// one end is a multiple of [`IO_BYTES`].
fn search(store: &Store, number: u32, generation: u64) -> io::Result<Vec<FooterEntry>> {
    let (start, bytes) =
        (u64::from(number) * store.geometry.segment_bytes, store.geometry.segment_bytes as usize);
    let segment = read_data(store, start, bytes)?;
    let first_unit = start / UNIT_BYTES;
    let mut found = Vec::new();
    let mut unit = 1;
    while let Some(rest) =
        segment.get((unit * UNIT_BYTES) as usize..).filter(|rest| !rest.is_empty())
    {
        match record_here(store, rest, generation, first_unit + unit) {
            Some((entry, units)) => {
                found.push(FooterEntry { unit: unit as u32, ..entry });
                unit += units;
            }
            None => unit = (unit + 1).next_multiple_of(IO_BYTES / UNIT_BYTES),
        }
    }
    Ok(found)
}

fn record_here(
    store: &Store,
    bytes: &[u8],
    generation: u64,
    location: u64,
) -> Option<(FooterEntry, u64)> {
    let (lengths, found_generation, found_location) = format::claimed(bytes)?;
    if found_generation != generation || found_location != location {
        return None;
    }
    let found = format::Surroundings::decode(bytes).ok()?;
    let entry = FooterEntry {
        hash: store.hash(&found.record.key).0,
        sequence: found.place.sequence,
        from: found.place.from,
        unit: 0,
        length_class: LengthClass::of_bytes(lengths.record_bytes as u64)?.to_bits(),
        kind: found.kind,
    };
    Some((entry, (lengths.record_bytes as u64).div_ceil(UNIT_BYTES)))
}
