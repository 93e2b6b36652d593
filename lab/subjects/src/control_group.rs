//! Control groups: CPU quotas, bounded memory, and devices as slow as spindles. Both versions of
//! the kernel's interface.

use crate::keeper::{Keeper, Kept};
use crate::undo::{OWN_PREFIX, Undo};
use crate::{Host, Skipped, SubjectError, Throttle};
use std::fs;
use std::path::{Path, PathBuf};

/// A quota counts over this long. Short, so that a subject at its limit looks like a slower machine
/// rather than like one that stands still for a tenth of a second.
const QUOTA_PERIOD_US: u64 = 10_000;
/// The kernel accepts no smaller quota, in µs.
const QUOTA_MIN_US: u64 = 1_000;
/// The same in cores.
const QUOTA_CORES_MIN: f64 = QUOTA_MIN_US as f64 / QUOTA_PERIOD_US as f64;
/// More cores than this no machine has.
const QUOTA_CORES_MAX: f64 = 4096.0;
/// No cache starts in less, in bytes: its program alone would not fit.
const MEMORY_MIN_BYTES: u64 = 16 << 20;

/// The place of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Version 1: a hierarchy of its own.
    Own(PathBuf),
    /// Version 2: the common hierarchy.
    Common(PathBuf),
}

/// Finds a controller: `cpu`, `memory`, or `blkio`, which is called `io` in version 2.
fn find(host: &Host, controller: &str) -> Result<Place, String> {
    let mounts = fs::read_to_string(host.proc.join("self/mountinfo"))
        .map_err(|error| format!("the table of mounts cannot be read: {error}"))?;
    let mut common = None;
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let Some(point) = place.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut kind = kind.split(' ');
        match (kind.next(), kind.nth(1)) {
            (Some("cgroup"), Some(options))
                if options.split(',').any(|option| option == controller) =>
            {
                return Ok(Place::Own(point));
            }
            (Some("cgroup2"), _) => common = Some(point),
            _ => {}
        }
    }
    let name = if controller == "blkio" { "io" } else { controller };
    let Some(point) = common else {
        return Err(format!("no control groups with `{name}` are mounted here"));
    };
    let controllers = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_ascii_whitespace().any(|known| known == name) {
        Ok(Place::Common(point))
    } else {
        Err(format!("the kernel's control groups have no `{name}` here"))
    }
}

/// The CPU time of a group's members in each period, which can be changed.
#[derive(Clone, Debug)]
pub(crate) enum Quota {
    /// The group's folder, in version 1.
    Own(PathBuf),
    /// The group's file, in version 2.
    Common(PathBuf),
}

impl Quota {
    /// Sets it to this many cores, but not below the least and above the most that the kernel
    /// accepts; returns the cores that it is now.
    pub(crate) fn set(&self, cores: f64) -> Result<f64, String> {
        let most_us = QUOTA_CORES_MAX * QUOTA_PERIOD_US as f64;
        let quota_us = (cores * QUOTA_PERIOD_US as f64).round().clamp(QUOTA_MIN_US as f64, most_us);
        match self {
            Self::Own(group) => write(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())?,
            Self::Common(file) => write(file, &format!("{quota_us} {QUOTA_PERIOD_US}"))?,
        }
        Ok(quota_us / QUOTA_PERIOD_US as f64)
    }
}

/// The groups that a subject is to join, and limits of devices. Dropping it takes all of them back.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    own: Vec<PathBuf>,
    /// In version 2 a process is in one group only: both limits share it.
    common: Option<PathBuf>,
    kept: Vec<Kept>,
}

impl Groups {
    /// The folders whose `cgroup.procs` the subject must be written to.
    pub(crate) fn to_join(&self) -> impl Iterator<Item = &Path> {
        self.own.iter().chain(&self.common).map(PathBuf::as_path)
    }

    /// Takes everything back.
    pub(crate) fn undo(&mut self) -> Result<(), SubjectError> {
        self.own.clear();
        self.common = None;
        while let Some(kept) = self.kept.pop() {
            kept.undo()?;
        }
        Ok(())
    }

    /// Limits the CPU time of the group's members together to this many cores.
    pub(crate) fn limit_cpu(
        &mut self,
        host: &Host,
        keeper: &Keeper,
        cores: f64,
    ) -> Result<(), Skipped> {
        let before = self.kept.len();
        let set = check_quota(cores)
            .and_then(|()| self.quota(host, keeper))
            .and_then(|quota| quota.set(cores))
            .inspect_err(|_| self.take_back(before));
        set.map(drop).map_err(|reason| Skipped::new(format!("CPU quota of {cores} cores"), reason))
    }

    /// A group whose CPU time can be limited.
    pub(crate) fn quota(&mut self, host: &Host, keeper: &Keeper) -> Result<Quota, String> {
        let before = self.kept.len();
        self.try_quota(host, keeper).inspect_err(|_| self.take_back(before))
    }

    fn try_quota(&mut self, host: &Host, keeper: &Keeper) -> Result<Quota, String> {
        may_limit(host)?;
        match find(host, "cpu")? {
            Place::Own(root) => {
                let group = self.create(host, keeper, &root)?;
                self.own.push(group.clone());
                write(&group.join("cpu.cfs_period_us"), &QUOTA_PERIOD_US.to_string())?;
                Ok(Quota::Own(group))
            }
            Place::Common(root) => {
                let group = self.common(host, keeper, &root, "cpu")?;
                Ok(Quota::Common(group.join("cpu.max")))
            }
        }
    }

    /// Limits the memory of the group's members together, with the page cache of the files that
    /// they read and write.
    pub(crate) fn limit_memory(
        &mut self,
        host: &Host,
        keeper: &Keeper,
        bytes: u64,
    ) -> Result<(), Skipped> {
        let before = self.kept.len();
        self.try_limit_memory(host, keeper, bytes).map_err(|reason| {
            self.take_back(before);
            Skipped::new(format!("memory limit of {bytes} bytes"), reason)
        })
    }

    fn try_limit_memory(&mut self, host: &Host, keeper: &Keeper, bytes: u64) -> Result<(), String> {
        may_limit(host)?;
        check_memory(bytes)?;
        match find(host, "memory")? {
            Place::Own(root) => {
                let group = self.create(host, keeper, &root)?;
                write(&group.join("memory.limit_in_bytes"), &bytes.to_string())?;
                self.own.push(group);
            }
            Place::Common(root) => {
                let group = self.common(host, keeper, &root, "memory")?;
                write(&group.join("memory.max"), &bytes.to_string())?;
            }
        }
        Ok(())
    }

    /// Limits devices, given as `MAJOR:MINOR`. In version 1 for the whole machine, because later
    /// writes of the kernel belong to no group there; in version 2 for the group.
    pub(crate) fn limit_devices(
        &mut self,
        host: &Host,
        keeper: &Keeper,
        devices: &[String],
        throttle: &Throttle,
    ) -> Result<(), Skipped> {
        let before = self.kept.len();
        self.try_limit_devices(host, keeper, devices, throttle).map_err(|reason| {
            // Half of the limits would be worse than none.
            self.take_back(before);
            Skipped::new(format!("throttled devices ({throttle})"), reason)
        })
    }

    fn try_limit_devices(
        &mut self,
        host: &Host,
        keeper: &Keeper,
        devices: &[String],
        throttle: &Throttle,
    ) -> Result<(), String> {
        may_limit(host)?;
        match find(host, "blkio")? {
            Place::Own(root) => {
                for device in devices {
                    for (name, limit) in throttle.limits() {
                        let file = root.join(format!("blkio.throttle.{name}_device"));
                        self.keep(host, keeper, Undo::Write(file.clone(), format!("{device} 0")))?;
                        write(&file, &format!("{device} {limit}"))?;
                    }
                }
            }
            Place::Common(root) => {
                let group = self.common(host, keeper, &root, "io")?;
                for device in devices {
                    write(&group.join("io.max"), &io_max(device, throttle))?;
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, host: &Host, keeper: &Keeper, root: &Path) -> Result<PathBuf, String> {
        let group = root.join(format!("{OWN_PREFIX}{}", std::process::id()));
        // Several subjects of one laboratory have groups of their own.
        let group = (0..1000)
            .map(|number| group.with_extension(number.to_string()))
            .find(|group| !group.exists())
            .ok_or("too many control groups of this laboratory are left")?;
        self.keep(host, keeper, Undo::RemoveGroup(group.clone()))?;
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        Ok(group)
    }

    fn common(
        &mut self,
        host: &Host,
        keeper: &Keeper,
        root: &Path,
        controller: &str,
    ) -> Result<PathBuf, String> {
        // Children may use only the controllers that their parent passes on.
        let passed_on = root.join("cgroup.subtree_control");
        let is_passed_on = fs::read_to_string(&passed_on)
            .is_ok_and(|list| list.split_ascii_whitespace().any(|name| name == controller));
        if !is_passed_on {
            self.keep(host, keeper, Undo::Write(passed_on.clone(), format!("-{controller}")))?;
            write(&passed_on, &format!("+{controller}"))?;
        }
        match &self.common {
            Some(group) => Ok(group.clone()),
            None => {
                let group = self.create(host, keeper, root)?;
                self.common = Some(group.clone());
                Ok(group)
            }
        }
    }

    /// Undoes the last changes first, down to the first `left`; the keeper tries failed ones again.
    fn take_back(&mut self, left: usize) {
        while self.kept.len() > left {
            drop(self.kept.pop());
        }
        self.own.retain(|group| group.exists());
        self.common = self.common.take().filter(|group| group.exists());
    }

    fn keep(&mut self, host: &Host, keeper: &Keeper, undo: Undo) -> Result<(), String> {
        self.kept.push(keeper.keep(host, undo).map_err(|error| error.to_string())?);
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.take_back(0);
    }
}

fn may_limit(host: &Host) -> Result<(), String> {
    if host.is_root { Ok(()) } else { Err("needs root".to_owned()) }
}

fn write(file: &Path, value: &str) -> Result<(), String> {
    fs::write(file, value)
        .map_err(|error| format!("the kernel refuses `{value}` in {}: {error}", file.display()))
}

fn check_memory(bytes: u64) -> Result<(), String> {
    if bytes < MEMORY_MIN_BYTES {
        return Err(format!("no cache starts in less than {} MiB", MEMORY_MIN_BYTES >> 20));
    }
    Ok(())
}

pub(crate) fn check_quota(cores: f64) -> Result<(), String> {
    if !(cores > 0.0 && cores <= QUOTA_CORES_MAX) {
        return Err(format!("a quota is more than 0 and at most {QUOTA_CORES_MAX} cores"));
    }
    if cores < QUOTA_CORES_MIN {
        return Err(format!("the kernel allows no less than {QUOTA_CORES_MIN}"));
    }
    Ok(())
}

fn io_max(device: &str, throttle: &Throttle) -> String {
    let mut line = device.to_owned();
    for (name, limit) in throttle.limits() {
        let name = match name {
            "read_iops" => "riops",
            "write_iops" => "wiops",
            "read_bps" => "rbps",
            _ => "wbps",
        };
        line += &format!(" {name}={limit}");
    }
    line
}

impl Throttle {
    /// The limits that there are, by the names of version 1.
    fn limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("read_iops", self.read_iops),
            ("write_iops", self.write_iops),
            ("read_bps", self.read_bytes_per_s),
            ("write_bps", self.write_bytes_per_s),
        ]
        .into_iter()
        .filter(|&(_, limit)| limit > 0)
    }
}

impl std::fmt::Display for Throttle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limits: Vec<String> = self
            .limits()
            .map(|(name, limit)| {
                format!(
                    "{} {limit}/s",
                    name.replace("iops", "operations").replace("bps", "bytes").replace('_', " ")
                )
            })
            .collect();
        f.write_str(if limits.is_empty() { "no limits" } else { "" })?;
        f.write_str(&limits.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that consists of these mounts.
    fn machine(mounts: &str) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("self")).expect("a folder");
        let text = mounts.replace("ROOT", &folder.path().display().to_string());
        fs::write(folder.path().join("self/mountinfo"), text).expect("a table of mounts");
        let host =
            Host { proc: folder.path().to_path_buf(), sys: PathBuf::from("/sys"), is_root: true };
        (folder, host)
    }

    const VERSION_1: &str = "\
30 25 0:26 / ROOT/cpuacct rw - cgroup cgroup rw,cpuacct
31 25 0:27 / ROOT/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
32 25 0:28 / ROOT/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn controllers_are_found_in_both_versions() {
        let (folder, host) = machine(VERSION_1);
        let unified = folder.path().join("unified");
        assert_eq!(find(&host, "cpu"), Ok(Place::Own(folder.path().join("cpu"))));
        assert!(find(&host, "blkio").expect_err("not there").contains("no `io`"));
        fs::create_dir(&unified).expect("a folder");
        fs::write(unified.join("cgroup.controllers"), "memory io\n").expect("a file");
        assert_eq!(find(&host, "blkio"), Ok(Place::Common(unified)));
        let (_folder, bare) = machine("");
        assert!(find(&bare, "cpu").expect_err("nothing").contains("no control groups with `cpu`"));
    }

    #[test]
    fn who_is_not_root_gets_a_reason() {
        let (_folder, host) = machine(VERSION_1);
        let host = Host { is_root: false, ..host };
        assert_eq!(may_limit(&host), Err("needs root".to_owned()));
        let skipped = Skipped::new("CPU quota of 0.5 cores", "needs root");
        assert_eq!(skipped.to_string(), "CPU quota of 0.5 cores: needs root");
    }

    #[test]
    fn quotas_have_bounds() {
        for cores in [0.1, 0.5, 4096.0] {
            assert_eq!(check_quota(cores), Ok(()), "{cores}");
        }
        for cores in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.01] {
            assert!(check_quota(cores).is_err(), "{cores}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cpu.max");
        for (cores, is, text) in [(0.5, 0.5, "5000"), (2.0, 2.0, "20000"), (0.0001, 0.1, "1000")] {
            assert_eq!(Quota::Common(file.clone()).set(cores), Ok(is));
            assert_eq!(fs::read_to_string(&file).expect("a file"), format!("{text} 10000"));
            assert_eq!(Quota::Own(folder.path().to_path_buf()).set(cores), Ok(is));
            let own = fs::read_to_string(folder.path().join("cpu.cfs_quota_us"));
            assert_eq!(own.expect("a file"), text);
        }
    }

    #[test]
    fn memory_that_no_cache_starts_in_is_refused() {
        assert!(check_memory(1 << 20).is_err_and(|reason| reason.contains("less than 16 MiB")));
        assert_eq!(check_memory(MEMORY_MIN_BYTES), Ok(()));
    }

    #[test]
    fn limits_are_named_as_the_kernel_and_as_people_want() {
        let throttle =
            Throttle { read_iops: 100, write_bytes_per_s: 5_000_000, ..Throttle::default() };
        assert_eq!(io_max("7:1", &throttle), "7:1 riops=100 wbps=5000000");
        assert_eq!(throttle.to_string(), "read operations 100/s, write bytes 5000000/s");
        assert_eq!(Throttle::default().to_string(), "no limits");
    }
}
