//! The fields of a log in JSON (`logformat_json`): plain names, or names of one's own with a `%`
//! code.

use std::collections::HashSet;
use std::ops::Range;

use crate::log_codes::{self, LogCode};
use crate::log_format::{self, LogFormatProblem, PARTS_MAX};
use crate::suggest::suggest;

/// Longest name of a field, in bytes.
const FIELD_NAME_BYTES_MAX: usize = 64;

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonField {
    /// Its name.
    pub name: String,
    /// The meaning of its value; `None` for one that is always null.
    pub code: Option<LogCode>,
    /// The text in braces: the name of a field of the message, or a format of times.
    pub argument: Option<String>,
}

/// Splits words such as `time url agent=%{User-Agent}>h`. Errors are listed, and are not among the
/// fields.
pub fn json_fields(text: &str) -> (Vec<JsonField>, Vec<LogFormatProblem>) {
    let (mut fields, mut problems) = (Vec::<JsonField>::new(), Vec::new());
    let mut names = HashSet::new();
    let mut problem = |at: Range<usize>, message: String, is_error: bool| {
        problems.push(LogFormatProblem { at, message, is_error });
    };
    for at in words(text) {
        let word = text.get(at.clone()).unwrap_or_default();
        match field(word) {
            Ok((new, why)) if names.insert(new.name.clone()) => {
                if let Some(why) = why {
                    problem(at, format!("`{word}` is always null: {why}"), false);
                }
                fields.push(new);
            }
            Ok((new, _)) => problem(at, format!("there is a field `{}` already", new.name), true),
            Err(message) => problem(at, message, true),
        }
        if fields.len() > PARTS_MAX {
            problem(0..text.len(), format!("there are more than {PARTS_MAX} fields"), true);
            return (fields, problems);
        }
    }
    if fields.is_empty() && problems.is_empty() {
        problems.push(LogFormatProblem {
            at: 0..text.len(),
            message: "there is no field".to_owned(),
            is_error: true,
        });
    }
    (fields, problems)
}

/// The places of the words. Blanks between braces belong to a word.
fn words(text: &str) -> Vec<Range<usize>> {
    let (mut words, mut start, mut in_braces) = (Vec::new(), None, false);
    for (at, c) in text.char_indices() {
        match c {
            '{' => in_braces = true,
            '}' => in_braces = false,
            _ => {}
        }
        match (c.is_whitespace() && !in_braces, start) {
            (true, Some(from)) => {
                words.push(from..at);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|from| from..text.len()));
    words
}

/// A field, and why its value is always null.
fn field(word: &str) -> Result<(JsonField, Option<&'static str>), String> {
    let own = word.split_once('=');
    let (name, code) = match own {
        Some((name, code)) => (name, code.to_owned()),
        None => (word, log_codes::by_field(word).ok_or_else(|| unknown(word))?),
    };
    check_name(name)?;
    let code =
        code.strip_prefix('%').ok_or_else(|| format!("`{code}` is no code such as `%ru`"))?;
    let (value, why, rest) = log_format::value(code)?;
    let is_plain = value.quoting.is_none()
        && !value.left
        && !value.zero
        && value.width == 0
        && value.precision.is_none();
    if !is_plain {
        return Err(format!("`%{code}`: a value in JSON has neither quoting nor width"));
    }
    if !rest.is_empty() {
        return Err(format!("`{rest}` follows the code: a field has one code"));
    }
    match (value.code, value.argument) {
        (Some(LogCode::Percent), _) => return Err("a percent sign is no value".to_owned()),
        (Some(LogCode::LocalTime | LogCode::GmtTime), Some(time)) if time.contains(['"', '\\']) => {
            return Err(format!("`{time}`: a time in JSON has neither quotes nor backslashes"));
        }
        _ => {}
    }
    let argument = value.argument.map(ToOwned::to_owned);
    Ok((JsonField { name: name.to_owned(), code: value.code, argument }, why))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
    match name.len() {
        1..=FIELD_NAME_BYTES_MAX if name.bytes().all(is_good) => Ok(()),
        _ => Err(format!(
            "`{name}` is no name of a field: it has 1 to {FIELD_NAME_BYTES_MAX} letters, digits, \
             `_`, `-`, `.` and `@`"
        )),
    }
}

fn unknown(word: &str) -> String {
    let help = match suggest(word, log_codes::fields()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write `{word}=%CODE` for a field of your own"),
    };
    format!("no field is called `{word}`; {help}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_codes::BUILT_IN_JSON;

    #[test]
    fn fields_have_plain_names_or_their_own() {
        let (fields, problems) =
            json_fields(" url status\tagent=%{User-Agent}>h when=%{%F %T}tl @t=%ts ");
        assert!(problems.is_empty(), "{problems:?}");
        let found: Vec<_> = fields
            .iter()
            .map(|field| (&*field.name, field.code, field.argument.as_deref()))
            .collect();
        assert_eq!(
            found,
            [
                ("url", Some(LogCode::Url), None),
                ("status", Some(LogCode::Status), None),
                ("agent", Some(LogCode::RequestField), Some("User-Agent")),
                ("when", Some(LogCode::LocalTime), Some("%F %T")),
                ("@t", Some(LogCode::EndedSecs), None),
            ]
        );
        let (fields, problems) = json_fields(BUILT_IN_JSON);
        assert!(problems.is_empty() && fields.len() > 20, "{problems:?}");
    }

    #[test]
    fn mistakes_have_their_places() {
        let said = |text: &str| {
            let (_, problems) = json_fields(text);
            problems.into_iter().map(|one| (one.at.start, one.is_error, one.message)).collect()
        };
        let one = |text: &str| -> (usize, bool, String) {
            let found: Vec<_> = said(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            found[0].clone()
        };
        assert!(one("url statsu").2.contains("did you mean `status`?"));
        assert_eq!(one("url statsu").0, 4);
        assert_eq!((one("url a=%ui").0, one("url a=%ui").1), (4, false));
        for bad in [
            "",
            "url url",
            "url url=%ru",
            "a=%\"ru",
            "a=%6tr",
            "a=%.5ru",
            "a=%ru%rm",
            "a=ru",
            "a=%%",
            "a=%zz",
            "=%ru",
            "a\"b=%ru",
            "a=%{%Y\"}tl",
            "a=%{Host>h",
        ] {
            assert!(one(bad).1, "{bad}");
        }
        let long = "x".repeat(65);
        assert!(one(&format!("{long}=%ru")).1);
        let many: String = (0..300).map(|n| format!("f{n}=%ru ")).collect();
        assert!(one(&many).2.contains("256"));
    }
}
