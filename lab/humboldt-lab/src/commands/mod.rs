//! The subcommands that have no folder of their own.

mod bang;
mod lists;
mod matrix;
mod parts;
mod recompute;
mod runs;
mod tunnel;
mod verify;

pub(crate) use bang::bang;
pub(crate) use lists::{subjects, workloads};
pub(crate) use matrix::matrix;
pub(crate) use parts::{load, origin};
pub(crate) use recompute::{pages, recompute};
pub(crate) use runs::{calibrate, compare, peak};
pub(crate) use tunnel::tunnel;
pub(crate) use verify::{known_server, verify};
