//! Every dependency is declared once, in the root manifest, with the reason beside it.

use super::Finding;
use crate::workspace::File;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let is_root = file.path == "Cargo.toml";
    let is_member = file.path.ends_with("/Cargo.toml")
        && !file.path.starts_with("fuzz/")
        && !file.path.contains("/fuzz/");
    if !is_root && !is_member {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut section = "";
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let Some((name, value)) =
            line.split_once('=').filter(|_| section.ends_with("dependencies]"))
        else {
            continue;
        };
        let name = name.trim();
        if is_root && !value.contains("path =") && !value.contains('#') {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                format!("`{name}` has no `# reason`"),
            ));
        }
        let is_inherited = name.ends_with(".workspace") || value.contains("workspace = true");
        if is_member && !is_inherited && !name.starts_with('#') {
            let message = format!(
                "`{name}` takes its version from the root: write `{name}.workspace = true`"
            );
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check_file(&File { path: path.into(), text: text.into() })
            .into_iter()
            .map(|found| found.line)
            .collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let root = "[workspace.dependencies]\na = \"1\" # why\nb = \"1\"\nc = { path = \"c\" }\n[profile.dev]\nx = 1\n";
        assert_eq!(lines("Cargo.toml", root), [3]);
        assert_eq!(
            lines("crates/a/Cargo.toml", "[dependencies]\na.workspace = true\nb = \"1\"\n"),
            [3]
        );
    }
}
