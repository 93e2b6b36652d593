//! The parts of a configuration that concern the store.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use humboldt_conf::{CacheDir, Config, Scheme as SchemeKind};
use humboldt_schemes::{self as schemes, DirOptions, OpenError};
use humboldt_store::CacheSettings;
use humboldt_store::purges::PurgePlaces;

/// In the directory of a store, or where the one file or device lies that it consists of.
fn purge_log_beside(dir: &CacheDir) -> PathBuf {
    let folder = folder(dir).filter(|folder| folder.is_dir() || !folder.exists());
    folder.or(dir.path.parent()).unwrap_or(Path::new("")).join(schemes::PURGE_LOG)
}

/// The directories of a configuration with their positions.
pub(crate) fn dirs(config: &Config) -> impl Iterator<Item = (usize, &CacheDir)> {
    config.cache_dir.iter().filter(|dir| dir.scheme() != SchemeKind::Null).enumerate()
}

/// Creates the directories of a configuration (`-z`).
pub fn create(config: &Config) -> Result<Vec<PathBuf>, OpenError> {
    let mut created = Vec::new();
    for dir in &config.cache_dir {
        schemes::create(&options(config, dir))?;
        created.push(dir.path.clone());
    }
    Ok(created)
}

/// The options of a directory.
pub(crate) fn options(config: &Config, dir: &CacheDir) -> DirOptions {
    DirOptions {
        min_bytes: dir.limits.min_bytes.max(config.minimum_object_size),
        max_bytes: dir.limits.max_bytes.unwrap_or(u64::MAX),
        swap_low_pct: config.cache_swap_low,
        swap_high_pct: config.cache_swap_high,
        max_open_files: config.max_open_disk_fds,
        policy: config.cache_replacement_policy,
        object_bytes_avg: config.store_avg_object_size.max(1),
        ..DirOptions::of(dir.options.clone(), &dir.path, dir.size_bytes)
    }
}

/// The directory in which a store makes its files: its path, unless that names the one file of a
/// `coss`.
pub fn folder(dir: &CacheDir) -> Option<&Path> {
    let is_file =
        dir.scheme() == SchemeKind::Coss && !dir.path.as_os_str().as_bytes().ends_with(b"/");
    if is_file { dir.path.parent() } else { Some(&dir.path) }
}

/// Settings of the cache as a whole.
pub fn settings(config: &Config) -> CacheSettings {
    CacheSettings {
        cache_mem_bytes: config.cache_mem,
        memory_policy: config.memory_replacement_policy,
        memory_object_bytes_max: config.maximum_object_size_in_memory,
        disk_object_bytes_max: config.maximum_object_size,
        read_ahead_bytes: config.read_ahead_gap,
        dir_select: config.store_dir_select_algorithm,
        memory_mode: config.memory_cache_mode,
        in_transit: config.in_transit,
    }
}

/// The place of the log of purges: `purge_log`, or beside the first open directory. Nowhere if
/// there is none.
pub(crate) fn purge_places(
    config: &Config,
    is_open: impl Fn(&Path) -> bool,
) -> Option<PurgePlaces> {
    let open = dirs(config).filter(|(_, dir)| is_open(&dir.path));
    let mut beside: Vec<PathBuf> = open.map(|(_, dir)| purge_log_beside(dir)).collect();
    let log = match config.purge_log.as_str() {
        "" => match beside.first() {
            Some(first) => first.clone(),
            None => purge_log_beside(dirs(config).next()?.1),
        },
        path => PathBuf::from(path),
    };
    beside.retain(|path| *path != log);
    Some(PurgePlaces { log, former: beside })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use humboldt_schemes::{Io, Overload, RockOptions, SchemeOptions};

    use super::*;

    #[test]
    fn what_the_parser_takes_for_q1_and_q2_the_scheme_takes_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let parse = |most: u32| {
            let path = dir.path().display();
            let text =
                format!("http_port 1\ncache_dir diskd {path}/d 10 1 1 Q1={most} Q2={most}\n");
            humboldt_conf::parse_str("t", &text)
        };
        let (config, found) = parse(3000);
        assert!(!found.has_errors(), "{}", found.render(false));
        create(&config).expect("the scheme takes them");
        assert!(parse(3001).1.has_errors());
        assert!(parse(0).1.has_errors());
    }

    #[test]
    fn what_is_written_reaches_the_scheme() {
        let text = "http_port 1\nstore_avg_object_size 1 KB\nminimum_object_size 20\n\
                    cache_dir rock /r 100 slot-size=32768 max-swap-rate=0 swap-timeout=300 \
                    io=threads threads=9 overload=wait min-size=10 no-store";
        let (config, _) = humboldt_conf::parse_str("t", text);
        let options = options(&config, &config.cache_dir[0]);
        let own = RockOptions {
            slot_bytes: 32_768,
            max_swap_rate: None,
            swap_timeout: Some(Duration::from_millis(300)),
            io: Io::Threads,
            threads: 9,
            overload: Overload::Wait,
        };
        assert_eq!(options.own, SchemeOptions::Rock(own));
        assert_eq!((options.min_bytes, options.max_bytes), (20, u64::MAX));
        assert_eq!(options.object_bytes_avg, 1024);
    }
}
