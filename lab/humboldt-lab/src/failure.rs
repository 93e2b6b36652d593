//! The end of the program when it cannot do its task.

use std::fmt;

/// One line for a person, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// A run failed; the measurements are kept.
    pub(crate) fn run(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// The task makes no sense, or cannot be done here. Nothing was begun.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// A session of an experiment is over, and runs are left.
    pub(crate) fn unfinished(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: 3 }
    }

    /// Someone stopped the program.
    pub(crate) fn interrupted() -> Self {
        Self { message: "interrupted".to_owned(), code: 130 }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
