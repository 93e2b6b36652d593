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
use humboldt_sys::splice::{SplicePipe, is_missing, is_unable};

use crate::client::{BROKEN, CLOSED, Socket};
use crate::io::CoreIo;
use crate::memory::Pipe;
use crate::pace::Pace;
use crate::pipes::LentPipe;

/// Most bytes of one read that copies, and so the most that a tunnel holds for each direction while
/// the other side does not take them. A read that brings as many says that more may follow: then
/// bytes are spliced, until a pipe brings fewer.
const COPY_BYTES: usize = 16 * 1024;

/// Bytes of one direction of a tunnel after which the other tasks of the core have their turn: two
/// or three milliseconds. With 2 MiB, eight tunnels needed half as much CPU again for a GB.
const TURN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest time for which the last bytes of a broken tunnel may be on their way to the client.
const LAST_BYTES_MAX: Duration = Duration::from_secs(5);

/// How often the system is asked whether the client has them: it tells no event.
const LAST_BYTES_LOOK: Duration = Duration::from_millis(20);

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

/// Gets the number of bytes that have moved, and says whether more may.
pub type Meter = Box<dyn FnMut(u64) -> bool>;

/// How long a tunnel may be idle.
#[derive(Copy, Clone, Debug)]
pub struct TunnelLimits {
    /// While nothing moves.
    pub idle: Duration,
    /// The same after the client's FIN, and once the server has broken while the client still gets
    /// what it had sent.
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
    /// It may not go on.
    Refused,
    /// The meter said so.
    Metered,
}

impl TunnelEnd {
    pub(crate) fn client(socket: Rc<Socket>, early: Vec<u8>, pace: Option<Pace>) -> Self {
        Self { early, wire: Wire::Client(socket), pace }
    }

    pub(crate) fn server(stream: Rc<Stream>, early: Vec<u8>) -> Self {
        // A tunnel that breaks must not look as if it had ended.
        stream.leave_end_to_caller();
        Self { early, wire: Wire::Server(stream), pace: None }
    }

    pub(crate) fn memory(pipe: Pipe) -> Self {
        Self { early: Vec::new(), wire: Wire::Memory(pipe), pace: None }
    }

    /// The bytes that have come from it, and that the other end gets first.
    pub fn early_bytes(&self) -> &[u8] {
        &self.early
    }

    /// Takes them, so that the other end does not get them.
    pub fn take_early_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// Reads more of them, once. `Ok(false)`: it sends no more.
    pub async fn read_early(&mut self, io: &CoreIo) -> io::Result<bool> {
        let Self { early, wire, .. } = self;
        poll_fn(|cx| {
            io.read_buffers.with(|buffer| {
                let room = buffer.get_mut(..COPY_BYTES).unwrap_or_default();
                let read = ready!(wire.poll_read(cx, room))?;
                early.extend_from_slice(room.get(..read).unwrap_or_default());
                Poll::Ready(Ok(read > 0))
            })
        })
        .await
    }

    /// Sends bytes there before the tunnel begins.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        poll_fn(|cx| self.wire.poll_write_all(cx, &mut rest)).await
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

    fn poll_drain(&self, cx: &mut Context<'_>, pipe: &mut SplicePipe) -> Poll<io::Result<()>> {
        match self.stream() {
            Ok(stream) => stream.poll_drain(cx, pipe),
            Err(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_shut_down(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.stream() {
            Ok(stream) => stream.poll_shut_down_write(cx).map(drop),
            Err(pipe) => {
                pipe.shut_down();
                Poll::Ready(())
            }
        }
    }

    /// Whether nothing but its close is needed to tell the end, once all was read from it.
    fn ends_by_close(&self) -> bool {
        matches!(self, Self::Server(stream) if stream.is_bare())
    }

    /// Waits until the other side's system has all that was written, or the connection is broken,
    /// for at most [`LAST_BYTES_MAX`]: a reset takes away what is still on its way.
    async fn delivered(&self) {
        let Ok(stream) = self.stream() else { return };
        let taken = async {
            while stream.has_reset() && stream.unacknowledged_bytes().is_ok_and(|bytes| bytes > 0) {
                tokio::time::sleep(LAST_BYTES_LOOK).await;
            }
        };
        tokio::select! {
            () = taken => {}
            () = self.broken() => {}
            () = tokio::time::sleep(LAST_BYTES_MAX) => {}
        }
    }

    /// Its close is a reset, so that the other side does not take a part for the whole.
    fn cut_off(&self) {
        if let Ok(stream) = self.stream()
            && stream.has_reset()
        {
            _ = stream.reset_on_close();
        }
    }

    /// Ready when there may be something to read; a pipe in memory always says so.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream() {
            Ok(stream) => stream.poll_read_ready(cx),
            Err(_) => Poll::Ready(Ok(())),
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

/// Bytes that one side has sent, and that the other does not take yet.
enum Held<'io> {
    Nothing,
    /// Those from `sent` on.
    Copied {
        bytes: Vec<u8>,
        sent: usize,
    },
    Piped(LentPipe<'io>),
}

/// What has failed of a direction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing can be read.
    Source,
    /// Nothing can be written.
    Sink,
}

/// One direction of a tunnel.
struct Direction<'io> {
    io: &'io CoreIo,
    held: Held<'io>,
    /// Many bytes came at once the last time.
    is_bulk: bool,
    /// Not between these two sockets.
    cannot_splice: bool,
    /// The source has ended.
    ended: bool,
    /// The end has been passed on.
    closed: bool,
    /// The tunnel is broken: the end of this direction is none to be passed on.
    is_cut: bool,
    moved_bytes: u64,
    /// The pace of the side that gets the bytes. It is asked before they are read.
    pace: Option<Pace>,
}

impl<'io> Direction<'io> {
    fn new(io: &'io CoreIo, early: Vec<u8>, mut pace: Option<Pace>) -> Self {
        if let Some(pace) = &mut pace {
            pace.spend(early.len() as u64);
        }
        let held = Held::Copied { bytes: early, sent: 0 };
        Self {
            io,
            held,
            is_bulk: false,
            cannot_splice: false,
            ended: false,
            closed: false,
            is_cut: false,
            moved_bytes: 0,
            pace,
        }
    }

    /// Whether bytes are there that must wait for the pace.
    fn is_paced(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::is_waiting)
    }

    /// Moves as many bytes as possible. `Ready` when this direction is finished. `is_last`: the
    /// other one is.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Wire,
        to: &Wire,
        is_last: bool,
    ) -> Poll<Result<(), Fault>> {
        let mut turn_bytes = 0;
        loop {
            ready!(self.poll_send(cx, to)).map_err(|_| Fault::Sink)?;
            if self.ended && self.is_cut {
                return Poll::Ready(Err(Fault::Source));
            }
            if self.ended {
                let is_told = self.closed || is_last && to.ends_by_close();
                if !is_told {
                    ready!(to.poll_shut_down(cx));
                }
                self.closed = true;
                return Poll::Ready(Ok(()));
            }
            if turn_bytes >= TURN_BYTES_MAX {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let is_bulk = self.is_bulk && !self.cannot_splice && self.pace.is_none();
            let taken = match (from.stream(), to.stream()) {
                (Ok(from), Ok(to)) if is_bulk && from.is_bare() && to.is_bare() => {
                    // Of bare sockets a broken one reports itself, whatever is said here.
                    ready!(self.poll_bulk(cx, from, to)).map_err(|_| Fault::Sink)?
                }
                _ => None,
            };
            turn_bytes += match taken {
                Some(taken) => taken,
                None => ready!(self.poll_copy(cx, from, to))?,
            };
        }
    }

    /// Sends what is held. An idle direction holds neither a buffer nor a pipe.
    fn poll_send(&mut self, cx: &mut Context<'_>, to: &Wire) -> Poll<io::Result<()>> {
        let writing = match &mut self.held {
            // What was written may wait in the stream.
            Held::Nothing => return to.poll_write_all(cx, &mut &[][..]),
            Held::Copied { bytes, sent } => {
                let mut rest = bytes.get(*sent..).unwrap_or_default();
                let writing = to.poll_write_all(cx, &mut rest);
                let written = bytes.len() - *sent - rest.len();
                *sent += written;
                self.moved_bytes += written as u64;
                writing
            }
            Held::Piped(lent) => {
                let before = lent.pipe.held_bytes();
                let draining = to.poll_drain(cx, &mut lent.pipe);
                let moved = (before - lent.pipe.held_bytes()) as u64;
                self.moved_bytes += moved;
                self.io.count(Counter::TunnelSplicedBytes, moved);
                match draining {
                    Poll::Ready(Err(error)) if is_unable(&error) => {
                        return self.copy_instead(cx, &error);
                    }
                    other => other,
                }
            }
        };
        ready!(writing)?;
        if let Held::Piped(lent) = std::mem::replace(&mut self.held, Held::Nothing) {
            lent.put_back();
        }
        Poll::Ready(Ok(()))
    }

    /// The socket takes nothing out of pipes.
    fn copy_instead(&mut self, cx: &mut Context<'_>, error: &io::Error) -> Poll<io::Result<()>> {
        self.stop_splicing(error);
        if let Held::Piped(lent) = &mut self.held {
            let bytes = lent.pipe.take_rest()?;
            self.held = Held::Copied { bytes, sent: 0 };
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Other sockets may still splice, unless the system has no such call.
    fn stop_splicing(&mut self, error: &io::Error) {
        self.cannot_splice = true;
        if is_missing(error) {
            self.io.pipes.give_up();
        }
    }

    /// Takes bytes into a pipe, and says how many. Without a pipe they are copied, only as many as
    /// the other side takes: nothing is kept here of what nobody takes.
    ///
    /// `None`: a read has to say whether there are bytes, or the end. splice(2) does not know: it
    /// stops before urgent data, and gives nothing while the system lacks memory.
    fn poll_bulk(
        &mut self,
        cx: &mut Context<'_>,
        from: &Stream,
        to: &Stream,
    ) -> Poll<io::Result<Option<usize>>> {
        let Some(mut lent) = self.io.pipes.take() else {
            let copied = self.io.read_buffers.with(|buffer| from.poll_copy_taken(cx, to, buffer));
            let (seen, taken) = ready!(copied)?;
            self.ended = seen == 0;
            self.is_bulk = seen >= COPY_BYTES;
            self.moved_bytes += taken as u64;
            return Poll::Ready(Ok(Some(taken)));
        };
        let filled = match from.poll_fill(cx, &mut lent.pipe) {
            Poll::Ready(Err(error)) if is_unable(&error) => {
                self.stop_splicing(&error);
                Ok(0)
            }
            Poll::Ready(filled) => filled,
            Poll::Pending => {
                lent.put_back();
                return Poll::Pending;
            }
        };
        if let Ok(taken @ 1..) = filled {
            self.is_bulk = taken >= COPY_BYTES;
            self.held = Held::Piped(lent);
            return Poll::Ready(Ok(Some(taken)));
        }
        lent.put_back();
        Poll::Ready(filled.map(|_| None))
    }

    /// Copies bytes, and says how many. Only those that the other side does not take at once are
    /// kept.
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        from: &Wire,
        to: &Wire,
    ) -> Poll<Result<usize, Fault>> {
        let most = match &mut self.pace {
            None => COPY_BYTES,
            Some(pace) => {
                // A tunnel through which nothing comes takes nothing out of the buckets.
                ready!(from.poll_read_ready(cx)).map_err(|_| Fault::Source)?;
                ready!(pace.poll_allowance(cx, COPY_BYTES as u64)) as usize
            }
        };
        self.io.read_buffers.with(|buffer| {
            let room = buffer.get_mut(..most).unwrap_or_default();
            let reading = from.poll_read(cx, room);
            if let Some(pace) = &mut self.pace {
                if let Poll::Ready(Ok(read)) = &reading {
                    pace.spend(*read as u64);
                }
                pace.give_back();
            }
            let read = ready!(reading).map_err(|_| Fault::Source)?;
            self.ended = read == 0;
            self.is_bulk = read == COPY_BYTES;
            let mut rest = room.get(..read).unwrap_or_default();
            let writing = to.poll_write_all(cx, &mut rest);
            self.moved_bytes += (read - rest.len()) as u64;
            if let Poll::Ready(Err(_)) = writing {
                return Poll::Ready(Err(Fault::Sink));
            }
            if !rest.is_empty() {
                self.held = Held::Copied { bytes: rest.to_vec(), sent: 0 };
            }
            Poll::Ready(Ok(read))
        })
    }
}

/// Moves bytes both ways until both sides have closed (`None`), one has failed, nothing has moved
/// for too long, `refused` has ended, or the meter says no. Returns how many bytes the client got,
/// too.
pub async fn relay(
    io: &CoreIo,
    client: TunnelEnd,
    server: TunnelEnd,
    limits: TunnelLimits,
    refused: impl Future<Output = ()>,
    mut meter: Option<Meter>,
) -> (u64, Option<TunnelOver>) {
    io.count(Counter::Tunnels, 1);
    let mut up = Direction::new(io, client.early, server.pace);
    let mut down = Direction::new(io, server.early, client.pace);
    let (client, server) = (client.wire, server.wire);
    let deadline = io.deadlines.slot();
    deadline.arm(limits.idle);
    let mut moved = 0;
    // Also if the client is not read, because the server does not take its earlier bytes.
    let (mut ends, mut breaks) = (pin!(client.closed()), pin!(client.broken()));
    let (mut has_ended, mut refused) = (false, pin!(refused));
    let mut was_paced = false;
    let over = poll_fn(|cx| {
        if breaks.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(TunnelOver::Broken));
        }
        if refused.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(TunnelOver::Refused));
        }
        let sent = match down.is_cut {
            true => Poll::Pending,
            false => up.poll(cx, &client, &server, down.closed),
        };
        // The server takes nothing any more. What it had sent before is the client's, if it takes
        // it now. Its end is not: once the error is told, a reset looks like one.
        let was_cut = down.is_cut;
        down.is_cut |= !down.closed && sent == Poll::Ready(Err(Fault::Sink));
        let received = down.poll(cx, &server, &client, up.closed);
        match (sent, received) {
            (_, Poll::Ready(Err(_))) => return Poll::Ready(Some(TunnelOver::Broken)),
            (Poll::Ready(Err(_)), _) if !down.is_cut => {
                return Poll::Ready(Some(TunnelOver::Broken));
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(None),
            _ => {}
        }
        let ends_now = !has_ended && ends.as_mut().poll(cx).is_ready();
        has_ended |= ends_now;
        let now_moved = up.moved_bytes + down.moved_bytes;
        let is_paced = up.is_paced() || down.is_paced();
        let goes_on = std::mem::replace(&mut was_paced, is_paced) && !is_paced;
        let is_cut_now = down.is_cut && !was_cut;
        if ends_now || goes_on || is_cut_now || now_moved != moved {
            io.count(Counter::TunnelBytes, now_moved - moved);
            let may_go_on = meter.as_mut().is_none_or(|meter| meter(now_moved - moved));
            moved = now_moved;
            if !may_go_on {
                return Poll::Ready(Some(TunnelOver::Metered));
            }
            match has_ended {
                true => deadline.arm_in_line(limits.idle.min(limits.client_fin)),
                // Whatever the server had sent is here.
                false if down.is_cut => deadline.arm(limits.idle.min(limits.client_fin)),
                false => deadline.arm(limits.idle),
            }
        }
        if is_paced {
            // It is not idle: it is held back.
            deadline.disarm();
        }
        let lived = client.lifetime().map_or(Poll::Pending, |life| life.poll_expired(cx));
        match lived.is_ready() || deadline.poll_expired(cx).is_ready() {
            true => Poll::Ready(Some(TunnelOver::Idle)),
            false => Poll::Pending,
        }
    })
    .await;
    let total = up.moved_bytes + down.moved_bytes;
    io.count(Counter::TunnelBytes, total - moved);
    if let Some(meter) = meter.as_mut().filter(|_| total > moved) {
        // It is over in any case.
        _ = meter(total - moved);
    }
    io.count(Counter::ClientOutBytes, down.moved_bytes);
    if over == Some(TunnelOver::Broken) && !down.closed {
        client.delivered().await;
    }
    if over.is_some() {
        // Who has got an end has got all that comes before it.
        [(&up, &server), (&down, &client)]
            .into_iter()
            .filter(|(direction, _)| !direction.closed)
            .for_each(|(_, to)| to.cut_off());
    }
    let is_over_lifetime = || client.lifetime().is_some_and(DeadlineSlot::is_expired);
    let over = over.map(|over| if is_over_lifetime() { TunnelOver::Lifetime } else { over });
    (down.moved_bytes, over)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::ClientSettings;

    /// A connection to a server that has sent more than fits into a pipe in memory, and has reset.
    async fn broken_server() -> Rc<Stream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap().0);
        while theirs.try_write(&[b'x'; 4096]).is_ok() {}
        humboldt_sys::tcp::reset_on_close(&theirs).unwrap();
        drop(theirs);
        Rc::new(Stream::from(ours))
    }

    #[test]
    fn a_client_that_takes_nothing_does_not_hold_the_tunnel_of_a_broken_server() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, nothing_is_taken());
    }

    async fn nothing_is_taken() {
        let io = CoreIo::new(Arc::default(), ClientSettings::default());
        let (near, far) = Pipe::pair();
        // It reaches the server only when the other way is full.
        let server = TunnelEnd::server(broken_server().await, Vec::new());
        let client = TunnelEnd::memory(near);
        let limits = TunnelLimits {
            idle: Duration::from_secs(3600),
            client_fin: Duration::from_millis(100),
        };
        let relaying = relay(&io, client, server, limits, std::future::pending(), None);
        let sends = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let sent = poll_fn(|cx| far.poll_write(cx, b"more")).await;
            assert!(sent.is_ok());
            std::future::pending::<()>().await;
        };
        let began = Instant::now();
        tokio::select! {
            (got, over) = relaying => {
                assert!(got > 0 && over == Some(TunnelOver::Idle), "{over:?}");
            }
            () = sends => {}
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("it is held"),
        }
        assert!(began.elapsed() >= Duration::from_millis(300));
    }
}
