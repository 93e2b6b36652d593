//! Request methods and protocol versions.

/// Longest method accepted, in bytes; a longer one is answered 501.
pub const METHOD_BYTES_MAX: usize = 32;

/// A request method (RFC 9110 9). Names are case-sensitive.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Method {
    /// `GET`
    #[default]
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `CONNECT`
    Connect,
    /// `OPTIONS`
    Options,
    /// `TRACE`
    Trace,
    /// `PATCH` (RFC 5789)
    Patch,
    /// `PURGE`: remove from the cache; Squid's extension
    Purge,
    /// Any other; its text is in the head.
    Other,
}

impl Method {
    /// The method with this text; any unknown text is [`Method::Other`].
    #[inline]
    #[must_use]
    pub fn from_bytes(text: &[u8]) -> Method {
        match text {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            b"PURGE" => Method::Purge,
            _ => Method::Other,
        }
    }

    /// Safe methods do not change anything at the server (RFC 9110 9.2.1).
    #[must_use]
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options | Method::Trace)
    }

    /// Idempotent methods may be sent again after a lost connection (RFC 9110 9.2.2).
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Method::Put | Method::Delete)
    }
}

/// Version of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    #[default]
    Http11,
    /// HTTP/2, which has no start line: `HTTP/2.0` in logs.
    Http2,
}

impl Version {
    /// The text in a start line, or in a log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }

    /// The version in `Via`, where the protocol is HTTP (RFC 9110 7.6.3).
    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2.0",
        }
    }
}
