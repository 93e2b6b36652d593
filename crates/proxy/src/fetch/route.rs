//! The ways to an answer: the server that the URL names, and parents, tried one after the other.
//!
//! Fetches, uploads, upgrades and CONNECT all use it, with the same number of tries, the same time
//! limits and the same notes about failures. It connects only to addresses that the rules have
//! judged.

use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::bump::ServerIdentity;
use humboldt_base::counters::Counter;
use humboldt_conf::PortMode;
use humboldt_exchange::ServerExchange;
use humboldt_logs::access::Hierarchy;
use humboldt_net::connect::Connected;
use tokio::time::Instant;

use crate::config::peers::Peer;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::certificates;
use crate::fetch::connecting::{Connection, connect};
use crate::fetch::destination::Destination;
use crate::fetch::job::{Failure, Report};
use crate::request::{Request, unmapped};
use crate::rules::{access, destinations};

/// Why a parent is not asked.
const IN_CLEAR_TEXT: &str = "what came encrypted would go to the parent in clear text: it needs \
                             `tls`, or must be a proxy that opens tunnels";

/// One way to get an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Way {
    /// From the host that the URL names.
    Direct,
    /// From the address that the client of an intercepted connection chose.
    Original,
    /// From the parent with this index.
    Peer(usize, Hierarchy),
}

impl Way {
    /// The parent.
    fn peer(self, request: &Request) -> Option<&Arc<Peer>> {
        match self {
            Self::Direct | Self::Original => None,
            Self::Peer(index, _) => request.snapshot().peers.get(index),
        }
    }
}

/// A connection to a server that may answer.
pub(crate) struct Reached {
    /// The exchange.
    pub server: ServerExchange,
    /// Where it leads.
    pub to: Destination,
    /// It belongs to the client's connection ([`crate::pin`]).
    pub is_pinned: bool,
    /// The server's certificate, if it was judged by rules: nobody else uses the connection if it
    /// has a fault, which was forgiven.
    pub seen: Option<Rc<ServerIdentity>>,
}

impl Reached {
    /// Whether a fault of the server's certificate was forgiven.
    pub(crate) fn has_faults(&self) -> bool {
        self.seen.as_ref().is_some_and(|server| !server.faults.is_empty())
    }
}

/// The ways of one request, and how many of them have been tried.
pub(crate) struct Route<'a> {
    core: &'a Rc<Core>,
    request: &'a Request,
    report: &'a Report,
    /// The remaining ways; the first one is tried next.
    ways: std::iter::Peekable<std::vec::IntoIter<Way>>,
    /// Whether the connection that belongs to the client's may be used.
    may_use_pin: bool,
    /// New connections that may still be tried (`forward_max_tries`).
    tries_left: u32,
    /// The time left for that (`forward_timeout`), without the waits for answers.
    time_left: Duration,
    /// Whether pooled connections may be used.
    reuses: bool,
    /// Whether the next connection may be a pooled one.
    may_reuse: bool,
    last: Option<Failure>,
    /// A server was asked, and said nothing: `last` has that.
    was_asked: bool,
}

impl<'a> Route<'a> {
    /// The ways of `request`. `report` gets notes about the ways that are tried.
    pub(crate) async fn new(core: &'a Rc<Core>, request: &'a Request, report: &'a Report) -> Self {
        let config = &request.snapshot().config;
        Self {
            core,
            request,
            report,
            ways: ways(core, request).await.into_iter().peekable(),
            may_use_pin: false,
            tries_left: config.forward_max_tries.max(1),
            time_left: config.forward_timeout,
            reuses: false,
            may_reuse: false,
            last: None,
            was_asked: false,
        }
    }

    /// Allows pooled connections if the request can be sent again: a pooled connection may turn out
    /// to be dead.
    pub(crate) fn reusing(self) -> Self {
        let reuses = self.request.is_retriable();
        Self { reuses, may_reuse: reuses, ..self }
    }

    /// Allows the connection that belongs to the client's, and tries it first. It is for any
    /// request: a login in several steps has no other. If it turns out dead, one that cannot be
    /// sent again fails.
    pub(crate) fn pinned(self) -> Self {
        let request = self.request;
        if !request.facts().pin.is_for(request.url.host(), request.url.port(), request.owner()) {
            return self;
        }
        let mut ways: Vec<Way> = self.ways.collect();
        let leads_there = |way: &Way| {
            let to = Destination::new(request, way.peer(request));
            request.facts().pin.leads_to(&to.server(request), request.owner())
        };
        ways.sort_by_key(|way| !leads_there(way));
        Self { ways: ways.into_iter().peekable(), may_use_pin: true, ..self }
    }

    /// The next connection.
    ///
    /// # Errors
    /// The reason why the last way failed, if no other is left.
    pub(crate) async fn next(&mut self) -> Result<Reached, Failure> {
        while let Some(way) = self.ways.peek().copied() {
            if self.tries_left == 0 {
                break;
            }
            self.tries_left -= 1;
            self.report.route.borrow_mut().attempts += 1;
            match self.reach(way).await {
                Ok(reached) => {
                    self.note(way, Some(reached.server.peer()));
                    if self.request.snapshot().logs_server_local {
                        self.report.route.borrow_mut().local = reached.server.local();
                    }
                    if reached.server.was_reused() {
                        // If it is dead, the same way is tried again with a new connection, which
                        // is the first one that counts.
                        self.may_reuse = false;
                        self.tries_left += 1;
                    } else {
                        self.give_up_way();
                    }
                    return Ok(reached);
                }
                Err(late) if late.page == ErrorPage::ForwardTimeout => {
                    return Err(self.last.take().unwrap_or(late));
                }
                Err(failure) => {
                    // A peer failed only if a connection to it was tried.
                    let (tried, refused) =
                        (failure.page.is_about_connecting(), failure.refusal.is_some());
                    if tried && !refused || !self.was_asked {
                        if tried || refused {
                            self.note(way, None);
                        }
                        self.last = Some(failure);
                    }
                    self.give_up_way();
                }
            }
        }
        let none = || Failure::new(ErrorPage::NoForward, "no server or parent may be used");
        Err(self.last.take().unwrap_or_else(none))
    }

    /// Connects by one way, with a pooled connection if it may be one.
    async fn reach(&mut self, way: Way) -> Result<Reached, Failure> {
        let (core, request) = (self.core, self.request);
        let peer = match way {
            Way::Direct | Way::Original if !can_be_asked(request) => {
                return Err(Failure::new(ErrorPage::UnsupportedScheme, ""));
            }
            Way::Direct | Way::Original => None,
            Way::Peer(index, _) => {
                let peer = request.snapshot().peers.get(index);
                Some(peer.ok_or_else(|| Failure::new(ErrorPage::NoForward, ""))?)
            }
        };
        let to = Destination::new(request, peer);
        if !to.is_safe_for(request) {
            return Err(Failure::new(ErrorPage::NoForward, IN_CLEAR_TEXT));
        }
        let read_timeout = request.snapshot().config.read_timeout;
        // A pooled connection may lead to an address that the name no longer has, or that the rules
        // do not permit for this request.
        let may_use = |connected: &Connected| {
            let ip = connected.peer.ip();
            peer.is_some()
                || access::may_reuse(request, ip)
                    && destinations::objection(core, request, ip).is_none()
        };
        if std::mem::take(&mut self.may_use_pin)
            && let Some((connected, seen)) =
                request.facts().pin.take(&to.server(request), request.owner(), may_use)
            && seen.as_ref().is_none_or(|seen| certificates::is_forgiven(request, seen))
        {
            core.count(Counter::ServerReuses, 1);
            let server = ServerExchange::new(&core.io, connected, true, read_timeout);
            return Ok(Reached { server, to, is_pinned: true, seen });
        }
        if self.may_reuse
            && let Some(connected) = to.kept(core, request, may_use)
        {
            core.count(Counter::ServerReuses, 1);
            let server = ServerExchange::new(&core.io, connected, true, read_timeout);
            return Ok(Reached { server, to, is_pinned: false, seen: None });
        }
        // Boxed, since most requests find a pooled connection.
        let (server, seen) = Box::pin(self.connect(&to)).await?;
        core.count(Counter::ServerConnections, 1);
        Ok(Reached { server, to, is_pinned: false, seen })
    }

    /// Makes a connection in the time that is left.
    async fn connect(&mut self, to: &Destination) -> Result<Connection, Failure> {
        let (began, deadline) = (Instant::now(), self.core.io.deadlines.slot());
        deadline.arm(self.time_left);
        let connected = deadline.guard(pin!(connect(self.core, self.request, to))).await;
        self.time_left = self.time_left.saturating_sub(began.elapsed());
        connected.unwrap_or_else(|_elapsed| {
            Err(Failure::new(ErrorPage::ForwardTimeout, "no answer within forward_timeout"))
        })
    }

    fn give_up_way(&mut self) {
        self.ways.next();
        self.may_reuse = self.reuses;
    }

    /// Leaves the way of the last connection, whose answer is not wanted if another way brings one.
    /// `false`: no other is left.
    pub(crate) fn leave(&mut self, was_reused: bool) -> bool {
        if was_reused {
            // It was no dead connection, so it counts.
            self.tries_left = self.tries_left.saturating_sub(1);
            self.give_up_way();
        }
        self.tries_left > 0 && self.ways.peek().is_some()
    }

    /// Notes that the connection of [`Route::next`] brought no answer.
    pub(crate) fn failed(&mut self, failure: Failure) {
        self.last = Some(failure);
    }

    /// The same of a new connection, whose way was left: that counts more than a later way that
    /// cannot be tried.
    pub(crate) fn left_without_answer(&mut self, failure: Failure) {
        self.was_asked = true;
        self.failed(failure);
    }

    /// Notes the way for the log. The name of a server that was reached is in the URL.
    fn note(&self, way: Way, peer: Option<SocketAddr>) {
        let (request, mut taken) = (self.request, self.report.route.borrow_mut());
        let is_undelayed = way.peer(request).is_some_and(|peer| peer.conf.no_delay);
        self.report.is_undelayed.set(is_undelayed);
        taken.peer = peer;
        if peer.is_none() {
            taken.local = None;
        }
        taken.hierarchy = match way {
            Way::Direct => Hierarchy::Direct,
            Way::Original => Hierarchy::OriginalDst,
            Way::Peer(_, hierarchy) => hierarchy,
        };
        taken.name = match way {
            Way::Direct | Way::Original if peer.is_some() => Box::default(),
            Way::Direct | Way::Original => String::from_utf8_lossy(request.url.host()).into(),
            Way::Peer(index, _) => {
                request.snapshot().peers.get(index).map_or("", |peer| &peer.conf.name).into()
            }
        };
    }
}

/// The ways to an answer, best first; empty if the configuration allows none.
///
/// Rules that have no answer, because the host has no addresses, choose neither a parent nor the
/// direct way.
async fn ways(core: &Core, request: &Request) -> Vec<Way> {
    access::prepare_to_forward(core, request).await;
    if request.original_destination().is_some() {
        return vec![Way::Original];
    }
    let snapshot = request.snapshot();
    let port = &request.facts().port;
    let accelerated = port.mode == PortMode::Accel;
    let always = access::chooses(core, snapshot.always_direct.as_ref(), request, false).await;
    let never = access::chooses(core, snapshot.never_direct.as_ref(), request, true).await;
    if always {
        return vec![Way::Direct];
    }
    let may_go_direct = !never && (!accelerated || port.allow_direct);
    let hierarchical = request.is_cachable_method() || accelerated;
    let skip_parents = may_go_direct && snapshot.config.nonhierarchical_direct && !hierarchical;
    let mut ways = if skip_parents { Vec::new() } else { parents(request) };
    if may_go_direct {
        let first = snapshot.config.prefer_direct;
        ways.insert(if first { 0 } else { ways.len() }, Way::Direct);
    }
    ways
}

fn parents(request: &Request) -> Vec<Way> {
    let now_s = request.received.secs().max(0) as u64;
    let takes = |peer: &Peer| {
        peer.is_for(request.url.host()) && access::allows(peer.access.as_ref(), request)
    };
    let client = unmapped(request.client_ip());
    let peers = &request.snapshot().peers;
    let parents = peers.parents(client, request.url.as_bytes(), now_s, takes);
    parents.into_iter().map(|(index, hierarchy)| Way::Peer(index, hierarchy)).collect()
}

/// Whether a server can be asked for URLs of this scheme. CONNECT has none.
fn can_be_asked(request: &Request) -> bool {
    match request.url.scheme() {
        _ if request.is_secure() => request.snapshot().tls.outgoing().is_some(),
        b"" | b"http" => true,
        _ => false,
    }
}
