//! Relative links in documents lead to files that exist.

use super::Finding;
use crate::workspace::File;
use std::path::Path;

pub(super) fn check(root: &Path, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = root.join(&file.path).parent().map(Path::to_path_buf).unwrap_or_default();
        let mut in_code_block = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code_block = !in_code_block;
            }
            if in_code_block {
                continue;
            }
            for target in targets(line).filter(|target| !folder.join(target).exists()) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("there is no `{target}`"),
                ));
            }
        }
    }
    findings
}

/// The file part of every `](…)` in a line that is not a web address or an anchor in the same page.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
        let is_relative =
            !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        is_relative.then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_targets_are_checked() {
        let line = "see [a](docs/a.md#part), [b](https://example.org/x), [c](#here) and ![d](d.png \"title\")";
        assert_eq!(targets(line).collect::<Vec<_>>(), ["docs/a.md", "d.png"]);
    }
}
