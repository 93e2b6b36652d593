//! Looks at the server before its client's connection is decrypted or left as it is.

use std::pin::pin;
use std::rc::Rc;

use humboldt_base::bump::{BumpAction, BumpStep, ServerIdentity};
use humboldt_base::counters::Counter;
use humboldt_exchange::TunnelEnd;
use humboldt_logs::access::Tag;
use humboldt_tls::{FlightReader, ServerFlight, cipher_name};

use crate::budgets::TunnelPlace;
use crate::bumped::Steps;
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::ErrorPage;
use crate::fetch::job::{Failure, Report};
use crate::fetch::route::{Reached, Route};
use crate::handshake::HANDSHAKE_TIME;
use crate::outcome::{Fault, Outcome, RouteTaken};
use crate::request::Request;
use crate::rules::bump;
use crate::secure::read_authorities;
use crate::special::bump::hand_over::Own;
use crate::special::bump::retry::{self, FirstMessage};
use crate::special::bump::{Names, ended, unless_drained};
use crate::special::tunnel::{self, Way};
use crate::transaction::Transaction;

/// A server that has been connected to, and what it has shown.
pub(super) struct Looked {
    reached: Reached,
    /// Its certificate, if it was to be seen.
    pub(super) seen: Option<Rc<ServerIdentity>>,
}

impl Looked {
    /// The certificate after which the client's is made. That of a parent in place of the server is
    /// for the parent's name.
    pub(super) fn model(&self) -> Option<Rc<ServerIdentity>> {
        let to = &self.reached.to;
        self.seen.clone().filter(|_| to.peer.is_none() || to.is_tunnel())
    }
}

/// Connects with TLS as a request inside of the tunnel would, which the connection is then for.
/// With the way that was taken.
pub(super) async fn look(
    core: &Rc<Core>,
    looking: &Request,
) -> (Result<Looked, Failure>, RouteTaken) {
    let report = Report::new();
    let reached = Route::new(core, looking, &report).await.next().await;
    let looked = reached.map(|reached| Looked { seen: reached.seen.clone(), reached });
    (looked, report.route())
}

/// Keeps the connection for the first request: in the pool if everybody may use it, otherwise for
/// this client.
pub(super) fn keep(core: &Core, looking: Rc<Request>, looked: Looked) -> Option<Own> {
    let is_pinned = looked.reached.has_faults() || looking.goes_astray();
    let Reached { server, to, seen, .. } = looked.reached;
    let connected = server.into_idle()?;
    if is_pinned || to.is_for_one() {
        return Some(Own { looking, to, connected, seen, is_pinned });
    }
    to.keep(core, &looking, connected);
    None
}

/// Sends the client's first message on as it is, and chooses by what can be seen of the answer.
pub(super) async fn peek(
    transaction: &mut Transaction<'_>,
    steps: &Steps,
    place: Option<TunnelPlace>,
    names: Names<'_>,
) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let opened = unless_drained(core, tunnel::open_promised(transaction, place));
    let mut way = match Box::pin(opened).await {
        Some(Ok(way)) => way,
        Some(Err(outcome)) => return outcome,
        None => return ended(core, None, Cut::ShutDown),
    };
    let hello = retry::take_first_message(transaction);
    let host = names.named.url.host();
    let answer = converse(core, request, host, &mut way.server, &hello);
    let answer = Box::pin(unless_drained(core, answer));
    let server = match transaction.while_it_stays(answer).await {
        None => return transaction.client_gone(way.outcome),
        Some(None) => return way.outcome.without_answer(Cut::ShutDown),
        Some(Some(Err(failure))) => {
            core.count(Counter::ClientErrors, 1);
            let ended = way.outcome.without_answer(Cut::NoServer);
            let fault = Some(Fault::of_page(failure.page, &failure.detail));
            return Outcome { fault, ..ended };
        }
        Some(Some(Ok(server))) => server,
    };
    let is_hidden = server.as_ref().is_none_or(|server| server.der.is_empty());
    steps.answered(BumpAction::Peek, server.map(Rc::new));
    let before = Some(BumpAction::Peek);
    let choosing = bump::choose(core, request, BumpStep::Three, before);
    match transaction.while_it_stays(pin!(choosing)).await {
        None => transaction.client_gone(way.outcome),
        Some(chosen) if chosen.action == BumpAction::Splice => {
            steps.end(BumpAction::Splice);
            pass(transaction, way, steps, names.other, FirstMessage::IsSent).await
        }
        Some(chosen) => {
            steps.end(BumpAction::Terminate);
            let cut = match is_hidden && chosen.is_guarded {
                true => Cut::CertificateHidden,
                false => Cut::Terminated,
            };
            Outcome { tag: Tag::None, ..way.outcome }.without_answer(cut)
        }
    }
}

/// Lets the bytes of a tunnel pass, whose first message has been read. `other`: see
/// [`tunnel::serve_promised`].
pub(super) async fn pass(
    transaction: &mut Transaction<'_>,
    mut way: Way,
    steps: &Steps,
    other: Option<&Request>,
    first: FirstMessage,
) -> Outcome {
    match retry::follow(transaction, &mut way, steps, first).await {
        Ok(()) => tunnel::serve_promised(transaction, way, other).await,
        Err(Cut::ClientGone) => transaction.client_gone(way.outcome),
        Err(cut) => Outcome { tag: Tag::None, ..way.outcome }.without_answer(cut),
    }
}

/// The server's identity, as far as it shows it to everybody. `Ok(None)`: what it says is no TLS,
/// which is its client's matter.
async fn converse(
    core: &Core,
    request: &Request,
    host: &[u8],
    server: &mut TunnelEnd,
    hello: &[u8],
) -> Result<Option<ServerIdentity>, Failure> {
    if let Some(side) = request.snapshot().tls.outgoing() {
        let time = request.snapshot().config.connect_timeout;
        let read = read_authorities(core, side, time).await;
        read.map_err(|error| failed(ErrorPage::ReadError, &error))?;
    }
    let deadline = core.io.deadlines.slot();
    deadline.arm(HANDSHAKE_TIME.min(request.snapshot().config.read_timeout));
    let talk = async {
        server.send(hello).await.map_err(|error| failed(ErrorPage::WriteError, &error))?;
        let mut flight = FlightReader::default();
        loop {
            match flight.read(server.early_bytes()) {
                Ok(Some(flight)) => return Ok(identity(request, host, flight)),
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
            match server.read_early(&core.io).await {
                Ok(true) => {}
                // What it has said before its end is for the client to read.
                Ok(false) if !server.early_bytes().is_empty() => return Ok(None),
                Ok(false) => return Err(failed(ErrorPage::ReadError, &CLOSED)),
                Err(error) => return Err(failed(ErrorPage::ReadError, &error)),
            }
        }
    };
    let late = |_| Err(failed(ErrorPage::ReadTimeout, &"no answer to the client's first message"));
    deadline.guard(pin!(talk)).await.unwrap_or_else(late)
}

const CLOSED: &str = "the server has closed the connection";

fn failed(page: ErrorPage, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(page, why.to_string())
}

fn identity(request: &Request, host: &[u8], flight: ServerFlight) -> Option<ServerIdentity> {
    let (version, cipher, chain) = match flight {
        ServerFlight::Chosen { version, cipher, chain } => (version, cipher, chain),
        // It is one of TLS 1.3, which hides its certificate.
        ServerFlight::AsksAgain { version, cipher } => (version, cipher, None),
        ServerFlight::Refused(_) => return None,
    };
    let side = request.snapshot().tls.outgoing();
    let judged = chain.and_then(|chain| Some(side?.identify(host, &chain)?.identity));
    let cipher = cipher_name(cipher);
    Some(ServerIdentity { version, cipher, ..judged.unwrap_or_default() })
}
