//! The body of a request on its way from the client to the server.
//!
//! The body is unframed and framed again, never passed on as bytes. Nothing is read from the client
//! while the server does not take earlier bytes: that is all the back-pressure there is, and all
//! that is needed.

use std::task::{Context, Poll};

use crate::client::{BodyFault, ClientExchange};
use crate::head::BodyPart;
use crate::server::ServerUpload;

/// Why a body stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PumpError {
    /// The client has gone, or has sent something that is no body.
    Client(BodyFault),
    /// The server takes no more. It may have answered already.
    Server,
}

/// The state of one body.
pub struct BodyPump {
    /// While there is something to send.
    server: Option<ServerUpload>,
    /// The part that came with the request's head has been looked at.
    begun: bool,
    /// Bytes of the body that were received.
    received_bytes: u64,
    /// All was sent.
    done: bool,
    /// The server takes no more.
    stopped: bool,
}

impl BodyPump {
    /// For the body of a request whose head is about to be sent.
    pub fn new(server: ServerUpload) -> Self {
        Self { server: Some(server), begun: false, received_bytes: 0, done: false, stopped: false }
    }

    /// Whether the whole body was sent.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the server takes no more.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Bytes of the body that have come from the client.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Moves as many bytes as possible now. `Ready` when nothing more is to be done.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut ClientExchange,
    ) -> Poll<Result<(), PumpError>> {
        // Bytes of the body that arrived with the head go out with it; if they are malformed, the
        // server sees nothing of the request.
        if !std::mem::replace(&mut self.begun, true)
            && let Poll::Ready(Err(error)) = self.poll_receive(cx, client)
        {
            return Poll::Ready(Err(error));
        }
        loop {
            let Some(server) = &mut self.server else { return Poll::Ready(Ok(())) };
            match server.poll_send(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    self.stopped = true;
                    self.server = None;
                    return Poll::Ready(Err(PumpError::Server));
                }
                Poll::Pending => return Poll::Pending,
            }
            if server.is_finished() {
                self.done = true;
                self.server.take().into_iter().for_each(ServerUpload::all_is_sent);
                return Poll::Ready(Ok(()));
            }
            match self.poll_receive(cx, client) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut ClientExchange,
    ) -> Poll<Result<(), PumpError>> {
        let Some(server) = &mut self.server else { return Poll::Ready(Ok(())) };
        let mut bytes = 0;
        let received = client.poll_body(cx, &mut |part| {
            if let BodyPart::Data(data) = part {
                bytes += data.len() as u64;
            }
            server.push(part)
        });
        self.received_bytes += bytes;
        match received {
            Poll::Ready(Ok(true)) if !server.is_finished() => {
                let ended = server.push(BodyPart::End(None));
                Poll::Ready(ended.map_err(|error| PumpError::Client(BodyFault::Refused(error))))
            }
            received => received.map_ok(drop).map_err(PumpError::Client),
        }
    }
}
