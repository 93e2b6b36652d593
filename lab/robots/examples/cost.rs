//! What a request costs the robots, beside `wrk`, which verifies nothing: CPU µs per request
//! against the same origin.
//!
//! `cargo run --release -p humboldt-lab-robots --example cost [WORKLOAD] [SECONDS] [ROUNDS]`; needs
//! `wrk` and two cores.
#![allow(clippy::print_stdout, reason = "a program for people")]

use humboldt_lab_origin::{Origin, OriginPlan};
use humboldt_lab_robots::{Robots, RobotsPlan, Route};
use humboldt_lab_workload::{ObjectName, Workload};
use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

const SEED: u64 = 1;
/// Ticks of `/proc/self/stat`, in µs.
const TICK_US: f64 = 10_000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "fixed-1k".into());
    let seconds: u64 = args.next().map_or(Ok(5), |text| text.parse())?;
    let rounds: u32 = args.next().map_or(Ok(3), |text| text.parse())?;
    let workload = Arc::new(Workload::builtin(&name).ok_or("no such workload")??);
    let origin = Origin::start(OriginPlan {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        cores: vec![0],
        think: false,
        ..OriginPlan::new(Arc::clone(&workload), SEED)
    })?;
    let address = origin.addresses()[0];
    for round in 1..=rounds {
        let (per_s, wrk_us) = wrk(&workload, address, seconds)?;
        for share in [0.5, 0.7, 0.9] {
            let (tally, lag_us) = robots(&workload, address, per_s * share, seconds)?;
            let robots_us = tally.0;
            println!(
                "round {round}: wrk {per_s:.0}/s {wrk_us:.2} µs; robots at {:.0} % {:.0}/s {robots_us:.2} µs, ratio {:.2}; \
                 lag p50 {} p99 {} µs; {} connects, {} faults",
                share * 100.0,
                tally.1,
                robots_us / wrk_us,
                lag_us.0,
                lag_us.1,
                tally.2,
                tally.3
            );
        }
    }
    let _ = origin.stop();
    Ok(())
}

/// Rate and CPU µs per request of wrk on core 1.
fn wrk(
    workload: &Workload,
    address: SocketAddr,
    seconds: u64,
) -> Result<(f64, f64), Box<dyn Error>> {
    let mut path = Vec::new();
    ObjectName { world: 0, kind: 0, number: 1, size: None }.write_path(workload, &mut path);
    let url = format!("http://{address}{}", String::from_utf8(path)?);
    let duration = format!("-d{seconds}");
    let before = children_us()?;
    let output = Command::new("taskset")
        .args(["-c", "1", "wrk", "-t1", "-c64", &duration, &url])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().find(|line| line.contains("requests in")).ok_or("wrk says nothing")?;
    let requests: f64 = line.split_whitespace().next().ok_or("wrk says no number")?.parse()?;
    Ok((requests / seconds as f64, (children_us()? - before) / requests))
}

/// CPU time of ended children.
fn children_us() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<_> = stat.rsplit_once(')').ok_or("no stat")?.1.split_whitespace().collect();
    let ticks: f64 = fields[13].parse::<f64>()? + fields[14].parse::<f64>()?;
    Ok(ticks * TICK_US)
}

type Cost = ((f64, f64, u64, u64), (u64, u64));

fn robots(
    workload: &Arc<Workload>,
    address: SocketAddr,
    per_s: f64,
    seconds: u64,
) -> Result<Cost, Box<dyn Error>> {
    let mut plan = RobotsPlan::new(Arc::clone(workload), SEED, Route::Direct, vec![address]);
    plan.first_load_per_s = per_s;
    plan.cores = vec![1];
    plan.think = false;
    plan.connections_max = 4_000;
    // As few users as wrk has connections, or few more.
    plan.time_scale = std::env::var("SCALE").map_or(Ok(1.0), |text| text.parse())?;
    let robots = Robots::start(plan)?;
    sleep(Duration::from_secs(1));
    let _ = robots.sample();
    sleep(Duration::from_secs(seconds));
    let tally = robots.stop();
    for sample in tally.fault_samples.iter().take(3) {
        println!("{sample:?}");
    }
    let answers = tally.answers() as f64;
    let cost = tally.cpu_us as f64 / answers;
    let rate = answers * 1e6 / tally.period_us as f64;
    let lag = (tally.lag.percentile_us(50.0), tally.lag.percentile_us(99.0));
    Ok(((cost, rate, tally.connects, tally.faults_total()), lag))
}
