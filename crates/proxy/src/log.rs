//! The end of a transaction: one line in access.log, and the counters.

use std::borrow::Cow;
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
use crate::errors::ErrorPage;
use crate::request::Request;

/// One `access_log` line of the configuration, opened.
pub struct AccessLog {
    /// Where lines go; `None` for `access_log none`: what matches is written to none of the logs
    /// that follow.
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
    /// What went wrong, if anything did.
    pub fault: Option<Box<Fault>>,
}

/// What went wrong, for `%err_code` and `%err_detail`.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Name of the error page, or of what cut the connection off.
    code: &'static str,
    /// The reason: that on the page, or the name of what cut the connection off.
    detail: Cow<'static, str>,
}

impl Fault {
    /// An error page, and the reason that it gives.
    pub(crate) fn of_page(page: ErrorPage, detail: &str) -> Box<Self> {
        Box::new(Self { code: page.name(), detail: detail.to_owned().into() })
    }

    /// A connection that is cut off; `None` where that is no error.
    pub(crate) fn of_cut(cut: Cut) -> Option<Box<Self>> {
        cut.error().map(|code| Box::new(Self { code, detail: cut.name().into() }))
    }
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
            fault: None,
        }
    }

    /// Notes that the answer has ended, and why it was cut off if it was.
    pub(crate) fn end(&mut self, cut: Option<Cut>) {
        self.fault = cut.and_then(Fault::of_cut).or_else(|| self.fault.take());
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

/// Sees to it that a request gets its line also when its task does not come to its end: by a panic,
/// or because the core ends.
pub(crate) struct Watch<'a> {
    core: &'a Rc<Core>,
    request: Option<Rc<Request>>,
}

impl<'a> Watch<'a> {
    /// Watches `request` as long as it exists.
    pub(crate) fn new(core: &'a Rc<Core>, request: &Rc<Request>) -> Self {
        Self { core, request: Some(Rc::clone(request)) }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        if !request.is_logged.get() {
            let mut outcome = Outcome::local(Tag::None, 0);
            outcome.end(Some(Cut::of_a_dropped_task()));
            transaction(self.core, &request, &outcome, None);
        }
        self.core.return_request(request);
    }
}

/// Counts and logs a finished transaction: once.
pub(crate) fn transaction(
    core: &Rc<Core>,
    request: &Request,
    outcome: &Outcome,
    content_type: Option<&[u8]>,
) {
    let was_logged = request.is_logged.replace(true);
    debug_assert!(
        !was_logged,
        "a second line for {}",
        String::from_utf8_lossy(request.shown_url())
    );
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
        error: outcome.fault.as_ref().map(|fault| fault.code),
        error_detail: outcome.fault.as_ref().map(|fault| &*fault.detail),
        request: Some(&request.head.fields),
        ..AccessRecord::new(now, std::net::SocketAddr::new(client, facts.client.port()))
    };
    for log in core.access_logs().iter() {
        let wanted = |list| is_wanted(list, request, outcome.status, content_type);
        let wanted = log.condition.as_ref().is_none_or(wanted);
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

/// Whether the conditions of a log hold. Of the answer they may ask for its status and its media
/// type. A request that they cannot be answered for, because it was refused before anything was
/// looked up, or the look-up failed, is logged.
fn is_wanted(list: &RuleList, request: &Request, status: u16, content_type: Option<&[u8]>) -> bool {
    if !request.snapshot().rules_ask_answers {
        return access::says(list, request, None).unwrap_or(true);
    }
    let mut answer = ResponseHead::default();
    answer.set_line(Version::Http11, status, b"");
    if let Some(content_type) = content_type {
        answer.fields.push(FieldName::ContentType, content_type);
    }
    access::says(list, request, Some(&answer)).unwrap_or(true)
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
