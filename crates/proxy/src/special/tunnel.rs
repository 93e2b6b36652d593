//! Tunnels: CONNECT, and connections that switch to another protocol.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_exchange::{
    BodyLength, ReplyHead, ReplySink, ServerError, ServerExchange, TunnelEnd, TunnelLimits, reason,
    relay,
};
use humboldt_http::{FieldName, HopByHop, ResponseHead};
use humboldt_logs::access::Tag;

use crate::budgets::TunnelPlace;
use crate::config::cache_status::Usage;
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::ErrorPage;
use crate::fetch::ask::{Ask, AskTunnel, Manner};
use crate::fetch::converse::{Answer, interim_head};
use crate::fetch::job::{Failure, Job, Report};
use crate::fetch::route::{Reached, Route};
use crate::open_tunnel::OpenTunnel;
use crate::outcome::{Fault, Outcome, RouteTaken};
use crate::reply::{facts, local};
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::header::Ruled;
use crate::rules::{budget, delays, marks, reply, upgrades};
use crate::special::recheck::{self, Closing};
use crate::special::upload;
use crate::transaction::Transaction;

/// A tunnel without traffic is closed after this time, or after `read_timeout` if that is longer.
const IDLE_MIN: Duration = Duration::from_secs(60);

/// The limit after the client's FIN. The client may still read, or may have closed both halves; the
/// two look the same. Squid ends a tunnel at once then; HAProxy's `client-fin` is this limit.
const CLIENT_FIN: Duration = Duration::from_secs(10);

/// Opens a tunnel to `host:port` (RFC 9110 9.3.6).
pub(crate) async fn connect(transaction: &mut Transaction<'_>) -> Outcome {
    let place = match budget::begin_tunnel(transaction.core, transaction.request) {
        Ok(place) => place,
        Err(refusal) => return local::refused(transaction, refusal, None).await,
    };
    let report = Report::new();
    let job = Job::new(transaction.request, None, false, &report);
    let opened = transaction.while_it_stays(pin!(open(transaction.core, &job))).await;
    let outcome = |status| Outcome::miss(Tag::Tunnel, status, Some(report.route()));
    match opened {
        None => transaction.client_gone(outcome(0)),
        Some(Ok(Opened::Tunnel(server))) => {
            announce(transaction, &Established, None, report.source());
            let tunnel = OpenTunnel { server: server.into_tunnel(), protocols: None, place };
            transaction.tunnel = Some(Box::new(tunnel));
            outcome(200)
        }
        Some(Ok(Opened::Refused(answer))) => {
            // As in Squid, the refusal of a tunnel goes to the client as it is.
            report.answered(&answer.head, true);
            upload::relay(transaction, job, answer).await
        }
        Some(Err(failure)) => local::failed(transaction, failure, outcome(0)).await,
    }
}

/// The way of a tunnel that its client has been promised already.
pub(crate) struct Way {
    /// The server's end.
    pub(crate) server: TunnelEnd,
    /// For the line in access.log.
    pub(crate) outcome: Outcome,
    /// The client's end, if it has been taken already.
    client: Option<TunnelEnd>,
    source: delays::Source,
    _place: Option<TunnelPlace>,
}

impl Way {
    /// Takes the client's end.
    pub(crate) fn take_client(&mut self, transaction: &mut Transaction<'_>) -> TunnelEnd {
        self.client.take().unwrap_or_else(|| {
            delays::apply_to_tunnel(transaction.client, transaction.request, self.source);
            transaction.client.tunnel()
        })
    }

    /// Gives it back.
    pub(crate) fn give_client_back(&mut self, client: TunnelEnd) {
        self.client = Some(client);
    }
}

/// Opens a tunnel that its client has been promised already: without one, the connection ends.
/// `place`: see [`budget::begin_tunnel`].
pub(crate) async fn open_promised(
    transaction: &Transaction<'_>,
    place: Option<TunnelPlace>,
) -> Result<Way, Outcome> {
    let (core, request) = (transaction.core, transaction.request);
    let report = Report::new();
    let job = Job::new(request, None, false, &report);
    let opened = transaction.while_it_stays(pin!(open(core, &job))).await;
    let outcome = |status| Outcome::miss(Tag::None, status, Some(report.route()));
    match opened {
        None => Err(transaction.client_gone(outcome(200))),
        Some(Ok(Opened::Tunnel(server))) => {
            let (server, source) = (server.into_tunnel(), report.source());
            let outcome = Outcome::miss(Tag::Tunnel, 200, Some(report.route()));
            Ok(Way { server, outcome, client: None, source, _place: place })
        }
        Some(Ok(Opened::Refused(answer))) => {
            Err(outcome(answer.head.status).without_answer(Cut::NoServer))
        }
        Some(Err(failure)) => Err(match failure.refusal {
            Some(refusal) => refused(core, *refusal),
            None => {
                core.count(Counter::ClientErrors, 1);
                let ended = outcome(failure.page.status()).without_answer(Cut::NoServer);
                let fault = Some(Fault::of_page(failure.page, &failure.detail));
                Outcome { fault, ..ended }
            }
        }),
    }
}

/// The end of a connection that a rule refuses, and whose client can be told nothing.
pub(crate) fn refused(core: &Core, refusal: Refusal) -> Outcome {
    core.count(Counter::ClientDenied, 1);
    let outcome = Outcome::local(refusal.tag, refusal.page.status());
    outcome.without_answer(Cut::Denied).by_rule(refusal.rule)
}

/// Moves bytes through a tunnel that its client has been promised. `named`: the same request by the
/// name that the client asks for in TLS, of which the rules are asked too.
pub(crate) async fn serve_promised(
    transaction: &mut Transaction<'_>,
    mut way: Way,
    named: Option<&Request>,
) -> Outcome {
    let client = way.take_client(transaction);
    let Way { server, outcome, _place, .. } = way;
    relay_bytes(transaction, None, named, (client, server), outcome).await
}

/// The longest time in which nothing moves through a tunnel.
pub(crate) fn idle_time(request: &Request) -> Duration {
    request.snapshot().config.read_timeout.max(IDLE_MIN)
}

/// The answer to CONNECT.
pub(crate) struct Established;

impl ReplyHead for Established {
    fn status(&self) -> u16 {
        200
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        sink.status(200, b"Connection established");
    }
}

/// Begins the answer that opens a tunnel. [`carry`] goes on.
fn announce(
    transaction: &mut Transaction<'_>,
    head: &impl ReplyHead,
    upgrade: Option<&[u8]>,
    source: delays::Source,
) {
    delays::apply_to_tunnel(transaction.client, transaction.request, source);
    begin(transaction, head, upgrade);
}

/// Sends the head of a tunnel.
pub(crate) async fn promise(
    transaction: &mut Transaction<'_>,
    head: &impl ReplyHead,
    upgrade: Option<&[u8]>,
) -> Result<(), Cut> {
    begin(transaction, head, upgrade);
    transaction.client.flush().await.map_err(Cut::from)
}

fn begin(transaction: &mut Transaction<'_>, head: &impl ReplyHead, upgrade: Option<&[u8]>) {
    // No request can come behind a tunnel.
    let facts = transaction.request.facts();
    facts.pin.end();
    facts.login.end_handshake();
    let client = &mut *transaction.client;
    marks::apply(client, transaction.request, Usage::Local);
    client.send_tunnel_head(head, upgrade);
}

/// Sends the head, then moves bytes until the tunnel ends.
pub(crate) async fn carry(
    transaction: &mut Transaction<'_>,
    tunnel: Box<OpenTunnel>,
    mut outcome: Outcome,
) -> Outcome {
    let OpenTunnel { server, protocols, place: _place } = *tunnel;
    if let Err(lost) = transaction.client.flush().await {
        outcome.end(Some(lost.into()));
        return outcome;
    }
    let ends = (transaction.client.tunnel(), server);
    relay_bytes(transaction, protocols.as_deref(), None, ends, outcome).await
}

/// Moves bytes between the client's and the server's end until the tunnel ends.
async fn relay_bytes(
    transaction: &mut Transaction<'_>,
    upgrade: Option<&[u8]>,
    named: Option<&Request>,
    ends: (TunnelEnd, TunnelEnd),
    mut outcome: Outcome,
) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let limits = TunnelLimits { idle: idle_time(request), client_fin: CLIENT_FIN };
    let peer = outcome.route.as_ref().and_then(RouteTaken::server_ip);
    let why = RefCell::new(None);
    let refused = async {
        let tunnel = recheck::Tunnel { request, named, peer, protocols: upgrade };
        let closing = recheck::refused(core, tunnel).await;
        why.replace(Some(closing));
    };
    let meter = budget::meter(core, request);
    let (bytes, over) = relay(&core.io, ends.0, ends.1, limits, refused, meter).await;
    outcome.bytes_out += bytes;
    let closing: Option<Closing> = why.into_inner();
    let cut = closing.as_ref().map(|closing| closing.cut).or(over.map(Cut::from));
    outcome.end(cut);
    outcome.by_rule(closing.and_then(|closing| closing.rule))
}

/// The result of CONNECT.
enum Opened {
    Tunnel(ServerExchange),
    /// The parent's answer, which goes to the client instead.
    Refused(Box<Answer>),
}

/// Connects for CONNECT, directly or through a parent. As in Squid, a parent's refusal goes to the
/// client. If only the parent's own server failed (502, 504), the next way is tried.
async fn open(core: &Rc<Core>, job: &Job) -> Result<Opened, Failure> {
    let request = &*job.request;
    let mut route = Route::new(core, request, &job.report).await;
    let mut refused = None;
    loop {
        let reached = match route.next().await {
            Ok(reached) => reached,
            Err(failure) => return refused.map(Opened::Refused).ok_or(failure),
        };
        // As in Squid, a server is not asked for a tunnel: the connection is one.
        if reached.to.peer.as_ref().is_none_or(|peer| peer.conf.originserver) {
            return Ok(Opened::Tunnel(reached.server));
        }
        match ask_parent(core, request, reached).await {
            Ok(Opened::Refused(mut answer)) if matches!(answer.head.status, 502 | 504) => {
                answer.server.keep_small();
                refused = Some(answer);
            }
            Ok(opened) => return Ok(opened),
            Err(error) => route.failed(Failure::from(&error)),
        }
    }
}

async fn ask_parent(
    core: &Core,
    request: &Request,
    reached: Reached,
) -> Result<Opened, ServerError> {
    let Reached { mut server, to, is_pinned, seen } = reached;
    let sent_at = core.now().secs();
    server.ask(&AskTunnel { request, place: &request.url, login: to.login() }).await?;
    let mut head = ResponseHead::default();
    loop {
        let limits = &request.snapshot().reply_limits;
        server.head(limits, || core.head_read_bytes(), &mut head).await?;
        match head.status {
            100..=199 => {}
            200..=299 => return Ok(Opened::Tunnel(server)),
            _ => {
                let reached = Reached { server, to, is_pinned, seen };
                return Answer::new(reached, head, request, sent_at).map(Opened::Refused);
            }
        }
    }
}

/// Forwards a request to switch to one of the protocols `offered`; becomes a tunnel if the server
/// agrees.
pub(crate) async fn upgrade(transaction: &mut Transaction<'_>, offered: &[u8]) -> Outcome {
    let request = transaction.request;
    let place = match budget::begin_tunnel(transaction.core, request) {
        Ok(place) => place,
        Err(refusal) => return local::refused(transaction, refusal, None).await,
    };
    let report = Report::new();
    let job = Job::new(request, None, false, &report);
    let asking = ask_to_switch(transaction.core, &job, offered);
    let asked = transaction.while_it_stays(pin!(asking)).await;
    let outcome = |tag, status| Outcome::miss(tag, status, Some(report.route()));
    match asked {
        None => transaction.client_gone(outcome(Tag::Tunnel, 0)),
        Some(Err(failure)) => local::failed(transaction, failure, outcome(Tag::Miss, 0)).await,
        Some(Ok(Switched::No(answer))) => upload::relay(transaction, job, answer).await,
        Some(Ok(Switched::Yes(server, head))) => {
            if facts::gather(transaction, &interim_head(&head)).await.is_none() {
                return transaction.client_gone(outcome(Tag::Tunnel, 0));
            }
            if let Err(refusal) = reply::check_interim(request, &head) {
                return local::refused(transaction, refusal, Some(report.route())).await;
            }
            let switching = Switching { head: &head, request };
            let protocols = switching.protocols();
            let ruled = Ruled { head: &switching, request, length: BodyLength::None };
            announce(transaction, &ruled, Some(&protocols), report.source());
            let server = server.into_tunnel();
            let tunnel = OpenTunnel { server, protocols: Some(protocols), place };
            transaction.tunnel = Some(Box::new(tunnel));
            outcome(Tag::Tunnel, 101)
        }
    }
}

/// The answer to a request to switch.
enum Switched {
    /// The server continues with another protocol.
    Yes(ServerExchange, Box<ResponseHead>),
    /// The server answers as if the request had no Upgrade.
    No(Box<Answer>),
}

async fn ask_to_switch(core: &Rc<Core>, job: &Job, offered: &[u8]) -> Result<Switched, Failure> {
    let request = &*job.request;
    let Reached { mut server, to, is_pinned, seen } =
        Route::new(core, request, &job.report).await.pinned().next().await?;
    let manner = Manner { whole: false, upgrade: Some(offered), ..job.manner(&to) };
    let sent_at = core.now().secs();
    let mut head = ResponseHead::default();
    let asked = async {
        server.ask(&Ask { request, manner }).await?;
        loop {
            let limits = &request.snapshot().reply_limits;
            server.head(limits, || core.head_read_bytes(), &mut head).await?;
            if head.status == 101 || head.status >= 200 {
                return Ok::<(), ServerError>(());
            }
        }
    };
    asked.await.map_err(|error| Failure::from(&error))?;
    job.report.answered(&head, to.passes_logins());
    if head.status != 101 {
        let reached = Reached { server, to, is_pinned, seen };
        let answer = Answer::new(reached, head, request, sent_at);
        return answer.map(Switched::No).map_err(|error| Failure::from(&error));
    }
    match upgrades::objection(request, offered, &head) {
        Some(why) => Err(Failure::new(ErrorPage::InvalidResponse, why)),
        None => Ok(Switched::Yes(server, Box::new(head))),
    }
}

/// The 101 in the form that the client gets.
struct Switching<'a> {
    head: &'a ResponseHead,
    request: &'a Request,
}

impl Switching<'_> {
    /// The value of Upgrade.
    fn protocols(&self) -> Vec<u8> {
        let values: Vec<&[u8]> = self.head.fields.get_all(FieldName::Upgrade).collect();
        values.join(&b", "[..])
    }
}

impl ReplyHead for Switching<'_> {
    fn status(&self) -> u16 {
        101
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        sink.status(101, reason(101).as_bytes());
        let hops = HopByHop::of(&self.head.fields);
        for (id, name, value) in self.head.fields.iter() {
            if !hops.is_hop(id, name) && id != FieldName::ContentLength {
                sink.field(name, value);
            }
        }
        if let Some(via) = self.request.snapshot().names.via(self.head.version) {
            sink.field(b"Via", via);
        }
    }
}
