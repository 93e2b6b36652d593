//! Connections that go on with another protocol than that of their exchanges.

use std::rc::Rc;

use humboldt_net::Stream;
use humboldt_net::marks::PacketMarks;
use humboldt_runtime::deadline::DeadlineSlot;

use super::h1::{After, H1Client};
use super::socket::Socket;

/// A client's connection that goes on with another protocol, such as TLS in a tunnel that is
/// intercepted.
pub struct Carrier {
    /// The connection, or what carries its bytes from now on.
    pub stream: Stream,
    /// What stays as it was.
    pub kept: Kept,
}

/// What a connection keeps when its protocol changes.
pub struct Kept {
    /// When the connection has to end.
    pub(crate) lifetime: DeadlineSlot,
    /// Marks of the packets that are sent.
    pub(crate) marks: PacketMarks,
}

impl H1Client {
    /// The bytes that have come behind the request.
    pub(super) fn early_bytes(&self) -> &[u8] {
        self.input.bytes()
    }

    /// Takes them.
    pub(super) fn take_early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input).into_bytes(&self.io.read_buffers)
    }

    /// Takes the first of them.
    pub(super) fn take_early_to(&mut self, end: usize) -> Vec<u8> {
        let taken = self.input.bytes().get(..end).unwrap_or(self.input.bytes()).to_vec();
        self.input.consume(&self.io.read_buffers, taken.len());
        taken
    }

    pub(super) fn hand_over(&mut self) {
        self.after = After::HandedOver;
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.after == After::HandedOver
    }

    /// The connection itself; `None` if something of this exchange still uses it.
    pub(crate) fn into_carrier(self) -> Option<Carrier> {
        let (socket, marks) = (Rc::clone(&self.socket), self.marks);
        drop(self);
        let Socket { stream, lifetime, .. } = Rc::try_unwrap(socket).ok()?;
        Some(Carrier { stream, kept: Kept { lifetime, marks } })
    }
}
