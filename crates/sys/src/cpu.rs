//! Processors: how many may be used.

use std::thread;

/// Processors this process may use: its affinity mask and its control group's quota count. At least 1.
pub fn usable() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
