//! Cores, and how threads talk to them.
//!
//! A core is a thread with a single-threaded tokio runtime. [`cores`] starts them, [`deadline`] has
//! their coarse timers, [`broadcast`] carries notices from the control thread to all of them,
//! [`mailbox`] lets any thread wake the tasks of one core, and [`turns`] begins tasks, in the order
//! of a simulation if there is one. Nothing here knows sockets, disks or HTTP.

pub mod broadcast;
pub mod cores;
pub mod deadline;
pub mod mailbox;
mod sync;
pub mod turns;
