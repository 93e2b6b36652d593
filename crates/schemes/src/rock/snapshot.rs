//! Written by a clean stop: the index, the chains and the stale slots, so that the next start needs
//! no scan.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;

use humboldt_base::xxh3::xxh3_64_with_seed;
use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::scheme::SchemeError;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::dir::Dir;
use super::files::{FILE_MODE, SNAPSHOT_FILE, SNAPSHOT_FILE_NEW};
use super::format::{array, u32_at, u64_at};
use super::slots::{Run, Tag};
use crate::simulated::plain;

const MAGIC: &[u8; 8] = b"HUMrockX";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const BLOCK_HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;
const RUN_BYTES: usize = 8;
/// A block is written when it has this many bytes.
const BLOCK_BYTES: usize = 64 * 1024;
/// Longest block that is read: one with the longest chain.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Flag of an entry that is no object but a stale slot.
const FLAG_STALE: u8 = 0x80;
/// Most runs of one chain.
const RUNS_MAX: usize = (1 << 24) - 1;

/// The facts about one slot in a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// An object and its chain; one run that begins at its first slot if there are no others.
    Object(IndexKey, FileEntry, Vec<Run>),
    /// A stale slot.
    Stale(Tag, u32),
}

impl Dir {
    /// Leaves the mark of a clean stop. Nothing must be under way.
    pub(crate) fn write_snapshot(&self) -> Result<(), SchemeError> {
        self.device.judge("sync", self.device.file.sync_blocking())?;
        let number = self.device.judge("write the index of", write(self))?;
        self.write_header(|header| header.snapshot = number)
    }
}

/// A snapshot being read.
pub(crate) struct Snapshot {
    file: BufReader<File>,
    seed: u64,
    block: u64,
    /// Items that it has.
    pub(crate) items: u64,
    read: u64,
}

fn seed(store_id: u64, number: u64) -> u64 {
    store_id ^ number.rotate_left(32)
}

fn header(store_id: u64, number: u64, items: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    for (at, word) in [(16, store_id), (24, number), (32, items)] {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = xxh3_64_with_seed(&bytes[..56], seed(store_id, number));
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

impl Snapshot {
    /// Opens snapshot `number` of this store; `None` if it is not there.
    pub(crate) fn open(dir: &Dir, number: u64) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir.root, SNAPSHOT_FILE, flags, Mode::empty()).ok()?;
        let mut file = BufReader::with_capacity(1 << 20, File::from(file));
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact(&mut bytes).ok()?;
        let store_id = dir.device.geometry.store_id;
        let items = u64_at(&bytes, 32);
        let is_it = number != 0 && bytes == header(store_id, number, items);
        is_it.then(|| Self { file, seed: seed(store_id, number), block: 0, items, read: 0 })
    }

    /// The next items; empty at the end.
    pub(crate) fn next_block(&mut self) -> io::Result<Vec<Item>> {
        if self.read == self.items {
            return Ok(Vec::new());
        }
        let mut head = [0; BLOCK_HEADER_BYTES];
        self.file.read_exact(&mut head)?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "a block does not verify");
        let len = u64_at(&head, 0);
        if len == 0 || len > BLOCK_BYTES_MAX {
            return Err(bad());
        }
        // No more memory than there is file.
        let mut bytes = Vec::new();
        (&mut self.file).take(len).read_to_end(&mut bytes)?;
        self.block += 1;
        if xxh3_64_with_seed(&bytes, self.seed ^ self.block) != u64_at(&head, 8) {
            return Err(bad());
        }
        let mut items = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            items.push(decode(&mut rest).ok_or_else(bad)?);
        }
        self.read = self.read.saturating_add(items.len() as u64).min(self.items);
        Ok(items)
    }
}

/// Whether this is a snapshot by a directory that had been deleted while it was in use. No other
/// directory uses it.
pub(crate) fn is_leftover(root: &OwnedFd, name: &str) -> bool {
    let mut start = [0; MAGIC.len()];
    let open = || rustix::fs::openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    [SNAPSHOT_FILE, SNAPSHOT_FILE_NEW].contains(&name)
        && open().is_ok_and(|file| File::from(file).read_exact(&mut start).is_ok())
        && start == *MAGIC
}

fn encode(item: &Item, out: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; ENTRY_BYTES];
    match item {
        Item::Object(key, entry, runs) => {
            let others = if runs.len() > 1 { runs.as_slice() } else { &[] };
            if others.len() > RUNS_MAX {
                return Err(io::Error::other("a chain has too many runs"));
            }
            bytes[..12].copy_from_slice(&key.to_bytes());
            bytes[12..16].copy_from_slice(&entry.file.to_le_bytes());
            bytes[16..20].copy_from_slice(&entry.size_units.to_le_bytes());
            bytes[20..24].copy_from_slice(
                &((others.len() as u32) << 8 | u32::from(entry.flags)).to_le_bytes(),
            );
            out.extend_from_slice(&bytes);
            for run in others {
                out.extend_from_slice(&run.start.to_le_bytes());
                out.extend_from_slice(&run.len.to_le_bytes());
            }
        }
        Item::Stale(tag, slot) => {
            bytes[..4].copy_from_slice(&tag.bits().to_le_bytes());
            bytes[12..16].copy_from_slice(&slot.to_le_bytes());
            bytes[20] = FLAG_STALE;
            out.extend_from_slice(&bytes);
        }
    }
    Ok(())
}

fn decode(rest: &mut &[u8]) -> Option<Item> {
    let (bytes, behind) = rest.split_at_checked(ENTRY_BYTES)?;
    *rest = behind;
    let tail = u32_at(bytes, 20);
    let flags = tail as u8;
    if flags == FLAG_STALE {
        return Some(Item::Stale(Tag::from_bits(u32_at(bytes, 0))?, u32_at(bytes, 12)));
    }
    let (runs, behind) = rest.split_at_checked((tail >> 8) as usize * RUN_BYTES)?;
    *rest = behind;
    let run = |bytes: &[u8]| Run { start: u32_at(bytes, 0), len: u32_at(bytes, 4) };
    let runs = runs.chunks_exact(RUN_BYTES).map(run).collect();
    let entry = FileEntry { file: u32_at(bytes, 12), size_units: u32_at(bytes, 16), flags };
    Some(Item::Object(IndexKey::from_bytes(array(bytes, 0)), entry, runs))
}

/// Writes the snapshot of a directory in which nothing changes any more; returns its number.
fn write(dir: &Dir) -> io::Result<u64> {
    let before = dir.header();
    let number = before.writes + 1;
    let store_id = dir.device.geometry.store_id;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    plain::may_change(&dir.root, SNAPSHOT_FILE_NEW)?;
    let file = rustix::fs::openat(&dir.root, SNAPSHOT_FILE_NEW, flags, FILE_MODE)?;
    let mut out = Blocks {
        file: File::from(file),
        seed: seed(store_id, number),
        block: 0,
        bytes: Vec::new(),
    };
    // No lock is held while the file is written: a core may still ask for figures.
    let stale: Vec<(Tag, u32)> = dir.slots.lock().all_stale().collect();
    let items = (dir.index.len() + stale.len()) as u64;
    out.file.write_all(&header(store_id, number, items))?;
    let mut objects = Vec::new();
    for shard in 0..FileIndex::SHARDS {
        objects.clear();
        dir.index.snapshot(shard, &mut objects);
        for (key, entry) in &objects {
            let runs = dir.slots.lock().runs(entry.file, dir.slots_of(*entry));
            out.push(&Item::Object(*key, *entry, runs))?;
        }
    }
    for (tag, slot) in stale {
        out.push(&Item::Stale(tag, slot))?;
    }
    out.flush()?;
    plain::may_change(&dir.root, SNAPSHOT_FILE_NEW)?;
    out.file.sync_data()?;
    plain::may_change(&dir.root, SNAPSHOT_FILE)?;
    rustix::fs::renameat(&dir.root, SNAPSHOT_FILE_NEW, &dir.root, SNAPSHOT_FILE)?;
    Ok(number)
}

/// Blocks on their way into the file.
struct Blocks {
    file: File,
    seed: u64,
    block: u64,
    bytes: Vec<u8>,
}

impl Blocks {
    fn push(&mut self, item: &Item) -> io::Result<()> {
        encode(item, &mut self.bytes)?;
        if self.bytes.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.block += 1;
        let mut head = [0; BLOCK_HEADER_BYTES];
        head[..8].copy_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        head[8..]
            .copy_from_slice(&xxh3_64_with_seed(&self.bytes, self.seed ^ self.block).to_le_bytes());
        self.file.write_all(&head)?;
        self.file.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Removes the snapshot: it has been read, or is of no use.
pub(crate) fn remove(dir: &Dir) {
    for name in [SNAPSHOT_FILE, SNAPSHOT_FILE_NEW] {
        let removed = plain::may_change(&dir.root, name)
            .and_then(|()| rustix::fs::unlinkat(&dir.root, name, AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::debug!("{}/{name}: {error}", dir.options.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_store::Key;

    #[test]
    fn items_survive_and_cut_ones_are_refused() {
        let key = IndexKey::from(&Key::primary(b"a"));
        let entry = FileEntry { file: 7, size_units: 96, flags: 5 };
        let runs = vec![Run { start: 7, len: 1 }, Run { start: 3, len: 2 }];
        let items = [
            Item::Object(key, entry, Vec::new()),
            Item::Object(key, entry, runs),
            Item::Stale(Tag::from(key), 9),
        ];
        let mut bytes = Vec::new();
        items.iter().for_each(|item| encode(item, &mut bytes).expect("encoded"));
        let mut rest = bytes.as_slice();
        for item in &items {
            assert_eq!(decode(&mut rest).as_ref(), Some(item));
        }
        assert!(rest.is_empty());
        for end in ENTRY_BYTES + 1..ENTRY_BYTES * 2 + 16 {
            let mut rest = &bytes[ENTRY_BYTES..end];
            assert_eq!(decode(&mut rest), None, "{end}");
        }
    }
}
