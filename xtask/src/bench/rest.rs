//! File systems must rest between benchmarks: files created soon after many were deleted cost ext4
//! up to fifteen times as much, since it avoids the numbers of files that were deleted in the last
//! five minutes.

use crate::Outcome;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// As long as ext4 at most avoids the number of a deleted file.
const REST: Duration = Duration::from_secs(300);

/// Whose time of change is when a benchmark last deleted its files.
fn stamp() -> PathBuf {
    std::env::temp_dir().join("humboldt-bench.deleted")
}

/// Waits until no benchmark has deleted files for a while.
pub(super) fn wait() {
    let left = left(&stamp(), SystemTime::now());
    if !left.is_zero() {
        println!(
            "note: the file system rests for {} s, as many files were just deleted",
            left.as_secs() + 1
        );
        std::thread::sleep(left);
    }
}

fn left(stamp: &Path, now: SystemTime) -> Duration {
    let deleted = fs::metadata(stamp).and_then(|found| found.modified());
    let ago = deleted.ok().and_then(|deleted| now.duration_since(deleted).ok());
    ago.map_or(Duration::ZERO, |ago| REST.saturating_sub(ago))
}

/// To be called when many files have been deleted.
pub(super) fn files_were_deleted() -> Outcome {
    Ok(File::create(stamp())?.set_modified(SystemTime::now())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_ends_five_minutes_after_the_deletion() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stamp");
        let now = SystemTime::now();
        assert_eq!(left(&path, now), Duration::ZERO, "nothing was ever deleted");
        File::create(&path).unwrap().set_modified(now - Duration::from_secs(100)).unwrap();
        assert_eq!(left(&path, now), Duration::from_secs(200));
        assert_eq!(left(&path, now + Duration::from_secs(201)), Duration::ZERO);
    }
}
