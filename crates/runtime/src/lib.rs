//! Cores, and how threads talk to them.
//!
//! A core is a thread with a single-threaded tokio runtime. Nothing here knows sockets, disks or
//! HTTP.
//!
//! - [`cores`] starts the cores.
//! - [`deadline`] has their coarse timers.
//! - [`broadcast`] carries notices from the control thread to all cores.
//! - [`mailbox`] lets any thread wake the tasks of one core.
//! - [`turns`] begins tasks; a simulation decides their order.

pub mod broadcast;
pub mod cores;
pub mod deadline;
pub mod mailbox;
mod sync;
pub mod turns;
