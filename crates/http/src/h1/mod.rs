//! The sans-I/O HTTP/1 codec (RFC 9112).
//!
//! Reading: [`parse_request`] and [`parse_response`] turn bytes into a head and refuse every head
//! that two implementations could read differently; [`request_framing`] and [`response_framing`]
//! find the rule for the end of the body; a [`BodyDecoder`] removes the framing. Writing: the
//! `write_*` functions and [`BodyEncoder`]. A message is never forwarded as the received bytes: it
//! is serialised again, without the fields of [`HopByHop`].
//!
//! Every error means: answer if possible, then close the connection.

mod chunk;
mod connection;
mod decode;
mod encode;
mod error;
mod framing;
mod parse;
mod relaxed;
mod whitespace;
mod write;

pub use connection::{HopByHop, keep_alive, remove_named};
pub use decode::{BodyDecoder, DecodeState, Decoded, TRAILER_BYTES_MAX, TRAILER_FIELDS_MAX};
pub use encode::{BodyEncoder, ChunkPrefix};
pub use error::{BodyError, EncodeError, HeadError};
pub use framing::{Framing, chunked_overrides_length, request_framing, response_framing};
pub use parse::{
    HEAD_FIELDS_LIMIT, LEADING_CRLF_MAX, may_complete_head, parse_request, parse_response,
};
pub use write::{write_end, write_field, write_request_line, write_status_line};
