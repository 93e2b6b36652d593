//! A memory limit for a process, as containers have it: a control group, of version 1 or 2.

use crate::Outcome;
use std::fs;
use std::path::{Path, PathBuf};

/// The mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// A control group of its own; removed when it is dropped, after its process has ended.
pub(super) struct MemoryLimit {
    folder: PathBuf,
}

impl MemoryLimit {
    /// Makes a group with this limit, page cache included. An error if this system, or this user,
    /// cannot.
    pub(super) fn new(name: &str, limit_bytes: u64) -> Outcome<Self> {
        let is_v2 = Path::new(ROOT).join("cgroup.controllers").exists();
        let (parent, file) = match is_v2 {
            true => (PathBuf::from(ROOT), "memory.max"),
            false => (Path::new(ROOT).join("memory"), "memory.limit_in_bytes"),
        };
        let folder = parent.join(format!("humboldt-bench-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("no control group for memory: {error}"))?;
        let limit = Self { folder };
        fs::write(limit.folder.join(file), limit_bytes.to_string())
            .map_err(|error| format!("the control group has no limit for memory: {error}"))?;
        Ok(limit)
    }

    /// Puts a process into the group. Its earlier allocations are not counted.
    pub(super) fn hold(&self, process: u32) -> Outcome {
        Ok(fs::write(self.folder.join("cgroup.procs"), process.to_string())?)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group is no folder with files: it can be removed when no process is in it.
        let _ = fs::remove_dir(&self.folder);
    }
}
