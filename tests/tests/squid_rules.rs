//! Rules beside real Squid: sets of rules and requests from a seed, on the same configuration, and
//! the verdicts of both programs compared.
//!
//! `HUMBOLDT_RULES_STARTS=200 HUMBOLDT_RULES_SEED=7` plays more of them, from another seed.

#[path = "squid_rules/generate.rs"]
mod generate;
#[path = "squid_rules/known.rs"]
mod known;
#[path = "squid_rules/meant.rs"]
mod meant;
#[path = "squid_rules/minimise.rs"]
mod minimise;
#[path = "squid_rules/pools.rs"]
mod pools;
#[path = "squid_rules/programs.rs"]
mod programs;
#[path = "squid_rules/requests.rs"]
mod requests;
#[path = "squid_rules/sets.rs"]
mod sets;
#[path = "squid_rules/unrelated.rs"]
mod unrelated;

use generate::Random;
use requests::{Case, Verdict};
use sets::RuleSet;
use std::collections::BTreeMap;

/// Sets of rules in one configuration: each has a port, and Squid has at most 128.
const SETS: usize = 60;

/// Requests for each set.
const REQUESTS: usize = 12;

/// Most differences that are made smaller and shown.
const SHOWN_MAX: usize = 6;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn rules_decide_as_squid_does() {
    if programs::squid().is_none() {
        eprintln!("squid is not installed: its rules are not compared (apt-get install squid)");
        return;
    }
    let (seed, starts) = (number("HUMBOLDT_RULES_SEED", 1), number("HUMBOLDT_RULES_STARTS", 1));
    let (mut differences, mut cases_played, mut refused) = (Vec::new(), 0, 0);
    for start in 0..starts {
        let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(start));
        let sets: Vec<(RuleSet, Vec<Case>)> =
            (0..SETS).map(|own| generate::set(&mut random, own, REQUESTS)).collect();
        let verdicts = programs::compare(&sets);
        for ((set, cases), verdicts) in sets.iter().zip(&verdicts) {
            for (case, pair) in cases.iter().zip(verdicts) {
                cases_played += 1;
                refused += usize::from(pair.0.is_refusal());
                if known::difference(set, case, pair) {
                    differences.push((set.clone(), case.clone(), pair.clone()));
                }
            }
        }
    }
    let most = number("HUMBOLDT_RULES_SHOWN", SHOWN_MAX as u64) as usize;
    eprintln!(
        "{cases_played} requests, {refused} of them refused by Squid, {} differ",
        differences.len()
    );
    assert!(
        refused > cases_played / 10 && refused < cases_played * 9 / 10,
        "the pools are one-sided"
    );
    show(&differences, most, |text| eprintln!("{text}"));
    assert!(differences.is_empty(), "seed {seed}: see above");
}

#[test]
fn differences_that_are_meant_are_as_they_are_written_down() {
    if programs::squid().is_none() {
        eprintln!("squid is not installed: its rules are not compared (apt-get install squid)");
        return;
    }
    let meant = meant::all();
    let sets: Vec<_> = meant.iter().map(|(set, cases, _)| (set.clone(), cases.clone())).collect();
    for ((set, cases, wanted), verdicts) in meant.iter().zip(programs::compare(&sets)) {
        let is_it = meant::is_as_meant(&verdicts[0], *wanted);
        assert!(is_it, "{wanted:?}, but {:?}\n{}{cases:?}", verdicts[0], set.text(0, 3128));
    }
}

/// Prints one difference of each sort in its smallest form, and how many of its sort there are.
fn show(differences: &[(RuleSet, Case, (Verdict, Verdict))], most: usize, say: fn(String)) {
    let sort = |(theirs, ours): &(Verdict, Verdict)| {
        format!("Squid {} | ours {}", theirs.sort(), ours.sort())
    };
    let mut sorts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, (_, _, pair)) in differences.iter().enumerate() {
        sorts.entry(sort(pair)).or_default().push(at);
    }
    for (sort, all) in &sorts {
        say(format!("{:5} {sort}", all.len()));
    }
    for all in sorts.values().take(most) {
        let (set, case, pair) = &differences[all[0]];
        say(match minimise::minimise(set, case, pair) {
            Some((set, case)) => format!(
                "--- Squid {:?}\n    ours  {:?}\n{}{case:?}",
                pair.0,
                pair.1,
                set.text(0, 3128)
            ),
            None => format!("--- did not come again: {pair:?} for {case:?}\n{}", set.text(0, 3128)),
        });
    }
}
