//! Entity tags (RFC 9110 8.8.3).

use crate::syntax::trim_ows;

/// Strong comparison: equal and neither is weak (RFC 9110 8.8.3.2). Arguments are whole tags, `W/`
/// and quotes included.
#[must_use]
pub fn strong_eq(a: &[u8], b: &[u8]) -> bool {
    a == b && !is_weak(a)
}

/// Weak comparison: equal but for `W/` (RFC 9110 8.8.3.2).
#[must_use]
pub fn weak_eq(a: &[u8], b: &[u8]) -> bool {
    opaque(a) == opaque(b)
}

/// Whether the tag starts with `W/`.
#[must_use]
pub fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

/// The tags of an `If-Match` or `If-None-Match` value, quotes included. Text without quotes, which
/// some servers send as a tag and clients return, counts as a tag up to the next comma.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let text = rest.get(start..)?;
        let prefix = if is_weak(text) { 2 } else { 0 };
        // A backslash does not escape inside a tag, so this is not a quoted string.
        let quoted = text.get(prefix..).and_then(|text| text.strip_prefix(b"\""));
        let closing = quoted.and_then(|text| text.iter().position(|&byte| byte == b'"'));
        let end = match closing {
            Some(closing) => prefix + closing + 2,
            None => text.iter().position(|&byte| byte == b',').unwrap_or(text.len()),
        };
        let (tag, tail) = text.split_at_checked(end)?;
        rest = tail;
        Some(trim_ows(tag))
    })
}

/// The tag without `W/`.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_of_the_rfc() {
        let cases: [(&[u8], &[u8], bool, bool); 4] = [
            (b"W/\"1\"", b"W/\"1\"", false, true),
            (b"W/\"1\"", b"W/\"2\"", false, false),
            (b"W/\"1\"", b"\"1\"", false, true),
            (b"\"1\"", b"\"1\"", true, true),
        ];
        for (a, b, strong, weak) in cases {
            assert_eq!((strong_eq(a, b), weak_eq(a, b)), (strong, weak));
        }
    }

    #[test]
    fn lists() {
        let cases: [(&[u8], &[&[u8]]); 6] = [
            (b"\"a\"", &[b"\"a\""]),
            (b"\"a,b\" , W/\"c\",,\"\\\"", &[b"\"a,b\"", b"W/\"c\"", b"\"\\\""]),
            (b"abc, \"d\"", &[b"abc", b"\"d\""]),
            (b"\"open", &[b"\"open"]),
            (b"*", &[b"*"]),
            (b" ,", &[]),
        ];
        for (value, want) in cases {
            assert_eq!(list(value).collect::<Vec<_>>(), want);
        }
    }
}
