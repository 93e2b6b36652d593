//! Published folders: those with the samples of their runs are computed again, the others are
//! listed.

use crate::{Outcome, workspace};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The file that a folder has if its figures can be computed again.
const EXPERIMENT: &str = "experiment.json";

/// The file that a published experiment has in any case.
const PAGE: &str = "index.md";

/// What a page says about an experiment without samples.
pub(super) const WITHOUT: &str = "\
Published without samples: its figures cannot be computed again from files beside it.
The experiment is to be repeated.";

/// The names of all published folders.
pub(super) struct Published {
    pub(super) with_samples: Vec<String>,
    pub(super) without: Vec<String>,
}

impl Published {
    pub(super) fn in_folder(folder: &Path) -> Outcome<Self> {
        let mut found = Self { with_samples: Vec::new(), without: Vec::new() };
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !path.join(PAGE).exists() {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let has_samples = has_samples(&path);
            if has_samples { &mut found.with_samples } else { &mut found.without }.push(name);
        }
        found.with_samples.sort();
        found.without.sort();
        Ok(found)
    }

    /// The summary of a check that found no mistake.
    fn words(&self) -> String {
        let with = match self.with_samples.len() {
            0 => "no published folder has samples".to_owned(),
            _ => format!("{} are what their samples say", self.with_samples.join(", ")),
        };
        match self.without.len() {
            0 => with,
            _ => format!(
                "{with}; published without samples, to be repeated: {}",
                self.without.join(", ")
            ),
        }
    }
}

/// Whether the figures in a folder can be computed again.
pub(super) fn has_samples(folder: &Path) -> bool {
    folder.join(EXPERIMENT).exists()
}

/// Has the laboratory compute every figure in `folder` again. Returns a summary, and fails if one
/// differs.
pub(super) fn recompute(folder: &Path) -> Outcome<String> {
    let published = Published::in_folder(folder)?;
    if !published.with_samples.is_empty() {
        let mut command = Command::new(workspace::cargo());
        command
            .args(["run", "--quiet", "--package", "humboldt-lab", "--", "recompute"])
            .args(published.with_samples.iter().map(|name| folder.join(name)))
            .current_dir(workspace::root());
        if !command.status()?.success() {
            return Err("a published figure is not what its samples say; see above".into());
        }
    }
    Ok(published.words())
}

#[cfg(test)]
mod tests {
    use super::super::testing::inputs;
    use super::*;

    #[test]
    fn folders_without_samples_are_listed() {
        let files = [
            ("old/index.md", "# Old\n"),
            ("new/index.md", "# New\n"),
            ("new/experiment.json", "{}\n"),
            ("drawings/a.svg", "<svg></svg>\n"),
        ];
        let (folder, _inputs) = inputs(&files);
        let published = Published::in_folder(folder.path()).unwrap();
        assert_eq!(
            (published.with_samples.as_slice(), published.without.as_slice()),
            (["new".to_owned()].as_slice(), ["old".to_owned()].as_slice())
        );
        let words = published.words();
        assert!(
            words.contains("new are what") && words.ends_with("to be repeated: old"),
            "{words}"
        );
    }
}
