//! The programs of subjects on this machine.

use crate::SubjectFile;
use crate::command::run_command;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Time for a program to say its version.
const VERSION_WITHIN: Duration = Duration::from_secs(10);

/// Longest version that is shown, in characters.
const VERSION_CHARS_MAX: usize = 100;

impl SubjectFile {
    /// The package that has its program.
    #[must_use]
    pub fn package(&self) -> &str {
        &self.content.package
    }

    /// The first line of what its program, which [`find`](Self::find) found, says about its
    /// version; `None` if it says nothing within ten seconds.
    #[must_use]
    pub fn version_of(&self, program: &Path) -> Option<String> {
        let expand = |word: &String| word.replace("{program}", &program.display().to_string());
        let mut words = self.content.version.iter().map(expand);
        let mut command = Command::new(words.next()?);
        command.args(words);
        let (out, err) = run_command(command, VERSION_WITHIN).ok()?;
        let line = out.lines().chain(err.lines()).find(|line| !line.trim().is_empty())?;
        Some(line.trim().chars().take(VERSION_CHARS_MAX).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_its_version_itself() {
        let text = SubjectFile::builtin_text("nginx").unwrap();
        let spoken =
            text.replace("[\"{program}\", \"-v\"]", "[\"{program}\", \"-c\", \"echo; echo v7\"]");
        assert_ne!(spoken, text);
        let file = SubjectFile::parse(&spoken, "test", None).unwrap();
        assert_eq!(file.version_of(Path::new("/bin/sh")).as_deref(), Some("v7"));
        assert_eq!(file.version_of(Path::new("/no/such/program")), None);
        assert_eq!(file.package(), "nginx-light");
    }
}
