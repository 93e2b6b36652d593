//! The hashes of old Unix systems and of Apache: MD5, a thousand times.
//!
//! No kept library has them. They are weak, and only read here.

use md5::{Digest, Md5};
use zeroize::Zeroize;

/// Longest salt; the rest of a longer one does not count.
const SALT_BYTES_MAX: usize = 8;

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The bytes of the digest in the order in which they are written, three to a group.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// The hash of a password, without magic and salt. `magic` is `$1$` or `$apr1$`.
pub(crate) fn md5_crypt(password: &[u8], magic: &str, salt: &[u8]) -> [u8; 22] {
    let salt = &salt[..salt.len().min(SALT_BYTES_MAX)];
    let mut digest: [u8; 16] = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize()
        .into();
    let mut first = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for rest in password.chunks(digest.len()) {
        first.update(&digest[..rest.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        let byte = if bits & 1 == 1 { 0 } else { password[0] };
        first.update([byte]);
        bits >>= 1;
    }
    digest = first.finalize().into();
    for round in 0..1000 {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password)
        } else {
            next.update(digest)
        };
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(digest)
        } else {
            next.update(password)
        };
        digest = next.finalize().into();
    }
    let text = in_letters(&digest);
    digest.zeroize();
    text
}

fn in_letters(digest: &[u8; 16]) -> [u8; 22] {
    let mut text = [0; 22];
    let mut letters = text.iter_mut();
    let mut write = |mut bits: u32, count: usize| {
        for letter in letters.by_ref().take(count) {
            *letter = ALPHABET[bits as usize & 63];
            bits >>= 6;
        }
    };
    for group in GROUPS {
        let [high, middle, low] = group.map(|index| u32::from(digest[index]));
        write(high << 16 | middle << 8 | low, 4);
    }
    write(u32::from(digest[11]), 2);
    text
}
