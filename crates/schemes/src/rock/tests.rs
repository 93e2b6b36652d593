//! Promises of `rock` alone: few reads and writes, chains in pieces, torn writes, recovery, purges
//! that hold, limits.

mod crash;
mod memory;
mod purges;
mod reading;
mod simulator;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_store::scheme::Scheme;
use tempfile::TempDir;

use super::Rock;
use super::files::SLOT_FILE;
use crate::SchemeOptions;
use crate::battery::{Seen, key, put, run, see, wait_for_rebuild};
use crate::rock::DirOptions;

/// Bytes of a slot, and of the header of the file.
const SLOT: usize = 16 * 1024;

/// A directory with its options.
struct Place {
    options: DirOptions,
    _dir: TempDir,
}

impl Place {
    fn new(capacity_bytes: u64) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { options: DirOptions::new(dir.path(), capacity_bytes), _dir: dir }
    }

    fn path(&self) -> &Path {
        &self.options.path
    }

    /// Opens it and waits for the rebuild.
    fn open(&self) -> Arc<dyn Scheme> {
        let rock = self.open_only();
        wait_for_rebuild(&*rock);
        rock
    }

    fn open_only(&self) -> Arc<dyn Scheme> {
        crate::open(&self.options.map(SchemeOptions::Rock)).unwrap_or_else(|e| panic!("open: {e}"))
    }

    fn bare(&self) -> Rock {
        Rock::open(&self.options).unwrap_or_else(|e| panic!("open: {e}"))
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path().join(SLOT_FILE)).expect("the slot file")
    }

    fn set_bytes(&self, bytes: &[u8]) {
        fs::write(self.path().join(SLOT_FILE), bytes).expect("the slot file");
    }
}

fn store(rock: &dyn Scheme, url: &str, version: u8, len: u64) {
    put(rock, url, version, len).unwrap_or_else(|e| panic!("storing {url}: {e}"));
}

fn remove(rock: &dyn Scheme, url: &str) -> bool {
    run(rock.remove(&key(url))).unwrap_or_else(|e| panic!("removing {url}: {e}"))
}

/// The end of a process without a clean stop.
fn crash(rock: Arc<dyn Scheme>) {
    drop(rock);
}

/// Waits until nothing but these slots is in use: slots are given back when writes to them have
/// ended.
fn wait_for_used(rock: &dyn Scheme, slots: u64) {
    let start = Instant::now();
    while rock.stats().used_bytes != slots * SLOT as u64 {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", rock.stats());
        run(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
}

/// Number of objects with this name.
fn count(rock: &dyn Scheme, name: &str, of: u64) -> u64 {
    (0..of).filter(|i| matches!(see(rock, &format!("http://{name}/{i}")), Seen::Whole(..))).count()
        as u64
}
