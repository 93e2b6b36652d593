//! Short runs of the real caches. A correct cache has no faults: the laboratory does not cry wolf.

use crate::support::{Lab, SHORT, Traces, folder, run_in, shared};
use humboldt_lab_record::Outcome;

fn measure(subject: &str) {
    let _machine = shared();
    let (ground, out) = (folder(), folder());
    let text =
        |folder: &tempfile::TempDir| folder.path().to_str().expect("a plain name").to_owned();
    let (ground_path, out_path) = (text(&ground), text(&out));
    let mut words =
        vec!["peak", subject, "--load", "150", "--time-max", "4s", "--cache-size", "40MB"];
    words.extend(SHORT);
    words.extend(["--ground", &ground_path, "--out", &out_path, "--memory", "16MB"]);
    if subject.starts_with("squid") || subject.starts_with("humboldt") {
        // Fewer folders are made sooner.
        words.extend(["--set", "l1_l2=4 16"]);
    }
    let mut run = Lab::start(words);
    run.until_sampled(out.path());
    let mut traces = Traces::of(ground.path());
    traces.note(&run.descendants());
    let done = run.end().with(0);
    traces.assert_none();
    let run = run_in(out.path());
    assert_eq!(run.outcome, Outcome::TimeUp);
    assert_eq!(
        run.total.faults_total(),
        0,
        "{subject}: {:?} {:#?}",
        run.total.faults,
        run.total.fault_samples
    );
    let answers = run.total.answers();
    assert!(answers > 300, "{subject}: {answers} answers\n{}", done.out);
    // The first seconds of a stream have few repeats; an ideal cache shows how many.
    let (plain, hits) = (run.total.hits.answers + run.total.misses.answers, run.total.hits.answers);
    let (measured, offered) =
        (hits as f64 / plain as f64, run.total.offered_hits as f64 / plain as f64);
    println!("{subject}: {measured:.3} hits, {offered:.3} offered, {answers} answers");
    assert!(measured <= offered + 0.01, "{subject}: {measured:.3} hits, {offered:.3} offered");
    assert!(measured > offered * 0.4, "{subject}: {measured:.3} hits, {offered:.3} offered");
    let resources = run.samples.iter().filter_map(|sample| sample.resources).next_back();
    assert!(
        resources.is_some_and(|used| used.resident_bytes > 1 << 20),
        "{subject}: {resources:?}"
    );
    // These have no way to say it that costs nothing; one has no store.
    let is_silent = ["nginx", "trafficserver", "humboldt:null"].contains(&subject);
    // A subject may be late with one of its pages.
    let stored = run.samples.iter().rev().find_map(|sample| sample.resources?.stored_bytes);
    assert_eq!(stored.is_none(), is_silent, "{subject}: {resources:?}");
    assert!(
        is_silent || subject == "squid:null" || stored > Some(1 << 16),
        "{subject}: {stored:?}"
    );
}

macro_rules! measured {
    ($($name:ident: $subject:literal)*) => {
        $(#[test]
        fn $name() {
            measure($subject);
        })*
    };
}

measured! {
    squid_without_a_disk: "squid:null"
    squid_ufs: "squid:ufs"
    squid_aufs: "squid:aufs"
    squid_diskd: "squid:diskd"
    squid_rock: "squid:rock"
    humboldt_without_a_disk: "humboldt:null"
    humboldt_ufs: "humboldt:ufs"
    nginx: "nginx"
    varnish: "varnish"
    traffic_server: "trafficserver"
}
