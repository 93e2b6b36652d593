//! Why a message is refused.

use thiserror::Error;

/// A head that is refused. The connection must be closed: where the next message starts is not
/// known.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum HeadError {
    /// The request line does not follow the grammar.
    #[error("malformed request line")]
    RequestLine,
    /// The status line does not follow the grammar.
    #[error("malformed status line")]
    StatusLine,
    /// A line is malformed: bare CR or LF, white space before the colon, obs-fold, a control byte,
    /// no colon.
    #[error("malformed field line")]
    FieldLine,
    /// The request target has the wrong form for its method or contains a forbidden byte.
    #[error("malformed request target")]
    Target,
    /// `Host` is missing, repeated or malformed.
    #[error("missing, repeated or malformed Host")]
    Host,
    /// `Content-Length` is malformed, repeated or too large.
    #[error("malformed Content-Length")]
    ContentLength,
    /// `Transfer-Encoding` is malformed, does not end with `chunked`, or applies it twice.
    #[error("malformed Transfer-Encoding")]
    TransferEncoding,
    /// `Transfer-Encoding` beside `Content-Length`, or in an HTTP/1.0 message.
    #[error("ambiguous message length")]
    AmbiguousLength,
    /// The method does not allow content (TRACE, CONNECT).
    #[error("content with a method that has none")]
    UnexpectedContent,
    /// `Expect` asks for something other than `100-continue`.
    #[error("unknown expectation")]
    Expectation,
    /// A transfer coding before the final `chunked` that the proxy cannot undo.
    #[error("unknown transfer coding")]
    UnknownCoding,
    /// The method is longer than [`METHOD_BYTES_MAX`](crate::METHOD_BYTES_MAX).
    #[error("method too long")]
    MethodTooLong,
    /// The request target is longer than the limit.
    #[error("request target too long")]
    TargetTooLong,
    /// The head exceeds the limit, or names too many options in `Connection`.
    #[error("head too large")]
    TooLarge,
    /// The number of field lines exceeds the limit.
    #[error("too many field lines")]
    TooManyFields,
    /// An HTTP version other than 1.0 and 1.1.
    #[error("unsupported HTTP version")]
    Version,
}

impl HeadError {
    /// The status code to answer a client with: 400, 414, 417, 431, 501 or 505. For a response head
    /// from upstream the answer to the client is 502 instead, whatever the error.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            HeadError::TargetTooLong => 414,
            HeadError::Expectation => 417,
            HeadError::TooLarge | HeadError::TooManyFields => 431,
            HeadError::UnknownCoding | HeadError::MethodTooLong => 501,
            HeadError::Version => 505,
            _ => 400,
        }
    }
}

/// A body that contradicts its framing.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum BodyError {
    /// The connection ended before the body did.
    #[error("body cut off")]
    Truncated,
    /// A chunk size is missing, not hexadecimal, too large, or not followed by CRLF.
    #[error("malformed chunk size")]
    ChunkSize,
    /// A chunk extension does not follow the grammar.
    #[error("malformed chunk extension")]
    ChunkExtension,
    /// Chunk data is not followed by CRLF.
    #[error("chunk data not followed by CRLF")]
    ChunkEnd,
    /// Size lines or extensions are long out of proportion to the data.
    #[error("chunk framing too large")]
    ChunkOverhead,
    /// A trailer field is malformed.
    #[error("malformed trailer")]
    Trailer,
    /// The trailer section exceeds its bound.
    #[error("trailer section too large")]
    TrailerTooLarge,
}

/// A body that its producer ended early or late. The message cannot be completed, so the connection
/// must be closed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum EncodeError {
    /// More data than announced.
    #[error("more data than Content-Length")]
    TooLong,
    /// The end came before the announced length.
    #[error("less data than Content-Length")]
    TooShort,
    /// Data after the end.
    #[error("data after the end of the body")]
    Finished,
}

#[cfg(test)]
mod tests {
    use super::HeadError;

    #[test]
    fn statuses() {
        assert_eq!(HeadError::FieldLine.status(), 400);
        assert_eq!(HeadError::TargetTooLong.status(), 414);
        assert_eq!(HeadError::TooLarge.status(), 431);
        assert_eq!(HeadError::UnknownCoding.status(), 501);
        assert_eq!(HeadError::Version.status(), 505);
    }
}
