//! The ways in which values are written into a line for a helper: always as a single word, unless
//! the configuration wants it otherwise.

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

fn escape(out: &mut Vec<u8>, text: &[u8], is_escaped: impl Fn(u8) -> bool) {
    for &byte in text {
        if is_escaped(byte) {
            let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 0xf)]);
        } else {
            out.push(byte);
        }
    }
}

/// Bytes that are not safe in a URL (RFC 1738), `%` not among them.
fn is_unsafe(byte: u8) -> bool {
    !byte.is_ascii_graphic() || b"<>\"#{}|\\^~[]`'".contains(&byte)
}

/// `%XX` for bytes that are not safe in a URL.
pub(crate) fn url(out: &mut Vec<u8>, text: &[u8]) {
    escape(out, text, is_unsafe);
}

/// The same, also for `%`.
pub(crate) fn url_whole(out: &mut Vec<u8>, text: &[u8]) {
    escape(out, text, |byte| byte == b'%' || is_unsafe(byte));
}

/// `%XX` for bytes that end a word or a line, and for `%`. Names of users are written so: helpers
/// that know of it get the name itself, and others get it for all usual names.
pub(crate) fn word(out: &mut Vec<u8>, text: &[u8]) {
    escape(out, text, |byte| byte.is_ascii_control() || matches!(byte, b' ' | b'%' | b'"'));
}

/// In double quotes if there is a blank in it, with backslashes where they are needed.
pub(crate) fn shell(out: &mut Vec<u8>, text: &[u8]) {
    let is_quoted = text.is_empty() || text.iter().any(|byte| matches!(byte, b' ' | b'\t'));
    if is_quoted {
        out.push(b'"');
    }
    for &byte in text {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0 => {}
            _ => out.push(byte),
        }
    }
    if is_quoted {
        out.push(b'"');
    }
}

/// As it is, without control characters.
pub(crate) fn plain(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().copied().filter(|byte| !byte.is_ascii_control()));
}

#[cfg(test)]
mod tests {
    type Write = fn(&mut Vec<u8>, &[u8]);

    /// Squid 5.7 writes the same, names of users excepted: it writes those as they are.
    #[test]
    fn values_are_written_as_squid_does() {
        let value = "a=1, b=\"c d\", e%20\\f|~";
        for (write, wanted) in [
            (super::url as Write, "a=1,%20b=%22c%20d%22,%20e%20%5Cf%7C%7E"),
            (super::url_whole, "a=1,%20b=%22c%20d%22,%20e%2520%5Cf%7C%7E"),
            (super::word, "a=1,%20b=%22c%20d%22,%20e%2520\\f|~"),
            (super::shell, "\"a=1, b=\\\"c d\\\", e%20\\\\f|~\""),
            (super::plain, value),
        ] {
            let mut out = Vec::new();
            write(&mut out, value.as_bytes());
            assert_eq!(String::from_utf8_lossy(&out), wanted);
            let mut out = Vec::new();
            write(&mut out, b"a\r\nb\0");
            assert!(!out.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{out:?}");
        }
    }
}
