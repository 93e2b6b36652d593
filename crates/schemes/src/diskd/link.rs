//! The connection between the proxy and one helper: two queues, a segment of shared memory, the
//! number of its process.

use std::io;

use humboldt_sys::sysv::{MessageQueue, SharedMemory};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use super::protocol::{MESSAGE_BYTES, SLOTS_MAX};
use super::record::Keys;
use crate::tree::WHOLE_FILE_BYTES_MAX;

/// Length of a slot: a file that is read at once needs one message each way.
pub(super) const SLOT_BYTES: u32 = WHOLE_FILE_BYTES_MAX as u32;

/// Slots in shared memory: Squid's 1.3 × Q2.
pub(super) fn slots(q2: u32) -> u32 {
    (q2.saturating_mul(13)).div_ceil(10).clamp(2, SLOTS_MAX)
}

/// Capacity of the queues, so that a message never waits for room: one more than Q2, and one to
/// spare.
pub(super) fn queue_bytes(q2: u32) -> u64 {
    (u64::from(q2) + 2) * MESSAGE_BYTES as u64
}

/// The connection with one helper. Dropped, it removes queues and segment.
pub(super) struct Link {
    pub(super) requests: MessageQueue,
    pub(super) replies: MessageQueue,
    pub(super) memory: SharedMemory,
    /// The helper, while its number is certainly its own: from its start until the keeper has taken
    /// note of its end.
    process: Mutex<Option<Pid>>,
}

impl Link {
    /// Creates queues and segment. `AlreadyExists` if a key is taken; all other errors name the
    /// remedy.
    pub(super) fn create(keys: Keys, q2: u32) -> io::Result<Self> {
        let requests = Removed(create_queue(keys.request_queue, q2)?);
        let replies = Removed(create_queue(keys.reply_queue, q2)?);
        let bytes = slots(q2) as usize * SLOT_BYTES as usize;
        let memory = SharedMemory::create(keys.memory, bytes).map_err(|error| {
            let limits = "kernel.shmmax, kernel.shmall and kernel.shmmni";
            advise(&error, &format!("{bytes} bytes of shared memory: the limits are {limits}"))
        })?;
        Ok(Self {
            requests: requests.keep(),
            replies: replies.keep(),
            memory,
            process: Mutex::new(None),
        })
    }

    /// From now on the helper is this process.
    pub(super) fn set_process(&self, process: Option<Pid>) {
        *self.process.lock() = process;
    }

    /// The helper, if it runs.
    #[cfg(test)]
    pub(super) fn process(&self) -> Option<Pid> {
        *self.process.lock()
    }

    /// Ends the helper during any operation, and wakes the threads that wait for replies.
    pub(super) fn cut(&self) {
        if let Some(process) = *self.process.lock() {
            let _ = rustix::process::kill_process(process, Signal::KILL);
        }
        self.remove_queues();
    }

    /// The helper ends after its present operation; the thread that waits for replies is woken.
    pub(super) fn remove_queues(&self) {
        let _ = (self.requests.remove(), self.replies.remove());
    }

    /// Both sides have the segment: it goes with them.
    pub(super) fn hide_memory(&self) {
        let _ = self.memory.remove_when_detached();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.remove_queues();
        self.hide_memory();
    }
}

/// A queue that is removed unless it is kept.
struct Removed(MessageQueue);

impl Removed {
    fn keep(self) -> MessageQueue {
        let queue = self.0;
        std::mem::forget(self);
        queue
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

fn create_queue(key: humboldt_sys::sysv::IpcKey, q2: u32) -> io::Result<MessageQueue> {
    let queue = MessageQueue::create(key)
        .map_err(|error| advise(&error, "a message queue: the limit is kernel.msgmni"))?;
    let queue = Removed(queue);
    let wanted = queue_bytes(q2);
    let found = queue.0.info()?.capacity_bytes;
    if found < wanted
        && let Err(error) = queue.0.set_capacity(wanted)
    {
        let advice = format!(
            "room for Q2={q2} in a message queue: kernel.msgmnb is {found}, and must be {wanted}"
        );
        return Err(advise(&error, &advice));
    }
    Ok(queue.keep())
}

/// The same kind of error, with the resource that is missing.
fn advise(error: &io::Error, advice: &str) -> io::Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists.into(),
        kind => io::Error::new(kind, format!("no {advice} (raise it with sysctl -w): {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_sys::sysv;

    #[test]
    fn slots_are_squids() {
        assert_eq!([1, 2, 72, 100, u32::MAX].map(slots), [2, 3, 94, 130, SLOTS_MAX]);
        assert_eq!(queue_bytes(72), 74 * 40);
    }

    #[test]
    fn nothing_stays_when_it_is_dropped_or_cannot_be_made() {
        let keys = Keys::random();
        let link = Link::create(keys, 72).expect("created");
        let taken = Link::create(keys, 72).err().map(|error| error.kind());
        assert_eq!(taken, Some(io::ErrorKind::AlreadyExists));
        let segment = link.memory.id();
        let part = Keys { memory: keys.memory, ..Keys::random() };
        assert!(Link::create(part, 72).is_err(), "the last one is taken");
        drop(link);
        for key in [keys.request_queue, keys.reply_queue, part.request_queue, part.reply_queue] {
            assert!(MessageQueue::find(key).is_none());
        }
        assert!(sysv::segment_info(segment).is_err());
    }

    #[test]
    fn errors_say_what_to_raise() {
        let error = advise(
            &io::Error::from_raw_os_error(28),
            "a message queue: the limit is kernel.msgmni",
        );
        assert!(
            error.to_string().contains("kernel.msgmni (raise it with sysctl -w): No space"),
            "{error}"
        );
    }
}
