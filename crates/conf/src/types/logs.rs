//! Logs: where lines go and how they look.

use super::AclTerm;

/// How a log reaches its destination.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LogModule {
    /// A file or `/dev/stdout`, `/dev/stderr`. Squid's `stdio:` and `daemon:`: Humboldt writes both from its own log
    /// thread.
    File,
    /// `syslog:` with `facility.priority`.
    Syslog,
    /// `udp://host:port`.
    Udp,
    /// `tcp://host:port`.
    Tcp,
    /// `access_log none`: transactions that match are not logged at all.
    None,
}

/// One `access_log` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// How lines travel.
    pub module: LogModule,
    /// Path, `facility.priority`, or `host:port`, by `module`; empty for [`LogModule::None`].
    pub place: String,
    /// Name of a built-in format (`squid`, `common`, `combined`, `referrer`, `useragent`) or of a [`LogFormat`].
    pub format: String,
    /// `rotate=`: generations kept; `None` takes `logfile_rotate`.
    pub rotate: Option<u32>,
    /// `buffer-size=` in bytes; `None` takes the default.
    pub buffer_bytes: Option<u64>,
    /// `on-error=drop` (true) or `on-error=die` (false, Squid's default).
    pub drop_on_error: bool,
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
