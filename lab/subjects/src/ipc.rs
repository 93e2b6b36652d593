//! SysV queues and shared memory that a killed subject leaves in the kernel: Squid's diskd has
//! both, and a second Squid with the same numbers would stumble over them.

use crate::host::find_program;
use crate::processes::Stat;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Squid and its kin make the key of a queue from the creator's process number, shifted by this. A
/// queue that was never used has no other trace of its creator.
const SQUID_KEY_SHIFT: u32 = 10;

/// A SysV object with a trace of its maker.
#[derive(Debug, PartialEq, Eq)]
struct Object {
    /// `-q` or `-m` of ipcrm.
    option: &'static str,
    id: String,
}

/// Removes the objects that these processes made. They must have ended.
pub(crate) fn remove_made_by(proc: &Path, pids: &BTreeSet<i32>) {
    let has_ended = |pid: i32| Stat::read(proc, pid).is_none_or(|process| process.is_dead);
    let ended: BTreeSet<i64> =
        pids.iter().copied().filter(|&pid| has_ended(pid)).map(i64::from).collect();
    let read = |name: &str| fs::read_to_string(proc.join("sysvipc").join(name)).unwrap_or_default();
    let objects = made_by(&read("msg"), &read("shm"), &ended);
    let Some(program) = find_program(&["ipcrm"]).filter(|_| !objects.is_empty()) else { return };
    for object in objects {
        // Another clean-up may have been faster.
        let _ = Command::new(&program)
            .args([object.option, &object.id])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

fn made_by(queues: &str, segments: &str, pids: &BTreeSet<i64>) -> Vec<Object> {
    let is_ours = |pid: Option<i64>| pid.is_some_and(|pid| pid > 0 && pids.contains(&pid));
    let mut objects = Vec::new();
    for line in table(queues) {
        // key msqid perms cbytes qnum lspid lrpid …
        let number = |column: usize| line.get(column)?.parse::<i64>().ok();
        let (sender, receiver) = (number(5), number(6));
        let was_used = sender.unwrap_or(0) != 0 || receiver.unwrap_or(0) != 0;
        let keyed = number(0).map(|key| (key & 0xffff_ffff) >> SQUID_KEY_SHIFT);
        if is_ours(sender) || is_ours(receiver) || (!was_used && is_ours(keyed)) {
            objects.push(Object { option: "-q", id: line[1].to_owned() });
        }
    }
    for line in table(segments) {
        // key shmid perms size cpid lpid nattch …
        let number = |column: usize| line.get(column)?.parse::<i64>().ok();
        if is_ours(number(4)) && number(6) == Some(0) {
            objects.push(Object { option: "-m", id: line[1].to_owned() });
        }
    }
    objects
}

/// The lines below the heading, in columns.
fn table(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect())
        .filter(|line: &Vec<_>| line.len() > 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUES: &str = "       key      msqid perms      cbytes       qnum lspid lrpid   uid
  11475972          0   700           0          0     0     0    13
  11475973          1   700           0          0   900   901    13
  99999999          2   700           0          0     0     0    13
  11475980          3   700           0          0   555   556    13
";
    const SEGMENTS: &str =
        "       key      shmid perms                  size  cpid  lpid nattch   uid
  11475974          7   600                380928 11207 11217      0    13
  11475975          8   600                380928 11207 11217      2    13
         0          9   600                380928   555 11217      0    13
";

    #[test]
    fn only_what_these_processes_made_is_chosen() {
        let ids = |pids: &[i64]| -> Vec<String> {
            let objects = made_by(QUEUES, SEGMENTS, &pids.iter().copied().collect());
            objects.into_iter().map(|object| format!("{} {}", object.option, object.id)).collect()
        };
        // 11207 << 10 begins the keys; queue 3 has such a key and yet was used by others.
        assert_eq!(ids(&[11207]), ["-q 0", "-m 7"]);
        assert_eq!(ids(&[11207, 901]), ["-q 0", "-q 1", "-m 7"]);
        assert_eq!(ids(&[]), [] as [&str; 0]);
        assert_eq!(ids(&[0]), [] as [&str; 0]);
    }
}
