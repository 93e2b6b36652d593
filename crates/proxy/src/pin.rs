//! A connection to a server that belongs to one connection of a client.
//!
//! NTLM, Negotiate and Kerberos log a connection in, not a request (against RFC 9110 11.7.3). After
//! a login at a server, all requests on the connection to it are those of the user. So it is never
//! pooled: it serves the client's connection that has logged in on it, and ends with that.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use humboldt_base::bump::ServerIdentity;
use humboldt_net::connect::Connected;
use humboldt_net::pool::{Poolable, ServerKey, ServerRef};

/// The connection to a server that belongs to a client's connection, if there is one. A later one
/// takes its place.
#[derive(Default)]
pub(crate) struct Pin {
    pinned: RefCell<Option<Box<Pinned>>>,
    is_over: Cell<bool>,
}

/// For whom a request is. A proxy before this one may send those of several on one connection.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Owner<'a> {
    /// The client behind trusted proxies, or that of the connection.
    pub(crate) client: IpAddr,
    /// The user who has logged in here; `None` if no rule has asked.
    pub(crate) user: Option<&'a str>,
}

struct Pinned {
    /// The server as the URL names it.
    host: Box<[u8]>,
    port: u16,
    /// The server as the pool knows it: the parent, if there is one.
    server: ServerKey,
    /// `None` while a request uses it.
    connection: Option<Connected>,
    /// See [`Owner`].
    client: IpAddr,
    user: Option<Box<str>>,
    /// Its certificate, if rules have judged that. A fault was forgiven, and may be no more.
    seen: Option<Rc<ServerIdentity>>,
}

/// A connection, and the certificate of its server if rules have judged it.
pub(crate) type Judged = (Connected, Option<Rc<ServerIdentity>>);

impl Pin {
    /// Whether there is one for requests to this host. One of another owner ends here.
    pub(crate) fn is_for(&self, host: &[u8], port: u16, owner: Owner<'_>) -> bool {
        self.drop_others(owner);
        let pinned = self.pinned.borrow();
        pinned.as_ref().is_some_and(|pinned| *pinned.host == *host && pinned.port == port)
    }

    /// Whether there is one to this server. One of another owner ends here.
    pub(crate) fn leads_to(&self, server: &ServerRef<'_>, owner: Owner<'_>) -> bool {
        self.drop_others(owner);
        let pinned = self.pinned.borrow();
        pinned.as_ref().is_some_and(|pinned| is_same(server, &pinned.server))
    }

    fn drop_others(&self, owner: Owner<'_>) {
        let is_others = |pinned: &Pinned| !pinned.is_of(owner);
        if self.pinned.borrow().as_deref().is_some_and(is_others) {
            self.pinned.take();
        }
    }

    /// Takes the connection to this server, unless the server has closed it, or `may_use` objects.
    pub(crate) fn take(
        &self,
        server: &ServerRef<'_>,
        owner: Owner<'_>,
        may_use: impl Fn(&Connected) -> bool,
    ) -> Option<Judged> {
        self.drop_others(owner);
        let mut pinned = self.pinned.borrow_mut();
        let pinned = pinned.as_deref_mut().filter(|pinned| is_same(server, &pinned.server))?;
        let connection = pinned.connection.take()?;
        let may_use = connection.is_reusable() && may_use(&connection);
        may_use.then(|| (connection, pinned.seen.clone()))
    }

    /// Keeps a connection for further requests to this host.
    pub(crate) fn put(
        &self,
        (host, port): (&[u8], u16),
        server: &ServerRef<'_>,
        owner: Owner<'_>,
        (connection, seen): Judged,
    ) {
        // A request may outlive its connection, where it goes on in the background.
        if !self.is_over.get() {
            let pinned = Pinned {
                host: host.into(),
                port,
                server: ServerKey::from(server),
                connection: Some(connection),
                client: owner.client,
                user: owner.user.map(Box::from),
                seen,
            };
            self.pinned.replace(Some(Box::new(pinned)));
        }
    }

    /// The client's connection has ended.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.pinned.take();
    }
}

impl Pinned {
    /// Whether it is for this client, and for this user as far as both are known.
    fn is_of(&self, owner: Owner<'_>) -> bool {
        let users = self.user.as_deref().zip(owner.user);
        self.client == owner.client && users.is_none_or(|(own, other)| own == other)
    }
}

fn is_same(server: &ServerRef<'_>, key: &ServerKey) -> bool {
    (server.host, server.port, server.tls, server.local)
        == (&*key.host, key.port, key.tls, key.local)
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let server = self.pinned.borrow().as_ref().map(|pinned| pinned.server.clone());
        f.debug_tuple("Pin").field(&server).finish()
    }
}
