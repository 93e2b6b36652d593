//! The destination of a log in `access_log`, `cache_store_log` and `cache_log`.

use std::fmt;
use std::path::PathBuf;

use humboldt_conf::syslog_priority;

/// The socket of the system's log.
const SYSLOG_SOCKET: &str = "/dev/log";

/// The destination of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere.
    None,
    /// A file (or a device or FIFO, which is never renamed by rotation).
    File(PathBuf),
    /// Standard output of this process.
    Stdout,
    /// Standard error of this process.
    Stderr,
    /// A helper program with Squid's protocol (`logfile_daemon`).
    Program {
        /// The program.
        program: PathBuf,
        /// Its argument, often a file.
        place: String,
    },
    /// The system's log.
    Syslog {
        /// Its socket.
        socket: PathBuf,
        /// Facility and priority, as a number.
        priority: u8,
    },
    /// A receiver of datagrams: `host:port`.
    Udp(String),
    /// A receiver that is connected to: `host:port`.
    Tcp(String),
}

/// A destination that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Nothing is named.
    #[error("a log needs a destination: a path, stdio:path, daemon:path or none")]
    Empty,
    /// Words that syslog does not know.
    #[error("\"{0}\" is not a facility and priority of syslog")]
    Priority(String),
    /// A relative path: the working directory changes when going into the background.
    #[error("the path of a log must be absolute: \"{0}\"")]
    Relative(String),
}

impl Destination {
    /// Understands `none`, `/path`, `stdio:/path`, `daemon:/path`, `syslog:facility.priority`,
    /// `udp://host:port` and `tcp://host:port`. With a `daemon` (`logfile_daemon`), that program
    /// gets the lines of `daemon:`; without one they are written to the file, as writing never
    /// blocks here. `/dev/stdout` and `/dev/stderr` mean this process's own streams, which work
    /// even where the device may not be opened any more.
    pub fn parse(text: &str, daemon: Option<&str>) -> Result<Self, DestinationError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(DestinationError::Empty);
        }
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self::None);
        }
        let receiver = |place: &str| place.trim_start_matches("//").to_owned();
        let path = match (text.split_once(':'), daemon) {
            (Some(("daemon", place)), Some(program)) => {
                let program = PathBuf::from(program);
                return Ok(Self::Program { program, place: place.to_owned() });
            }
            (Some(("stdio" | "daemon", path)), _) => path,
            (Some(("udp", place)), _) => return Ok(Self::Udp(receiver(place))),
            (Some(("tcp", place)), _) => return Ok(Self::Tcp(receiver(place))),
            (Some(("syslog", words)), _) => return Self::syslog(words),
            (None, _) if text == "syslog" => return Self::syslog(""),
            _ => text,
        };
        match path {
            "" => Err(DestinationError::Empty),
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Ok(Self::Stdout),
            "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => Ok(Self::Stderr),
            path if path.starts_with('/') => Ok(Self::File(path.into())),
            path => Err(DestinationError::Relative(path.into())),
        }
    }

    fn syslog(words: &str) -> Result<Self, DestinationError> {
        let priority = syslog_priority(words);
        let priority = priority.ok_or_else(|| DestinationError::Priority(words.to_owned()))?;
        Ok(Self::Syslog { socket: SYSLOG_SOCKET.into(), priority })
    }

    /// Whether somebody else takes the lines, who may be slow or away.
    pub(crate) fn is_receiver(&self) -> bool {
        matches!(self, Self::Program { .. } | Self::Syslog { .. } | Self::Udp(_) | Self::Tcp(_))
    }

    /// Whether a line that cannot be sent is lost at once, and the next one tried.
    pub(crate) fn takes_or_loses(&self) -> bool {
        matches!(self, Self::Udp(_))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::File(path) => path.display().fmt(f),
            Self::Stdout => f.write_str("standard output"),
            Self::Stderr => f.write_str("standard error"),
            Self::Program { program, place } => write!(f, "{place} of {}", program.display()),
            Self::Syslog { socket, .. } => write!(f, "syslog ({})", socket.display()),
            Self::Udp(place) => write!(f, "udp://{place}"),
            Self::Tcp(place) => write!(f, "tcp://{place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_squids_ways_of_naming_a_log() {
        let file = |path: &str| Ok(Destination::File(path.into()));
        let parse = |text: &str| Destination::parse(text, None);
        assert_eq!(parse("/var/log/a.log"), file("/var/log/a.log"));
        assert_eq!(parse("stdio:/var/log/a.log"), file("/var/log/a.log"));
        assert_eq!(parse("daemon:/var/log/a:b.log"), file("/var/log/a:b.log"));
        assert_eq!(parse("stdio:/dev/stdout"), Ok(Destination::Stdout));
        assert_eq!(parse("/dev/stderr"), Ok(Destination::Stderr));
        assert_eq!(parse("none"), Ok(Destination::None));
        assert_eq!(parse("udp://10.0.0.1:514"), Ok(Destination::Udp("10.0.0.1:514".into())));
        assert_eq!(parse("tcp:[::1]:5"), Ok(Destination::Tcp("[::1]:5".into())));
        let socket = || PathBuf::from(SYSLOG_SOCKET);
        let syslog = |priority| Ok(Destination::Syslog { socket: socket(), priority });
        assert_eq!(parse("syslog:daemon.info"), syslog(3 << 3 | 6));
        assert_eq!(parse("syslog"), syslog(1 << 3 | 6));
        assert!(parse("syslog:nobody.info").is_err());
        assert_eq!(parse("stdio:"), Err(DestinationError::Empty));
        assert_eq!(parse("logs/a"), Err(DestinationError::Relative("logs/a".into())));
        let program = Destination::Program { program: "/d".into(), place: "/a b".into() };
        assert_eq!(Destination::parse("daemon:/a b", Some("/d")), Ok(program));
        assert_eq!(Destination::parse("/a", Some("/d")), file("/a"));
    }
}
