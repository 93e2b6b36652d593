//! What a log is written to: a file, a helper program, syslog, or a receiver in the network.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use humboldt_sys::{log_file, signal_mask};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process};

use crate::Destination;
use crate::access::time_format::TimeFormat;
use crate::patience::Patience;

/// Permissions of a new log: its lines are private.
const FILE_MODE: u32 = 0o640;

/// Most bytes of one line for a helper program; the rest is cut off. Squid's own reads lines of
/// this length, and would take the rest of a longer one for a command.
const PROGRAM_LINE_BYTES_MAX: usize = 60 << 10;

/// Most bytes of a line for syslog; the rest is cut off.
const SYSLOG_LINE_BYTES_MAX: usize = 8 << 10;

/// Most bytes of a line in a datagram; the rest is cut off.
const DATAGRAM_LINE_BYTES_MAX: usize = 60 << 10;

/// Lines share a datagram up to this length (`buffered_logs on`), as in Squid.
const DATAGRAM_BYTES: usize = 1400;

/// Bytes of lines that are written at once, and again if the receiver is lost meanwhile.
const PIECE_BYTES: usize = 64 << 10;

/// Longest time to connect to a receiver.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Longest wait for the end of a helper program that has no more lines to come.
const PROGRAM_END_MAX: Duration = Duration::from_secs(3);

/// Longest wait after SIGTERM; then it is killed.
const PROGRAM_TERM_MAX: Duration = Duration::from_secs(1);

/// What a receiver of lines says is read and forgotten, in so many pieces at a time.
const ANSWERS_MAX: usize = 16;

/// Time between two looks whether it has ended.
const PROGRAM_END_STEP: Duration = Duration::from_millis(10);

/// The name of this program in syslog.
const IDENT: &str = "humboldt";

/// What receivers are told.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Told {
    /// Old files that a helper program keeps.
    pub(crate) rotate: u32,
    /// Whether lines are collected.
    pub(crate) is_buffered: bool,
}

/// An open destination.
pub(crate) enum Target {
    /// A file or a standard stream.
    File(File),
    /// A helper program with Squid's protocol.
    Program(Program),
    /// The system's log.
    Syslog(Syslog),
    /// Datagrams.
    Udp(Udp),
    /// A connection.
    Tcp(TcpStream),
}

/// How many bytes of the lines were written before an error.
type Written = Result<(), (usize, io::Error)>;

impl Target {
    /// Opens a destination; `None` for nowhere. May wait, except for files.
    pub(crate) fn open(destination: &Destination, told: Told) -> io::Result<Option<Self>> {
        Ok(Some(match destination {
            Destination::None => return Ok(None),
            Destination::File(path) => Self::File(log_file::open_to_append(path, FILE_MODE)?),
            Destination::Stdout => {
                Self::File(File::from(io::stdout().as_fd().try_clone_to_owned()?))
            }
            Destination::Stderr => {
                Self::File(File::from(io::stderr().as_fd().try_clone_to_owned()?))
            }
            Destination::Program { program, place } => {
                Self::Program(Program::start(program, place, told)?)
            }
            Destination::Syslog { socket, priority } => {
                Self::Syslog(Syslog::open(socket, *priority)?)
            }
            Destination::Udp(place) => Self::Udp(Udp::open(place, told.is_buffered)?),
            Destination::Tcp(place) => Self::Tcp(connect(place)?),
        }))
    }

    /// Writes whole lines. A file may be left within a line.
    pub(crate) fn write(&mut self, lines: &[u8], patience: Patience<'_>) -> Written {
        match self {
            Self::File(file) => write_counted(file, lines),
            Self::Program(program) => program.write(lines, patience),
            Self::Syslog(syslog) => syslog.write(lines, patience),
            Self::Udp(udp) => udp.write(lines),
            Self::Tcp(stream) => in_pieces(lines, |piece| match is_closed(stream) {
                true => Err(io::ErrorKind::ConnectionAborted.into()),
                false => patience.write_all(stream, piece),
            }),
        }
    }

    /// Whether the receiver has closed its connection: lines would be lost.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Tcp(stream) if is_closed(stream))
    }

    /// A helper program has so long to end by itself.
    pub(crate) fn end_by(&mut self, until: Instant) {
        if let Self::Program(program) = self {
            program.end_by = Some(until);
        }
    }

    /// Asks a helper program to begin a new file. `false`: there is none.
    pub(crate) fn rotate(&mut self, patience: Patience<'_>) -> io::Result<bool> {
        match self {
            Self::Program(program) => program.send(b"R\n", patience).map(|()| true),
            _ => Ok(false),
        }
    }
}

/// Writes everything, or returns the number of bytes of `lines` written before the error.
pub(crate) fn write_counted(file: &mut impl Write, lines: &[u8]) -> Written {
    let mut written = 0;
    while written < lines.len() {
        match file.write(&lines[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

/// Writes the lines in pieces of whole lines, about [`PIECE_BYTES`] long.
fn in_pieces(lines: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<()>) -> Written {
    let mut written = 0;
    while let Some(rest) = lines.get(written..).filter(|rest| !rest.is_empty()) {
        let piece = first_lines(rest, PIECE_BYTES);
        write(piece).map_err(|error| (written, error))?;
        written += piece.len();
    }
    Ok(())
}

/// The whole lines in the first `most` bytes, or else the first line.
fn first_lines(lines: &[u8], most: usize) -> &[u8] {
    let near = lines.get(..most).unwrap_or(lines);
    let end = match near.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => end + 1,
        None => lines.iter().position(|&byte| byte == b'\n').map_or(lines.len(), |end| end + 1),
    };
    lines.get(..end).unwrap_or(lines)
}

/// Calls `write` with each line, without its end and cut to `most` bytes.
fn each_line(lines: &[u8], most: usize, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> Written {
    let mut written = 0;
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        write(text.get(..most).unwrap_or(text)).map_err(|error| (written, error))?;
        written += line.len();
    }
    Ok(())
}

/// A process that writes the lines it gets (`logfile_daemon`).
pub(crate) struct Program {
    child: Child,
    /// `None` once there is nothing more to say.
    stdin: Option<ChildStdin>,
    /// It does not read any more.
    is_stuck: bool,
    /// It must have ended then, at the latest.
    end_by: Option<Instant>,
}

impl Program {
    fn start(program: &Path, place: &str, told: Told) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(place).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        // Ctrl-C at a terminal is not for it: the last lines are still to come.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = signal_mask::with_none_blocked(|| command.spawn())?;
        let stdin = child.stdin.take();
        let mut started = Self { child, stdin, is_stuck: false, end_by: None };
        let stdin = started.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // It may stop reading, which must not stop this thread for ever.
        ioctl_fionbio(&*stdin, true)?;
        let buffered = u8::from(told.is_buffered);
        // A new pipe has room for that.
        stdin.write_all(format!("r{}\nb{buffered}\n", told.rotate).as_bytes())?;
        Ok(started)
    }

    fn send(&mut self, bytes: &[u8], patience: Patience<'_>) -> io::Result<()> {
        let stdin = self.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let sent = patience.write_all(stdin, bytes);
        self.is_stuck = sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        sent
    }

    fn write(&mut self, lines: &[u8], patience: Patience<'_>) -> Written {
        let mut out = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 64);
        in_pieces(lines, |piece| {
            out.clear();
            each_line(piece, PROGRAM_LINE_BYTES_MAX, |line| {
                out.push(b'L');
                out.extend_from_slice(line);
                out.push(b'\n');
                Ok(())
            })
            .map_err(|(_, error)| error)?;
            out.extend_from_slice(b"F\n");
            self.send(&out, patience)
        })
    }

    /// Whether it has ended by then.
    fn ends(&mut self, until: Instant) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(PROGRAM_END_STEP);
        }
        true
    }
}

impl Drop for Program {
    /// The end of its input ends it; it has some time to write what it has read.
    fn drop(&mut self) {
        self.stdin = None;
        let now = Instant::now();
        let until = if self.is_stuck { now } else { now + PROGRAM_END_MAX };
        if self.ends(self.end_by.map_or(until, |end| end.min(until))) {
            return;
        }
        // It has not been waited for, so the number is still its own.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.map(|pid| kill_process(pid, Signal::TERM));
        if !self.ends(Instant::now() + PROGRAM_TERM_MAX) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The system's log, as `syslog(3)` writes to it.
pub(crate) struct Syslog {
    socket: UnixDatagram,
    priority: u8,
    time: TimeFormat,
}

impl Syslog {
    fn open(path: &Path, priority: u8) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        let time = TimeFormat::compile("%b %e %H:%M:%S").map_err(io::Error::other)?;
        Ok(Self { socket, priority, time })
    }

    fn write(&mut self, lines: &[u8], patience: Patience<'_>) -> Written {
        let now_s = humboldt_base::clock::UnixMillis::now().secs();
        let mut head = format!("<{}>", self.priority).into_bytes();
        self.time.write(&mut head, now_s, humboldt_sys::local_time::utc_offset_s(now_s));
        head.extend_from_slice(format!(" {IDENT}[{}]: ", std::process::id()).as_bytes());
        each_line(lines, SYSLOG_LINE_BYTES_MAX, |line| {
            let message = [&head, line].concat();
            patience.wait_for(&self.socket, || self.socket.send(&message)).map(drop)
        })
    }
}

/// A receiver of datagrams.
pub(crate) struct Udp {
    socket: UdpSocket,
    /// Lines share datagrams.
    is_buffered: bool,
}

impl Udp {
    fn open(place: &str, is_buffered: bool) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in place.to_socket_addrs()? {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            match socket.connect(address) {
                Ok(()) => return Ok(Self { socket, is_buffered }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn write(&mut self, lines: &[u8]) -> Written {
        if !self.is_buffered {
            return each_line(lines, DATAGRAM_LINE_BYTES_MAX, |line| {
                self.send(&[line, b"\n"].concat())
            });
        }
        let mut written = 0;
        while let Some(rest) = lines.get(written..).filter(|rest| !rest.is_empty()) {
            let datagram = first_lines(rest, DATAGRAM_BYTES);
            let cut = datagram.get(..DATAGRAM_LINE_BYTES_MAX).unwrap_or(datagram);
            self.send(cut).map_err(|error| (written, error))?;
            written += datagram.len();
        }
        Ok(())
    }

    /// Sends a datagram. That an earlier one has found nobody is no reason not to.
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.socket.send(datagram).map(drop)
            }
            sent => sent.map(drop),
        }
    }
}

/// Connects to a receiver of lines.
fn connect(place: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether the other side has closed the connection, or it is broken. What it has said is read and
/// forgotten, as it would hide the end.
fn is_closed(mut stream: &TcpStream) -> bool {
    let mut said = [0; 4096];
    for _ in 0..ANSWERS_MAX {
        match stream.read(&mut said) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                use io::ErrorKind::{Interrupted, WouldBlock};
                return !matches!(error.kind(), WouldBlock | Interrupted);
            }
        }
    }
    false
}

/// Most bytes of a line for this destination; the rest of a longer one is cut off.
pub(crate) fn line_bytes_max(destination: &Destination) -> usize {
    match destination {
        Destination::Program { .. } => PROGRAM_LINE_BYTES_MAX,
        Destination::Syslog { .. } => SYSLOG_LINE_BYTES_MAX,
        Destination::Udp(_) => DATAGRAM_LINE_BYTES_MAX,
        _ => usize::MAX,
    }
}

/// The path of a file that a destination names.
pub(crate) fn path_of(destination: &Destination) -> Option<&PathBuf> {
    match destination {
        Destination::File(path) => Some(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines() {
        assert_eq!(first_lines(b"ab\ncd\nef", 5), b"ab\n");
        assert_eq!(first_lines(b"ab\ncd\nef", 6), b"ab\ncd\n");
        assert_eq!(first_lines(b"abcdef\ng\n", 3), b"abcdef\n");
        assert_eq!(first_lines(b"abc", 2), b"abc");
        let mut pieces = Vec::new();
        let lines = [vec![b'x'; PIECE_BYTES], b"\nsecond\n".to_vec()].concat();
        in_pieces(&lines, |piece| {
            pieces.push(piece.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(pieces, [PIECE_BYTES + 1, 7]);
        let failed = in_pieces(b"a\n", |_| Err(io::ErrorKind::BrokenPipe.into()));
        assert_eq!(failed.unwrap_err().0, 0);
    }

    #[test]
    fn long_lines_are_cut() {
        let mut found = Vec::new();
        each_line(b"abcdef\ngh\n", 3, |line| {
            found.push(line.to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [b"abc".to_vec(), b"gh".to_vec()]);
    }
}
