//! Sizes in bytes, written the way squid.conf and people write them (1 KB = 1024 bytes).

use std::fmt;

/// One KiB in bytes.
pub const KIB: u64 = 1024;
/// One MiB in bytes.
pub const MIB: u64 = 1024 * KIB;
/// One GiB in bytes.
pub const GIB: u64 = 1024 * MIB;

/// Shows a number of bytes with the largest unit that keeps it readable: `512 B`, `13.0 KB`, `1.5 GB`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (unit, name) in [(GIB, "GB"), (MIB, "MB"), (KIB, "KB")] {
            if bytes >= unit {
                return write!(f, "{:.1} {name}", bytes as f64 / unit as f64);
            }
        }
        write!(f, "{bytes} B")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_a_readable_unit() {
        assert_eq!(Human(512).to_string(), "512 B");
        assert_eq!(Human(13 * KIB).to_string(), "13.0 KB");
        assert_eq!(Human(3 * GIB / 2).to_string(), "1.5 GB");
    }
}
