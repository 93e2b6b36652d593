//! Logs.

use super::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Logs" {
    /// A named format of access log lines. `squid`, `common`, `combined`, `referrer` and `useragent` are built in.
    logformat: Vec<LogFormat> = LogFormats(""), "logformat NAME FORMAT";
    /// Where requests are logged: a file (`stdio:` and `daemon:` mean the same here), `/dev/stdout`, `syslog:`,
    /// `udp://`, `tcp://` or `none`. Lines whose ACLs all match are written.
    access_log | cache_access_log: Vec<AccessLog> = AccessLogs("daemon:/var/log/squid/access.log squid"),
        "access_log MODULE:PLACE [FORMAT | logformat=FORMAT rotate=N buffer-size=SIZE on-error=drop] [[!]ACL ...]";
    /// Log of every object stored, read and released; `none` for none.
    cache_store_log: Option<String> = LogPath("none"), "cache_store_log PATH|none";
    /// Log of the program's own messages.
    cache_log: Option<String> = LogPath("/var/log/squid/cache.log"), "cache_log PATH";
    /// Old logs kept by a rotation; 0 only reopens the files.
    logfile_rotate: u32 = Count("10"), "logfile_rotate NUMBER";
    /// Whether lines wait in memory until a block is full, and are not written at once.
    buffered_logs: bool = OnOff("off"), "buffered_logs on|off";
    /// Whether the query part of URLs is left out of logs.
    strip_query_terms: bool = OnOff("on"), "strip_query_terms on|off";
    /// Whether heads of requests and answers are appended to access log lines.
    log_mime_hdrs: bool = OnOff("off"), "log_mime_hdrs on|off";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Logs":
    Unsupported("addresses are logged whole so far") {
        "client_netmask", "client_netmask MASK", "Which part of clients' addresses is logged.";
    }
    Unsupported("every request counts in the statistics so far") {
        "stats_collection", "stats_collection allow|deny [!]ACL ...", "Which requests count in the statistics.";
    }
    Ignored("logs are written by a thread of the program") {
        "logfile_daemon", "logfile_daemon PATH", "Helper that writes logs.";
    }
    Ignored("messages have levels of their own: use `-d` to see more") {
        "debug_options", "debug_options SECTION,LEVEL ...", "How much is written to the log of messages.";
        "cache_log_message", "cache_log_message id=NUMBER OPTION ...", "How often a certain message is written.";
    }
    Ignored("types are only guessed for FTP, which is not implemented") {
        "mime_table", "mime_table PATH", "Types of content by file name.";
    }
};
