//! Logs: where lines go and how they look.

use super::AclTerm;

/// One `access_log` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, `/dev/stdout` or `/dev/stderr`, or a place of another module with the module's name
    /// in front: `daemon:`, `syslog:`, `udp:`, `tcp:`. `None` for `access_log none`: matching
    /// requests are written to none of the following logs. A relative path is below `coredump_dir`.
    pub place: Option<String>,
    /// `buffer-size=`
    pub buffer_bytes: Option<u64>,
    /// `on-error=die`
    pub dies_on_error: bool,
    /// `rotate=`
    pub rotate: Option<u32>,
    /// Name of a built-in format (`squid`, `common`, `combined`, `referrer`, `useragent`, `json`)
    /// or of a [`LogFormat`].
    pub format: String,
    /// All must match; empty logs everything.
    pub terms: Vec<AclTerm>,
}

/// One definition of `logformat` or `logformat_json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Its name.
    pub name: String,
    /// The text with `%` codes, or the fields, as written.
    pub format: String,
}

/// Facilities of syslog that Squid knows, and their numbers (RFC 5424 6.2.1).
const FACILITIES: [(&str, u8); 11] = [
    ("user", 1),
    ("daemon", 3),
    ("authpriv", 10),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// Priorities of syslog that Squid knows, and their numbers.
const PRIORITIES: [(&str, u8); 5] =
    [("err", 3), ("warning", 4), ("notice", 5), ("info", 6), ("debug", 7)];

/// The number that begins a message of this facility and priority: `daemon.info`, either of them
/// alone, or nothing, which is `user.info`. `None`: there is no such facility or priority.
pub fn syslog_priority(words: &str) -> Option<u8> {
    let of = |table: &[(&str, u8)], word: &str| {
        let word = word.to_ascii_lowercase();
        let word = word.strip_prefix("log_").unwrap_or(&word);
        table.iter().find(|(name, _)| *name == word).map(|(_, number)| *number)
    };
    let (mut facility, mut priority) = (1, 6);
    for word in words.split(['.', '|']).filter(|_| !words.is_empty()) {
        match (of(&FACILITIES, word), of(&PRIORITIES, word)) {
            (Some(number), _) => facility = number,
            (_, Some(number)) => priority = number,
            _ => return None,
        }
    }
    Some(facility << 3 | priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_of_syslog() {
        for (words, number) in [
            ("", Some(14)),
            ("daemon.info", Some(30)),
            ("LOG_LOCAL4|LOG_NOTICE", Some(165)),
            ("local7", Some(190)),
            ("debug", Some(15)),
            ("kern.info", None),
            ("daemon.", None),
        ] {
            assert_eq!(syslog_priority(words), number, "{words}");
        }
    }
}
