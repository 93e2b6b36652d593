//! Percent-decoding of URLs before regular expressions see them, and lower case of text in which
//! case does not matter.

use std::cell::Cell;

thread_local! {
    /// Reused from call to call, so that a check does not allocate.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };

    /// The same for text in lower case.
    static LOWER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `test` with `text` percent-decoded. Unlike in Squid a malformed sequence does not leave
/// the whole text encoded: it alone is kept as it is, so that adding one is no way around a rule.
pub(crate) fn with_decoded(text: &[u8], test: impl FnOnce(&[u8]) -> bool) -> bool {
    if memchr::memchr(b'%', text).is_none() {
        return test(text);
    }
    let mut decoded = SCRATCH.take();
    decoded.clear();
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'%', rest) {
        let (plain, sequence) = rest.split_at(at);
        decoded.extend_from_slice(plain);
        let digits =
            sequence.get(1..3).and_then(|digits| Some(hex(digits[0])? << 4 | hex(digits[1])?));
        decoded.push(digits.unwrap_or(b'%'));
        rest = sequence.get(if digits.is_some() { 3 } else { 1 }..).unwrap_or_default();
    }
    decoded.extend_from_slice(rest);
    let matched = test(&decoded);
    SCRATCH.set(decoded);
    matched
}

/// Calls `test` with `text` in lower case.
pub(crate) fn with_lower_case(text: &[u8], test: impl FnOnce(&[u8]) -> bool) -> bool {
    let mut lower = LOWER.take();
    lower.clear();
    lower.extend_from_slice(text);
    lower.make_ascii_lowercase();
    let matched = test(&lower);
    LOWER.set(lower);
    matched
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::with_decoded;

    #[test]
    fn decodes_what_is_well_formed() {
        for (text, want) in [
            ("/a%62c", "/abc"),
            ("/a", "/a"),
            ("%2F%2f", "//"),
            ("%zz%61", "%zza"),
            ("%", "%"),
            ("%4", "%4"),
            ("%%41", "%A"),
        ] {
            assert!(with_decoded(text.as_bytes(), |decoded| decoded == want.as_bytes()), "{text}");
        }
    }
}
