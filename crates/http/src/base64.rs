//! Base64 (RFC 4648 4), towards text.

/// `bytes` as base64, with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte))
            << (8 * (3 - group.len()));
        for position in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * position)) as usize & 63];
            text.push(if position <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn vectors_of_rfc_4648() {
        let all = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in all {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
