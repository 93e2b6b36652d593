//! The laboratory's end of a disk: its process, and its mounted file.

use super::model::DiskSpeed;
use super::server::{NAME, ORDER, Order};
use crate::keeper::{Keeper, Kept, says_ready};
use crate::undo::Undo;
use crate::{Host, SubjectError};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

/// All disks may take the machine's memory divided by this: their contents are there.
const MEMORY_PART: u64 = 2;
/// How long the process of a disk may go on when its file system is unmounted.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The kernel's end of a file system like ours.
const FUSE: &str = "/dev/fuse";

/// Checks whether disks of so many bytes can be simulated here.
pub(crate) fn check(host: &Host, bytes: u64) -> Result<(), SubjectError> {
    if !host.is_root || !Path::new(FUSE).exists() {
        return Err(SubjectError::Environment(format!(
            "simulated disks need root, and a kernel with FUSE ({FUSE}): leave out --disk-speed"
        )));
    }
    let text = fs::read_to_string(host.proc.join("meminfo")).unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    // A machine that does not say how much it has may have enough.
    let room = kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024) / MEMORY_PART);
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

/// A disk that is mounted. Dropping it, or [`SimulatedDisk::remove`], takes it back; the loop
/// device on it must be gone by then.
#[derive(Debug)]
pub(crate) struct SimulatedDisk {
    image: PathBuf,
    speed: DiskSpeed,
    mounted: Option<Kept>,
    /// When it ends, the disk takes no more time.
    line: Option<ChildStdin>,
    process: Child,
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
        let mounted = keeper.keep(host, Undo::Unmount(folder.to_path_buf()))?;
        let order = Order { speed, bytes, folder: folder.to_path_buf() };
        let mut command = keeper.sibling();
        command.env(ORDER, order.to_text()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |reason: String| {
            SubjectError::Environment(format!(
                "a simulated disk cannot be mounted at {}: {reason}",
                folder.display()
            ))
        };
        let mut process = command.spawn().map_err(|error| failed(error.to_string()))?;
        let line = process.stdin.take();
        let is_ready = process.stdout.take().is_some_and(says_ready);
        let image = folder.join(NAME);
        let disk = Self { image, speed, mounted: Some(mounted), line, process };
        if is_ready { Ok(disk) } else { Err(failed("its process is not ready".to_owned())) }
    }

    /// The file that is the disk.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn speed(&self) -> DiskSpeed {
        self.speed
    }

    /// From now on it takes no time: what is left to be written is not waited for.
    pub(crate) fn hurry(&mut self) {
        self.line = None;
    }

    pub(crate) fn remove(mut self) -> Result<(), SubjectError> {
        self.hurry();
        self.mounted.take().map_or(Ok(()), Kept::undo)
    }
}

impl Drop for SimulatedDisk {
    fn drop(&mut self) {
        self.hurry();
        drop(self.mounted.take());
        let limit = Instant::now() + ENDS_WITHIN;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() >= limit {
                // Then the kernel ends what still waits for it.
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}
