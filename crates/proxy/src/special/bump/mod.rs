//! CONNECT on a port that intercepts TLS (`ssl-bump`), and connections that the packet filter has
//! sent to such a port: the steps of `ssl_bump`.
//!
//! At each step a rule chooses. Until one bumps, nothing of the client's is touched, and splicing
//! stays possible: its first message (ClientHello) is read, not answered. A client that is bumped
//! gets a certificate that is made for the name by which its server is verified, and no other name
//! is served inside.

mod hand_over;
mod leaf;
mod listen;
mod names;
mod retry;
mod server;

use std::any::Any;
use std::pin::pin;
use std::rc::Rc;

use humboldt_base::bump::{BumpAction, BumpStep};
use humboldt_base::counters::Counter;
use humboldt_http::Method;
use humboldt_logs::access::Tag;
use humboldt_tls::BumpAuthority;

use crate::budgets::TunnelPlace;
use crate::bumped::{Inside, Steps};
use crate::config::denials::Instead;
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::ErrorPage;
use crate::fetch::job::Failure;
use crate::outcome::{Fault, Outcome};
use crate::reply::local;
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::{budget, bump};
use crate::special::tunnel::{self, Established};
use crate::transaction::Transaction;

pub(crate) use hand_over::{HandOver, Own, Verdict};
use listen::Heard;
use retry::FirstMessage;
use server::Looked;

/// Whether `ssl_bump` is asked about a request. As in Squid, not where a helper has chosen another
/// server than the client's.
pub(crate) fn is_asked(request: &Request) -> bool {
    let (facts, snapshot) = (request.facts(), request.snapshot());
    request.head.method == Method::Connect
        && !snapshot.ssl_bump.is_empty()
        && snapshot.tls.bumps(&facts.port)
        && facts.inside.is_none()
        && !request.is_rewritten()
}

/// Whether the client of CONNECT may see a refusal inside of its tunnel, where browsers show it. A
/// client that is to log in must see it before, and not every refusal has a page.
pub(crate) fn shows(request: &Request, refusal: &Refusal) -> bool {
    let instead = refusal.info.and_then(|info| request.snapshot().denials.get(info));
    !matches!(instead, Some(Instead::Reset))
        && !refusal.page.asks_login()
        && is_asked(request)
        && authority(request).is_some()
}

fn authority(request: &Request) -> Option<&BumpAuthority> {
    request.snapshot().tls.authority(&request.facts().port)
}

/// A tunnel that its client has been promised.
struct Promised {
    steps: Rc<Steps>,
    /// The action of the first step.
    first: BumpAction,
    /// The rules have refused the tunnel.
    denied: Option<Refusal>,
    /// Its place among the tunnels of its client.
    place: Option<TunnelPlace>,
}

/// The names of a tunnel.
#[derive(Copy, Clone)]
struct Names<'r> {
    /// The request under the name that the client asks for in TLS, or under its only one.
    named: &'r Rc<Request>,
    /// The same under its other name: not that of the line in the log.
    other: Option<&'r Request>,
}

/// Takes the steps. `denied`: the rules have refused the tunnel.
pub(crate) async fn connect(transaction: &mut Transaction<'_>, denied: Option<Refusal>) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let host = String::from_utf8_lossy(request.url.host());
    let steps = Rc::clone(request.bump.get_or_init(|| Rc::new(Steps::new(&host))));
    let choosing = bump::action(core, request, BumpStep::One, None);
    let Some(first) = transaction.while_it_stays(pin!(choosing)).await else {
        return transaction.client_gone(Outcome::local(Tag::None, 0));
    };
    match (first, denied) {
        (BumpAction::Terminate, denied) => {
            steps.end(first);
            Outcome { status: 0, ..ended(core, denied, Cut::Terminated) }
        }
        (BumpAction::Splice | BumpAction::Peek, Some(refusal)) => {
            steps.end(first);
            local::refused(transaction, refusal, None).await
        }
        (BumpAction::Splice, None) => {
            steps.end(first);
            tunnel::connect(transaction).await
        }
        (BumpAction::Bump | BumpAction::Stare, _) if authority(request).is_none() => {
            local::error(transaction, ErrorPage::Internal, NO_AUTHORITY).await
        }
        (BumpAction::Bump | BumpAction::Stare | BumpAction::Peek, denied) => {
            let place = match budget::begin_tunnel(core, request) {
                Ok(place) => place,
                Err(refusal) => return local::refused(transaction, refusal, None).await,
            };
            if let Err(cut) = tunnel::promise(transaction, &Established, None).await {
                return Outcome::local(Tag::None, 200).cut_off(cut);
            }
            second_step(transaction, Promised { steps, first, denied, place }).await
        }
    }
}

/// A port that has lost its certificate by a reconfiguration.
const NO_AUTHORITY: &str = "a rule decrypts the tunnel, and the port has no certificate for that";

/// The line of a tunnel that ends before there is anything in it.
fn ended(core: &Core, denied: Option<Refusal>, cut: Cut) -> Outcome {
    match denied {
        None => Outcome::local(Tag::None, 200).without_answer(cut),
        Some(refusal) => {
            let rule = refusal.rule.clone();
            refused_line(core, &refusal).without_answer(cut).by_rule(rule)
        }
    }
}

/// The line of a tunnel that the rules have refused, although its client has been promised one to
/// see the page in.
fn refused_line(core: &Core, refusal: &Refusal) -> Outcome {
    let is_unanswered = refusal.unanswered.is_some();
    core.count(if is_unanswered { Counter::ClientErrors } else { Counter::ClientDenied }, 1);
    let fault = Some(Fault::of_page(refusal.page, ""));
    let outcome = Outcome { fault, ..Outcome::local(refusal.tag, 200) };
    outcome.by_rule(refusal.rule.clone())
}

/// Reads the client's first message. With a name in it, the tunnel has two: the rules are asked
/// about both.
async fn second_step(transaction: &mut Transaction<'_>, mut promised: Promised) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let heard = listen::listen(transaction).await;
    let other = match &heard {
        Heard::Other => Some("ERR_PROTOCOL_UNKNOWN"),
        Heard::Silent => Some("ERR_REQUEST_START_TIMEOUT"),
        _ => None,
    };
    let denied = promised.denied.take();
    if let (Some(error), None) = (other, &denied)
        && bump::tunnels_others(request, error)
    {
        promised.steps.end(BumpAction::Splice);
        return match tunnel::open_promised(transaction, promised.place).await {
            Ok(way) => tunnel::serve_promised(transaction, way, None).await,
            Err(outcome) => outcome,
        };
    }
    let hello = match heard {
        Heard::Hello(hello) => hello,
        Heard::Other | Heard::Broken => return ended(core, denied, Cut::NotTls),
        Heard::Silent => return ended(core, denied, Cut::NoHandshake),
        Heard::Lost(cut) => return ended(core, denied, cut),
    };
    let Ok(named) = names::named(request, &hello) else {
        tracing::debug!("the name that a client asks for in TLS is no host");
        return ended(core, denied, Cut::NotTls);
    };
    promised.steps.heard(promised.first, hello);
    let Some(named) = named.map(Rc::new) else {
        let names = Names { named: &Rc::clone(request), other: None };
        return choose(transaction, names, Promised { denied, ..promised }).await;
    };
    // Nothing that the rules say of the name helps a tunnel that is refused.
    let denied = match denied {
        Some(refusal) => Some(refusal),
        None => {
            let judging = Box::pin(names::judge(core, request, &named));
            match transaction.while_it_stays(judging).await {
                None => return transaction.client_gone(Outcome::local(Tag::None, 200)),
                Some(judged) => judged.err(),
            }
        }
    };
    let promised = Promised { denied, ..promised };
    if request.facts().original.is_none() {
        let names = Names { named: &named, other: Some(&named) };
        return choose(transaction, names, promised).await;
    }
    // As in Squid, the log has the name where the client has sent none before.
    let names = Names { named: &named, other: Some(request) };
    let mut renamed = transaction.renamed(&named);
    let outcome = choose(&mut renamed, names, promised).await;
    renamed.end(names::noted(&named, outcome));
    Outcome::local(Tag::None, 0)
}

/// Chooses at the second step, and at the third if there is one.
async fn choose(
    transaction: &mut Transaction<'_>,
    names: Names<'_>,
    promised: Promised,
) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let Promised { steps, first, denied, place } = promised;
    let second = match first {
        BumpAction::Bump => first,
        _ => {
            let choosing = Box::pin(bump::action(core, request, BumpStep::Two, Some(first)));
            match transaction.while_it_stays(choosing).await {
                Some(second) => second,
                None => return transaction.client_gone(Outcome::local(Tag::None, 200)),
            }
        }
    };
    match (second, denied) {
        (BumpAction::Terminate, denied) => {
            steps.end(second);
            ended(core, denied, Cut::Terminated)
        }
        (BumpAction::Splice | BumpAction::Peek, Some(refusal)) => {
            steps.end(second);
            tunnel::refused(core, refusal)
        }
        (BumpAction::Splice, None) => {
            steps.end(second);
            match tunnel::open_promised(transaction, place).await {
                Ok(way) => {
                    let hello = FirstMessage::IsHere;
                    server::pass(transaction, way, &steps, names.other, hello).await
                }
                Err(outcome) => outcome,
            }
        }
        (BumpAction::Peek, None) => server::peek(transaction, &steps, place, names).await,
        (BumpAction::Bump | BumpAction::Stare, Some(refusal)) => {
            steps.end(BumpAction::Bump);
            let line = refused_line(core, &refusal);
            let content = Content::Only(Verdict::Refused(refusal));
            decrypt(transaction, names.named, &steps, place, (content, line)).await
        }
        (BumpAction::Bump, None) if first == BumpAction::Bump && !needs_look(request) => {
            steps.end(second);
            let line = Outcome::local(Tag::None, 200);
            decrypt(transaction, names.named, &steps, place, (Content::Any, line)).await
        }
        (BumpAction::Bump | BumpAction::Stare, None) => {
            third_step(transaction, names.named, &steps, second, place).await
        }
    }
}

/// Whether faults of certificates may be forgiven: then the client has to see them.
fn needs_look(request: &Request) -> bool {
    request.snapshot().cert_error.is_some()
}

/// Makes a connection to the server, and chooses by its certificate. Where there is no server whose
/// certificate could be seen, the client gets the page that says so.
async fn third_step(
    transaction: &mut Transaction<'_>,
    named: &Rc<Request>,
    steps: &Rc<Steps>,
    second: BumpAction,
    place: Option<TunnelPlace>,
) -> Outcome {
    let core = transaction.core;
    let looking = Rc::new(named.looking());
    let looked = {
        let look = Box::pin(unless_drained(core, server::look(core, &looking)));
        transaction.while_it_stays(look).await
    };
    let (looked, route) = match looked {
        Some(Some(looked)) => looked,
        // Nothing would be served inside.
        Some(None) => return ended(core, None, Cut::ShutDown),
        None => return transaction.client_gone(Outcome::local(Tag::None, 200)),
    };
    let seen = match &looked {
        Ok(looked) => looked.seen.clone(),
        Err(failure) => failure.server.clone(),
    };
    let is_there = looked.is_ok() || seen.is_some();
    steps.answered(second, seen);
    if second == BumpAction::Stare && is_there {
        let request = transaction.request;
        let choosing = Box::pin(bump::action(core, request, BumpStep::Three, Some(second)));
        match transaction.while_it_stays(choosing).await {
            None => return transaction.client_gone(Outcome::local(Tag::None, 200)),
            Some(BumpAction::Bump) => {}
            Some(_) => {
                steps.end(BumpAction::Terminate);
                return Outcome { route: Some(route), ..ended(core, None, Cut::Terminated) };
            }
        }
    }
    steps.end(BumpAction::Bump);
    let line = Outcome::miss(Tag::None, 200, Some(route));
    let content = match looked {
        Ok(looked) => (Content::Of(looking, Box::new(looked)), line),
        Err(failure) => without_server(core, failure, line),
    };
    decrypt(transaction, named, steps, place, content).await
}

/// The result of `work`; `None` if the core drains before.
async fn unless_drained<T>(core: &Core, work: impl Future<Output = T>) -> Option<T> {
    let drained = core.io.drain.notified();
    if core.io.is_draining() {
        return None;
    }
    tokio::select! {
        biased;
        done = work => Some(done),
        () = drained => None,
    }
}

/// What there is inside where the server cannot be reached, or not be used.
fn without_server(core: &Core, failure: Failure, line: Outcome) -> (Content, Outcome) {
    match failure.refusal {
        Some(refusal) => {
            let line = Outcome { route: line.route, ..refused_line(core, &refusal) };
            (Content::Only(Verdict::Refused(*refusal)), line)
        }
        None => {
            let fault = Some(Fault::of_page(failure.page, &failure.detail));
            let verdict = Verdict::Failed(failure.page, failure.detail);
            (Content::Only(verdict), Outcome { fault, ..line })
        }
    }
}

/// What there is inside of a connection that is decrypted.
enum Content {
    /// Answers of the server that each request connects to.
    Any,
    /// Answers of the server that has been connected to for this request.
    Of(Rc<Request>, Box<Looked>),
    /// This one answer.
    Only(Verdict),
}

/// Goes on inside of the tunnel, with a certificate that is made now. The line in the log is that
/// of the tunnel.
async fn decrypt(
    transaction: &mut Transaction<'_>,
    named: &Rc<Request>,
    steps: &Rc<Steps>,
    place: Option<TunnelPlace>,
    (content, line): (Content, Outcome),
) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let line = names::noted(named, line);
    let (mut verdict, mut looked) = (None, None);
    match content {
        Content::Any => {}
        Content::Of(looking, found) => looked = Some((looking, *found)),
        Content::Only(only) => verdict = Some(only),
    }
    let facts = steps.newest().cloned();
    let seen = looked.as_ref().and_then(|(_, looked)| looked.model());
    let side = {
        let leaf = Box::pin(leaf::leaf(core, named, seen.as_ref()));
        transaction.while_it_stays(leaf).await
    };
    let (side, mut facts) = match (side, facts) {
        (None, _) => return transaction.client_gone(line),
        (Some(Err(cut)), _) => return line.without_answer(cut),
        (Some(Ok(_)), None) => return line.without_answer(Cut::NoCertificate),
        (Some(Ok(side)), Some(facts)) => (side, facts),
    };
    // Only its own answers are promised by a certificate that does not show the faults.
    if verdict.is_some() {
        facts.server = None;
    }
    let own = looked.and_then(|(looking, looked)| server::keep(core, looking, looked));
    let early = transaction.client.take_early_bytes();
    if !transaction.client.hand_over() {
        return line.without_answer(Cut::NoCertificate);
    }
    let line = transaction.leave_line(line);
    let verdict = verdict.map(|verdict| Box::new(verdict) as Box<dyn Any>);
    let inside = Inside::new(named, request, facts, verdict);
    let over = HandOver { side, early, inside, line, own, place };
    request.facts().hand_over.replace(Some(Box::new(over)));
    Outcome::local(Tag::None, 200)
}
