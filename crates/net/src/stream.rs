//! A connection as a stream of bytes, over TCP or another carrier.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A connection. It is read and written through a shared reference, like a socket of tokio. Its
/// [socket](Stream::socket) tells what the system knows of the connection.
#[derive(Debug)]
pub enum Stream {
    /// The bytes are those on the wire.
    Tcp(TcpStream),
}

impl Stream {
    /// The socket that carries the bytes.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
        }
    }

    /// Our address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket().local_addr()
    }

    /// Reads what is there.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read(buffer),
        }
    }

    /// Writes what the stream takes at once.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
        }
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
        match self {
            Self::Tcp(socket) => socket.try_write_vectored(parts),
        }
    }

    /// Whether bytes that were taken wait in the stream for room in its socket:
    /// [`Stream::poll_write_ready`] sends them.
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
        }
    }

    /// Ready when there may be something to read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
        }
    }

    /// Ready when the stream may take more.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_write_ready(cx),
        }
    }

    /// Reads once, as the only user of the stream: a short read tells tokio that there is no more,
    /// which saves a system call.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) => {
                let mut read = ReadBuf::new(buffer);
                ready!(Pin::new(socket).poll_read(cx, &mut read))?;
                Poll::Ready(Ok(read.filled().len()))
            }
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
        self.socket().ready(interest).await
    }

    /// Ends our sending side: the peer reads the end of the stream, and may still send.
    pub fn shut_down_write(&self) -> io::Result<()> {
        humboldt_sys::tcp::shutdown_write(self.socket())
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket().as_raw_fd()
    }
}
