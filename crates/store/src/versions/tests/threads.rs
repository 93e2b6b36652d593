//! Many threads that fetch, reload, read, purge and give up, over two directories and a small
//! memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use humboldt_base::rng::Rng;
use humboldt_freshness::Times;
use parking_lot::Mutex;

use crate::cache::Cache;
use crate::dirs::{Dir, DirConfig};
use crate::disk::{DiskEntry, Lookup};
use crate::events::NoEvents;
use crate::flow::{Fate, FlowInfo, FlowReader, FlowWriter, Keep, ReaderKind};
use crate::in_flight::Begin;
use crate::mem::Entry;
use crate::settings::{CacheSettings, DirSelect, InTransit, MemoryMode};
use crate::testing::{TestScheme, block_on, info, key, some_head, some_times};
use crate::vary::next_serial;
use crate::versions::Standing;

const URL: &[u8] = b"http://a.example/x";
const KEYS: u64 = 3;
const STEPS: usize = 3000;
const THREADS: u64 = 4;
const BODY_BYTES: usize = 3000;

/// A server whose answers were true at the time of their Date.
#[derive(Default)]
struct Origin {
    version_and_time: Mutex<(u64, i64)>,
    /// The newest version that a client has got, or that was there when a purge began that has
    /// returned.
    floor: AtomicU64,
}

struct World {
    cache: Arc<Cache>,
    schemes: [Arc<TestScheme>; 2],
    origins: Vec<Origin>,
    /// Number of answers from memory, from a directory, and from another's fetch.
    served: [AtomicU64; 3],
}

fn world() -> World {
    let schemes = [TestScheme::new("/a"), TestScheme::new("/b")];
    for scheme in &schemes {
        scheme.faults.at_hand.store(true, SeqCst);
        scheme.faults.is_slow.store(true, SeqCst);
    }
    let config = |(index, scheme): (usize, &Arc<TestScheme>)| DirConfig {
        index,
        scheme: scheme.clone(),
        object_bytes_max: u64::MAX,
        read_only: false,
    };
    let settings = CacheSettings {
        cache_mem_bytes: 64 * 1024,
        memory_policy: humboldt_policy::Policy::Lru,
        memory_object_bytes_max: 32 * 1024,
        disk_object_bytes_max: 1 << 20,
        read_ahead_bytes: 16 * 1024,
        dir_select: DirSelect::RoundRobin,
        memory_mode: MemoryMode::Auto,
        in_transit: InTransit::Auto,
    };
    let dirs = schemes.iter().enumerate().map(config).collect();
    let origins = (0..KEYS).map(|_| Origin::default()).collect();
    let cache = Cache::new(settings, THREADS as usize, dirs, Arc::new(NoEvents));
    World { cache, schemes, origins, served: Default::default() }
}

fn body(version: u64) -> Vec<u8> {
    let mut body = vec![7; BODY_BYTES];
    body[..8].copy_from_slice(&version.to_le_bytes());
    body
}

fn version_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("whole"))
}

struct Actor<'a> {
    world: &'a World,
    rng: Rng,
}

impl Actor<'_> {
    fn dither(&mut self) {
        (0..self.rng.below(3)).for_each(|_| std::thread::yield_now());
    }

    fn step(&mut self) {
        let at = self.rng.below(KEYS);
        match self.rng.below(24) {
            0 => self.purge(at),
            1 | 2 => self.world.origins[at as usize].version_and_time.lock().0 += 1,
            3 => drop(self.world.cache.mem().remove(&key(at))),
            4 => {
                let at_once = self.rng.below(2) == 0;
                let scheme = &self.world.schemes[self.rng.below(2) as usize];
                scheme.faults.at_once.store(at_once, SeqCst);
            }
            5..9 => self.fetch(at, self.world.cache.private(key(at), key(at))),
            _ => self.get(at),
        }
    }

    fn purge(&mut self, at: u64) {
        let origin = &self.world.origins[at as usize];
        let version = origin.version_and_time.lock().0;
        block_on(self.world.cache.purge(key(at)));
        origin.floor.fetch_max(version, SeqCst);
    }

    fn get(&mut self, at: u64) {
        let (cache, origin) = (&self.world.cache, &self.world.origins[at as usize]);
        let floor = origin.floor.load(SeqCst);
        let served = &self.world.served;
        let check = |version: u64, from: usize| {
            let place = ["memory", "a directory", "a fetch"][from];
            assert!(version >= floor, "{version} from {place} after {floor} was acknowledged");
            origin.floor.fetch_max(version, SeqCst);
            served[from].fetch_add(1, SeqCst);
        };
        if let Some(Entry::Object(object)) = cache.lookup(&key(at)) {
            return check(version_in(object.parts().next().expect("a body")), 0);
        }
        self.dither();
        if let Lookup::Found(DiskEntry::Object(hit)) = block_on(cache.open(key(at), &key(at), URL))
        {
            self.dither();
            let Some(held) = block_on(hit.hold(cache)) else { return };
            let mut part = [std::io::IoSlice::new(&[])];
            held.slices(0, 8, &mut part);
            check(version_in(&part[0]), 1);
            self.dither();
            drop(held.kept(cache, true));
            return;
        }
        match cache.begin_or_join(key(at), key(at), URL) {
            Begin::Lead(writer) => self.fetch(at, writer),
            Begin::Wait(_) => {}
            Begin::Join(reader) => {
                if let Some(version) = follow(reader) {
                    check(version, 2);
                }
            }
        }
    }

    fn fetch(&mut self, at: u64, mut writer: FlowWriter) {
        let (cache, origin) = (&self.world.cache, &self.world.origins[at as usize]);
        let Some(_reader) = writer.subscribe(ReaderKind::Client) else { return };
        self.dither();
        writer.ask();
        self.dither();
        let (version, date) = {
            let mut now = origin.version_and_time.lock();
            now.1 += 1;
            *now
        };
        self.dither();
        writer.answer(date, None);
        let standing = writer.announce(&[(key(at), 0)]);
        if standing == Standing::Unclear {
            let voiding = cache.void(key(at));
            self.dither();
            block_on(cache.remove_void(voiding));
        }
        let dir = cache.select_dir(Some(1)).filter(|_| self.rng.below(4) > 0);
        let times = Times { date, response_time: date, serial: next_serial(), ..some_times() };
        let times = (standing == Standing::Newest).then_some(times);
        let fate = match (times, &dir) {
            (None, _) => Fate::Shared,
            (Some(_), None) => Fate::Memory { body_bytes_max: 32 * 1024 },
            (Some(_), Some(_)) if self.rng.below(2) == 0 => Fate::Lent,
            (Some(_), Some(_)) => Fate::AsItComes(Keep::ForGood(32 * 1024)),
        };
        let body_bytes = Some(BODY_BYTES as u64);
        let info = FlowInfo { body_bytes, times, fate, ..info(key(at), 0) };
        writer.publish_head(Arc::new(some_head()), info);
        self.dither();
        if self.rng.below(10) > 0 {
            self.receive(&mut writer, version, dir, &origin.floor);
            self.dither();
        }
    }

    /// The body, and all that is done with it.
    fn receive(
        &mut self,
        writer: &mut FlowWriter,
        version: u64,
        dir: Option<Arc<Dir>>,
        floor: &AtomicU64,
    ) {
        let cache = &self.world.cache;
        let (epoch, head) = (writer.epoch(), writer.flow().published().expect("published"));
        let about = || head.about(URL, BODY_BYTES as u64);
        if let Some(dir) = &dir
            && cache.store_lending(writer, URL, dir, &body(version)).is_some()
        {
            floor.fetch_max(version, SeqCst);
            self.dither();
            _ = block_on(cache.finish_write(epoch, &about().expect("stored"), dir));
            return;
        }
        let streams = self.rng.below(2) == 0;
        let disk = dir.clone().filter(|_| streams).zip(writer.subscribe(ReaderKind::Disk));
        if block_on(writer.append(&body(version))).is_err() {
            return;
        }
        writer.finish(None);
        floor.fetch_max(version, SeqCst);
        self.dither();
        let at_end = dir.filter(|_| !streams);
        let stored = cache.store_from(writer, URL, at_end.as_deref());
        self.dither();
        let Some(record) = head.record(URL) else { return };
        let key = record.key;
        match (stored, at_end, disk) {
            (Some(stored), Some(dir), _) if stored.on_disk => {
                _ = block_on(cache.finish_write(epoch, &stored.object.about(), &dir));
            }
            (Some(stored), Some(dir), _) => {
                _ = block_on(cache.write_object(epoch, &stored.object, dir, None))
            }
            (_, None, Some((dir, reader))) => _ = block_on(cache.swap_out(reader, record, dir)),
            // Also where memory was too short to keep it whole.
            _ if cache.is_newest(epoch, &key) => {
                block_on(cache.remove_from_disk(&key));
            }
            _ => {}
        }
    }
}

/// The version of an answer that another request fetches.
fn follow(mut reader: FlowReader) -> Option<u64> {
    block_on(reader.head()).ok()?;
    let mut bytes = Vec::new();
    while bytes.len() < BODY_BYTES {
        let crate::flow::Progress::Data { .. } = block_on(reader.data()) else { return None };
        let mut slices = Vec::new();
        let got = reader.slices(&mut slices, u64::MAX);
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        reader.advance(got);
    }
    (block_on(reader.data()) == crate::flow::Progress::End).then(|| version_in(&bytes))
}

#[test]
fn nobody_gets_less_than_what_was_acknowledged() {
    let world = world();
    for seed in 0..4 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut actor = Actor { world: &world, rng: Rng::new(seed * THREADS + thread + 1) };
                scope.spawn(move || (0..STEPS).for_each(|_| actor.step()));
            }
        });
    }
    let served = world.served.each_ref().map(|served| served.load(SeqCst));
    assert!(served.iter().all(|&served| served > 0), "{served:?}");
    assert!(world.cache.in_flight().versions().is_empty());
}
