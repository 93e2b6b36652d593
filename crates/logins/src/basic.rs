//! The scheme Basic (RFC 7617): names and passwords in fields of requests.

use data_encoding::BASE64;
use humboldt_conf::BasicAuth;
use zeroize::Zeroizing;

/// Longest value of a field with credentials that is looked at; with a longer one nobody logs in.
pub(crate) const CREDENTIALS_BYTES_MAX: usize = 8192;

/// A name and a password as the client sent them.
pub(crate) struct Credentials {
    /// The name. In lower case unless names have case.
    pub(crate) user: Vec<u8>,
    /// Overwritten when it is dropped.
    pub(crate) password: Zeroizing<Vec<u8>>,
}

/// The parts of a field's value that could be read.
pub(crate) enum Read {
    /// A name and a password.
    Whole(Credentials),
    /// Without a password nobody logs in, but the name can be logged.
    NameOnly(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// Reads the value of Authorization or Proxy-Authorization.
pub(crate) fn read(value: &[u8], basic: &BasicAuth) -> Read {
    let Some(text) = after_scheme(value).filter(|_| value.len() <= CREDENTIALS_BYTES_MAX) else {
        return Read::Nothing;
    };
    let Ok(decoded) = BASE64.decode(text).map(Zeroizing::new) else { return Read::Nothing };
    let decoded = match basic.utf8 {
        true => in_utf8(decoded),
        false => decoded,
    };
    // One line of a helper's input has one login, and one of a log one name.
    if decoded.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Read::Nothing;
    }
    let mut parts = decoded.splitn(2, |byte| *byte == b':');
    let mut user = parts.next().unwrap_or_default().to_vec();
    if !basic.case_sensitive {
        user.make_ascii_lowercase();
    }
    match parts.next() {
        // As in Squid, an empty password is none.
        Some(password @ [_, ..]) => {
            Read::Whole(Credentials { user, password: Zeroizing::new(password.to_vec()) })
        }
        _ => Read::NameOnly(user),
    }
}

/// The text after the word `Basic`, which has no case.
fn after_scheme(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Basic".len())?;
    let is_word = rest.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    (scheme.eq_ignore_ascii_case(b"Basic") && is_word).then(|| rest.trim_ascii())
}

/// Text that is not UTF-8 is taken for ISO-8859-1, of which each byte is one character.
fn in_utf8(text: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
    match std::str::from_utf8(&text) {
        Ok(_) => text,
        Err(_) => Zeroizing::new(from_latin1(&text).into_bytes()),
    }
}

/// A name as text, for rules and logs.
pub(crate) fn as_text(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_owned(),
        Err(_) => from_latin1(name),
    }
}

fn from_latin1(text: &[u8]) -> String {
    text.iter().map(|byte| char::from(*byte)).collect()
}

/// The value of Proxy-Authenticate or WWW-Authenticate that asks for credentials.
pub(crate) fn challenge(basic: &BasicAuth) -> String {
    let charset = if basic.utf8 { ", charset=\"UTF-8\"" } else { "" };
    format!("Basic realm={}{charset}", quoted(&basic.realm))
}

/// A text in quotes, which it cannot end.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8], basic: &BasicAuth) -> (Vec<u8>, Option<Vec<u8>>) {
        let value = format!("Basic {}", BASE64.encode(text));
        match read(value.as_bytes(), basic) {
            Read::Whole(whole) => (whole.user, Some(whole.password.to_vec())),
            Read::NameOnly(user) => (user, None),
            Read::Nothing => (b"nothing".to_vec(), None),
        }
    }

    #[test]
    fn name_and_password_are_what_is_before_and_after_the_first_colon() {
        let basic = BasicAuth::default();
        let exact = BasicAuth { case_sensitive: true, ..BasicAuth::default() };
        for (text, user, password) in [
            (&b"anna:secret"[..], "anna", Some("secret")),
            (b"Anna:Secret", "anna", Some("Secret")),
            (b"anna:a:b", "anna", Some("a:b")),
            (b"anna:", "anna", None),
            (b"anna", "anna", None),
            (b":x", "", Some("x")),
            (b"an\nna:x", "nothing", None),
            (b"anna:x\0y", "nothing", None),
        ] {
            let wanted = (user.as_bytes().to_vec(), password.map(|text| text.as_bytes().to_vec()));
            assert_eq!(read_text(text, &basic), wanted, "{user}");
        }
        assert_eq!(read_text(b"Anna:x", &exact).0, b"Anna");
    }

    #[test]
    fn only_the_scheme_basic_is_read() {
        let is_read = |value: &[u8]| !matches!(read(value, &BasicAuth::default()), Read::Nothing);
        assert!(is_read(b"Basic YTpi") && is_read(b"basic  YTpi") && is_read(b"BASIC\tYTpi "));
        for wrong in [&b"Basic"[..], b"", b"BasicYTpi", b"Digest YTpi", b"Basic YTp", b"Basic ?"] {
            assert!(!is_read(wrong), "{}", String::from_utf8_lossy(wrong));
        }
        let long = format!("Basic {}", BASE64.encode(&[b'a'; CREDENTIALS_BYTES_MAX]));
        assert!(!is_read(long.as_bytes()));
    }

    #[test]
    fn with_utf8_other_text_is_converted() {
        let utf8 = BasicAuth { utf8: true, ..BasicAuth::default() };
        let latin = b"j\xf6rg:\xe9t\xe9";
        let wanted = ("jörg".as_bytes().to_vec(), Some("été".as_bytes().to_vec()));
        assert_eq!(read_text(latin, &utf8), wanted);
        assert_eq!(read_text("jörg:été".as_bytes(), &utf8), wanted);
        assert_eq!(read_text(latin, &BasicAuth::default()).0, b"j\xf6rg");
        assert_eq!(as_text(b"j\xf6rg"), "jörg");
    }

    #[test]
    fn a_realm_cannot_end_its_quotes() {
        let basic = BasicAuth { realm: "a \"b\" \\".into(), ..BasicAuth::default() };
        assert_eq!(challenge(&basic), r#"Basic realm="a \"b\" \\""#);
        let utf8 = BasicAuth { realm: "x".into(), utf8: true, ..BasicAuth::default() };
        assert_eq!(challenge(&utf8), "Basic realm=\"x\", charset=\"UTF-8\"");
    }
}
