//! Idle connections to servers, kept for the next request: one pool per core.
//!
//! The most recently used connection of a key is taken first, so that the others can grow old and
//! be closed. A connection of which this core has heard that the server closed it, or said
//! something unasked, is never handed out.

use std::cell::RefCell;
use std::hash::Hash;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use humboldt_sys::tcp::PeerState;
use tokio::io::Interest;
use tokio::time::Instant;

use crate::Stream;
use crate::connect::Connected;
use crate::marks::PacketMarks;

/// Bounds of one core's pool.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Most idle connections of one key: beyond it the oldest of that key is closed.
    pub per_key: usize,
    /// Most idle connections of this core: beyond it a connection is closed instead of kept.
    pub total: usize,
    /// How long an idle connection is kept (`server_idle_pconn_timeout`).
    pub idle: Duration,
}

impl Default for PoolLimits {
    /// 64 per server, 1024 in all, one minute (Squid's default).
    fn default() -> Self {
        Self { per_key: 64, total: 1024, idle: Duration::from_secs(60) }
    }
}

/// Something that can be pooled.
pub trait Poolable {
    /// Whether the other side has neither closed nor sent anything, as far as this core's event
    /// loop knows. An event of the same turn of the loop is noticed only when the connection is
    /// used, like an event right after. So only requests that can be sent again use a connection
    /// twice.
    fn is_reusable(&self) -> bool;
}

impl Poolable for Stream {
    /// Without a system call, unless something has happened since the last reading.
    fn is_reusable(&self) -> bool {
        if let Self::Tls(tls) = self {
            return tls.is_quiet();
        }
        let happened = self.try_io(Interest::READABLE, || match self.peer_state() {
            PeerState::Quiet => Err(io::ErrorKind::WouldBlock.into()),
            state @ (PeerState::Sent | PeerState::Closed) => Ok(state),
        });
        happened.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl Poolable for Connected {
    fn is_reusable(&self) -> bool {
        self.stream.is_reusable()
    }
}

/// To which server a connection leads, as a key that owns its name. Look-ups use [`ServerRef`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerKey {
    /// Name or address as text, lower case; or the name of a peer, with a prefix that no host name
    /// has.
    pub host: Box<[u8]>,
    /// TCP port.
    pub port: u16,
    /// Number of the settings of TLS by which it was verified; 0 without TLS.
    pub tls: u32,
    /// From where.
    pub local: Local,
}

/// What rules want for our side of connections (`tcp_outgoing_address`, `tcp_outgoing_tos`,
/// `tcp_outgoing_mark`). A connection that has one is not used by requests that need another.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Local {
    /// When the server's address is IPv4.
    pub v4: Option<Ipv4Addr>,
    /// When the server's address is IPv6.
    pub v6: Option<Ipv6Addr>,
    /// They are a client's, not this machine's (`tproxy`).
    pub is_foreign: bool,
    /// Marks of packets.
    pub marks: PacketMarks,
}

/// A [`ServerKey`] that borrows its name: finding a connection allocates nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerRef<'a> {
    /// See [`ServerKey::host`].
    pub host: &'a [u8],
    /// TCP port.
    pub port: u16,
    /// See [`ServerKey::tls`].
    pub tls: u32,
    /// From where.
    pub local: Local,
}

impl Equivalent<ServerKey> for ServerRef<'_> {
    fn equivalent(&self, key: &ServerKey) -> bool {
        self.port == key.port
            && self.tls == key.tls
            && self.local == key.local
            && *self.host == *key.host
    }
}

impl From<&ServerRef<'_>> for ServerKey {
    fn from(server: &ServerRef<'_>) -> Self {
        Self { host: server.host.into(), port: server.port, tls: server.tls, local: server.local }
    }
}

struct Idle<T> {
    connection: T,
    since: Instant,
}

struct Lists<K, T> {
    /// A list may be empty until the next sweep, so that a busy key does not allocate again and
    /// again.
    by_key: HashMap<K, Vec<Idle<T>>>,
    total: usize,
}

/// The pool of one core.
pub struct Pool<K = ServerKey, T = Connected> {
    lists: RefCell<Lists<K, T>>,
    limits: PoolLimits,
}

impl<K: Eq + Hash, T: Poolable> Pool<K, T> {
    /// An empty pool.
    pub fn new(limits: PoolLimits) -> Self {
        Self { lists: RefCell::new(Lists { by_key: HashMap::new(), total: 0 }), limits }
    }

    /// Takes the most recently used connection of `key` that is still good, of those that `may_use`
    /// agrees to; those found bad are closed.
    pub fn checkout<Q: Hash + Equivalent<K>>(
        &self,
        key: &Q,
        may_use: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let now = Instant::now();
        let mut guard = self.lists.borrow_mut();
        let lists = &mut *guard;
        let list = lists.by_key.get_mut(key)?;
        while let Some(at) = list.iter().rposition(|idle| may_use(&idle.connection)) {
            let idle = list.remove(at);
            lists.total -= 1;
            if now.duration_since(idle.since) < self.limits.idle && idle.connection.is_reusable() {
                return Some(idle.connection);
            }
        }
        None
    }

    /// Keeps a connection whose last message is complete, within the limits.
    pub fn checkin<Q>(&self, key: &Q, connection: T)
    where
        Q: Hash + Equivalent<K>,
        K: for<'k> From<&'k Q>,
    {
        let mut guard = self.lists.borrow_mut();
        let lists = &mut *guard;
        if self.limits.per_key == 0 || lists.total >= self.limits.total {
            return;
        }
        let idle = Idle { connection, since: Instant::now() };
        match lists.by_key.get_mut(key) {
            Some(list) => {
                if list.len() >= self.limits.per_key {
                    list.remove(0);
                    lists.total -= 1;
                }
                list.push(idle);
            }
            None => {
                lists.by_key.insert(K::from(key), vec![idle]);
            }
        }
        lists.total += 1;
    }

    /// Closes connections that were idle too long or were closed by their server, and forgets
    /// unused keys. Returns the number of closed ones. To be called every few seconds.
    pub fn sweep(&self) -> usize {
        let now = Instant::now();
        let mut guard = self.lists.borrow_mut();
        let before = guard.total;
        let mut left = 0;
        guard.by_key.retain(|_, list| {
            list.retain(|idle| {
                now.duration_since(idle.since) < self.limits.idle && idle.connection.is_reusable()
            });
            left += list.len();
            !list.is_empty()
        });
        if guard.by_key.is_empty() {
            guard.by_key.shrink_to_fit();
        }
        guard.total = left;
        before - left
    }

    /// Closes all connections, and returns their number: at shutdown, when a reconfiguration
    /// changed the routes to servers, or when descriptors are scarce.
    pub fn clear(&self) -> usize {
        let mut guard = self.lists.borrow_mut();
        guard.by_key = HashMap::new();
        std::mem::take(&mut guard.total)
    }

    #[cfg(test)]
    fn idle_count(&self) -> usize {
        self.lists.borrow().total
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const LOCAL: Local =
        Local { v4: None, v6: None, is_foreign: false, marks: PacketMarks { tos: 0, mark: 0 } };
    const A: ServerRef<'static> = ServerRef { host: b"a.example", port: 80, tls: 0, local: LOCAL };
    const B: ServerRef<'static> = ServerRef { host: b"a.example", port: 81, tls: 0, local: LOCAL };

    fn take(pool: &Pool<ServerKey, Stream>, key: ServerRef<'_>) -> Option<Stream> {
        pool.checkout(&key, |_| true)
    }

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (ours, theirs) = tokio::join!(connecting, listener.accept());
        (ours.unwrap().into(), theirs.unwrap().0)
    }

    fn pool(limits: PoolLimits) -> Pool<ServerKey, Stream> {
        Pool::new(limits)
    }

    fn port(stream: &Stream) -> u16 {
        stream.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn the_latest_connection_of_the_key_comes_first() {
        let pool = pool(PoolLimits::default());
        let (first, _keep1) = pair().await;
        let (second, _keep2) = pair().await;
        let ports = [port(&first), port(&second)];
        pool.checkin(&A, first);
        pool.checkin(&A, second);
        assert!(take(&pool, B).is_none(), "another port is another server");
        assert_eq!(pool.idle_count(), 2);
        assert_eq!(port(&take(&pool, A).unwrap()), ports[1]);
        assert_eq!(port(&take(&pool, A).unwrap()), ports[0]);
        assert!(take(&pool, A).is_none());
        assert_eq!(pool.idle_count(), 0);
    }

    #[tokio::test]
    async fn closed_and_talkative_connections_are_never_handed_out() {
        let pool = pool(PoolLimits::default());
        let (good, _keep) = pair().await;
        let (closed, theirs) = pair().await;
        drop(theirs);
        closed.ready(Interest::READABLE).await.unwrap();
        let (talks, mut theirs) = pair().await;
        theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        talks.ready(Interest::READABLE).await.unwrap();
        let good_port = port(&good);
        for stream in [good, closed, talks] {
            pool.checkin(&A, stream);
        }
        assert_eq!(port(&take(&pool, A).unwrap()), good_port);
        assert_eq!(pool.idle_count(), 0, "the bad ones are gone");
    }

    #[tokio::test]
    async fn limits_hold() {
        let limits = PoolLimits { per_key: 2, total: 3, idle: Duration::from_secs(60) };
        let pool = pool(limits);
        let mut keep = Vec::new();
        let mut ports = Vec::new();
        for key in [A, A, A, B, B] {
            let (ours, theirs) = pair().await;
            ports.push(port(&ours));
            keep.push(theirs);
            pool.checkin(&key, ours);
        }
        assert_eq!(pool.idle_count(), 3);
        assert_eq!(port(&take(&pool, B).unwrap()), ports[3], "the fifth found the pool full");
        assert_eq!(port(&take(&pool, A).unwrap()), ports[2]);
        assert_eq!(port(&take(&pool, A).unwrap()), ports[1], "the oldest of its key made room");
        assert!(take(&pool, A).is_none());
        let off = Pool::<ServerKey, Stream>::new(PoolLimits { per_key: 0, ..limits });
        off.checkin(&A, pair().await.0);
        assert_eq!(off.idle_count(), 0);
    }

    #[tokio::test]
    async fn a_sweep_closes_what_is_old_or_closed_and_forgets_the_key() {
        let pool = pool(PoolLimits { idle: Duration::from_secs(60), ..PoolLimits::default() });
        let (young, _keep1) = pair().await;
        let (old, _keep2) = pair().await;
        let (closed, theirs) = pair().await;
        drop(theirs);
        closed.ready(Interest::READABLE).await.unwrap();
        pool.checkin(&A, old);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        pool.checkin(&A, young);
        pool.checkin(&B, closed);
        assert_eq!(pool.sweep(), 2);
        assert_eq!((pool.idle_count(), pool.lists.borrow().by_key.len()), (1, 1));
        pool.clear();
        assert_eq!(pool.idle_count(), 0);
    }

    #[tokio::test]
    async fn an_idle_connection_older_than_the_limit_is_not_handed_out_even_before_a_sweep() {
        let pool: Pool =
            Pool::new(PoolLimits { idle: Duration::from_secs(60), ..PoolLimits::default() });
        let (stream, _keep) = pair().await;
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
        pool.checkin(&A, Connected { stream, peer });
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(pool.checkout(&A, |_| true).is_none());
    }

    #[tokio::test]
    async fn a_connection_is_for_those_who_come_from_the_same_address_and_agree_to_it() {
        let pool = pool(PoolLimits::default());
        let from = |last| Local { v4: Some(Ipv4Addr::new(127, 0, 0, last)), ..LOCAL };
        let (guests, staff) =
            (ServerRef { local: from(2), ..A }, ServerRef { local: from(3), ..A });
        let (first, _keep1) = pair().await;
        let (second, _keep2) = pair().await;
        let ports = [port(&first), port(&second)];
        pool.checkin(&guests, first);
        pool.checkin(&guests, second);
        assert!(take(&pool, staff).is_none() && take(&pool, A).is_none());
        assert!(pool.checkout(&guests, |_| false).is_none(), "nobody agrees");
        assert_eq!(pool.idle_count(), 2, "what one does not agree to stays for others");
        let older = pool.checkout(&guests, |stream| port(stream) == ports[0]).unwrap();
        assert_eq!((port(&older), pool.idle_count()), (ports[0], 1));
        assert_eq!(take(&pool, guests).map(|stream| port(&stream)), Some(ports[1]));
    }
}
