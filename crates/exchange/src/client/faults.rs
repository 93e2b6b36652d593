//! Reasons for which an exchange with a client ends early.

use humboldt_http::h1::{BodyError, EncodeError};

/// Why nothing more can be said to a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClientLost {
    /// It closed or reset its connection, or took back its request.
    Gone,
    /// It took nothing of its answer for `write_timeout`.
    Stalled,
    /// Its connection has lived for `client_lifetime`.
    Lifetime,
    /// The program ends.
    ShutDown,
}

/// Why an exchange is reset, for protocols that can say so.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// The client does not get the rest, although it could be had.
    Cancelled,
    /// The rest cannot be had.
    Failed,
}

/// Why the body of a request cannot be read to its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The client has gone.
    Gone,
    /// The body contradicts its framing.
    Malformed(BodyError),
    /// It is longer than it may be.
    TooLarge,
    /// The receiver refuses a body of this length.
    Refused(EncodeError),
}
