//! Replacement policies: which object leaves a cache first.
//!
//! [`Policy`] is the choice, with its name in squid.conf; [`Order`] is a policy at work. An order
//! owns no object: it works on slots of its owner that are addressed by number ([`Nodes`]), and
//! keeps 12 bytes of links, stamp and mark in each. The memory cache, the index of the file schemes
//! and the laboratory's simulator have slots of their own, and the same orders.
//!
//! Bytes count, not objects: shares of queues are shares of bytes. All sizes are in bytes.

mod clock;
mod ghosts;
mod heap;
mod list;
pub mod model;
mod order;
mod places;
mod s3fifo;
mod sieve;
mod sketch;
mod tinylfu;

pub use clock::{Clock, Rank};
pub use order::Order;

/// No slot: the end of a list.
pub const NONE: u32 = u32::MAX;

/// Largest value of [`Nodes::mark`]: a slot has seven bits for it.
pub const MARK_MAX: u8 = 0x7F;

/// `memory_replacement_policy` and `cache_replacement_policy`: which object leaves first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The least recently used.
    #[default]
    Lru,
    /// Squid's `heap LRU`: the same order as [`Policy::Lru`], and the same code.
    HeapLru,
    /// Greedy dual size with frequency: many uses and few bytes keep an object. Good for hits by
    /// count.
    HeapGdsf,
    /// Least frequently used with dynamic aging: many uses keep an object of any size. Good for
    /// hits by bytes.
    HeapLfuda,
    /// A small queue on probation, a main queue, and the memory of objects that left probation.
    S3Fifo,
    /// One queue, and a hand that goes through it and spares used objects.
    Sieve,
    /// W-TinyLFU: a small window and a segmented LRU list; estimated frequencies decide which
    /// object goes from one to the other.
    TinyLfu,
}

impl Policy {
    /// Every policy, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Lru,
        Self::HeapLru,
        Self::HeapGdsf,
        Self::HeapLfuda,
        Self::S3Fifo,
        Self::Sieve,
        Self::TinyLfu,
    ];

    /// The name in squid.conf.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::HeapLru => "heap LRU",
            Self::HeapGdsf => "heap GDSF",
            Self::HeapLfuda => "heap LFUDA",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
            Self::TinyLfu => "tinylfu",
        }
    }

    /// The policy of a name, in capitals or not.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }
}

/// The slots that an [`Order`] works on. The order owns its fields in a slot from [`Order::admit`]
/// until the slot is removed or evicted. Slots out of range are a mistake of the caller.
pub trait Nodes {
    /// Bits of a stamp that are kept, 1 to 32; differences between stamps count modulo this.
    const STAMP_BITS: u32 = 32;

    /// First link: the next newer slot of a list, or the place in a heap.
    fn newer(&self, at: u32) -> u32;
    /// Sets the first link.
    fn set_newer(&mut self, at: u32, to: u32);
    /// Second link: the next older slot of a list, or the key in a heap.
    fn older(&self, at: u32) -> u32;
    /// Sets the second link.
    fn set_older(&mut self, at: u32, to: u32);
    /// Logical time of the last use that the policy cares about; only [`Nodes::STAMP_BITS`] of it
    /// need be kept.
    fn stamp(&self, at: u32) -> u32;
    /// Sets the stamp.
    fn set_stamp(&mut self, at: u32, to: u32);
    /// The policy's mark, at most [`MARK_MAX`].
    fn mark(&self, at: u32) -> u8;
    /// Sets the mark.
    fn set_mark(&mut self, at: u32, to: u8);
    /// Bytes that are free when the object has left.
    fn cost_bytes(&self, at: u32) -> u64;
    /// A hash of the object's key.
    fn hash(&self, at: u32) -> u64;
}

/// Time since slot `at` was stamped, in logical time.
fn age<N: Nodes>(nodes: &N, at: u32, now: u32) -> u32 {
    let shift = 32 - N::STAMP_BITS;
    (now << shift).wrapping_sub(nodes.stamp(at) << shift) >> shift
}

#[cfg(test)]
mod tests;
