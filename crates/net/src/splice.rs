//! Bytes from one stream to another without a copy, and short reads that cost one system call.

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
            Self::Tls(_) => false,
        }
    }

    /// Moves what has come into an empty pipe; 0 bytes at the end. Only for a
    /// [bare](Stream::is_bare) stream.
    pub fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match self.try_io(Interest::READABLE, || pipe.fill(self)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
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

    /// As [`Stream::poll_read_shared`]. Where a socket gives less than there is room for, there is
    /// no more, so the next wait begins without another system call.
    pub fn poll_read_last(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_bare() {
            return self.poll_read_shared(cx, buffer);
        }
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut short = None;
            let read = self.try_io(Interest::READABLE, || {
                let read = splice::receive(self, buffer)?;
                if read == 0 || read == buffer.len() {
                    return Ok(read);
                }
                short = Some(read);
                // Tokio waits for the next event. An end that it knows of stays known.
                Err(io::ErrorKind::WouldBlock.into())
            });
            match (short, read) {
                (Some(read), _) => return Poll::Ready(Ok(read)),
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, result) => return Poll::Ready(result),
            }
        }
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
                match splice::receive(self, room)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    read => left -= read.min(left),
                }
            }
            return Poll::Ready(Ok((seen, taken)));
        }
    }
}
