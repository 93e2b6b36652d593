//! Bytes from one socket to another through a pipe, without a copy (splice(2)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

/// A pipe that bytes pass through on their way between two sockets. It knows how many it holds.
///
/// The kernel moves references to the pages in which the bytes have arrived. So an empty pipe has a
/// table of places and no pages.
#[derive(Debug)]
pub struct SplicePipe {
    reader: OwnedFd,
    writer: OwnedFd,
    capacity_bytes: usize,
    held_bytes: usize,
}

impl SplicePipe {
    /// A pipe with places for this many bytes, in pages.
    ///
    /// # Errors
    /// There are no descriptors, or the pipes of this user have as many pages as they may
    /// (`fs.pipe-user-pages-soft`): the system would give a pipe of two pages then, which moves
    /// bytes more slowly than copies do.
    pub fn new(capacity_bytes: usize) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let mut size = fcntl_getpipe_size(&writer)?;
        if size != capacity_bytes {
            size = fcntl_setpipe_size(&writer, capacity_bytes)?;
        }
        Ok(Self { reader, writer, capacity_bytes: size, held_bytes: 0 })
    }

    /// Bytes that have come in and not gone out.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Takes what `socket` has received. 0 bytes may be its end; only a read knows. The socket must
    /// be one that does not wait, and the pipe empty: with bytes in it, a pipe without room looks
    /// like a socket without bytes.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there. Errors that [`is_unable`] knows say that this socket cannot
    /// do it.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<usize> {
        debug_assert_eq!(self.held_bytes, 0);
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let taken =
            rustix::pipe::splice(socket, None, &self.writer, None, self.capacity_bytes, flags)?;
        self.held_bytes += taken;
        Ok(taken)
    }

    /// Gives `socket` as many bytes as it takes.
    ///
    /// # Errors
    /// `WouldBlock`: it takes none now. See also [`SplicePipe::fill`].
    pub fn drain(&mut self, socket: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let given = rustix::pipe::splice(&self.reader, None, socket, None, self.held_bytes, flags)?;
        self.held_bytes -= given.min(self.held_bytes);
        Ok(given)
    }

    /// Copies out all that is left.
    pub fn take_rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = vec![0; self.held_bytes];
        let mut filled = 0;
        while let Some(room) = rest.get_mut(filled..).filter(|room| !room.is_empty()) {
            match rustix::io::read(&self.reader, room)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        self.held_bytes = 0;
        Ok(rest)
    }
}

/// Whether an error says that these sockets, or this system, cannot splice. Sandboxes and security
/// modules may forbid the call, also for single sockets.
pub fn is_unable(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let unable = [Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP];
    unable.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// Whether an error says that the system has no such call, so that no sockets can splice.
pub fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error())
}

/// Reads once from a socket, without waiting.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (read, _) = recv(socket, buffer, RecvFlags::DONTWAIT)?;
    Ok(read)
}

/// Looks at the received bytes of a socket without taking them or waiting.
pub fn peek(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (read, _) = recv(socket, buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    const CAPACITY_BYTES: usize = 64 * 1024;

    fn over_tcp() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let one =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let other = listener.accept().expect("accepted").0;
        // A pipe that does not wait is not enough: the socket would.
        other.set_nonblocking(true).expect("set");
        (one, other)
    }

    /// Waits in the kernel until there is something to read.
    fn wait_readable(socket: &impl AsFd) {
        let mut fds = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).expect("an event");
    }

    #[test]
    fn bytes_pass_from_any_socket_to_any() {
        let (mut tcp_source, tcp_in) = over_tcp();
        let (mut unix_source, unix_in) = UnixStream::pair().expect("a pair");
        let (mut tcp_sink, tcp_out) = over_tcp();
        let (unix_out, mut unix_sink) = UnixStream::pair().expect("a pair");
        let mut pipe = SplicePipe::new(CAPACITY_BYTES).expect("a pipe");
        let mut buffer = [0; 16];
        tcp_source.write_all(b"to unix").expect("written");
        wait_readable(&tcp_in);
        assert_eq!(pipe.fill(&tcp_in).expect("filled"), 7);
        assert_eq!(pipe.drain(&unix_out).expect("drained"), 7);
        assert_eq!(unix_sink.read(&mut buffer).expect("read"), 7);
        assert_eq!(&buffer[..7], b"to unix");
        unix_source.write_all(b"to tcp").expect("written");
        assert_eq!(pipe.fill(&unix_in).expect("filled"), 6);
        assert_eq!((pipe.drain(&tcp_out).expect("drained"), pipe.held_bytes()), (6, 0));
        tcp_sink.read_exact(&mut buffer[..6]).expect("read");
        assert_eq!(&buffer[..6], b"to tcp");
    }

    #[test]
    fn an_end_is_no_lack_of_bytes_and_a_full_sink_keeps_the_rest() {
        let (mut source, from) = over_tcp();
        let (to, mut sink) = UnixStream::pair().expect("a pair");
        to.set_nonblocking(true).expect("set");
        let mut pipe = SplicePipe::new(CAPACITY_BYTES).expect("a pipe");
        let nothing = pipe.fill(&from).expect_err("nothing is there");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let sender = std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at / 251) as u8).collect();
            source.write_all(&bytes).map(|()| bytes)
        });
        // As much as the sink takes unread; the rest stays in the pipe.
        let mut given = 0;
        loop {
            wait_readable(&from);
            pipe.fill(&from).expect("filled");
            while let Ok(some) = pipe.drain(&to) {
                given += some;
                if pipe.held_bytes() == 0 {
                    break;
                }
            }
            if pipe.held_bytes() > 0 {
                break;
            }
        }
        let rest = pipe.take_rest().expect("copied");
        assert!(!rest.is_empty() && pipe.held_bytes() == 0);
        let mut all = vec![0; given];
        sink.read_exact(&mut all).expect("read");
        all.extend_from_slice(&rest);
        from.set_nonblocking(false).expect("set");
        let mut behind = vec![0; (4 << 20) - all.len()];
        (&from).read_exact(&mut behind).expect("read");
        all.extend_from_slice(&behind);
        assert!(all == sender.join().expect("no panic").expect("written"));
        wait_readable(&from);
        assert_eq!(pipe.fill(&from).expect("the end"), 0);
    }

    #[test]
    fn what_cannot_be_spliced_says_so() {
        let (_source, from) = over_tcp();
        let mut pipe = SplicePipe::new(CAPACITY_BYTES).expect("a pipe");
        assert!(!is_unable(&pipe.fill(&from).expect_err("nothing is there")));
        let folder = std::fs::File::open("/").expect("a folder");
        assert!(is_unable(&pipe.fill(&folder).expect_err("no bytes")));
    }
}
