//! Wraps generated Markdown, so that pages made by programs read like those written by hand.

/// Width of the project's prose, in characters.
const COLUMNS: usize = 100;

/// Wraps paragraphs and the items of lists. Headings, tables, code blocks, HTML comments and
/// pictures stay as they are, and a code span is never broken.
pub fn wrapped(markdown: &str) -> String {
    let mut out = String::new();
    let mut paragraph = Paragraph::default();
    let (mut in_code, mut in_comment) = (false, false);
    for line in markdown.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_comment |= !in_code && line.starts_with("<!--");
        if is_fence || in_code || in_comment || is_fixed(line) {
            paragraph.flush(&mut out);
            out.push_str(line);
            out.push('\n');
        } else {
            if item_indent(line) > 0 {
                paragraph.flush(&mut out);
            }
            paragraph.add(line);
        }
        in_code ^= is_fence;
        in_comment &= !line.contains("-->");
    }
    paragraph.flush(&mut out);
    out
}

/// Lines that are not part of a paragraph.
fn is_fixed(line: &str) -> bool {
    let text = line.trim();
    text.is_empty()
        || text.starts_with(['#', '|'])
        || text.starts_with("![")
        || text.starts_with("---")
        || line.contains(" | ")
}

/// Indentation of the second and later lines of a list item; 0 for other lines.
fn item_indent(line: &str) -> usize {
    if line.starts_with("- ") { 2 } else { 0 }
}

#[derive(Default)]
struct Paragraph {
    text: String,
    indent: usize,
}

impl Paragraph {
    fn add(&mut self, line: &str) {
        if self.text.is_empty() {
            self.indent = item_indent(line);
        } else {
            self.text.push(' ');
        }
        self.text.push_str(line.trim());
    }

    fn flush(&mut self, out: &mut String) {
        let mut columns = 0;
        for word in words(&self.text) {
            let width = word.chars().count();
            if columns > 0 && columns + 1 + width > COLUMNS {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', self.indent));
                columns = self.indent;
            } else if columns > 0 {
                out.push(' ');
                columns += 1;
            }
            out.push_str(word);
            columns += width;
        }
        if columns > 0 {
            out.push('\n');
        }
        self.text.clear();
    }
}

/// Words between blanks; blanks inside a code span do not count.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut in_span = false;
    text.split(move |c: char| {
        in_span ^= c == '`';
        c == ' ' && !in_span
    })
    .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_and_items_are_wrapped_and_the_rest_is_kept() {
        let long = "word ".repeat(30);
        let kept = format!("# {long}\n\na | {long}\n\n```\n{long}\n```\n\n<!-- {long} -->\n");
        assert_eq!(wrapped(&kept), kept);
        let text = format!("- {long}{long}\n- b\n\nc\nd\n");
        let out = wrapped(&text);
        assert!(out.lines().all(|line| line.chars().count() <= COLUMNS), "{out}");
        assert!(out.lines().nth(1).is_some_and(|line| line.starts_with("  word")), "{out}");
        assert!(out.ends_with("\n- b\n\nc d\n"), "{out}");
        assert_eq!(wrapped(&out), out);
    }

    #[test]
    fn code_spans_stay_on_one_line() {
        let text = format!("{}`cargo xtask bench hit`", "a ".repeat(45));
        assert!(wrapped(&text).ends_with("\n`cargo xtask bench hit`\n"));
    }
}
