//! The options of directives, each with its effect: one table for the parser, the suggestions and
//! the documentation.

use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::table::Status;

/// One option of a directive.
pub(super) struct OptionRow {
    /// Its name.
    pub(super) name: &'static str,
    /// The value, from `=` on; empty for none. In brackets if it is optional.
    pub(super) value: &'static str,
    /// Humboldt's treatment of it: `Ignored` is a warning, `Unsupported` an error.
    pub(super) status: Status,
    /// One or a few sentences.
    pub(super) doc: &'static str,
}

/// Rows of one status.
macro_rules! rows {
    ($($status:expr => { $($name:literal $value:literal, $doc:literal;)* })*) => {
        &[$($($crate::kinds::options::OptionRow { name: $name, value: $value, status: $status, doc: $doc },)*)*]
    };
}
pub(super) use rows;

/// Splits `name=value`.
pub(super) fn split(token: &Token) -> (&str, Option<&str>) {
    match token.text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (token.text.as_str(), None),
    }
}

/// Whether an option is to be read; reports the others.
///
/// # Errors
/// It is none, or not supported.
pub(super) fn is_wanted<'r>(
    rows: impl IntoIterator<Item = &'r OptionRow> + Clone,
    token: &Token,
    line: &mut Line<'_>,
) -> Result<bool, Problem> {
    let (name, value) = split(token);
    let named = |row: &&OptionRow| match row.name.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => row.name == name,
    };
    let Some(row) = rows.clone().into_iter().find(named) else {
        return Err(unknown(rows, token, line));
    };
    let fits = match (row.value, value) {
        ("", Some(_)) => false,
        (syntax, None) => syntax.is_empty() || syntax.starts_with('['),
        (_, Some(_)) => true,
    };
    if !fits && !row.name.ends_with('*') {
        let problem = token.error(format!("`{}` is not how `{name}` is written", token.text));
        return Err(problem.with_help(format!("write `{}{}`", row.name, row.value)));
    }
    match row.status {
        Status::Works => Ok(true),
        Status::Ignored(why) => {
            line.warn(token, format!("`{name}` has no effect: {why}"), None);
            Ok(false)
        }
        Status::Unsupported(why) | Status::Obsolete(why) => {
            Err(token.error(format!("`{name}` is not supported: {why}")))
        }
    }
}

/// The error for an option that is none.
pub(super) fn unknown<'r>(
    rows: impl IntoIterator<Item = &'r OptionRow>,
    token: &Token,
    line: &Line<'_>,
) -> Problem {
    let (name, _) = split(token);
    let problem = token.error(format!("`{}` is not an option of `{}`", token.text, line.name.text));
    match suggest(name, rows.into_iter().map(|row| row.name)) {
        Some(option) if option != name => problem.with_help(format!("did you mean `{option}`?")),
        _ => problem,
    }
}

/// The options as a table for the reference.
pub(super) fn docs_table<'r>(rows: impl IntoIterator<Item = &'r OptionRow>) -> String {
    let mut out = "option | here | meaning\n--- | --- | ---\n".to_owned();
    for row in rows {
        // A bar would end the cell.
        let value = row.value.replace('|', "\\|");
        let here = match row.status {
            Status::Works => "works".to_owned(),
            Status::Ignored(why) => format!("no effect, with a warning: {why}"),
            Status::Unsupported(why) | Status::Obsolete(why) => format!("refused: {why}"),
        };
        out.push_str(&format!("`{}{value}` | {here} | {}\n", row.name, row.doc));
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Severity, parse_str};

    /// Holds every row of a table against the parser: `line` makes a line of an option, `example`
    /// gives a value.
    pub(crate) fn check_rows<'r>(
        rows: impl IntoIterator<Item = &'r OptionRow>,
        line: impl Fn(&str) -> String,
        example: impl Fn(&str) -> &'static str,
    ) {
        for row in rows {
            let name = row.name.replace('*', "x");
            let value = if row.value.is_empty() { "" } else { example(row.name) };
            let text =
                format!("http_access allow localhost\n{}\n", line(&format!("{name}{value}")));
            let (_, found) = parse_str("t", &text);
            let said = (found.count(Severity::Error), found.count(Severity::Warning));
            let wanted = match row.status {
                Status::Works => (0, 0),
                Status::Ignored(_) => (0, 1),
                Status::Unsupported(_) | Status::Obsolete(_) => (1, 0),
            };
            assert_eq!(said, wanted, "{text}{}", found.render(false));
        }
    }
}
