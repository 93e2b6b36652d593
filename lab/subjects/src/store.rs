//! One store: a folder, or a loop device with a file system.

use crate::disk::{self, DiskSpeed, SimulatedDisk};
use crate::environment::{DeviceSize, io, make_folder};
use crate::host::need_program;
use crate::keeper::{Keeper, Kept};
use crate::undo::Undo;
use crate::{Host, Skipped, SubjectError, provenance};
use humboldt_lab_record::StoreGround;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for mkfs, mount and losetup.
const COMMAND_WITHIN: Duration = Duration::from_secs(120);
/// Room on every device besides the store, in bytes: logs of the file system, and the cache's own
/// files.
const DEVICE_EXTRA_BYTES: u64 = 64 << 20;
/// The largest device, in bytes.
const DEVICE_BYTES_MAX: u64 = 1 << 46;
/// Packages of losetup, mount and umount.
const MOUNT_PACKAGE: &str = "mount";

/// A file system that the laboratory can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileSystem {
    name: &'static str,
    package: &'static str,
    /// Arguments of mkfs. ext: many small files need more inodes than the default gives, the
    /// subject is not root and could not use reserved blocks, and nothing may be initialised behind
    /// the run's back.
    arguments: &'static [&'static str],
    /// Least size for mkfs, in bytes.
    bytes_min: u64,
}

/// Arguments for the file systems that are ext2 with a journal.
const EXT_WITH_A_JOURNAL: &[&str] = &[
    "-q",
    "-F",
    "-m",
    "0",
    "-i",
    "8192",
    "-b",
    "4096",
    "-E",
    "lazy_itable_init=0,lazy_journal_init=0",
];

const FILE_SYSTEMS: [FileSystem; 5] = [
    FileSystem {
        name: "ext2",
        package: "e2fsprogs",
        arguments: &["-q", "-F", "-m", "0", "-i", "8192", "-b", "4096", "-E", "lazy_itable_init=0"],
        bytes_min: 16 << 20,
    },
    FileSystem {
        name: "ext3",
        package: "e2fsprogs",
        arguments: EXT_WITH_A_JOURNAL,
        bytes_min: 16 << 20,
    },
    FileSystem {
        name: "ext4",
        package: "e2fsprogs",
        arguments: EXT_WITH_A_JOURNAL,
        bytes_min: 16 << 20,
    },
    FileSystem { name: "xfs", package: "xfsprogs", arguments: &["-q", "-f"], bytes_min: 320 << 20 },
    FileSystem {
        name: "btrfs",
        package: "btrfs-progs",
        arguments: &["-q", "-f"],
        bytes_min: 256 << 20,
    },
];

impl FileSystem {
    fn named(name: &str) -> Result<Self, SubjectError> {
        FILE_SYSTEMS.into_iter().find(|known| known.name == name).ok_or_else(|| {
            let known: Vec<&str> = FILE_SYSTEMS.iter().map(|known| known.name).collect();
            SubjectError::Environment(format!(
                "there is no file system `{name}`; there are: {}",
                known.join(", ")
            ))
        })
    }

    /// Half as much again as the store, because small files waste parts of blocks; and whole MiB.
    fn device_bytes(self, size: DeviceSize) -> Result<u64, SubjectError> {
        let bytes = match size {
            DeviceSize::Exactly(bytes) => bytes,
            DeviceSize::For(store) => {
                (store.saturating_add(store / 2).saturating_add(DEVICE_EXTRA_BYTES))
                    .max(self.bytes_min)
            }
        };
        if bytes < self.bytes_min || bytes > DEVICE_BYTES_MAX {
            return Err(SubjectError::Environment(format!(
                "a device of {} MB for {}: it must have {} to {} MB",
                bytes >> 20,
                self.name,
                self.bytes_min >> 20,
                DEVICE_BYTES_MAX >> 20
            )));
        }
        Ok(bytes.next_multiple_of(1 << 20))
    }
}

/// The file system of this name, if stores on it can be made here.
fn possible(host: &Host, name: &str) -> Result<FileSystem, SubjectError> {
    let file_system = FileSystem::named(name)?;
    if !host.is_root {
        return Err(SubjectError::Environment(format!(
            "stores on {} need root (loop devices and mounts): run as root, or leave the stores in a folder",
            file_system.name
        )));
    }
    need_program(&format!("mkfs.{}", file_system.name), file_system.package)?;
    Ok(file_system)
}

/// Checks whether stores on the file system of this name can be made here, before anything is
/// begun.
///
/// # Errors
/// If it is not known, needs more rights, or its program is not installed.
pub fn check_file_system(host: &Host, name: &str) -> Result<(), SubjectError> {
    possible(host, name).map(drop)
}

/// Checks whether so many stores of a cache of this size can be on simulated disks here, before
/// anything is begun. `size_bytes` is the size of each device, if it is given.
///
/// # Errors
/// If the kernel or this user cannot have them, or their contents have no room in memory.
pub fn check_disks(
    host: &Host,
    file_system: &str,
    (stores, cache_bytes): (u32, u64),
    size_bytes: Option<u64>,
) -> Result<(), SubjectError> {
    let store = DeviceSize::For(cache_bytes / u64::from(stores.max(1)));
    let size = size_bytes.map_or(store, DeviceSize::Exactly);
    let bytes = FileSystem::named(file_system)?.device_bytes(size)?;
    disk::check(host, bytes.saturating_mul(u64::from(stores)))
}

/// A folder for a cache's objects.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    device: Option<Device>,
}

#[derive(Debug)]
struct Device {
    file_system: FileSystem,
    path: PathBuf,
    bytes: u64,
    mount_point: PathBuf,
    mount_options: Vec<String>,
    is_direct: bool,
    mounted: Option<Kept>,
    attached: Option<Kept>,
    /// Below the loop device.
    disk: Option<SimulatedDisk>,
}

impl Store {
    pub(crate) fn in_folder(place: &Path, index: u32) -> Result<Self, SubjectError> {
        let folder = place.join(format!("store{index}"));
        make_folder(&folder)?;
        Ok(Self { folder, device: None })
    }

    /// Makes an image, attaches it, makes the file system, mounts it. Also returns the options that
    /// were not possible.
    pub(crate) fn on_device(
        host: &Host,
        keeper: &Keeper,
        place: &Path,
        index: u32,
        (file_system, size, mount_options, speed): (&str, DeviceSize, &[String], Option<DiskSpeed>),
    ) -> Result<(Self, Option<Skipped>), SubjectError> {
        let file_system = possible(host, file_system)?;
        let bytes = file_system.device_bytes(size)?;
        let (image, disk) = match speed {
            Some(speed) => {
                let folder = place.join(format!("disk{index}"));
                make_folder(&folder)?;
                let disk = SimulatedDisk::mount(host, keeper, &folder, bytes, speed)?;
                (disk.image().to_path_buf(), Some(disk))
            }
            None => (image_file(place, index, bytes)?, None),
        };
        let attached = keeper.keep(host, Undo::Detach(image.clone()))?;
        let (path, is_direct) = attach(keeper, &image)?;
        if disk.is_some() && !is_direct {
            // One request at a time would reach it: no arm has a choice then.
            return Err(SubjectError::Environment(
                "the loop devices of this kernel cannot pass requests on to a simulated disk at \
                 once: leave out --disk-speed"
                    .to_owned(),
            ));
        }
        let mount_point = place.join(format!("mount{index}"));
        make_folder(&mount_point)?;
        let mounted = keeper.keep(host, Undo::Unmount(mount_point.clone()))?;
        let device = Device {
            file_system,
            path,
            bytes,
            mount_point: mount_point.clone(),
            mount_options: mount_options.to_vec(),
            is_direct,
            mounted: Some(mounted),
            attached: Some(attached),
            disk,
        };
        device.fill(keeper)?;
        let folder = mount_point.join("store");
        make_folder(&folder)?;
        let skipped = (!is_direct).then(|| {
            Skipped::new(
                "direct I/O below the loop devices",
                "the folder's file system does not allow it: pages are cached twice",
            )
        });
        Ok((Self { folder, device: Some(device) }, skipped))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// `loop3`, if it has a device of its own.
    pub(crate) fn device_name(&self) -> Option<String> {
        Some(self.device.as_ref()?.path.file_name()?.to_str()?.to_owned())
    }

    /// `7:3`.
    pub(crate) fn device_number(&self, host: &Host) -> Option<String> {
        let file = host.sys.join("block").join(self.device_name()?).join("dev");
        fs::read_to_string(file).ok().map(|number| number.trim().to_owned())
    }

    /// Waits until everything that was written to a device of its own is there.
    pub(crate) fn settle(&self) -> Result<(), SubjectError> {
        let Some(device) = &self.device else { return Ok(()) };
        let flush =
            || File::open(&device.mount_point).and_then(|root| Ok(rustix::fs::syncfs(&root)?));
        flush().map_err(io("write back", &device.mount_point))
    }

    /// A line for the manifest.
    pub(crate) fn describe(&self, host: &Host) -> String {
        let file_system = file_system_of(host, &self.folder);
        match &self.device {
            None => file_system,
            Some(device) => format!(
                "{file_system}; loop device of {} MB, {}",
                device.bytes >> 20,
                match (&device.disk, device.is_direct) {
                    (Some(disk), _) => format!("simulated {}", disk.speed()),
                    (None, true) => "direct I/O to its image".to_owned(),
                    (None, false) => "its image is cached too".to_owned(),
                }
            ),
        }
    }

    /// Its ground, for the run's provenance.
    pub(crate) fn ground(&self, host: &Host) -> StoreGround {
        let image = self.device.as_ref().and_then(|device| match &device.disk {
            Some(disk) => Some(StoreGround {
                file_system: "simulated".to_owned(),
                device: disk.speed().to_string(),
                rotates: Some(true),
                device_bytes: Some(device.bytes),
                ..StoreGround::default()
            }),
            None => device.mount_point.parent().map(|folder| provenance::ground(host, folder)),
        });
        StoreGround { image: image.map(Box::new), ..provenance::ground(host, &self.folder) }
    }

    pub(crate) fn remove(mut self) -> Result<(), SubjectError> {
        let Some(device) = &mut self.device else { return Ok(()) };
        if let Some(disk) = &mut device.disk {
            disk.hurry();
        }
        let unmounted = device.mounted.take().map_or(Ok(()), Kept::undo);
        let detached = unmounted.and(device.attached.take().map_or(Ok(()), Kept::undo));
        detached.and(device.disk.take().map_or(Ok(()), SimulatedDisk::remove))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Before the file system is unmounted, which writes what is left.
        if let Some(disk) = &mut self.disk {
            disk.hurry();
        }
    }
}

impl Device {
    /// Makes the file system and mounts it.
    fn fill(&self, keeper: &Keeper) -> Result<(), SubjectError> {
        let name = self.file_system.name;
        let mkfs = need_program(&format!("mkfs.{name}"), self.file_system.package)?;
        let arguments =
            self.file_system.arguments.iter().map(AsRef::as_ref).chain([self.path.as_os_str()]);
        keeper.run(&mkfs, arguments, COMMAND_WITHIN)?;
        let mount = need_program("mount", MOUNT_PACKAGE)?;
        let options = self.mount_options.join(",");
        let mut arguments = vec!["-t".as_ref(), name.as_ref()];
        if !options.is_empty() {
            arguments.extend(["-o".as_ref(), std::ffi::OsStr::new(&options)]);
        }
        arguments.extend([self.path.as_os_str(), self.mount_point.as_os_str()]);
        keeper.run(&mount, arguments, COMMAND_WITHIN)?;
        fs::set_permissions(&self.mount_point, fs::Permissions::from_mode(0o755))
            .map_err(io("open to all users", &self.mount_point))
    }
}

/// A file for a loop device.
fn image_file(place: &Path, index: u32, bytes: u64) -> Result<PathBuf, SubjectError> {
    let image = place.join(format!("image{index}"));
    // Sparse: it takes only as much room as is written.
    File::create_new(&image)
        .and_then(|file| file.set_len(bytes))
        .map_err(io("make the image", &image))?;
    Ok(image)
}

/// The loop device, and whether it goes past the page cache of the image's own file system.
fn attach(keeper: &Keeper, image: &Path) -> Result<(PathBuf, bool), SubjectError> {
    let losetup = need_program("losetup", MOUNT_PACKAGE)?;
    let arguments = |direct: &'static str| {
        ["--find".as_ref(), "--show".as_ref(), direct.as_ref(), image.as_os_str()]
            .map(std::ffi::OsStr::to_owned)
    };
    let (output, is_direct) =
        match keeper.run(&losetup, arguments("--direct-io=on"), COMMAND_WITHIN) {
            Ok(output) => (output, true),
            Err(_) => (keeper.run(&losetup, arguments("--direct-io=off"), COMMAND_WITHIN)?, false),
        };
    let path = PathBuf::from(output.trim());
    if path.parent() == Some(Path::new("/dev")) {
        Ok((path, is_direct))
    } else {
        Err(SubjectError::Environment(format!("losetup names `{}` as loop device", output.trim())))
    }
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its type.
    pub(crate) name: String,
    pub(crate) source: String,
    /// Options of the mount.
    pub(crate) options: String,
    /// Options of the file system.
    pub(crate) more: String,
    /// `8:1`.
    pub(crate) device_number: String,
}

/// The file system that a folder is on; `None` if the machine does not say.
pub(crate) fn mount_of(host: &Host, folder: &Path) -> Option<Mount> {
    let mounts = fs::read_to_string(host.proc.join("self/mountinfo")).unwrap_or_default();
    let of_line = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let place: Vec<&str> = place.split(' ').collect();
        let (number, point, options) = (place.get(2)?, place.get(4)?, place.get(5)?);
        let mut kind = kind.split(' ').map(ToOwned::to_owned);
        let mount = Mount {
            name: kind.next()?,
            source: kind.next()?,
            options: (*options).to_owned(),
            more: kind.next()?,
            device_number: (*number).to_owned(),
        };
        folder.starts_with(point).then_some((point.len(), mount))
    };
    // Of two mounts at the same place the later one is seen.
    let best = mounts.lines().filter_map(of_line).max_by_key(|(length, _)| *length);
    best.map(|(_, mount)| mount)
}

/// Type, options and source of the file system that a folder is on.
pub(crate) fn file_system_of(host: &Host, folder: &Path) -> String {
    mount_of(host, folder).map_or_else(
        || "unknown".to_owned(),
        |Mount { name, source, options, more, .. }| {
            format!("{name} on {source} ({options}; {more})")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_large_enough_and_not_absurd() {
        let xfs = FileSystem::named("xfs").expect("it is known");
        let ext4 = FileSystem::named("ext4").expect("it is known");
        assert_eq!(xfs.device_bytes(DeviceSize::For(1 << 20)).ok(), Some(320 << 20));
        assert_eq!(ext4.device_bytes(DeviceSize::For(100 << 20)).ok(), Some(214 << 20));
        assert_eq!(ext4.device_bytes(DeviceSize::Exactly((16 << 20) + 1)).ok(), Some(17 << 20));
        let error =
            xfs.device_bytes(DeviceSize::Exactly(100 << 20)).expect_err("too small").to_string();
        assert!(error.contains("320 to"), "{error}");
        assert!(ext4.device_bytes(DeviceSize::For(u64::MAX)).is_err());
        assert!(
            FileSystem::named("reiserfs").expect_err("unknown").to_string().contains("ext2, ext3")
        );
    }

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("self")).expect("a folder");
        let mounts = "\
1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw,discard
2 1 7:0 / /a/b rw,noatime shared:3 - xfs /dev/loop0 rw,attr2
3 1 7:1 / /a/b rw - btrfs /dev/loop1 rw
";
        fs::write(folder.path().join("self/mountinfo"), mounts).expect("a table of mounts");
        let host = Host { proc: folder.path().to_path_buf(), ..Host::current() };
        let of = |path: &str| file_system_of(&host, Path::new(path));
        assert_eq!(of("/a/b/c"), "btrfs on /dev/loop1 (rw; rw)");
        assert_eq!(of("/a/bc"), "ext4 on /dev/sda1 (rw,relatime; rw,discard)");
    }
}
