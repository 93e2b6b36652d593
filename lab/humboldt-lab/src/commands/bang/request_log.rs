//! One line for each request. The columns are in `humboldt-lab bang --help`.

use crate::Failure;
use humboldt_lab_record::FaultKind;
use humboldt_lab_robots::BangRecord;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A log that is being written.
pub(super) struct RequestLog {
    path: PathBuf,
    out: BufWriter<File>,
}

impl RequestLog {
    /// Begins the file.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let begun = File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            writeln!(out, "# begin_s service_ms status bytes cache pass url")?;
            out.flush()?;
            Ok(out)
        });
        let out = begun.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), out })
    }

    /// Adds a request at its end; `start_unix_us` is the begin of its pass.
    pub(super) fn add(
        &mut self,
        record: &BangRecord<'_>,
        pass: u32,
        start_unix_us: u64,
    ) -> Result<(), Failure> {
        write_line(&mut self.out, record, pass, start_unix_us).map_err(|error| self.failed(&error))
    }

    /// Writes the lines that are not on disk yet.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::run(format!("{}: {error}; the log ends there", self.path.display()))
    }
}

fn write_line(
    out: &mut impl Write,
    record: &BangRecord<'_>,
    pass: u32,
    start_unix_us: u64,
) -> io::Result<()> {
    let begin_us = start_unix_us + record.begin_us;
    let (begin_s, begin_rest_us) = (begin_us / 1_000_000, begin_us % 1_000_000);
    let status = status(record);
    let cache = match record.hit {
        Some(true) => "hit",
        Some(false) => "miss",
        None => "-",
    };
    let service_ms = record.service_us as f64 / 1e3;
    let (body_bytes, url) = (record.body_bytes, record.url);
    writeln!(
        out,
        "{begin_s}.{begin_rest_us:06} {service_ms:.3} {status} {body_bytes} {cache} {pass} {url}"
    )
}

fn status(record: &BangRecord<'_>) -> String {
    let status = || record.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
    record.fault.map_or_else(status, |fault| name(fault.kind))
}

/// The name that a kind of fault has in files.
fn name(kind: FaultKind) -> String {
    let value = serde_json::to_value(kind).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::Fault;

    #[test]
    fn lines_are_as_the_help_says() {
        let fault = Fault {
            kind: FaultKind::TimedOut,
            offset: None,
            expected: String::new(),
            got: String::new(),
        };
        let right = BangRecord {
            url: "http://a/b",
            begin_us: 1_000_042,
            service_us: 2_500,
            status: Some(200),
            body_bytes: 11,
            hit: Some(true),
            verified: true,
            fault: None,
        };
        let wrong = BangRecord {
            status: None,
            body_bytes: 0,
            hit: None,
            fault: Some(&fault),
            ..right.clone()
        };
        let mut out = Vec::new();
        write_line(&mut out, &right, 1, 7_000_000).unwrap();
        write_line(&mut out, &wrong, 2, 7_000_000).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "8.000042 2.500 200 11 hit 1 http://a/b\n8.000042 2.500 timed_out 0 - 2 http://a/b\n"
        );
    }

    #[test]
    fn a_full_disk_is_a_failure_with_the_files_name() {
        let mut log = RequestLog::create(Path::new("/dev/null")).unwrap();
        log.out = BufWriter::new(File::options().write(true).open("/dev/full").unwrap());
        log.out.write_all(b"x").unwrap();
        let failure = log.flush().unwrap_err();
        assert!(failure.code() == 1 && failure.to_string().starts_with("/dev/null: "), "{failure}");
        let elsewhere = RequestLog::create(Path::new("/nowhere/at/all")).err().unwrap();
        assert_eq!(elsewhere.code(), 2);
    }
}
