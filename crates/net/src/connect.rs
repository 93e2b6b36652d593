//! Connecting to a server that may have several addresses: happy eyeballs (RFC 8305).

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use humboldt_tls::Fault;
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::Stream;
use crate::marks::PacketMarks;

/// Most addresses of one name that are tried; the rest are ignored.
const ATTEMPTS_MAX: usize = 16;

/// Usual head start of each attempt over the next (RFC 8305 section 5, "Connection Attempt Delay").
const STAGGER: Duration = Duration::from_millis(250);

/// Options of connecting.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Time for all attempts together (`connect_timeout`).
    pub timeout: Duration,
    /// Head start of each attempt over the next (`happy_eyeballs_connect_timeout`).
    pub stagger: Duration,
    /// Address to connect from when the server's is IPv4 (`tcp_outgoing_address`).
    pub local_v4: Option<Ipv4Addr>,
    /// Address to connect from when the server's is IPv6.
    pub local_v6: Option<Ipv6Addr>,
    /// These addresses are not this machine's. Needs CAP_NET_ADMIN.
    pub local_is_foreign: bool,
    /// Marks of all packets, the first one included.
    pub marks: PacketMarks,
}

impl Default for ConnectOptions {
    /// Squid's defaults: one minute, 250 ms, from any address.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            stagger: STAGGER,
            local_v4: None,
            local_v6: None,
            local_is_foreign: false,
            marks: PacketMarks::default(),
        }
    }
}

/// The reason why no address could be connected to. If several failed in different ways, the most
/// telling reason is reported: a shortage of descriptors, then refused, then timed out, then
/// unreachable.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The machine is there, but nothing listens on the port.
    #[error("connection refused by {0}")]
    Refused(SocketAddr),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// There is no way to the address.
    #[error("{0} is unreachable")]
    Unreachable(SocketAddr),
    /// There was no address to connect to.
    #[error("no address to connect to")]
    NoAddress,
    /// There was no descriptor for a socket, so that the server was not asked.
    #[error("no descriptor is free: {0}")]
    NoDescriptor(io::Error),
    /// There is a connection, but no TLS.
    #[error("{0}")]
    Tls(#[from] Fault),
    /// Anything else.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A new connection.
#[derive(Debug)]
pub struct Connected {
    /// The stream, with TCP_NODELAY set.
    pub stream: Stream,
    /// The address that answered.
    pub peer: SocketAddr,
}

/// Connects to `port` at the first of `addresses` that answers. Families take turns, starting with
/// that of the first address; each attempt gets a head start, shorter when it fails sooner.
pub async fn connect(
    addresses: &[IpAddr],
    port: u16,
    options: &ConnectOptions,
) -> Result<Connected, ConnectError> {
    let deadline = Instant::now() + options.timeout;
    let result = match addresses {
        [] => return Err(ConnectError::NoAddress),
        [one] => {
            let peer = SocketAddr::new(*one, port);
            timeout_at(deadline, attempt(peer, options)).await
        }
        several => timeout_at(deadline, race(interleave(several, port), options)).await,
    };
    result.unwrap_or(Err(ConnectError::Timeout))
}

/// RFC 8305 section 4 with a "First Address Family Count" of one.
fn interleave(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let v6_first = addresses.first().is_some_and(IpAddr::is_ipv6);
    let mut first = addresses.iter().filter(|ip| ip.is_ipv6() == v6_first);
    let mut second = addresses.iter().filter(|ip| ip.is_ipv6() != v6_first);
    let mut order = Vec::with_capacity(addresses.len().min(ATTEMPTS_MAX));
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return order;
        }
        for ip in pair.into_iter().flatten() {
            if order.len() == ATTEMPTS_MAX {
                return order;
            }
            order.push(SocketAddr::new(*ip, port));
        }
    }
}

type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Connected, ConnectError>> + 'a>>;

async fn race(order: Vec<SocketAddr>, options: &ConnectOptions) -> Result<Connected, ConnectError> {
    let mut waiting = order.into_iter();
    let mut running: Vec<Attempt<'_>> = Vec::new();
    let mut worst = ConnectError::NoAddress;
    loop {
        let next = waiting.next();
        let more = next.is_some();
        if let Some(peer) = next {
            running.push(Box::pin(attempt(peer, options)));
        } else if running.is_empty() {
            return Err(worst);
        }
        let next_start = Instant::now() + options.stagger;
        tokio::select! {
            result = first_ended(&mut running) => match result {
                Ok(connected) => return Ok(connected),
                Err(error) => worst = more_telling(worst, error),
            },
            () = sleep_until(next_start), if more => {}
        }
    }
}

/// Waits for one of the attempts to end and removes it.
async fn first_ended(running: &mut Vec<Attempt<'_>>) -> Result<Connected, ConnectError> {
    poll_fn(|cx| {
        for index in 0..running.len() {
            if let Poll::Ready(result) = running[index].as_mut().poll(cx) {
                drop(running.swap_remove(index));
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    })
    .await
}

async fn attempt(peer: SocketAddr, options: &ConnectOptions) -> Result<Connected, ConnectError> {
    let explain = |error: io::Error| match error.kind() {
        _ if is_shortage(&error) => ConnectError::NoDescriptor(error),
        io::ErrorKind::ConnectionRefused => ConnectError::Refused(peer),
        io::ErrorKind::TimedOut => ConnectError::Timeout,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => ConnectError::Unreachable(peer),
        _ => ConnectError::Io(error),
    };
    let socket = match peer {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
    .map_err(explain)?;
    let local = match peer {
        SocketAddr::V4(_) => options.local_v4.map(IpAddr::V4),
        SocketAddr::V6(_) => options.local_v6.map(IpAddr::V6),
    };
    if let Some(local) = local {
        if options.local_is_foreign {
            let socket = socket2::SockRef::from(&socket);
            match local {
                IpAddr::V4(_) => socket.set_ip_transparent_v4(true),
                IpAddr::V6(_) => socket.set_ip_transparent_v6(true),
            }
            .map_err(explain)?;
        }
        socket.bind(SocketAddr::new(local, 0)).map_err(explain)?;
    }
    options.marks.set(&socket, PacketMarks::default());
    socket.set_nodelay(true).map_err(explain)?;
    let stream = socket.connect(peer).await.map_err(explain)?;
    Ok(Connected { stream: stream.into(), peer })
}

/// Whether the process, or the system, has no descriptor left (EMFILE, ENFILE).
pub fn is_shortage(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Whether a connection was not made because no descriptor is free.
pub fn is_short(result: &Result<Connected, ConnectError>) -> bool {
    matches!(result, Err(ConnectError::NoDescriptor(_)))
}

fn more_telling(a: ConnectError, b: ConnectError) -> ConnectError {
    fn rank(error: &ConnectError) -> u8 {
        match error {
            ConnectError::Tls(_) => 6,
            ConnectError::NoDescriptor(_) => 5,
            ConnectError::Refused(_) => 4,
            ConnectError::Timeout => 3,
            ConnectError::Unreachable(_) => 2,
            ConnectError::Io(_) => 1,
            ConnectError::NoAddress => 0,
        }
    }
    if rank(&b) > rank(&a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn closed_port() -> u16 {
        TcpListener::bind((V4, 0)).unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn families_take_turns() {
        let order =
            interleave(&[ip("::1"), ip("::2"), ip("::3"), ip("1.1.1.1"), ip("2.2.2.2")], 80);
        let ips: Vec<_> = order.iter().map(|peer| peer.ip()).collect();
        assert_eq!(ips, [ip("::1"), ip("1.1.1.1"), ip("::2"), ip("2.2.2.2"), ip("::3")]);
        assert_eq!(interleave(&[V4; 100], 80).len(), ATTEMPTS_MAX);
    }

    #[tokio::test]
    async fn connects_with_nodelay_from_the_address_asked_for() {
        let server = TcpListener::bind((V4, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let local = Ipv4Addr::new(127, 0, 0, 9);
        let options = ConnectOptions { local_v4: Some(local), ..ConnectOptions::default() };
        let connected = connect(&[V4], port, &options).await.unwrap();
        assert!(socket2::SockRef::from(&connected.stream).tcp_nodelay().unwrap());
        assert_eq!(connected.peer, server.local_addr().unwrap());
        assert_eq!(server.accept().unwrap().1.ip(), IpAddr::V4(local));
    }

    #[tokio::test]
    async fn the_next_address_is_tried_at_once_when_one_refuses() {
        let server = TcpListener::bind((V4, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let addresses = [ip("127.0.0.2"), V6, ip("127.0.0.3"), V4];
        let connected = connect(&addresses, port, &ConnectOptions::default()).await.unwrap();
        assert_eq!(connected.peer.ip(), V4);
    }

    #[tokio::test]
    async fn a_silent_address_does_not_hold_up_the_next() {
        let (_full, silent) = silent_port().await;
        let server = TcpListener::bind((ip("127.0.0.7"), silent.port())).unwrap();
        let addresses = [silent.ip(), ip("127.0.0.7")];
        let connected =
            connect(&addresses, silent.port(), &ConnectOptions::default()).await.unwrap();
        assert_eq!(connected.peer, server.local_addr().unwrap());
    }

    #[tokio::test]
    async fn the_head_start_is_as_long_as_asked_for() {
        let (_full, silent) = silent_port().await;
        let _server = TcpListener::bind((ip("127.0.0.7"), silent.port())).unwrap();
        let addresses = [silent.ip(), ip("127.0.0.7")];
        let (stagger, timeout) = (Duration::from_secs(30), Duration::from_millis(400));
        let options = ConnectOptions { stagger, timeout, ..ConnectOptions::default() };
        let error = connect(&addresses, silent.port(), &options).await.unwrap_err();
        assert!(matches!(error, ConnectError::Timeout), "{error:?}");
    }

    #[tokio::test]
    async fn errors_say_what_happened() {
        let options = ConnectOptions::default();
        let port = closed_port();
        assert!(matches!(connect(&[], 80, &options).await, Err(ConnectError::NoAddress)));
        let refused = connect(&[V4], port, &options).await.unwrap_err();
        assert!(
            matches!(refused, ConnectError::Refused(peer) if peer.port() == port),
            "{refused:?}"
        );
        let both = connect(&[ip("127.0.0.2"), V4], port, &options).await.unwrap_err();
        assert!(matches!(both, ConnectError::Refused(_)), "{both:?}");
    }

    #[tokio::test]
    async fn all_attempts_together_end_at_the_timeout() {
        let (_full, silent) = silent_port().await;
        let options =
            ConnectOptions { timeout: Duration::from_millis(300), ..ConnectOptions::default() };
        let start = Instant::now();
        let error = connect(&[silent.ip()], silent.port(), &options).await.unwrap_err();
        assert!(matches!(error, ConnectError::Timeout), "{error:?}");
        assert!(start.elapsed() >= options.timeout);
    }

    /// A port that does not answer: its queue of connections is full, and the kernel drops the
    /// rest.
    async fn silent_port() -> (Vec<Box<dyn std::any::Any>>, SocketAddr) {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = (V4, 0).into();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let mut held: Vec<Box<dyn std::any::Any>> = vec![Box::new(socket)];
        loop {
            let attempt = tokio::net::TcpStream::connect(addr);
            match tokio::time::timeout(Duration::from_millis(200), attempt).await {
                Ok(stream) => held.push(Box::new(stream.unwrap())),
                Err(_) => return (held, addr),
            }
        }
    }
}
