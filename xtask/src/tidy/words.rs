//! Words that may stand only in certain places, or nowhere.

use super::Finding;
use crate::source;
use crate::workspace::File;

/// Marks of unfinished work, written so that this file does not contain them.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Unsafe code lives in `sys`, and in one module of `store`.
pub(super) fn check_unsafe(files: &[File]) -> Vec<Finding> {
    let mut store_module: Option<&str> = None;
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with("crates/sys/")) {
        let masked = source::mask(&file.text);
        let Some(word) = source::tokens(&masked).into_iter().find(|token| token.text == "unsafe")
        else {
            continue;
        };
        let message = match store_module {
            None if file.path.starts_with("crates/store/src/") => {
                store_module = Some(&file.path);
                continue;
            }
            Some(other) if file.path.starts_with("crates/store/") => {
                format!("only one module of `store` may hold unsafe code, and {other} does already")
            }
            _ => "unsafe code belongs into crates/sys".to_owned(),
        };
        findings.push(Finding::new(&file.path, source::line_of(&masked, word.at), message));
    }
    findings
}

/// No mark of unfinished work is left anywhere.
pub(super) fn check_marks(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            if let Some(mark) = words.into_iter().find(|word| MARKS.contains(word)) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("`{mark}` is left here"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn unsafe_code_is_found_outside_its_place() {
        let block = "fn a() { unsafe { b() } }";
        assert_eq!(
            check_unsafe(&[
                file("crates/sys/src/a.rs", block),
                file("crates/store/src/a.rs", block)
            ]),
            []
        );
        assert_eq!(
            check_unsafe(&[
                file("crates/store/src/a.rs", block),
                file("crates/store/src/b.rs", block)
            ])
            .len(),
            1
        );
        assert_eq!(check_unsafe(&[file("crates/http/src/a.rs", block)]).len(), 1);
        assert_eq!(
            check_unsafe(&[file("crates/http/src/a.rs", "// unsafe\nfn a() { \"unsafe\" }")]),
            []
        );
    }

    #[test]
    fn marks_are_found_as_whole_words() {
        assert_eq!(
            check_marks(&[file("a.md", &format!("fine\n- {}: later\n", MARKS[0]))])[0].line,
            2
        );
        assert_eq!(check_marks(&[file("a.md", &format!("{}X_TYPES", MARKS[2]))]), []);
    }
}
