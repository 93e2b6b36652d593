//! Replay of a log that a cache wrote.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::builtin;
use crate::error::WorkloadError;
use crate::name::OBJECT_BYTES_MAX;
use crate::workload::Workload;

/// Most lines that are kept: 16 bytes each, 160 MB; while the log is read, as much again for its
/// URLs.
const LINES_MAX: usize = 10_000_000;

/// Longest line that is understood, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Most characters of a bad line in a message.
const SHOWN_CHARS_MAX: usize = 120;

/// Indexes of the two types of the replay's workload file.
const KIND_CACHABLE: u8 = 0;
const KIND_UNCACHABLE: u8 = 1;

/// Statuses that a cache may store without being told so (RFC 9110, 15.1), as far as they have
/// bodies.
const CACHABLE_STATUSES: [u16; 7] = [200, 203, 300, 301, 308, 404, 410];

/// A log that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("{name}: cannot read it: {source}")]
    Read {
        /// Name of the log.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Nothing in it is a request that can be replayed.
    #[error(
        "{name}: none of {lines} lines can be replayed{first}; expected is Squid's native access.log format"
    )]
    Unusable {
        /// Name of the log.
        name: String,
        /// Lines read.
        lines: u64,
        /// The first bad line, if there is one.
        first: String,
    },
}

/// Counts of a log's lines by their use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Lines read.
    pub lines: u64,
    /// Requests that will be replayed.
    pub used: u64,
    /// Lines that were understood but cannot be replayed: refused requests, other methods, answers
    /// of unknown size.
    pub skipped: u64,
    /// Lines that were not understood.
    pub bad: u64,
    /// The first of them, shortened, with its number: "line 7: …".
    pub first_bad: Option<String>,
    /// Whether there were more lines than can be kept; the rest was not read.
    pub cut: bool,
}

/// The requests of a log.
#[derive(Debug)]
pub struct Replay {
    entries: Vec<Entry>,
    counts: ReplayCounts,
    objects: u64,
}

/// One line, in 16 bytes. `number` has the URL's hash in its low bits, flags above them.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    bytes: u32,
}

/// Bits of an entry's number that are the hash of its URL.
const HASH_BITS: u32 = 59;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;
const REPEAT_BIT: u64 = 1 << 59;
const CACHABLE_BIT: u64 = 1 << 60;
const METHOD_SHIFT: u32 = 61;

/// How a line asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogMethod {
    Get,
    Ims304,
    Head,
    Post,
    Connect,
}

impl LogMethod {
    const ALL: [Self; 5] = [Self::Get, Self::Ims304, Self::Head, Self::Post, Self::Connect];
}

/// One line, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) kind: u8,
    pub(crate) bytes: u64,
    pub(crate) method: LogMethod,
    pub(crate) repeat: bool,
}

impl Replay {
    /// Reads a log in Squid's native format: time, elapsed, client, code/status, bytes, method,
    /// URL, and more.
    ///
    /// A URL becomes one object with the size that the log gives first (heads included: the format
    /// has no other size); GET, HEAD, POST and CONNECT are kept, in order; a GET that was answered
    /// with 304 asks so again. Refused requests (`TCP_DENIED`) and other methods are skipped and
    /// counted. At most 10 million lines.
    ///
    /// # Errors
    /// The log cannot be read, or no line of it can be replayed.
    pub fn from_squid_log(log: impl BufRead, name: &str) -> Result<Self, ReplayError> {
        let mut reading = Reading::default();
        let mut log = log;
        let mut line = Vec::new();
        while reading.entries.len() < LINES_MAX {
            line.clear();
            let got = log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            match got {
                Ok(0) => break,
                Ok(_) => reading.line(&line),
                Err(source) => return Err(ReplayError::Read { name: name.to_owned(), source }),
            }
        }
        let mut counts = reading.counts;
        counts.cut = reading.entries.len() == LINES_MAX;
        counts.used = reading.entries.len() as u64;
        if reading.entries.is_empty() {
            let first = counts.first_bad.map_or_else(String::new, |bad| format!(" ({bad})"));
            return Err(ReplayError::Unusable {
                name: name.to_owned(),
                lines: counts.lines,
                first,
            });
        }
        let objects = reading.objects.len() as u64;
        Ok(Self { entries: reading.entries, counts, objects })
    }

    /// Counts of the lines by their use.
    #[must_use]
    pub fn counts(&self) -> &ReplayCounts {
        &self.counts
    }

    /// The workload whose streams ask as the log did.
    ///
    /// # Errors
    /// Only if the program's own file for replays is wrong.
    pub fn into_workload(self) -> Result<Workload, WorkloadError> {
        Ok(Workload::parse(builtin::REPLAY, "replay.toml")?.with_replay(self))
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    pub(crate) fn mean_bytes(&self) -> f64 {
        let sum: f64 = self.entries.iter().map(|entry| f64::from(entry.bytes)).sum();
        sum / self.entries.len().max(1) as f64
    }

    pub(crate) fn cachable_share(&self) -> f64 {
        self.share_of(CACHABLE_BIT)
    }

    pub(crate) fn repeat_share(&self) -> f64 {
        self.share_of(REPEAT_BIT)
    }

    fn share_of(&self, bit: u64) -> f64 {
        let count = self.entries.iter().filter(|entry| entry.number & bit != 0).count();
        count as f64 / self.entries.len().max(1) as f64
    }
}

impl Entry {
    fn line(&self) -> Line {
        let method = LogMethod::ALL.get((self.number >> METHOD_SHIFT) as usize);
        Line {
            number: self.number & HASH_MASK,
            kind: if self.number & CACHABLE_BIT == 0 { KIND_UNCACHABLE } else { KIND_CACHABLE },
            bytes: u64::from(self.bytes),
            method: method.copied().unwrap_or(LogMethod::Get),
            repeat: self.number & REPEAT_BIT != 0,
        }
    }
}

/// A log while it is read.
#[derive(Default)]
struct Reading {
    entries: Vec<Entry>,
    /// Size and cachability of URLs, by hash.
    objects: HashMap<u64, (u32, bool)>,
    counts: ReplayCounts,
}

/// The fields of a line that matter.
struct Fields<'a> {
    code: &'a str,
    status: u16,
    bytes: u64,
    method: &'a str,
    url: &'a str,
}

impl Reading {
    fn line(&mut self, line: &[u8]) {
        self.counts.lines += 1;
        let fields = std::str::from_utf8(line).ok().and_then(fields);
        let Some(fields) = fields else {
            self.counts.bad += 1;
            let number = self.counts.lines;
            self.counts
                .first_bad
                .get_or_insert_with(|| format!("line {number}: {}", shortened(line)));
            return;
        };
        match self.entry(&fields) {
            Some(entry) => self.entries.push(entry),
            None => self.counts.skipped += 1,
        }
    }

    fn entry(&mut self, fields: &Fields<'_>) -> Option<Entry> {
        if fields.code.contains("DENIED") || fields.code.starts_with("NONE") || fields.status == 0 {
            return None;
        }
        let method = match (fields.method, fields.status) {
            ("GET", 304) => LogMethod::Ims304,
            ("GET", _) => LogMethod::Get,
            ("HEAD", _) => LogMethod::Head,
            ("POST", _) => LogMethod::Post,
            ("CONNECT", _) => LogMethod::Connect,
            _ => return None,
        };
        // The target of a POST or of a tunnel is not the object of a GET for the same URL.
        let hash_seed = match method {
            LogMethod::Get | LogMethod::Ims304 | LogMethod::Head => 0,
            LogMethod::Post => 1,
            LogMethod::Connect => 2,
        };
        let hash = XxHash3_64::oneshot_with_seed(hash_seed, fields.url.as_bytes()) & HASH_MASK;
        let known = self.objects.get(&hash).copied();
        // The answers to these have no body, so they do not tell the object's size.
        if known.is_none() && matches!(method, LogMethod::Ims304 | LogMethod::Head) {
            return None;
        }
        let (bytes, cachable) = known.unwrap_or_else(|| {
            let bytes = u32::try_from(fields.bytes.min(OBJECT_BYTES_MAX)).unwrap_or(u32::MAX);
            let object = (bytes, hash_seed == 0 && CACHABLE_STATUSES.contains(&fields.status));
            self.objects.insert(hash, object);
            object
        });
        let mut number = hash | ((method as u64) << METHOD_SHIFT);
        number |= if cachable { CACHABLE_BIT } else { 0 };
        number |= if known.is_some() { REPEAT_BIT } else { 0 };
        Some(Entry { number, bytes })
    }
}

fn fields(line: &str) -> Option<Fields<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (seconds, millis) = words.next()?.split_once('.')?;
    // Nothing depends on the time, but a line that does not begin with one is no line of such a
    // log.
    seconds.parse::<u32>().ok().and(millis.parse::<u32>().ok())?;
    words.next()?.parse::<i64>().ok()?;
    words.next()?;
    let (code, status) = words.next()?.split_once('/')?;
    let status = status.parse().ok()?;
    let bytes = words.next()?.parse().ok()?;
    let method = words.next()?;
    let url = words.next()?;
    Some(Fields { code, status, bytes, method, url })
}

fn shortened(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end()
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A world's way through a log: the lines whose URLs belong to it, again and again.
pub(crate) struct Replayed {
    replay: Arc<Replay>,
    world: u64,
    /// 1 if this world asks for everything.
    worlds: u64,
    position: usize,
    passes: u64,
}

impl Replayed {
    pub(crate) fn new(replay: Arc<Replay>, world: u32, worlds: u32) -> Self {
        let mut replayed = Self {
            replay,
            world: u64::from(world),
            worlds: u64::from(worlds.max(1)),
            position: 0,
            passes: 0,
        };
        // A world without a line of its own would search for ever.
        if !replayed.replay.entries.iter().any(|entry| replayed.has(entry)) {
            (replayed.world, replayed.worlds) = (0, 1);
        }
        replayed
    }

    fn has(&self, entry: &Entry) -> bool {
        (entry.number & HASH_MASK) % self.worlds == self.world
    }

    pub(crate) fn next_line(&mut self, take: impl FnOnce(Line)) {
        let rest = self.replay.entries.get(self.position..).unwrap_or_default();
        let next = rest.iter().position(|entry| self.has(entry)).map(|skip| self.position + skip);
        let index = next.or_else(|| {
            self.passes += 1;
            self.replay.entries.iter().position(|entry| self.has(entry))
        });
        let Some(entry) = index.and_then(|index| self.replay.entries.get(index)).copied() else {
            return;
        };
        self.position = index.map_or(0, |index| index + 1);
        let line = entry.line();
        take(Line { repeat: line.repeat || self.passes > 0, ..line });
    }

    pub(crate) fn passes(&self) -> u64 {
        self.passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::{Ask, AskKind};
    use crate::stream::Stream;
    use std::collections::HashSet;

    const LOG: &str = "\
1157689312.049   5006 10.0.0.1 TCP_MISS/200 19763 GET http://a.example/ u DIRECT/1.2.3.4 text/html
1157689313.000      1 10.0.0.1 TCP_HIT/200 19999 GET http://a.example/ u NONE/- text/html
1157689313.500      1 10.0.0.1 TCP_IMS_HIT/304 300 GET http://a.example/ u NONE/- text/html
this line is not from a log
1157689314.000      1 10.0.0.1 TCP_DENIED/403 1000 GET http://b.example/ - NONE/- text/html
1157689314.100      1 10.0.0.1 TCP_MISS/200 500 POST http://a.example/ - DIRECT/1.2.3.4 text/html
1157689314.200      9 10.0.0.1 TCP_TUNNEL/200 7000 CONNECT c.example:443 - DIRECT/1.2.3.4 -
1157689314.300      9 10.0.0.1 TCP_MISS/200 70 PURGE http://a.example/ - DIRECT/1.2.3.4 -
1157689314.400      9 10.0.0.1 TCP_MISS/302 700 GET http://d.example/ - DIRECT/1.2.3.4 -
1157689314.500      9 10.0.0.1 TCP_MISS/304 300 GET http://never.seen/ - DIRECT/1.2.3.4 -
1157689315.049      9 10.0.0.1 TCP_MISS/200 300 HEAD http://a.example/ - DIRECT/1.2.3.4 -
1157689316.049      9 10.0.0.1 TCP_MISS/200 99999999999 GET http://large.example/ - DIRECT/1.2.3.4 -
";

    fn replay(log: &str) -> Result<Replay, ReplayError> {
        Replay::from_squid_log(log.as_bytes(), "access.log")
    }

    fn pass(stream: &mut Stream, count: usize) -> Vec<Ask> {
        let mut asks = Vec::new();
        while asks.len() < count {
            stream.next_visit(&mut asks);
        }
        asks
    }

    #[test]
    fn lines_become_requests() {
        let replay = replay(LOG).unwrap();
        let counts = replay.counts().clone();
        assert_eq!((counts.lines, counts.used, counts.skipped, counts.bad), (12, 8, 3, 1));
        assert_eq!(counts.first_bad.as_deref(), Some("line 4: this line is not from a log"));
        let workload = Arc::new(replay.into_workload().unwrap());
        assert_eq!(workload.working_set_objects(1), 5);
        let mut stream = Stream::new(Arc::clone(&workload), 1, 0, 1, 5);
        let asks = pass(&mut stream, 8);
        let seen: Vec<_> = asks
            .iter()
            .map(|ask| (ask.kind, workload.facts(1, &ask.name).size_bytes, ask.repeat))
            .collect();
        assert_eq!(seen[0], (AskKind::Plain, 19_763, false));
        assert_eq!(seen[1], (AskKind::Plain, 19_763, true));
        assert_eq!(seen[2], (AskKind::Ims304, 19_763, true));
        assert!(matches!(seen[3], (AskKind::Post { .. }, 500, false)));
        assert_eq!(seen[4], (AskKind::Connect { allowed: true }, 7_000, false));
        assert_eq!(seen[5], (AskKind::Plain, 700, false));
        assert_eq!(seen[6], (AskKind::Head, 19_763, true));
        assert_eq!(seen[7], (AskKind::Plain, OBJECT_BYTES_MAX, false));
        let cachable: Vec<bool> =
            asks.iter().map(|ask| workload.facts(1, &ask.name).cachable).collect();
        assert_eq!(cachable, [true, true, true, false, false, false, true, true]);
        assert_eq!(asks[0].name, asks[1].name);
        assert_ne!(asks[0].name, asks[3].name);
    }

    #[test]
    fn a_log_starts_again_at_its_end() {
        let workload = Arc::new(replay(LOG).unwrap().into_workload().unwrap());
        let mut stream = Stream::new(workload, 1, 0, 1, 5);
        assert_eq!(stream.passes(), Some(0));
        let first = pass(&mut stream, 8);
        assert_eq!(stream.passes(), Some(0));
        let second = pass(&mut stream, 8);
        assert_eq!(stream.passes(), Some(1));
        assert!(first.iter().zip(&second).all(|(first, second)| first.name == second.name));
        assert!(second.iter().all(|ask| ask.repeat));
    }

    #[test]
    fn worlds_split_the_urls() {
        let log: String = (0..1_000)
            .map(|url| {
                format!("1.{:03} 1 c TCP_MISS/200 10 GET http://{}/ - - -\n", url, url % 300)
            })
            .collect();
        let workload = Arc::new(replay(&log).unwrap().into_workload().unwrap());
        let mut numbers = HashSet::new();
        let mut asked = 0;
        for world in 0..3 {
            let mut stream = Stream::new(Arc::clone(&workload), 1, world, 3, 300);
            let mut own = HashSet::new();
            loop {
                let asks = pass(&mut stream, 1);
                if stream.passes() != Some(0) {
                    break;
                }
                asked += asks.len();
                own.extend(asks.iter().map(|ask| ask.name.number));
            }
            assert!(own.is_disjoint(&numbers));
            numbers.extend(own);
        }
        assert_eq!((asked, numbers.len()), (1_000, 300));
        // More worlds than URLs: every world still has something to ask for.
        let one = Arc::new(replay(&log[..40]).unwrap().into_workload().unwrap());
        for world in 0..4 {
            assert_eq!(pass(&mut Stream::new(Arc::clone(&one), 1, world, 4, 1), 2).len(), 2);
        }
    }

    #[test]
    fn a_log_without_requests_is_an_error() {
        let error = replay("hello\nworld\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "access.log: none of 2 lines can be replayed (line 1: hello); expected is Squid's native access.log format"
        );
        assert!(replay("").unwrap_err().to_string().contains("none of 0 lines"));
    }

    #[test]
    fn hostile_lines_are_only_bad() {
        let long = format!("1.000 1 c TCP_MISS/200 10 GET http://{}/ - - -\n", "x".repeat(200_000));
        let mut log = long.into_bytes();
        log.extend_from_slice(
            b"\xff\xfe\x00 \x1b[31m\n18446744073709551615.1 1 c A/200 1 GET u\n-1.0 1 c A/200 1 GET u\n",
        );
        log.extend_from_slice(b"1.0 1 c TCP_MISS/999999 1 GET u\n1.0 1 c TCP_MISS/200 -5 GET u\n");
        log.extend_from_slice(b"1.0 1 c TCP_MISS/200 5 GET u\n");
        let replay = Replay::from_squid_log(log.as_slice(), "log").unwrap();
        // The first 64 KiB of the long line are a request; the rest is not.
        assert_eq!(replay.counts().used, 2);
        assert_eq!(replay.counts().bad, 8);
        assert!(replay.counts().first_bad.as_ref().unwrap().len() < 200);
    }
}
