//! Listeners: one per address and thread, so that the kernel spreads connections over the threads.

use crate::OriginError;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that wait in the kernel to be accepted. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// How often to try again if another program took the port that the kernel had just chosen for us.
const PORT_TRIES: usize = 16;

/// Binds every address for every thread: (real addresses, listeners of each thread).
pub(crate) fn bind_all(
    planned: &[SocketAddr],
    threads: usize,
) -> Result<(Vec<SocketAddr>, Vec<Vec<TcpListener>>), OriginError> {
    let mut addresses = Vec::with_capacity(planned.len());
    let mut listeners: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    for &address in planned {
        let (real, group) = bind_group(address, threads)
            .map_err(|source| OriginError::Listen { address, source })?;
        addresses.push(real);
        listeners.iter_mut().zip(group).for_each(|(thread, listener)| thread.push(listener));
    }
    Ok((addresses, listeners))
}

fn bind_group(planned: SocketAddr, threads: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let mut tries = if planned.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        let address = free_address(planned)?;
        let group: io::Result<Vec<_>> = (0..threads).map(|_| listen(address)).collect();
        tries -= 1;
        match group {
            Err(error) if tries > 0 && is_in_use(&error) => {}
            group => return Ok((address, group?)),
        }
    }
}

/// Binds without sharing, and gives the port back at once: with `SO_REUSEPORT` alone, a second
/// laboratory on the same port would go unnoticed, and each would get a part of the other's
/// requests.
fn free_address(planned: SocketAddr) -> io::Result<SocketAddr> {
    let socket = socket(planned)?;
    socket.bind(&planned.into())?;
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::from(Errno::AFNOSUPPORT))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    // Accepted connections inherit it, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}
