//! The destination of a log in `access_log`, `cache_store_log` and `cache_log`.

use std::path::PathBuf;

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
}

/// A destination that cannot be meant or is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Nothing is named.
    #[error("a log needs a destination: a path, stdio:path, daemon:path or none")]
    Empty,
    /// One of Squid's log modules that is not there yet.
    #[error("log module \"{0}:\" is not supported: use a path, stdio:path, daemon:path or none")]
    Module(String),
    /// A relative path: the working directory changes when going into the background.
    #[error("the path of a log must be absolute: \"{0}\"")]
    Relative(String),
}

impl Destination {
    /// Understands `none`, `/path`, `stdio:/path` and `daemon:/path` (no helper process is needed:
    /// writing never blocks here). `/dev/stdout` and `/dev/stderr` mean this process's own streams,
    /// which work even where the device may not be opened any more.
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(DestinationError::Empty);
        }
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self::None);
        }
        let path = match text.split_once(':') {
            Some(("stdio" | "daemon", path)) => path,
            Some((module @ ("udp" | "tcp" | "syslog"), _)) => {
                return Err(DestinationError::Module(module.into()));
            }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_squids_ways_of_naming_a_log() {
        let file = |path: &str| Ok(Destination::File(path.into()));
        assert_eq!(Destination::parse("/var/log/a.log"), file("/var/log/a.log"));
        assert_eq!(Destination::parse("stdio:/var/log/a.log"), file("/var/log/a.log"));
        assert_eq!(Destination::parse("daemon:/var/log/a:b.log"), file("/var/log/a:b.log"));
        assert_eq!(Destination::parse("stdio:/dev/stdout"), Ok(Destination::Stdout));
        assert_eq!(Destination::parse("/dev/stderr"), Ok(Destination::Stderr));
        assert_eq!(Destination::parse("none"), Ok(Destination::None));
        let module = DestinationError::Module("udp".into());
        assert_eq!(Destination::parse("udp://10.0.0.1:514"), Err(module));
        assert_eq!(Destination::parse("stdio:"), Err(DestinationError::Empty));
        assert_eq!(Destination::parse("logs/a"), Err(DestinationError::Relative("logs/a".into())));
    }
}
