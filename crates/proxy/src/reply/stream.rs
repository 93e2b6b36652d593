//! Sends an object in flight to a client: the head, then pages as they arrive.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_exchange::{
    BodyLength, BodyPump, BodySlices, ClientExchange, ClientLost, PumpError, is_bodiless_status,
};
use humboldt_http::Method;
use humboldt_store::{AbortReason, BodySlice, Flow, FlowHead, FlowReader, Progress, StoredHead};

use crate::config::reply_rules::UNLIMITED;
use crate::core::Core;
use crate::cut::Cut;
use crate::reply::head::{self, Reply};
use crate::reply::leave::Leave;
use crate::request::Request;
use crate::rules::{budget, header};

/// Most bytes taken from a flow in one step.
const WRITE_BYTES_MAX: u64 = 256 * 1024;

/// How the transfer to a client ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client has the whole answer.
    Complete,
    /// The connection cannot take any more.
    ClientLost(ClientLost),
    /// The answer ended before it was complete.
    Aborted(AbortReason),
    /// The client took no bytes while others waited for it.
    HeldUp,
    /// The client is over its budget.
    OverBudget,
}

impl Ended {
    /// Whether the rest may come from elsewhere.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Aborted(AbortReason::DiskFailed))
    }

    /// Why the connection is cut off; `None` if the client has everything.
    pub(crate) fn cut(self) -> Option<Cut> {
        match self {
            Self::Complete => None,
            Self::ClientLost(lost) => Some(lost.into()),
            Self::Aborted(reason) => Some(reason.into()),
            Self::HeldUp => Some(Cut::HeldUp),
            Self::OverBudget => Some(Cut::OverBudget),
        }
    }
}

impl From<Result<(), ClientLost>> for Ended {
    fn from(sent: Result<(), ClientLost>) -> Self {
        match sent {
            Ok(()) => Self::Complete,
            Err(lost) => Self::ClientLost(lost),
        }
    }
}

/// One answer on its way to a client.
pub(crate) struct Relay<'a> {
    request: &'a Rc<Request>,
    /// The head that is sent.
    head: Arc<StoredHead>,
    sends_body: bool,
    slices: Vec<BodySlice>,
    /// How many more bytes of the body may be sent (`reply_body_max_size`).
    body_bytes_left: u64,
    /// Bytes of the body taken from the reader. The client gets all of them.
    body_bytes_taken: u64,
    /// Lets the client continue without the fetch, if that is shared.
    leave: Option<Box<Leave>>,
    /// Sends the request's body, if it is still on its way.
    pump: Option<Box<BodyPump>>,
    /// The budget is used up: no more of the body is sent. If that was all, the answer is whole.
    is_over_budget: bool,
}

impl<'a> Relay<'a> {
    /// Begins the answer with `reply`, the head of `flow` as the client gets it. `pump` continues
    /// with the request's body meanwhile.
    pub(crate) fn begin(
        client: &mut ClientExchange,
        request: &'a Rc<Request>,
        flow: &FlowHead,
        reply: &Reply<'_>,
        pump: Option<Box<BodyPump>>,
    ) -> Self {
        let is_bodiless = is_bodiless_status(flow.head.status);
        let length = match flow.info.body_bytes {
            _ if is_bodiless => BodyLength::None,
            Some(body_bytes) => BodyLength::Known(body_bytes),
            None => BodyLength::Unknown,
        };
        head::send(client, request, reply, reply.usage, length);
        let is_wanted = request.head.method != Method::Head && client.gets_bodies();
        Self {
            request,
            head: Arc::clone(&flow.head),
            sends_body: !is_bodiless && is_wanted,
            slices: Vec::new(),
            body_bytes_left: UNLIMITED,
            body_bytes_taken: 0,
            leave: None,
            pump,
            is_over_budget: false,
        }
    }

    /// Cuts the answer off before its body gets longer than this.
    pub(crate) fn limit_body(&mut self, bytes: u64) {
        self.body_bytes_left = bytes;
    }

    /// The shared fetch that the client has left, if its answer is not complete.
    pub(crate) fn left_incomplete(&self) -> Option<&Flow> {
        self.leave.as_ref()?.left_incomplete()
    }

    /// Lets the client leave a fetch that it shares.
    pub(crate) fn may_leave(&mut self, leave: Option<Box<Leave>>) {
        self.leave = leave;
    }

    /// Bytes of the body that the client has, if the last run ended without an error of its
    /// connection.
    pub(crate) fn body_bytes_taken(&self) -> u64 {
        self.body_bytes_taken
    }

    /// The rest of the answer, from a new request for the whole. `None` if the new answer differs.
    pub(crate) async fn once_more(&mut self) -> Option<FlowReader> {
        let leave = self.leave.as_mut()?;
        leave.ask_again();
        poll_fn(|cx| leave.poll_again(cx)).await
    }

    /// Sends the answer from the reader's position to its end. If the source is lost, the caller
    /// continues from elsewhere or cuts the answer off.
    pub(crate) async fn run(
        &mut self,
        core: &Core,
        client: &mut ClientExchange,
        reader: &mut FlowReader,
    ) -> Ended {
        if !self.sends_body {
            return self.finish(core, client, None).await;
        }
        loop {
            let Some(progress) = self.next_progress(core, client, reader).await else {
                if self.is_over_budget {
                    return cut_off(client, Ended::OverBudget).await;
                }
                if client.is_flushed() {
                    return Ended::ClientLost(client.lost());
                }
                // Nothing has arrived, so the bytes that were kept go out alone.
                match self.send_slices(core, client, reader).await {
                    Ended::Complete => continue,
                    Ended::OverBudget => return cut_off(client, Ended::OverBudget).await,
                    ended => return ended,
                }
            };
            if client.is_over_lifetime() {
                return cut_off(client, Ended::ClientLost(ClientLost::Lifetime)).await;
            }
            match progress {
                Progress::Data { .. } if self.body_bytes_left == 0 => {
                    return cut_off(client, Ended::Aborted(AbortReason::TooLarge)).await;
                }
                Progress::Data { .. } if self.is_over_budget => {
                    return cut_off(client, Ended::OverBudget).await;
                }
                Progress::Data { .. } => {
                    let before = self.body_bytes_taken;
                    match self.send_data(core, client, reader).await {
                        Ended::Complete => {}
                        Ended::OverBudget => return cut_off(client, Ended::OverBudget).await,
                        ended => return ended,
                    }
                    let bytes = self.body_bytes_taken - before;
                    self.is_over_budget |= !budget::take_bytes(core, self.request, bytes);
                }
                Progress::End => return self.finish(core, client, Some(reader)).await,
                Progress::Aborted(reason) => {
                    return match Ended::Aborted(reason) {
                        lost if lost.is_lost() => lost,
                        ended => cut_off(client, ended).await,
                    };
                }
                // A flow leaves no client behind that reads.
                Progress::Lagged { .. } => {
                    return cut_off(client, Ended::Aborted(AbortReason::Cancelled)).await;
                }
            }
        }
    }

    /// The next event of the flow. `None`: the client has gone, or nothing has arrived and there
    /// are kept bytes to send.
    async fn next_progress(
        &mut self,
        core: &Core,
        client: &mut ClientExchange,
        reader: &mut FlowReader,
    ) -> Option<Progress> {
        let mut gone = pin!(client.gone());
        poll_fn(|cx| {
            // A search for the rest may have begun while the client was slower.
            if let Some(leave) = &mut self.leave {
                _ = leave.poll(cx, reader, None);
            }
            if let Poll::Ready(progress) = reader.poll_data(cx) {
                return Poll::Ready(Some(progress));
            }
            if !client.is_flushed() {
                return Poll::Ready(None);
            }
            if let Some(pump) = self.pump.as_mut().filter(|pump| !pump.is_done()) {
                if let Poll::Ready(Err(PumpError::Client(_))) = pump.poll(cx, client) {
                    return Poll::Ready(None);
                }
                if !budget::take_upload(core, self.request, pump.received_bytes()) {
                    self.is_over_budget = true;
                    return Poll::Ready(None);
                }
            }
            gone.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    async fn send_data(
        &mut self,
        core: &Core,
        client: &mut ClientExchange,
        reader: &mut FlowReader,
    ) -> Ended {
        self.slices.clear();
        let most_bytes = WRITE_BYTES_MAX.min(self.body_bytes_left);
        let bytes = reader.slices(&mut self.slices, most_bytes);
        self.body_bytes_left -= bytes;
        self.body_bytes_taken += bytes;
        if let Some(leave) = &mut self.leave {
            leave.take(&self.slices);
        }
        self.send_slices(core, client, reader).await
    }

    /// Sends the bytes that were kept and the slices taken from the reader. Afterwards the reader
    /// stands behind them.
    async fn send_slices(
        &mut self,
        core: &Core,
        client: &mut ClientExchange,
        reader: &mut FlowReader,
    ) -> Ended {
        let bytes: u64 = self.slices.iter().map(|slice| slice.len() as u64).sum();
        let (mut sent, mut has_left) = (0, false);
        loop {
            let taken = match sent < bytes {
                true => client.try_send(&Rest { slices: &self.slices, skip: sent }),
                // The bytes that were kept wait for more of the body, if there is more.
                false if bytes > 0 => break,
                false => client.try_flush().map(|is_flushed| is_flushed.then_some(0)),
            };
            match taken {
                Err(lost) => return Ended::ClientLost(lost),
                Ok(Some(0)) => break,
                Ok(Some(taken)) => sent += taken,
                Ok(None) => {
                    if !has_left && reader.settle(&mut self.slices).is_err() {
                        return Ended::Aborted(AbortReason::NoMemory);
                    }
                    match self.writable(core, client, reader).await {
                        Ok(left_now) => has_left |= left_now,
                        Err(ended) => return ended,
                    }
                }
            }
        }
        self.slices.clear();
        // A reader that has left the fetch already stands behind these bytes.
        if !has_left && bytes > 0 {
            reader.advance(bytes);
        }
        Ended::Complete
    }

    /// Waits until the client takes more bytes. The request body continues meanwhile, since a
    /// client may send all of it before it reads. A client that holds up others leaves the fetch if
    /// it can: then the result is `true`, and `reader` continues behind the bytes that were taken.
    ///
    /// # Errors
    /// The client has gone, or takes no bytes for too long while others wait for it.
    async fn writable(
        &mut self,
        core: &Core,
        client: &mut ClientExchange,
        reader: &mut FlowReader,
    ) -> Result<bool, Ended> {
        if let Some(leave) = &mut self.leave {
            leave.begin_wait();
        }
        let mut has_left = false;
        let result = poll_fn(|cx| {
            if let Some(leave) = &mut self.leave {
                match leave.poll(cx, reader, Some(client)) {
                    Poll::Ready(Ok(())) => has_left = true,
                    Poll::Ready(Err(_held_up)) if client.is_over_lifetime() => {
                        return Poll::Ready(Err(Ended::ClientLost(ClientLost::Lifetime)));
                    }
                    Poll::Ready(Err(_held_up)) => return Poll::Ready(Err(Ended::HeldUp)),
                    Poll::Pending => {}
                }
            }
            if let Some(pump) = &mut self.pump {
                // A failure of the request body shows when the answer is sent.
                _ = pump.poll(cx, client);
                if !budget::take_upload(core, self.request, pump.received_bytes()) {
                    return Poll::Ready(Err(Ended::OverBudget));
                }
            }
            client.poll_writable(cx).map_err(Ended::ClientLost)
        })
        .await;
        if let Some(leave) = &mut self.leave {
            leave.end_wait(reader);
        }
        result.map(|()| has_left)
    }

    async fn finish(
        &mut self,
        core: &Core,
        client: &mut ClientExchange,
        reader: Option<&FlowReader>,
    ) -> Ended {
        let mut trailers = reader.and_then(FlowReader::trailers);
        if let Some(trailers) = &mut trailers {
            header::apply_to_trailers(trailers, &self.head, self.request);
        }
        if client.finish(trailers.as_ref()).is_err() {
            return cut_off(client, Ended::Aborted(AbortReason::Truncated)).await;
        }
        loop {
            match client.try_flush() {
                Err(lost) => return Ended::ClientLost(lost),
                Ok(true) => return Ended::Complete,
                Ok(false) => {
                    let (pump, request) = (&mut self.pump, self.request);
                    let writable = poll_fn(|cx| {
                        if let Some(pump) = pump {
                            _ = pump.poll(cx, client);
                            if !budget::take_upload(core, request, pump.received_bytes()) {
                                return Poll::Ready(Err(Ended::OverBudget));
                            }
                        }
                        client.poll_writable(cx).map_err(Ended::ClientLost)
                    });
                    match writable.await {
                        Ok(()) => {}
                        Err(Ended::OverBudget) => return cut_off(client, Ended::OverBudget).await,
                        Err(ended) => return ended,
                    }
                }
            }
        }
    }
}

/// Ends an incomplete answer in such a way that the client notices.
pub(crate) async fn cut_off(client: &mut ClientExchange, ended: Ended) -> Ended {
    client.cut_off().await;
    ended
}

/// The bytes of slices behind the first `skip`.
struct Rest<'a> {
    slices: &'a [BodySlice],
    skip: u64,
}

impl BodySlices for Rest<'_> {
    fn slices<'s>(&'s self, mut most_bytes: u64, out: &mut [IoSlice<'s>]) -> usize {
        let (mut skip, mut count) = (self.skip, 0);
        for slice in self.slices {
            let bytes = slice.len() as u64;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let Some(place) = out.get_mut(count).filter(|_| most_bytes > 0) else { break };
            let end = bytes.min(skip.saturating_add(most_bytes));
            most_bytes -= end - skip;
            *place = IoSlice::new(slice.get(skip as usize..end as usize).unwrap_or_default());
            skip = 0;
            count += 1;
        }
        count
    }
}
