//! Requests for tunnels that are intercepted, and those that come inside of one.

use std::cell::{OnceCell, RefCell};

use humboldt_base::bump::BumpFacts;
use humboldt_http::Target;

use super::Request;
use crate::bumped::Inside;
use crate::errors::ErrorPage;

impl Request {
    /// The URL of a request inside of a tunnel, which is for the server of the tunnel alone. What
    /// the certificate says of others, nobody has verified (RFC 9110 7.4).
    pub(super) fn set_inner_url(&mut self, inside: &Inside) -> Result<(), ErrorPage> {
        if self.head.target == Target::Authority {
            return Err(ErrorPage::MethodNotAllowed);
        }
        let default_host = Some(inside.authority());
        let set = self.url.set_from_request(&self.head, b"https", default_host);
        set.map_err(|_| ErrorPage::InvalidUrl)?;
        if inside.is_about(&self.url) { Ok(()) } else { Err(ErrorPage::Misdirected) }
    }

    /// The request for the tunnel with another host and the same port, which no rule has seen.
    /// `None`: it is no host.
    pub(crate) fn to_host(&self, host: &str) -> Option<Self> {
        let mut copy = self.clone();
        let place = match host.contains(':') {
            true => format!("[{host}]:{}", self.url.port()),
            false => format!("{host}:{}", self.url.port()),
        };
        copy.url.set_authority(place.as_bytes()).ok()?;
        copy.addresses = OnceCell::new();
        copy.permitted = RefCell::default();
        copy.is_verified = OnceCell::new();
        copy.forget_judgements();
        Some(copy)
    }

    /// The request by which the server of the tunnel is looked at. It takes the way that those
    /// inside of the tunnel take.
    pub(crate) fn looking(&self) -> Self {
        let mut copy = self.clone();
        copy.looks_at_server = true;
        copy.head.set_line(b"GET", b"/", Target::Origin, self.head.version);
        let place = self.url.authority().to_vec();
        // It is one already.
        _ = copy.url.set_parts(b"https", &place, b"/");
        copy
    }

    /// What is known about the interception of its connection, or of the tunnel around it.
    pub(crate) fn bump(&self) -> Option<&BumpFacts> {
        match self.bump.get() {
            Some(steps) => steps.newest(),
            None => self.facts.inside.as_ref().map(|inside| &inside.facts),
        }
    }

    /// The tunnel that it is inside of.
    pub(crate) fn inside(&self) -> Option<&Inside> {
        self.facts.inside.as_deref()
    }

    /// Whether it must not leave in clear text: it has come in an intercepted tunnel.
    pub(crate) fn is_confidential(&self) -> bool {
        self.looks_at_server || self.facts.inside.is_some() && self.url.scheme() == b"https"
    }

    /// Whether TLS is spoken with its server.
    pub(crate) fn is_secure(&self) -> bool {
        self.looks_at_server || self.url.scheme() == b"https"
    }

    /// Whether an intercepted request goes to an address that is not known to be its host's. What
    /// comes from there, and what it asks for, is nothing to the cache.
    pub(crate) fn goes_astray(&self) -> bool {
        self.is_verified.get() == Some(&false)
    }

    /// Whether it is nothing to the cache, because its address is not its host's, or because the
    /// client has been shown that something is wrong with the server's certificate.
    pub(crate) fn is_not_for_others(&self) -> bool {
        self.goes_astray() || self.inside().is_some_and(Inside::shows_faults)
    }
}
