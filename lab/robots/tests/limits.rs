//! The laboratory's own limits are not faults of a proxy. A program of its own: the limit is that
//! of a process.
#![allow(clippy::unwrap_used, reason = "tests end at what they do not expect")]

use humboldt_lab_robots::{FarEnd, Tunnels};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpListener};

/// Descriptors that may be open: those of the test and a few connections.
const DESCRIPTORS: u64 = 40;

#[test]
fn too_few_descriptors_end_a_measurement_and_are_no_fault() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let far = FarEnd::start(any, None).unwrap();
    // A proxy that never answers; the kernel accepts for it.
    let proxy = TcpListener::bind(any).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).unwrap();
    let plan = Tunnels {
        proxy: proxy.local_addr().unwrap(),
        tunnels: 100,
        up_bytes: 0,
        down_bytes: 1,
        renews: true,
        time_max_s: 60.0,
        timeout_s: 60.0,
    };
    let report = plan.run(&far, &mut |_| true).unwrap();
    assert!(report.own_limit.is_some_and(|limit| limit.contains("open files")));
    assert!(report.faults.is_empty(), "{:?}", report.fault_samples);
    assert!(report.begun > 0 && report.begun < DESCRIPTORS, "{}", report.begun);
    assert!(report.wall_us < 30_000_000, "it waited for answers that did not matter");
}
