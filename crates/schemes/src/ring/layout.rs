//! The owner of a directory: the lock file, the recognition of foreign directories, and the files
//! beside it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::geometry::{CAPACITY_BYTES_MAX, Files, Geometry};
use super::segments::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN, segment_bytes_for};
use crate::block::{self, BlockFile, OpenBlock};
use crate::{DirOptions, OpenError, PageCache, RingOptions};

/// Name of the file that names the owner of the directory.
const LOCK_FILE: &str = "humboldt.lock";
/// Segments.
const DATA_FILE: &str = "ring.data";
/// Checkpoints.
const CHECKPOINT_FILES: [&str; 2] = ["ring.index.0", "ring.index.1"];
/// Logs of removals.
const PURGE_FILES: [&str; 2] = ["ring.removed.0", "ring.removed.1"];

const TITLE: &str = "Humboldt cache directory";
const SCHEME: &str = "scheme ring\nformat 1\n";

/// Longest lock file that is read.
const LOCK_FILE_BYTES_MAX: usize = 1024;

/// Threads for reads and writes that need not be fast.
const SMALL_FILE_THREADS: u32 = 1;

/// A directory that is ours, locked, with its files open.
pub(crate) struct Claimed {
    pub(crate) lock: OwnedFd,
    pub(crate) store_id: u64,
    pub(crate) geometry: Geometry,
    pub(crate) files: Files,
}

fn failed(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> OpenError {
    OpenError::Io { operation, path: path.to_owned(), source: error.into() }
}

/// Makes sure that the directory is ours, and claims it for this process. Creates missing parts.
pub(crate) fn claim(options: &DirOptions<RingOptions>) -> Result<Claimed, OpenError> {
    let path = &options.path;
    options.own.check().map_err(|error| options.bad(error))?;
    if options.capacity_bytes > CAPACITY_BYTES_MAX {
        return Err(options.bad("a ring has at most 8 TiB: give it several directories"));
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o750).create(path).map_err(|e| failed("create", path, e))?;
    refuse_foreign(path)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let lock = rustix::fs::open(path.join(LOCK_FILE), flags, Mode::from_raw_mode(0o640))
        .map_err(|e| failed("open the lock file of", path, e))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            return Err(OpenError::Locked { path: path.clone(), lock: LOCK_FILE });
        }
        other => other.map_err(|e| failed("lock", path, e))?,
    }
    let lock_file = std::fs::File::from(lock);
    let (store_id, segment_bytes) = read_or_write_claim(&lock_file, options)?;
    let segments = u32::try_from(options.capacity_bytes / segment_bytes).unwrap_or(u32::MAX);
    if segments < SEGMENTS_MIN {
        return Err(options.bad("too small for a ring: give it at least 2 MB"));
    }
    let files = open_files(options)?;
    let segments = make_room(&*files.data, path, Geometry { segment_bytes, segments })?;
    let geometry = Geometry { segment_bytes, segments };
    Ok(Claimed { lock: lock_file.into(), store_id, geometry, files })
}

fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    if path.join(LOCK_FILE).metadata().is_ok_and(|lock| lock.len() > 0) {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(|e| failed("list", path, e))? {
        let name = entry.map_err(|e| failed("list", path, e))?.file_name();
        let name = name.to_string_lossy();
        if name != LOCK_FILE && !crate::beside::may_be_beside(&name) {
            let reason = format!("it has '{}', but no {LOCK_FILE}", name.escape_debug());
            return Err(OpenError::Foreign { path: path.to_owned(), reason });
        }
    }
    Ok(())
}

/// An id for a new store.
fn new_id(path: &Path) -> Result<u64, OpenError> {
    if let Some(store_id) = crate::simulated::store_id() {
        return Ok(store_id);
    }
    let mut id = [0; 8];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| failed("ask for random numbers for", path, e))?;
    Ok(u64::from_le_bytes(id))
}

/// Store id and length of segments, from the lock file, which is written if it is missing.
fn read_or_write_claim(
    lock: &std::fs::File,
    options: &DirOptions<RingOptions>,
) -> Result<(u64, u64), OpenError> {
    let path = &options.path;
    let mut bytes = vec![0; LOCK_FILE_BYTES_MAX];
    let read = lock.read_at(&mut bytes, 0).map_err(|e| failed("read the lock file of", path, e))?;
    bytes.truncate(read);
    if read == 0 {
        let (store_id, segment_bytes) = (new_id(path)?, segment_bytes_for(options.capacity_bytes));
        let text = format!("{TITLE}\n{SCHEME}segment {segment_bytes}\nid {store_id:016x}\n");
        crate::lock::write_claim(lock, &text)
            .map_err(|e| failed("write the lock file of", path, e))?;
        return Ok((store_id, segment_bytes));
    }
    let text = String::from_utf8_lossy(&bytes);
    let Some(rest) = text.strip_prefix(TITLE) else {
        let reason = format!("its {LOCK_FILE} is not Humboldt's");
        return Err(OpenError::Foreign { path: path.clone(), reason });
    };
    let field =
        |name: &str| rest.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let segment_bytes = field("segment").and_then(|bytes| bytes.parse::<u64>().ok());
    let segment_bytes = segment_bytes.filter(|bytes| {
        bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(bytes)
    });
    let store_id = field("id").and_then(|id| u64::from_str_radix(id, 16).ok());
    match (rest.trim_start().starts_with(SCHEME), store_id, segment_bytes) {
        (true, Some(store_id), Some(segment_bytes)) => Ok((store_id, segment_bytes)),
        _ => Err(OpenError::Mismatch {
            path: path.clone(),
            found: rest.lines().skip(1).collect::<Vec<_>>().join(", ").escape_debug().to_string(),
            wanted: SCHEME.trim().replace('\n', ", "),
        }),
    }
}

fn open_files(options: &DirOptions<RingOptions>) -> Result<Files, OpenError> {
    let open = |name: &str, direct: bool, lasting: bool, threads: u32| {
        let path = options.path.join(name);
        let io = options.own.io;
        let options =
            OpenBlock { path: &path, io, direct, lasting, threads, create: true, read_only: false };
        block::open(&options).map_err(|error| failed("open", &path, error))
    };
    let checkpoint = |name: &str| open(name, false, false, SMALL_FILE_THREADS);
    let removals = |name: &str| open(name, false, true, SMALL_FILE_THREADS);
    let page_cache = options.own.page_cache;
    let data = open(DATA_FILE, page_cache != PageCache::On, false, options.own.threads)?;
    let cached = match page_cache {
        PageCache::Auto | PageCache::Reads => open(DATA_FILE, false, false, options.own.threads)?,
        PageCache::Off | PageCache::On => Arc::clone(&data),
    };
    Ok(Files {
        data,
        cached,
        checkpoints: [checkpoint(CHECKPOINT_FILES[0])?, checkpoint(CHECKPOINT_FILES[1])?],
        purges: [removals(PURGE_FILES[0])?, removals(PURGE_FILES[1])?],
    })
}

/// Gives the data its length, and sees to it that the file system has room for it; with less room
/// there are fewer segments.
fn make_room(data: &dyn BlockFile, path: &Path, geometry: Geometry) -> Result<u32, OpenError> {
    let allocate = |segments: u32| data.allocate(0, geometry.segment_bytes * u64::from(segments));
    let mut segments = geometry.segments;
    if let Err(error) = allocate(segments) {
        if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Err(failed("make room in", path, error));
        }
        // The room in the file system, in whole segments.
        let (mut fits, mut too_many) = (0, segments);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if allocate(middle).is_ok() { fits = middle } else { too_many = middle }
        }
        if fits < SEGMENTS_MIN {
            return Err(failed("make room in", path, error));
        }
        tracing::warn!(
            "{}: no space for {} MB, going on with {} MB",
            path.display(),
            geometry.bytes() >> 20,
            (geometry.segment_bytes * u64::from(fits)) >> 20
        );
        segments = fits;
    }
    let bytes = geometry.segment_bytes * u64::from(segments);
    data.set_len(bytes).map_err(|error| failed("set the length of", path, error))?;
    Ok(segments)
}
