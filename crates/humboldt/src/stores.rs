//! Cache directories and settings of the store, from the configuration.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use humboldt_conf::{CacheDir, Config, DirSelect, Scheme as ConfScheme};
use humboldt_schemes::{self as schemes, DirOptions};
use humboldt_store::cache::{CacheSettings, DirSelect as StoreDirSelect};
use humboldt_store::scheme::Scheme;

use crate::start::StartError;

/// Directories that are open, by path, so that a reconfiguration keeps them.
#[derive(Default)]
pub(crate) struct Stores {
    open: HashMap<PathBuf, (CacheDir, Arc<dyn Scheme>)>,
}

impl Stores {
    /// Opens the directories of a configuration; those already open with the same settings are kept. One that cannot be
    /// opened is reported and left out: the service goes on with the others.
    pub(crate) fn open(&mut self, config: &Config) -> Vec<Arc<dyn Scheme>> {
        let mut before = std::mem::take(&mut self.open);
        let mut opened = Vec::new();
        for dir in config.cache_dir.iter().filter(|dir| dir.scheme != ConfScheme::Null) {
            let kept = before.remove(&dir.path).filter(|(settings, _)| settings == dir);
            let scheme = match kept {
                Some((_, scheme)) => Ok(scheme),
                None => schemes::open(dir.scheme.name(), &options(config, dir)),
            };
            match scheme {
                Ok(scheme) => {
                    self.open.insert(dir.path.clone(), (dir.clone(), Arc::clone(&scheme)));
                    opened.push(scheme);
                }
                Err(error) => {
                    tracing::error!("cache_dir {}: {error}; going on without it", dir.path.display())
                }
            }
        }
        for (path, (_, scheme)) in before {
            if let Err(error) = scheme.close() {
                tracing::warn!("cache_dir {}: not closed cleanly: {error}", path.display());
            }
        }
        opened
    }
}

/// Creates the directories of a configuration (`-z`).
pub(crate) fn create(config: &Config) -> Result<Vec<PathBuf>, StartError> {
    let mut created = Vec::new();
    for dir in &config.cache_dir {
        schemes::create(dir.scheme.name(), &options(config, dir)).map_err(StartError::Store)?;
        created.push(dir.path.clone());
    }
    Ok(created)
}

fn options(config: &Config, dir: &CacheDir) -> DirOptions {
    DirOptions {
        l1: dir.l1,
        l2: dir.l2,
        min_bytes: dir.min_size_bytes.max(config.minimum_object_size),
        max_bytes: if dir.read_only { 0 } else { dir.max_size_bytes.unwrap_or(u64::MAX) },
        swap_low_pct: config.cache_swap_low,
        swap_high_pct: config.cache_swap_high,
        max_open_files: config.max_open_disk_fds,
        policy: config.cache_replacement_policy,
        ..DirOptions::new(&dir.path, dir.size_bytes)
    }
}

/// Settings of the cache as a whole.
pub(crate) fn settings(config: &Config) -> CacheSettings {
    CacheSettings {
        cache_mem_bytes: config.cache_mem,
        memory_policy: config.memory_replacement_policy,
        memory_object_bytes_max: config.maximum_object_size_in_memory,
        disk_object_bytes_max: config.maximum_object_size,
        read_ahead_bytes: config.read_ahead_gap,
        dir_select: match config.store_dir_select_algorithm {
            DirSelect::LeastLoad => StoreDirSelect::LeastLoad,
            DirSelect::RoundRobin => StoreDirSelect::RoundRobin,
        },
    }
}
