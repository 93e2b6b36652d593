//! Cache-Status (RFC 9211): tells how the cache was used for an answer. X-Cache tells the same
//! briefly, as in Squid.

use humboldt_http::FieldSink;

/// Longest `details` in Proxy-Status in bytes; the rest is cut off, as many clients and proxies
/// take heads of a few KB only.
const DETAILS_BYTES_MAX: usize = 512;

/// Why a request went to a server (RFC 9211 2.2).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Forward {
    /// Nothing is stored for the URL.
    #[default]
    UriMiss,
    /// The stored answer was selected by other request fields.
    VaryMiss,
    /// The request wants an answer from the server.
    Request,
    /// The stored answer is stale.
    Stale,
    /// Only a part of the answer is stored.
    Partial,
    /// The cache does not answer this method.
    Method,
    /// The configuration excludes the request from the cache.
    Bypass,
}

impl Forward {
    fn token(self) -> &'static [u8] {
        match self {
            Self::UriMiss => b"uri-miss",
            Self::VaryMiss => b"vary-miss",
            Self::Request => b"request",
            Self::Stale => b"stale",
            Self::Partial => b"partial",
            Self::Method => b"method",
            Self::Bypass => b"bypass",
        }
    }
}

/// Whether an answer from a server is stored (RFC 9211 2.5), as known when its head goes out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// It is not to be stored.
    No,
    /// It will be stored if the rest of it arrives, which may fail. So the field gets a detail, and
    /// not `stored`.
    Begun,
    /// It is stored: requests get it from now on.
    Done,
}

/// The parts of X-Cache and Cache-Status that depend only on the names of this proxy.
#[derive(Debug)]
pub(crate) struct CacheStatus {
    x_cache_hit: Vec<u8>,
    x_cache_miss: Vec<u8>,
    /// Cache-Status of an answer from the cache, up to the value of `ttl`.
    hit: Vec<u8>,
    /// The same for an answer that was validated, to its end.
    validated: Vec<u8>,
    /// The same for a stale answer that is served because its server failed, up to the value of
    /// `ttl`.
    failed: Vec<u8>,
    /// The same for an answer that came from a server, up to the value of `fwd`.
    forwarded: Vec<u8>,
    /// The same for an answer that this proxy made itself.
    local: Vec<u8>,
    /// Proxy-Status of an error, up to its type.
    error: Vec<u8>,
}

/// How the cache was used for an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// It came from the cache; `ttl_s` is its remaining freshness.
    Hit { age_s: u32, ttl_s: i64 },
    /// Its server has confirmed it.
    Validated { age_s: u32 },
    /// It is stale, and served because its server failed.
    Failed { age_s: u32, ttl_s: i64 },
    /// It came from a server.
    Forwarded {
        /// Its age, if it may be stored.
        age_s: Option<u32>,
        /// Why the server was asked.
        forward: Forward,
        /// Whether it is stored.
        storing: Storing,
        /// It was fetched for another request.
        collapsed: bool,
        /// The status that the server sent, if it is not the one that is sent on.
        status: Option<u16>,
    },
    /// This proxy made it.
    Local,
}

impl CacheStatus {
    /// `hostname` is the name in X-Cache, `name` that in Cache-Status.
    pub(crate) fn new(hostname: &str, name: &str) -> Self {
        let x_cache = |word: &str| format!("{word} from {hostname}").into_bytes();
        let name = structured_name(name);
        let status = |text: &str| format!("{name}{text}").into_bytes();
        Self {
            x_cache_hit: x_cache("HIT"),
            x_cache_miss: x_cache("MISS"),
            hit: status("; hit; ttl="),
            validated: status("; fwd=stale; fwd-status=304"),
            failed: status("; fwd=stale; detail=\"the server failed\"; ttl="),
            forwarded: status("; fwd="),
            local: status(""),
            error: status("; error="),
        }
    }

    /// Writes Age, X-Cache and Cache-Status.
    pub(crate) fn write(&self, sink: &mut impl FieldSink, usage: Usage) {
        let mut digits = itoa::Buffer::new();
        match usage {
            Usage::Hit { age_s, ttl_s } => {
                self.write_hit(sink, age_s);
                sink.parts(b"Cache-Status", &[&self.hit, digits.format(ttl_s).as_bytes()]);
            }
            Usage::Validated { age_s } => {
                self.write_hit(sink, age_s);
                sink.field(b"Cache-Status", &self.validated);
            }
            Usage::Failed { age_s, ttl_s } => {
                self.write_hit(sink, age_s);
                sink.parts(b"Cache-Status", &[&self.failed, digits.format(ttl_s).as_bytes()]);
            }
            Usage::Forwarded { age_s, forward, storing, collapsed, status } => {
                if let Some(age_s) = age_s {
                    sink.field(b"Age", digits.format(age_s).as_bytes());
                }
                sink.field(b"X-Cache", &self.x_cache_miss);
                let status = status.map(|status| digits.format(status).as_bytes());
                let (before, status) = match status {
                    Some(status) => (&b"; fwd-status="[..], status),
                    None => (&b""[..], &b""[..]),
                };
                let stored: &[u8] = match storing {
                    Storing::No => b"",
                    Storing::Begun => b"; detail=storing",
                    Storing::Done => b"; stored",
                };
                let shared: &[u8] = if collapsed { b"; collapsed" } else { b"" };
                let parts = [&*self.forwarded, forward.token(), before, status, stored, shared];
                sink.parts(b"Cache-Status", &parts);
            }
            Usage::Local => {
                sink.field(b"X-Cache", &self.x_cache_miss);
                sink.field(b"Cache-Status", &self.local);
            }
        }
    }

    /// Writes Proxy-Status (RFC 9209) of an error, with its type and what else is known.
    pub(crate) fn write_error(&self, sink: &mut impl FieldSink, error: &str, details: &str) {
        let name = b"Proxy-Status";
        if details.is_empty() {
            return sink.parts(name, &[&self.error, error.as_bytes()]);
        }
        let end = details.floor_char_boundary(DETAILS_BYTES_MAX);
        let details = structured_string(details.get(..end).unwrap_or_default());
        sink.parts(name, &[&self.error, error.as_bytes(), b"; details=", details.as_bytes()]);
    }

    fn write_hit(&self, sink: &mut impl FieldSink, age_s: u32) {
        sink.field(b"Age", itoa::Buffer::new().format(age_s).as_bytes());
        sink.field(b"X-Cache", &self.x_cache_hit);
    }
}
/// The name of this proxy as an item of a structured field: a token if it can be one, else a string
/// (RFC 9651 3.3.4).
fn structured_name(name: &str) -> String {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '*');
    let is_token = |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(char);
    match begins && name.chars().all(is_token) {
        true => name.to_owned(),
        false => structured_string(name),
    }
}

/// A string of a structured field (RFC 9651 3.3.3), which has only ASCII: the rest becomes `?`.
fn structured_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.chars().map(|char| if matches!(char, ' '..='~') { char } else { '?' }) {
        if matches!(byte, '"' | '\\') {
            out.push('\\');
        }
        out.push(byte);
    }
    out.push('"');
    out
}
