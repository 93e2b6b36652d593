//! Errors of a workload file.

/// One line: file, position, problem, remedy.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("{file}:{line}:{column}: {message}")]
pub struct WorkloadError {
    /// Name of the file as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The problem and the allowed values.
    pub message: String,
}
