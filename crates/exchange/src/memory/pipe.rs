//! Bytes of another protocol, after an exchange became a tunnel.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use humboldt_net::watched::Watched;

/// Bytes of another protocol, both ways: one end of a tunnel.
pub struct Pipe {
    incoming: Rc<Way>,
    outgoing: Rc<Way>,
}

type Way = Watched<WayState>;

#[derive(Default)]
struct WayState {
    bytes: VecDeque<u8>,
    is_closed: bool,
    is_broken: bool,
}

/// Most bytes in a pipe whose reader does not read.
const PIPE_BYTES: usize = 64 * 1024;

impl Pipe {
    /// Two ends.
    pub fn pair() -> (Self, Self) {
        let (one, other) = (Rc::<Way>::default(), Rc::<Way>::default());
        let first = Self { incoming: Rc::clone(&one), outgoing: Rc::clone(&other) };
        (first, Self { incoming: other, outgoing: one })
    }

    /// Reads some bytes; none at the end.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.incoming.state.borrow_mut();
        if state.is_broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let count = state.bytes.len().min(buffer.len());
        if count == 0 && !state.is_closed {
            self.incoming.bell.listen(cx);
            return Poll::Pending;
        }
        for (place, byte) in buffer.iter_mut().zip(state.bytes.drain(..count)) {
            *place = byte;
        }
        drop(state);
        self.incoming.bell.ring();
        Poll::Ready(Ok(count))
    }

    /// Writes some of `bytes`.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.outgoing.state.borrow_mut();
        if state.is_broken || state.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(PIPE_BYTES - state.bytes.len().min(PIPE_BYTES));
        if count == 0 {
            self.outgoing.bell.listen(cx);
            return Poll::Pending;
        }
        state.bytes.extend(bytes.iter().take(count));
        drop(state);
        self.outgoing.bell.ring();
        Poll::Ready(Ok(count))
    }

    /// Says that nothing more is sent.
    pub fn shut_down(&self) {
        self.outgoing.change(|state| state.is_closed = true);
    }

    /// Breaks both ways, as a reset does.
    pub fn reset(&self) {
        for way in [&self.incoming, &self.outgoing] {
            way.change(|state| state.is_broken = true);
        }
    }

    pub(crate) async fn broken(&self) {
        let way = &self.incoming;
        way.bell.until(|| way.state.borrow().is_broken.then_some(())).await;
    }
}
