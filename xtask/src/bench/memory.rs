//! `bench memory`: resident memory beside `cache_mem`, after a churn of objects of all sizes.

use super::load::{Client, Deadline, target};
use super::subjects::{self, Subject};
use super::{Plan, table};
use crate::Outcome;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const CACHE_MEM_MB: u64 = 64;

/// Bytes that pass through the cache, in multiples of `cache_mem`.
const CHURN: u64 = 20;

/// Sizes are spread evenly over the logarithm between these.
const MIN_BODY_BYTES: f64 = 200.0;
const MAX_BODY_BYTES: f64 = 512_000.0;

const CLIENTS: u64 = 8;
const TIME_LIMIT: Duration = Duration::from_secs(240);

pub(super) fn run(plan: &Plan) -> Outcome {
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let churn = if plan.quick { CHURN / 10 } else { CHURN };
    let bound = (CACHE_MEM_MB * MIB) as f64 * 1.15 + (20 * MIB) as f64;
    let mut rows = Vec::new();
    let wanted = ["humboldt", "old", "squid", "varnish"];
    for cache in subjects::caches(plan).into_iter().filter(|(name, ..)| wanted.contains(name)) {
        let Some(subject) = subjects::cache(plan, cache, origin.address, CACHE_MEM_MB)? else {
            continue;
        };
        let before = subject.process.resident_bytes()?;
        let (requests, bytes) = pour(&subject, origin.address, churn * CACHE_MEM_MB * MIB)?;
        let after = subject.process.resident_bytes()?;
        let verdict = if (after as f64) <= bound { "within" } else { "above" };
        rows.push(vec![
            subject.name.to_owned(),
            requests.to_string(),
            mib(bytes),
            mib(before),
            mib(after),
            format!("{:.2}", after as f64 / (CACHE_MEM_MB * MIB) as f64),
            format!("{verdict} 1.15 × cache_mem + 20 MB = {:.1}", bound / MIB as f64),
        ]);
    }
    println!(
        "\nResident memory with cache_mem {CACHE_MEM_MB} MB after {churn} × that much, 200 B to 512 KB\n"
    );
    let heading = ["memory", "objects", "MB sent", "MB before", "MB after", "× cache_mem", "bound"];
    table::print(&heading, &rows);
    Ok(())
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / MIB as f64)
}

/// Sends new objects through the subject until `wanted_bytes` have passed; every fourth is asked
/// for twice.
fn pour(subject: &Subject, origin: SocketAddr, wanted_bytes: u64) -> Outcome<(u64, u64)> {
    let (poured, requests) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |client: u64| -> Result<(), String> {
        let deadline = Deadline::after(TIME_LIMIT);
        let mut connection = Client::connect(subject.address).map_err(|error| error.to_string())?;
        let mut state = client;
        for number in 0_u64.. {
            if poured.load(Ordering::Relaxed) >= wanted_bytes {
                break;
            }
            deadline.check().map_err(|error| error.to_string())?;
            let body_bytes = size(&mut state);
            let target = target(subject, origin, &format!("/{body_bytes}/{client}-{number}"));
            for _ in 0..1 + u64::from(number % 4 == 0) {
                let answer = connection.get(&target, origin).map_err(|error| error.to_string())?;
                if answer != (200, body_bytes) {
                    return Err(format!("{target}: {answer:?}"));
                }
            }
            poured.fetch_add(body_bytes as u64, Ordering::Relaxed);
            requests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || work(client))).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client panicked".to_owned())?)
    })?;
    Ok((requests.into_inner(), poured.into_inner()))
}

/// Splitmix, then the exponential that spreads sizes evenly over their logarithm.
fn size(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let fraction = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    (MIN_BODY_BYTES * (MAX_BODY_BYTES / MIN_BODY_BYTES).powf(fraction)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spread_over_the_logarithm() {
        let mut state = 1;
        let sizes: Vec<usize> = (0..10_000).map(|_| size(&mut state)).collect();
        assert!(sizes.iter().all(|&size| (200..=512_000).contains(&size)));
        let small = sizes.iter().filter(|&&size| size < 10_119).count(); // the geometric mean
        assert!((4_700..5_300).contains(&small), "{small} of 10000 below the middle");
    }
}
