//! XXH3, the hash of keys and the checksum of everything on disk. Not cryptographic.
//!
//! Which instructions do it is found out at run time. Nothing is allocated.

use std::hash::Hasher;

use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};
use twox_hash::{XxHash3_64, XxHash3_128};

/// 64 bits of the hash of `bytes`.
#[inline]
#[must_use]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The same with a seed.
#[inline]
#[must_use]
pub fn xxh3_64_with_seed(bytes: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// 128 bits of the hash of `bytes`.
#[inline]
#[must_use]
pub fn xxh3_128(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// The same with a seed.
#[inline]
#[must_use]
pub fn xxh3_128_with_seed(bytes: &[u8], seed: u64) -> u128 {
    XxHash3_128::oneshot_with_seed(seed, bytes)
}

/// The 64-bit hash of bytes that come in pieces.
pub struct Xxh3(RawHasher<[u8; DEFAULT_SECRET_LENGTH]>);

impl Xxh3 {
    /// Without a seed, as [`xxh3_64`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// With a seed, as [`xxh3_64_with_seed`].
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        let secret = SecretBuffer::with_seed(seed, [0; DEFAULT_SECRET_LENGTH]);
        Self(RawHasher::new(secret.expect("room for the secret that there is")))
    }

    /// Adds a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The hash of all pieces.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.finish()
    }
}

impl Default for Xxh3 {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of the reference implementation (xxHash 0.8): what is on disk must be found by the next version too.
    #[test]
    fn it_is_xxh3() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3_64(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(xxh3_128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    }

    #[test]
    fn in_pieces_it_is_the_same() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i * 31 + i / 251) as u8).collect();
        for (len, cut) in
            [(0, 0), (1, 0), (100, 17), (240, 239), (241, 1), (256, 255), (1025, 600), (5000, 4999)]
        {
            for seed in [0, 1, u64::MAX] {
                let (first, second) = bytes[..len].split_at(cut);
                let mut hash = Xxh3::with_seed(seed);
                hash.update(first);
                hash.update(second);
                assert_eq!(hash.digest(), xxh3_64_with_seed(&bytes[..len], seed), "{len} {cut} {seed}");
            }
            let mut hash = Xxh3::new();
            hash.update(&bytes[..len]);
            assert_eq!(hash.digest(), xxh3_64(&bytes[..len]), "{len}");
        }
    }
}
