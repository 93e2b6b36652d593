//! The floor of a miss: one thread, epoll, and for each message one read and one write, on a
//! connection to the origin for each client. It looks at nothing and keeps nothing: a proxy that
//! reads and writes cannot do with less.

use crate::Outcome;
use humboldt_lab_wire::Poller;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The size of proxies' read buffers.
const BUFFER_BYTES: usize = 64 << 10;

/// Its token; connections have small ones.
const LISTENER: u64 = Poller::WAKE - 1;

/// A client and its connection to the origin. An event names the pair, and in its lowest bit one of
/// the two.
struct Pair([TcpStream; 2]);

/// Serves until it is killed.
pub(crate) fn run(listen: SocketAddr, origin: SocketAddr) -> Outcome {
    let listener = TcpListener::bind(listen)?;
    let mut poller = Poller::new()?;
    poller.add_listener(&listener, LISTENER)?;
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut events = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        poller.wait_into(&mut events, None)?;
        for event in &events {
            if event.token == LISTENER {
                let pair = accept(&poller, &listener, origin, pairs.len())?;
                pairs.extend(pair.map(Some));
                continue;
            }
            let Some(place) = pairs.get_mut((event.token >> 1) as usize) else { continue };
            let Some(pair) = place.as_mut().filter(|_| event.readable) else { continue };
            if pair.pass((event.token & 1) as usize, &mut buffer, event.closed).is_err() {
                *place = None; // closes both
            }
        }
    }
}

/// The next client; `None` if it has gone already.
pub(super) fn accepted(listener: &TcpListener) -> Outcome<Option<TcpStream>> {
    match listener.accept() {
        Ok((client, _)) => Ok(Some(client)),
        Err(error)
            if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The benchmarks open tens of connections, so their numbers are not used again. `None`: the client
/// has gone already.
fn accept(
    poller: &Poller,
    listener: &TcpListener,
    origin: SocketAddr,
    number: usize,
) -> Outcome<Option<Pair>> {
    let Some(client) = accepted(listener)? else { return Ok(None) };
    let pair = Pair([client, TcpStream::connect(origin)?]);
    for (side, stream) in pair.0.iter().enumerate() {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        poller.add_stream(stream, (number * 2 + side) as u64)?;
    }
    Ok(Some(pair))
}

impl Pair {
    /// Gives all that one side has sent to the other. An error means: close.
    fn pass(&mut self, from: usize, buffer: &mut [u8], is_closed: bool) -> std::io::Result<()> {
        let [client, server] = &mut self.0;
        let (reader, writer) = if from == 0 { (client, server) } else { (server, client) };
        loop {
            match reader.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    write_all(writer, &buffer[..len])?;
                    if Poller::drained(len, buffer.len()) && !is_closed {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn write_all(writer: &mut TcpStream, mut rest: &[u8]) -> std::io::Result<()> {
    while !rest.is_empty() {
        match writer.write(rest) {
            Ok(len) => rest = &rest[len..],
            // The load generators read at once, so this is rare, and others may wait for it.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(writer, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
