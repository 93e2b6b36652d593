//! What there still is of a run: processes, mounts, loop devices, folders, and what Squid leaves in
//! the kernel.

use super::until;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The processes that were started by this one, directly or not.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(of) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// The program's name of a process.
pub(crate) fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Whether it only waits for its parent to take notice of its end.
fn is_dead(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Watches for what a run on this ground leaves behind.
pub(crate) struct Traces {
    ground: PathBuf,
    pids: BTreeSet<u32>,
}

impl Traces {
    pub(crate) fn of(ground: &Path) -> Self {
        Self { ground: ground.to_path_buf(), pids: BTreeSet::new() }
    }

    /// Remembers processes that must end, too.
    pub(crate) fn note(&mut self, pids: &[u32]) {
        self.pids.extend(pids);
    }

    /// What there is now.
    pub(crate) fn left(&self) -> Vec<String> {
        let text = self.ground.to_str().expect("a plain name");
        let mut left = Vec::new();
        for file in fs::read_dir(&self.ground).into_iter().flatten().flatten() {
            left.push(format!("folder {}", file.path().display()));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let inside = format!("{text}/");
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&inside))
                .map(|line| format!("mount {line}")),
        );
        for block in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file =
                fs::read_to_string(block.path().join("loop/backing_file")).unwrap_or_default();
            if file.contains(text) {
                left.push(format!("loop device {}", block.path().display()));
            }
        }
        left.extend(self.processes(text));
        left.extend(self.queues());
        left
    }

    fn processes(&self, text: &str) -> Vec<String> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids =
            processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
        let ours = pids.filter(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let names_it = command.windows(text.len()).any(|part| part == text.as_bytes());
            // Numbers are used again, but not so soon.
            (names_it || self.pids.contains(pid)) && !is_dead(*pid)
        });
        ours.map(|pid| format!("process {pid} {}", name(pid))).collect()
    }

    /// SysV objects that the processes made: Squid numbers its queues by its process, 1024 apart.
    fn queues(&self) -> Vec<String> {
        let lines = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let segments = lines("/proc/sysvipc/shm");
        let segments = segments.lines().skip(1).filter(|line| {
            let maker = line.split_ascii_whitespace().nth(4).and_then(|pid| pid.parse().ok());
            maker.is_some_and(|pid| self.pids.contains(&pid))
        });
        let queues = lines("/proc/sysvipc/msg");
        let queues = queues.lines().skip(1).filter(|line| {
            let key = line.split_ascii_whitespace().next().and_then(|key| key.parse::<u32>().ok());
            key.is_some_and(|key| self.pids.contains(&(key >> 10)))
        });
        segments.chain(queues).map(|line| format!("in the kernel: {line}")).collect()
    }

    /// Nothing may be left now.
    #[track_caller]
    pub(crate) fn assert_none(&self) {
        let left = self.left();
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    /// Nothing may be left after a while.
    #[track_caller]
    pub(crate) fn until_none(&self) {
        until("the end of all traces", || self.left().is_empty().then_some(()));
    }
}
