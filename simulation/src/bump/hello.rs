//! How a client begins in its tunnel.

use crate::bump::BumpPlan;
use crate::chance::Chance;

/// Where a client leaves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    Never,
    /// Behind the head of CONNECT.
    AfterConnect,
    /// When the tunnel is there.
    AtOnce,
    /// Within its first message, this far in it, in thousandths.
    InHello(u64),
    /// Behind its first message.
    AfterHello,
    /// Behind a request.
    AfterRequest,
    /// Within an answer.
    InAnswer,
}

/// What a client sends first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A first message of TLS in one piece.
    Whole,
    /// In two, cut this far in it, in thousandths.
    Split(u64),
    /// Byte by byte.
    Bytes,
    /// Bytes that are no TLS.
    Garbage,
    /// Bytes that begin like TLS, and break its rules.
    Broken,
    /// Nothing.
    Silent,
}

/// A client's manners in one tunnel.
#[derive(Copy, Clone, Debug)]
pub(super) struct Manner {
    pub(super) shape: Shape,
    pub(super) leaves: Leaves,
    /// It goes away with a reset.
    pub(super) resets: bool,
    /// It goes on although the certificate is none that it trusts.
    pub(super) is_careless: bool,
    /// It names no server.
    pub(super) is_nameless: bool,
    /// It speaks TLS 1.2 at most.
    pub(super) is_old: bool,
    pub(super) requests: u64,
}

impl Manner {
    pub(super) fn new(plan: &BumpPlan, chance: &mut Chance) -> Self {
        let shape = match chance.per_mille(plan.garbage_per_mille) {
            true => chance.one(&[Shape::Garbage, Shape::Broken, Shape::Silent]),
            false => match chance.below(10) {
                0..=4 => Shape::Whole,
                5..=8 => Shape::Split(chance.below(1000)),
                _ => Shape::Bytes,
            },
        };
        let leaves = match chance.per_mille(plan.leaves_per_mille) {
            false => Leaves::Never,
            true => match chance.below(6) {
                0 => Leaves::AfterConnect,
                1 => Leaves::AtOnce,
                2 => Leaves::InHello(chance.below(1000)),
                3 => Leaves::AfterHello,
                4 => Leaves::AfterRequest,
                _ => Leaves::InAnswer,
            },
        };
        Self {
            shape,
            leaves,
            resets: chance.per_mille(300),
            is_careless: chance.per_mille(400),
            is_nameless: chance.per_mille(100),
            is_old: chance.per_mille(200),
            requests: chance.below(4),
        }
    }
}

/// Bytes that are no first message. Each tunnel has its own.
pub(super) fn garbage(shape: Shape, chance: &mut Chance) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..64).map(|_| b'a' + chance.below(26) as u8).collect();
    if shape == Shape::Broken {
        // A record of a handshake whose message is none that a client begins with.
        let head = [22, 3, 1, 0, 200, 9, 0, 0, 100];
        bytes.splice(..head.len(), head);
    }
    bytes
}
