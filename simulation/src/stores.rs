//! The cache directories, on a simulated disk.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_conf::Config;
use humboldt_schemes::SchemeKind;
use humboldt_schemes::simulated::{Disk, Faults};
use humboldt_store::dirs::DirConfig;
use humboldt_stores::Stores;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::trace;
use crate::world::World;

/// How often it is looked whether the power has failed.
const LOOK: Duration = Duration::from_secs(1);

/// How often the program looks whether a directory has lost its last readers.
const WATCH: Duration = Duration::from_secs(1);

/// Most tries to open directories while the power fails again and again.
const TRIES_MAX: usize = 20;

/// A directory of a plan.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirPlan {
    pub(crate) scheme: &'static str,
    pub(crate) mebibytes: u64,
    pub(crate) max_bytes: u64,
}

impl DirPlan {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        Self {
            scheme: chance.one(&["ufs", "aufs", "diskd", "coss", "rock", "ring", "ring"]),
            mebibytes: chance.one(&[6, 8, 30]),
            max_bytes: chance.one(&[u64::MAX, u64::MAX, 20_000, 500_000]),
        }
    }

    /// Its line in squid.conf.
    fn line(&self, number: usize, root: &Path) -> String {
        let Self { scheme, mebibytes, max_bytes } = self;
        let path = self.path(number, root);
        let kind = SchemeKind::named(scheme).expect("a scheme");
        let has_levels = kind.defaults().levels_mut().is_some();
        let levels = if has_levels { " 2 4" } else { "" };
        let limit = match *max_bytes {
            u64::MAX => String::new(),
            bytes => format!(" max-size={bytes}"),
        };
        // No draw of its own: plans of old seeds stay as they are.
        let waits = *mebibytes == 8 && kind != SchemeKind::Ufs;
        let overload = if waits { " overload=wait" } else { "" };
        format!("cache_dir {scheme} {} {mebibytes}{levels}{limit}{overload}\n", path.display())
    }

    fn path(&self, number: usize, root: &Path) -> PathBuf {
        root.join(format!("{number}-{}", self.scheme))
    }
}

/// The directories that are configured, by their numbers in the plan.
pub(crate) type Dirs = Vec<(usize, DirPlan)>;

/// All of a plan.
pub(crate) fn all(plan: &Plan) -> Dirs {
    plan.dirs.iter().copied().enumerate().collect()
}

/// Their lines in squid.conf.
pub(crate) fn lines(dirs: &Dirs, root: &Path) -> String {
    dirs.iter().map(|(number, dir)| dir.line(*number, root)).collect()
}

/// Opens them at the start of a life. Where the power fails meanwhile, it comes back.
pub(crate) fn open(stores: &mut Stores, config: &Config, disk: &Disk) -> Vec<DirConfig> {
    for _ in 0..TRIES_MAX {
        let open = stores.open(config);
        if open.len() == config.cache_dir.len() {
            return open;
        }
        assert!(disk.is_off(), "a directory cannot be opened");
        trace::line(|| "the power fails during the start".into());
        disk.power_up();
    }
    panic!("directories cannot be opened");
}

/// Other directories: some leave, come back, or have another `max-size`.
pub(crate) fn other(plan: &Plan, mut chance: Chance) -> Dirs {
    let mut wanted = Dirs::new();
    for (number, dir) in plan.dirs.iter().enumerate() {
        let max_bytes = match chance.below(10) {
            0..3 => continue,
            3 | 4 => chance.one(&[u64::MAX, 100_000]),
            _ => dir.max_bytes,
        };
        wanted.push((number, DirPlan { max_bytes, ..*dir }));
    }
    trace::line(|| format!("directories: {wanted:?}"));
    wanted
}

/// Puts the configured directories into force, as the program does after everything else.
pub(crate) async fn reconfigure(world: &World, config: &Config) {
    let mut stores = world.stores.lock().await;
    stores.reconfigure(config, &world.shared.cache).await;
    check_open(world, &stores);
}

/// A directory that cannot be opened although its disk works is a defect.
fn check_open(world: &World, stores: &Stores) {
    for (number, dir) in &*world.dirs.borrow() {
        let is_open = stores.is_there(&dir.path(*number, &world.root));
        if !is_open && !world.disks_fail() {
            world.site.wrong(format!("directory {number} cannot be opened"));
        }
    }
}

/// Closes those that have lost their last readers, as the program does.
pub(crate) async fn watch(world: Rc<World>) {
    loop {
        tokio::time::sleep(WATCH).await;
        let mut stores = world.stores.lock().await;
        if stores.has_left() {
            stores.end_leaving(&world.shared.cache).await;
            check_open(&world, &stores);
        }
    }
}

/// Ends what the directories have begun, in the disk's time, until the power fails.
pub(crate) async fn drive(disk: Arc<Disk>, plan: Rc<Plan>, life: u64, crash: Rc<Notify>) {
    let mut chance = Chance::new(plan.seed, 20_000 + life);
    loop {
        _ = tokio::time::timeout(LOOK, disk.wanted()).await;
        if disk.is_off() {
            trace::line(|| "the power fails".into());
            return crash.notify_one();
        }
        match plan.disk_ms {
            0 if chance.per_mille(950) => tokio::task::yield_now().await,
            0 => tokio::time::sleep(Duration::from_millis(1)).await,
            most_ms => tokio::time::sleep(chance.delay(most_ms)).await,
        }
        disk.step();
    }
}

/// Troubles of a disk.
pub(crate) fn faults(chance: &mut Chance) -> Faults {
    match chance.below(5) {
        0 => Faults { read_fails_ppm: 50_000, ..Faults::default() },
        1 => Faults { write_fails_ppm: 50_000, ..Faults::default() },
        2 => Faults { is_full: true, ..Faults::default() },
        // Directories go out of service.
        3 => Faults { read_fails_ppm: 1_000_000, write_fails_ppm: 1_000_000, ..Faults::default() },
        _ => Faults::default(),
    }
}
