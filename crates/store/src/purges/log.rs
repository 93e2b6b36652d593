//! The file in which purges by tag and prefix outlast a crash:
//! [docs/purging.md](../../../../docs/purging.md) describes it.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use humboldt_base::xxh3::xxh3_64;

use super::list::{List, Purge};

/// First words of the file, with the version of its format.
const MAGIC: &[u8] = b"humboldt-purges 1";

/// A file is written again when it has this many lines more than are needed, and twice as many.
const SPARE_LINES: usize = 1024;

/// The contents of a file.
pub(super) struct Contents {
    pub(super) list: List,
    /// More is missing than a last line that was being written: purges may be lost.
    pub(super) is_damaged: bool,
}

/// An open log.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Bytes that are known to be there.
    length: u64,
    lines: usize,
}

impl Log {
    /// Reads a file; `None` if there is none.
    pub(super) fn read(path: &Path) -> io::Result<Option<Contents>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(parse(&bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether another process has it.
    pub(super) fn is_taken(path: &Path) -> bool {
        File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Writes a list to a new file, in place of any other at this path, and keeps it open. All of
    /// it is on the disk then.
    pub(super) fn create(path: &Path, list: &List) -> io::Result<Self> {
        if let Ok(before) = File::open(path) {
            lock(&before)?;
        }
        let mut bytes = Vec::new();
        let numbers = format!(" {} {} {}", list.base, list.newest, list.floor);
        push_line(&mut bytes, &[MAGIC, numbers.as_bytes()].concat());
        for (number, purge) in list.iter() {
            push_purge(&mut bytes, number, purge);
        }
        let new = path.with_added_extension("new");
        let mut file = File::create(&new)?;
        lock(&file)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(parent(path))?.sync_all()?;
        let path = path.to_owned();
        Ok(Self { path, file, length: bytes.len() as u64, lines: list.len() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds purges. When this returns they are on the disk; after an error they may or may not be.
    pub(super) fn append(&mut self, purges: &[(u64, Purge)]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (number, purge) in purges {
            push_purge(&mut bytes, *number, purge);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        self.lines += purges.len();
        Ok(())
    }

    /// Whether later lines replace much of it.
    pub(super) fn is_long(&self, list: &List) -> bool {
        self.lines > (2 * list.len()).max(list.len() + SPARE_LINES)
    }

    /// Whether it is still the file at its path, with the same length.
    pub(super) fn is_in_place(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.len() == self.length)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is just starting has the descriptor
        // too, for a moment.
        let _ = self.file.unlock();
    }
}

/// Two processes must not write one log. The lock goes with the file.
fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("in use by another process"),
        TryLockError::Error(error) => error,
    })
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn push_line(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(format!("{:016x} ", xxh3_64(text)).as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}

fn push_purge(out: &mut Vec<u8>, number: u64, purge: &Purge) {
    let kind = match purge {
        Purge::Tag(_) => "tag",
        Purge::Prefix(_) => "prefix",
    };
    push_line(out, &[format!("{kind} {number} ").as_bytes(), purge.bytes()].concat());
}

/// A line that is as it was written, without its checksum.
fn verified(line: &[u8]) -> Option<&[u8]> {
    let (sum, text) = line.split_at_checked(16)?;
    let text = text.strip_prefix(b" ")?;
    let sum = u64::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (sum == xxh3_64(text)).then_some(text)
}

fn parse(bytes: &[u8]) -> Contents {
    let mut list = List::default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut lines = lines.map(|line| line.strip_suffix(b"\n").and_then(verified));
    let header = lines.next().flatten().and_then(parse_header);
    (list.base, list.newest, list.floor) = header.unwrap_or_default();
    let (mut is_damaged, mut is_torn) = (header.is_none(), false);
    for line in lines {
        match line.map(parse_purge) {
            Some(Some((number, purge))) => {
                // The part after a line that was being written at the end never existed.
                is_damaged |= is_torn;
                list.add(number, purge);
            }
            Some(None) => is_damaged = true,
            None => is_torn = true,
        }
    }
    Contents { list, is_damaged }
}

fn parse_header(text: &[u8]) -> Option<(u64, u64, u64)> {
    let text = std::str::from_utf8(text.strip_prefix(MAGIC)?).ok()?;
    let mut numbers = text.strip_prefix(' ')?.split(' ').map(str::parse::<u64>);
    let header = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    numbers.next().is_none().then_some(header)
}

fn parse_purge(text: &[u8]) -> Option<(u64, Purge)> {
    let mut parts = text.splitn(3, |byte| *byte == b' ');
    let (kind, number, bytes) = (parts.next()?, parts.next()?, parts.next()?);
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    let purge = match kind {
        b"tag" => Purge::tag(bytes)?,
        b"prefix" => Purge::prefix(bytes)?,
        _ => return None,
    };
    Some((number, purge))
}
