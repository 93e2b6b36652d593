//! The parts of a `logformat`: text, and `%` codes with their modifiers.

use std::ops::Range;

use crate::log_codes::{self, LogCode};

/// Longest field width, in characters.
const WIDTH_MAX: usize = 1024;

/// Most parts of one format; beyond it, an error.
pub(crate) const PARTS_MAX: usize = 256;

/// The `strftime` conversions of times.
pub const TIME_CONVERSIONS: &str = "YymdeHMSbhBaAjzsITFRD%";

/// One part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart<'a> {
    /// Copied as it is.
    Text(&'a str),
    /// A `%` code.
    Value(LogValue<'a>),
}

/// A `%` code with its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogValue<'a> {
    /// Its meaning; `None` for a code that is always written as `-`.
    pub code: Option<LogCode>,
    /// The quoting character: `"`, `[`, `#`, `/` or `'`.
    pub quoting: Option<char>,
    /// `-`: aligned to the left.
    pub left: bool,
    /// `0`: filled with zeros.
    pub zero: bool,
    /// Least width in characters; 0 for none.
    pub width: usize,
    /// Longest text, in bytes.
    pub precision: Option<usize>,
    /// The text in braces: the name of a field, or a format of times.
    pub argument: Option<&'a str>,
}

/// Something about a format that is worth saying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormatProblem {
    /// Bytes of the format that are meant.
    pub at: Range<usize>,
    /// The finding.
    pub message: String,
    /// The format cannot be used; otherwise `-` is written there.
    pub is_error: bool,
}

/// Splits a format like `%ts.%03tu %6tr %>a`. These may stand between `%` and the code: a quoting
/// character (`"`, `[`, `#`, `/`, `'`), `-` for left-aligned, `0` for filling with zeros, a width,
/// `.` and a longest length, and an argument in braces, which may also follow the code. Errors are
/// listed, and are not among the parts.
pub fn log_parts(template: &str) -> (Vec<LogPart<'_>>, Vec<LogFormatProblem>) {
    let (mut parts, mut problems) = (Vec::new(), Vec::new());
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('%') {
        if !text.is_empty() {
            parts.push(LogPart::Text(text));
        }
        let start = template.len() - after.len() - 1;
        match value(after) {
            Ok((value, why, tail)) => {
                if let Some(why) = why {
                    let at = start..template.len() - tail.len();
                    let name = template.get(at.clone()).unwrap_or("");
                    let message = format!("`{name}` is always written as `-`: {why}");
                    problems.push(LogFormatProblem { at, message, is_error: false });
                }
                parts.push(LogPart::Value(value));
                rest = tail;
            }
            Err(message) => {
                let word = after.find(char::is_whitespace).unwrap_or(after.len());
                problems.push(LogFormatProblem {
                    at: start..start + 1 + word,
                    message,
                    is_error: true,
                });
                rest = after;
            }
        }
        if parts.len() > PARTS_MAX {
            let message = format!("the format has more than {PARTS_MAX} parts");
            problems.push(LogFormatProblem { at: 0..template.len(), message, is_error: true });
            return (parts, problems);
        }
    }
    if !rest.is_empty() {
        parts.push(LogPart::Text(rest));
    }
    (parts, problems)
}

/// A value, why it is none, and the rest of the text.
pub(crate) type Taken<'a> = (LogValue<'a>, Option<&'static str>, &'a str);

/// Reads the part after a `%`.
pub(crate) fn value(text: &str) -> Result<Taken<'_>, String> {
    let (quoting, rest) = match text.chars().next() {
        Some(quote @ ('"' | '[' | '#' | '/' | '\'')) => (Some(quote), text.get(1..).unwrap_or("")),
        _ => (None, text),
    };
    let (left, rest) = flag(rest, '-');
    let (zero, rest) = flag(rest, '0');
    let (width, rest) = number(rest)?;
    let (precision, rest) = match rest.strip_prefix('.') {
        Some(rest) => number(rest)?,
        None => (None, rest),
    };
    let (before, rest) = argument(rest)?;
    let (found, len) = log_codes::longest(rest).ok_or_else(|| unknown(rest))?;
    let rest = rest.get(len..).unwrap_or("");
    let (argument, rest) = match before {
        Some(argument) => (Some(argument), rest),
        None if found.is_err() || found.is_ok_and(takes_argument) => argument(rest)?,
        None => (None, rest),
    };
    match (found, argument) {
        (Ok(LogCode::LocalTime | LogCode::GmtTime), Some(format)) => check_time(format)?,
        (Ok(code), Some(argument)) if !takes_argument(code) => {
            return Err(format!("`{{{argument}}}` does not go with its code"));
        }
        _ => {}
    }
    let width = width.unwrap_or(0);
    let value = LogValue { code: found.ok(), quoting, left, zero, width, precision, argument };
    Ok((value, found.err(), rest))
}

fn takes_argument(code: LogCode) -> bool {
    use LogCode as C;
    matches!(
        code,
        C::LocalTime
            | C::GmtTime
            | C::RequestField
            | C::AdaptedField
            | C::ResponseField
            | C::Note
            | C::ServerFaults
    )
}

fn flag(text: &str, flag: char) -> (bool, &str) {
    text.strip_prefix(flag).map_or((false, text), |rest| (true, rest))
}

fn number(text: &str) -> Result<(Option<usize>, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    match number.parse::<usize>() {
        _ if number.is_empty() => Ok((None, rest)),
        Ok(n) if n <= WIDTH_MAX => Ok((Some(n), rest)),
        _ => Err(format!("the width {number} is larger than {WIDTH_MAX}")),
    }
}

fn argument(text: &str) -> Result<(Option<&str>, &str), String> {
    let Some(rest) = text.strip_prefix('{') else { return Ok((None, text)) };
    let (argument, rest) = rest.split_once('}').ok_or("a `{` without `}`")?;
    Ok((Some(argument), rest))
}

fn check_time(format: &str) -> Result<(), String> {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            let conversion =
                chars.next().filter(|conversion| TIME_CONVERSIONS.contains(*conversion));
            if conversion.is_none() {
                return Err(format!("`{format}` has a conversion that is not supported"));
            }
        }
    }
    Ok(())
}

fn unknown(text: &str) -> String {
    let word: String = text.chars().take_while(|c| !c.is_whitespace()).take(20).collect();
    format!("there is no format code `%{word}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(template: &str) -> Vec<(Range<usize>, bool, String)> {
        let (_, problems) = log_parts(template);
        problems
            .into_iter()
            .map(|problem| (problem.at, problem.is_error, problem.message))
            .collect()
    }

    #[test]
    fn everything_wrong_is_listed_with_its_place() {
        let found = messages("%ts %zz %>a %ui %{x}ts %5000tr %{%Q}tl %(ru %{Host>h");
        let places: Vec<_> = found.iter().map(|(at, is_error, _)| (at.start, *is_error)).collect();
        assert_eq!(
            places,
            [
                (4, true),
                (12, false),
                (16, true),
                (23, true),
                (31, true),
                (33, true),
                (39, true),
                (44, true)
            ],
            "{found:?}"
        );
        assert!(
            found[0].2.contains("`%zz`") && found[1].2.contains("`%ui` is always written as `-`")
        );
        assert!(!messages("100%").is_empty(), "a % at the end");
        assert!(!messages(&"%ts".repeat(1000)).is_empty());
    }

    #[test]
    fn values_have_what_stands_around_them() {
        let (parts, problems) = log_parts("a%\"-08.3{Host}>h%%%ssl::>other %{Via}<rv");
        let code = |code| LogValue {
            code,
            quoting: None,
            left: false,
            zero: false,
            width: 0,
            precision: None,
            argument: None,
        };
        assert_eq!(
            parts,
            [
                LogPart::Text("a"),
                LogPart::Value(LogValue {
                    quoting: Some('"'),
                    left: true,
                    zero: true,
                    width: 8,
                    precision: Some(3),
                    argument: Some("Host"),
                    ..code(Some(LogCode::RequestField))
                }),
                LogPart::Value(code(Some(LogCode::Percent))),
                LogPart::Value(code(None)),
                LogPart::Text(" "),
                LogPart::Value(LogValue { argument: Some("Via"), ..code(None) }),
            ]
        );
        assert_eq!(problems.len(), 2);
    }
}
