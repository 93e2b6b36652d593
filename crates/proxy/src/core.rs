//! The state of one core. No other thread uses it, so nothing in it is locked.

use std::cell::{Cell, Ref, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::{Counter, Counters};
use humboldt_exchange::buffers::READ_BYTES;
use humboldt_exchange::{CoreIo, ServerExchange};
use humboldt_net::Stream;
use humboldt_net::connect::{self, ConnectError, ConnectOptions, Connected};
use humboldt_net::dns::{Answer, Asker, DnsError, NameAnswer, Resolver};
use humboldt_net::pool::Pool;
use humboldt_store::mem::FLOW_BYTES_GUARANTEED;

use crate::config::snapshot::Snapshot;
use crate::handshake::Handshakes;
use crate::outcome::AccessLog;
use crate::request::{ConnFacts, Request};
use crate::secure::{Secure, Seen};
use crate::shared::Shared;

/// Most idle [`Request`] buffers a core keeps for reuse.
const SPARE_REQUESTS_MAX: usize = 64;

/// Most bytes of one read while memory for answers in flight is short.
const SMALL_READ_BYTES: usize = FLOW_BYTES_GUARANTEED as usize;

/// One in this many of the process's descriptors is kept free for servers and files, but at most
/// [`DESCRIPTORS_FREE_MAX`] of them. If a new connection takes one of these, idle connections are
/// closed.
const DESCRIPTORS_FREE_SHARE: u64 = 8;
const DESCRIPTORS_FREE_MAX: u64 = 1024;

/// One in this many of the descriptors kept free is for servers, name servers and files alone.
/// While no others are free, no connection is accepted.
const DESCRIPTORS_RESERVED_SHARE: u64 = 2;

/// Most retries of a connection or look-up that found no descriptor, and the wait before each: 2 s
/// in all. Each time, idle connections are closed first.
const ROOM_TRIES_MAX: u32 = 80;
const ROOM_WAIT: Duration = Duration::from_millis(25);

/// Idle connections that are closed for one new connection. Their number is above 1, so that the
/// shortage ends soon.
const GIVING_WAY: usize = 2;

/// Most tunnels of a core that are judged again at one time after a reconfiguration, so that their
/// rules do not ask helpers and the DNS all at once.
const TUNNEL_CHECKS_MAX: usize = 16;

/// Connects to servers in memory, by address.
pub type Network = Box<dyn Fn(SocketAddr) -> Result<ServerExchange, ConnectError>>;

/// Connects to servers at the other end of a stream in memory, by address; `None`: there is none,
/// and the [`Network`] is asked.
pub type Wires = Box<dyn Fn(SocketAddr) -> Option<Connecting>>;

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>>>>;

/// Looks up names without name servers.
pub type NamesInMemory = Box<dyn Fn(&str) -> Pin<Box<dyn Future<Output = Answer>>>>;

/// One core's state.
pub struct Core {
    /// Number of the core, from 0.
    pub id: usize,
    /// The state that all cores share.
    pub shared: Arc<Shared>,
    /// Timers, buffers and counters of its exchanges.
    pub io: Rc<CoreIo>,
    /// Idle connections to servers.
    pub pool: Pool,
    resolver: RefCell<Rc<Resolver>>,
    access_logs: RefCell<Arc<Vec<AccessLog>>>,
    snapshot: RefCell<Arc<Snapshot>>,
    spare_requests: RefCell<Vec<Rc<Request>>>,
    connections: Cell<usize>,
    /// Requests so far.
    requests: Cell<u64>,
    /// Servers in memory that replace real ones in tests.
    network: RefCell<Option<Network>>,
    /// The same as streams, over which TLS is spoken.
    wires: RefCell<Option<Wires>>,
    /// Names that replace those of name servers in a simulation.
    names: RefCell<Option<NamesInMemory>>,
    /// Descriptors from this number on are kept free. A new descriptor gets the lowest free number,
    /// so its number tells how many are open.
    first_spare_descriptor: u64,
    /// Descriptors from this number on are not for clients.
    first_reserved_descriptor: u64,
    /// Handshakes of its clients.
    pub(crate) handshakes: Handshakes,
    /// Held by who reads the authorities of the system: one thread is enough for that.
    pub(crate) authorities_reader: tokio::sync::Mutex<()>,
    /// Every running purge holds one reference.
    pub(crate) purges_under_way: Rc<()>,
    /// Tells tunnels that a configuration has come that may refuse them.
    pub(crate) reconfigured: tokio::sync::Notify,
    /// How many such configurations have come.
    pub(crate) tunnel_checks: Cell<u64>,
    /// Places of tunnels that are being judged again.
    pub(crate) tunnel_check_places: tokio::sync::Semaphore,
    /// Notified when a connection ends.
    pub connection_ended: tokio::sync::Notify,
}

impl Core {
    /// The state of core `id`. Must be called on the thread that will use it.
    pub fn new(id: usize, shared: Arc<Shared>) -> Rc<Self> {
        let snapshot = shared.snapshot();
        let pool = Pool::new(snapshot.pool_limits());
        let io = CoreIo::new(Arc::clone(shared.counters(id)), snapshot.client_settings());
        io.share_pipes_among(shared.cores());
        Rc::new(Self {
            id,
            resolver: RefCell::new(resolver(id, &shared, &snapshot)),
            access_logs: RefCell::new(shared.access_logs()),
            io,
            pool,
            snapshot: RefCell::new(snapshot),
            spare_requests: RefCell::new(Vec::new()),
            connections: Cell::new(0),
            requests: Cell::new(0),
            network: RefCell::new(None),
            wires: RefCell::new(None),
            names: RefCell::new(None),
            first_spare_descriptor: first_spare_descriptor(humboldt_sys::descriptors::limit()),
            first_reserved_descriptor: first_reserved_descriptor(humboldt_sys::descriptors::limit()),
            handshakes: Handshakes::default(),
            authorities_reader: tokio::sync::Mutex::new(()),
            purges_under_way: Rc::new(()),
            reconfigured: tokio::sync::Notify::new(),
            tunnel_checks: Cell::new(0),
            tunnel_check_places: tokio::sync::Semaphore::new(TUNNEL_CHECKS_MAX),
            connection_ended: tokio::sync::Notify::new(),
            shared,
        })
    }

    /// The configuration in force. A request keeps the one that it began with.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// Switches to the newest configuration.
    pub fn reconfigure(&self) {
        let newest = self.shared.snapshot();
        self.resolver.replace(resolver(self.id, &self.shared, &newest));
        self.access_logs.replace(self.shared.access_logs());
        self.io.reconfigure(newest.client_settings());
        let judges_tunnels = newest.config.close_refused_tunnels;
        self.snapshot.replace(newest);
        // Spare requests hold the old configuration.
        self.spare_requests.borrow_mut().clear();
        self.pool.clear();
        if judges_tunnels {
            self.tunnel_checks.set(self.tunnel_checks.get() + 1);
            self.reconfigured.notify_waiters();
        }
    }

    /// The resolver.
    pub fn resolver(&self) -> Rc<Resolver> {
        Rc::clone(&self.resolver.borrow())
    }

    /// The access logs in force.
    pub(crate) fn access_logs(&self) -> Ref<'_, [AccessLog]> {
        Ref::map(self.access_logs.borrow(), |logs| &***logs)
    }

    /// Adds to one of this core's counters.
    pub fn count(&self, counter: Counter, n: u64) {
        self.io.count(counter, n);
    }

    /// This core's counters.
    pub fn counters(&self) -> &Counters {
        self.io.counters()
    }

    /// An empty request for this connection, in the buffers of an earlier one if possible.
    pub(crate) fn take_request(&self, facts: &Rc<ConnFacts>) -> Rc<Request> {
        let snapshot = self.snapshot.borrow();
        let spare = self.spare_requests.borrow_mut().pop();
        if let Some(mut request) = spare
            && let Some(unshared) = Rc::get_mut(&mut request)
        {
            unshared.reuse(facts, &snapshot);
            unshared.number = self.next_number();
            return request;
        }
        let mut request = Request::new(facts, &snapshot);
        request.number = self.next_number();
        Rc::new(request)
    }

    /// The number of the next request. No two requests of the process have the same.
    pub(crate) fn next_number(&self) -> u64 {
        let before = self.requests.get();
        self.requests.set(before.wrapping_add(1));
        let (cores, own) = (self.shared.cores() as u64, self.id as u64);
        before.wrapping_mul(cores).wrapping_add(own + 1)
    }

    /// Keeps the buffers of a request for the next one, unless another owner still holds the
    /// request, or it would keep an old configuration.
    pub(crate) fn return_request(&self, mut request: Rc<Request>) {
        let mut spare = self.spare_requests.borrow_mut();
        let is_current = Arc::ptr_eq(request.snapshot(), &self.snapshot.borrow());
        if is_current && spare.len() < SPARE_REQUESTS_MAX && Rc::get_mut(&mut request).is_some() {
            spare.push(request);
        }
    }

    /// Most bytes of one read of a head and the body behind it. If answers in flight have used up
    /// their share of memory, it is the size that each flow has pages for in any case.
    pub(crate) fn head_read_bytes(&self) -> usize {
        match self.shared.cache.mem().has_in_flight_room(READ_BYTES as u64) {
            true => READ_BYTES,
            false => SMALL_READ_BYTES,
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> UnixMillis {
        UnixMillis::now()
    }

    /// Connections open to clients.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.set(self.connections.get() + 1);
        self.shared.connection_opened();
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.set(self.connections.get().saturating_sub(1));
        self.shared.connection_closed();
        self.connection_ended.notify_one();
    }

    /// Checks the number of a descriptor that was just opened for a client. If descriptors are
    /// scarce, idle connections are closed.
    pub fn note_descriptor(&self, number: u64) {
        if number >= self.first_spare_descriptor {
            self.make_room();
        }
    }

    /// Whether too many descriptors are open to accept connections. `next` is the number of the
    /// next one, if there is one.
    pub fn is_out_of_room(&self, next: Option<u64>) -> bool {
        next.is_none_or(|number| number >= self.first_reserved_descriptor)
    }

    /// Makes connections lead to servers in memory from now on.
    // tidy: public, because tests use it
    pub fn use_network(&self, network: Network) {
        self.network.replace(Some(network));
    }

    /// Makes connections lead to the ends of streams in memory from now on, where there are any.
    // tidy: public, because the simulation uses it
    pub fn use_wires(&self, wires: Wires) {
        self.wires.replace(Some(wires));
    }

    /// Handshakes of clients that are under way.
    // tidy: public, because the simulation uses it
    pub fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// Makes look-ups ask `names` from now on.
    // tidy: public, because the simulation uses it
    pub fn use_names(&self, names: NamesInMemory) {
        self.names.replace(Some(names));
    }

    /// Whether names come from no name server: the network is not the machine's either.
    pub(crate) fn has_names_in_memory(&self) -> bool {
        self.names.borrow().is_some()
    }

    /// Connects to a server, with TLS if `tls` says so; `read_timeout` is its time limit for the
    /// answer. If no descriptor is free, idle connections are closed.
    pub(crate) async fn connect(
        &self,
        addresses: &[IpAddr],
        port: u16,
        options: &ConnectOptions,
        tls: Option<Secure<'_>>,
        read_timeout: Duration,
    ) -> Result<(ServerExchange, Option<Seen>), ConnectError> {
        let peer = addresses.first().map(|ip| SocketAddr::new(*ip, port));
        let is_wired = peer.is_some_and(|peer| self.wire_to(peer).is_some());
        if let (false, Some(network)) = (is_wired, &*self.network.borrow()) {
            let mut server = network(peer.ok_or(ConnectError::NoAddress)?)?;
            server.wait_at_most(read_timeout);
            return Ok((server, None));
        }
        let (connected, seen) = match tls {
            Some(secure) => Box::pin(secure.connect(self, addresses, port, options)).await?,
            None => (self.dial(addresses, port, options).await?, None),
        };
        Ok((ServerExchange::new(&self.io, connected, false, read_timeout), seen))
    }

    /// Connects to one of the addresses. If no descriptor is free, idle connections are closed.
    pub(crate) async fn dial(
        &self,
        addresses: &[IpAddr],
        port: u16,
        options: &ConnectOptions,
    ) -> Result<Connected, ConnectError> {
        let peer = addresses.first().map(|ip| SocketAddr::new(*ip, port));
        if let Some((peer, wire)) = peer.and_then(|peer| Some((peer, self.wire_to(peer)?))) {
            let connected = tokio::time::timeout(options.timeout, wire).await;
            let stream = connected.unwrap_or(Err(ConnectError::Timeout))?;
            return Ok(Connected { stream, peer });
        }
        let connecting = || connect::connect(addresses, port, options);
        self.with_room(connecting, connect::is_short).await
    }

    fn wire_to(&self, peer: SocketAddr) -> Option<Connecting> {
        self.wires.borrow().as_ref().and_then(|wires| wires(peer))
    }

    /// Looks up a name. If no descriptor is free, idle connections are closed.
    pub(crate) async fn look_up(&self, host: &str, asker: Asker) -> Answer {
        let in_memory = self.names.borrow().as_ref().map(|names| names(host));
        if let Some(answer) = in_memory {
            return answer.await;
        }
        let resolver = self.resolver();
        self.with_room(
            || resolver.lookup(host, asker),
            |answer| *answer == Err(DnsError::NoDescriptor),
        )
        .await
    }

    /// Looks up the name of an address, as [`Core::look_up`] does the addresses of a name. In a
    /// simulation no address has one.
    pub(crate) async fn look_up_name(&self, ip: IpAddr, asker: Asker) -> NameAnswer {
        if self.names.borrow().is_some() {
            return Err(DnsError::NoSuchName);
        }
        let resolver = self.resolver();
        let is_short = |answer: &NameAnswer| *answer == Err(DnsError::NoDescriptor);
        self.with_room(|| resolver.name_of(ip, asker), is_short).await
    }

    /// Repeats `work` while it finds no descriptor, at most [`ROOM_TRIES_MAX`] times, and makes
    /// room before each time.
    pub(crate) async fn with_room<T, F: Future<Output = T>>(
        &self,
        work: impl Fn() -> F,
        is_short: impl Fn(&T) -> bool,
    ) -> T {
        for _ in 0..ROOM_TRIES_MAX {
            let result = work().await;
            if !is_short(&result) {
                return result;
            }
            self.make_room();
            tokio::time::sleep(ROOM_WAIT).await;
        }
        work().await
    }

    /// Closes connections because descriptors are scarce. First come client connections that have
    /// waited longest for a request, or whose clients may have left silently; then idle connections
    /// to servers. If this core has neither, other cores are asked. Returns whether this core
    /// closed any.
    pub fn make_room(&self) -> bool {
        let is_made = self.make_own_room();
        if !is_made {
            self.shared.ask_for_room(self.id);
        }
        is_made
    }

    /// As [`Core::make_room`], without asking other cores.
    pub fn make_own_room(&self) -> bool {
        let closed =
            (0..GIVING_WAY).take_while(|_| self.io.deadlines.expire_first_in_line()).count();
        self.count(Counter::ClientsGivenWay, closed as u64);
        let spare = self.io.close_spare_pipes();
        if closed == 0 {
            return self.pool.clear() > 0 || spare > 0;
        }
        true
    }
}

fn resolver(core: usize, shared: &Shared, snapshot: &Snapshot) -> Rc<Resolver> {
    let (names, counters) = (Arc::clone(&shared.names), Arc::clone(shared.counters(core)));
    Rc::new(Resolver::new(snapshot.dns_options(), names, counters))
}

/// Number of the first descriptor that is kept free.
fn first_spare_descriptor(limit: u64) -> u64 {
    limit - (limit / DESCRIPTORS_FREE_SHARE).min(DESCRIPTORS_FREE_MAX)
}

/// Number of the first descriptor that clients do not get.
fn first_reserved_descriptor(limit: u64) -> u64 {
    limit - (limit - first_spare_descriptor(limit)) / DESCRIPTORS_RESERVED_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_kept_free_is_not_for_clients() {
        assert_eq!([0, 7, 8, 256, 8_192].map(first_reserved_descriptor), [0, 7, 8, 240, 7_680]);
    }

    #[test]
    fn an_eighth_of_the_descriptors_is_kept_free_but_not_too_many() {
        let limits = [0, 7, 8, 256, 8_192, 8_200, 1 << 20];
        assert_eq!(
            limits.map(first_spare_descriptor),
            [0, 7, 7, 224, 7_168, 7_176, (1 << 20) - 1024]
        );
    }
}
