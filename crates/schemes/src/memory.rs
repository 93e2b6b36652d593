//! The memory for page cache and buffers: of the machine, or of the control group that holds this
//! process.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use humboldt_sys::append_buffer;

/// The mount point of control groups.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// The memory cache's limit, in bytes. It fills within a second under load, so nothing else counts
/// on this memory while it is empty.
static PROMISED_BYTES: AtomicU64 = AtomicU64::new(0);

/// The memory cache of this process may take `bytes`: buffers of directories fit into the rest.
pub(crate) fn promise(bytes: u64) {
    PROMISED_BYTES.store(bytes, Ordering::Relaxed);
}

/// Memory for buffers that this process can have, present ones included, in bytes:
/// `available_bytes` and the buffers it has, without the memory promised to the memory cache.
pub(crate) fn room_for_buffers(available_bytes: u64) -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let own = own_bytes(&statm, humboldt_sys::process_stats::page_bytes()).unwrap_or(0);
    available_bytes.saturating_add(own).saturating_sub(PROMISED_BYTES.load(Ordering::Relaxed))
}

/// Buffers that were used and wait for their next use take no more than this part of that memory.
const SPARE_SHARE: u64 = 16;

/// The same when memory is short: one buffer of `ring`.
const SPARE_BYTES_LEAST: u64 = 2 << 20;

/// Gives back spare buffers that this process has no room for.
pub(crate) fn limit_spare_buffers(room_bytes: u64) {
    let spare = (room_bytes / SPARE_SHARE).max(SPARE_BYTES_LEAST);
    append_buffer::limit_spare(usize::try_from(spare).unwrap_or(usize::MAX));
}

/// Resident memory of this process that no file stands behind.
fn own_bytes(statm: &str, page_bytes: u64) -> Option<u64> {
    let mut pages = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    resident.saturating_sub(of_files).checked_mul(page_bytes)
}

/// Bytes that are free, or are page cache already and would make room. `None` where the system does
/// not tell.
pub(crate) fn available_bytes() -> Option<u64> {
    let machine = available_of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group =
        groups.lines().filter_map(|line| available_in_group(line, Path::new(CONTROL_GROUPS))).min();
    Some(group.map_or(machine, |group| group.min(machine)))
}

fn available_of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory that a line `number:controllers:path` of /proc/self/cgroup leaves, if it is a limit
/// for memory. Groups within groups: the one that leaves least counts.
fn available_in_group(line: &str, root: &Path) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (root, limit, usage) = if controllers.is_empty() {
        (root.to_path_buf(), "memory.max", "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    // Page cache and tables of the kernel, which would make room; what counts as page cache and
    // would not.
    let (cache, slab, kept) = match controllers {
        "" => ("file ", Some("slab_reclaimable "), "shmem "),
        _ => ("total_cache ", None, "total_shmem "),
    };
    let folder = root.join(path.trim_start_matches('/'));
    let ancestors = folder.ancestors().take_while(|folder| folder.starts_with(&root));
    let number = |folder: &Path, name: &str| {
        fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok()
    };
    let left = |folder: &Path| {
        // A group without a limit has "max", or a number beyond all memory.
        let (limit, usage) = (number(folder, limit)?, number(folder, usage)?);
        let statistics = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let statistic = |name: &str| {
            statistics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok())
        };
        let reclaimed = statistic(cache)? + slab.and_then(statistic).unwrap_or(0);
        let cached = reclaimed.saturating_sub(statistic(kept).unwrap_or(0));
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    };
    ancestors.filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells() {
        let available = available_bytes().expect("a Linux that tells");
        assert!(available > 1 << 20, "{available}");
    }

    #[test]
    fn what_is_resident_counts_without_files() {
        assert_eq!(own_bytes("9000 500 200 3 0 4 0\n", 4096), Some(300 * 4096));
        assert_eq!(own_bytes("9000", 4096), None);
        assert!(room_for_buffers(1 << 40) > 1 << 40, "this process has some");
    }

    #[test]
    fn the_tightest_group_counts_in_both_versions() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |folder: &str, name: &str, text: &str| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).expect("a directory");
            fs::write(folder.join(name), text).expect("written");
        };
        for (folder, limit, usage) in
            [("a", "1000\n", "900\n"), ("a/b", "max\n", "700\n"), ("a/c", "300\n", "200\n")]
        {
            write(folder, "memory.max", limit);
            write(folder, "memory.current", usage);
            write(
                folder,
                "memory.stat",
                "anon 1\nfile 140\nshmem 10\nfile_mapped 7\nslab_reclaimable 20\nslab 90\n",
            );
        }
        assert_eq!(available_in_group("0::/a/b", root.path()), Some(250));
        assert_eq!(available_in_group("0::/a/c", root.path()), Some(250));
        assert_eq!(available_in_group("0::/", root.path()), None);
        write("memory/x", "memory.limit_in_bytes", "5000\n");
        write("memory/x", "memory.usage_in_bytes", "4000\n");
        write("memory/x", "memory.stat", "cache 1\ntotal_cache 520\nshmem 7\ntotal_shmem 20\n");
        assert_eq!(available_in_group("7:cpu,memory:/x", root.path()), Some(1500));
        assert_eq!(available_in_group("7:cpu:/x", root.path()), None);
        assert_eq!(available_of_machine("MemFree: 1 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
    }
}
