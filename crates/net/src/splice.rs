//! Bytes from one stream to another without a copy, or without more than the other takes.

use std::io;
use std::task::{Context, Poll, ready};

use humboldt_sys::splice::{self, SplicePipe};
use tokio::io::Interest;

use crate::Stream;

impl Stream {
    /// Whether the bytes of the stream are those of its socket, so that the kernel can pass them
    /// on.
    pub fn is_bare(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => true,
            Self::Tls(_) | Self::Memory(_) => false,
        }
    }

    /// Moves what has come into an empty pipe. 0 bytes say nothing: at the end, before urgent
    /// data, and while the system lacks memory splice(2) gives none, with or without an error. So
    /// the stream stays ready, and a read has to say which it is. Only for a
    /// [bare](Stream::is_bare) stream.
    pub fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            let filled = self.try_io(Interest::READABLE, || match pipe.fill(self) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                filled => filled,
            });
            match filled {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Sends what a pipe holds; ready when it is empty. Only for a bare stream.
    pub fn poll_drain(&self, cx: &mut Context<'_>, pipe: &mut SplicePipe) -> Poll<io::Result<()>> {
        while pipe.held_bytes() > 0 {
            match self.try_io(Interest::WRITABLE, || pipe.drain(self)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Copies what has come to `to`, as much as that takes; the rest stays in the socket. Returns
    /// how many bytes were there, 0 at the end, and how many were taken. Both streams are bare.
    pub fn poll_copy_taken(
        &self,
        cx: &mut Context<'_>,
        to: &Self,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, usize)>> {
        loop {
            // Without room nothing needs to be looked at.
            ready!(to.poll_write_ready(cx))?;
            let seen = ready!(self.poll_peek(cx, buffer))?;
            if seen == 0 {
                return Poll::Ready(Ok((0, 0)));
            }
            let taken = match to.try_write(buffer.get(..seen).unwrap_or_default()) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let mut left = taken;
            while let Some(room) = buffer.get_mut(..left).filter(|room| !room.is_empty()) {
                match splice::receive(self, room) {
                    Ok(read @ 1..) => left -= read.min(left),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // A reset may take them away. What was sent is sent: the next look at the
                    // stream has the error.
                    Ok(_) | Err(_) => break,
                }
            }
            return Poll::Ready(Ok((seen, taken)));
        }
    }
}
