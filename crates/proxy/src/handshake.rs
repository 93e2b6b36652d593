//! The handshakes of clients that speak TLS.
//!
//! A session begins with the first byte of a client, and a client that does not get on gives way to
//! newer ones: of a flood of handshakes the oldest are closed, and an honest client, which needs
//! one more turn of its network only, gets through.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::Counter;
use humboldt_conf::HttpPort;
use humboldt_net::{Stream, tls};
use humboldt_tls::{Fault, ServerSide};
use tokio::sync::Notify;

use crate::core::Core;
use crate::demands::Demands;

/// Most handshakes of a core that are under way. At the next one the oldest is closed.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Longest time for a handshake from its first byte on.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(30);

/// Least time between two failures of a core that the log tells one by one.
const FAILURE_PAUSE_MS: u64 = 10_000;

/// How long a client that speaks no TLS may take to read why it is refused, and the most that is
/// read of it.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Bytes that are read at first, at most. Most first messages are shorter.
const FIRST_BYTES: usize = 4096;

/// The first byte of a connection with TLS: a record of a handshake (RFC 8446 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The answer to a client that speaks plain HTTP to a port with TLS; nginx and Apache send one too.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 51\r\n\
    Connection: close\r\n\
    \r\n\
    This port speaks https, and the request was http.\r\n";

/// The handshakes of a core that are under way, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    line: RefCell<VecDeque<Rc<Notify>>>,
    /// When a failure was last told in the log, and how many were not since then.
    told: Cell<Option<UnixMillis>>,
    untold: Cell<u64>,
}

/// The place of one of them.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    line: &'a Handshakes,
    gives_way: Rc<Notify>,
}

impl Handshakes {
    /// A place for one more.
    pub(crate) fn enter(&self) -> Place<'_> {
        let mut line = self.line.borrow_mut();
        if line.len() >= HANDSHAKES_MAX
            && let Some(oldest) = line.pop_front()
        {
            oldest.notify_one();
        }
        let gives_way = Rc::new(Notify::new());
        line.push_back(Rc::clone(&gives_way));
        Place { line: self, gives_way }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.line.borrow().len()
    }

    /// Whether a failure is told in the log now: then how many were not told before it.
    fn tells(&self, now: UnixMillis) -> Option<u64> {
        let since_ms = self.told.get().map(|told| now.0.abs_diff(told.0));
        if since_ms.is_some_and(|since_ms| since_ms < FAILURE_PAUSE_MS) {
            self.untold.set(self.untold.get() + 1);
            return None;
        }
        self.told.set(Some(now));
        Some(self.untold.take())
    }
}

/// Counts a failure, and tells it in the log, where it is not one of many.
fn failed(core: &Core, port: &HttpPort, client: SocketAddr, why: &dyn std::fmt::Display) {
    core.count(Counter::TlsFailures, 1);
    match core.handshakes.tells(core.now()) {
        None => tracing::debug!("port {}: {client}: {why}", port.name),
        Some(0) => tracing::warn!("port {}: no TLS with {client}: {why}", port.name),
        Some(more) => tracing::warn!(
            "port {}: no TLS with {client}: {why} ({more} more clients have failed before)",
            port.name
        ),
    }
}

impl Place<'_> {
    /// Ends when another handshake needs the place.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.line.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.gives_way));
    }
}

/// Takes the side of the server, and says what it has asked of the client. `None`: the connection
/// is over.
pub(crate) async fn accept(
    core: &Core,
    mut stream: Stream,
    client: SocketAddr,
    port: &HttpPort,
) -> Option<(Stream, Demands)> {
    let start_time = core.snapshot().config.request_start_timeout;
    let deadline = core.io.deadlines.slot();
    // As long as nothing has come it is an idle connection, which may give way.
    deadline.arm_in_line(start_time);
    let early = deadline.guard(pin!(first_bytes(core, &mut stream))).await.ok()??;
    let first = *early.first()?;
    if first != HANDSHAKE_RECORD {
        failed(core, port, client, &"what it sends is no TLS");
        if first.is_ascii_uppercase() {
            deadline.arm(REFUSAL_TIME);
            _ = deadline.guard(pin!(refuse(&stream))).await;
        }
        return None;
    }
    let snapshot = core.snapshot();
    let Some(side) = snapshot.tls.port(port) else {
        tracing::debug!("port {}: it is no port with TLS any more", port.name);
        return None;
    };
    let (side, demands) = (side.clone(), Demands::of(snapshot.generation(), side));
    drop(snapshot);
    let stream = shake_hands(core, stream, &early, client, port, &side).await?;
    Some((stream, demands))
}

/// Takes the side of the server on a connection from which `early` has been read already. `None`:
/// there is no agreement, or not in time.
pub(crate) async fn shake_hands(
    core: &Core,
    stream: Stream,
    early: &[u8],
    client: SocketAddr,
    port: &HttpPort,
    side: &ServerSide,
) -> Option<Stream> {
    let deadline = core.io.deadlines.slot();
    let place = core.handshakes.enter();
    deadline.arm(HANDSHAKE_TIME.min(core.snapshot().config.request_start_timeout));
    let shaking = pin!(tls::accept_with(stream, early, side));
    let result = tokio::select! {
        result = deadline.guard(shaking) => {
            result.unwrap_or(Err(Fault::TimedOut))
        }
        () = place.gives_way() => {
            core.count(Counter::TlsGivenWay, 1);
            return None;
        }
    };
    match result {
        Ok(stream) => {
            core.count(Counter::TlsHandshakes, 1);
            Some(stream)
        }
        Err(fault) => {
            failed(core, port, client, &fault);
            None
        }
    }
}

/// What the client sends at first; `None` if it sends nothing. As long as it does not, there is no
/// place for it.
async fn first_bytes(core: &Core, stream: &mut Stream) -> Option<Vec<u8>> {
    let read = poll_fn(|cx| {
        core.io.read_buffers.with(|buffer| {
            let place = buffer.get_mut(..FIRST_BYTES).unwrap_or_default();
            let read = ready!(stream.poll_read(cx, place)).unwrap_or(0);
            Poll::Ready(place.get(..read).unwrap_or_default().to_vec())
        })
    });
    Some(read.await).filter(|bytes| !bytes.is_empty())
}

async fn refuse(stream: &Stream) {
    let mut rest = PLAIN_HTTP;
    let mut read_bytes = 0;
    poll_fn(|cx| poll_refuse(cx, stream, &mut rest, &mut read_bytes)).await;
}

/// Sends the answer and the end, and reads what the client has sent: it would otherwise get a reset
/// before the answer.
fn poll_refuse(
    cx: &mut Context<'_>,
    stream: &Stream,
    rest: &mut &[u8],
    read_bytes: &mut usize,
) -> Poll<()> {
    if !rest.is_empty() {
        match stream.poll_write_all(cx, rest) {
            Poll::Ready(Ok(())) => _ = stream.poll_shut_down_write(cx),
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
    let mut buffer = [0; 1024];
    while *read_bytes < REFUSAL_BYTES_MAX {
        match stream.poll_read_shared(cx, &mut buffer) {
            Poll::Ready(Ok(read)) if read > 0 => *read_bytes += read,
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_in_plain_text_has_the_length_that_it_says() {
        let text = std::str::from_utf8(PLAIN_HTTP).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }

    #[test]
    fn of_many_failures_the_log_tells_one_and_the_number() {
        let handshakes = Handshakes::default();
        assert_eq!(handshakes.tells(UnixMillis(5_000)), Some(0));
        assert_eq!(handshakes.tells(UnixMillis(5_001)), None);
        assert_eq!(handshakes.tells(UnixMillis(14_999)), None);
        assert_eq!(handshakes.tells(UnixMillis(15_000)), Some(2));
        assert_eq!(handshakes.tells(UnixMillis(25_000)), Some(0));
    }

    #[tokio::test]
    async fn at_the_bound_the_oldest_handshake_gives_way() {
        let handshakes = Handshakes::default();
        let mut places: Vec<_> = (0..HANDSHAKES_MAX).map(|_| handshakes.enter()).collect();
        drop(places.remove(0));
        let last = handshakes.enter();
        assert_eq!(handshakes.line.borrow().len(), HANDSHAKES_MAX);
        let next = handshakes.enter();
        places.remove(0).gives_way.notified().await;
        assert_eq!(handshakes.line.borrow().len(), HANDSHAKES_MAX);
        drop((last, next, places));
        assert!(handshakes.line.borrow().is_empty());
    }
}
