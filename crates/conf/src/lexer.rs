//! From text to logical lines: comments, continuation, macros. Each logical line remembers where
//! its bytes came from.

use std::ops::Range;

/// A line after folding, without leading and trailing blanks, never empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogicalLine {
    pub(crate) text: String,
    /// Pieces of `text` in order: offset in `text`, offset in the source.
    pieces: Vec<Piece>,
    /// A backslash followed by blanks ends the line: it looks like a continuation but is none.
    pub(crate) false_continuation: bool,
    /// The file ended where a continued line was expected.
    pub(crate) cut_short: bool,
}

#[derive(Copy, Clone, Debug)]
struct Piece {
    in_text: usize,
    in_source: usize,
    /// The piece is the value of a macro of this length in the source.
    macro_len: Option<usize>,
}

impl LogicalLine {
    /// The bytes of the source that a range of `text` came from.
    pub(crate) fn source_span(&self, range: Range<usize>) -> Range<usize> {
        let (start, _) = self.source_offsets(range.start);
        let (_, end) = self.source_offsets(range.end.saturating_sub(1).max(range.start));
        start..end.max(start)
    }

    /// Source offsets before and after the byte at `offset`.
    fn source_offsets(&self, offset: usize) -> (usize, usize) {
        let index = self.pieces.partition_point(|piece| piece.in_text <= offset);
        match index.checked_sub(1).and_then(|i| self.pieces.get(i)) {
            Some(Piece { in_source, macro_len: Some(len), .. }) => (*in_source, in_source + len),
            Some(piece) => {
                let at = piece.in_source + (offset - piece.in_text);
                (at, at + 1)
            }
            None => (0, 0),
        }
    }

    fn push(&mut self, text: &str, in_source: usize) {
        self.pieces.push(Piece { in_text: self.text.len(), in_source, macro_len: None });
        self.text.push_str(text);
    }
}

/// Values of the macros that squid.conf lines may contain.
pub(crate) struct Macros<'a> {
    pub(crate) service_name: &'a str,
    pub(crate) process_name: &'a str,
    pub(crate) process_number: &'a str,
}

/// Iterates over the logical lines of a file.
pub(crate) struct Lines<'a> {
    source: &'a str,
    offset: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        Self { source, offset: 0 }
    }

    /// The next physical line without its end and leading blanks, and its offset.
    fn next_physical(&mut self) -> Option<(&'a str, usize)> {
        let rest = self.source.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let line = rest.split('\n').next().unwrap_or("");
        let start = self.offset;
        self.offset += (line.len() + 1).min(rest.len());
        // Squid cuts the line at its first CR.
        let line = line.split('\r').next().unwrap_or("");
        let trimmed = line.trim_start_matches([' ', '\t']);
        Some((trimmed, start + (line.len() - trimmed.len())))
    }
}

impl Iterator for Lines<'_> {
    type Item = LogicalLine;

    fn next(&mut self) -> Option<LogicalLine> {
        let mut line = LogicalLine::default();
        let mut continued = false;
        while let Some((text, at)) = self.next_physical() {
            // Comments and empty lines do not end a continuation.
            if text.starts_with('#') || text.is_empty() {
                continue;
            }
            if let Some(text) = text.strip_suffix('\\') {
                line.push(text, at);
                continued = true;
                continue;
            }
            let trimmed = text.trim_end_matches([' ', '\t']);
            line.false_continuation = trimmed.len() < text.len() && trimmed.ends_with('\\');
            line.push(trimmed, at);
            if line.text.is_empty() {
                line = LogicalLine::default();
                continue;
            }
            return Some(line);
        }
        let trimmed = line.text.trim_end_matches([' ', '\t']).len();
        line.text.truncate(trimmed);
        line.cut_short = continued;
        (!line.text.is_empty()).then_some(line)
    }
}

/// Replaces the macros in a line.
pub(crate) fn expand(line: LogicalLine, macros: &Macros<'_>) -> LogicalLine {
    if !line.text.contains("${") {
        return line;
    }
    let table = [
        ("${service_name}", macros.service_name),
        ("${process_name}", macros.process_name),
        ("${process_number}", macros.process_number),
    ];
    let mut out = LogicalLine {
        false_continuation: line.false_continuation,
        cut_short: line.cut_short,
        ..LogicalLine::default()
    };
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = line.text.get(at..).and_then(|rest| rest.find("${")) {
        let start = at + found;
        let rest = line.text.get(start..).unwrap_or("");
        let Some((name, value)) = table.iter().find(|(name, _)| rest.starts_with(name)) else {
            at = start + 2;
            continue;
        };
        copy(&line, copied..start, &mut out);
        out.pieces.push(Piece {
            in_text: out.text.len(),
            in_source: line.source_span(start..start + 1).start,
            macro_len: Some(name.len()),
        });
        out.text.push_str(value);
        at = start + name.len();
        copied = at;
    }
    copy(&line, copied..line.text.len(), &mut out);
    out
}

/// Copies a range of `line` with the places of its pieces.
fn copy(line: &LogicalLine, range: Range<usize>, out: &mut LogicalLine) {
    let mut at = range.start;
    while at < range.end {
        let next = line.pieces.partition_point(|piece| piece.in_text <= at);
        let end = line.pieces.get(next).map_or(range.end, |piece| piece.in_text.min(range.end));
        let in_source = line.source_span(at..at + 1).start;
        out.push(line.text.get(at..end).unwrap_or(""), in_source);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        Lines::new(source).map(|line| line.text).collect()
    }

    #[test]
    fn comments_blank_lines_and_line_ends() {
        assert_eq!(texts("# a\n\n  via on\r\n\t# b\n#c\nx y # z\n"), ["via on", "x y # z"]);
        assert_eq!(texts(""), Vec::<String>::new());
        assert_eq!(texts("no newline"), ["no newline"]);
    }

    #[test]
    fn a_continuation_skips_comments_and_empty_lines_and_may_split_a_word() {
        assert_eq!(texts("acl a src \\\n  # why\n\n  10.0.0.1\nb"), ["acl a src 10.0.0.1", "b"]);
        assert_eq!(texts("cache_\\\n  mem 1"), ["cache_mem 1"]);
        assert_eq!(texts("a \\\n\\\nb"), ["a b"]);
    }

    #[test]
    fn an_unfinished_or_false_continuation_is_marked() {
        let line = Lines::new("via on \\\n").next().expect("line");
        assert!(line.cut_short);
        assert_eq!(line.text, "via on");
        assert!(Lines::new("via on \\ \nx").next().expect("line").false_continuation);
    }

    #[test]
    fn spans_lead_back_to_the_source() {
        let source = "acl a src \\\n   10.0.0.1 ${process_number} z";
        let line = Lines::new(source).next().expect("line");
        let at = line.text.find("10.0.0.1").expect("value");
        assert_eq!(&source[line.source_span(at..at + 8)], "10.0.0.1");
        let macros = Macros {
            service_name: "squid",
            process_name: "p",
            process_number: "12345678901234567890",
        };
        let line = expand(line, &macros);
        let at = line.text.find("1234567890").expect("expanded");
        assert_eq!(&source[line.source_span(at..at + 5)], "${process_number}");
        let at = line.text.find('z').expect("after");
        assert_eq!(&source[line.source_span(at..at + 1)], "z");
    }
}
