//! How a request ended, for the logs and the counters.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use humboldt_acl::RuleList;
use humboldt_conf::RuleSource;
use humboldt_logs::LineSink;
use humboldt_logs::access::{AccessFormat, Ending, Hierarchy, Tag};
use humboldt_store::{Held, StoredHead};

use crate::cut::Cut;
use crate::errors::ErrorPage;

/// One `access_log` line of the configuration, opened.
pub struct AccessLog {
    /// Destination of the lines. `None` for `access_log none`: a transaction that matches it is
    /// written to none of the logs after it.
    pub sink: Option<Arc<LineSink>>,
    /// Format of the lines.
    pub format: AccessFormat,
    /// Condition on the transactions that are logged here; `None`: all of them.
    pub condition: Option<RuleList>,
    /// `strip_query_terms`.
    pub strip_query_terms: bool,
}

/// The source of an answer, for the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTaken {
    /// How the server was chosen.
    pub hierarchy: Hierarchy,
    /// Address of the server, once connected.
    pub peer: Option<SocketAddr>,
    /// Our end of the connection, if a log wants it.
    pub local: Option<SocketAddr>,
    /// Connections that were tried.
    pub attempts: u32,
    /// Name of a parent, or of a server that was never reached.
    pub name: Box<str>,
    /// Status of its answer, if there was one.
    pub status: Option<u16>,
}

impl RouteTaken {
    /// The address of the server itself; `None` if a parent was asked, whose address is not the
    /// server's.
    pub(crate) fn server_ip(&self) -> Option<IpAddr> {
        let is_direct = matches!(self.hierarchy, Hierarchy::Direct | Hierarchy::OriginalDst);
        self.peer.filter(|_| is_direct).map(|peer| peer.ip())
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Result code.
    pub tag: Tag,
    /// The request shared the fetch of another request.
    pub collapsed: bool,
    /// Status sent; 0 for none.
    pub status: u16,
    /// Bytes sent to the client that its exchange has not counted.
    pub bytes_out: u64,
    /// Why the connection was cut off, if it was.
    pub cut: Option<Cut>,
    /// The connection ended instead of an answer, so no answer was cut off.
    pub without_answer: bool,
    /// The server, if one was asked.
    pub route: Option<RouteTaken>,
    /// The error, if there was one.
    pub fault: Option<Box<Fault>>,
    /// Source of the answer's media type.
    pub content: Content,
}

/// Source of an answer's media type.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// The answer has no media type.
    #[default]
    None,
    /// The head of a stored answer.
    Held(Held),
    /// This head.
    Head(Arc<StoredHead>),
    /// This media type.
    Type(Box<[u8]>),
}

impl Content {
    /// The head of the answer from the server or the cache.
    pub(crate) fn head(&self) -> Option<&StoredHead> {
        match self {
            Self::None | Self::Type(_) => None,
            Self::Held(held) => Some(held.head()),
            Self::Head(head) => Some(head),
        }
    }

    /// The media type.
    pub(crate) fn media_type(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Held(held) => held.head().content_type(),
            Self::Head(head) => head.content_type(),
            Self::Type(media_type) => Some(media_type),
        }
    }
}

/// An error, for `%err_code` and `%err_detail`.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Name of the error page, or of the reason for cutting off the connection.
    pub(crate) code: Cow<'static, str>,
    /// The reason that the page gives, or the name of the [`Cut`].
    pub(crate) detail: Cow<'static, str>,
    /// The line of the rule that has refused.
    pub(crate) rule: Option<Arc<RuleSource>>,
}

impl Fault {
    /// The error that led to this page, with the reason that the page gives.
    pub(crate) fn of_page(page: ErrorPage, detail: &str) -> Box<Self> {
        Box::new(Self { code: page.name().into(), detail: detail.to_owned().into(), rule: None })
    }

    /// The error that led to a page of the administrator's own.
    pub(crate) fn of_own_page(name: &str) -> Box<Self> {
        Box::new(Self { code: name.to_owned().into(), detail: "".into(), rule: None })
    }

    /// File and line of the rule that has refused.
    pub(crate) fn rule(&self) -> Option<(&str, u32)> {
        self.rule.as_ref().map(|rule| (&*rule.file, rule.line))
    }

    /// The error that cut off a connection; `None` if the cut is no error.
    pub(crate) fn of_cut(cut: Cut) -> Option<Box<Self>> {
        let detail = cut.name().into();
        cut.error().map(|code| Box::new(Self { code: code.into(), detail, rule: None }))
    }
}

impl Outcome {
    /// An answer from the cache.
    pub(crate) fn hit(tag: Tag, status: u16) -> Self {
        Self::miss(tag, status, None)
    }

    /// An answer that the proxy made.
    pub(crate) fn local(tag: Tag, status: u16) -> Self {
        Self::miss(tag, status, None)
    }

    /// An answer from a server.
    pub(crate) fn miss(tag: Tag, status: u16, route: Option<RouteTaken>) -> Self {
        Self {
            tag,
            status,
            route,
            collapsed: false,
            bytes_out: 0,
            cut: None,
            without_answer: false,
            fault: None,
            content: Content::None,
        }
    }

    /// Notes that the answer has ended, and why it was cut off if it was.
    pub(crate) fn end(&mut self, cut: Option<Cut>) {
        self.fault = cut.and_then(Fault::of_cut).or_else(|| self.fault.take());
        self.cut = cut;
    }

    /// The same, refused by the rule of this line.
    pub(crate) fn by_rule(mut self, rule: Option<Arc<RuleSource>>) -> Self {
        if let Some(fault) = &mut self.fault {
            fault.rule = rule;
        }
        self
    }

    /// The same, if no byte of the answer was sent.
    pub(crate) fn unsent(self) -> Self {
        Self { status: 0, content: Content::None, ..self }
    }

    /// Its media type is that of this head. In place: where an outcome waits for its answer, a
    /// second one would take memory too.
    pub(crate) fn set_head(&mut self, head: &Arc<StoredHead>) {
        self.content = Content::Head(Arc::clone(head));
    }

    /// The same, with the answer cut off.
    pub(crate) fn cut_off(mut self, cut: Cut) -> Self {
        self.end(Some(cut));
        self
    }

    /// The end of a request that gets no answer.
    pub(crate) fn without_answer(self, cut: Cut) -> Self {
        Self { without_answer: true, ..self.cut_off(cut) }
    }

    /// Whether the client did not get its whole answer. Not so for a tunnel that one side resets or
    /// leaves idle: it has served its purpose.
    pub(crate) fn is_aborted(&self) -> bool {
        !self.without_answer
            && self.cut.is_some_and(|cut| !matches!(cut, Cut::TunnelBroken | Cut::TunnelIdle))
    }

    pub(crate) fn ending(&self) -> Ending {
        match self.cut {
            Some(Cut::Lifetime | Cut::TunnelIdle) => Ending::TimedOut,
            _ if self.is_aborted() => Ending::Aborted,
            _ => Ending::Normal,
        }
    }
}
