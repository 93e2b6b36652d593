//! Resources of a subject's processes, once a second.

use crate::Host;
use crate::processes::{Stat, Tree};
use humboldt_lab_record::{ProcessorTimes, Resources};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time between two measurements of a subject.
const INTERVAL: Duration = Duration::from_secs(1);
/// Measurements that wait to be taken: an hour of them. Older ones are discarded.
const HISTORY_MAX: usize = 3600;
/// Sectors in the kernel's statistics have this size, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;

/// Totals of one process that survive it: those of its ended children are in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    user_ticks: u64,
    system_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    read_bytes: u64,
    write_bytes: u64,
    read_calls: u64,
    write_calls: u64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.user_ticks += other.user_ticks;
        self.system_ticks += other.system_ticks;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.read_calls += other.read_calls;
        self.write_calls += other.write_calls;
    }

    fn of(proc: &Path, process: &Stat) -> Self {
        let io = fs::read_to_string(proc.join(format!("{}/io", process.pid))).unwrap_or_default();
        Self {
            user_ticks: process.user_ticks,
            system_ticks: process.system_ticks,
            minor_faults: process.minor_faults,
            major_faults: process.major_faults,
            read_bytes: field(&io, "read_bytes:"),
            write_bytes: field(&io, "write_bytes:"),
            read_calls: field(&io, "syscr:"),
            write_calls: field(&io, "syscw:"),
        }
    }
}

/// Resident memory of one process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    anonymous: u64,
    file: u64,
    shared: u64,
}

/// Voluntary and involuntary context switches of a thread.
type Switches = (u64, u64);

/// Measures a tree of processes.
#[derive(Debug)]
pub(crate) struct Meter {
    host: Host,
    tree: Tree,
    devices: Vec<String>,
    devices_before: DeviceCounts,
    living: BTreeMap<i32, (i32, Totals)>,
    ended: Totals,
    threads: BTreeMap<(i32, i32), Switches>,
    ended_switches: Switches,
    last: Option<Resources>,
    history: VecDeque<Resources>,
}

impl Meter {
    /// `devices` are the stores' own block devices, such as `loop3`.
    pub(crate) fn new(host: &Host, tree: Tree, devices: Vec<String>) -> Self {
        Self {
            devices_before: DeviceCounts::of(host, &devices),
            host: host.clone(),
            tree,
            devices,
            living: BTreeMap::new(),
            ended: Totals::default(),
            threads: BTreeMap::new(),
            ended_switches: (0, 0),
            last: None,
            history: VecDeque::new(),
        }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Measures now. When no process is left, the last measurement stays the last.
    pub(crate) fn measure(&mut self) -> Option<Resources> {
        let living = self.tree.look();
        if living.is_empty() {
            return self.last;
        }
        let mut now = Resources { at_us: unix_us(), ..Resources::default() };
        now.processes = u32::try_from(living.len()).unwrap_or(u32::MAX);
        now.threads = living.iter().map(|process| process.threads).sum();
        self.add_totals(&living, &mut now);
        self.add_switches(&living, &mut now);
        self.add_memory(&living, &mut now);
        let count = |process: &Stat| {
            let folder = self.host.proc.join(format!("{}/fd", process.pid));
            fs::read_dir(folder)
                .map_or(0, |entries| u32::try_from(entries.count()).unwrap_or(u32::MAX))
        };
        now.descriptors = living.iter().map(count).sum();
        let devices = DeviceCounts::of(&self.host, &self.devices);
        let before = self.devices_before;
        now.device_reads = devices.reads.saturating_sub(before.reads);
        now.device_writes = devices.writes.saturating_sub(before.writes);
        now.device_read_bytes = devices.read_bytes.saturating_sub(before.read_bytes);
        now.device_write_bytes = devices.write_bytes.saturating_sub(before.write_bytes);
        if let Some(last) = &self.last {
            never_fewer(&mut now, last);
        }
        self.last = Some(now);
        self.last
    }

    fn add_totals(&mut self, living: &[Stat], now: &mut Resources) {
        let current: BTreeMap<i32, (i32, Totals)> = living
            .iter()
            .map(|process| (process.pid, (process.parent, Totals::of(&self.host.proc, process))))
            .collect();
        for (pid, (parent, totals)) in &self.living {
            // A living parent has taken over the resources of its ended child.
            if !current.contains_key(pid) && !current.contains_key(parent) {
                self.ended.add(totals);
            }
        }
        let mut sum = self.ended;
        current.values().for_each(|(_, totals)| sum.add(totals));
        self.living = current;
        let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        now.cpu = ProcessorTimes {
            user_us: sum.user_ticks * us_per_tick,
            system_us: sum.system_ticks * us_per_tick,
        };
        now.minor_faults = sum.minor_faults;
        now.major_faults = sum.major_faults;
        now.read_bytes = sum.read_bytes;
        now.write_bytes = sum.write_bytes;
        now.read_calls = sum.read_calls;
        now.write_calls = sum.write_calls;
    }

    /// The kernel counts context switches by thread, and forgets those of ended ones.
    fn add_switches(&mut self, living: &[Stat], now: &mut Resources) {
        let mut current = BTreeMap::new();
        for process in living {
            let tasks = self.host.proc.join(format!("{}/task", process.pid));
            for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
                let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok())
                else {
                    continue;
                };
                let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
                let switches = (
                    field(&status, "voluntary_ctxt_switches:"),
                    field(&status, "nonvoluntary_ctxt_switches:"),
                );
                current.insert((process.pid, thread), switches);
            }
        }
        for (thread, switches) in &self.threads {
            if !current.contains_key(thread) {
                self.ended_switches.0 += switches.0;
                self.ended_switches.1 += switches.1;
            }
        }
        now.voluntary_switches =
            self.ended_switches.0 + current.values().map(|switches| switches.0).sum::<u64>();
        now.involuntary_switches =
            self.ended_switches.1 + current.values().map(|switches| switches.1).sum::<u64>();
        self.threads = current;
    }

    /// Anonymous memory is each process's own. Files and shared memory are the same ones in all of
    /// them, so that the largest share counts, once; a sum would count Squid's page pool for every
    /// one of its processes.
    fn add_memory(&self, living: &[Stat], now: &mut Resources) {
        let mut file_bytes = 0;
        for process in living {
            let path = self.host.proc.join(format!("{}/status", process.pid));
            let memory = memory(&fs::read_to_string(path).unwrap_or_default());
            now.anonymous_bytes += memory.anonymous;
            now.shared_bytes = now.shared_bytes.max(memory.shared);
            file_bytes = file_bytes.max(memory.file);
        }
        now.resident_bytes = now.anonymous_bytes + now.shared_bytes + file_bytes;
    }
}

fn memory(status: &str) -> Memory {
    Memory {
        anonymous: field(status, "RssAnon:") * 1024,
        file: field(status, "RssFile:") * 1024,
        shared: field(status, "RssShmem:") * 1024,
    }
}

/// The number behind a name at the beginning of a line; 0 without one.
fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Between the end of a child and its parent's notice of it, its counts are nowhere.
fn never_fewer(now: &mut Resources, last: &Resources) {
    for (now, last) in [
        (&mut now.cpu.user_us, last.cpu.user_us),
        (&mut now.cpu.system_us, last.cpu.system_us),
        (&mut now.minor_faults, last.minor_faults),
        (&mut now.major_faults, last.major_faults),
        (&mut now.read_bytes, last.read_bytes),
        (&mut now.write_bytes, last.write_bytes),
        (&mut now.read_calls, last.read_calls),
        (&mut now.write_calls, last.write_calls),
    ] {
        *now = (*now).max(last);
    }
}

fn unix_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Operations of block devices since they exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DeviceCounts {
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
}

impl DeviceCounts {
    fn of(host: &Host, devices: &[String]) -> Self {
        let mut sum = Self::default();
        for device in devices {
            let path = host.sys.join("block").join(device).join("stat");
            let line = fs::read_to_string(path).unwrap_or_default();
            let numbers: Vec<u64> =
                line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
            let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
            sum.reads += number(0);
            sum.read_bytes += number(2) * SECTOR_BYTES;
            sum.writes += number(4);
            sum.write_bytes += number(6) * SECTOR_BYTES;
        }
        sum
    }
}

/// Measures once a second in a thread of its own.
#[derive(Debug)]
pub(crate) struct Watch {
    meter: Arc<Mutex<Meter>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `noticed` is told about the tree after each measurement.
    pub(crate) fn start(
        meter: Meter,
        noticed: impl Fn(&Tree) + Send + 'static,
    ) -> std::io::Result<Self> {
        let meter = Arc::new(Mutex::new(meter));
        let (stop, stopped) = mpsc::channel();
        let own = Arc::clone(&meter);
        let thread = std::thread::Builder::new().name("lab-watch".to_owned()).spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let mut meter = lock(&own);
                if let Some(now) = meter.measure() {
                    if meter.history.len() == HISTORY_MAX {
                        meter.history.pop_front();
                    }
                    meter.history.push_back(now);
                }
                noticed(meter.tree());
            }
        })?;
        Ok(Self { meter, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn meter(&self) -> MutexGuard<'_, Meter> {
        lock(&self.meter)
    }

    pub(crate) fn take_history(&self) -> Vec<Resources> {
        self.meter().history.drain(..).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// A machine with processes that are only files.
    struct Machine {
        folder: tempfile::TempDir,
        host: Host,
    }

    impl Machine {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let at = |name: &str| folder.path().join(name);
            let host = Host { proc: at("proc"), sys: at("sys"), is_root: false };
            fs::create_dir_all(&host.proc).expect("a folder");
            Self { folder, host }
        }

        fn file(&self, path: &str, text: &str) {
            let path: PathBuf = self.folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }

        /// Process `pid` in group 1000 with `ticks` of user time.
        fn process(&self, pid: i32, parent: i32, ticks: u64, anonymous_kb: u64) {
            let stat = format!(
                "{pid} (x) S {parent} 1000 1000 0 -1 0 10 0 1 0 {ticks} 5 0 0 20 0 2 0 9 0 0\n"
            );
            self.file(&format!("proc/{pid}/stat"), &stat);
            let status =
                format!("RssAnon:\t{anonymous_kb} kB\nRssFile:\t100 kB\nRssShmem:\t50 kB\n");
            self.file(&format!("proc/{pid}/status"), &status);
            self.file(
                &format!("proc/{pid}/io"),
                "rchar: 9\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\n",
            );
            for thread in [pid, pid + 1] {
                self.file(
                    &format!("proc/{pid}/task/{thread}/status"),
                    "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n",
                );
            }
        }

        fn end(&self, pid: i32) {
            fs::remove_dir_all(self.host.proc.join(pid.to_string())).expect("a process");
        }
    }

    #[test]
    fn a_tree_is_summed_and_what_ended_is_not_lost() {
        let machine = Machine::new();
        machine.process(1000, 1, 100, 1000);
        machine.process(2000, 1000, 200, 500);
        machine.process(3000, 1, 40, 500);
        machine.file("sys/block/loop9/stat", " 10 0 8 0 20 0 16 0 0 0 0\n");
        let tree = Tree::new(&machine.host.proc, None, Some(1000));
        let mut meter = Meter::new(&machine.host, tree, vec!["loop9".to_owned()]);
        machine.file("sys/block/loop9/stat", " 11 0 10 0 25 0 26 0 0 0 0\n");
        let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second();
        let now = meter.measure().expect("a measurement");
        assert_eq!((now.processes, now.threads), (3, 6));
        assert_eq!(now.cpu.user_us, 340 * us_per_tick);
        assert_eq!(now.cpu.system_us, 15 * us_per_tick);
        assert_eq!(now.anonymous_bytes, 2000 * 1024);
        assert_eq!((now.shared_bytes, now.resident_bytes), (50 * 1024, 2150 * 1024));
        assert_eq!(
            (now.read_bytes, now.write_bytes, now.read_calls, now.write_calls),
            (12288, 24576, 9, 12)
        );
        assert_eq!((now.voluntary_switches, now.involuntary_switches), (42, 12));
        assert_eq!((now.device_reads, now.device_writes), (1, 5));
        assert_eq!((now.device_read_bytes, now.device_write_bytes), (1024, 5120));

        // The orphan's times are nowhere else; those of the child are now its parent's.
        machine.end(3000);
        machine.end(2000);
        machine.process(1000, 1, 310, 1000);
        let later = meter.measure().expect("a measurement");
        assert_eq!(later.cpu.user_us, 350 * us_per_tick);
        assert_eq!((later.voluntary_switches, later.processes), (42, 1));

        machine.end(1000);
        assert_eq!(meter.measure(), Some(later), "the last measurement stays");
    }

    #[test]
    fn real_processes_are_measured_once_a_second() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; exec sleep 60"])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut word = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut word)
            .expect("it has counted");
        let host = Host::current();
        let tree = Tree::new(&host.proc, None, i32::try_from(child.id()).ok());
        let watch = Watch::start(Meter::new(&host, tree, Vec::new()), |_| {}).expect("a thread");
        let mut now = watch.meter().measure().expect("a measurement");
        // The shell is small while it becomes `sleep`.
        let deadline = Instant::now() + Duration::from_secs(10);
        while now.resident_bytes <= 100_000 && Instant::now() < deadline {
            now = watch.meter().measure().expect("a measurement");
        }
        assert_eq!((now.processes, now.threads), (1, 1));
        assert!(now.cpu.user_us + now.cpu.system_us > 0 && now.descriptors >= 3, "{now:?}");
        assert!(now.resident_bytes > 100_000 && now.minor_faults > 10, "{now:?}");
        let deadline = Instant::now() + Duration::from_secs(10);
        while watch.meter().history.is_empty() {
            assert!(Instant::now() < deadline, "nothing is measured");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!watch.take_history().is_empty());
        child.kill().expect("ended");
        child.wait().expect("gone");
    }
}
