//! An origin with a proxy in front: the stage of most scenarios.

use crate::client::{Client, Response};
use crate::origin::Origin;
use crate::proxy::Proxy;

/// An origin and a proxy that leads to it.
pub struct World {
    /// The origin.
    pub origin: Origin,
    /// The proxy in front of it.
    pub proxy: Proxy,
    is_reverse: bool,
}

impl World {
    /// A forward proxy with these configuration lines.
    #[must_use]
    pub fn forward(lines: &str) -> Self {
        Self { origin: Origin::new(), proxy: Proxy::forward(lines), is_reverse: false }
    }

    /// An accelerator with these configuration lines.
    #[must_use]
    pub fn reverse(lines: &str) -> Self {
        let origin = Origin::new();
        let proxy = Proxy::reverse(origin.address(), lines);
        Self { origin, proxy, is_reverse: true }
    }

    /// The form in which a client names a path of the origin to this proxy.
    #[must_use]
    pub fn target(&self, path: &str) -> String {
        if self.is_reverse { path.to_owned() } else { self.origin.url(path) }
    }

    /// The authority that belongs into Host.
    #[must_use]
    pub fn host(&self) -> String {
        if self.is_reverse { "site.test".to_owned() } else { self.origin.address().to_string() }
    }

    /// A new connection to the proxy.
    #[must_use]
    #[track_caller]
    pub fn client(&self) -> Client {
        self.proxy.client()
    }

    /// GET on a connection of its own.
    #[must_use]
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.ask("GET", path, &[])
    }

    /// A request without a body, on a connection of its own.
    #[must_use]
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut client = self.client();
        client.request(method, &self.target(path), fields, b"");
        client.response_to(method)
    }

    /// [`Proxy::metric`] of the proxy.
    #[must_use]
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        self.proxy.metric(name)
    }
}
