//! Facts about the answer of a server: its announced body, or the reason why it failed.

use std::io;

use humboldt_http::h1::{BodyError, HeadError};
use humboldt_store::AbortReason;

/// Why an exchange with a server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The connection failed before any byte of an answer: a pooled connection may simply have
    /// died.
    #[error("the connection closed without an answer")]
    ClosedEarly,
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No answer, or no progress, in time.
    #[error("no answer in time")]
    TimedOut,
    /// The head is malformed, ambiguous or too large.
    #[error("invalid answer: {0}")]
    Head(#[from] HeadError),
    /// A 101, which the request did not ask for (RFC 9110 15.2.2).
    #[error("invalid answer: the server switched protocols unasked")]
    Switched,
    /// The body is malformed or shorter than announced.
    #[error("invalid body: {0}")]
    Body(#[from] BodyError),
    /// Memory for bodies in flight is exhausted, or the flow was ended.
    #[error("{0}")]
    Flow(#[from] AbortReason),
}

impl ServerError {
    /// The reason that waiting clients get when the answer fails in the middle.
    pub fn abort_reason(&self) -> AbortReason {
        match self {
            Self::ClosedEarly | Self::Body(BodyError::Truncated) => AbortReason::Truncated,
            Self::Io(_) => AbortReason::Failed,
            Self::TimedOut => AbortReason::TimedOut,
            Self::Head(_) | Self::Switched | Self::Body(_) => AbortReason::Malformed,
            Self::Flow(reason) => *reason,
        }
    }
}

/// The announcement of a body in the head of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The length, if it is known; for an answer to HEAD that of a GET.
    pub body_bytes: Option<u64>,
    /// The head was not as it should be, and was repaired.
    pub was_repaired: bool,
}
