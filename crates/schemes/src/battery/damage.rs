//! Damage by a disk, a crash or an administrator: never wrong bytes.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Bench, Seen};

const OBJECTS: u64 = 24;

/// Files that are damaged are read and written whole, holes and all: not larger than need be.
const CAPACITY_BYTES: u64 = 64 << 20;
const SIZES: [u64; 4] = [0, 3000, 65_536, 200_000];

fn len(i: u64) -> u64 {
    SIZES[i as usize % SIZES.len()]
}

fn filled(kind: &'static str) -> Bench {
    let bench = Bench::with(kind, |options| options.capacity_bytes = CAPACITY_BYTES);
    (0..OBJECTS).for_each(|i| bench.put(&format!("http://harm/{i}"), 1, len(i)));
    bench
}

/// Every object is whole or a miss; returns how many are whole. Twice, since a miss must stay one.
fn survivors(bench: &Bench) -> u64 {
    let look = |i: &u64| match bench.see(&format!("http://harm/{i}")) {
        Seen::Whole(version, bytes) => {
            assert_eq!((version, bytes), (1, len(*i)));
            true
        }
        Seen::Nothing | Seen::Corrupt => false,
    };
    let first = (0..OBJECTS).filter(look).count() as u64;
    assert_eq!((0..OBJECTS).filter(look).count() as u64, first);
    first
}

/// Damaged objects make room for new ones.
fn goes_on(bench: &Bench) {
    for i in 0..OBJECTS {
        let url = format!("http://harm/{i}");
        bench.put(&url, 1, len(i));
        assert_eq!(bench.see(&url), Seen::Whole(1, len(i)));
    }
}

/// All files below `path` but the lock file, which is not data.
fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a listing") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => directories.push(path),
                false if path.extension().is_some_and(|e| e == "lock") => {}
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file");
    change(&mut bytes);
    fs::write(path, bytes).expect("writing it back");
}

/// One bit in each file, at places that differ from round to round.
pub(super) fn flipped_bits(kind: &'static str) {
    for round in 0..6_u64 {
        let bench = filled(kind).restart_after(|path| {
            for (i, file) in files(path).iter().enumerate() {
                rewrite(file, |bytes| {
                    let spread = (round * 31 + i as u64 * 7919).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    if let Some(at) = spread.checked_rem(bytes.len() as u64) {
                        bytes[at as usize] ^= 1 << (round % 8);
                    }
                });
            }
        });
        survivors(&bench);
        goes_on(&bench);
    }
}

pub(super) fn truncated_files(kind: &'static str) {
    for percent in [0, 30, 90, 99] {
        let bench = filled(kind).restart_after(|path| {
            for file in files(path) {
                rewrite(&file, |bytes| bytes.truncate(bytes.len() * percent / 100));
            }
        });
        survivors(&bench);
        goes_on(&bench);
    }
}

/// As after a power failure: lengths are right, the ends were never written.
pub(super) fn zeroed_tails(kind: &'static str) {
    for percent in [1, 50, 97] {
        let bench = filled(kind).restart_after(|path| {
            for file in files(path) {
                rewrite(&file, |bytes| {
                    let start = bytes.len() * percent / 100;
                    bytes[start..].fill(0);
                });
            }
        });
        survivors(&bench);
        goes_on(&bench);
    }
}

pub(super) fn exchanged_files(kind: &'static str) {
    let bench = filled(kind).restart_after(|path| {
        let files = files(path);
        for pair in files.chunks_exact(2) {
            let spare = path.join("spare");
            fs::rename(&pair[0], &spare).expect("a rename");
            fs::rename(&pair[1], &pair[0]).expect("a rename");
            fs::rename(&spare, &pair[1]).expect("a rename");
        }
    });
    survivors(&bench);
    goes_on(&bench);
}

/// Each file alone is deleted.
pub(super) fn deleted_files(kind: &'static str) {
    let bench = filled(kind);
    let count = {
        bench.scheme.close().expect("a clean stop");
        files(bench.path()).len()
    };
    drop(bench);
    for victim in (0..count).step_by(count.div_ceil(8)) {
        let bench = filled(kind).restart_after(|path| {
            let files = files(path);
            fs::remove_file(&files[victim.min(files.len() - 1)]).expect("a file to delete");
        });
        survivors(&bench);
        goes_on(&bench);
    }
}
