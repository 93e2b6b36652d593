//! The log of removals: a removed key is on disk here before its removal is acknowledged, so that
//! no crash brings it back.
//!
//! There are two files. A checkpoint begins to write the other one: when it is complete, it
//! contains the operations of the first one. Each block names its checkpoint, which tells valid
//! blocks from older ones. Removals that arrive during a write share the next block.

use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_base::xxh3::xxh3_64_with_seed;
use humboldt_sys::append_buffer::AppendBuffer;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::doubts::Doubts;
use super::format::{u32_at, u64_at};
use crate::block::BlockFile;

/// Length of a block, which is one write.
const BLOCK_BYTES: usize = 4096;
const MAGIC: u32 = u32::from_le_bytes(*b"HUrp");
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Removals in one block; the first entry is the checkpoint's number.
const REMOVALS_PER_BLOCK: usize = (BLOCK_BYTES - HEADER_BYTES) / ENTRY_BYTES - 1;
/// Most removals that wait to be written; beyond it they are refused.
pub(crate) const WAITING_MAX: usize = 64 * 1024;
/// A file of this length asks for a checkpoint.
pub(crate) const FILE_BYTES_WANTED: u64 = 4 * 1024 * 1024;
/// This much of a file is kept when it is begun again; it stays allocated from then on, also when
/// the disk is full.
const FILE_BYTES_KEPT: u64 = 256 * 1024;
/// A file of this length takes no more.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One removal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Of a key, by its hash, as the operation with this number.
    Key { hash: u64, sequence: u64 },
    /// Of everything in the segment with this generation.
    Segment { generation: u64 },
}

/// In place of a number: the entry is about a segment.
const OF_SEGMENT: u64 = u64::MAX;
/// In place of a number: the entry is the number of the checkpoint before the block.
const OF_CHECKPOINT: u64 = u64::MAX - 1;

impl Removal {
    fn words(self) -> [u64; 2] {
        match self {
            Self::Key { hash, sequence } => [hash, sequence],
            Self::Segment { generation } => [generation, OF_SEGMENT],
        }
    }

    fn from_words(first: u64, second: u64) -> Self {
        match second {
            OF_SEGMENT => Self::Segment { generation: first },
            sequence => Self::Key { hash: first, sequence },
        }
    }
}

/// Why a removal is not on disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unlogged {
    /// Too many wait, or the file is full.
    Full,
    /// The device refused, for this reason.
    Failed(ErrorKind),
}

/// The contents of the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// Removals that a checkpoint may not know.
    pub(crate) removals: Vec<Removal>,
    /// The highest number of a checkpoint that is mentioned. When it was, the one before it had
    /// been completed.
    pub(crate) newest: u64,
}

/// The log of removals.
pub(crate) struct Purges {
    store_id: u64,
    files: [Arc<dyn BlockFile>; 2],
    state: Mutex<State>,
    /// A removal that is not logged is one.
    doubts: Arc<Doubts>,
    /// Told whenever a block has been written, or has failed.
    written: Notify,
}

struct State {
    active: usize,
    /// Of each file: where its next block goes, and in whose turn it was begun, if that is known.
    ends: [u64; 2],
    turns: [Option<u64>; 2],
    waiting: Vec<Removal>,
    is_writing: bool,
    /// Blocks begun and blocks ended: a removal waits for the block after those begun.
    begun: u64,
    ended: u64,
    /// The newest block that failed, and why.
    failed: u64,
    failure: ErrorKind,
    /// A block of this file has failed.
    is_broken: bool,
}

impl State {
    /// Whether `more` removals still fit into the file behind the waiting ones.
    fn has_room(&self, more: usize) -> bool {
        let blocks = (self.waiting.len() + more).div_ceil(REMOVALS_PER_BLOCK) as u64;
        self.ends[self.active] + blocks * BLOCK_BYTES as u64 <= FILE_BYTES_MAX
    }
}

impl Purges {
    /// Continues behind the present blocks, in the file of checkpoint `number`.
    pub(crate) fn new(
        store_id: u64,
        files: [Arc<dyn BlockFile>; 2],
        number: u64,
        doubts: Arc<Doubts>,
    ) -> io::Result<Self> {
        let (mut ends, mut turns) = ([0; 2], [None; 2]);
        for ((file, end), turn) in files.iter().zip(&mut ends).zip(&mut turns) {
            *end = file.len()?.next_multiple_of(BLOCK_BYTES as u64);
            // If that fails, it is read again before it matters.
            *turn = read_block(&**file, store_id, 0).ok().flatten().and_then(|block| block.turn);
        }
        let active = (number % 2) as usize;
        turns[active] = Some(number);
        let state = State {
            active,
            ends,
            turns,
            waiting: Vec::new(),
            is_writing: false,
            begun: 0,
            ended: 0,
            failed: 0,
            failure: ErrorKind::Other,
            is_broken: false,
        };
        Ok(Self { store_id, files, state: Mutex::new(state), doubts, written: Notify::new() })
    }

    /// The operations in both files that checkpoint `number` does not contain.
    pub(crate) fn read(&self, number: u64) -> io::Result<Logged> {
        let mut logged = Logged::default();
        for file in &self.files {
            for at in 0..file.len()? / BLOCK_BYTES as u64 {
                let Some(block) = read_block(&**file, self.store_id, at * BLOCK_BYTES as u64)?
                else {
                    continue;
                };
                logged.newest = logged.newest.max(block.turn.unwrap_or(0));
                if block.turn.is_none_or(|turn| turn >= number) {
                    logged.removals.extend(block.removals);
                }
            }
        }
        Ok(logged)
    }

    /// Begins the file of checkpoint `number`, after the one before it has been completed, which
    /// contains the operations of the file. Blocks of an attempt that was not completed are kept:
    /// they count until this one is.
    pub(crate) fn prepare(&self, number: u64) -> io::Result<()> {
        let at = (number % 2) as usize;
        let (active, turn, end) = {
            let state = self.state.lock();
            (state.active, state.turns[at], state.ends[at])
        };
        let turn = match turn {
            None if end > 0 => {
                read_block(&*self.files[at], self.store_id, 0)?.and_then(|block| block.turn)
            }
            known => known,
        };
        // With blocks of an older format, or none that verifies, it is unknown.
        let may_count = end > 0 && turn.is_none_or(|turn| turn == number);
        if active == at || may_count {
            return Ok(());
        }
        let file = &self.files[at];
        let mut first = [0; BLOCK_BYTES];
        encode(self.store_id, number, &[], &mut first);
        // Overwriting the old blocks costs less than making the file grow again.
        file.write_blocking(0, &first)?;
        file.sync_blocking()?;
        if end > FILE_BYTES_KEPT {
            file.set_len(BLOCK_BYTES as u64)?;
        }
        if file.len()? < FILE_BYTES_KEPT {
            // If there is no room now, there may be some when it is needed.
            let _ = file.allocate(0, FILE_BYTES_KEPT);
        }
        let mut state = self.state.lock();
        state.turns[at] = Some(number);
        state.ends[at] = BLOCK_BYTES as u64;
        Ok(())
    }

    /// Writes to the file of checkpoint `number` from now on.
    pub(crate) fn switch(&self, number: u64) {
        let at = (number % 2) as usize;
        let mut state = self.state.lock();
        state.active = at;
        state.turns[at] = Some(number);
        state.is_broken = false;
    }

    /// Whether a checkpoint should begin the other file: this one is long, or refused a block.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let state = self.state.lock();
        state.is_broken || state.ends[state.active] >= FILE_BYTES_WANTED
    }

    /// Waits until no block is on its way; `false` if that takes too long. Only if nothing is
    /// logged meanwhile.
    pub(crate) fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // A block is followed by the next one as long as removals wait.
            if !self.files.iter().all(|file| file.wait_idle(left)) {
                return false;
            }
            if !self.state.lock().is_writing {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Logs removals; when the future resolves, all are on disk. With an error, some may be.
    pub(crate) async fn log(self: &Arc<Self>, removals: &[Removal]) -> Result<(), Unlogged> {
        let blocks = self.turn().log(removals)?;
        self.ended(blocks).await
    }

    /// Waits for its turn to remove: a later removal finds this one among those that wait to be
    /// written.
    pub(crate) fn turn(self: &Arc<Self>) -> Turn<'_> {
        Turn { purges: self, state: self.state.lock() }
    }

    /// Waits until these blocks are on disk, or one of them is not.
    pub(crate) async fn ended(&self, blocks: RangeInclusive<u64>) -> Result<(), Unlogged> {
        if blocks.is_empty() {
            return Ok(());
        }
        loop {
            let written = self.written.notified();
            let mut written = std::pin::pin!(written);
            written.as_mut().enable();
            {
                let state = self.state.lock();
                if state.ended >= *blocks.end() {
                    // A later block that failed may hide that one of these did.
                    let is_doubtful = state.failed >= *blocks.start();
                    return if is_doubtful { Err(Unlogged::Failed(state.failure)) } else { Ok(()) };
                }
            }
            written.await;
        }
    }

    /// Blocks that were begun.
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> u64 {
        self.state.lock().begun
    }

    fn begin(&self, state: &mut State) -> Option<Block> {
        state.is_writing = !state.waiting.is_empty();
        if !state.is_writing {
            return None;
        }
        let count = state.waiting.len().min(REMOVALS_PER_BLOCK);
        let data = AppendBuffer::new(BLOCK_BYTES);
        if let Some(mut region) = data.reserve(BLOCK_BYTES) {
            let turn = state.turns[state.active].unwrap_or(0);
            encode(
                self.store_id,
                turn,
                state.waiting.get(..count).unwrap_or_default(),
                &mut region,
            );
            let _ = region.publish();
        }
        let _ = data.seal();
        state.waiting.drain(..count);
        state.begun += 1;
        let offset = state.ends[state.active];
        state.ends[state.active] += BLOCK_BYTES as u64;
        Some(Block {
            file: Arc::clone(&self.files[state.active]),
            offset,
            data,
            number: state.begun,
        })
    }

    /// Writes this block, and then those that follow. An operation that ends while it is being
    /// handed over, as when the queue refuses it, is continued here and not from within: hundreds
    /// of them would need a deep stack.
    fn write(self: &Arc<Self>, mut block: Block) {
        loop {
            let handing = Arc::new(Mutex::new(Handing::Over));
            self.write_one(block, &handing);
            match std::mem::replace(&mut *handing.lock(), Handing::Done) {
                Handing::Ended(Some(next)) => block = next,
                _ => return,
            }
        }
    }

    fn write_one(self: &Arc<Self>, block: Block, handing: &Arc<Mutex<Handing>>) {
        let (purges, handing) = (Arc::clone(self), Arc::clone(handing));
        let done = Box::new(move |outcome: std::io::Result<()>| {
            let next = {
                let mut state = purges.state.lock();
                state.ended = block.number;
                if let Err(error) = outcome {
                    (state.failed, state.failure) = (block.number, error.kind());
                    state.is_broken = true;
                    // The caller may have stopped waiting.
                    purges.doubts.count();
                }
                purges.begin(&mut state)
            };
            purges.written.notify_waiters();
            let mut handing = handing.lock();
            if matches!(*handing, Handing::Over) {
                *handing = Handing::Ended(next);
                return;
            }
            drop(handing);
            if let Some(next) = next {
                purges.write(next);
            }
        });
        block.file.write(block.offset, block.data, 0..BLOCK_BYTES, done);
    }
}

/// The log, for as long as no other task removes anything.
pub(crate) struct Turn<'a> {
    purges: &'a Arc<Purges>,
    state: MutexGuard<'a, State>,
}

impl Turn<'_> {
    /// Logs removals; returns the numbers of the blocks that will hold them. A removal that cannot
    /// be logged is a doubt.
    pub(crate) fn log(mut self, removals: &[Removal]) -> Result<RangeInclusive<u64>, Unlogged> {
        let state = &mut *self.state;
        if state.waiting.len() + removals.len() > WAITING_MAX || !state.has_room(removals.len()) {
            self.purges.doubts.count();
            return Err(Unlogged::Full);
        }
        let first = state.begun + 1 + (state.waiting.len() / REMOVALS_PER_BLOCK) as u64;
        state.waiting.extend_from_slice(removals);
        let last = state.begun + state.waiting.len().div_ceil(REMOVALS_PER_BLOCK) as u64;
        let write = (!state.is_writing).then(|| self.purges.begin(state)).flatten();
        let Self { purges, state } = self;
        drop(state);
        if let Some(write) = write {
            purges.write(write);
        }
        Ok(first..=last)
    }

    /// The blocks of the removals that wait to be written now.
    pub(crate) fn waiting(&self) -> RangeInclusive<u64> {
        let state = &self.state;
        state.ended + 1..=state.begun + state.waiting.len().div_ceil(REMOVALS_PER_BLOCK) as u64
    }
}

/// The progress of a block on its way to the device.
enum Handing {
    /// It is being handed over.
    Over,
    /// It ended meanwhile, and this one follows.
    Ended(Option<Block>),
    /// It was handed over; its end will start the next one.
    Done,
}

struct Block {
    file: Arc<dyn BlockFile>,
    offset: u64,
    data: Arc<AppendBuffer>,
    number: u64,
}

fn encode(store_id: u64, turn: u64, removals: &[Removal], out: &mut [u8]) {
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = out.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    let entries = 1 + removals.len();
    put(0, &MAGIC.to_le_bytes());
    put(4, &(entries as u32).to_le_bytes());
    let words = std::iter::once([turn, OF_CHECKPOINT])
        .chain(removals.iter().map(|removal| removal.words()));
    for (i, [first, second]) in words.enumerate() {
        put(HEADER_BYTES + i * ENTRY_BYTES, &first.to_le_bytes());
        put(HEADER_BYTES + i * ENTRY_BYTES + 8, &second.to_le_bytes());
    }
    let sum = checksum(store_id, entries, out);
    if let Some(place) = out.get_mut(8..16) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

fn checksum(store_id: u64, entries: usize, block: &[u8]) -> u64 {
    let bytes = block.get(HEADER_BYTES..HEADER_BYTES + entries * ENTRY_BYTES).unwrap_or_default();
    xxh3_64_with_seed(bytes, store_id ^ entries as u64)
}

/// A block that verifies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    /// Number of the checkpoint in whose turn it was written; blocks of older builds do not say.
    turn: Option<u64>,
    removals: Vec<Removal>,
}

fn read_block(file: &dyn BlockFile, store_id: u64, offset: u64) -> io::Result<Option<Decoded>> {
    let mut block = [0; BLOCK_BYTES];
    file.read_blocking(offset, &mut block)?;
    Ok(decode(store_id, &block))
}

/// `None` if it is no block, or torn.
fn decode(store_id: u64, block: &[u8; BLOCK_BYTES]) -> Option<Decoded> {
    let count = u32_at(block, 4) as usize;
    if u32_at(block, 0) != MAGIC
        || count > REMOVALS_PER_BLOCK + 1
        || u64_at(block, 8) != checksum(store_id, count, block)
    {
        return None;
    }
    let mut found = Decoded::default();
    for entry in
        block.get(HEADER_BYTES..HEADER_BYTES + count * ENTRY_BYTES)?.chunks_exact(ENTRY_BYTES)
    {
        match (u64_at(entry, 0), u64_at(entry, 8)) {
            (number, OF_CHECKPOINT) => found.turn = Some(number),
            (first, second) => found.removals.push(Removal::from_words(first, second)),
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests;
