//! What became of a request, for the logs and the counters.

use std::borrow::Cow;
use std::sync::Arc;

use humboldt_acl::RuleList;
use humboldt_logs::LineSink;
use humboldt_logs::access::{AccessFormat, Ending, Hierarchy, Tag};
use humboldt_store::{Held, StoredHead};

use crate::cut::Cut;
use crate::errors::ErrorPage;

/// One `access_log` line of the configuration, opened.
pub struct AccessLog {
    /// Where lines go; `None` for `access_log none`: what matches is written to none of the logs
    /// that follow.
    pub sink: Option<Arc<LineSink>>,
    /// How they look.
    pub format: AccessFormat,
    /// Which transactions are logged here; all when absent.
    pub condition: Option<RuleList>,
    /// `strip_query_terms`.
    pub strip_query_terms: bool,
}

/// Where an answer came from, for the log.
#[derive(Clone, Debug)]
pub(crate) struct RouteTaken {
    /// How the server was chosen.
    pub hierarchy: Hierarchy,
    /// Its address, once connected.
    pub peer: Option<std::net::SocketAddr>,
    /// Its name, if it was never reached.
    pub name: Box<str>,
    /// Status of its answer, if there was one.
    pub status: Option<u16>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Result code.
    pub tag: Tag,
    /// The request shared another's fetch.
    pub collapsed: bool,
    /// Status sent; 0 for none.
    pub status: u16,
    /// Bytes sent to the client beside those that its exchange has counted.
    pub bytes_out: u64,
    /// Why the connection was cut off, if it was.
    pub cut: Option<Cut>,
    /// There was nothing to be cut off: the connection ended instead of an answer.
    pub without_answer: bool,
    /// The server, if one was asked.
    pub route: Option<RouteTaken>,
    /// What went wrong, if anything did.
    pub fault: Option<Box<Fault>>,
    /// Where the media type of the answer is found.
    pub content: Content,
}

/// Where the media type of an answer is found.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// There is none.
    #[default]
    None,
    /// In a stored answer.
    Held(Held),
    /// In a head.
    Head(Arc<StoredHead>),
    /// Here.
    Type(Box<[u8]>),
}

impl Content {
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

/// What went wrong, for `%err_code` and `%err_detail`.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Name of the error page, or of what cut the connection off.
    pub(crate) code: &'static str,
    /// The reason: that on the page, or the name of what cut the connection off.
    pub(crate) detail: Cow<'static, str>,
}

impl Fault {
    /// An error page, and the reason that it gives.
    pub(crate) fn of_page(page: ErrorPage, detail: &str) -> Box<Self> {
        Box::new(Self { code: page.name(), detail: detail.to_owned().into() })
    }

    /// A connection that is cut off; `None` where that is no error.
    pub(crate) fn of_cut(cut: Cut) -> Option<Box<Self>> {
        cut.error().map(|code| Box::new(Self { code, detail: cut.name().into() }))
    }
}

impl Outcome {
    /// An answer from memory.
    pub(crate) fn hit(tag: Tag, status: u16) -> Self {
        Self::miss(tag, status, None)
    }

    /// An answer of our own.
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

    /// The same, before anything of it was sent.
    pub(crate) fn unsent(self) -> Self {
        Self { status: 0, content: Content::None, ..self }
    }

    /// The answer with this head.
    pub(crate) fn with_head(self, head: &Arc<StoredHead>) -> Self {
        Self { content: Content::Head(Arc::clone(head)), ..self }
    }

    /// The same, cut off.
    pub(crate) fn cut_off(mut self, cut: Cut) -> Self {
        self.end(Some(cut));
        self
    }

    /// The end of a request that gets no answer.
    pub(crate) fn without_answer(self, cut: Cut) -> Self {
        Self { without_answer: true, ..self.cut_off(cut) }
    }

    /// The answer did not reach the client whole. A tunnel that one side resets, or nobody uses any
    /// more, has served its purpose.
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
