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
use humboldt_store::ReaderKind;

use crate::config::cache_status::Forward;
use crate::errors::ErrorPage;
use crate::fetch::ask::Ask;
use crate::fetch::converse::{Answer, interim_head};
use crate::fetch::job::{Failure, Job, Report};
use crate::fetch::route::{Reached, Route};
use crate::outcome::Outcome;
use crate::reply::{facts, follow, head, local};
use crate::rules::budget;
use crate::storing::{deliver, invalidate};
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

impl From<BodyFault> for UploadEnd {
    fn from(fault: BodyFault) -> Self {
        let page = match fault {
            BodyFault::Gone => return Self::ClientGone,
            BodyFault::TooLarge => ErrorPage::TooLarge,
            BodyFault::Malformed(_) | BodyFault::Refused(_) => ErrorPage::InvalidRequest,
        };
        Failure::new(page, "").into()
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
        Ok(answer) => relay(transaction, job, answer).await,
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
async fn send(transaction: &mut Transaction<'_>, job: &Job) -> Result<Box<Answer>, UploadEnd> {
    let (core, request) = (transaction.core, transaction.request);
    let connecting = async { Route::new(core, request, &job.report).await.pinned().next().await };
    let reached = transaction.while_it_stays(pin!(connecting)).await;
    let Reached { mut server, to, is_pinned, seen } = reached.ok_or(UploadEnd::ClientGone)??;
    let upload = server.begin_upload(&Ask { request, manner: job.manner(&to) });
    transaction.client.limit_request_body(request.snapshot().body_limit_bytes());
    let mut pump = Box::new(BodyPump::new(upload));
    let request_time = core.now().secs();
    let head = until_head(transaction, &mut pump, &mut server).await?;
    job.report.answered(&head, to.passes_logins());
    transaction.pump = Some(pump);
    let reached = Reached { server, to, is_pinned, seen };
    let answer = Answer::new(reached, head, request, request_time);
    answer.map_err(|error| Failure::from(&error).into())
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
        poll_fn(|cx| {
            let mut progressed = false;
            if !pump.is_done() && !pump.is_stopped() {
                let before = pump.received_bytes();
                if let Poll::Ready(Err(PumpError::Client(fault))) = pump.poll(cx, client) {
                    return Poll::Ready(Err(fault.into()));
                }
                progressed = pump.received_bytes() != before;
                if !budget::take_upload(core, request, pump.received_bytes()) && !pump.is_done() {
                    let refusal = budget::refuse_upload(core, request);
                    return Poll::Ready(Err(Failure::from(refusal).into()));
                }
                if !pump.is_done() && client.poll_body_late(cx).is_ready() {
                    return Poll::Ready(Err(Failure::new(ErrorPage::RequestTimeout, "").into()));
                }
            }
            // Checked also while the server does not take the bytes that were read, and when the
            // body has ended.
            if gone.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(UploadEnd::ClientGone));
            }
            if progressed {
                // The server's time limit for its answer starts at the last bytes sent to it.
                server.start_waiting();
                client.expect_body();
            }
            let headed = server.poll_head(cx, limits, core.head_read_bytes(), &mut head);
            headed.map_err(|error| explain(pump, &error).into())
        })
        .await?;
        match head.status {
            ..200 => {
                let interim = interim_head(&head);
                facts::gather(transaction, &interim).await.ok_or(UploadEnd::ClientGone)?;
                head::send_interim(transaction.client, request, &interim);
                if transaction.client.flush().await.is_err() {
                    return Err(UploadEnd::ClientGone);
                }
                transaction.client.expect_body();
            }
            _ => return Ok(head),
        }
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
pub(crate) async fn relay(
    transaction: &mut Transaction<'_>,
    job: Job,
    answer: Box<Answer>,
) -> Outcome {
    let (core, request, report) = (transaction.core, transaction.request, Rc::clone(&job.report));
    let private = || core.shared.cache.private(request.key, request.key);
    let writer = invalidate::after_unsafe_method(core, &job, &answer).await.unwrap_or_else(private);
    let Some(reader) = writer.subscribe(ReaderKind::Client) else {
        return local::error(transaction, ErrorPage::Internal, "no fetch").await;
    };
    deliver::go_on(core, job, answer, writer);
    let tag = if request.head.method == Method::Connect { Tag::Tunnel } else { Tag::Miss };
    follow::alone(transaction, reader, &report, tag).await
}
