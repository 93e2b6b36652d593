//! Files of Unix sockets in directories that others may write to: rights without a path, and a lock
//! beside the file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Uid};

/// Behind the path of a socket: the file that is locked while the socket is there.
const LOCK: &str = ".lock";

/// How often the lock is tried again when others remove its file at the same time.
const TRIES_MAX: usize = 16;

/// The file that a socket got when it was bound. No other can be put in its place.
#[derive(Debug)]
pub struct SocketInode {
    file: OwnedFd,
    identity: (u64, u64),
}

/// Nobody has a right to the file that this socket will be bound to.
pub fn hide(unbound: impl AsFd) -> io::Result<()> {
    rustix::fs::fchmod(unbound, Mode::empty()).map_err(io::Error::from)
}

impl SocketInode {
    /// Finds the file of a [hidden](hide) socket right after it was bound.
    ///
    /// # Errors
    /// Something else has its place: a link, or a file that is not ours, not new or not hidden.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::Socket
            && found.st_mode & 0o7777 == 0
            && found.st_uid == crate::privileges::own_user()
            && found.st_nlink == 1;
        match is_ours {
            true => Ok(Self { file, identity: (found.st_dev, found.st_ino) }),
            false => Err(io::Error::other("another process puts files there")),
        }
    }

    /// Its device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Sets its owner, if it is to have another, and then its mode.
    ///
    /// # Errors
    /// That is not permitted, or `/proc` is missing.
    pub fn give(&self, owner: Option<(u32, u32)>, mode: u32) -> io::Result<()> {
        if let Some((user, group)) = owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            let flags = AtFlags::EMPTY_PATH;
            rustix::fs::chownat(&self.file, "", Some(user), Some(group), flags)?;
        }
        // A descriptor that is only a place has no mode to set; this names what it is open for.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        fs::set_permissions(path, Permissions::from_mode(mode))
    }
}

/// The right to make, replace and remove the socket at a path. Its file is removed with it.
#[derive(Debug)]
pub struct PathLock {
    path: PathBuf,
    _file: File,
}

impl PathLock {
    /// `None`: another process has it. The file belongs to `user` then, who may be the one that the
    /// next start has.
    ///
    /// # Errors
    /// The file beside the socket cannot be made or locked.
    pub fn take(socket: &Path, owner: Option<(u32, u32)>) -> io::Result<Option<Self>> {
        let mut path = socket.as_os_str().to_owned();
        path.push(LOCK);
        let path = PathBuf::from(path);
        for _ in 0..TRIES_MAX {
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
            let file = options.open(&path)?;
            let facts = file.metadata()?;
            if !facts.is_file() || facts.nlink() > 1 {
                return Err(io::Error::other(format!("{} is another's file", path.display())));
            }
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            let is_there = fs::symlink_metadata(&path)
                .is_ok_and(|found| (found.dev(), found.ino()) == (facts.dev(), facts.ino()));
            if !is_there {
                continue;
            }
            if facts.len() == 0
                && facts.uid() == crate::privileges::own_user()
                && let Some((user, _)) = owner.filter(|(user, _)| *user != facts.uid())
            {
                rustix::fs::fchown(&file, Some(Uid::from_raw(user)), None)?;
            }
            return Ok(Some(Self { path, _file: file }));
        }
        Ok(None)
    }
}

impl Drop for PathLock {
    /// Who has opened the file meanwhile sees that it is no longer there, and makes a new one.
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_lock_is_taken_once_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let socket = place.path().join("socket");
        let lock = PathLock::take(&socket, None).expect("made").expect("free");
        assert!(PathLock::take(&socket, None).expect("looked at").is_none());
        drop(lock);
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
        assert!(PathLock::take(&socket, None).expect("made").is_some());
        std::os::unix::fs::symlink("/etc/passwd", place.path().join("socket.lock")).expect("made");
        assert!(PathLock::take(&socket, None).is_err());
    }

    #[test]
    fn links_and_other_sockets_get_no_rights() {
        let place = tempfile::tempdir().expect("a directory");
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&file, "").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        assert!(SocketInode::open(&file).is_err() && SocketInode::open(&link).is_err());
        let visible = place.path().join("visible");
        let _listener = UnixListener::bind(&visible).expect("bound");
        assert!(SocketInode::open(&visible).is_err());
        fs::set_permissions(&visible, Permissions::from_mode(0o000)).expect("set");
        let found = SocketInode::open(&visible).expect("ours");
        // The path may lead elsewhere meanwhile.
        let moved = place.path().join("moved");
        fs::rename(&visible, &moved).expect("moved");
        std::os::unix::fs::symlink(&file, &visible).expect("linked");
        let before = fs::metadata(&file).expect("there").mode();
        found.give(None, 0o640).expect("set");
        assert_eq!(fs::metadata(&file).expect("there").mode(), before);
        assert_eq!(fs::metadata(&moved).expect("there").mode() & 0o777, 0o640);
    }
}
