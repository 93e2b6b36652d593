//! A client's socket, and the events that are awaited on it.

use humboldt_net::Stream;
use humboldt_runtime::deadline::DeadlineSlot;
use tokio::io::Interest;

/// The other side has closed its sending half, or both: [`TcpStream::ready`] with this interest
/// waits for EPOLLRDHUP and EPOLLHUP, but not for bytes to read. (TCP's urgent data, which the name
/// refers to, is not requested when a socket is registered.)
///
/// [`TcpStream::ready`]: tokio::net::TcpStream::ready
pub(crate) const CLOSED: Interest = Interest::PRIORITY;

/// The connection is broken, for example reset: EPOLLERR.
pub(crate) const BROKEN: Interest = Interest::ERROR;

/// A client's socket, and the timers of its waits.
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    /// Timer of whatever is being waited for.
    pub(crate) deadline: DeadlineSlot,
    /// When the connection has to end (`client_lifetime`), whatever is going on.
    pub(crate) lifetime: DeadlineSlot,
}
