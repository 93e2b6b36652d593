//! The cache directories, on a simulated disk.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_schemes::simulated::{Disk, Faults};
use humboldt_schemes::{DirOptions, Levels, OpenError, SchemeKind};
use humboldt_store::dirs::DirConfig;
use humboldt_store::scheme::Scheme;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::trace;
use crate::world::World;

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
    /// Opens directory `number` below `root`.
    fn try_new(number: usize, plan: DirPlan, root: &Path) -> Result<Self, OpenError> {
        let path = root.join(format!("{number}-{}", plan.scheme));
        let scheme = humboldt_schemes::open(&plan.options(&path))?;
        Ok(Self { number, plan, scheme })
    }

    /// The same at the start of a life. Where the power fails meanwhile, it comes back.
    pub(crate) fn new(number: usize, plan: DirPlan, root: &Path, disk: &Arc<Disk>) -> Self {
        for _ in 0..TRIES_MAX {
            match Self::try_new(number, plan, root) {
                Ok(open) => return open,
                Err(error) if disk.is_off() => {
                    trace::line(|| "the power fails during the start".into());
                    drop(error);
                    disk.power_up();
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("directory {number} cannot be opened");
    }

    pub(crate) fn config(&self) -> DirConfig {
        DirConfig {
            index: self.number,
            scheme: Arc::clone(&self.scheme),
            object_bytes_max: self.plan.max_bytes,
            read_only: false,
        }
    }

    /// As one that leaves the configuration.
    fn leaving(&self) -> DirConfig {
        DirConfig { object_bytes_max: 0, read_only: true, ..self.config() }
    }

    /// Whether somebody beside the list here and the table of the cache has it.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.scheme) > 2
    }
}

/// Time that the last readers of a directory have that leaves the configuration.
const LAST_READERS_MAX: Duration = Duration::from_secs(600);

/// Puts other directories into force: some leave, come back, or have another `max-size`. As the
/// program does it: the last readers of one that leaves read on, and then it is closed.
pub(crate) async fn change(world: &World, mut chance: Chance) {
    let mut wanted: Vec<(usize, DirPlan)> = Vec::new();
    for (number, dir) in world.plan.dirs.iter().enumerate() {
        let max_bytes = match chance.below(10) {
            0..3 => continue,
            3 | 4 => chance.one(&[u64::MAX, 100_000]),
            _ => dir.max_bytes,
        };
        wanted.push((number, DirPlan { max_bytes, ..*dir }));
    }
    trace::line(|| format!("directories: {wanted:?}"));
    let is_wanted = |open: &Open| wanted.contains(&(open.number, open.plan));
    let (stay, leave) = world.dirs.take().into_iter().partition::<Vec<Open>, _>(is_wanted);
    world.dirs.replace(stay);
    world.publish(leave.iter().map(Open::leaving).collect());
    let left = async {
        while leave.iter().any(Open::is_in_use) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    _ = tokio::time::timeout(LAST_READERS_MAX, left).await;
    if !leave.is_empty() {
        world.shared.cache.prepare_close().await;
    }
    for open in &leave {
        if let Err(error) = open.scheme.close() {
            let error = without_root(world, &error);
            trace::line(|| format!("directory {} is not closed cleanly: {error}", open.number));
        }
    }
    drop(leave);
    for (number, plan) in wanted {
        if world.dirs.borrow().iter().any(|open| open.number == number) {
            continue;
        }
        match Open::try_new(number, plan, &world.root) {
            Ok(open) => world.dirs.borrow_mut().push(open),
            Err(error) if world.disks_fail() => {
                trace::line(|| format!("not opened: {}", without_root(world, &error)));
            }
            Err(error) => world.site.wrong(format!("directory {number}: {error}")),
        }
    }
    world.dirs.borrow_mut().sort_by_key(|open| open.number);
    world.publish(Vec::new());
}

/// An error without the name of the temporary directory, which is another one each time.
fn without_root(world: &World, error: &impl ToString) -> String {
    error.to_string().replace(&*world.root.to_string_lossy(), "")
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
