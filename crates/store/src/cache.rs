//! The one cache of the program: memory, objects in flight and cache directories behind one door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use humboldt_freshness::Times;
use humboldt_policy::Policy;
use parking_lot::RwLock;

use crate::events::{StoreEvent, StoreEventKind, StoreEvents};
use crate::flow::{Epoch, FlowWriter};
use crate::head::StoredHead;
use crate::in_flight::{Begin, InFlight};
use crate::key::Key;
use crate::mem::{Entry, MemTier};
use crate::object::Object;
use crate::scheme::{Record, RecordKind, Scheme, SchemeError};
use crate::vary::VaryMarker;

/// `store_dir_select_algorithm`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum DirSelect {
    /// The least busy directory that takes the object; among equals, in turn.
    #[default]
    LeastLoad,
    /// One after the other.
    RoundRobin,
}

/// What can be changed while the cache runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// `cache_mem` in bytes.
    pub cache_mem_bytes: u64,
    /// `memory_replacement_policy`.
    pub memory_policy: Policy,
    /// `maximum_object_size_in_memory` in bytes.
    pub memory_object_bytes_max: u64,
    /// `maximum_object_size` in bytes.
    pub disk_object_bytes_max: u64,
    /// `read_ahead_gap` in bytes.
    pub read_ahead_bytes: u64,
    /// `store_dir_select_algorithm`.
    pub dir_select: DirSelect,
}

/// A cache directory and its position in the configuration.
#[derive(Clone)]
pub struct Dir {
    /// Position, as store.log shows it.
    pub index: usize,
    /// The directory.
    pub scheme: Arc<dyn Scheme>,
}

/// Memory, objects in flight and cache directories. Shared by all cores.
pub struct Cache {
    mem: Arc<MemTier>,
    in_flight: Arc<InFlight>,
    dirs: RwLock<Arc<[Dir]>>,
    settings: RwLock<CacheSettings>,
    /// Copies of two settings that every miss reads.
    memory_object_bytes_max: AtomicU64,
    disk_object_bytes_max: AtomicU64,
    /// Counts selections, for taking turns.
    turn: AtomicUsize,
    events: Arc<dyn StoreEvents>,
}

impl Cache {
    /// A cache for `cores` threads over these directories.
    pub fn new(
        settings: CacheSettings,
        cores: usize,
        schemes: Vec<Arc<dyn Scheme>>,
        events: Arc<dyn StoreEvents>,
    ) -> Arc<Self> {
        let mem =
            Arc::new(MemTier::new(settings.cache_mem_bytes, cores, settings.memory_policy, events.clone()));
        Arc::new(Self {
            in_flight: InFlight::new(mem.clone(), settings.read_ahead_bytes),
            mem,
            dirs: RwLock::new(numbered(schemes)),
            settings: RwLock::new(settings),
            memory_object_bytes_max: AtomicU64::new(settings.memory_object_bytes_max),
            disk_object_bytes_max: AtomicU64::new(settings.disk_object_bytes_max),
            turn: AtomicUsize::new(0),
            events,
        })
    }

    /// Applies new settings and directories. What is being written to a directory that is no longer listed is
    /// finished there.
    pub fn reconfigure(&self, settings: CacheSettings, schemes: Vec<Arc<dyn Scheme>>) {
        let before = std::mem::replace(&mut *self.settings.write(), settings);
        self.memory_object_bytes_max.store(settings.memory_object_bytes_max, Relaxed);
        self.disk_object_bytes_max.store(settings.disk_object_bytes_max, Relaxed);
        self.in_flight.set_window(settings.read_ahead_bytes);
        if before.memory_policy != settings.memory_policy {
            self.mem.set_policy(settings.memory_policy);
        }
        self.mem.set_limit(settings.cache_mem_bytes);
        *self.dirs.write() = numbered(schemes);
    }

    /// The memory tier.
    pub fn mem(&self) -> &MemTier {
        &self.mem
    }

    /// The table of objects in flight.
    pub fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// The directories, in the order of the configuration.
    pub fn dirs(&self) -> Arc<[Dir]> {
        self.dirs.read().clone()
    }

    /// `maximum_object_size_in_memory` in bytes: what [`crate::FlowInfo::keep_bytes_max`] should be for a storable
    /// answer.
    pub fn memory_object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max.load(Relaxed)
    }

    /// `maximum_object_size` in bytes.
    pub fn disk_object_bytes_max(&self) -> u64 {
        self.disk_object_bytes_max.load(Relaxed)
    }

    pub(crate) fn events(&self) -> &dyn StoreEvents {
        &*self.events
    }

    pub(crate) fn tier(&self) -> &Arc<MemTier> {
        &self.mem
    }

    /// Looks up a key in memory and counts an access.
    pub fn lookup(&self, key: &Key) -> Option<Entry> {
        self.mem.get(key)
    }

    /// Joins the fetch of `key`, or begins one. `primary` is the URL's own key.
    pub fn begin_or_join(&self, primary: Key, key: Key) -> Begin {
        self.in_flight.begin_or_join(primary, key)
    }

    /// A flow that nobody joins.
    pub fn private(&self, primary: Key, key: Key) -> FlowWriter {
        self.in_flight.private(primary, key)
    }

    /// After [`FlowWriter::finish`]: stores the object in memory if it was kept whole, then ends the entry in the table
    /// of objects in flight, so that no request finds neither. Not stored when the URL was purged meanwhile.
    pub fn store(&self, writer: FlowWriter, url: &[u8]) -> Option<Arc<Object>> {
        let object = writer.object(url)?;
        self.insert_current(writer.epoch(), object.key, Entry::Object(object.clone())).then_some(object)
    }

    /// Inserts an entry unless its URL has been purged since `epoch`. A purge either finds the entry, or is seen here.
    pub fn insert_current(&self, epoch: Epoch, key: Key, entry: Entry) -> bool {
        if !self.in_flight.is_current(epoch) || !self.mem.insert(key, entry) {
            return false;
        }
        let current = self.in_flight.is_current(epoch);
        if !current {
            self.mem.remove(&key);
        }
        current
    }

    /// The marker of a URL whose answers vary by `fields`: the present one if it says the same, a new one otherwise. A
    /// new one is stored in memory; [`Cache::write_vary`] stores it on disk.
    pub fn vary_marker(&self, epoch: Epoch, url: &[u8], fields: &[u8]) -> Arc<VaryMarker> {
        if let Some(Entry::Vary(marker)) = self.mem.get(&epoch.primary)
            && *marker.fields == *fields
            && *marker.url == *url
        {
            return marker;
        }
        let marker = Arc::new(VaryMarker::new(url, fields));
        self.insert_current(epoch, epoch.primary, Entry::Vary(marker.clone()));
        marker
    }

    /// Writes a Vary marker to a directory, so that variants are found after a restart.
    ///
    /// # Errors
    /// As the directory says; [`SchemeError::Busy`] when none takes it.
    pub async fn write_vary(
        &self,
        primary: Key,
        marker: &VaryMarker,
        times: Times,
    ) -> Result<(), SchemeError> {
        let dir = self.select_dir(Some(0)).ok_or(SchemeError::Busy("no directory takes it"))?;
        let record = Record {
            key: primary,
            kind: RecordKind::Vary,
            url: marker.url.clone(),
            head: marker.to_bytes(),
            times,
        };
        dir.scheme.create(record, Some(0)).await?.commit(Some(0)).await?;
        self.remove_elsewhere(&primary, dir.index).await;
        Ok(())
    }

    /// After a 304: replaces head and times in memory, the body stays. [`Cache::update_on_disk`] does the same there.
    pub fn refresh(&self, epoch: Epoch, object: &Object, head: StoredHead, times: Times) -> Arc<Object> {
        let fresh = Arc::new(object.refreshed(head, times));
        self.insert_current(epoch, fresh.key, Entry::Object(fresh.clone()));
        fresh
    }

    /// Replaces head and times of a record in every directory that has it; a directory that fails loses the record, so
    /// that no old head lives on.
    pub async fn update_on_disk(&self, record: &Record) {
        for dir in self.dirs().iter().filter(|dir| dir.scheme.contains(&record.key)) {
            if dir.scheme.update(record).await.is_err() {
                self.tell(StoreEventKind::SwapFail, Some(dir.index), record, 0);
                // If this fails too, the directory is broken and says so itself.
                let _ = dir.scheme.remove(&record.key).await;
            }
        }
    }

    /// The directory that should take an object of this size (`None`: not known yet).
    pub fn select_dir(&self, body_bytes: Option<u64>) -> Option<Dir> {
        if body_bytes.is_some_and(|bytes| bytes > self.disk_object_bytes_max()) {
            return None;
        }
        let dirs = self.dirs();
        let first = self.turn.fetch_add(1, Relaxed) % dirs.len().max(1);
        let (before, from) = dirs.split_at(first.min(dirs.len()));
        let mut in_turn = from.iter().chain(before).filter(|dir| dir.scheme.admits(body_bytes));
        match self.settings.read().dir_select {
            DirSelect::LeastLoad => in_turn.min_by_key(|dir| dir.scheme.load()).cloned(),
            DirSelect::RoundRobin => in_turn.next().cloned(),
        }
    }

    /// Whether some directory may have the key.
    pub fn on_disk(&self, key: &Key) -> bool {
        self.dirs.read().iter().any(|dir| dir.scheme.contains(key))
    }

    /// Removes everything under a URL: what is in memory, in flight and in all directories. For a URL whose answers
    /// vary, that removes all variants, since their keys depend on the marker removed here. When the future
    /// resolves, nothing brings it back.
    pub async fn purge(&self, primary: Key) -> bool {
        let mut found = self.in_flight.purge(primary);
        match self.mem.remove(&primary) {
            Some(Entry::Object(object)) => {
                self.mem.tell_release(&object);
                found = true;
            }
            Some(_) => found = true,
            None => {}
        }
        self.remove_from_disk(&primary).await || found
    }

    /// Removes a key from all directories, as when a newer answer is not written to any.
    pub async fn remove_from_disk(&self, key: &Key) -> bool {
        self.remove_elsewhere(key, usize::MAX).await
    }

    /// Removes a key from all directories but one.
    pub(crate) async fn remove_elsewhere(&self, key: &Key, keep: usize) -> bool {
        let mut found = false;
        for dir in self.dirs().iter().filter(|dir| dir.index != keep) {
            // Also while a rebuild runs and the index does not know yet.
            let rebuilding = dir.scheme.stats().rebuild_percent < 100;
            if rebuilding || dir.scheme.contains(key) {
                found |= dir.scheme.remove(key).await.unwrap_or(false);
            }
        }
        found
    }

    /// Housekeeping of all directories, to be called about once a second on one core.
    pub async fn maintain(&self) {
        for dir in self.dirs().iter() {
            if let Err(error) = dir.scheme.maintain().await {
                tracing::debug!(path = %dir.scheme.path().display(), %error, "maintenance");
            }
        }
    }

    /// Closes all directories. Blocking; the last thing that is done with a cache.
    pub fn close(&self) {
        for dir in self.dirs().iter() {
            if let Err(error) = dir.scheme.close() {
                tracing::warn!(path = %dir.scheme.path().display(), %error, "not closed cleanly");
            }
        }
    }

    pub(crate) fn tell(&self, kind: StoreEventKind, dir: Option<usize>, record: &Record, body_bytes: u64) {
        let head = StoredHead::from_bytes(record.head.clone()).ok();
        self.events().event(&StoreEvent {
            kind,
            dir,
            key: record.key,
            url: &record.url,
            status: head.as_ref().map_or(0, |head| head.status),
            times: Some(&record.times),
            content_type: head.as_ref().and_then(StoredHead::content_type).unwrap_or_default(),
            body_bytes,
        });
    }
}

fn numbered(schemes: Vec<Arc<dyn Scheme>>) -> Arc<[Dir]> {
    schemes.into_iter().enumerate().map(|(index, scheme)| Dir { index, scheme }).collect()
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("mem", &self.mem).field("in_flight", &self.in_flight.len()).finish()
    }
}
