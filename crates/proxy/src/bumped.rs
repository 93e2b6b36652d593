//! Connections whose TLS is intercepted: what is learnt about them step by step, and what is known
//! inside of one that is decrypted.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use humboldt_base::bump::{BumpAction, BumpFacts, BumpStep, ClientHello, ServerIdentity};
use humboldt_http::Url;
use humboldt_net::connect::Connected;
use humboldt_net::pool::{Pool, PoolLimits, ServerRef};

use crate::request::Request;

/// The facts change at each step, and with the last action.
const CHANGES: usize = BumpStep::ALL.len() + 1;

/// The facts of a connection as they become known. Rules and logs see the newest.
#[derive(Debug)]
pub(crate) struct Steps {
    changes: [OnceCell<Box<BumpFacts>>; CHANGES],
}

impl Steps {
    /// Those at the first step.
    pub(crate) fn new(connect_host: &str) -> Self {
        let steps = Self { changes: Default::default() };
        steps.change(BumpFacts::new(connect_host));
        steps
    }

    /// What is known now.
    pub(crate) fn newest(&self) -> Option<&BumpFacts> {
        self.changes.iter().rev().find_map(OnceCell::get).map(|facts| &**facts)
    }

    fn change(&self, facts: BumpFacts) {
        if let Some(place) = self.changes.iter().find(|change| change.get().is_none()) {
            _ = place.set(Box::new(facts));
        }
    }

    /// After this action the client's first message is known.
    pub(crate) fn heard(&self, action: BumpAction, hello: ClientHello) {
        if let Some(facts) = self.newest().cloned() {
            let (action, hello) = (Some(action), Some(hello));
            self.change(BumpFacts { step: BumpStep::Two, action, hello, ..facts });
        }
    }

    /// After this action the server has answered.
    pub(crate) fn answered(&self, action: BumpAction, server: Option<Rc<ServerIdentity>>) {
        if let Some(facts) = self.newest().cloned() {
            let action = Some(action);
            self.change(BumpFacts { step: BumpStep::Three, action, server, ..facts });
        }
    }

    /// The last action.
    pub(crate) fn end(&self, action: BumpAction) {
        if let Some(facts) = self.newest().cloned() {
            self.change(BumpFacts { action: Some(action), ..facts });
        }
    }
}

/// The tunnel that a connection is inside of.
pub(crate) struct Inside {
    /// The server that the certificate is for, in the form of [`Url::host`].
    pub(crate) host: Box<[u8]>,
    /// Its port.
    pub(crate) port: u16,
    /// Both, as a field Host.
    authority: Box<[u8]>,
    /// The request for the tunnel.
    pub(crate) connect: Rc<Request>,
    /// What was learnt before.
    pub(crate) facts: BumpFacts,
    /// The answer to all requests: a [`Verdict`](crate::special::bump::Verdict).
    verdict: Option<Box<dyn Any>>,
    /// Unused tunnels through parents that have opened them for this client alone.
    tunnels: Pool,
    is_over: Cell<bool>,
}

/// Most unused tunnels through parents that a connection keeps for itself.
const OWN_TUNNELS_MAX: usize = 4;

impl Inside {
    /// Inside of the tunnel that leads to the host and port of `named`.
    pub(crate) fn new(
        named: &Request,
        connect: &Rc<Request>,
        facts: BumpFacts,
        verdict: Option<Box<dyn Any>>,
    ) -> Self {
        let mut url = Url::default();
        let place = named.url.authority();
        // It is one already.
        let is_set = url.set_parts(b"https", place, b"/").is_ok();
        let authority = if is_set { url.authority() } else { place };
        Self {
            host: named.url.host().into(),
            port: named.url.port(),
            authority: authority.into(),
            connect: Rc::clone(connect),
            facts,
            verdict,
            tunnels: Pool::new(PoolLimits {
                per_key: OWN_TUNNELS_MAX,
                total: OWN_TUNNELS_MAX,
                idle: connect.snapshot().config.server_idle_pconn_timeout,
            }),
            is_over: Cell::new(false),
        }
    }

    /// Keeps a tunnel through a parent until the connection ends.
    pub(crate) fn keep(&self, server: &ServerRef<'_>, connected: Connected) {
        // A request may outlive its connection, where it goes on in the background.
        if !self.is_over.get() {
            self.tunnels.checkin(server, connected);
        }
    }

    /// One that was kept.
    pub(crate) fn kept(
        &self,
        server: &ServerRef<'_>,
        may_use: impl Fn(&Connected) -> bool,
    ) -> Option<Connected> {
        self.tunnels.checkout(server, may_use)
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.tunnels.clear();
    }

    /// The answer to all requests, if no server is asked.
    pub(crate) fn verdict<V: 'static>(&self) -> Option<&V> {
        self.verdict.as_ref()?.downcast_ref()
    }

    /// Whether there is one.
    pub(crate) fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// The host of requests that name none.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// Whether a URL leads to the server that the client knows it talks to.
    pub(crate) fn is_about(&self, url: &Url) -> bool {
        url.scheme() == b"https" && url.host() == &*self.host && url.port() == self.port
    }

    /// Whether the client has been shown that something is wrong with the server's certificate.
    /// Nothing of that is for others.
    pub(crate) fn shows_faults(&self) -> bool {
        !self.facts.faults().is_empty()
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inside").field(&String::from_utf8_lossy(&self.authority)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_see_the_newest_facts() {
        let steps = Steps::new("WWW.a.test");
        let facts = || steps.newest().expect("facts").clone();
        assert_eq!((facts().step, facts().action), (BumpStep::One, None));
        let hello = ClientHello { sni: Some("b.test".into()), ..ClientHello::default() };
        steps.heard(BumpAction::Stare, hello);
        assert_eq!((facts().step, facts().sni()), (BumpStep::Two, Some("b.test")));
        let server = ServerIdentity { faults: vec!["X"], ..ServerIdentity::default() };
        steps.answered(BumpAction::Stare, Some(Rc::new(server)));
        assert_eq!((facts().step, facts().faults()), (BumpStep::Three, &["X"][..]));
        steps.end(BumpAction::Bump);
        let last = facts();
        assert_eq!((last.action, last.sni()), (Some(BumpAction::Bump), Some("b.test")));
        assert_eq!(&*last.connect_host, "www.a.test");
    }
}
