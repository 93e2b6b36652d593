//! Hashes of passwords, in the forms that password files have.
//!
//! Every comparison takes the same time however much of two hashes is equal.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use md5::{Digest, Md5};
use sha_crypt::{PasswordVerifier, ShaCrypt};
use sha1::Sha1;
use subtle::ConstantTimeEq;
use yescrypt::Yescrypt;

use crate::md5_crypt::md5_crypt;

/// Length of the last part of a yescrypt hash.
const YESCRYPT_BYTES: usize = 43;

/// The form of the hash is not known, or it is damaged.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported;

/// A hash by its form.
enum Stored<'a> {
    Bcrypt(&'a str),
    /// SHA-256 and SHA-512.
    Sha(&'a str),
    Yescrypt(&'a str),
    Md5 {
        magic: &'static str,
        salt: &'a [u8],
        hash: &'a [u8],
    },
    /// SHA-1, without salt.
    Sha1(Vec<u8>),
    /// MD5, without salt.
    PlainMd5(Vec<u8>),
}

impl<'a> Stored<'a> {
    fn read(text: &'a str) -> Result<Self, Unsupported> {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if starts(&["$2a$", "$2b$", "$2x$", "$2y$"]) {
            return Ok(Self::Bcrypt(text));
        }
        if starts(&["$5$", "$6$"]) {
            return Ok(Self::Sha(text));
        }
        if starts(&["$y$"]) {
            // The library compares as much as there is: nothing would be equal to anything.
            let last = text.rsplit('$').next().unwrap_or_default();
            return if last.len() == YESCRYPT_BYTES {
                Ok(Self::Yescrypt(text))
            } else {
                Err(Unsupported)
            };
        }
        for magic in ["$1$", "$apr1$"] {
            if let Some((salt, hash)) =
                text.strip_prefix(magic).and_then(|rest| rest.split_once('$'))
            {
                return Ok(Self::Md5 { magic, salt: salt.as_bytes(), hash: hash.as_bytes() });
            }
        }
        if let Some(hash) = text.strip_prefix("{SHA}") {
            return BASE64.decode(hash.as_bytes()).map(Self::Sha1).map_err(|_| Unsupported);
        }
        let hash = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| Unsupported)?;
        let is_md5 = hash.len() == Md5::output_size();
        if is_md5 { Ok(Self::PlainMd5(hash)) } else { Err(Unsupported) }
    }
}

/// Whether the form of a hash is known.
pub(crate) fn is_supported(stored: &str) -> bool {
    Stored::read(stored).is_ok()
}

/// Whether the hash is that of the password. Takes long where the hash is a good one.
pub(crate) fn is_password(password: &[u8], stored: &str) -> Result<bool, Unsupported> {
    let is_equal = |one: &[u8], other: &[u8]| bool::from(one.ct_eq(other));
    Ok(match Stored::read(stored)? {
        Stored::Bcrypt(text) => bcrypt::verify(password, text).map_err(|_| Unsupported)?,
        Stored::Sha(text) => verified(ShaCrypt::default().verify_password(password, text))?,
        Stored::Yescrypt(text) => verified(Yescrypt::default().verify_password(password, text))?,
        Stored::Md5 { magic, salt, hash } => is_equal(&md5_crypt(password, magic, salt), hash),
        Stored::Sha1(hash) => is_equal(&Sha1::digest(password), &hash),
        Stored::PlainMd5(hash) => is_equal(&Md5::digest(password), &hash),
    })
}

/// The answer of a library that tells a wrong password and a damaged hash apart.
fn verified(result: Result<(), sha_crypt::password_hash::Error>) -> Result<bool, Unsupported> {
    match result {
        Ok(()) => Ok(true),
        Err(sha_crypt::password_hash::Error::PasswordInvalid) => Ok(false),
        Err(_) => Err(Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by crypt(3) of libxcrypt, `openssl passwd`, `openssl sha1` and `md5sum`.
    const HASHES: [(&str, &str); 17] = [
        ("secret", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
        ("secret", "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA"),
        ("secret", "$5$rounds=1500$saltstring12345$RXaJo7GqS/cAlPLYLFGfROA0t3DBURW1VvaLqEAT5T2"),
        (
            "secret",
            "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZ\
             N.Pq.H91p5hVO1",
        ),
        ("secret", "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("secret", "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("secret", "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("secret", "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$GmcwIgvdUC9qLWcKCi6gklUa1dM3ziD43YxYNURLKy0"),
        ("secret", "$apr1$x1y2z3a4$SrvxdNLJgAc7F8EfRTOUB0"),
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "5ebe2294ecd0e0f08eab7690d2a6ee69"),
        (LONG, "$1$ab$h2zWLGDCVtSciyMgWV6y/0"),
        (LONG, "$5$x$B0Y/6Gq4I5fAWTZVKkWyWmnCT30zULeNY.OKM./wWx3"),
        (
            LONG,
            "$6$x$dYUdpm5ft5YZB.HbbTJ8U379uXOKb6tqZmx253UzZQ/i41zoQgIgfQIVgkzCHeznveZAe3w8Ak5CSdPWKdRtR/",
        ),
        (LONG, "$y$j9T$abc1$4jjnhk/4FCZFLTnrLmwaWXyrSutMwIk39ImfF2bl3/8"),
        (LONG, "$2y$04$abcdefghijklmnopqrstuuoQiuVyEZBbICd9ImZBSiefn172JfEa6"),
        (LONG, "$apr1$q$FH02ZemZBD7DXt3K5v8sz."),
    ];

    const LONG: &str = "a long password of more than sixteen bytes";

    #[test]
    fn each_form_knows_its_password_and_no_other() {
        for (password, stored) in HASHES {
            assert_eq!(is_password(password.as_bytes(), stored), Ok(true), "{stored}");
            for wrong in ["", "Secret", "secret ", "secre", &LONG[1..]] {
                assert_eq!(is_password(wrong.as_bytes(), stored), Ok(false), "{stored}");
            }
        }
    }

    /// Nothing is equal to nothing, and a part of a hash is no hash.
    #[test]
    fn a_damaged_hash_is_nobodys_password() {
        for (password, stored) in HASHES {
            for end in 0..stored.len() {
                let part = stored.get(..end).expect("ASCII");
                let result = is_password(password.as_bytes(), part);
                assert_ne!(result, Ok(true), "{part}");
            }
            assert_ne!(is_password(password.as_bytes(), &format!("{stored}$")), Ok(true));
        }
        for odd in ["", "*", "!", "secret", "{PLAIN}secret", "$9$x$y", "abNANd1rDfiNc", "x"] {
            assert_eq!(is_password(b"secret", odd), Err(Unsupported), "{odd}");
            assert!(!is_supported(odd));
        }
    }
}
