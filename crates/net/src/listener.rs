//! Listening sockets: one per core and port, sharing the port with SO_REUSEPORT.
//!
//! Unix sockets are in [`unix_socket`](crate::unix_socket).
//!
//! They are opened by the main thread, before privileges are dropped, and handed to the cores.
//! Accepting never fails: without free descriptors it pauses and leaves new connections in the
//! kernel's backlog.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::time::Instant;

use crate::stream::NO_ADDRESS;
use crate::{Stream, port_owner};

/// Connections the kernel holds for each listening socket before we accept them
/// (`net.core.somaxconn` may lower it).
pub(crate) const BACKLOG: i32 = 4096;

/// First and longest pause after the system had no descriptor or memory for a new connection.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The shortage is reported at most once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Why a port cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another socket listens there.
    #[error("{addr} is in use{}", by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default())]
    InUse {
        /// The address.
        addr: SocketAddr,
        /// The process that listens, as `name (process 123)`, where the system tells us.
        by: Option<String>,
    },
    /// Ports below 1024 need a privilege.
    #[error("not permitted to listen on {addr}: start as root, or with CAP_NET_BIND_SERVICE")]
    Denied {
        /// The address.
        addr: SocketAddr,
    },
    /// Taking other machines' connections needs a privilege.
    #[error("not permitted to use tproxy on {addr}: start as root, or with CAP_NET_ADMIN")]
    NotTransparent {
        /// The address.
        addr: SocketAddr,
    },
    /// The address is not one of this machine's.
    #[error("{addr} is not an address of this machine")]
    NoSuchAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// A process listens on this Unix socket, or somebody makes one at the same moment.
    #[error("unix:{} is in use: another process listens there", path.display())]
    UnixInUse {
        /// The path.
        path: PathBuf,
    },
    /// A file is in the way that is no Unix socket.
    #[error(
        "unix:{} is a file of another kind: remove it, or choose another path",
        path.display()
    )]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// A Unix socket that nobody listens on is in the way.
    #[error(
        "unix:{} was left behind by user {user}: remove it, or choose another path",
        path.display()
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// The owner.
        user: u32,
    },
    /// A Unix socket cannot be made.
    #[error("cannot listen on unix:{}: {source}", path.display())]
    Unix {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot listen on {addr}: {source}")]
    Other {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that listens, on its way to the core that will accept.
#[derive(Debug)]
pub struct PortSocket(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

impl PortSocket {
    pub(crate) fn unix(socket: std::os::unix::net::UnixListener, path: &Path) -> Self {
        Self(Bound::Unix(socket, path.to_owned()))
    }
}

/// Opens `count` sockets that listen on the same port. Without an address they listen on all
/// addresses of both families, or of IPv4 alone where IPv6 is not available. Port 0 takes any free
/// port, the same for all.
///
/// With `transparent` they also take connections to other machines' addresses, which a packet
/// filter hands over (TPROXY).
///
/// Fails when anyone else listens there, even with SO_REUSEPORT: two caches must not share a port
/// by accident.
pub fn bind(
    ip: Option<IpAddr>,
    port: u16,
    count: usize,
    transparent: bool,
) -> Result<Vec<PortSocket>, ListenError> {
    let bind_all = |addr| bind_all(addr, count, transparent);
    if let Some(ip) = ip {
        return bind_all(SocketAddr::new(ip, port));
    }
    match bind_all(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        // The errors of a machine without IPv6: "address family not supported" or "no such
        // address".
        Err(ListenError::Other { .. } | ListenError::NoSuchAddress { .. }) => {
            bind_all(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        }
        result => result,
    }
}

fn bind_all(
    mut addr: SocketAddr,
    count: usize,
    transparent: bool,
) -> Result<Vec<PortSocket>, ListenError> {
    // Without SO_REUSEPORT a bind fails if anybody listens; it also picks the port when it is 0.
    let probe = open(addr, false).map_err(|source| explain(addr, source))?;
    if let Some(local) = probe.local_addr().ok().and_then(|local| local.as_socket()) {
        addr = local;
    }
    drop(probe);
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = open(addr, true).map_err(|source| explain(addr, source))?;
        if transparent {
            make_transparent(&socket, addr)?;
        }
        let socket = socket.listen(BACKLOG).map(|()| socket);
        let socket = socket.map_err(|source| explain(addr, source))?;
        listeners.push(PortSocket(Bound::Tcp(socket.into())));
    }
    Ok(listeners)
}

fn open(addr: SocketAddr, share_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if let IpAddr::V6(ip) = addr.ip() {
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share_port)?;
    // Linux hands both down to every accepted socket: two system calls fewer per connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

fn make_transparent(socket: &Socket, addr: SocketAddr) -> Result<(), ListenError> {
    // A socket for both families takes the option of each.
    let v4 = socket.set_ip_transparent_v4(true);
    let result = match addr {
        SocketAddr::V4(_) => v4,
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    };
    result.map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => ListenError::NotTransparent { addr },
        _ => ListenError::Other { addr, source },
    })
}

fn explain(addr: SocketAddr, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            ListenError::InUse { addr, by: port_owner::who_listens(addr.port()) }
        }
        io::ErrorKind::PermissionDenied => ListenError::Denied { addr },
        io::ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress { addr },
        _ => ListenError::Other { addr, source },
    }
}

/// A listening socket on its core.
#[derive(Debug)]
pub struct Listener {
    socket: Accepting,
    /// Where it listens, for messages.
    place: String,
    pause: Duration,
    reported: Option<Instant>,
}

#[derive(Debug)]
enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok((stream.into(), SocketAddr::new(peer.ip().to_canonical(), peer.port())))
            }
            Self::Unix(socket) => Ok((socket.accept().await?.0.into(), NO_ADDRESS)),
        }
    }
}

impl AsFd for Accepting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Listener {
    /// Takes over a socket made by [`bind`] or [`unix_socket::bind`](crate::unix_socket::bind);
    /// call it on the core that will accept.
    pub fn new(PortSocket(socket): PortSocket) -> io::Result<Self> {
        let (socket, place) = match socket {
            Bound::Tcp(socket) => {
                let place = socket.local_addr()?.to_string();
                (Accepting::Tcp(tokio::net::TcpListener::from_std(socket)?), place)
            }
            Bound::Unix(socket, path) => {
                let place = format!("unix:{}", path.display());
                (Accepting::Unix(tokio::net::UnixListener::from_std(socket)?), place)
            }
        };
        Ok(Self { socket, place, pause: PAUSE_MIN, reported: None })
    }

    /// The number that the next descriptor of this process would have: as many are open, since it
    /// is the lowest that is free. `None`: there is none.
    pub fn next_descriptor(&self) -> Option<u64> {
        let copy = self.socket.as_fd().try_clone_to_owned().ok()?;
        u64::try_from(copy.as_raw_fd()).ok()
    }

    /// The next connection, with TCP_NODELAY set, and the client's address (an IPv4 client of a
    /// socket for both families has its IPv4 address; a client on a Unix socket has 0.0.0.0, port
    /// 0). Cancel-safe.
    ///
    /// A connection that ended before it was accepted is skipped. When descriptors or memory are
    /// short it pauses, longer each time, and reports it once a minute.
    pub async fn accept(&mut self) -> (Stream, SocketAddr) {
        self.accept_or(|| false).await
    }

    /// As [`Listener::accept`]. `make_room` is called when descriptors or memory are short, and
    /// returns whether some will be free soon.
    pub async fn accept_or(&mut self, mut make_room: impl FnMut() -> bool) -> (Stream, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok(accepted) => {
                    self.pause = PAUSE_MIN;
                    return accepted;
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    if make_room() {
                        self.pause = PAUSE_MIN;
                    } else {
                        self.report(&error);
                    }
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    fn report(&mut self, error: &io::Error) {
        if self.reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            self.reported = Some(Instant::now());
            tracing::warn!(
                "cannot accept connections on {} for now: {error}; they wait",
                self.place
            );
        }
    }
}

/// Errors of accept(2) that say something of the connection, not of this process. Linux passes on
/// pending network errors of the new socket.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | Interrupted
            | WouldBlock
            | TimedOut
            | NetworkUnreachable
            | NetworkDown
            | HostUnreachable
            | PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn addr_of(PortSocket(socket): &PortSocket) -> SocketAddr {
        match socket {
            Bound::Tcp(socket) => socket.local_addr().unwrap(),
            Bound::Unix(..) => NO_ADDRESS,
        }
    }

    #[tokio::test]
    async fn several_sockets_share_one_port_and_accept() {
        let sockets = bind(Some(LOOPBACK), 0, 2, false).unwrap();
        let addr = addr_of(&sockets[0]);
        assert_eq!(addr, addr_of(&sockets[1]));
        let mut listeners: Vec<_> =
            sockets.into_iter().map(|s| Listener::new(s).unwrap()).collect();
        let (second, first) = (listeners.pop().unwrap(), listeners.pop().unwrap());
        let (mut first, mut second) = (first, second);
        for _ in 0..8 {
            let mut client = TcpStream::connect(addr).await.unwrap();
            let (stream, peer) = tokio::select! {
                accepted = first.accept() => accepted,
                accepted = second.accept() => accepted,
            };
            assert_eq!(peer, client.local_addr().unwrap());
            assert!(
                socket2::SockRef::from(&stream).tcp_nodelay().unwrap(),
                "inherited from the listening socket"
            );
            assert_eq!(stream.try_write(b"x").unwrap(), 1);
            assert_eq!(client.read_u8().await.unwrap(), b'x');
        }
    }

    #[test]
    fn a_port_in_use_is_refused_even_when_it_could_be_shared() {
        let ours = bind(Some(LOOPBACK), 0, 1, false).unwrap();
        let addr = addr_of(&ours[0]);
        let error = bind(Some(LOOPBACK), addr.port(), 2, false).unwrap_err();
        assert!(matches!(&error, ListenError::InUse { by: Some(_), .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("{addr} is in use by ")), "{text}");
        assert!(text.contains(&std::process::id().to_string()), "{text}");
    }

    #[test]
    fn an_address_of_another_machine_is_explained() {
        let documentation = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let error = bind(Some(documentation), 0, 1, false).unwrap_err();
        assert!(matches!(error, ListenError::NoSuchAddress { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn without_an_address_ipv4_clients_have_ipv4_addresses() {
        let socket = bind(None, 0, 1, false).unwrap().pop().unwrap();
        let port = addr_of(&socket).port();
        let mut listener = Listener::new(socket).unwrap();
        let client = TcpStream::connect((LOOPBACK, port)).await.unwrap();
        let (_, peer) = listener.accept().await;
        assert_eq!(peer, client.local_addr().unwrap());
    }

    /// Run by the test below in a process of its own, since it takes away all descriptors.
    #[tokio::test]
    async fn child_accepts_without_descriptors() {
        if std::env::var_os("HUMBOLDT_TEST_SHORTAGE").is_none() {
            return;
        }
        let socket = bind(Some(LOOPBACK), 0, 1, false).unwrap().pop().unwrap();
        let addr = addr_of(&socket);
        let mut listener = Listener::new(socket).unwrap();
        let _client = TcpStream::connect(addr).await.unwrap();
        let mut hoard = Vec::new();
        humboldt_sys::descriptors::raise_limit(Some(64)).unwrap();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let start = std::time::Instant::now();
        let mut accept = std::pin::pin!(listener.accept());
        let too_early = tokio::time::timeout(PAUSE_MIN * 10, &mut accept).await;
        assert!(too_early.is_err(), "accepted without a descriptor");
        drop(hoard);
        accept.await;
        assert!(start.elapsed() >= PAUSE_MIN * 10);
        println!("accepted after all");
    }

    #[test]
    fn without_descriptors_it_waits_and_then_goes_on() {
        let name = "listener::tests::child_accepts_without_descriptors";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("HUMBOLDT_TEST_SHORTAGE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("accepted after all"), "{text}");
    }

    #[test]
    fn a_shortage_of_descriptors_is_not_about_one_connection() {
        const EMFILE: i32 = 24;
        assert!(!is_about_one_connection(&io::Error::from_raw_os_error(EMFILE)));
        assert!(is_about_one_connection(&io::ErrorKind::ConnectionAborted.into()));
    }
}
