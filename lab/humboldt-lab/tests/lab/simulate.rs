//! Policies on traces, from the command line.

use crate::support::{Lab, folder, lab, shared, write};

/// Objects of 10 bytes: with room for three, LRU hits the second `a` and the second `b`, and
/// Belady's rule one more.
const TRACE: &str =
    "time,key,size\n1,a,10\n2,b,10\n3,c,10\n4,a,10\n5,d,10\n6,c,10\n7,a,10\n8,b,10\n9,b,10\n";

/// Policy, hits and hit bytes of each line of the program's CSV.
fn hits(csv: &str) -> Vec<(String, u64, u64)> {
    let lines = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let number = |text: &str| text.parse().expect("a number");
    lines.map(|fields| (fields[0].to_owned(), number(fields[3]), number(fields[5]))).collect()
}

#[test]
fn a_tiny_trace_has_the_answers_that_one_finds_by_hand() {
    let _machine = shared();
    let own = folder();
    let trace = write(own.path(), "t.csv", TRACE);
    let words = ["simulate", &trace, "--size", "30", "--policy", "lru", "--csv", "-"];
    let found = hits(&lab(words).with(0).out);
    // LRU: a at 4, c at 6, a at 7, b at 9. The optimum does not store d, and has b at 8 too.
    assert_eq!(found, [("lru".to_owned(), 4, 40), ("MIN".to_owned(), 5, 50)]);
    let table = lab(["simulate", &trace, "--size", "30,50%", "--policy", "lru,gdsf"]).with(0).out;
    for words in [
        "9, 90 bytes",
        "4 different ones, 40 bytes",
        "44.44 %",
        "55.56 %",
        "50 %: 20 bytes",
        "heap GDSF",
    ] {
        assert!(table.contains(words), "`{words}` is not in: {table}");
    }
}

#[test]
fn a_trace_that_passes_by_once_gives_the_same_as_one_that_is_kept() {
    let _machine = shared();
    let own = folder();
    let recipe =
        ["simulate", "--generate", "once:objects=2e3,requests=1e5", "--size", "1MB", "--csv", "-"];
    let kept = hits(&lab(recipe).with(0).out);
    let once = hits(&lab(recipe.into_iter().chain(["--no-optimum"])).with(0).out);
    assert_eq!((kept.len(), once.len()), (7, 6));
    for (a, b) in kept.iter().zip(&once) {
        // Hashes of other names: what is estimated differs by chance.
        let is_near = a.1.abs_diff(b.1) * 50 < a.1;
        assert!(
            a.0 == b.0 && if a.0 == "tinylfu" || a.0 == "s3fifo" { is_near } else { a.1 == b.1 },
            "{a:?} {b:?}"
        );
    }
    let trace = write(own.path(), "t.csv", TRACE);
    let words = ["--size", "30", "--csv", "-"];
    let from_file = lab(["simulate", &trace].into_iter().chain(words)).with(0).out;
    let input = Lab::start_with_input(["simulate", "-"].into_iter().chain(words), TRACE).end();
    assert_eq!(hits(&from_file), hits(&input.with(0).out));
}

#[test]
fn results_for_other_programs() {
    let _machine = shared();
    let own = folder();
    let trace = write(own.path(), "t.csv", TRACE);
    let json = own.path().join("r.json").display().to_string();
    let done = lab(["simulate", &trace, "--size", "30", "--json", &json]).with(0);
    assert!(done.out.contains("s3fifo") && done.err.is_empty(), "{done:?}");
    let text = std::fs::read_to_string(&json).expect("written");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (value["requests"].as_u64(), value["results"][0]["hits"].as_u64()),
        (Some(9), Some(4))
    );
    assert_eq!(value["results"].as_array().map(Vec::len), Some(7));
}

#[test]
fn mistakes_are_named_with_their_place() {
    let _machine = shared();
    let own = folder();
    let simulate = |words: &[&str]| lab(["simulate"].iter().chain(words)).with(2);
    simulate(&["/nowhere/trace"]).says(&["/nowhere/trace", "cannot read it"]);
    let bad = write(own.path(), "bad.csv", &TRACE.replace("3,c,10", "3;c;10"));
    simulate(&[&bad]).says(&["bad.csv", "line 4", "3;c;10", "--skip-bad"]);
    lab(["simulate", &bad, "--skip-bad"]).with(0);
    let empty = write(own.path(), "empty.log", "\n\n");
    simulate(&[&empty]).says(&["empty.log", "no requests"]);
    let short = write(own.path(), "short.oracle", &"\u{1}".repeat(30));
    simulate(&[&short]).says(&["short.oracle", "record 2", "6 bytes"]);
    assert!(simulate(&[&bad, "--policy", "arc"]).err.contains("tinylfu"));
    assert!(simulate(&[&bad, "--size", "0"]).err.contains("64MB"));
    assert!(simulate(&["--generate", "zipf:alfa=1"]).err.contains("alpha"));
    assert!(simulate(&[]).err.contains("TRACE"));
}
