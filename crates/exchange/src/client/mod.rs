//! An exchange with a client: the request that it sends, and the answer that it gets.

mod carrier;
mod faults;
mod gone;
pub(crate) mod h1;
mod limits;
pub(crate) mod lines;
mod raw;
pub(crate) mod requests;
mod socket;
pub(crate) mod socks;
mod unreadable;

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use humboldt_base::token_bucket::TokenBucket;
use humboldt_http::h1::EncodeError;
use humboldt_http::{Fields, RequestHead};
use humboldt_net::marks::PacketMarks;

use crate::head::{BodyLength, BodyPart, BodySlices, ReplyHead};
use crate::memory::ClientSide;
use crate::tunnel::TunnelEnd;

pub use carrier::{Carrier, Kept};
pub use faults::{BodyFault, ClientLost, ResetReason};
pub use h1::H1Client;
pub(crate) use raw::RawClient;
pub(crate) use requests::Event;
pub use requests::Refused;
pub(crate) use socket::{BROKEN, CLOSED, Socket};
pub use socks::{SocksClient, SocksSettings};
pub use unreadable::Unreadable;

/// One request of a client, and its answer.
///
/// The order of an answer: any number of interim heads, a head, slices of the body, the end. Bytes
/// that were given to the exchange and that the client does not take yet are kept ([`is_flushed`]
/// tells); only heads, frames and bodies of a few KiB are, so their size is bounded.
///
/// [`is_flushed`]: ClientExchange::is_flushed
pub enum ClientExchange {
    /// On a connection of HTTP/1.
    H1(H1Client),
    /// On a connection of SOCKS5.
    Socks(SocksClient),
    /// On a connection that is a tunnel from its first byte on.
    Raw(RawClient),
    /// In memory.
    Memory(ClientSide),
}

macro_rules! each {
    ($exchange:expr, $client:ident => $do:expr) => {
        match $exchange {
            ClientExchange::H1($client) => $do,
            // The connection is one of HTTP/1, but for what is sent.
            ClientExchange::Socks(SocksClient { h1: $client, .. })
            | ClientExchange::Raw(RawClient { h1: $client }) => $do,
            ClientExchange::Memory($client) => $do,
        }
    };
}

impl ClientExchange {
    /// The length of the request's body.
    pub fn request_body(&self) -> BodyLength {
        each!(self, client => client.request_body())
    }

    /// Refuses bodies that announce more than this many bytes.
    pub fn limit_request_body(&mut self, bytes: Option<u64>) {
        each!(self, client => client.limit_request_body(bytes));
    }

    /// Marks the packets that are sent from now on.
    pub fn mark_packets(&mut self, marks: PacketMarks) {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.mark_packets(marks),
            // There are no packets.
            Self::Memory(_) => {}
        }
    }

    /// Limits the pace of the answer that begins to that of these buckets. For a tunnel, it is the
    /// pace of the bytes that the client gets.
    pub fn limit_answer(&mut self, buckets: Vec<Arc<TokenBucket>>) {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.limit_answer(buckets),
            // Tests in memory have no clients at the end of a slow line.
            Self::Memory(_) => {}
        }
    }

    /// Gives the next part of the request's body to `take`: `Ok(true)` at its end, `Ok(false)`
    /// when there is more.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(BodyPart<'_>) -> Result<(), EncodeError>,
    ) -> Poll<Result<bool, BodyFault>> {
        each!(self, client => client.poll_body(cx, take))
    }

    /// The client's time to send more of a body counts from now.
    pub fn expect_body(&mut self) {
        each!(self, client => client.expect_body());
    }

    /// Ready when that time is over, or that of the connection.
    pub fn poll_body_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        each!(self, client => client.poll_body_late(cx))
    }

    /// Passes an interim answer (1xx) on, to clients that know them (RFC 9110 15.2).
    pub fn send_interim(&mut self, head: &impl ReplyHead) {
        match self {
            Self::H1(client) => client.send_interim(head),
            Self::Socks(_) | Self::Raw(_) => {}
            Self::Memory(client) => client.send_interim(head),
        }
    }

    /// Keeps the connection open behind the answer that follows: another request belongs to this
    /// one, as in a login in several steps. This counts more than a setting that closes
    /// connections. `false`: it cannot be kept.
    pub fn keep_open(&mut self) -> bool {
        match self {
            Self::H1(client) => client.keep_open(),
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => false,
        }
    }

    /// Reads the rest of the request's body, and drops it, so that another request can follow.
    /// `false`: it is longer than this, does not come, or is none.
    pub async fn drop_body(&mut self, most_bytes: u64) -> bool {
        self.limit_request_body(Some(most_bytes));
        self.expect_body();
        poll_fn(|cx| {
            loop {
                match self.poll_body(cx, &mut |_| Ok(())) {
                    Poll::Ready(Ok(true)) => return Poll::Ready(true),
                    Poll::Ready(Ok(false)) => self.expect_body(),
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Pending => return self.poll_body_late(cx).map(|()| false),
                }
            }
        })
        .await
    }

    /// Whether an answer whose length nobody knows can be cut off so that the client notices.
    pub fn can_cut_off(&self) -> bool {
        match self {
            Self::H1(client) => client.can_cut_off(),
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => true,
        }
    }

    /// Whether the body of an answer is of use to the client: over SOCKS only a code reaches it.
    pub fn gets_bodies(&self) -> bool {
        !matches!(self, Self::Socks(_))
    }

    /// Closes the connection behind the answer that follows.
    pub fn close_behind(&mut self) {
        match self {
            Self::H1(client) => client.close_behind(),
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => {}
        }
    }

    /// Begins the answer. The exchange writes its length, and all fields about the connection.
    pub fn send_head(&mut self, head: &impl ReplyHead, length: BodyLength) {
        match self {
            Self::H1(client) => client.send_head(head, length),
            Self::Socks(client) => client.send_head(head),
            Self::Raw(client) => client.answer(),
            Self::Memory(client) => client.send_head(head, length),
        }
    }

    /// Begins an answer after which bytes of another protocol follow, both ways: to CONNECT, or a
    /// 101, where `upgrade` names the protocol.
    pub fn send_tunnel_head(&mut self, head: &impl ReplyHead, upgrade: Option<&[u8]>) {
        match self {
            Self::H1(client) => client.send_tunnel_head(head, upgrade),
            Self::Socks(client) => client.send_tunnel_head(),
            Self::Raw(client) => client.answer(),
            Self::Memory(client) => client.send_tunnel_head(head, upgrade),
        }
    }

    /// Sends kept bytes without waiting. `false`: the client takes no more now.
    pub fn try_flush(&mut self) -> Result<bool, ClientLost> {
        each!(self, client => client.try_flush())
    }

    /// Sends without waiting: first the kept bytes, then `body`, the rest of the body. Returns the
    /// number of body bytes that were taken, 0 only if `body` is empty; `None` if the client takes
    /// no more now.
    pub fn try_send<B: BodySlices + ?Sized>(
        &mut self,
        body: &B,
    ) -> Result<Option<u64>, ClientLost> {
        match self {
            Self::H1(client) => client.try_send(body),
            Self::Socks(_) | Self::Raw(_) => Ok(Some(dropped_bytes(body))),
            Self::Memory(client) => client.try_send(body),
        }
    }

    /// Keeps a body of a few KiB, to go out together with its head; to a request that gets no body,
    /// nothing of it.
    pub fn keep_body(&mut self, body: &[u8]) -> Result<(), EncodeError> {
        each!(self, client => client.keep_body(body))
    }

    /// Ready when the client takes more; fails when it has taken nothing for too long.
    pub fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientLost>> {
        each!(self, client => client.poll_writable(cx))
    }

    /// Whether no bytes are kept.
    pub fn is_flushed(&self) -> bool {
        each!(self, client => client.is_flushed())
    }

    /// Waits until the client has taken all that was given to the exchange.
    pub async fn flush(&mut self) -> Result<(), ClientLost> {
        while !self.try_flush()? {
            poll_fn(|cx| self.poll_writable(cx)).await?;
        }
        Ok(())
    }

    /// Ends the body. The bytes for that are kept: [`ClientExchange::flush`] follows.
    ///
    /// # Errors
    /// The body is shorter than was said: it is to be [cut off](ClientExchange::cut_off).
    pub fn finish(&mut self, trailers: Option<&Fields>) -> Result<(), EncodeError> {
        each!(self, client => client.finish(trailers))
    }

    /// Ends an incomplete answer so that the client notices. Kept bytes still go out if that helps
    /// it.
    pub async fn cut_off(&mut self) {
        if each!(self, client => client.cut_off()) {
            // The client sees an answer that lacks its end, whether this works or not.
            _ = self.flush().await;
        }
    }

    /// Takes back the head of an answer before any byte of it was sent, so that another answer can
    /// begin. `false`: it is too late.
    pub fn take_back(&mut self) -> bool {
        each!(self, client => client.take_back())
    }

    /// Ends the exchange without an answer, or in the middle of one, at once.
    pub fn reset(&mut self, reason: ResetReason) {
        each!(self, client => client.reset(reason));
    }

    /// Bytes of the answer that the client's system or connection has taken, from its head on.
    pub fn sent_bytes(&self) -> u64 {
        each!(self, client => client.sent_bytes())
    }

    /// Bytes sent that the client's system has not acknowledged; `None` where that is not known.
    pub fn unacknowledged_bytes(&self) -> Option<usize> {
        each!(self, client => client.unacknowledged_bytes())
    }

    /// Whether the client is sent nothing now because its pace is limited.
    pub fn is_held_back(&self) -> bool {
        each!(self, client => client.is_held_back())
    }

    /// Whether the connection has lived for too long. If so, this is the reason for its end, even
    /// if there is another one.
    pub fn is_over_lifetime(&self) -> bool {
        each!(self, client => client.is_over_lifetime())
    }

    /// Why a client is lost that has left, or has been there for too long.
    pub fn lost(&self) -> ClientLost {
        if self.is_over_lifetime() { ClientLost::Lifetime } else { ClientLost::Gone }
    }

    /// Ends when the client has gone during its request, or its connection has lived too long.
    /// Nothing is read for that, so earlier bytes of the client do not matter, and the next request
    /// is still there.
    ///
    /// A client that closes its sending half has gone as well, unless `half_closed_clients` lets it
    /// read on. Then it has gone when the connection is reset, or when nothing was sent to it for a
    /// minute. A client that has closed both halves looks the same: the kernel resets its
    /// connection when bytes are sent to it.
    pub fn gone(&self) -> impl Future<Output = ()> + use<> {
        let (socket, memory) = match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => {
                (Some((Rc::clone(&client.socket), client.half_closed)), None)
            }
            Self::Memory(client) => (None, Some(client.gone())),
        };
        async move {
            if let Some((socket, half_closed)) = socket {
                gone::gone(socket, half_closed).await;
            }
            if let Some(memory) = memory {
                memory.await;
            }
        }
    }

    /// The result of `work`; `None` when the client goes before ([`ClientExchange::gone`]).
    /// Whatever is waited for while a client waits is waited for in here. The caller pins the work:
    /// moved in here, it would have its place twice.
    pub async fn while_it_stays<T>(&self, work: impl Future<Output = T> + Unpin) -> Option<T> {
        let (mut work, mut gone) = (work, pin!(self.gone()));
        poll_fn(|cx| match Pin::new(&mut work).poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => gone.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// The client's end of a tunnel, after the head of the answer was sent. Nothing else is done
    /// with the exchange afterwards.
    pub fn tunnel(&mut self) -> TunnelEnd {
        each!(self, client => client.tunnel())
    }

    /// The bytes that have come from the client behind the head of CONNECT.
    pub fn early_bytes(&self) -> &[u8] {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.early_bytes(),
            Self::Memory(_) => &[],
        }
    }

    /// Takes them, so that a [tunnel](ClientExchange::tunnel) does not begin with them.
    pub fn take_early_bytes(&mut self) -> Vec<u8> {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.take_early(),
            Self::Memory(_) => Vec::new(),
        }
    }

    /// Takes those up to `end`. What is behind them stays.
    pub fn take_early_bytes_to(&mut self, end: usize) -> Vec<u8> {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.take_early_to(end),
            Self::Memory(_) => Vec::new(),
        }
    }

    /// Reads more of them, once. `Ok(false)`: the client sends no more.
    pub fn poll_early_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.poll_read_more(cx),
            Self::Memory(_) => Poll::Ready(Ok(false)),
        }
    }

    /// After the head of a tunnel was sent: its bytes are those of another protocol, with which the
    /// connection [goes on](crate::Service::go_on) when this exchange has ended. `false`: there is
    /// no connection that could.
    pub fn hand_over(&mut self) -> bool {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => {
                client.hand_over();
                true
            }
            Self::Memory(_) => false,
        }
    }
}

/// The length of a body that the client does not get.
fn dropped_bytes<B: BodySlices + ?Sized>(body: &B) -> u64 {
    let mut parts = [IoSlice::new(&[]); 64];
    let count = body.slices(u64::MAX, &mut parts);
    parts.iter().take(count).map(|part| part.len() as u64).sum()
}

/// Between exchanges.
impl ClientExchange {
    /// Ready when something can be done about the next request, so that a place for its head is
    /// worth having.
    pub(crate) fn poll_request_near(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::H1(client) => client.poll_request_near(cx),
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => Poll::Ready(()),
        }
    }

    /// Waits for the head of the next request.
    pub(crate) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut RequestHead,
    ) -> Poll<Event> {
        match self {
            Self::H1(client) => client.poll_request(cx, head),
            // The only one was given with the exchange.
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => Poll::Ready(Event::End),
        }
    }

    /// Ends an exchange. Says whether another one may follow.
    pub(crate) fn next(&mut self) -> bool {
        match self {
            Self::H1(client) => client.next(),
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => false,
        }
    }

    /// The connection gives way to no other any more, as it has something to do.
    pub(crate) fn leave_line(&self) {
        if let Self::H1(client) = self {
            client.leave_line();
        }
    }

    /// The connection ends while it waits for a request.
    pub(crate) fn ended_by(&mut self, lost: ClientLost) -> Event {
        match self {
            Self::H1(client) => client.ended_by(lost),
            Self::Socks(_) | Self::Raw(_) | Self::Memory(_) => Event::End,
        }
    }

    /// Whether the connection [goes on](ClientExchange::hand_over) without this exchange.
    pub(crate) fn is_handed_over(&self) -> bool {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.is_handed_over(),
            Self::Memory(_) => false,
        }
    }

    /// The connection that goes on.
    pub(crate) fn into_carrier(self) -> Option<Carrier> {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.into_carrier(),
            Self::Memory(_) => None,
        }
    }

    /// Ends the connection, in order where all was sent.
    pub(crate) async fn close(self) {
        match self {
            Self::H1(client)
            | Self::Socks(SocksClient { h1: client, .. })
            | Self::Raw(RawClient { h1: client }) => client.close().await,
            Self::Memory(_) => {}
        }
    }
}
