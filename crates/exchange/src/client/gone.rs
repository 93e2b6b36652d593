//! Whether a client has left.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use humboldt_net::Stream;
use humboldt_runtime::deadline::DeadlineSlot;
use humboldt_sys::tcp::PeerState;
use tokio::io::Interest;

use super::socket::{BROKEN, CLOSED, Socket};

/// The time after its FIN that a client may stay while nothing is sent to it. It has this time only
/// if `half_closed_clients` is on. The client may still read, or it may have closed both halves:
/// both look the same. Tunnels have a shorter limit of their own.
const CLIENT_FIN: Duration = Duration::from_secs(60);

/// Ends when the client has left, or its connection has lived too long.
pub(super) async fn gone(socket: Rc<Socket>, half_closed: bool) {
    let mut left = pin!(left(&socket.stream, &socket.deadline, half_closed));
    poll_fn(|cx| match socket.lifetime.poll_expired(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => left.as_mut().poll(cx),
    })
    .await;
}

/// Ends when a client has left. `deadline` is one of its core, which stays as it is.
async fn left(stream: &Stream, deadline: &DeadlineSlot, half_closed: bool) {
    if let Some(doubt) = in_doubt(stream, half_closed).await {
        // Boxed, because each client that waits would have its memory, and few get here.
        Box::pin(left_after(doubt, stream, deadline, half_closed)).await;
    }
}

/// Ends when a client in doubt has left.
async fn left_after(doubt: Doubt, stream: &Stream, deadline: &DeadlineSlot, half_closed: bool) {
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

/// Why a client may have left without a sign of it. Its connection gives way where descriptors are
/// scarce.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Doubt {
    /// It has closed its sending half, and may do that.
    HalfClosed,
    /// It has sent more than was asked for, behind which its end may wait.
    SentMore,
}

/// Waits until the client has gone (`None`), or may have.
async fn in_doubt(stream: &Stream, half_closed: bool) -> Option<Doubt> {
    loop {
        // This costs less than the next wait, which is rarely needed: a client that waits for its
        // answer sends nothing.
        poll_fn(|cx| stream.poll_read_ready(cx)).await.ok()?;
        let ready = stream.ready(Interest::READABLE | BROKEN).await.ok()?;
        if ready.is_error() || ready.is_write_closed() {
            return None;
        }
        if ready.is_read_closed() {
            return half_closed.then_some(Doubt::HalfClosed);
        }
        let unread = stream.try_io(Interest::READABLE, || match stream.peer_state() {
            PeerState::Quiet => Err(io::ErrorKind::WouldBlock.into()),
            PeerState::Sent | PeerState::Closed => Ok(()),
        });
        if unread.is_ok() {
            return Some(Doubt::SentMore);
        }
    }
}

#[cfg(test)]
mod tests {
    use humboldt_runtime::deadline::{Deadlines, TICK};
    use tokio::io::{AsyncWrite, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream, UnixStream};
    use tokio::time::Instant;

    use super::*;

    async fn over_tcp() -> (TcpStream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0.into())
    }

    fn over_unix() -> (UnixStream, Stream) {
        let (client, stream) = UnixStream::pair().unwrap();
        (client, stream.into())
    }

    /// How long the server waits for a client that has sent `more` and then its FIN; `None`: longer
    /// than an hour.
    async fn waited_for(
        (mut client, stream): (impl AsyncWrite + Unpin, Stream),
        more: &[u8],
        half_closed: bool,
    ) -> Option<Duration> {
        client.write_all(more).await.unwrap();
        client.shutdown().await.unwrap();
        let deadlines = Deadlines::new();
        let (slot, start) = (deadlines.slot(), Instant::now());
        let hour = Duration::from_secs(3600);
        let result = tokio::time::timeout(hour, left(&stream, &slot, half_closed)).await;
        result.is_ok().then(|| start.elapsed())
    }

    #[test]
    fn a_client_is_waited_for_after_its_fin_where_it_may_still_read() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async {
            for more in [&b""[..], b"GET / HTTP/1.1\r\n"] {
                for waited in [
                    waited_for(over_tcp().await, more, true).await,
                    waited_for(over_unix(), more, true).await,
                ] {
                    let waited = waited.expect("an end");
                    assert!(
                        (CLIENT_FIN..=CLIENT_FIN + 3 * TICK).contains(&waited),
                        "{more:?}: {waited:?}"
                    );
                }
                for waited in [
                    waited_for(over_tcp().await, more, false).await,
                    waited_for(over_unix(), more, false).await,
                ] {
                    let waited = waited.expect("an end");
                    assert!(waited <= TICK, "{more:?}: {waited:?}");
                }
            }
        });
    }
}
