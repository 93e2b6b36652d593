//! cache.log: messages of the program about itself, through the macros of `tracing`.
//!
//! Lines look like Squid's: `2026/01/31 12:00:00| WARNING: text`. They go to a [`LineSink`] and, if
//! wanted, to standard error; before a sink is attached, to standard error directly.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use humboldt_base::clock::UnixMillis;
use humboldt_sys::local_time;
use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::LineSink;
use crate::panics::{self, Logging};
use crate::text::{Calendar, Escape, push_escaped, push_padded};

/// Longest message in bytes; the rest is cut off.
const MESSAGE_BYTES_MAX: usize = 8192;

/// From this level on, messages of libraries are written too.
const LIBRARIES_FROM: u8 = 5;

/// The number of messages: Squid's debug levels, 0 (only fatal ones) to 9.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebugLevel(u8);

impl DebugLevel {
    /// The level that `-k debug` switches to.
    pub const DETAILED: Self = Self(7);

    /// A level; above 9 counts as 9.
    pub fn new(level: u8) -> Self {
        Self(level.min(9))
    }

    /// Understands `debug_options`: `ALL,1 33,2`. There are no sections here: the level of `ALL`
    /// counts, or without it the highest one.
    pub fn from_debug_options(text: &str) -> Option<Self> {
        let mut highest = None;
        for word in text.split_ascii_whitespace() {
            if word.starts_with("rotate=") {
                continue;
            }
            let (section, level) = word.split_once(',')?;
            let level: u8 = level.parse().ok()?;
            if section.eq_ignore_ascii_case("ALL") {
                return Some(Self::new(level));
            }
            section.parse::<u16>().ok()?;
            highest = highest.max(Some(level));
        }
        highest.map(Self::new)
    }

    fn shows(self, metadata: &Metadata<'_>) -> bool {
        let needed = match *metadata.level() {
            Level::ERROR => 0,
            Level::WARN | Level::INFO => 1,
            Level::DEBUG => 2,
            Level::TRACE => LIBRARIES_FROM,
        };
        self.0 >= needed && (self.0 >= LIBRARIES_FROM || is_ours(metadata.target()))
    }
}

impl Default for DebugLevel {
    /// Squid's `ALL,1`.
    fn default() -> Self {
        Self(1)
    }
}

fn is_ours(target: &str) -> bool {
    target.starts_with("humboldt")
}

/// The handle on cache.log. Clones are the same log.
#[derive(Clone)]
pub struct CacheLog {
    shared: Arc<Shared>,
}

struct Shared {
    level: AtomicU8,
    sinks: RwLock<Sinks>,
}

#[derive(Default)]
struct Sinks {
    attached: bool,
    file: Option<Arc<LineSink>>,
    stderr: Option<Arc<LineSink>>,
}

impl CacheLog {
    /// Makes this log the receiver of all messages of the process, panics among them (see
    /// [`crate::panics`]), on standard error for now. Returns `None` when the process has one
    /// already.
    pub fn install(level: DebugLevel) -> Option<Self> {
        let log = Self::new(level);
        tracing::subscriber::set_global_default(log.clone().into_subscriber()).ok()?;
        panics::install();
        Some(log)
    }

    fn new(level: DebugLevel) -> Self {
        Self {
            shared: Arc::new(Shared { level: AtomicU8::new(level.0), sinks: RwLock::default() }),
        }
    }

    fn into_subscriber(self) -> impl Subscriber {
        Messages { shared: self.shared }
    }

    /// From now on messages go to `file`, and to `stderr` too if there is one (`-d`, `-N`). Neither
    /// makes the caller of a message wait. With two `None` they go straight to standard error
    /// again.
    pub fn attach(&self, file: Option<Arc<LineSink>>, stderr: Option<Arc<LineSink>>) {
        let attached = file.is_some() || stderr.is_some();
        *self.shared.sinks.write() = Sinks { attached, file, stderr };
    }

    /// Changes how much is written.
    pub fn set_level(&self, level: DebugLevel) {
        self.shared.level.store(level.0, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    /// The level of messages that are written.
    pub fn level(&self) -> DebugLevel {
        self.shared.level()
    }
}

impl Shared {
    fn level(&self) -> DebugLevel {
        DebugLevel(self.level.load(Ordering::Relaxed))
    }

    fn write(&self, line: &[u8]) {
        let Some(_logging) = Logging::begin() else {
            // Nowhere left to complain to when this fails.
            let _ = std::io::stderr().write_all(line);
            return;
        };
        let sinks = self.sinks.read();
        for sink in [&sinks.file, &sinks.stderr].into_iter().flatten() {
            sink.append_shared(|out| out.extend_from_slice(line));
        }
        if !sinks.attached {
            // Nowhere left to complain to when this fails.
            let _ = std::io::stderr().write_all(line);
        }
    }
}

struct Messages {
    shared: Arc<Shared>,
}

impl Subscriber for Messages {
    fn register_callsite(
        &self,
        metadata: &'static Metadata<'static>,
    ) -> tracing::subscriber::Interest {
        if self.enabled(metadata) {
            tracing::subscriber::Interest::always()
        } else {
            tracing::subscriber::Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.shared.level().shows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.shared.level().0 {
            0 => LevelFilter::ERROR,
            1 => LevelFilter::INFO,
            2..LIBRARIES_FROM => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Vec::with_capacity(128);
        push_time(&mut line, UnixMillis::now().secs());
        line.extend_from_slice(match *event.metadata().level() {
            Level::ERROR => b"| ERROR: ",
            Level::WARN => b"| WARNING: ",
            _ => b"| ",
        });
        let mut message = Message::default();
        event.record(&mut message);
        push_escaped(&mut line, message.text.as_bytes(), Escape::AsIs);
        line.push(b'\n');
        self.shared.write(&line);
    }

    // Spans are not used for this log.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// `2026/01/31 12:00:00`, local time.
fn push_time(line: &mut Vec<u8>, unix_s: i64) {
    let time = Calendar::at(unix_s, local_time::utc_offset_s(unix_s));
    push_padded(line, time.year, 4, b'0');
    for (separator, number) in [
        (b'/', time.month),
        (b'/', time.day),
        (b' ', time.hour),
        (b':', time.minute),
        (b':', time.second),
    ] {
        line.push(separator);
        push_padded(line, number, 2, b'0');
    }
}

/// Collects the message of an event and then its other fields as `name=value`.
#[derive(Default)]
struct Message {
    text: String,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let start = self.text.len();
        // Writing to a String cannot fail; if a `Debug` reports an error, its text so far stays.
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.text, "{}{name}={value:?}", if start == 0 { "" } else { " " }),
        };
        if self.text.len() > MESSAGE_BYTES_MAX {
            let end = self.text.floor_char_boundary(MESSAGE_BYTES_MAX);
            self.text.truncate(end);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Destination, LogService, SinkOptions};

    /// Runs `talk` with a log of the given level; returns the written text.
    fn written(level: u8, talk: impl FnOnce(&CacheLog)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache.log");
        let service = LogService::start().unwrap();
        let sink = service.open(Destination::File(path.clone()), SinkOptions::default()).unwrap();
        let log = CacheLog::new(DebugLevel::new(level));
        log.attach(Some(sink), None);
        tracing::subscriber::with_default(log.clone().into_subscriber(), || talk(&log));
        assert!(service.flush(Duration::from_secs(30)));
        std::fs::read_to_string(path).unwrap()
    }

    fn messages(text: &str) -> Vec<&str> {
        text.lines().map(|line| line.split_once("| ").unwrap().1).collect()
    }

    #[test]
    fn lines_look_like_squids_and_are_one_line_each() {
        let text = written(1, |_| {
            tracing::info!(target: "humboldt", "ready\nto serve \x1b[1m");
            tracing::warn!(target: "humboldt", port = 3128, name = "x", "slow");
            tracing::error!(target: "humboldt", "broken");
            tracing::debug!(target: "humboldt", "hidden");
        });
        assert_eq!(
            messages(&text),
            ["ready%0Ato serve %1B[1m", "WARNING: slow port=3128 name=\"x\"", "ERROR: broken"]
        );
        let date = text.split_once('|').unwrap().0;
        let shape: String =
            date.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "9999/99/99 99:99:99");
    }

    #[test]
    fn the_level_decides_also_when_it_changes() {
        let text = written(0, |log| {
            for level in [0, 1, 2, 5] {
                log.set_level(DebugLevel::new(level));
                tracing::error!(target: "humboldt", "error at {level}");
                tracing::info!(target: "humboldt", "info at {level}");
                tracing::debug!(target: "humboldt", "debug at {level}");
                tracing::info!(target: "library", "library at {level}");
            }
        });
        let text = text.replace("ERROR: ", "");
        assert_eq!(
            messages(&text).join(", "),
            "error at 0, error at 1, info at 1, error at 2, info at 2, debug at 2, error at 5, info at 5, \
             debug at 5, library at 5"
        );
    }

    #[test]
    fn long_messages_are_cut() {
        let text =
            written(1, |_| tracing::info!(target: "humboldt", "{}", "ä".repeat(MESSAGE_BYTES_MAX)));
        assert_eq!(messages(&text)[0].len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn debug_options_are_understood() {
        let level = |text| DebugLevel::from_debug_options(text).map(|level| level.0);
        assert_eq!(level("ALL,1"), Some(1));
        assert_eq!(level("rotate=1 ALL,1 33,9"), Some(1));
        assert_eq!(level("11,2 20,3"), Some(3));
        assert_eq!(level("ALL,77"), Some(9));
        assert_eq!((level("loud"), level("ALL,x"), level("")), (None, None, None));
    }
}
