//! Hardware addresses and fingerprints as values of ACLs: groups of hexadecimal digits with colons
//! between them.

/// An EUI-48 (MAC) address, such as `00:11:22:33:44:55`.
pub fn parse_eui48(text: &str) -> Option<[u8; 6]> {
    groups(text)
}

/// An EUI-64, such as `02:11:22:ff:fe:33:44:55`. Of six groups, `ff:fe` is put into the middle.
pub fn parse_eui64(text: &str) -> Option<[u8; 8]> {
    let longer = || groups(text).map(|[a, b, c, d, e, f]| [a, b, c, 0xff, 0xfe, d, e, f]);
    groups(text).or_else(longer)
}

/// A fingerprint by SHA-1: twenty groups.
pub fn parse_fingerprint(text: &str) -> Option<[u8; 20]> {
    groups(text)
}

fn groups<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut groups = text.split(':');
    for byte in &mut bytes {
        let group = groups.next().filter(|group| (1..=2).contains(&group.len()))?;
        let is_hexadecimal = group.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(group, 16).ok().filter(|_| is_hexadecimal)?;
    }
    groups.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_groups_of_digits() {
        let mac = [0, 0x1a, 0x2b, 0x3c, 0x4d, 0x5e];
        for (text, wanted) in [
            ("00:1a:2b:3c:4d:5e", Some(mac)),
            ("0:1A:2B:3C:4D:5E", Some(mac)),
            ("00-1a-2b-3c-4d-5e", None),
            ("00:1a:2b:3c:4d", None),
            ("00:1a:2b:3c:4d:5e:6f", None),
            ("00:1a:2b:3c:4d:", None),
            ("000:1a:2b:3c:4d:5e", None),
            ("00:+a:2b:3c:4d:5e", None),
            ("", None),
        ] {
            assert_eq!(parse_eui48(text), wanted, "{text}");
        }
        let eui64 = [0, 0x1a, 0x2b, 0xff, 0xfe, 0x3c, 0x4d, 0x5e];
        for text in ["00:1a:2b:ff:fe:3c:4d:5e", "00:1a:2b:3c:4d:5e"] {
            assert_eq!(parse_eui64(text), Some(eui64), "{text}");
        }
        assert_eq!(parse_eui64("00:1a:2b:ff:fe:3c:4d"), None);
    }
}
