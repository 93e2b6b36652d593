//! `bench lab`: the cost of a request of the laboratory's users, who verify every byte and keep an
//! open loop, beside `wrk`, which does neither. Both ask the laboratory's own origin for the same
//! objects, at about the same rate, in turns.

use super::{Plan, subjects, table};
use crate::processes::{Running, free_address};
use crate::{Outcome, packages};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

/// Workloads of the laboratory whose objects all have one size.
const WORKLOADS: [(&str, &str); 2] = [("1 KiB", "fixed-1k"), ("13 KiB", "fixed-13k")];

/// The path of an object of those workloads.
const OBJECT: &str = "/l/0/0/1.bin";

/// The users offer this share of wrk's rate, so that both work at about the same rate and nothing
/// queues.
const RATE_SHARE: f64 = 0.9;

/// wrk has as many connections; the users are to have about as many, since connections cost too.
const CONNECTIONS: f64 = 64.0;

/// Requests of one user of those workloads in a second at time scale 1.
const REQUESTS_PER_S_PER_USER: f64 = 10.0;

/// CPU time of users over that of wrk, at most.
const TARGET_RATIO: f64 = 1.4;

/// Prints one line that [`parse_summary`] reads.
const LUA_SUMMARY: &str = "
function done(summary, latency, requests)
  local e = summary.errors
  print(string.format('summary %d %d %d', summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
";

/// Resources of one turn of one load generator.
struct Turn {
    requests_per_s: f64,
    cpu_us_per_request: f64,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    packages::install_for_bench_lab()?;
    let lab = super::programs::program("humboldt-lab")?.ok_or("humboldt-lab does not build")?;
    println!(
        "\nCPU time of the load generator for each request, whole process, {} rounds of {:?}\n",
        plan.rounds(),
        plan.turn()
    );
    let mut rows = Vec::new();
    for (size, workload) in WORKLOADS {
        let (wrk, users) = rounds(plan, &lab, workload)?;
        let us =
            |turns: &[Turn]| turns.iter().map(|turn| turn.cpu_us_per_request).collect::<Vec<_>>();
        let rate = |turns: &[Turn]| {
            format!(
                "{:.0}",
                table::median(&turns.iter().map(|turn| turn.requests_per_s).collect::<Vec<_>>())
            )
        };
        let ratios: Vec<f64> =
            us(&users).iter().zip(us(&wrk)).map(|(users, wrk)| users / wrk).collect();
        let verdict = if table::median(&ratios) <= TARGET_RATIO { "reached" } else { "missed" };
        rows.push(vec![
            size.to_owned(),
            format!("{} / {}", rate(&wrk), rate(&users)),
            table::with_range(&us(&wrk), 2),
            table::with_range(&us(&users), 2),
            table::with_range(&ratios, 2),
            format!("≤ {TARGET_RATIO}: {verdict}"),
        ]);
    }
    table::print(&["lab", "req/s wrk / users", "wrk µs", "users µs", "ratio", "target"], &rows);
    Ok(())
}

fn rounds(plan: &Plan, lab: &Path, workload: &str) -> Outcome<(Vec<Turn>, Vec<Turn>)> {
    let folder = subjects::folder()?;
    let address = free_address()?;
    let mut command = Command::new(lab);
    command.args([
        "origin",
        "--no-think",
        "--workload",
        workload,
        "--listen",
        &address.to_string(),
    ]);
    command.args(["--lab-cores", &plan.server_core.to_string()]);
    let log = folder.path().join("origin.log");
    let mut origin = Running::pinned("origin", plan.server_core, &mut command, &log)?;
    origin.wait_ready(address)?;
    let script = folder.path().join("lab.lua");
    fs::write(&script, repeat_script(OBJECT, address))?;
    let (mut wrk, mut users) = (Vec::new(), Vec::new());
    for round in 0..=plan.rounds() {
        let theirs = wrk_turn(plan, address, &script)?;
        let ours = users_turn(plan, lab, workload, address, theirs.requests_per_s * RATE_SHARE)?;
        // Round 0 warms up.
        if round > 0 {
            wrk.push(theirs);
            users.push(ours);
        }
    }
    Ok((wrk, users))
}

/// A script that sends one request, built once, again and again.
fn repeat_script(target: &str, host: SocketAddr) -> String {
    // wrk calls this once and formats its only request afterwards.
    format!(
        "function init(args)\n  wrk.path = '{target}'\n  wrk.headers['Host'] = '{host}'\nend\n{LUA_SUMMARY}"
    )
}

fn wrk_turn(plan: &Plan, address: SocketAddr, script: &Path) -> Outcome<Turn> {
    let mut command = pinned(plan, Path::new("wrk"));
    command.args(["--threads", "1", "--connections", &CONNECTIONS.to_string(), "--timeout", "10s"]);
    command.arg("--duration").arg(format!("{}s", plan.turn().as_secs().max(1)));
    command.arg("--script").arg(script).arg(format!("http://{address}/"));
    let (output, cpu_us) = run_measured(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let [requests, duration_us, errors] =
        parse_summary(&text).ok_or_else(|| format!("wrk says: {text}"))?;
    if errors > 0 || requests == 0 {
        return Err(format!("wrk: {errors} errors in {requests} requests: {text}").into());
    }
    Ok(turn(requests, duration_us, cpu_us))
}

fn parse_summary(text: &str) -> Option<[u64; 3]> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary "))?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

fn users_turn(
    plan: &Plan,
    lab: &Path,
    workload: &str,
    address: SocketAddr,
    per_s: f64,
) -> Outcome<Turn> {
    let mut command = pinned(plan, lab);
    command.args([
        "load",
        &format!("{per_s:.0}"),
        "--workload",
        workload,
        "--json",
        "--warm-up",
        "0s",
    ]);
    command.args(["--origins", &address.to_string(), "--lab-cores", &plan.load_core.to_string()]);
    let time_scale = CONNECTIONS * REQUESTS_PER_S_PER_USER / per_s.max(1.0);
    command.args(["--time-scale", &format!("{time_scale:.6}")]);
    command.arg("--time").arg(format!("{}s", plan.turn().as_secs().max(1)));
    let (output, cpu_us) = run_measured(&mut command)?;
    let tally: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        format!("humboldt-lab: {error}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let requests: u64 =
        ["hits", "misses", "others"].iter().map(|class| number(&tally[*class]["answers"])).sum();
    let faults = tally["faults"].as_object().map_or(0, serde_json::Map::len);
    if faults > 0 || requests == 0 {
        return Err(format!("humboldt-lab: {requests} answers, faults {}", tally["faults"]).into());
    }
    Ok(turn(requests, number(&tally["period_us"]), cpu_us))
}

fn turn(requests: u64, duration_us: u64, cpu_us: u64) -> Turn {
    Turn {
        requests_per_s: requests as f64 * 1e6 / duration_us.max(1) as f64,
        cpu_us_per_request: cpu_us as f64 / requests.max(1) as f64,
    }
}

fn pinned(plan: &Plan, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(plan.load_core.to_string()).arg(program);
    command
}

/// Runs a program to its end; returns its output, and its CPU time in µs, start and end included.
fn run_measured(command: &mut Command) -> Outcome<(Output, u64)> {
    let before_us = ended_children_cpu_us()?;
    let output = command.output()?;
    Ok((output, ended_children_cpu_us()? - before_us))
}

/// CPU time of all children that have ended: fields 16 and 17 of proc(5).
fn ended_children_cpu_us() -> Outcome<u64> {
    let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second();
    let line = fs::read_to_string("/proc/self/stat")?;
    let fields = line.rsplit_once(')').ok_or("/proc/self/stat has no command")?.1;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(ticks * us_per_tick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_line_is_found() {
        assert_eq!(
            parse_summary("Running 1s test\nsummary 100 1000000 0\n"),
            Some([100, 1_000_000, 0])
        );
        assert_eq!(parse_summary("unable to connect"), None);
    }
}
