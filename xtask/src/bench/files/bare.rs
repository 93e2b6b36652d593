//! The bare loop beside the file schemes: the file operations of a cache that does nothing else.
//!
//! It asks for the objects that the load asks the program for. An object that it has is read from
//! its file; any other one is written to a new file, and when the store is full, the object that
//! was used least recently is unlinked before, or its file is overwritten. There are no heads, no
//! checksums, no log and no network.

use crate::Outcome;
use crate::bench::drive::Order;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Directories of the tree, as the program has them.
const DIRECTORIES: u32 = 64;

/// Files in one of them before the next one is used.
const FILES_PER_DIRECTORY: u32 = 256;

/// The course of a loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Loop {
    pub(super) folder: PathBuf,
    pub(super) threads: usize,
    /// Bytes of a file.
    pub(super) file_bytes: usize,
    /// Most files.
    pub(super) files_max: usize,
    pub(super) objects: u64,
    pub(super) zipf: f64,
    pub(super) seed: u64,
    /// The file of the object that leaves is overwritten, rather than unlinked.
    pub(super) reuses: bool,
    /// It ends when so many have been stored, or after this time.
    pub(super) stores: u64,
    pub(super) limit: Duration,
    /// Requests in a slice, each of which is a result.
    pub(super) slice: u64,
}

/// A part of a course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Slice {
    pub(super) seconds: f64,
    pub(super) requests: u64,
    pub(super) hits: u64,
    /// Objects stored since the begin of the course, at the end of the slice.
    pub(super) stored: u64,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The course, as JSON
    course: String,
}

/// `cargo xtask bare-files`.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let course: Loop = serde_json::from_str(&arguments.course)?;
    println!("{}", serde_json::to_string(&course.run()?)?);
    Ok(())
}

/// A step, decided under the lock and done without it.
enum Step {
    Read(u32),
    Store { object: u64, number: u32, leaves: Option<u32> },
}

struct State {
    order: Order,
    asked: u64,
    /// Of each object the number of its file and the time of its last use; `None` while it is
    /// written.
    files: HashMap<u64, (Option<u32>, u64)>,
    by_use: BTreeMap<u64, u64>,
    free: VecDeque<u32>,
    next: u32,
    time: u64,
    hits: u64,
    stored: u64,
    slices: Vec<Slice>,
    began: Instant,
    hits_before: u64,
}

impl Loop {
    fn run(&self) -> Outcome<Vec<Slice>> {
        let root =
            rustix::fs::open(&self.folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        for directory in 0..DIRECTORIES {
            fs::create_dir(self.folder.join(format!("{directory:02X}")))?;
        }
        let state = Mutex::new(State::new(self));
        let end = Instant::now() + self.limit;
        let outcomes: Vec<Result<(), Errno>> = std::thread::scope(|threads| {
            let workers: Vec<_> = (0..self.threads.max(1))
                .map(|_| threads.spawn(|| self.work(&root, &state, end)))
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or(Err(Errno::CANCELED)))
                .collect()
        });
        outcomes.into_iter().collect::<Result<(), _>>()?;
        Ok(std::mem::take(&mut lock(&state).slices))
    }

    fn work(&self, root: &OwnedFd, state: &Mutex<State>, end: Instant) -> Result<(), Errno> {
        let bytes = vec![b'x'; self.file_bytes];
        let mut buffer = vec![0; self.file_bytes];
        loop {
            let Some(step) = lock(state).next(self) else { continue };
            match step {
                Step::Read(number) => read(root, number, &mut buffer)?,
                Step::Store { object, number, leaves } => {
                    if let Some(leaves) = leaves {
                        unlinkat(root, name(leaves), AtFlags::empty())?;
                        lock(state).free.push_back(leaves);
                    }
                    write(root, number, &bytes, self.reuses)?;
                    lock(state).is_stored(object, number);
                }
            }
            let mut state = lock(state);
            state.count(self);
            if state.stored >= self.stores || Instant::now() >= end {
                return Ok(());
            }
        }
    }
}

impl State {
    fn new(course: &Loop) -> Self {
        Self {
            order: Order::zipf(course.objects, course.zipf, course.seed),
            asked: 0,
            files: HashMap::new(),
            by_use: BTreeMap::new(),
            free: VecDeque::new(),
            next: 0,
            time: 0,
            hits: 0,
            stored: 0,
            slices: Vec::new(),
            began: Instant::now(),
            hits_before: 0,
        }
    }

    /// The next step; `None` for an object that is being written: another thread's miss.
    fn next(&mut self, course: &Loop) -> Option<Step> {
        let object = self.order.nth(self.asked);
        self.asked += 1;
        self.time += 1;
        if let Some((number, used)) = self.files.get_mut(&object) {
            let number = (*number)?;
            self.by_use.remove(used);
            *used = self.time;
            self.by_use.insert(self.time, object);
            self.hits += 1;
            return Some(Step::Read(number));
        }
        let leaves = if self.files.len() >= course.files_max { self.evict() } else { None };
        self.files.insert(object, (None, self.time));
        if course.reuses
            && let Some(number) = leaves
        {
            return Some(Step::Store { object, number, leaves: None });
        }
        let number = self.free.pop_front().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        Some(Step::Store { object, number, leaves })
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, object) = self.by_use.pop_first()?;
        self.files.remove(&object)?.0
    }

    fn is_stored(&mut self, object: u64, number: u32) {
        if let Some((place, used)) = self.files.get_mut(&object) {
            *place = Some(number);
            self.by_use.insert(*used, object);
        }
        self.stored += 1;
    }

    /// A request has ended.
    fn count(&mut self, course: &Loop) {
        let before: u64 = self.slices.iter().map(|slice| slice.requests).sum();
        let requests = self.hits + self.stored - before;
        if requests >= course.slice {
            self.slices.push(Slice {
                seconds: self.began.elapsed().as_secs_f64(),
                requests,
                hits: self.hits - self.hits_before,
                stored: self.stored,
            });
            self.began = Instant::now();
            self.hits_before = self.hits;
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(number: u32) -> String {
    format!("{:02X}/{number:08X}", number / FILES_PER_DIRECTORY % DIRECTORIES)
}

/// A file that has just been unlinked was a hit all the same.
fn read(root: &OwnedFd, number: u32, buffer: &mut [u8]) -> Result<(), Errno> {
    match openat(root, name(number), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => rustix::io::pread(&file, buffer, 0).map(drop),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

fn write(root: &OwnedFd, number: u32, bytes: &[u8], reuses: bool) -> Result<(), Errno> {
    let only_new = if reuses { OFlags::empty() } else { OFlags::EXCL };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | only_new;
    let file = openat(root, name(number), flags, Mode::from_raw_mode(0o640))?;
    match rustix::io::pwrite(&file, bytes, 0)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_as_many_files_as_it_may_and_counts_every_request() {
        let folder = tempfile::tempdir().unwrap();
        let course = Loop {
            folder: folder.path().to_owned(),
            threads: 3,
            file_bytes: 2000,
            files_max: 100,
            objects: 400,
            zipf: 0.8,
            seed: 7,
            reuses: false,
            stores: 500,
            limit: Duration::from_secs(60),
            slice: 100,
        };
        let slices = course.run().unwrap();
        assert!(slices.len() > 5 && slices.iter().all(|slice| slice.requests >= 100));
        let hits: u64 = slices.iter().map(|slice| slice.hits).sum();
        assert!(hits > 100 && slices.last().unwrap().stored <= 503, "{slices:?}");
        let files: usize = (0..DIRECTORIES)
            .map(|at| fs::read_dir(folder.path().join(format!("{at:02X}"))).unwrap().count())
            .sum();
        assert!((98..=103).contains(&files), "{files}");
    }
}
