//! Options of the storage, each declared once: squid.conf is parsed into them, its reference
//! describes them, and the schemes run by them.
//!
//! Every scheme has its own options type, with a table of its options: name, values, default, one
//! sentence for the reference, and the field. An option of several schemes is declared once, too
//! (`common`).

mod aufs;
mod cache;
mod common;
mod coss;
mod diskd;
mod limits;
mod option;
mod ring;
mod rock;
mod scheme;
mod tree;

pub use aufs::AufsOptions;
pub use cache::{DirSelect, InTransit, MemoryMode};
pub use common::{Io, Overload, PageCache};
pub use coss::CossOptions;
pub use diskd::DiskdOptions;
pub use limits::DirLimits;
pub use option::{OptionDoc, OutOfRange, Taken, Value, Words};
pub use ring::RingOptions;
pub use rock::RockOptions;
pub use scheme::{Scheme, SchemeOptions};
pub use tree::{LEVEL_DIRS_MAX, Levels};
