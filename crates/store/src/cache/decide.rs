//! The fate of an answer, which is decided here alone, once, when its head has come:
//! [`Cache::fate`] for an answer that a server sends, [`FlowInfo::of_stored`] for one that is
//! stored already, [`FlowInfo::of_one_client`] for one that the proxy puts together.
//! [`Cache::admit_to_memory`] decides for an object that is read from a directory.

use std::sync::Arc;

use humboldt_freshness::Times;

use super::Cache;
use crate::dirs::Dir;
use crate::flow::{Fate, FlowInfo, Keep};
use crate::head::StoredHead;
use crate::key::Key;
use crate::object::About;
use crate::settings::{InTransit, MemoryMode};
use crate::vary::VaryMarker;

/// With `in_transit memory` one arriving object may take this part of `cache_mem`, or as much as an
/// object in memory may have if that is more. A larger one is written as it arrives.
const IN_TRANSIT_SHARE: u64 = 16;

/// An answer whose head has come from a server.
pub struct Arrived<'a> {
    /// Its URL.
    pub url: &'a [u8],
    /// Its head.
    pub head: &'a StoredHead,
    /// See [`FlowInfo::key`].
    pub key: Key,
    /// Length of the body when it is known.
    pub body_bytes: Option<u64>,
    /// See [`FlowInfo::vary`].
    pub vary: Option<Arc<VaryMarker>>,
    /// Whether it may be stored.
    pub storable: Storable,
}

/// Whether an answer may be stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Storable {
    /// With this freshness.
    Yes(Times),
    /// Not any more, as a newer one or a purge has come meanwhile. All who have joined may have it.
    Outdated,
    /// It is for the request that fetched it alone.
    No,
}

impl FlowInfo {
    /// The facts about an answer that is stored already, and is served unchanged.
    pub fn of_stored(key: Key, body_bytes: Option<u64>, times: Times) -> Self {
        Self { key, body_bytes, fate: Fate::Shared, times: Some(times), vary: None }
    }

    /// The facts about an answer that is put together for one client, of parts of the one with this
    /// key.
    pub fn of_one_client(key: Key, body_bytes: u64, times: Option<Times>) -> Self {
        Self { key, body_bytes: Some(body_bytes), fate: Fate::Private, times, vary: None }
    }
}

impl Cache {
    /// Largest body in bytes that is kept whole, of an answer with or without a directory for it.
    pub(crate) fn keep_bytes_max(&self, goes_to_disk: bool) -> u64 {
        let settings = self.table.load().settings;
        let in_memory = settings.memory_object_bytes_max;
        match settings.in_transit {
            InTransit::Disk if goes_to_disk => 0,
            InTransit::Memory if goes_to_disk => {
                in_memory.max(settings.cache_mem_bytes / IN_TRANSIT_SHARE)
            }
            _ if goes_to_disk => in_memory,
            // There is no reason to keep a body that memory does not take.
            _ => in_memory.min(self.mem.object_bytes_max()),
        }
    }

    /// The facts about an answer whose head has come, its fate among them, and the directory that
    /// is to get it. If memory is full, this also notes the key in the doorkeeper.
    pub fn fate(&self, arrived: Arrived<'_>) -> (FlowInfo, Option<Arc<Dir>>) {
        let Arrived { url, head, key, body_bytes, vary, storable } = arrived;
        let (fate, times, dir) = match storable {
            Storable::No => (Fate::Private, None, None),
            Storable::Outdated => (Fate::Shared, None, None),
            Storable::Yes(times) => {
                let bytes = body_bytes.unwrap_or(0);
                let about = About { key, url, head, times: &times, body_bytes: bytes };
                let dir = self.select_dir(body_bytes);
                let fate = match &dir {
                    None => Fate::Memory { body_bytes_max: self.keep_bytes_max(false) },
                    Some(dir) => {
                        // A marker is written beside the body, which may take a while.
                        let may_be_whole = vary.is_none() && body_bytes.is_some();
                        self.fate_with_dir(&about, may_be_whole, dir)
                    }
                };
                (fate, Some(times), dir)
            }
        };
        (FlowInfo { key, body_bytes, fate, times, vary }, dir)
    }

    /// The fate of an answer that `dir` is to get. `may_be_whole`: in one piece, if it is short.
    fn fate_with_dir(&self, about: &About<'_>, may_be_whole: bool, dir: &Dir) -> Fate {
        let keep_bytes_max = self.keep_bytes_max(true);
        let whole_bytes_max = dir.scheme.whole_bytes_max().min(keep_bytes_max);
        let is_at_end = may_be_whole && about.body_bytes.max(1) <= whole_bytes_max;
        match (is_at_end, self.is_disk_only(about, is_at_end)) {
            (true, true) => Fate::Lent,
            (true, false) => Fate::AtEnd,
            (false, _) if keep_bytes_max == 0 => Fate::AsItComes(Keep::Unread),
            (false, true) => Fate::AsItComes(Keep::WhileItComes(keep_bytes_max)),
            (false, false) => Fate::AsItComes(Keep::ForGood(keep_bytes_max)),
        }
    }

    /// Whether memory does without an answer that a directory takes in one piece (`at_once`) or as
    /// it comes. An answer that replaces an older one in memory is not for a directory only.
    fn is_disk_only(&self, about: &About<'_>, at_once: bool) -> bool {
        let is_wanted = match self.memory_mode() {
            MemoryMode::Always | MemoryMode::Network => true,
            MemoryMode::Disk => false,
            // Room for another arriving object besides: a body that arrives in pieces takes pages
            // from stored objects, and gives them back.
            MemoryMode::Auto => {
                !at_once || self.has_room_or_comes_again(&about.key, 2 * about.memory_bytes())
            }
        };
        !is_wanted && !self.mem.contains(&about.key)
    }

    /// Whether an object that was read from a directory should be in memory now, where it takes
    /// `bytes`. If memory is full, this also notes the key in the doorkeeper.
    pub(crate) fn admit_to_memory(&self, key: &Key, bytes: u64) -> bool {
        match self.memory_mode() {
            _ if !self.mem.takes(bytes) => false,
            MemoryMode::Always | MemoryMode::Disk => true,
            MemoryMode::Network => false,
            MemoryMode::Auto => self.has_room_or_comes_again(key, bytes),
        }
    }

    fn has_room_or_comes_again(&self, key: &Key, bytes: u64) -> bool {
        self.mem.has_room(bytes) || self.table.load().doorkeeper.comes_again(key)
    }
}
