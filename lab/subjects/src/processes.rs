//! Which processes belong to a subject, and how they are ended.
//!
//! A subject starts in a process group of its own and with a mark in its environment. Processes
//! with the mark, in the group or in its session, and descendants of such a process belong to it;
//! and so do those that did at the last look, so that a helper whose parent has ended is not lost.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable that marks a subject's processes.
pub(crate) const MARK: &str = "HUMBOLDT_LAB_SUBJECT";
/// More processes than this do not belong to one subject; the rest is not followed.
const MEMBERS_MAX: usize = 4096;
/// Time for killed processes to vanish. A process that waits for a slow disk can need it.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks of a wait.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The first line of a process's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    pub(crate) is_dead: bool,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// Of its own threads alone, in both modes.
    pub(crate) own_ticks: u64,
    pub(crate) threads: u32,
    /// The processor that it ran on last.
    pub(crate) processor: usize,
    /// With the number it names a process for ever.
    pub(crate) started_ticks: u64,
}

impl Stat {
    /// Of one process; `None` if it has gone.
    pub(crate) fn read(proc: &Path, pid: i32) -> Option<Self> {
        Self::parse(&fs::read(proc.join(pid.to_string()).join("stat")).ok()?)
    }

    /// The name in parentheses may contain any character, parentheses and blanks too: the fields
    /// begin behind the last one.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(line);
        let (head, tail) = line.rsplit_once(')')?;
        let pid = head.split(' ').next()?.parse().ok()?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
        // Faults and times of children that were waited for are in the field behind the own ones.
        let with_children = |own: usize, children: usize| {
            Some(number(own)?.max(0).unsigned_abs() + number(children)?.max(0).unsigned_abs())
        };
        Some(Self {
            pid,
            parent: i32::try_from(number(1)?).ok()?,
            group: i32::try_from(number(2)?).ok()?,
            session: i32::try_from(number(3)?).ok()?,
            is_dead: matches!(*fields.first()?, "Z" | "X" | "x"),
            minor_faults: with_children(7, 8)?,
            major_faults: with_children(9, 10)?,
            user_ticks: with_children(11, 13)?,
            system_ticks: with_children(12, 14)?,
            own_ticks: (number(11)?.max(0) + number(12)?.max(0)).unsigned_abs(),
            threads: u32::try_from(number(17)?).ok()?,
            processor: number(36).and_then(|number| usize::try_from(number).ok()).unwrap_or(0),
            started_ticks: number(19)?.unsigned_abs(),
        })
    }
}

/// Every process of the machine.
pub(crate) fn all(proc: &Path) -> Vec<Stat> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Stat::read(proc, pid)).collect()
}

/// A subject's processes.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    proc: PathBuf,
    mark: Option<String>,
    /// The first process, which leads the group.
    root: Option<i32>,
    /// Number → when it started.
    known: BTreeMap<i32, u64>,
    /// Every number that ever belonged to it.
    ever: BTreeSet<i32>,
}

impl Tree {
    /// Processes with this mark, and the group of `root`.
    pub(crate) fn new(proc: &Path, mark: Option<&str>, root: Option<i32>) -> Self {
        let mark = mark.map(|mark| format!("{MARK}={mark}"));
        Self { proc: proc.to_path_buf(), mark, root, known: BTreeMap::new(), ever: BTreeSet::new() }
    }

    /// One process that runs already, with its descendants. `None` if there is none of that number.
    pub(crate) fn of(proc: &Path, pid: i32) -> Option<Self> {
        let process = Stat::read(proc, pid).filter(|process| !process.is_dead)?;
        let mut tree = Self::new(proc, None, None);
        tree.known.insert(pid, process.started_ticks);
        Some(tree)
    }

    /// Every number that ever belonged to it, as far as it was looked at.
    pub(crate) fn ever(&self) -> &BTreeSet<i32> {
        &self.ever
    }

    /// Looks at all processes. Returns those that belong to it and live.
    pub(crate) fn look(&mut self) -> Vec<Stat> {
        self.find(false)
    }

    /// The same, reading also the environment of every process: for the end, because it takes
    /// longer.
    pub(crate) fn look_for_marks(&mut self) -> Vec<Stat> {
        self.find(true)
    }

    fn find(&mut self, marks: bool) -> Vec<Stat> {
        let processes: Vec<Stat> =
            all(&self.proc).into_iter().filter(|process| !is_untouchable(process.pid)).collect();
        let mut members: BTreeMap<i32, u64> = processes
            .iter()
            .filter(|process| self.is_member(process, marks))
            .map(|process| (process.pid, process.started_ticks))
            .collect();
        // Children may have smaller numbers than their parents, so this goes on until nothing is
        // found.
        loop {
            let before = members.len();
            for process in &processes {
                if members.contains_key(&process.parent) && members.len() < MEMBERS_MAX {
                    members.insert(process.pid, process.started_ticks);
                }
            }
            if members.len() == before {
                break;
            }
        }
        let living: Vec<Stat> = processes
            .into_iter()
            .filter(|process| members.contains_key(&process.pid) && !process.is_dead)
            .collect();
        self.known = living.iter().map(|process| (process.pid, process.started_ticks)).collect();
        if self.ever.len() < MEMBERS_MAX {
            self.ever.extend(self.known.keys());
        }
        living
    }

    fn is_member(&self, process: &Stat, marks: bool) -> bool {
        let is_in_group =
            self.root.is_some_and(|root| process.group == root || process.session == root);
        is_in_group
            || self.known.get(&process.pid) == Some(&process.started_ticks)
            || (marks && self.has_mark(process.pid))
    }

    fn has_mark(&self, pid: i32) -> bool {
        let Some(mark) = &self.mark else { return false };
        fs::read(self.proc.join(pid.to_string()).join("environ")).is_ok_and(|environment| {
            environment.split(|&byte| byte == 0).any(|entry| entry == mark.as_bytes())
        })
    }

    /// Ends all: TERM to the first process, which ends its helpers itself; when `patience` is over,
    /// KILL to all. `reap` is called while waiting. Returns whether KILL was needed.
    pub(crate) fn end(
        &mut self,
        patience: Duration,
        mut reap: impl FnMut(),
    ) -> Result<bool, String> {
        let mut living = self.look_for_marks();
        let first = self.root.filter(|root| living.iter().any(|process| process.pid == *root));
        for process in
            living.iter().filter(|process| first.is_none_or(|first| process.pid == first))
        {
            signal(process.pid, Signal::TERM);
        }
        let deadline = Instant::now() + patience;
        while !living.is_empty() && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
            reap();
            living = self.look();
        }
        // A process that left group and session and lost its parent still has the mark.
        living = self.look_for_marks();
        let was_killed = !living.is_empty();
        let deadline = Instant::now() + KILLED_WITHIN;
        while !living.is_empty() {
            if Instant::now() > deadline {
                let pids: Vec<String> =
                    living.iter().map(|process| process.pid.to_string()).collect();
                return Err(format!("processes {} do not end, even killed", pids.join(", ")));
            }
            for process in &living {
                signal(process.pid, Signal::KILL);
            }
            std::thread::sleep(LOOK_AGAIN);
            reap();
            living = self.look_for_marks();
        }
        Ok(was_killed)
    }
}

/// The first process and this one never belong to a subject, whatever the numbers say.
fn is_untouchable(pid: i32) -> bool {
    pid <= 1 || pid == rustix::process::getpid().as_raw_nonzero().get()
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended by itself just now.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    fn marked(mark: &str, script: &str) -> Child {
        Command::new("/bin/sh")
            .args(["-c", script])
            .env(MARK, mark)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell")
    }

    fn wait_for(tree: &mut Tree, count: usize) -> Vec<Stat> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let living = tree.look_for_marks();
            if living.len() == count || Instant::now() > deadline {
                return living;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    #[test]
    fn names_of_processes_confuse_nobody() {
        let line =
            b"42 (a) b (c) S 7 8 9 0 -1 4194560 100 20 3 1 11 12 13 14 20 0 5 0 777 1000 50\n";
        let stat = Stat::parse(line).expect("a right line");
        assert_eq!((stat.pid, stat.parent, stat.group, stat.session), (42, 7, 8, 9));
        assert_eq!((stat.minor_faults, stat.major_faults), (120, 4));
        assert_eq!((stat.user_ticks, stat.system_ticks), (24, 26));
        assert_eq!((stat.threads, stat.started_ticks, stat.is_dead), (5, 777, false));
        assert_eq!(Stat::parse(b"42 (x) Z 1"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn a_helper_in_its_own_session_without_parent_is_found_and_ended() {
        let mark = format!("test-escape-{}", std::process::id());
        let mut child = marked(&mark, "setsid sh -c 'sleep 77 & sleep 78' & exit 0");
        let root = i32::try_from(child.id()).expect("a small number");
        child.wait().expect("the shell ends");
        let mut tree = Tree::new(Path::new("/proc"), Some(&mark), Some(root));
        let living = wait_for(&mut tree, 3);
        assert_eq!(living.len(), 3, "{living:?}");
        assert!(living.iter().all(|process| process.group != root));
        assert!(tree.end(Duration::from_secs(5), || {}).is_ok());
        assert_eq!(tree.look_for_marks(), []);
    }

    #[test]
    fn who_ignores_term_is_killed_and_others_stay() {
        let mark = format!("test-stubborn-{}", std::process::id());
        let mut child = marked(&mark, "trap '' TERM; while :; do sleep 1; done");
        let mut other = Command::new("sleep").arg("60").spawn().expect("a bystander");
        let root = i32::try_from(child.id()).expect("a small number");
        let mut tree = Tree::new(Path::new("/proc"), Some(&mark), Some(root));
        wait_for(&mut tree, 2);
        let was_killed = tree.end(Duration::from_millis(200), || {
            let _ = child.try_wait();
        });
        assert_eq!(was_killed, Ok(true));
        assert!(other.try_wait().expect("a status").is_none(), "the bystander lives");
        other.kill().expect("ended");
        other.wait().expect("gone");
    }
}
