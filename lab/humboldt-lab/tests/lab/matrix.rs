//! `humboldt-lab run`: many runs from one file, which go on where they were interrupted.

use crate::support::{Lab, Relay, folder, lab, run_in, shared, write};
use humboldt_lab_record::Outcome;
use rustix::process::Signal;

fn file(relay: &Relay) -> String {
    let url = relay.url();
    format!(
        "title = 'Two relays'\n[common]\nattach = '{url}'\nworkload = 'fixed-1k'\nno-calibration = true\n\
         load = 100\ntime-scale = 0.1\nsample = '5s'\ntime-max = '2s'\n[axes]\nvariant = ['one', 'two']\n"
    )
}

#[test]
fn a_matrix_goes_on_where_it_was_interrupted() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let own = folder();
    let path = write(own.path(), "two.toml", &file(&relay));
    let out = own.path().join("two");

    let plan = lab(["run", &path, "--dry-run"]).with(0).out;
    assert!(plan.contains("one") && plan.contains("two") && plan.contains("2 runs"), "{plan}");
    assert!(!out.exists(), "a dry run writes nothing");

    let mut matrix = Lab::start(["run", &path]);
    matrix.until_says("=== run 2 of 2");
    matrix.signal(Signal::INT);
    let done = matrix.end().with(130);
    assert_eq!(done.complaint(), "interrupted");
    let first = run_in(&out.join("one"));
    assert_eq!(first.outcome, Outcome::TimeUp);

    let again = lab(["run", &path]).with(0).out;
    assert!(!again.contains("run 1 of 2") && again.contains("run 2 of 2"), "{again}");
    assert_eq!(
        run_in(&out.join("one")).started_s,
        first.started_s,
        "the first run is not repeated"
    );
    assert_eq!(run_in(&out.join("two")).outcome, Outcome::TimeUp);
    let page = std::fs::read_to_string(out.join("index.html")).expect("the matrix page");
    assert!(page.contains("Two relays") && page.contains("one") && page.contains("two"));

    let third = lab(["run", &path]).with(0).out;
    assert!(!third.contains("=== run"), "nothing is left to do: {third}");
}

#[test]
fn a_trial_is_never_taken_for_a_measurement() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let own = folder();
    // Its first sample fills it, so that a trial is over long before its time.
    let text = file(&relay).replace("['one', 'two']\n", "['one']\nfill = [0.00001]\n");
    let path = write(own.path(), "one.toml", &text);
    let out = own.path().join("one");

    for time in ["first", "second"] {
        let trial = lab(["run", &path, "--trial"]).with(0).out;
        assert!(trial.contains("=== run 1 of 1"), "the {time} time too: {trial}");
    }
    let folders = |folder: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders.map(|entry| entry.file_name().into_string().expect("plain")).collect()
    };
    assert_eq!(folders(&out), ["trial"], "it leaves nothing beside its own folder");
    let real = lab(["run", &path]).with(0).out;
    assert!(real.contains("=== run 1 of 1"), "{real}");
    assert_eq!(folders(&out).len(), 2);
}

#[test]
fn runs_with_other_options_are_not_kept() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let own = folder();
    let path = write(own.path(), "two.toml", &file(&relay));
    lab(["run", &path]).with(0);
    let first = run_in(&own.path().join("two/one")).started_s;

    write(own.path(), "two.toml", &file(&relay).replace("time-max = '2s'", "time-max = '1s'"));
    let refused = lab(["run", &path]).with(2);
    refused.says(&["two/one", "--time-max=2s", "--time-max=1s", "--out"]);
    assert!(!refused.out.contains("=== run"), "{}", refused.out);
    assert_eq!(run_in(&own.path().join("two/one")).started_s, first, "it stays");

    let text = file(&relay).replace("load = 100", "first-load = 100\nload = 100");
    write(own.path(), "two.toml", &text);
    lab(["run", &path]).with(0);
}

#[test]
fn a_session_begins_no_run_that_may_end_after_it() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let own = folder();
    let text = file(&relay).replace("title", "session = '3s'\ntitle");
    let path = write(own.path(), "two.toml", &text);
    let out = own.path().join("two");

    let plan = lab(["run", &path, "--dry-run"]).with(0).out;
    assert!(plan.contains("in sessions of at most"), "{plan}");
    let first = lab(["run", &path]).with(3);
    first.says(&["1 of 2 runs are left to a later session"]);
    assert_eq!(run_in(&out.join("one")).outcome, Outcome::TimeUp, "no session without a run");
    assert!(!out.join("two").exists(), "the second may end after the session");
    assert!(out.join("index.html").exists(), "the page has the runs so far");

    let second = lab(["run", &path, "--session", "1h"]).with(0).out;
    assert!(!second.contains("run 1 of 2") && second.contains("run 2 of 2"), "{second}");
}

#[test]
fn a_run_that_fails_does_not_stop_the_others() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let own = folder();
    let url = relay.url();
    let text = format!(
        "title = 'T'\n[common]\nworkload = 'fixed-1k'\nno-calibration = true\nload = 100\ntime-scale = 0.1\n\
         sample = '5s'\ntime-max = '1s'\n[[run]]\nattach = 'http://127.0.0.1:1'\n[[run]]\nattach = '{url}'\n"
    );
    let path = write(own.path(), "mixed.toml", &text);
    let done = lab(["run", &path]).with(1);
    done.says(&["1 of 2 runs failed"]);
    assert!(done.out.contains("failed: ") && done.out.contains("127.0.0.1:1"), "{}", done.out);
}

#[test]
fn mistakes_in_the_file_are_named() {
    let _machine = shared();
    let own = folder();
    let message = |name: &str, text: &str| {
        let path = write(own.path(), name, text);
        let done = lab(["run", &path]).with(2);
        done.says(&[name]);
        done.complaint().to_owned()
    };
    let axes = "title = 'T'\n[axes]\nsubject = ['nginx']\n";
    assert!(
        message("key.toml", &format!("{axes}[common]\nfile-system = 'xfs'\n"))
            .contains("file-system")
    );
    assert!(message("value.toml", &format!("{axes}[common]\nfill = 'often'\n")).contains("often"));
    assert!(message("field.toml", &format!("repeat = 2\n{axes}")).contains("repeat"));
    assert!(message("broken.toml", "title = 'T\n").contains("broken.toml"));
    let twice = "title = 'T'\n[[run]]\nsubject = 'nginx'\n[[run]]\nsubject = 'nginx'\n";
    assert!(message("twice.toml", twice).contains("twice"));
    // Found before anything runs, not after hours.
    let late = format!("{axes}[[run]]\nsubject = 'no-such-subject'\n");
    assert!(message("late.toml", &late).contains("no-such-subject"));
}

#[test]
fn a_published_experiment_is_computed_again_from_its_samples() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let own = folder();
    let path = write(own.path(), "two.toml", &file(&relay));
    let published = own.path().join("published");
    let to = published.display().to_string();
    lab(["run", &path, "--publish", &to]).with(0);
    lab(["recompute", &to]).with(0);

    let run = run_in(&published.join("runs/one"));
    let origin = &run.manifest.provenance;
    assert!(origin.command.contains("run") && origin.lab.sha256.len() == 64, "{origin:?}");
    assert!(origin.run_command.as_ref().is_some_and(|line| line.contains("--load=100")));
    assert!(origin.machine.processors > 0 && origin.workload_sha256.len() == 64, "{origin:?}");
    assert!(run.samples.iter().skip(1).all(|sample| sample.steal.is_some()), "it looked");
    let page = std::fs::read_to_string(published.join("index.md")).expect("the page");
    assert!(page.contains("(runs/one/summary.md)") && page.contains(&origin.machine.kernel[..4]));

    // The whole report of a run can be made again, too.
    lab(["report", &published.join("runs/one").display().to_string()]).with(0);
    assert!(published.join("runs/one/report.html").exists());

    let summary = published.join("runs/two/summary.json");
    let text = std::fs::read_to_string(&summary).expect("the summary");
    let known = "\"hit_ratio\":";
    let at = text.rfind(known).expect("a figure") + known.len();
    let end = at + text[at..].find(',').expect("more figures");
    std::fs::write(&summary, format!("{}0.5{}", &text[..at], &text[end..])).expect("a file");
    let done = lab(["recompute", &to]).with(1);
    let wrong = "runs/two/summary.json, row 1, column summary.";
    assert!(done.out.contains(wrong) && done.out.contains("`0.5`"), "{}", done.out);
    assert!(done.out.contains("index.csv, row 3, column "), "{}", done.out);

    std::fs::remove_file(published.join("experiment.json")).expect("it was there");
    lab(["recompute", &to]).with(2).says(&["published without samples"]);
}
