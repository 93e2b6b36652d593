//! Asks the lists that refuse requests and answers. What follows from their decisions is in
//! [`enforce`]; facts that they need come from [`access`](crate::rules::access).

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use humboldt_acl::{Known, Question, RuleList, Subject, Verdict};
use humboldt_conf::{List, RuleSource};
use humboldt_http::ResponseHead;

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::request::{Request, unmapped};
use crate::rules::access::{ask, check_list, decide, decide_about, known, subject};
use crate::rules::decision::{Decision, Denial};
use crate::rules::denial::Refusal;
use crate::rules::notes::Before;
use crate::rules::{enforce, login};

/// Longest time for which a request waits for rules on trial; then they count as unanswered.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(1);

/// A list that refuses requests, with its name.
type Named<'l> = (List, &'l RuleList);

/// Checks `http_access` and `adapted_http_access` without waiting. `Pending`: a rule needs a fact
/// that is not known yet, see [`decide_permission`].
pub(crate) fn check(request: &Request) -> Poll<Result<(), Refusal>> {
    let snapshot = request.snapshot();
    let (subject, before) = (subject(request), Before::of(request));
    let first = check_list(&snapshot.http_access, request, &subject);
    if let Verdict::Allowed { rule } = first
        && snapshot.adapted_access.is_none()
        && snapshot.on_trial.is_none()
    {
        // Nothing else has a say: the usual case.
        enforce::count(request, List::HttpAccess, rule, false);
        let [let_in, _] = &request.let_in;
        let_in.set(rule);
        return Poll::Ready(permit_client(request, &subject, &before, client_lists(snapshot)));
    }
    // Nothing is counted before all lists have decided.
    let mut decisions: [Option<Decision<'_>>; 2] = [None, None];
    let lists = client_lists(snapshot);
    for ((name, list), decision) in lists.clone().zip(&mut decisions) {
        let verdict = match name {
            List::HttpAccess => first,
            _ => check_list(list, request, &subject),
        };
        match verdict {
            Verdict::Needs(question) => return ask_again(request, &subject, &before, question),
            decided => *decision = Some(decided.into()),
        }
        if decision.is_some_and(|one| !one.is_allowed()) && !enforce::reports_only(request) {
            break;
        }
    }
    let is_let_in = decisions.iter().flatten().all(|decision| decision.is_allowed())
        || enforce::reports_only(request);
    let on_trial = snapshot
        .on_trial
        .as_ref()
        .filter(|_| is_let_in)
        .map(|list| before.what_if(request, || check_list(list, request, &subject)));
    if let Some(Verdict::Needs(question)) = on_trial {
        return ask_again(request, &subject, &before, question);
    }
    for (list, decision) in lists.clone().zip(decisions) {
        if let Some(decision) = decision {
            client_may(request, list, decision)?;
        }
    }
    permit_client(request, &subject, &before, lists)?;
    if let Some(verdict) = on_trial {
        try_out(request, Some(verdict.into()));
    }
    Poll::Ready(Ok(()))
}

/// A list needs a fact: it may be one that is remembered.
fn ask_again(
    request: &Request,
    subject: &Subject<'_>,
    before: &Before,
    question: Question<'_>,
) -> Poll<Result<(), Refusal>> {
    before.restore(request);
    let asks_user = matches!(question, Question::User { .. });
    let is_new = asks_user && request.login.get().is_none();
    match is_new && login::remember(request, subject.client_ip) {
        true => check(request),
        false => Poll::Pending,
    }
}

/// Checks `http_access` and `adapted_http_access`, and waits for the facts that they need.
pub(crate) async fn decide_permission(core: &Core, request: &Request) -> Result<(), Refusal> {
    decide_lists(core, request, client_lists(request.snapshot())).await
}

/// The same with `http_access` alone: before the URL is rewritten.
pub(crate) async fn decide_http_access(core: &Core, request: &Request) -> Result<(), Refusal> {
    decide_lists(core, request, client_lists(request.snapshot()).take(1)).await
}

/// The same with `adapted_http_access` alone: after the URL has been rewritten.
pub(crate) async fn decide_adapted_access(core: &Core, request: &Request) -> Result<(), Refusal> {
    decide_lists(core, request, client_lists(request.snapshot()).skip(1)).await
}

async fn decide_lists<'l>(
    core: &Core,
    request: &Request,
    lists: impl Iterator<Item = Named<'l>> + Clone,
) -> Result<(), Refusal> {
    let before = Before::of(request);
    for (name, list) in lists.clone() {
        client_may(request, (name, list), decide(core, list, request, None).await)?;
    }
    permit_client(request, &subject(request), &before, lists.clone())?;
    let on_trial = request.snapshot().on_trial.as_ref();
    if let Some(list) = on_trial.filter(|_| lists.clone().any(|(name, _)| name == List::HttpAccess))
    {
        // They begin with what the rules in force began with, and leave nothing behind.
        let mut deciding = pin!(Box::pin(decide(core, list, request, None)));
        let mut notes = before;
        let apart = poll_fn(|cx| notes.apart(request, || deciding.as_mut().poll(cx)));
        try_out(request, tokio::time::timeout(TRIAL_TIME_MAX, apart).await.ok());
    }
    Ok(())
}

/// What rules on trial (`http_access_report_only`) would do with a request that is let in: it is
/// counted and logged. `None`: they have not decided in time.
fn try_out(request: &Request, decision: Option<Decision<'_>>) {
    let Some(list) = &request.snapshot().on_trial else { return };
    let Some((decision, rule)) = decision.and_then(|one| Some((one, one.rule()?))) else {
        enforce::note(request, None);
        return;
    };
    let is_refused = !decision.is_allowed();
    enforce::count(request, List::HttpAccessReportOnly, rule, is_refused);
    if is_refused {
        enforce::note(request, list.source(rule).cloned());
    }
}

/// The decision of a list about a client's request. Only here a client is asked for a login, as in
/// Squid.
fn client_may(
    request: &Request,
    (name, list): Named<'_>,
    decision: Decision<'_>,
) -> Result<(), Refusal> {
    let denials = &request.snapshot().denials;
    let decided = match decision {
        Decision::Challenge(acl, rule) => {
            let refusal = Refusal::login(login::page(request), denials.find_page(acl));
            Err(refusal.by(list.source(Some(rule))))
        }
        Decision::Denied(Denial { last_acl, wants_login: true, rule }) => {
            Err(Refusal::login(login::page(request), denials.find(last_acl)).by(list.source(rule)))
        }
        other => other.permits(list, |last_acl| Refusal::of_request(denials.find(last_acl))),
    };
    if decision.is_allowed() {
        let place = usize::from(name == List::AdaptedHttpAccess);
        request.let_in[place].set(decision.rule().flatten());
    }
    match decision.rule() {
        Some(rule) => enforce::apply(request, name, rule, decided),
        None => decided,
    }
}

/// Applies [`permit`] to the lists of a client's request.
fn permit_client<'l>(
    request: &Request,
    subject: &Subject<'_>,
    before: &Before,
    lists: impl Iterator<Item = Named<'l>> + Clone,
) -> Result<(), Refusal> {
    let refusing =
        |one: &Subject<'_>| lists.clone().find_map(|(_, list)| refuses(list, request, one));
    let refusing = |one: &Subject<'_>| before.what_if(request, || refusing(one));
    let last = RefCell::new(None);
    let allow = |one: &Subject<'_>| match refusing(one) {
        None => true,
        Some(rule) => {
            last.replace(rule);
            false
        }
    };
    if permit(request, subject, allow) {
        return Ok(());
    }
    let rule = last.into_inner();
    match enforce::reports_only(request) {
        true => {
            enforce::note(request, rule);
            Ok(())
        }
        false => Err(Refusal { rule, ..Refusal::of_request(None) }),
    }
}

/// Whether a list refuses, and by which rule; `None` in it if a rule has no answer.
fn refuses(
    list: &RuleList,
    request: &Request,
    subject: &Subject<'_>,
) -> Option<Option<Arc<RuleSource>>> {
    let decision = Decision::from(check_list(list, request, subject));
    match decision.is_allowed() {
        true => None,
        false => Some(decision.rule().and_then(|rule| list.source(rule)).cloned()),
    }
}

/// The lists that a request of a client must pass, in their order.
fn client_lists(snapshot: &Snapshot) -> impl Iterator<Item = Named<'_>> + Clone {
    let adapted = snapshot.adapted_access.as_ref();
    let adapted = adapted.map(|list| (List::AdaptedHttpAccess, list));
    [Some((List::HttpAccess, &snapshot.http_access)), adapted].into_iter().flatten()
}

/// Of several addresses, keeps only those that the rules would permit if the host had no other.
/// Otherwise one permitted address would open the way to the others. `false`: none is left.
fn permit(request: &Request, subject: &Subject<'_>, allow: impl Fn(&Subject<'_>) -> bool) -> bool {
    let Some(known @ [_, _, ..]) = subject.known.dst_ips else { return true };
    if !request.snapshot().asks_addresses.permission || subject.host_ip().is_some() {
        return true;
    }
    let is_allowed = |ip: &&IpAddr| {
        let known = Known { dst_ips: Some(std::slice::from_ref(*ip)), ..subject.known };
        allow(&Subject { known, ..*subject })
    };
    let mut permitted = request.permitted.borrow_mut();
    let left: Arc<[IpAddr]> =
        permitted.as_deref().unwrap_or(known).iter().filter(is_allowed).copied().collect();
    if left.is_empty() {
        return false;
    }
    *permitted = Some(left);
    true
}

/// Whether a client may open a tunnel.
pub(crate) enum MayConnect {
    /// It may.
    Yes,
    /// The rule of this line refuses, or none permits.
    No(Option<Arc<RuleSource>>),
    /// A rule has no answer.
    Unanswered,
}

/// Whether the client may open a tunnel to the server of its request with CONNECT. Call
/// [`prepare_to_switch`](crate::rules::access::prepare_to_switch) first.
pub(crate) fn may_connect(request: &Request) -> MayConnect {
    let snapshot = request.snapshot();
    let own = subject(request);
    let host = String::from_utf8_lossy(own.host);
    let authority = match host.contains(':') {
        true => format!("[{host}]:{}", own.port),
        false => format!("{host}:{}", own.port),
    };
    let as_tunnel =
        Subject { method: b"CONNECT", scheme: b"", url: authority.as_bytes(), path: b"", ..own };
    // What is only reported is not refused here either.
    let reports_only = enforce::reports_only(request);
    let (reported, objection) = (RefCell::new(None), RefCell::new(MayConnect::No(None)));
    let allow = |subject: &Subject<'_>| {
        client_lists(snapshot).all(|(_, list)| {
            let decision = Decision::from(check_list(list, request, subject));
            let source = || decision.rule().and_then(|rule| list.source(rule)).cloned();
            match (decision.rule().map(|_| decision.is_allowed()), reports_only) {
                (Some(true), _) => true,
                (Some(false), true) => {
                    reported.replace(Some(source()));
                    true
                }
                (Some(false), false) => {
                    objection.replace(MayConnect::No(source()));
                    false
                }
                (None, _) => {
                    objection.replace(MayConnect::Unanswered);
                    false
                }
            }
        })
    };
    let before = Before::of_another(request);
    let allow = |subject: &Subject<'_>| before.what_if(request, || allow(subject));
    if !(allow(&as_tunnel) && permit(request, &as_tunnel, allow)) {
        return objection.into_inner();
    }
    if let Some(rule) = reported.into_inner() {
        enforce::note(request, rule);
    }
    MayConnect::Yes
}

/// Checks `miss_access`: whether the request may go to a server. Waits for the facts that the list
/// needs. As in Squid, the list is about the client of the connection: it says which neighbours may
/// make this cache fetch.
pub(crate) async fn may_miss(core: &Core, request: &Request) -> Result<(), Refusal> {
    let snapshot = request.snapshot();
    let Some(list) = &snapshot.miss_access else { return Ok(()) };
    let before = Before::of(request);
    let direct = Subject { client_ip: unmapped(request.client_ip()), ..subject(request) };
    let decision = decide_about(core, list, request, direct).await;
    let decided =
        decision.permits(list, |last_acl| Refusal::of_miss(snapshot.denials.find(last_acl)));
    match decision.rule() {
        Some(rule) => enforce::apply(request, List::MissAccess, rule, decided)?,
        None => decided?,
    }
    if !decision.is_allowed() {
        return Ok(()); // only reported
    }
    let allow = |one: &Subject<'_>| check_list(list, request, one).is_allowed();
    let allow = |one: &Subject<'_>| before.what_if(request, || allow(one));
    let known = known(request);
    if permit(request, &Subject { known, ..direct }, allow) {
        return Ok(());
    }
    match enforce::reports_only(request) {
        true => {
            enforce::note(request, list.source(decision.rule().flatten()).cloned());
            Ok(())
        }
        false => Err(Refusal::of_miss(None)),
    }
}

/// Whether an answer may go to the client (`http_reply_access`). Of an interim answer that is not
/// counted.
pub(crate) fn may_reply(
    list: &RuleList,
    request: &Request,
    response: &ResponseHead,
    is_interim: bool,
) -> Result<(), Refusal> {
    let denials = &request.snapshot().denials;
    let decision = ask(list, request, Some(response));
    let decided = decision.permits(list, |last_acl| Refusal::of_reply(denials.find(last_acl)));
    match decision.rule() {
        Some(_) if is_interim => enforce::apply_uncounted(request, decided),
        Some(rule) => enforce::apply(request, List::HttpReplyAccess, rule, decided),
        None => decided,
    }
}
