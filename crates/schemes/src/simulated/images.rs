//! What is in the files after a loss of power: their lasting contents, and writes that were not
//! synced.
//!
//! A file has its newest contents. For sectors that were overwritten and not synced, the lasting
//! contents are kept here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use humboldt_base::rng::Rng;

/// A write is torn at multiples of this.
const SECTOR_BYTES: u64 = 512;

/// Beyond as many writes, or bytes, the system has written the oldest ones by itself.
const LOOSE_MAX: usize = 512;
const LOOSE_BYTES_MAX: usize = 32 << 20;

/// Device and number of a file.
pub(super) type FileId = (u64, u64);

/// Bytes on their way to a file.
pub(crate) struct Write {
    pub(super) id: FileId,
    pub(super) file: File,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn apply(&self, part: Range<usize>) -> io::Result<()> {
        self.file.write_all_at(&self.bytes[part.clone()], self.offset + part.start as u64)
    }

    fn sectors(&self) -> Range<u64> {
        self.offset / SECTOR_BYTES..self.end().div_ceil(SECTOR_BYTES)
    }
}

/// The files with writes that were not synced.
#[derive(Default)]
pub(super) struct Images {
    files: BTreeMap<FileId, Image>,
    /// Ended, not synced, the oldest first.
    loose: BTreeMap<u64, Write>,
    loose_bytes: usize,
    last_number: u64,
    /// Under way when the power failed.
    interrupted: Vec<Write>,
}

struct Image {
    file: File,
    /// Sectors whose lasting contents are not those in the file.
    sectors: BTreeMap<u64, [u8; SECTOR_BYTES as usize]>,
    lasting_bytes: u64,
    loose: usize,
}

/// The start of the sector with this byte.
pub(super) fn sectors_down(offset: u64) -> u64 {
    offset - offset % SECTOR_BYTES
}

/// The part of a write of `len` bytes that gets to the device when the power fails.
pub(super) fn fate(rng: &mut Rng, len: usize) -> Range<usize> {
    let sectors = (len as u64).div_ceil(SECTOR_BYTES);
    let (from, to) = match rng.below(4) {
        0 => (0, 0),
        1 => {
            let from = rng.below(sectors);
            (from, from + rng.below(sectors - from + 1))
        }
        _ => (0, sectors),
    };
    let byte = |sector: u64| ((sector * SECTOR_BYTES) as usize).min(len);
    byte(from)..byte(to)
}

/// Reads until `into` is full or the file ends.
pub(super) fn read_fully(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

impl Image {
    fn of(file: &File) -> io::Result<Self> {
        let lasting_bytes = file.metadata()?.len();
        Ok(Self { file: file.try_clone()?, sectors: BTreeMap::new(), lasting_bytes, loose: 0 })
    }

    /// Keeps the lasting contents of a part that is about to be overwritten.
    fn keep(&mut self, write: &Write) -> io::Result<()> {
        for sector in write.sectors() {
            let start = sector * SECTOR_BYTES;
            if start < self.lasting_bytes && !self.sectors.contains_key(&sector) {
                let mut bytes = [0; SECTOR_BYTES as usize];
                read_fully(&write.file, start, &mut bytes)?;
                self.sectors.insert(sector, bytes);
            }
        }
        Ok(())
    }

    /// A write is lasting now.
    fn settle(&mut self, write: &Write) {
        for sector in write.sectors() {
            let Some(bytes) = self.sectors.get_mut(&sector) else { continue };
            let start = sector * SECTOR_BYTES;
            let (from, to) = (start.max(write.offset), (start + SECTOR_BYTES).min(write.end()));
            bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(
                &write.bytes[(from - write.offset) as usize..(to - write.offset) as usize],
            );
        }
        self.lasting_bytes = self.lasting_bytes.max(write.end());
    }

    /// Gives the file its lasting contents.
    fn restore(&self) -> io::Result<()> {
        self.file.set_len(self.lasting_bytes)?;
        for (sector, bytes) in &self.sectors {
            let start = sector * SECTOR_BYTES;
            let len = self.lasting_bytes.saturating_sub(start).min(SECTOR_BYTES) as usize;
            self.file.write_all_at(&bytes[..len], start)?;
        }
        Ok(())
    }
}

impl Images {
    /// Writes to the file. Without `is_lasting` a loss of power may take it back.
    pub(super) fn write(&mut self, write: Write, is_lasting: bool) -> io::Result<()> {
        if is_lasting {
            if let Some(image) = self.files.get_mut(&write.id) {
                image.settle(&write);
            }
            return write.apply(0..write.bytes.len());
        }
        let image = match self.files.entry(write.id) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Image::of(&write.file)?)
            }
        };
        image.keep(&write)?;
        write.apply(0..write.bytes.len())?;
        image.loose += 1;
        self.loose_bytes += write.bytes.len();
        self.last_number += 1;
        self.loose.insert(self.last_number, write);
        while self.loose.len() > LOOSE_MAX || self.loose_bytes > LOOSE_BYTES_MAX {
            self.write_back();
        }
        Ok(())
    }

    /// The oldest write becomes lasting.
    fn write_back(&mut self) {
        let Some((_, write)) = self.loose.pop_first() else { return };
        self.loose_bytes -= write.bytes.len();
        let Some(image) = self.files.get_mut(&write.id) else { return };
        image.settle(&write);
        image.loose -= 1;
        if image.loose == 0 {
            self.files.remove(&write.id);
        }
    }

    /// The power fails during this write.
    pub(super) fn interrupted(&mut self, write: Write) {
        self.interrupted.push(write);
    }

    /// All that was written to a file is lasting.
    pub(super) fn synced(&mut self, id: FileId) {
        self.files.remove(&id);
        self.loose.retain(|_, write| write.id != id);
        self.loose_bytes = self.loose.values().map(|write| write.bytes.len()).sum();
    }

    /// A file has this length from now on, lasting.
    pub(super) fn has_length(&mut self, id: FileId, len: u64) {
        let Some(image) = self.files.get_mut(&id) else { return };
        image.lasting_bytes = len;
        image.sectors.retain(|sector, _| sector * SECTOR_BYTES < len);
        if let Some(last) = image.sectors.get_mut(&(len / SECTOR_BYTES)) {
            last[(len % SECTOR_BYTES) as usize..].fill(0);
        }
        self.loose.retain(|_, write| write.id != id || write.end() <= len);
        self.loose_bytes = self.loose.values().map(|write| write.bytes.len()).sum();
        image.loose = self.loose.values().filter(|write| write.id == id).count();
        if image.loose == 0 {
            self.files.remove(&id);
        }
    }

    /// The disk is used again. Writes that were under way, and after a loss of power all that were
    /// not synced, are there whole, torn or not at all.
    pub(super) fn begin_life(&mut self, rng: &mut Rng, has_lost_power: bool) {
        let mut open = std::mem::take(&mut self.interrupted);
        if has_lost_power {
            for image in std::mem::take(&mut self.files).into_values() {
                image.restore().expect("the directory of the simulation is writable");
            }
            let loose = std::mem::take(&mut self.loose);
            self.loose_bytes = 0;
            open.extend(loose.into_values());
        }
        while !open.is_empty() {
            let write = open.swap_remove(rng.below(open.len() as u64) as usize);
            let part = fate(rng, write.bytes.len());
            if part.is_empty() {
                continue;
            }
            let offset = write.offset + part.start as u64;
            let write = Write { offset, bytes: write.bytes[part].to_vec(), ..write };
            let outcome = self.write(write, has_lost_power);
            outcome.expect("the directory of the simulation is writable");
        }
    }
}
