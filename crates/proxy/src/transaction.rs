//! One request that is being answered: its core, its client, and its line in access.log.
//!
//! A handler gets the transaction and returns an [`Outcome`]. The line is written in one place and
//! exactly once: by [`Transaction::end`], or on drop if the transaction has not ended.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use humboldt_acl::{Late, RuleList};
use humboldt_base::counters::Counter;
use humboldt_exchange::{BodyPump, ClientExchange};
use humboldt_http::{FieldName, ResponseHead, Version};
use humboldt_logs::access::{AccessRecord, Hierarchy, Peer, ResultTag, Tag};

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::cut::Cut;
use crate::helped::Facts;
use crate::open_tunnel::OpenTunnel;
use crate::outcome::{Outcome, RouteTaken};
use crate::request::{Request, unmapped};
use crate::rules::{access, budget, enforce, notes};

/// The error of a transaction without one, as rules name it.
const NO_ERROR: &str = "ERR_NONE";

/// One request that is being answered.
pub(crate) struct Transaction<'a> {
    /// The core that answers.
    pub core: &'a Rc<Core>,
    /// The client that is answered.
    pub client: &'a mut ClientExchange,
    /// The request.
    pub request: &'a Rc<Request>,
    /// Sends the request's body, if it is still on its way when the answer comes.
    pub pump: Option<Box<BodyPump>>,
    /// The tunnel that the answer has opened.
    pub(crate) tunnel: Option<Box<OpenTunnel>>,
    /// The line has been written, or another transaction is going to write it.
    is_over: bool,
}

/// Whether a request was answered.
#[derive(Debug)]
pub(crate) enum Served {
    /// The request was answered.
    Done(Outcome),
    /// The answer that was found is unusable, and nothing was sent: repeat the look-up.
    LookAgain,
}

impl<'a> Transaction<'a> {
    /// Begins to answer `request`.
    pub(crate) fn new(
        core: &'a Rc<Core>,
        client: &'a mut ClientExchange,
        request: &'a Rc<Request>,
    ) -> Self {
        Self { core, client, request, pump: None, tunnel: None, is_over: false }
    }

    /// Ends the transaction: counts and logs it, unless another one does. A tunnel that the answer
    /// has opened has been carried ([`tunnel::carry`](crate::special::tunnel::carry)).
    pub(crate) fn end(mut self, outcome: Outcome) {
        debug_assert!(self.tunnel.is_none(), "a tunnel was opened, and nobody carries it");
        if self.is_over {
            return;
        }
        if let Some(cut) = outcome.cut {
            self.client.reset(cut.reset_reason());
            self.core.shared.times.record_cut(self.core.id, cut);
        }
        self.log(outcome);
    }

    /// Ends the transaction without a line: another one continues the answer.
    pub(crate) fn suspend(mut self) {
        self.is_over = true;
    }

    /// The connection goes on inside of its tunnel: the line is written when that has begun.
    pub(crate) fn leave_line(&mut self, outcome: Outcome) -> Unlogged {
        self.is_over = true;
        let (core, request) = (Rc::clone(self.core), Rc::clone(self.request));
        Unlogged { core, request, outcome: Some(outcome) }
    }

    /// The same request under another name, which has the line in the log.
    pub(crate) fn renamed<'r>(&'r mut self, request: &'r Rc<Request>) -> Transaction<'r> {
        self.is_over = true;
        Transaction::new(self.core, self.client, request)
    }

    /// The result of `work`; `None` if the client leaves first. Every wait of a handler goes
    /// through this function. The caller pins the work, because a future that is moved in here
    /// would take its space twice.
    pub(crate) async fn while_it_stays<T>(
        &self,
        work: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        self.client.while_it_stays(work).await
    }

    /// The end of a request whose client left, or reached its time limit, before it got anything.
    pub(crate) fn client_gone(&self, outcome: Outcome) -> Outcome {
        outcome.cut_off(self.client.lost().into())
    }

    fn log(&mut self, mut outcome: Outcome) {
        self.is_over = true;
        outcome.bytes_out += self.client.sent_bytes();
        finish(self.core, self.request, &outcome);
    }
}

impl Drop for Transaction<'_> {
    /// Logs a task that was dropped before its end: by a panic, or because the core ends. The
    /// connection is counted as cut off when it is dropped.
    fn drop(&mut self) {
        if !self.is_over {
            self.log(Outcome::local(Tag::None, 0).cut_off(Cut::of_a_dropped_task()));
        }
    }
}

/// A transaction that has ended, but for its line.
pub(crate) struct Unlogged {
    core: Rc<Core>,
    request: Rc<Request>,
    outcome: Option<Outcome>,
}

impl Unlogged {
    /// Writes the line. `cut`: why the connection has ended before anything was asked.
    pub(crate) fn write(mut self, cut: Option<Cut>) {
        self.write_once(cut);
    }

    fn write_once(&mut self, cut: Option<Cut>) {
        let Some(mut outcome) = self.outcome.take() else { return };
        if let Some(cut) = cut {
            outcome = outcome.without_answer(cut);
            self.core.shared.times.record_cut(self.core.id, cut);
        }
        finish(&self.core, &self.request, &outcome);
    }
}

impl Drop for Unlogged {
    fn drop(&mut self) {
        self.write_once(Some(Cut::of_a_dropped_task()));
    }
}

/// Counts and logs a finished transaction.
fn finish(core: &Core, request: &Request, outcome: &Outcome) {
    let content_type = outcome.content.media_type();
    let now = core.now();
    let elapsed_ms = now.since_ms(request.received);
    core.shared.times.record(core.id, outcome, elapsed_ms);
    budget::settle(core, request, outcome.bytes_out);
    if outcome.tag.is_hit() {
        core.count(Counter::ClientHits, 1);
        core.count(Counter::ClientHitOutBytes, outcome.bytes_out);
        if matches!(outcome.tag, Tag::MemHit | Tag::NegativeHit) {
            core.count(Counter::ClientMemoryHits, 1);
        }
    }
    let facts = request.facts();
    let logs_indirect = request.snapshot().config.log_uses_indirect_client;
    let indirect = request.indirect_client.filter(|_| logs_indirect);
    let client = indirect.unwrap_or_else(|| unmapped(facts.client.ip()));
    let client = logged_address(request.snapshot(), client);
    enforce::count_reported(core, request);
    let helped = request.helped.facts();
    let helped = helped.as_deref();
    let url = request.logged_url();
    let route = outcome.route.as_ref();
    let mut record = AccessRecord {
        elapsed_ms,
        tag: ResultTag { tag: outcome.tag, collapsed: outcome.collapsed, ending: outcome.ending() },
        status: outcome.status,
        bytes_out: outcome.bytes_out,
        method: request.head.method_bytes(),
        url: &url,
        hierarchy: route.map_or(Hierarchy::None, |route| route.hierarchy),
        peer: peer(route),
        user: request.user_name(),
        ext_user: helped.and_then(|facts| facts.user.as_deref()),
        content_type,
        error: outcome.fault.as_ref().map(|fault| &*fault.code),
        ..AccessRecord::new(now, SocketAddr::new(client, facts.client.port()))
    };
    if wants_details(core, request) {
        record = with_details(record, request, outcome, helped);
    }
    let hierarchy = Some(record.hierarchy.name());
    let error = Some(record.error.unwrap_or(NO_ERROR));
    let late = Late { hierarchy, error, ..Late::NONE };
    let answer = answer_at_end(request, outcome.status, content_type);
    let answer = answer.as_ref();
    let says = |list: &_| access::says_at_end(list, request, answer, &late);
    notes::add_at_end(request, &record, |list| says(list).unwrap_or(false));
    // A request is also logged when the conditions of the log have no answer.
    append(core, &record, |list| says(list).unwrap_or(true));
}

/// Whether a log or an annotation may show more of a request than Squid's own format does.
fn wants_details(core: &Core, request: &Request) -> bool {
    core.access_logs().iter().any(|log| log.format.wants_details())
        || !request.snapshot().note_rules.at_end.is_empty()
}

/// The record with all that is known.
#[inline(never)]
fn with_details<'a>(
    record: AccessRecord<'a>,
    request: &'a Request,
    outcome: &'a Outcome,
    helped: Option<&'a Facts>,
) -> AccessRecord<'a> {
    let (facts, route) = (request.facts(), outcome.route.as_ref());
    let tls = facts.tls.get();
    let reported = request.reported.get();
    AccessRecord {
        local: Some(facts.chosen()),
        server_status: route.and_then(|route| route.status),
        client_url: request.is_rewritten().then(|| request.shown_url()),
        version: Some(request.head.version),
        peer_port: route.and_then(|route| route.peer).map(|peer| peer.port()),
        client_name: request.client_name.get().and_then(|name| name.as_deref().ok()),
        server_name: server_name(request, route),
        server_local: route.and_then(|route| route.local),
        attempts: route.map_or(0, |route| route.attempts),
        ext_tag: helped.and_then(|facts| facts.tag.as_deref()),
        ext_log: helped.and_then(|facts| facts.log.as_deref()),
        error_detail: outcome.fault.as_ref().map(|fault| &*fault.detail),
        rule: outcome.fault.as_ref().and_then(|fault| fault.rule()),
        reported: reported.map(|rule| rule.as_ref().map(|rule| (&*rule.file, rule.line))),
        generation: request.snapshot().generation(),
        hardware: facts.hardware.flatten(),
        dns_ms: request.dns_ms.get(),
        number: request.number,
        request: Some(&request.head.fields),
        response: outcome.content.head().map(|head| head.bytes()),
        certificate: tls.and_then(|tls| tls.certificate.as_ref()),
        tls: tls.map(|tls| (tls.version, tls.cipher)),
        notes: Some(&request.notes),
        bump: request.bump(),
        ..record
    }
}

/// Writes a line to each access log whose condition holds, down to the one that is `none`.
pub(crate) fn append(core: &Core, record: &AccessRecord<'_>, holds: impl Fn(&RuleList) -> bool) {
    for log in core.access_logs().iter() {
        let wanted = log.condition.as_ref().is_none_or(&holds);
        match &log.sink {
            _ if !wanted => {}
            None => break,
            Some(sink) if sink.is_none() => {}
            Some(sink) => {
                let (strip, most) = (log.strip_query_terms, sink.line_bytes_max());
                sink.append(core.id, |line| log.format.write_within(line, record, strip, most));
            }
        }
    }
}

/// The part of a client's address that logs show (`client_netmask`).
pub(crate) fn logged_address(snapshot: &Snapshot, client: IpAddr) -> IpAddr {
    match (client, snapshot.config.client_netmask) {
        (IpAddr::V4(ip), Some(IpAddr::V4(mask))) => IpAddr::V4(ip & mask),
        (IpAddr::V6(ip), Some(IpAddr::V6(mask))) => IpAddr::V6(ip & mask),
        _ => client,
    }
}

/// The answer as far as rules see it at the end: its status and media type; `None` if no rule asks,
/// or there was none.
fn answer_at_end(
    request: &Request,
    status: u16,
    content_type: Option<&[u8]>,
) -> Option<ResponseHead> {
    if !request.snapshot().rules_ask_answers || status == 0 {
        return None;
    }
    let mut answer = ResponseHead::default();
    answer.set_line(Version::Http11, status, b"");
    if let Some(content_type) = content_type {
        answer.fields.push(FieldName::ContentType, content_type);
    }
    Some(answer)
}

/// The name of the server or parent that was asked.
fn server_name<'a>(request: &'a Request, route: Option<&'a RouteTaken>) -> &'a [u8] {
    match route {
        Some(route) if !route.name.is_empty() => route.name.as_bytes(),
        Some(RouteTaken { peer: Some(_), .. }) => request.url.host(),
        _ => b"",
    }
}

fn peer(route: Option<&RouteTaken>) -> Peer<'_> {
    match route {
        None => Peer::None,
        Some(RouteTaken { peer: Some(peer), .. }) => Peer::Ip(peer.ip()),
        Some(RouteTaken { name, .. }) if name.is_empty() => Peer::None,
        Some(RouteTaken { name, .. }) => Peer::Name(name.as_bytes()),
    }
}
