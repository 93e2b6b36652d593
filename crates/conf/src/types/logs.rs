//! Logs: where lines go and how they look.

use super::AclTerm;

/// One `access_log` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, `/dev/stdout` or `/dev/stderr`; `None` for `access_log none`: matching requests are
    /// written to none of the following logs. A relative path is below `coredump_dir`.
    pub place: Option<String>,
    /// Name of a built-in format (`squid`, `common`, `combined`, `referrer`, `useragent`) or of a
    /// [`LogFormat`].
    pub format: String,
    /// All must match; empty logs everything.
    pub terms: Vec<AclTerm>,
}

/// One `logformat` definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Its name.
    pub name: String,
    /// The text with `%` codes, as written.
    pub format: String,
}
