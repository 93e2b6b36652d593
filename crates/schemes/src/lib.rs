//! The storage schemes, one folder each, behind the [`Scheme`] trait of the store.
//!
//! [`open`] gives a running scheme, [`create`] prepares a directory as `humboldt -z` does. Which
//! kinds there are is said in one place, the table `KINDS`. Every scheme passes the same battery of
//! tests (`battery.rs`).

mod aufs;
#[cfg(test)]
mod battery;
mod block;
mod coss;
mod diskd;
mod health;
mod lock;
mod null;
mod ring;
mod rock;
mod tree;
mod ufs;

pub use self::diskd::{HELPER_COMMAND, HelperError, serve_as_helper};
pub use self::ring::promise_memory;
#[doc(hidden)]
pub use block::example as block_example;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use humboldt_store::Policy;
use humboldt_store::scheme::Scheme;

/// A scheme: its name in squid.conf, and how a directory of it is opened and created.
struct Kind {
    name: &'static str,
    open: fn(&DirOptions) -> Result<Arc<dyn Scheme>, OpenError>,
    create: fn(&DirOptions) -> Result<(), OpenError>,
}

/// The schemes that there are, one line each.
const KINDS: &[Kind] = &[
    Kind {
        name: null::NAME,
        open: |options| Ok(Arc::new(null::Null::new(options))),
        create: |_| Ok(()),
    },
    Kind {
        name: ufs::NAME,
        open: |options| Ok(Arc::new(ufs::open(options)?)),
        create: tree::create,
    },
    Kind {
        name: aufs::NAME,
        open: |options| Ok(Arc::new(aufs::open(options)?)),
        create: tree::create,
    },
    Kind {
        name: diskd::NAME,
        open: |options| Ok(Arc::new(diskd::open(options)?)),
        create: tree::create,
    },
    Kind {
        name: coss::NAME,
        open: |options| Ok(Arc::new(coss::Coss::open(options)?)),
        create: coss::create,
    },
    Kind {
        name: rock::NAME,
        open: |options| Ok(Arc::new(rock::Rock::open(options)?)),
        create: rock::create,
    },
    Kind {
        name: ring::NAME,
        open: |options| Ok(Arc::new(ring::Ring::open(options)?)),
        create: ring::create,
    },
];

fn kind(name: &str) -> Result<&'static Kind, OpenError> {
    let found = KINDS.iter().find(|kind| kind.name == name);
    found.ok_or_else(|| OpenError::UnknownScheme(name.to_owned()))
}

/// Names of all schemes, for messages.
fn known() -> String {
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// Most numbered subdirectories on one level (`L1`, `L2`): their names have two hexadecimal digits.
pub const LEVEL_DIRS_MAX: u32 = 256;

/// The options of one directory in `cache_dir`, and the few global directives that matter to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirOptions {
    /// The directory.
    pub path: PathBuf,
    /// Size in bytes; stored objects stay below it.
    pub capacity_bytes: u64,
    /// Directories on the first level, 1 to [`LEVEL_DIRS_MAX`].
    pub l1: u32,
    /// Directories on the second level, 1 to [`LEVEL_DIRS_MAX`].
    pub l2: u32,
    /// Smallest body that is stored (`min-size=`), in bytes.
    pub min_bytes: u64,
    /// Largest body that is stored (`max-size=`), in bytes; `u64::MAX` for no limit.
    pub max_bytes: u64,
    /// `cache_swap_low`: eviction aims at this share of the size, in percent.
    pub swap_low_pct: u8,
    /// `cache_swap_high`: eviction keeps use below this share of the size, in percent.
    pub swap_high_pct: u8,
    /// Most files held open by this directory at a time (`max_open_disk_fds`); 0 for no limit of
    /// its own.
    pub max_open_files: u32,
    /// `cache_replacement_policy`, for the schemes that choose victims.
    pub policy: Policy,
    /// Options that belong to single schemes; the others ignore them.
    pub tuning: Tuning,
}

/// The options of single schemes. Each scheme refuses values out of range when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// aufs, coss, and schemes without io_uring: threads that do I/O (`threads=`), 1 to 256.
    pub threads: u32,
    /// diskd: with more messages under way, nothing new is opened or created (`Q1=`), 1 to 3000.
    /// Above `q2`, reading and storing wait instead of being refused.
    pub q1: u32,
    /// diskd: with more messages under way, requests wait (`Q2=`), 1 to 3000.
    pub q2: u32,
    /// diskd: the program that can be a helper; `None` for the program that runs now.
    pub diskd_program: Option<PathBuf>,
    /// coss: unit of location in bytes (`block-size=`), a power of two from 512 to 8192; 0 for the
    /// smallest that will do.
    pub block_bytes: u32,
    /// coss: stripes in memory (`membufs=`), at least 2.
    pub membufs: u32,
    /// coss: full stripes that may wait to be written (`maxfullbufs=`), below `membufs`.
    pub maxfullbufs: u32,
    /// coss: a hit on an object that lies in the oldest part of the file, this many percent of it,
    /// is written again to the current stripe (`overwrite-percent=`), 0 to 100.
    pub overwrite_percent: u32,
    /// coss: room at the end of a stripe that may be given up, in bytes (`max-stripe-waste=`);
    /// `None` for any.
    pub max_stripe_waste: Option<u32>,
    /// rock: size of a slot in bytes (`slot-size=`), a multiple of 512 from 4096 to 1 MiB.
    pub slot_bytes: u32,
    /// rock: most writes a second (`max-swap-rate=`); `None` for no limit.
    pub max_swap_rate: Option<u32>,
    /// rock: objects whose reading or writing would wait longer are not read or written
    /// (`swap-timeout=`); `None` for any.
    pub swap_timeout: Option<Duration>,
    /// rock, ring: how the device is used (`io=`).
    pub io: IoChoice,
    /// ring: the use of the page cache (`page-cache=`).
    pub page_cache: PageCache,
    /// ring: expected mean size of an object in bytes (`store_avg_object_size`), by which the index
    /// is sized at first.
    pub object_bytes_avg: u64,
}

impl Default for Tuning {
    /// Squid's defaults, and ours where Squid has none.
    fn default() -> Self {
        Self {
            threads: 16,
            q1: 64,
            q2: 72,
            diskd_program: None,
            block_bytes: 0,
            membufs: 10,
            maxfullbufs: 4,
            overwrite_percent: 50,
            max_stripe_waste: None,
            slot_bytes: 16 * 1024,
            max_swap_rate: None,
            swap_timeout: None,
            io: IoChoice::Auto,
            page_cache: PageCache::default(),
            object_bytes_avg: 13 * 1024,
        }
    }
}

/// `page-cache=`: the use of the system's page cache.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// Reads, as long as all stored objects would fit into unused memory.
    #[default]
    Auto,
    /// Nothing: the memory tier is the only copy in memory.
    Off,
    /// Reads. Writes, which may never be requested, take no memory.
    Reads,
    /// Reads and writes.
    On,
}

/// `io=`: how reads and writes reach the device.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the system allows it, threads elsewhere.
    #[default]
    Auto,
    /// io_uring; opening fails where the system forbids it.
    Uring,
    /// Blocking calls on threads of their own.
    Threads,
}

impl DirOptions {
    /// Squid's defaults for a directory of `capacity_bytes` at `path`.
    pub fn new(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            path: path.into(),
            capacity_bytes,
            l1: 16,
            l2: 256,
            min_bytes: 0,
            max_bytes: u64::MAX,
            swap_low_pct: 90,
            swap_high_pct: 95,
            max_open_files: 0,
            policy: Policy::default(),
            tuning: Tuning::default(),
        }
    }

    /// About how many objects the directory will hold when it is full.
    pub(crate) fn objects_expected(&self) -> u64 {
        self.capacity_bytes / self.tuning.object_bytes_avg.max(1)
    }
}

/// Why a directory cannot be used. Nothing in it has been touched, unless it was ours.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `cache_dir` names a scheme that does not exist here.
    #[error("unknown storage scheme '{0}' (known: {known})", known = known())]
    UnknownScheme(String),
    /// A number is out of range.
    #[error("{path}: {reason}")]
    BadOption {
        /// The directory.
        path: PathBuf,
        /// Which number and its range.
        reason: &'static str,
    },
    /// The directory belongs to another program.
    #[error(
        "{path} is not a Humboldt cache directory: {reason}; it was left as it is, give an empty directory"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The sign of that.
        reason: String,
    },
    /// The directory was made with other options, and is of no use with these.
    #[error(
        "{path} was made with {found}, but the configuration says {wanted}; use the same, or an empty directory"
    )]
    Mismatch {
        /// The directory.
        path: PathBuf,
        /// The directory's value.
        found: String,
        /// The configuration's value.
        wanted: String,
    },
    /// Another process uses the directory.
    #[error("{path} is in use by another process (its lock file {lock} is locked)")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Name of the lock file in it.
        lock: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Opens a directory, and creates missing parts. It belongs to this process until the scheme is
/// dropped.
///
/// Reading a long swap log, and looking for files when there is none, goes on in the background; it
/// starts with the first call of [`Scheme::maintain`], so that no thread exists before privileges
/// are dropped.
pub fn open(name: &str, options: &DirOptions) -> Result<Arc<dyn Scheme>, OpenError> {
    (kind(name)?.open)(options)
}

/// Name of the log of purges, where it is kept in the directory of a store.
pub const PURGE_LOG: &str = "humboldt.purges";

/// Whether a file of this name may be beside a store, without making its directory foreign. Such a
/// file comes with the file system, or with the log of purges, which may be the only file left, or
/// be written again, if a store was deleted while it was in use; so may the keys of a helper of
/// diskd.
pub(crate) fn may_be_beside(name: &str) -> bool {
    name == "lost+found"
        || name == diskd::RECORD_FILE
        || name.strip_prefix(PURGE_LOG).is_some_and(|rest| ["", ".new"].contains(&rest))
}

/// Creates a directory and its subdirectories. Nothing happens to those that exist already.
pub fn create(name: &str, options: &DirOptions) -> Result<(), OpenError> {
    (kind(name)?.create)(options)
}
