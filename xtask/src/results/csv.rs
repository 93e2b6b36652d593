//! Comma-separated values as RFC 4180 has them, found by the names of their columns. A line that
//! begins with `#` is a comment.

use crate::Outcome;
use csv::{ReaderBuilder, StringRecord};

/// A header and the records below it, each with as many fields as the header.
pub(super) struct Csv {
    header: StringRecord,
    records: Vec<StringRecord>,
}

impl Csv {
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        check_quotes(text)?;
        let mut reader = ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let header = reader.headers()?.clone();
        if header.is_empty() {
            return Err("there is no header".into());
        }
        Ok(Self { header, records: reader.records().collect::<Result<_, _>>()? })
    }

    /// Whether there is a column of this name.
    pub(super) fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.records.iter().map(move |cells| Row { header: &self.header, cells })
    }
}

/// Refuses quotes that the library would take silently, and with them whole rows as one field: one
/// that is never closed, and text before or behind one.
fn check_quotes(text: &str) -> Outcome {
    let (mut is_quoted, mut before) = (false, '\n');
    let (mut line, mut is_comment) = (1, false);
    let mut rest = text.chars().peekable();
    while let Some(now) = rest.next() {
        is_comment = !is_quoted && (is_comment || before == '\n' && now == '#') && now != '\n';
        match now {
            '"' if is_comment => {}
            '"' if is_quoted && rest.peek() == Some(&'"') => _ = rest.next(),
            '"' if is_quoted && !matches!(rest.peek(), None | Some(',' | '\r' | '\n')) => {
                return Err(format!("line {line}: text behind a quote").into());
            }
            '"' if !is_quoted && !matches!(before, ',' | '\n') => {
                return Err(format!("line {line}: text before a quote").into());
            }
            '"' => is_quoted = !is_quoted,
            '\n' => line += 1,
            _ => {}
        }
        before = now;
    }
    if is_quoted { Err("a quote is not closed".into()) } else { Ok(()) }
}

/// One record; its fields have the names of the header.
#[derive(Clone, Copy)]
pub(super) struct Row<'c> {
    header: &'c StringRecord,
    cells: &'c StringRecord,
}

impl<'c> Row<'c> {
    /// The field of a column, which must be there.
    pub(super) fn text(&self, column: &str) -> Outcome<&'c str> {
        let (header, cells) = (self.header, self.cells);
        let cell = header.iter().position(|name| name == column).and_then(|place| cells.get(place));
        cell.ok_or_else(|| format!("there is no column `{column}`").into())
    }

    /// The number in a column; `None` if the field is empty or says that there is no number.
    pub(super) fn number(&self, column: &str) -> Outcome<Option<f64>> {
        let text = self.text(column)?;
        if text.is_empty() {
            return Ok(None);
        }
        let number = text
            .parse::<f64>()
            .map_err(|_| format!("`{text}` in column `{column}` is no number"))?;
        Ok(number.is_finite().then_some(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str, name: &str) -> Vec<String> {
        let csv = Csv::parse(text).unwrap();
        csv.rows().map(|row| row.text(name).unwrap().to_owned()).collect()
    }

    #[test]
    fn quoted_fields_may_hold_what_separates_others() {
        let text = "a,b\n\"one, two\",\"he said \"\"no\"\"\"\n\"three\nfour\",\n,\"\"\n";
        assert_eq!(columns(text, "a"), ["one, two", "three\nfour", ""]);
        assert_eq!(columns(text, "b"), ["he said \"no\"", "", ""]);
    }

    #[test]
    fn comments_blank_lines_and_both_ends_of_lines_are_understood() {
        let text = "# a comment with a \", which matters not\r\na,b\r\n\n\"1\",2\r\n# more\n3,4";
        assert_eq!(columns(text, "a"), ["1", "3"]);
        assert_eq!(columns(text, "b"), ["2", "4"]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let error = |text: &str| Csv::parse(text).err().unwrap().to_string();
        assert_eq!(error("# nothing\n"), "there is no header");
        assert!(error("a,b\n1,2\n3\n").contains("found record with 1 fields"));
        assert_eq!(error("a\n\"open\n"), "a quote is not closed");
        assert_eq!(error("a,b\n1,\"2\n3,4\n5,6\n"), "a quote is not closed");
        assert_eq!(error("a\n\"b\"c\n"), "line 2: text behind a quote");
        assert_eq!(error("a\nb\"c\"\n"), "line 2: text before a quote");
    }

    #[test]
    fn numbers_may_be_missing_but_not_wrong() {
        let csv = Csv::parse("n,m\n1.5,x\n,NaN\n").unwrap();
        let rows: Vec<Row<'_>> = csv.rows().collect();
        assert_eq!(rows[0].number("n").unwrap(), Some(1.5));
        assert_eq!(rows[1].number("n").unwrap(), None);
        assert_eq!(rows[1].number("m").unwrap(), None);
        assert!(rows[0].number("m").is_err());
        assert!(rows[0].number("o").is_err());
    }
}
