//! Limit of written data that has not reached a device: the kernel's `vm.dirty_bytes`.
//!
//! With the memory of today a whole small store fits between a cache and its disk, and no request
//! ever waits for the disk. On the machines of the book all requests waited for it.

use crate::keeper::{Keeper, Kept};
use crate::undo::Undo;
use crate::{Host, SubjectError};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The kernel accepts no fewer than two pages; below this the limit would be about single files.
const BYTES_MIN: u64 = 1 << 20;

/// The limit while it holds. Only one laboratory of a machine has one: another would take this one
/// for what was there before, and leave it for ever.
#[derive(Debug)]
pub(crate) struct DirtyLimit {
    pub(crate) bytes: u64,
    kept: Kept,
    /// Unlocked after the limit has been taken back.
    _only: OnlyLaboratory,
}

impl DirtyLimit {
    /// Takes it back.
    pub(crate) fn undo(self) -> Result<(), SubjectError> {
        self.kept.undo()
    }
}

/// Why there is no limit.
#[derive(Debug)]
pub(crate) enum NoLimit {
    /// It cannot be set here.
    Impossible(String),
    /// Another laboratory has one.
    Taken,
}

impl From<String> for NoLimit {
    fn from(reason: String) -> Self {
        Self::Impossible(reason)
    }
}

/// Sets it for the whole machine until it is dropped.
pub(crate) fn limit(host: &Host, keeper: &Keeper, bytes: u64) -> Result<DirtyLimit, NoLimit> {
    if !host.is_root {
        return Err("needs root".to_owned().into());
    }
    if bytes < BYTES_MIN {
        return Err(format!("at least {BYTES_MIN} bytes").into());
    }
    let folder = host.proc.join("sys/vm");
    let file = folder.join("dirty_bytes");
    let only = OnlyLaboratory::of(&file)?;
    let read = |name: &str| -> Result<String, String> {
        let file = folder.join(name);
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(text.trim().to_owned())
    };
    // Either of the two holds; the other one reads 0. Writing one clears the other.
    let (former, value) = match read("dirty_bytes")?.as_str() {
        "0" => (folder.join("dirty_ratio"), read("dirty_ratio")?),
        bytes => (file.clone(), bytes.to_owned()),
    };
    let undo = Undo::WriteBack { own: file.clone(), is: bytes.to_string(), former, value };
    let kept = keeper.keep(host, undo).map_err(|error| error.to_string())?;
    fs::write(&file, bytes.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(DirtyLimit { bytes, kept, _only: only })
}

/// The right to limit that data, which one laboratory of a machine has, until the last of these is
/// dropped.
#[derive(Debug)]
pub struct OnlyLaboratory {
    _locked: Arc<File>,
}

/// The file that this process has locked.
static LOCKED: Mutex<(PathBuf, Weak<File>)> = Mutex::new((PathBuf::new(), Weak::new()));

impl OnlyLaboratory {
    /// For the time of several runs; `None` where none of them could limit anything.
    ///
    /// # Errors
    /// If another laboratory has it.
    pub fn new(host: &Host) -> Result<Option<Self>, SubjectError> {
        if !host.is_root {
            return Ok(None);
        }
        match Self::of(&host.proc.join("sys/vm/dirty_bytes")) {
            Ok(only) => Ok(Some(only)),
            Err(NoLimit::Impossible(_)) => Ok(None),
            Err(NoLimit::Taken) => Err(taken()),
        }
    }

    fn of(file: &Path) -> Result<Self, NoLimit> {
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        if locked.0 == file
            && let Some(own) = locked.1.upgrade()
        {
            return Ok(Self { _locked: own });
        }
        let own = Arc::new(lock(file)?);
        *locked = (file.to_owned(), Arc::downgrade(&own));
        Ok(Self { _locked: own })
    }
}

/// Another laboratory has it.
pub(crate) fn taken() -> SubjectError {
    SubjectError::Environment(
        "another laboratory limits the data that this machine has not written back yet \
         (vm.dirty_bytes): wait for its end"
            .to_owned(),
    )
}

/// The kernel's file, locked for this laboratory until it is closed, also by its death.
fn lock(file: &Path) -> Result<File, NoLimit> {
    let cannot = |error| NoLimit::Impossible(format!("{}: {error}", file.display()));
    let own = File::open(file).map_err(cannot)?;
    match own.try_lock() {
        Ok(()) => Ok(own),
        Err(TryLockError::WouldBlock) => Err(NoLimit::Taken),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_of_one_laboratory_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dirty_bytes");
        fs::write(&file, "0\n").expect("a file");
        let own = lock(&file).expect("nobody has it");
        assert!(matches!(lock(&file), Err(NoLimit::Taken)));
        drop(own);
        let several = [OnlyLaboratory::of(&file), OnlyLaboratory::of(&file)];
        assert!(several.iter().all(Result::is_ok), "its own runs share it");
        assert!(matches!(lock(&file), Err(NoLimit::Taken)));
        drop(several);
        assert!(lock(&file).is_ok());
        assert!(matches!(lock(&folder.path().join("none")), Err(NoLimit::Impossible(_))));
    }
}
