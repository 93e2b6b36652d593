//! The scheme Digest (RFC 7616) with MD5 and `qop=auth`: fields of requests, and what they prove.

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use crate::basic::{CREDENTIALS_BYTES_MAX, quoted};

/// MD5 of name, realm and password, in hexadecimal: whoever has it can log in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) [u8; 32]);

impl Secret {
    /// From a password.
    pub(crate) fn of(user: &[u8], realm: &[u8], password: &[u8]) -> Self {
        Self(md5_hex(&[user, b":", realm, b":", password]))
    }

    /// From its text.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut secret: [u8; 32] = text.try_into().ok()?;
        secret.make_ascii_lowercase();
        secret.iter().all(u8::is_ascii_hexdigit).then_some(Self(secret))
    }
}

/// The parts of a field's value.
pub(crate) struct Proof<'a> {
    pub(crate) user: Cow<'a, [u8]>,
    pub(crate) nonce: Cow<'a, [u8]>,
    /// How often the client has used the nonce, this time included.
    pub(crate) count: u32,
    count_text: Cow<'a, [u8]>,
    uri: Cow<'a, [u8]>,
    cnonce: Cow<'a, [u8]>,
    response: Cow<'a, [u8]>,
}

impl<'a> Proof<'a> {
    /// Reads the value of Authorization or Proxy-Authorization. `None` if anything is missing or
    /// is not what was asked for; without `qop` no request could be told from an old one.
    pub(crate) fn read(value: &'a [u8], realm: &str) -> Option<Self> {
        let parameters = after_scheme(value).filter(|_| value.len() <= CREDENTIALS_BYTES_MAX)?;
        let (mut user, mut own_realm, mut nonce, mut uri) = (None, None, None, None);
        let (mut cnonce, mut response, mut count, mut qop) = (None, None, None, None);
        let mut algorithm = None;
        let mut rest = parameters;
        while let Some((name, text)) = next_parameter(&mut rest)? {
            let place = match name.to_ascii_lowercase().as_slice() {
                b"username" => &mut user,
                b"realm" => &mut own_realm,
                b"nonce" => &mut nonce,
                b"uri" => &mut uri,
                b"cnonce" => &mut cnonce,
                b"response" => &mut response,
                b"nc" => &mut count,
                b"qop" => &mut qop,
                b"algorithm" => &mut algorithm,
                _ => continue,
            };
            // Of two values one would count here, and perhaps the other elsewhere.
            if place.replace(text).is_some() {
                return None;
            }
        }
        let is_md5 = |text: &Cow<'_, [u8]>| text.eq_ignore_ascii_case(b"MD5");
        if !algorithm.as_ref().is_none_or(is_md5)
            || own_realm?.as_ref() != realm.as_bytes()
            || !qop?.eq_ignore_ascii_case(b"auth")
        {
            return None;
        }
        let count_text: Cow<'_, [u8]> = count?;
        let digits = std::str::from_utf8(&count_text).ok().filter(|text| text.len() == 8)?;
        let proof = Self {
            count: u32::from_str_radix(digits, 16).ok()?,
            user: user?,
            nonce: nonce?,
            uri: uri?,
            cnonce: cnonce?,
            response: response?,
            count_text,
        };
        // It stands in a line of a helper, between quotes, and before a colon in a secret.
        let is_odd = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'"' | b'\\' | b':');
        (!proof.user.is_empty() && !proof.user.iter().any(is_odd)).then_some(proof)
    }

    /// Whether the client has the secret.
    pub(crate) fn proves(&self, secret: &Secret, method: &[u8]) -> bool {
        let of_request = md5_hex(&[method, b":", &self.uri]);
        let wanted = md5_hex(&[
            &secret.0,
            b":",
            &self.nonce,
            b":",
            &self.count_text,
            b":",
            &self.cnonce,
            b":auth:",
            &of_request,
        ]);
        bool::from(wanted.ct_eq(&*self.response))
    }
}

/// The value of Proxy-Authenticate or WWW-Authenticate that asks for a proof.
pub(crate) fn challenge(realm: &str, nonce: &str, is_stale: bool) -> String {
    let realm = quoted(realm);
    format!(
        "Digest realm={realm}, nonce=\"{nonce}\", qop=\"auth\", algorithm=MD5, stale={is_stale}"
    )
}

/// Whether a value is one of this scheme.
pub(crate) fn is_digest(value: &[u8]) -> bool {
    after_scheme(value).is_some()
}

fn md5_hex(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Md5::new();
    parts.iter().for_each(|part| hash.update(part));
    let mut text = [0; 32];
    HEXLOWER.encode_mut(&hash.finalize(), &mut text);
    text
}

fn after_scheme(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Digest ".len())?;
    scheme.eq_ignore_ascii_case(b"Digest ").then_some(rest)
}

/// Takes `name=value` and the comma behind it. The outer `None` is a mistake, the inner one the
/// end.
#[allow(clippy::type_complexity)]
fn next_parameter<'a>(rest: &mut &'a [u8]) -> Option<Option<(&'a [u8], Cow<'a, [u8]>)>> {
    let text = rest.trim_ascii_start();
    if text.is_empty() {
        return Some(None);
    }
    let end = text.iter().position(|byte| *byte == b'=')?;
    let name = text[..end].trim_ascii_end();
    let after = text[end + 1..].trim_ascii_start();
    let (value, after) = match after.strip_prefix(b"\"") {
        Some(inner) => quoted_value(inner)?,
        None => {
            let end = after.iter().position(|byte| *byte == b',').unwrap_or(after.len());
            (Cow::Borrowed(after[..end].trim_ascii_end()), &after[end..])
        }
    };
    *rest = match after.trim_ascii_start() {
        [] => &[],
        [b',', behind @ ..] => behind,
        _ => return None,
    };
    Some(Some((name, value)))
}

/// The value up to the closing quote, and what is behind that.
fn quoted_value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    if text[end] == b'"' {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let (mut value, mut at) = (text[..end].to_vec(), end);
    loop {
        match *text.get(at)? {
            b'"' => return Some((Cow::Owned(value), &text[at + 1..])),
            b'\\' => {
                value.push(*text.get(at + 1)?);
                at += 2;
            }
            byte => {
                value.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7616, section 3.9.1.
    const EXAMPLE: &str = "Digest username=\"Mufasa\", realm=\"http-auth@example.org\", \
         uri=\"/dir/index.html\", algorithm=MD5, \
         nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", nc=00000001, \
         cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", qop=auth, \
         response=\"8ca523f5e9506fed4657c9700eebdbec\", opaque=\"x\"";

    const REALM: &str = "http-auth@example.org";

    #[test]
    fn the_example_of_the_standard_is_proved() {
        let secret = Secret::of(b"Mufasa", REALM.as_bytes(), b"Circle of Life");
        let proof = Proof::read(EXAMPLE.as_bytes(), REALM).expect("read");
        assert_eq!((&*proof.user, proof.count), (&b"Mufasa"[..], 1));
        assert!(proof.proves(&secret, b"GET") && !proof.proves(&secret, b"POST"));
        let other = Secret::of(b"Mufasa", REALM.as_bytes(), b"circle of life");
        assert!(!proof.proves(&other, b"GET"));
    }

    #[test]
    fn a_value_that_lacks_something_proves_nothing() {
        let read = |text: &str| Proof::read(text.as_bytes(), REALM).is_some();
        assert!(read(EXAMPLE));
        for part in ["username=", "realm=", "uri=", "nonce=", "nc=", "cnonce=", "qop=", "response="]
        {
            assert!(!read(&EXAMPLE.replacen(part, "x=", 1)), "{part}");
            let twice = format!("{EXAMPLE}, {part}\"x\"");
            assert!(!read(&twice), "{part}");
        }
        for (from, to) in [
            ("MD5", "SHA-256"),
            ("qop=auth", "qop=auth-int"),
            ("http-auth@", "other@"),
            ("00000001", "1"),
            ("00000001", "0000000g"),
            ("Mufasa", ""),
            ("Mufasa", "a:b"),
            ("Mufasa", "a\\\"b"),
            ("Mufasa\"", "Mufasa\" x"),
            ("\"x\"", "\"x"),
            ("Digest ", "Basic "),
        ] {
            assert!(!read(&EXAMPLE.replace(from, to)), "{from} {to}");
        }
        assert!(!read(&format!("{EXAMPLE}{}", " ".repeat(CREDENTIALS_BYTES_MAX))));
    }

    #[test]
    fn a_secret_has_32_hexadecimal_digits() {
        let secret = Secret::of(b"a", b"b", b"c");
        let upper = secret.0.to_ascii_uppercase();
        assert!(Secret::parse(&upper) == Some(secret));
        assert!(Secret::parse(b"abc").is_none() && Secret::parse(&[b'g'; 32]).is_none());
    }
}
