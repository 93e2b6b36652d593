//! The origin of a run's figures: the builds, the machine, the stores, the workload.

use serde::{Deserialize, Serialize};

/// A program as it was measured. What could not be found out is empty, or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The first line that it shows about its version.
    pub version: String,
    /// The commit that it was built from, if its version names one.
    pub commit: Option<String>,
    /// Its file.
    pub path: String,
    /// The SHA-256 of that file, in 64 hexadecimal digits.
    pub sha256: String,
    /// Debian's package that the file is from, with the package's version.
    pub package: Option<String>,
}

impl Build {
    /// A program that shows this line about its version.
    #[must_use]
    pub fn of_version(line: &str) -> Self {
        let commit = line.split_once("(commit ").and_then(|(_, rest)| rest.split_once(')'));
        Self {
            version: line.to_owned(),
            commit: commit.map(|(commit, _)| commit.to_owned()),
            ..Self::default()
        }
    }
}

/// The machine, as far as it decides figures. What could not be found out is empty, or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// Number of processors that are online.
    pub processors: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The virtual machine and the container around it, or `none`.
    pub virtualization: String,
    /// The kernel's release and version.
    pub kernel: String,
}

/// The ground of a store. What could not be found out is empty, or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreGround {
    /// The file system's type.
    pub file_system: String,
    /// Its mount options, those of the mount and those of the file system.
    pub mount_options: String,
    /// The device that it is on.
    pub device: String,
    /// Whether the device says that it rotates.
    pub rotates: Option<bool>,
    /// Size of the device in bytes.
    pub device_bytes: Option<u64>,
    /// The ground of the image of a loop device.
    pub image: Option<Box<StoreGround>>,
}

/// The origin of a run's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// The laboratory.
    pub lab: Build,
    /// The subject; `None` if its program is not known.
    pub subject: Option<Build>,
    /// The command line of the laboratory.
    pub command: String,
    /// The same run as a command of its own, if an experiment file gave its options.
    pub run_command: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The stores; equal ones once.
    pub stores: Vec<StoreGround>,
    /// The SHA-256 of the workload file, in 64 hexadecimal digits; empty without a workload.
    pub workload_sha256: String,
}

impl Provenance {
    /// Whether anything was recorded: laboratories of earlier versions did not.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.lab.version.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_may_name_its_commit() {
        let commit = |line: &str| Build::of_version(line).commit;
        let humboldt = "Humboldt Cache: Version 0.1.0 (commit 0123456789ab)";
        assert_eq!(commit(humboldt).as_deref(), Some("0123456789ab"));
        assert_eq!(commit("Squid Cache: Version 5.7"), None);
    }
}
