//! Connections that are a tunnel from their first byte on: the packet filter has sent them here,
//! and their clients know of no proxy. They are served as if their clients had asked for the tunnel
//! with CONNECT, but get no answer to that.

use std::rc::Rc;

use humboldt_http::{RequestHead, Target, Version};
use humboldt_net::Stream;

use super::h1::{After, H1Client};
use super::requests::Event;
use crate::io::CoreIo;

/// The one exchange of such a connection. The connection, its time limits and its buffers are those
/// of HTTP/1.
pub struct RawClient {
    pub(super) h1: H1Client,
}

impl RawClient {
    /// A connection to `place`, `HOST:PORT`, and the request for the tunnel. `None`: there is no
    /// such place.
    pub(crate) fn new(io: &Rc<CoreIo>, stream: Stream, place: &str) -> Option<(Self, RequestHead)> {
        let mut head = RequestHead::default();
        head.set_line(b"CONNECT", place.as_bytes(), Target::Authority, Version::Http11);
        let mut h1 = H1Client::new(io, stream);
        let settings = io.settings();
        match h1.begin(&mut head, &settings) {
            Event::Head => Some((Self { h1 }, head)),
            Event::Refused(_) | Event::End => None,
        }
    }

    /// There is a tunnel, or none: then the connection ends.
    pub(super) fn answer(&mut self) {
        self.h1.send_bytes(b"", After::Over);
    }
}
