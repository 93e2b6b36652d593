//! Exchanges in memory, for tests and simulations: a client and a server without sockets.
//!
//! [`client`] gives an exchange and the [`Client`] whose it is; [`server`] an exchange and the
//! [`Server`] that is asked. Both sides live on one thread. Whatever a socket can do to a proxy has
//! its counterpart: clients that leave, or take nothing; servers that answer early, late, in parts,
//! or not to the end.

mod client;
mod server;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub use client::{Answer, Client, ClientSide, End, client};
pub use server::{Asked, Server, ServerSide, UploadSide, server};

/// Wakes all tasks that wait for a change.
#[derive(Default)]
struct Bell(RefCell<Vec<Waker>>);

impl Bell {
    fn listen(&self, cx: &Context<'_>) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
    }

    fn ring(&self) {
        let wakers = std::mem::take(&mut *self.0.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` finds something.
    async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                self.listen(cx);
                Poll::Pending
            }
        })
        .await
    }
}

/// A state that both sides see, and a bell for those who wait for it to change.
#[derive(Default)]
struct Watched<S> {
    state: RefCell<S>,
    bell: Bell,
}

impl<S> Watched<S> {
    fn change<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        let result = change(&mut self.state.borrow_mut());
        self.bell.ring();
        result
    }
}

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
