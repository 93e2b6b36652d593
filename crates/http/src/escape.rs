//! Text from outside made safe for pages, and percent-encoding.

/// Appends `text` for use in HTML content or a quoted attribute. Bytes that are not UTF-8 become
/// U+FFFD, control bytes other than line ends and tabs are left out.
pub fn write_html(out: &mut String, text: &[u8]) {
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => {}
            letter => out.push(letter),
        }
    }
}

/// `text` with each `%XX` replaced by its byte. A percent sign without two hexadecimal digits stays
/// as it is.
#[must_use]
pub fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match (byte, tail) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex_value(*high) << 4 | hex_value(*low));
                after
            }
            _ => {
                out.push(byte);
                tail
            }
        };
    }
    out
}

/// Appends `text` with everything but unreserved bytes (RFC 3986 2.3) as `%XX`.
pub fn write_percent(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 0xf)]);
        }
    }
}

/// The value of a hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_has_no_markup_left() {
        let mut out = String::new();
        write_html(&mut out, b"<a href=\"x\" b='&'>\0\xff\n");
        assert_eq!(out, "&lt;a href=&quot;x&quot; b=&#39;&amp;&#39;&gt;\u{fffd}\n");
    }

    #[test]
    fn percent_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        let mut encoded = Vec::new();
        write_percent(&mut encoded, &all);
        assert!(encoded.iter().all(|&byte| byte.is_ascii_graphic()));
        assert_eq!(percent_decode(&encoded), all);
        assert_eq!(percent_decode(b"%4a%4A%%4%zz%"), b"JJ%%4%zz%");
    }
}
