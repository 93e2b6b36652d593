//! The place of an answer among others, before it is put somewhere ([`crate::versions`]).

use std::sync::atomic::Ordering;

use crate::cache::Cache;
use crate::flow::Epoch;
use crate::key::Key;
use crate::mem::Entry;
use crate::since::Since;
use crate::vary::VaryMarker;
use crate::versions::Commit;

/// A commit, until it has ended: a newer answer waits for it.
pub(crate) struct Committing<'a> {
    cache: &'a Cache,
    epoch: Epoch,
    key: Key,
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if let Some(stamp) = &self.epoch.stamp {
            self.cache.in_flight().versions().end_commit(&self.epoch.primary, &self.key, stamp);
        }
    }
}

impl Cache {
    /// Whether the directories' record of a key is older than an answer that is not stored because
    /// its URL was purged since its fetch began.
    pub(crate) fn is_superseded(&self, epoch: Epoch, key: &Key) -> bool {
        epoch.stamp.is_some() && self.is_newest(epoch, key)
    }

    /// To be called when an answer of this URL is found in memory and is not served at once.
    pub fn since_now(&self, primary: Key) -> Since {
        let reading = self.in_flight().read(primary);
        Since { epoch: self.in_flight().epoch(primary), reading }
    }

    /// Whether an answer of this key is void that was found then: a newer one has become complete,
    /// or the URL has been purged.
    pub fn is_void(&self, since: &Since, key: &Key) -> bool {
        !self.in_flight().is_current(since.epoch) || since.reading.is_outdated(key)
    }

    /// Whether there may be an older answer than one that has arrived and is not stored: in memory,
    /// in a directory, or under way.
    pub fn may_have_older(&self, epoch: Epoch) -> bool {
        let primary = epoch.primary;
        matches!(self.mem().get(&primary), Some(Entry::Object(_) | Entry::Vary(_)))
            || self.on_disk(&primary)
            || self.in_flight().versions().has_others(&primary)
    }

    /// Whether nothing else of the URL is under way than the fetch of this epoch.
    pub fn is_alone(&self, epoch: Epoch) -> bool {
        !self.in_flight().versions().has_others(&epoch.primary)
    }

    /// Whether no stored answer of this marker's URL has the key of the variant: none in memory or
    /// in a directory, and there is no older marker in a directory, by which it may have another
    /// key.
    pub fn is_new_variant(&self, primary: &Key, marker: &VaryMarker, variant: &Key) -> bool {
        !self.mem().contains(variant)
            && !self.on_disk(variant)
            && (marker.is_written.load(Ordering::Acquire) || !self.on_disk(primary))
    }

    /// Whether no answer newer than that of this epoch has arrived for a key.
    pub fn is_newest(&self, epoch: Epoch, key: &Key) -> bool {
        self.while_newest(epoch, key, 0, || ()).is_some()
    }

    pub(crate) fn while_newest<R>(
        &self,
        epoch: Epoch,
        key: &Key,
        generation: u64,
        put: impl FnOnce() -> R,
    ) -> Option<R> {
        let versions = self.in_flight().versions();
        versions.while_newest(&epoch.primary, key, generation, epoch.stamp.as_ref(), put)
    }

    /// Whether the answer may be made visible in a directory now. The caller asks again afterwards,
    /// because a newer one may arrive meanwhile.
    pub(crate) fn begin_commit(&self, epoch: Epoch, key: &Key) -> bool {
        epoch.stamp.is_none_or(|stamp| {
            self.in_flight().versions().begin_commit(&epoch.primary, key, 0, &stamp)
                == Commit::Begun
        })
    }

    /// To be dropped after the second look at the committed record of a key.
    pub(crate) fn committing(&self, epoch: Epoch, key: Key) -> Committing<'_> {
        Committing { cache: self, epoch, key }
    }
}
