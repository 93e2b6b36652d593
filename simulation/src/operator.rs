//! The operator, and everything else that happens by itself.

use std::rc::Rc;
use std::time::Duration;

use crate::chance::Chance;
use crate::clock;
use crate::plan::MEMORY;
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
            Event::Reload => reload(&world, &mut chance),
        }
    }
}

fn change(world: &World, chance: &mut Chance) {
    let resources = &world.site.resources;
    let resource = &resources[chance.below(resources.len() as u64) as usize];
    let version = resource.change();
    trace::line(|| format!("{} has version {version}", resource.url));
}

fn reload(world: &World, chance: &mut Chance) {
    let cache_mem = chance.one(&MEMORY);
    trace::line(|| format!("reload with cache_mem {cache_mem}"));
    world.reload(cache_mem);
}
