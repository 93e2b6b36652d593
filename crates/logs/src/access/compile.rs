//! From the parts of a `logformat` to a list of steps.

use humboldt_conf::{LogCode, LogPart, LogValue, log_parts};

use super::time_format::{self, TimeFormat};
use crate::text::Escape;

/// A format that cannot be compiled: everything that is wrong with it, one entry each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct LogFormatError {
    /// The errors, in the order of the text.
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
    /// `None` for one that is always written as `-`.
    pub(super) code: Option<LogCode>,
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
    /// Compiles a format, as [`log_parts`] describes it.
    pub fn compile(template: &str) -> Result<Self, LogFormatError> {
        let (parts, problems) = log_parts(template);
        let errors = problems.into_iter().filter(|problem| problem.is_error);
        let mut problems: Vec<String> = errors.map(|problem| problem.message).collect();
        let mut steps = Vec::with_capacity(parts.len());
        for part in &parts {
            match part {
                LogPart::Text(text) => push_literal(&mut steps, text),
                LogPart::Value(LogValue { code: Some(LogCode::Percent), .. }) => {
                    push_literal(&mut steps, "%");
                }
                LogPart::Value(value) => match compile_value(value) {
                    Ok(value) => steps.push(Step::Value(value)),
                    Err(problem) => problems.push(problem),
                },
            }
        }
        if problems.is_empty() { Ok(Self { steps }) } else { Err(LogFormatError { problems }) }
    }

    pub(super) fn needs_fields(&self) -> bool {
        let wants = |step: &Step| matches!(step, Step::Value(value) if value.code == Some(LogCode::RequestField));
        self.steps.iter().any(wants)
    }
}

fn push_literal(steps: &mut Vec<Step>, text: &str) {
    // A line break in the format would make two lines of one record.
    let text = text.replace(['\r', '\n'], " ");
    match steps.last_mut() {
        Some(Step::Literal(before)) => *before = [before, text.as_bytes()].concat().into(),
        _ => steps.push(Step::Literal(text.into_bytes().into())),
    }
}

fn compile_value(value: &LogValue<'_>) -> Result<Value, String> {
    let escape = match value.quoting {
        Some('"') => Some(Escape::Quotes),
        Some('[') => Some(Escape::Brackets),
        Some('#') => Some(Escape::PercentAll),
        Some(_) => Some(Escape::AsIs),
        None => None,
    };
    let is_time = matches!(value.code, Some(LogCode::LocalTime | LogCode::GmtTime));
    let time = match value.argument {
        format if is_time => TimeFormat::compile(format.unwrap_or(time_format::DEFAULT))?,
        _ => TimeFormat::default(),
    };
    Ok(Value {
        code: value.code,
        escape,
        left: value.left,
        zero: value.zero,
        width: value.width,
        precision: value.precision,
        field: value.argument.map(|name| name.as_bytes().into()),
        time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_errors_and_codes_without_a_value_are_not() {
        let problems = LogFormat::compile("%ts %zz %{%Q}tl %sn").unwrap_err().problems;
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(LogFormat::compile("%sn %ssl::>sni %un").is_ok());
        let times: String =
            humboldt_conf::TIME_CONVERSIONS.chars().map(|c| format!("%{c} ")).collect();
        assert!(LogFormat::compile(&format!("%{{{times}}}tl")).is_ok());
    }

    #[test]
    fn says_whether_it_needs_the_fields() {
        assert!(LogFormat::compile("%{Host}>h").unwrap().needs_fields());
        assert!(!LogFormat::compile("%>Hs 100%% %ru").unwrap().needs_fields());
    }
}
