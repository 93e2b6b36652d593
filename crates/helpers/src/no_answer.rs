//! Reasons for the lack of an answer.

/// Why there is no answer. For a rule this never means "allow".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Too many questions wait.
    #[error("all helper processes are busy, and too many questions wait")]
    Overloaded,
    /// The time limit has passed.
    #[error("the helper has not answered in time")]
    TimedOut,
    /// No process runs, and the next one is not started yet because the last ones failed.
    #[error("no helper process is running")]
    NoProcess,
    /// The process ended before it answered.
    #[error("the helper process has ended without an answer")]
    ProcessEnded,
    /// It is none that the question can have, for example `BH`.
    #[error("the helper has said that it is broken, or nothing that can be understood")]
    Unclear,
    /// The helper is no longer in use, or the program ends.
    #[error("the helper is not in use any more")]
    NotRunning,
    /// The question is longer than 128 KiB or not a single line.
    #[error("the question to the helper is too long, or more than a line")]
    Unsendable,
    /// The reservation was given to another client, or its process has ended.
    #[error("the reserved helper process is no longer available")]
    Unreserved,
}
