//! Whole worlds: the laboratory's own origins, a proxy with tunnels, the banger.

#![allow(clippy::unwrap_used, reason = "clippy does not know that helpers of tests are tests")]

mod common;

use common::{Deed, Reply, SEED, Seen, Server, plan, run_until, workload};
use humboldt_lab_origin::{Origin, OriginPlan};
use humboldt_lab_record::FaultKind;
use humboldt_lab_robots::{Bang, BangOrder, BangTarget, BangWorld, Robots, RobotsPlan, Route};

fn origin(name: &str, time_scale: f64) -> Origin {
    let plan = OriginPlan {
        listen: vec!["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()],
        time_scale,
        chunked_share: 0.3,
        ..OriginPlan::new(workload(name), SEED)
    };
    Origin::start(plan).unwrap()
}

#[test]
fn the_laboratorys_own_origins_make_no_mistake_in_any_kind_of_request() {
    let time_scale = 0.01;
    let origin = origin("polymix-4", time_scale);
    let mut settings = plan("polymix-4", origin.addresses()[0], 500.0);
    settings.origins = origin.addresses().to_vec();
    settings.time_scale = time_scale;
    let robots = Robots::start(settings).unwrap();
    let kinds = ["plain", "ims_200", "ims_304", "reload", "post", "head"];
    let tally =
        run_until(&robots, |tally| kinds.iter().all(|kind| tally.by_kind.contains_key(*kind)));
    let _ = robots.stop();
    assert_eq!(tally.faults_total(), 0, "{:?}", tally.fault_samples);
    assert_eq!((tally.hits.answers, tally.excused), (0, 0), "nobody was there to store anything");
    assert!(
        tally.by_type.contains_key("image") && tally.by_type.contains_key("html"),
        "{:?}",
        tally.by_type
    );
    assert!(tally.fill_bytes > 0 && tally.fill_bytes < tally.misses.body_bytes);
    assert!(tally.refill_bytes > 0 && tally.offered_hits > 0 && tally.offered_hit_bytes > 0);
    // The origin thinks 25 ms and is 0.8 ms away. Both are taken off, however busy the machine is.
    let (response_us, added_us) = (tally.misses.response.mean_us(), tally.misses.added.mean_us());
    let taken_off_us = response_us - added_us;
    assert!(taken_off_us > 20_000.0, "{taken_off_us} of {response_us} µs are the world's");
    assert!(taken_off_us < 40_000.0, "{taken_off_us} of {response_us} µs are the world's");
}

/// A proxy that lets everything through but the denied target, and answers for the origins itself.
fn proxy_and_origin(request: &Seen, reply: Reply) -> Deed {
    match request.method.as_str() {
        "CONNECT" if request.target.starts_with("denied.example:") => {
            Deed::Say(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec())
        }
        "CONNECT" => Deed::Say(b"HTTP/1.1 200 Established\r\n\r\n".to_vec()),
        _ => Deed::Say(reply.bytes()),
    }
}

fn tunnels(deed: impl Fn(&Seen, Reply) -> Deed + Send + Sync + 'static) -> (Server, RobotsPlan) {
    let server = Server::start(workload("allow-list"), deed);
    let mut settings = plan("allow-list", server.address, 200.0);
    settings.route = Route::Forward { proxies: vec![server.address] };
    settings.origins = vec!["127.0.0.1:8080".parse().unwrap()];
    (server, settings)
}

#[test]
fn tunnels_carry_right_answers_and_denied_ones_are_denied() {
    let (server, settings) = tunnels(proxy_and_origin);
    let robots = Robots::start(settings).unwrap();
    let tally = run_until(&robots, |tally| {
        tally.by_kind.get("connect").is_some_and(|kind| kind.answers > 60)
    });
    let _ = robots.stop();
    assert_eq!(tally.faults_total(), 0, "{:?}", tally.fault_samples);
    let seen = server.seen.lock().unwrap();
    assert!(seen.iter().any(|seen| seen.ends_with(" 127.0.0.1:8080")), "{:?}", &seen[..10]);
    assert!(seen.iter().any(|seen| seen.ends_with(" denied.example:443")));
    assert!(
        seen.iter().any(|seen| seen.contains(" http://127.0.0.1:8080/l/")),
        "plain requests name the origin"
    );
    assert!(seen.iter().any(|seen| seen.contains(" /l/")), "requests in tunnels do not");
}

#[test]
fn a_denied_tunnel_that_opens_is_a_fault() {
    let (_server, settings) = tunnels(|request, reply| match request.method.as_str() {
        "CONNECT" => Deed::Say(b"HTTP/1.1 200 Established\r\n\r\n".to_vec()),
        _ => Deed::Say(reply.bytes()),
    });
    let sample = common::first_fault(settings, FaultKind::WrongStatus);
    assert_eq!((sample.url.as_str(), sample.fault.got.as_str()), ("denied.example:443", "200"));
}

#[test]
fn the_banger_verifies_what_it_knows_and_counts_the_rest() {
    let server = Server::start(workload("fixed-1k"), |request, mut reply| {
        if request.target.ends_with("/l/0/0/7.bin") {
            reply.body[5] ^= 1;
        }
        if request.target == "/elsewhere" {
            reply.status = "404 Not Found".into();
        }
        Deed::Say(reply.bytes())
    });
    let url = |path: &str| BangTarget::Url(format!("http://{}{path}", server.address));
    let mut targets: Vec<_> =
        (0..50).map(|number| url(&format!("/l/0/0/{number:x}.bin"))).collect();
    targets.extend([url("/elsewhere"), BangTarget::Url("ftp://nowhere/".into())]);
    for keep_alive in [false, true] {
        let mut bang = Bang::new(Route::Direct);
        bang.connections_max = 5;
        bang.keep_alive = keep_alive;
        let (workload, origins) = (workload("fixed-1k"), vec![server.address]);
        bang.world = Some(BangWorld { workload, seed: SEED, origins });
        let mut records = 0;
        let report = bang.run(targets.iter().cloned(), &mut |record| {
            records += 1;
            assert_eq!(record.fault.is_some(), record.url.ends_with("/7.bin"), "{record:?}");
            true
        });
        let report = report.unwrap();
        assert_eq!((records, report.requests, report.answers, report.verified), (51, 51, 50, 49));
        assert_eq!((report.statuses[&200], report.statuses[&404], report.unusable), (49, 1, 1));
        assert_eq!((report.faults[&FaultKind::WrongByte], report.service.count()), (1, 50));
        assert_eq!(report.fault_samples[0].fault.offset, Some(5));
        assert!(report.first_unusable.unwrap().starts_with("\"ftp://nowhere/\""));
    }
}

#[test]
fn the_banger_shuffles_as_the_seed_says_and_never_has_too_many_connections() {
    let server = Server::start(workload("fixed-1k"), |_, reply| Deed::Say(reply.bytes()));
    let order = |seed| {
        let mut bang = Bang::new(Route::Direct);
        (bang.order, bang.connections_max) = (BangOrder::Shuffled { seed }, 1);
        let urls = (0..40).map(|number| {
            BangTarget::Url(format!("http://{}/l/0/0/{number:x}.bin", server.address))
        });
        let mut order = Vec::new();
        bang.run(urls, &mut |record| {
            order.push(record.url.to_string());
            true
        })
        .unwrap();
        order
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn the_banger_ends_by_itself_in_silence_and_early_if_told_to() {
    let server = Server::start(workload("fixed-1k"), |_, _| Deed::Silence);
    let url = format!("http://{}/l/0/0/1.bin", server.address);
    let mut bang = Bang::new(Route::Direct);
    bang.timeout_s = 0.1;
    let report =
        bang.run(std::iter::repeat_n(BangTarget::Url(url.clone()), 70), &mut |_| true).unwrap();
    assert_eq!((report.requests, report.faults[&FaultKind::TimedOut]), (70, 70));
    let report = bang.run(std::iter::repeat(BangTarget::Url(url)), &mut |_| false).unwrap();
    assert!(report.requests <= 126, "{}", report.requests);
}

#[test]
fn plans_that_contradict_themselves_are_refused_in_one_line() {
    let address = "127.0.0.1:1".parse().unwrap();
    let right = plan("fixed-1k", address, 1.0);
    let spoil: [fn(&mut RobotsPlan); 6] = [
        |plan| plan.origins.clear(),
        |plan| plan.threads = 0,
        |plan| plan.first_world = 1,
        |plan| plan.time_scale = f64::NAN,
        |plan| plan.timeout_s = 0.0,
        |plan| plan.connections_max = 0,
    ];
    for spoil in spoil {
        let mut wrong = right.clone();
        spoil(&mut wrong);
        let message = Robots::start(wrong).unwrap_err().to_string();
        assert!(message.starts_with("robots: ") && !message.contains('\n'), "{message}");
    }
    let mut wrong = right;
    wrong.cores = vec![1_000];
    assert!(Robots::start(wrong).unwrap_err().to_string().contains("pin a thread"));
}
