//! The index of a clean stop: written behind the stripes in chunks that verify alone.

use std::io;

use humboldt_store::index::{FileEntry, FileIndex, IndexKey};

use super::dir::Dir;
use super::format::{STRIPE_BYTES, Superblock, UNIT_BYTES, array, checksum, u32_at, u64_at};

/// Longest payload of a chunk.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// The part before a payload: its length and checksum.
const CHUNK_HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;

fn seed(dir: &Dir, opens: u32, chunk: u64) -> u64 {
    dir.id ^ u64::from(opens) ^ chunk
}

/// Writes the index behind the stripes; returns its length, or `None` if there is no room for it.
pub(super) fn write(dir: &Dir, superblock: &Superblock) -> io::Result<Option<u64>> {
    let start = superblock.snapshot_offset();
    let room = dir.options.capacity_bytes.saturating_sub(start);
    let mut out = Out {
        dir,
        opens: superblock.opens,
        at: start,
        end: start + room,
        chunk: 0,
        payload: Vec::new(),
    };
    let mut is_written = out.push(&u64::from(superblock.stripes).to_le_bytes())?
        && out.push(&(dir.index.len() as u64).to_le_bytes())?;
    for slot in 0..superblock.stripes {
        is_written = is_written && out.push(&dir.seq(slot).to_le_bytes())?;
    }
    let mut objects = Vec::new();
    for shard in 0..FileIndex::SHARDS {
        objects.clear();
        dir.index.snapshot(shard, &mut objects);
        for (key, entry) in &objects {
            is_written = is_written && out.push(&encode(dir, *key, *entry))?;
        }
    }
    is_written = is_written && out.flush()?;
    Ok(is_written.then(|| out.at - start))
}

fn encode(dir: &Dir, key: IndexKey, entry: FileEntry) -> [u8; ENTRY_BYTES] {
    let (slot, offset) = dir.geometry.locate(entry.file);
    let place = slot as usize * (STRIPE_BYTES / UNIT_BYTES) + offset / UNIT_BYTES;
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..12].copy_from_slice(&key.to_bytes());
    bytes[12..16].copy_from_slice(&(place as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&entry.size_units.to_le_bytes());
    bytes[20] = entry.flags;
    bytes
}

/// A snapshot being written.
struct Out<'a> {
    dir: &'a Dir,
    opens: u32,
    at: u64,
    end: u64,
    chunk: u64,
    payload: Vec<u8>,
}

impl Out<'_> {
    /// Adds a part, which will lie in one chunk; `false` when there is no more room.
    fn push(&mut self, part: &[u8]) -> io::Result<bool> {
        let has_room = self.payload.len() + part.len() <= PAYLOAD_BYTES_MAX || self.flush()?;
        self.payload.extend_from_slice(part);
        Ok(has_room)
    }

    fn flush(&mut self) -> io::Result<bool> {
        let sum = checksum(&self.payload, seed(self.dir, self.opens, self.chunk));
        let mut bytes = Vec::with_capacity(CHUNK_HEADER_BYTES + self.payload.len());
        bytes.extend_from_slice(&(self.payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.append(&mut self.payload);
        if self.at + bytes.len() as u64 > self.end {
            return Ok(false);
        }
        self.dir.data.write(self.at, &bytes)?;
        self.at += bytes.len() as u64;
        self.chunk += 1;
        Ok(true)
    }
}

/// Fills the index from the snapshot. After an error a part of it is filled: see [`forget`].
pub(super) fn read(dir: &Dir) -> Result<(), String> {
    let at = dir.found.snapshot_offset();
    let end = at + dir.found.snapshot_bytes;
    let mut input = In { dir, at, end, chunk: 0, payload: Vec::new(), used: 0 };
    let stripes = u64_at(input.take(8)?, 0);
    let entries = u64_at(input.take(8)?, 0);
    if stripes != u64::from(dir.found.stripes) {
        return Err("it is about another number of stripes".to_owned());
    }
    for slot in 0..dir.found.stripes {
        let seq = u64_at(input.take(8)?, 0);
        dir.set_seq(slot, seq);
    }
    for i in 0..entries {
        enter(dir, input.take(ENTRY_BYTES)?);
        if i % 4096 == 0 {
            dir.set_percent(i, entries);
            if dir.is_stopping() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Enters one object, if it lies inside of the store as it is configured now.
fn enter(dir: &Dir, bytes: &[u8]) {
    let stripe_units = (STRIPE_BYTES / UNIT_BYTES) as u32;
    let (place, size_units) = (u32_at(bytes, 12), u32_at(bytes, 16));
    let (slot, offset_units) = (place / stripe_units, place % stripe_units);
    let is_inside = size_units > 0 && size_units <= stripe_units - offset_units;
    if let Some(file) =
        dir.geometry.file(slot, offset_units as usize * UNIT_BYTES).filter(|_| is_inside)
    {
        let flags = array::<1>(bytes, 20)[0];
        dir.enter(IndexKey::from_bytes(array(bytes, 0)), FileEntry { file, size_units, flags });
    }
}

/// Takes back the entries of a bad snapshot.
pub(super) fn forget(dir: &Dir) {
    let mut objects = Vec::new();
    for shard in 0..FileIndex::SHARDS {
        objects.clear();
        dir.index.snapshot(shard, &mut objects);
        for (key, _) in &objects {
            dir.left(dir.index.remove(*key));
        }
    }
    for slot in 0..dir.found.stripes {
        dir.set_seq(slot, 0);
    }
}

/// A snapshot being read.
struct In<'a> {
    dir: &'a Dir,
    at: u64,
    end: u64,
    chunk: u64,
    payload: Vec<u8>,
    used: usize,
}

impl In<'_> {
    /// The next part, of `len` bytes.
    fn take(&mut self, len: usize) -> Result<&[u8], String> {
        if self.used == self.payload.len() {
            self.next_chunk()?;
        }
        let part = self.payload.get(self.used..self.used + len).ok_or("it is cut off")?;
        self.used += len;
        Ok(part)
    }

    fn next_chunk(&mut self) -> Result<(), String> {
        let read = |at, bytes: &mut [u8]| {
            self.dir.data.read_blocking(at, bytes).map_err(|e| e.to_string())
        };
        let mut header = [0; CHUNK_HEADER_BYTES];
        read(self.at, &mut header)?;
        let len = u64_at(&header, 0);
        let next = self.at.saturating_add(CHUNK_HEADER_BYTES as u64).saturating_add(len);
        if len > PAYLOAD_BYTES_MAX as u64 || next > self.end {
            return Err("length of a chunk".to_owned());
        }
        let mut payload = vec![0; len as usize];
        read(self.at + CHUNK_HEADER_BYTES as u64, &mut payload)?;
        // The stop that wrote it belonged to the opening before this one.
        if checksum(&payload, seed(self.dir, self.dir.found.opens, self.chunk))
            != u64_at(&header, 8)
        {
            return Err("checksum of a chunk".to_owned());
        }
        (self.payload, self.used, self.at, self.chunk) = (payload, 0, next, self.chunk + 1);
        Ok(())
    }
}
