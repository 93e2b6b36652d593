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
    /// Name of a header field, or of annotations.
    pub(super) field: Option<Box<[u8]>>,
    /// The separator of a list in that field, and the name of the member that is wanted.
    pub(super) member: Option<(u8, Box<[u8]>)>,
    pub(super) time: TimeFormat,
}

impl Value {
    pub(super) fn needs_fields(&self) -> bool {
        self.code.is_some_and(is_field)
    }
}

/// Whether it is a field of a message.
fn is_field(code: LogCode) -> bool {
    matches!(code, LogCode::RequestField | LogCode::AdaptedField | LogCode::ResponseField)
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
        let wants = |step: &Step| matches!(step, Step::Value(value) if value.needs_fields());
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
        Some('/') => Some(Escape::Shell),
        Some(_) => Some(Escape::AsIs),
        None => None,
    };
    let LogValue { left, zero, width, precision, .. } = *value;
    Ok(Value { escape, left, zero, width, precision, ..compile_code(value.code, value.argument)? })
}

/// A code with its argument, and no modifiers.
pub(super) fn compile_code(code: Option<LogCode>, argument: Option<&str>) -> Result<Value, String> {
    let is_time = matches!(code, Some(LogCode::LocalTime | LogCode::GmtTime));
    let time = match argument {
        format if is_time => TimeFormat::compile(format.unwrap_or(time_format::DEFAULT))?,
        _ => TimeFormat::default(),
    };
    let (field, member) = match argument.and_then(|argument| argument.split_once(':')) {
        Some((name, member)) if code.is_some_and(is_field) => {
            let separator = member.bytes().next().filter(|byte| b",;:".contains(byte));
            let member = member.get(usize::from(separator.is_some())..).unwrap_or_default();
            (Some(name), Some((separator.unwrap_or(b','), member.as_bytes().into())))
        }
        _ => (argument, None),
    };
    Ok(Value {
        code,
        escape: None,
        left: false,
        zero: false,
        width: 0,
        precision: None,
        field: field.map(|name| name.as_bytes().into()),
        member,
        time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_errors_and_codes_without_a_value_are_not() {
        let problems = LogFormat::compile("%ts %zz %{%Q}tl %ui").unwrap_err().problems;
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(LogFormat::compile("%ui %ssl::>sni %un").is_ok());
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
