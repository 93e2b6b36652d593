//! Lists of regular expressions, one of which must match.

use humboldt_conf::{regex_literal, translate_regex as translate};
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

use crate::error::AclProblem;
use crate::literals::{LITERAL_BYTES_MAX, Literals};
use crate::required::{Required, required};

/// Lists up to this length keep their expressions apart, each behind a cheap test.
const MAX_SEPARATE: usize = 8;

/// This many expressions of longer lists become one automaton.
const MERGED: usize = 500;

/// Bound on the memory of one compiled expression, bytes.
const MAX_COMPILED_BYTES: usize = 64 << 20;

/// Compiled values of an ACL whose values are regular expressions.
#[derive(Debug)]
pub(crate) struct RegexList {
    /// Those of a longer list that are nothing but text: there may be a million.
    literals: Option<Literals>,
    others: Vec<Gated>,
}

#[derive(Debug)]
struct Gated {
    gate: Gate,
    regex: Regex,
}

/// A condition without which the expression cannot match.
#[derive(Debug)]
enum Gate {
    Open,
    StartsWith {
        text: Box<[u8]>,
        ignore_case: bool,
    },
    Contains {
        /// The byte of the text that is least to be expected: without it there is no need to
        /// search.
        rarest: u8,
        finder: Box<Finder<'static>>,
    },
}

/// Bytes of URLs, the most frequent ones first; all others are rarer.
const FREQUENT: &[u8] = b"/et.aosicnrpmlhdwu:g0-1bf2_3=4y5&678v9k?%xjz";

/// The byte of a text that is the rarest in URLs.
fn rarest(text: &[u8]) -> Option<u8> {
    let rank = |byte: &u8| memchr::memchr(*byte, FREQUENT).unwrap_or(FREQUENT.len());
    text.iter().copied().max_by_key(rank)
}

/// One expression as configured.
struct Pattern<'a> {
    text: &'a str,
    ignore_case: bool,
}

impl RegexList {
    /// Compiles the values; `-i` and `+i` among them switch case-insensitivity on and off for those
    /// that follow.
    pub(crate) fn compile(values: &[String]) -> Result<Self, AclProblem> {
        let mut ignore_case = false;
        let mut patterns = Vec::with_capacity(values.len());
        for value in values {
            match value.as_str() {
                "-i" => ignore_case = true,
                "+i" => ignore_case = false,
                text => patterns.push(Pattern { text, ignore_case }),
            }
        }
        let mut literals = None;
        if patterns.len() > MAX_SEPARATE {
            literals = take_literals(&mut patterns)?;
        }
        Ok(Self { literals, others: compile_others(&patterns)? })
    }

    /// Whether one matches a host as URLs have it: an IPv6 address in brackets.
    pub(crate) fn is_match_of_host(&self, host: &[u8]) -> bool {
        match host.contains(&b':') {
            true => self.is_match(&[b"[", host, b"]"].concat()),
            false => self.is_match(host),
        }
    }

    /// Whether one of them matches somewhere in `text`.
    #[inline]
    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.literals.as_ref().is_some_and(|literals| literals.occur_in(text))
            || self.others.iter().any(|part| part.gate.admits(text) && part.regex.is_match(text))
    }
}

/// Takes those out of the list that are nothing but text.
fn take_literals(patterns: &mut Vec<Pattern<'_>>) -> Result<Option<Literals>, AclProblem> {
    let mut texts = Vec::new();
    patterns.retain(|pattern| {
        let text = regex_literal(pattern.text).filter(|text| text.len() <= LITERAL_BYTES_MAX);
        let is_taken = text.is_some();
        texts.extend(text.map(|text| (text, pattern.ignore_case)));
        !is_taken
    });
    if texts.is_empty() { Ok(None) } else { Literals::compile(texts).map(Some) }
}

fn compile_others(patterns: &[Pattern<'_>]) -> Result<Vec<Gated>, AclProblem> {
    // Each one by itself first: only so it is known which one is wrong, and that it has no part
    // outside its group.
    let alone: Vec<Regex> = patterns.iter().map(compile_one).collect::<Result<_, _>>()?;
    if patterns.len() > MAX_SEPARATE {
        drop(alone);
        let mut merged = Vec::new();
        for chunk in patterns.chunks(MERGED) {
            merge(chunk, &mut merged)?;
        }
        return Ok(merged);
    }
    let gated =
        patterns.iter().zip(alone).map(|(pattern, regex)| Gated { gate: Gate::of(pattern), regex });
    Ok(gated.collect())
}

impl Gate {
    fn of(pattern: &Pattern<'_>) -> Self {
        let ignore_case = pattern.ignore_case;
        match required(pattern.text) {
            // Case folding of other than ASCII is left to the automaton.
            Some(Required { text, .. }) if ignore_case && !text.is_ascii() => Self::Open,
            Some(Required { text, at_start: true }) => {
                Self::StartsWith { text: text.into_bytes().into_boxed_slice(), ignore_case }
            }
            Some(Required { text, at_start: false }) if !ignore_case => {
                let finder = || Box::new(Finder::new(text.as_bytes()).into_owned());
                rarest(text.as_bytes())
                    .map_or(Self::Open, |rarest| Self::Contains { rarest, finder: finder() })
            }
            _ => Self::Open,
        }
    }

    #[inline]
    fn admits(&self, text: &[u8]) -> bool {
        match self {
            Self::Open => true,
            Self::StartsWith { text: start, ignore_case } => {
                text.get(..start.len()).is_some_and(|head| {
                    if *ignore_case {
                        head.eq_ignore_ascii_case(start)
                    } else {
                        head == start.as_ref()
                    }
                })
            }
            Self::Contains { rarest, finder } => {
                memchr::memchr(*rarest, text).is_some() && finder.find(text).is_some()
            }
        }
    }
}

fn compile_one(pattern: &Pattern<'_>) -> Result<Regex, AclProblem> {
    if has_back_reference(pattern.text) {
        // Translated as the digit it would match less than the text that it is there to deny.
        let reason = "back references are not supported".to_string();
        return Err(AclProblem::Regex { pattern: pattern.text.to_string(), reason });
    }
    let compiled = builder(&translate(pattern.text)).case_insensitive(pattern.ignore_case).build();
    compiled.map_err(|error| problem(pattern.text, &error))
}

/// Compiles all `patterns`, each valid by itself, into one expression, or into more if it grows too
/// big.
fn merge(patterns: &[Pattern<'_>], out: &mut Vec<Gated>) -> Result<(), AclProblem> {
    let alternatives: Vec<String> = (patterns.iter())
        .map(|pattern| {
            let flag = if pattern.ignore_case { "i" } else { "" };
            format!("(?{flag}:{})", translate(pattern.text))
        })
        .collect();
    match builder(&alternatives.join("|")).build() {
        Ok(regex) => out.push(Gated { gate: Gate::Open, regex }),
        Err(_) if patterns.len() > 1 => {
            let (left, right) = patterns.split_at(patterns.len() / 2);
            merge(left, out)?;
            merge(right, out)?;
        }
        Err(error) => {
            return Err(problem(patterns.first().map_or("", |pattern| pattern.text), &error));
        }
    }
    Ok(())
}

/// POSIX semantics as far as they can be set: bytes, and a dot that matches all of them.
fn builder(translated: &str) -> RegexBuilder {
    let mut builder = RegexBuilder::new(translated);
    builder.unicode(false).dot_matches_new_line(true).size_limit(MAX_COMPILED_BYTES);
    builder
}

/// Whether `\1` to `\9` occurs.
fn has_back_reference(pattern: &str) -> bool {
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' && bytes.next().is_some_and(|next| matches!(next, b'1'..=b'9')) {
            return true;
        }
    }
    false
}

fn problem(pattern: &str, error: &regex::Error) -> AclProblem {
    let reason = error.to_string();
    // The message draws the expression over several lines; its last line has the reason.
    let reason =
        reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string();
    AclProblem::Regex { pattern: pattern.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each expression by itself, without any short cut.
    fn plain(values: &[String]) -> Vec<Regex> {
        let mut ignore_case = false;
        let mut regexes = Vec::new();
        for value in values {
            match value.as_str() {
                "-i" | "+i" => ignore_case = value == "-i",
                text => regexes.push(compile_one(&Pattern { text, ignore_case }).unwrap()),
            }
        }
        regexes
    }

    fn is_sound(value: &str) -> bool {
        value == "+i" || compile_one(&Pattern { text: value, ignore_case: false }).is_ok()
    }

    proptest! {
        #[test]
        fn a_list_means_what_its_expressions_mean(
            values in prop::collection::vec(
                prop_oneof![
                    4 => "[abA]{1,10}",
                    4 => r"([abAé/:#&~\]-]|\\[.?*+|/^$(){}\[\]\\#&~\-]){1,10}",
                    1 => r"[\^]?[ab.*+$]{1,4}",
                    1 => Just("-i".to_string()),
                    1 => Just("+i".to_string()),
                ],
                0..40,
            ),
            asked in prop::collection::vec(
                prop_oneof!["[abAB]{0,20}", r"[abABéÉ/:.?*+|^$(){}\[\]\\#&~-]{0,30}"],
                1..30,
            ),
        ) {
            let values: Vec<String> = values.into_iter().filter(|value| is_sound(value)).collect();
            let (list, plain) = (RegexList::compile(&values).unwrap(), plain(&values));
            for text in asked {
                let expected = plain.iter().any(|regex| regex.is_match(text.as_bytes()));
                prop_assert_eq!(list.is_match(text.as_bytes()), expected, "{:?} {}", values, text);
            }
        }
    }

    #[test]
    fn literals_of_a_long_list_are_found_whatever_stands_around_them() {
        let mut values: Vec<String> = (0..50).map(|n| format!(r"ads{n}\.example/x")).collect();
        values.push("a".repeat(LITERAL_BYTES_MAX + 1));
        values.extend(["-i".to_string(), r"Banner\?".to_string(), "^only".to_string()]);
        let list = RegexList::compile(&values).unwrap();
        assert_eq!(list.others.len(), 2);
        for (text, want) in [
            ("http://ads49.example/x", true),
            ("http://ads49xexample/x", false),
            ("http://ADS49.example/x", false),
            ("http://x/bANNER?q", true),
            ("ONLY", true),
            ("x only", false),
            (&"a".repeat(LITERAL_BYTES_MAX + 1), true),
            (&"a".repeat(LITERAL_BYTES_MAX), false),
        ] {
            assert_eq!(list.is_match(text.as_bytes()), want, "{text}");
        }
    }

    fn list(values: &[&str]) -> RegexList {
        RegexList::compile(&values.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn matching() {
        let rows: [(&[&str], &str, bool); 15] = [
            (&["foo"], "http://x/foo", true),
            (&["foo"], "http://x/FOO", false),
            (&["-i", "foo"], "http://x/FOO", true),
            (&["-i", "a", "+i", "foo"], "http://x/FOO", false),
            (&["-i", "^HTTP://"], "http://x/", true),
            (&["^http://y"], "http://x/", false),
            (&[r"\.(exe|zip)$"], "/a.zip", true),
            (&[r"\.(exe|zip)$"], "/a.zipx", false),
            (&["a.b"], "a\nb", true),
            (&["^$"], "", true),
            (&["a{b"], "a{b", true),
            (&["é"], "é", true),
            (&["-i", "ab*c"], "AC", true),
            (&["ab*c"], "ac", true),
            (&[], "x", false),
        ];
        for (values, text, want) in rows {
            assert_eq!(list(values).is_match(text.as_bytes()), want, "{values:?} {text}");
        }
    }

    #[test]
    fn long_lists_mean_the_same() {
        let mut values: Vec<String> =
            (0..1200).map(|n| format!("site{n}\\.example|^alt{n}x")).collect();
        values.push("-i".to_string());
        values.push("UPPER".to_string());
        let list = RegexList::compile(&values).unwrap();
        assert_eq!((list.others.len(), list.literals.is_some()), (3, true));
        for (text, want) in [
            ("http://site77.example/", true),
            ("alt1199x", true),
            ("http://alt5x", false),
            ("upper", true),
            ("SITE1.example", false),
        ] {
            assert_eq!(list.is_match(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn the_wrong_one_is_named() {
        let mut values: Vec<String> = (0..20).map(|n| format!("p{n}")).collect();
        values[13] = "a)|(b".to_string();
        let Err(AclProblem::Regex { pattern, reason }) = RegexList::compile(&values) else {
            panic!()
        };
        assert_eq!(pattern, "a)|(b");
        assert!(!reason.is_empty() && !reason.contains('\n'));
        assert!(RegexList::compile(&["*.example.com".to_string()]).is_err());
        assert!(RegexList::compile(&[r"(a)\1".to_string()]).is_err());
    }
}
