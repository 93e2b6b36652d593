//! The share of the processors that neither the laboratory nor its subject has.

use crate::processes::{self, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Parent of the kernel's threads, and their first one.
const KERNEL_THREADS: i32 = 2;

/// The shares that others had of the processors between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// By processes of this machine that belong neither to the laboratory nor to its subject.
    /// Threads of the kernel are left out: most of them work for one of the two.
    pub foreign: f64,
    /// By the host of this virtual machine (steal).
    pub steal: f64,
}

/// Looks at the machine again and again.
#[derive(Debug)]
pub struct HostLoad {
    proc: PathBuf,
    /// The processors that matter.
    processors: Vec<usize>,
    before: Option<Look>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    /// Time of each foreign process, which its number and its start name.
    foreign: BTreeMap<(i32, u64), u64>,
    steal_ticks: u64,
}

impl HostLoad {
    /// For a laboratory and a subject that run on these processors.
    #[must_use]
    pub fn new(proc: PathBuf, processors: Vec<usize>) -> Self {
        Self { proc, processors, before: None }
    }

    /// The shares since the last look; nothing at the first one. `ours` are the subject's
    /// processes; `None` if they are not known, and nothing can be said about foreign ones.
    pub fn look(&mut self, ours: Option<&BTreeSet<i32>>) -> Option<Taken> {
        let all = ours.map(|ours| self.foreign(ours)).unwrap_or_default();
        let now = Look {
            at: Instant::now(),
            foreign: all.iter().map(|stat| (name(stat), stat.own_ticks)).collect(),
            steal_ticks: self.steal_ticks(),
        };
        let before = self.before.replace(now)?;
        let now = self.before.as_ref()?;
        let ticks = (now.at - before.at).as_secs_f64()
            * rustix::param::clock_ticks_per_second() as f64
            * self.processors.len().max(1) as f64;
        // What was not there before has used all of its time since then.
        let used = |stat: &Stat| {
            stat.own_ticks.saturating_sub(before.foreign.get(&name(stat)).copied().unwrap_or(0))
        };
        let here = all.iter().filter(|stat| self.processors.contains(&stat.processor));
        // Without a look at them before, nothing is known.
        let foreign: u64 = if before.foreign.is_empty() { 0 } else { here.map(used).sum() };
        let steal = now.steal_ticks.saturating_sub(before.steal_ticks);
        let share = |used: u64| used as f64 / ticks.max(1.0);
        Some(Taken { foreign: share(foreign), steal: share(steal) })
    }

    /// All processes that belong neither to the laboratory nor to its subject nor to the kernel.
    fn foreign(&self, ours: &BTreeSet<i32>) -> Vec<Stat> {
        let own = std::process::id().cast_signed();
        let mut all = processes::all(&self.proc);
        all.retain(|stat| {
            let is_of_kernel = [stat.pid, stat.parent].contains(&KERNEL_THREADS);
            let is_own = [stat.pid, stat.parent].contains(&own) || ours.contains(&stat.pid);
            !is_of_kernel && !is_own
        });
        all
    }

    fn steal_ticks(&self) -> u64 {
        let text = fs::read_to_string(self.proc.join("stat")).unwrap_or_default();
        let of_line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let processor: usize = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            // user nice system idle iowait irq softirq steal
            let steal: u64 = words.nth(7)?.parse().ok()?;
            self.processors.contains(&processor).then_some(steal)
        };
        text.lines().filter_map(of_line).sum()
    }
}

/// A process's number and start, which no other has.
fn name(stat: &Stat) -> (i32, u64) {
    (stat.pid, stat.started_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process_group};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::time::Duration;

    /// A shell that computes, as the grandchild of this process.
    struct Burner(Child);

    impl Burner {
        fn start() -> Self {
            let script = "sh -c 'while :; do :; done'; exit";
            let mut shell = Command::new("sh");
            Self(shell.args(["-c", script]).process_group(0).spawn().expect("a shell"))
        }
    }

    impl Drop for Burner {
        fn drop(&mut self) {
            if let Some(group) = Pid::from_raw(self.0.id().cast_signed()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_that_computes_is_foreign_unless_it_is_the_subjects() {
        let processors: Vec<usize> = (0..1024).collect();
        let mut load = HostLoad::new(PathBuf::from("/proc"), processors);
        let ours = BTreeSet::new();
        assert_eq!(load.look(Some(&ours)), None);
        let _burner = Burner::start();
        let limit = Instant::now() + Duration::from_secs(20);
        let mut foreign_s = 0.0;
        while foreign_s < 0.1 {
            assert!(Instant::now() < limit, "{foreign_s} s of a process that computes");
            std::thread::sleep(Duration::from_millis(50));
            let before = load.before.as_ref().expect("a look").at;
            let taken = load.look(Some(&ours)).expect("shares");
            foreign_s += taken.foreign * 1024.0 * before.elapsed().as_secs_f64();
        }
        assert_eq!(load.look(None).map(|taken| taken.foreign), Some(0.0));
    }
}
