//! A table, written as HTML, Markdown or CSV.

use crate::format::{NOTHING, plain};
use askama::Template;

/// A column: its label, and whether numbers are in it.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// With the unit.
    pub label: String,
    /// Aligned to the right.
    pub numeric: bool,
}

/// Rows of text under labelled columns. The first cell of a row is its heading.
#[derive(Clone, Debug, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    /// Its subject, in a few words.
    pub caption: String,
    /// The columns; every row has as many cells.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// The note below; empty if none.
    pub note: String,
}

impl Table {
    /// An empty table. A column whose label begins with `#` holds numbers.
    pub(crate) fn new(caption: &str, columns: &[&str]) -> Self {
        let columns = columns
            .iter()
            .map(|label| match label.strip_prefix('#') {
                Some(label) => Column { label: label.to_owned(), numeric: true },
                None => Column { label: (*label).to_owned(), numeric: false },
            })
            .collect();
        Self { caption: caption.to_owned(), columns, rows: Vec::new(), note: String::new() }
    }

    /// Adds a row: missing cells are empty, and none can be too many.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().take(self.columns.len()).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The same with a note below.
    pub(crate) fn note(mut self, note: &str) -> Self {
        note.clone_into(&mut self.note);
        self
    }

    /// The same without the columns in which no row has anything.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let is_empty = |cell: &String| cell.is_empty() || cell == NOTHING;
        for index in (0..self.columns.len()).rev() {
            if !self.rows.is_empty()
                && self.rows.iter().all(|row| row.get(index).is_none_or(is_empty))
            {
                self.columns.remove(index);
                self.rows.iter_mut().filter(|row| index < row.len()).for_each(|row| {
                    row.remove(index);
                });
            }
        }
        self
    }

    /// As Markdown, ending with an empty line.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("**{}**\n\n", markdown_text(&self.caption));
        let labels = self.columns.iter().map(|column| markdown_text(&column.label));
        push_line(&mut out, labels);
        push_line(
            &mut out,
            self.columns
                .iter()
                .map(|column| if column.numeric { "---:" } else { "---" }.to_owned()),
        );
        for row in &self.rows {
            push_line(&mut out, row.iter().map(|cell| markdown_text(cell)));
        }
        if !self.note.is_empty() {
            out.push_str(&format!("\n{}\n", markdown_text(&self.note)));
        }
        out.push('\n');
        out
    }
}

fn push_line(out: &mut String, cells: impl Iterator<Item = String>) {
    for cell in cells {
        out.push_str("| ");
        out.push_str(&cell);
        out.push(' ');
    }
    out.push_str("|\n");
}

/// Text that means nothing but itself in Markdown, on one line.
pub(crate) fn markdown_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(&text.replace('\n', " "), usize::MAX).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_cells_stay_cells() {
        let mut table = Table::new("what | that", &["name", "#n"]);
        table.row(["<script>|`x`".to_owned(), "1".to_owned(), "too many".to_owned()]);
        table.row(["short".to_owned()]);
        let markdown = table.markdown();
        assert!(markdown.contains("| &lt;script&gt;\\|\\`x\\` | 1 |\n| short |  |"), "{markdown}");
        assert!(markdown.contains("| --- | ---: |"), "{markdown}");
        let html = table.to_string();
        assert!(html.contains("&#60;script&#62;") && !html.contains("<script"), "{html}");
    }
}
