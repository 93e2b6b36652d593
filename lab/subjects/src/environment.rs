//! The folder and the stores that a subject gets.

use crate::control_group::Groups;
use crate::dirty::{self, DirtyLimit, NoLimit};
use crate::disk::DiskSpeed;
use crate::file::STORES_MAX;
use crate::host::User;
use crate::keeper::{Keeper, Kept};
use crate::start::joining;
use crate::store::{Store, check_disks, file_system_of};
use crate::undo::{OWN_PREFIX, Undo};
use crate::{Host, Skipped, SubjectError};
use humboldt_lab_record::StoreGround;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The devices or folders of the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Folders beside the run folder, or in this one.
    Folder(Option<PathBuf>),
    /// Each on a loop device of its own, whose image is beside the run folder. Needs root.
    Device {
        /// `ext2`, `ext3`, `ext4`, `xfs` or `btrfs`.
        file_system: String,
        /// Size of each device in bytes; `None`: one and a half times the cache.
        size_bytes: Option<u64>,
        /// Mount options, such as `noatime`.
        mount_options: Vec<String>,
        /// Simulated disks below them, whose contents are in memory; `None`: files in the folder
        /// beside the run folder, as fast as the machine's own disk.
        disk: Option<DiskSpeed>,
    },
}

/// Limits for each store's device. 0 = no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Reads per second.
    pub read_iops: u64,
    /// Writes per second.
    pub write_iops: u64,
    /// Bytes read per second.
    pub read_bytes_per_s: u64,
    /// Bytes written per second.
    pub write_bytes_per_s: u64,
}

/// The environment of a run.
#[derive(Clone, Debug)]
pub struct EnvironmentPlan {
    /// The files in which the machine shows its state.
    pub host: Host,
    /// The parent of the run folder, which is a new one. `None`: the folder for temporary files.
    pub parent: Option<PathBuf>,
    /// Whether the run folder stays at the end (configuration and logs; never stores).
    pub keep_folder: bool,
    /// Number of stores, 1 to 64.
    pub stores: u32,
    /// Size of all stores together in bytes, as the cache counts it.
    pub cache_bytes: u64,
    /// Their kind.
    pub store_kind: StoreKind,
    /// The limits of the devices.
    pub throttle: Option<Throttle>,
    /// At how many bytes that are written and not on a device yet the system makes writers wait;
    /// `None`: as it does anyway, which is gigabytes on a machine with much memory. It holds for
    /// the whole machine. Needs root.
    pub dirty_bytes_max: Option<u64>,
}

/// A prepared run folder with its stores. [`Environment::remove`] undoes everything, as does
/// dropping it.
#[derive(Debug)]
pub struct Environment {
    pub(crate) host: Host,
    pub(crate) groups: Groups,
    folder: PathBuf,
    stores: Vec<Store>,
    skipped: Vec<Skipped>,
    throttle: Option<Throttle>,
    dirty_limit: Option<DirtyLimit>,
    /// The folders, removed after everything in them.
    kept: Vec<Kept>,
}

impl Environment {
    /// Makes the run folder, the devices, the file systems.
    ///
    /// # Errors
    /// If the run makes no sense without an impossible part: names the missing right or package.
    pub fn prepare(plan: &EnvironmentPlan, keeper: &Keeper) -> Result<Self, SubjectError> {
        if plan.stores == 0 || plan.stores > STORES_MAX {
            return Err(SubjectError::Environment(format!(
                "{} stores: there must be 1 to {STORES_MAX}",
                plan.stores
            )));
        }
        let parent = match &plan.parent {
            Some(parent) => fs::canonicalize(parent).map_err(io("find the folder", parent))?,
            None => std::env::temp_dir(),
        };
        let base = parent.join(unique_name());
        let mut kept = Vec::new();
        if !plan.keep_folder {
            kept.push(keeper.keep(&plan.host, Undo::RemoveFolder(base.clone()))?);
        }
        let folder = base.join("run");
        make_folder(&base)?;
        make_folder(&folder)?;
        let mut environment = Self {
            host: plan.host.clone(),
            groups: Groups::default(),
            folder,
            stores: Vec::new(),
            skipped: Vec::new(),
            throttle: None,
            dirty_limit: None,
            kept,
        };
        environment.make_stores(plan, &base, keeper)?;
        environment.throttle_devices(plan, keeper);
        environment.limit_dirty(plan, keeper)?;
        Ok(environment)
    }

    fn make_stores(
        &mut self,
        plan: &EnvironmentPlan,
        base: &Path,
        keeper: &Keeper,
    ) -> Result<(), SubjectError> {
        let place = match &plan.store_kind {
            StoreKind::Folder(Some(given)) => {
                let given = fs::canonicalize(given).map_err(io("find the folder", given))?;
                given.join(unique_name())
            }
            _ => base.join(format!("{OWN_PREFIX}stores")),
        };
        self.kept.push(keeper.keep(&plan.host, Undo::RemoveFolder(place.clone()))?);
        make_folder(&place)?;
        let store_bytes = plan.cache_bytes / u64::from(plan.stores);
        match &plan.store_kind {
            StoreKind::Device { file_system, size_bytes, disk: Some(_), .. } => {
                let stores = (plan.stores, plan.cache_bytes);
                check_disks(&self.host, file_system, stores, *size_bytes)?;
            }
            _ => check_room(&place, plan.cache_bytes)?,
        }
        for index in 0..plan.stores {
            let store = match &plan.store_kind {
                StoreKind::Folder(_) => Store::in_folder(&place, index)?,
                StoreKind::Device { file_system, size_bytes, mount_options, disk } => {
                    let size = size_bytes.map_or(DeviceSize::For(store_bytes), DeviceSize::Exactly);
                    let (store, skipped) = Store::on_device(
                        &self.host,
                        keeper,
                        &place,
                        index,
                        (file_system, size, mount_options, *disk),
                    )?;
                    self.skip_once(skipped);
                    store
                }
            };
            self.stores.push(store);
        }
        Ok(())
    }

    fn throttle_devices(&mut self, plan: &EnvironmentPlan, keeper: &Keeper) {
        let Some(throttle) = plan.throttle.filter(|throttle| *throttle != Throttle::default())
        else {
            return;
        };
        let devices: Vec<String> =
            self.stores.iter().filter_map(|store| store.device_number(&self.host)).collect();
        if devices.is_empty() {
            let reason = "the stores are folders: give them devices of their own (a file system such as ext4)";
            self.skipped.push(Skipped::new(format!("throttled devices ({throttle})"), reason));
            return;
        }
        match self.groups.limit_devices(&self.host, keeper, &devices, &throttle) {
            Ok(()) => self.throttle = Some(throttle),
            Err(skipped) => self.skipped.push(skipped),
        }
    }

    fn limit_dirty(&mut self, plan: &EnvironmentPlan, keeper: &Keeper) -> Result<(), SubjectError> {
        let Some(bytes) = plan.dirty_bytes_max else { return Ok(()) };
        match dirty::limit(&self.host, keeper, bytes) {
            Ok(limit) => self.dirty_limit = Some(limit),
            Err(NoLimit::Impossible(reason)) => {
                self.skip_once(Some(Skipped::new("limit of data not yet written back", reason)))
            }
            Err(NoLimit::Taken) => {
                return Err(dirty::taken());
            }
        }
        Ok(())
    }

    /// Waits until everything that preparing has written is on the stores' own devices: a run that
    /// begins before measures the making of its folders, which takes slow devices a while.
    pub(crate) fn settle(&self) -> Result<(), SubjectError> {
        self.stores.iter().try_for_each(Store::settle)
    }

    fn skip_once(&mut self, skipped: Option<Skipped>) {
        self.skipped.extend(skipped.filter(|new| !self.skipped.contains(new)));
    }

    /// The run folder: configuration and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folders of the stores.
    #[must_use]
    pub fn stores(&self) -> Vec<PathBuf> {
        self.stores.iter().map(|store| store.folder().to_path_buf()).collect()
    }

    /// Names of the stores' own block devices, such as `loop3`.
    pub(crate) fn devices(&self) -> Vec<String> {
        self.stores.iter().filter_map(Store::device_name).collect()
    }

    /// Facts for the manifest: file system, options, devices, limits.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut facts =
            vec![("Run folder on".to_owned(), file_system_of(&self.host, &self.folder))];
        for (index, store) in self.stores.iter().enumerate() {
            facts.push((format!("Store {index}"), store.describe(&self.host)));
        }
        if let Some(throttle) = self.throttle {
            facts.push(("Each store's device limited to".to_owned(), throttle.to_string()));
        }
        if let Some(DirtyLimit { bytes, .. }) = &self.dirty_limit {
            facts.push((
                "Writers wait from".to_owned(),
                format!("{} MB not written back yet", bytes >> 20),
            ));
        }
        facts
    }

    /// The grounds of its stores; equal ones once.
    pub(crate) fn grounds(&self) -> Vec<StoreGround> {
        let mut grounds: Vec<StoreGround> = Vec::new();
        for ground in self.stores.iter().map(|store| store.ground(&self.host)) {
            if !grounds.contains(&ground) {
                grounds.push(ground);
            }
        }
        grounds
    }

    /// Options that were not obeyed.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Makes the kernel forget cached pages. Without root this is skipped with a reason.
    pub fn drop_page_caches(&mut self) {
        const WHAT: &str = "dropping of page caches";
        if !self.host.is_root {
            self.skip_once(Some(Skipped::new(WHAT, "needs root")));
            return;
        }
        // Dirty pages cannot be dropped.
        rustix::fs::sync();
        if let Err(error) = fs::write(self.host.proc.join("sys/vm/drop_caches"), "3") {
            self.skip_once(Some(Skipped::new(WHAT, error.to_string())));
        }
    }

    /// The same command under the limits of the stores' devices: for what is measured beside a
    /// subject, on the same devices.
    #[must_use]
    pub fn limited(&self, command: &Command) -> Command {
        joining(command, &self.groups.to_join().map(Path::to_path_buf).collect::<Vec<_>>())
    }

    /// Undoes everything in reverse order.
    ///
    /// # Errors
    /// The first thing that could not be undone; the keeper tries again at the end.
    pub fn remove(mut self) -> Result<(), SubjectError> {
        let mut result = self.groups.undo();
        if let Some(limit) = self.dirty_limit.take() {
            result = result.and(limit.undo());
        }
        while let Some(store) = self.stores.pop() {
            result = result.and(store.remove());
        }
        while let Some(kept) = self.kept.pop() {
            result = result.and(kept.undo());
        }
        result
    }

    /// Gives run folder and stores to the user whom the subject becomes, and checks that it can get
    /// there.
    pub(crate) fn give_to(&self, user: &User) -> Result<(), SubjectError> {
        let stores = self.stores();
        for folder in stores.iter().chain([&self.folder]) {
            check_reachable(folder, user)?;
            if self.host.is_root {
                give(folder, user)?;
            }
        }
        Ok(())
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // In this order; fields would be dropped in that of their declaration.
        drop(std::mem::take(&mut self.groups));
        self.dirty_limit = None;
        while let Some(store) = self.stores.pop() {
            drop(store);
        }
        while let Some(kept) = self.kept.pop() {
            drop(kept);
        }
    }
}

/// The size of a device, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceSize {
    /// This large.
    Exactly(u64),
    /// Large enough for a store of this size.
    For(u64),
}

/// An error with a file, for `map_err`.
pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SubjectError {
    move |source| SubjectError::Io { what, path: path.to_path_buf(), source }
}

/// A name that no other folder has, neither of this laboratory nor of another.
fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{OWN_PREFIX}{:x}-{}-{number}", now.as_secs(), std::process::id())
}

/// Makes a folder that every user can enter.
pub(crate) fn make_folder(path: &Path) -> Result<(), SubjectError> {
    fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))
        .map_err(io("make the folder", path))
}

/// Refuses a plan that must end with a full disk in the middle of the run.
fn check_room(folder: &Path, needed_bytes: u64) -> Result<(), SubjectError> {
    let room = rustix::fs::statvfs(folder)
        .map_err(|error| io("ask for the room in", folder)(error.into()))?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    if free_bytes < needed_bytes {
        return Err(SubjectError::Environment(format!(
            "the stores need {} MB and {} has {} MB free: make the cache smaller or choose another folder",
            needed_bytes >> 20,
            folder.display(),
            free_bytes >> 20
        )));
    }
    Ok(())
}

/// Every folder on the way must let the user through; otherwise the subject fails with a message
/// about its own files.
fn check_reachable(path: &Path, user: &User) -> Result<(), SubjectError> {
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        let metadata = fs::metadata(folder).map_err(io("look at", folder))?;
        if !may_enter(metadata.mode(), metadata.uid(), metadata.gid(), user) {
            return Err(SubjectError::Environment(format!(
                "user `{}`, whom the subject becomes, cannot enter {}: choose another folder for the run",
                user.name,
                folder.display()
            )));
        }
    }
    Ok(())
}

fn may_enter(mode: u32, owner: u32, group: u32, user: &User) -> bool {
    let bit = if user.uid == owner {
        0o100
    } else if user.gid == group {
        0o010
    } else {
        0o001
    };
    user.uid == 0 || mode & bit != 0
}

fn give(path: &Path, user: &User) -> Result<(), SubjectError> {
    std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid))
        .map_err(io("give away", path))?;
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        for entry in fs::read_dir(path).map_err(io("read the folder", path))?.flatten() {
            give(&entry.path(), user)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_enter_what() {
        let user = |uid| User { name: "someone".to_owned(), uid, gid: 50 };
        for (mode, owner, group, uid, expected) in [
            (0o755, 0, 0, 13, true),
            (0o700, 0, 0, 13, false),
            (0o700, 13, 0, 13, true),
            (0o710, 0, 50, 13, true),
            (0o701, 0, 50, 13, false),
            (0o000, 0, 0, 0, true),
        ] {
            assert_eq!(
                may_enter(mode, owner, group, &user(uid)),
                expected,
                "{mode:o} {owner} {group} {uid}"
            );
        }
    }

    #[test]
    fn a_full_disk_is_noticed_before_it_is_full() {
        assert!(check_room(Path::new("/"), 0).is_ok());
        let error =
            check_room(Path::new("/"), u64::MAX).expect_err("no disk is so large").to_string();
        assert!(error.contains("MB free"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        assert_ne!(unique_name(), unique_name());
        assert!(unique_name().starts_with(OWN_PREFIX));
    }
}
