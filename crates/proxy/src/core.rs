//! What one core owns: nothing here is shared with another thread, so nothing here is locked.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::{Counter, Counters};
use humboldt_exchange::buffers::READ_BYTES;
use humboldt_exchange::{CoreIo, ServerExchange};
use humboldt_net::connect::{self, ConnectError, ConnectOptions, Connected};
use humboldt_net::dns::{Answer, Asker, DnsError, Resolver};
use humboldt_net::pool::Pool;
use humboldt_store::mem::FLOW_BYTES_GUARANTEED;

use crate::config::snapshot::Snapshot;
use crate::outcome::AccessLog;
use crate::request::{ConnFacts, Request};
use crate::shared::Shared;

/// Most idle [`Request`] buffers a core keeps for reuse.
const SPARE_REQUESTS_MAX: usize = 64;

/// Most bytes of one read where memory in flight is short.
const SMALL_READ_BYTES: usize = FLOW_BYTES_GUARANTEED as usize;

/// Of the descriptors that the process may have, one in so many is kept free for servers and files,
/// but no more than [`DESCRIPTORS_FREE_MAX`]: where a new connection takes one of these, idle ones
/// give way.
const DESCRIPTORS_FREE_SHARE: u64 = 8;
const DESCRIPTORS_FREE_MAX: u64 = 1024;

/// Of these, one in so many is for servers, name servers and files alone: while no more are free,
/// no connection is accepted.
const DESCRIPTORS_RESERVED_SHARE: u64 = 2;

/// How often a connection to a server, or a look-up, that found no descriptor is tried again after
/// room was made, and the wait before each: 2 s in all.
const ROOM_TRIES_MAX: u32 = 80;
const ROOM_WAIT: Duration = Duration::from_millis(25);

/// How many give way to one that comes, so that there are fewer of them soon.
const GIVING_WAY: usize = 2;

/// Servers in memory by their addresses.
pub type Network = Box<dyn Fn(SocketAddr) -> Result<ServerExchange, ConnectError>>;

/// One core's state.
pub struct Core {
    /// Number of the core, from 0.
    pub id: usize,
    /// What all cores share.
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
    /// Servers in memory that connections lead to instead, in tests.
    network: RefCell<Option<Network>>,
    /// Descriptors from this number on are those to be kept free. A new descriptor has the lowest
    /// number that is free, so as many are open as its number says.
    first_spare_descriptor: u64,
    /// From this number on they are not for clients.
    first_reserved_descriptor: u64,
    /// Held once by each purge that is being carried out.
    pub(crate) purges_under_way: Rc<()>,
    /// Notified when a connection ends.
    pub connection_ended: tokio::sync::Notify,
}

impl Core {
    /// The state of core `id`. Must be called on the thread that will use it.
    pub fn new(id: usize, shared: Arc<Shared>) -> Rc<Self> {
        let snapshot = shared.snapshot();
        let pool = Pool::new(snapshot.pool_limits());
        let resolver = Resolver::new(
            snapshot.dns_options(),
            Arc::clone(&shared.names),
            Arc::clone(shared.counters(id)),
        );
        Rc::new(Self {
            id,
            resolver: RefCell::new(Rc::new(resolver)),
            access_logs: RefCell::new(shared.access_logs()),
            io: CoreIo::new(Arc::clone(shared.counters(id)), snapshot.client_settings()),
            pool,
            snapshot: RefCell::new(snapshot),
            spare_requests: RefCell::new(Vec::new()),
            connections: Cell::new(0),
            network: RefCell::new(None),
            first_spare_descriptor: first_spare_descriptor(humboldt_sys::descriptors::limit()),
            first_reserved_descriptor: first_reserved_descriptor(humboldt_sys::descriptors::limit()),
            purges_under_way: Rc::new(()),
            connection_ended: tokio::sync::Notify::new(),
            shared,
        })
    }

    /// The configuration in force. A request keeps the one it started with.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// Takes over the newest configuration.
    pub fn reconfigure(&self) {
        let newest = self.shared.snapshot();
        let counters = Arc::clone(self.shared.counters(self.id));
        self.resolver.replace(Rc::new(Resolver::new(
            newest.dns_options(),
            Arc::clone(&self.shared.names),
            counters,
        )));
        self.access_logs.replace(self.shared.access_logs());
        self.io.reconfigure(newest.client_settings());
        self.snapshot.replace(newest);
        // They keep the configuration that they were used with last.
        self.spare_requests.borrow_mut().clear();
        self.pool.clear();
    }

    /// The resolver.
    pub fn resolver(&self) -> Rc<Resolver> {
        Rc::clone(&self.resolver.borrow())
    }

    /// The logs in force.
    pub(crate) fn access_logs(&self) -> Arc<Vec<AccessLog>> {
        Arc::clone(&self.access_logs.borrow())
    }

    /// Adds to one of this core's counters.
    pub fn count(&self, counter: Counter, n: u64) {
        self.io.count(counter, n);
    }

    /// This core's counters.
    pub fn counters(&self) -> &Counters {
        self.io.counters()
    }

    /// An empty request of this connection, with the capacity of an earlier one.
    pub(crate) fn take_request(&self, facts: &Rc<ConnFacts>) -> Rc<Request> {
        let snapshot = self.snapshot.borrow();
        let spare = self.spare_requests.borrow_mut().pop();
        if let Some(mut request) = spare
            && let Some(unshared) = Rc::get_mut(&mut request)
        {
            unshared.reuse(facts, &snapshot);
            return request;
        }
        Rc::new(Request::new(facts, &snapshot))
    }

    /// Keeps a request's capacity for the next one, unless someone else still holds it, or it would
    /// keep an old configuration.
    pub(crate) fn return_request(&self, mut request: Rc<Request>) {
        let mut spare = self.spare_requests.borrow_mut();
        let is_current = Arc::ptr_eq(request.snapshot(), &self.snapshot.borrow());
        if is_current && spare.len() < SPARE_REQUESTS_MAX && Rc::get_mut(&mut request).is_some() {
            spare.push(request);
        }
    }

    /// Most bytes of one read of a head, and of the body behind it: where answers in flight have
    /// their share of memory, no more than each flow has pages for in any case.
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

    /// Looks at the number of a descriptor that was just opened for a client; where descriptors get
    /// scarce, others give way.
    pub fn note_descriptor(&self, number: u64) {
        if number >= self.first_spare_descriptor {
            self.make_room();
        }
    }

    /// Whether so many descriptors are open that no more connections are accepted: `next` is the
    /// number of the next one, if there is one.
    pub fn is_out_of_room(&self, next: Option<u64>) -> bool {
        next.is_none_or(|number| number >= self.first_reserved_descriptor)
    }

    /// Lets connections lead to servers in memory from now on.
    // tidy: public, because tests use it
    pub fn use_network(&self, network: Network) {
        self.network.replace(Some(network));
    }

    /// Connects to a server, which may take `read_timeout` for its answer.
    pub(crate) async fn connect(
        &self,
        addresses: &[IpAddr],
        port: u16,
        options: &ConnectOptions,
        read_timeout: Duration,
    ) -> Result<ServerExchange, ConnectError> {
        if let Some(network) = &*self.network.borrow() {
            let peer = addresses.first().map(|ip| SocketAddr::new(*ip, port));
            return network(peer.ok_or(ConnectError::NoAddress)?);
        }
        let connected = self.open_socket(addresses, port, options).await?;
        Ok(ServerExchange::new(&self.io, connected, false, read_timeout))
    }

    /// Connects; others give way where that takes a descriptor that is not there.
    async fn open_socket(
        &self,
        addresses: &[IpAddr],
        port: u16,
        options: &ConnectOptions,
    ) -> Result<Connected, ConnectError> {
        self.with_room(
            || connect::connect(addresses, port, options),
            |result| matches!(result, Err(ConnectError::NoDescriptor(_))),
        )
        .await
    }

    /// Looks up a name; others give way where that takes a descriptor that is not there.
    pub(crate) async fn look_up(&self, host: &str, asker: Asker) -> Answer {
        let resolver = self.resolver();
        self.with_room(
            || resolver.lookup(host, asker),
            |answer| *answer == Err(DnsError::NoDescriptor),
        )
        .await
    }

    /// Tries again while there is no descriptor, [`ROOM_TRIES_MAX`] times at most, and makes room
    /// before each time.
    async fn with_room<T, F: Future<Output = T>>(
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

    /// Descriptors are scarce: closes the client connections that have waited longest for a
    /// request, or whose clients may have left without a word; without any, what the pool keeps;
    /// without that, those of other cores. Says whether there was something here.
    pub fn make_room(&self) -> bool {
        let is_made = self.make_own_room();
        if !is_made {
            self.shared.ask_for_room(self.id);
        }
        is_made
    }

    /// [`Core::make_room`] without asking others.
    pub fn make_own_room(&self) -> bool {
        let closed =
            (0..GIVING_WAY).take_while(|_| self.io.deadlines.expire_first_in_line()).count();
        self.count(Counter::ClientsGivenWay, closed as u64);
        if closed == 0 {
            return self.pool.clear() > 0;
        }
        true
    }
}

/// Number of the first descriptor of those that are kept free.
fn first_spare_descriptor(limit: u64) -> u64 {
    limit - (limit / DESCRIPTORS_FREE_SHARE).min(DESCRIPTORS_FREE_MAX)
}

/// Number of the first descriptor of those that clients do not get.
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
