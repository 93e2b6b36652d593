//! The fate of an answer: [`Cache::fate`] decides it once, when its head has come.
//! [`Cache::admit_to_memory`] decides for an object that is read from a directory.

use std::sync::Arc;

use super::Cache;
use crate::dirs::Dir;
use crate::flow::{Fate, FlowInfo, Keep};
use crate::head::StoredHead;
use crate::key::Key;
use crate::object::About;
use crate::settings::{InTransit, MemoryMode};

/// With `in_transit memory` one arriving object may take this part of `cache_mem`, or as much as an
/// object in memory may have if that is more. A larger one is written as it arrives.
const IN_TRANSIT_SHARE: u64 = 16;

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

    /// The fate of an answer with this head, and the directory that is to get it. An answer that is
    /// not to be stored keeps the fate in `info`. If memory is full, this also notes the key in the
    /// doorkeeper.
    pub fn fate(&self, url: &[u8], head: &StoredHead, info: &FlowInfo) -> (Fate, Option<Arc<Dir>>) {
        let &FlowInfo { key, body_bytes, times: Some(ref times), ref vary, .. } = info else {
            return (info.fate, None);
        };
        let Some(dir) = self.select_dir(body_bytes) else {
            return (Fate::Memory { body_bytes_max: self.keep_bytes_max(false) }, None);
        };
        let keep_bytes_max = self.keep_bytes_max(true);
        let whole_bytes_max = dir.scheme.whole_bytes_max().min(keep_bytes_max);
        // A marker is written beside the body, which may take a while.
        let is_at_end =
            vary.is_none() && body_bytes.is_some_and(|bytes| bytes.max(1) <= whole_bytes_max);
        let about = About { key, url, head, times, body_bytes: body_bytes.unwrap_or(0) };
        let fate = match (is_at_end, self.is_disk_only(&about, is_at_end)) {
            (true, true) => Fate::Lent,
            (true, false) => Fate::AtEnd,
            (false, _) if keep_bytes_max == 0 => Fate::AsItComes(Keep::Unread),
            (false, true) => Fate::AsItComes(Keep::WhileItComes(keep_bytes_max)),
            (false, false) => Fate::AsItComes(Keep::ForGood(keep_bytes_max)),
        };
        (fate, Some(dir))
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
