//! A processor of a steady speed: a quota of CPU time that follows the machine's speed.
//!
//! What a virtual machine calls a processor is often one of two threads of a core, and its host
//! gives the other thread to somebody else. Then the same work takes up to 1.7 times as long, from
//! one second to the next, and no statistics of the kernel show it. So the laboratory does a known
//! piece of work again and again, and gives its subject more time when that takes longer.

use crate::control_group::Quota;
use rustix::thread::CpuSet;
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rounds of the work that the reference processor does in a second. It is a core of an AMD EPYC at
/// 2.4 GHz of 2021 whose other thread has nothing to do.
const REFERENCE_ROUNDS_PER_S: f64 = 2_100_000.0;

/// Rounds of one look at the speed: a quarter of a millisecond.
const ROUNDS: u32 = 300;
/// Rounds before it, which bring the work into the processor's own caches.
const WARM_UP_ROUNDS: u32 = 100;
/// Entries of its table, which fits into those caches.
const ENTRIES: u64 = 256;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Looks between two changes of the quota. A change gives the subject the whole quota of a period
/// at once, so there are few.
const LOOKS_OF_A_CHANGE: u32 = 20;
/// Looks before the subject starts.
const FIRST_LOOKS: u32 = 40;
/// Smaller changes than this share are left out.
const CHANGE_MIN: f64 = 0.01;
/// The weight of the looks since the last change; all before have the rest. So the quota follows
/// within some seconds.
const NEWEST: f64 = 0.25;

/// What a cache does without a disk and a network: text is put together, taken apart and looked up.
struct Work {
    head: String,
    table: HashMap<u64, u64, BuildHasherDefault<DefaultHasher>>,
    round: u64,
}

impl Work {
    fn new() -> Self {
        let table = (0..ENTRIES).map(|key| (key, key)).collect();
        Self { head: String::new(), table, round: 0 }
    }

    fn round(&mut self) -> u64 {
        self.round += 1;
        let key = self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.head.clear();
        let _ = write!(
            self.head,
            "GET /{key:08x}.html HTTP/1.1\r\nHost: www{}.example\r\nAccept: text/html\r\n\
             Content-Length: {}\r\nIf-None-Match: \"{key:x}\"\r\nConnection: keep-alive\r\n",
            key % 100,
            key % 10_000
        );
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let length = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum::<u64>();
        let found = (0..4).filter_map(|step| self.table.get(&((key + step * length) % ENTRIES)));
        found.sum()
    }

    /// The speed of the processor on which this thread runs now; the reference processor has 1.
    fn speed(&mut self) -> f64 {
        let mut rounds = |count| (0..count).for_each(|_| _ = black_box(self.round()));
        rounds(WARM_UP_ROUNDS);
        let begun_s = thread_s();
        rounds(ROUNDS);
        let taken_s = (thread_s() - begun_s).max(1e-6);
        f64::from(ROUNDS) / taken_s / REFERENCE_ROUNDS_PER_S
    }
}

/// The CPU time of this thread in seconds: what others had of the processor is not in it.
fn thread_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The mean speed of these cores over so many looks; `None` if it is to end before.
fn look(work: &mut Work, looks: u32, end: &Receiver<()>) -> Option<f64> {
    // The mean of what a round takes, not of speeds: it is time that the subject needs.
    let mut taken = 0.0;
    for _ in 0..looks {
        taken += 1.0 / work.speed().max(f64::MIN_POSITIVE);
        if end.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
    }
    Some(f64::from(looks) / taken)
}

/// What the subject gets at this speed of the machine, in cores: no more than there are.
fn share(wanted: f64, machine: f64, cores: f64) -> f64 {
    (wanted / machine.max(f64::MIN_POSITIVE)).min(cores)
}

/// What the subject has been given.
#[derive(Debug)]
struct Given {
    since: Instant,
    /// The quota now, in cores.
    cores: f64,
    /// CPU time that was allowed until `since`.
    allowed: Duration,
}

impl Given {
    fn new(cores: f64) -> Self {
        Self { since: Instant::now(), cores, allowed: Duration::ZERO }
    }

    fn allowed(&self) -> Duration {
        self.allowed + self.since.elapsed().mul_f64(self.cores)
    }

    fn change(&mut self, cores: f64) {
        *self = Self { allowed: self.allowed(), ..Self::new(cores) };
    }
}

/// Keeps a subject's processor at one speed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Steady {
    given: Arc<Mutex<Given>>,
    /// The thread ends when this is dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Steady {
    /// Gives the group of `quota` a processor of this speed on these cores (none: on all), for as
    /// long as this lives. Looks at the machine for two seconds first.
    ///
    /// # Errors
    /// If there is no thread, or the kernel refuses the quota.
    pub(crate) fn start(wanted: f64, quota: Quota, on: &[usize]) -> Result<Self, String> {
        let cores = cores(on)?;
        let count = f64::from(cores.count());
        let (end, is_end) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let given = Arc::new(Mutex::new(Given::new(count)));
        let shared = Arc::clone(&given);
        let work = move || {
            let _ = rustix::thread::sched_setaffinity(None, &cores); // checked by the caller
            let mut work = Work::new();
            let Some(mut machine) = look(&mut work, FIRST_LOOKS, &is_end) else { return };
            let first = share(wanted, machine, count);
            lock(&shared).change(first);
            let set = quota.set(first);
            let is_set = set.is_ok();
            if begun.send(set).is_err() || !is_set {
                return;
            }
            while let Some(newest) = look(&mut work, LOOKS_OF_A_CHANGE, &is_end) {
                machine += (newest - machine) * NEWEST;
                let (next, before) = (share(wanted, machine, count), lock(&shared).cores);
                let is_same = (next / before - 1.0).abs() < CHANGE_MIN;
                if !is_same && quota.set(next).is_ok() {
                    lock(&shared).change(next);
                }
            }
        };
        let thread = std::thread::Builder::new().name("processor".to_owned()).spawn(work);
        let thread = thread.map_err(|error| format!("no thread looks at its speed: {error}"))?;
        let steady = Self { given, end: Some(end), thread: Some(thread) };
        has_begun.recv().map_err(|_| "the thread that looks at its speed ended".to_owned())??;
        Ok(steady)
    }

    /// CPU time that has been allowed since the start.
    pub(crate) fn allowed(&self) -> Duration {
        lock(&self.given).allowed()
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

/// These cores, or all that this process may use.
fn cores(on: &[usize]) -> Result<CpuSet, String> {
    if on.is_empty() {
        return rustix::thread::sched_getaffinity(None)
            .map_err(|error| format!("the machine does not say which cores there are: {error}"));
    }
    let mut set = CpuSet::new();
    on.iter().for_each(|&core| set.set(core));
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_machine_gives_more_of_its_time_and_no_more_than_it_has() {
        assert_eq!(share(0.6, 1.0, 2.0), 0.6);
        assert_eq!(share(0.6, 0.5, 2.0), 1.2);
        assert_eq!(share(0.6, 0.1, 2.0), 2.0);
        assert_eq!(share(0.6, 0.0, 2.0), 2.0);
    }

    #[test]
    fn every_round_is_the_same_work() {
        let (mut one, mut other) = (Work::new(), Work::new());
        let rounds = |work: &mut Work| (0..100).map(|_| work.round()).collect::<Vec<_>>();
        let first = rounds(&mut one);
        assert_eq!(first, rounds(&mut other));
        assert!(first.iter().any(|found| *found > 0));
    }

    #[test]
    fn what_was_allowed_is_the_sum_over_all_quotas() {
        let ago = Duration::from_secs(10);
        let back = |given: &mut Given| given.since -= ago;
        let mut given = Given::new(0.5);
        back(&mut given);
        given.change(2.0);
        back(&mut given);
        let allowed_s = given.allowed().as_secs_f64();
        assert!((25.0..26.0).contains(&allowed_s), "{allowed_s}");
    }

    /// With a file in the kernel's place.
    #[test]
    fn a_quota_is_there_before_the_subject_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cpu.max");
        let steady = Steady::start(0.5, Quota::Common(file.clone()), &[]).expect("a quota");
        let text = std::fs::read_to_string(&file).expect("a quota");
        let (quota_us, period_us) = text.split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        assert!(number(quota_us) / number(period_us) > 0.05, "{text}");
        drop(steady);
        let missing = Quota::Common(folder.path().join("none/cpu.max"));
        let refused = Steady::start(0.5, missing, &[]).expect_err("no such file");
        assert!(refused.contains("the kernel refuses"), "{refused}");
    }
}
