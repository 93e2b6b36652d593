//! A server in memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_http::h1::{BodyError, EncodeError};
use humboldt_http::{FieldName, Fields, HeadLimits, Method, ResponseHead};
use humboldt_net::watched::Watched;
use humboldt_store::FlowWriter;
use tokio::time::Sleep;

use super::pipe::Pipe;
use crate::head::{AskHead, BodyLength, BodyPart};
use crate::server::{Announced, ServerError, ServerExchange};
use crate::tunnel::TunnelEnd;

/// A request as the server gets it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Vec<u8>,
    /// The URL.
    pub url: Vec<u8>,
    /// The fields, Host among them.
    pub fields: Fields,
    /// The length of the body that follows.
    pub length: BodyLength,
}

/// The messages of a server.
enum Said {
    Head(Box<ResponseHead>),
    Body(Vec<u8>),
    End(Option<Fields>),
    Failed,
}

#[derive(Default)]
struct State {
    asked: Option<Asked>,
    upload: Vec<u8>,
    upload_ended: bool,
    /// How it treats the rest of the upload.
    takes: Takes,
    said: VecDeque<Said>,
    trailers: Option<Fields>,
    has_said_something: bool,
    is_given_up: bool,
    tunnel: Option<Pipe>,
}

/// A server's treatment of an upload. It takes all of it by default.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Takes {
    #[default]
    All,
    /// No more, without a word.
    NoMore,
    /// No more: its connection is closed for them.
    Nothing,
}

type Shared = Watched<State>;

/// The server of an exchange.
pub struct Server(Rc<Shared>);

/// The exchange of a [`Server`].
pub struct ServerSide {
    shared: Rc<Shared>,
    peer: SocketAddr,
    /// The request asks for another protocol.
    may_switch: bool,
    /// Longest wait for a message of the server.
    patience: Option<Duration>,
    /// The present wait.
    waits: RefCell<Option<Pin<Box<Sleep>>>>,
    /// The body and the trailers, if all of it had come with the head.
    whole: Option<(Vec<u8>, Option<Fields>)>,
}

/// The sending side of one.
pub struct UploadSide {
    shared: Rc<Shared>,
    is_finished: bool,
}

/// An exchange with a server at `peer`.
pub fn server(peer: SocketAddr) -> (ServerExchange, Server) {
    let shared = Rc::<Shared>::default();
    let side = ServerSide {
        shared: Rc::clone(&shared),
        peer,
        may_switch: false,
        patience: None,
        waits: RefCell::default(),
        whole: None,
    };
    (ServerExchange::Memory(side), Server(shared))
}

impl Server {
    /// Waits for the request.
    pub async fn asked(&self) -> Asked {
        self.0.bell.until(|| self.0.state.borrow().asked.clone()).await
    }

    /// Waits for the whole body of the request.
    pub async fn upload(&self) -> Vec<u8> {
        let look = || {
            let state = self.0.state.borrow();
            state.upload_ended.then(|| state.upload.clone())
        };
        self.0.bell.until(look).await
    }

    /// Waits until this much of the request's body has arrived, or all of it. Returns these bytes.
    // tidy: public, because the simulation uses it
    pub async fn upload_part(&self, bytes: usize) -> Vec<u8> {
        let look = || {
            let state = self.0.state.borrow();
            (state.upload_ended || state.upload.len() >= bytes).then(|| state.upload.clone())
        };
        self.0.bell.until(look).await
    }

    /// Takes no more of the body of the request.
    // tidy: public, because the simulation uses it
    pub fn stop_taking(&self) {
        self.0.change(|state| state.takes = Takes::NoMore);
    }

    /// Closes the connection for more of the body of the request.
    // tidy: public, because the simulation uses it
    pub fn refuse_more(&self) {
        self.0.change(|state| state.takes = Takes::Nothing);
    }

    /// Sends a head. A Content-Length in it is the length of the body.
    pub fn send_head(&self, head: ResponseHead) {
        self.say(Said::Head(Box::new(head)));
    }

    /// Sends a part of the body.
    // tidy: public, because tests use it
    pub fn send_body(&self, bytes: &[u8]) {
        self.say(Said::Body(bytes.to_vec()));
    }

    /// Ends the answer.
    pub fn end(&self, trailers: Option<Fields>) {
        self.say(Said::End(trailers));
    }

    /// Breaks the connection.
    pub fn fail(&self) {
        self.say(Said::Failed);
    }

    /// Waits until the exchange is over, for whatever reason.
    pub async fn given_up(&self) {
        self.0.bell.until(|| self.0.state.borrow().is_given_up.then_some(())).await;
    }

    /// Its end of the tunnel, once there is one.
    pub async fn tunnel(&self) -> Pipe {
        self.0.bell.until(|| self.0.state.borrow_mut().tunnel.take()).await
    }

    fn say(&self, said: Said) {
        self.0.change(|state| state.said.push_back(said));
    }
}

/// As the operations of the same names of [`ServerExchange`].
impl ServerSide {
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn was_reused(&self) -> bool {
        false
    }

    pub(crate) fn ask(&mut self, head: &impl AskHead) {
        let line = head.line();
        let mut fields = Fields::new();
        fields.push(FieldName::Host, line.host);
        head.write(&mut fields);
        self.may_switch = head.upgrade().is_some();
        if let Some(protocols) = head.upgrade() {
            fields.push(FieldName::Upgrade, protocols);
        }
        let asked = Asked {
            method: line.method.to_vec(),
            url: line.url.as_bytes().to_vec(),
            fields,
            length: head.length(),
        };
        self.shared.change(|state| state.asked = Some(asked));
    }

    pub(crate) fn begin_upload(&mut self, head: &impl AskHead) -> UploadSide {
        self.ask(head);
        UploadSide { shared: Rc::clone(&self.shared), is_finished: false }
    }

    pub(crate) fn wait_at_most(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    pub(crate) fn start_waiting(&self) {
        self.waits.take();
    }

    fn poll_said(&self, cx: &mut Context<'_>) -> Poll<Result<Said, ServerError>> {
        if let Some(said) = self.shared.state.borrow_mut().said.pop_front() {
            self.waits.take();
            return Poll::Ready(Ok(said));
        }
        self.shared.bell.listen(cx);
        let Some(patience) = self.patience else { return Poll::Pending };
        let mut waits = self.waits.borrow_mut();
        let waits = waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waits.as_mut().poll(cx).map(|()| Err(ServerError::TimedOut))
    }

    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        _limits: &HeadLimits,
        _most_bytes: usize,
        out: &mut ResponseHead,
    ) -> Poll<Result<(), ServerError>> {
        let said = ready!(self.poll_said(cx))?;
        let mut state = self.shared.state.borrow_mut();
        let was_silent = !std::mem::replace(&mut state.has_said_something, true);
        Poll::Ready(match said {
            Said::Head(head) if head.status == 101 && !self.may_switch => {
                Err(ServerError::Switched)
            }
            Said::Head(head) => {
                *out = *head;
                Ok(())
            }
            _ if was_silent => Err(ServerError::ClosedEarly),
            _ => Err(BodyError::Truncated.into()),
        })
    }

    pub(crate) fn begin_body(
        &mut self,
        head: &ResponseHead,
        method: Method,
        _relaxed: bool,
    ) -> Result<Announced, ServerError> {
        let length = head.fields.get(FieldName::ContentLength);
        let length = length.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let is_bodiless = crate::is_bodiless_status(head.status);
        if is_bodiless || method == Method::Head {
            self.shared.state.borrow_mut().said.push_back(Said::End(None));
        }
        let body_bytes = if is_bodiless { Some(0) } else { length };
        self.whole = body_bytes.and_then(|bytes| self.take_whole(bytes));
        Ok(Announced { body_bytes, was_repaired: false })
    }

    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut FlowWriter,
    ) -> Poll<Result<bool, ServerError>> {
        if let Some((body, trailers)) = self.whole.take() {
            let mut state = self.shared.state.borrow_mut();
            state.said.push_back(Said::Body(body));
            state.said.push_back(Said::End(trailers));
        }
        match ready!(self.poll_said(cx))? {
            Said::Body(mut bytes) => {
                let taken = match writer.poll_append(cx, &bytes) {
                    Poll::Ready(Ok(taken)) => taken,
                    Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason.into())),
                    Poll::Pending => 0,
                };
                let is_stuck = taken == 0 && !bytes.is_empty();
                bytes.drain(..taken);
                if !bytes.is_empty() {
                    self.shared.state.borrow_mut().said.push_front(Said::Body(bytes));
                }
                if is_stuck { Poll::Pending } else { Poll::Ready(Ok(false)) }
            }
            Said::End(trailers) => {
                self.shared.state.borrow_mut().trailers = trailers;
                Poll::Ready(Ok(true))
            }
            Said::Head(_) => Poll::Ready(Err(BodyError::ChunkSize.into())),
            Said::Failed => Poll::Ready(Err(BodyError::Truncated.into())),
        }
    }

    /// The rest of the answer, if it is there, and as long as was announced.
    fn take_whole(&self, bytes: u64) -> Option<(Vec<u8>, Option<Fields>)> {
        let mut state = self.shared.state.borrow_mut();
        let is_whole = matches!(state.said.back(), Some(Said::End(_)));
        let parts =
            state.said.iter().map(|said| if let Said::Body(part) = said { part.len() } else { 0 });
        if !is_whole || parts.sum::<usize>() as u64 != bytes {
            return None;
        }
        let (mut body, mut trailers) = (Vec::new(), None);
        for said in state.said.drain(..) {
            match said {
                Said::Body(part) => body.extend(part),
                Said::End(ended) => trailers = ended,
                Said::Head(_) | Said::Failed => {}
            }
        }
        Some((body, trailers))
    }

    pub(crate) fn whole_body(&self) -> Option<&[u8]> {
        self.whole.as_ref().map(|(body, _)| &**body)
    }

    pub(crate) fn skip_whole_body(&mut self) -> Result<(), ServerError> {
        if let Some((_, trailers)) = self.whole.take() {
            self.shared.state.borrow_mut().trailers = trailers;
        }
        Ok(())
    }

    pub(crate) fn trailers(&mut self) -> Option<Fields> {
        self.shared.state.borrow_mut().trailers.take()
    }

    pub(crate) fn into_tunnel(self) -> TunnelEnd {
        let (ours, theirs) = Pipe::pair();
        self.shared.change(|state| state.tunnel = Some(theirs));
        TunnelEnd::memory(ours)
    }
}

impl Drop for ServerSide {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_given_up = true);
    }
}

/// As the operations of the same names of [`ServerUpload`](crate::ServerUpload).
impl UploadSide {
    pub(crate) fn push(&mut self, part: BodyPart<'_>) -> Result<(), EncodeError> {
        self.is_finished |= matches!(part, BodyPart::End(_));
        self.shared.change(|state| match part {
            BodyPart::Data(bytes) => state.upload.extend_from_slice(bytes),
            BodyPart::End(_) => state.upload_ended = true,
        });
        Ok(())
    }

    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.shared.state.borrow();
        match state.takes {
            _ if state.is_given_up => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Takes::All => Poll::Ready(Ok(())),
            Takes::NoMore => {
                self.shared.bell.listen(cx);
                Poll::Pending
            }
            Takes::Nothing => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(crate) fn all_is_sent(self) {}
}
