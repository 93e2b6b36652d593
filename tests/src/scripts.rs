//! Helper programs of a test: scripts that write down what they are asked.

use crate::proxy::open_folder;
use crate::wait::until;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder with helper programs and their notes, which every user may use.
pub struct Scripts(TempDir);

impl Default for Scripts {
    fn default() -> Self {
        Self::new()
    }
}

impl Scripts {
    /// An empty folder.
    #[must_use]
    pub fn new() -> Self {
        Self(open_folder())
    }

    /// The path of a file in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    /// A command that notes each line it gets under `name`, and answers it: `answer` is shell code
    /// that sees the line as `$line`. `DIR` in it is the folder.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn helper(&self, name: &str, answer: &str) -> String {
        let dir = self.0.path().display().to_string();
        let answer = answer.replace("DIR", &dir);
        let text = format!(
            "while IFS= read -r line; do printf '%s$\\n' \"$line\" >> {dir}/{name}.asked\n\
             {answer}\ndone\n"
        );
        format!("/bin/sh {}", self.write(name, &text).display())
    }

    /// The lines that a helper has got, each with `$` behind it.
    #[must_use]
    pub fn asked(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{name}.asked"))).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a helper has got this number of lines.
    ///
    /// # Panics
    /// If it never does.
    pub fn wait_asked(&self, name: &str, count: usize) {
        until(&format!("{count} questions to {name}"), || {
            (self.asked(name).len() >= count).then_some(())
        });
    }
}
