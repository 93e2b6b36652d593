//! A simulated disk: a file in a file system of our own (FUSE), whose requests take as long as the
//! arm and the platters of a disk would need. A loop device on that file is a disk for everyone
//! above it.
//!
//! The kernel's own limits of operations have no latency: they let a tenth of a second's operations
//! through at once. A program that waits for one operation after the other is then as fast as one
//! with many threads, which no disk with an arm is. The contents are in memory, so the disk of the
//! machine below neither helps nor disturbs, as long as nothing is swapped out.
//!
//! Each disk has a process of its own ([`serve_main`]), because the laboratory waits for its disks
//! in calls that nothing ends: would it serve them itself, it could not be killed meanwhile.

mod arm;
mod model;
mod mount;
mod server;

pub use model::DiskSpeed;
pub(crate) use mount::{SimulatedDisk, check};
pub(crate) use server::{ORDER, serve_main};
