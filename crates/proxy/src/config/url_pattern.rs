//! The expressions of `refresh_pattern`. Every miss is matched with them, so those of nearly every
//! squid.conf have short cuts: `^ftp:`, `(/cgi-bin/|\?)` and `.`.

use memchr::memchr_iter;
use regex::bytes::Regex;

/// An expression that is matched with URLs.
#[derive(Debug)]
pub(crate) struct UrlPattern {
    regex: Regex,
    form: Form,
}

/// The compiled form of an expression.
#[derive(Debug)]
enum Form {
    /// Any byte except a line feed.
    AnyByte,
    /// The beginning of the URL.
    Prefix(Literal),
    /// One of several literals, anywhere: the byte to search for, and the bytes that must follow
    /// it.
    OneOf(Vec<(u8, Literal)>),
    Expression,
}

/// Bytes without a special meaning.
#[derive(Debug)]
struct Literal {
    bytes: Box<[u8]>,
    /// Whether case is ignored.
    any_case: bool,
}

impl UrlPattern {
    pub(crate) fn new(regex: &Regex, case_insensitive: bool) -> Self {
        let form = match regex.as_str().as_bytes() {
            b"." => Form::AnyByte,
            [b'^', prefix @ ..] if !prefix.iter().all(means_itself) => Form::Expression,
            [b'^', prefix @ ..] => {
                Form::Prefix(Literal { bytes: prefix.into(), any_case: case_insensitive })
            }
            text => one_of(text, case_insensitive).map_or(Form::Expression, Form::OneOf),
        };
        Self { regex: regex.clone(), form }
    }

    /// Whether it matches somewhere in `url`.
    pub(crate) fn is_match(&self, url: &[u8]) -> bool {
        match &self.form {
            Form::AnyByte => url.iter().any(|&byte| byte != b'\n'),
            Form::Prefix(prefix) => prefix.begins(url),
            Form::OneOf(literals) => literals.iter().any(|(first, rest)| {
                memchr_iter(*first, url)
                    .any(|at| url.get(at + 1..).is_some_and(|behind| rest.begins(behind)))
            }),
            Form::Expression => self.regex.is_match(url),
        }
    }
}

fn means_itself(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b":/-_".contains(byte)
}

/// The alternatives of `(a|b|c)` or `a|b|c`, if all of them are literals whose first byte can be
/// searched for.
fn one_of(text: &[u8], any_case: bool) -> Option<Vec<(u8, Literal)>> {
    let inner = text.strip_prefix(b"(").and_then(|text| text.strip_suffix(b")")).unwrap_or(text);
    let searched_for = |alternative: &[u8]| {
        let bytes = unescaped(alternative)?;
        let (&first, rest) = bytes.split_first()?;
        let is_one_byte = !any_case || !first.is_ascii_alphabetic();
        is_one_byte.then(|| (first, Literal { bytes: rest.into(), any_case }))
    };
    inner.split(|&byte| byte == b'|').map(searched_for).collect()
}

/// The literal that an expression stands for, if it is one.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut text = text.iter();
    let mut bytes = Vec::new();
    while let Some(byte) = text.next() {
        bytes.push(*match byte {
            // A backslash gives other bytes a special meaning: `\d`, `\<`.
            b'\\' => text.next().filter(|escaped| br"\.?+*|()[]{}^$/-:_".contains(escaped))?,
            byte => Some(byte).filter(|byte| means_itself(byte))?,
        });
    }
    Some(bytes)
}

impl Literal {
    /// Whether `text` begins with the literal.
    fn begins(&self, text: &[u8]) -> bool {
        text.get(..self.bytes.len()).is_some_and(|start| match self.any_case {
            true => start.eq_ignore_ascii_case(&self.bytes),
            false => *start == *self.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_cuts_say_what_the_expression_says() {
        let urls: [&[u8]; 16] = [
            b"",
            b"\n",
            b"\n\n.",
            b"ftp:",
            b"ftp",
            b"FTP://x/",
            b" ftp:",
            b"http://ftp:21/",
            b"http://x/\xff",
            b"http://x/cgi-bin/y",
            b"http://x/CGI-Bin/",
            b"http://x/cgi-bin",
            b"http://x/cgi/cgi-bin/",
            b"http://x/?",
            b"?",
            b"a|b",
        ];
        let mut short_cuts = 0;
        let texts = [
            ".",
            "^",
            "^ftp:",
            "^ftp",
            "^http://x/",
            "^f.p:",
            "^ftp:|x",
            "ftp:",
            "^ftp:$",
            "..",
            "[.]",
            r"(/cgi-bin/|\?)",
            r"/cgi-bin/|\?",
            r"(/cgi-bin/|\?)$",
            r"\?|",
            "(a|b)|(/)",
            r"a\|b",
            r"\d",
            r"\<x",
            "/x/|:/",
        ];
        for text in texts {
            for case_insensitive in [false, true] {
                let mut builder = regex::bytes::RegexBuilder::new(text);
                let regex = builder.unicode(false).case_insensitive(case_insensitive).build();
                let pattern = UrlPattern::new(&regex.expect("an expression"), case_insensitive);
                short_cuts += usize::from(!matches!(pattern.form, Form::Expression));
                for url in urls {
                    let expected = pattern.regex.is_match(url);
                    assert_eq!(pattern.is_match(url), expected, "{text} {}", url.escape_ascii());
                }
            }
        }
        assert_eq!(short_cuts, 17);
    }
}
