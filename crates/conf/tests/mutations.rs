//! No text makes the parser or the rendering of its messages panic.

use proptest::prelude::*;

use humboldt_conf::{Severity, directives, parse_str};

/// Lines that between them reach every kind of value.
const SEEDS: &str = include_str!("fixtures/everything.conf");

fn check(text: &str) {
    let (_, diagnostics) = parse_str("t", text);
    let _ = diagnostics.has_errors();
    assert!(diagnostics.render(false).len() < 1 << 24);
    let _ = diagnostics.render_from(true, Severity::Warning);
    // An `include` of a pattern may have found other files, with lengths of their own.
    for found in diagnostics.iter().filter(|found| found.file == "t") {
        assert!(found.span.end <= text.len().max(found.span.start), "{found:?}");
    }
}

/// Words that make lines reach deep into the parsers.
fn word() -> impl Strategy<Value = String> {
    let names: Vec<String> = directives().map(|d| d.name.to_owned()).collect();
    let words = "allow deny all !all localhost on off none 10 MB 5 seconds 80% -1 -i +i [ ( \\ # \" ' \"x\" = a=b 10.0.0.0/8 \
                 ::1 [::1]:80 ufs null lru heap GDSF . 0 20% 4320 if else endif include true 1=1 ${process_number} \
                 parameters( parameters(\"/nonexistent\") src dst dstdomain port method url_regex all-of \
                 configuration_includes_quoted_values";
    prop_oneof![
        proptest::sample::select(names),
        proptest::sample::select(words.split(' ').map(str::to_owned).collect::<Vec<_>>()),
        ".{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text(text in "(?s).{0,400}") {
        check(&text);
    }

    #[test]
    fn lines_of_likely_words(lines in prop::collection::vec(prop::collection::vec(word(), 0..8), 0..12)) {
        let lines: Vec<String> = lines.into_iter().map(|words| words.join(" ")).collect();
        check(&lines.join("\n"));
    }

    #[test]
    fn a_good_file_with_damage(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<char>()), 1..20)
    ) {
        let mut text: Vec<char> = SEEDS.chars().collect();
        for (at, kind, c) in edits {
            let at = at.index(text.len());
            match kind {
                0 => { text.remove(at); }
                1 => text.insert(at, c),
                2 => text[at] = c,
                _ => text.insert(at, '\n'),
            }
            if text.is_empty() { return Ok(()); }
        }
        check(&text.into_iter().collect::<String>());
    }
}

/// Real files from the net with damage, when there are some (see `files.rs`).
#[test]
fn a_real_file_with_damage() {
    let Some(corpus) = std::env::var_os("HUMBOLDT_CORPUS") else { return };
    let mut seed = 1_u64;
    let mut next = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound.max(1)
    };
    for entry in std::fs::read_dir(std::path::Path::new(&corpus).join("squidconf")).expect("corpus")
    {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|ext| ext != "conf") {
            continue;
        }
        let bytes = std::fs::read(&path).expect("readable");
        let text: String = String::from_utf8_lossy(&bytes).chars().take(60_000).collect();
        check(&text);
        let mut damaged: Vec<char> = text.chars().collect();
        for _ in 0..damaged.len() / 50 {
            let at = next(damaged.len());
            match next(3) {
                0 => damaged[at] = char::from(next(256) as u8),
                1 => damaged[at] = '\n',
                _ => damaged.swap(at, at / 2),
            }
        }
        check(&damaged.into_iter().collect::<String>());
    }
}
