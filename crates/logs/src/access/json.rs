//! Records as JSON objects: one for each line, correct whatever bytes a client has sent.

use humboldt_conf::{BUILT_IN_JSON, JsonKind, LogCode as Code, json_fields};

use super::compile::{LogFormatError, Value, compile_code};
use super::{AccessRecord, render};
use crate::text::{Escape, push_number};

/// Shortest cut of a text in a line that must not be long, in bytes. Lines that are longer even so
/// stay as they are.
const TEXT_BYTES_MIN: usize = 16;

/// The mark of a text that was cut.
const CUT: &str = "…";

/// A compiled list of fields.
#[derive(Clone, Debug)]
pub struct JsonFormat {
    fields: Box<[Field]>,
}

#[derive(Clone, Debug)]
struct Field {
    /// All that stands before the value: `,"name":`.
    key: Box<[u8]>,
    kind: JsonKind,
    value: Value,
}

impl JsonFormat {
    /// Compiles the fields of `logformat_json`, as [`json_fields`] describes them.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn compile(text: &str) -> Result<Self, LogFormatError> {
        let (fields, problems) = json_fields(text);
        let errors = problems.into_iter().filter(|problem| problem.is_error);
        let mut problems: Vec<String> = errors.map(|problem| problem.message).collect();
        let mut compiled = Vec::with_capacity(fields.len());
        for (index, field) in fields.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            // Names have no character that would have to be escaped.
            let key = format!("{before}\"{}\":", field.name).into_bytes().into_boxed_slice();
            let kind = field.code.map_or(JsonKind::Text, Code::json_kind);
            match compile_code(field.code, field.argument.as_deref()) {
                Ok(value) => {
                    let value = Value { escape: Some(Escape::Json), ..value };
                    compiled.push(Field { key, kind, value });
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(Self { fields: compiled.into_boxed_slice() })
        } else {
            Err(LogFormatError { problems })
        }
    }

    /// The format `json`.
    pub(super) fn built_in() -> Option<Self> {
        Self::compile(BUILT_IN_JSON).ok()
    }

    pub(super) fn needs_fields(&self) -> bool {
        self.fields.iter().any(|field| field.value.needs_fields())
    }

    /// Appends the record as an object, without a newline. One that would have more than
    /// `bytes_max` bytes has its long texts cut, so that it stays an object.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        record: &AccessRecord<'_>,
        strip_query: bool,
        bytes_max: usize,
    ) {
        let start = out.len();
        self.write_cut(out, record, strip_query, usize::MAX);
        let mut text_bytes_max = bytes_max;
        while out.len() - start > bytes_max && text_bytes_max > TEXT_BYTES_MIN {
            text_bytes_max = (text_bytes_max / 2).max(TEXT_BYTES_MIN);
            out.truncate(start);
            self.write_cut(out, record, strip_query, text_bytes_max);
        }
        if out.len() - start > bytes_max {
            out.truncate(start);
            self.write_beginning(out, record, strip_query, bytes_max);
        }
    }

    /// The first fields, as far as there is room: their names alone are too long.
    fn write_beginning(
        &self,
        out: &mut Vec<u8>,
        record: &AccessRecord<'_>,
        strip_query: bool,
        bytes_max: usize,
    ) {
        let start = out.len();
        out.push(b'{');
        for field in &self.fields {
            let before = out.len();
            field.write(out, record, strip_query, TEXT_BYTES_MIN);
            // With the bracket at the end.
            if out.len() - start >= bytes_max {
                out.truncate(before);
                break;
            }
            if before == start + 1 {
                // The name of the first field begins with a bracket.
                out.remove(start);
            }
        }
        out.push(b'}');
    }

    fn write_cut(
        &self,
        out: &mut Vec<u8>,
        record: &AccessRecord<'_>,
        strip_query: bool,
        text_bytes_max: usize,
    ) {
        for field in &self.fields {
            field.write(out, record, strip_query, text_bytes_max);
        }
        out.push(b'}');
    }
}

impl Field {
    fn write(
        &self,
        out: &mut Vec<u8>,
        record: &AccessRecord<'_>,
        strip_query: bool,
        text_bytes_max: usize,
    ) {
        let Self { key, kind, value } = self;
        out.extend_from_slice(key);
        let start = out.len();
        if !is_missing(value.code, record) {
            match kind {
                JsonKind::Text => push_text(out, value, record, strip_query, text_bytes_max),
                JsonKind::Number => {
                    render::push_value(out, value, record, strip_query);
                    tidy_number(out, start, value.code);
                }
            }
        }
        if out.len() == start {
            out.extend_from_slice(b"null");
        }
    }
}

/// Whether there is no value, where lines of text have a 0.
fn is_missing(code: Option<Code>, record: &AccessRecord<'_>) -> bool {
    match code {
        Some(Code::Status | Code::OldStatus) => record.status == 0,
        Some(Code::RequestVersion | Code::ClientVersion) => record.version.is_none(),
        _ => false,
    }
}

/// Appends a string; nothing without a value.
fn push_text(
    out: &mut Vec<u8>,
    value: &Value,
    record: &AccessRecord<'_>,
    strip_query: bool,
    bytes_max: usize,
) {
    out.push(b'"');
    let start = out.len();
    render::push_value(out, value, record, strip_query);
    if out.len() == start {
        out.truncate(start - 1);
        return;
    }
    if out.len() - start > bytes_max {
        let end = start + whole(out.get(start..).unwrap_or_default(), bytes_max);
        out.truncate(end);
        out.extend_from_slice(CUT.as_bytes());
    }
    out.push(b'"');
}

/// The length of the longest beginning of an escaped text that has at most `most` bytes, and ends
/// neither within a character nor within an escape.
fn whole(escaped: &[u8], most: usize) -> usize {
    let mut at = 0;
    while let Some(&byte) = escaped.get(at) {
        let len = match (byte, escaped.get(at + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            (0xf0.., _) => 4,
            (0xe0.., _) => 3,
            (0xc0.., _) => 2,
            _ => 1,
        };
        if at + len > most {
            break;
        }
        at += len;
    }
    at
}

/// A port in a URL is text that nobody has checked where the request could not be read.
fn tidy_number(out: &mut Vec<u8>, start: usize, code: Option<Code>) {
    if !matches!(code, Some(Code::UrlPort | Code::Port | Code::ServerPort)) {
        return;
    }
    let digits = out.get(start..).and_then(|text| std::str::from_utf8(text).ok());
    let port = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let port = port.and_then(|text| text.parse::<u16>().ok());
    out.truncate(start);
    if let Some(port) = port {
        push_number(out, port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_between_characters() {
        let text = "ab\\u001f\\\"é€x".as_bytes();
        let ends: Vec<usize> = (0..=text.len()).map(|most| whole(text, most)).collect();
        assert_eq!(ends, [0, 1, 2, 2, 2, 2, 2, 2, 8, 8, 10, 10, 12, 12, 12, 15, 16]);
    }
}
