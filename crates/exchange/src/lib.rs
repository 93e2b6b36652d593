//! One request and its answer: with a client that is answered, and with a server that is asked.
//!
//! A [`ClientExchange`] takes the head, the body and the end of one answer, and gives the body of
//! the request; a [`ServerExchange`] is its counterpart. They are the only types of the program
//! that know a version of HTTP or hold a client's or a server's socket. Heads are fields until an
//! exchange writes them ([`ReplyHead`], [`AskHead`]).
//!
//! There are two implementations of each: HTTP/1, and one in memory ([`memory`]) for tests. Clients
//! may also ask for a tunnel with SOCKS5. A new protocol is a new file here, and a line in each
//! `match` of [`client`] and [`server`].

pub mod buffers;
pub mod client;
mod head;
mod io;
pub mod memory;
mod pace;
mod pipes;
mod pump;
pub mod server;
mod service;
mod tunnel;

pub use client::{
    Carrier, ClientExchange, ClientLost, Refused, ResetReason, SocksSettings, Unreadable,
};
pub use head::{
    AskHead, AskLine, BodyLength, BodyPart, BodySlices, ReplyHead, ReplySink, as_message, collect,
};
pub use io::{ClientSettings, CoreIo};
pub use pace::now_ns;
pub use pump::{BodyPump, PumpError};
pub use server::{Announced, ServerError, ServerExchange, ServerUpload};
pub use service::{Service, answer, serve, serve_on, serve_tunnel, serve_with_socks};
pub use tunnel::{Meter, TunnelEnd, TunnelLimits, TunnelOver, relay};

/// The reason phrase of a status (RFC 9110 15); empty for one without.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "",
    }
}

/// Whether an answer with this status never has a body (RFC 9110 6.4.1).
pub fn is_bodiless_status(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
