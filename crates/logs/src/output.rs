//! The writing side of a log: what it is written to, its rotation, and the handling of errors.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::patience::Patience;
use crate::target::{Target, path_of};
use crate::{Destination, LineSink, SinkOptions};

/// A failing log is reported at most once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Time between two tries to reach a receiver that is away, as in Squid.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// How long lines of a log that is no longer in the configuration wait for a receiver that is away.
const ABANDONED_MAX: Duration = Duration::from_secs(10);

/// A write buffer larger than this, in bytes, is given back when it was mostly unused.
const SPARE_BYTES_KEPT: usize = 64 * 1024;

/// Most old files that rotation keeps, even if `logfile_rotate` is higher.
pub(crate) const KEEP_MAX: u32 = 1000;

pub(crate) struct Output {
    sink: Arc<LineSink>,
    destination: Destination,
    options: SinkOptions,
    target: Option<Target>,
    spare: Vec<u8>,
    /// Lines that a receiver has not taken, which is away now.
    left: Vec<u8>,
    /// The last try to reach it.
    tried: Option<Instant>,
    /// Since when nobody but this has the log.
    abandoned: Option<Instant>,
    /// The last write ended within a line: the next begins with a newline.
    torn: bool,
    reported: Option<Instant>,
}

impl Output {
    pub(crate) fn new(
        sink: Arc<LineSink>,
        destination: Destination,
        options: SinkOptions,
        target: Option<Target>,
    ) -> Self {
        Self {
            sink,
            destination,
            options,
            target,
            spare: Vec::new(),
            left: Vec::new(),
            tried: None,
            abandoned: None,
            torn: false,
            reported: None,
        }
    }

    pub(crate) fn has_lines(&self) -> bool {
        !self.left.is_empty() || self.sink.has_lines()
    }

    /// Whether all lines are written, or cannot be, and no other owner is left that could append
    /// one. Lines for a receiver that is away wait some time before they cannot be.
    pub(crate) fn is_done(&mut self) -> bool {
        if !self.sink.is_abandoned() {
            return false;
        }
        let since = *self.abandoned.get_or_insert_with(Instant::now);
        !self.has_lines()
            || since.elapsed() >= ABANDONED_MAX
            || self.target.is_none() && !self.destination.is_receiver()
    }

    /// Writes everything that waits. Returns whether there was anything.
    pub(crate) fn write_out(&mut self) -> bool {
        if self.destination.is_receiver() && !self.reach() {
            return self.has_lines();
        }
        let left = std::mem::take(&mut self.left);
        if !left.is_empty() {
            self.write_lines(&left);
        }
        let mut spare = std::mem::take(&mut self.spare);
        let mut any = !left.is_empty();
        let mut most = 0;
        for index in 0..self.sink.buffers() {
            self.sink.exchange(index, &mut spare);
            if !spare.is_empty() {
                any = true;
                most = most.max(spare.len());
                self.write_lines(&spare);
                spare.clear();
            }
        }
        if spare.capacity() > SPARE_BYTES_KEPT && most < spare.capacity() / 4 {
            spare = Vec::new();
        }
        self.spare = spare;
        any
    }

    /// Whether the receiver is there. One that is away is looked for again after a while.
    fn reach(&mut self) -> bool {
        if !self.has_lines() {
            return true;
        }
        if self.target.as_ref().is_some_and(Target::is_closed) {
            self.target = None;
        }
        if self.target.is_some() {
            return true;
        }
        if self.sink.stop_until().is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        if self.tried.is_some_and(|at| at.elapsed() < RETRY_EVERY) {
            return false;
        }
        self.tried = Some(Instant::now());
        match Target::open(&self.destination, self.options.told()) {
            Ok(target) => self.target = target,
            Err(error) => self.report("reach", &error),
        }
        self.target.is_some()
    }

    fn write_lines(&mut self, lines: &[u8]) {
        if self.destination.is_receiver() {
            return self.send_lines(lines);
        }
        if self.target.is_none() {
            self.reopen();
        }
        let Some(target) = &mut self.target else {
            self.sink.count_dropped(count_lines(lines));
            return;
        };
        let patience = Patience { is_over: &|since| self.sink.is_stalled(since) };
        let begun = match self.torn {
            true => target.write(b"\n", patience).map_err(|(_, error)| (0, error)),
            false => Ok(()),
        };
        if let Err((written, error)) = begun.and_then(|()| target.write(lines, patience)) {
            self.torn = self.torn && written == 0 || written > 0 && lines[written - 1] != b'\n';
            self.sink.count_dropped(count_lines(&lines[written..]));
            self.report("write to", &error);
        } else {
            self.torn = false;
        }
    }

    /// Sends lines to a receiver. Those that it does not take wait until it is there again.
    fn send_lines(&mut self, lines: &[u8]) {
        let mut rest = lines;
        while let Some(target) = &mut self.target {
            let patience = Patience { is_over: &|since| self.sink.is_stalled(since) };
            let Err((written, error)) = target.write(rest, patience) else { return };
            self.report("write to", &error);
            rest = rest.get(written..).unwrap_or_default();
            if self.destination.takes_or_loses() {
                let end = rest.iter().position(|&byte| byte == b'\n');
                rest = end.and_then(|at| rest.get(at + 1..)).unwrap_or_default();
                self.sink.count_dropped(1);
            } else {
                self.target = None;
                self.tried = Some(Instant::now());
            }
        }
        self.keep(rest);
    }

    /// Keeps lines for a receiver that is away, as many as the buffer of a core holds.
    fn keep(&mut self, lines: &[u8]) {
        if self.left.len() >= self.sink.buffer_bytes() {
            self.sink.count_dropped(count_lines(lines));
        } else {
            self.left.extend_from_slice(lines);
        }
    }

    /// Opens the file again, so that a renamed or removed file is created. Standard streams stay.
    pub(crate) fn reopen(&mut self) {
        if path_of(&self.destination).is_none() {
            return;
        }
        match Target::open(&self.destination, self.options.told()) {
            Ok(target) => {
                self.target = target;
                self.torn = false;
            }
            Err(error) => self.report("open", &error),
        }
    }

    /// The file that rotation renames, if it is a regular file.
    pub(crate) fn rotatable_path(&self) -> Option<&Path> {
        let path = path_of(&self.destination)?;
        fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()).then_some(path)
    }

    /// The number of old files of this log (`rotate=`), or the usual one.
    pub(crate) fn kept(&self, usual: u32) -> u32 {
        self.options.rotate.unwrap_or(usual)
    }

    /// Asks a helper program to begin a new file.
    pub(crate) fn order_rotation(&mut self) {
        let patience = Patience { is_over: &|since| self.sink.is_stalled(since) };
        if let Some(Err(error)) = self.target.as_mut().map(|target| target.rotate(patience)) {
            self.report("rotate", &error);
        }
    }

    /// The end of the service: a last try to write everything.
    pub(crate) fn end(&mut self) {
        self.tried = None;
        self.write_out();
        self.give_up();
        if let (Some(target), Some(until)) = (&mut self.target, self.sink.stop_until()) {
            target.end_by(until);
        }
    }

    /// The lines that could not be written are lost, at the end.
    pub(crate) fn give_up(&mut self) {
        let mut lines = count_lines(&std::mem::take(&mut self.left));
        for index in 0..self.sink.buffers() {
            let mut unsent = Vec::new();
            self.sink.exchange(index, &mut unsent);
            lines += count_lines(&unsent);
        }
        if lines > 0 {
            self.sink.count_dropped(lines);
            let error = io::Error::from(io::ErrorKind::NotConnected);
            self.reported = None;
            self.report("write the last lines of", &error);
        }
    }

    pub(crate) fn report(&mut self, action: &str, error: &io::Error) {
        if self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let (name, lost) = (&self.destination, self.sink.dropped_lines());
        tracing::error!("cannot {action} log {name}: {error}; {lost} lines lost so far");
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// `path` becomes `path.0`, `path.0` becomes `path.1`, and so on; `keep` old files stay
/// (`logfile_rotate`; with 0 nothing is renamed: something else has done so).
pub(crate) fn shift_files(path: &Path, keep: u32) -> io::Result<()> {
    let keep = keep.min(KEEP_MAX);
    let numbered = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    for n in (1..keep).rev() {
        rename_if_there(&numbered(n - 1), &numbered(n))?;
    }
    if keep > 0 { rename_if_there(path, &numbered(0)) } else { Ok(()) }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::target::write_counted;

    #[test]
    fn datagrams_that_all_fail_lose_their_lines_one_by_one() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let sink =
            Arc::new(LineSink::new(SinkOptions::default(), false, usize::MAX, Arc::default()));
        let destination = Destination::Udp("192.0.2.1:9".into());
        let target = Some(Target::File(full));
        let options = SinkOptions::default();
        let mut output = Output::new(Arc::clone(&sink), destination, options, target);
        let lines = 500_000;
        output.send_lines(&b"x\n".repeat(lines));
        assert_eq!(sink.dropped_lines(), lines as u64);
    }

    /// Accepts this many bytes; then the disk is full.
    struct SmallDisk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room).min(3);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.content.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_says_how_much_was_written() {
        let mut disk = SmallDisk { content: Vec::new(), room: 5 };
        let (written, error) = write_counted(&mut disk, b"one\ntwo\n").unwrap_err();
        assert_eq!((written, error.kind()), (5, io::ErrorKind::StorageFull));
        disk.room = 100;
        write_counted(&mut disk, b"\nthree\n").unwrap();
        assert_eq!(disk.content, b"one\nt\nthree\n");
    }

    #[test]
    fn rotation_keeps_as_many_as_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        for round in 0..5 {
            fs::write(&path, round.to_string()).unwrap();
            shift_files(&path, 3).unwrap();
        }
        let read = |n: u32| fs::read_to_string(dir.path().join(format!("access.log.{n}"))).ok();
        assert_eq!(
            (read(0), read(1), read(2)),
            (Some("4".into()), Some("3".into()), Some("2".into()))
        );
        assert_eq!(read(3), None);
        fs::write(&path, "now").unwrap();
        shift_files(&path, 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "now");
    }
}
