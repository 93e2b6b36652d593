//! System calls that need unsafe code or a platform of their own, behind safe types.

pub mod aligned;
pub mod append_buffer;
pub mod conntrack;
pub mod core_dumps;
pub mod cpu;
pub mod daemon;
pub mod descriptors;
pub mod give_back;
pub mod host;
pub mod local_routes;
pub mod local_time;
pub mod log_file;
mod mapping;
pub mod marks;
pub mod neighbours;
pub mod pages;
pub mod pid_file;
pub mod prefetch;
pub mod privileges;
pub mod process_stats;
pub mod signal_mask;
pub mod socket_file;
pub mod splice;
mod sync;
pub mod sysv;
pub mod tcp;
pub mod uring;
