//! Comma-separated values as RFC 4180 has them, found by the names of their columns. A line that
//! begins with `#` is a comment.

use crate::Outcome;

/// A header and the records below it, each with as many fields as the header.
pub(super) struct Csv {
    header: Vec<String>,
    records: Vec<Vec<String>>,
}

impl Csv {
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        let mut records = records(text)?;
        if records.is_empty() {
            return Err("there is no header".into());
        }
        let header = records.remove(0);
        for (index, record) in records.iter().enumerate() {
            let (has, wanted) = (record.len(), header.len());
            if has != wanted {
                return Err(format!(
                    "record {} has {has} fields, the header has {wanted}",
                    index + 1
                )
                .into());
            }
        }
        Ok(Self { header, records })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.records.iter().map(move |cells| Row { header: &self.header, cells })
    }
}

/// One record; its fields have the names of the header.
#[derive(Clone, Copy)]
pub(super) struct Row<'c> {
    header: &'c [String],
    cells: &'c [String],
}

impl<'c> Row<'c> {
    /// The field of a column, which must be there.
    pub(super) fn text(&self, column: &str) -> Outcome<&'c str> {
        let (header, cells) = (self.header, self.cells);
        let cell = header.iter().position(|name| name == column).and_then(|place| cells.get(place));
        cell.map(String::as_str).ok_or_else(|| format!("there is no column `{column}`").into())
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

/// All records, the header included; comments and blank lines are left out.
fn records(text: &str) -> Outcome<Vec<Vec<String>>> {
    let mut records = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.starts_with(['#', '\n']) || rest.starts_with("\r\n") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let mut record = Vec::new();
        loop {
            let (value, is_last, after) = field(rest)?;
            record.push(value);
            rest = after;
            if is_last {
                break;
            }
        }
        records.push(record);
    }
    Ok(records)
}

/// The field at the start of `text`, whether it is its record's last, and the text after the
/// separator.
fn field(text: &str) -> Outcome<(String, bool, &str)> {
    let (value, after) = match text.strip_prefix('"') {
        Some(inside) => quoted(inside)?,
        None => {
            let (value, after) = text.split_at(text.find([',', '\n']).unwrap_or(text.len()));
            (value.trim_end_matches('\r').to_owned(), after)
        }
    };
    if let Some(next) = after.strip_prefix(',') {
        return Ok((value, false, next));
    }
    let after = after.strip_prefix('\r').unwrap_or(after);
    match after.strip_prefix('\n') {
        Some(next) => Ok((value, true, next)),
        None if after.is_empty() => Ok((value, true, after)),
        None => Err(format!("there is text behind the closing quote of `{value}`").into()),
    }
}

/// The text before the closing quote, and the rest; two quotes mean one.
fn quoted(text: &str) -> Outcome<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        value.push_str(part);
        let Some(next) = after.strip_prefix('"') else { return Ok((value, after)) };
        value.push('"');
        rest = next;
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
        assert_eq!(error("a,b\n1,2\n3\n"), "record 2 has 1 fields, the header has 2");
        assert_eq!(error("a\n\"open\n"), "a quote is not closed");
        assert_eq!(error("a\n\"b\"c\n"), "there is text behind the closing quote of `b`");
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
