//! One request as the pipeline knows it, whatever protocol brought it.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{HttpPort, PortMode};
use humboldt_freshness::CacheControl;
use humboldt_http::h1::Framing;
use humboldt_http::{FieldName, Method, RequestHead, Target, Url};
use humboldt_net::dns::Answer;
use humboldt_store::Key;

use crate::client_counts::Connections;
use crate::errors::ErrorPage;
use crate::indirect;
use crate::snapshot::Snapshot;

/// What is known of the connection a request came on.
#[derive(Clone, Debug)]
pub struct ConnFacts {
    /// The client's address.
    pub client: SocketAddr,
    /// Our address on the connection.
    pub local: SocketAddr,
    /// The `http_port` that accepted it.
    pub port: Arc<HttpPort>,
    /// Open connections of the client, where a rule asks for them.
    pub(crate) connections: Option<Connections>,
}

/// One request. Kept in reusable buffers: see [`Request::clear`].
pub struct Request {
    /// The head as parsed.
    pub head: RequestHead,
    /// The canonical URL; for CONNECT `host:port`.
    pub url: Url,
    /// Key of the URL.
    pub key: Key,
    /// Cache-Control of the request.
    pub cc: CacheControl,
    /// How the body is framed.
    pub framing: Framing,
    /// When the head was complete.
    pub received: UnixMillis,
    /// The connection it came on; set before the request is used.
    pub facts: Option<Rc<ConnFacts>>,
    /// The configuration it is served under; set before the request is used.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The client behind trusted proxies (`follow_x_forwarded_for`), if there is one.
    pub indirect_client: Option<IpAddr>,
    /// Whether it has its line in the access log.
    pub(crate) is_logged: Cell<bool>,
    /// The addresses of the URL's host, or why there are none, once they were needed. They are
    /// looked up once: what rules judged is what is connected to, however long that takes and
    /// however often it is tried.
    pub(crate) addresses: OnceCell<Answer>,
    /// Those of `addresses` that rules permit one by one; `None`: all of them.
    pub(crate) permitted: RefCell<Option<Arc<[IpAddr]>>>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            head: RequestHead::default(),
            url: Url::default(),
            key: Key(0),
            cc: CacheControl::default(),
            framing: Framing::None,
            received: UnixMillis::default(),
            facts: None,
            snapshot: None,
            indirect_client: None,
            is_logged: Cell::new(false),
            addresses: OnceCell::new(),
            permitted: RefCell::default(),
        }
    }
}

impl Request {
    /// Forgets the request and keeps its buffers.
    pub fn clear(&mut self) {
        self.head.clear();
        self.url.clear();
        self.key = Key(0);
        self.cc = CacheControl::default();
        self.framing = Framing::None;
        self.facts = None;
        self.snapshot = None;
        self.indirect_client = None;
        self.is_logged.set(false);
        self.addresses = OnceCell::new();
        self.permitted = RefCell::default();
    }

    /// Fills in everything that follows from the parsed head: URL, key, directives, framing. The
    /// URL's authority wins over `Host` (RFC 9112 3.2.2).
    pub(crate) fn complete(
        &mut self,
        facts: &Rc<ConnFacts>,
        snapshot: &Arc<Snapshot>,
        now: UnixMillis,
    ) -> Result<(), ErrorPage> {
        self.received = now;
        self.facts = Some(Rc::clone(facts));
        self.snapshot = Some(Arc::clone(snapshot));
        self.framing = humboldt_http::h1::request_framing(&self.head)
            .map_err(|_| ErrorPage::InvalidRequest)?;
        humboldt_http::h1::remove_named(&mut self.head.fields);
        self.set_url(facts)?;
        self.key = Key::primary(self.url.as_bytes());
        if !facts.port.ignore_cc {
            self.cc = CacheControl::of_request(&self.head.fields);
        }
        if snapshot.config.normalize_accept_encoding {
            self.normalize_encoding();
        }
        if let Some(trusted) = &snapshot.follow_forwarded_for {
            self.indirect_client = indirect::client(trusted, self);
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
            framing: self.framing,
            received: self.received,
            facts: self.facts.clone(),
            snapshot: self.snapshot.clone(),
            indirect_client: self.indirect_client,
            is_logged: Cell::new(false),
            addresses: self.addresses.clone(),
            permitted: self.permitted.clone(),
        }
    }

    /// What pages and logs call it: the URL, or the target as it came where that makes no URL.
    pub(crate) fn shown_url(&self) -> &[u8] {
        if self.url.as_bytes().is_empty() { self.head.target_bytes() } else { self.url.as_bytes() }
    }

    /// The configuration the request is served under.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        self.snapshot
            .as_ref()
            .unwrap_or_else(|| unreachable!("a request is completed before it is used"))
    }

    /// The connection it came on.
    pub fn facts(&self) -> &ConnFacts {
        self.facts
            .as_ref()
            .unwrap_or_else(|| unreachable!("a request is completed before it is used"))
    }

    /// The client's address.
    pub fn client_ip(&self) -> IpAddr {
        self.facts().client.ip()
    }

    /// Whether an answer to it may come from the cache or wait for another's fetch.
    pub fn is_cachable_method(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head)
            && matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// Whether it can be sent again without harm (RFC 9110 9.2.2) and has no body that would be
    /// gone.
    pub fn is_retriable(&self) -> bool {
        self.head.method.is_idempotent() && !self.has_body()
    }

    /// Whether a body follows the head.
    pub fn has_body(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// Whether the request asks to switch protocols (RFC 9110 7.8).
    pub fn wants_upgrade(&self) -> bool {
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
