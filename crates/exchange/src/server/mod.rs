//! An exchange with a server: the request that it gets, and the answer that it sends.

mod answer;
mod h1;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use humboldt_http::h1::EncodeError;
use humboldt_http::{Fields, HeadLimits, Method, ResponseHead};
use humboldt_net::connect::Connected;
use humboldt_store::FlowWriter;

use crate::head::{AskHead, BodyPart};
use crate::io::CoreIo;
use crate::memory::{ServerSide, UploadSide};
use crate::tunnel::TunnelEnd;

pub use answer::{Announced, ServerError};
pub use h1::{H1Server, H1Upload};

/// One request to a server, and its answer.
pub enum ServerExchange {
    /// On a connection of HTTP/1.
    H1(Box<H1Server>),
    /// In memory.
    Memory(ServerSide),
}

/// The sending side of an exchange, while the body of the request is on its way and the answer is
/// read elsewhere.
pub enum ServerUpload {
    /// On a connection of HTTP/1.
    H1(H1Upload),
    /// In memory.
    Memory(UploadSide),
}

macro_rules! each {
    ($exchange:expr, $type:ident, $server:ident => $do:expr) => {
        match $exchange {
            $type::H1($server) => $do,
            $type::Memory($server) => $do,
        }
    };
}

impl ServerExchange {
    /// Takes over a connection, which has served another request before if it was `reused`.
    /// `read_timeout` is the longest time without progress.
    pub fn new(
        io: &std::rc::Rc<CoreIo>,
        connected: Connected,
        reused: bool,
        read_timeout: Duration,
    ) -> Self {
        Self::H1(Box::new(H1Server::new(io, connected, reused, read_timeout)))
    }

    /// The address of the server.
    pub fn peer(&self) -> SocketAddr {
        each!(self, Self, server => server.peer())
    }

    /// Our end of the connection; `None` if there is no socket.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::H1(server) => server.local(),
            Self::Memory(_) => None,
        }
    }

    /// Whether the connection has served another request before.
    pub fn was_reused(&self) -> bool {
        each!(self, Self, server => server.was_reused())
    }

    /// Sends a request without a body.
    pub async fn ask(&mut self, head: &impl AskHead) -> Result<(), ServerError> {
        match self {
            Self::H1(server) => server.ask(head).await,
            Self::Memory(server) => {
                server.ask(head);
                Ok(())
            }
        }
    }

    /// Begins a request whose body is sent while the answer is awaited. Nothing of it is sent
    /// before the other side is polled.
    pub fn begin_upload(&mut self, head: &impl AskHead) -> ServerUpload {
        match self {
            Self::H1(server) => ServerUpload::H1(server.begin_upload(head)),
            Self::Memory(server) => ServerUpload::Memory(server.begin_upload(head)),
        }
    }

    /// Restarts the clock for the answer: it counts from the moment the request was sent.
    pub fn start_waiting(&self) {
        each!(self, Self, server => server.start_waiting());
    }

    /// Sets the longest wait for a server in memory; one with a socket has it already.
    pub fn wait_at_most(&mut self, patience: Duration) {
        match self {
            Self::H1(_) => {}
            Self::Memory(server) => server.wait_at_most(patience),
        }
    }

    /// The next head of an answer, interim ones included.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        limits: &HeadLimits,
        most_bytes: usize,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), ServerError>> {
        each!(self, Self, server => server.poll_head(cx, limits, most_bytes, head))
    }

    /// See [`ServerExchange::poll_head`]. `most_bytes` bounds the bytes of the body that one read
    /// may take with it; it is asked before each read.
    pub async fn head(
        &mut self,
        limits: &HeadLimits,
        most_bytes: impl Fn() -> usize,
        head: &mut ResponseHead,
    ) -> Result<(), ServerError> {
        poll_fn(|cx| self.poll_head(cx, limits, most_bytes(), head)).await
    }

    /// Prepares for the body behind the final head. `relaxed`: repairable errors are repaired.
    ///
    /// # Errors
    /// The head does not say reliably where its body ends.
    pub fn begin_body(
        &mut self,
        head: &ResponseHead,
        method: Method,
        relaxed: bool,
    ) -> Result<Announced, ServerError> {
        each!(self, Self, server => server.begin_body(head, method, relaxed))
    }

    /// Receives body data into the flow: `Ok(true)` when the body is complete, `Ok(false)` after
    /// progress.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut FlowWriter,
    ) -> Poll<Result<bool, ServerError>> {
        each!(self, Self, server => server.poll_body(cx, writer))
    }

    /// The body, if it has a length and all of it has been received.
    pub fn whole_body(&self) -> Option<&[u8]> {
        each!(self, Self, server => server.whole_body())
    }

    /// The body was taken as [`ServerExchange::whole_body`] gave it.
    pub fn skip_whole_body(&mut self) -> Result<(), ServerError> {
        each!(self, Self, server => server.skip_whole_body())
    }

    /// Something else than the server is waited for now: what came behind the head is kept in as
    /// little memory as it needs. Returns how much, in bytes.
    pub fn keep_small(&mut self) -> u64 {
        match self {
            Self::H1(server) => server.keep_small(),
            Self::Memory(_) => 0,
        }
    }

    /// The trailers behind the body, once.
    pub fn trailers(&mut self) -> Option<Fields> {
        each!(self, Self, server => server.trailers())
    }

    /// The connection, if it can serve another request: nothing is left unread or unsent, and both
    /// sides want it to go on.
    pub fn into_idle(self) -> Option<Connected> {
        match self {
            Self::H1(server) => server.into_idle(),
            Self::Memory(_) => None,
        }
    }

    /// The connection itself, to put another protocol over it; `None` if the server has said
    /// something that was not read, or there is no socket.
    pub fn into_connection(self) -> Option<Connected> {
        match self {
            Self::H1(server) => server.into_connection(),
            Self::Memory(_) => None,
        }
    }

    /// The server's end of a tunnel, with the bytes that came behind the head.
    pub fn into_tunnel(self) -> TunnelEnd {
        each!(self, Self, server => server.into_tunnel())
    }
}

impl ServerUpload {
    /// Adds a part of the body. It is sent when the exchange is [polled](ServerUpload::poll_send).
    pub fn push(&mut self, part: BodyPart<'_>) -> Result<(), EncodeError> {
        each!(self, Self, server => server.push(part))
    }

    /// Sends all that was added.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, Self, server => server.poll_send(cx))
    }

    /// Whether the end of the body was added.
    pub fn is_finished(&self) -> bool {
        each!(self, Self, server => server.is_finished())
    }

    /// The request is on its way to its last byte: the connection may serve another one.
    pub fn all_is_sent(self) {
        each!(self, Self, server => server.all_is_sent());
    }
}
