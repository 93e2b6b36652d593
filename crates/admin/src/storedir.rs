//! The page `storedir`: Squid's labels if it has them, and further facts about a cache directory.

use std::fmt::Write;

use crate::figures::{DirFigures, Figures};
use crate::interval::ratio;

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let (used, capacity) =
        (figures.disk(|dir| dir.used_bytes), figures.disk(|dir| dir.capacity_bytes));
    let percent = percent(used, capacity);
    let free = (100.0 - percent).max(0.0);
    let mut out = "Store Directory Statistics:\n".to_owned();
    _ = writeln!(out, "Store Entries          : {}", figures.store_entries());
    _ = writeln!(out, "Maximum Swap Size      : {} KB", capacity / 1024);
    _ = writeln!(out, "Current Store Swap Size: {:.2} KB", kib(used));
    _ = writeln!(out, "Current Capacity       : {percent:.2}% used, {free:.2}% free");
    for dir in &figures.dirs {
        write_dir(&mut out, dir);
    }
    out
}

fn write_dir(out: &mut String, dir: &DirFigures) {
    let stats = &dir.stats;
    _ = writeln!(out, "\nStore Directory #{} ({}): {}", dir.index, dir.scheme, one_line(&dir.path));
    let space = rustix::fs::statvfs(dir.path.as_str()).ok();
    if let Some(space) = &space {
        _ = writeln!(out, "FS Block Size {} Bytes", space.f_frsize);
    }
    _ = writeln!(out, "Maximum Size: {} KB", stats.capacity_bytes / 1024);
    _ = writeln!(out, "Current Size: {:.2} KB", kib(stats.used_bytes));
    _ = writeln!(out, "Percent Used: {:.2}%", percent(stats.used_bytes, stats.capacity_bytes));
    if let Some(space) = &space {
        let blocks_kib = |blocks: u64| blocks.saturating_mul(space.f_frsize) / 1024;
        let used = blocks_kib(space.f_blocks.saturating_sub(space.f_bfree));
        write_usage(out, "Space", used, blocks_kib(space.f_blocks), " KB");
        write_usage(out, "Inodes", space.f_files.saturating_sub(space.f_ffree), space.f_files, "");
    }
    _ = writeln!(out, "Flags:{}", if stats.down { " DOWN" } else { "" });
    _ = writeln!(out, "Objects: {}", stats.objects);
    let per_object = dir.index_bytes_per_object().unwrap_or(0.0);
    _ = writeln!(
        out,
        "Index: {:.2} KB, {per_object:.1} bytes an object, {}% rebuilt",
        kib(stats.index_bytes),
        stats.rebuild_percent
    );
    _ = writeln!(out, "Load: {} of 1000, {} files open", dir.load, stats.open_files);
    _ = writeln!(
        out,
        "Objects read: {}, written: {}, evicted: {}, errors: {}",
        stats.reads, stats.writes, stats.evictions, stats.errors
    );
    _ = writeln!(
        out,
        "Objects not read or not written because too much was waiting: {}",
        stats.shed
    );
    _ = writeln!(
        out,
        "Hits among them: {}; new objects that have waited for the disk: {}",
        stats.shed_hits, stats.waits
    );
    _ = writeln!(out, "Reads of the device: {}, {:.2} KB", stats.read_ops, kib(stats.read_bytes));
    _ = writeln!(
        out,
        "Writes to the device: {}, {:.2} KB",
        stats.write_ops,
        kib(stats.write_bytes)
    );
    let amplification = dir.write_amplification().unwrap_or(0.0);
    let stored = kib(stats.object_bytes);
    _ = writeln!(out, "Objects stored: {stored:.2} KB, write amplification {amplification:.2}");
}

fn write_usage(out: &mut String, what: &str, used: u64, total: u64, unit: &str) {
    let percent = percent(used, total).round();
    _ = writeln!(out, "Filesystem {what} in use: {used}/{total}{unit} ({percent}%)");
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn percent(used: u64, total: u64) -> f64 {
    ratio(used as f64, total as f64).unwrap_or(0.0) * 100.0
}

/// A path that cannot pretend to be other lines of the page.
fn one_line(path: &str) -> String {
    path.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_is_shown_with_its_file_system() {
        let mut figures = Figures::busy();
        figures.dirs[0].path = "/".to_owned();
        figures.dirs[0].stats.index_bytes = 1200;
        figures.dirs[1].stats.down = true;
        let page = render(&figures);
        let (first, second) = page
            .split_once("\nStore Directory #1 (ufs): /a \"b\"\\c?d\n")
            .expect("two directories");
        assert!(first.contains("\n\nStore Directory #0 (ufs): /\nFS Block Size "), "{page}");
        let figures =
            ["Index: 1.17 KB, 40.0 bytes an object, 0% rebuilt", "Reads of the device: 7, 0.00 KB"];
        let waiting = "Objects not read or not written because too much was waiting: 3";
        let stored = "Objects stored: 0.98 KB, write amplification 1.30";
        for line in figures.into_iter().chain([waiting, stored]) {
            assert!(first.contains(&format!("\n{line}\n")), "{line}: {first}");
        }
        for line in
            ["Maximum Size: 4096 KB", "Current Size: 1024.00 KB", "Percent Used: 25.00%", "Flags:"]
        {
            assert!(first.contains(&format!("\n{line}\n")), "{line}");
        }
        assert!(first.contains("\nFilesystem Space in use: ") && !second.contains("Filesystem"));
        assert!(second.contains("\nFlags: DOWN\n"));
    }
}
