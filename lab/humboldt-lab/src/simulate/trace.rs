//! Requests from files, in sequence.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::args::Format;
use super::{csv, oracle, squid};

/// Longest line that is understood, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Most characters of a bad line in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// Read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// One request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) bytes: u32,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("{name}: cannot read it: {source}")]
    Read { name: String, source: io::Error },
    #[error("{name}: {unit} {number}: {reason} (--skip-bad passes over lines like this)")]
    BadLine { name: String, unit: &'static str, number: u64, reason: String },
    #[error("{name}: record {number}: {reason}; expected are records of 24 bytes (oracleGeneral)")]
    BadRecord { name: String, number: u64, reason: String },
}

/// The meaning of a line or record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Request(Request),
    /// In order, and not to be counted.
    LeftOut,
}

/// Counts of read lines and records.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Lines in order that are no request to be counted.
    pub(super) left_out: u64,
    /// Lines that were not understood.
    pub(super) bad: u64,
}

/// A number for a name. Two names that share one are as good as never met.
pub(super) fn id_of(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// A size that the simulator can use: 4 GiB and more is as good as never stored.
pub(super) fn clamped(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).max(1)
}

/// Several traces as one.
pub(super) struct Traces {
    /// Those not yet begun, the next one last.
    paths: Vec<PathBuf>,
    format: Format,
    skip_bad: bool,
    open: Option<Open>,
    pub(super) counts: Counts,
}

/// The trace that is being read.
struct Open {
    name: String,
    input: Box<dyn BufRead>,
    format: Format,
    /// Lines or records so far.
    number: u64,
    line: Vec<u8>,
}

impl Traces {
    pub(super) fn new(paths: &[PathBuf], format: Format, skip_bad: bool) -> Self {
        let paths = paths.iter().rev().cloned().collect();
        Self { paths, format, skip_bad, open: None, counts: Counts::default() }
    }

    /// The next request; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            if self.open.is_none() {
                let Some(path) = self.paths.pop() else { return Ok(None) };
                self.open = Some(Open::new(&path, self.format)?);
            }
            let Some(open) = &mut self.open else { continue };
            match open.next() {
                Ok(Some(Parsed::Request(request))) => return Ok(Some(request)),
                Ok(Some(Parsed::LeftOut)) => self.counts.left_out += 1,
                Ok(None) => self.open = None,
                Err(TraceError::BadLine { .. }) if self.skip_bad => self.counts.bad += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Open {
    fn new(path: &Path, format: Format) -> Result<Self, TraceError> {
        if path.as_os_str() == "-" {
            let input = Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin()));
            return Self::from_input("standard input".to_owned(), input, format);
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::from_input(
                name,
                Box::new(BufReader::with_capacity(BUFFER_BYTES, file)),
                format,
            ),
            Err(source) => Err(TraceError::Read { name, source }),
        }
    }

    fn from_input(
        name: String,
        mut input: Box<dyn BufRead>,
        format: Format,
    ) -> Result<Self, TraceError> {
        let format = match format {
            Format::Auto => match input.fill_buf() {
                Ok(start) => guess(start),
                Err(source) => return Err(TraceError::Read { name, source }),
            },
            said => said,
        };
        Ok(Self { name, input, format, number: 0, line: Vec::new() })
    }

    fn next(&mut self) -> Result<Option<Parsed>, TraceError> {
        if self.format == Format::Oracle {
            return self.next_record();
        }
        if !self.next_line()? {
            return Ok(None);
        }
        self.number += 1;
        let line = self.line.trim_ascii_end();
        let parsed = match self.format {
            _ if line.is_empty() => Ok(Parsed::LeftOut),
            Format::Csv => csv::parse(line, self.number == 1),
            _ => squid::parse(line),
        };
        parsed.map(Some).map_err(|expected| self.bad_line(expected))
    }

    fn next_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let got = self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        match got {
            Ok(0) => Ok(false),
            Ok(bytes) if bytes as u64 == LINE_BYTES_MAX && !self.line.ends_with(b"\n") => {
                let passed = self.input.skip_until(b'\n');
                self.number += 1;
                passed.map_err(|source| TraceError::Read { name: self.name.clone(), source })?;
                self.line.truncate(SHOWN_CHARS_MAX);
                Err(self.bad_line("a line of at most 64 KB"))
            }
            Ok(_) => Ok(true),
            Err(source) => Err(TraceError::Read { name: self.name.clone(), source }),
        }
    }

    fn bad_line(&self, expected: &str) -> TraceError {
        let text = String::from_utf8_lossy(self.line.trim_ascii_end());
        let text: String = text
            .chars()
            .take(SHOWN_CHARS_MAX)
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        let reason = format!("expected {expected}, got `{text}`");
        TraceError::BadLine { name: self.name.clone(), unit: "line", number: self.number, reason }
    }

    fn next_record(&mut self) -> Result<Option<Parsed>, TraceError> {
        let mut record = [0; oracle::RECORD_BYTES];
        let mut filled = 0;
        while let Some(rest) = record.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    let reason = format!("the file ends after {filled} bytes of it");
                    return Err(self.bad_record(reason));
                }
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::Read { name: self.name.clone(), source }),
            }
        }
        self.number += 1;
        match oracle::parse(&record) {
            Ok(request) => Ok(Some(Parsed::Request(request))),
            Err(reason) => {
                self.number -= 1;
                Err(self.bad_record(reason.to_owned()))
            }
        }
    }

    fn bad_record(&self, reason: String) -> TraceError {
        TraceError::BadRecord { name: self.name.clone(), number: self.number + 1, reason }
    }
}

/// The format, guessed from the beginning: text has no control characters; a line of CSV has commas
/// and no spaces before them.
fn guess(start: &[u8]) -> Format {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.iter().any(|byte| *byte < b' ' && !byte.is_ascii_whitespace()) {
        return Format::Oracle;
    }
    let comma = line.iter().position(|byte| *byte == b',');
    let words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count();
    if comma.is_some() && words < 7 { Format::Csv } else { Format::Squid }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        bytes: &[u8],
        format: Format,
        skip_bad: bool,
    ) -> (Vec<Request>, Counts, Option<String>) {
        let input = Box::new(io::Cursor::new(bytes.to_vec()));
        let open = Open::from_input("t".to_owned(), input, format).expect("bytes can be read");
        let mut traces = Traces { open: Some(open), ..Traces::new(&[], format, skip_bad) };
        let mut requests = Vec::new();
        loop {
            match traces.next() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => return (requests, traces.counts, None),
                Err(error) => return (requests, traces.counts, Some(error.to_string())),
            }
        }
    }

    const LOG: &str = "\
1157689312.049   5006 10.0.0.1 TCP_MISS/200 19763 GET http://a.example/ u DIRECT/1.2.3.4 text/html
1157689313.000      1 10.0.0.1 TCP_HIT/200 19999 GET http://a.example/ u NONE/- text/html
1157689314.000      1 10.0.0.1 TCP_DENIED/403 1000 GET http://b.example/ - NONE/- text/html
1157689314.100      1 10.0.0.1 TCP_MISS/200 500 POST http://a.example/ - DIRECT/1.2.3.4 text/html
1157689314.200      9 10.0.0.1 TCP_MISS/404 70 GET http://c.example/ - DIRECT/1.2.3.4 -
";

    #[test]
    fn a_squid_log() {
        let (requests, counts, error) = read(LOG.as_bytes(), Format::Auto, false);
        assert_eq!(error, None);
        assert_eq!(
            requests.iter().map(|request| request.bytes).collect::<Vec<_>>(),
            [19763, 19999, 70]
        );
        assert!(requests[0].id == requests[1].id && requests[0].id != requests[2].id);
        assert_eq!(counts, Counts { left_out: 2, bad: 0 });
    }

    #[test]
    fn a_damaged_squid_log() {
        let damaged =
            LOG.replace("1157689313.000      1 10.0.0.1 TCP_HIT/200", "half a line\n1 TCP_HIT/2\0");
        let (requests, _, error) = read(damaged.as_bytes(), Format::Squid, false);
        let error = error.expect("an error");
        assert!(
            requests.len() == 1 && error.contains("t: line 2") && error.contains("half a line"),
            "{error}"
        );
        let (requests, counts, error) = read(damaged.as_bytes(), Format::Squid, true);
        assert_eq!((requests.len(), counts.bad, error), (2, 2, None));
    }

    #[test]
    fn csv_with_and_without_names() {
        for text in ["time,key,size\n1,a,10\n2,b,20,x\n3,a,10\n", "1.5,a,10\r\n2,b,20\n3e9,a,10"] {
            let (requests, _, error) = read(text.as_bytes(), Format::Auto, false);
            assert_eq!(error, None);
            assert_eq!(
                requests.iter().map(|request| request.bytes).collect::<Vec<_>>(),
                [10, 20, 10]
            );
            assert_eq!(requests[0], requests[2]);
        }
    }

    #[test]
    fn damaged_csv() {
        for bad in ["x,a,1", "1,a", "1,,1", "1,a,-1", "1,a,1e99x", "time,key,size"] {
            let (requests, _, error) =
                read(format!("1,a,1\n{bad}\n").as_bytes(), Format::Csv, false);
            let error = error.expect(bad);
            assert!(requests.len() == 1 && error.contains("line 2"), "{error}");
        }
    }

    fn record(time: u32, id: u64, bytes: u32, next: i64) -> Vec<u8> {
        let mut record = time.to_le_bytes().to_vec();
        record.extend(id.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(next.to_le_bytes());
        record
    }

    #[test]
    fn an_oracle_trace_and_damaged_ones() {
        let good =
            [record(5, 77, 4096, 2), record(6, 78, 1, -1), record(7, 77, 4096, i64::MAX)].concat();
        let (requests, _, error) = read(&good, Format::Auto, false);
        assert_eq!(error, None);
        assert_eq!(requests[0], Request { id: 77, bytes: 4096 });
        assert_eq!(requests.len(), 3);
        let (requests, _, error) = read(&good[..60], Format::Auto, true);
        let error = error.expect("cut short");
        assert!(
            requests.len() == 2 && error.contains("record 3") && error.contains("12 bytes"),
            "{error}"
        );
        let (_, _, error) = read(&[good, record(8, 1, 1, -2)].concat(), Format::Oracle, false);
        assert!(error.expect("damaged").contains("record 4"));
    }

    #[test]
    fn a_line_without_end_is_bad_and_passed_over() {
        let long = format!("1,a,1\n{}\n2,b,1\n", "x".repeat(300_000));
        let (requests, counts, error) = read(long.as_bytes(), Format::Csv, true);
        assert_eq!((requests.len(), counts.bad, error), (2, 1, None));
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let mut traces = Traces::new(&["/nowhere/x".into()], Format::Auto, false);
        assert!(traces.next().is_err_and(|error| error.to_string().contains("/nowhere/x")));
    }
}
