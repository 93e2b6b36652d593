//! Shared memory. Other processes may write to it at any time: nothing refers to it, bytes are
//! copied in and out.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use super::{IpcKey, MODE, effective_user};

/// A segment that is attached to this process. Dropped, it is detached, not removed.
#[derive(Debug)]
pub struct SharedMemory {
    id: libc::c_int,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the address is valid in every thread until the value is dropped; all access is by copying
// through raw pointers, by this process and by others, and no caller may rely on what it reads.
#[allow(unsafe_code)]
unsafe impl Send for SharedMemory {}
// SAFETY: as above; two copies at the same time leave a mixture of bytes at worst, and bytes are
// all that is ever read.
#[allow(unsafe_code)]
unsafe impl Sync for SharedMemory {}

/// The system's information about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The user who created it.
    pub creator_user: u32,
    /// Process that created it.
    pub creator: i32,
    /// How many processes have it attached.
    pub attached: u64,
}

impl SharedMemory {
    /// Creates a segment of zeros and attaches it. `AlreadyExists` if there is one with this key;
    /// ENOSPC if there are too many (`kernel.shmmni`), EINVAL if it is too large (`kernel.shmmax`).
    #[allow(unsafe_code)]
    pub fn create(key: IpcKey, bytes: usize) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let id = unsafe { libc::shmget(key.raw(), bytes, libc::IPC_CREAT | libc::IPC_EXCL | MODE) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        let attached = Self::attach(id, bytes);
        if attached.is_err() {
            let _ = remove(id);
        }
        attached
    }

    /// Attaches the segment of another process; it must have at least `bytes`.
    #[allow(unsafe_code)]
    pub fn attach(id: i32, bytes: usize) -> io::Result<Self> {
        let status = status(id)?;
        if status.shm_segsz < bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the segment is too short"));
        }
        // SAFETY: the system chooses an address that is not in use, and maps the whole segment
        // there. A segment never changes its length.
        let start = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        if start as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { id, start: start.cast(), bytes })
    }

    /// The number by which other processes use it.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Removes the segment as soon as nobody has it attached any more.
    pub fn remove_when_detached(&self) -> io::Result<()> {
        remove(self.id)
    }

    /// Where `bytes` bytes at `offset` are, if they are all inside.
    #[allow(unsafe_code)]
    fn place(&self, offset: usize, bytes: usize) -> io::Result<*mut u8> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "outside the segment"))?;
        // SAFETY: `offset` is inside the mapping, which is one allocation, or one past its end.
        Ok(unsafe { self.start.add(offset) })
    }

    /// Copies `bytes` to `offset`; an error if they do not fit there.
    #[allow(unsafe_code)]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let place = self.place(offset, bytes.len())?;
        // SAFETY: `place` has room for all of `bytes`, which is ordinary memory and so not part of
        // the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        Ok(())
    }

    /// Appends `len` bytes from `offset` to `bytes`; an error if there are not as many.
    #[allow(unsafe_code)]
    pub fn copy_out(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let place = self.place(offset, len)?;
        bytes.reserve(len);
        // SAFETY: `place` has `len` bytes, all initialised; the vector has room for them behind its
        // end, and its memory is not part of the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr().add(bytes.len()), len);
            bytes.set_len(bytes.len() + len);
        }
        Ok(())
    }

    /// Reads up to `len` bytes at `file_offset` of a file to `offset`; returns how many, 0 at the
    /// end of the file.
    #[allow(unsafe_code)]
    pub fn read_file(
        &self,
        offset: usize,
        len: usize,
        file: impl AsFd,
        file_offset: u64,
    ) -> io::Result<usize> {
        let place = self.place(offset, len)?;
        let file_offset =
            i64::try_from(file_offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: `place` has room for `len` bytes.
        let read = unsafe { libc::pread(file.as_fd().as_raw_fd(), place.cast(), len, file_offset) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// Writes up to `len` bytes from `offset` to `file_offset` of a file; returns how many.
    #[allow(unsafe_code)]
    pub fn write_file(
        &self,
        offset: usize,
        len: usize,
        file: impl AsFd,
        file_offset: u64,
    ) -> io::Result<usize> {
        let place = self.place(offset, len)?;
        let file_offset =
            i64::try_from(file_offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: `place` has `len` bytes, all initialised.
        let written =
            unsafe { libc::pwrite(file.as_fd().as_raw_fd(), place.cast(), len, file_offset) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for SharedMemory {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `start` was returned by `shmat`, and nothing refers to the mapping.
        unsafe { libc::shmdt(self.start.cast()) };
    }
}

/// The number of the segment with this key, if the user whom this process runs as has created it.
#[allow(unsafe_code)]
pub fn find_segment(key: IpcKey) -> Option<i32> {
    // SAFETY: no memory is passed.
    let id = unsafe { libc::shmget(key.raw(), 0, 0) };
    segment_info(id).ok().filter(|info| info.creator_user == effective_user()).map(|_| id)
}

/// The system's information about a segment; an error if it does not exist.
pub fn segment_info(id: i32) -> io::Result<SegmentInfo> {
    let status = status(id)?;
    Ok(SegmentInfo {
        creator_user: status.shm_perm.cuid,
        creator: status.shm_cpid,
        attached: status.shm_nattch,
    })
}

/// Removes a segment, at once or when it is detached.
#[allow(unsafe_code)]
pub fn remove(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID takes no memory.
    let outcome = unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[allow(unsafe_code)]
fn status(id: i32) -> io::Result<libc::shmid_ds> {
    let mut status = MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: IPC_STAT fills a `shmid_ds`; all of its fields are integers, for which zeros are
    // valid too.
    unsafe {
        if libc::shmctl(id, libc::IPC_STAT, status.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(status.assume_init())
    }
}
