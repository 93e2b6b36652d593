//! A scenario that has been read. `docs/scenarios.md` describes the language.

use crate::text::Text;

/// One file.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The file, as messages name it.
    pub(crate) path: String,
    /// Its first line: the idea.
    pub(crate) title: String,
    /// Why it is known to fail.
    pub(crate) known: Option<String>,
    /// Whether the proxy stands in front of the origin instead of beside the client.
    pub(crate) is_accelerator: bool,
    /// Lines of squid.conf.
    pub(crate) config: String,
    pub(crate) steps: Vec<Step>,
}

impl Scenario {
    /// Whether the proxy may be shared with other scenarios of the same configuration. An
    /// accelerator has one origin, and a scenario that ends the proxy ends it for all.
    pub(crate) fn can_share(&self) -> bool {
        let ends_proxy = |step: &Step| matches!(step.action, Action::Restart | Action::Kill);
        !self.is_accelerator && self.stores() == 0 && !self.steps.iter().any(ends_proxy)
    }

    /// Number of directories on disk.
    pub(crate) fn stores(&self) -> usize {
        self.config.lines().filter(|line| line.starts_with("cache_dir")).count()
    }
}

#[derive(Debug)]
pub(crate) struct Step {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// A connection does something, or something must come from it.
    Wire {
        party: Party,
        act: Act,
    },
    /// Every request that the origin got has been claimed.
    OriginNotAsked,
    /// The origin closes its port and all its connections.
    OriginStops,
    OriginStarts,
    Restart,
    Kill,
    /// access.log has a line of this scenario with all these words.
    Logged(Vec<String>),
    /// The answer for this path is on disk.
    Stored(String),
}

/// A client connection, or a request that the origin has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) side: Side,
    /// The name that tells several apart; often empty.
    pub(crate) label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Client,
    Origin,
}

#[derive(Debug)]
pub(crate) enum Act {
    Send(Outgoing),
    SendRaw(Vec<Text>),
    /// More of a body that was begun.
    SendMore(Vec<Piece>),
    /// A whole message.
    Get(Expected),
    /// A head alone; later steps read the rest.
    GetHead(Expected),
    /// Exactly these bytes of the body that was begun.
    GetBody(Vec<Text>),
    /// Exactly these bytes of the connection, whatever they mean.
    GetRaw(Vec<Text>),
    /// The end of the body.
    GetEnd(Vec<Wanted>),
    /// The end of the connection before the end of the body.
    GetCut,
    /// The end of the connection, and nothing before it.
    GetClose,
    Close,
    HalfClose,
    Reset,
}

/// A message to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) start: Start,
    pub(crate) fields: Vec<(String, Text)>,
    /// Fields that are otherwise added by themselves.
    pub(crate) without: Vec<String>,
    pub(crate) pieces: Vec<Piece>,
}

/// The first line of a message. In an expectation, `None` allows any value.
#[derive(Debug)]
pub(crate) enum Start {
    Request {
        method: String,
        target: Text,
        version: Option<String>,
    },
    /// As an expectation, the code may be a class such as `5xx`.
    Status {
        version: Option<String>,
        code: String,
        reason: Option<String>,
    },
}

/// A part of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Plain(Text),
    Chunk(Text),
    /// A trailer field, sent with the last chunk.
    Trailer(String, Text),
    LastChunk,
}

/// A message that must come.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) start: Start,
    pub(crate) wanted: Vec<Wanted>,
}

#[derive(Debug)]
pub(crate) enum Wanted {
    Equals(String, Text),
    Contains(String, Text),
    Lacks(String, Text),
    Between(String, u64, u64),
    Absent(String),
    /// Several lines add up.
    Body(Text),
    BodyContains(Text),
    BodySize(usize),
    Cut,
    Trailer(String, Text),
    NoTrailer(String),
}
