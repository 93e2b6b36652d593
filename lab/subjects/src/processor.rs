//! A processor of a steady speed: a quota of CPU time that follows the machine's speed.
//!
//! A virtual machine's processors change their speed from one second to the next, unseen by the
//! kernel's statistics (`docs/lab.md`). So the laboratory does a known piece of work again and
//! again, and gives its subject more time when that takes longer.

mod work;

use crate::control_group::{Quota, check_quota};
use rustix::thread::CpuSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use work::Work;

/// Time between two looks. No multiple of a quota's period: otherwise all looks would come when the
/// subject runs, or all when it has used its quota up.
const LOOK: Duration = Duration::from_millis(47);
/// Looks between two changes of the quota. A change gives the subject the quota of one period more.
const LOOKS_OF_A_CHANGE: u32 = 20;
/// Looks before the subject starts.
const FIRST_LOOKS: u32 = 40;
/// Smaller changes than this share are left out.
const CHANGE_MIN: f64 = 0.03;
/// The weight of the looks since the last change; all before have the rest. So the quota follows
/// within some seconds.
const NEWEST: f64 = 0.25;

/// A processor that a subject is to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadySpeed {
    /// Its speed; 1 is the reference processor (`docs/lab.md`).
    pub speed: f64,
    /// The most of the machine's processors that it may have for that, in cores.
    pub cores_max: f64,
}

/// Looks at one core after the other.
struct Looker {
    work: Work,
    cores: Vec<CpuSet>,
    next: usize,
}

impl Looker {
    fn new(cores: Vec<CpuSet>) -> Result<Self, String> {
        Ok(Self { work: Work::new()?, cores, next: 0 })
    }

    /// The speed of the next core.
    fn look(&mut self) -> f64 {
        if let Some(core) = self.cores.get(self.next % self.cores.len().max(1)) {
            // A core that has gone is not looked at: the thread stays where it is.
            let _ = rustix::thread::sched_setaffinity(None, core);
        }
        self.next = self.next.wrapping_add(1);
        self.work.speed()
    }
}

/// What the subject has been given, and what it should have had.
#[derive(Debug)]
struct Given {
    since: Instant,
    /// The quota now, in cores.
    cores: f64,
    /// What it lacks now, as there are no more cores.
    short_cores: f64,
    /// CPU time that was allowed until `since`.
    allowed: Duration,
    /// CPU time that it lacked until then.
    short: Duration,
    /// Why the kernel refused a change.
    refused: Option<String>,
}

impl Given {
    fn new(cores: f64, short_cores: f64) -> Self {
        Self {
            since: Instant::now(),
            cores,
            short_cores,
            allowed: Duration::ZERO,
            short: Duration::ZERO,
            refused: None,
        }
    }

    fn allowed(&self) -> Duration {
        self.allowed + self.since.elapsed().mul_f64(self.cores)
    }

    fn short(&self) -> Duration {
        self.short + self.since.elapsed().mul_f64(self.short_cores)
    }

    fn change(&mut self, cores: f64, short_cores: f64) {
        let (allowed, short) = (self.allowed(), self.short());
        *self = Self { allowed, short, ..Self::new(cores, short_cores) };
    }
}

/// CPU time since the subject's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// What it was allowed to use.
    pub allowed: Duration,
    /// What it lacked, as the machine has no more.
    pub short: Duration,
}

/// A quota that follows the machine.
struct Follower {
    wanted: SteadySpeed,
    quota: Quota,
    /// The machine's speed, over some seconds.
    machine: f64,
    given: Arc<Mutex<Given>>,
}

impl Follower {
    /// Sets the first quota.
    fn start(wanted: SteadySpeed, quota: Quota, machine: f64) -> Result<Self, String> {
        let needed = needed(wanted.speed, machine);
        if needed > wanted.cores_max {
            return Err(format!(
                "this machine is too slow: {needed:.2} of its cores would be needed, of {:.2}",
                wanted.cores_max
            ));
        }
        check_quota(needed)?;
        let cores = quota.set(needed)?;
        let given = Arc::new(Mutex::new(Given::new(cores, 0.0)));
        Ok(Self { wanted, quota, machine, given })
    }

    /// The machine has had this speed since the last change.
    fn follow(&mut self, newest: f64) {
        self.machine += (newest - self.machine) * NEWEST;
        let needed = needed(self.wanted.speed, self.machine);
        let next = needed.min(self.wanted.cores_max);
        let mut given = lock(&self.given);
        if let Err(reason) = check_quota(needed) {
            given.refused = Some(reason);
            return;
        }
        let (before, was_short) = (given.cores, given.short_cores > 0.0);
        let is_same = (next / before - 1.0).abs() < CHANGE_MIN;
        if is_same && !was_short && needed <= next {
            return;
        }
        match if is_same { Ok(before) } else { self.quota.set(next) } {
            Ok(cores) => given.change(cores, (needed - cores).max(0.0)),
            Err(reason) => given.refused = Some(reason),
        }
    }
}

/// What a subject needs of a machine of this speed, in cores.
fn needed(wanted: f64, machine: f64) -> f64 {
    wanted / machine.max(f64::MIN_POSITIVE)
}

/// The mean of so many looks; `None` if the end comes before.
fn mean(looks: u32, end: &Receiver<()>, mut look: impl FnMut() -> f64) -> Option<f64> {
    // A quota is the same for a second, and looks are evenly spread over it: what the subject gets
    // done is the quota times the mean speed.
    let mut sum = 0.0;
    for _ in 0..looks {
        sum += look();
        if end.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
    }
    Some(sum / f64::from(looks.max(1)))
}

/// Keeps a subject's processor at one speed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Steady {
    given: Arc<Mutex<Given>>,
    /// The machine's speed at the start.
    machine: f64,
    /// The thread ends when this is dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Steady {
    /// Gives the group of `quota` this processor on these cores (none: on all), for as long as this
    /// lives. Looks at the machine for two seconds first.
    ///
    /// # Errors
    /// If the machine is too slow, there is no thread, or the kernel refuses the quota.
    pub(crate) fn start(wanted: SteadySpeed, quota: Quota, on: &[usize]) -> Result<Self, String> {
        let mut looker = Looker::new(cores(on)?)?;
        let (end, is_end) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let work = move || {
            let Some(machine) = mean(FIRST_LOOKS, &is_end, || looker.look()) else { return };
            let mut follower = match Follower::start(wanted, quota, machine) {
                Ok(follower) => follower,
                Err(reason) => return drop(begun.send(Err(reason))),
            };
            if begun.send(Ok((Arc::clone(&follower.given), machine))).is_err() {
                return;
            }
            while let Some(newest) = mean(LOOKS_OF_A_CHANGE, &is_end, || looker.look()) {
                follower.follow(newest);
            }
        };
        let thread = std::thread::Builder::new().name("processor".to_owned()).spawn(work);
        let thread = thread.map_err(|error| format!("no thread looks at its speed: {error}"))?;
        let begun = has_begun.recv();
        let (given, machine) =
            begun.map_err(|_| "the thread that looks at its speed ended".to_owned())??;
        Ok(Self { given, machine, end: Some(end), thread: Some(thread) })
    }

    /// The subject starts: what it is allowed counts from now on.
    pub(crate) fn begin(&self) {
        let mut given = lock(&self.given);
        *given = Given::new(given.cores, given.short_cores);
    }

    /// The machine's speed before the subject's start.
    pub(crate) fn machine(&self) -> f64 {
        self.machine
    }

    /// What it was allowed since [`Steady::begin`].
    pub(crate) fn allowance(&self) -> Allowance {
        let given = lock(&self.given);
        Allowance { allowed: given.allowed(), short: given.short() }
    }

    /// Whether the quota follows.
    ///
    /// # Errors
    /// The kernel's reason, if it refused a change.
    pub(crate) fn check(&self) -> Result<(), String> {
        lock(&self.given).refused.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(given: &Mutex<Given>) -> MutexGuard<'_, Given> {
    given.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A set for each of these cores, or for each that this process may use.
fn cores(on: &[usize]) -> Result<Vec<CpuSet>, String> {
    let allowed = allowed_cores()?;
    let is_wanted = |core: &usize| allowed.is_set(*core) && (on.is_empty() || on.contains(core));
    Ok((0..CpuSet::MAX_CPU).filter(is_wanted).map(|core| core_set(&[core])).collect())
}

/// The cores that this process may use.
pub(crate) fn allowed_cores() -> Result<CpuSet, String> {
    rustix::thread::sched_getaffinity(None)
        .map_err(|error| format!("the machine does not say which cores there are: {error}"))
}

/// The set of these cores.
pub(crate) fn core_set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const WANTED: SteadySpeed = SteadySpeed { speed: 0.5, cores_max: 1.0 };

    /// A file in the kernel's place, and the quota in it in µs of each 10 ms.
    fn quota() -> (tempfile::TempDir, Quota, impl Fn() -> u32) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cpu.max");
        let quota = Quota::Common(file.clone());
        let read = move || {
            let text = fs::read_to_string(&file).expect("a quota");
            text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
        };
        (folder, quota, read)
    }

    #[test]
    fn a_quota_follows_a_machine_that_becomes_slower_and_faster() {
        let (_folder, quota, read) = quota();
        let mut follower = Follower::start(WANTED, quota, 1.0).expect("a quota");
        assert_eq!(read(), 5_000);
        follower.follow(0.99);
        assert_eq!(read(), 5_000, "a small change is left out");
        (0..30).for_each(|_| follower.follow(0.8));
        assert!((6_050..6_250).contains(&read()), "{}", read());
        (0..30).for_each(|_| follower.follow(1.0));
        assert!((4_950..5_160).contains(&read()), "{}", read());
        follower.follow(0.95);
        assert!((4_950..5_200).contains(&read()), "one second is a part of the mean: {}", read());
    }

    #[test]
    fn a_machine_that_is_too_slow_is_refused_or_what_lacks_is_counted() {
        let (_folder, quota, read) = quota();
        let refused = Follower::start(WANTED, quota.clone(), 0.4).err().expect("too slow");
        assert!(refused.contains("1.25 of its cores would be needed, of 1.00"), "{refused}");
        let least = SteadySpeed { speed: 0.05, cores_max: 1.0 };
        let refused = Follower::start(least, quota.clone(), 1.0).err().expect("too little");
        assert!(refused.contains("no less than 0.1"), "{refused}");
        let mut follower = Follower::start(WANTED, quota, 1.0).expect("a quota");
        (0..50).for_each(|_| follower.follow(0.25));
        assert_eq!(read(), 10_000, "all that there is");
        let ago = Duration::from_secs(10);
        let given = Arc::clone(&follower.given);
        lock(&given).since -= ago;
        let short_s = lock(&given).short().as_secs_f64();
        assert!((9.9..10.5).contains(&short_s), "a core of two: {short_s}");
        (0..50).for_each(|_| follower.follow(1.0));
        assert_eq!(lock(&given).short_cores, 0.0);
    }

    #[test]
    fn a_machine_of_which_less_than_the_least_quota_would_do_is_told() {
        let (_folder, quota, _) = quota();
        let mut follower = Follower::start(WANTED, quota, 1.0).expect("a quota");
        (0..50).for_each(|_| follower.follow(10.0));
        let refused = lock(&follower.given).refused.clone().expect("a reason");
        assert!(refused.contains("no less than 0.1"), "{refused}");
    }

    #[test]
    fn a_refusal_is_told() {
        let (folder, quota, _) = quota();
        let mut follower = Follower::start(WANTED, quota, 1.0).expect("a quota");
        drop(folder);
        (0..10).for_each(|_| follower.follow(0.5));
        let refused = lock(&follower.given).refused.clone().expect("a reason");
        assert!(refused.contains("the kernel refuses"), "{refused}");
    }

    #[test]
    fn a_machine_that_changes_has_the_mean_of_its_speeds() {
        let (end, is_end) = mpsc::channel();
        let mut speeds = [1.0, 0.5].into_iter().cycle();
        assert_eq!(mean(4, &is_end, || speeds.next().unwrap_or(0.0)), Some(0.75));
        drop(end);
        assert_eq!(mean(4, &is_end, || 1.0), None);
    }

    #[test]
    fn what_was_allowed_is_the_sum_over_all_quotas() {
        let ago = Duration::from_secs(10);
        let mut given = Given::new(0.5, 0.0);
        given.since -= ago;
        given.change(2.0, 1.0);
        given.since -= ago;
        let (allowed_s, short_s) = (given.allowed().as_secs_f64(), given.short().as_secs_f64());
        assert!((25.0..26.0).contains(&allowed_s), "{allowed_s}");
        assert!((10.0..10.5).contains(&short_s), "{short_s}");
    }
}
