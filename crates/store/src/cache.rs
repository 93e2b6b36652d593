//! The one cache of the program: memory, objects in flight and cache directories behind one door.

mod decide;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use humboldt_freshness::Times;
use parking_lot::Mutex;

use crate::dirs::{Dir, DirConfig, Purged, Table};
use crate::disk::{SwapOutError, remove_own};
use crate::events::{StoreEvent, StoreEventKind, StoreEvents};
use crate::flow::{Epoch, Flow, FlowWriter};
use crate::gate::Gate;
use crate::head::StoredHead;
use crate::in_flight::{Begin, InFlight};
use crate::key::Key;
use crate::mem::{Entry, MemTier};
use crate::object::Object;
use crate::purges::Purges;
use crate::scheme::{Confirmed, PUT_PARTS_MAX, Record, RecordKind, SchemeError, Writer};
use crate::settings::{CacheSettings, MemoryMode};
use crate::since::Since;
use crate::vary::VaryMarker;
use crate::versions::{Commit, Voiding};
use crate::voids;

pub use decide::{Arrived, Storable};

/// The result of storing an object at the end of its fetch.
#[derive(Debug)]
pub struct Stored {
    /// It was kept whole, and is complete.
    pub object: Arc<Object>,
    /// It is in memory.
    pub in_memory: bool,
    /// It is in the directory that was asked for; [`Cache::finish_write`] is to follow.
    pub on_disk: bool,
}

/// Memory, objects in flight and cache directories. Shared by all cores.
pub struct Cache {
    mem: Arc<MemTier>,
    in_flight: Arc<InFlight>,
    purges: Arc<Purges>,
    pub(crate) commits: Gate,
    /// Removals from disk without a waiting request.
    pub(crate) voids: AtomicUsize,
    /// Held while a list of parts is changed in memory.
    pub(crate) lists: Mutex<()>,
    table: ArcSwap<Table>,
    /// Counts selections, for taking turns.
    turn: AtomicUsize,
    events: Arc<dyn StoreEvents>,
}

impl Cache {
    /// A cache for `cores` threads over these directories.
    pub fn new(
        settings: CacheSettings,
        cores: usize,
        dirs: Vec<DirConfig>,
        events: Arc<dyn StoreEvents>,
    ) -> Arc<Self> {
        let mem = Arc::new(MemTier::new(
            settings.cache_mem_bytes,
            cores,
            settings.memory_policy,
            events.clone(),
        ));
        let purges = Arc::new(Purges::default());
        Arc::new(Self {
            in_flight: InFlight::new(mem.clone(), settings.read_ahead_bytes, purges.clone()),
            purges,
            mem,
            commits: Gate::new(),
            voids: AtomicUsize::new(0),
            lists: Mutex::new(()),
            table: ArcSwap::from_pointee(Table::new(settings, dirs, Vec::new(), Vec::new(), None)),
            turn: AtomicUsize::new(0),
            events,
        })
    }

    /// Applies new settings and directories. To be called by one thread at a time.
    pub fn reconfigure(&self, settings: CacheSettings, dirs: Vec<DirConfig>) {
        self.reconfigure_leaving(settings, dirs, Vec::new(), Vec::new());
    }

    /// As [`Cache::reconfigure`], with directories that are leaving the configuration. No new
    /// request uses these. Their present users hold the scheme; after the last of them it can be
    /// closed. `missing` are the paths of directories that are configured and could not be opened:
    /// what is purged or replaced meanwhile is not found when they can be.
    pub fn reconfigure_leaving(
        &self,
        settings: CacheSettings,
        dirs: Vec<DirConfig>,
        leaving: Vec<DirConfig>,
        missing: Vec<PathBuf>,
    ) {
        let before = self.table.load_full();
        self.in_flight.set_window(settings.read_ahead_bytes);
        if before.settings.memory_policy != settings.memory_policy {
            self.mem.set_policy(settings.memory_policy);
        }
        self.mem.set_limit(settings.cache_mem_bytes);
        self.table.store(Arc::new(Table::new(settings, dirs, leaving, missing, Some(&before))));
    }

    /// A directory has failed, or could not be closed cleanly. To be called before it is opened
    /// again: answers that it had not written are lost, and older ones may be there instead.
    pub fn doubt(&self, path: &Path) {
        let table = self.table();
        table.dirs.iter().filter(|dir| dir.scheme.path() == path).for_each(|dir| dir.doubt());
    }

    /// The memory tier.
    pub fn mem(&self) -> &Arc<MemTier> {
        &self.mem
    }

    /// The table of objects in flight.
    pub fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// Purges by tag and by prefix.
    pub fn purges(&self) -> &Arc<Purges> {
        &self.purges
    }

    /// Whether a stored answer that was found before has been purged by tag or prefix.
    pub fn is_purged(&self, times: &Times, url: &[u8], head: &StoredHead) -> bool {
        self.purges.concerns(times, url, head)
    }

    /// The same for a record that is being written.
    pub(crate) fn is_record_purged(&self, record: &Record) -> bool {
        record.times.purge_number != self.purges.newest()
            && StoredHead::from_bytes(record.head.clone())
                .is_ok_and(|head| self.is_purged(&record.times, &record.url, &head))
    }

    /// The directories, in the order of the configuration.
    pub fn dirs(&self) -> Vec<Arc<Dir>> {
        self.table.load().dirs.iter().filter(|dir| dir.is_configured()).cloned().collect()
    }

    /// Whether there is any directory, or was.
    pub fn has_dirs(&self) -> bool {
        let table = self.table.load();
        !table.dirs.is_empty() || table.has_absent()
    }

    /// The first directory from position `from` on that may have the key, and its position.
    pub(crate) fn holder(&self, key: &Key, from: usize) -> Option<(usize, Arc<Dir>)> {
        self.table.load().holder(key, from)
    }

    /// `maximum_object_size_in_memory` in bytes.
    pub fn memory_object_bytes_max(&self) -> u64 {
        self.table.load().settings.memory_object_bytes_max
    }

    /// `maximum_object_size` in bytes.
    pub fn disk_object_bytes_max(&self) -> u64 {
        self.table.load().settings.disk_object_bytes_max
    }

    pub(crate) fn events(&self) -> &dyn StoreEvents {
        &*self.events
    }

    pub(crate) fn tier(&self) -> &Arc<MemTier> {
        &self.mem
    }

    /// Looks up a key in memory and counts an access.
    pub fn lookup(&self, key: &Key) -> Option<Entry> {
        let entry = self.mem.get(key)?;
        match &entry {
            Entry::Object(object) if self.purges.has_purged(object) => {
                if self.mem.remove_object(object) {
                    self.mem.tell_release(object);
                }
                None
            }
            _ => Some(entry),
        }
    }

    /// Joins the fetch of `key`, or begins one. `primary` is the key of the URL.
    pub fn begin_or_join(&self, primary: Key, key: Key, url: &[u8]) -> Begin {
        self.in_flight.begin_or_join(primary, key, url)
    }

    /// A flow that no other request joins.
    pub fn private(&self, primary: Key, key: Key) -> FlowWriter {
        self.in_flight.private(primary, key)
    }

    /// After [`FlowWriter::finish`]: stores the object in memory if it was kept whole and should be
    /// there, then ends the entry in the table of objects in flight, so that no request finds
    /// neither. Not stored when the URL was purged meanwhile, or when it is larger than objects in
    /// memory may be. The object goes to `dir` too, if there is one and that is possible at once.
    pub fn store(&self, writer: FlowWriter, url: &[u8], dir: Option<&Dir>) -> Option<Stored> {
        self.store_from(&writer, url, dir)
    }

    /// The same while the entry stays.
    pub(crate) fn store_from(
        &self,
        writer: &FlowWriter,
        url: &[u8],
        dir: Option<&Dir>,
    ) -> Option<Stored> {
        let head = writer.flow().published()?;
        let Some(object) = writer.object(url) else {
            self.remove_older(writer.epoch(), &head.info.key);
            return None;
        };
        let epoch = writer.epoch();
        if self.purges.has_purged(&object) || !self.is_newest(epoch, &object.key) {
            return Some(Stored { object, in_memory: false, on_disk: false });
        }
        let goes_to_memory = head.info.fate.goes_to_memory();
        let was_on_disk = !goes_to_memory && dir.is_some() && self.on_disk(&object.key);
        let mut on_disk = false;
        if let Some(dir) = dir {
            let _commit = self.commits.enter(&epoch.primary());
            on_disk = self.in_flight.is_current(epoch)
                && self.begin_commit(epoch, &object.key)
                && put(dir, &object);
        }
        // A request that still reads the older answer from a directory would put it into memory, if
        // nothing was there. And an object that the directory does not take at once is found in
        // memory until it does.
        let is_refused = dir.is_some() && !on_disk && self.memory_mode() == MemoryMode::Auto;
        let in_memory = (goes_to_memory || was_on_disk || is_refused)
            && object.body_bytes() <= self.memory_object_bytes_max()
            && self.insert_current(epoch, object.key, Entry::Object(object.clone()));
        if !in_memory {
            self.remove_older(epoch, &object.key);
        }
        if in_memory || on_disk {
            writer.flow().note_stored();
        }
        if dir.is_some() && !on_disk {
            writer.flow().note_object(&object);
        }
        Some(Stored { object, in_memory, on_disk })
    }

    /// Puts an answer into memory, where nothing else is, that is asked for again while a directory
    /// writes it in one piece: those who ask for it need not wait for the disk. `false`: it is not
    /// at hand, memory has an answer or does not take it, or it is not current any more.
    pub fn recall(&self, flow: &Flow) -> bool {
        let Some(object) = flow.object() else { return false };
        let (epoch, key) = (flow.epoch(), object.key);
        if key != flow.key()
            || object.body_bytes() > self.memory_object_bytes_max()
            || self.purges.has_purged(&object)
        {
            return false;
        }
        let entry = Entry::Object(object);
        // Memory may have a newer head of the same answer, or a newer marker.
        let insert = || self.in_flight.is_current(epoch) && self.mem.insert_if_absent(key, entry);
        self.while_newest(epoch, &key, 0, insert) == Some(true)
    }

    /// Removes the entry of a key from memory, for an answer that will not be there. After a purge
    /// the entry may be newer, and stays.
    pub(crate) fn remove_older(&self, epoch: Epoch, key: &Key) {
        if epoch.stamp.is_some() || self.in_flight.is_current(epoch) {
            self.while_newest(epoch, key, 0, || self.mem.remove(key));
        }
    }

    fn memory_mode(&self) -> MemoryMode {
        self.table.load().settings.memory_mode
    }

    /// Inserts an entry unless its URL has been purged since `epoch`, or a newer answer has come. A
    /// purge either finds the entry, or is seen here.
    pub fn insert_current(&self, epoch: Epoch, key: Key, entry: Entry) -> bool {
        let generation = if let Entry::Vary(marker) = &entry { marker.generation } else { 0 };
        let insert = || self.in_flight.is_current(epoch) && self.mem.insert(key, entry);
        self.while_newest(epoch, &key, generation, insert) == Some(true)
    }

    /// The same for an object that was read from a directory: it does not replace an answer that
    /// arrived meanwhile, or is under way.
    pub(crate) fn insert_read(&self, since: &Since, object: &Arc<Object>) {
        if self.memory_mode() != MemoryMode::Network
            && self.put_read(since, object.key, Entry::Object(object.clone()))
        {
            // It was asked for before, or it would not have been stored.
            let _ = self.mem.get(&object.key);
        }
    }

    /// The same for any entry.
    pub(crate) fn put_read(&self, since: &Since, key: Key, entry: Entry) -> bool {
        let insert =
            || self.in_flight.is_current(since.epoch) && self.mem.insert_unless_object(key, entry);
        since.reading.while_newest(&key, insert) == Some(true)
    }

    /// The marker of a URL whose answers vary by `fields`: the present one if it has these fields,
    /// a new one otherwise. A new one is stored in memory; [`Cache::write_vary`] stores it on disk.
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

    /// Whether [`Cache::write_vary`] is needed: no directory has the marker, or it may have lost
    /// it.
    pub fn is_to_be_written(&self, epoch: Epoch, marker: &VaryMarker) -> bool {
        !marker.is_written.load(Relaxed) || !self.on_disk(&epoch.primary)
    }

    /// Writes a Vary marker to a directory, so that variants are found after a restart; unless its
    /// URL has been purged since `epoch`, because an old marker would lead to purged answers.
    ///
    /// # Errors
    /// As for the directory; [`SchemeError::Busy`] if none takes it.
    pub async fn write_vary(
        &self,
        epoch: Epoch,
        marker: &VaryMarker,
        times: Times,
    ) -> Result<(), SchemeError> {
        let written = self.put_vary(epoch, marker, times).await;
        let primary = epoch.primary();
        if written.is_err() && self.in_flight.is_current(epoch) && self.is_newest(epoch, &primary) {
            // What is stored belongs to an older answer: its marker would lead to variants that
            // newer ones, which are not found, did not replace.
            self.remove_from_disk(&primary).await;
        }
        written
    }

    async fn put_vary(
        &self,
        epoch: Epoch,
        marker: &VaryMarker,
        times: Times,
    ) -> Result<(), SchemeError> {
        let primary = epoch.primary();
        let dir = self.select_dir(Some(0));
        let dir = dir.ok_or(SchemeError::Busy("no directory takes it"))?;
        let record = Record {
            key: primary,
            kind: RecordKind::Vary,
            url: marker.url.clone(),
            head: marker.to_bytes(),
            times,
        };
        let writer = dir.scheme.create(record, Some(0)).await?;
        // No longer than this, as the variant may be one whose client reads nothing.
        let _committing = self.committing(epoch, primary);
        let committed = self.commit(epoch, &primary, marker.generation, writer, Some(0)).await;
        committed.map_err(|error| match error {
            SwapOutError::Scheme(error) => error,
            _ => SchemeError::Busy("purged or outdated while it was written"),
        })?;
        if self.while_newest(epoch, &primary, marker.generation, || ()).is_none() {
            remove_own(&dir, &primary, &times).await;
            return Err(SchemeError::Busy("outdated while it was written"));
        }
        marker.is_written.store(true, Relaxed);
        self.remove_elsewhere(&primary, Some(&dir)).await;
        Ok(())
    }

    /// Makes a written record visible, unless its URL has been purged since `epoch`, or a newer
    /// answer has arrived. The caller must check afterwards whether one arrived meanwhile.
    pub(crate) async fn commit(
        &self,
        epoch: Epoch,
        key: &Key,
        generation: u64,
        writer: Box<dyn Writer>,
        body_bytes: Option<u64>,
    ) -> Result<(), SwapOutError> {
        if !self.in_flight.is_current(epoch) {
            return Err(SwapOutError::Purged);
        }
        if let Some(stamp) = &epoch.stamp {
            let versions = self.in_flight.versions();
            let commit = versions.commit_in_turn(&epoch.primary(), key, generation, stamp).await;
            if commit == Commit::Outdated {
                return Err(SwapOutError::Outdated);
            }
        }
        // Not before it is its turn: a purge waits for those behind the gate.
        let _commit = self.commits.enter(&epoch.primary());
        if !self.in_flight.is_current(epoch) {
            return Err(SwapOutError::Purged);
        }
        Ok(writer.commit(body_bytes).await?)
    }

    /// After a 304: replaces head and times in memory, the body stays. [`Cache::update_on_disk`]
    /// does the same there.
    pub fn refresh(
        &self,
        epoch: Epoch,
        object: &Object,
        head: StoredHead,
        times: Times,
    ) -> Arc<Object> {
        let fresh = Arc::new(object.refreshed(head, times));
        if self.purges.has_purged(&fresh) {
            return fresh;
        }
        self.insert_current(epoch, fresh.key, Entry::Object(fresh.clone()));
        fresh
    }

    /// Replaces head and times of a record in every directory that has it; a directory that fails
    /// loses the record, so that no old head lives on. Only the answer that was confirmed gets the
    /// new one ([`Scheme::update`](crate::scheme::Scheme::update)).
    pub async fn update_on_disk(&self, epoch: Epoch, record: &Record, confirmed: &Confirmed) {
        for dir in self.table.load_full().dirs.iter().filter(|dir| dir.has(&record.key)) {
            if !self.is_newest(epoch, &record.key) {
                return;
            }
            if self.is_older(record, dir).await {
                dir.remove(&record.key).await;
                continue;
            }
            if let Err(error) = dir.scheme.update(record, confirmed).await {
                dir.note(&error);
                self.tell(StoreEventKind::SwapFail, Some(dir.index), record, 0);
                dir.remove(&record.key).await;
            }
        }
    }

    /// Whether a directory has an answer that was requested before this record. A body that may be
    /// purged must not get a number under which it is not, because heads of one second may be
    /// equal.
    async fn is_older(&self, record: &Record, dir: &Dir) -> bool {
        let number = record.times.purge_number;
        self.purges.are_any_up_to(number)
            && matches!(dir.scheme.open(&record.key).await,
                Ok(Some(open)) if open.record.times.purge_number < number)
    }

    /// The directory that should take an object of this size (`None`: not known yet).
    pub fn select_dir(&self, body_bytes: Option<u64>) -> Option<Arc<Dir>> {
        self.select_other(body_bytes, &[])
    }

    /// The same, without those that have refused it already.
    pub(crate) fn select_other(
        &self,
        body_bytes: Option<u64>,
        tried: &[Arc<Dir>],
    ) -> Option<Arc<Dir>> {
        if body_bytes.is_some_and(|bytes| bytes > self.disk_object_bytes_max()) {
            return None;
        }
        self.table.load().select(body_bytes, self.turn.fetch_add(1, Relaxed), tried)
    }

    /// Whether some directory may have the key.
    pub fn on_disk(&self, key: &Key) -> bool {
        self.table.load().dirs.iter().any(|dir| dir.has(key))
    }

    /// Removes all records of a URL: from memory, flights and all directories. For a URL whose
    /// answers vary, this removes all variants, because their keys depend on the marker that is
    /// removed here. When the future resolves, nothing brings them back, unless it is
    /// [`Purged::Owed`]. After its first poll no request finds any of them, except those that are
    /// being written to a directory at that moment; the rest waits for disks, as long as they take.
    /// A caller that does not want to wait any longer continues with [`Cache::remove_void`].
    pub async fn purge(&self, primary: Key) -> Purged {
        let _voiding = Voiding::new(self.in_flight.versions(), primary);
        let in_flight = if self.in_flight.purge(primary) { Purged::Found } else { Purged::Absent };
        self.remove_all(primary).await.max(in_flight)
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Whether there was an entry.
    pub(crate) fn remove_from_memory(&self, primary: &Key) -> bool {
        let in_memory = self.in_flight.versions().alone(primary, || self.mem.remove(primary));
        if let Some(Entry::Object(object)) = &in_memory {
            self.mem.tell_release(object);
        }
        in_memory.is_some()
    }

    async fn remove_all(&self, primary: Key) -> Purged {
        let mut purged =
            if self.remove_from_memory(&primary) { Purged::Found } else { Purged::Absent };
        let table = self.table();
        table.purge_absent(primary);
        // A record that is under way to a directory may take a while to arrive there.
        let is_nothing_on_its_way = self.commits.is_clear(&primary);
        purged = purged.max(voids::remove_from_all(&table, &primary, || ()).await);
        if !is_nothing_on_its_way {
            self.commits.let_pass(&primary).await;
            purged = purged.max(voids::remove_from_all(&table, &primary, || ()).await);
        }
        purged
    }

    /// Removes a key from all directories, as when a newer answer is not written to any.
    pub async fn remove_from_disk(&self, key: &Key) -> bool {
        self.remove_elsewhere(key, None).await
    }

    /// Removes a key from all directories but one.
    pub(crate) async fn remove_elsewhere(&self, key: &Key, keep: Option<&Arc<Dir>>) -> bool {
        let mut found = false;
        let table = self.table.load_full();
        table.hide_absent(*key);
        for dir in &table.dirs {
            // The same scheme may stand in a table made later.
            if keep.is_none_or(|keep| !Arc::ptr_eq(&keep.scheme, &dir.scheme)) {
                found |= dir.forget(key).await;
            } else {
                dir.has_newest(key);
            }
        }
        found
    }

    pub(crate) fn tell(
        &self,
        kind: StoreEventKind,
        dir: Option<usize>,
        record: &Record,
        body_bytes: u64,
    ) {
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

/// Stores an object in a directory at once, if that is possible.
fn put(dir: &Dir, object: &Object) -> bool {
    let mut parts = [&[][..]; PUT_PARTS_MAX];
    let mut count = 0;
    for part in object.parts() {
        let Some(slot) = parts.get_mut(count) else { return false };
        *slot = part;
        count += 1;
    }
    dir.scheme.put(&object.about(), parts.get(..count).unwrap_or_default()).is_some()
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("mem", &self.mem)
            .field("in_flight", &self.in_flight.len())
            .finish()
    }
}
