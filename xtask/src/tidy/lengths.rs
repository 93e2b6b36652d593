//! Files are short enough to read. Clippy looks at functions (`too-many-lines-threshold`).

use super::Finding;
use crate::workspace::File;

const MAX_FILE_LINES: usize = 650;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().filter_map(check_file).collect()
}

fn check_file(file: &File) -> Option<Finding> {
    let lines = file.text.lines().count();
    (lines > MAX_FILE_LINES).then(|| {
        let message = format!("{lines} lines; a file has at most {MAX_FILE_LINES}");
        Finding::new(&file.path, MAX_FILE_LINES + 1, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        let findings = |lines| check(&[File { path: "a.rs".into(), text: "\n".repeat(lines) }]);
        assert_eq!(findings(MAX_FILE_LINES), []);
        assert_eq!(findings(MAX_FILE_LINES + 1).len(), 1);
    }
}
