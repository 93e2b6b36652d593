//! Memory that counts as in flight and is in no page of the tier: bodies that lie elsewhere while a
//! client reads them there, what has come of bodies whose answer waits for something, and pages
//! that are promised to a body before it is read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{FLOW_BYTES_GUARANTEED, MemTier};

/// Bytes that count as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    tier: Arc<MemTier>,
    bytes: u64,
}

impl MemTier {
    /// Reserves memory for a body of `bytes`, if the share of bodies in flight has room for it, or
    /// all reservations together are at most `least` bytes. The guaranteed minimum of each transfer
    /// needs no reservation.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64, least: u64) -> Option<Reserved> {
        let bytes = if bytes <= FLOW_BYTES_GUARANTEED { 0 } else { bytes };
        let before = self.reserved_bytes.fetch_add(bytes, Relaxed);
        let reserved = Reserved { tier: Arc::clone(self), bytes };
        (bytes == 0 || self.has_in_flight_room(0) || before + bytes <= least).then_some(reserved)
    }

    /// Counts `bytes` of a body that are in memory already, even beyond the share: later ones find
    /// less room.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Waiting {
        self.waiting_bytes.fetch_add(bytes, Relaxed);
        Waiting { tier: Arc::clone(self), bytes }
    }
}

/// What has come of a body while its answer waits, in bytes. It counts as in flight until this is
/// dropped.
#[derive(Debug)]
pub struct Waiting {
    tier: Arc<MemTier>,
    bytes: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.tier.waiting_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

impl Reserved {
    /// This many bytes are in pages now, where they are counted.
    pub(crate) fn use_up(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.tier.reserved_bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.use_up(self.bytes);
    }
}
