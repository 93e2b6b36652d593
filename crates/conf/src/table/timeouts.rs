//! Time and size limits of requests and answers.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Limits and timeouts" {
    /// Longest time from accepting a request until it is being forwarded.
    forward_timeout: Duration = Seconds("4 minutes"), "forward_timeout TIME";
    /// Most attempts to forward a request. Where a connection fails, or ends without an answer and
    /// the request can be sent again, the next way is tried: another parent, or the server itself.
    /// All addresses of a host are one way: they are tried until there is a connection.
    forward_max_tries: u32 = Count("25"), "forward_max_tries NUMBER";
    /// Whether another parent, or the server itself, is tried when an answer has the status 403,
    /// 500, 501 or 503 (for 502 and 504 it always is), and the request can be sent again. If no
    /// other way brings an answer, the client gets this one.
    retry_on_error: bool = OnOff("off"), "retry_on_error on|off";
    /// Longest time to connect to a server.
    connect_timeout: Duration = Seconds("1 minute"), "connect_timeout TIME";
    /// Longest time to connect to a peer.
    peer_connect_timeout: Duration = Seconds("30 seconds"), "peer_connect_timeout TIME";
    /// Longest silence of a server while its answer is awaited or arriving.
    read_timeout: Duration = Seconds("15 minutes"), "read_timeout TIME";
    /// Longest time in which a server takes no byte of a request.
    write_timeout: Duration = Seconds("15 minutes"), "write_timeout TIME";
    /// Longest time for a complete request head after its first byte.
    request_timeout: Duration = Seconds("5 minutes"), "request_timeout TIME";
    /// Longest time for the first byte of a new connection.
    request_start_timeout: Duration = Seconds("5 minutes"), "request_start_timeout TIME";
    /// Longest idle time of a client's connection between requests.
    client_idle_pconn_timeout | persistent_request_timeout: Duration = Seconds("2 minutes"),
        "client_idle_pconn_timeout TIME";
    /// Longest idle time of a pooled connection to a server.
    server_idle_pconn_timeout | pconn_timeout: Duration = Seconds("1 minute"), "server_idle_pconn_timeout TIME";
    /// Longest life of a client's connection, whatever it does.
    client_lifetime: Duration = Seconds("1 day"), "client_lifetime TIME";
    /// How long open requests may go on after a shutdown has begun.
    shutdown_lifetime: Duration = Seconds("30 seconds"), "shutdown_lifetime TIME";
    /// Longest head of a request; beyond it the answer is 431.
    request_header_max_size: u64 = HeadBytes("64 KB"), "request_header_max_size SIZE";
    /// Longest head of an answer; beyond it the client gets 502.
    reply_header_max_size: u64 = HeadBytes("64 KB"), "reply_header_max_size SIZE";
    /// Most field lines in the head of a request; beyond it the answer is 431. Squid has no such
    /// limit; nginx calls it `max_headers`.
    request_header_max_fields: usize = FieldLines("1000"), "request_header_max_fields NUMBER";
    /// Most field lines in the head of an answer; beyond it the client gets 502.
    reply_header_max_fields: usize = FieldLines("1000"), "reply_header_max_fields NUMBER";
    /// Whether answers of servers with certain errors are repaired: lines that end with a bare LF,
    /// folded lines (their parts are joined with a space), Content-Length beside
    /// `Transfer-Encoding: chunked` (the chunks count, the length is dropped). The connection to
    /// the server is not used again then, and such an answer is not stored. With `warn` each of
    /// them is a line in cache.log; with `off` the client gets 502. An answer is refused in any
    /// case if the end of its head or body would be in doubt. Requests of clients are always read
    /// strictly: a bare LF, a folded line or two lengths are a 400 (RFC 9112).
    relaxed_header_parser: RelaxedParser = RelaxedParserKind("on"), "relaxed_header_parser on|warn|off";
    /// The treatment of blanks and tabs in a request target: the request is refused with 400
    /// (`deny`), or they are left out (`strip`), percent-encoded (`encode`), or end the target
    /// (`chop`). `allow` is `encode` here. Differs from Squid, whose default is `strip`: such a
    /// target may be made to pass by a filter. One that begins or ends with white space is always
    /// refused.
    uri_whitespace: UriWhitespace = UriWhitespaceKind("deny"), "uri_whitespace strip|deny|allow|encode|chop";
    /// Longest body of a request; 0 is no limit. Beyond it the answer is 413, as soon as
    /// Content-Length or the sum of the chunk sizes exceeds it. Differs from Squid, whose default
    /// is no limit: a length made to overflow a 32-bit number would hold a connection to a server
    /// and one to a client until 4 GB have arrived.
    request_body_max_size: u64 = Bytes("4 GB"), "request_body_max_size SIZE";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Limits and timeouts":
    Unsupported("connections end when they were idle for too long, and those of clients by `client_lifetime`") {
        "pconn_lifetime", "pconn_lifetime TIME", "Longest life of a persistent connection.";
    }
    Ignored("at most 64 KB of a request wait in memory; the client has to wait then") {
        "client_request_buffer_max_size", "client_request_buffer_max_size SIZE", "Most bytes of a request that wait in memory to be sent on.";
    }
};
