//! A light reader of Rust source: comments and literals masked, then words and items.
//!
//! It sees into macro bodies, which a syntax tree does not, and it needs no parser.

/// Replaces the inside of a literal: not blank, not part of any word.
const FILLER: u8 = b'"';

/// Rust text of the same shape with comments blanked and the insides of literals filled.
pub(crate) fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    while out.len() < bytes.len() {
        let at = out.len();
        let rest = &bytes[at..];
        let (len, fill) = if rest.starts_with(b"//") {
            (rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()), b' ')
        } else if rest.starts_with(b"/*") {
            (block_comment_len(rest), b' ')
        } else if let Some(len) =
            raw_string_len(rest).filter(|_| at == 0 || !is_word(bytes[at - 1]))
        {
            (len, FILLER)
        } else if rest[0] == b'"' {
            (quoted_len(rest, b'"'), FILLER)
        } else if rest[0] == b'\'' && is_char_literal(rest) {
            (quoted_len(rest, b'\''), FILLER)
        } else {
            out.push(if rest[0].is_ascii() { rest[0] } else { b'_' });
            continue;
        };
        out.extend(rest[..len].iter().map(|&b| if b == b'\n' { b } else { fill }));
    }
    String::from_utf8(out).unwrap_or_default()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` or `cr"…"` at the start of `rest`.
fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let prefix = usize::from(matches!(rest.first(), Some(b'b' | b'c'))) + 1;
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = prefix + hashes + 1;
    let end = rest[body..].windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| body + end + closing.len()))
}

fn quoted_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Tells `'x'` and `'\n'` from the lifetime `'x`.
fn is_char_literal(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(first) if first.is_ascii() => rest.get(2) == Some(&b'\''),
        Some(_) => true,
        None => false,
    }
}

/// The same masked text without the items under `#[cfg(test)]`.
pub(crate) fn without_tests(masked: &str) -> String {
    let mut text = masked.to_owned();
    let mut from = 0;
    while let Some(found) = text[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(text.as_bytes(), start + "#[cfg(test)]".len());
        let blank: String =
            text[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        text.replace_range(start..end, &blank);
        from = end;
    }
    text
}

/// Just behind the `;` or the closing brace that ends the item which starts at `at`.
fn item_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in bytes[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *byte == b'}' {
                    return at + offset + 1;
                }
            }
            b';' if depth == 0 => return at + offset + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// A word or a single punctuation mark of masked text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Byte position in the text.
    pub(crate) at: usize,
}

/// The words and punctuation marks of masked text, in order.
pub(crate) fn tokens(masked: &str) -> Vec<Token<'_>> {
    let bytes = masked.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|&&b| is_word(b)).count();
        if len > 0 {
            found.push(Token { text: &masked[at..at + len], at });
        } else if !bytes[at].is_ascii_whitespace() {
            found.push(Token { text: &masked[at..=at], at });
        }
        at += len.max(1);
    }
    found
}

/// The line number (from 1) of a byte position.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_masked_and_code_is_kept() {
        let text = "let a = \"fn x {\\\" }\"; // unsafe\nlet b = r#\"un\"safe\"#; /* a /* b */ c */ let c = '{';";
        let masked = mask(text);
        assert_eq!(masked.len(), text.len());
        assert!(!masked.contains("unsafe") && !masked.contains('{') && !masked.contains("b */"));
        assert!(masked.contains("let b =") && masked.contains("let c ="));
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        assert_eq!(mask("fn f<'a>(x: &'a str) { '\\'' }"), "fn f<'a>(x: &'a str) { \"\"\"\" }");
    }

    #[test]
    fn test_items_are_blanked() {
        let text = without_tests("fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}");
        assert!(text.contains("fn a") && text.contains("fn c") && !text.contains("fn b"));
    }
}
