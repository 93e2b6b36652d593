//! Serves a built-in workload without thinking for some seconds, and tells what a request cost:
//! `cargo run --release -p humboldt-lab-origin --example serve -- fixed-1k 10 CORE`.

use humboldt_lab_origin::{Origin, OriginPlan};
use humboldt_lab_workload::{ObjectName, Workload};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("name a workload, such as fixed-1k")?;
    let seconds: u64 = words.next().map_or(Ok(10), |text| text.parse())?;
    let core: Option<usize> = words.next().map(|text| text.parse()).transpose()?;
    let workload = Arc::new(Workload::builtin(&name).ok_or("there is no such workload")??);
    let cores = core.into_iter().collect();
    let plan = OriginPlan { think: false, cores, ..OriginPlan::new(Arc::clone(&workload), 1) };
    let origin = Origin::start(plan)?;
    let mut path = Vec::new();
    ObjectName { world: 0, kind: 0, number: 1, size: None }.write_path(&workload, &mut path);
    println!("http://{}{}", origin.addresses()[0], String::from_utf8(path)?);
    std::thread::sleep(Duration::from_secs(seconds));
    let tally = origin.stop();
    let each_us = tally.cpu_us as f64 / tally.requests.max(1) as f64;
    let lag_us = tally.lag.percentile_us(99.0);
    println!("{} requests, {each_us:.2} µs of CPU each, 99 % within {lag_us} µs", tally.requests);
    Ok(())
}
