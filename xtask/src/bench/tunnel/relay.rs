//! The floor of a tunnel: one thread, epoll, and splice(2) through a pipe for each direction, on a
//! connection to the far end for each client. It looks at nothing and has no limits of time: a
//! proxy cannot do with less.

use crate::Outcome;
use crate::bench::relay::accepted;
use humboldt_lab_wire::Poller;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// Its token; connections have small ones.
const LISTENER: u64 = Poller::WAKE - 1;

/// One direction of a connection.
struct Way {
    reader: OwnedFd,
    writer: OwnedFd,
    held_bytes: usize,
    has_ended: bool,
    is_closed: bool,
}

struct Pair {
    sockets: [TcpStream; 2],
    ways: [Way; 2],
}

/// Relays until it is killed. A token names the pair, and in its lowest bit one of its sockets.
pub(crate) fn run(listen: SocketAddr, far: SocketAddr, pipe_bytes: usize) -> Outcome {
    let listener = TcpListener::bind(listen)?;
    let mut poller = Poller::new()?;
    poller.add_listener(&listener, LISTENER)?;
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut free = Vec::new();
    let mut events = Vec::new();
    loop {
        poller.wait_into(&mut events, None)?;
        for event in &events {
            if event.token == LISTENER {
                let Some(pair) = accept(&listener, far, pipe_bytes)? else { continue };
                let slot = free.pop().unwrap_or_else(|| {
                    pairs.push(None);
                    pairs.len() - 1
                });
                for (side, socket) in pair.sockets.iter().enumerate() {
                    poller.add_stream(socket, (slot * 2 + side) as u64)?;
                }
                pairs[slot] = Some(pair);
                continue;
            }
            let slot = (event.token >> 1) as usize;
            let Some(pair) = pairs.get_mut(slot).and_then(Option::as_mut) else { continue };
            // Either way may go on: bytes have come, or there is room.
            let moved = pair.go_on(0).and_then(|()| pair.go_on(1));
            if moved.is_err() || pair.ways.iter().all(|way| way.is_closed) {
                pairs[slot] = None; // closes both
                free.push(slot);
            }
        }
    }
}

fn accept(listener: &TcpListener, far: SocketAddr, pipe_bytes: usize) -> Outcome<Option<Pair>> {
    let Some(client) = accepted(listener)? else { return Ok(None) };
    let sockets = [client, TcpStream::connect(far)?];
    for socket in &sockets {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
    }
    Ok(Some(Pair { sockets, ways: [Way::new(pipe_bytes)?, Way::new(pipe_bytes)?] }))
}

impl Way {
    fn new(pipe_bytes: usize) -> Outcome<Self> {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&writer, pipe_bytes)?;
        Ok(Self { reader, writer, held_bytes: 0, has_ended: false, is_closed: false })
    }
}

impl Pair {
    /// Moves what one socket has sent to the other, until one of them has had enough. An error
    /// means: close.
    fn go_on(&mut self, from: usize) -> Result<(), Errno> {
        let (way, source, sink) =
            (&mut self.ways[from], &self.sockets[from], &self.sockets[1 - from]);
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        loop {
            while way.held_bytes > 0 {
                match splice(&way.reader, None, sink, None, way.held_bytes, flags) {
                    Ok(len) => way.held_bytes -= len,
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if way.has_ended {
                if !std::mem::replace(&mut way.is_closed, true) {
                    // If the other side has gone, nothing is left to tell it.
                    _ = sink.shutdown(Shutdown::Write);
                }
                return Ok(());
            }
            match splice(source, None, &way.writer, None, usize::MAX >> 33, flags) {
                Ok(0) => way.has_ended = true,
                Ok(len) => way.held_bytes += len,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
