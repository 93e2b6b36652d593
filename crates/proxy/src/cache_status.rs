//! Cache-Status (RFC 9211): how the cache was used for an answer. X-Cache says the same shortly, as
//! Squid does.

/// Why a request went to a server (RFC 9211 2.2).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Forward {
    /// Nothing is stored for the URL.
    #[default]
    UriMiss,
    /// What is stored was selected by other request fields.
    VaryMiss,
    /// The request wants an answer from the server.
    Request,
    /// What is stored is stale.
    Stale,
    /// Only a part of it is stored.
    Partial,
    /// Answers to this method do not come from the cache.
    Method,
    /// The configuration says that the cache is not to be used.
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

/// Whether an answer from a server is stored (RFC 9211 2.5), as far as that is known when its head
/// goes out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// It is not to be stored.
    No,
    /// It is to be stored, once the rest of it has come, which may come to nothing: a detail, and
    /// not `stored`.
    Begun,
    /// It is stored: whoever asks for it now gets it.
    Done,
}

/// X-Cache and Cache-Status, serialised as far as the names of this proxy go.
#[derive(Debug)]
pub(crate) struct CacheStatus {
    /// After the Age value of a hit: its line's end, X-Cache and Cache-Status up to the value of
    /// `ttl`.
    hit: Vec<u8>,
    /// The same for an answer that was validated, to the end of the line.
    validated: Vec<u8>,
    /// The same for an answer that is served since its server failed, up to the value of `ttl`.
    failed: Vec<u8>,
    /// X-Cache and Cache-Status of an answer that came from a server, up to the value of `fwd`.
    forwarded: Vec<u8>,
    /// X-Cache and Cache-Status of an answer that this proxy made itself.
    local: Vec<u8>,
}

impl CacheStatus {
    /// `hostname` is the name in X-Cache, `name` that in Cache-Status.
    pub(crate) fn new(hostname: &str, name: &str) -> Self {
        let fields = |x_cache: &str, status: &str| {
            format!("X-Cache: {x_cache} from {hostname}\r\nCache-Status: {name}{status}")
                .into_bytes()
        };
        let after_age = |status: &str| [&b"\r\n"[..], &fields("HIT", status)].concat();
        Self {
            hit: after_age("; hit; ttl="),
            validated: after_age("; fwd=stale; fwd-status=304\r\n"),
            failed: after_age("; fwd=stale; detail=\"the server failed\"; ttl="),
            forwarded: fields("MISS", "; fwd="),
            local: fields("MISS", "\r\n"),
        }
    }

    /// After the Age value of a hit; `ttl` is what is left of its freshness, in seconds.
    pub(crate) fn write_hit(&self, out: &mut Vec<u8>, ttl: i64) {
        write_ttl(out, &self.hit, ttl);
    }

    /// After the Age value of an answer that its server has confirmed.
    pub(crate) fn write_validated(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.validated);
    }

    /// After the Age value of an answer that is served although it is stale, since its server
    /// failed.
    pub(crate) fn write_failed(&self, out: &mut Vec<u8>, ttl: i64) {
        write_ttl(out, &self.failed, ttl);
    }

    /// The lines of an answer that came from a server: whether it is stored, was fetched for
    /// another request, and with which status it came where that is not the one that is sent.
    pub(crate) fn write_forwarded(
        &self,
        out: &mut Vec<u8>,
        forward: Forward,
        storing: Storing,
        collapsed: bool,
        status: Option<u16>,
    ) {
        out.extend_from_slice(&self.forwarded);
        out.extend_from_slice(forward.token());
        if let Some(status) = status {
            out.extend_from_slice(b"; fwd-status=");
            out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
        }
        match storing {
            Storing::No => {}
            Storing::Begun => out.extend_from_slice(b"; detail=storing"),
            Storing::Done => out.extend_from_slice(b"; stored"),
        }
        if collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The lines of an answer that this proxy made itself.
    pub(crate) fn local(&self) -> &[u8] {
        &self.local
    }
}

fn write_ttl(out: &mut Vec<u8>, front: &[u8], ttl: i64) {
    out.extend_from_slice(front);
    out.extend_from_slice(itoa::Buffer::new().format(ttl).as_bytes());
    out.extend_from_slice(b"\r\n");
}
