//! Comments and prose have at most 100 columns, so that two files fit side by side.
//!
//! rustfmt wraps code and leaves comments as they are. In Markdown, tables, code blocks, headings,
//! link definitions, pictures and HTML comments may be wider, and so may a line that is one word.
//! Pages of results that the laboratory has written are published as they came.

use super::Finding;
use crate::source;
use crate::workspace::File;

const COLUMNS_MAX: usize = 100;

/// Folders of generated pages below `docs/results/`; its own README is written by hand.
const RESULTS: &str = "docs/results/";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let too_wide = if file.path.ends_with(".rs") {
            wide_comments(&file.text)
        } else if file.path.ends_with(".md") && !is_published(&file.path) {
            wide_prose(&file.text)
        } else {
            continue;
        };
        findings.extend(too_wide.into_iter().map(|(line, columns)| {
            let message = format!("{columns} columns; a line has at most {COLUMNS_MAX}");
            Finding::new(&file.path, line, message)
        }));
    }
    findings
}

fn is_published(path: &str) -> bool {
    path.starts_with(RESULTS) && !path.ends_with("/README.md")
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

/// Lines that hold a comment and are too wide, with their widths.
fn wide_comments(text: &str) -> Vec<(usize, usize)> {
    let masked = source::mask(text);
    let lines = text.lines().zip(masked.lines()).enumerate();
    let wide = lines.filter(|(_, (line, masked))| {
        columns(line) > COLUMNS_MAX && masked.trim_end().len() < line.trim_end().len()
    });
    wide.map(|(index, (line, _))| (index + 1, columns(line))).collect()
}

/// Lines of prose that are too wide, with their widths.
fn wide_prose(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut in_code, mut in_comment) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        in_comment |= !in_code && trimmed.starts_with("<!--");
        let is_prose = !in_code && !in_comment && is_prose(trimmed);
        if in_comment && trimmed.contains("-->") {
            in_comment = false;
        }
        if is_prose && columns(line) > COLUMNS_MAX {
            found.push((index + 1, columns(line)));
        }
    }
    found
}

fn is_prose(line: &str) -> bool {
    let is_table = line.starts_with('|') || line.contains(" | ");
    let is_definition = line.starts_with('[') && line.contains("]: ");
    let is_picture = line.starts_with("![");
    let is_heading = line.starts_with('#');
    let is_one_word = !line.trim_start_matches(['-', '*', '>', ' ']).contains(' ');
    !is_table && !is_definition && !is_picture && !is_heading && !is_one_word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_measured_in_characters_and_code_is_left_to_rustfmt() {
        let fits = format!("// {}", "é".repeat(97));
        let wide = format!("let a = 1; // {}", "a ".repeat(50));
        let code = format!("let a = \"{}\";", "// a ".repeat(30));
        let text = format!("{fits}\n{wide}\n{code}\n/// {}\n", "b".repeat(97));
        assert_eq!(wide_comments(&text), [(2, 114), (4, 101)]);
    }

    #[test]
    fn prose_is_measured_and_tables_code_and_links_are_not() {
        let long = "word ".repeat(21);
        assert_eq!(wide_prose(&format!("{long}\n")), [(1, 105)]);
        assert_eq!(wide_prose(&format!("- {long}\n")), [(1, 107)]);
        for exempt in [
            format!("```\n{long}\n```"),
            format!("a | {long}"),
            format!("| {long} |"),
            format!("[a]: {long}"),
            format!("![{long}](a.png)"),
            format!("# {long}"),
            format!("<!-- {long} -->"),
            "a".repeat(101),
        ] {
            assert_eq!(wide_prose(&exempt), [], "{exempt}");
        }
        assert_eq!(wide_prose(&format!("<!-- a -->\n{long}")), [(2, 105)]);
    }

    #[test]
    fn published_results_stay_as_they_came() {
        assert!(is_published("docs/results/tuning/index.md") && !is_published("docs/a.md"));
        assert!(is_published("docs/results/schemes-small.md"));
        assert!(!is_published("docs/results/README.md"));
    }
}
