//! What a run ran on, and what the subject used.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that someone needs to judge or repeat a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of humboldt-lab.
    pub lab_version: String,
    /// Kernel, processor, cores, memory, file systems, versions of programs: name → value, in the order of the page.
    pub facts: Vec<(String, String)>,
    /// Configuration files that the subject ran with: name → text.
    pub files: BTreeMap<String, String>,
    /// What was asked for and could not be done here, each with its reason ("needs root: …").
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

/// The subject's whole process tree at one moment. Counts are totals since its start; rates are differences of two.
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
}
