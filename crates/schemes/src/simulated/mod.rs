//! A simulated disk under every storage scheme, for a seeded simulation on one thread.
//!
//! While a [`Disk`] is entered on a thread, a directory that is opened there lies on it: files are
//! real ones in a real directory, but operations that a scheme begins end only when the simulation
//! says so ([`Disk::step`]), in an order that follows from the seed. No scheme starts a thread: its
//! work in the background is done in steps of the disk too. Reads and writes may fail, and writes
//! may go astray ([`Faults`]). The power may fail, or the process end, at any operation; what was
//! not synced then survives in part or not at all.
//!
//! **Not simulated.** Directories: creating, renaming and deleting files are atomic, and lasting at
//! once; so are the length of a file and its lock file. The helper process of `diskd`: its
//! directories have the engine of the simulation. io_uring and threads: order and outcome of their
//! operations are those of the disk.
//!
//! The product pays for it where a file is opened, created, deleted or synced, and where a thread
//! is started; and beside the system calls of `ufs`'s files, with one look at a flag that never
//! changes.
//!
//! The files of this folder know no scheme. `block` has the simulated block file, `tree` the
//! simulated engine.

mod background;
mod disk;
mod images;
pub(crate) mod plain;
#[cfg(test)]
mod tests;

pub(crate) use self::background::{Background, Bell, Next};
pub use self::disk::{Disk, Faults, Guard};
pub(crate) use self::disk::{Target, current, now_ns, store_id};
