//! The purge log: which removals a scan of the stripes must respect. See `docs/formats/coss.md`.

use std::collections::VecDeque;

use super::format::{BLOCK_BYTES, PURGE_BYTES, Purge};

/// Why a removal does not last: the log is full of others that still matter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

type Block = Box<[u8; BLOCK_BYTES]>;

/// The log in memory: the block being filled, blocks to be written, and the subjects of the others.
pub(super) struct Purges {
    id: u64,
    /// Largest sequence number in each block, 0 for an empty one.
    newest_of_block: Vec<u64>,
    /// The block being filled, and how much of it is.
    head: usize,
    block: Block,
    block_bytes: usize,
    /// Full blocks that are not written yet.
    to_write: VecDeque<(usize, Block)>,
    is_head_dirty: bool,
    /// Writing failed: it is tried again when it is asked for.
    is_stuck: bool,
    /// Removals so far, those of them that are written, and those whose writing failed.
    added: u64,
    written: u64,
    failed: u64,
}

/// Blocks to be written, and the ticket of the last removal in them.
pub(super) struct Batch {
    pub(super) blocks: Vec<(usize, Block)>,
    ticket: u64,
}

/// The state of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Waiting,
    Written,
    Failed,
}

impl Purges {
    /// The log in `area`, and all its removals.
    pub(super) fn load(area: &[u8], id: u64) -> (Self, Vec<Purge>) {
        let mut found = Vec::new();
        let mut newest_of_block = Vec::with_capacity(area.len() / BLOCK_BYTES);
        for block in area.chunks_exact(BLOCK_BYTES) {
            let (records, _) = block.as_chunks::<PURGE_BYTES>();
            let before = found.len();
            found.extend(records.iter().filter_map(|record| Purge::decode(record, id)));
            newest_of_block.push(found[before..].iter().map(|purge| purge.seq).max().unwrap_or(0));
        }
        let newest = newest_of_block.iter().enumerate().max_by_key(|(_, seq)| **seq);
        let head = newest.map_or(0, |(at, _)| at);
        let mut block = Box::new([0; BLOCK_BYTES]);
        let on_disk = area.chunks_exact(BLOCK_BYTES).nth(head).unwrap_or_default();
        block.iter_mut().zip(on_disk).for_each(|(to, from)| *to = *from);
        let used = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let log = Self {
            id,
            head,
            newest_of_block,
            block,
            block_bytes: used.next_multiple_of(PURGE_BYTES),
            to_write: VecDeque::new(),
            is_head_dirty: false,
            is_stuck: false,
            added: 0,
            written: 0,
            failed: 0,
        };
        (log, found)
    }

    /// Adds a removal; returns its ticket. `oldest` is the smallest sequence number of all stripes
    /// on disk.
    pub(super) fn add(&mut self, purge: Purge, oldest: impl FnOnce() -> u64) -> Result<u64, Full> {
        if self.block_bytes == BLOCK_BYTES {
            self.next_block(oldest())?;
        }
        self.block[self.block_bytes..self.block_bytes + PURGE_BYTES]
            .copy_from_slice(&purge.encode(self.id));
        self.block_bytes += PURGE_BYTES;
        self.is_head_dirty = true;
        self.is_stuck = false;
        if let Some(newest) = self.newest_of_block.get_mut(self.head) {
            *newest = purge.seq.max(*newest);
        }
        self.added += 1;
        Ok(self.added)
    }

    fn next_block(&mut self, oldest: u64) -> Result<(), Full> {
        let blocks = self.newest_of_block.len();
        let is_free = |at: &usize| {
            self.newest_of_block.get(*at).is_some_and(|seq| *seq < oldest || *seq == 0)
        };
        let free = (1..=blocks).map(|i| (self.head + i) % blocks).find(is_free).ok_or(Full)?;
        if self.is_head_dirty {
            let full = std::mem::replace(&mut self.block, Box::new([0; BLOCK_BYTES]));
            self.to_write.push_back((self.head, full));
            self.is_head_dirty = false;
        }
        self.head = free;
        self.block.fill(0);
        self.block_bytes = 0;
        self.newest_of_block[free] = 0;
        Ok(())
    }

    /// Ticket of the last removal.
    pub(super) fn last_ticket(&self) -> u64 {
        self.added
    }

    pub(super) fn fate(&self, ticket: u64) -> Fate {
        match () {
            () if self.written >= ticket => Fate::Written,
            () if self.failed >= ticket => Fate::Failed,
            () => Fate::Waiting,
        }
    }

    /// The next blocks to be written, if any.
    pub(super) fn take_batch(&mut self) -> Option<Batch> {
        let mut blocks: Vec<_> = self.to_write.drain(..).collect();
        if self.is_head_dirty {
            blocks.push((self.head, self.block.clone()));
            self.is_head_dirty = false;
        }
        (!blocks.is_empty()).then_some(Batch { blocks, ticket: self.added })
    }

    /// Whether there is anything to write.
    pub(super) fn is_dirty(&self) -> bool {
        !self.is_stuck && (self.is_head_dirty || !self.to_write.is_empty())
    }

    /// Tries failed writes again.
    pub(super) fn retry(&mut self) {
        self.is_stuck = false;
    }

    /// The batch is on disk, or is not: then it waits for the next removal, or for
    /// [`Purges::retry`].
    pub(super) fn finish_batch(&mut self, batch: Batch, is_written: bool) {
        if is_written {
            self.written = self.written.max(batch.ticket);
            return;
        }
        self.failed = self.failed.max(batch.ticket);
        self.is_stuck = true;
        for (at, block) in batch.blocks.into_iter().rev() {
            match at == self.head {
                true => self.is_head_dirty = true,
                false => self.to_write.push_front((at, block)),
            }
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> usize {
        self.newest_of_block.capacity() * size_of::<u64>() + (1 + self.to_write.len()) * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_store::Key;
    use humboldt_store::index::IndexKey;

    const BLOCKS: usize = 3;
    const PER_BLOCK: u64 = (BLOCK_BYTES / PURGE_BYTES) as u64;

    fn purge(seq: u64) -> Purge {
        Purge { key: IndexKey::from(&Key::primary(&seq.to_le_bytes())), offset_units: 1, seq }
    }

    fn write(log: &mut Purges, area: &mut [u8]) {
        let batch = log.take_batch().expect("something to write");
        for (at, block) in &batch.blocks {
            area[at * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&**block);
        }
        log.finish_batch(batch, true);
    }

    #[test]
    fn what_is_written_is_found_again_and_gone_on_with() {
        let mut area = vec![0; BLOCKS * BLOCK_BYTES];
        for seq in 1..=2 * PER_BLOCK + 7 {
            let (mut log, found) = Purges::load(&area, 9);
            assert_eq!(found.len() as u64, seq - 1, "restarts take no room");
            let ticket = log.add(purge(seq), || 0).expect("there is room");
            assert_eq!(log.fate(ticket), Fate::Waiting);
            write(&mut log, &mut area);
            assert_eq!((log.fate(ticket), log.is_dirty()), (Fate::Written, false));
        }
        let (_, mut found) = Purges::load(&area, 9);
        found.sort_by_key(|purge| purge.seq);
        assert!(found.iter().copied().eq((1..=2 * PER_BLOCK + 7).map(purge)));
        assert!(Purges::load(&area, 8).1.is_empty(), "of another store");
    }

    #[test]
    fn room_is_used_again_only_when_nothing_can_need_it() {
        let mut area = vec![0; BLOCKS * BLOCK_BYTES];
        let (mut log, _) = Purges::load(&area, 9);
        let all = BLOCKS as u64 * PER_BLOCK;
        (1..=all).for_each(|seq| assert!(log.add(purge(seq), || 1).is_ok()));
        assert_eq!(log.add(purge(all + 1), || 1), Err(Full));
        assert_eq!(
            log.add(purge(all + 1), || PER_BLOCK),
            Err(Full),
            "one of the block still matters"
        );
        log.add(purge(all + 1), || PER_BLOCK + 1).expect("the first block is free");
        write(&mut log, &mut area);
        let (_, found) = Purges::load(&area, 9);
        assert_eq!(found.len() as u64, 2 * PER_BLOCK + 1);
        assert!(found.iter().all(|purge| purge.seq > PER_BLOCK));
    }

    #[test]
    fn a_failed_write_is_told_and_tried_again_when_asked() {
        let mut area = vec![0; BLOCKS * BLOCK_BYTES];
        let (mut log, _) = Purges::load(&area, 9);
        (1..=PER_BLOCK + 1).for_each(|seq| assert!(log.add(purge(seq), || 1).is_ok()));
        let batch = log.take_batch().expect("something to write");
        log.finish_batch(batch, false);
        assert_eq!((log.fate(1), log.is_dirty()), (Fate::Failed, false));
        log.retry();
        write(&mut log, &mut area);
        assert_eq!(log.fate(PER_BLOCK + 1), Fate::Written);
        assert_eq!(Purges::load(&area, 9).1.len() as u64, PER_BLOCK + 1);
    }
}
