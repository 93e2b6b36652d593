//! The course of one seed: its lives, one after the other.

use std::rc::Rc;
use std::sync::Arc;

use humboldt_schemes::simulated::{Disk, Faults};
use tokio::task::LocalSet;

use crate::chance::{self, Chance};
use crate::clock;
use crate::plan::Plan;
use crate::site::{Resource, Site};
use crate::trace;
use crate::world::{Ends, Log, World};

/// Runs a seed; returns what happened.
pub(crate) fn run(seed: u64) -> Rc<Site> {
    let plan = Rc::new(Plan::new(seed));
    let site = Rc::new(Site::new(&plan, &mut Chance::new(seed, 4)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _context = runtime.enter();
    clock::start();
    chance::set_turns(seed, plan.late_per_mille);
    trace::line(|| format!("{plan:?}"));
    let folder = folder();
    let disk = Disk::new(seed);
    let _disk = disk.enter();
    for life in 0..plan.lives {
        let log = Log { folder: folder.path() };
        let tasks = LocalSet::new();
        let world = {
            let _tasks = tasks.enter();
            World::new(&plan, &site, life, &log, &disk)
        };
        let ends = tasks.block_on(&runtime, async { world.live().await });
        trace::line(|| format!("the life ends: {ends:?}"));
        drop(tasks);
        world.check_log(&log);
        world.count();
        let has_all_dirs = world.has_all_dirs();
        drop(world);
        end(&plan, &site, &disk, ends, has_all_dirs);
    }
    site.totals.add("operations of disks", disk.operations());
    site.totals.add("simulated seconds", clock::elapsed_ms() as u64 / 1000);
    site
}

/// In memory, if possible.
fn folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// What is left of a life.
fn end(plan: &Plan, site: &Site, disk: &Arc<Disk>, ends: Ends, has_all_dirs: bool) {
    site.totals.add("lives", 1);
    match ends {
        Ends::InACrash if plan.loses_power => {
            site.totals.add("losses of power", 1);
            disk.cut_power();
            disk.power_up();
            site.is_torn.set(true);
        }
        Ends::InACrash => {
            site.totals.add("ends of the process", 1);
            disk.restart();
        }
        Ends::InOrder => disk.restart(),
    }
    disk.set_faults(Faults::default());
    // What a directory owes for newer answers is in memory only.
    let may_have_older = plan.disk_fails || plan.dirs.is_empty() || !has_all_dirs;
    if ends == Ends::InACrash || may_have_older {
        site.resources.iter().for_each(Resource::crashed);
    }
}
