//! From the text of a `logformat` to a list of steps.

use super::code::{self, Code};
use super::time_format::{self, TimeFormat};
use crate::text::Escape;

/// Longest field width, in characters.
const WIDTH_MAX: usize = 1024;

/// Most steps of one format.
const STEPS_MAX: usize = 256;

/// A format that cannot be compiled: everything that is wrong with it, one entry each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct LogFormatError {
    /// What is wrong, in the order of the text.
    pub problems: Vec<String>,
}

/// A compiled `logformat`.
#[derive(Clone, Debug)]
pub struct LogFormat {
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Literal(Box<[u8]>),
    Value(Value),
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) code: Code,
    /// Quoting asked for; otherwise that which suits the code.
    pub(super) escape: Option<Escape>,
    pub(super) left: bool,
    pub(super) zero: bool,
    pub(super) width: usize,
    /// Longest text, in bytes.
    pub(super) precision: Option<usize>,
    /// Name of a header field.
    pub(super) field: Option<Box<[u8]>>,
    pub(super) time: TimeFormat,
}

impl LogFormat {
    /// Compiles a format like `%ts.%03tu %6tr %>a`. Between `%` and the code may stand: a quoting character
    /// (`"`, `[`, `#`, `'`), `-` for left-aligned, `0` for filling with zeros, a width, `.` and a longest
    /// length, and an argument in braces, which may also follow the code.
    pub fn compile(template: &str) -> Result<Self, LogFormatError> {
        let mut steps = Vec::new();
        let mut problems = Vec::new();
        let mut rest = template;
        while let Some((literal, after)) = rest.split_once('%') {
            push_literal(&mut steps, literal);
            match compile_value(after) {
                Ok((Value { code: Code::Percent, .. }, tail)) => {
                    push_literal(&mut steps, "%");
                    rest = tail;
                }
                Ok((value, tail)) => {
                    steps.push(Step::Value(value));
                    rest = tail;
                }
                Err(problem) => {
                    problems.push(problem);
                    rest = after;
                }
            }
            if steps.len() > STEPS_MAX {
                problems.push(format!("more than {STEPS_MAX} parts"));
                break;
            }
        }
        push_literal(&mut steps, rest);
        if problems.is_empty() { Ok(Self { steps }) } else { Err(LogFormatError { problems }) }
    }

    pub(super) fn needs_fields(&self) -> bool {
        let wants = |step: &Step| matches!(step, Step::Value(v) if matches!(v.code, Code::RequestField | Code::ResponseField));
        self.steps.iter().any(wants)
    }
}

fn push_literal(steps: &mut Vec<Step>, text: &str) {
    // A line break in the format would make two lines of one record.
    let text = text.replace(['\r', '\n'], " ");
    match steps.last_mut() {
        _ if text.is_empty() => {}
        Some(Step::Literal(before)) => *before = [before, text.as_bytes()].concat().into(),
        _ => steps.push(Step::Literal(text.into_bytes().into())),
    }
}

/// Compiles what follows a `%`; returns the rest of the text.
fn compile_value(text: &str) -> Result<(Value, &str), String> {
    let (escape, rest) = quoting(text)?;
    let (left, rest) = flag(rest, '-');
    let (zero, rest) = flag(rest, '0');
    let (width, rest) = number(rest)?;
    let (precision, rest) = match rest.strip_prefix('.') {
        Some(rest) => number(rest)?,
        None => (None, rest),
    };
    let (before, rest) = argument(rest)?;
    let (code, rest) = code::longest(rest).ok_or_else(|| unknown(rest))?;
    let (argument, rest) = match before {
        Some(argument) => (Some(argument), rest),
        None if takes_argument(code) => argument(rest)?,
        None => (None, rest),
    };
    let mut value = Value {
        code,
        escape,
        left,
        zero,
        width: width.unwrap_or(0),
        precision,
        field: None,
        time: TimeFormat::default(),
    };
    match (code, argument) {
        (Code::LocalTime | Code::GmtTime, format) => {
            value.time = TimeFormat::compile(format.unwrap_or(time_format::DEFAULT))?;
        }
        (Code::RequestField | Code::ResponseField, Some(name)) => value.field = Some(name.as_bytes().into()),
        (_, Some(argument)) if !takes_argument(code) => {
            return Err(format!("{{{argument}}} does not go with its code"));
        }
        _ => {}
    }
    Ok((value, rest))
}

fn takes_argument(code: Code) -> bool {
    matches!(code, Code::LocalTime | Code::GmtTime | Code::RequestField | Code::ResponseField)
}

fn quoting(text: &str) -> Result<(Option<Escape>, &str), String> {
    let escape = match text.as_bytes().first() {
        Some(b'"') => Escape::Quotes,
        Some(b'[') => Escape::Brackets,
        Some(b'#') => Escape::PercentAll,
        Some(b'\'') => Escape::AsIs,
        Some(b'/') => return Err("shell quoting (%/) is not supported".into()),
        _ => return Ok((None, text)),
    };
    Ok((Some(escape), &text[1..]))
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
        _ => Err(format!("width {number} is larger than {WIDTH_MAX}")),
    }
}

fn argument(text: &str) -> Result<(Option<&str>, &str), String> {
    let Some(rest) = text.strip_prefix('{') else { return Ok((None, text)) };
    let (argument, rest) = rest.split_once('}').ok_or("a \"{\" without \"}\"")?;
    Ok((Some(argument), rest))
}

fn unknown(text: &str) -> String {
    let word: String = text.chars().take_while(|c| !c.is_whitespace()).take(20).collect();
    if code::UNSUPPORTED.iter().any(|name| text.starts_with(name)) {
        return format!("format code %{word} is one of Squid's that is not supported");
    }
    format!("unknown format code %{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_listed() {
        let problems = LogFormat::compile("%ts %zz %>a %sn %{x}ts %5000tr %{Host>h").unwrap_err().problems;
        assert_eq!(
            problems,
            [
                "unknown format code %zz",
                "format code %sn is one of Squid's that is not supported",
                "{x} does not go with its code",
                "width 5000 is larger than 1024",
                "a \"{\" without \"}\"",
            ]
        );
        assert!(LogFormat::compile("100%").is_err(), "a % at the end");
    }

    #[test]
    fn says_whether_it_needs_the_fields() {
        assert!(LogFormat::compile("%{Host}>h").unwrap().needs_fields());
        assert!(LogFormat::compile("%<h").unwrap().needs_fields());
        assert!(!LogFormat::compile("%>Hs 100%% %ru").unwrap().needs_fields());
    }
}
