//! The owner of a directory: the lock file, the recognition of foreign directories, and the tree of
//! subdirectories.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::files::{self, DIR_MODE, FILE_MODE, LOCK_FILE, Tree};
use super::log;
use crate::lock::Lock;
use crate::{DirOptions, Levels, OpenError};

const TITLE: &str = "Humboldt cache directory";
const FORMAT: u32 = 1;

/// Longest lock file that is read.
const LOCK_FILE_BYTES_MAX: usize = 1024;

/// A directory that is ours, locked and with all its subdirectories.
pub(crate) struct Claimed {
    pub(crate) tree: Tree,
    pub(crate) lock: Lock,
    /// It was empty until now.
    pub(crate) is_new: bool,
}

/// Makes sure that the directory is ours, and claims it for this process. Creates missing parts.
pub(crate) fn claim(options: &DirOptions<Levels>) -> Result<Claimed, OpenError> {
    check(options)?;
    let path = &options.path;
    make_path(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
    refuse_foreign(&root, path)?;
    let (lock, is_new) = claim_lock(&root, options)?;
    let tree = Tree::new(root, options.own.l1, options.own.l2);
    make_tree(&tree, path)?;
    Ok(Claimed { tree, lock, is_new })
}

fn check(options: &DirOptions<Levels>) -> Result<(), OpenError> {
    options.own.check().map_err(|error| options.bad(error))?;
    options.check_water_marks()
}

fn failed(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> OpenError {
    OpenError::Io { operation, path: path.to_owned(), source: error.into() }
}

fn make_path(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(DIR_MODE.bits());
    builder.create(path).map_err(|e| failed("create", path, e))
}

/// Reads a small file of the directory; empty when there is none.
fn read_small(root: &OwnedFd, name: &str) -> Result<Vec<u8>, Errno> {
    let file = match rustix::fs::openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; LOCK_FILE_BYTES_MAX];
    let read = rustix::io::pread(&file, &mut bytes[..], 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn refuse_foreign(root: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    let foreign = |reason| Err(OpenError::Foreign { path: path.to_owned(), reason });
    let log_start =
        read_small(root, log::FILE).map_err(|e| failed("read the swap log of", path, e))?;
    if log::is_squids(&log_start) {
        return foreign("its swap.state was written by Squid".to_owned());
    }
    let claim =
        read_small(root, LOCK_FILE).map_err(|e| failed("read the lock file of", path, e))?;
    if !claim.is_empty() {
        return Ok(());
    }
    for entry in rustix::fs::Dir::read_from(root).map_err(|e| failed("list", path, e))? {
        let entry = entry.map_err(|e| failed("list", path, e))?;
        let name = entry.file_name().to_string_lossy();
        let is_ours = crate::beside::may_be_beside(&name) || log::is_leftover(root, &name);
        if ![".", "..", LOCK_FILE].contains(&name.as_ref()) && !is_ours {
            return foreign(format!("it has '{}', but no {LOCK_FILE}", name.escape_debug()));
        }
    }
    Ok(())
}

/// Text of the lock file for these options. The scheme is that of the format, which `ufs`, `aufs`
/// and `diskd` share.
fn claim_text(l1: u32, l2: u32) -> String {
    format!("{TITLE}\nscheme ufs\nformat {FORMAT}\nl1 {l1}\nl2 {l2}\n")
}

fn claim_lock(root: &OwnedFd, options: &DirOptions<Levels>) -> Result<(Lock, bool), OpenError> {
    let path = &options.path;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let lock = rustix::fs::openat(root, LOCK_FILE, flags, FILE_MODE)
        .map_err(|e| failed("open the lock file of", path, e))?;
    let lock = Lock::take(lock).map_err(|error| match error {
        Errno::WOULDBLOCK => OpenError::Locked { path: path.clone(), lock: LOCK_FILE },
        error => failed("lock", path, error),
    })?;
    let found =
        read_small(root, LOCK_FILE).map_err(|e| failed("read the lock file of", path, e))?;
    let wanted = claim_text(options.own.l1, options.own.l2);
    if found.is_empty() {
        log::remove_leftovers(root).map_err(|e| failed("remove an old log of", path, e))?;
        crate::lock::write_claim(lock.file(), &wanted)
            .map_err(|e| failed("write the lock file of", path, e))?;
        return Ok((lock, true));
    }
    if found != wanted.as_bytes() {
        return Err(unlike(path, &String::from_utf8_lossy(&found), &wanted));
    }
    Ok((lock, false))
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

fn make_tree(tree: &Tree, path: &Path) -> Result<(), OpenError> {
    let (l1, l2) = tree.levels();
    for d1 in 0..l1 {
        let make = |name: &str| {
            files::make_directory(tree.root(), name)
                .map_err(|e| failed("create", &path.join(name), e))
        };
        make(&format!("{d1:02X}"))?;
        for d2 in 0..l2 {
            make(&files::directory_name(d1, d2))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Levels;
    use crate::tree::DirOptions;
    use std::fs;

    fn options(path: &Path) -> DirOptions {
        DirOptions { own: Levels { l1: 2, l2: 3 }, ..DirOptions::new(path, 1 << 20) }
    }

    #[test]
    fn claiming_makes_the_tree_and_again_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new/cache");
        assert!(claim(&options(&path)).is_ok_and(|claimed| claimed.is_new));
        assert!(
            path.join("01/02").is_dir()
                && !path.join("02").exists()
                && !path.join("00/03").exists()
        );
        fs::remove_dir(path.join("01/02")).expect("it is empty");
        assert!(claim(&options(&path)).is_ok_and(|claimed| !claimed.is_new));
        assert!(path.join("01/02").is_dir());
    }

    #[test]
    fn a_directory_can_be_claimed_once_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = claim(&options(dir.path())).expect("the first");
        assert!(matches!(claim(&options(dir.path())), Err(OpenError::Locked { .. })));
        drop(first);
        assert!(claim(&options(dir.path())).is_ok());
    }

    fn snapshot(path: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(path).expect("listing").map(|e| e.expect("an entry").path());
        let mut all: Vec<_> =
            entries.map(|p| (p.display().to_string(), fs::read(&p).unwrap_or_default())).collect();
        all.sort();
        all
    }

    #[test]
    fn foreign_directories_are_refused_untouched() {
        let mut squid = vec![0; 72];
        (squid[0], squid[4], squid[8]) = (3, 2, 72);
        for (name, content) in
            [("letters.txt", &b"dear"[..]), ("swap.state", b"garbage"), ("swap.state", &squid)]
        {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(dir.path().join(name), content).expect("a file");
            let before = snapshot(dir.path());
            let error = claim(&options(dir.path())).err().expect("refused");
            assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
            assert_eq!(snapshot(dir.path()), before);
        }
    }

    #[test]
    fn squids_log_is_refused_even_in_our_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(claim(&options(dir.path())));
        fs::write(dir.path().join("swap.state"), [3, 9, 9, 9, 2, 0, 0, 0, 72, 0, 0, 0])
            .expect("a file");
        assert!(matches!(claim(&options(dir.path())), Err(OpenError::Foreign { .. })));
    }

    #[test]
    fn other_levels_and_nonsense_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("lost+found")).expect("a directory");
        drop(claim(&options(dir.path())));
        let other = DirOptions { own: Levels { l1: 2, l2: 4 }, ..options(dir.path()) };
        let message = claim(&other).err().expect("refused").to_string();
        assert!(message.contains("l2 3") && message.contains("l2 4"), "{message}");
        for bad in [
            DirOptions { own: Levels { l1: 0, l2: 4 }, ..other.clone() },
            DirOptions { swap_low_pct: 96, ..other },
        ] {
            assert!(matches!(claim(&bad), Err(OpenError::BadOption { .. })));
        }
        let below_a_file = options(&dir.path().join(LOCK_FILE).join("x"));
        assert!(matches!(claim(&below_a_file), Err(OpenError::Io { .. })));
    }
}
