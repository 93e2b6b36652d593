//! Memory by use: one table for the page `mem` and for the metrics.

use std::fmt::Write;

use crate::figures::Figures;

/// A use of memory.
pub(crate) struct MemoryUse {
    /// Its name in metrics.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// Bytes now.
    pub read: fn(&Figures) -> u64,
}

/// The uses that are accounted for. They do not overlap.
pub(crate) const USES: &[MemoryUse] = &[
    MemoryUse {
        name: "stored_bodies",
        help: "Pages of bodies stored in memory.",
        read: |figures| figures.mem.stored_page_bytes,
    },
    MemoryUse {
        name: "stored_heads",
        help: "Heads, URLs, small bodies and bookkeeping of what is stored in memory.",
        read: |figures| figures.mem.used_bytes.saturating_sub(figures.mem.page_bytes),
    },
    MemoryUse {
        name: "in_flight",
        help: "Pages of bodies being received, or still being sent after they have left the memory cache, and parts of bodies whose answers wait for a slow disk.",
        read: |figures| {
            let pages = figures.mem.page_bytes.saturating_sub(figures.mem.stored_page_bytes);
            pages + figures.mem.waiting_bytes
        },
    },
    MemoryUse {
        name: "lent",
        help: "Bodies lent to their clients from where directories have them, and pages promised to bodies being read.",
        read: |figures| figures.mem.reserved_bytes,
    },
    MemoryUse {
        name: "disk_index",
        help: "Indexes of the cache directories.",
        read: |figures| figures.disk(|dir| dir.index_bytes),
    },
];

/// The page `mem`.
pub(crate) fn render(figures: &Figures) -> String {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    let mut out = format!("Current memory usage:\n{:<14} {:>12}\n", "Use", "(KB)");
    for MemoryUse { name, help, read } in USES {
        _ = writeln!(out, "{name:<14} {:>12}  {help}", kib(read(figures)));
    }
    let mut line = |name: &str, bytes: u64| _ = writeln!(out, "{name:<14} {:>12}", kib(bytes));
    line("Accounted", USES.iter().map(|memory| (memory.read)(figures)).sum());
    line("Resident", figures.process.resident_bytes);
    line("cache_mem", figures.mem.limit_bytes);
    for dir in &figures.dirs {
        let bytes = kib(dir.stats.index_bytes);
        _ = writeln!(
            out,
            "Index of cache_dir #{} ({}): {bytes} KB, {} objects",
            dir.index, dir.scheme, dir.stats.objects
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_add_up_and_do_not_overlap() {
        let mut figures = Figures::busy();
        figures.dirs[0].stats.index_bytes = 5000;
        let sum: u64 = USES.iter().map(|memory| (memory.read)(&figures)).sum();
        let mem = &figures.mem;
        assert_eq!(sum, mem.used_bytes + mem.reserved_bytes + mem.waiting_bytes + 5000);
        let page = render(&figures);
        assert!(
            page.contains("\nin_flight                44  Pages of bodies being received"),
            "{page}"
        );
        assert!(page.contains("\nIndex of cache_dir #0 (ufs): 5 KB, 30 objects\n"), "{page}");
    }
}
