//! The machine and software of a run, and the subject's resources.

use crate::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that someone needs to judge or repeat a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of humboldt-lab.
    pub lab_version: String,
    /// The origin of its figures.
    #[serde(default)]
    pub provenance: Provenance,
    /// Kernel, processor, cores, memory, file systems, versions of programs: name → value, in the
    /// order of the page.
    pub facts: Vec<(String, String)>,
    /// Configuration files that the subject ran with: name → text.
    pub files: BTreeMap<String, String>,
    /// Options that could not be obeyed here, each with its reason ("needs root: …").
    pub skipped: Vec<String>,
}

/// CPU time used, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTimes {
    /// In user mode.
    pub user_us: u64,
    /// In the kernel.
    pub system_us: u64,
}

/// The subject's whole process tree at one moment. Counts are totals since its start; rates are
/// differences of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Unix time in µs.
    pub at_us: u64,
    /// Processes.
    pub processes: u32,
    /// Threads.
    pub threads: u32,
    /// CPU time, with that of ended children.
    pub cpu: ProcessorTimes,
    /// Resident memory in bytes: all of it.
    pub resident_bytes: u64,
    /// Of it, anonymous.
    pub anonymous_bytes: u64,
    /// Of it, shared memory (SysV, tmpfs, anonymous shared mappings).
    pub shared_bytes: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that read from disk.
    pub major_faults: u64,
    /// Open descriptors.
    pub descriptors: u32,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Bytes that the processes made the disks read.
    pub read_bytes: u64,
    /// Bytes that the processes made the disks write.
    pub write_bytes: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Write calls.
    pub write_calls: u64,
    /// Completed reads of the store's own block devices; 0 if it has none of its own.
    pub device_reads: u64,
    /// Completed writes of the store's own block devices.
    pub device_writes: u64,
    /// Bytes read from the store's own block devices.
    pub device_read_bytes: u64,
    /// Bytes written to the store's own block devices.
    pub device_write_bytes: u64,
    /// Bytes in the subject's stores now, if it says so.
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// Objects in its stores now, if it says so.
    #[serde(default)]
    pub stored_objects: Option<u64>,
    /// Bytes of all objects that it has stored since its start, if it says so.
    #[serde(default)]
    pub taken_bytes: Option<u64>,
    /// CPU time that it was allowed to use since its start in µs, if that follows the speed of the
    /// machine.
    #[serde(default)]
    pub allowed_cpu_us: Option<u64>,
    /// CPU time that it lacked since then in µs, as the machine has no more.
    #[serde(default)]
    pub short_cpu_us: Option<u64>,
}

/// The sum of what two subjects say; not known if one of them says nothing.
fn both(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.saturating_add(other))
}

impl Resources {
    /// The resources of this process tree and another one together. Of the two moments the later
    /// one.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Self {
        Self {
            at_us: self.at_us.max(other.at_us),
            processes: self.processes.saturating_add(other.processes),
            threads: self.threads.saturating_add(other.threads),
            cpu: ProcessorTimes {
                user_us: self.cpu.user_us.saturating_add(other.cpu.user_us),
                system_us: self.cpu.system_us.saturating_add(other.cpu.system_us),
            },
            resident_bytes: self.resident_bytes.saturating_add(other.resident_bytes),
            anonymous_bytes: self.anonymous_bytes.saturating_add(other.anonymous_bytes),
            shared_bytes: self.shared_bytes.saturating_add(other.shared_bytes),
            minor_faults: self.minor_faults.saturating_add(other.minor_faults),
            major_faults: self.major_faults.saturating_add(other.major_faults),
            descriptors: self.descriptors.saturating_add(other.descriptors),
            voluntary_switches: self.voluntary_switches.saturating_add(other.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_add(other.involuntary_switches),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
            read_calls: self.read_calls.saturating_add(other.read_calls),
            write_calls: self.write_calls.saturating_add(other.write_calls),
            device_reads: self.device_reads.saturating_add(other.device_reads),
            device_writes: self.device_writes.saturating_add(other.device_writes),
            device_read_bytes: self.device_read_bytes.saturating_add(other.device_read_bytes),
            device_write_bytes: self.device_write_bytes.saturating_add(other.device_write_bytes),
            stored_bytes: both(self.stored_bytes, other.stored_bytes),
            stored_objects: both(self.stored_objects, other.stored_objects),
            taken_bytes: both(self.taken_bytes, other.taken_bytes),
            allowed_cpu_us: both(self.allowed_cpu_us, other.allowed_cpu_us),
            short_cpu_us: both(self.short_cpu_us, other.short_cpu_us),
        }
    }
}
