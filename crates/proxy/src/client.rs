//! The HTTP/1 side towards clients: one task per connection.
//!
//! An idle connection costs its task and nothing else: reading goes through the core's own buffer,
//! and only bytes that belong to a later request, or to a head that is not complete yet, are kept
//! with the connection. A hit that the socket takes whole is served inside
//! [`ClientConn::poll_turn`], without allocation; everything else is boxed.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_conf::HttpPort;
use humboldt_http::h1::{self, HeadError};
use humboldt_runtime::deadline::DeadlineSlot;
use humboldt_sys::tcp::{PeerState, peer_state};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::access::unmapped;
use crate::answer;
use crate::client_counts::Counted;
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::ErrorPage;
use crate::hit::{self, Sending};
use crate::leave::HELD_UP;
use crate::log::Watch;
use crate::pipeline::{self, Admission};
use crate::request::{ConnFacts, Request};
use crate::unparsed::Refused;

/// The other side has closed its sending half, or both: [`TcpStream::ready`] with this interest
/// waits for EPOLLRDHUP and EPOLLHUP, but not for bytes to read. (TCP's urgent data, which the name
/// is about, is not asked for when a socket is registered.)
pub(crate) const CLOSED: Interest = Interest::PRIORITY;

/// The connection is broken, for example reset: EPOLLERR.
pub(crate) const BROKEN: Interest = Interest::ERROR;

/// After its FIN a client is waited for so long at most while nothing comes for it, where
/// `half_closed_clients` lets it wait at all: it may still read, or have closed both halves, which
/// looks the same. Tunnels have a shorter limit of their own.
const CLIENT_FIN: Duration = Duration::from_secs(60);

/// How long a connection that is being closed may go on sending, and how much of it is read.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// What `tcpkeepalive` means where it gives no value: Linux's own defaults.
const KEEPALIVE_IDLE_S: u32 = 7200;
const KEEPALIVE_INTERVAL_S: u32 = 75;
const KEEPALIVE_PROBES: u32 = 9;

/// Whether a connection goes on after an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next request may come.
    Keep,
    /// Everything was sent: close, reading what the client still sends for a moment so that it sees
    /// the answer.
    Close,
    /// Both sides have said all, as at the end of a tunnel: close.
    Over,
    /// Cut off: what was sent is not complete, and the client must notice.
    Abort(Cut),
}

/// One connection to a client.
pub(crate) struct ClientConn {
    /// The socket.
    pub stream: TcpStream,
    /// Bytes read beyond what has been used: a head that is not complete, or what one read gave
    /// behind it. Nothing more is read until an answer is out.
    pub carry: RefCell<Vec<u8>>,
    /// Timer of whatever is being waited for.
    pub deadline: DeadlineSlot,
    /// Addresses and port.
    pub facts: Rc<ConnFacts>,
    /// When the connection has to end (`client_lifetime`), whatever is going on.
    pub lifetime: DeadlineSlot,
    /// Requests served.
    pub served: u64,
    /// How much of `carry` has been parsed and found incomplete: a head that trickles in is not
    /// parsed at every byte.
    parsed_bytes: usize,
}

/// What a turn of [`ClientConn::poll_turn`] ends with.
enum Turn {
    /// A hit that the socket did not take whole.
    Send(Box<Sending>),
    /// A request that needs more than memory.
    Slow(Rc<Request>, Admission),
    /// A head that is refused.
    Refused(Box<Refused>),
    /// A head of which the rest does not come.
    Unfinished(Cut),
    /// The head did not arrive in time.
    TimedOut,
    /// The connection ends: the client has gone, or was idle for too long, or the answer was the
    /// last.
    End(After),
}

/// Serves a connection until it ends.
pub async fn serve_connection(
    core: Rc<Core>,
    stream: TcpStream,
    client: SocketAddr,
    port: Arc<HttpPort>,
) {
    let Ok(local) = stream.local_addr() else { return };
    keep_alive_probes(&stream, &port);
    let mut open = Open::new(&core);
    core.count(Counter::ClientConnections, 1);
    let snapshot = core.snapshot();
    let counted =
        snapshot.counts_clients.then(|| core.shared.client_counts.enter(unmapped(client.ip())));
    let connections = counted.as_ref().map(Counted::connections);
    let mut conn = ClientConn {
        deadline: core.deadlines.slot(),
        lifetime: core.deadlines.slot(),
        facts: Rc::new(ConnFacts { client, local, port, connections }),
        stream,
        carry: RefCell::default(),
        served: 0,
        parsed_bytes: 0,
    };
    conn.deadline.arm_in_line(snapshot.config.request_start_timeout);
    conn.lifetime.arm(snapshot.config.client_lifetime);
    drop(snapshot);
    let after = conn.run(&core).await;
    open.is_served = true;
    match after {
        After::Abort(cut) => core.shared.times.record_cut(core.id, cut),
        After::Close => Box::pin(conn.linger(&core)).await,
        After::Keep | After::Over => {}
    }
    drop(conn);
    drop(counted);
}

/// An open connection in the figures of its core. It leaves them however its task ends: by a panic,
/// too, or because the core ends.
struct Open<'a> {
    core: &'a Core,
    is_served: bool,
}

impl<'a> Open<'a> {
    fn new(core: &'a Core) -> Self {
        core.connection_opened();
        Self { core, is_served: false }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.is_served {
            self.core.shared.times.record_cut(self.core.id, Cut::of_a_dropped_task());
        }
        self.core.connection_closed();
    }
}

/// `tcpkeepalive=` of the port.
fn keep_alive_probes(stream: &TcpStream, port: &HttpPort) {
    let Some(probes) = port.tcpkeepalive else { return };
    let or = |value_s: u32, default_s: u32| if value_s == 0 { default_s } else { value_s };
    let (idle_s, interval_s) =
        (or(probes.idle_s, KEEPALIVE_IDLE_S), or(probes.interval_s, KEEPALIVE_INTERVAL_S));
    let count = or(probes.timeout_s / interval_s.max(1), KEEPALIVE_PROBES);
    let seconds = |value_s: u32| Duration::from_secs(value_s.into());
    // Without probes a dead client is noticed by the timeouts.
    _ = humboldt_sys::tcp::set_keepalive(stream, seconds(idle_s), seconds(interval_s), count);
}

impl ClientConn {
    async fn run(&mut self, core: &Rc<Core>) -> After {
        loop {
            let turn = tokio::select! {
                biased;
                turn = poll_fn(|cx| self.poll_turn(cx, core)) => turn,
                () = core.drain.notified() => self.ended_by(Cut::ShutDown),
            };
            self.deadline.leave_line();
            let after = match turn {
                Turn::End(after) => return after,
                Turn::Send(sending) => {
                    let _watch = Watch::new(core, sending.request());
                    Box::pin(hit::finish(core, self, sending)).await
                }
                Turn::Slow(request, admission) => {
                    let _watch = Watch::new(core, &request);
                    Box::pin(pipeline::proceed(core, self, request, admission)).await
                }
                Turn::Refused(refused) => Box::pin(answer::refuse(core, self, &refused)).await,
                Turn::Unfinished(cut) => answer::give_up_head(core, self, cut),
                Turn::TimedOut => Box::pin(answer::time_out(core, self)).await,
            };
            if after != After::Keep {
                return after;
            }
            if !self.may_continue(core) {
                return After::Close;
            }
            self.wait_for_next(core);
        }
    }

    /// Why the connection is cut off when this is what writing to it, or reading from it, came to.
    pub(crate) fn cut_by(&self, error: &io::Error) -> Cut {
        match error.kind() {
            _ if self.lifetime.is_expired() => Cut::Lifetime,
            io::ErrorKind::TimedOut => Cut::ClientStalled,
            HELD_UP => Cut::HeldUp,
            _ => Cut::ClientGone,
        }
    }

    /// Why the connection is cut off when the client has left, or has been there for too long.
    pub(crate) fn cut_by_client(&self) -> Cut {
        if self.lifetime.is_expired() { Cut::Lifetime } else { Cut::ClientGone }
    }

    /// Whether another request may come on this connection.
    pub(crate) fn may_continue(&self, core: &Core) -> bool {
        !core.is_draining() && !self.lifetime.is_expired()
    }

    /// Resolves when what is being waited for has taken too long, or the connection has lived too
    /// long.
    pub(crate) fn poll_out_of_time(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.lifetime.poll_expired(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.deadline.poll_expired(cx),
        }
    }

    /// What the end of the connection means: nothing between requests.
    fn ended_by(&self, cut: Cut) -> Turn {
        if self.carry.borrow().is_empty() { Turn::End(After::Close) } else { Turn::Unfinished(cut) }
    }

    /// Arms the timer for an idle connection, or for the rest of a head that has begun.
    fn wait_for_next(&mut self, core: &Core) {
        let snapshot = core.snapshot();
        let config = &snapshot.config;
        let carry = self.carry.get_mut();
        self.parsed_bytes = 0;
        if carry.is_empty() {
            *carry = Vec::new();
            self.deadline.arm_in_line(config.client_idle_pconn_timeout);
        } else {
            self.deadline.arm_in_line(config.request_timeout);
        }
    }

    /// Reads, parses and serves hits until something else is to be done.
    fn poll_turn(&mut self, cx: &mut Context<'_>, core: &Rc<Core>) -> Poll<Turn> {
        loop {
            if let Some(turn) = self.serve_carried(core) {
                match turn {
                    Ok(()) => continue,
                    Err(turn) => return Poll::Ready(turn),
                }
            }
            match self.poll_serve(cx, core) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(turn)) => return Poll::Ready(turn),
                Poll::Pending => ready!(self.deadline.poll_expired(cx)),
            }
            return Poll::Ready(match self.carry.get_mut().is_empty() {
                // Nothing has come: there is nothing to wait for any longer.
                true if self.deadline.gave_way() => Turn::End(After::Over),
                true => Turn::End(After::Close),
                false => Turn::TimedOut,
            });
        }
    }

    /// Serves from bytes that were read earlier. `None` when more must be read.
    fn serve_carried(&mut self, core: &Rc<Core>) -> Option<Result<(), Turn>> {
        let carry = self.carry.get_mut();
        if carry.is_empty()
            || !h1::may_complete_head(carry, self.parsed_bytes, &core.snapshot().head_limits)
        {
            return None;
        }
        let carry = std::mem::take(carry);
        let outcome = self.serve_input(core, &carry);
        match outcome {
            Parsed::Incomplete => {
                self.parsed_bytes = carry.len();
                *self.carry.get_mut() = carry;
                None
            }
            Parsed::Served(used, result) => {
                let mut rest = carry;
                rest.drain(..used.min(rest.len()));
                *self.carry.get_mut() = rest;
                Some(result)
            }
        }
    }

    /// Reads once and serves what it gave.
    fn poll_serve(&mut self, cx: &mut Context<'_>, core: &Rc<Core>) -> Poll<Result<(), Turn>> {
        core.read_buffers.with(|buffer| {
            let mut read = ReadBuf::new(buffer);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {}
                _ => return Poll::Ready(Err(self.ended_by(Cut::ClientGone))),
            }
            let input = read.filled();
            core.count(Counter::ClientInBytes, input.len() as u64);
            let carry = self.carry.get_mut();
            if !carry.is_empty() {
                carry.extend_from_slice(input);
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(self.serve_fresh(core, input))
        })
    }

    /// Serves requests straight from the read buffer, keeping what is left.
    fn serve_fresh(&mut self, core: &Rc<Core>, mut input: &[u8]) -> Result<(), Turn> {
        while !input.is_empty() {
            match self.serve_input(core, input) {
                Parsed::Incomplete => {
                    self.carry.get_mut().extend_from_slice(input);
                    self.parsed_bytes = input.len();
                    let snapshot = core.snapshot();
                    self.deadline.arm_in_line(snapshot.config.request_timeout);
                    return Ok(());
                }
                Parsed::Served(used, result) => {
                    input = input.get(used..).unwrap_or_default();
                    if result.is_err() {
                        self.carry.get_mut().extend_from_slice(input);
                        return result;
                    }
                }
            }
        }
        Ok(())
    }

    /// Parses one request and, if it is a hit that the socket takes whole, serves it.
    fn serve_input(&mut self, core: &Rc<Core>, input: &[u8]) -> Parsed {
        let snapshot = core.snapshot();
        let mut request = core.take_request();
        let Some(unshared) = Rc::get_mut(&mut request) else {
            return Parsed::Served(0, Err(Turn::End(After::Close)));
        };
        let used = match h1::parse_request(input, &snapshot.head_limits, &mut unshared.head) {
            Ok(Some(used)) => used,
            Ok(None) => {
                core.return_request(request);
                return Parsed::Incomplete;
            }
            Err(error) => {
                core.return_request(request);
                let refused = Box::new(Refused::new(error, input));
                return Parsed::Served(input.len(), Err(Turn::Refused(refused)));
            }
        };
        self.served += 1;
        core.count(Counter::ClientRequests, 1);
        let admission = match unshared.complete(&self.facts, &snapshot, core.now()) {
            Ok(()) => pipeline::admit(core, &request),
            Err(page) => Admission::Refuse(page, String::new()),
        };
        let Admission::Hit(object) = admission else {
            return Parsed::Served(used, Err(Turn::Slow(request, admission)));
        };
        Parsed::Served(used, self.serve_hit(core, request, object))
    }

    fn serve_hit(
        &mut self,
        core: &Rc<Core>,
        request: Rc<Request>,
        object: hit::HitObject,
    ) -> Result<(), Turn> {
        match hit::start(core, self, request, object) {
            hit::Started::Done(After::Keep) if self.may_continue(core) => {
                self.wait_for_next(core);
                Ok(())
            }
            hit::Started::Done(After::Keep) => Err(Turn::End(After::Close)),
            hit::Started::Done(after) => Err(Turn::End(after)),
            hit::Started::Rest(sending) => Err(Turn::Send(sending)),
        }
    }

    /// Closes our side and reads a little of what the client still sends, so that it gets the last
    /// answer instead of a reset (RFC 9112 9.6).
    async fn linger(&mut self, core: &Core) {
        if socket_shutdown(&self.stream).is_err() {
            return;
        }
        self.deadline.arm(LINGER);
        let mut read_bytes = 0;
        while read_bytes < LINGER_BYTES_MAX {
            let result = poll_fn(|cx| {
                if self.deadline.poll_expired(cx).is_ready() {
                    return Poll::Ready(0);
                }
                core.read_buffers.with(|buffer| {
                    let mut read = ReadBuf::new(buffer);
                    let result = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read));
                    Poll::Ready(if result.is_ok() { read.filled().len() } else { 0 })
                })
            })
            .await;
            if result == 0 {
                return;
            }
            read_bytes += result;
        }
    }

    /// Reads once into the carry, as for a request body; `false` when the client has closed its
    /// side.
    pub(crate) fn poll_read_more(
        &self,
        cx: &mut Context<'_>,
        core: &Core,
    ) -> Poll<io::Result<bool>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let read = core.read_buffers.with(|buffer| {
                let read = self.stream.try_read(buffer)?;
                self.carry.borrow_mut().extend_from_slice(buffer.get(..read).unwrap_or_default());
                io::Result::Ok(read)
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(read) => {
                    core.count(Counter::ClientInBytes, read as u64);
                    return Poll::Ready(Ok(read > 0));
                }
            }
        }
    }

    /// Ends when the client of `request` has gone while something is being done for it, or its
    /// connection has lived too long. Nothing is read for that, so it does not matter what the
    /// client has sent before, and the next request is still there.
    ///
    /// A client that closes its sending half has gone as well, unless `half_closed_clients` says
    /// that it may still read: then it has gone when the connection is reset, or nothing has come
    /// for it for [`CLIENT_FIN`]. One that has closed both halves cannot be told from it; the
    /// kernel resets that one's connection when it is sent something.
    pub(crate) async fn gone(&self, request: &Request) {
        let mut left =
            pin!(left(&self.stream, &self.deadline, request.snapshot().config.half_closed_clients));
        poll_fn(|cx| match self.lifetime.poll_expired(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => left.as_mut().poll(cx),
        })
        .await;
    }

    /// What `work` for `request` gives; `None` when the client goes before ([`ClientConn::gone`]).
    /// Whatever the task of a connection waits for is waited for in here, but for the client
    /// itself. Work that is large should be pinned by the caller: what is moved in here has its
    /// place twice.
    pub(crate) async fn while_it_stays<T>(
        &self,
        request: &Request,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut work, mut gone) = (pin!(work), pin!(self.gone(request)));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => gone.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

/// Ends when a client has left; see [`ClientConn::gone`]. `deadline` is one of its core, which
/// stays as it is.
async fn left(stream: &TcpStream, deadline: &DeadlineSlot, half_closed: bool) {
    let doubt = match in_doubt(stream, half_closed).await {
        None => return,
        Some(doubt) => doubt,
    };
    let place = deadline.another();
    if doubt == Doubt::SentMore {
        place.arm_in_line(Duration::MAX);
        let Ok(Ok(ready)) = place.guard(stream.ready(BROKEN | CLOSED)).await else { return };
        if !half_closed || ready.is_error() || ready.is_write_closed() {
            return;
        }
    }
    place.arm_in_line(CLIENT_FIN);
    _ = place.guard(stream.ready(BROKEN)).await;
}

/// Why a client may have left without a sign of it. Such a one gives way where descriptors are
/// scarce.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Doubt {
    /// It has closed its sending half, and may do that.
    HalfClosed,
    /// It has sent more than was asked for, behind which its end may wait.
    SentMore,
}

/// Waits until the client has gone (`None`), or may have.
async fn in_doubt(stream: &TcpStream, half_closed: bool) -> Option<Doubt> {
    loop {
        let ready = stream.ready(Interest::READABLE | BROKEN).await.ok()?;
        if ready.is_error() || ready.is_write_closed() {
            return None;
        }
        if ready.is_read_closed() {
            return half_closed.then_some(Doubt::HalfClosed);
        }
        let unread = stream.try_io(Interest::READABLE, || match peer_state(stream) {
            PeerState::Quiet => Err(io::ErrorKind::WouldBlock.into()),
            PeerState::Sent | PeerState::Closed => Ok(()),
        });
        if unread.is_ok() {
            return Some(Doubt::SentMore);
        }
    }
}

enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// This many bytes were used, and this came of it.
    Served(usize, Result<(), Turn>),
}

fn socket_shutdown(stream: &TcpStream) -> io::Result<()> {
    humboldt_sys::tcp::shutdown_write(stream)
}

/// The page that answers a refused head.
pub(crate) fn page_for(error: HeadError) -> ErrorPage {
    match error.status() {
        414 => ErrorPage::UriTooLong,
        417 => ErrorPage::ExpectationFailed,
        431 => ErrorPage::HeadTooLarge,
        501 => ErrorPage::UnsupportedMethod,
        505 => ErrorPage::UnsupportedVersion,
        _ => ErrorPage::InvalidRequest,
    }
}

#[cfg(test)]
mod tests {
    use humboldt_runtime::deadline::{Deadlines, TICK};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// How long a client that has sent `more` and then its FIN is waited for; `None`: for longer
    /// than an hour.
    async fn waited_for(more: &[u8], half_closed: bool) -> Option<Duration> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        client.write_all(more).await.unwrap();
        client.shutdown().await.unwrap();
        let deadlines = Deadlines::new();
        let (slot, start) = (deadlines.slot(), Instant::now());
        let hour = Duration::from_secs(3600);
        let result = tokio::time::timeout(hour, left(&stream, &slot, half_closed)).await;
        result.is_ok().then(|| start.elapsed())
    }

    #[test]
    fn a_client_is_waited_for_so_long_after_its_fin() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async {
            for more in [&b""[..], b"GET / HTTP/1.1\r\n"] {
                let waited = waited_for(more, true).await.expect("an end");
                assert!(
                    (CLIENT_FIN..=CLIENT_FIN + 3 * TICK).contains(&waited),
                    "{more:?}: {waited:?}"
                );
                let waited = waited_for(more, false).await.expect("an end");
                assert!(waited <= TICK, "{more:?}: {waited:?}");
            }
        });
    }
}
