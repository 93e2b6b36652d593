//! The owner of a directory: the lock file, and the recognition of foreign directories.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::files::FILE_MODE;
use super::snapshot;
use crate::{DirOptions, OpenError, RockOptions};

/// Name of the file that names the owner of the directory.
pub(crate) const LOCK_FILE: &str = "humboldt.lock";

const DIR_MODE: u32 = 0o750;

const TITLE: &str = "Humboldt cache directory";
const FORMAT: u32 = 1;

/// Longest lock file that is read.
const LOCK_FILE_BYTES_MAX: usize = 1024;

/// A directory that is ours and locked.
pub(crate) struct Claimed {
    pub(crate) root: OwnedFd,
    /// Locked as long as it is open.
    pub(crate) lock: OwnedFd,
}

/// Makes sure that the directory is ours, and claims it for this process. Creates missing parts.
pub(crate) fn claim(options: &DirOptions<RockOptions>) -> Result<Claimed, OpenError> {
    check(options)?;
    let path = &options.path;
    make_path(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
    refuse_foreign(&root, path)?;
    let lock = claim_lock(&root, options)?;
    Ok(Claimed { root, lock })
}

fn check(options: &DirOptions<RockOptions>) -> Result<(), OpenError> {
    options.own.check().map_err(|error| options.bad(error))?;
    options.check_water_marks()
}

/// The error of a start.
pub(crate) fn failed(
    operation: &'static str,
    path: &Path,
    error: impl Into<io::Error>,
) -> OpenError {
    OpenError::Io { operation, path: path.to_owned(), source: error.into() }
}

fn make_path(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(DIR_MODE);
    builder.create(path).map_err(|e| failed("create", path, e))
}

/// Reads the lock file; empty when there is none.
fn read_claim(root: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let file = match rustix::fs::openat(
        root,
        LOCK_FILE,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; LOCK_FILE_BYTES_MAX];
    let read = rustix::io::pread(&file, &mut bytes[..], 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn refuse_foreign(root: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    let claim = read_claim(root).map_err(|e| failed("read the lock file of", path, e))?;
    if !claim.is_empty() {
        return Ok(());
    }
    for entry in rustix::fs::Dir::read_from(root).map_err(|e| failed("list", path, e))? {
        let entry = entry.map_err(|e| failed("list", path, e))?;
        let name = entry.file_name().to_string_lossy();
        let is_ours = crate::beside::may_be_beside(&name) || snapshot::is_leftover(root, &name);
        if ![".", "..", LOCK_FILE].contains(&name.as_ref()) && !is_ours {
            let reason = format!("it has '{}', but no {LOCK_FILE}", name.escape_debug());
            return Err(OpenError::Foreign { path: path.to_owned(), reason });
        }
    }
    Ok(())
}

/// Text of the lock file for these options.
fn claim_text(slot_bytes: u32) -> String {
    format!("{TITLE}\nscheme rock\nformat {FORMAT}\nslot-size {slot_bytes}\n")
}

fn claim_lock(root: &OwnedFd, options: &DirOptions<RockOptions>) -> Result<OwnedFd, OpenError> {
    let path = &options.path;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let lock = rustix::fs::openat(root, LOCK_FILE, flags, FILE_MODE)
        .map_err(|e| failed("open the lock file of", path, e))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            return Err(OpenError::Locked { path: path.clone(), lock: LOCK_FILE });
        }
        other => other.map_err(|e| failed("lock", path, e))?,
    }
    let found = read_claim(root).map_err(|e| failed("read the lock file of", path, e))?;
    let wanted = claim_text(options.own.slot_bytes);
    if found.is_empty() {
        crate::lock::write_claim(&lock, &wanted)
            .map_err(|e| failed("write the lock file of", path, e))?;
    } else if found != wanted.as_bytes() {
        return Err(unlike(path, &String::from_utf8_lossy(&found), &wanted));
    }
    Ok(lock)
}

fn unlike(path: &Path, found: &str, wanted: &str) -> OpenError {
    if !found.starts_with(TITLE) {
        let reason = format!("its {LOCK_FILE} is not Humboldt's");
        return OpenError::Foreign { path: path.to_owned(), reason };
    }
    let shorten =
        |text: &str| text.lines().skip(1).collect::<Vec<_>>().join(", ").escape_debug().to_string();
    OpenError::Mismatch { path: path.to_owned(), found: shorten(found), wanted: shorten(wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rock::DirOptions;
    use std::fs;

    #[test]
    fn a_directory_is_claimed_once_and_with_one_slot_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = DirOptions::new(dir.path().join("new/cache"), 1 << 20);
        let first = claim(&options).expect("the first");
        assert!(matches!(claim(&options), Err(OpenError::Locked { .. })));
        drop(first);
        let mut other = options.clone();
        other.own.slot_bytes = 8192;
        let message = claim(&other).err().expect("refused").to_string();
        assert!(
            message.contains("slot-size 16384") && message.contains("slot-size 8192"),
            "{message}"
        );
        assert!(claim(&options).is_ok());
    }

    #[test]
    fn squids_and_other_peoples_directories_are_refused_untouched() {
        for name in ["rock", "letters.txt"] {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(dir.path().join(name), [7; 20_000]).expect("a file");
            let error = claim(&DirOptions::new(dir.path(), 1 << 20)).err().expect("refused");
            assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
            assert_eq!(fs::read(dir.path().join(name)).expect("still there"), [7; 20_000]);
            assert_eq!(fs::read_dir(dir.path()).expect("a listing").count(), 1);
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let refused = |adapt: fn(&mut DirOptions)| {
            let mut options = DirOptions::new(dir.path(), 1 << 20);
            adapt(&mut options);
            matches!(claim(&options), Err(OpenError::BadOption { .. }))
        };
        assert!(refused(|options| options.own.slot_bytes = 2048));
        assert!(refused(|options| options.own.slot_bytes = 5000));
        assert!(refused(|options| options.own.slot_bytes = 2 << 20));
        assert!(refused(|options| options.own.max_swap_rate = Some(0)));
        assert!(refused(|options| options.own.threads = 0));
        assert!(refused(|options| options.swap_low_pct = 96));
    }
}
