//! Memory that the machine has already.
//!
//! The first use of a page costs a virtual machine many times as much as later uses, because the
//! host has to find memory for it. The page cache of a turn would pay for that, and the comparison
//! would include it for the stores that use the page cache. On a machine that has been up for a
//! while there is no such memory left. So the memory that a benchmark needs is touched before it
//! begins, and given back just before each turn: the page cache takes it from there.

use std::fs;

const CHUNK_BYTES: u64 = 32 << 20;

/// The rest of the available memory stays for everything else.
const SHARE_PCT: u64 = 70;

/// Touched memory.
pub(super) struct Reserve {
    chunks: Vec<Vec<u8>>,
}

impl Reserve {
    /// Takes this much, or as much as there is.
    pub(super) fn new(wanted_bytes: u64) -> Self {
        let bytes = wanted_bytes.min(available_bytes() / 100 * SHARE_PCT);
        let chunk = |_| vec![1; usize::try_from(CHUNK_BYTES).unwrap_or(0)];
        Self { chunks: (0..bytes / CHUNK_BYTES).map(chunk).collect() }
    }

    /// Gives this much back to the system.
    pub(super) fn release(&mut self, bytes: u64) {
        let left = self
            .chunks
            .len()
            .saturating_sub(usize::try_from(bytes.div_ceil(CHUNK_BYTES)).unwrap_or(0));
        self.chunks.truncate(left);
    }
}

/// Memory that the system could give without taking it from a process.
fn available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_back_in_chunks() {
        let mut reserve = Reserve::new(3 * CHUNK_BYTES + 5);
        assert!(reserve.chunks.len() <= 3);
        let before = reserve.chunks.len();
        reserve.release(1);
        assert_eq!(reserve.chunks.len(), before.saturating_sub(1));
        reserve.release(u64::MAX / 2);
        assert!(reserve.chunks.is_empty());
    }
}
