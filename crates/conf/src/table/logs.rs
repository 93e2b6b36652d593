//! Logs.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Logs" {
    /// A named format of access log lines. `squid`, `common`, `combined`, `referrer` and
    /// `useragent` are built in.
    logformat: Vec<LogFormat> = LogFormats(""), "logformat NAME FORMAT";
    /// Where requests are logged: a file (`stdio:` and `daemon:` mean the same here),
    /// `/dev/stdout`, or `none`, which keeps matching requests out of the following logs. Each
    /// request has one line, whatever became of it. A request that cannot be read has a URL such as
    /// `error:invalid-request`, and a connection without a request has no line. Lines whose ACLs
    /// all match are written; the ACLs may ask for status and media type of the answer. Nothing is
    /// written to `syslog:`, `udp:` and `tcp:`, and `rotate=`, `buffer-size=` and `on-error=die`
    /// have no effect; a warning tells you so.
    access_log | cache_access_log: Vec<AccessLog> = AccessLogs("daemon:/var/log/squid/access.log squid"),
        "access_log MODULE:PLACE [FORMAT | logformat=FORMAT on-error=drop] [[!]ACL ...]";
    /// Log of every object stored, read and released; `none` for none.
    cache_store_log: Option<String> = LogPath("none"), "cache_store_log PATH|none";
    /// Log of the program's own messages.
    cache_log: Option<String> = LogPath("/var/log/squid/cache.log"), "cache_log PATH";
    /// Old logs kept by a rotation; 0 only reopens the files.
    logfile_rotate: u32 = Count("10"), "logfile_rotate NUMBER";
    /// Whether the query part of URLs is left out of logs.
    strip_query_terms: bool = OnOff("on"), "strip_query_terms on|off";
    /// The level of messages in `cache_log`: Squid's levels, 0 to 9. There are no sections: the
    /// level of `ALL` counts, or without it the highest one.
    debug_options: Vec<String> = DebugOptions("ALL,1"), "debug_options SECTION,LEVEL ...";
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
    Ignored("lines are collected and written by a thread of their own, within a second") {
        "buffered_logs", "buffered_logs on|off", "Whether lines wait in memory until a block is full.";
    }
    Unsupported("lines hold what their format says and nothing more") {
        "log_mime_hdrs", "log_mime_hdrs on|off", "Whether heads of requests and answers are appended to access log lines.";
    }
    Ignored("messages have no numbers: use `debug_options` for more or fewer of them") {
        "cache_log_message", "cache_log_message id=NUMBER OPTION ...", "How often a certain message is written.";
    }
    Ignored("types are only guessed for FTP, which is not implemented") {
        "mime_table", "mime_table PATH", "Types of content by file name.";
    }
};
