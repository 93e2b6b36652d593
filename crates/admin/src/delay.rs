//! The page `delay`: delay pools and the bytes in their buckets, in Squid's layout.

use std::fmt::Write;

use humboldt_conf::DelayRate;
use humboldt_proxy::delays::PoolFigures;

use crate::figures::Figures;

pub(crate) fn render(figures: &Figures) -> String {
    let pools = &figures.delay_pools;
    let mut out = format!("Delay pools configured: {}\n\n", pools.len());
    pools.iter().for_each(|pool| add_pool(&mut out, pool));
    out
}

fn add_pool(out: &mut String, pool: &PoolFigures) {
    _ = write!(out, "Pool: {}\n\tClass: {}\n\n", pool.number, pool.class);
    let rate = |index: usize| pool.rates.get(index).copied().flatten();
    let levels = &pool.levels;
    if pool.class == 5 {
        let tags = levels.tags.iter().map(|(tag, level)| named(tag, *level));
        add_buckets(out, "Per Tag", rate(0), &tags.collect::<String>());
        return;
    }
    let aggregate = levels.aggregate.map(|level| level.to_string());
    add_buckets(out, "Aggregate", rate(0), &aggregate.unwrap_or_default());
    if pool.class >= 3 {
        let networks = levels.networks.iter().map(|(network, level)| format!("{network}:{level} "));
        add_buckets(out, "Network", rate(1), &networks.collect::<String>());
        add_hosts(out, pool, rate(2));
    } else if pool.class == 2 {
        let hosts = levels.individuals.iter();
        let hosts = hosts.map(|((_, host), level)| format!("{host}:{level} "));
        add_buckets(out, "Individual", rate(1), &hosts.collect::<String>());
    }
    if pool.class == 4 {
        let users = levels.users.iter().map(|(user, level)| named(user, *level));
        add_buckets(out, "Per User", rate(3), &users.collect::<String>());
    }
}

fn named(name: &[u8], level: u64) -> String {
    format!("{}:{level} ", String::from_utf8_lossy(name))
}

/// Writes the parameters; `false` if there is no limit.
fn add_rate(out: &mut String, label: &str, rate: Option<DelayRate>) -> bool {
    match rate {
        None => _ = write!(out, "\t{label}:\n\t\tDisabled.\n\n"),
        Some(DelayRate { rate, size }) => {
            _ = write!(out, "\t{label}:\n\t\tMax: {size}\n\t\tRestore: {rate}\n");
        }
    }
    rate.is_some()
}

fn add_buckets(out: &mut String, label: &str, rate: Option<DelayRate>, levels: &str) {
    if add_rate(out, label, rate) {
        let levels = if levels.is_empty() { "Not used yet." } else { levels.trim_end() };
        _ = write!(out, "\t\tCurrent: {levels}\n\n");
    }
}

/// A line for each network.
fn add_hosts(out: &mut String, pool: &PoolFigures, rate: Option<DelayRate>) {
    if !add_rate(out, "Individual", rate) {
        return;
    }
    let hosts = &pool.levels.individuals;
    if hosts.is_empty() {
        out.push_str("\t\tCurrent: Not used yet.\n\n");
    }
    for network in hosts.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
        let Some(((number, _), _)) = network.first() else { continue };
        _ = write!(out, "\t\tCurrent [Network {number}]:");
        for ((_, host), level) in network {
            _ = write!(out, " {host}:{level}");
        }
        out.push('\n');
    }
    out.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use humboldt_proxy::delays::Levels;

    use super::*;

    fn pool(class: u8, rates: &[u64], levels: Levels) -> String {
        let rate = |rate: &u64| (*rate > 0).then_some(DelayRate { rate: *rate, size: 2 * rate });
        let rates = rates.iter().map(rate).collect();
        let mut out = String::new();
        add_pool(&mut out, &PoolFigures { number: 1, class, rates, levels });
        out
    }

    #[test]
    fn pools_of_each_class() {
        let two = Levels {
            aggregate: Some(7),
            individuals: vec![((0, 3), 4), ((0, 9), 5)],
            ..Levels::default()
        };
        assert_eq!(
            pool(2, &[10, 20], two),
            "Pool: 1\n\tClass: 2\n\n\tAggregate:\n\t\tMax: 20\n\t\tRestore: 10\n\t\tCurrent: 7\n\n\
             \tIndividual:\n\t\tMax: 40\n\t\tRestore: 20\n\t\tCurrent: 3:4 9:5\n\n"
        );
        let four = Levels {
            individuals: vec![((1, 3), 4), ((1, 9), 5), ((2, 3), 6)],
            users: vec![((*b"jo").into(), 8)],
            ..Levels::default()
        };
        let page = pool(4, &[0, 10, 20, 30], four);
        for part in [
            "\tAggregate:\n\t\tDisabled.\n\n",
            "\tNetwork:\n\t\tMax: 20\n\t\tRestore: 10\n\t\tCurrent: Not used yet.\n\n",
            "\t\tCurrent [Network 1]: 3:4 9:5\n\t\tCurrent [Network 2]: 3:6\n\n",
            "\tPer User:\n\t\tMax: 60\n\t\tRestore: 30\n\t\tCurrent: jo:8\n\n",
        ] {
            assert!(page.contains(part), "{page}");
        }
        assert!(pool(5, &[10], Levels::default()).contains("\tPer Tag:\n"));
    }
}
