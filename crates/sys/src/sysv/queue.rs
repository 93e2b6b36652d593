//! Message queues.

use std::io;
use std::mem::MaybeUninit;

use super::{IpcKey, MODE, effective_user};

/// Type of all messages; the system wants one that is positive.
const MESSAGE_TYPE: libc::c_long = 1;

/// A message as the system calls take it.
#[repr(C)]
struct Buffer<const N: usize> {
    kind: libc::c_long,
    text: [u8; N],
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMessage<const N: usize> {
    /// One of the expected length (or a longer one, cut off).
    Text([u8; N]),
    /// One that is shorter.
    Short,
}

/// The system's information about a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The user who created it.
    pub creator_user: u32,
    /// Messages in it.
    pub messages: u64,
    /// Bytes that messages in it may have together.
    pub capacity_bytes: u64,
    /// Process that sent the last message, 0 for none.
    pub last_sender: i32,
    /// Process that received the last message, 0 for none.
    pub last_receiver: i32,
}

/// A message queue of the system. Stays when it is dropped: see [`MessageQueue::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageQueue {
    id: libc::c_int,
}

impl MessageQueue {
    /// Creates a queue. `AlreadyExists` if there is one with this key; ENOSPC if there are too many
    /// (`kernel.msgmni`).
    #[allow(unsafe_code)]
    pub fn create(key: IpcKey) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let id = unsafe { libc::msgget(key.raw(), libc::IPC_CREAT | libc::IPC_EXCL | MODE) };
        if id < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { id }) }
    }

    /// The queue that another process has created. Nothing is asked of the system before it is
    /// used.
    pub fn with_id(id: i32) -> Self {
        Self { id }
    }

    /// The queue with this key.
    #[allow(unsafe_code)]
    pub fn find(key: IpcKey) -> Option<Self> {
        // SAFETY: no memory is passed.
        let id = unsafe { libc::msgget(key.raw(), 0) };
        (id >= 0).then_some(Self { id })
    }

    /// The number by which other processes use it.
    pub fn id(self) -> i32 {
        self.id
    }

    /// Sends a message; `false` if the queue is full and `wait` is not wanted. EIDRM or EINVAL if
    /// the queue is removed.
    #[allow(unsafe_code)]
    pub fn send<const N: usize>(self, text: &[u8; N], wait: bool) -> io::Result<bool> {
        let message = Buffer { kind: MESSAGE_TYPE, text: *text };
        let flags = if wait { 0 } else { libc::IPC_NOWAIT };
        loop {
            // SAFETY: `message` has a `long` followed by N bytes and outlives the call.
            if unsafe { libc::msgsnd(self.id, (&raw const message).cast(), N, flags) } == 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(false),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }

    /// Receives the oldest message; `None` if there is none and `wait` is not wanted. EIDRM or
    /// EINVAL if the queue is removed, also while waiting.
    #[allow(unsafe_code)]
    pub fn receive<const N: usize>(self, wait: bool) -> io::Result<Option<QueueMessage<N>>> {
        let mut message = Buffer { kind: 0, text: [0; N] };
        let flags = libc::MSG_NOERROR | if wait { 0 } else { libc::IPC_NOWAIT };
        loop {
            // SAFETY: `message` has room for a `long` and N bytes, which is the most that is
            // written.
            let bytes = unsafe { libc::msgrcv(self.id, (&raw mut message).cast(), N, 0, flags) };
            if bytes >= 0 {
                let is_whole = usize::try_from(bytes) == Ok(N);
                return Ok(Some(if is_whole {
                    QueueMessage::Text(message.text)
                } else {
                    QueueMessage::Short
                }));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOMSG) => return Ok(None),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }

    /// Removes the queue with all messages in it. Who waits for it is woken with an error.
    #[allow(unsafe_code)]
    pub fn remove(self) -> io::Result<()> {
        // SAFETY: IPC_RMID takes no memory.
        let outcome = unsafe { libc::msgctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The system's information about the queue; an error if it does not exist.
    pub fn info(self) -> io::Result<QueueInfo> {
        let status = self.status()?;
        Ok(QueueInfo {
            creator_user: status.msg_perm.cuid,
            messages: status.msg_qnum,
            capacity_bytes: status.msg_qbytes,
            last_sender: status.msg_lspid,
            last_receiver: status.msg_lrpid,
        })
    }

    /// Gives room for `bytes` of messages. More than `kernel.msgmnb` needs privileges.
    #[allow(unsafe_code)]
    pub fn set_capacity(self, bytes: u64) -> io::Result<()> {
        let mut status = self.status()?;
        status.msg_qbytes = bytes;
        // SAFETY: `status` is a whole `msqid_ds` that the system has filled in, and outlives the
        // call.
        let outcome = unsafe { libc::msgctl(self.id, libc::IPC_SET, &raw mut status) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the user of this process created it.
    pub fn is_own(self) -> bool {
        self.info().is_ok_and(|info| info.creator_user == effective_user())
    }

    #[allow(unsafe_code)]
    fn status(self) -> io::Result<libc::msqid_ds> {
        let mut status = MaybeUninit::<libc::msqid_ds>::zeroed();
        // SAFETY: IPC_STAT fills a `msqid_ds`; all of its fields are integers, for which zeros are
        // valid too.
        unsafe {
            if libc::msgctl(self.id, libc::IPC_STAT, status.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(status.assume_init())
        }
    }
}
