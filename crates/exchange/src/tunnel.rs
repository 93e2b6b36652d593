//! Tunnels: bytes both ways until one side has enough.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_net::Stream;
use humboldt_runtime::deadline::DeadlineSlot;

use crate::client::{BROKEN, CLOSED, Socket};
use crate::io::CoreIo;
use crate::memory::Pipe;
use crate::pace::Pace;

/// Bytes a tunnel holds for each direction while the other side does not take them.
const BUFFER_BYTES: usize = 32 * 1024;

/// One end of a tunnel.
pub struct TunnelEnd {
    /// Bytes that came before the tunnel was there.
    early: Vec<u8>,
    wire: Wire,
    /// The pace at which it takes bytes, if it has one.
    pace: Option<Pace>,
}

enum Wire {
    Client(Rc<Socket>),
    Server(Rc<Stream>),
    Memory(Pipe),
}

/// How long a tunnel may be idle.
#[derive(Copy, Clone, Debug)]
pub struct TunnelLimits {
    /// While nothing moves.
    pub idle: Duration,
    /// The same after the client's FIN.
    pub client_fin: Duration,
}

/// Why a tunnel is over that its ends have not closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TunnelOver {
    /// The client's connection has lived for too long.
    Lifetime,
    /// Nothing has moved for too long.
    Idle,
    /// One side broke.
    Broken,
}

impl TunnelEnd {
    pub(crate) fn client(socket: Rc<Socket>, early: Vec<u8>, pace: Option<Pace>) -> Self {
        Self { early, wire: Wire::Client(socket), pace }
    }

    pub(crate) fn server(stream: Rc<Stream>, early: Vec<u8>) -> Self {
        Self { early, wire: Wire::Server(stream), pace: None }
    }

    pub(crate) fn memory(pipe: Pipe) -> Self {
        Self { early: Vec::new(), wire: Wire::Memory(pipe), pace: None }
    }
}

impl Wire {
    fn stream(&self) -> Result<&Stream, &Pipe> {
        match self {
            Self::Client(socket) => Ok(&socket.stream),
            Self::Server(stream) => Ok(stream),
            Self::Memory(pipe) => Err(pipe),
        }
    }

    /// Writes until nothing is left of `bytes`, and nothing that was written waits in the stream.
    fn poll_write_all(&self, cx: &mut Context<'_>, bytes: &mut &[u8]) -> Poll<io::Result<()>> {
        let pipe = match self.stream() {
            Ok(stream) => return stream.poll_write_all(cx, bytes),
            Err(pipe) => pipe,
        };
        while !bytes.is_empty() {
            let n = ready!(pipe.poll_write(cx, bytes))?;
            *bytes = bytes.get(n..).unwrap_or_default();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.stream() {
            Ok(stream) => stream.poll_read_shared(cx, buffer),
            Err(pipe) => pipe.poll_read(cx, buffer),
        }
    }

    fn shut_down(&self) {
        match self.stream() {
            Ok(stream) => _ = stream.shut_down_write(),
            Err(pipe) => pipe.shut_down(),
        }
    }

    /// Ends when the other side has said that it sends no more, also where nothing is read.
    async fn closed(&self) {
        match self.stream() {
            Ok(stream) => _ = stream.ready(CLOSED).await,
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends when the connection is broken.
    async fn broken(&self) {
        match self.stream() {
            Ok(stream) => _ = stream.ready(BROKEN).await,
            Err(pipe) => pipe.broken().await,
        }
    }

    fn lifetime(&self) -> Option<&DeadlineSlot> {
        match self {
            Self::Client(socket) => Some(&socket.lifetime),
            Self::Server(_) | Self::Memory(_) => None,
        }
    }
}

/// One direction of a tunnel.
struct Direction {
    buffer: Vec<u8>,
    sent: usize,
    /// The source has ended.
    ended: bool,
    /// The end has been passed on.
    closed: bool,
    moved_bytes: u64,
    /// The pace of the side that gets the bytes. It is asked before they are read.
    pace: Option<Pace>,
}

impl Direction {
    fn new(early: Vec<u8>, mut pace: Option<Pace>) -> Self {
        if let Some(pace) = &mut pace {
            pace.spend(early.len() as u64);
        }
        Self { buffer: early, sent: 0, ended: false, closed: false, moved_bytes: 0, pace }
    }

    /// Moves as many bytes as possible. `Ready` when this direction is finished.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        io: &CoreIo,
        from: &Wire,
        to: &Wire,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut rest = self.buffer.get(self.sent..).unwrap_or_default();
            let writing = to.poll_write_all(cx, &mut rest);
            let written = self.buffer.len() - self.sent - rest.len();
            self.sent += written;
            self.moved_bytes += written as u64;
            ready!(writing)?;
            self.buffer.clear();
            self.sent = 0;
            if self.ended {
                if !self.closed {
                    self.closed = true;
                    to.shut_down();
                }
                return Poll::Ready(Ok(()));
            }
            // An idle tunnel holds no buffer.
            if self.buffer.capacity() > 0 {
                self.buffer = Vec::new();
            }
            let most = match &mut self.pace {
                None => BUFFER_BYTES,
                Some(pace) => ready!(pace.poll_allowance(cx, BUFFER_BYTES as u64)) as usize,
            };
            ready!(io.read_buffers.with(|buffer| {
                let most = most.min(buffer.len());
                let n = ready!(from.poll_read(cx, buffer.get_mut(..most).unwrap_or_default()))?;
                self.buffer.extend_from_slice(buffer.get(..n).unwrap_or_default());
                self.ended = n == 0;
                if let Some(pace) = &mut self.pace {
                    pace.spend(n as u64);
                }
                Poll::Ready(io::Result::Ok(()))
            }))?;
        }
    }
}

/// Moves bytes both ways until both sides have closed (`None`), one has failed, or nothing has
/// moved for too long. Returns how many bytes the client got, too.
pub async fn relay(
    io: &CoreIo,
    client: TunnelEnd,
    server: TunnelEnd,
    limits: TunnelLimits,
) -> (u64, Option<TunnelOver>) {
    io.count(Counter::Tunnels, 1);
    let mut up = Direction::new(client.early, server.pace);
    let mut down = Direction::new(server.early, client.pace);
    let (client, server) = (client.wire, server.wire);
    let deadline = io.deadlines.slot();
    deadline.arm(limits.idle);
    let mut moved = 0;
    // Also if the client is not read, because the server does not take its earlier bytes.
    let (mut ends, mut breaks) = (pin!(client.closed()), pin!(client.broken()));
    let mut has_ended = false;
    let over = loop {
        let step = poll_fn(|cx| {
            if breaks.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(TunnelOver::Broken));
            }
            let sent = up.poll(cx, io, &client, &server);
            let received = down.poll(cx, io, &server, &client);
            match (sent, received) {
                (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => {
                    return Poll::Ready(Err(TunnelOver::Broken));
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ok(true)),
                _ => {}
            }
            let lived = client.lifetime().map_or(Poll::Pending, |life| life.poll_expired(cx));
            if lived.is_ready() || deadline.poll_expired(cx).is_ready() {
                return Poll::Ready(Err(TunnelOver::Idle));
            }
            let ends_now = !has_ended && ends.as_mut().poll(cx).is_ready();
            has_ended |= ends_now;
            let now_moved = up.moved_bytes + down.moved_bytes;
            if ends_now || now_moved != moved {
                return Poll::Ready(Ok(false));
            }
            Poll::Pending
        })
        .await;
        let total = up.moved_bytes + down.moved_bytes;
        io.count(Counter::TunnelBytes, total - moved);
        moved = total;
        match step {
            Ok(false) if has_ended => deadline.arm_in_line(limits.idle.min(limits.client_fin)),
            Ok(false) => deadline.arm(limits.idle),
            Ok(true) => break None,
            Err(_) if client.lifetime().is_some_and(DeadlineSlot::is_expired) => {
                break Some(TunnelOver::Lifetime);
            }
            Err(over) => break Some(over),
        }
    };
    io.count(Counter::ClientOutBytes, down.moved_bytes);
    (down.moved_bytes, over)
}
