//! Connections of clients. Each has one task, which answers its requests one after the other.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_conf::HttpPort;
use humboldt_exchange::{ClientExchange, Refused, Service};
use humboldt_http::RequestHead;
use humboldt_net::Stream;

use crate::client_counts::Counted;
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::ErrorPage;
use crate::pipeline::{self, Admission};
use crate::reply::hit::{self, Sending, Started};
use crate::request::{ConnFacts, Request, unmapped};
use crate::rules::indirect;
use crate::special::{internal, unparsed};
use crate::transaction::Transaction;

/// `tcpkeepalive` without values uses Linux's own defaults.
const KEEPALIVE_IDLE_S: u32 = 7200;
const KEEPALIVE_INTERVAL_S: u32 = 75;
const KEEPALIVE_PROBES: u32 = 9;

/// Serves a connection until it ends.
pub async fn serve_connection(
    core: Rc<Core>,
    stream: Stream,
    client: SocketAddr,
    port: Arc<HttpPort>,
) {
    let Ok(local) = stream.local_addr() else { return };
    keep_alive_probes(&stream, &port);
    let connection = Rc::new(Connection::new(&core, client, local, port));
    if connection.is_one_too_many() {
        core.count(Counter::ClientsTurnedAway, 1);
        tracing::debug!("{client}: its address has client_ip_max_connections already");
        connection.end();
        return;
    }
    humboldt_exchange::serve(&core.io, stream, &connection).await;
}

/// Answers one request of a client without a socket.
// tidy: public, because the simulation uses it
pub async fn answer_one(
    core: &Rc<Core>,
    client: SocketAddr,
    port: &Arc<HttpPort>,
    exchange: &mut ClientExchange,
    head: RequestHead,
) {
    let local = SocketAddr::new(client.ip(), port.port);
    let connection = Connection::new(core, client, local, Arc::clone(port));
    humboldt_exchange::answer(&connection, exchange, head).await;
    connection.is_closed.set(true);
}

/// Sets `tcpkeepalive=` of the port.
fn keep_alive_probes(stream: &Stream, port: &HttpPort) {
    let Some(probes) = port.tcpkeepalive else { return };
    let or = |value_s: u32, default_s: u32| if value_s == 0 { default_s } else { value_s };
    let (idle_s, interval_s) =
        (or(probes.idle_s, KEEPALIVE_IDLE_S), or(probes.interval_s, KEEPALIVE_INTERVAL_S));
    let count = or(probes.timeout_s / interval_s.max(1), KEEPALIVE_PROBES);
    let seconds = |value_s: u32| Duration::from_secs(value_s.into());
    // If this fails, the timeouts still notice a dead client.
    _ = humboldt_sys::tcp::set_keepalive(stream, seconds(idle_s), seconds(interval_s), count);
}

/// A client's connection: it is counted in the figures of its core, and its requests are answered.
///
/// It is removed from the figures at its end, even if its task panics or its core ends.
pub(crate) struct Connection {
    core: Rc<Core>,
    facts: Rc<ConnFacts>,
    _counted: Option<Counted>,
    /// It has ended in order.
    is_closed: Cell<bool>,
}

/// A request whose answer has to wait.
pub(crate) enum Pending {
    /// A hit that the client did not take whole.
    Rest(Rc<Request>, Box<Sending>),
    /// A request that needs more than memory.
    Slow(Rc<Request>, Admission),
}

impl Connection {
    /// Counts a connection.
    pub(crate) fn new(
        core: &Rc<Core>,
        client: SocketAddr,
        local: SocketAddr,
        port: Arc<HttpPort>,
    ) -> Self {
        core.connection_opened();
        core.count(Counter::ClientConnections, 1);
        let counts = core.snapshot().counts_clients;
        let counted = counts.then(|| core.shared.client_counts.enter(unmapped(client.ip())));
        let connections = counted.as_ref().map(Counted::connections);
        let notes = RefCell::default();
        let facts = Rc::new(ConnFacts { client, local, port, connections, notes });
        Self { core: Rc::clone(core), facts, _counted: counted, is_closed: Cell::new(false) }
    }
}

impl Connection {
    /// Whether the client has more connections than `client_ip_max_connections`.
    fn is_one_too_many(&self) -> bool {
        let limit = self.core.snapshot().config.client_ip_max_connections;
        let open = self.facts.connections.as_ref().map(|connections| connections.get());
        matches!((limit, open), (Some(limit), Some(open)) if open > limit)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_closed.get() {
            self.core.shared.times.record_cut(self.core.id, Cut::of_a_dropped_task());
        }
        self.core.connection_closed();
    }
}

impl Service for Connection {
    type Request = Rc<Request>;
    type Pending = Pending;

    fn take(&self) -> Rc<Request> {
        self.core.take_request(&self.facts)
    }

    fn head<'r>(&self, request: &'r mut Rc<Request>) -> Option<&'r mut RequestHead> {
        Rc::get_mut(request).map(|request| &mut request.head)
    }

    fn put_back(&self, request: Rc<Request>) {
        self.core.return_request(request);
    }

    fn begin(&self, client: &mut ClientExchange, mut request: Rc<Request>) -> Option<Pending> {
        let core = &self.core;
        core.count(Counter::ClientRequests, 1);
        let completed = match Rc::get_mut(&mut request) {
            Some(unshared) => complete(core, client, unshared),
            None => Ok(()),
        };
        let admission = match completed {
            Ok(()) => pipeline::admit(core, &request),
            Err(page) => Admission::Refuse(page, String::new()),
        };
        let Admission::Hit(object) = admission else {
            return Some(Pending::Slow(request, admission));
        };
        let mut transaction = Transaction::new(core, client, &request);
        match hit::start(&mut transaction, object) {
            Started::Done(outcome) => transaction.end(outcome),
            Started::Rest(sending) => {
                transaction.suspend();
                return Some(Pending::Rest(request, sending));
            }
        }
        core.return_request(request);
        None
    }

    async fn proceed(&self, client: &mut ClientExchange, pending: Pending) {
        let core = &self.core;
        let request = match pending {
            Pending::Rest(request, sending) => {
                let mut transaction = Transaction::new(core, client, &request);
                let outcome = Box::pin(hit::finish(&mut transaction, sending)).await;
                transaction.end(outcome);
                request
            }
            Pending::Slow(request, admission) => {
                let mut transaction = Transaction::new(core, client, &request);
                let outcome = Box::pin(pipeline::proceed(&mut transaction, admission)).await;
                transaction.end(outcome);
                request
            }
        };
        core.return_request(request);
    }

    fn end(&self) {
        self.is_closed.set(true);
    }

    async fn refuse(&self, client: &mut ClientExchange, refused: Refused) {
        self.core.count(Counter::ClientRequests, 1);
        let request = Rc::new(unparsed::request(&self.core, &self.facts, &refused));
        let mut transaction = Transaction::new(&self.core, client, &request);
        let outcome = Box::pin(unparsed::answer(&mut transaction, refused)).await;
        transaction.end(outcome);
    }
}

/// Fills in everything that follows from the request head.
fn complete(core: &Core, client: &ClientExchange, request: &mut Request) -> Result<(), ErrorPage> {
    request.complete(client.request_body(), core.now())?;
    request.indirect_client = match &request.snapshot().follow_forwarded_for {
        Some(trusted) => indirect::client(trusted, request),
        None => None,
    };
    match internal::fits_its_scheme(request) {
        true => Ok(()),
        false => Err(ErrorPage::UnsupportedMethod),
    }
}
