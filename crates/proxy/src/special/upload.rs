//! Requests with a body: it is sent on while it is read from the client, and the answer is relayed
//! meanwhile.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_exchange::client::BodyFault;
use humboldt_exchange::{BodyPump, PumpError, ServerError, ServerExchange};
use humboldt_http::{Method, ResponseHead};
use humboldt_logs::access::Tag;
use humboldt_runtime::turns;
use humboldt_store::ReaderKind;

use crate::config::cache_status::Forward;
use crate::errors::ErrorPage;
use crate::fetch::ask::Ask;
use crate::fetch::converse::{Answer, interim_head};
use crate::fetch::job::{Failure, Job, Report};
use crate::fetch::route::{Reached, Route};
use crate::outcome::Outcome;
use crate::reply::follow::{self, Origin};
use crate::reply::head::{self, Reply};
use crate::reply::local;
use crate::reply::stream::Relay;
use crate::rules::reply;
use crate::storing::{deliver as delivery, invalidate};
use crate::transaction::Transaction;

/// Why a request with a body has no answer.
enum UploadEnd {
    /// The client has gone.
    ClientGone,
    /// The client or the server made an error.
    Failed(Failure),
}

impl From<Failure> for UploadEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Sends a request with its body, and relays the answer.
pub(crate) async fn serve(transaction: &mut Transaction<'_>) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let report = Report::because(Forward::Method);
    let mut job = match request.head.method {
        Method::Post => Job::as_asked(request, &report),
        _ => Job::new(request, None, false, &report),
    };
    job.purge_number = core.shared.cache.purges().newest();
    let outcome = |tag| Outcome::miss(tag, 0, Some(report.route()));
    match send(transaction, &job).await {
        Ok((answer, pump)) => deliver(transaction, job, answer, Some(pump)).await,
        Err(UploadEnd::ClientGone) => transaction.client_gone(outcome(Tag::Miss)),
        Err(UploadEnd::Failed(failure)) => {
            core.count(Counter::ServerErrors, 1);
            // The client's error did not concern the cache.
            let tag = if failure.page.status() < 500 { Tag::None } else { Tag::Miss };
            local::failed(transaction, failure, outcome(tag)).await
        }
    }
}

/// Connects, then sends head and body until the final head of the answer arrives. Only connecting
/// is tried again, because a body cannot be sent twice.
async fn send(
    transaction: &mut Transaction<'_>,
    job: &Job,
) -> Result<(Box<Answer>, Box<BodyPump>), UploadEnd> {
    let (core, request) = (transaction.core, transaction.request);
    let connecting = async { Route::new(core, request, &job.report).await.next().await };
    let reached = transaction.while_it_stays(pin!(connecting)).await;
    let Reached { mut server, to, .. } = reached.ok_or(UploadEnd::ClientGone)??;
    let upload = server.begin_upload(&Ask { request, manner: job.manner(&to) });
    transaction.client.limit_request_body(request.snapshot().body_limit_bytes());
    let mut pump = Box::new(BodyPump::new(upload));
    let request_time = core.now().secs();
    let head = until_head(transaction, &mut pump, &mut server).await?;
    job.report.set_status(head.status);
    let answer = Answer::new(server, to, head, request, request_time);
    Ok((answer.map_err(|error| Failure::from(&error))?, pump))
}

/// An event while a body is sent and its answer awaited.
enum Step {
    /// A head has arrived.
    Head,
    /// The server failed.
    Server(ServerError),
    /// The client sent something invalid, or sent too slowly.
    Refused(ErrorPage),
    ClientGone,
}

/// Sends until the final head of the answer arrives, and passes interim responses on.
async fn until_head(
    transaction: &mut Transaction<'_>,
    pump: &mut BodyPump,
    server: &mut ServerExchange,
) -> Result<ResponseHead, UploadEnd> {
    let (core, request) = (transaction.core, transaction.request);
    let limits = &request.snapshot().reply_limits;
    let mut head = ResponseHead::default();
    transaction.client.expect_body();
    server.start_waiting();
    let mut gone = pin!(transaction.client.gone());
    loop {
        let client = &mut *transaction.client;
        let step = poll_fn(|cx| {
            let mut progressed = false;
            if !pump.is_done() && !pump.is_stopped() {
                let before = pump.received_bytes();
                if let Poll::Ready(Err(PumpError::Client(fault))) = pump.poll(cx, client) {
                    return Poll::Ready(step_of(fault));
                }
                progressed = pump.received_bytes() != before;
                if !pump.is_done() && client.poll_body_late(cx).is_ready() {
                    return Poll::Ready(Step::Refused(ErrorPage::RequestTimeout));
                }
            }
            // Checked also while the server does not take the bytes that were read, and when the
            // body has ended.
            if gone.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Step::ClientGone);
            }
            if progressed {
                // The server's time limit for its answer starts at the last bytes sent to it.
                server.start_waiting();
                client.expect_body();
            }
            server.poll_head(cx, limits, core.head_read_bytes(), &mut head).map(|result| {
                match result {
                    Ok(()) => Step::Head,
                    Err(error) => Step::Server(error),
                }
            })
        })
        .await;
        match step {
            Step::ClientGone => return Err(UploadEnd::ClientGone),
            Step::Refused(page) => return Err(Failure::new(page, "").into()),
            Step::Server(error) => return Err(explain(pump, &error).into()),
            Step::Head if head.status == 101 => {
                let detail = "the server switched protocols unasked";
                return Err(Failure::new(ErrorPage::InvalidResponse, detail).into());
            }
            Step::Head if head.status < 200 => {
                head::send_interim(transaction.client, request, &interim_head(&head));
                if transaction.client.flush().await.is_err() {
                    return Err(UploadEnd::ClientGone);
                }
                transaction.client.expect_body();
            }
            Step::Head => return Ok(head),
        }
    }
}

fn step_of(fault: BodyFault) -> Step {
    match fault {
        BodyFault::Gone => Step::ClientGone,
        BodyFault::TooLarge => Step::Refused(ErrorPage::TooLarge),
        BodyFault::Malformed(_) | BodyFault::Refused(_) => Step::Refused(ErrorPage::InvalidRequest),
    }
}

fn explain(pump: &BodyPump, error: &ServerError) -> Failure {
    if pump.is_stopped() && matches!(error, ServerError::ClosedEarly | ServerError::Io(_)) {
        return Failure::new(ErrorPage::WriteError, error.to_string());
    }
    Failure::from(error)
}

/// Relays an answer to its one request, whose body may still be on its way. Another task brings the
/// answer into the flow: a client that leaves need not wait until that task has ended.
pub(crate) async fn deliver(
    transaction: &mut Transaction<'_>,
    mut job: Job,
    answer: Box<Answer>,
    pump: Option<Box<BodyPump>>,
) -> Outcome {
    let (core, request, report) = (transaction.core, transaction.request, Rc::clone(&job.report));
    let private = || core.shared.cache.private(request.key, request.key);
    let writer =
        invalidate::after_unsafe_method(core, &job, &answer.head).await.unwrap_or_else(private);
    let Some(mut reader) = writer.subscribe(ReaderKind::Client) else {
        return local::error(transaction, ErrorPage::Internal, "no fetch").await;
    };
    let its_core = Rc::clone(core);
    let task = async move { delivery::deliver(&its_core, &mut job, answer, writer).await };
    turns::spawn_local(Box::pin(task));
    let tag = if request.head.method == Method::Connect { Tag::Tunnel } else { Tag::Miss };
    let outcome = |status| Outcome::miss(tag, status, Some(report.route()));
    let flow = match transaction.while_it_stays(pin!(reader.head())).await {
        None => return transaction.client_gone(outcome(0)),
        Some(Ok(flow)) => flow,
        Some(Err(reason)) => {
            return local::failed(transaction, report.failure(reason), outcome(0)).await;
        }
    };
    let mut outcome = outcome(flow.head.status).with_head(&flow.head);
    let limit_bytes = match reply::check(request, &flow.head, flow.info.body_bytes) {
        Ok(limit_bytes) => limit_bytes,
        Err(refusal) => {
            drop(reader);
            return local::refused(transaction, refusal, outcome.route).await;
        }
    };
    let origin = Origin::Fetched(report.forward(), None, reader.flow().is_stored());
    let own = report.take_own_fields();
    let reply = Reply {
        request,
        head: &flow.head,
        status: flow.head.status,
        range: None,
        usage: follow::usage(request, &flow, origin),
        own: Some(&own),
    };
    let mut relay = Relay::begin(transaction.client, request, &flow, &reply).with_pump(pump);
    relay.limit_body(limit_bytes);
    let ended = relay.run(transaction.client, &mut reader).await;
    drop(reader);
    outcome.end(ended.cut());
    outcome
}
