//! Humboldt and Squid with one cache directory each, otherwise as alike as they can be.

use crate::bench::manager;
use crate::bench::subjects::{DEFAULT_RULES, Style, Subject, folder, launch};
use crate::bench::{Plan, load::Deadline};
use crate::processes::free_address;
use crate::{Outcome, packages};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// So little that objects do not stay in memory: the last few hundred do.
pub(in crate::bench) const CACHE_MEM_MB: u64 = 8;

/// Squid reads the headers of all slots of a rock store before it begins.
const REBUILD_LIMIT: Duration = Duration::from_secs(300);

const POLL_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Family {
    Humboldt,
    /// An older humboldt (`--old`).
    Old,
    Squid,
}

/// A program with a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) struct Kind {
    pub(in crate::bench) family: Family,
    /// As the scheme is called in `cache_dir`.
    pub(in crate::bench) scheme: &'static str,
    /// As it is called in the tables.
    pub(in crate::bench) name: &'static str,
}

const fn humboldt(scheme: &'static str, name: &'static str) -> Kind {
    Kind { family: Family::Humboldt, scheme, name }
}

const fn squid(scheme: &'static str, name: &'static str) -> Kind {
    Kind { family: Family::Squid, scheme, name }
}

const fn old(scheme: &'static str, name: &'static str) -> Kind {
    Kind { family: Family::Old, scheme, name }
}

/// Squid's rock with a process of its own for the disk, as Squid has it unless it is started with
/// `-N`.
pub(in crate::bench) const SQUID_DISKER: &str = "squid rock, disker";

/// The flagship.
pub(in crate::bench) const RING: Kind = humboldt("ring", "ring");

/// All that are compared, in the order of the tables.
pub(in crate::bench) const KINDS: [Kind; 13] = [
    humboldt("null", "null"),
    humboldt("ufs", "ufs"),
    humboldt("aufs", "aufs"),
    humboldt("diskd", "diskd"),
    humboldt("coss", "coss"),
    humboldt("rock", "rock"),
    RING,
    squid("null", "squid null"),
    squid("ufs", "squid ufs"),
    squid("aufs", "squid aufs"),
    squid("diskd", "squid diskd"),
    squid("rock", "squid rock"),
    squid("rock", SQUID_DISKER),
];

/// The same schemes of an older humboldt, which take part only where they are asked for.
const OLD_KINDS: [Kind; 7] = [
    old("null", "old null"),
    old("ufs", "old ufs"),
    old("aufs", "old aufs"),
    old("diskd", "old diskd"),
    old("coss", "old coss"),
    old("rock", "old rock"),
    old("ring", "old ring"),
];

/// Gives the older humboldt its turn right behind the newer one, with each scheme.
pub(in crate::bench) fn beside_old(kinds: Vec<Kind>) -> Vec<Kind> {
    let with_old = |kind: Kind| {
        let is_same = |old: &Kind| kind.family == Family::Humboldt && old.scheme == kind.scheme;
        [Some(kind), OLD_KINDS.into_iter().find(is_same)].into_iter().flatten()
    };
    kinds.into_iter().flat_map(with_old).collect()
}

/// The kinds that a command was asked for; an error for a name that is none.
pub(in crate::bench) fn wanted(plan: &Plan) -> Outcome<Vec<Kind>> {
    if let Some(name) =
        plan.schemes.iter().find(|name| KINDS.iter().all(|kind| kind.scheme != **name))
    {
        let known: Vec<&str> = KINDS
            .iter()
            .filter(|kind| kind.family == Family::Humboldt)
            .map(|kind| kind.scheme)
            .collect();
        return Err(format!("there is no scheme {name} (there are {})", known.join(", ")).into());
    }
    let is_wanted = |kind: &Kind| {
        let family = if kind.family == Family::Humboldt { "humboldt" } else { "squid" };
        plan.wants(family)
            && (plan.schemes.is_empty() || plan.schemes.iter().any(|name| name == kind.scheme))
    };
    Ok(KINDS.into_iter().filter(is_wanted).collect())
}

/// The purpose of a store.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Sizes {
    pub(in crate::bench) capacity_mb: u64,
    /// Mean size of an object in bytes, for the index.
    pub(in crate::bench) object_bytes: u64,
    /// Squid's rock has one place for a key: a new object overwrites it, although other places are
    /// empty. A store larger by this factor keeps nearly all objects.
    pub(in crate::bench) squid_rock_factor: u64,
    /// `cache_mem`.
    pub(in crate::bench) cache_mem_mb: u64,
    /// Options at the end of the line `cache_dir`.
    pub(in crate::bench) options: &'static str,
    /// Further lines of the configuration.
    pub(in crate::bench) lines: &'static str,
}

impl Sizes {
    /// A store of `capacity_mb` for objects of this length, with next to no memory.
    pub(in crate::bench) fn new(capacity_mb: u64, object_bytes: u64) -> Self {
        Self {
            capacity_mb,
            object_bytes,
            squid_rock_factor: 1,
            cache_mem_mb: CACHE_MEM_MB,
            options: "",
            lines: "",
        }
    }
}

/// A directory with a configuration, which can be started more than once.
pub(in crate::bench) struct Site {
    pub(in crate::bench) kind: Kind,
    pub(in crate::bench) folder: TempDir,
    program: PathBuf,
    address: SocketAddr,
}

impl Site {
    /// Writes the configuration and makes the store; `None`, and a printed line, without the
    /// program.
    pub(in crate::bench) fn make(plan: &Plan, kind: Kind, sizes: Sizes) -> Outcome<Option<Self>> {
        let program = match kind.family {
            Family::Humboldt => plan.humboldt.clone(),
            Family::Old => plan.old.clone(),
            Family::Squid => packages::find("squid"),
        };
        let Some(program) = program else {
            println!("note: {} is left out, as its program is not there", kind.name);
            return Ok(None);
        };
        let (folder, address) = (folder()?, free_address()?);
        let site = Self { kind, folder, program, address };
        fs::create_dir(site.store())?;
        fs::set_permissions(site.store(), fs::Permissions::from_mode(0o777))?;
        fs::write(site.configuration(), site.text(sizes))?;
        if kind.scheme != "null" {
            let output = site.command(&["-z", "-N"]).output()?;
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("{}: the store cannot be made: {text}", kind.name).into());
            }
        }
        Ok(Some(site))
    }

    /// The place of the objects.
    pub(in crate::bench) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("squid.conf")
    }

    fn text(&self, sizes: Sizes) -> String {
        let (path, listen) = (self.folder.path().display(), self.address);
        let mut text = format!(
            "http_port {listen}\npid_filename {path}/pid\ncache_log {path}/cache.log\ncoredump_dir {path}\n\
             cache_mem {} MB\nmemory_replacement_policy lru\nshutdown_lifetime 0 seconds\n\
             store_avg_object_size {} bytes\naccess_log none\n{DEFAULT_RULES}",
            sizes.cache_mem_mb, sizes.object_bytes
        );
        if self.kind.family == Family::Squid {
            // Features that cost Squid time, and that Humboldt does not have.
            text += "pinger_enable off\nclient_db off\ndigest_generation off\n";
        }
        let capacity_mb = match self.kind {
            Kind { family: Family::Squid, scheme: "rock", .. } => {
                sizes.squid_rock_factor * sizes.capacity_mb
            }
            _ => sizes.capacity_mb,
        };
        text += &match self.kind.scheme {
            "null" => String::new(),
            scheme @ ("ufs" | "aufs" | "diskd") => {
                format!("cache_dir {scheme} {path}/store {capacity_mb} 16 256 {}\n", sizes.options)
            }
            scheme => format!("cache_dir {scheme} {path}/store {capacity_mb} {}\n", sizes.options),
        };
        text + sizes.lines
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        if self.kind.family == Family::Squid {
            // A service name of its own, because Squids of the same name share segments of memory.
            command.arg("-n").arg(format!("bench{}", self.address.port()));
        }
        command.arg("-f").arg(self.configuration());
        command
    }

    /// The command that starts it and stays in the foreground.
    pub(in crate::bench) fn server(&self) -> Command {
        self.command(&[if self.kind.name == SQUID_DISKER { "--foreground" } else { "-N" }])
    }

    pub(in crate::bench) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it and waits until its index is complete.
    pub(in crate::bench) fn start(self, plan: &Plan) -> Outcome<Stored> {
        let Self { kind, folder, address, .. } = &self;
        let (kind, address, cache_log) = (*kind, *address, folder.path().join("cache.log"));
        let store = self.store();
        let command = self.server();
        let subject =
            launch(kind.name, Style::Forward, plan.server_core, command, address, self.folder)?;
        match kind.family {
            Family::Humboldt | Family::Old => manager::wait_rebuilt(address, REBUILD_LIMIT)?,
            Family::Squid if kind.scheme == "null" => {}
            Family::Squid => {
                wait_for_line(&cache_log, "Finished rebuilding storage", REBUILD_LIMIT)?
            }
        }
        Ok(Stored { kind, subject, store })
    }
}

/// A running program with a store.
pub(in crate::bench) struct Stored {
    pub(in crate::bench) kind: Kind,
    pub(in crate::bench) subject: Subject,
    store: PathBuf,
}

impl Stored {
    /// Writes dirty pages, and takes the store's files out of the page cache. Directories and
    /// inodes stay in memory: dropping these as well would drop those of the whole machine.
    pub(in crate::bench) fn make_cold(&self) -> Outcome {
        make_cold(&self.store)
    }

    /// Waits until all writes are on the device, so that the next subject does not wait for them.
    pub(in crate::bench) fn sync(&self) -> Outcome {
        sync(&self.store)
    }
}

pub(in crate::bench) fn sync(store: &Path) -> Outcome {
    Ok(rustix::fs::syncfs(fs::File::open(store)?)?)
}

pub(in crate::bench) fn make_cold(store: &Path) -> Outcome {
    sync(store)?;
    let mut folders = vec![store.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)?.filter_map(Result::ok) {
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if let Ok(file) = fs::File::open(entry.path()) {
                // A file may go away, or not be ours, while the server works; then it does not
                // matter.
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
        }
    }
    Ok(())
}

/// Waits for a line in a log.
pub(in crate::bench) fn wait_for_line(log: &Path, words: &str, limit: Duration) -> Outcome {
    let deadline = Deadline::after(limit);
    while !fs::read_to_string(log).is_ok_and(|text| text.contains(words)) {
        deadline.check().map_err(|_| format!("{} never says `{words}`", log.display()))?;
        std::thread::sleep(POLL_PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_an_older_one_behind_it() {
        let names = |kinds: &[Kind]| -> Vec<_> {
            kinds.iter().map(|kind| (kind.name, kind.family == Family::Old)).collect()
        };
        let beside = beside_old(vec![RING, squid("rock", "squid rock")]);
        assert_eq!(names(&beside), [("ring", false), ("old ring", true), ("squid rock", false)]);
        let own = KINDS.iter().filter(|kind| kind.family == Family::Humboldt).count();
        assert_eq!(beside_old(KINDS.to_vec()).len(), KINDS.len() + own);
    }
}
