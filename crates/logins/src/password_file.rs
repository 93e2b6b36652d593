//! Password files of the kind that `htpasswd` writes: a name, a colon and a hash on each line.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// Largest password file; a larger one counts as unreadable.
pub(crate) const PASSWORD_FILE_BYTES_MAX: u64 = 64 << 20;

/// The state of a file by which a change is noticed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Version {
    changed: (i64, i64),
    inode: u64,
    bytes: u64,
}

/// The hashes of a file, by name.
#[derive(Debug, Default)]
pub(crate) struct Passwords(HashMap<Box<[u8]>, Box<str>>);

impl FromText for Passwords {
    /// Reads the text of a file as Squid's helper does. Lines that begin with `#` or a blank are
    /// comments; of several lines about one name the last counts; a second colon ends the hash.
    fn parse(text: &[u8]) -> Self {
        let mut hashes = HashMap::new();
        for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
            if matches!(line.first(), None | Some(b'#' | b' ' | b'\t')) {
                continue;
            }
            let mut parts = line.split(|byte| *byte == b':').filter(|part| !part.is_empty());
            if let (Some(user), Some(hash)) = (parts.next(), parts.next())
                && let Ok(hash) = std::str::from_utf8(hash)
            {
                hashes.insert(user.into(), hash.into());
            }
        }
        Self(hashes)
    }
}

impl Passwords {
    /// The hash of a user's password.
    pub(crate) fn get(&self, user: &[u8]) -> Option<&str> {
        self.0.get(user).map(|hash| &**hash)
    }

    /// Names and hashes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &str)> {
        self.0.iter().map(|(user, hash)| (&**user, &**hash))
    }
}

/// What the text of a file says.
pub(crate) trait FromText {
    fn parse(text: &[u8]) -> Self;
}

/// A password file that is read again when it has changed.
#[derive(Debug)]
pub(crate) struct PasswordFile<P> {
    path: PathBuf,
    read: Mutex<Option<(Version, Arc<P>)>>,
    /// The log says that the file cannot be read.
    has_complained: AtomicBool,
}

impl<P: FromText> PasswordFile<P> {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::new(None), has_complained: AtomicBool::new(false) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps all others from the file.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.read.lock()
    }

    /// The same; `None`, and once a line in cache.log, if the file cannot be read.
    pub(crate) fn passwords_or_complain(&self) -> Option<(Arc<P>, bool)> {
        match self.passwords() {
            Ok(found) => {
                self.has_complained.store(false, Relaxed);
                Some(found)
            }
            Err(error) => {
                if !self.has_complained.swap(true, Relaxed) {
                    let path = self.path.display();
                    tracing::error!("logins cannot be checked: cannot read {path}: {error}");
                }
                None
            }
        }
    }

    /// The hashes that are in the file now, and whether they were just read. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is too large. Hashes from before do not count then: a file that
    /// was taken away gives access to nobody.
    pub(crate) fn passwords(&self) -> io::Result<(Arc<P>, bool)> {
        let mut read = self.read.lock();
        let metadata = std::fs::metadata(&self.path).inspect_err(|_| *read = None)?;
        let version = Version {
            changed: (metadata.mtime(), metadata.mtime_nsec()),
            inode: metadata.ino(),
            bytes: metadata.size(),
        };
        if let Some((known, passwords)) = &*read
            && *known == version
        {
            return Ok((Arc::clone(passwords), false));
        }
        *read = None;
        let mut text = zeroize::Zeroizing::new(Vec::new());
        File::open(&self.path)?.take(PASSWORD_FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > PASSWORD_FILE_BYTES_MAX {
            let megabytes = PASSWORD_FILE_BYTES_MAX >> 20;
            return Err(io::Error::other(format!("it has more than {megabytes} MB")));
        }
        let passwords = Arc::new(P::parse(&text));
        *read = Some((version, Arc::clone(&passwords)));
        Ok((passwords, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_squids_helper_does() {
        let text = b"# comment\n\n indented:x\nanna:$apr1$a$b\nbo:1:more\r\nanna:last\n:none\neve\nj\xf6rg:h\n";
        let passwords = Passwords::parse(text);
        for (user, hash) in [
            (&b"anna"[..], Some("last")),
            (b"bo", Some("1")),
            (b"eve", None),
            (b"indented", None),
            (b" indented", None),
            (b"# comment", None),
            (b"none", None),
            (b"j\xf6rg", Some("h")),
        ] {
            assert_eq!(passwords.get(user), hash, "{}", String::from_utf8_lossy(user));
        }
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_missing_one_has_no_users() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("passwd");
        let file: PasswordFile<Passwords> = PasswordFile::new(path.clone());
        assert!(file.passwords().is_err());
        std::fs::write(&path, "anna:one\n").expect("written");
        let (first, is_new) = file.passwords().expect("read");
        assert!(is_new && first.get(b"anna") == Some("one"));
        assert!(!file.passwords().expect("read").1);
        std::fs::write(&path, "anna:second\n").expect("written");
        let (second, is_new) = file.passwords().expect("read");
        assert!(is_new && second.get(b"anna") == Some("second"));
        std::fs::remove_file(&path).expect("removed");
        assert!(file.passwords().is_err());
    }
}
