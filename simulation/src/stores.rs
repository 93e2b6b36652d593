//! The cache directories, on a simulated disk.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_schemes::simulated::{Disk, Faults};
use humboldt_schemes::{DirOptions, Levels, SchemeKind};
use humboldt_store::dirs::DirConfig;
use humboldt_store::scheme::Scheme;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::trace;

/// How often it is looked whether the power has failed.
const LOOK: Duration = Duration::from_secs(1);

/// Most tries to open a directory while the power fails again and again.
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

    fn options(&self, path: &Path) -> DirOptions {
        let kind = SchemeKind::named(self.scheme).expect("a scheme");
        let mut options = DirOptions::of(kind.defaults(), path, self.mebibytes << 20);
        options.max_bytes = self.max_bytes;
        if let Some(levels) = options.own.levels_mut() {
            *levels = Levels { l1: 2, l2: 4 };
        }
        options
    }
}

/// An open directory.
pub(crate) struct Open {
    pub(crate) number: usize,
    pub(crate) plan: DirPlan,
    pub(crate) scheme: Arc<dyn Scheme>,
}

impl Open {
    /// Opens directory `number` below `root`. Where the power fails meanwhile, it comes back.
    pub(crate) fn new(number: usize, plan: DirPlan, root: &Path, disk: &Arc<Disk>) -> Self {
        let path: PathBuf = root.join(format!("{number}-{}", plan.scheme));
        for _ in 0..TRIES_MAX {
            match humboldt_schemes::open(&plan.options(&path)) {
                Ok(scheme) => return Self { number, plan, scheme },
                Err(error) if disk.is_off() => {
                    trace::line(|| format!("the power fails during the start: {error}"));
                    disk.power_up();
                }
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
        panic!("{}: never opened", path.display());
    }

    pub(crate) fn config(&self) -> DirConfig {
        DirConfig {
            index: self.number,
            scheme: Arc::clone(&self.scheme),
            object_bytes_max: self.plan.max_bytes,
            read_only: false,
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
    match chance.below(4) {
        0 => Faults { read_fails_ppm: 50_000, ..Faults::default() },
        1 => Faults { write_fails_ppm: 50_000, ..Faults::default() },
        2 => Faults { is_full: true, ..Faults::default() },
        _ => Faults::default(),
    }
}
