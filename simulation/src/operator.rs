//! The operator, and everything else that happens by itself.

use std::rc::Rc;
use std::time::Duration;

use crate::chance::Chance;
use crate::clock;
use crate::plan::MEMORY;
use crate::stores;
use crate::trace;
use crate::world::World;

/// What may happen.
#[derive(Copy, Clone)]
enum Event {
    Nothing,
    /// A server has a new version.
    Change,
    /// The proxy's clock jumps.
    Jump,
    /// Another configuration.
    Reload,
    /// Disks begin to fail in another way, or no longer.
    Disks,
    /// The process ends, or the power fails.
    Crash,
}

/// Most events of a life: a long life shall not consist of them.
const EVENTS_MAX: usize = 400;

/// Lets things happen as long as the world exists.
pub(crate) async fn run(world: Rc<World>) {
    let plan = &world.plan;
    let mut chance = Chance::new(plan.seed, 10_000 + world.life);
    let pause_ms = 4 * (plan.client_ms + plan.server_ms) + 20;
    let weight = |is_on: bool, weight: u64| if is_on { weight } else { 0 };
    let events = [
        (1, Event::Nothing),
        (weight(plan.changes, 4), Event::Change),
        (weight(plan.jumps, 1), Event::Jump),
        (weight(plan.reloads, 2), Event::Reload),
        (weight(plan.disk_fails, 2), Event::Disks),
        (weight(plan.crashes, 1), Event::Crash),
    ];
    for _ in 0..EVENTS_MAX {
        tokio::time::sleep(Duration::from_millis(1 + chance.below(pause_ms))).await;
        match chance.weighted(&events) {
            Event::Nothing => {}
            Event::Change => change(&world, &mut chance),
            Event::Jump => {
                let by_ms = chance.one(&[-3_600_000, -10_000, -500, 500, 10_000, 86_400_000]);
                clock::jump(by_ms);
                trace::line(|| format!("the clock jumps by {by_ms} ms to {}", clock::off_ms()));
            }
            Event::Reload => reload(&world, &mut chance).await,
            Event::Disks => {
                let faults = stores::faults(&mut chance);
                trace::line(|| format!("disks: {faults:?}"));
                world.disk.set_faults(faults);
            }
            Event::Crash if chance.below(8) > 0 => {}
            Event::Crash => {
                let operations = 1 + chance.below(100);
                trace::line(|| format!("the power fails after {operations} operations"));
                world.disk.lose_power_after(operations);
                world.crash_soon(&mut chance).await;
            }
        }
    }
}

fn change(world: &World, chance: &mut Chance) {
    let resources = &world.site.resources;
    let resource = &resources[chance.below(resources.len() as u64) as usize];
    let version = resource.change();
    trace::line(|| format!("{} has version {version}", resource.url));
}

async fn reload(world: &Rc<World>, chance: &mut Chance) {
    let cache_mem = chance.one(&MEMORY);
    trace::line(|| format!("reload with cache_mem {cache_mem}"));
    world.site.totals.add("reloads", 1);
    let are_the_same = world.plan.dirs.is_empty() || chance.per_mille(500);
    let dirs =
        (!are_the_same).then(|| stores::other(&world.plan, Chance::new(chance.below(u64::MAX), 4)));
    world.reload(cache_mem, dirs).await;
}
