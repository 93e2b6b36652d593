//! The parts of the laboratory by themselves: only servers, or only users at a constant load.

use crate::cli::{LoadArgs, OriginArgs};
use crate::fleet::protocol::RouteOrder;
use crate::fleet::{Fleet, Mission, world};
use crate::interrupt::Interrupt;
use crate::tls::{Place, RunTls, Servers, server_authority};
use crate::{Failure, output::say};
use humboldt_lab_record::{FaultKind, Tally, TimesSummary};
use humboldt_lab_subjects::Mode;
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of the cache from which the working set follows, where there is no cache.
const CACHE_BYTES: u64 = 1 << 30;

/// `humboldt-lab origin`.
pub(crate) fn origin(arguments: &OriginArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let world = world::plain_order(&arguments.workload, arguments.seed, arguments.time_scale)?;
    let authority = arguments.origin_authority.as_deref().map(server_authority).transpose()?;
    let mut fleet =
        Fleet::local(arguments.lab_cores.clone().unwrap_or_default()).map_err(Failure::run)?;
    let addresses = fleet
        .start_origins(&world, &arguments.listen, !arguments.no_think, authority.as_ref())
        .map_err(Failure::usage)?;
    let how = if authority.is_some() { " over TLS" } else { "" };
    for address in &addresses {
        say!("serving {}{how} on {address}", arguments.workload);
    }
    let end = arguments.time_max.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    while !interrupt.is_set() && end.is_none_or(|end| Instant::now() < end) {
        let soon = Instant::now() + Duration::from_secs(1);
        interrupt.wait_until(end.map_or(soon, |end| end.min(soon)), || false);
    }
    let (_, tally) = fleet.sample().map_err(Failure::run)?;
    say!(
        "{} requests on {} connections, {} bytes of bodies, {:.2} µs of CPU time for each",
        tally.requests,
        tally.connects,
        tally.body_bytes,
        tally.cpu_us as f64 / tally.requests.max(1) as f64
    );
    fleet.stop().map_err(Failure::run)
}

/// `humboldt-lab load`.
pub(crate) fn load(arguments: &LoadArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let world = world::plain_order(&arguments.workload, arguments.seed, arguments.time_scale)?;
    let workload = world::load(&world).map_err(Failure::usage)?;
    let tls = users_tls(arguments)?;
    tls.as_ref().map_or(Ok(()), RunTls::keep)?;
    let mut fleet =
        Fleet::local(arguments.lab_cores.clone().unwrap_or_default()).map_err(Failure::run)?;
    // The crew learns the workload with its origins, so it has some even if others are asked.
    let any = [std::net::SocketAddr::from(([127, 0, 0, 1], 0))];
    let authority = tls.as_ref().and_then(|tls| match arguments.proxy {
        Some(_) => tls.behind_cache(),
        None => Some(tls.authority()),
    });
    let own = fleet.start_origins(&world, &any, true, authority).map_err(Failure::run)?;
    let mission = Mission {
        route: arguments
            .proxy
            .map_or(RouteOrder::Direct, |proxy| RouteOrder::Forward { proxies: vec![proxy] }),
        origins: if arguments.origins.is_empty() { own } else { arguments.origins.clone() },
        working_set_objects: workload.working_set_objects(CACHE_BYTES),
        first_load_per_s: arguments.per_second,
        timeout_s: 60.0,
        excuse_reload_hits: false,
        tls: tls.as_ref().map(RunTls::users),
    };
    fleet.start_robots(&mission).map_err(Failure::usage)?;
    interrupt.wait_until(Instant::now() + Duration::from_secs_f64(arguments.warm_up), || false);
    fleet.sample().map_err(Failure::run)?;
    interrupt.wait_until(Instant::now() + Duration::from_secs_f64(arguments.time), || false);
    let (tally, _) = fleet.sample().map_err(Failure::run)?;
    fleet.stop().map_err(Failure::run)?;
    if arguments.json {
        say!("{}", serde_json::to_string(&tally).map_err(Failure::run)?);
    } else {
        print(&tally, tls.is_some());
    }
    Ok(())
}

/// TLS of the users, with a proxy or with the servers themselves.
fn users_tls(arguments: &LoadArgs) -> Result<Option<RunTls>, Failure> {
    let place = match arguments.proxy {
        Some(_) => Place::Running(Mode::Forward),
        None => Place::Origins,
    };
    // Servers that others have started are known by the file of their authority.
    let kept = arguments.tls.origin_authority.as_deref();
    let is_known = arguments.origins.is_empty() || kept.is_some_and(Path::exists);
    let servers = if is_known { Servers::Own } else { Servers::Foreign };
    RunTls::new(&arguments.tls, place, servers)
}

fn print(tally: &Tally, has_tls: bool) {
    let per_s = |count: u64| count as f64 * 1e6 / tally.period_us.max(1) as f64;
    say!("due          {:>12.1} /s", per_s(tally.due));
    say!("answered     {:>12.1} /s", per_s(tally.answers()));
    say!("hits         {:>12.1} /s", per_s(tally.hits.answers));
    say!("bytes        {:>12.1} MB/s", per_s(tally.body_bytes()) / 1e6);
    say!("backlog      {:>12} ({} wait for a connection)", tally.backlog, tally.waiting);
    say!(
        "CPU time     {:>12.2} µs per request",
        tally.cpu_us as f64 / tally.answers().max(1) as f64
    );
    for (name, times) in [("response", tally.response()), ("lag", tally.lag.clone())] {
        let times = TimesSummary::from(&times);
        say!(
            "{name:<12} {:>12.3} ms mean, p50 {:.3}, p95 {:.3}, p99 {:.3}, max {:.3}",
            times.mean_ms,
            times.p50_ms,
            times.p95_ms,
            times.p99_ms,
            times.max_ms
        );
    }
    if has_tls {
        let made = tally.handshakes;
        say!("handshakes   {:>12} full, {} resumed", made.full, made.resumed);
    }
    for kind in FaultKind::ALL {
        if let Some(count) = tally.faults.get(&kind) {
            say!("{:<12} {count:>12}", kind.label());
        }
    }
    for sample in tally.fault_samples.iter().take(5) {
        let fault = &sample.fault;
        say!("  {}: {}: expected {}, got {}", sample.url, fault.kind, fault.expected, fault.got);
    }
}
