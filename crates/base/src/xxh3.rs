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

/// As [`xxh3_64`], with a seed.
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

/// As [`xxh3_128`], with a seed.
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

    fn bytes(len: u32) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    /// The values of other implementations, for every class of lengths: the next version must find
    /// the objects on disk too.
    #[test]
    fn it_is_xxh3() {
        const SEED: u64 = 7;
        for (len, expected_64, expected_128) in [
            (
                0,
                [0x2d06_8005_38d3_94c2, 0x913a_e087_3e9b_7eb8],
                [
                    0x99aa_06d3_0147_98d8_6001_c324_468d_497f,
                    0x76a3_0bdf_56cd_fa2c_cb4a_a04f_e72c_771f,
                ],
            ),
            (
                1,
                [0xc44b_dff4_074e_ecdb, 0x2c45_aa60_ff5d_c0e5],
                [
                    0xa6cd_5e93_9200_0f6a_c44b_dff4_074e_ecdb,
                    0x5f2a_b574_a275_3d0c_2c45_aa60_ff5d_c0e5,
                ],
            ),
            (
                5,
                [0x3e28_4763_7b29_24d1, 0x3917_7680_0e69_4588],
                [
                    0x8156_cb13_6c70_03e9_9f31_da1d_dba9_0baf,
                    0x51bc_bd5b_1540_6c03_68ed_f608_c139_a6fe,
                ],
            ),
            (
                12,
                [0xeb60_97c8_c38b_66cd, 0x3dcb_aa5f_3af5_4eb8],
                [
                    0x0306_03f2_c7ff_2e1f_9d0d_5f52_a33e_a53e,
                    0xce66_378b_ac65_81b3_70ad_8a26_d4fe_42fa,
                ],
            ),
            (
                100,
                [0x10c6_f5ef_f4f4_5481, 0x9bb0_62d2_b50c_09aa],
                [
                    0xe961_4ba2_d15b_b7c8_ac27_11cc_b8f4_a260,
                    0xb418_2813_f67e_b660_ca8c_1b55_3a0c_c4e7,
                ],
            ),
            (
                200,
                [0xc56a_3bc9_77e0_96fb, 0x6d0a_4112_e28c_ff59],
                [
                    0x74aa_f80f_9862_1358_b572_2aed_107b_d214,
                    0xe4e0_38dc_660a_9ddc_f241_8a29_741c_71c5,
                ],
            ),
            (
                1025,
                [0x9e49_547a_c226_6535, 0x7602_f0d4_0325_fafa],
                [
                    0x0126_d21f_c878_deda_9e49_547a_c226_6535,
                    0xb7d6_71d4_5075_1ff8_7602_f0d4_0325_fafa,
                ],
            ),
        ] {
            let bytes = bytes(len);
            assert_eq!([xxh3_64(&bytes), xxh3_64_with_seed(&bytes, SEED)], expected_64, "{len}");
            assert_eq!([xxh3_128(&bytes), xxh3_128_with_seed(&bytes, SEED)], expected_128, "{len}");
        }
    }

    #[test]
    fn in_pieces_it_is_the_same() {
        let bytes = bytes(5000);
        for (len, cut) in
            [(0, 0), (1, 0), (100, 17), (240, 239), (241, 1), (256, 255), (1025, 600), (5000, 4999)]
        {
            for seed in [0, 1, u64::MAX] {
                let (first, second) = bytes[..len].split_at(cut);
                let mut hash = Xxh3::with_seed(seed);
                hash.update(first);
                hash.update(second);
                assert_eq!(
                    hash.digest(),
                    xxh3_64_with_seed(&bytes[..len], seed),
                    "{len} {cut} {seed}"
                );
            }
            let mut hash = Xxh3::new();
            hash.update(&bytes[..len]);
            assert_eq!(hash.digest(), xxh3_64(&bytes[..len]), "{len}");
        }
    }
}
