//! A fetch: its request, the use of its answer, and the report about it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use humboldt_base::bump::ServerIdentity;
use humboldt_exchange::ServerError;
use humboldt_http::{FieldName, Fields, ResponseHead};
use humboldt_logs::access::Tag;
use humboldt_net::connect::ConnectError;
use humboldt_store::disk::DiskHit;
use humboldt_store::{AbortReason, About, Object, Since};
use humboldt_tls::Fault;

use crate::config::cache_status::Forward;
use crate::errors::ErrorPage;
use crate::fetch::ask::{Manner, may_pass};
use crate::fetch::destination::Destination;
use crate::fetch::pinning;
use crate::outcome::RouteTaken;
use crate::request::Request;
use crate::rules::delays::Source;
use crate::rules::denial::Refusal;

/// The request to fetch for, and the permitted use of the answer.
pub(crate) struct Job {
    /// The request.
    pub request: Rc<Request>,
    /// A stored answer to validate.
    pub stale: Option<Stale>,
    /// A stored answer to GET that an answer to HEAD may confirm or make void.
    pub to_learn_about: Option<Stale>,
    /// A stored answer that the server did not recognise when it was validated. It is served only
    /// if the server fails.
    pub in_reserve: Option<Stale>,
    /// Whether the answer may be stored.
    pub may_store: bool,
    /// The client's own conditions and ranges are sent on; otherwise the whole answer is asked for.
    pub as_asked: bool,
    /// Nobody waits for it.
    pub in_background: bool,
    /// Number of the newest purge by tag or prefix when the fetch began. It is for the answer to an
    /// unsafe method; if that must not be stored, the number is 0, the oldest.
    pub purge_number: u64,
    /// The report for the request that began the fetch.
    pub report: Rc<Report>,
}

/// A stored answer that may not be served without validation.
#[derive(Debug)]
pub(crate) struct Stale {
    /// The answer.
    pub body: StaleBody,
    /// Whether it may be served when the server fails.
    pub may_serve_on_error: bool,
    /// When it was found; `None` for one in memory that has just been looked up.
    pub since: Option<Box<Since>>,
}

/// The place of a stale answer.
pub(crate) enum StaleBody {
    /// In memory.
    Memory(Arc<Object>),
    /// On disk, and too large for memory.
    Disk(Box<DiskHit>),
}

impl Stale {
    /// A stale answer in memory.
    pub(crate) fn in_memory(object: Arc<Object>, may_serve_on_error: bool) -> Self {
        Self { body: StaleBody::Memory(object), may_serve_on_error, since: None }
    }
}

impl StaleBody {
    /// The facts about the answer, which is complete.
    pub(crate) fn about(&self) -> About<'_> {
        match self {
            Self::Memory(object) => object.about(),
            Self::Disk(hit) => About {
                key: hit.key,
                url: &hit.url,
                head: &hit.head,
                times: &hit.times,
                body_bytes: hit.body_bytes().unwrap_or(0),
            },
        }
    }
}

impl std::fmt::Debug for StaleBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Disk(_) => "Disk",
        })
    }
}

/// The report about a fetch, for the request that began it.
#[derive(Default)]
pub(crate) struct Report {
    /// Why the fetch failed.
    pub failure: RefCell<Option<Failure>>,
    /// Whether the fetch was to validate a stored answer.
    pub is_validation: Cell<bool>,
    /// The way taken, for the log.
    pub route: RefCell<RouteTaken>,
    /// Result code if the flow gave a stored object; `None`: the server has confirmed it.
    pub object_tag: Cell<Option<Tag>>,
    /// Why the request was sent on.
    pub forward: Forward,
    /// The answer comes through a parent that delay pools do not slow down (`no-delay`).
    pub is_undelayed: Cell<bool>,
    /// Fields of the answer that are for this request alone. They are neither stored nor sent to
    /// clients that joined.
    pub own_fields: RefCell<Fields>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The page for the client.
    pub page: ErrorPage,
    /// The reason in words.
    pub detail: String,
    /// The refusal, if a rule does not let the request go on.
    pub refusal: Option<Box<Refusal>>,
    /// The server whose certificate is not accepted, if rules have judged it.
    pub server: Option<Rc<ServerIdentity>>,
    /// Inside of a tunnel the client's next connection may do better, so that this one ends.
    pub is_of_connection: bool,
}

impl Report {
    /// An empty report.
    pub(crate) fn new() -> Rc<Self> {
        Rc::default()
    }

    /// A report of a fetch for this reason.
    pub(crate) fn because(forward: Forward) -> Rc<Self> {
        Rc::new(Self { forward, ..Self::default() })
    }

    /// Why the fetch failed.
    pub(crate) fn failure(&self, reason: AbortReason) -> Failure {
        let unknown = || Failure::new(ErrorPage::ReadError, reason.to_string());
        self.failure.take().unwrap_or_else(unknown)
    }

    /// Result code of the failure; `tag` is the code for a fetch without a stored answer.
    pub(crate) fn tag_of_failure(&self, tag: Tag) -> Tag {
        if self.is_validation.get() { Tag::RefreshFailErr } else { tag }
    }

    /// Whether delay pools slow the answer down.
    pub(crate) fn source(&self) -> Source {
        if self.is_undelayed.get() { Source::Elsewhere } else { Source::Server }
    }

    /// The way taken so far.
    pub(crate) fn route(&self) -> RouteTaken {
        self.route.borrow().clone()
    }

    /// Notes the head of the server's final answer. The challenge of a parent is for the client if
    /// that `can_log_in` there, although its field is about one connection only (RFC 9110 11.7.1).
    pub(crate) fn answered(&self, head: &ResponseHead, can_log_in: bool) {
        self.route.borrow_mut().status = Some(head.status);
        if head.status == 407 && can_log_in {
            let mut challenge = Fields::new();
            let values = head.fields.get_all(FieldName::ProxyAuthenticate);
            for value in values.filter(|value| may_pass(value)) {
                challenge.push(FieldName::ProxyAuthenticate, value);
            }
            self.own_fields.replace(challenge);
        }
    }
}

impl Failure {
    /// A failure whose reason the proxy words itself.
    pub(crate) fn new(page: ErrorPage, detail: impl Into<String>) -> Self {
        Self { page, detail: detail.into(), refusal: None, server: None, is_of_connection: false }
    }

    /// There is no TLS with the server of `host`.
    pub(crate) fn of_tls(host: &[u8], fault: &Fault) -> Self {
        let page = match fault {
            Fault::TimedOut => ErrorPage::ConnectTimeout,
            Fault::Certificate(_) | Fault::NoName => ErrorPage::BadCertificate,
            Fault::Alert(_) => ErrorPage::TlsRefused,
            _ => ErrorPage::NoTls,
        };
        let host = String::from_utf8_lossy(host);
        Self::new(page, format!("{host}: {fault} ({})", fault.name()))
    }

    pub(crate) fn reason(&self) -> AbortReason {
        match self.page {
            // Others may be allowed to go there.
            _ if self.refusal.is_some() => AbortReason::NotShareable,
            ErrorPage::ConnectTimeout | ErrorPage::ReadTimeout | ErrorPage::ForwardTimeout => {
                AbortReason::TimedOut
            }
            ErrorPage::InvalidResponse => AbortReason::Malformed,
            _ => AbortReason::Failed,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let page = refusal.page;
        Self { refusal: Some(Box::new(refusal)), ..Self::new(page, "") }
    }
}

impl From<&ServerError> for Failure {
    fn from(error: &ServerError) -> Self {
        let page = match error {
            ServerError::ClosedEarly | ServerError::Io(_) => ErrorPage::ReadError,
            ServerError::TimedOut => ErrorPage::ReadTimeout,
            ServerError::Head(_) | ServerError::Switched | ServerError::Body(_) => {
                ErrorPage::InvalidResponse
            }
            ServerError::Flow(_) => ErrorPage::Internal,
        };
        Self::new(page, error.to_string())
    }
}

impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Self {
        let page = match error {
            ConnectError::Timeout => ErrorPage::ConnectTimeout,
            _ => ErrorPage::ConnectFailure,
        };
        Self::new(page, error.to_string())
    }
}

impl Job {
    /// A job for `request`.
    pub(crate) fn new(
        request: &Rc<Request>,
        stale: Option<Stale>,
        may_store: bool,
        report: &Rc<Report>,
    ) -> Self {
        let (request, report) = (Rc::clone(request), Rc::clone(report));
        Self {
            request,
            stale,
            to_learn_about: None,
            in_reserve: None,
            may_store,
            as_asked: !may_store,
            in_background: false,
            purge_number: 0,
            report,
        }
    }

    /// A job for `request` with its own conditions and ranges; the answer is stored if it may be.
    pub(crate) fn as_asked(request: &Rc<Request>, report: &Rc<Report>) -> Self {
        Self { as_asked: true, ..Self::new(request, None, true, report) }
    }

    /// How the request is sent to `to`.
    pub(crate) fn manner<'a>(&'a self, to: &'a Destination) -> Manner<'a> {
        let peer = to.peer.as_ref().map(|peer| &peer.conf).filter(|_| !to.is_tunnel());
        Manner {
            to_proxy: to.is_proxy(),
            forced_host: peer.and_then(|peer| peer.forceddomain.as_deref()),
            login: to.login(),
            validate: self.stale.as_ref().map(|stale| stale.body.about().head),
            whole: !self.as_asked,
            upgrade: None,
            ties_connections: pinning::is_possible(&self.request, to),
        }
    }
}
