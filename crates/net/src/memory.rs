//! Connections in memory, for simulations: what two sockets do to each other, without a system.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use humboldt_sys::tcp::PeerState;
use tokio::io::{Interest, Ready};

use crate::watched::Watched;

/// Most bytes that wait for a reader who does not read.
const WAY_BYTES: usize = 64 * 1024;

/// One end of a connection in memory. Both ends live on one thread.
///
/// It behaves as TCP does where that matters: an end that is dropped is one that has closed, and a
/// reset if it has not read all, or is [to be one](MemoryStream::reset_on_close). What is written
/// to an end that has closed is lost, and breaks the connection.
pub struct MemoryStream {
    incoming: Rc<Way>,
    outgoing: Rc<Way>,
    local: SocketAddr,
    resets: Cell<bool>,
    /// A descriptor that is no socket's, for those who want one.
    nothing: Rc<File>,
}

type Way = Watched<WayState>;

/// Bytes in one direction.
#[derive(Default)]
struct WayState {
    bytes: VecDeque<u8>,
    /// The writer sends no more.
    is_ended: bool,
    /// The reader has closed.
    is_left: bool,
    /// Nothing works any more.
    is_broken: bool,
}

impl MemoryStream {
    /// Two ends, with their own addresses.
    ///
    /// # Errors
    /// No descriptor is free.
    // tidy: public, because the simulation uses it
    pub fn pair(first: SocketAddr, second: SocketAddr) -> io::Result<(Self, Self)> {
        let (one, other) = (Rc::<Way>::default(), Rc::<Way>::default());
        let nothing = Rc::new(File::open("/dev/null")?);
        let end = |incoming: &Rc<Way>, outgoing: &Rc<Way>, local| Self {
            incoming: Rc::clone(incoming),
            outgoing: Rc::clone(outgoing),
            local,
            resets: Cell::new(false),
            nothing: Rc::clone(&nothing),
        };
        Ok((end(&one, &other, first), end(&other, &one, second)))
    }

    /// Its address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Reads what is there.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.incoming.state.borrow_mut();
        if state.is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let count = state.bytes.len().min(buffer.len());
        if count == 0 && !state.is_ended && !buffer.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (place, byte) in buffer.iter_mut().zip(state.bytes.drain(..count)) {
            *place = byte;
        }
        drop(state);
        self.incoming.bell.ring();
        Ok(count)
    }

    /// Looks at what is there.
    pub(crate) fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.incoming.state.borrow();
        if state.is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if state.bytes.is_empty() && !state.is_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let seen = buffer.iter_mut().zip(&state.bytes);
        Ok(seen.map(|(place, byte)| *place = *byte).count())
    }

    /// Writes what there is room for.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    /// The same from several places.
    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.outgoing.state.borrow_mut();
        if state.is_broken || state.is_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        if state.is_left {
            drop(state);
            self.break_off();
            return Ok(offered);
        }
        let room = WAY_BYTES.saturating_sub(state.bytes.len());
        if room == 0 && offered > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = parts.iter().flat_map(|part| part.iter()).take(room);
        state.bytes.extend(bytes);
        drop(state);
        self.outgoing.bell.ring();
        Ok(offered.min(room))
    }

    /// Ready when there is something to read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.incoming.state.borrow();
        if state.bytes.is_empty() && !state.is_ended && !state.is_broken {
            self.incoming.bell.listen(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when there is room, or no sense in waiting for it.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.outgoing.state.borrow();
        let is_full = state.bytes.len() >= WAY_BYTES;
        if is_full && !state.is_left && !state.is_broken && !state.is_ended {
            self.outgoing.bell.listen(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for an event, as tokio's sockets do.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let wanted = mask(interest);
        let incoming = self.incoming.bell.until(|| some(self.events() & wanted));
        // Room is told by the other bell.
        let outgoing = self.outgoing.bell.until(|| some(self.events() & wanted));
        tokio::select! {
            biased;
            ready = incoming => Ok(ready),
            ready = outgoing => Ok(ready),
        }
    }

    /// All that has happened.
    fn events(&self) -> Ready {
        let (incoming, outgoing) = (self.incoming.state.borrow(), self.outgoing.state.borrow());
        let mut events = Ready::EMPTY;
        if !incoming.bytes.is_empty() || incoming.is_ended || incoming.is_broken {
            events |= Ready::READABLE;
        }
        if incoming.is_ended || incoming.is_broken {
            events |= Ready::READ_CLOSED;
        }
        if outgoing.bytes.len() < WAY_BYTES || outgoing.is_left || outgoing.is_broken {
            events |= Ready::WRITABLE;
        }
        if incoming.is_broken {
            events |= Ready::WRITE_CLOSED | Ready::ERROR;
        }
        events
    }

    /// The result of `look`, if `interest` has happened.
    pub(crate) fn try_io<T>(
        &self,
        interest: Interest,
        look: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        some(self.events() & mask(interest)).ok_or(io::ErrorKind::WouldBlock)?;
        look()
    }

    /// Looks without reading.
    pub(crate) fn peer_state(&self) -> PeerState {
        match self.try_peek(&mut [0]) {
            Ok(1..) => PeerState::Sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => PeerState::Quiet,
            Ok(0) | Err(_) => PeerState::Closed,
        }
    }

    /// Bytes that the other side has not read.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.outgoing.state.borrow().bytes.len()
    }

    /// Says that nothing more is sent.
    pub fn shut_down(&self) {
        self.outgoing.change(|state| state.is_ended = true);
    }

    /// Its close is a reset.
    pub fn reset_on_close(&self) {
        self.resets.set(true);
    }

    /// Both ways break, and what was not read is lost.
    fn break_off(&self) {
        for way in [&self.incoming, &self.outgoing] {
            way.change(|state| {
                state.is_broken = true;
                state.bytes.clear();
            });
        }
    }
}

/// What is told to those who wait for `interest`.
fn mask(interest: Interest) -> Ready {
    let mut wanted = Ready::EMPTY;
    if interest.is_readable() {
        wanted |= Ready::READABLE | Ready::READ_CLOSED;
    }
    if interest.is_writable() {
        wanted |= Ready::WRITABLE | Ready::WRITE_CLOSED;
    }
    if interest.is_priority() {
        wanted |= Ready::READ_CLOSED;
    }
    if interest.is_error() {
        wanted |= Ready::ERROR;
    }
    wanted
}

fn some(events: Ready) -> Option<Ready> {
    (!events.is_empty()).then_some(events)
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        if self.resets.get() || !self.incoming.state.borrow().bytes.is_empty() {
            return self.break_off();
        }
        self.outgoing.change(|state| state.is_ended = true);
        self.incoming.change(|state| state.is_left = true);
    }
}

impl AsFd for MemoryStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }
}

impl AsRawFd for MemoryStream {
    fn as_raw_fd(&self) -> RawFd {
        self.nothing.as_raw_fd()
    }
}

impl fmt::Debug for MemoryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStream").field("local", &self.local).finish_non_exhaustive()
    }
}
