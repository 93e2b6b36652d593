//! The table of objects in flight: one fetch for any number of simultaneous requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::flow::{Epoch, Flow, FlowReader, FlowWriter, ReaderKind, Table};
use crate::key::Key;
use crate::mem::MemTier;
use crate::purges::Purges;
use crate::sync::{AtomicU32, AtomicU64};
use crate::versions::{Fetch, Reading, Versions};

/// Counters of purges in each of two tables, a power of two. URLs share them by hash; only if two
/// URLs share theirs in both tables does a purge of one keep a fetch of the other that runs at the
/// same time from being stored.
const EPOCHS: usize = 1 << 16;

/// The result of a request's look into the table.
#[derive(Debug)]
pub enum Begin {
    /// Nobody fetches it: do. Subscribe to the writer for the request itself. The entry disappears
    /// with the writer.
    Lead(FlowWriter),
    /// Somebody fetches it: follow.
    Join(FlowReader),
    /// It was fetched, and a directory still writes it: look again when the next progress of this
    /// reader is there, whatever it is.
    Wait(FlowReader),
}

/// Objects in flight by key. Shared by all cores.
#[derive(Debug)]
pub struct InFlight {
    table: Arc<Table>,
    epochs: [Box<[AtomicU32]>; 2],
    window_bytes: AtomicU64,
    tier: Arc<MemTier>,
    purges: Arc<Purges>,
    versions: Arc<Versions>,
}

impl InFlight {
    /// An empty table. `window_bytes` is `read_ahead_gap`.
    pub fn new(tier: Arc<MemTier>, window_bytes: u64, purges: Arc<Purges>) -> Arc<Self> {
        Arc::new(Self {
            table: Arc::default(),
            epochs: [(); 2].map(|()| (0..EPOCHS).map(|_| AtomicU32::new(0)).collect()),
            window_bytes: AtomicU64::new(window_bytes),
            tier,
            purges,
            versions: Arc::default(),
        })
    }

    /// Joins the fetch of `key`, or begins one. `primary` is the key of the URL, the one that
    /// purges name.
    pub fn begin_or_join(&self, primary: Key, key: Key, url: &[u8]) -> Begin {
        let mut shard = self.table.shard(&key);
        // A flow that was aborted or purged, or whose first bytes are gone, cannot be joined; a new
        // one takes its place.
        let found = shard.get(&key).filter(|flow| !self.purges.may_concern(flow, url));
        if let Some(waiter) = found.and_then(Flow::waiter) {
            return Begin::Wait(waiter);
        }
        if let Some(reader) = found.and_then(|flow| flow.reader_at(0, ReaderKind::Client)) {
            return Begin::Join(reader);
        }
        let flow = self.new_flow(primary, key);
        let replaced = shard.insert(key, flow.clone());
        drop(shard);
        drop(replaced);
        Begin::Lead(FlowWriter::new(flow, Arc::clone(&self.table), true))
    }

    /// A flow that no request can join, for answers to requests that are not collapsed.
    pub fn private(&self, primary: Key, key: Key) -> FlowWriter {
        FlowWriter::new(self.new_flow(primary, key), Arc::clone(&self.table), false)
    }

    fn new_flow(&self, primary: Key, key: Key) -> Arc<Flow> {
        self.flow_of(key, self.epoch(primary), self.purges.newest())
    }

    fn flow_of(&self, key: Key, epoch: Epoch, purge_number: u64) -> Arc<Flow> {
        let window_bytes = self.window_bytes.load(Ordering::Relaxed);
        let fetch = Fetch::new(&self.versions, epoch.primary);
        Flow::new(key, epoch, purge_number, fetch, window_bytes, self.tier.clone())
    }

    /// Begins to read the directories' records of a URL.
    pub(crate) fn read(&self, primary: Key) -> Reading {
        Reading::new(&self.versions, primary)
    }

    pub(crate) fn versions(&self) -> &Arc<Versions> {
        &self.versions
    }

    /// The purge epoch of a URL now.
    pub fn epoch(&self, primary: Key) -> Epoch {
        let [one, two] = self.counters(primary);
        Epoch {
            primary,
            purges: [one.load(Ordering::SeqCst), two.load(Ordering::SeqCst)],
            stamp: None,
        }
    }

    /// Whether nothing was purged under the URL since. A purge changes both counters, so one
    /// unchanged counter is enough.
    pub fn is_current(&self, epoch: Epoch) -> bool {
        let [one, two] = self.epoch(epoch.primary).purges;
        one == epoch.purges[0] || two == epoch.purges[1]
    }

    fn counters(&self, primary: Key) -> [&AtomicU32; 2] {
        let at = |bits: u64| bits as usize & (EPOCHS - 1);
        [&self.epochs[0][at(primary.low64())], &self.epochs[1][at(primary.high64())]]
    }

    /// Begins a new epoch: present fetches finish for their followers, but are neither joined nor
    /// stored.
    pub fn purge(&self, primary: Key) -> bool {
        self.begin_epoch(primary);
        self.table.shard(&primary).remove(&primary).is_some()
    }

    /// The same for an answer that makes all earlier ones void and may be stored itself: its flow
    /// belongs to the epoch that begins here, and to none that another purge begins.
    pub(crate) fn purge_for(&self, primary: Key, purge_number: u64) -> FlowWriter {
        let epoch = self.begin_epoch(primary);
        self.table.shard(&primary).remove(&primary);
        let flow = self.flow_of(primary, epoch, purge_number);
        FlowWriter::new(flow, Arc::clone(&self.table), false)
    }

    fn begin_epoch(&self, primary: Key) -> Epoch {
        let begin = |counter: &AtomicU32| counter.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        Epoch { primary, purges: self.counters(primary).map(begin), stamp: None }
    }

    /// Fetches that can be joined now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes `read_ahead_gap` for flows that begin from now on.
    pub fn set_window(&self, bytes: u64) {
        self.window_bytes.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::flow::{AbortReason, Progress};
    use crate::testing::{block_on, info, key, pattern, some_head, tier};

    #[test]
    fn of_many_simultaneous_requests_one_leads_and_all_get_the_body() {
        let table = InFlight::new(tier(64 * 1024 * 1024), 0, Arc::default());
        let content = pattern(0, 50_000);
        for round in 0..50 {
            let leads = AtomicUsize::new(0);
            let (start, begun) = (Barrier::new(8), Barrier::new(8));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        let begin = table.begin_or_join(key(round), key(round), b"");
                        // Nobody finishes before all have begun.
                        begun.wait();
                        let mut reader = match begin {
                            Begin::Lead(mut writer) => {
                                leads.fetch_add(1, Ordering::SeqCst);
                                let reader =
                                    writer.subscribe(ReaderKind::Client).expect("at the start");
                                writer
                                    .publish_head(Arc::new(some_head()), info(key(round), 1 << 20));
                                block_on(writer.append(&content)).expect("memory is there");
                                writer.finish(None);
                                reader
                            }
                            Begin::Join(reader) | Begin::Wait(reader) => reader,
                        };
                        let mut bytes = 0;
                        while let Progress::Data { available } = block_on(reader.data()) {
                            bytes += available;
                            reader.advance(available);
                        }
                        assert_eq!(bytes, 50_000);
                        assert_eq!(block_on(reader.data()), Progress::End);
                    });
                }
            });
            assert_eq!((leads.into_inner(), table.len()), (1, 0));
        }
    }

    #[test]
    fn a_purge_makes_void_what_began_before_it_and_hardly_anything_else() {
        let table = InFlight::new(tier(1 << 20), 0, Arc::default());
        let fetches: Vec<_> = (0..1000).map(|n| table.private(key(n), key(n))).collect();
        (1000..30_000).for_each(|n| _ = table.purge(key(n)));
        let void = fetches.iter().filter(|fetch| !table.is_current(fetch.epoch())).count();
        assert!(void < 250, "{void} of 1000 fetches are void by 29,000 purges of others");
        (0..1000).for_each(|n| _ = table.purge(key(n)));
        assert!(fetches.iter().all(|fetch| !table.is_current(fetch.epoch())));
        let own = table.purge_for(key(1), 0);
        assert!(table.is_current(own.epoch()));
        table.purge(key(1));
        assert!(!table.is_current(own.epoch()));
    }

    #[test]
    fn what_a_directory_writes_is_waited_for_and_not_fetched_again() {
        let table = InFlight::new(tier(1 << 20), 0, Arc::default());
        for keep in [0, 1 << 20] {
            let Begin::Lead(mut writer) = table.begin_or_join(key(1), key(1), b"") else {
                panic!("the table is empty")
            };
            let mut disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
            writer.publish_head(Arc::new(some_head()), info(key(1), keep));
            block_on(writer.append(&pattern(0, 50_000))).expect("memory is there");
            disk.advance(50_000);
            writer.finish(None);
            drop(writer);
            let Begin::Wait(mut waiter) = table.begin_or_join(key(1), key(1), b"") else {
                panic!("it is being written")
            };
            let wakes = crate::testing::Wakes::new();
            assert!(wakes.poll(|cx| waiter.poll_data(cx)).is_pending());
            assert_eq!(table.len(), 1);
            drop(disk);
            assert_eq!((wakes.take(), table.len()), (1, 0));
            assert!(matches!(block_on(waiter.data()), Progress::Lagged { .. }));
            // Purged while it is written, or not complete: no request waits for it.
            for purges in [true, false] {
                let Begin::Lead(mut writer) = table.begin_or_join(key(1), key(1), b"") else {
                    panic!("the table is empty")
                };
                let disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
                if purges {
                    writer.finish(None);
                }
                drop(writer);
                assert_eq!(table.len(), usize::from(purges));
                table.purge(key(1));
                assert!(matches!(table.begin_or_join(key(1), key(1), b""), Begin::Lead(_)));
                drop(disk);
                assert!(table.is_empty());
            }
        }
    }

    #[test]
    fn an_entry_goes_with_its_writer_and_not_with_a_replaced_one() {
        let table = InFlight::new(tier(1 << 20), 0, Arc::default());
        let Begin::Lead(first) = table.begin_or_join(key(1), key(1), b"") else {
            panic!("the table is empty")
        };
        assert!(matches!(table.begin_or_join(key(1), key(1), b""), Begin::Join(_)));
        table.purge(key(1));
        assert!(!table.is_current(first.epoch()));
        let Begin::Lead(second) = table.begin_or_join(key(1), key(1), b"") else {
            panic!("the first was purged")
        };
        assert!(table.is_current(second.epoch()));
        first.abort(AbortReason::Cancelled);
        assert_eq!(table.len(), 1, "the second one stays");
        drop(second);
        assert!(table.is_empty());
        drop(table.private(key(2), key(2)));
        assert!(table.is_empty(), "a private flow is never listed");
    }
}
