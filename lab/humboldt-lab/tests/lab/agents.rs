//! Load machines: the same experiment, spread over several processes.

use crate::support::{Lab, SHORT, Traces, folder, lab, run_in, shared};
use humboldt_lab_record::Outcome;
use rustix::process::Signal;
use tempfile::TempDir;

/// An agent on a free port, and its address.
fn agent(more: &[&str]) -> (Lab, String) {
    let words = ["agent", "--listen", "127.0.0.1:0", "--once", "--lab-cores", "0"];
    let mut agent = Lab::start(words.into_iter().chain(more.iter().copied()));
    let line = agent.until_says("waiting for a laboratory on ");
    let address = line.rsplit(' ').next().expect("an address").to_owned();
    (agent, address)
}

/// The words of a short measurement by these agents.
fn peak<'a>(
    agents: &'a str,
    ground: &'a TempDir,
    out: &'a TempDir,
    more: &[&'a str],
) -> Vec<&'a str> {
    let path = |folder: &'a TempDir| folder.path().to_str().expect("a plain name");
    let mut words = vec!["peak", "humboldt:null", "--workload", "fixed-1k", "--agents", agents];
    words.extend(["--out", path(out), "--ground", path(ground)]);
    words.extend(SHORT);
    words.extend_from_slice(more);
    words
}

#[test]
fn two_agents_are_one_load() {
    let _machine = shared();
    let ((first, one), (second, two)) = (agent(&["--token", "open"]), agent(&["--token", "open"]));
    let (ground, out) = (folder(), folder());
    let agents = format!("{one},{two}");
    let more = ["--token", "open", "--load", "300", "--time-max", "4s"];
    lab(peak(&agents, &ground, &out, &more)).with(0);
    first.end().with(0);
    second.end().with(0);
    let run = run_in(out.path());
    let seconds = run.total.period_us as f64 / 1e6;
    let (due_per_s, answered_per_s) =
        (run.total.due as f64 / seconds, run.total.answers() as f64 / seconds);
    assert!((200.0..400.0).contains(&due_per_s), "{due_per_s} due per second");
    assert!((200.0..400.0).contains(&answered_per_s), "{answered_per_s} answers per second");
    assert_eq!(run.samples[0].tally.threads, 2, "one thread of each agent");
    assert_eq!(run.samples[0].origin.threads, 2);
    assert!(
        run.samples
            .iter()
            .all(|sample| sample.origin.requests > 0 || sample.tally.misses.answers == 0)
    );
    assert_eq!(run.total.faults_total(), 0, "{:?}", run.total.fault_samples.first());
    Traces::of(ground.path()).assert_none();
}

#[test]
fn agents_speak_tls_through_tunnels() {
    let _machine = shared();
    let ((first, one), (second, two)) = (agent(&[]), agent(&[]));
    let (ground, out) = (folder(), folder());
    let agents = format!("{one},{two}");
    let more = ["--tls", "tunnel", "--load", "100", "--time-max", "3s"];
    lab(peak(&agents, &ground, &out, &more)).with(0);
    first.end().with(0);
    second.end().with(0);
    let run = run_in(out.path());
    assert_eq!(run.total.faults_total(), 0, "{:#?}", run.total.fault_samples);
    assert!(run.total.answers() > 100, "{:?}", run.total);
    assert!(run.total.handshakes.full > 0, "{:?}", run.total.handshakes);
    assert_eq!(run.total.hits.answers, 0, "a proxy cannot store what it cannot read");
    assert_eq!(run.samples[0].origin.threads, 2, "the servers of both agents");
}

#[test]
fn a_wrong_secret_opens_nothing() {
    let _machine = shared();
    let (agent, address) = agent(&["--token", "s3same"]);
    let done = lab([
        "peak",
        "humboldt:null",
        "--no-calibration",
        "--agents",
        &address,
        "--token",
        "guess",
    ]);
    done.says(&[&address, "--token"]);
    assert!(!done.complaint().contains("s3same"), "the secret is nobody's to read: {done:?}");
    agent.end().with(0);
    lab(["peak", "humboldt:null", "--no-calibration", "--agents", &address])
        .with(2)
        .says(&[&address, "agent"]);
}

#[test]
fn an_agent_that_dies_ends_the_run_and_what_was_measured_is_kept() {
    let _machine = shared();
    let ((first, one), (second, two)) = (agent(&[]), agent(&[]));
    let (ground, out) = (folder(), folder());
    let agents = format!("{one},{two}");
    let more = ["--load", "200", "--time-max", "50s"];
    let mut run = Lab::start(peak(&agents, &ground, &out, &more));
    run.until_sampled(out.path());
    let mut traces = Traces::of(ground.path());
    traces.note(&run.descendants());
    second.signal(Signal::KILL);
    run.end().with(1).says(&[&two]);
    traces.assert_none();
    let run = run_in(out.path());
    assert!(!run.samples.is_empty());
    assert!(
        matches!(&run.outcome, Outcome::Failed(why) if why.contains(&two)),
        "{:?}",
        run.outcome
    );
    // The other one is free again.
    first.end().with(0);
}

#[test]
fn an_agent_can_be_interrupted_while_it_works() {
    let _machine = shared();
    let (agent, address) = agent(&[]);
    let (ground, out) = (folder(), folder());
    let more = ["--load", "100", "--time-max", "50s"];
    let mut run = Lab::start(peak(&address, &ground, &out, &more));
    run.until_sampled(out.path());
    agent.signal(Signal::INT);
    agent.end().with(0);
    run.end().with(1).says(&[&address]);
}
