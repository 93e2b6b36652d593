//! Folders and disks of the tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A folder that subjects which give up root's rights can reach into; removed when dropped.
pub(crate) fn folder() -> TempDir {
    let folder = TempDir::with_prefix("lab-test-").expect("a temporary folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("open to others");
    folder
}

/// Writes a file into a folder; returns its path as a word of a command line.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("room for a small file");
    path.to_str().expect("a plain name").to_owned()
}

/// Whether this test may mount. Says so if not.
pub(crate) fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("left out: {what} needs root");
    }
    is_root
}

/// A file system in memory of a given size. Unmounted when dropped.
pub(crate) struct FullDisk {
    folder: TempDir,
}

impl FullDisk {
    /// With room for this many bytes.
    pub(crate) fn of(size_bytes: u64) -> Self {
        let folder = folder();
        let size = format!("size={size_bytes},mode=755");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        assert!(mount.status().expect("mount").success(), "a tmpfs cannot be mounted");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}
