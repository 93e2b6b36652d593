//! Regular expressions as squid.conf writes them (POSIX extended, GNU's additions) for the engine
//! used here.
//!
//! The engine never backtracks, so no expression can be made slow by the text it is matched with.

use regex::bytes::{Regex, RegexBuilder};

/// Largest compiled program of one expression, in bytes; a larger one is refused.
const PROGRAM_BYTES_MAX: usize = 8 << 20;

/// Compiles a POSIX extended expression. It is matched against bytes; `\d`, which POSIX does not
/// have, means a digit, as its authors intend.
///
/// # Errors
/// A sentence for people: the expression is malformed or too large.
pub(crate) fn compile(posix: &str, case_insensitive: bool) -> Result<Regex, String> {
    RegexBuilder::new(&translate(posix))
        .unicode(false)
        .case_insensitive(case_insensitive)
        .size_limit(PROGRAM_BYTES_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::Syntax(text) => last_line(&text),
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            other => last_line(&other.to_string()),
        })
}

/// The engine's message ends with the reason, after a picture of the expression.
fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ").to_owned()
}

/// The text that an expression stands for, if it is nothing but text. In doubt it is not.
pub fn literal(posix: &str) -> Option<String> {
    let mut text = String::with_capacity(posix.len());
    let mut chars = posix.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            // Before these a backslash only takes away a meaning.
            '\\' => chars.next().filter(|c| c.is_ascii_punctuation() && !"<>`'".contains(*c))?,
            '.' | '[' | '(' | ')' | '{' | '}' | '*' | '+' | '?' | '^' | '$' | '|' => return None,
            c => c,
        });
    }
    (!text.is_empty()).then_some(text)
}

/// The same expression in the engine's syntax, for a compilation of several into one.
pub fn translate(posix: &str) -> String {
    let mut out = String::with_capacity(posix.len() + 8);
    let mut rest = posix;
    let mut open_groups = 0_u32;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or("");
        match c {
            '\\' => {
                let escaped = rest.chars().next();
                rest = rest.get(escaped.map_or(0, char::len_utf8)..).unwrap_or("");
                push_escape(escaped, &mut out);
            }
            '[' => rest = push_bracket(rest, &mut out),
            '(' => {
                open_groups += 1;
                out.push('(');
            }
            // A closing parenthesis without an opening one is an ordinary character.
            ')' if open_groups == 0 => out.push_str("\\)"),
            ')' => {
                open_groups -= 1;
                out.push(')');
            }
            '{' if !starts_repetition(rest) => out.push_str("\\{"),
            '}' if !ends_repetition(&out) => out.push_str("\\}"),
            c => out.push(c),
        }
    }
    out
}

fn push_escape(escaped: Option<char>, out: &mut String) {
    match escaped {
        None => out.push_str("\\\\"),
        Some('`') => out.push_str("\\A"),
        Some('\'') => out.push_str("\\z"),
        Some(c @ ('w' | 'W' | 's' | 'S' | 'b' | 'B' | 'd' | 'D' | '<' | '>')) => {
            out.push('\\');
            out.push(c);
        }
        // A back reference: the engine refuses it. Read as the digit, it would match something else
        // than is meant.
        Some(c @ '1'..='9') => {
            out.push('\\');
            out.push(c);
        }
        // In POSIX a backslash before any other character only takes away its meaning.
        Some(c) if c.is_ascii_alphanumeric() || !c.is_ascii() || c.is_ascii_whitespace() => {
            out.push(c)
        }
        Some(c) if c.is_ascii_control() => out.push(c),
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
    }
}

/// `{3}`, `{3,}`, `{3,5}` or `{,5}` follows (after the opening brace).
fn starts_repetition(rest: &str) -> bool {
    let Some(end) = rest.find('}') else { return false };
    let inner = rest.get(..end).unwrap_or("");
    inner.bytes().any(|b| b.is_ascii_digit())
        && inner.bytes().all(|b| b.is_ascii_digit() || b == b',')
        && inner.bytes().filter(|b| *b == b',').count() <= 1
        && !inner.starts_with(',')
}

fn ends_repetition(out: &str) -> bool {
    let Some(start) = out.rfind('{') else { return false };
    let escaped = out.get(..start).unwrap_or("").ends_with('\\');
    let inner = out.get(start + 1..).unwrap_or("");
    !escaped && !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_digit() || b == b',')
}

/// Copies a bracket expression, whose opening bracket has been read, and returns the rest.
fn push_bracket<'a>(rest: &'a str, out: &mut String) -> &'a str {
    out.push('[');
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut first = true;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or("");
        match c {
            ']' if first => out.push_str("\\]"),
            ']' => {
                out.push(']');
                return rest;
            }
            '[' if rest.starts_with(':') => {
                let len = rest.find(":]").map_or(0, |end| end + 2);
                out.push('[');
                out.push_str(rest.get(..len).unwrap_or(""));
                rest = rest.get(len..).unwrap_or("");
            }
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '\\' => match rest.chars().next() {
                // POSIX has no escapes here, but their authors intend them.
                Some(escaped) if escaped.is_ascii_punctuation() || "wWsSdD".contains(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                    rest = rest.get(1..).unwrap_or("");
                }
                _ => out.push_str("\\\\"),
            },
            c => out.push(c),
        }
        first = false;
    }
    // Not closed: the engine reports it.
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(posix: &str, text: &str) -> bool {
        compile(posix, false).expect(posix).is_match(text.as_bytes())
    }

    #[test]
    fn posix_and_gnu_syntax_mean_the_same_here() {
        for (posix, yes, no) in [
            (r"\.exe$", "http://a/b.exe", "http://a/bxexe"),
            (r"^http:\/\/a\-b/", "http://a-b/", "http://ab/"),
            ("(/cgi-bin/|\\?)", "http://a/?q", "http://a/q"),
            ("[[]x", "[x", "x"),
            ("[]x]y", "]y", "zy"),
            ("[^]]z", "az", "]z"),
            ("a)b", "a)b", "ab"),
            ("a{2}b", "aab", "ab"),
            ("a{b", "a{b", "ab"),
            ("a}b", "a}b", "ab"),
            ("[[:digit:]]+x", "12x", "x"),
            ("[\\w.\\-]+@", "a.b-c@", "@"),
            ("\\<word\\>", "a word b", "swords"),
            ("a\\ b", "a b", "ab"),
            ("[a&&b]x", "&x", "cx"),
            ("\\d+", "12", "d"),
        ] {
            assert!(matches(posix, yes), "{posix} {yes}");
            assert!(!matches(posix, no), "{posix} {no}");
        }
        assert!(compile("GIF$", true).expect("ok").is_match(b"a.gif"));
        assert!(matches("é", "caf\u{e9}"));
    }

    #[test]
    fn a_literal_is_what_the_engine_finds() {
        let of_one = (0..128_u8).map(char::from).chain(['é', '\u{a0}']);
        let mut literals = 0;
        for c in of_one {
            for posix in [format!("{c}"), format!("\\{c}"), format!("x\\{c}y"), format!("x{c}")] {
                let Some(text) = literal(&posix) else { continue };
                literals += 1;
                let plain =
                    Regex::new(&format!("(?-u:{})", regex::escape(&text))).expect("escaped");
                let ours = compile(&posix, false).expect(&posix);
                for other in (0..128_u8).map(char::from) {
                    for asked in [text.clone(), format!("{other}"), format!("x{other}y")] {
                        let expected = plain.is_match(asked.as_bytes());
                        assert_eq!(ours.is_match(asked.as_bytes()), expected, "{posix} {asked}");
                    }
                }
            }
        }
        assert_eq!(literals, 4 * 130 - 2 * 13 - 2 * (128 - 28 + 2));
        for none in
            ["", "a.b", "^a", "a$", "(a)", "a|b", r"\d", r"\1", r"\<a", "a{2}", "a]*", r"a\"]
        {
            assert_eq!(literal(none), None, "{none}");
        }
        assert_eq!(literal(r"ads\.example\.com/banner").as_deref(), Some("ads.example.com/banner"));
    }

    #[test]
    fn errors_are_one_readable_sentence() {
        for bad in ["[", "(", "*.exe", "a{9999999}", r"(a)\1", r"\2"] {
            let why = compile(bad, false).expect_err(bad);
            assert!(!why.is_empty() && !why.contains('\n'), "{bad}: {why}");
        }
    }
}
