//! The expressions of `refresh_pattern`, which every miss goes through, with short cuts for those that nearly every squid.conf
//! has: `^ftp:` and `.`.

use regex::bytes::Regex;

/// An expression that URLs are matched with.
#[derive(Debug)]
pub(crate) struct UrlPattern {
    regex: Regex,
    form: Form,
}

/// What an expression comes to.
#[derive(Debug)]
enum Form {
    /// Any byte but a line feed.
    AnyByte,
    /// How a URL must begin.
    Prefix(Box<[u8]>),
    /// The same in upper or lower case.
    PrefixOfAnyCase(Box<[u8]>),
    Expression,
}

impl UrlPattern {
    pub(crate) fn new(regex: &Regex, case_insensitive: bool) -> Self {
        let means_itself = |byte: &u8| byte.is_ascii_alphanumeric() || b":/-_".contains(byte);
        let form = match regex.as_str().as_bytes() {
            b"." => Form::AnyByte,
            [b'^', prefix @ ..] if !prefix.iter().all(means_itself) => Form::Expression,
            [b'^', prefix @ ..] if case_insensitive => Form::PrefixOfAnyCase(prefix.into()),
            [b'^', prefix @ ..] => Form::Prefix(prefix.into()),
            _ => Form::Expression,
        };
        Self { regex: regex.clone(), form }
    }

    /// Whether it matches somewhere in `url`.
    pub(crate) fn is_match(&self, url: &[u8]) -> bool {
        let start_of = |prefix: &[u8]| url.get(..prefix.len());
        match &self.form {
            Form::AnyByte => url.iter().any(|&byte| byte != b'\n'),
            Form::Prefix(prefix) => start_of(prefix) == Some(prefix),
            Form::PrefixOfAnyCase(prefix) => {
                start_of(prefix).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            }
            Form::Expression => self.regex.is_match(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_cuts_say_what_the_expression_says() {
        let urls: [&[u8]; 9] = [
            b"",
            b"\n",
            b"\n\n.",
            b"ftp:",
            b"ftp",
            b"FTP://x/",
            b" ftp:",
            b"http://ftp:21/",
            b"http://x/\xff",
        ];
        let mut short_cuts = 0;
        for text in
            [".", "^", "^ftp:", "^ftp", "^http://x/", "^f.p:", "^ftp:|x", "ftp:", "^ftp:$", "..", "[.]"]
        {
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
        assert_eq!(short_cuts, 10);
    }
}
