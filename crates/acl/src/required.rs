//! A text that every match of a regular expression contains: cheap to look for before the automaton
//! runs.

/// A text that every match of a (POSIX) pattern contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Required {
    /// The text, not empty.
    pub(crate) text: String,
    /// Every match begins with it.
    pub(crate) at_start: bool,
}

/// Finds the longest required text that is easy to see, preferring one at the start. Cautious: in
/// doubt the search ends, with the text found before. A missing text costs time; a wrong one would
/// let a request pass a rule.
pub(crate) fn required(pattern: &str) -> Option<Required> {
    if pattern.contains('|') || pattern.contains("(?") {
        return None;
    }
    let (mut rest, anchored) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let mut runs: Vec<String> = vec![String::new()];
    while let Some(next) = rest.chars().next() {
        let tail = rest.get(next.len_utf8()..).unwrap_or_default();
        let (literal, tail) = match next {
            '\\' => match tail.chars().next() {
                Some(escaped) if escaped.is_ascii_punctuation() && !"<>`'".contains(escaped) => {
                    (Some(escaped), tail.get(1..).unwrap_or_default())
                }
                Some(special) => (None, tail.get(special.len_utf8()..).unwrap_or_default()),
                None => break,
            },
            '[' => match skip_bracket(tail) {
                Some(tail) => (None, tail),
                None => break,
            },
            '*' | '?' | '{' => {
                // The character before may be missing.
                if let Some(run) = runs.last_mut() {
                    run.pop();
                }
                if next == '{' {
                    break;
                }
                (None, tail)
            }
            '(' | ')' | '}' => break,
            '+' => {
                // Another repetition behind it may make the character before optional.
                let may_be_none = tail.trim_start_matches('+').starts_with(['*', '?', '{']);
                if let (true, Some(run)) = (may_be_none, runs.last_mut()) {
                    run.pop();
                }
                (None, tail)
            }
            '.' | '$' | '^' => (None, tail),
            other => (Some(other), tail),
        };
        match (literal, runs.last_mut()) {
            (Some(literal), Some(run)) => run.push(literal),
            _ => runs.push(String::new()),
        }
        rest = tail;
    }
    let first = runs.first().filter(|run| anchored && !run.is_empty());
    let (text, at_start) = match first {
        Some(first) => (first, true),
        None => (runs.iter().max_by_key(|run| run.len())?, false),
    };
    (!text.is_empty()).then(|| Required { text: text.clone(), at_start })
}

/// The rest after a plain bracket expression whose `[` was read; `None` if there are escapes or
/// classes in it.
fn skip_bracket(inside: &str) -> Option<&str> {
    let set = inside.strip_prefix('^').unwrap_or(inside);
    let set = set.strip_prefix(']').unwrap_or(set);
    let (set, tail) = set.split_once(']')?;
    (!set.contains(['[', '\\'])).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_texts() {
        let rows = [
            ("^cache_object://", Some(("cache_object://", true))),
            ("^[^:]+://[^/]+/squid-internal-mgr/", Some(("/squid-internal-mgr/", false))),
            (r"\.exe$", Some((".exe", false))),
            (r"example\.com", Some(("example.com", false))),
            ("abc*def", Some(("def", false))),
            ("abcd?e", Some(("abc", false))),
            ("abc+d", Some(("abc", false))),
            ("abc+*d", Some(("ab", false))),
            ("a+*", None),
            ("a++?b*", None),
            ("^ab+?", Some(("a", true))),
            ("^ab{2}", Some(("a", true))),
            ("x{2}yyyy", None),
            ("^a*bc", Some(("bc", false))),
            (r"abc\w+", Some(("abc", false))),
            (r"abc\d\d", Some(("abc", false))),
            ("ab(cdefgh)?", Some(("ab", false))),
            (r"ab[\]]cdef", Some(("ab", false))),
            ("ab[[:alpha:]]cdef", Some(("ab", false))),
            ("ab[]x]cdef", Some(("cdef", false))),
            ("a|b", None),
            (r"ab\|c", None),
            ("(abc)", None),
            ("(?i)abc", None),
            (".*", None),
            ("", None),
            (r"\d\d", None),
            ("[abc]", None),
            ("\\", None),
        ];
        for (pattern, want) in rows {
            let want = want.map(|(text, at_start)| Required { text: text.to_string(), at_start });
            assert_eq!(required(pattern), want, "{pattern}");
        }
    }
}
