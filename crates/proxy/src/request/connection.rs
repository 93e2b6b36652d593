//! Facts about the connection that brought a request.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

use humboldt_base::notes::Notes;
use humboldt_conf::HttpPort;
use humboldt_logins::ConnectionLogin;
use humboldt_net::tls::TlsFacts;
use humboldt_sys::conntrack;

use crate::bumped::Inside;
use crate::client_counts::Connections;
use crate::pin::Pin;
use crate::request::unmapped;

/// Facts about the connection that brought a request.
#[derive(Debug)]
pub(crate) struct ConnFacts {
    /// The core that serves the connection.
    pub core: usize,
    /// The client's address.
    pub client: SocketAddr,
    /// Our address on the connection.
    pub local: SocketAddr,
    /// The address that the client of an intercepted connection connected to.
    pub original: Option<SocketAddr>,
    /// The address that the client connected to at the load balancer before this proxy.
    pub announced: Option<SocketAddr>,
    /// The `http_port` that accepted it.
    pub port: Arc<HttpPort>,
    /// Number of open connections of the client, if a rule asks for it.
    pub(crate) connections: Option<Connections>,
    /// The facts about its TLS, if it has any.
    pub(crate) tls: OnceCell<Box<TlsFacts>>,
    /// Annotations, for all its requests.
    pub(crate) notes: RefCell<Notes>,
    /// The login of the connection, with schemes that log connections in.
    pub(crate) login: ConnectionLogin,
    /// The connection to a server that belongs to this one.
    pub(crate) pin: Pin,
    /// The hardware address of the client when it connected, if a rule may ask for it and the
    /// kernel could tell.
    pub(crate) hardware: Option<Option<[u8; 6]>>,
    /// Its netfilter mark, once a rule has asked for it, or that the kernel could not tell it.
    pub(crate) mark: Cell<Option<Option<u32>>>,
    /// The tunnel that it is inside of, if it is inside of an intercepted one.
    pub(crate) inside: Option<Box<Inside>>,
    /// It is about to go on inside of its tunnel, with a
    /// [`HandOver`](crate::special::bump::HandOver).
    pub(crate) hand_over: RefCell<Option<Box<dyn Any>>>,
}

impl ConnFacts {
    /// Of a client that has sent a datagram to this core.
    pub(crate) fn of_datagram(
        core: usize,
        (client, local): (SocketAddr, SocketAddr),
        port: Arc<HttpPort>,
    ) -> Self {
        Self {
            core,
            client,
            local,
            original: None,
            announced: None,
            port,
            tls: OnceCell::new(),
            connections: None,
            notes: RefCell::default(),
            login: ConnectionLogin::default(),
            pin: Pin::default(),
            hardware: None,
            mark: Cell::default(),
            inside: None,
            hand_over: RefCell::default(),
        }
    }

    /// The address that the client connected to, as rules and logs see it.
    pub(crate) fn chosen(&self) -> SocketAddr {
        self.original.or(self.announced).unwrap_or(self.local)
    }

    /// The connection has ended. Requests that go on in the background still have its addresses.
    pub(crate) fn end(&self) {
        self.login.end();
        self.pin.end();
        if let Some(inside) = &self.inside {
            inside.end();
        }
        // Outside of the cell: it writes a line of its own.
        drop(self.hand_over.take());
    }

    /// The two ends of the connection, as its first packet had them. `None` if a load balancer has
    /// told other ones.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let plain = |end: SocketAddr| SocketAddr::new(unmapped(end.ip()), end.port());
        let server = self.original.unwrap_or(self.local);
        self.announced.is_none().then(|| (plain(self.client), plain(server)))
    }

    /// The mark of the connection; `None` if the kernel cannot tell. It is asked once for a
    /// connection, as in Squid.
    pub(crate) fn netfilter_mark(&self) -> Option<u32> {
        if let Some(known) = self.mark.get() {
            return known;
        }
        let mark = self.ends().and_then(|(client, server)| conntrack::mark(client, server).ok());
        self.mark.set(Some(mark));
        mark
    }
}
