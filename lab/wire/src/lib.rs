//! HTTP/1 and sockets for the laboratory.
//!
//! The laboratory measures proxies, so it shares no code with any: its own epoll loop, its own
//! heads, its own chunked coding. Both ends speak to a cache that may be wrong, so every parser
//! here is strict: a message that can be read in two ways is an error, not a guess.

mod body;
mod chunked;
mod clock;
mod date;
mod head;
mod limits;
mod poll;
mod request;
mod response;
mod timers;

pub use body::BodyLength;
pub use chunked::{ChunkError, Chunked, Fed};
pub use clock::{Clock, pin, thread_cpu_us, unix_us};
pub use date::{HTTP_DATE_BYTES, http_date, parse_http_date};
pub use head::{HEAD_BYTES_MAX, HeadError, Headers};
pub use limits::raise_descriptor_limit;
pub use poll::{Poller, Ready, Waker};
pub use request::{RequestHead, request_head};
pub use response::{ResponseHead, response_head};
pub use timers::Timers;
