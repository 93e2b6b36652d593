//! The codec beside hyper's: both read the same bytes in the same pieces.
//!
//! Both tokenise heads with `httparse`, so this tests framing, our additional refusals, and bodies.
//! `HUMBOLDT_FUZZ_CASES=10000000` for more cases (80,000 a second), `HUMBOLDT_FUZZ_SEED=7` for
//! others.

#[path = "differential/check.rs"]
mod check;
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/known.rs"]
mod known;
#[path = "differential/ours.rs"]
mod ours;
#[path = "differential/reading.rs"]
mod reading;
#[path = "differential/theirs.rs"]
mod theirs;

use humboldt_base::rng::Rng;
use known::{LATER, LAXER, STRICTER};
use reading::Verdict;
use std::collections::BTreeMap;

const CASES: u64 = 100_000;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |value| value.parse().expect("a number"))
}

/// One of each class that was seen: how often, and the shortest.
type Classes = BTreeMap<String, (u64, u8, Vec<u8>)>;

fn play(cases: u64, seed: u64) -> (Classes, Classes) {
    let mut rng = Rng::new(seed);
    let (mut seen, mut findings) = (Classes::new(), Classes::new());
    for _ in 0..cases {
        let (selector, bytes) = generate::case(&mut rng);
        let verdict = check::check(selector, &bytes);
        let classes = if known::is_known(&verdict) { &mut seen } else { &mut findings };
        let class =
            classes.entry(format!("{verdict:?}")).or_insert_with(|| (0, selector, bytes.clone()));
        class.0 += 1;
        if bytes.len() < class.2.len() {
            (class.1, class.2) = (selector, bytes);
        }
    }
    (seen, findings)
}

#[test]
fn both_readers_agree_or_differ_for_a_known_reason() {
    let cases = from_environment("HUMBOLDT_FUZZ_CASES", CASES);
    let (seen, findings) = play(cases, from_environment("HUMBOLDT_FUZZ_SEED", 1));
    let listed: Vec<String> = findings
        .iter()
        .map(|(class, (count, selector, bytes))| {
            format!("{count} × {class}: ({selector}, b\"{}\")", bytes.escape_ascii())
        })
        .collect();
    assert!(findings.is_empty(), "{}", listed.join("\n"));
    // A reason for a difference that no longer occurs is wrong, and cases that neither reader
    // accepts show nothing.
    if cases >= CASES {
        let wanted = [
            (STRICTER, Verdict::Stricter as fn(String) -> Verdict),
            (LAXER, Verdict::Laxer),
            (LATER, Verdict::Later),
        ];
        let unseen = wanted.iter().flat_map(|(table, verdict)| {
            table.iter().map(|(class, _)| format!("{:?}", verdict((*class).to_owned())))
        });
        let unseen: Vec<String> = unseen.filter(|class| !seen.contains_key(class)).collect();
        assert!(unseen.is_empty(), "not seen in {cases} cases: {unseen:?}");
    }
    let same = seen.get("Same").map_or(0, |class| class.0);
    assert!(same > cases / 2, "{same} of {cases} are read the same");
}

/// Cases by hand: a difference of each kind, and former differences.
const CASES_BY_HAND: &[(u8, &str, &str)] = &[
    (6, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "Same"),
    (
        14,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
        "Same",
    ),
    (6, "HTTP/1.1 200 OK\r\n\r\nhello", "Same"),
    (4, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "Same"),
    (
        8,
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: b\r\n\r\n",
        "Same",
    ),
    (
        0,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Stricter(\"head: AmbiguousLength\")",
    ),
    (0, "GET / HTTP/2", "Later(\"head: invalid HTTP version parsed\")"),
    (0, "GET /` HTTP/1.1\r\nHost: a\r\n\r\n", "Laxer(\"head: invalid URI\")"),
    // hyper takes no Connection with such a byte and would close; the message before it is the
    // same.
    (0, "GET / HTTP/1.0\r\nConnection: keep-alive, \u{e9}\r\n\r\nGET /b HTTP/1.0\r\n\r\n", "Same"),
];

/// More chunks in one piece than hyper hands over in one go.
#[test]
fn a_hundred_chunks_at_once() {
    let text = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        "5\r\nhello\r\n".repeat(100)
    );
    assert_eq!(check::check(6, text.as_bytes()), Verdict::Same);
}

#[test]
fn cases_by_hand() {
    for (selector, text, wanted) in CASES_BY_HAND {
        let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
        let verdict = check::check(*selector, &bytes);
        assert_eq!(format!("{verdict:?}"), *wanted, "{text:?}");
        assert!(known::is_known(&verdict), "{text:?}");
    }
}
