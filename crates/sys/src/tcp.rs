//! Operations on a TCP connection beyond reading and writing.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use socket2::SockRef;

/// Events from the other side of a connection that we have not read yet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Nothing: connected, and nothing to read.
    Quiet,
    /// There are bytes to read.
    Sent,
    /// It closed its sending half (there may be nothing else wrong: it can still read), or the
    /// connection is broken.
    Closed,
}

/// Looks at a stream socket without reading from it or waiting. One system call.
pub fn peer_state(socket: impl AsFd) -> PeerState {
    let mut byte = [0_u8];
    match recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => PeerState::Closed,
        Ok(_) => PeerState::Sent,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => PeerState::Quiet,
        Err(_) => PeerState::Closed,
    }
}

/// Ends our sending side: the peer reads the end of the stream, and may still send.
pub fn shutdown_write(socket: impl AsFd) -> io::Result<()> {
    rustix::net::shutdown(socket, rustix::net::Shutdown::Write).map_err(io::Error::from)
}

/// Makes the next close of the socket send RST instead of FIN and discard unsent bytes. The reader
/// of a body that ends at the close must not take a part for the whole (RFC 9112 section 8).
pub fn reset_on_close(socket: impl AsFd) -> io::Result<()> {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))
}

/// Bytes written that the peer has not acknowledged: its system has no room for them, or they are
/// on their way. One system call.
#[allow(unsafe_code)]
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for the length of the call, which writes one `int`.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(usize::try_from(bytes).unwrap_or(0))
    }
}

/// Lets the kernel find out whether the other side is still there: after `idle` without traffic it
/// asks every `interval`, and gives up after `probes` unanswered ones
/// (`http_port … tcpkeepalive=`).
pub fn set_keepalive(
    socket: impl AsFd,
    idle: Duration,
    interval: Duration,
    probes: u32,
) -> io::Result<()> {
    let keepalive =
        socket2::TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        (client, listener.accept().expect("accepted").0)
    }

    /// Waits (in the kernel) until there is something to read, so that the test does not race.
    fn wait_readable(stream: &TcpStream) {
        let mut byte = [0_u8];
        let _ = stream.peek(&mut byte);
    }

    #[test]
    fn tells_quiet_from_sent_from_closed() {
        let (ours, mut theirs) = pair();
        assert_eq!(peer_state(&ours), PeerState::Quiet);
        theirs.write_all(b"x").expect("written");
        wait_readable(&ours);
        assert_eq!(peer_state(&ours), PeerState::Sent);
        assert_eq!((&ours).read(&mut [0_u8; 8]).expect("read"), 1);
        theirs.shutdown(std::net::Shutdown::Write).expect("shut down");
        wait_readable(&ours);
        assert_eq!(peer_state(&ours), PeerState::Closed);
    }

    #[test]
    fn a_reset_is_seen_as_an_error_not_as_an_end() {
        let (mut ours, theirs) = pair();
        reset_on_close(&theirs).expect("set");
        drop(theirs);
        let error = ours.read(&mut [0_u8; 8]).expect_err("reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(peer_state(&ours), PeerState::Closed);
    }

    #[test]
    fn what_the_peer_has_no_room_for_is_unacknowledged_until_it_reads() {
        let (mut ours, theirs) = pair();
        assert_eq!(unacknowledged_bytes(&theirs).expect("known"), 0);
        theirs.set_nonblocking(true).expect("set");
        let mut written = 0;
        while let Ok(bytes) = (&theirs).write(&[0; 65536]) {
            written += bytes;
        }
        let waiting = unacknowledged_bytes(&theirs).expect("known");
        assert!(waiting > 0 && waiting <= written);
        let mut all = vec![0; written];
        ours.read_exact(&mut all).expect("all of it");
        while unacknowledged_bytes(&theirs).expect("known") > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn keepalive_is_set() {
        let (ours, _theirs) = pair();
        set_keepalive(&ours, Duration::from_secs(60), Duration::from_secs(10), 3).expect("set");
        let socket = SockRef::from(&ours);
        assert!(socket.keepalive().expect("read"));
        assert_eq!(socket.tcp_keepalive_time().expect("read"), Duration::from_secs(60));
    }
}
