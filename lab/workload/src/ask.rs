//! One request, as the stream asks for it.

use crate::name::ObjectName;

/// One request of a simulated user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The requested object. For POST and CONNECT, a name that is requested only once.
    pub name: ObjectName,
    /// The kind of request.
    pub kind: AskKind,
    /// Due this long after the visit's moment, in µs, not scaled.
    pub after_us: u64,
    /// Request id: unique in a run (across worlds), never 0.
    pub id: u64,
    /// Whether this stream has requested the name before.
    pub repeat: bool,
    /// Whether the user gives up before the whole answer is there.
    pub abort: bool,
    /// Which user asks: the same for all requests of a visit.
    pub robot_luck: u32,
    /// Which origin address has it (`server_luck % origins`, see [`ObjectName::origin_index`]);
    /// follows from the name.
    pub server_luck: u32,
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskKind {
    /// A GET without conditions.
    Plain,
    /// A GET with If-Modified-Since before the last modification: the answer is a 200.
    Ims200,
    /// A GET with If-Modified-Since at the last modification: the answer is a 304.
    Ims304,
    /// A GET with `no-cache`: the answer comes from the origin.
    Reload,
    /// A POST.
    Post {
        /// Bytes of its body, at most [`POST_BODY_BYTES_MAX`].
        body_bytes: u64,
    },
    /// A HEAD.
    Head,
    /// A GET for one range of bytes; `first <= last < size`.
    Range {
        /// First byte.
        first: u64,
        /// Last byte, included.
        last: u64,
    },
    /// A CONNECT, and if it is allowed a GET through the tunnel.
    Connect {
        /// Whether the cache must allow it: the target is then an origin, otherwise
        /// [`DENIED_TARGET`].
        ///
        /// [`DENIED_TARGET`]: crate::protocol::DENIED_TARGET
        allowed: bool,
    },
}

/// Largest body of a POST, in bytes.
pub const POST_BODY_BYTES_MAX: u64 = 64 * 1024;
