//! Connections of clients. Each has one task, which answers its requests one after the other.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_base::token_bucket::TokenBucket;
use humboldt_conf::{HttpPort, PortMode, Socks};
use humboldt_exchange::{
    Carrier, ClientExchange, Refused, Service, SocksSettings, serve_on, serve_tunnel,
    serve_with_socks,
};
use humboldt_http::RequestHead;
use humboldt_logins::ConnectionLogin;
use humboldt_net::Stream;
use humboldt_net::proxy_header::{self, Announced};
use humboldt_sys::neighbours::hardware_address;

use crate::bumped::Inside;
use crate::callouts;
use crate::client_counts::Counted;
use crate::core::Core;
use crate::cut::Cut;
use crate::demands::Demands;
use crate::errors::ErrorPage;
use crate::handshake;
use crate::pin::Pin as ServerPin;
use crate::pipeline::{self, Admission};
use crate::reply::hit::{self, Sending, Started};
use crate::request::{ConnFacts, Request, unmapped};
use crate::rules::{balancer, delays, indirect, original};
use crate::special::bump::{HandOver, Own, Verdict};
use crate::special::{internal, tunnel, unparsed};
use crate::transaction::Transaction;

/// `tcpkeepalive` without values uses Linux's own defaults.
const KEEPALIVE_IDLE_S: u32 = 7200;
const KEEPALIVE_INTERVAL_S: u32 = 75;
const KEEPALIVE_PROBES: u32 = 9;

/// Serves a connection until it ends.
pub async fn serve_connection(
    core: Rc<Core>,
    mut stream: Stream,
    client: SocketAddr,
    port: Arc<HttpPort>,
) {
    let Some(ends) = Ends::of(&core, &mut stream, client, &port).await else { return };
    keep_alive_probes(&stream, &port);
    let connection = Rc::new(Connection::new(&core, ends, Arc::clone(&port)));
    if connection.is_one_too_many() {
        core.count(Counter::ClientsTurnedAway, 1);
        tracing::debug!("{client}: its address has client_ip_max_connections already");
        connection.end();
        return;
    }
    if port.tls.is_some() {
        if core.io.is_draining() {
            return connection.end();
        }
        let shaking = Box::pin(handshake::accept(&core, stream, connection.facts.client, &port));
        let secured = tokio::select! {
            secured = shaking => secured,
            () = core.io.drain.notified() => None,
        };
        match secured {
            Some((secured, met)) => {
                stream = secured;
                _ = connection.demands.set(met);
            }
            None => return connection.end(),
        }
        let facts = stream.tls().unwrap_or_default();
        core.count(Counter::TlsResumed, facts.is_resumed.into());
        _ = connection.facts.tls.set(Box::new(facts));
    }
    let original = connection.facts.original.filter(|_| port.intercepts_connections());
    if let Some(original) = original {
        let place = original.to_string();
        return Box::pin(serve_tunnel(&core.io, stream, &connection, &place)).await;
    }
    match socks_settings(&connection) {
        None => humboldt_exchange::serve(&core.io, stream, &connection).await,
        Some(socks) => Box::pin(serve_with_socks(&core.io, stream, &connection, socks)).await,
    }
}

/// How clients of the port may speak SOCKS5, if they may.
fn socks_settings(connection: &Connection) -> Option<SocksSettings> {
    let only = match connection.facts.port.socks {
        Socks::No => return None,
        Socks::Too => false,
        Socks::Only => true,
    };
    let snapshot = connection.core.snapshot();
    // Whether clients can log in with a password.
    let scheme = snapshot.logins.as_ref().and_then(|logins| logins.logins.scheme_of(b"Basic x"));
    Some(SocksSettings { only, has_logins: scheme.is_some() })
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
    let connection = Connection::new(core, Ends::direct(client, local), Arc::clone(port));
    humboldt_exchange::answer(&connection, exchange, head).await;
    connection.is_closed.set(true);
}

/// The addresses of a connection: see [`ConnFacts`].
pub(crate) struct Ends {
    client: SocketAddr,
    local: SocketAddr,
    original: Option<SocketAddr>,
    announced: Option<SocketAddr>,
}

impl Ends {
    /// Of a connection that comes from the client itself.
    pub(crate) fn direct(client: SocketAddr, local: SocketAddr) -> Self {
        Self { client, local, original: None, announced: None }
    }

    /// `None`: no request of the connection may be answered.
    async fn of(
        core: &Core,
        stream: &mut Stream,
        client: SocketAddr,
        port: &HttpPort,
    ) -> Option<Self> {
        // A port at one address tells it without a system call.
        let at = port.addr.filter(|ip| !ip.is_unspecified() && port.mode != PortMode::Tproxy);
        let local = match at.filter(|_| port.unix.is_none()) {
            Some(ip) => SocketAddr::new(ip, port.port),
            None => stream.local_addr().ok()?,
        };
        let direct = Self::direct(client, local);
        if port.mode == PortMode::Intercept {
            let original = Some(original_destination(stream, local, port)?);
            return Some(Self { original, ..direct });
        }
        if port.mode == PortMode::Tproxy {
            let original = handed_over(local, port)?;
            let ip = port.addr.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
            let local = SocketAddr::new(ip, port.port);
            return Some(Self { local, original: Some(original), ..direct });
        }
        if !port.requires_proxy_header {
            return Some(direct);
        }
        // Boxed, because every connection would have its memory.
        Some(match Box::pin(announced(core, stream, client, local, port)).await? {
            Some(told) => Self { client: told.client, announced: Some(told.local), ..direct },
            None => direct,
        })
    }
}

/// The address that the client of an intercepted connection connected to; `None` if the packet
/// filter has not sent the connection here.
fn original_destination(stream: &Stream, local: SocketAddr, port: &HttpPort) -> Option<SocketAddr> {
    let canonical = |address: SocketAddr| SocketAddr::new(unmapped(address.ip()), address.port());
    match stream.original_destination().map(canonical) {
        // The packet filter may know a connection that it leaves as it is. A request would lead
        // from here to here.
        Ok(original) if original != canonical(local) => Some(original),
        Ok(_) => {
            tracing::debug!("port {}: a connection that was not redirected", port.name);
            None
        }
        Err(error) => {
            tracing::debug!("port {}: a connection that was not redirected: {error}", port.name);
            None
        }
    }
}

/// The address that the client of a connection to a `tproxy` port connected to: that of the socket.
/// `None` for a connection to the port itself.
fn handed_over(local: SocketAddr, port: &HttpPort) -> Option<SocketAddr> {
    if local.port() == port.port {
        tracing::debug!("port {}: a connection that was not handed over", port.name);
        return None;
    }
    Some(SocketAddr::new(unmapped(local.ip()), local.port()))
}

/// Reads the header of the PROXY protocol. `Some(None)`: it announces no client. `None`: the
/// connection is not from a load balancer that is believed, or has no valid header in time.
async fn announced(
    core: &Core,
    stream: &mut Stream,
    peer: SocketAddr,
    local: SocketAddr,
    port: &HttpPort,
) -> Option<Option<Announced>> {
    let snapshot = core.snapshot();
    if !balancer::may_announce(&snapshot, port, peer, local) {
        tracing::debug!("port {}: proxy_protocol_access denies {peer}", port.name);
        return None;
    }
    let deadline = core.io.deadlines.slot();
    deadline.arm(snapshot.config.request_start_timeout);
    match deadline.guard(pin!(proxy_header::read(stream))).await {
        Ok(Ok(header)) => Some(header),
        Ok(Err(error)) => {
            tracing::debug!("port {}: {peer}: {error}", port.name);
            None
        }
        Err(_late) => None,
    }
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
    /// What its port asked of the client: with TLS, when it shook hands.
    demands: OnceCell<Demands>,
    _counted: Option<Counted>,
    /// It is inside of another one, which is counted.
    is_inside: bool,
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
    pub(crate) fn new(core: &Rc<Core>, ends: Ends, port: Arc<HttpPort>) -> Self {
        let Ends { client, local, original, announced } = ends;
        core.connection_opened();
        core.count(Counter::ClientConnections, 1);
        let demands = OnceCell::new();
        let counts = core.snapshot().counts_clients;
        let counted = counts.then(|| core.shared.client_counts.enter(unmapped(client.ip())));
        let connections = counted.as_ref().map(Counted::connections);
        let facts = Rc::new(ConnFacts {
            core: core.id,
            client,
            local,
            original,
            announced,
            hardware: hardware_of(core, client),
            port,
            connections,
            tls: OnceCell::new(),
            notes: RefCell::default(),
            mark: Cell::default(),
            login: ConnectionLogin::default(),
            pin: ServerPin::default(),
            inside: None,
            hand_over: RefCell::default(),
        });
        Self {
            core: Rc::clone(core),
            facts,
            demands,
            _counted: counted,
            is_inside: false,
            is_closed: Cell::new(false),
        }
    }

    /// The connection inside of the tunnel of this one. It is the same client's, and what is known
    /// about that holds there too.
    fn within(&self, inside: Inside) -> Self {
        let outer = &self.facts;
        let facts = Rc::new(ConnFacts {
            core: outer.core,
            client: outer.client,
            local: outer.local,
            original: outer.original,
            announced: outer.announced,
            hardware: outer.hardware,
            port: Arc::clone(&outer.port),
            connections: outer.connections.clone(),
            tls: OnceCell::new(),
            notes: RefCell::new(outer.notes.borrow().clone()),
            mark: Cell::new(outer.mark.get()),
            login: ConnectionLogin::default(),
            pin: ServerPin::default(),
            inside: Some(Box::new(inside)),
            hand_over: RefCell::default(),
        });
        // The connection around it answers nothing any more.
        let demands = self.demands.clone();
        let (core, is_closed) = (Rc::clone(&self.core), Cell::new(false));
        Self { core, facts, demands, _counted: None, is_inside: true, is_closed }
    }

    /// Takes over the connection by which the server of its tunnel was looked at.
    fn take_over(&self, own: Own) {
        let Own { looking, to, connected, seen, is_pinned } = own;
        let (server, facts) = (to.server(&looking), &self.facts);
        match &facts.inside {
            Some(inside) if !is_pinned => inside.keep(&server, connected),
            _ => {
                let place = (looking.url.host(), looking.url.port());
                facts.pin.put(place, &server, looking.owner(), (connected, seen));
            }
        }
    }

    /// Speaks TLS with the client, and serves what is inside.
    async fn decrypt(&self, over: HandOver, carrier: Carrier) {
        let (core, facts) = (&self.core, &self.facts);
        let HandOver { side, early, inside, line, own, place: _place } = over;
        if core.io.is_draining() {
            return line.write(Some(Cut::ShutDown));
        }
        let Carrier { stream, kept } = carrier;
        let secured = {
            let shaking = pin!(handshake::shake_hands(
                core,
                stream,
                &early,
                facts.client,
                &facts.port,
                &side
            ));
            tokio::select! {
                secured = shaking => secured.ok_or(Cut::NoHandshake),
                () = core.io.drain.notified() => Err(Cut::ShutDown),
            }
        };
        let stream = match secured {
            Ok(_) if core.io.is_draining() => return line.write(Some(Cut::ShutDown)),
            Ok(stream) => stream,
            Err(cut) => return line.write(Some(cut)),
        };
        line.write(None);
        drop((early, side));
        let told = stream.tls().unwrap_or_default();
        core.count(Counter::TlsResumed, told.is_resumed.into());
        let connection = Rc::new(self.within(inside));
        _ = connection.facts.tls.set(Box::new(told));
        if let Some(own) = own {
            connection.take_over(own);
        }
        serve_on(&core.io, Carrier { stream, kept }, &connection).await;
    }
}

impl Connection {
    /// Whether the client has more connections than `client_ip_max_connections`, not counting this
    /// one, as in Squid.
    fn is_one_too_many(&self) -> bool {
        let limit = self.core.snapshot().config.client_ip_max_connections;
        let open = self.facts.connections.as_ref().map(|connections| connections.get());
        matches!((limit, open), (Some(limit), Some(open)) if open.saturating_sub(1) > limit)
    }
}

/// The hardware address of a client that has just connected, if a rule may ask for it. The kernel
/// knows it at this moment, as packets have been sent there.
fn hardware_of(core: &Core, client: SocketAddr) -> Option<Option<[u8; 6]>> {
    match unmapped(client.ip()) {
        IpAddr::V4(ip) if core.snapshot().asks_hardware => hardware_address(ip).ok(),
        _ => None,
    }
}

/// Answers that wait.
impl Connection {
    /// Sends the rest of a hit.
    async fn finish(
        &self,
        client: &mut ClientExchange,
        request: Rc<Request>,
        sending: Box<Sending>,
    ) {
        let mut transaction = Transaction::new(&self.core, client, &request);
        let outcome = hit::finish(&mut transaction, sending).await;
        transaction.end(outcome);
        self.end_request(request);
    }

    /// Has helpers asked about a request, then answers it.
    async fn call_out(&self, client: &mut ClientExchange, request: Rc<Request>) {
        match Box::pin(callouts::run(&self.core, client, request)).await {
            Ok((request, admission)) => Box::pin(self.answer(client, request, admission)).await,
            Err(answered) => self.end_request(answered),
        }
    }

    /// Answers a request that needs more than memory.
    async fn answer(
        &self,
        client: &mut ClientExchange,
        request: Rc<Request>,
        admission: Admission,
    ) {
        let mut transaction = Transaction::new(&self.core, client, &request);
        let mut outcome = pipeline::proceed(&mut transaction, admission).await;
        if let Some(tunnel) = transaction.tunnel.take() {
            outcome = Box::pin(tunnel::carry(&mut transaction, tunnel, outcome)).await;
        }
        transaction.end(outcome);
        self.end_request(request);
    }

    fn end_request(&self, request: Rc<Request>) {
        self.facts.login.end_request();
        self.core.return_request(request);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.facts.end();
        if !self.is_inside {
            if !self.is_closed.get() {
                self.core.shared.times.record_cut(self.core.id, Cut::of_a_dropped_task());
            }
            self.core.connection_closed();
        }
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
        let demands = self.demands.get();
        if demands.is_some_and(|met| met.differ(request.snapshot(), &self.facts.port)) {
            client.close_behind();
        }
        let completed = match Rc::get_mut(&mut request) {
            Some(unshared) => complete(core, client, unshared),
            None => Ok(()),
        };
        let admission = match completed {
            Ok(()) => match request.inside().and_then(Inside::verdict::<Verdict>) {
                None => pipeline::admit(core, &request),
                Some(verdict) => {
                    // It was true when the connection began. The next one may find another.
                    client.close_behind();
                    Admission::from(verdict)
                }
            },
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

    fn proceed<'a>(
        &'a self,
        client: &'a mut ClientExchange,
        pending: Pending,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        match pending {
            Pending::Rest(request, sending) => Box::pin(self.finish(client, request, sending)),
            Pending::Slow(request, Admission::CallOut) => Box::pin(self.call_out(client, request)),
            Pending::Slow(request, admission) => Box::pin(self.answer(client, request, admission)),
        }
    }

    fn limits(&self) -> Vec<Arc<TokenBucket>> {
        let (snapshot, facts) = (self.core.snapshot(), &self.facts);
        delays::of_connection(&snapshot, &facts.port, facts.client, facts.chosen())
    }

    fn end(&self) {
        self.is_closed.set(true);
        self.facts.end();
    }

    fn go_on(&self, carrier: Carrier) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let over = self.facts.hand_over.take().and_then(|over| over.downcast::<HandOver>().ok());
        Box::pin(async move {
            if let Some(over) = over {
                self.decrypt(*over, carrier).await;
            }
            self.end();
        })
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
    // The certificate is for one host, and each name of a request has to be that.
    if request.inside().is_some() && !original::host_agrees(request) {
        return Err(ErrorPage::Misdirected);
    }
    if request.snapshot().config.host_verify_strict && !original::host_agrees(request) {
        return Err(ErrorPage::HostConflict);
    }
    // What is inside of a tunnel comes from the client itself.
    if let Some(indirect) = request.inside().map(|inside| inside.connect.indirect_client) {
        request.indirect_client = indirect;
        return Ok(());
    }
    request.indirect_client = match &request.snapshot().follow_forwarded_for {
        Some(trusted) => indirect::client(trusted, request),
        None => None,
    };
    match internal::fits_its_scheme(request) {
        true => Ok(()),
        false => Err(ErrorPage::UnsupportedMethod),
    }
}
