//! `bench memory`: resident memory beside `cache_mem`, after a churn of objects of all sizes.

use super::drive::{Drive, url};
use super::subjects::{self, Subject};
use super::{Plan, table};
use crate::Outcome;
use humboldt_lab_robots::{BangEvent, BangRecord, BangTarget};
use std::net::SocketAddr;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const CACHE_MEM_MB: u64 = 64;

/// Bytes that pass through the cache, in multiples of `cache_mem`.
const CHURN: u64 = 20;

/// Sizes are spread evenly over the logarithm between these.
const MIN_BODY_BYTES: f64 = 200.0;
const MAX_BODY_BYTES: f64 = 512_000.0;

const CLIENTS: usize = 8;

/// An object is asked for again after this many others: it is answered by then, nearly always.
const AGAIN_AFTER: u64 = 32;

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
/// for twice. Returns the numbers of objects and of their bytes.
fn pour(subject: &Subject, origin: SocketAddr, wanted_bytes: u64) -> Outcome<(u64, u64)> {
    let load = Drive { style: subject.style, connections: CLIENTS, ..Drive::new(origin, 0) };
    let (mut objects, mut bytes) = (0, 0);
    let new = std::iter::from_fn(|| {
        let number = (bytes < wanted_bytes).then_some(objects)?;
        objects += 1;
        bytes += size(number) as u64;
        Some(number)
    });
    let all = new.flat_map(|number| {
        let again = number.checked_sub(AGAIN_AFTER).filter(|number| number % 4 == 0);
        [Some(number), again].into_iter().flatten()
    });
    let targets = all.map(|number| BangTarget::Url(url(origin, size(number), number)));
    let mut wrong = None;
    let report = load.bang(subject.address).run_watched(targets, &mut |event| match event {
        BangEvent::Ended(record) => {
            if record.status != Some(200) || !has_wanted_size(record) {
                wrong.get_or_insert_with(|| format!("{record:?}"));
            }
            wrong.is_none()
        }
        BangEvent::Tick { at_us, .. } => u128::from(at_us) < TIME_LIMIT.as_micros(),
    })?;
    match wrong {
        Some(wrong) => Err(wrong.into()),
        None if report.answers < report.requests => Err("the benchmark took too long".into()),
        None => Ok((objects, bytes)),
    }
}

/// Whether the body has as many bytes as its URL says.
fn has_wanted_size(record: &BangRecord<'_>) -> bool {
    let wanted = record.url.rsplit('/').nth(1).and_then(|size| size.parse().ok());
    wanted == Some(record.body_bytes)
}

/// Bytes of an object: Splitmix, then the exponential that spreads sizes evenly over their
/// logarithm.
fn size(number: u64) -> usize {
    let mut mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
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
        let sizes: Vec<usize> = (0..10_000).map(size).collect();
        assert!(sizes.iter().all(|&size| (200..=512_000).contains(&size)));
        let small = sizes.iter().filter(|&&size| size < 10_119).count(); // the geometric mean
        assert!((4_700..5_300).contains(&small), "{small} of 10000 below the middle");
    }
}
