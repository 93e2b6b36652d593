//! Events that scenarios about purges wait for.

use humboldt_tests::World;
use humboldt_tests::wait::until;

/// A figure, of each directory where there are several.
fn figures(world: &World, metric: &str) -> Vec<f64> {
    let target = world.proxy.page("metrics");
    let page = world.client().request("GET", &target, &[], b"").response().expect(200).text();
    let lines = page.lines().filter(|line| line.starts_with(metric));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).collect()
}

pub(super) fn wait_until_ready(world: &World) {
    until("the directories", || {
        let ratios = figures(world, "humboldt_store_rebuild_ratio");
        (!ratios.is_empty() && ratios.iter().all(|ratio| *ratio == 1.0)).then_some(())
    });
}

/// Waits until `count` objects have been written to disk since the start.
pub(super) fn wait_for_writes(world: &World, count: usize) {
    until(&format!("{count} objects on disk"), || {
        (figures(world, "humboldt_swap_outs_total").iter().sum::<f64>() >= count as f64)
            .then_some(())
    });
}
