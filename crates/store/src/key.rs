//! The key under which an answer is found.

use std::fmt;

use humboldt_base::xxh3::{xxh3_128, xxh3_128_with_seed};

/// 128 bits of XXH3 over the canonical URL, or over a primary key and the request fields that
/// select a variant. Not a cryptographic hash: a request that finds an answer by its key compares
/// the URL too.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u128);

impl Key {
    /// Key of a URL in its canonical form. GET and HEAD share it.
    pub fn primary(url: &[u8]) -> Self {
        Self(xxh3_128(url))
    }

    /// Key of one variant: `parts` are the normalised values of the request fields named by Vary
    /// (RFC 9111 4.1). All 128 bits of the primary key take part.
    pub fn variant(self, parts: &[u8]) -> Self {
        let seed = self.low64() ^ self.high64().rotate_left(32);
        Self(xxh3_128_with_seed(parts, seed) ^ self.0.rotate_left(17))
    }

    /// The lower half.
    pub fn low64(self) -> u64 {
        self.0 as u64
    }

    /// The upper half.
    pub fn high64(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Big-endian bytes, as records on disk store it.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The reverse of [`Key::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032X}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_differ_from_each_other_and_from_their_primary() {
        let a = Key::primary(b"http://a/");
        let b = Key::primary(b"http://b/");
        let keys = [
            a,
            b,
            a.variant(b""),
            a.variant(b"gzip"),
            a.variant(b"br"),
            b.variant(b""),
            b.variant(b"gzip"),
        ];
        for (i, x) in keys.iter().enumerate() {
            assert!(keys.iter().skip(i + 1).all(|y| x != y), "{i}");
        }
        assert_eq!(a.variant(b"gzip"), Key::primary(b"http://a/").variant(b"gzip"));
    }

    #[test]
    fn bytes_round_trip_and_text_is_hexadecimal() {
        let key = Key(0x0123_4567_89AB_CDEF_0011_2233_4455_6677);
        assert_eq!(Key::from_bytes(key.to_bytes()), key);
        assert_eq!(key.to_string(), "0123456789ABCDEF0011223344556677");
        assert_eq!((key.high64(), key.low64()), (0x0123_4567_89AB_CDEF, 0x0011_2233_4455_6677));
    }
}
