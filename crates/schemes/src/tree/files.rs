//! Object files by number, relative to the open cache directory: no path is put together on the
//! heap.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::simulated::plain;

/// Name of the file that names the owner of the directory.
pub(crate) const LOCK_FILE: &str = "humboldt.lock";

/// Permissions of files, before the umask.
pub(crate) const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
/// Permissions of directories, before the umask.
pub(crate) const DIR_MODE: Mode = Mode::from_raw_mode(0o750);

/// Length of `00/1A/00001A2B`.
const NAME_BYTES: usize = 14;

/// The open cache directory and the shape of its tree.
pub(crate) struct Tree {
    root: OwnedFd,
    l1: u32,
    l2: u32,
}

impl Tree {
    /// `l1` and `l2` are at least 1.
    pub(crate) fn new(root: OwnedFd, l1: u32, l2: u32) -> Self {
        Self { root, l1, l2 }
    }

    /// The open directory itself.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Numbers of the two directories of file `number`.
    fn directories(&self, number: u32) -> (u32, u32) {
        ((number / self.l2 / self.l2) % self.l1, (number / self.l2) % self.l2)
    }

    /// Path of file `number` below the cache directory.
    pub(crate) fn name(&self, number: u32) -> Name {
        let (d1, d2) = self.directories(number);
        let mut name = [b'/'; NAME_BYTES];
        put_hex(&mut name[0..2], d1);
        put_hex(&mut name[3..5], d2);
        put_hex(&mut name[6..], number);
        Name(name)
    }

    /// The file number of `name`, if it is one and belongs into directory `d1`/`d2`.
    pub(crate) fn number_of(&self, name: &[u8], d1: u32, d2: u32) -> Option<u32> {
        let digits = |b: &u8| b.is_ascii_digit() || (b'A'..=b'F').contains(b);
        if name.len() != 8 || !name.iter().all(digits) {
            return None;
        }
        let number = u32::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()?;
        (self.directories(number) == (d1, d2)).then_some(number)
    }

    /// Opens file `number` to be read.
    pub(crate) fn open(&self, number: u32) -> Result<OwnedFd, Errno> {
        self.open_with(number, OFlags::RDONLY)
    }

    /// Opens file `number` to be read and appended to.
    pub(crate) fn open_for_update(&self, number: u32) -> Result<OwnedFd, Errno> {
        self.open_with(number, OFlags::RDWR)
    }

    /// Creates file `number`. One that a crash left behind makes way, and so does a missing
    /// directory appear.
    pub(crate) fn create(&self, number: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        match self.open_with(number, flags) {
            Err(Errno::EXIST) => self.unlink(number)?,
            Err(Errno::NOENT) => self.make_directories(number)?,
            other => return other,
        }
        self.open_with(number, flags)
    }

    /// Unlinks file `number`; it may be missing.
    pub(crate) fn unlink(&self, number: u32) -> Result<(), Errno> {
        match unlink_at(&self.root, self.name(number).as_str()) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            other => other,
        }
    }

    /// Calls `visit` with the number of every object file in directory `d1`/`d2`. A missing
    /// directory is an empty one.
    pub(crate) fn list(&self, d1: u32, d2: u32, mut visit: impl FnMut(u32)) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = match open_at(&self.root, &directory_name(d1, d2), flags) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            numbers.extend(self.number_of(entry?.file_name().to_bytes(), d1, d2));
        }
        // Not in the order of the file system, which does not follow from anything.
        numbers.sort_unstable();
        numbers.into_iter().for_each(&mut visit);
        Ok(())
    }

    /// The two levels of the tree.
    pub(crate) fn levels(&self) -> (u32, u32) {
        (self.l1, self.l2)
    }

    fn open_with(&self, number: u32, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_at(&self.root, self.name(number).as_str(), flags)
    }

    /// In a directory that has been deleted while it was in use, no directory is made again: it
    /// would have no owner.
    fn make_directories(&self, number: u32) -> Result<(), Errno> {
        rustix::fs::statat(&self.root, LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW)?;
        let (d1, d2) = self.directories(number);
        make_directory(&self.root, &format!("{d1:02X}"))?;
        make_directory(&self.root, &directory_name(d1, d2))
    }
}

/// Opens a file of a directory.
pub(crate) fn open_at(root: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    match flags.contains(OFlags::CREATE) {
        true => plain::may_change(root, name)?,
        false => plain::may_open(root, name)?,
    }
    let file = rustix::fs::openat(root, name, flags | OFlags::CLOEXEC, FILE_MODE)?;
    if flags.contains(OFlags::TRUNC) {
        plain::emptied(&file)?;
    }
    Ok(file)
}

/// Deletes a file of a directory.
pub(crate) fn unlink_at(root: &OwnedFd, name: &str) -> Result<(), Errno> {
    plain::may_change(root, name)?;
    rustix::fs::unlinkat(root, name, AtFlags::empty())
}

/// Renames a file of a directory; it takes the place of one that has the new name.
pub(crate) fn rename_at(root: &OwnedFd, old: &str, new: &str) -> Result<(), Errno> {
    plain::may_change(root, new)?;
    rustix::fs::renameat(root, old, root, new)
}

/// Waits until all writes to a file are on the device.
pub(crate) fn sync(file: impl AsFd) -> Result<(), Errno> {
    plain::sync(&file).unwrap_or_else(|| rustix::fs::fdatasync(&file))
}

/// Makes a file this long.
pub(crate) fn set_len(file: impl AsFd, len: u64) -> Result<(), Errno> {
    plain::set_len(&file, len).unwrap_or_else(|| rustix::fs::ftruncate(&file, len))
}

/// Path of a directory on the second level, below the cache directory.
pub(crate) fn directory_name(d1: u32, d2: u32) -> String {
    format!("{d1:02X}/{d2:02X}")
}

/// Makes a directory that may exist already.
pub(crate) fn make_directory(root: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(root, name, DIR_MODE) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Path of an object file below the cache directory.
pub(crate) struct Name([u8; NAME_BYTES]);

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Writes the lowest digits of `value`, upper case, into the whole of `place`.
fn put_hex(place: &mut [u8], mut value: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789ABCDEF"[(value & 15) as usize];
        value >>= 4;
    }
}

/// Reads exactly `bytes.len()` bytes at `offset`; `false` when the file ends before.
pub(crate) fn read_exact_at(file: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<bool, Errno> {
    plain::may_read(&file)?;
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(&file, rest, offset + done as u64) {
            Ok(0) => return Ok(false),
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(true)
}

/// Reads a whole file of `len` bytes without clearing memory first; `None` when it is shorter.
pub(crate) fn read_whole(file: impl AsFd, len: usize) -> Result<Option<Vec<u8>>, Errno> {
    plain::may_read(&file)?;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = bytes.len() as u64;
        match rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
    bytes.truncate(len);
    Ok(Some(bytes))
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all_at(file: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    if let Some(outcome) = plain::write(&file, bytes, offset) {
        return outcome;
    }
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwrite(&file, rest, offset + done as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(l1: u32, l2: u32) -> Tree {
        let root = rustix::fs::open("/", OFlags::RDONLY, Mode::empty()).expect("the root");
        Tree::new(root, l1, l2)
    }

    #[test]
    fn numbering_is_squids() {
        let tree16 = tree(16, 256);
        assert_eq!(tree16.name(0).as_str(), "00/00/00000000");
        assert_eq!(tree16.name(0x1A2B).as_str(), "00/1A/00001A2B");
        assert_eq!(tree16.name(0x12_3456).as_str(), "02/34/00123456");
        assert_eq!(tree(14, 256).name(0x0F_0000).as_str(), "01/00/000F0000");
    }

    #[test]
    fn names_lead_back_to_numbers_only_in_their_own_directory() {
        let tree = tree(16, 256);
        assert_eq!(tree.number_of(b"00123456", 2, 0x34), Some(0x12_3456));
        assert_eq!(tree.number_of(b"00123456", 2, 0x35), None);
        for other in [&b"0012345"[..], b"0012345g", b"swap.sta", b"+0123456", b"0000001a"] {
            assert_eq!(tree.number_of(other, 0, 0), None);
        }
    }
}
