//! The laboratory's program as people use it: its command line, real caches, caches of known
//! behaviour, and everything that goes wrong. Root's tests (mounts, full disks) say why they are
//! left out when someone else runs them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests end at what they do not expect")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the caller sees what was found, and what was left out"
)]

mod agents;
mod cli;
mod endings;
mod faults;
mod matrix;
mod peak;
mod real;
mod simulate;
mod support;
mod tls;
mod truth;
