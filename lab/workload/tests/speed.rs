//! What the hot paths cost.
//! `cargo test --release -p humboldt-lab-workload --test speed -- --ignored --nocapture`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use humboldt_lab_workload::{AskKind, ObjectName, Stream, Workload};

/// Many rounds well below a scheduler's time slice: the best one had the core for itself.
const ROUNDS: u32 = 300;

/// Best of all rounds, in ns per call.
fn best_ns(calls: u32, mut round: impl FnMut()) -> f64 {
    let one_round = |round: &mut dyn FnMut()| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
    };
    (0..ROUNDS).map(|_| one_round(&mut round)).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "a measurement, not a test"]
fn bodies() {
    let workload = Workload::builtin("polymix-4").unwrap().unwrap();
    let name = ObjectName { world: 0, kind: 0, number: 1, size: None };
    let key = workload.facts(1, &name).body(1);
    for (len, offset) in [
        (64 << 10, 0),
        (64 << 10, 12_345),
        (13 << 10, 0),
        (13 << 10, 3),
        (1 << 10, 0),
        (1 << 10, 7),
    ] {
        let mut buffer = vec![0; len + 1];
        // The second buffer address is odd.
        for from in [0, 1] {
            let calls = u32::try_from((1 << 20) / len).unwrap();
            let fill = best_ns(calls, || {
                for _ in 0..calls {
                    black_box(&key).fill(offset, black_box(&mut buffer[from..from + len]));
                }
            });
            key.fill(offset, &mut buffer[from..from + len]);
            let check = best_ns(calls, || {
                for _ in 0..calls {
                    assert!(
                        black_box(&key).check(offset, black_box(&buffer[from..from + len])).is_ok()
                    );
                }
            });
            let gb_per_s = |ns: f64| len as f64 / ns;
            println!(
                "{len:6} B at offset {offset:5}, address +{from}: fill {:5.1} GB/s, check {:5.1} GB/s",
                gb_per_s(fill),
                gb_per_s(check)
            );
        }
    }
}

#[test]
#[ignore = "a measurement, not a test"]
fn names_and_facts() {
    let workload = Workload::builtin("polymix-4").unwrap().unwrap();
    for kind in 0..4 {
        let ns = best_ns(2_000, || {
            for number in 0..2_000 {
                black_box(
                    workload
                        .facts(1, &black_box(ObjectName { world: 0, kind, number, size: None })),
                );
            }
        });
        println!("facts of a {:8}: {ns:.0} ns", workload.types()[usize::from(kind)].name);
    }
    let facts = workload.facts(1, &ObjectName { world: 0, kind: 0, number: 1, size: None });
    let ns = best_ns(2_000, || {
        for at in 0..2_000 {
            black_box(facts.version_at(black_box(1_700_000_000_000_000 + at)));
        }
    });
    println!("version_at: {ns:.0} ns");
    let mut path = Vec::new();
    let ns = best_ns(2_000, || {
        for number in 0..2_000 {
            path.clear();
            ObjectName { world: 0, kind: 0, number: number << 20, size: None }
                .write_path(&workload, &mut path);
            black_box(ObjectName::parse(black_box(&path)));
        }
    });
    println!("write and parse a path: {ns:.0} ns");
}

#[test]
#[ignore = "a measurement, not a test"]
fn streams() {
    for name in Workload::builtin_names() {
        let workload = Arc::new(Workload::builtin(name).unwrap().unwrap());
        let working_set = workload.working_set_objects(1 << 30);
        let mut stream = Stream::new(Arc::clone(&workload), 1, 0, 1, working_set);
        let mut asks = Vec::with_capacity(10_000);
        let ns_per_visit = best_ns(1_000, || {
            asks.clear();
            for _ in 0..1_000 {
                stream.next_visit(&mut asks);
            }
        });
        let plain =
            asks.iter().filter(|ask| ask.kind == AskKind::Plain).count() as f64 / asks.len() as f64;
        println!(
            "{name}: {ns_per_visit:.0} ns per visit of {:.3} requests, {:.1} % plain, mean {:.0} B, \
             {:.2} % cachable, working set for 1 GB {working_set}",
            stream.mean_asks_per_visit(),
            plain * 100.0,
            workload.mean_object_bytes(),
            workload.cachable_share() * 100.0,
        );
        println!("    {:?}", workload.ideal(1, 300_000, working_set));
    }
}
