//! The end of a transaction: one line in access.log, and the counters.

use std::rc::Rc;
use std::sync::Arc;

use humboldt_acl::RuleList;
use humboldt_base::counters::Counter;
use humboldt_http::{FieldName, ResponseHead, Version};
use humboldt_logs::LineSink;
use humboldt_logs::access::{AccessFormat, AccessRecord, Ending, Hierarchy, Peer, ResultTag, Tag};

use crate::access;
use crate::core::Core;
use crate::cut::Cut;
use crate::request::Request;

/// One `access_log` line of the configuration, opened.
pub struct AccessLog {
    /// Where lines go; `None` for `access_log none`: what matches is written to none of the logs that follow.
    pub sink: Option<Arc<LineSink>>,
    /// How they look.
    pub format: AccessFormat,
    /// Which transactions are logged here; all when absent.
    pub condition: Option<RuleList>,
    /// `strip_query_terms`.
    pub strip_query_terms: bool,
}

/// Where an answer came from, for the log.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// How the server was chosen.
    pub hierarchy: Hierarchy,
    /// Its address, once connected.
    pub peer: Option<std::net::SocketAddr>,
    /// Its name, if it was never reached.
    pub name: Box<str>,
    /// Status of its answer, if there was one.
    pub status: Option<u16>,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Result code.
    pub tag: Tag,
    /// The request shared another's fetch.
    pub collapsed: bool,
    /// Status sent; 0 for none.
    pub status: u16,
    /// Bytes sent to the client.
    pub bytes_out: u64,
    /// The answer did not reach the client whole.
    pub aborted: bool,
    /// A time limit ended it.
    pub timed_out: bool,
    /// The server, if one was asked.
    pub route: Option<Route>,
    /// Name of the error page.
    pub error: Option<&'static str>,
}

impl Outcome {
    /// An answer from memory.
    pub(crate) fn hit(tag: Tag, status: u16) -> Self {
        Self::miss(tag, status, None)
    }

    /// An answer of our own.
    pub(crate) fn local(tag: Tag, status: u16) -> Self {
        Self::miss(tag, status, None)
    }

    /// An answer from a server.
    pub(crate) fn miss(tag: Tag, status: u16, route: Option<Route>) -> Self {
        Self {
            tag,
            status,
            route,
            collapsed: false,
            bytes_out: 0,
            aborted: false,
            timed_out: false,
            error: None,
        }
    }

    /// Notes that the answer has ended, and why it was cut off if it was.
    pub(crate) fn end(&mut self, cut: Option<Cut>) {
        // A tunnel that one side resets, or nobody uses any more, has served its purpose.
        self.aborted = cut.is_some_and(|cut| !matches!(cut, Cut::TunnelBroken | Cut::TunnelIdle));
        self.timed_out = matches!(cut, Some(Cut::Lifetime | Cut::TunnelIdle));
    }

    fn ending(&self) -> Ending {
        match (self.timed_out, self.aborted) {
            (true, _) => Ending::TimedOut,
            (_, true) => Ending::Aborted,
            _ => Ending::Normal,
        }
    }
}

/// Counts and logs a finished transaction.
pub(crate) fn transaction(
    core: &Rc<Core>,
    request: &Request,
    outcome: &Outcome,
    content_type: Option<&[u8]>,
) {
    let now = core.now();
    let elapsed_ms = now.since_ms(request.received);
    core.shared.times.record(core.id, outcome, elapsed_ms);
    if outcome.tag.is_hit() {
        core.count(Counter::ClientHits, 1);
        core.count(Counter::ClientHitOutBytes, outcome.bytes_out);
        if matches!(outcome.tag, Tag::MemHit | Tag::NegativeHit) {
            core.count(Counter::ClientMemoryHits, 1);
        }
    }
    let Some(facts) = &request.facts else { return };
    let indirect = request.indirect_client.filter(|_| logs_indirect_client(request));
    let client = indirect.unwrap_or_else(|| access::unmapped(facts.client.ip()));
    let record = AccessRecord {
        elapsed_ms,
        local: Some(facts.local),
        tag: ResultTag { tag: outcome.tag, collapsed: outcome.collapsed, ending: outcome.ending() },
        status: outcome.status,
        server_status: outcome.route.as_ref().and_then(|route| route.status),
        bytes_out: outcome.bytes_out,
        method: request.head.method_bytes(),
        url: request.shown_url(),
        version: Some(request.head.version),
        hierarchy: outcome.route.as_ref().map_or(Hierarchy::None, |route| route.hierarchy),
        peer: peer(outcome.route.as_ref()),
        peer_port: outcome.route.as_ref().and_then(|route| route.peer).map(|peer| peer.port()),
        content_type,
        error: outcome.error,
        request: Some(&request.head.fields),
        ..AccessRecord::new(now, std::net::SocketAddr::new(client, facts.client.port()))
    };
    for log in core.access_logs().iter() {
        let wanted = log.condition.as_ref().is_none_or(|list| {
            request.snapshot.is_some() && is_wanted(list, request, outcome.status, content_type)
        });
        match &log.sink {
            _ if !wanted => {}
            None => break,
            Some(sink) if sink.is_none() => {}
            Some(sink) => {
                sink.append(core.id, |line| log.format.write(line, &record, log.strip_query_terms));
            }
        }
    }
}

/// Whether the conditions of a log hold. Of the answer they may ask for its status and its media type.
fn is_wanted(list: &RuleList, request: &Request, status: u16, content_type: Option<&[u8]>) -> bool {
    if !request.snapshot().rules_ask_answers {
        return access::matches(list, request);
    }
    let mut answer = ResponseHead::default();
    answer.set_line(Version::Http11, status, b"");
    if let Some(content_type) = content_type {
        answer.fields.push(FieldName::ContentType, content_type);
    }
    access::verdict_on_answer(list, request, &answer).is_allowed()
}

fn logs_indirect_client(request: &Request) -> bool {
    request.snapshot.as_ref().is_some_and(|snapshot| snapshot.config.log_uses_indirect_client)
}

fn peer(route: Option<&Route>) -> Peer<'_> {
    match route {
        None => Peer::None,
        Some(Route { peer: Some(peer), .. }) => Peer::Ip(peer.ip()),
        Some(Route { name, .. }) if name.is_empty() => Peer::None,
        Some(Route { name, .. }) => Peer::Name(name.as_bytes()),
    }
}
