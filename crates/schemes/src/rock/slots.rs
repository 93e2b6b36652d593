//! Taken slots, their chains, and free slots that still hold an object that must not be found
//! again.
//!
//! Slots are given out in ascending order, round and round, in one run where there is one: a
//! contiguous run is written and read at once. Memory: 4 bytes and a bit for each slot, and about
//! 12 bytes for each *stale* one.
//!
//! **Stale slots.** An evicted object lies on disk until its slots are used again, and a scan after
//! a crash would find it. That is welcome, unless its key has been purged, or stored again, in the
//! meantime. So the first slots of such objects are kept, by 32 bits of their keys, and a purge
//! overwrites them. One too few in the table would undo a purge: a slot stays in it until its new
//! content has been written.

use hashbrown::{HashSet, HashTable};
use humboldt_store::index::IndexKey;

use super::held::HeldChains;

/// The end of a chain.
pub(crate) const END: u32 = u32::MAX;

/// Link of a free slot in which the objects of several tags may begin: a write has failed.
const SEVERAL: u32 = u32::MAX;

/// Number of slots that are searched for a run of the wanted length before shorter ones are taken.
const RUN_SEARCH_SLOTS: u32 = 16 * 1024;

/// Slots `start..start + len`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// A key in the table of stale slots; never 0 nor [`SEVERAL`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u32);

impl From<IndexKey> for Tag {
    fn from(key: IndexKey) -> Self {
        let bytes = key.to_bytes();
        Self(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).clamp(1, SEVERAL - 1))
    }
}

impl Tag {
    /// The tag of these bits, if [`Tag::bits`] may have given them.
    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        (1..SEVERAL).contains(&bits).then_some(Self(bits))
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    fn hash(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Slots that were just taken, in order of the chain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) runs: Vec<Run>,
    /// Stale slots among them: to be cleared when they have been overwritten.
    pub(crate) covered: Vec<(Tag, u32)>,
}

/// The slots of a file.
pub(crate) struct Slots {
    /// A bit for each slot, set if it is free.
    free: Vec<u64>,
    /// Of a taken slot the next in its chain, of a free one its tag if it is stale, else 0.
    links: Vec<u32>,
    total: u32,
    used: u32,
    /// The start of the next search for free slots.
    cursor: u32,
    /// Slots from here on are not given out: the disk had no room for them.
    end: u32,
    /// The file has been written up to here: these slots have their place on the disk.
    written_end: u32,
    stale: HashTable<(Tag, u32)>,
    /// Taken slots among the stale ones whose object must not be found again either, though
    /// something is still being written to it: a younger one has come.
    overtaken: HashSet<u32>,
    /// Chains that are being read.
    pub(crate) held: HeldChains,
}

impl Slots {
    /// `total` slots, all taken.
    pub(crate) fn taken(total: u32) -> Self {
        Self {
            free: vec![0; total.div_ceil(64) as usize],
            links: vec![0; total as usize],
            total,
            used: total,
            cursor: 0,
            end: total,
            written_end: 0,
            stale: HashTable::new(),
            overtaken: HashSet::new(),
            held: HeldChains::default(),
        }
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Slots are given out below this one.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// From now on slots below `end` are given out, at most all.
    pub(crate) fn set_end(&mut self, end: u32) {
        self.end = end.min(self.total);
    }

    /// All slots that have been written lie below this one.
    pub(crate) fn written_end(&self) -> u32 {
        self.written_end
    }

    /// The file reaches to `end`.
    pub(crate) fn set_written(&mut self, end: u32) {
        self.written_end = self.written_end.max(end.min(self.total));
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.free.capacity() * 8 + self.links.capacity() * 4 + self.stale.allocation_size()
    }

    pub(crate) fn is_free(&self, slot: u32) -> bool {
        self.free.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Takes `wanted` slots and chains them; `None` if there are not enough.
    pub(crate) fn take(&mut self, wanted: u32) -> Option<Taken> {
        if wanted == 0 || self.total - self.used < wanted {
            return None;
        }
        let mut taken = Taken::default();
        if let Some(run) = self.find_run(wanted) {
            self.take_run(run, &mut taken);
        }
        let mut missing = wanted - taken.runs.iter().map(|run| run.len).sum::<u32>();
        while missing > 0 {
            // There are enough in all, but perhaps not below the end.
            let next = self.next_run(self.cursor, missing).or_else(|| self.next_run(0, missing));
            let Some(run) = next else {
                self.untake(&taken.runs);
                return None;
            };
            self.take_run(run, &mut taken);
            missing -= run.len;
        }
        self.chain(&taken.runs);
        Some(taken)
    }

    /// The next run of `wanted` free slots, if there is one nearby.
    fn find_run(&self, wanted: u32) -> Option<Run> {
        let (mut at, mut left) = (self.cursor, RUN_SEARCH_SLOTS.max(wanted));
        let mut may_wrap = true;
        while left > 0 {
            match self.next_run(at, wanted) {
                Some(run) if run.len == wanted => return Some(run),
                Some(run) => {
                    let passed = run.start + run.len - at;
                    left = left.saturating_sub(passed);
                    at += passed;
                }
                None if may_wrap => (at, may_wrap) = (0, false),
                None => return None,
            }
        }
        None
    }

    /// The first free slots at or behind `from`, at most `max` of them in a row.
    fn next_run(&self, from: u32, max: u32) -> Option<Run> {
        let mut at = from as usize / 64;
        let mut word = self.free.get(at)? & (!0 << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.free.get(at)?;
        }
        let start = at as u32 * 64 + word.trailing_zeros();
        if start >= self.end {
            return None;
        }
        let max = max.min(self.end - start);
        let mut len = 0;
        while len < max {
            let next = start + len;
            let Some(word) = self.free.get(next as usize / 64) else { break };
            let ones = (word >> (next % 64)).trailing_ones();
            len += ones;
            if ones < 64 - next % 64 {
                break;
            }
        }
        Some(Run { start, len: len.min(max) })
    }

    fn take_run(&mut self, run: Run, taken: &mut Taken) {
        for slot in run.start..run.start + run.len {
            self.set_taken(slot);
            let bits = self.link(slot);
            if bits != 0 {
                taken.covered.extend(self.tags_at(slot, bits).into_iter().map(|tag| (tag, slot)));
            }
        }
        self.cursor = if run.start + run.len < self.total { run.start + run.len } else { 0 };
        match taken.runs.last_mut() {
            Some(last) if last.start + last.len == run.start => last.len += run.len,
            _ => taken.runs.push(run),
        }
    }

    /// Slots that have just been taken, and not been chained, are free again.
    fn untake(&mut self, runs: &[Run]) {
        for slot in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            if let Some(word) = self.free.get_mut(slot as usize / 64) {
                *word |= 1 << (slot % 64);
                self.used -= 1;
            }
        }
    }

    /// Tags of the stale objects that begin in a free slot with this link.
    fn tags_at(&self, slot: u32, bits: u32) -> Vec<Tag> {
        match bits {
            SEVERAL => {
                self.stale.iter().filter(|(_, at)| *at == slot).map(|(tag, _)| *tag).collect()
            }
            bits => Tag::from_bits(bits).into_iter().collect(),
        }
    }

    fn set_taken(&mut self, slot: u32) {
        if let Some(word) = self.free.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
            self.used += 1;
        }
    }

    /// Takes exactly this slot, if it is free; returns the tags of stale objects in it.
    pub(crate) fn take_exactly(&mut self, slot: u32) -> Option<Vec<Tag>> {
        if !self.is_free(slot) {
            return None;
        }
        self.set_taken(slot);
        Some(self.tags_at(slot, self.link(slot)))
    }

    /// Links slots, all of them taken, into one chain.
    pub(crate) fn chain(&mut self, runs: &[Run]) {
        let mut slots = runs.iter().flat_map(|run| run.start..run.start + run.len).peekable();
        while let Some(slot) = slots.next() {
            let next = slots.peek().copied().unwrap_or(END);
            self.set_link(slot, next);
        }
    }

    /// The link of a taken slot.
    pub(crate) fn link(&self, slot: u32) -> u32 {
        self.links.get(slot as usize).copied().unwrap_or(END)
    }

    pub(crate) fn set_link(&mut self, slot: u32, link: u32) {
        if let Some(place) = self.links.get_mut(slot as usize) {
            *place = link;
        }
    }

    /// The chain of `len` slots that begins at `first`; shorter if it ends before.
    pub(crate) fn runs(&self, first: u32, len: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut slot = first;
        for _ in 0..len {
            if slot >= self.total {
                break;
            }
            match runs.last_mut() {
                Some(last) if last.start + last.len == slot => last.len += 1,
                _ => runs.push(Run { start: slot, len: 1 }),
            }
            slot = self.link(slot);
        }
        runs
    }

    /// Gives slots back that were taken; they are not stale unless they are in the table already.
    pub(crate) fn give_back(&mut self, runs: &[Run]) {
        for slot in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            self.give_back_one(slot, 0);
        }
    }

    /// Gives back the slots of a chain that no look-up finds any more, as soon as no reader uses
    /// it.
    pub(crate) fn give_back_chain(&mut self, runs: &[Run]) {
        let unread = self.held.keep(runs, self.total);
        self.give_back(&unread);
    }

    fn give_back_one(&mut self, slot: u32, bits: u32) {
        if slot >= self.total || self.is_free(slot) {
            return;
        }
        if let Some(word) = self.free.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
            self.used -= 1;
        }
        self.set_link(slot, bits);
    }

    /// Gives back a slot in which an object of this tag begins that must not be forgotten.
    pub(crate) fn give_back_stale(&mut self, slot: u32, tag: Tag) {
        self.add_stale(tag, slot);
        let is_other = self.is_free(slot) && ![0, tag.0].contains(&self.link(slot));
        self.give_back_one(slot, tag.0);
        if is_other {
            self.set_link(slot, SEVERAL);
        } else if self.is_free(slot) {
            self.set_link(slot, tag.0);
        }
    }

    /// Remembers that an object of this tag begins in a slot, or may do so soon.
    pub(crate) fn add_stale(&mut self, tag: Tag, slot: u32) {
        if self.stale.find(tag.hash(), |entry| *entry == (tag, slot)).is_none() {
            self.stale.insert_unique(tag.hash(), (tag, slot), |(tag, _)| tag.hash());
        }
    }

    /// The object that began in a slot has been overwritten, or is in the index again.
    pub(crate) fn forget_stale(&mut self, tag: Tag, slot: u32) {
        if let Ok(found) = self.stale.find_entry(tag.hash(), |entry| *entry == (tag, slot)) {
            found.remove();
            self.overtaken.remove(&slot);
        }
    }

    /// An object of this tag has been stored at `newest`: what is being written elsewhere is older.
    pub(crate) fn overtake(&mut self, tag: Tag, newest: u32) {
        for slot in self.stale_of(tag) {
            if slot != newest && !self.is_free(slot) {
                self.overtaken.insert(slot);
            }
        }
    }

    /// Whether a younger object than the one in this slot has come.
    pub(crate) fn is_overtaken(&self, slot: u32) -> bool {
        self.overtaken.contains(&slot)
    }

    /// Slots in which stale objects of this tag begin.
    pub(crate) fn stale_of(&self, tag: Tag) -> Vec<u32> {
        self.stale
            .iter_hash(tag.hash())
            .filter(|(other, _)| *other == tag)
            .map(|(_, slot)| *slot)
            .collect()
    }

    /// All stale slots.
    pub(crate) fn all_stale(&self) -> impl Iterator<Item = (Tag, u32)> {
        self.stale.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(bits: u32) -> Tag {
        Tag::from_bits(bits).expect("not 0")
    }

    fn run(start: u32, len: u32) -> Run {
        Run { start, len }
    }

    fn free(total: u32) -> Slots {
        let mut slots = Slots::taken(total);
        slots.give_back(&[run(0, total)]);
        slots
    }

    #[test]
    fn slots_are_given_out_in_runs_and_rest_before_they_return() {
        let mut slots = free(200);
        assert_eq!(slots.take(3).expect("room").runs, [run(0, 3)]);
        assert_eq!(slots.take(70).expect("room").runs, [run(3, 70)]);
        slots.give_back(&[run(1, 2), run(10, 40)]);
        assert_eq!(slots.take(1).expect("room").runs, [run(73, 1)], "not the one given back last");
        assert_eq!(slots.take(100).expect("room").runs, [run(74, 100)]);
        assert_eq!(
            slots.take(40).expect("room").runs,
            [run(10, 40)],
            "a run, though there are nearer slots"
        );
        assert_eq!(
            slots.take(28).expect("room").runs,
            [run(174, 26), run(1, 2)],
            "pieces when there is none"
        );
        assert_eq!((slots.used(), slots.take(1)), (200, None));
        assert_eq!(slots.runs(174, 28), [run(174, 26), run(1, 2)]);
        assert_eq!(slots.runs(3, 70), [run(3, 47)], "slots used again lead elsewhere, and not far");
    }

    #[test]
    fn slots_that_the_disk_has_no_room_for_are_not_given_out() {
        let mut slots = free(200);
        slots.take(60).expect("room");
        slots.set_written(60);
        slots.set_end(slots.written_end());
        slots.give_back_stale(10, tag(7));
        slots.give_back(&[run(20, 3)]);
        assert_eq!(slots.take(5), None, "four are free below 60, and 140 behind");
        assert_eq!((slots.used(), slots.stale_of(tag(7))), (56, vec![10]), "as before");
        let taken = slots.take(4).expect("room");
        assert_eq!(taken.runs, [run(10, 1), run(20, 3)]);
        assert_eq!(taken.covered, [(tag(7), 10)]);
        assert_eq!(slots.take(1), None);
        slots.set_end(62);
        assert_eq!(slots.take(2).expect("room").runs, [run(60, 2)]);
        slots.set_end(1000);
        assert_eq!((slots.end(), slots.take(138).expect("room").runs), (200, vec![run(62, 138)]));
    }

    #[test]
    fn a_chain_is_walked_no_further_than_asked() {
        let mut slots = free(10);
        slots.take(10).expect("room");
        slots.set_link(3, 2);
        assert_eq!(slots.runs(2, 5), [run(2, 2), run(2, 2), run(2, 1)]);
        slots.set_link(3, END);
        assert_eq!(slots.runs(2, 5), [run(2, 2)]);
        assert_eq!(slots.runs(77, 5), []);
    }

    #[test]
    fn stale_slots_are_known_until_they_have_been_overwritten() {
        let mut slots = free(4);
        let first = slots.take(2).expect("room");
        assert_eq!(first.covered, []);
        slots.give_back_stale(0, tag(7));
        slots.give_back(&first.runs);
        assert_eq!((slots.used(), slots.stale_of(tag(7))), (0, vec![0]));
        let second = slots.take(4).expect("room");
        assert_eq!(second.covered, [(tag(7), 0)], "found when it is used again");
        assert_eq!(slots.stale_of(tag(7)), [0], "and known while it is being written");
        slots.give_back(&second.runs);
        assert_eq!(slots.stale_of(tag(7)), [0]);
        slots.add_stale(tag(7), 0);
        slots.forget_stale(tag(7), 0);
        assert!(slots.stale_of(tag(7)).is_empty() && slots.all_stale().next().is_none());
    }

    #[test]
    fn a_slot_may_hold_what_is_left_of_two_objects() {
        let mut slots = free(2);
        slots.give_back_stale(1, tag(5));
        slots.give_back_stale(1, tag(6));
        slots.give_back_stale(1, tag(6));
        let tags = slots.take_exactly(1).expect("it is free");
        assert_eq!((tags.len(), tags.contains(&tag(5)), tags.contains(&tag(6))), (2, true, true));
        assert_eq!(slots.take_exactly(1), None);
        slots.give_back_stale(1, tag(5));
        slots.give_back_stale(1, tag(6));
        assert_eq!(slots.take(2).expect("room").covered.len(), 2);
    }

    #[test]
    fn books_are_right_after_any_sequence() {
        let mut slots = free(500);
        let mut held: Vec<Vec<Run>> = Vec::new();
        let mut owner = [usize::MAX; 500];
        let mut state = 5_u64;
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let wanted = (state >> 40) as u32 % 40 + 1;
            if (state >> 33) & 1 == 0 {
                let room = slots.total() - slots.used();
                let Some(taken) = slots.take(wanted) else {
                    assert!(room < wanted);
                    continue;
                };
                let mut count = 0;
                for slot in taken.runs.iter().flat_map(|run| run.start..run.start + run.len) {
                    assert_eq!(owner[slot as usize], usize::MAX, "taken once");
                    owner[slot as usize] = step;
                    count += 1;
                }
                assert_eq!(
                    (count, slots.runs(taken.runs[0].start, wanted)),
                    (wanted, taken.runs.clone())
                );
                held.push(taken.runs);
            } else if !held.is_empty() {
                let runs = held.swap_remove((state >> 45) as usize % held.len());
                runs.iter().flat_map(|run| run.start..run.start + run.len).for_each(|s| {
                    owner[s as usize] = usize::MAX;
                });
                slots.give_back(&runs);
                slots.give_back(&runs);
            }
            assert_eq!(slots.used() as usize, owner.iter().filter(|o| **o != usize::MAX).count());
        }
    }
}
