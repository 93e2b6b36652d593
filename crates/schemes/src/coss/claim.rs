//! The owner of a file, directory or device: the lock, the recognition of foreign ones, the
//! superblock.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::BuildHasher;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::data::DataFile;
use super::format::{self, BLOCK_BYTES, PURGES_OFFSET, Superblock};
use super::geometry::{Geometry, new_purge_bytes};
use crate::block::{self, BlockFile, OpenBlock};
use crate::{CossOptions, DirOptions, OpenError};

/// Name of the lock file in a directory.
const LOCK_FILE: &str = "humboldt.lock";
/// Name of the data file in a directory.
const DATA_FILE: &str = "coss.data";

const TITLE: &str = "Humboldt cache directory";
const CLAIM: &str = "Humboldt cache directory\nscheme coss\nformat 1\n";

/// Longest lock file that is read.
const LOCK_FILE_BYTES_MAX: u64 = 1024;

/// A file or device without our superblock is blank if this many bytes are zero.
const BLANK_BYTES: usize = 1 << 20;

const FILE_MODE: u32 = 0o640;
const DIR_MODE: u32 = 0o750;

/// A store that is ours, locked.
pub(super) struct Claimed {
    pub(super) data: DataFile,
    /// Locked as long as it is open.
    pub(super) lock: File,
    /// As found, or that of a new store; it has not been written yet.
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    /// Nothing was there.
    pub(super) is_new: bool,
}

/// The kind of the path in `cache_dir`.
enum Place {
    Directory,
    File,
    Device,
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { operation, path: path.to_owned(), source }
}

fn foreign<T>(path: &Path, reason: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Foreign { path: path.to_owned(), reason: reason.into() })
}

fn place(path: &Path) -> Result<Place, OpenError> {
    let kind = match std::fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_directory = path.as_os_str().as_bytes().ends_with(b"/");
            return Ok(if is_directory { Place::Directory } else { Place::File });
        }
        Err(error) => return Err(failed("look at", path, error)),
    };
    match () {
        () if kind.is_dir() => Ok(Place::Directory),
        () if kind.is_file() => Ok(Place::File),
        () if kind.is_block_device() => Ok(Place::Device),
        () => foreign(path, "it is neither a file, a directory nor a block device"),
    }
}

/// Makes sure that the store is ours, and claims it for this process. Creates missing parts.
pub(super) fn claim(options: &DirOptions<CossOptions>) -> Result<Claimed, OpenError> {
    let path = &options.path;
    let place = place(path)?;
    // Before anything is created: options that make no sense leave nothing behind.
    Geometry::new(options, new_purge_bytes(options.capacity_bytes))?;
    let (data_path, lock_path) = match place {
        Place::Directory => (path.join(DATA_FILE), Some(path.join(LOCK_FILE))),
        Place::File => (path.clone(), Some(lock_beside(path))),
        Place::Device => (path.clone(), None),
    };
    if let Place::Directory = place {
        make_directory(path)?;
        refuse_foreign_directory(path)?;
    }
    let is_known = match lock_path.as_deref().map(read_claim).transpose()? {
        Some(claim) => refuse_other_claim(path, &claim)?,
        None => false,
    };
    refuse_foreign_data(path, &data_path, is_known)?;
    let (file, lock) = open_locked(options, &data_path, lock_path.as_deref())?;
    let data = DataFile::new(file, data_path, lock_path.is_none(), options.own.threads);
    if data.is_device
        && data.len().map_err(|e| failed("find the size of", path, e))? < options.capacity_bytes
    {
        let reason = "the device is smaller than the size configured";
        return Err(options.bad(reason));
    }
    let mut start = vec![0; 2 * BLOCK_BYTES];
    data.read_blocking(0, &mut start).map_err(|e| failed("read", &data.path, e))?;
    let found = Superblock::newest(&start);
    let purge_bytes =
        found.map_or_else(|| new_purge_bytes(options.capacity_bytes), |found| found.purge_bytes);
    let geometry = Geometry::new(options, purge_bytes)?;
    let superblock = found.unwrap_or(Superblock {
        stripes: geometry.stripes,
        id: crate::simulated::store_id()
            .unwrap_or_else(|| std::hash::RandomState::new().hash_one(path)),
        opens: 0,
        purge_bytes,
        snapshot_bytes: 0,
    });
    Ok(Claimed { data, lock, superblock, geometry, is_new: found.is_none() })
}

fn lock_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn make_directory(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(DIR_MODE).create(path).map_err(|e| failed("create", path, e))
}

/// Text of a lock file; empty when there is none.
fn read_claim(path: &Path) -> Result<String, OpenError> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => {
            let read = file.take(LOCK_FILE_BYTES_MAX).read_to_end(&mut text);
            read.map_err(|e| failed("read the lock file", path, e))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("open the lock file", path, error)),
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn refuse_foreign_directory(path: &Path) -> Result<(), OpenError> {
    if !read_claim(&path.join(LOCK_FILE))?.is_empty() {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(|e| failed("list", path, e))? {
        let name = entry.map_err(|e| failed("list", path, e))?.file_name();
        let name = name.to_string_lossy();
        if name != LOCK_FILE && !crate::beside::may_be_beside(&name) {
            return foreign(path, format!("it has '{}', but no {LOCK_FILE}", name.escape_debug()));
        }
    }
    Ok(())
}

/// Whether the lock file names this store as ours; an error if it names another one.
fn refuse_other_claim(path: &Path, claim: &str) -> Result<bool, OpenError> {
    if claim.is_empty() || claim == CLAIM {
        return Ok(!claim.is_empty());
    }
    if !claim.starts_with(TITLE) {
        return foreign(path, "its lock file is not Humboldt's");
    }
    let shorten =
        |text: &str| text.lines().skip(1).collect::<Vec<_>>().join(", ").escape_debug().to_string();
    Err(OpenError::Mismatch {
        path: path.to_owned(),
        found: shorten(claim),
        wanted: shorten(CLAIM),
    })
}

/// Examines the data without changing it.
fn refuse_foreign_data(path: &Path, data_path: &Path, is_known: bool) -> Result<(), OpenError> {
    let file = match File::open(data_path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("open", data_path, error)),
    };
    let mut start = Vec::with_capacity(BLANK_BYTES);
    let read = file.take(BLANK_BYTES as u64).read_to_end(&mut start);
    read.map_err(|e| failed("read", data_path, e))?;
    let is_ours =
        [0, BLOCK_BYTES].iter().any(|at| start.get(*at..).is_some_and(format::has_our_magic));
    if is_ours || start.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let beside = if is_known { ", although the lock file is ours" } else { "" };
    foreign(path, format!("its first MB holds something else{beside}"))
}

/// Takes the lock, and opens the data file or device.
fn open_locked(
    options: &DirOptions<CossOptions>,
    data: &Path,
    lock: Option<&Path>,
) -> Result<(Arc<dyn BlockFile>, File), OpenError> {
    let (path, is_device) = (&options.path, lock.is_none());
    let lock = lock.unwrap_or(data);
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(!is_device).mode(FILE_MODE);
    let lock_file = how.open(lock).map_err(|e| failed("open the lock file", lock, e))?;
    let name = match is_device {
        true => "the device itself",
        false if lock.ends_with(LOCK_FILE) => LOCK_FILE,
        false => "beside it, with .lock behind its name",
    };
    match lock_file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::Locked { path: path.clone(), lock: name });
        }
        Err(TryLockError::Error(error)) => return Err(failed("lock", lock, error)),
    }
    if !is_device && read_claim(lock)?.is_empty() {
        crate::lock::write_claim(&lock_file, CLAIM)
            .map_err(|e| failed("write the lock file", lock, e.into()))?;
    }
    let open = OpenBlock {
        path: data,
        io: options.own.io,
        direct: false,
        lasting: false,
        threads: options.own.threads,
        create: !is_device,
        read_only: false,
    };
    Ok((block::open(&open).map_err(|e| failed("open", data, e))?, lock_file))
}

/// Writes both copies of a superblock, so that one is always whole.
pub(super) fn write_superblock(data: &DataFile, superblock: &Superblock) -> io::Result<()> {
    let copy = superblock.encode();
    (0..PURGES_OFFSET).step_by(BLOCK_BYTES).try_for_each(|at| data.write(at, &copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coss::DirOptions;
    use std::fs;
    use std::os::unix::fs::FileExt;

    const CAPACITY_BYTES: u64 = 4 << 20;

    fn claim_at(path: impl AsRef<Path>) -> Result<Claimed, OpenError> {
        claim(&DirOptions::new(path.as_ref(), CAPACITY_BYTES))
    }

    fn made_at(path: &Path) {
        let claimed = claim_at(path).unwrap_or_else(|e| panic!("{e}"));
        write_superblock(&claimed.data, &claimed.superblock).expect("written");
    }

    #[test]
    fn directories_files_and_their_locks() {
        let dir = tempfile::tempdir().expect("a directory");
        let slashed = dir.path().join("new/cache/");
        for (path, data, lock) in [
            (slashed.clone(), slashed.join(DATA_FILE), slashed.join(LOCK_FILE)),
            (dir.path().join("stripe"), dir.path().join("stripe"), dir.path().join("stripe.lock")),
        ] {
            made_at(&path);
            assert!(data.is_file() && lock.is_file());
            let first = claim_at(&path).unwrap_or_else(|e| panic!("{e}"));
            assert!(!first.is_new);
            assert!(matches!(claim_at(&path), Err(OpenError::Locked { .. })));
            drop(first);
            assert!(claim_at(&path).is_ok());
        }
    }

    fn snapshot(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(path).expect("listing").map(|e| e.expect("an entry").path());
        let mut all: Vec<_> =
            entries.map(|p| (p.clone(), fs::read(&p).unwrap_or_default())).collect();
        all.sort();
        all
    }

    #[test]
    fn foreign_things_are_refused_untouched() {
        type Make = fn(&Path) -> PathBuf;
        let cases: [(&str, Make); 6] = [
            ("a directory with letters", |dir| {
                fs::write(dir.join("letters"), "dear").expect("a file");
                dir.to_owned()
            }),
            ("a file with something", |dir| {
                fs::write(dir.join("x"), "dear").expect("a file");
                dir.join("x")
            }),
            ("a file with something after many zeros", |dir| {
                let mut bytes = vec![0; BLANK_BYTES];
                bytes[BLANK_BYTES - 1] = 1;
                fs::write(dir.join("x"), bytes).expect("a file");
                dir.join("x")
            }),
            ("a lock of somebody else", |dir| {
                fs::write(dir.join("x.lock"), "mine").expect("a file");
                dir.join("x")
            }),
            ("another scheme", |dir| {
                fs::write(dir.join(LOCK_FILE), format!("{TITLE}\nscheme ufs\n")).expect("a file");
                dir.to_owned()
            }),
            ("our lock, but other data", |dir| {
                fs::write(dir.join(LOCK_FILE), CLAIM).expect("a file");
                fs::write(dir.join(DATA_FILE), vec![7; 20_000]).expect("a file");
                dir.to_owned()
            }),
        ];
        for (name, make) in cases {
            let dir = tempfile::tempdir().expect("a directory");
            let path = make(dir.path());
            let before = snapshot(dir.path());
            let error = claim_at(path).err().unwrap_or_else(|| panic!("{name}: accepted"));
            assert!(
                matches!(error, OpenError::Foreign { .. } | OpenError::Mismatch { .. }),
                "{name}: {error}"
            );
            assert!(snapshot(dir.path()) == before, "{name}: touched");
        }
        assert!(matches!(claim_at("/dev/null"), Err(OpenError::Foreign { .. })));
    }

    #[test]
    fn blank_files_are_taken_and_damaged_ones_are_still_ours() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        fs::write(&path, vec![0; 5000]).expect("a file");
        assert!(claim_at(&path).is_ok_and(|claimed| claimed.is_new));
        made_at(&path);
        let data = fs::File::options().write(true).open(&path).expect("the file");
        data.write_all_at(&[0xFF; 8], 20).expect("damaged");
        assert!(claim_at(&path).is_ok_and(|claimed| !claimed.is_new), "the second copy is good");
        data.write_all_at(&[0xFF; 8], 20 + BLOCK_BYTES as u64).expect("damaged");
        assert!(claim_at(&path).is_ok_and(|claimed| claimed.is_new), "ours, but nothing is left");
    }

    #[test]
    fn options_that_make_no_sense_create_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        assert!(matches!(claim(&DirOptions::new(&path, 1000)), Err(OpenError::BadOption { .. })));
        assert!(snapshot(dir.path()).is_empty());
    }
}
