//! Asks a server: finds a way and a connection, sends the request, reads the head of the answer.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use humboldt_base::bump::ServerIdentity;
use humboldt_base::counters::Counter;
use humboldt_conf::RelaxedParser;
use humboldt_exchange::{Announced, ServerError, ServerExchange};
use humboldt_http::{FieldName, HopByHop, ResponseHead};
use humboldt_runtime::deadline::DeadlineSlot;
use humboldt_store::{FlowWriter, StoredHead};

use crate::config::reply_rules::UNLIMITED;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::ask::{Ask, tells_user};
use crate::fetch::destination::Destination;
use crate::fetch::job::{Failure, Job, Report};
use crate::fetch::pinning;
use crate::fetch::route::{Reached, Route};
use crate::outcome::RouteTaken;
use crate::request::Request;
use crate::rules::destinations;

/// An answer whose head has arrived.
pub(crate) struct Answer {
    /// The exchange, which has the body.
    pub server: ServerExchange,
    to: Destination,
    /// The head.
    pub head: ResponseHead,
    /// The facts that the head announces about the body.
    announced: Announced,
    /// When the request was sent, unix seconds.
    pub request_time: i64,
    /// How many bytes of the body may be passed on (`reply_body_max_size`).
    pub limit_bytes: u64,
    /// The connection belongs to that of the client.
    pub is_pinned: bool,
    /// The server's certificate, if rules have judged it.
    seen: Option<Rc<ServerIdentity>>,
}

/// An answer that says that its way does not work. It is used if no other way brings one.
struct Reserve {
    answer: Box<Answer>,
    /// The private address from which it came, to be judged for those who share the fetch.
    private: Option<IpAddr>,
    route: RouteTaken,
    is_undelayed: bool,
}

impl Reserve {
    fn new(mut answer: Box<Answer>, private: Option<IpAddr>, report: &Report) -> Self {
        answer.server.keep_small();
        let (route, is_undelayed) = (report.route(), report.is_undelayed.get());
        Self { answer, private, route, is_undelayed }
    }

    /// It is the answer: what was noted about later ways is taken back.
    fn into_answer(self, report: &Report, writer: &FlowWriter) -> Box<Answer> {
        writer.comes_from(self.private);
        let attempts = report.route.borrow().attempts;
        report.route.replace(RouteTaken { attempts, ..self.route });
        report.is_undelayed.set(self.is_undelayed);
        // No such answer asks for a login.
        report.own_fields.take();
        self.answer
    }
}

/// Sends the request, by as many ways as needed, and reads the final head.
pub(crate) async fn converse(
    core: &Rc<Core>,
    job: &Job,
    writer: &mut FlowWriter,
) -> Result<Box<Answer>, Failure> {
    let config = &job.request.snapshot().config;
    let deadline = core.io.deadlines.slot();
    deadline.arm(config.forward_timeout.max(config.read_timeout));
    let mut reserve = None;
    let result = {
        let attempts = pin!(attempt_all(core, job, writer, &deadline, &mut reserve));
        deadline.guard(attempts).await
    };
    let result = result.unwrap_or_else(|_elapsed| {
        Err(Failure::new(ErrorPage::ForwardTimeout, "no answer within forward_timeout"))
    });
    // Whatever has become of the later ways.
    result.or_else(|failure| {
        let reserve = reserve.ok_or(failure)?;
        Ok(reserve.into_answer(&job.report, writer))
    })
}

/// An answer that may be used if no other way brings one goes to `reserve`.
async fn attempt_all(
    core: &Rc<Core>,
    job: &Job,
    writer: &mut FlowWriter,
    deadline: &DeadlineSlot,
    reserve: &mut Option<Reserve>,
) -> Result<Box<Answer>, Failure> {
    let request = &*job.request;
    let config = &request.snapshot().config;
    let mut route = Route::new(core, request, &job.report).await.reusing();
    // A fetch that others may share is not done as this user.
    if job.as_asked && !job.in_background {
        route = route.pinned();
    }
    loop {
        let (was_reused, private);
        // A block, or this future would have what was reached as well.
        let asked = {
            let reached = route.next().await?;
            was_reused = reached.server.was_reused();
            private = to_be_judged(core, request, &reached);
            writer.comes_from(private);
            // An answer in reserve is as old as its own request. Later answers count as that old,
            // too: one of them may not be kept for that reason, but none takes the place of a
            // newer one.
            if reserve.is_none() {
                writer.ask();
            }
            ask(core, job, reached, writer)
        };
        match asked.await {
            Ok(answer) if says_to_go_elsewhere(request, &answer) && route.leave(was_reused) => {
                core.count(Counter::ServerRetries, 1);
                *reserve = Some(Reserve::new(answer, private, &job.report));
                // There is an answer: the others get no more than the time to find a way.
                deadline.shorten(config.forward_timeout);
            }
            Ok(answer) => return Ok(answer),
            // The connection of the client is for any request.
            Err(error) if was_reused && request.is_retriable() && is_dead_connection(&error) => {
                core.count(Counter::ServerRetries, 1);
                route.failed(Failure::from(&error));
            }
            // A new connection, so it was the server: another way may bring an answer, as in Squid.
            Err(error @ ServerError::ClosedEarly)
                if request.is_retriable() && !is_late(core, request) && route.leave(false) =>
            {
                core.count(Counter::ServerRetries, 1);
                route.left_without_answer(Failure::from(&error));
            }
            Err(error) => return Err(Failure::from(&error)),
        }
    }
}

/// The private address of a server that was reached: those who share the fetch are judged too.
fn to_be_judged(core: &Core, request: &Request, reached: &Reached) -> Option<IpAddr> {
    let is_peer = reached.to.peer.is_some();
    if is_peer { None } else { destinations::to_note(core, request, reached.server.peer().ip()) }
}

/// Whether another parent, or the server itself, may do better than who sent this answer, as in
/// Squid.
fn says_to_go_elsewhere(request: &Request, answer: &Answer) -> bool {
    let is_wanted = match answer.head.status {
        502 | 504 => true,
        403 | 500 | 501 | 503 => request.snapshot().config.retry_on_error,
        _ => false,
    };
    is_wanted && request.is_retriable() && !answer.is_pinned
}

/// Whether it is too late to try another way, as in Squid: the client has waited for long.
fn is_late(core: &Core, request: &Request) -> bool {
    let waited_s = core.now().secs().saturating_sub(request.received.secs());
    waited_s >= request.snapshot().config.forward_timeout.as_secs().cast_signed()
}

fn is_dead_connection(error: &ServerError) -> bool {
    matches!(error, ServerError::ClosedEarly | ServerError::Io(_))
}

/// Sends one request without a body on one connection, and reads the final head.
fn ask(
    core: &Rc<Core>,
    job: &Job,
    mut reached: Reached,
    writer: &mut FlowWriter,
) -> impl Future<Output = Result<Box<Answer>, ServerError>> {
    let limits = &job.request.snapshot().reply_limits;
    // A block has what was reached once, an async function would have its argument twice.
    async move {
        let server = &mut reached.server;
        server.ask(&Ask { request: &job.request, manner: job.manner(&reached.to) }).await?;
        let request_time = core.now().secs();
        let mut head = ResponseHead::default();
        loop {
            server.head(limits, || core.head_read_bytes(), &mut head).await?;
            match head.status {
                100..=199 => writer.interim(Arc::new(interim_head(&head))),
                _ => {
                    job.report.answered(&head, reached.to.passes_logins());
                    return Answer::new(reached, head, &job.request, request_time);
                }
            }
        }
    }
}

/// An interim head in the form that is passed on. It has no body, so nothing may announce one (RFC
/// 9110 8.6).
pub(crate) fn interim_head(head: &ResponseHead) -> StoredHead {
    let hops = HopByHop::of(&head.fields);
    StoredHead::from_response(head, |id, name| {
        id == FieldName::ContentLength || hops.is_hop(id, name)
    })
}

impl Answer {
    /// Boxed, because an answer is moved often and has half a kilobyte.
    ///
    /// # Errors
    /// The head says nothing reliable about the end of its body.
    pub(crate) fn new(
        reached: Reached,
        mut head: ResponseHead,
        request: &Request,
        request_time: i64,
    ) -> Result<Box<Self>, ServerError> {
        let Reached { mut server, to, is_pinned, seen } = reached;
        let is_pinned = is_pinned || pinning::logs_connection_in(request, &to);
        pinning::see_offers(request, &to, &mut head);
        let relaxed = request.snapshot().config.relaxed_header_parser;
        let method = request.head.method;
        let announced = server.begin_body(&head, method, relaxed != RelaxedParser::Off)?;
        if announced.was_repaired && relaxed == RelaxedParser::Warn {
            tracing::warn!(
                "{}: the answer's head is not as RFC 9112 wants it: repaired",
                String::from_utf8_lossy(request.shown_url())
            );
        }
        let answer = Self {
            server,
            to,
            head,
            announced,
            request_time,
            limit_bytes: UNLIMITED,
            is_pinned,
            seen,
        };
        Ok(Box::new(answer))
    }

    /// Length of the body, if known.
    pub(crate) fn body_bytes(&self) -> Option<u64> {
        self.announced.body_bytes
    }

    /// Whether its head had to be repaired (`relaxed_header_parser`).
    pub(crate) fn was_repaired(&self) -> bool {
        self.announced.was_repaired
    }

    /// Gives the connection back, if it can be used again. Call it when the whole body of
    /// [`ServerExchange::whole_body`] has been used.
    pub(crate) fn keep_after_whole_body(mut self: Box<Self>, core: &Core, request: &Request) {
        if self.server.skip_whole_body().is_ok() {
            self.keep(core, request);
        }
    }

    /// Gives the connection back, if it can be used again. The pool knows connections by the host
    /// of the URL, so one to an address that is not the host's never gets there.
    pub(crate) fn keep(self: Box<Self>, core: &Core, request: &Request) {
        if request.goes_astray() && request.inside().is_none() {
            return;
        }
        let (faulty, seen) = (self.has_faults(), self.seen);
        let Some(idle) = self.server.into_idle() else { return };
        let url = &request.url;
        match self.is_pinned || request.is_not_for_others() {
            false if faulty => {}
            false => self.to.keep(core, request, idle),
            true => {
                let (place, server) = ((url.host(), url.port()), self.to.server(request));
                request.facts().pin.put(place, &server, request.owner(), (idle, seen));
            }
        }
    }

    /// Whether the server was told who the client is: see [`tells_user`]. On a connection that
    /// belongs to the client's the server knows.
    pub(crate) fn tells_user(&self, request: &Request) -> bool {
        self.is_pinned || tells_user(request, self.to.peer.as_deref())
    }

    /// Whether something is wrong with the server's certificate, and was forgiven: what it says is
    /// for this client alone.
    pub(crate) fn has_faults(&self) -> bool {
        self.seen.as_ref().is_some_and(|server| !server.faults.is_empty())
    }

    /// Whether the answer must not be stored: it came from a peer with `proxy-only`, from a server
    /// with a fault that was forgiven, or its head had to be repaired. One client may cope with a
    /// repaired answer, but it is not for all.
    pub(crate) fn is_not_to_be_stored(&self) -> bool {
        let is_copy = self.to.peer.as_ref().is_some_and(|peer| peer.conf.proxy_only);
        is_copy || self.was_repaired() || self.has_faults()
    }
}
