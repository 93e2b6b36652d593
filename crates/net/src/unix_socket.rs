//! Unix sockets to listen on, and their files.
//!
//! A socket is made under a name that nobody can guess, without rights; it gets its owner and its
//! rights through a descriptor of its file, listens, and only then is linked to its place. So
//! nobody meets it with other rights, a link in a directory that another user may write to leads
//! nowhere, and no file of another is replaced: a link fails where a file is. A file there is
//! removed only if it is a socket on which no process listens, and belongs to the user who would
//! own the new one, or to us. A lock beside the file keeps others of our kind from doing so
//! meanwhile.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use humboldt_sys::socket_file::{PathLock, SocketInode, hide};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::listener::{BACKLOG, ListenError, PortSocket};

/// Bits of the random number behind the path of a socket that is not ready yet: a dot and six
/// digits, with which the longest path still fits in an address.
const UNREADY_BITS: u32 = 24;

/// The file of a socket that we listen on. It is removed when this is dropped, if it is still the
/// same file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
    identity: (u64, u64),
    /// Of the one at its place. It goes after the file.
    _lock: Option<PathLock>,
}

/// The rights and the owner of a new socket.
#[derive(Copy, Clone, Debug)]
pub struct Rights {
    /// Who may read and write. Connecting needs the right to write.
    pub mode: u32,
    /// User and group, if not those of this process.
    pub owner: Option<(u32, u32)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_same = identity_of(&self.path).is_ok_and(|found| found == self.identity);
        // A directory may belong to root, whose rights this process has given up. The next start
        // finds a socket that nobody listens on.
        if is_same && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("{} stays: {error}", self.path.display());
        }
    }
}

/// Opens a Unix socket that `count` cores accept from. They share one queue: a connection wakes all
/// cores that are idle, and goes to the first that asks for it.
pub fn bind(
    path: &Path,
    rights: Rights,
    count: usize,
) -> Result<(Vec<PortSocket>, SocketFile), ListenError> {
    let failed = |source| ListenError::Unix { path: path.to_owned(), source };
    let Some(lock) = PathLock::take(path, rights.owner).map_err(failed)? else {
        return Err(ListenError::UnixInUse { path: path.to_owned() });
    };
    make_way(path, rights)?;
    let unready = unready(path);
    let (listener, file) = create(&unready, rights).map_err(failed)?;
    fs::hard_link(&unready, path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => ListenError::UnixInUse { path: path.to_owned() },
        _ => failed(source),
    })?;
    let identity = file.identity;
    drop(file);
    if identity_of(path).map_err(failed)? != identity {
        return Err(ListenError::UnixInUse { path: path.to_owned() });
    }
    let file = SocketFile { path: path.to_owned(), identity, _lock: Some(lock) };
    let share = |_| listener.try_clone().map(|socket| PortSocket::unix(socket, path));
    let sockets: io::Result<Vec<_>> = (0..count).map(share).collect();
    Ok((sockets.map_err(failed)?, file))
}

/// A name beside `path` that nobody can guess.
fn unready(path: &Path) -> PathBuf {
    let number = RandomState::new().hash_one(path) & ((1 << UNREADY_BITS) - 1);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number:06x}"));
    PathBuf::from(name)
}

/// Device and inode.
fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Makes a socket that listens.
fn create(path: &Path, rights: Rights) -> io::Result<(UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    hide(&socket)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let found = SocketInode::open(path)?;
    let file = SocketFile { path: path.to_owned(), identity: found.identity(), _lock: None };
    found.give(rights.owner, rights.mode)?;
    socket.listen(BACKLOG)?;
    Ok((socket.into(), file))
}

/// Removes a socket that nobody listens on any more.
fn make_way(path: &Path, rights: Rights) -> Result<(), ListenError> {
    let path_of = || path.to_owned();
    let failed = |source| ListenError::Unix { path: path_of(), source };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::NoSocket { path: path_of() });
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    match socket.connect(&SockAddr::unix(path).map_err(failed)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // It listens, whether it has room for a connection or not; or nobody knows.
        Ok(()) | Err(_) => return Err(ListenError::UnixInUse { path: path_of() }),
    }
    let ours = [Some(humboldt_sys::privileges::own_user()), rights.owner.map(|(user, _)| user)];
    if !ours.contains(&Some(found.uid())) {
        return Err(ListenError::NotOurs { path: path_of(), user: found.uid() });
    }
    if identity_of(path).map_err(failed)? != (found.dev(), found.ino()) {
        return Err(ListenError::UnixInUse { path: path_of() });
    }
    fs::remove_file(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::listener::Listener;

    const RIGHTS: Rights = Rights { mode: 0o640, owner: None };

    fn place() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("proxy.sock");
        (place, path)
    }

    #[tokio::test]
    async fn cores_share_one_socket_whose_clients_have_no_address() {
        let (place, path) = place();
        let (sockets, file) = bind(&path, RIGHTS, 2).expect("bound");
        let mode = fs::symlink_metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let mut listeners: Vec<_> =
            sockets.into_iter().map(|one| Listener::new(one).expect("a listener")).collect();
        let (mut second, mut first) = (listeners.pop().unwrap(), listeners.pop().unwrap());
        for _ in 0..8 {
            let mut client = tokio::net::UnixStream::connect(&path).await.expect("connected");
            let (stream, peer) = tokio::select! {
                accepted = first.accept() => accepted,
                accepted = second.accept() => accepted,
            };
            assert!(peer.ip().is_unspecified() && peer.port() == 0);
            assert_eq!(stream.try_write(b"x").expect("written"), 1);
            assert_eq!(client.read_u8().await.expect("read"), b'x');
        }
        drop(file);
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_replaced_and_no_other_file() {
        let (_place, path) = place();
        drop(UnixListener::bind(&path).expect("bound"));
        let (_sockets, file) = bind(&path, RIGHTS, 1).expect("bound in place of the old one");
        let error = bind(&path, RIGHTS, 1).expect_err("in use");
        assert!(matches!(error, ListenError::UnixInUse { .. }), "{error}");
        UnixStream::connect(&path).expect("the first one still listens");
        // Another file has its place meanwhile.
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "text").expect("written");
        drop(file);
        assert_eq!(fs::read_to_string(&path).expect("read"), "text");
        let error = bind(&path, RIGHTS, 1).expect_err("no socket");
        assert!(matches!(error, ListenError::NoSocket { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "text");
    }

    /// The other one may have found it dead a moment ago, and is about to replace it.
    #[test]
    fn while_another_start_has_the_lock_a_dead_socket_stays() {
        let (place, path) = place();
        drop(UnixListener::bind(&path).expect("bound"));
        let lock = PathLock::take(&path, None).expect("made").expect("free");
        let error = bind(&path, RIGHTS, 1).expect_err("another makes it");
        assert!(matches!(error, ListenError::UnixInUse { .. }) && path.exists(), "{error}");
        drop(lock);
        let (_sockets, file) = bind(&path, RIGHTS, 1).expect("bound");
        drop(file);
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn what_is_no_dead_socket_of_ours_stays() {
        let (place, path) = place();
        let _datagrams = UnixDatagram::bind(&path).expect("bound");
        let error = bind(&path, RIGHTS, 1).expect_err("in use");
        assert!(matches!(error, ListenError::UnixInUse { .. }), "{error}");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(matches!(bind(&link, RIGHTS, 1), Err(ListenError::NoSocket { .. })));
        // Only root can make a file another's.
        let other = place.path().join("other");
        drop(UnixListener::bind(&other).expect("bound"));
        if lchown(&other, Some(65534), None).is_ok() {
            let error = bind(&other, RIGHTS, 1).expect_err("another's");
            assert!(matches!(error, ListenError::NotOurs { user: 65534, .. }), "{error}");
            assert!(other.exists());
            let theirs = Rights { owner: Some((65534, 65534)), ..RIGHTS };
            bind(&other, theirs, 1).expect("it would be theirs");
        }
        let nowhere = bind(&place.path().join("no/where"), RIGHTS, 1).expect_err("no directory");
        assert!(matches!(nowhere, ListenError::Unix { .. }), "{nowhere}");
    }
}
