//! Asks the access rules about a request.
//!
//! A list that may wait is asked by [`decide`], which first gets the facts that the list needs. All
//! other lists are asked at once, by [`ask`]; the `prepare_…` functions look up the facts they may
//! need. Either way the caller gets a [`Decision`]: a list that has no answer never allows.

use std::cell::RefCell;
use std::net::IpAddr;
use std::task::Poll;

use humboldt_acl::{Known, Late, Question, RuleList, Subject, Verdict};
use humboldt_base::rng::{self, Rng};
use humboldt_conf::Need;
use humboldt_http::ResponseHead;
use humboldt_http::uri::host_ip;
use humboldt_net::dns::{Answer, Asker, DnsError};
use humboldt_store::StoredHead;
use humboldt_sys::neighbours::hardware_address;

use crate::core::Core;
use crate::request::{Request, unmapped};
use crate::rules::decision::Decision;
use crate::rules::denial::Refusal;
use crate::rules::notes::Before;
use crate::rules::{external, login, own};

/// Most questions of one list about one request; a list with more counts as unanswered.
pub(super) const QUESTIONS_MAX: usize = 64;

/// The name of a client that has none, as in Squid.
const NAMELESS: &str = "none";

/// Asks a list, gets the facts it needs, and asks again, until the list decides or a fact cannot be
/// had. Only for lists that may wait (`humboldt_conf::Supply::Waits`).
pub(crate) async fn decide<'l>(
    core: &Core,
    list: &'l RuleList,
    request: &Request,
    response: Option<&ResponseHead>,
) -> Decision<'l> {
    decide_about(core, list, request, Subject { response, ..subject(request) }).await
}

pub(super) async fn decide_about<'l, 'r>(
    core: &Core,
    list: &'l RuleList,
    request: &'r Request,
    mut subject: Subject<'r>,
) -> Decision<'l> {
    let mut questions = 0;
    loop {
        let before = Before::of(request);
        let verdict = check_list(list, request, &subject);
        let Verdict::Needs(question) = verdict else { return verdict.into() };
        before.restore_of_client(request);
        questions += 1;
        if questions > QUESTIONS_MAX || !answer(core, request, &subject, question).await {
            tracing::debug!("acl {}: there is no answer to what it needs", question.acl());
            return verdict.into();
        }
        before.restore_own(request);
        subject.known = known(request);
    }
}

/// Gets the answer to a question. `false`: the answer is known already, and does not help.
pub(super) async fn answer(
    core: &Core,
    request: &Request,
    subject: &Subject<'_>,
    question: Question<'_>,
) -> bool {
    match question {
        Question::Helper { number, .. } => Box::pin(external::ask(request, number, subject)).await,
        Question::DstIps { .. } if request.addresses.get().is_some() => false,
        Question::DstIps { .. } => {
            look_up(core, request).await;
            true
        }
        // The kernel has been asked, and what was not kept is lost.
        Question::Hardware { .. } | Question::Mark { .. } | Question::Notes { .. } => false,
        Question::ClientName { .. } if request.client_name.get().is_some() => false,
        Question::ClientName { .. } => {
            look_up_client(core, request).await;
            true
        }
        Question::User { .. } if request.login.get().is_some() => false,
        Question::User { .. } => {
            check_login(request).await;
            true
        }
    }
}

/// Whether a helper is asked about a request.
pub(crate) enum Asks {
    /// It is: also where the rules want a login, for which nobody is asked here.
    Yes,
    /// It is not.
    No,
    /// The rules have no answer.
    Unanswered(Refusal),
}

/// Asks an optional list whether a helper is asked about a request.
pub(crate) async fn asks(core: &Core, list: Option<&RuleList>, request: &Request) -> Asks {
    let Some(list) = list else { return Asks::Yes };
    match Box::pin(decide(core, list, request, None)).await {
        Decision::Allowed(_) | Decision::Challenge(..) => Asks::Yes,
        Decision::Denied(_) => Asks::No,
        Decision::Unanswered(question) => Asks::Unanswered(Refusal::unanswered(question)),
    }
}

/// Looks up the addresses of the host, once for each request. A request that stops waiting gives
/// its place in the queue to others.
pub(crate) async fn look_up<'r>(core: &Core, request: &'r Request) -> &'r Answer {
    if let Some(known) = request.addresses.get() {
        return known;
    }
    let host = String::from_utf8_lossy(request.url.host());
    let answer = timed(core, request, core.look_up(&host, asker(request))).await;
    request.addresses.get_or_init(|| answer)
}

/// Looks up the name of the client, once for each request.
async fn look_up_client(core: &Core, request: &Request) {
    if request.client_name.get().is_none() {
        let looking_up = core.look_up_name(client_ip(request), asker(request));
        let answer = timed(core, request, looking_up).await;
        request.client_name.get_or_init(|| answer);
    }
}

/// The result of a look-up, whose time is noted for the log.
async fn timed<T>(core: &Core, request: &Request, looking_up: impl Future<Output = T>) -> T {
    let began = core.now();
    let answer = looking_up.await;
    let before_ms = request.dns_ms.get().unwrap_or_default();
    request.dns_ms.set(Some(before_ms + core.now().since_ms(began)));
    answer
}

/// Checks the login of the client, once for each request.
async fn check_login(request: &Request) {
    Box::pin(login::check(request, client_ip(request), waiter(request))).await;
}

/// The client for which names are looked up: each has its own share, so that one client cannot
/// block the look-ups of others.
pub(crate) fn asker(request: &Request) -> Asker {
    let ip = waiter(request);
    let facts = request.facts();
    // Clients on Unix sockets have no address, unless a header tells one. A connection has its
    // place in memory.
    let is_nameless = facts.port.unix.is_some() && request.indirect_client.is_none();
    match is_nameless && ip.is_unspecified() {
        true => Asker::Connection(std::ptr::from_ref(facts).addr()),
        false => Asker::Client(ip),
    }
}

/// The client for which the proxy works.
fn waiter(request: &Request) -> IpAddr {
    request.indirect_client.unwrap_or_else(|| request.client_ip())
}

/// The addresses of the host to which the request may connect.
pub(crate) async fn reachable(core: &Core, request: &Request) -> Answer {
    let known = look_up(core, request).await.clone()?;
    Ok(request.permitted.borrow().clone().unwrap_or(known))
}

/// Whether the request may use a connection to `ip` that was made for another request. If rules
/// have judged the host's addresses, `ip` must be one that they permit.
pub(crate) fn may_reuse(request: &Request, ip: IpAddr) -> bool {
    match request.permitted.borrow().as_deref().or(known(request).dst_ips) {
        Some(judged) => judged.contains(&ip),
        None => true,
    }
}

/// Whether the facts are known that rules about every answer need.
pub(crate) fn knows_enough_for_answers(request: &Request) -> bool {
    !request.snapshot().asks_addresses.answers
        || known(request).dst_ips.is_some()
        || host_ip(request.url.host()).is_some()
}

/// Looks up the facts for the rules that are asked before a server is.
pub(crate) async fn prepare_to_forward(core: &Core, request: &Request) {
    look_up_if(request.snapshot().asks_addresses.forwarding, core, request).await;
}

/// Looks up the facts for the rules that are asked before a server is, and for the rules about
/// tunnels, which Upgrade needs too.
pub(crate) async fn prepare_to_switch(core: &Core, request: &Request) {
    let snapshot = request.snapshot();
    let asks = snapshot.asks_addresses;
    look_up_if(asks.forwarding || asks.permission, core, request).await;
    if snapshot.permission_asks_name {
        Box::pin(look_up_client(core, request)).await;
    }
    if snapshot.permission_asks_user {
        check_login(request).await;
    }
}

async fn look_up_if(is_asked: bool, core: &Core, request: &Request) {
    if is_asked && host_ip(request.url.host()).is_none() {
        Box::pin(look_up(core, request)).await;
    }
}

/// Why rules with this need have no answer.
pub(crate) fn why_unanswered(request: &Request, need: Need) -> String {
    match (need, request.addresses.get()) {
        (Need::Hardware, _) => "the hardware address of the client is not known".to_owned(),
        (Need::Mark, _) => "the netfilter mark of the client's connection is not known".to_owned(),
        (Need::Notes, _) => "there were more annotations than are kept".to_owned(),
        (Need::ClientName, _) => match request.client_name.get() {
            Some(Err(error)) => format!("the name of the client: {error}"),
            _ => "a rule needs the name of the client".to_owned(),
        },
        (Need::User, _) => match request.login.get() {
            Some(Err(failure)) => failure.reason().to_owned(),
            _ => "a rule needs the login of the client".to_owned(),
        },
        (Need::Helper, _) => match request.helped.failure() {
            Some(failure) => failure.to_string(),
            None => "a rule needs the answer of a helper".to_owned(),
        },
        (_, Some(Err(error))) => error.to_string(),
        _ => "a rule needs the addresses of the host".to_owned(),
    }
}

/// The answer of a list that does not wait, about the request or its answer.
pub(crate) fn ask<'l>(
    list: &'l RuleList,
    request: &Request,
    response: Option<&ResponseHead>,
) -> Decision<'l> {
    check_at_once(list, request, &Subject { response, ..subject(request) }).into()
}

/// Whether a list that may wait needs a fact that is not known yet: see [`decide`].
pub(crate) fn is_undecided(list: &RuleList, request: &Request, response: &ResponseHead) -> bool {
    let ask = || ask(list, request, Some(response));
    matches!(Before::of(request).what_if(request, ask), Decision::Unanswered(_))
}

/// Whether an optional list that chooses a way allows the request: `false` if there is no such
/// list, `unanswered` if the list has no answer. Waits for the facts that the list needs.
pub(crate) async fn chooses(
    core: &Core,
    list: Option<&RuleList>,
    request: &Request,
    unanswered: bool,
) -> bool {
    match list {
        Some(list) => {
            let deciding = Box::pin(decide(core, list, request, None));
            deciding.await.allows().unwrap_or(unanswered)
        }
        None => false,
    }
}

/// Checks an optional list that allows by default.
pub(crate) fn allows(list: Option<&RuleList>, request: &Request) -> bool {
    list.is_none_or(|list| matches(list, request))
}

/// Whether a list allows the request; `false` if the list has no answer.
pub(crate) fn matches(list: &RuleList, request: &Request) -> bool {
    ask(list, request, None).is_allowed()
}

/// Whether a list allows the connection to this parent, or to the origin, for the request; `false`
/// if the list has no answer.
pub(crate) fn matches_towards(list: &RuleList, request: &Request, peer: Option<&str>) -> bool {
    let late = Late { peer_name: peer, ..Late::NONE };
    check_at_once(list, request, &Subject { late: &late, ..subject(request) }).is_allowed()
}

/// Whether the condition of a log or of an annotation is met when the request has ended. `None`: it
/// has no answer.
pub(crate) fn says_at_end(
    list: &RuleList,
    request: &Request,
    response: Option<&ResponseHead>,
    late: &Late<'_>,
) -> Option<bool> {
    let subject = Subject { response, late, ..subject(request) };
    Decision::from(check_at_once(list, request, &subject)).allows()
}

/// Whether a list that does not wait allows the request, or its answer. `None`: it has no answer.
pub(crate) fn says(
    list: &RuleList,
    request: &Request,
    response: Option<&ResponseHead>,
) -> Option<bool> {
    ask(list, request, response).allows()
}

/// As [`says`], but a list that has no answer refuses the answer of the server. A user who is not
/// known is one that the list does not name, as in Squid.
pub(crate) fn says_or_refuses(
    list: &RuleList,
    request: &Request,
    response: &ResponseHead,
) -> Result<bool, Refusal> {
    match ask(list, request, Some(response)).answered() {
        // One that could not be checked is no answer.
        Err(Question::User { .. }) if !matches!(request.login.get(), Some(Err(_))) => Ok(false),
        answered => answered.map_err(Refusal::unanswered),
    }
}

/// Whether a list allows the request, had it come from `client`.
pub(crate) fn matches_from(list: &RuleList, request: &Request, client: IpAddr) -> bool {
    check_at_once(list, request, &Subject { client_ip: client, ..subject(request) }).is_allowed()
}

/// Asks `cache` without waiting. `Pending`: the list needs a fact that is not known yet, see
/// [`decide_cache`].
pub(crate) fn check_cache(request: &Request) -> Poll<bool> {
    if request.is_not_for_others() {
        return Poll::Ready(false);
    }
    if let Some(&decided) = request.may_use_cache.get() {
        return Poll::Ready(decided);
    }
    let Some(list) = &request.snapshot().cache else { return Poll::Ready(true) };
    let before = Before::of(request);
    match check_list(list, request, &subject(request)) {
        Verdict::Needs(_) => {
            before.restore(request);
            Poll::Pending
        }
        decided => {
            let allowed = Decision::from(decided).is_allowed();
            Poll::Ready(*request.may_use_cache.get_or_init(|| allowed))
        }
    }
}

/// Asks `cache`, and waits for the facts that it needs. A list that has no answer does not allow.
pub(crate) async fn decide_cache(core: &Core, request: &Request) {
    if let Some(list) = &request.snapshot().cache {
        let allowed = decide(core, list, request, None).await.is_allowed();
        request.may_use_cache.get_or_init(|| allowed);
    }
}

/// Whether answers to this request may be stored and served from the store (`cache`): `false` if
/// that is not decided.
pub(crate) fn may_use_cache(request: &Request) -> bool {
    matches!(check_cache(request), Poll::Ready(true))
}

/// Whether a stored answer may be used (`send_hit`). A list that has no answer does not allow.
pub(crate) fn may_send_hit(request: &Request, head: &StoredHead) -> bool {
    let list = request.snapshot().send_hit.as_ref();
    list.is_none_or(|list| says(list, request, Some(&head.to_response_head())) == Some(true))
}

/// Whether an answer may be stored (`store_miss`). A list that has no answer does not allow.
pub(crate) fn may_store_miss(request: &Request, response: &ResponseHead) -> bool {
    let list = request.snapshot().store_miss.as_ref();
    list.is_none_or(|list| says(list, request, Some(response)) == Some(true))
}

/// The facts about the request that were looked up for rules.
pub(super) fn known(request: &Request) -> Known<'_> {
    let addresses = request.addresses.get();
    let dst_ips = addresses.map(|answer| answer.as_deref().unwrap_or_default());
    let client_name = request.client_name.get().and_then(|answer| match answer {
        Ok(name) => Some(&**name),
        Err(DnsError::NoSuchName | DnsError::Empty) => Some(NAMELESS),
        Err(_) => None,
    });
    let (login, user_addresses) = (login::known(request), login::addresses(request));
    Known { dst_ips, client_name, login, user_addresses, ..Known::default() }
}

/// The client as rules see it.
fn client_ip(request: &Request) -> IpAddr {
    let is_wanted = request.snapshot().config.acl_uses_indirect_client;
    let indirect = request.indirect_client.filter(|_| is_wanted);
    indirect.unwrap_or_else(|| unmapped(request.client_ip()))
}

/// Describes the request to the rules.
pub(crate) fn subject(request: &Request) -> Subject<'_> {
    let facts = request.facts();
    let host = request.url.host();
    // The rules about the server judge the one that the request goes to.
    let original = request.original_destination();
    Subject {
        client_ip: client_ip(request),
        local_ip: unmapped(facts.chosen().ip()),
        local_port: facts.chosen().port(),
        port_name: Some(&facts.port.name),
        certificate: facts.tls.get().and_then(|tls| tls.certificate.as_ref()),
        is_encrypted: facts.tls.get().is_some(),
        method: request.head.method_bytes(),
        scheme: request.url.scheme(),
        host,
        original_ip: original.map(|original| unmapped(original.ip())),
        port: original.map_or_else(|| request.url.port(), |original| original.port()),
        url: request.url.as_bytes(),
        path: request.url.path_and_query(),
        request: request.is_read.then_some(&request.head),
        response: None,
        known: known(request),
        late: &Late::NONE,
        told: (!request.snapshot().externals.is_empty()).then_some(request),
        annotated: Some(request),
        now: request.received.secs(),
        local_offset_s: humboldt_sys::local_time::utc_offset_s(request.received.secs()),
        connections_from_client: facts.connections.as_ref().map_or(1, |count| count.get()),
        random: None,
        is_internal: own::is_internal(request),
        bump: request.bump(),
    }
}

/// The client's hardware address, if the kernel can tell.
pub(crate) fn hardware(subject: &Subject<'_>) -> Option<Option<[u8; 6]>> {
    let IpAddr::V4(client) = subject.client_ip else { return Some(None) };
    // A client on this machine has none.
    if subject.client_ip == subject.local_ip {
        return Some(None);
    }
    hardware_address(client).ok()
}

/// Whether a list that does not wait allows this subject; `false` if it has no answer.
pub(super) fn allows_at_once(list: &RuleList, request: &Request, subject: &Subject<'_>) -> bool {
    Decision::from(check_at_once(list, request, subject)).is_allowed()
}

/// Checks a list that does not wait. It knows the users whose login needs no check: those of
/// connections that have logged in, and those whose credentials are remembered.
fn check_at_once<'l>(list: &'l RuleList, request: &Request, subject: &Subject<'_>) -> Verdict<'l> {
    if request.login.get().is_some() {
        return check_list(list, request, subject);
    }
    let before = Before::of(request);
    let verdict = check_list(list, request, subject);
    let asks_user = matches!(verdict, Verdict::Needs(Question::User { .. }));
    if !asks_user || !login::remember(request, subject.client_ip) {
        return verdict;
    }
    before.restore(request);
    check_list(list, request, &Subject { known: known(request), ..*subject })
}

/// Checks a list, and asks the kernel for the client's hardware address, or for the mark of its
/// connection, if the list needs it. It finds the same random bits whenever it is asked about one
/// request, for example after it has waited; two lists find different ones, and so do two ACLs of a
/// list, as in Squid.
pub(crate) fn check_list<'l>(
    list: &'l RuleList,
    request: &Request,
    subject: &Subject<'_>,
) -> Verdict<'l> {
    let random = request.snapshot().uses_random.then(|| {
        let of_request = *request.random.get_or_init(random);
        Rng::new(of_request ^ list.identity()).next_u64()
    });
    let verdict = match random {
        None => list.check(subject),
        Some(_) => list.check(&Subject { random, ..*subject }),
    };
    let with = |known| list.check(&Subject { random, known, ..*subject });
    // An entry that the kernel has dropped meanwhile is that of the connection.
    let facts = request.facts();
    let is_direct = subject.client_ip == unmapped(facts.client.ip());
    let hardware = || hardware(subject).or(facts.hardware.filter(|_| is_direct));
    let mark = || facts.netfilter_mark();
    match verdict {
        Verdict::Needs(Question::Hardware { .. }) => {
            let known = Known { hardware: hardware(), ..subject.known };
            match with(known) {
                Verdict::Needs(Question::Mark { .. }) => with(Known { mark: mark(), ..known }),
                verdict => verdict,
            }
        }
        Verdict::Needs(Question::Mark { .. }) => {
            let known = Known { mark: mark(), ..subject.known };
            match with(known) {
                Verdict::Needs(Question::Hardware { .. }) => {
                    with(Known { hardware: hardware(), ..known })
                }
                verdict => verdict,
            }
        }
        verdict => verdict,
    }
}

thread_local! {
    /// One generator for each core. Its seed is random: the standard library's hasher gets its keys
    /// from the system.
    static RANDOM: RefCell<Rng> = RefCell::new(Rng::new(rng::secret()));
}

/// Random bits for `random` ACLs.
pub(crate) fn random() -> u64 {
    RANDOM.with_borrow_mut(Rng::next_u64)
}
