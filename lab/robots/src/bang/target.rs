//! From a URL to an address, a request, and its expected answer.

use super::{Bang, BangTarget};
use crate::expected::{Asked, AskedObject};
use crate::plan::{Route, TlsWay, scheme};
use crate::request::{Manner, write_connect, write_request, write_url};
use humboldt_lab_workload::{Ask, AskKind, ObjectName};
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};

/// Longer URLs are passed over; servers refuse them as well.
const URL_BYTES_MAX: usize = 8 * 1024;

/// Servers whose addresses are remembered, in direct runs.
const SERVERS_MAX: usize = 10_000;

/// The ports of URLs that name none.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) url: String,
    /// Host and port of the URL.
    pub(super) authority: String,
    pub(super) address: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) asked: Asked,
}

impl Prepared {
    /// The request for a tunnel to the server.
    pub(super) fn connect(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_connect(true, with_port(&self.authority, HTTPS_PORT).as_bytes(), &mut bytes);
        bytes
    }

    /// Whether every byte of the answer is known.
    pub(super) fn is_verified(&self) -> bool {
        matches!(self.asked, Asked::Object(_))
    }

    /// The name of the server with which TLS is spoken.
    pub(super) fn tls_name(&self, route: &Route) -> String {
        match route {
            Route::Accelerator { host, .. } => host.clone(),
            Route::Forward { .. } | Route::Direct => self.authority.clone(),
        }
    }
}

/// Prepares requests, and remembers the addresses of servers' names.
pub(super) struct Preparer<'b> {
    bang: &'b Bang,
    servers: HashMap<String, Option<SocketAddr>>,
    prepared: u64,
}

impl<'b> Preparer<'b> {
    pub(super) fn new(bang: &'b Bang) -> Self {
        Self { bang, servers: HashMap::new(), prepared: 0 }
    }

    /// The request for a target; an error names the reason why there is none.
    pub(super) fn prepare(
        &mut self,
        target: BangTarget,
        now_unix_us: u64,
    ) -> Result<Prepared, String> {
        self.prepared += 1;
        let (ask, origin) = match target {
            BangTarget::Url(url) => match self.lab_ask(&url) {
                Some(found) => found,
                None => return self.prepare_foreign(url),
            },
            BangTarget::Ask(ask) => (ask, None),
            BangTarget::NotYet => return Err("no target".into()),
        };
        self.prepare_ask(ask, origin, now_unix_us)
    }

    /// The laboratory's object that a URL names, and the server that it names.
    fn lab_ask(&self, url: &str) -> Option<(Ask, Option<String>)> {
        let world = self.bang.world.as_ref()?;
        let (authority, path) = self.split(url)?;
        let name = ObjectName::parse(path.as_bytes()).filter(|name| world.workload.knows(name))?;
        // Numbers far apart look like those of other runs do, and none is 0.
        let id = (self.prepared ^ world.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let ask = Ask {
            name,
            kind: AskKind::Plain,
            after_us: 0,
            id,
            repeat: false,
            abort: false,
            robot_luck: 0,
            server_luck: 0,
        };
        Some((ask, Some(authority.to_string())))
    }

    fn prepare_ask(
        &mut self,
        mut ask: Ask,
        origin: Option<String>,
        sent_unix_us: u64,
    ) -> Result<Prepared, String> {
        let Some(world) = &self.bang.world else {
            return Err("a request of a workload, but the banger was given none".into());
        };
        // The banger makes no tunnels: URLs that would need one are requested directly.
        if matches!(ask.kind, AskKind::Connect { .. }) {
            ask.kind = AskKind::Plain;
        }
        ask.abort = false;
        let own = || world.origins[ask.name.origin_index(world.origins.len())].to_string();
        let origin = origin.unwrap_or_else(own);
        let (workload, facts) = (&world.workload, world.workload.facts(world.seed, &ask.name));
        let mut bytes = Vec::new();
        write_url(workload, scheme(self.bang.tls.as_ref()), origin.as_bytes(), &ask, &mut bytes);
        let url = String::from_utf8_lossy(&bytes).into_owned();
        bytes.clear();
        let way = self.bang.tls.as_ref().map(|tls| tls.way);
        let tunnelled = way.is_some_and(TlsWay::has_tunnels);
        let manner = Manner { route: &self.bang.route, origin: origin.as_bytes(), tunnelled };
        write_request(workload, manner, &ask, &facts, sent_unix_us, &mut bytes);
        if !self.bang.keep_alive {
            insert_close(&mut bytes);
        }
        // Only a proxy that reads what is in its tunnels may answer from a store.
        let tunnelled = way == Some(TlsWay::Tunnel);
        let object = AskedObject { ask, facts, tunnelled, sent_unix_us, excuse_reload_hits: false };
        let address = self.address(&origin).ok_or_else(|| format!("{url}: no such server"))?;
        Ok(Prepared { url, authority: origin, address, bytes, asked: Asked::Object(object) })
    }

    fn prepare_foreign(&mut self, url: String) -> Result<Prepared, String> {
        if url.len() > URL_BYTES_MAX {
            return Err(format!("{:?}…: longer than {URL_BYTES_MAX} bytes", start(&url)));
        }
        let clean = url.bytes().all(|byte| byte.is_ascii_graphic());
        let Some((authority, path)) = self.split(&url).filter(|_| clean) else {
            let scheme = scheme(self.bang.tls.as_ref());
            return Err(format!("{:?}: no {scheme}:// URL of printable characters", start(&url)));
        };
        let address = self.address(authority).ok_or_else(|| format!("{url}: no such server"))?;
        let path = if path.is_empty() { "/" } else { path };
        let has_tunnels = self.bang.tls.as_ref().is_some_and(|tls| tls.way.has_tunnels());
        let (target, host) = match &self.bang.route {
            Route::Forward { .. } if has_tunnels => (path, authority),
            Route::Forward { .. } => (url.as_str(), authority),
            Route::Accelerator { host, .. } => (path, host.as_str()),
            Route::Direct => (path, authority),
        };
        let connection = if self.bang.keep_alive { "" } else { "Connection: close\r\n" };
        let fields = self.bang.url_fields;
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}{connection}\r\n");
        let (authority, bytes) = (authority.to_owned(), bytes.into_bytes());
        let asked = Asked::Foreign { hit_mark: self.bang.hit_mark };
        Ok(Prepared { authority, address, bytes, asked, url })
    }

    /// The address of this server. A name that does not resolve is remembered as well.
    fn address(&mut self, authority: &str) -> Option<SocketAddr> {
        match &self.bang.route {
            Route::Forward { proxies: addresses } | Route::Accelerator { addresses, .. } => {
                return addresses.first().copied();
            }
            Route::Direct => {}
        }
        if let Some(known) = self.servers.get(authority) {
            return *known;
        }
        let port = if self.bang.tls.is_some() { HTTPS_PORT } else { HTTP_PORT };
        let address =
            with_port(authority, port).to_socket_addrs().ok().and_then(|mut all| all.next());
        if self.servers.len() < SERVERS_MAX {
            self.servers.insert(authority.to_string(), address);
        }
        address
    }

    /// Server and path of a URL of the scheme that is asked for.
    fn split<'u>(&self, url: &'u str) -> Option<(&'u str, &'u str)> {
        let rest = url.strip_prefix(scheme(self.bang.tls.as_ref()))?;
        split(rest.strip_prefix("://")?)
    }
}

/// An authority with this port, if it has none.
fn with_port(authority: &str, port: u16) -> String {
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { authority.to_owned() } else { format!("{authority}:{port}") }
}

/// As much of a URL as a line of a terminal shows.
fn start(url: &str) -> String {
    url.chars().take(80).collect()
}

/// Server and path of a URL without its scheme, without user names and fragments, which are never
/// sent.
fn split(rest: &str) -> Option<(&str, &str)> {
    let begin = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(begin);
    let usable = !authority.is_empty()
        && !authority.contains('@')
        && !rest.contains('#')
        && !path.starts_with('?');
    usable.then_some((authority, path))
}

/// Puts `Connection: close` after the first line.
fn insert_close(request: &mut Vec<u8>) {
    if let Some(line_end) = request.windows(2).position(|two| two == b"\r\n") {
        request.splice(line_end + 2..line_end + 2, *b"Connection: close\r\n");
    }
}
