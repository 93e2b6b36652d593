//! The storage schemes, one folder each, behind the [`Scheme`] trait of the store.
//!
//! [`open`] gives a running scheme, [`create`] prepares a directory as `humboldt -z` does. Which
//! schemes there are, and which options each has, says `humboldt_options`. Every scheme passes the
//! same battery of tests (`battery.rs`).

mod aufs;
#[cfg(test)]
mod battery;
mod beside;
mod block;
mod bounds;
mod coss;
mod dir_options;
mod diskd;
mod health;
mod lock;
mod memory;
mod null;
mod open_error;
mod overload;
mod ring;
mod rock;
mod share;
#[doc(hidden)]
pub mod simulated;
mod sync;
mod tree;
mod ufs;

pub use self::beside::PURGE_LOG;
pub use self::dir_options::DirOptions;
pub use self::diskd::{HELPER_COMMAND, HelperError, serve_as_helper};
pub use self::open_error::OpenError;
pub use self::share::promise_memory;
#[doc(hidden)]
pub use block::example as block_example;

use std::sync::Arc;

pub use humboldt_options::{
    AufsOptions, CossOptions, DiskdOptions, Io, Levels, Overload, PageCache, RingOptions,
    RockOptions, Scheme as SchemeKind, SchemeOptions,
};
use humboldt_store::scheme::Scheme;

/// Opens a directory, and creates missing parts. It belongs to this process until the scheme is
/// dropped.
///
/// Reading a long swap log, and looking for files when there is none, goes on in the background; it
/// starts with the first call of [`Scheme::maintain`], so that no thread exists before privileges
/// are dropped.
pub fn open(options: &DirOptions) -> Result<Arc<dyn Scheme>, OpenError> {
    Ok(match &options.own {
        SchemeOptions::Null => Arc::new(null::Null::new(&options.path)),
        SchemeOptions::Ufs(own) => Arc::new(ufs::open(&options.map(|_| *own))?),
        SchemeOptions::Aufs(own) => Arc::new(aufs::open(&options.map(|_| *own))?),
        SchemeOptions::Diskd(own) => Arc::new(diskd::open(&options.map(|_| own.clone()))?),
        SchemeOptions::Coss(own) => Arc::new(coss::Coss::open(&options.map(|_| *own))?),
        SchemeOptions::Rock(own) => Arc::new(rock::Rock::open(&options.map(|_| *own))?),
        SchemeOptions::Ring(own) => Arc::new(ring::Ring::open(&options.map(|_| *own))?),
    })
}

/// Creates a directory and its subdirectories. Nothing happens to those that exist already.
pub fn create(options: &DirOptions) -> Result<(), OpenError> {
    match &options.own {
        SchemeOptions::Null => Ok(()),
        SchemeOptions::Ufs(levels)
        | SchemeOptions::Aufs(AufsOptions { levels, .. })
        | SchemeOptions::Diskd(DiskdOptions { levels, .. }) => {
            tree::create(&options.map(|_| *levels))
        }
        SchemeOptions::Coss(own) => coss::create(&options.map(|_| *own)),
        SchemeOptions::Rock(own) => rock::create(&options.map(|_| *own)),
        SchemeOptions::Ring(own) => ring::create(&options.map(|_| *own)),
    }
}
