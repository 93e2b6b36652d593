//! Text in a scenario: escapes, repetition, dates, and values that only the running scenario knows.

use jiff::Timestamp;

/// Text as the file has it, checked when it was read and expanded when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    source: String,
    times: usize,
}

/// The values that a text may refer to.
pub(crate) struct Context {
    /// The value of `{origin}`.
    pub(crate) origin: String,
    /// The zero of relative dates, in unix seconds.
    pub(crate) now_s: i64,
}

/// The longest text that a scenario may ask for.
const MAX_BYTES: usize = 16 << 20;

impl Text {
    /// The rest of a line as it stands.
    pub(crate) fn plain(source: &str) -> Result<Self, String> {
        Self::checked(source, 1)
    }

    /// `"text"` or `"text" * 100`.
    pub(crate) fn quoted(source: &str) -> Result<Self, String> {
        let inner =
            source.trim().strip_prefix('"').ok_or("text in double quotes is missing here")?;
        let end = closing_quote(inner).ok_or("the closing `\"` is missing")?;
        let after = inner[end + 1..].trim();
        let times = match after.strip_prefix('*') {
            None if after.is_empty() => 1,
            None => {
                return Err(format!("after `\"text\"` may only come `* number`, not `{after}`"));
            }
            Some(number) => number
                .trim()
                .parse()
                .map_err(|_| format!("`{}` is not a number of repetitions", number.trim()))?,
        };
        Self::checked(&inner[..end], times)
    }

    fn checked(source: &str, times: usize) -> Result<Self, String> {
        let text = Self { source: source.to_owned(), times };
        let example = Context { origin: "127.0.0.1:65535".to_owned(), now_s: 1_000_000_000 };
        let len = text.once(&example)?.len().saturating_mul(times);
        if len > MAX_BYTES {
            return Err(format!("{len} bytes are more than {MAX_BYTES}"));
        }
        Ok(text)
    }

    /// The bytes.
    pub(crate) fn expand(&self, context: &Context) -> Vec<u8> {
        self.once(context).unwrap_or_default().repeat(self.times)
    }

    fn once(&self, context: &Context) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let mut rest = self.source.as_str();
        while let Some(first) = rest.chars().next() {
            rest = if first == '\\' {
                escape(&rest[1..], &mut out)?
            } else if let Some(after) = rest.strip_prefix("{origin}") {
                out.extend_from_slice(context.origin.as_bytes());
                after
            } else if let Some((format, after)) = date_call(rest) {
                let (offset, after) =
                    after.split_once(')').ok_or("`)` is missing after a date's offset")?;
                let offset_s: i64 = offset
                    .trim_start_matches('+')
                    .parse()
                    .map_err(|_| format!("`{offset}` is not a number of seconds"))?;
                out.extend_from_slice(format(context.now_s + offset_s).as_bytes());
                after
            } else {
                let (one, after) = rest.split_at(first.len_utf8());
                out.extend_from_slice(one.as_bytes());
                after
            };
        }
        Ok(out)
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// The character after a backslash.
fn escape<'a>(rest: &'a str, out: &mut Vec<u8>) -> Result<&'a str, String> {
    let one = |byte| Some((byte, 1));
    let found = match rest.as_bytes().first() {
        Some(b'r') => one(b'\r'),
        Some(b'n') => one(b'\n'),
        Some(b't') => one(b'\t'),
        Some(b'\\') => one(b'\\'),
        Some(b'"') => one(b'"'),
        Some(b'x') => {
            rest.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok()).map(|byte| (byte, 3))
        }
        _ => None,
    };
    let (byte, len) =
        found.ok_or(r#"a backslash is followed by r, n, t, \, " or x and two hex digits"#)?;
    out.push(byte);
    Ok(&rest[len..])
}

type Format = fn(i64) -> String;

/// A date at the beginning of a text: its format, and the text after the bracket.
fn date_call(text: &str) -> Option<(Format, &str)> {
    let formats: [(&str, Format); 3] =
        [("date(", imf_date), ("rfc850-date(", rfc850_date), ("asctime-date(", asctime_date)];
    formats.iter().find_map(|(name, format)| Some((*format, text.strip_prefix(name)?)))
}

/// The format of today.
pub(crate) fn imf_date(unix_s: i64) -> String {
    formatted(unix_s, "%a, %d %b %Y %H:%M:%S GMT")
}

fn rfc850_date(unix_s: i64) -> String {
    formatted(unix_s, "%A, %d-%b-%y %H:%M:%S GMT")
}

fn asctime_date(unix_s: i64) -> String {
    formatted(unix_s, "%a %b %e %H:%M:%S %Y")
}

fn formatted(unix_s: i64, format: &str) -> String {
    let time = Timestamp::from_second(unix_s).expect("scenarios know no year behind 9999");
    time.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &str) -> Result<String, String> {
        let context = Context { origin: "o:1".to_owned(), now_s: 784_111_777 };
        Text::quoted(source)
            .map(|text| String::from_utf8_lossy(&text.expand(&context)).into_owned())
    }

    #[test]
    fn escapes_repetition_and_references_are_expanded() {
        assert_eq!(expanded(r#""a\r\n\x41\\\"\t""#).unwrap(), "a\r\nA\\\"\t");
        assert_eq!(expanded(r#""ab" * 3"#).unwrap(), "ababab");
        assert_eq!(expanded(r#""http://{origin}/a""#).unwrap(), "http://o:1/a");
    }

    #[test]
    fn dates_come_in_three_formats() {
        assert_eq!(expanded(r#""date(0)""#).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(expanded(r#""rfc850-date(0)""#).unwrap(), "Sunday, 06-Nov-94 08:49:37 GMT");
        assert_eq!(expanded(r#""asctime-date(0)""#).unwrap(), "Sun Nov  6 08:49:37 1994");
        assert_eq!(expanded(r#""date(+86400)""#).unwrap(), "Mon, 07 Nov 1994 08:49:37 GMT");
        assert_eq!(imf_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(imf_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn mistakes_are_named() {
        for (source, part) in [
            ("a", "double quotes"),
            (r#""a"#, "closing"),
            (r#""a\q""#, "backslash"),
            (r#""\x4""#, "backslash"),
            (r#""a" 3"#, "* number"),
            (r#""a" * many"#, "repetitions"),
            (r#""date(soon)""#, "seconds"),
            (r#""date(1""#, "`)`"),
            (r#""abcd" * 99999999"#, "more than"),
        ] {
            let error = expanded(source).unwrap_err();
            assert!(error.contains(part), "{source}: {error}");
        }
    }
}
