//! One request in the form that the pipeline uses, independent of the protocol that brought it.

mod connection;
mod inside;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use humboldt_base::clock::UnixMillis;
use humboldt_base::notes::Notes;
use humboldt_conf::{HttpPort, PortMode, RuleSource};
use humboldt_exchange::BodyLength;
use humboldt_freshness::{self as freshness, CacheControl, Times};
use humboldt_http::{FieldName, Method, RequestHead, Target, Url};
use humboldt_logins::{Checked, Failure};
use humboldt_net::dns::{Answer, NameAnswer};
use humboldt_store::Key;

use crate::budgets::Spending;
use crate::bumped::Steps;
use crate::config::snapshot::Snapshot;
use crate::errors::ErrorPage;
use crate::helped::Helped;
use crate::pin::Owner;

pub(crate) use connection::ConnFacts;

/// What the client has sent in place of a rewritten URL.
#[derive(Clone)]
struct AsSent {
    url: Box<[u8]>,
    /// The field Host, if it does not follow the new URL.
    host: Option<Box<[u8]>>,
    /// The new URL names another host or port.
    is_elsewhere: bool,
}

/// The last rule by which a list has decided; `None` in it if none applied.
type LastRule = Cell<Option<Option<usize>>>;

/// What `private_destinations` has said about an address: `Err` has the rule that refuses.
pub(crate) type Judged = (IpAddr, Result<(), Option<Arc<RuleSource>>>);

/// One request. Its buffers are reused: see [`Request::reuse`].
#[derive(Clone)]
pub(crate) struct Request {
    /// The head as parsed.
    pub head: RequestHead,
    /// The canonical URL; for CONNECT `host:port`.
    pub url: Url,
    /// Key of the object: of its name, if it has another one than its URL.
    pub key: Key,
    /// The name of the object (`store_id_rule`, `store_id_program`), if it is not the URL.
    pub store_id: Option<Box<[u8]>>,
    /// What the client has sent, if a helper has rewritten the URL.
    rewritten: Option<Box<AsSent>>,
    /// Cache-Control of the request.
    pub cc: CacheControl,
    /// The length of the body.
    pub body: BodyLength,
    /// The head could be read, although it may have no URL that can be used.
    pub(crate) is_read: bool,
    /// When the head was complete.
    pub received: UnixMillis,
    /// The client behind trusted proxies (`follow_x_forwarded_for`), if there is one.
    pub indirect_client: Option<IpAddr>,
    /// The addresses of the URL's host, or why there are none; empty before the first look-up.
    /// There is only one look-up per request: the proxy must connect to the same addresses that the
    /// rules judged, however long that takes and however often it is tried.
    pub(crate) addresses: OnceCell<Answer>,
    /// Those of `addresses` that the rules permit, each judged alone; `None`: all of them.
    pub(crate) permitted: RefCell<Option<Arc<[IpAddr]>>>,
    /// The rules by which `http_access` and `adapted_http_access` have let the request in.
    pub(crate) let_in: [Cell<Option<usize>>; 2],
    /// Addresses that are not of the public network, with what was said about each.
    pub(crate) judged: RefCell<Vec<Judged>>,
    /// Whether the client of an intercepted connection chose an address of the URL's host; empty
    /// before that was verified.
    pub(crate) is_verified: OnceCell<bool>,
    /// The name of the client, or why there is none; empty before a rule needs it.
    pub(crate) client_name: OnceCell<NameAnswer>,
    /// The login of the client, or why it could not be checked; empty before a rule needs it.
    pub(crate) login: OnceCell<Result<Checked, Failure>>,
    /// The decision of `cache`, once there is one. The list is asked once.
    pub(crate) may_use_cache: OnceCell<bool>,
    /// Random bits for `random` ACLs, once one was asked.
    pub(crate) random: OnceCell<u64>,
    /// Its number: see [`Core::next_number`](crate::core::Core::next_number).
    pub(crate) number: u64,
    /// Time spent waiting for look-ups of names, in ms; `None` without any.
    pub(crate) dns_ms: Cell<Option<u64>>,
    /// The rule of the first refusal that was only reported; `None` in it if a rule had no answer.
    pub(crate) reported: OnceCell<Option<Arc<RuleSource>>>,
    /// The last rule, or none, by which `miss_access` and `http_reply_access` have decided.
    pub(crate) counted: (LastRule, LastRule),
    /// What it takes from a budget.
    pub(crate) spending: Cell<Spending>,
    /// What becomes known when its tunnel is intercepted. A copy of the request shares it.
    pub(crate) bump: OnceCell<Rc<Steps>>,
    /// TLS is spoken with its server, although no URL says so.
    pub(crate) looks_at_server: bool,
    /// Annotations. A copy of the request shares them.
    pub(crate) notes: Rc<RefCell<Notes>>,
    /// What helpers have told. A copy of the request shares it.
    pub(crate) helped: Rc<Helped>,
    /// The connection that brought it.
    facts: Rc<ConnFacts>,
    /// The configuration under which it is served.
    snapshot: Arc<Snapshot>,
}

impl Request {
    /// An empty request.
    pub(crate) fn new(facts: &Rc<ConnFacts>, snapshot: &Arc<Snapshot>) -> Self {
        Self {
            head: RequestHead::default(),
            url: Url::default(),
            key: Key(0),
            store_id: None,
            rewritten: None,
            cc: CacheControl::default(),
            body: BodyLength::None,
            is_read: false,
            received: UnixMillis::default(),
            indirect_client: None,
            addresses: OnceCell::new(),
            permitted: RefCell::default(),
            let_in: Default::default(),
            judged: RefCell::default(),
            is_verified: OnceCell::new(),
            client_name: OnceCell::new(),
            login: OnceCell::new(),
            may_use_cache: OnceCell::new(),
            random: OnceCell::new(),
            number: 0,
            dns_ms: Cell::new(None),
            reported: OnceCell::new(),
            counted: Default::default(),
            spending: Cell::default(),
            bump: OnceCell::new(),
            looks_at_server: false,
            notes: Rc::default(),
            helped: Rc::default(),
            facts: Rc::clone(facts),
            snapshot: Arc::clone(snapshot),
        }
    }

    /// Forgets the request and keeps its buffers for another one.
    pub(crate) fn reuse(&mut self, facts: &Rc<ConnFacts>, snapshot: &Arc<Snapshot>) {
        self.head.clear();
        self.url.clear();
        self.key = Key(0);
        self.store_id = None;
        self.rewritten = None;
        self.cc = CacheControl::default();
        self.body = BodyLength::None;
        self.is_read = false;
        self.indirect_client = None;
        self.addresses = OnceCell::new();
        self.permitted = RefCell::default();
        self.forget_judgements();
        self.is_verified = OnceCell::new();
        self.client_name = OnceCell::new();
        self.login = OnceCell::new();
        self.may_use_cache = OnceCell::new();
        self.random = OnceCell::new();
        self.dns_ms = Cell::new(None);
        self.reported = OnceCell::new();
        self.counted = Default::default();
        self.spending = Cell::default();
        self.bump = OnceCell::new();
        self.looks_at_server = false;
        match Rc::get_mut(&mut self.notes) {
            Some(own) => *own.get_mut() = Notes::NONE,
            None => self.notes = Rc::default(),
        }
        match Rc::get_mut(&mut self.helped) {
            Some(own) => own.clear(),
            None => self.helped = Rc::default(),
        }
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
        (self.body, self.received, self.is_read) = (body, now, true);
        let facts = Rc::clone(&self.facts);
        self.take_client_notes();
        self.set_url(&facts)?;
        self.find_key();
        if !facts.port.ignore_cc {
            self.cc = CacheControl::of_request(&self.head.fields);
        }
        if self.snapshot.config.normalize_accept_encoding {
            self.normalize_encoding();
        }
        Ok(())
    }

    /// The second at which an answer with these times is judged ([`freshness::judged_at`]).
    pub(crate) fn judged_at_s(&self, times: &Times) -> i64 {
        freshness::judged_at(times, self.received.secs(), || UnixMillis::now().secs())
    }

    /// Sets the key of the URL, or of the name that a rule gives its object.
    fn find_key(&mut self) {
        self.store_id = self.snapshot.rewriting.name_by_rule(self.url.as_bytes());
        self.key = Key::primary(self.cache_url());
    }

    /// Gives the object another name than its URL.
    pub(crate) fn set_store_id(&mut self, name: Box<[u8]>) {
        self.store_id = Some(name);
        self.key = Key::primary(self.cache_url());
    }

    /// The name of the object in the cache: usually its URL.
    pub(crate) fn cache_url(&self) -> &[u8] {
        self.store_id.as_deref().unwrap_or(self.url.as_bytes())
    }

    /// Another URL takes the place of the client's, as a helper wants it. The addresses of another
    /// host are not known.
    pub(crate) fn rewrite(&mut self, url: Url) {
        let rewriter = self.snapshot.rewriting.rewriter.as_ref();
        let keeps_host = rewriter.is_some_and(|rewriter| !rewriter.rewrites_host);
        let host: Option<Box<[u8]>> = keeps_host.then(|| {
            // The host of a whole URL wins over Host (RFC 9112 3.2.2).
            let is_path = self.head.target == Target::Origin;
            let sent = self.head.fields.get(FieldName::Host).filter(|_| is_path);
            sent.unwrap_or(self.url.authority()).into()
        });
        let other = host.as_deref().filter(|host| !host.eq_ignore_ascii_case(url.authority()));
        let other = other.map(<[u8]>::to_ascii_lowercase);
        let is_elsewhere = (url.host(), url.port()) != (self.url.host(), self.url.port());
        if is_elsewhere {
            self.addresses = OnceCell::new();
            self.permitted = RefCell::default();
            self.forget_judgements();
            // The client has chosen neither its name nor its address.
            self.is_verified = OnceCell::from(true);
        }
        let before = std::mem::replace(&mut self.url, url);
        let url = before.as_bytes().into();
        self.rewritten = Some(Box::new(AsSent { url, host, is_elsewhere }));
        self.find_key();
        // The server may answer each host in another way.
        if let Some(host) = other {
            self.set_store_id([self.cache_url(), b"#host=", &host].concat().into_boxed_slice());
        }
    }

    /// Another destination, or other rules.
    pub(crate) fn forget_judgements(&mut self) {
        self.let_in = Default::default();
        self.judged.get_mut().clear();
    }

    /// Whether a helper has rewritten the URL.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.rewritten.is_some()
    }

    /// Whether that leads to another host or port.
    pub(crate) fn is_rewritten_elsewhere(&self) -> bool {
        self.rewritten.as_ref().is_some_and(|sent| sent.is_elsewhere)
    }

    /// The field Host towards servers.
    pub(crate) fn host_field(&self) -> &[u8] {
        let kept = self.rewritten.as_ref().and_then(|sent| sent.host.as_deref());
        kept.unwrap_or(self.url.authority())
    }

    /// Begins with the annotations of the connection.
    pub(crate) fn take_client_notes(&self) {
        self.notes.borrow_mut().clone_from(&self.facts.notes.borrow());
    }

    /// `normalize_accept_encoding`: the same normal form is sent to servers and selects variants.
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
        let port: &HttpPort = &facts.port;
        let default_host = port.defaultsite.as_deref().map(str::as_bytes);
        let invalid = |_| ErrorPage::InvalidUrl;
        if let Some(inside) = &facts.inside {
            return self.set_inner_url(inside);
        }
        if let Some(original) = facts.original {
            let site = original.to_string();
            let site = Some(site.as_bytes());
            return self.url.set_from_request(&self.head, b"http", site).map_err(invalid);
        }
        if port.mode != PortMode::Accel {
            return self.url.set_from_request(&self.head, b"http", None).map_err(invalid);
        }
        let scheme = port.protocol.as_bytes();
        let site = default_host.filter(|_| !port.vhost);
        match (site, path_at_site(&self.head)) {
            (Some(site), Some(path)) => self.url.set_parts(scheme, site, path).map_err(invalid)?,
            _ => self.url.set_from_request(&self.head, scheme, default_host).map_err(invalid)?,
        }
        // The port decides, not what the client writes: what came over a plain connection must not
        // be what clients of https get.
        if matches!(self.url.scheme(), b"http" | b"https") && self.url.scheme() != scheme {
            let authority = self.url.authority().to_vec();
            let path = self.url.path_and_query().to_vec();
            self.url.set_parts(scheme, &authority, &path).map_err(invalid)?;
        }
        match port.vport {
            None => Ok(()),
            Some(0) => self.set_url_port(facts.local.port()),
            Some(number) => self.set_url_port(number),
        }
    }

    /// `vport`: sets the port of the URL, whichever port the client named.
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

    /// A copy of the request for the bytes from `first` on, up to `last` if given. With a
    /// `validator`, the range applies only while that still holds (If-Range).
    pub(crate) fn for_range(
        &self,
        first: u64,
        last: Option<u64>,
        validator: Option<&[u8]>,
    ) -> Self {
        let mut again = self.clone();
        let fields = &mut again.head.fields;
        for name in [
            FieldName::Range,
            FieldName::IfRange,
            FieldName::IfNoneMatch,
            FieldName::IfModifiedSince,
        ] {
            fields.remove(name);
        }
        let last = last.map(|last| last.to_string()).unwrap_or_default();
        fields.push(FieldName::Range, format!("bytes={first}-{last}").as_bytes());
        if let Some(validator) = validator {
            fields.push(FieldName::IfRange, validator);
        }
        again
    }

    /// The name in pages: the URL as the client sent it, or the target as received if it does not
    /// form a URL.
    pub(crate) fn shown_url(&self) -> &[u8] {
        self.rewritten.as_ref().map_or(self.url_or_target(), |sent| &sent.url)
    }

    /// The name in logs: the URL, also if a helper has put it there, or the target as received. A
    /// URL has no login; a target that is none may have one, which is cut.
    pub(crate) fn logged_url(&self) -> Cow<'_, [u8]> {
        match self.url.as_bytes() {
            b"" => without_login(self.head.target_bytes()),
            url => Cow::Borrowed(url),
        }
    }

    fn url_or_target(&self) -> &[u8] {
        if self.url.as_bytes().is_empty() { self.head.target_bytes() } else { self.url.as_bytes() }
    }

    /// The configuration under which the request is served.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// A copy for another configuration, which goes to the server with this address if that is
    /// known. Its login stays; helpers may be asked again.
    pub(crate) fn under(&self, snapshot: &Arc<Snapshot>, peer: Option<IpAddr>) -> Self {
        let mut copy = self.clone();
        copy.snapshot = Arc::clone(snapshot);
        copy.may_use_cache = OnceCell::new();
        copy.permitted = RefCell::default();
        copy.forget_judgements();
        copy.reported = OnceCell::new();
        copy.notes = Rc::new(RefCell::new(self.notes.borrow().clone()));
        copy.helped = Rc::default();
        // A login that could not be checked may be now.
        if matches!(copy.login.get(), Some(Err(_))) {
            copy.login = OnceCell::new();
        }
        if let Some(peer) = peer {
            copy.addresses = OnceCell::from(Ok(Arc::from([unmapped(peer)])));
        }
        copy
    }

    /// A copy as it was before a helper rewrote its URL, for the rules that were asked then; `None`
    /// if none did. Addresses of another host are not those of this one.
    pub(crate) fn as_sent(&self) -> Option<Self> {
        let sent = self.rewritten.as_ref()?;
        let mut copy = self.clone();
        copy.rewritten = None;
        let facts = Rc::clone(&self.facts);
        // It was a URL before.
        copy.set_url(&facts).ok()?;
        if sent.is_elsewhere {
            copy.addresses = OnceCell::new();
            copy.permitted = RefCell::default();
            copy.forget_judgements();
        }
        Some(copy)
    }

    /// The connection that brought it.
    pub(crate) fn facts(&self) -> &ConnFacts {
        &self.facts
    }

    /// The name that the client gave when it logged in, right or wrong; `None` also if no rule has
    /// asked for a login.
    pub(crate) fn user_name(&self) -> Option<&str> {
        self.login.get()?.as_ref().ok()?.name()
    }

    /// The client behind trusted proxies, or that of the connection, whatever rules are to see.
    pub(crate) fn end_client(&self) -> IpAddr {
        self.indirect_client.unwrap_or_else(|| unmapped(self.client_ip()))
    }

    /// For whom it is.
    pub(crate) fn owner(&self) -> Owner<'_> {
        let user = match self.login.get() {
            Some(Ok(Checked::User { user, .. })) => Some(user.name()),
            _ => None,
        };
        Owner { client: self.end_client(), user }
    }

    /// The client's address.
    pub(crate) fn client_ip(&self) -> IpAddr {
        self.facts().client.ip()
    }

    /// The address to which the request goes instead of those of its host: the client of an
    /// intercepted connection chose it, and it is not one of the host's, or `client_dst_passthru`
    /// is on.
    pub(crate) fn original_destination(&self) -> Option<SocketAddr> {
        let original = self.facts.original?;
        // A helper has chosen another server.
        if self.is_rewritten_elsewhere() {
            return None;
        }
        let goes_there =
            self.snapshot.config.client_dst_passthru || self.is_verified.get() != Some(&true);
        goes_there.then_some(original)
    }

    /// Whether the cache, or the fetch of another request, may answer it.
    pub(crate) fn is_cachable_method(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head) && !self.has_body()
    }

    /// Whether it can be sent again: the method must allow it (RFC 9110 9.2.2), and there must be
    /// no body, which could be sent only once.
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

/// The path that the target asks for on a port with a fixed site, where the host does not count.
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

/// The address, with IPv4 in its own form: a socket for both families gives it mapped into IPv6.
pub(crate) fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// A target without what stands before the `@` of its authority.
fn without_login(target: &[u8]) -> Cow<'_, [u8]> {
    let start = match target.windows(3).position(|three| three == b"://") {
        Some(at) => at + 3,
        None => usize::from(target.starts_with(b"//")) * 2,
    };
    let authority = target.get(start..).unwrap_or_default();
    let authority = authority.split(|byte| b"/?#".contains(byte)).next().unwrap_or_default();
    match authority.iter().rposition(|byte| *byte == b'@') {
        Some(at) => Cow::Owned([&target[..start], &target[start + at + 1..]].concat()),
        None => Cow::Borrowed(target),
    }
}

#[cfg(test)]
mod tests {
    use super::without_login;

    #[test]
    fn a_target_in_logs_has_no_login() {
        for (target, wanted) in [
            ("http://anna:secret@a.test/x@y", "http://a.test/x@y"),
            ("http://anna:sec@ret@a.test:81?q", "http://a.test:81?q"),
            ("anna:secret@a.test:443", "a.test:443"),
            ("//anna@a.test/", "//a.test/"),
            ("http://a.test/@x", "http://a.test/@x"),
            ("/x@y", "/x@y"),
            ("http://", "http://"),
            ("", ""),
        ] {
            assert_eq!(*without_login(target.as_bytes()), *wanted.as_bytes(), "{target}");
        }
    }
}
