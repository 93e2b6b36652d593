//! What can be wrong with a workload file.

/// One line: which file, where in it, what is wrong, what to do.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("{file}:{line}:{column}: {message}")]
pub struct WorkloadError {
    /// Name of the file as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what is allowed.
    pub message: String,
}
