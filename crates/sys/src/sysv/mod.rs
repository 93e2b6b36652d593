//! SysV message queues and shared memory, as `diskd` uses them.
//!
//! Both outlive the processes that use them, so a drop removes nothing here. The creator must know
//! when to remove them, and must write the key down first, so that they are found again after a
//! crash. Our keys begin with the byte 0x48 ('H').

mod memory;
mod queue;

pub use self::memory::{
    SegmentInfo, SharedMemory, find_segment, remove as remove_segment, segment_info,
};
pub use self::queue::{MessageQueue, QueueInfo, QueueMessage};

/// Upper byte of the keys of ours.
const KEY_PREFIX: u32 = 0x4800_0000;

/// Only the user of this process may use the created objects.
const MODE: libc::c_int = 0o600;

/// The key of a queue or segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct IpcKey(u32);

impl IpcKey {
    /// A key of ours from the lower 24 bits of `random`.
    pub fn new(random: u32) -> Self {
        Self(KEY_PREFIX | random & 0x00FF_FFFF)
    }

    /// The key with this number, if it is one of ours.
    pub fn from_number(number: u32) -> Option<Self> {
        (number & 0xFF00_0000 == KEY_PREFIX).then_some(Self(number))
    }

    /// As `ipcs` shows it.
    pub fn number(self) -> u32 {
        self.0
    }

    fn raw(self) -> libc::key_t {
        self.0 as libc::key_t
    }
}

/// The user whom files and queues are created for.
fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests;
