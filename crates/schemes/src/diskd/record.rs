//! The record of keys in the cache directory: queues and shared memory of a helper, written down
//! before they are created.
//!
//! When proxy and helper were both killed, the next start finds there the queues and memory that
//! they left in the system, and removes them. The helper holds a lock on the file, so that a new
//! proxy waits until the helper of an old one has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use humboldt_sys::sysv::{self, IpcKey, MessageQueue};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::lock::Lock;
use crate::tree::files::{self, FILE_MODE};

/// Name of the file.
pub(crate) const FILE: &str = "humboldt.diskd";

const TITLE: &str = "Humboldt diskd helper";

/// Longest record that is looked at.
const BYTES_MAX: usize = 1024;

/// Time for the present operation of a helper whose proxy was killed.
const HELPER_END_LIMIT: Duration = Duration::from_secs(10);

/// A process lets go of its locks a little before it has ended.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

/// Time between tries of its lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Keys of the queues and the shared memory of one helper.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) request_queue: IpcKey,
    pub(super) reply_queue: IpcKey,
    pub(super) memory: IpcKey,
}

impl Keys {
    /// Three random ones. They may be taken: then others must be tried.
    pub(super) fn random() -> Self {
        let mut bytes = [0_u8; 12];
        // Without randomness there are the time and the process, which differ too.
        if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            != Ok(bytes.len())
        {
            let now = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or_default();
            let seed = now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(40);
            bytes[0..8].copy_from_slice(
                &humboldt_base::xxh3::xxh3_64_with_seed(b"diskd", seed).to_le_bytes(),
            );
        }
        let key = |at: usize| {
            IpcKey::new(u32::from_le_bytes([
                bytes[at],
                bytes[at + 1],
                bytes[at + 2],
                bytes[at + 3],
            ]))
        };
        Self { request_queue: key(0), reply_queue: key(4), memory: key(8) }
    }
}

/// Writes the keys down.
pub(super) fn write(root: impl AsFd, keys: Keys) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, FILE, flags, FILE_MODE)?;
    let text = format!(
        "{TITLE}\nqueue {:#x}\nqueue {:#x}\nmemory {:#x}\n",
        keys.request_queue.number(),
        keys.reply_queue.number(),
        keys.memory.number()
    );
    files::write_all_at(&file, text.as_bytes(), 0)
}

/// There is nothing left that would have to be found.
pub(super) fn remove(root: impl AsFd) {
    // it may be missing; if it stays, it does no harm
    let _ = rustix::fs::unlinkat(root, FILE, AtFlags::empty());
}

/// Waits for the helper of an earlier proxy, and removes the queues and memory that the two left.
/// Blocks for at most [`HELPER_END_LIMIT`]; an error (`WouldBlock`) if it still works then. The
/// caller holds the lock on the directory.
pub(super) fn clear(root: impl AsFd) -> io::Result<()> {
    let root = root.as_fd();
    let open = || rustix::fs::openat(root, FILE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let start = Instant::now();
    let lock = loop {
        let file = match open() {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        match Lock::take(file) {
            Err(Errno::WOULDBLOCK) if start.elapsed() < HELPER_END_LIMIT => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            other => break other?,
        }
    };
    for (what, key) in read(lock.file())? {
        match what {
            What::Queue => clear_queue(key),
            What::Memory => clear_memory(key),
        }
    }
    remove(root);
    Ok(())
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum What {
    Queue,
    Memory,
}

/// The keys in a record; whatever else is there is passed over.
fn read(file: &OwnedFd) -> Result<Vec<(What, IpcKey)>, Errno> {
    let mut bytes = [0; BYTES_MAX];
    let len = rustix::io::pread(file, &mut bytes[..], 0)?;
    let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
    if !text.starts_with(TITLE) {
        return Ok(Vec::new());
    }
    let entry = |line: &str| {
        let (what, number) = line.split_once(" 0x")?;
        let key = IpcKey::from_number(u32::from_str_radix(number, 16).ok()?)?;
        match what {
            "queue" => Some((What::Queue, key)),
            "memory" => Some((What::Memory, key)),
            _ => None,
        }
    };
    Ok(text.lines().filter_map(entry).collect())
}

/// Whether this is a living process other than ours. A process that is ending has [`EXIT_LIMIT`]
/// for it.
fn is_other_process(pid: i32) -> bool {
    let start = Instant::now();
    while lives_beside_us(pid) {
        if start.elapsed() > EXIT_LIMIT {
            return true;
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
    false
}

/// A process that has ended, and whose parent has not noticed, does not live.
fn lives_beside_us(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid).filter(|pid| *pid != rustix::process::getpid()) else {
        return false;
    };
    if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

fn clear_queue(key: IpcKey) {
    let Some(queue) = MessageQueue::find(key).filter(|queue| queue.is_own()) else { return };
    let in_use = queue
        .info()
        .is_ok_and(|i| is_other_process(i.last_sender) || is_other_process(i.last_receiver));
    if in_use {
        tracing::warn!(
            "message queue {:#x} was a cache_dir's, but a process uses it: left alone",
            key.number()
        );
    } else if queue.remove().is_ok() {
        tracing::info!(
            "removed message queue {:#x}, which a killed process had left",
            key.number()
        );
    }
}

fn clear_memory(key: IpcKey) {
    let Some(id) = sysv::find_segment(key) else { return };
    if sysv::segment_info(id).is_ok_and(|info| info.attached > 0 || is_other_process(info.creator))
    {
        tracing::warn!(
            "shared memory {:#x} was a cache_dir's, but a process uses it: left alone",
            key.number()
        );
    } else if sysv::remove_segment(id).is_ok() {
        tracing::info!(
            "removed shared memory {:#x}, which a killed process had left",
            key.number()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_sys::sysv::SharedMemory;
    use std::fs;

    fn root(dir: &tempfile::TempDir) -> OwnedFd {
        rustix::fs::open(dir.path(), OFlags::RDONLY, Mode::empty()).expect("the directory")
    }

    #[test]
    fn what_a_killed_process_left_is_found_by_its_keys_and_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = root(&dir);
        clear(&root).expect("nothing there is no error");
        let keys = Keys::random();
        write(&root, keys).expect("written");
        let queue = MessageQueue::create(keys.request_queue).expect("a queue");
        let memory = SharedMemory::create(keys.memory, 4096).expect("a segment");
        let id = memory.id();
        drop(memory); // detached, as by the end of its process
        clear(&root).expect("cleared");
        assert!(queue.info().is_err() && sysv::segment_info(id).is_err());
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn what_is_in_use_or_not_ours_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = root(&dir);
        let keys = Keys::random();
        let queue = MessageQueue::create(keys.reply_queue).expect("a queue");
        let memory = SharedMemory::create(keys.memory, 4096).expect("a segment");
        let number = keys.reply_queue.number();
        for text in [
            format!("queue {number:#x}\n"),
            format!(
                "{TITLE}\nmemory {number:#x}\nqueue 0x\nqueue 0x0\nqueue {number}\nthing {number:#x}\n"
            ),
            format!("{TITLE}\nmemory {:#x}", keys.memory.number()),
        ] {
            fs::write(dir.path().join(FILE), text).expect("written");
            clear(&root).expect("cleared");
            assert!(queue.info().is_ok() && sysv::segment_info(memory.id()).is_ok());
        }
        memory.remove_when_detached().expect("removed");
        queue.remove().expect("removed");
    }

    #[test]
    fn a_helper_that_still_works_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = root(&dir);
        write(&root, Keys::random()).expect("written");
        let held = fs::File::open(dir.path().join(FILE)).expect("opened");
        held.lock().expect("locked");
        let released = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(Duration::from_millis(30)); // no matter if it is longer
                released.store(true, std::sync::atomic::Ordering::SeqCst);
                drop(held);
            });
            clear(&root).expect("cleared");
            assert!(released.load(std::sync::atomic::Ordering::SeqCst));
        });
    }
}
