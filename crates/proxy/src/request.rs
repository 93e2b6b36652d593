//! One request as the pipeline knows it, whatever protocol brought it.

use std::cell::{OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{HttpPort, PortMode};
use humboldt_exchange::BodyLength;
use humboldt_freshness::CacheControl;
use humboldt_http::{FieldName, Method, RequestHead, Target, Url};
use humboldt_net::dns::Answer;
use humboldt_store::Key;

use crate::client_counts::Connections;
use crate::config::snapshot::Snapshot;
use crate::errors::ErrorPage;

/// What is known of the connection a request came on.
#[derive(Clone, Debug)]
pub(crate) struct ConnFacts {
    /// The client's address.
    pub client: SocketAddr,
    /// Our address on the connection.
    pub local: SocketAddr,
    /// The `http_port` that accepted it.
    pub port: Arc<HttpPort>,
    /// Open connections of the client, where a rule asks for them.
    pub(crate) connections: Option<Connections>,
}

/// One request. Kept in reusable buffers: see [`Request::reuse`].
pub(crate) struct Request {
    /// The head as parsed.
    pub head: RequestHead,
    /// The canonical URL; for CONNECT `host:port`.
    pub url: Url,
    /// Key of the URL.
    pub key: Key,
    /// Cache-Control of the request.
    pub cc: CacheControl,
    /// The length of the body.
    pub body: BodyLength,
    /// When the head was complete.
    pub received: UnixMillis,
    /// The client behind trusted proxies (`follow_x_forwarded_for`), if there is one.
    pub indirect_client: Option<IpAddr>,
    /// The addresses of the URL's host, or why there are none, once they were needed. They are
    /// looked up once: the addresses that rules judged are those that are connected to, however
    /// long that takes and however often it is tried.
    pub(crate) addresses: OnceCell<Answer>,
    /// Those of `addresses` that rules permit one by one; `None`: all of them.
    pub(crate) permitted: RefCell<Option<Arc<[IpAddr]>>>,
    /// The connection it came on.
    facts: Rc<ConnFacts>,
    /// The configuration it is served under.
    snapshot: Arc<Snapshot>,
}

impl Request {
    /// An empty request.
    pub(crate) fn new(facts: &Rc<ConnFacts>, snapshot: &Arc<Snapshot>) -> Self {
        Self {
            head: RequestHead::default(),
            url: Url::default(),
            key: Key(0),
            cc: CacheControl::default(),
            body: BodyLength::None,
            received: UnixMillis::default(),
            indirect_client: None,
            addresses: OnceCell::new(),
            permitted: RefCell::default(),
            facts: Rc::clone(facts),
            snapshot: Arc::clone(snapshot),
        }
    }

    /// Forgets the request and keeps its buffers for another one.
    pub(crate) fn reuse(&mut self, facts: &Rc<ConnFacts>, snapshot: &Arc<Snapshot>) {
        self.head.clear();
        self.url.clear();
        self.key = Key(0);
        self.cc = CacheControl::default();
        self.body = BodyLength::None;
        self.indirect_client = None;
        self.addresses = OnceCell::new();
        self.permitted = RefCell::default();
        if !Rc::ptr_eq(&self.facts, facts) {
            self.facts = Rc::clone(facts);
        }
        if !Arc::ptr_eq(&self.snapshot, snapshot) {
            self.snapshot = Arc::clone(snapshot);
        }
    }

    /// Fills in everything that follows from the parsed head: URL, key, directives. The URL's
    /// authority wins over `Host` (RFC 9112 3.2.2).
    pub(crate) fn complete(&mut self, body: BodyLength, now: UnixMillis) -> Result<(), ErrorPage> {
        (self.body, self.received) = (body, now);
        let facts = Rc::clone(&self.facts);
        self.set_url(&facts)?;
        self.key = Key::primary(self.url.as_bytes());
        if !facts.port.ignore_cc {
            self.cc = CacheControl::of_request(&self.head.fields);
        }
        if self.snapshot.config.normalize_accept_encoding {
            self.normalize_encoding();
        }
        Ok(())
    }

    /// `normalize_accept_encoding`: what is asked for and what answers vary by are the same.
    fn normalize_encoding(&mut self) {
        let fields = &mut self.head.fields;
        if !fields.has(FieldName::AcceptEncoding) {
            return;
        }
        let normal = humboldt_freshness::normal_encoding(fields);
        fields.remove(FieldName::AcceptEncoding);
        if let Some(encoding) = normal {
            fields.push(FieldName::AcceptEncoding, encoding);
        }
    }

    fn set_url(&mut self, facts: &ConnFacts) -> Result<(), ErrorPage> {
        let port = &facts.port;
        let default_host = port.defaultsite.as_deref().map(str::as_bytes);
        let invalid = |_| ErrorPage::InvalidUrl;
        if port.mode != PortMode::Accel {
            return self.url.set_from_request(&self.head, b"http", None).map_err(invalid);
        }
        let scheme = port.protocol.as_bytes();
        let site = default_host.filter(|_| !port.vhost);
        match (site, path_at_site(&self.head)) {
            (Some(site), Some(path)) => self.url.set_parts(scheme, site, path).map_err(invalid)?,
            _ => self.url.set_from_request(&self.head, scheme, default_host).map_err(invalid)?,
        }
        match port.vport {
            None => Ok(()),
            Some(0) => self.set_url_port(facts.local.port()),
            Some(number) => self.set_url_port(number),
        }
    }

    /// `vport`: the URL has this port, whatever the client called.
    fn set_url_port(&mut self, port: u16) -> Result<(), ErrorPage> {
        let (scheme, path) = (self.url.scheme().to_vec(), self.url.path_and_query().to_vec());
        if scheme.is_empty() {
            return Ok(());
        }
        let host = String::from_utf8_lossy(self.url.host()).into_owned();
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        self.url.set_parts(&scheme, authority.as_bytes(), &path).map_err(|_| ErrorPage::InvalidUrl)
    }

    /// The same request for the bytes from `first` on, up to `last` if there is one, if the
    /// validator still holds.
    pub(crate) fn for_range(
        &self,
        first: u64,
        last: Option<u64>,
        validator: Option<&[u8]>,
    ) -> Self {
        let mut head = self.head.clone();
        for name in [
            FieldName::Range,
            FieldName::IfRange,
            FieldName::IfNoneMatch,
            FieldName::IfModifiedSince,
        ] {
            head.fields.remove(name);
        }
        let last = last.map(|last| last.to_string()).unwrap_or_default();
        head.fields.push(FieldName::Range, format!("bytes={first}-{last}").as_bytes());
        if let Some(validator) = validator {
            head.fields.push(FieldName::IfRange, validator);
        }
        Self {
            head,
            url: self.url.clone(),
            key: self.key,
            cc: self.cc.clone(),
            body: self.body,
            received: self.received,
            facts: Rc::clone(&self.facts),
            snapshot: Arc::clone(&self.snapshot),
            indirect_client: self.indirect_client,
            addresses: self.addresses.clone(),
            permitted: self.permitted.clone(),
        }
    }

    /// What pages and logs call it: the URL, or the target as it came where that makes no URL.
    pub(crate) fn shown_url(&self) -> &[u8] {
        if self.url.as_bytes().is_empty() { self.head.target_bytes() } else { self.url.as_bytes() }
    }

    /// The configuration the request is served under.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The connection it came on.
    pub(crate) fn facts(&self) -> &ConnFacts {
        &self.facts
    }

    /// The client's address.
    pub(crate) fn client_ip(&self) -> IpAddr {
        self.facts().client.ip()
    }

    /// Whether an answer to it may come from the cache or wait for another's fetch.
    pub(crate) fn is_cachable_method(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head) && !self.has_body()
    }

    /// Whether it can be sent again without harm (RFC 9110 9.2.2) and has no body that would be
    /// gone.
    pub(crate) fn is_retriable(&self) -> bool {
        self.head.method.is_idempotent() && !self.has_body()
    }

    /// Whether a body follows the head.
    pub(crate) fn has_body(&self) -> bool {
        self.body.has_body()
    }

    /// Whether the request asks to switch protocols (RFC 9110 7.8).
    pub(crate) fn wants_upgrade(&self) -> bool {
        self.head.fields.has(FieldName::Upgrade)
            && self
                .head
                .fields
                .list(FieldName::Connection)
                .any(|option| option.eq_ignore_ascii_case(b"upgrade"))
    }
}

/// What the target asks for where there is one site only, whatever host the client names.
fn path_at_site(head: &RequestHead) -> Option<&[u8]> {
    let target = head.target_bytes();
    match head.target {
        Target::Origin => Some(target),
        Target::Asterisk => Some(b""),
        Target::Absolute => {
            let parts = humboldt_http::uri::split_absolute(target)?;
            let is_web =
                [&b"http"[..], b"https"].iter().any(|web| parts.scheme.eq_ignore_ascii_case(web));
            is_web.then_some(parts.path_and_query)
        }
        Target::Authority => None,
    }
}

/// The address without the form that IPv4 has on a socket for both families.
pub(crate) fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The host where it is an address. Names never have a colon, and their last label is not of digits
/// only.
pub(crate) fn host_ip(host: &[u8]) -> Option<IpAddr> {
    let last = host.last()?;
    if !last.is_ascii_digit() && !host.contains(&b':') {
        return None;
    }
    std::str::from_utf8(host).ok()?.parse().ok()
}
