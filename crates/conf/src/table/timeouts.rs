//! Time and size limits of requests and answers.

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Limits and timeouts" {
    /// Longest time from accepting a request until it is being forwarded.
    forward_timeout: Duration = Seconds("4 minutes"), "forward_timeout TIME";
    /// Most attempts to forward a request.
    forward_max_tries: u32 = Count("25"), "forward_max_tries NUMBER";
    /// Longest time to connect to a server.
    connect_timeout: Duration = Seconds("1 minute"), "connect_timeout TIME";
    /// Longest time to connect to a peer.
    peer_connect_timeout: Duration = Seconds("30 seconds"), "peer_connect_timeout TIME";
    /// Longest silence of a server while its answer is awaited or arriving.
    read_timeout: Duration = Seconds("15 minutes"), "read_timeout TIME";
    /// Longest time that a server takes nothing of what is sent.
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
    /// Longest life of a persistent connection; 0 is no limit.
    pconn_lifetime: Duration = Seconds("0 seconds"), "pconn_lifetime TIME";
    /// Longest life of a client's connection, whatever it does.
    client_lifetime: Duration = Seconds("1 day"), "client_lifetime TIME";
    /// How long requests may go on after a shutdown was asked for.
    shutdown_lifetime: Duration = Seconds("30 seconds"), "shutdown_lifetime TIME";
    /// Longest head of a request; beyond it the answer is 431.
    request_header_max_size: u64 = Bytes("64 KB"), "request_header_max_size SIZE";
    /// Longest head of an answer; beyond it the client gets 502.
    reply_header_max_size: u64 = Bytes("64 KB"), "reply_header_max_size SIZE";
    /// Longest body of a request; 0 is no limit.
    request_body_max_size: u64 = Bytes("0 KB"), "request_body_max_size SIZE";
    /// Most bytes of a request that wait in memory to be sent on.
    client_request_buffer_max_size: u64 = Bytes("512 KB"), "client_request_buffer_max_size SIZE";
    /// Try another address or peer when a server answers 403, 500, 501 or 503 (502 and 504 always are).
    retry_on_error: bool = OnOff("off"), "retry_on_error on|off";
        }] }
    };
}
pub(super) use working;
