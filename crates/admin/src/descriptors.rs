//! The page `filedescriptors`: the open descriptors and their kinds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::figures::Figures;

/// Most descriptors looked at for one page: each costs a system call.
const LOOKED_AT_MAX: usize = 10_000;

const OPEN: &str = "/proc/self/fd";

/// The largest descriptor open now; 0 where `/proc` is missing.
pub(crate) fn largest() -> u64 {
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    open().filter_map(|path| number(path.file_name()?.to_owned())).max().unwrap_or(0)
}

fn open() -> impl Iterator<Item = PathBuf> {
    fs::read_dir(OPEN).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The kind of the target of a link in `/proc/self/fd`.
fn kind(target: &str) -> &'static str {
    match target.split_once(':').map_or("", |(kind, _)| kind) {
        "socket" => "Socket",
        "pipe" => "Pipe",
        "anon_inode" => "Event",
        _ => "File",
    }
}

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let mut counts = BTreeMap::<&str, u64>::new();
    // A descriptor that is closed meanwhile is no longer there: the one that reads the directory,
    // for example.
    for target in open().take(LOOKED_AT_MAX).filter_map(|path| fs::read_link(path).ok()) {
        *counts.entry(kind(&target.to_string_lossy())).or_default() += 1;
    }
    let mut out = "Active file descriptors:\n".to_owned();
    _ = writeln!(out, "{:<8} {:>8}", "Type", "Number");
    _ = writeln!(out, "{} {}", "-".repeat(8), "-".repeat(8));
    for (kind, count) in &counts {
        _ = writeln!(out, "{kind:<8} {count:>8}");
    }
    let (open, max) = (figures.process.open_descriptors, figures.descriptors_max);
    let unknown = open.saturating_sub(counts.values().sum());
    if open > LOOKED_AT_MAX as u64 {
        _ = writeln!(out, "{:<8} {unknown:>8}", "Others");
    }
    _ = writeln!(out, "\nOpen: {open}\nAllowed: {max}\nLargest: {}", largest());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_and_counted() {
        assert_eq!(kind("socket:[1234]"), "Socket");
        assert_eq!(kind("anon_inode:[eventpoll]"), "Event");
        assert_eq!(kind("/var/log/a:b"), "File");
        let held: Vec<_> =
            (0..20).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("bound")).collect();
        let page = render(&Figures::idle());
        let sockets = page.lines().find_map(|line| line.strip_prefix("Socket")).expect("a line");
        assert!(sockets.trim().parse::<usize>().expect("a number") >= held.len(), "{page}");
        assert!(largest() >= held.len() as u64);
    }
}
