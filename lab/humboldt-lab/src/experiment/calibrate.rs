//! The highest rate of the laboratory itself: its users ask its own servers, without a cache.
//!
//! A cache that answers nearly as fast as that would measure the laboratory, not the cache.

use super::limits;
use crate::Failure;
use crate::fleet::protocol::{RouteOrder, WorldOrder};
use crate::fleet::{Fleet, FleetError, Mission};
use crate::interrupt::Interrupt;
use crate::tls::RunTls;
use humboldt_lab_record::{OriginTally, Tally};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const FIRST_LOAD_PER_S: f64 = 1000.0;
const STEP_FACTOR: f64 = 1.5;

/// 1000 × 1.5^19 is more than two million requests per second.
const STEPS_MAX: usize = 20;

/// Long enough for a thousand requests at the lowest load.
const STEP: Duration = Duration::from_millis(700);

/// The first part of each step still has connections to make.
const SETTLE: Duration = Duration::from_millis(300);

/// A level counts if nearly all that was due was answered.
const ANSWERED_MIN: f64 = 0.97;

/// Objects that are asked for again: enough for the workload's mix, few enough to start at once.
const WORKING_SET_OBJECTS: u64 = 10_000;

/// The result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calibration {
    /// The highest load at which the laboratory was neither busy nor late.
    pub(crate) per_s: f64,
    /// CPU time of users per request at that load, in µs.
    pub(crate) robots_us: f64,
    /// CPU time of servers per request at that load, in µs.
    pub(crate) origin_us: f64,
    /// The limit that ended the climb.
    pub(crate) limit: Option<&'static str>,
}

/// Climbs until the laboratory itself is the limit. Leaves no robots and no origins running.
pub(crate) fn calibrate(
    fleet: &mut Fleet,
    world: &WorldOrder,
    listen: &[SocketAddr],
    tls: Option<&RunTls>,
    interrupt: &Interrupt,
) -> Result<Calibration, Failure> {
    // Latency would only make more connections wait at the same time.
    let near = (Some(0), Some(0.0));
    let world = WorldOrder { server_link: near, client_link: near, ..world.clone() };
    let authority = tls.map(RunTls::authority);
    let begun = fleet.start_origins(&world, listen, false, authority);
    let origins = begun.map_err(|error| match error {
        // A port that is taken, for example.
        FleetError::Failed { .. } => Failure::usage(error),
        FleetError::Agent { .. } | FleetError::Confused { .. } => Failure::run(error),
    })?;
    let mission = Mission {
        route: RouteOrder::Direct,
        origins,
        working_set_objects: WORKING_SET_OBJECTS,
        first_load_per_s: FIRST_LOAD_PER_S,
        timeout_s: 10.0,
        excuse_reload_hits: false,
        tls: tls.map(RunTls::direct_users),
    };
    fleet.start_robots(&mission).map_err(Failure::run)?;
    let result = climb(fleet, interrupt);
    fleet.stop().map_err(Failure::run)?;
    result
}

fn climb(fleet: &mut Fleet, interrupt: &Interrupt) -> Result<Calibration, Failure> {
    let mut best = Calibration::default();
    let mut load_per_s = FIRST_LOAD_PER_S;
    let mut is_doubted = false;
    for _ in 0..STEPS_MAX {
        fleet.set_load(load_per_s).map_err(Failure::run)?;
        interrupt.wait_until(Instant::now() + SETTLE, || false);
        fleet.sample().map_err(Failure::run)?;
        interrupt.wait_until(Instant::now() + STEP, || false);
        if interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        let (robots, origins) = fleet.sample().map_err(Failure::run)?;
        if let Some(sample) = robots.fault_samples.first() {
            return Err(Failure::run(format!(
                "the laboratory does not agree with itself: {}: {}, expected {}, got {}",
                sample.url, sample.fault.kind, sample.fault.expected, sample.fault.got
            )));
        }
        if let Some(limit) = limit(&robots, &origins) {
            if is_doubted {
                best.limit = Some(limit);
                break;
            }
            // Once may have been the machine's neighbours.
            is_doubted = true;
            continue;
        }
        is_doubted = false;
        best = measured(&robots, &origins);
        load_per_s *= STEP_FACTOR;
    }
    Ok(best)
}

fn limit(robots: &Tally, origins: &OriginTally) -> Option<&'static str> {
    let answered = robots.answers() as f64 / robots.due.max(1) as f64;
    if answered < ANSWERED_MIN {
        return Some("not all was answered in time");
    }
    limits::of(robots, origins).map(|limit| limit.short())
}

fn measured(robots: &Tally, origins: &OriginTally) -> Calibration {
    let answers = robots.answers().max(1) as f64;
    Calibration {
        per_s: answers * 1e6 / robots.period_us.max(1) as f64,
        robots_us: robots.cpu_us as f64 / answers,
        origin_us: origins.cpu_us as f64 / answers,
        limit: None,
    }
}
