//! Targeted cache-control fields (RFC 9213): directives as a structured-field dictionary (RFC 9651
//! section 3.2).

use humboldt_http::Fields;

use crate::directives::{CacheControl, Directive, MAX_SECONDS};

/// Bound on dictionary members; a field with more is ignored, as a malformed one is.
const MAX_MEMBERS: usize = 64;

/// Most digits of a structured-field integer (RFC 9651 section 3.3.1).
const MAX_INTEGER_DIGITS: usize = 15;

/// The value of a member, as far as a cache directive can use it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value<'a> {
    Flag(bool),
    Integer(i64),
    /// The inside of a string, escapes untouched.
    Text(&'a [u8]),
    /// A type that no cache directive has.
    Other,
}

/// The directives in the field called `name`, or `None` if it is absent, empty or malformed: it is
/// then as if it were not there (RFC 9213 section 2.1).
pub(crate) fn parse(fields: &Fields, name: &[u8]) -> Option<CacheControl> {
    let mut joined = Vec::new();
    for (_, field_name, value) in fields.iter() {
        if field_name.eq_ignore_ascii_case(name) {
            if !joined.is_empty() {
                joined.push(b',');
            }
            joined.extend_from_slice(value);
        }
    }
    let members = Reader(&joined).dictionary()?;
    if members.is_empty() {
        return None;
    }
    let mut parsed = CacheControl::default();
    parsed.mark(Directive::Targeted);
    for (key, value) in members {
        let (Some(directive), false) = (Directive::named(key), value == Value::Flag(false)) else {
            continue;
        };
        match (directive, value) {
            (Directive::NoCache | Directive::Private, Value::Text(names)) => {
                parsed.add_listing(directive, names)
            }
            (Directive::NoCache | Directive::Private, _) => parsed.mark(directive),
            (_, Value::Integer(seconds)) => parsed.set_seconds(directive, Some(in_range(seconds))),
            (_, Value::Flag(_)) => parsed.set_seconds(directive, None),
            (_, _) => parsed.set_seconds(directive, Some(None)),
        }
    }
    Some(parsed)
}

/// Negative is malformed; large is capped.
fn in_range(seconds: i64) -> Option<u32> {
    (seconds >= 0).then(|| u32::try_from(seconds).unwrap_or(MAX_SECONDS).min(MAX_SECONDS))
}

/// The unread rest. Every method takes the part that it recognises, or returns `None` for malformed
/// input.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Members in order; of a repeated key the last value, in the place of the first (RFC 9651
    /// section 4.2.2).
    fn dictionary(&mut self) -> Option<Vec<(&'a [u8], Value<'a>)>> {
        let mut members: Vec<(&[u8], Value<'_>)> = Vec::new();
        self.0 = self.0.trim_ascii();
        while !self.0.is_empty() {
            let key = self.key()?;
            let value = if self.take(b'=') { self.member_value()? } else { Value::Flag(true) };
            self.parameters()?;
            let full = members.len() >= MAX_MEMBERS;
            match members.iter_mut().find(|(known, _)| *known == key) {
                Some(member) => member.1 = value,
                None if full => return None,
                None => members.push((key, value)),
            }
            self.skip_ows();
            if self.0.is_empty() {
                break;
            }
            if !self.take(b',') {
                return None;
            }
            self.skip_ows();
            if self.0.is_empty() {
                return None; // a trailing comma
            }
        }
        Some(members)
    }

    fn member_value(&mut self) -> Option<Value<'a>> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        loop {
            self.0 = self.0.trim_ascii_start();
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.0 = self.0.trim_ascii_start();
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<Value<'a>> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.text(),
            b'?' => self.flag(),
            b':' => {
                self.0 = &self.0[1..];
                self.run(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(Value::Other)
            }
            b'@' => {
                self.0 = &self.0[1..];
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.run(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value<'a>> {
        let negative = self.take(b'-');
        let digits = self.run(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > MAX_INTEGER_DIGITS {
            return None;
        }
        if self.take(b'.') {
            let fraction = self.run(|byte| byte.is_ascii_digit());
            return matches!(fraction.len(), 1..=3).then_some(Value::Other);
        }
        let size = digits.iter().fold(0_i64, |total, byte| total * 10 + i64::from(byte - b'0'));
        Some(Value::Integer(if negative { -size } else { size }))
    }

    fn text(&mut self) -> Option<Value<'a>> {
        let inside = self.0.get(1..)?;
        let mut at = 0;
        loop {
            match *inside.get(at)? {
                b'"' => break,
                b'\\' if matches!(inside.get(at + 1), Some(b'"' | b'\\')) => at += 2,
                b'\\' => return None,
                0x20..=0x7e => at += 1,
                _ => return None,
            }
        }
        self.0 = &inside[at + 1..];
        Some(Value::Text(&inside[..at]))
    }

    fn flag(&mut self) -> Option<Value<'a>> {
        let value = match self.0.get(1)? {
            b'0' => false,
            b'1' => true,
            _ => return None,
        };
        self.0 = &self.0[2..];
        Some(Value::Flag(value))
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.0.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.run(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    /// Takes the longest prefix whose bytes satisfy `accepts`.
    fn run(&mut self, accepts: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !accepts(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn skip_ows(&mut self) {
        self.run(|byte| byte == b' ' || byte == b'\t');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(text: &str) -> Option<usize> {
        Reader(text.as_bytes()).dictionary().map(|members| members.len())
    }

    #[test]
    fn well_formed() {
        let rows = [
            ("", 0),
            ("max-age=60", 1),
            (" max-age=60 ,\tno-store ", 2),
            ("a=1, a=2", 1),
            ("a=1.5;p;q=\"x\\\"y\", b=?0, c=tok/en, d=:YQ==:, e=(1 \"x\" t;q), f=@12", 6),
            ("*k.-_=-5", 1),
        ];
        for (text, members) in rows {
            assert_eq!(dictionary(text), Some(members), "{text}");
        }
    }

    #[test]
    fn malformed() {
        for text in [
            "max-age=60,",
            ",a",
            "Max-Age=60",
            "max-age=",
            "max-age = 60",
            "a=\"x",
            "a=\"\\x\"",
            "a=?2",
            "a b",
            "a=1.",
            "a=1.2345",
            "a=1234567890123456",
            "a=(1",
            "a=(1\"x\")",
            "a=:*:",
            "a=@x",
            "a;=1",
            "a=\u{e9}",
            "a=-",
        ] {
            assert_eq!(dictionary(text), None, "{text}");
        }
        let many: Vec<String> = (0..=MAX_MEMBERS).map(|n| format!("k{n}")).collect();
        assert_eq!(dictionary(&many.join(",")), None);
    }

    #[test]
    fn last_of_a_repeated_key_counts() {
        let members = Reader(b"max-age=1, no-store, max-age=9, no-store=?0").dictionary().unwrap();
        assert_eq!(
            members,
            [(&b"max-age"[..], Value::Integer(9)), (b"no-store", Value::Flag(false))]
        );
    }

    #[test]
    fn range() {
        assert_eq!(in_range(-1), None);
        assert_eq!(in_range(7), Some(7));
        assert_eq!(in_range(999_999_999_999_999), Some(MAX_SECONDS));
    }
}
