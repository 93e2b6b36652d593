//! The floor of a miss: one thread, epoll, and for each message one read and one write, on a
//! connection to the origin for each client. It looks at nothing and keeps nothing: a proxy that
//! reads and writes cannot do with less.

use crate::Outcome;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// The size of proxies' read buffers.
const BUFFER_BYTES: usize = 64 << 10;

const EVENTS_PER_WAIT: usize = 256;

const LISTENER: u64 = u64::MAX;

/// A client and its connection to the origin. An event names the pair, and in its lowest bit one of
/// the two.
struct Pair([TcpStream; 2]);

/// Serves until it is killed.
pub(crate) fn run(listen: SocketAddr, origin: SocketAddr) -> Outcome {
    let listener = TcpListener::bind(listen)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => {
                    let pair = accept(&epoll, &listener, origin, pairs.len())?;
                    pairs.extend(pair.map(Some));
                }
                data => {
                    let Some(place) = pairs.get_mut((data >> 1) as usize) else { continue };
                    let Some(pair) = place else { continue };
                    if pair.pass((data & 1) as usize, &mut buffer).is_err() {
                        *place = None; // closes both
                    }
                }
            }
        }
    }
}

/// The benchmarks open tens of connections, so their numbers are not used again. `None`: the client
/// has gone already.
fn accept(
    epoll: &OwnedFd,
    listener: &TcpListener,
    origin: SocketAddr,
    number: usize,
) -> Outcome<Option<Pair>> {
    let client = match listener.accept() {
        Ok((client, _)) => client,
        Err(error)
            if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let pair = Pair([client, TcpStream::connect(origin)?]);
    for (side, stream) in pair.0.iter().enumerate() {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        epoll::add(epoll, stream, EventData::new_u64((number * 2 + side) as u64), EventFlags::IN)?;
    }
    Ok(Some(pair))
}

impl Pair {
    /// Reads once from one side and gives all of it to the other. An error means: close.
    fn pass(&mut self, from: usize, buffer: &mut [u8]) -> std::io::Result<()> {
        let [client, server] = &mut self.0;
        let (reader, writer) = if from == 0 { (client, server) } else { (server, client) };
        let mut rest = match reader.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => &buffer[..len],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
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
}
