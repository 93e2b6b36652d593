//! Vary: which request fields belong to the key of an answer (RFC 9111 section 4.1).

use std::iter::Peekable;

use humboldt_http::{FieldName, Fields, split_list};

use crate::languages;

/// Bound on the fields an answer may vary on; more count as `*`.
const MAX_FIELDS: usize = 16;

/// Bound on the length of one field name; a longer one counts as `*`.
const MAX_NAME_BYTES: usize = 128;

/// The meaning of the Vary field of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Absent or empty: one answer for everybody.
    Nothing,
    /// On these request fields.
    On(Spec),
    /// `*`, malformed, or beyond the bounds: no other request may be given this answer.
    Any,
}

/// The set of request fields an answer varies on: lower-case names in order, each followed by a
/// comma. Two Vary fields that mean the same give the same `Spec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec(Box<[u8]>);

/// Reads the Vary field of an answer.
pub fn of(response: &Fields) -> Vary {
    if !response.has(FieldName::Vary) {
        return Vary::Nothing;
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    for item in response.list(FieldName::Vary) {
        if names.len() >= MAX_FIELDS
            || item.len() > MAX_NAME_BYTES
            || !item.iter().all(|&byte| is_name_byte(byte))
        {
            return Vary::Any;
        }
        names.push(item.to_ascii_lowercase());
    }
    if names.is_empty() {
        return Vary::Nothing;
    }
    names.sort_unstable();
    names.dedup();
    let mut joined = Vec::new();
    for name in names {
        joined.extend_from_slice(&name);
        joined.push(b',');
    }
    Vary::On(Spec(joined.into_boxed_slice()))
}

impl Spec {
    /// The form to store; see [`Spec::from_bytes`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The names of the fields.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b',').filter(|name| !name.is_empty())
    }

    /// Reads the stored form; `None` if it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let names = bytes.strip_suffix(b",")?;
        let sound = |name: &[u8]| {
            !name.is_empty()
                && name.len() <= MAX_NAME_BYTES
                && name.iter().all(|&byte| is_name_byte(byte) && !byte.is_ascii_uppercase())
        };
        let mut count = 0;
        let mut previous: &[u8] = b"";
        for name in names.split(|&byte| byte == b',') {
            count += 1;
            if count > MAX_FIELDS || !sound(name) || name <= previous {
                return None;
            }
            previous = name;
        }
        Some(Self(bytes.into()))
    }

    /// Appends the part of `request` that selects a variant: each field's name and normalised
    /// value. Requests with equal bytes select the same variant, and different values give
    /// different bytes.
    pub fn append_key(&self, request: &Fields, out: &mut Vec<u8>) {
        for name in self.names() {
            out.extend_from_slice(name);
            append_value(request, name, out);
            out.push(b'\n');
        }
    }

    /// As [`Vary::append_key`], with an answer's language in place of the languages that the
    /// request accepts. Under such a key an answer is found by all requests that want this language
    /// most ([`languages::favourite`]) and have the same values otherwise. `false`, and no valid
    /// `out`, if languages do not matter.
    pub fn append_language_key(
        &self,
        request: &Fields,
        language: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let mut matters = false;
        for name in self.names() {
            if name == b"accept-language" {
                matters = true;
                out.extend_from_slice(b"content-language:");
                out.extend(language.iter().map(u8::to_ascii_lowercase));
            } else {
                out.extend_from_slice(name);
                append_value(request, name, out);
            }
            out.push(b'\n');
        }
        matters
    }
}

/// Appends `:value`, or nothing for an absent field. Lines are joined with commas, as RFC 9111
/// section 4.1 allows, and white space around the members of lists is left out. Fields that are
/// known not to be lists count as they are.
fn append_value(request: &Fields, name: &[u8], out: &mut Vec<u8>) {
    use FieldName as F;
    let known = F::from_bytes(name);
    let start = out.len();
    match known {
        F::Other => append_list(&mut request.get_all_by_name(name).peekable(), out),
        F::Accept => append_list(&mut request.get_all(known).peekable(), out),
        F::AcceptEncoding => {
            append_list(&mut request.get_all(known).peekable(), out);
            out.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
        }
        F::AcceptLanguage if request.has(known) => {
            languages::append_normal(request.list(known), out)
        }
        _ => _ = join(request.get_all(known), out),
    };
}

/// Appends `:` and the members of all lines of a field, which may be none, or nothing for an absent
/// field.
fn append_list<'a>(lines: &mut Peekable<impl Iterator<Item = &'a [u8]>>, out: &mut Vec<u8>) {
    let is_present = lines.peek().is_some();
    if !join(lines.flat_map(split_list), out) && is_present {
        out.push(b':');
    }
}

/// Appends `:` and the values with commas between; returns whether there was any.
fn join<'a>(values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> bool {
    let mut any = false;
    for value in values {
        out.push(if any { b',' } else { b':' });
        out.extend_from_slice(value);
        any = true;
    }
    any
}

/// A byte of a field name (RFC 9110 section 5.6.2), `*` excepted: no request field is called so.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{request, response};

    fn spec(answer: &str) -> Vary {
        of(&response(200, answer).fields)
    }

    fn key(answer: &str, client: &str) -> Vec<u8> {
        let Vary::On(spec) = spec(answer) else { panic!("no spec in {answer}") };
        let mut out = Vec::new();
        spec.append_key(&request(client).fields, &mut out);
        out
    }

    #[test]
    fn reading() {
        assert_eq!(spec(""), Vary::Nothing);
        assert_eq!(spec("Vary: "), Vary::Nothing);
        assert_eq!(spec("Vary: ,,"), Vary::Nothing);
        assert_eq!(spec("Vary: *"), Vary::Any);
        assert_eq!(spec("Vary: accept|Vary: *"), Vary::Any);
        assert_eq!(spec("Vary: a b"), Vary::Any);
        assert_eq!(spec("Vary: \"a\""), Vary::Any);
        let many: Vec<String> = (0..=MAX_FIELDS).map(|n| format!("x{n}")).collect();
        assert_eq!(spec(&format!("Vary: {}", many.join(","))), Vary::Any);
        let Vary::On(one) = spec("Vary: Cookie, Accept-Encoding, cookie") else { panic!() };
        assert_eq!(one.as_bytes(), b"accept-encoding,cookie,");
        assert_eq!(spec("Vary: accept-ENCODING|Vary: COOKIE"), Vary::On(one.clone()));
        assert_eq!(Spec::from_bytes(one.as_bytes()), Some(one));
    }

    #[test]
    fn damaged_forms_are_refused() {
        for bad in ["", ",", "a", "b,a,", "a,a,", "A,", "a b,", "a,,b,", "*,"] {
            assert_eq!(Spec::from_bytes(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Spec::from_bytes("abc,".repeat(MAX_FIELDS + 1).as_bytes()), None);
    }

    #[test]
    fn the_key_of_a_language_covers_everything_else_too() {
        let language_key = |client: &str, language: &str| {
            let Vary::On(spec) = spec("Vary: Accept-Language, X-One") else { panic!() };
            let mut out = Vec::new();
            assert!(spec.append_language_key(
                &request(client).fields,
                language.as_bytes(),
                &mut out
            ));
            out
        };
        let one = language_key("X-One: a|Accept-Language: en, de", "de");
        assert_eq!(one, language_key("X-One: a|Accept-Language: de", "DE"));
        assert_ne!(one, language_key("X-One: b|Accept-Language: de", "de"));
        assert_ne!(one, language_key("X-One: a|Accept-Language: de", "en"));
        assert_ne!(one, key("Vary: Accept-Language, X-One", "X-One: a|Accept-Language: de"));
        let Vary::On(spec) = spec("Vary: X-One") else { panic!() };
        assert!(!spec.append_language_key(&request("").fields, b"de", &mut Vec::new()));
    }

    #[test]
    fn equivalent_requests_share_a_variant() {
        let rows = [
            (
                "Vary: Accept-Encoding",
                "Accept-Encoding: gzip, br",
                "accept-encoding: GZIP,br",
                true,
            ),
            (
                "Vary: Accept-Encoding",
                "Accept-Encoding: gzip|Accept-Encoding: br",
                "Accept-Encoding: gzip,br",
                true,
            ),
            ("Vary: Accept-Encoding", "Accept-Encoding: gzip", "Accept-Encoding: br", false),
            ("Vary: Accept-Encoding", "", "Accept-Encoding: ", false),
            ("Vary: Accept-Encoding", "", "X: y", true),
            ("Vary: Accept", "Accept: a , b", "Accept: a,b", true),
            ("Vary: Accept", "Accept: A", "Accept: a", false),
            ("Vary: Cookie", "Cookie: a=1", "Cookie: a=1", true),
            ("Vary: Cookie", "Cookie: a=1", "Cookie: A=1", false),
            ("Vary: X-One", "X-One: a|X-One: b", "x-one: a,b", true),
            ("Vary: X-One", "X-One: a,b", "x-one:  a ,\tb ", true),
            ("Vary: X-One", "X-One: \"a, b\"", "X-One: \"a,b\"", false),
            ("Vary: X-One", "X-One: a,b", "X-One: ab", false),
            ("Vary: X-One", "X-One: a b", "X-One: a  b", false),
            ("Vary: Cookie", "Cookie: a=1, b", "Cookie: a=1,b", false),
            ("Vary: Accept-Language", "Accept-Language: en, de", "Accept-Language: de,EN", true),
            (
                "Vary: Accept-Language",
                "Accept-Language: en, de;q=0.5",
                "Accept-Language: de;q=0.5,en",
                true,
            ),
            (
                "Vary: Accept-Language",
                "Accept-Language: en, de;q=0.5",
                "Accept-Language: de, en;q=0.5",
                false,
            ),
            ("Vary: Accept-Language", "Accept-Language: ", "", false),
            ("Vary: X-One", "X-One: ", "", false),
            ("Vary: X-One, X-Two", "X-One: a", "X-Two: a", false),
        ];
        for (answer, one, two, same) in rows {
            assert_eq!(key(answer, one) == key(answer, two), same, "{answer} / {one} / {two}");
        }
    }
}
