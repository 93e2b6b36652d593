//! The process of a disk: a file system with one file, which is the disk.

use super::arm::{Arm, Deed};
use super::model::{DiskSpeed, Model};
use crate::keeper::{outlive_signals, say_ready};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The variable of the environment that makes a keeper's program a disk's. Its value:
/// [`Order::to_text`].
pub(crate) const ORDER: &str = "HUMBOLDT_LAB_DISK";

/// The file's name.
pub(super) const NAME: &str = "disk";
/// Its number.
const NUMBER: INodeNo = INodeNo(2);
/// Nothing changes: the kernel may keep what it knows.
const VALID_FOR: Duration = Duration::from_secs(3600);
/// Requests under way at once, as many as a loop device has.
const FUSE_REQUESTS_MAX: u16 = 128;
/// Bytes of one request, at most.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The disk that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) speed: DiskSpeed,
    pub(super) bytes: u64,
    /// Where its file system is mounted.
    pub(super) folder: PathBuf,
}

impl Order {
    pub(super) fn to_text(&self) -> String {
        format!("{} {} {}", self.speed.hundredths(), self.bytes, self.folder.display())
    }

    fn from_text(text: &str) -> Option<Self> {
        let (hundredths, rest) = text.split_once(' ')?;
        let (bytes, folder) = rest.split_once(' ')?;
        Some(Self {
            speed: DiskSpeed::of_hundredths(hundredths.parse().ok().filter(|&count| count > 0)?),
            bytes: bytes.parse().ok()?,
            folder: PathBuf::from(folder),
        })
    }
}

/// A disk's whole life: until its file system is unmounted. When standard input ends, it takes no
/// more time: what is left to be written is not waited for.
pub(crate) fn serve_main(order: &OsStr) -> ExitCode {
    let Some(order) = order.to_str().and_then(Order::from_text) else {
        return complain("an order that it does not understand");
    };
    // As a part of the machine's storage it must not wait for storage to be freed.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    if !outlive_signals() {
        return complain("the machine does not let it outlive signals");
    }
    match serve(&order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{}: {error}", order.folder.display())),
    }
}

fn complain(what: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "humboldt-lab disk: {what}");
    ExitCode::FAILURE
}

fn serve(order: &Order) -> io::Result<()> {
    let contents = File::from(memfd_create("humboldt-lab disk", MemfdFlags::CLOEXEC)?);
    contents.set_len(order.bytes)?;
    let arm = Arc::new(Arm::start(contents, Model::new(order.bytes, order.speed))?);
    let hurried = Arc::clone(&arm);
    let disk = OneFile { bytes: order.bytes, arm };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("humboldt-lab".to_owned())];
    let session = Session::new(disk, Path::new(&order.folder), &config)?.spawn()?;
    say_ready()?;
    std::thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        hurried.hurry();
    });
    session.join()
}

struct OneFile {
    bytes: u64,
    arm: Arc<Arm>,
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
        let refused = |_| io::Error::other("the kernel lets one request pass at a time");
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(refused)?;
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(FUSE_REQUESTS_MAX);
        let _ = config.set_congestion_threshold(FUSE_REQUESTS_MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood_and_others_refused() {
        let order = Order {
            speed: DiskSpeed::times(5.5).expect("a factor"),
            bytes: 1 << 28,
            folder: PathBuf::from("/tmp/a folder/disk0"),
        };
        assert_eq!(Order::from_text(&order.to_text()), Some(order));
        for text in ["", "550", "550 1", "0 1 /tmp", "x 1 /tmp", "550 x /tmp"] {
            assert_eq!(Order::from_text(text), None, "{text}");
        }
    }
}
