//! Errors of subjects and of their environment.

use std::path::PathBuf;

/// One clear line: the problem, its place, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// A subject file is wrong.
    #[error("subject file {file}: {what}")]
    File {
        /// Name of the file.
        file: String,
        /// The problem and its remedy.
        what: String,
    },
    /// A program is not installed.
    #[error("{program} is not installed: install the package `{package}` (apt install {package})")]
    ProgramMissing {
        /// Its name.
        program: String,
        /// The Debian package that has it.
        package: String,
    },
    /// A call to the system failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The environment cannot be as asked for.
    #[error("{0}")]
    Environment(String),
    /// A command failed.
    #[error("`{command}` failed ({status}): {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// The subject did not come up, or ended by itself.
    #[error("{subject} {what}{log}")]
    Subject {
        /// Its name.
        subject: String,
        /// Its output.
        what: String,
        /// The last lines of its logs, each on a line of its own.
        log: String,
    },
    /// The keeper does not work.
    #[error("the keeper (the process that cleans up if the laboratory dies) {0}")]
    Keeper(String),
}
