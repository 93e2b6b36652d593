//! Events of the store: the lines of store.log.

use humboldt_freshness::Times;

use crate::key::Key;

/// An event of a stored answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum StoreEventKind {
    /// Written to a cache directory.
    SwapOut,
    /// Read from a cache directory.
    SwapIn,
    /// Left the cache: evicted from memory, replaced or purged.
    Release,
    /// Could not be written, or did not verify when it was read.
    SwapFail,
}

/// One event. Borrowed: an implementation formats or copies the parts that it needs at once.
#[derive(Copy, Clone, Debug)]
pub struct StoreEvent<'a> {
    /// Its kind.
    pub kind: StoreEventKind,
    /// Position of the cache directory in the configuration, `None` for memory.
    pub dir: Option<usize>,
    /// The object's key.
    pub key: Key,
    /// Its URL.
    pub url: &'a [u8],
    /// Status code of the answer, 0 when it is not known.
    pub status: u16,
    /// Its freshness when known.
    pub times: Option<&'a Times>,
    /// Its media type, empty when there is none.
    pub content_type: &'a [u8],
    /// Bytes of body that were stored, read or released.
    pub body_bytes: u64,
}

/// Receives events, on any core, outside all locks of the store. Must not block.
pub trait StoreEvents: Send + Sync {
    /// Called once for each event.
    fn event(&self, event: &StoreEvent<'_>);
}

/// Ignores all events (`cache_store_log none`).
#[derive(Copy, Clone, Debug, Default)]
pub struct NoEvents;

impl StoreEvents for NoEvents {
    fn event(&self, _: &StoreEvent<'_>) {}
}
