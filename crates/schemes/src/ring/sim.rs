//! Seeded simulation: a ring on a disk that tears, drops, reorders and misdirects writes, and that
//! loses its power anywhere.
//!
//! Everything runs on one thread and follows from the seed. These must hold: no byte is ever wrong;
//! without a crash a key holds its newest version or nothing; after a crash it may hold an older
//! one, but never one from before an acknowledged removal.
//!
//! `HUMBOLDT_SIM_SEEDS=from..to` runs other seeds than the usual ones, `HUMBOLDT_SIM_SEEDS=17` a
//! single one.

mod scenarios;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use humboldt_base::rng::Rng;
use humboldt_store::scheme::{OpenObject, SchemeError, Writer};
use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;
use parking_lot::Mutex;

use super::geometry::{Files, Geometry};
use super::layout::Claimed;
use super::reader;
use super::recover;
use super::store::Store;
use super::writer::{self, RingWriter};
use crate::battery::{body, key, record};
use crate::block::{BlockFile, ReadFuture, WriteDone};
use crate::ring::DirOptions;

const SEGMENT_BYTES: u64 = 256 * 1024;
const SEGMENTS: u32 = 24;
const KEYS: u64 = 40;
/// Operations in one life of the process, about.
const STEPS_PER_LIFE: u64 = 120;
const LIVES: u64 = 6;
const SECTOR_BYTES: usize = 512;

/// The fate of a write that was not synced when the power fails.
fn fate(rng: &mut Rng, sectors: usize) -> Range<usize> {
    match rng.below(4) {
        0 => 0..0,
        1 => {
            let from = rng.below(sectors as u64) as usize;
            from..from + rng.below((sectors - from) as u64 + 1) as usize
        }
        _ => 0..sectors,
    }
}

/// One file of the simulated disk.
struct SimFile {
    state: Mutex<FileState>,
    power: Arc<Mutex<Power>>,
    /// A completed write is lasting, as with O_DSYNC.
    is_lasting: bool,
    /// Writes may go astray.
    is_careless: bool,
    /// There is no room for writes.
    is_full: AtomicBool,
    /// The unreadable part.
    unreadable: Mutex<Range<u64>>,
}

#[derive(Default)]
struct FileState {
    /// The bytes that a reader sees.
    now: Vec<u8>,
    /// The bytes after a loss of power, if nothing more gets there.
    lasting: Vec<u8>,
    /// Writes since the last sync.
    loose: Vec<(usize, Vec<u8>)>,
    /// Begun and not ended.
    queued: Vec<Queued>,
}

struct Queued {
    offset: u64,
    data: Arc<AppendBuffer>,
    range: Range<usize>,
    done: WriteDone,
}

/// The power fails after this many operations.
struct Power {
    rng: Rng,
    left: u64,
    is_lost: bool,
}

impl SimFile {
    fn new(power: &Arc<Mutex<Power>>, is_lasting: bool, is_careless: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            power: Arc::clone(power),
            is_lasting,
            is_careless,
            is_full: AtomicBool::new(false),
            unreadable: Mutex::default(),
        })
    }

    fn operate(&self) -> io::Result<()> {
        let mut power = self.power.lock();
        power.left = power.left.saturating_sub(1);
        power.is_lost |= power.left == 0;
        if power.is_lost { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let is_last = self.operate().is_err();
        let mut offset = offset as usize;
        let mut state = self.state.lock();
        if self.is_careless {
            let rng = &mut self.power.lock().rng;
            if rng.below(60) == 0 {
                offset = rng.below((state.now.len() / SECTOR_BYTES) as u64) as usize * SECTOR_BYTES;
            }
        }
        let bytes = &bytes[..bytes.len().min(if self.is_careless {
            state.now.len() - offset
        } else {
            usize::MAX
        })];
        if !is_last {
            put(&mut state.now, offset, bytes);
        }
        if self.is_lasting && !is_last {
            put(&mut state.lasting, offset, bytes);
        } else {
            state.loose.push((offset, bytes.to_vec()));
        }
        if is_last { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Ends one of the queued writes, any of them. `false` if there is none.
    fn pump(&self) -> bool {
        let mut state = self.state.lock();
        if state.queued.is_empty() {
            return false;
        }
        let at = self.power.lock().rng.below(state.queued.len() as u64) as usize;
        let Queued { offset, data, range, done } = state.queued.swap_remove(at);
        drop(state);
        let outcome = data
            .read(range)
            .map_or(Err(io::ErrorKind::InvalidInput.into()), |bytes| self.store(offset, bytes));
        done(outcome);
        true
    }

    /// After a loss of power: some of the loose writes are there, in any order, whole or torn.
    fn power_up(&self) {
        let rng = &mut self.power.lock().rng;
        let mut state = self.state.lock();
        let queued = std::mem::take(&mut state.queued);
        for Queued { offset, data, range, .. } in queued {
            let bytes = data.read(range).map(<[u8]>::to_vec).unwrap_or_default();
            state.loose.push((offset as usize, bytes));
        }
        let mut loose = std::mem::take(&mut state.loose);
        while !loose.is_empty() {
            let (offset, bytes) = loose.swap_remove(rng.below(loose.len() as u64) as usize);
            let sectors = fate(rng, bytes.len().div_ceil(SECTOR_BYTES));
            let part = (sectors.start * SECTOR_BYTES).min(bytes.len())
                ..(sectors.end * SECTOR_BYTES).min(bytes.len());
            put(&mut state.lasting, offset + part.start, &bytes[part]);
        }
        state.now = state.lasting.clone();
    }
}

fn put(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if image.len() < offset + bytes.len() {
        image.resize(offset + bytes.len(), 0);
    }
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl BlockFile for SimFile {
    fn read(&self, offset: u64, mut buffer: Buffer) -> ReadFuture {
        let outcome = self.read_blocking(offset, &mut buffer);
        Box::pin(std::future::ready((buffer, outcome)))
    }

    fn read_now(&self, _: u64, _: &mut [u8]) -> Option<io::Result<usize>> {
        None
    }

    fn write(&self, offset: u64, data: Arc<AppendBuffer>, range: Range<usize>, done: WriteDone) {
        if self.is_lasting {
            // The keeper waits for these, and nothing else runs meanwhile.
            let bytes = data.read(range).expect("published");
            return done(self.store(offset, bytes));
        }
        self.state.lock().queued.push(Queued { offset, data, range, done });
    }

    fn read_blocking(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.operate()?;
        let unreadable = self.unreadable.lock().clone();
        if offset < unreadable.end && unreadable.start < offset + into.len() as u64 {
            return Err(io::ErrorKind::Other.into());
        }
        let state = self.state.lock();
        let from = state.now.get(offset as usize..).unwrap_or_default();
        let bytes = from.len().min(into.len());
        into[..bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }

    fn write_blocking(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.store(offset, data)
    }

    fn sync_blocking(&self) -> io::Result<()> {
        self.operate()?;
        let mut state = self.state.lock();
        state.loose.clear();
        state.lasting = state.now.clone();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate()?;
        let mut state = self.state.lock();
        let len = len as usize;
        state.now.resize(len, 0);
        state.lasting.resize(len, 0);
        state.loose.retain(|(offset, bytes)| offset + bytes.len() <= len);
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn alignment_bytes(&self) -> usize {
        4096
    }

    fn in_flight(&self) -> usize {
        self.state.lock().queued.len()
    }

    fn wait_idle(&self, _: Duration) -> bool {
        while self.pump() {}
        true
    }
}

/// A version of a key: of its head, and of its body.
type Version = (u8, u8);

/// The possible values of a key.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// Stored since the last acknowledged removal, the newest last.
    versions: Vec<Version>,
    /// A crash happened since the newest was stored: any of them may be there.
    any: bool,
}

struct World {
    seed: u64,
    rng: Rng,
    power: Arc<Mutex<Power>>,
    files: [Arc<SimFile>; 5],
    store: Arc<Store>,
    expected: BTreeMap<u64, Expected>,
    next_version: u8,
    hits: u64,
    crashes: u64,
}

fn url(key: u64) -> String {
    format!("http://sim/{key}")
}

/// Length of the body of a version.
fn len(key: u64, body_version: u8) -> u64 {
    [0, 700, 5000, 13_000, 60_000, 66_000, 150_000, 400_000]
        [((key * 31 + u64::from(body_version) * 7) % 8) as usize]
}

impl World {
    fn new(seed: u64) -> Self {
        let power = Arc::new(Mutex::new(Power {
            rng: Rng::new(seed ^ 0xD15C),
            left: u64::MAX,
            is_lost: false,
        }));
        let file = |is_lasting, is_careless| SimFile::new(&power, is_lasting, is_careless);
        let files = [
            file(false, seed.is_multiple_of(3)),
            file(false, false),
            file(false, false),
            file(true, false),
            file(true, false),
        ];
        put(
            &mut files[0].state.lock().now,
            0,
            &vec![0; (SEGMENT_BYTES * u64::from(SEGMENTS)) as usize],
        );
        files[0].sync_blocking().expect("there is power");
        let store = open(&files).expect("there is power");
        let (rng, expected) = (Rng::new(seed), BTreeMap::new());
        Self { seed, rng, power, files, store, expected, next_version: 0, hits: 0, crashes: 0 }
    }

    fn pump(&self) -> bool {
        let any = self.files.iter().fold(false, |any, file| file.pump() | any);
        // Two sources of progress: the disk, and the keeper, which has no thread here.
        self.store.keeper.be_patient();
        self.store.keep_house();
        any
    }

    /// Runs a future to its end; `None` if it waits for an event that will not come.
    fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut idle = 0;
        loop {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(value) => return Some(value),
                Poll::Pending if idle > 20 => return None,
                Poll::Pending => idle = if self.pump() { 0 } else { idle + 1 },
            }
        }
    }

    fn step(&mut self) {
        let number = self.rng.below(KEYS);
        match self.rng.below(21) {
            0..7 => self.store_object(number),
            7..9 => self.remove(number),
            9 => self.update(number),
            10 => self.store.flush(),
            11 => _ = self.pump(),
            12 => _ = self.store.checkpoint(),
            13 => {
                let is_there = self.rng.below(3) > 0;
                self.checkpoints_find_room(is_there);
            }
            _ => self.look(number),
        }
    }

    /// Without room, a checkpoint is begun and not completed.
    fn checkpoints_find_room(&self, is_there: bool) {
        self.files[1..3].iter().for_each(|file| file.is_full.store(!is_there, Ordering::Relaxed));
    }

    fn store_object(&mut self, number: u64) {
        self.next_version = self.next_version % 250 + 1;
        let version = self.next_version;
        let (url, bytes) = (url(number), len(number, version));
        let announced = (self.rng.below(2) == 0).then_some(bytes);
        let gives_up = self.rng.below(12) == 0;
        let outcome = self.run(async {
            let mut writer = RingWriter::create(&self.store, record(&url, version), announced)?;
            for start in (0..bytes).step_by(50_000) {
                let end = (start + 50_000).min(bytes);
                writer.write(start, &[&body(&url, version, start, end)]).await?;
            }
            if gives_up {
                return Err(SchemeError::Busy("given up"));
            }
            Box::new(writer).commit(Some(bytes)).await
        });
        // An operation that failed, or was lost with the power, may be there or not.
        if !gives_up {
            let expected = self.expected.entry(number).or_default();
            expected.any = !matches!(outcome, Some(Ok(())));
            expected.versions.push((version, version));
        }
    }

    fn remove(&mut self, number: u64) {
        let outcome = self.run(self.store.remove(&key(&url(number))));
        let expected = self.expected.entry(number).or_default();
        match outcome {
            Some(Ok(_)) => *expected = Expected::default(),
            _ => expected.any = true,
        }
    }

    fn update(&mut self, number: u64) {
        self.next_version = self.next_version % 250 + 1;
        let version = self.next_version;
        let last = self.expected.entry(number).or_default().versions.last().copied();
        let Some((confirmed, body_version)) = last else { return };
        let confirmed = humboldt_store::scheme::Confirmed::of(&record(&url(number), confirmed));
        let new = record(&url(number), version);
        let outcome = self.run(writer::update(&self.store, &new, &confirmed));
        let expected = self.expected.entry(number).or_default();
        // A head that may be gone, or may not be the newest on disk, is not updated: the object is
        // removed.
        expected.any |= !matches!(outcome, Some(Ok(())));
        expected.versions.push((version, body_version));
    }

    fn look(&mut self, number: u64) {
        let url = url(number);
        let key = key(&url);
        let found = self.run(async {
            let open = reader::open(&self.store, &key).await.ok().flatten()?;
            let OpenObject { record: stored, mut reader } = open;
            let head = (stored.times.response_time - 1_700_000_000) as u8;
            assert_eq!(
                stored,
                record(&url, head),
                "seed {}: head and times belong together",
                self.seed
            );
            let total = reader.body_bytes().expect("complete objects only");
            let mut bytes = vec![0; total as usize];
            let mut at = 0;
            while at < bytes.len() {
                match reader.read(at as u64, &mut bytes[at..]).await {
                    Ok(read) => at += read,
                    Err(_) => return None,
                }
            }
            Some((head, bytes))
        });
        let Some((head, bytes)) = found.flatten() else { return };
        let expected = self.expected.entry(number).or_default();
        let matches = |(h, b): &Version| {
            *h == head
                && len(number, *b) == bytes.len() as u64
                && bytes == body(&url, *b, 0, bytes.len() as u64)
        };
        let newest = expected.versions.last().is_some_and(matches);
        let known = expected.versions.iter().any(matches);
        assert!(
            newest || expected.any && known,
            "seed {}: {url} holds head {head}, expected {expected:?}",
            self.seed
        );
        self.hits += 1;
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.store.is_closed.store(true, Ordering::Release);
        self.checkpoints_find_room(true);
        for file in &self.files {
            file.power_up();
        }
        for expected in self.expected.values_mut() {
            expected.any = true;
        }
        let mut left = match self.rng.below(4) {
            0 => self.rng.below(40) + 1,
            1 => self.rng.below(4000) + 1,
            _ => u64::MAX,
        };
        self.store = loop {
            *self.power.lock() = Power { rng: Rng::new(self.rng.next_u64()), left, is_lost: false };
            match open(&self.files) {
                Some(store) => break store,
                None => self.files.iter().for_each(|file| file.power_up()),
            }
            left = u64::MAX;
        };
    }

    /// The power fails when all that was written is lasting, and comes back.
    fn restart(&mut self) {
        self.files[0].sync_blocking().expect("there is power");
        self.files.iter().for_each(|file| file.power_up());
        self.store = open(&self.files).expect("there is power");
    }

    fn live(&mut self) {
        for _ in 0..LIVES {
            for _ in 0..STEPS_PER_LIFE {
                if self.power.lock().is_lost {
                    break;
                }
                self.step();
            }
            match self.rng.below(3) {
                0 => {
                    // A clean stop.
                    self.store.finish();
                    while self.pump() {}
                    let _ = self.store.checkpoint();
                    self.crash();
                }
                _ => self.crash(),
            }
            (0..KEYS).for_each(|number| self.look(number));
        }
    }
}

/// Opens the ring as the program does, but for the thread; `None` if the power fails meanwhile.
fn open(files: &[Arc<SimFile>; 5]) -> Option<Arc<Store>> {
    open_with(files, &files[0])
}

/// The same, with other contents in the page cache.
fn open_with(files: &[Arc<SimFile>; 5], cached: &Arc<SimFile>) -> Option<Arc<Store>> {
    let [data, first, second, removed, also_removed] = files.clone();
    let files = Files {
        cached: Arc::clone(cached) as Arc<dyn BlockFile>,
        data,
        checkpoints: [first, second],
        purges: [removed, also_removed],
    };
    let lock = std::fs::File::open("/dev/null").expect("a descriptor").into();
    let geometry = Geometry { segment_bytes: SEGMENT_BYTES, segments: SEGMENTS };
    let options = DirOptions::new("/simulated", geometry.bytes());
    let store =
        Arc::new(Store::new(&options, Claimed { lock, store_id: 77, geometry, files }).ok()?);
    recover::recover(&store);
    let is_ready = store.checkpoint();
    store.may_store.store(is_ready, Ordering::Release);
    is_ready.then_some(store)
}

fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("HUMBOLDT_SIM_SEEDS") else { return 0..30 };
    let number =
        |text: &str| text.parse::<u64>().expect("HUMBOLDT_SIM_SEEDS is `from..to` or one seed");
    match wanted.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&wanted)..number(&wanted) + 1,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

#[test]
fn no_wrong_byte_and_no_removed_answer_whatever_the_disk_does() {
    let runtime = runtime();
    let _context = runtime.enter();
    let (mut hits, mut crashes) = (0, 0);
    for seed in seeds() {
        let mut world = World::new(seed);
        world.live();
        hits += world.hits;
        crashes += world.crashes;
    }
    let count = seeds().count() as u64;
    assert!(
        hits > 60 * count && crashes >= LIVES * count,
        "the simulation must see something: {hits} hits"
    );
}
