use super::parse;
use crate::script::{Act, Action, Piece, Scenario, Side, Wanted};

fn read(script: &str) -> Result<Scenario, String> {
    parse("a.hbt", &format!("# Idea\n{script}"))
}

fn fault(script: &str) -> String {
    read(script).expect_err(script)
}

#[test]
fn what_stands_above_the_script_is_read() {
    let scenario = read(
        "\n# more\nknown: not yet\naccelerator\nconfig\n    cache_mem 1 MB\n\n    # why\n    via off\n\nclient closes\n",
    )
    .unwrap();
    assert_eq!((scenario.title.as_str(), scenario.known.as_deref()), ("Idea", Some("not yet")));
    assert_eq!(scenario.config, "cache_mem 1 MB\nvia off\n");
    assert!(scenario.is_accelerator && !scenario.can_share() && scenario.stores() == 0);
    assert_eq!(scenario.steps[0].line, 12);
}

#[test]
fn who_ends_the_proxy_shares_it_with_nobody() {
    assert!(read("client closes\n").unwrap().can_share());
    assert!(!read("proxy restarts\n").unwrap().can_share());
    assert!(!read("proxy is killed\n").unwrap().can_share());
    assert!(!read("config\n cache_dir ufs {dir}/c 10 1 1\nclient closes\n").unwrap().can_share());
}

#[test]
fn a_party_may_have_a_label() {
    let scenario = read("client sends GET /a\nclient B closes\norigin 2 resets\n").unwrap();
    let parties: Vec<_> = scenario
        .steps
        .iter()
        .map(|step| match &step.action {
            Action::Wire { party, .. } => (party.side, party.label.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(parties, [(Side::Client, ""), (Side::Client, "B"), (Side::Origin, "2")]);
}

#[test]
fn trailers_go_behind_the_last_chunk() {
    let scenario = read(
        "origin sends 200\n    A: b\n    no Date\n    trailer T: 1\n    chunk \"x\"\n    last-chunk\n",
    );
    let Action::Wire { act: Act::Send(message), .. } = &scenario.unwrap().steps.remove(0).action
    else {
        panic!("a message");
    };
    assert_eq!(
        (message.fields.len(), message.without.as_slice()),
        (1, ["Date".to_owned()].as_slice())
    );
    assert!(matches!(message.pieces[..], [Piece::Chunk(_), Piece::LastChunk, Piece::Trailer(..)]));
}

#[test]
fn every_expectation_is_told_from_a_field() {
    let script = "client gets HTTP/1.1 200 OK\n A: 1\n no: 2\n B ~ x\n C !~ y z\n Age in 1..2\n no D\n no body\n \
                  body \"b\"\n body ~ \"b\"\n body size 3\n cut\n trailer T: 1\n no trailer U\n";
    let Action::Wire { act: Act::Get(expected), .. } =
        &read(script).unwrap().steps.remove(0).action
    else {
        panic!("an expectation");
    };
    assert!(
        matches!(
            &expected.wanted[..],
            [
                Wanted::Equals(..),
                Wanted::Equals(..),
                Wanted::Contains(..),
                Wanted::Lacks(..),
                Wanted::Between(_, 1, 2),
                Wanted::Absent(_),
                Wanted::BodySize(0),
                Wanted::Body(_),
                Wanted::BodyContains(_),
                Wanted::BodySize(3),
                Wanted::Cut,
                Wanted::Trailer(..),
                Wanted::NoTrailer(_)
            ]
        ),
        "{expected:?}"
    );
}

#[test]
fn steps_that_end_a_reading_have_their_words() {
    let script = "client gets end\nclient gets cut\nclient gets close\nclient gets raw \"x\"\nclient gets body\n  \"x\"\n  \"y\"\n";
    let steps = read(script).unwrap().steps;
    let acts: Vec<_> = steps
        .iter()
        .map(|step| match &step.action {
            Action::Wire { act, .. } => act,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        matches!(acts[..4], [Act::GetEnd(_), Act::GetCut, Act::GetClose, Act::GetRaw(_)]),
        "{acts:?}"
    );
    assert!(matches!(acts[4], Act::GetBody(texts) if texts.len() == 2), "{acts:?}");
}

#[test]
fn mistakes_are_told_with_file_and_line() {
    let title = parse("a.hbt", "client sends GET /a\n").unwrap_err();
    assert!(title.starts_with("a.hbt:1: the first line"), "{title}");
    for (script, line, part) in [
        ("", 1, "script is missing"),
        ("  body \"x\"\n", 2, "belongs to a line above"),
        ("known:\n", 2, "say why"),
        ("config\nclient closes\n", 2, "indented lines"),
        ("accelerator\n  x\n", 3, "no indented lines"),
        ("client closes\nknown: x\n", 3, "above the script"),
        ("server sends 200\n", 2, "no step"),
        ("proxy sleeps\n", 2, "no step"),
        ("logged\n", 2, "no step"),
        ("stored a\n", 2, "no step"),
        ("client 1 asks GET /a\n", 2, "verbs"),
        ("client closes now\n", 2, "nothing follows"),
        ("client closes\n\n  x\n", 4, "no indented lines"),
        ("client sends 200\n", 2, "no request"),
        ("client sends GET\n", 2, "no request"),
        ("origin sends GET /a\n", 2, "no answer"),
        ("origin sends 20\n", 2, "no answer"),
        ("origin sends 5xx\n", 2, "no answer"),
        ("client gets 6xx\n", 2, "no answer"),
        ("origin gets 200\n", 2, "no request"),
        ("client gets head GET /a\n", 2, "no answer"),
        ("client sends GET /a\n  Age in 0..5\n", 3, "cannot be sent"),
        ("client sends GET /a\n  body x\n", 3, "double quotes"),
        ("client sends GET /a\n  A: \\q\n", 3, "backslash"),
        ("client sends raw\n", 2, "double quotes"),
        ("client gets 200\n  Age in 5\n", 3, "range"),
        ("client gets 200\n  body size x\n", 3, "number of bytes"),
        ("client gets 200\n  chunk \"x\"\n", 3, "no expectation"),
        ("client gets 200\n  trailer T\n", 3, "trailer"),
        ("client gets 200\n  Date: date(x)\n", 3, "seconds"),
    ] {
        let fault = fault(script);
        assert!(
            fault.starts_with(&format!("a.hbt:{line}: ")) && fault.contains(part),
            "{script:?}: {fault}"
        );
    }
}
