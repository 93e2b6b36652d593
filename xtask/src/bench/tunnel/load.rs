//! Both ends of the measured tunnels: processes of their own on the load's core, with a thread for
//! each connection. They look at no byte, so that the proxy is the slower side: the laboratory's
//! own tunnels (`humboldt-lab tunnel`) compare every one.

use super::super::Plan;
use crate::Outcome;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one write of the far end.
const PIECE_BYTES: usize = 256 << 10;

/// A tunnel that stands still for so long is broken.
const STANDSTILL: Duration = Duration::from_secs(30);

/// Time for the buffers of tunnels that nobody reads to become full.
const SETTLE: Duration = Duration::from_secs(2);

/// The head of an answer to CONNECT is far shorter.
const HEAD_BYTES_MAX: usize = 4096;

/// How a tunnel is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// With CONNECT.
    Proxy,
    /// By connecting.
    Relay,
}

/// Tunnels to open, one after the other on each of some threads.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Tunnels {
    pub(super) way: Way,
    pub(super) far: SocketAddr,
    pub(super) threads: u64,
    /// All of them together.
    pub(super) tunnels: u64,
    /// Bytes that the far end sends through each.
    pub(super) bytes: u64,
    /// Each byte is waited for before the next one is asked for.
    pub(super) one_by_one: bool,
}

/// The result.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Carried {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address of the proxy
    to: SocketAddr,
    /// The tunnels, as JSON
    tunnels: String,
}

/// `cargo xtask tunnel-load`.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let tunnels: Tunnels = serde_json::from_str(&arguments.tunnels)?;
    println!("{}", serde_json::to_string(&tunnels.carry(arguments.to)?)?);
    Ok(())
}

/// `cargo xtask tunnel-far`: sends to each connection as many bytes as it asks for, and closes.
/// With 0 it sends back what comes.
pub(crate) fn run_far(listen: SocketAddr) -> Outcome {
    let listener = TcpListener::bind(listen)?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A tunnel that ends early has been counted as an error by the other end.
        std::thread::spawn(move || _ = serve(stream));
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut number = [0; 8];
    stream.read_exact(&mut number)?;
    let mut left = u64::from_be_bytes(number);
    if left == 0 {
        let mut chunk = [0; 4096];
        loop {
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                len => stream.write_all(&chunk[..len])?,
            }
        }
    }
    let piece = vec![b'x'; PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))];
    while left > 0 {
        let len = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&piece[..len])?;
        left -= len as u64;
    }
    stream.shutdown(Shutdown::Write)
}

/// Opens a tunnel, without asking for bytes.
pub(super) fn open(way: Way, to: SocketAddr, far: SocketAddr) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STANDSTILL))?;
    if way == Way::Relay {
        return Ok(stream);
    }
    stream.write_all(format!("CONNECT {far} HTTP/1.1\r\nHost: {far}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    let mut chunk = [0; HEAD_BYTES_MAX];
    while !head.ends_with(b"\r\n\r\n") {
        let len = stream.read(&mut chunk)?;
        head.extend_from_slice(&chunk[..len]);
        if len == 0 || head.len() > HEAD_BYTES_MAX {
            return Err("no answer to CONNECT".into());
        }
    }
    match head.get(9..12) {
        Some(b"200") => Ok(stream),
        _ => Err(format!("CONNECT: {}", String::from_utf8_lossy(&head)).into()),
    }
}

/// Waits for the echo of a byte: the tunnel is there, to its far end.
pub(super) fn echo(stream: &mut TcpStream) -> Outcome {
    stream.write_all(&0_u64.to_be_bytes())?;
    stream.write_all(b"x")?;
    let mut byte = [0];
    Ok(stream.read_exact(&mut byte)?)
}

/// Tunnels whose far ends send and send, while nobody reads. Each has brought a byte.
pub(super) fn stalled(
    way: Way,
    to: SocketAddr,
    far: SocketAddr,
    count: usize,
) -> Outcome<Vec<TcpStream>> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = open(way, to, far)?;
        stream.write_all(&u64::MAX.to_be_bytes())?;
        held.push(stream);
    }
    for stream in &mut held {
        stream.read_exact(&mut [0])?;
    }
    // Until the buffers of the system are full; nobody tells when they are.
    std::thread::sleep(SETTLE);
    Ok(held)
}

impl Tunnels {
    /// Carries on the load's core.
    pub(super) fn ask(&self, plan: &Plan, to: SocketAddr) -> Outcome<Carried> {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(plan.load_core.to_string()).arg(&plan.xtask).arg("tunnel-load");
        command.arg(to.to_string()).arg(serde_json::to_string(self)?);
        let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(serde_json::from_str(&text).map_err(|error| format!("the load: {error}: {text}"))?)
    }

    fn carry(&self, to: SocketAddr) -> Outcome<Carried> {
        let (begin, bytes) = (Instant::now(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let share = self.tunnels / self.threads
                        + u64::from(thread < self.tunnels % self.threads);
                    let bytes = &bytes;
                    scope.spawn(move || {
                        for _ in 0..share {
                            let carried = self.one(to).map_err(|error| error.to_string())?;
                            bytes.fetch_add(carried, Ordering::Relaxed);
                        }
                        Ok::<(), String>(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| "a thread of the load panicked".to_owned())?
            })
        })?;
        let (bytes, seconds) = (bytes.into_inner(), begin.elapsed().as_secs_f64());
        match bytes == self.tunnels * self.bytes {
            true => Ok(Carried { bytes, seconds }),
            false => Err(format!("{bytes} bytes of {}", self.tunnels * self.bytes).into()),
        }
    }

    /// One tunnel, to its end.
    fn one(&self, to: SocketAddr) -> Outcome<u64> {
        let mut stream = open(self.way, to, self.far)?;
        if self.one_by_one {
            return self.talk(stream);
        }
        stream.write_all(&self.bytes.to_be_bytes())?;
        let mut carried = 0;
        // The kernel drops the bytes instead of copying them (tcp(7)).
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match recv(&stream, &mut buffer[..], RecvFlags::TRUNC)?.1 {
                0 => return Ok(carried),
                len => carried += len as u64,
            }
        }
    }

    /// Sends byte after byte, each after the echo of the one before.
    fn talk(&self, mut stream: TcpStream) -> Outcome<u64> {
        stream.write_all(&0_u64.to_be_bytes())?;
        let mut byte = [b'x'];
        for _ in 0..self.bytes {
            stream.write_all(&byte)?;
            stream.read_exact(&mut byte)?;
        }
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(bytes: u64, one_by_one: bool) -> Carried {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(stream.unwrap()));
            }
        });
        let relay = free_relay(far);
        let tunnels = Tunnels { way: Way::Relay, far, threads: 3, tunnels: 7, bytes, one_by_one };
        tunnels.carry(relay).unwrap()
    }

    /// A relay in this process.
    fn free_relay(far: SocketAddr) -> SocketAddr {
        let listen = crate::processes::free_address().unwrap();
        std::thread::spawn(move || super::super::relay::run(listen, far, 64 << 10).unwrap());
        while TcpStream::connect(listen).is_err() {
            std::thread::yield_now();
        }
        listen
    }

    #[test]
    fn the_bare_relay_carries_every_byte_and_every_end() {
        assert_eq!(carried(3_000_001, false).bytes, 7 * 3_000_001);
        assert_eq!(carried(100, true).bytes, 700);
    }
}
