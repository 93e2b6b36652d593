//! Character classes of RFC 9110 5.6 and small helpers over bytes.

/// `tchar`.
const TOKEN: u8 = 1;
/// Allowed in a field value: HTAB, SP, VCHAR, obs-text.
const VALUE: u8 = 2;
/// Allowed inside a quoted string without a backslash.
const QDTEXT: u8 = 4;

/// Allowed in a host name: letters, digits, hyphen, dot, underscore, tilde.
const HOST: u8 = 8;

/// Classes of each byte as bits.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        if byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
        {
            table[i] |= TOKEN;
        }
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            table[i] |= HOST;
        }
        if byte == b'\t' || byte == b' ' || byte > b' ' && byte != 0x7f {
            table[i] |= VALUE;
            if byte != b'"' && byte != b'\\' {
                table[i] |= QDTEXT;
            }
        }
        i += 1;
    }
    table
}

#[inline]
fn has(byte: u8, class: u8) -> bool {
    CLASSES.get(usize::from(byte)).is_some_and(|classes| classes & class != 0)
}

/// Whether `byte` may stand in a token (RFC 9110 5.6.2).
#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    has(byte, TOKEN)
}

/// Whether `byte` may stand in a field value (RFC 9110 5.5); also what may follow a backslash.
#[inline]
pub(crate) fn is_value_byte(byte: u8) -> bool {
    has(byte, VALUE)
}

/// Whether `byte` may stand unescaped in a quoted string (RFC 9110 5.6.4).
#[inline]
pub(crate) fn is_qdtext(byte: u8) -> bool {
    has(byte, QDTEXT)
}

/// Whether `byte` may stand in a host name: the unreserved bytes of RFC 3986 2.3.
#[inline]
pub(crate) fn is_host_byte(byte: u8) -> bool {
    has(byte, HOST)
}

/// Whether `text` is a token: not empty, token bytes only.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte))
}

/// `text` without spaces and tabs at both ends (OWS, RFC 9110 5.6.3).
#[inline]
pub(crate) fn trim_ows(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// A run of digits as a number; `None` when empty, when another byte occurs, or beyond `u64`.
pub(crate) fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bytes_are_the_grammars() {
        for byte in 0..=255u8 {
            let want = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(is_token_byte(byte), want, "{byte:#x}");
        }
    }

    #[test]
    fn value_bytes_exclude_controls() {
        for byte in 0..=255u8 {
            assert_eq!(
                is_value_byte(byte),
                byte == 9 || (byte >= 0x20 && byte != 0x7f),
                "{byte:#x}"
            );
        }
        assert!(is_qdtext(b'a') && !is_qdtext(b'"') && !is_qdtext(b'\\') && !is_qdtext(b'\n'));
    }

    #[test]
    fn digits() {
        assert_eq!(parse_digits(b"0042"), Some(42));
        assert_eq!(parse_digits(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"+5", b"-0", b"5 ", b"0x5", b"18446744073709551616"] {
            assert_eq!(parse_digits(bad), None);
        }
    }
}
