//! `{words}` in configuration files and command lines.
//!
//! A word is lower-case letters, digits and underscores in braces, beginning with a letter:
//! `{store_mb}`. Any other brace is an ordinary character, so that nginx's and Varnish's own braces
//! need no escape. `{{word}}` gives `{word}`.

use std::collections::BTreeMap;

/// Depth of words within words. Deeper is a circle.
const DEPTH_MAX: u32 = 8;
/// The longest text that a template may grow to, in bytes.
const EXPANDED_BYTES_MAX: usize = 1 << 20;

/// Values of words.
pub(crate) type Words = BTreeMap<String, String>;

/// A piece of a template.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Word(&'a str),
}

/// Replaces all words. Values may contain words themselves.
pub(crate) fn expand(template: &str, words: &Words) -> Result<String, String> {
    let mut out = String::new();
    expand_into(template, words, 0, &mut out)?;
    Ok(out)
}

fn expand_into(template: &str, words: &Words, depth: u32, out: &mut String) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!(
            "`{template}` goes round in circles: a word must not stand for itself"
        ));
    }
    for piece in pieces(template) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Word(word) => {
                let value = words.get(word).ok_or_else(|| unknown(template, word, words.keys()))?;
                expand_into(value, words, depth + 1, out)?;
            }
        }
        if out.len() > EXPANDED_BYTES_MAX {
            return Err(format!("a template grows beyond {EXPANDED_BYTES_MAX} bytes"));
        }
    }
    Ok(())
}

/// The first word that is not among `known`, as a message with its line.
pub(crate) fn check<'a>(
    template: &str,
    known: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), String> {
    for piece in pieces(template) {
        if let Piece::Word(word) = piece
            && !known.clone().any(|name| name == word)
        {
            return Err(unknown(template, word, known));
        }
    }
    Ok(())
}

fn unknown<'a>(template: &str, word: &str, known: impl Iterator<Item = &'a String>) -> String {
    let at = template.find(&format!("{{{word}}}")).unwrap_or(0);
    let line = template[..at].matches('\n').count() + 1;
    let known: Vec<&str> = known.map(String::as_str).collect();
    format!("line {line}: unknown word {{{word}}}; there are: {}", known.join(", "))
}

fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let piece;
        (piece, rest) = next_piece(rest);
        Some(piece)
    })
}

fn next_piece(rest: &str) -> (Piece<'_>, &str) {
    let Some(open) = rest.find('{') else { return (Piece::Text(rest), "") };
    if open > 0 {
        return (Piece::Text(&rest[..open]), &rest[open..]);
    }
    if let Some(word) = word_at(&rest[1..]) {
        return (Piece::Word(word), &rest[word.len() + 2..]);
    }
    // `{{word}}`: the outer braces only protect the inner ones.
    if let Some(word) = rest[1..].strip_prefix('{').and_then(word_at)
        && rest[word.len() + 3..].starts_with('}')
    {
        return (Piece::Text(&rest[1..word.len() + 3]), &rest[word.len() + 4..]);
    }
    (Piece::Text(&rest[..1]), &rest[1..])
}

/// The word that `text` begins with, if a closing brace follows it.
fn word_at(text: &str) -> Option<&str> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let (word, _) = text.split_once('}')?;
    (word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_inner))
        .then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(&str, &str)]) -> Words {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn words_are_replaced_and_other_braces_stay() {
        let words = words(&[("port", "80"), ("address", "127.0.0.1:{port}"), ("a1", "x")]);
        for (template, expected) in [
            ("listen {address};", "listen 127.0.0.1:80;"),
            ("server { listen {port}; }", "server { listen 80; }"),
            ("%{Host}>h {2,3} {} {", "%{Host}>h {2,3} {} {"),
            ("{{port}} {a1}{a1}", "{port} xx"),
            ("{{port} {{", "{80 {{"),
            ("ä{port}ö", "ä80ö"),
            ("{{{port}}}", "{{port}}"),
        ] {
            assert_eq!(expand(template, &words).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn unknown_words_and_circles_are_errors() {
        let known = words(&[("a", "{b}"), ("b", "{a}")]);
        let error = expand("x\ny {c}", &known).expect_err("c is unknown");
        assert!(
            error.contains("line 2") && error.contains("{c}") && error.contains("a, b"),
            "{error}"
        );
        assert!(expand("{a}", &known).expect_err("a circle").contains("circles"));
        assert!(check("{a} {z}", known.keys()).is_err());
        assert!(check("{a} { z }", known.keys()).is_ok());
    }

    #[test]
    fn growth_is_bounded() {
        let mut doubling = words(&[("w0", &"x".repeat(1 << 12))]);
        for level in 1..8 {
            let inner = format!("{{w{}}}", level - 1);
            doubling.insert(format!("w{level}"), inner.repeat(8));
        }
        assert!(expand("{w7}", &doubling).expect_err("too large").contains("grows"));
    }
}
