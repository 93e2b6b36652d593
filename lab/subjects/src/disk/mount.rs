//! The file system with one file, which is the disk.

use super::arm::{Arm, Deed};
use super::model::{DiskSpeed, Model};
use crate::environment::io as io_error;
use crate::keeper::{Keeper, Kept};
use crate::undo::Undo;
use crate::{Host, SubjectError};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The file's name.
const NAME: &str = "disk";
/// Its number.
const NUMBER: INodeNo = INodeNo(2);
/// Nothing changes: the kernel may keep what it knows.
const VALID_FOR: Duration = Duration::from_secs(3600);
/// Requests under way at once, as many as a loop device has.
const UNDER_WAY_MAX: u16 = 128;
/// All disks of an environment may take the machine's memory divided by this: their contents are
/// there.
const MEMORY_PART: u64 = 2;

/// Checks whether so many bytes of disks have room in the machine's memory.
pub(crate) fn check_memory(host: &Host, bytes: u64) -> Result<(), SubjectError> {
    let file = host.proc.join("meminfo");
    let text = fs::read_to_string(&file).map_err(io_error("read", &file))?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let room = kib.unwrap_or(0) * 1024 / MEMORY_PART;
    if bytes <= room {
        return Ok(());
    }
    Err(SubjectError::Environment(format!(
        "simulated disks have their contents in memory: {} MB are more than half of the machine's, \
         which is {} MB",
        bytes >> 20,
        room >> 20
    )))
}

/// A disk that is mounted. Dropping it, or [`SimulatedDisk::remove`], takes it back; the loop device
/// on it must be gone by then.
pub(crate) struct SimulatedDisk {
    image: PathBuf,
    speed: DiskSpeed,
    session: Option<BackgroundSession>,
    mounted: Option<Kept>,
}

impl std::fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.speed, self.image.display())
    }
}

impl SimulatedDisk {
    /// Mounts a file system at this folder, which must be there, with an empty disk of so many
    /// bytes.
    pub(crate) fn mount(
        host: &Host,
        keeper: &Keeper,
        folder: &Path,
        bytes: u64,
        speed: DiskSpeed,
    ) -> Result<Self, SubjectError> {
        let failed = |error: io::Error| {
            SubjectError::Environment(format!(
                "a simulated disk cannot be mounted at {}: {error} (it needs root and /dev/fuse)",
                folder.display()
            ))
        };
        let contents = memfd_create("humboldt-lab disk", MemfdFlags::CLOEXEC);
        let contents = File::from(contents.map_err(|error| failed(error.into()))?);
        contents.set_len(bytes).map_err(failed)?;
        let arm = Arm::start(contents, Model::new(bytes, speed)).map_err(failed)?;
        let mounted = keeper.keep(host, Undo::Unmount(folder.to_path_buf()))?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("humboldt-lab".to_owned())];
        let session = Session::new(OneFile { bytes, arm }, folder, &config)
            .and_then(Session::spawn)
            .map_err(failed)?;
        Ok(Self { image: folder.join(NAME), speed, session: Some(session), mounted: Some(mounted) })
    }

    /// The file that is the disk.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn speed(&self) -> DiskSpeed {
        self.speed
    }

    pub(crate) fn remove(mut self) -> Result<(), SubjectError> {
        let ended = self.session.take().map_or(Ok(()), BackgroundSession::umount_and_join);
        let ended = ended.map_err(|error| {
            SubjectError::Environment(format!(
                "the simulated disk {} cannot be unmounted: {error}",
                self.image.display()
            ))
        });
        ended.and(self.mounted.take().map_or(Ok(()), Kept::undo))
    }
}

struct OneFile {
    bytes: u64,
    arm: Arm,
}

impl OneFile {
    fn attributes(&self, number: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match number {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            NUMBER => (FileType::RegularFile, 0o600, self.bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino: number,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// The kernel's word for an error of ours.
fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::EAGAIN,
        _ => Errno::EIO,
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without it serves one request after the other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(UNDER_WAY_MAX);
        let _ = config.set_congestion_threshold(UNDER_WAY_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(NUMBER) {
            Some(attributes) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&VALID_FOR, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&VALID_FOR, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Past the page cache: a disk has none.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.bytes.saturating_sub(offset).min(u64::from(size));
        let done = |result: io::Result<Vec<u8>>| match result {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        };
        self.arm.ask(offset, Deed::Read(left as u32, Box::new(done)));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = data.len() as u32;
        if offset.saturating_add(u64::from(length)) > self.bytes {
            return reply.error(Errno::ENOSPC);
        }
        let done = move |result: io::Result<()>| match result {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(errno(&error)),
        };
        self.arm.ask(offset, Deed::Write(data.to_vec(), Box::new(done)));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // No request is answered before it is on the platters.
        reply.ok();
    }
}
