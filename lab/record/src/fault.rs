//! The possible faults of an answer. A fault is an error in the report, never just a statistic.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kinds of faults that robots tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A byte of the body is not the byte of this URL in this version.
    WrongByte,
    /// The head names another object, type, length or version than the URL has.
    WrongHead,
    /// The body ended before its announced or true length.
    Truncated,
    /// The body went on after its true length.
    TooLong,
    /// The answer is an old version whose life had ended.
    Stale,
    /// An answer that may not be stored came from a store.
    UncachableHit,
    /// A request with `no-cache` was answered from a store without asking the origin.
    ReloadHit,
    /// Another status than this request must get.
    WrongStatus,
    /// The bytes are not HTTP.
    Malformed,
    /// The connection could not be made.
    Refused,
    /// TLS did not begin: the reason is in the evidence.
    Handshake,
    /// The connection was reset, or closed before the answer's head.
    Disconnected,
    /// No complete answer within the time limit.
    TimedOut,
}

impl FaultKind {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 13] = [
        Self::WrongByte,
        Self::WrongHead,
        Self::Truncated,
        Self::TooLong,
        Self::Stale,
        Self::UncachableHit,
        Self::ReloadHit,
        Self::WrongStatus,
        Self::Malformed,
        Self::Refused,
        Self::Handshake,
        Self::Disconnected,
        Self::TimedOut,
    ];

    /// A few words for tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::WrongByte => "wrong byte",
            Self::WrongHead => "wrong head",
            Self::Truncated => "truncated",
            Self::TooLong => "too long",
            Self::Stale => "stale",
            Self::UncachableHit => "hit on something uncachable",
            Self::ReloadHit => "hit after a reload",
            Self::WrongStatus => "wrong status",
            Self::Malformed => "malformed answer",
            Self::Refused => "connection refused",
            Self::Handshake => "TLS handshake failed",
            Self::Disconnected => "disconnected",
            Self::TimedOut => "timed out",
        }
    }

    /// Whether a client got wrong content, as opposed to no content: one such answer condemns a
    /// cache.
    #[must_use]
    pub fn is_wrong_content(self) -> bool {
        matches!(
            self,
            Self::WrongByte
                | Self::WrongHead
                | Self::TooLong
                | Self::Stale
                | Self::UncachableHit
                | Self::ReloadHit
        )
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// One wrong answer, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The fault.
    pub kind: FaultKind,
    /// Its position in the body, in bytes, if it is about the body.
    pub offset: Option<u64>,
    /// The expected value: a few bytes in hex, a length, a status, a date.
    pub expected: String,
    /// The received value.
    pub got: String,
}

/// A fault kept for the report, with its URL and moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultSample {
    /// Unix time of the answer, in µs.
    pub at_us: u64,
    /// The URL that was asked for.
    pub url: String,
    /// The fault.
    pub fault: Fault,
}
