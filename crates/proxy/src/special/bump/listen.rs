//! Reads a client's first message without answering it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use humboldt_base::bump::ClientHello;
use humboldt_base::counters::Counter;
use humboldt_tls::read_client_hello;

use crate::cut::Cut;
use crate::handshake::HANDSHAKE_TIME;
use crate::transaction::Transaction;

/// What has come from a client.
pub(super) enum Heard {
    /// A first message, which stays among the bytes of the client.
    Hello(ClientHello),
    /// Bytes of another protocol; they stay there too.
    Other,
    /// They are TLS that breaks its rules. A server might take it nevertheless, so it never passes
    /// unread.
    Broken,
    /// Not a byte has come in time: its server may be the one to speak first.
    Silent,
    /// Nothing more will come, or not in time.
    Lost(Cut),
}

/// Waits for the first message. As long as nothing has come, the connection is an idle one, and may
/// give way; afterwards it counts among the handshakes of its core.
pub(super) async fn listen(transaction: &mut Transaction<'_>) -> Heard {
    let core = transaction.core;
    let start_time = core.snapshot().config.request_start_timeout;
    let deadline = core.io.deadlines.slot();
    deadline.arm_in_line(start_time);
    let mut place = None;
    let mut drained = pin!(core.io.drain.notified());
    loop {
        if !transaction.client.early_bytes().is_empty() {
            match read_client_hello(transaction.client.early_bytes()) {
                Ok(Some((hello, _))) => return Heard::Hello(hello),
                Ok(None) => {}
                Err(why) => {
                    tracing::debug!("no TLS in a tunnel that is intercepted: {why}");
                    core.count(Counter::BumpNotTls, 1);
                    return match why.is_broken_tls() {
                        true => Heard::Broken,
                        false => Heard::Other,
                    };
                }
            }
            if place.is_none() {
                place = Some(core.handshakes.enter());
                deadline.arm(HANDSHAKE_TIME.min(start_time));
            }
        }
        let gives_way = async {
            match &place {
                Some(place) => place.gives_way().await,
                None => std::future::pending().await,
            }
        };
        let (mut gives_way, client) = (pin!(gives_way), &mut *transaction.client);
        let more = poll_fn(|cx| {
            if let Poll::Ready(read) = client.poll_early_bytes(cx) {
                return Poll::Ready(match read {
                    Ok(true) => Ok(()),
                    Ok(false) | Err(_) => Err(Cut::ClientGone),
                });
            }
            if gives_way.as_mut().poll(cx).is_ready() {
                core.count(Counter::TlsGivenWay, 1);
                return Poll::Ready(Err(Cut::NoHandshake));
            }
            if core.io.is_draining() || drained.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Cut::ShutDown));
            }
            deadline.poll_expired(cx).map(|()| Err(Cut::NoHandshake))
        });
        match more.await {
            Ok(()) => {}
            // One that has given its descriptor to another gets no server.
            Err(Cut::NoHandshake) if place.is_none() && !deadline.gave_way() => {
                return Heard::Silent;
            }
            Err(cut) => return Heard::Lost(cut),
        }
    }
}
