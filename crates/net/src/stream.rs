//! A connection as a stream of bytes, over TCP or another carrier.
//!
//! A carrier more, such as TLS, is a variant of [`Stream`]. Its users know the stream alone.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use humboldt_sys::splice;
use humboldt_sys::tcp::{self, PeerState};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::memory::MemoryStream;
use crate::tls::{TlsFacts, TlsStream};

/// The address of an end that has none, on a Unix socket. No end of TCP has it.
pub(crate) const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A connection. It is read and written through a shared reference, like a socket of tokio. Its
/// descriptor ([`AsFd`]) is that of the socket that carries the bytes.
#[derive(Debug)]
pub enum Stream {
    /// To any machine. The bytes are those on the wire.
    Tcp(TcpStream),
    /// To a process of this machine, through a socket of the family AF_UNIX (unix(7)).
    ///
    /// Such a socket has no reset ([`Stream::has_reset`]).
    Unix(UnixStream),
    /// TLS over one of the others. What the socket reports is about the bytes on the wire.
    Tls(Box<TlsStream>),
    /// In memory, for simulations.
    Memory(Box<MemoryStream>),
}

/// What is the same for every socket.
macro_rules! each {
    ($stream:expr, $socket:ident => $do:expr) => {
        match $stream {
            Stream::Tcp($socket) => $do,
            Stream::Unix($socket) => $do,
            Stream::Memory($socket) => $do,
            Stream::Tls(tls) => {
                let $socket = tls.carrier();
                $do
            }
        }
    };
}

/// What is the same for every socket that carries the bytes as they are.
macro_rules! plain {
    ($stream:expr, $tls:ident => $encrypted:expr, $socket:ident => $do:expr) => {
        match $stream {
            Stream::Tcp($socket) => $do,
            Stream::Unix($socket) => $do,
            Stream::Memory($socket) => $do,
            Stream::Tls($tls) => $encrypted,
        }
    };
}

impl Stream {
    /// Our address; 0.0.0.0, port 0 on a Unix socket, which has none.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr(),
            Self::Unix(_) => Ok(NO_ADDRESS),
            Self::Memory(memory) => memory.local_addr(),
            Self::Tls(tls) => tls.carrier().local_addr(),
        }
    }

    /// Whether the other end can tell a connection that is cut off from one that ends in order. A
    /// Unix socket ends in one way only: an answer whose end is the end of the connection would
    /// look whole when it is cut. With TLS the missing notice of the end (close_notify) tells.
    pub fn has_reset(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Tls(_) | Self::Memory(_) => true,
            Self::Unix(_) => false,
        }
    }

    /// The address that the client connected to, if the packet filter of this machine has
    /// redirected the connection (`SO_ORIGINAL_DST`).
    ///
    /// # Errors
    /// The packet filter does not know the connection, or cannot be asked.
    pub fn original_destination(&self) -> io::Result<SocketAddr> {
        let Self::Tcp(socket) = self.socket() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let local = socket.local_addr()?;
        let socket = socket2::SockRef::from(socket);
        // A socket for both families has IPv4 connections too.
        let chosen = match local.ip().to_canonical() {
            IpAddr::V4(_) => socket.original_dst_v4()?,
            IpAddr::V6(_) => socket.original_dst_v6()?,
        };
        chosen.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Reads what is there.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        plain!(self, tls => tls.try_read(buffer), socket => socket.try_read(buffer))
    }

    /// Writes what the stream takes at once.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        plain!(self, tls => tls.try_write_vectored(&[IoSlice::new(bytes)]), socket => socket.try_write(bytes))
    }

    /// Writes until the system has all of `bytes`, of which the rest is left.
    pub fn poll_write_all(&self, cx: &mut Context<'_>, bytes: &mut &[u8]) -> Poll<io::Result<()>> {
        loop {
            let written = match bytes.is_empty() {
                true if !self.has_unsent() => return Poll::Ready(Ok(())),
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => self.try_write(bytes),
            };
            match written {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => *bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_write_ready(cx))?
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// As [`Stream::try_write`], from several places.
    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        plain!(self, tls => tls.try_write_vectored(parts), socket => socket.try_write_vectored(parts))
    }

    /// Whether bytes that were taken wait in the stream for room in its socket:
    /// [`Stream::poll_write_ready`] sends them.
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) | Self::Memory(_) => false,
            Self::Tls(tls) => tls.has_unsent(),
        }
    }

    /// Ready when there may be something to read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        plain!(self, tls => tls.poll_read_ready(cx), socket => socket.poll_read_ready(cx))
    }

    /// Ready when the stream may take more.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        plain!(self, tls => tls.poll_write_ready(cx), socket => socket.poll_write_ready(cx))
    }

    /// Reads once, as the only user of the stream: a short read of the socket tells tokio that
    /// there is no more, which saves a system call.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(tls) => return tls.poll_read(cx, buffer),
            Self::Memory(_) => return self.poll_read_shared(cx, buffer),
            Self::Tcp(_) | Self::Unix(_) => {}
        }
        let mut read = ReadBuf::new(buffer);
        ready!(match self {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, &mut read),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, &mut read),
            Self::Tls(_) | Self::Memory(_) => Poll::Ready(Ok(())),
        })?;
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Reads what is there without taking it, once there is something.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) => socket.poll_peek(cx, &mut ReadBuf::new(buffer)),
            Self::Unix(_) => loop {
                ready!(self.poll_read_ready(cx))?;
                match self.try_io(Interest::READABLE, || splice::peek(self, buffer)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return Poll::Ready(result),
                }
            },
            Self::Memory(memory) => {
                ready!(memory.poll_read_ready(cx))?;
                Poll::Ready(memory.try_peek(buffer))
            }
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Reads once from a stream that others use too.
    pub fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Waits for something that the socket reports, such as the other side's end. Bytes to read
    /// are those on the wire.
    pub async fn ready(&self, interest: Interest) -> io::Result<tokio::io::Ready> {
        match self.socket() {
            Self::Tcp(socket) => socket.ready(interest).await,
            Self::Unix(socket) => socket.ready(interest).await,
            Self::Memory(memory) => memory.ready(interest).await,
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The result of `look`, which looks at the socket itself: called if `interest` may have
    /// happened, and if its result is [`io::ErrorKind::WouldBlock`], the next event is waited for.
    pub fn try_io<T>(
        &self,
        interest: Interest,
        look: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        each!(self, socket => socket.try_io(interest, look))
    }

    /// Ends our sending side: the peer reads the end of the stream, and may still send. With TLS
    /// the end is told first, which may have to wait for room in the socket.
    pub fn poll_shut_down_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Tls(tls) = self {
            ready!(tls.poll_end(cx))?;
        }
        if let Self::Memory(memory) = self.socket() {
            memory.shut_down();
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(tcp::shutdown_write(self))
    }

    /// The end of the stream means something: it is told only where the caller
    /// [ends](Stream::poll_shut_down_write) it in order, and never because it is dropped.
    pub fn leave_end_to_caller(&self) {
        if let Self::Tls(tls) = self {
            tls.leave_end_to_caller();
        }
    }

    /// Tells the other side of TLS that the stream ends, if that can be done without waiting.
    pub fn end_at_once(&self) {
        if let Self::Tls(tls) = self {
            tls.end_at_once();
        }
    }

    /// The facts about its TLS, if it has any.
    pub fn tls(&self) -> Option<TlsFacts> {
        match self {
            Self::Tcp(_) | Self::Unix(_) | Self::Memory(_) => None,
            Self::Tls(tls) => Some(tls.facts()),
        }
    }

    /// Looks at the socket without reading from it or waiting.
    pub fn peer_state(&self) -> PeerState {
        match self.socket() {
            Self::Memory(memory) => memory.peer_state(),
            _ => tcp::peer_state(self),
        }
    }

    /// Makes the close of the socket a reset, which the other side does not take for an end in
    /// order.
    pub fn reset_on_close(&self) -> io::Result<()> {
        match self.socket() {
            Self::Memory(memory) => {
                memory.reset_on_close();
                Ok(())
            }
            _ => tcp::reset_on_close(self),
        }
    }

    /// Bytes on the wire that the other side's system has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> io::Result<usize> {
        match self.socket() {
            Self::Memory(memory) => Ok(memory.unread_bytes()),
            _ => tcp::unacknowledged_bytes(self),
        }
    }

    /// The stream of the socket itself.
    fn socket(&self) -> &Self {
        match self {
            Self::Tcp(_) | Self::Unix(_) | Self::Memory(_) => self,
            Self::Tls(tls) => tls.carrier().socket(),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket)
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Self {
        Self::Unix(socket)
    }
}

impl From<MemoryStream> for Stream {
    fn from(memory: MemoryStream) -> Self {
        Self::Memory(Box::new(memory))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, socket => socket.as_fd())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        each!(self, socket => socket.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use tokio::net::{TcpListener, UnixListener};

    use super::*;

    async fn over_tcp() -> (Stream, Stream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let connecting = TcpStream::connect(listener.local_addr().expect("an address"));
        let (ours, theirs) = tokio::join!(connecting, listener.accept());
        (ours.expect("connected").into(), theirs.expect("accepted").0.into())
    }

    async fn over_unix() -> (Stream, Stream) {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (ours, theirs) = tokio::join!(UnixStream::connect(&path), listener.accept());
        (ours.expect("connected").into(), theirs.expect("accepted").0.into())
    }

    fn in_memory() -> (Stream, Stream) {
        let (ours, theirs) = MemoryStream::pair(NO_ADDRESS, NO_ADDRESS).expect("a descriptor");
        (ours.into(), theirs.into())
    }

    /// Reads as a stream's only user does, to the end.
    async fn read_all(stream: &mut Stream) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
        loop {
            match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await.expect("read") {
                0 => return all,
                n => all.extend_from_slice(&buffer[..n]),
            }
        }
    }

    /// More than any socket takes at once goes through whole, in order, with its end.
    async fn carries_bytes_and_their_end((ours, mut theirs): (Stream, Stream)) {
        let bytes: Vec<u8> = (0..8 << 20).map(|at: usize| (at / 251) as u8).collect();
        let sending = async {
            let mut rest = &bytes[..];
            poll_fn(|cx| ours.poll_write_all(cx, &mut rest)).await.expect("written");
            assert!(rest.is_empty() && !ours.has_unsent());
            poll_fn(|cx| ours.poll_shut_down_write(cx)).await.expect("shut down");
        };
        let ((), received) = tokio::join!(sending, read_all(&mut theirs));
        assert!(received == bytes);
        // The other way is open.
        let parts = [IoSlice::new(b"an"), IoSlice::new(b"swer")];
        assert_eq!(theirs.try_write_vectored(&parts).expect("written"), 6);
        let mut buffer = [0; 10];
        let read = poll_fn(|cx| ours.poll_read_shared(cx, &mut buffer)).await.expect("read");
        assert_eq!(&buffer[..read], b"answer");
    }

    /// What the system knows of a connection is seen on its socket.
    async fn tells_of_the_other_side((ours, theirs): (Stream, Stream)) {
        assert_eq!(ours.peer_state(), PeerState::Quiet);
        let unread = ours.try_io(Interest::READABLE, || Ok(ours.peer_state()));
        assert!(unread.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
        theirs.try_write(b"x").expect("written");
        poll_fn(|cx| ours.poll_read_ready(cx)).await.expect("readable");
        assert_eq!(ours.peer_state(), PeerState::Sent);
        assert!(ours.unacknowledged_bytes().is_ok_and(|bytes| bytes == 0));
        drop(theirs);
        // Although its byte was not read.
        assert!(ours.ready(Interest::PRIORITY).await.expect("an event").is_read_closed());
    }

    #[tokio::test]
    async fn every_carrier_behaves_alike() {
        for n in 0..3 {
            let pair = async || match n {
                0 => over_tcp().await,
                1 => over_unix().await,
                _ => in_memory(),
            };
            carries_bytes_and_their_end(pair().await).await;
            tells_of_the_other_side(pair().await).await;
        }
    }

    #[tokio::test]
    async fn a_unix_socket_has_no_address_of_ip() {
        let (ours, _theirs) = over_unix().await;
        assert!(ours.local_addr().is_ok_and(|address| address.ip().is_unspecified()));
        assert!(over_tcp().await.0.local_addr().is_ok_and(|address| address.ip().is_loopback()));
    }
}
