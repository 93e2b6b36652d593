//! Files and functions are short enough to read.

use super::Finding;
use crate::source;
use crate::workspace::File;

const MAX_FILE_LINES: usize = 650;

/// Lines of code between the braces.
const MAX_FUNCTION_LINES: usize = 85;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = file.text.lines().count();
    if lines > MAX_FILE_LINES {
        let message = format!("{lines} lines; a file has at most {MAX_FILE_LINES}");
        findings.push(Finding::new(&file.path, MAX_FILE_LINES + 1, message));
    }
    let masked = source::mask(&file.text);
    for function in source::functions(&masked) {
        if function.body_lines > MAX_FUNCTION_LINES {
            let message = format!(
                "`{}` has {} lines; a function has at most {MAX_FUNCTION_LINES}",
                function.name, function.body_lines
            );
            findings.push(Finding::new(&file.path, function.line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: String) -> Vec<Finding> {
        check(&[File { path: "a.rs".into(), text }])
    }

    #[test]
    fn long_files_and_functions_are_found() {
        assert_eq!(findings("\n".repeat(MAX_FILE_LINES)), []);
        assert_eq!(findings("\n".repeat(MAX_FILE_LINES + 1)).len(), 1);
        let function = |lines: usize| format!("fn a() {{\n{}}}\n", "x();\n".repeat(lines));
        assert_eq!(findings(function(MAX_FUNCTION_LINES)), []);
        assert_eq!(findings(function(MAX_FUNCTION_LINES + 1))[0].line, 1);
    }
}
