//! Logs.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Logs" {
    /// A named format of access log lines. `squid`, `common`, `combined`, `referrer`, `useragent`
    /// and `json` are built in; the last one, which Squid does not have, gives way to one that the
    /// file defines.
    logformat: Vec<LogFormat> = LogFormats(""), "logformat NAME FORMAT";
    /// A named format in JSON: one object for each line, with these fields in their order. A field
    /// is a name of the table, or `NAME=%CODE` with a code of `logformat`. Strings, numbers and
    /// their escapes are right whatever a client sends: `docs/logs.md` has more. Not in Squid.
    logformat_json: Vec<LogFormat> = JsonLogFormats(""), "logformat_json NAME FIELD|NAME=%CODE ...";
    /// Where requests are logged: a file (`stdio:`), `/dev/stdout`, a program (`daemon:`, see
    /// `logfile_daemon`), `syslog:facility.priority`, `udp://host:port`, `tcp://host:port`, or
    /// `none`, which keeps matching requests out of the following logs. Each request has one line,
    /// whatever became of it. A request that cannot be read has a URL such as
    /// `error:invalid-request`, and a connection without a request has no line. Lines whose ACLs
    /// all match are written; the ACLs may ask for status and media type of the answer.
    ///
    /// Threads of their own write the lines, a tenth of a second later. Until then they wait: 4 MB
    /// of each core, or `buffer-size=` of all cores together, at least 16 KB of each. Programs and
    /// receivers that are slow or away get their lines as soon as they are there again; if the log
    /// is removed meanwhile, they have 10 s. What the system had already taken for one that goes
    /// away is lost uncounted. Another line that has no room, or cannot be written, is lost and
    /// counted, and cache.log says so; with `on-error=die` (which in Squid is the default) the
    /// program then ends, with exit code 1. `rotate=` is the number of old files that a rotation
    /// keeps, if it is not that of `logfile_rotate`. A line over UDP or for syslog or a program may
    /// be cut (`docs/limits.md`).
    access_log | cache_access_log: Vec<AccessLog> = AccessLogs("daemon:/var/log/squid/access.log squid"),
        "access_log MODULE:PLACE [FORMAT | logformat=FORMAT buffer-size=SIZE on-error=die|drop rotate=NUMBER] [[!]ACL ...]";
    /// Program that gets the lines of logs with `daemon:`, one process for each log, with the place
    /// as its argument and Squid's protocol on its standard input: `L` and a line, `F` to write it
    /// out, `R` to rotate, `r` and `b` with a number for `logfile_rotate` and `buffered_logs`. One
    /// that ends is started again after half a second, and lines wait for it. One that reads
    /// nothing for 60 s is ended and started again. Without this directive the place of `daemon:`
    /// is a file, which is written directly.
    logfile_daemon: Option<String> = OptText("none"), "logfile_daemon PATH";
    /// Whether lines share datagrams of up to 1400 bytes (`udp:`), and whether a `logfile_daemon`
    /// is told to collect them.
    buffered_logs: bool = OnOff("off"), "buffered_logs on|off";
    /// Log of every object stored, read and released, with the modules of `access_log`; `none` for
    /// none.
    cache_store_log: Option<String> = LogPlace("none"), "cache_store_log [MODULE:]PLACE|none";
    /// Log of the program's own messages.
    cache_log: Option<String> = LogPath("/var/log/squid/cache.log"), "cache_log PATH";
    /// Old logs kept by a rotation; 0 only reopens the files.
    logfile_rotate: u32 = Count("10"), "logfile_rotate NUMBER";
    /// Whether the query part of URLs is left out of logs, also in Referer, Location and
    /// Content-Location.
    strip_query_terms: bool = OnOff("on"), "strip_query_terms on|off";
    /// The part of clients' addresses that access.log has: the other bits are 0. A mask for IPv4
    /// concerns IPv4 only, and one for IPv6 IPv6. Rules see the whole address, and so do the
    /// questions to helpers.
    client_netmask: Option<IpAddr> = AnyAddress("any_addr"), "client_netmask MASK";
    /// The level of messages in `cache_log`: Squid's levels, 0 to 9. There are no sections: the
    /// level of `ALL` counts, or without it the highest one.
    debug_options: Vec<String> = DebugOptions("ALL,1"), "debug_options SECTION,LEVEL ...";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Logs":
    Unsupported("every request counts in the statistics so far") {
        "stats_collection", "stats_collection allow|deny [!]ACL ...", "Which requests count in the statistics.";
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
