//! The log of removals: a removed key is on disk here before its removal is acknowledged, so that no crash brings it back.
//!
//! There are two files. A checkpoint begins to write the other one: when it is done, what the first one says is in the
//! checkpoint. Removals that come while a block is being written go into the next block together.

use std::ops::RangeInclusive;
use std::sync::Arc;

use humboldt_base::xxh3::xxh3_64_with_seed;
use humboldt_sys::append_buffer::AppendBuffer;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::format::{u32_at, u64_at};
use crate::block::BlockFile;

/// Length of a block: what one write writes.
const BLOCK_BYTES: usize = 4096;
const MAGIC: u32 = u32::from_le_bytes(*b"HUrp");
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Removals in one block.
const ENTRIES_PER_BLOCK: usize = (BLOCK_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Most removals that wait to be written; beyond it they are refused.
pub(crate) const WAITING_MAX: usize = 64 * 1024;
/// A file of this length asks for a checkpoint.
pub(crate) const FILE_BYTES_WANTED: u64 = 4 * 1024 * 1024;
/// A file of at most this length is written over, not emptied.
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
    /// The device refused.
    Failed,
}

/// The log of removals.
pub(crate) struct Purges {
    store_id: u64,
    files: [Arc<dyn BlockFile>; 2],
    state: Mutex<State>,
    /// Told whenever a block has been written, or has failed.
    written: Notify,
}

struct State {
    active: usize,
    offset: u64,
    waiting: Vec<Removal>,
    is_writing: bool,
    /// Blocks begun and blocks ended: a removal waits for the block after those begun.
    begun: u64,
    ended: u64,
    /// The newest block that failed.
    failed: u64,
}

impl Purges {
    /// Goes on in file `active` behind what is there.
    pub(crate) fn new(store_id: u64, files: [Arc<dyn BlockFile>; 2], active: usize) -> std::io::Result<Self> {
        let active = active % 2;
        let offset = files.get(active).map_or(Ok(0), |file| file.len())?.next_multiple_of(BLOCK_BYTES as u64);
        let state =
            State { active, offset, waiting: Vec::new(), is_writing: false, begun: 0, ended: 0, failed: 0 };
        Ok(Self { store_id, files, state: Mutex::new(state), written: Notify::new() })
    }

    /// All removals in both files.
    pub(crate) fn read(&self) -> std::io::Result<Vec<Removal>> {
        let mut found = Vec::new();
        for file in &self.files {
            let mut block = [0; BLOCK_BYTES];
            for at in 0..file.len()?.min(FILE_BYTES_MAX) / BLOCK_BYTES as u64 {
                file.read_blocking(at * BLOCK_BYTES as u64, &mut block)?;
                decode(self.store_id, &block, &mut found);
            }
        }
        Ok(found)
    }

    /// Begins to write the file of checkpoint `number`: what it said is in an older checkpoint.
    pub(crate) fn prepare(&self, number: u64) -> std::io::Result<()> {
        let file = (number % 2) as usize;
        if self.state.lock().active != file
            && let Some(file) = self.files.get(file)
        {
            // What is left there is older than both checkpoints, and says nothing any more. To write over it costs less than to
            // make the file grow anew.
            if file.len()? > FILE_BYTES_KEPT {
                file.set_len(0)?;
            }
        }
        Ok(())
    }

    /// Writes to the file of checkpoint `number` from now on.
    pub(crate) fn switch(&self, number: u64) {
        let file = (number % 2) as usize;
        let mut state = self.state.lock();
        if state.active != file {
            state.active = file;
            state.offset = 0;
        }
    }

    /// Whether a checkpoint should make the log short again.
    pub(crate) fn is_long(&self) -> bool {
        self.state.lock().offset >= FILE_BYTES_WANTED
    }

    /// Logs removals; when the future resolves, all are on disk. With an error, some may be.
    pub(crate) async fn log(self: &Arc<Self>, removals: &[Removal]) -> Result<(), Unlogged> {
        let blocks = self.enqueue(removals)?;
        loop {
            let written = self.written.notified();
            let mut written = std::pin::pin!(written);
            written.as_mut().enable();
            {
                let state = self.state.lock();
                if state.ended >= *blocks.end() {
                    // A later block that failed may hide that one of these did.
                    let is_doubtful = state.failed >= *blocks.start();
                    return if is_doubtful { Err(Unlogged::Failed) } else { Ok(()) };
                }
            }
            written.await;
        }
    }

    /// The numbers of the blocks that will hold the removals.
    fn enqueue(self: &Arc<Self>, removals: &[Removal]) -> Result<RangeInclusive<u64>, Unlogged> {
        let mut state = self.state.lock();
        if state.waiting.len() + removals.len() > WAITING_MAX || state.offset >= FILE_BYTES_MAX {
            return Err(Unlogged::Full);
        }
        let first = state.begun + 1 + (state.waiting.len() / ENTRIES_PER_BLOCK) as u64;
        state.waiting.extend_from_slice(removals);
        let last = state.begun + state.waiting.len().div_ceil(ENTRIES_PER_BLOCK) as u64;
        let write = (!state.is_writing).then(|| self.begin(&mut state)).flatten();
        drop(state);
        if let Some(write) = write {
            self.write(write);
        }
        Ok(first..=last)
    }

    fn begin(&self, state: &mut State) -> Option<Block> {
        state.is_writing = !state.waiting.is_empty();
        if !state.is_writing {
            return None;
        }
        let count = state.waiting.len().min(ENTRIES_PER_BLOCK);
        let data = AppendBuffer::new(BLOCK_BYTES);
        if let Some(mut region) = data.reserve(BLOCK_BYTES) {
            encode(self.store_id, state.waiting.get(..count).unwrap_or_default(), &mut region);
            let _ = region.publish();
        }
        let _ = data.seal();
        state.waiting.drain(..count);
        state.begun += 1;
        let offset = state.offset;
        state.offset += BLOCK_BYTES as u64;
        Some(Block { file: Arc::clone(self.files.get(state.active)?), offset, data, number: state.begun })
    }

    fn write(self: &Arc<Self>, block: Block) {
        let purges = Arc::clone(self);
        let done = Box::new(move |outcome: std::io::Result<()>| {
            let next = {
                let mut state = purges.state.lock();
                state.ended = block.number;
                if outcome.is_err() {
                    state.failed = block.number;
                }
                purges.begin(&mut state)
            };
            purges.written.notify_waiters();
            if let Some(next) = next {
                purges.write(next);
            }
        });
        block.file.write(block.offset, block.data, 0..BLOCK_BYTES, done);
    }
}

struct Block {
    file: Arc<dyn BlockFile>,
    offset: u64,
    data: Arc<AppendBuffer>,
    number: u64,
}

fn encode(store_id: u64, removals: &[Removal], out: &mut [u8]) {
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = out.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, &MAGIC.to_le_bytes());
    put(4, &(removals.len() as u32).to_le_bytes());
    for (i, removal) in removals.iter().enumerate() {
        let [first, second] = removal.words();
        put(HEADER_BYTES + i * ENTRY_BYTES, &first.to_le_bytes());
        put(HEADER_BYTES + i * ENTRY_BYTES + 8, &second.to_le_bytes());
    }
    let sum = checksum(store_id, removals.len(), out);
    if let Some(place) = out.get_mut(8..16) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

fn checksum(store_id: u64, count: usize, block: &[u8]) -> u64 {
    let entries = block.get(HEADER_BYTES..HEADER_BYTES + count * ENTRY_BYTES).unwrap_or_default();
    xxh3_64_with_seed(entries, store_id ^ count as u64)
}

/// Appends the removals of a block; nothing if it is not one, or torn.
fn decode(store_id: u64, block: &[u8; BLOCK_BYTES], out: &mut Vec<Removal>) {
    let count = u32_at(block, 4) as usize;
    if u32_at(block, 0) != MAGIC
        || count > ENTRIES_PER_BLOCK
        || u64_at(block, 8) != checksum(store_id, count, block)
    {
        return;
    }
    let entries = block.get(HEADER_BYTES..HEADER_BYTES + count * ENTRY_BYTES).unwrap_or_default();
    out.extend(
        entries
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| Removal::from_words(u64_at(entry, 0), u64_at(entry, 8))),
    );
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io;
    use std::ops::Range;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use humboldt_sys::aligned::Buffer;

    use super::*;
    use crate::block::{ReadFuture, WriteDone, WriteFuture};

    /// A file whose writes end when the test says so.
    #[derive(Default)]
    struct Held(Mutex<Vec<WriteDone>>);

    impl Held {
        fn end(&self, outcome: io::Result<()>) {
            let done = self.0.lock().pop().expect("a write under way");
            done(outcome);
        }
    }

    impl BlockFile for Held {
        fn read(&self, _: u64, buffer: Buffer) -> ReadFuture {
            Box::pin(std::future::ready((buffer, Ok(0))))
        }
        fn read_now(&self, _: u64, _: &mut [u8]) -> Option<io::Result<usize>> {
            None
        }
        fn write(&self, _: u64, _: Arc<AppendBuffer>, _: Range<usize>, done: WriteDone) {
            self.0.lock().push(done);
        }
        fn write_owned(&self, _: u64, data: Buffer) -> WriteFuture {
            Box::pin(std::future::ready((data, Ok(()))))
        }
        fn read_blocking(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
        fn write_blocking(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn sync_blocking(&self) -> io::Result<()> {
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn alignment_bytes(&self) -> usize {
            1
        }
        fn in_flight(&self) -> usize {
            self.0.lock().len()
        }
        fn wait_idle(&self, _: Duration) -> bool {
            true
        }
    }

    #[test]
    fn a_removal_lasts_only_if_all_its_blocks_do_whatever_became_of_later_ones() {
        let file = Arc::new(Held::default());
        let purges =
            Arc::new(Purges::new(1, [Arc::clone(&file) as _, Arc::clone(&file) as _], 0).expect("a log"));
        let many: Vec<_> =
            (0..ENTRIES_PER_BLOCK as u64 + 1).map(|hash| Removal::Key { hash, sequence: 1 }).collect();
        let mut context = Context::from_waker(Waker::noop());
        for (outcomes, wanted) in [
            ([true, true, true], [Ok(()), Ok(())]),
            ([false, true, true], [Err(Unlogged::Failed), Ok(())]),
            // Whether the first lasts cannot be told any more when it asks so late.
            ([true, false, true], [Err(Unlogged::Failed); 2]),
            ([false, true, false], [Err(Unlogged::Failed); 2]),
        ] {
            let (mut one, mut two) = (pin!(purges.log(&many[..1])), pin!(purges.log(&many)));
            assert!(
                one.as_mut().poll(&mut context).is_pending() && two.as_mut().poll(&mut context).is_pending()
            );
            // The first alone, and the others in two blocks behind it.
            for (block, is_fine) in outcomes.into_iter().enumerate() {
                file.end(if is_fine { Ok(()) } else { Err(io::ErrorKind::Other.into()) });
                assert!(block == 2 || two.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(one.as_mut().poll(&mut context), Poll::Ready(wanted[0]));
            assert_eq!(two.as_mut().poll(&mut context), Poll::Ready(wanted[1]));
        }
    }

    #[test]
    fn a_block_counts_whole_or_not_at_all() {
        let mut removals: Vec<Removal> =
            (1..ENTRIES_PER_BLOCK as u64).map(|i| Removal::Key { hash: i * 7, sequence: i }).collect();
        removals.push(Removal::Segment { generation: 5 });
        let mut block = [0; BLOCK_BYTES];
        encode(9, &removals, &mut block);
        let read = |store_id, block: &[u8; BLOCK_BYTES]| {
            let mut found = Vec::new();
            decode(store_id, block, &mut found);
            found
        };
        assert_eq!(read(9, &block), removals);
        assert_eq!(read(8, &block), [], "of another store");
        for at in (0..BLOCK_BYTES).step_by(37) {
            let mut torn = block;
            torn[at..].fill(0);
            assert_eq!(read(9, &torn), [], "{at}");
        }
        assert_eq!(read(9, &[0; BLOCK_BYTES]), []);
    }
}
