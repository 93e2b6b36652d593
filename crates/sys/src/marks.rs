//! Marks of packets: the type of service for routers, and the mark for this machine's own packet
//! filter.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, SockRef};

/// Sets the type of service (DSCP) of the packets that a TCP socket sends. A socket of another
/// family has none.
pub fn set_tos(socket: impl AsFd, tos: u8) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    match socket.domain()? {
        Domain::IPV4 => socket.set_tos_v4(tos.into()),
        Domain::IPV6 => {
            socket.set_tclass_v6(tos.into())?;
            // Counts for IPv4 on a socket for both.
            socket.set_tos_v4(tos.into())
        }
        _ => Ok(()),
    }
}

/// Sets the netfilter mark of the packets that a socket sends (`SO_MARK`).
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN.
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    SockRef::from(&socket).set_mark(mark)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_socket_of_each_family_takes_a_type_of_service() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            set_tos(&listener, 0x20).expect("set");
            let socket = SockRef::from(&listener);
            let tos = match address.starts_with('[') {
                true => socket.tclass_v6(),
                false => socket.tos_v4(),
            };
            assert_eq!(tos.expect("read"), 0x20);
        }
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        set_tos(&one, 0x20).expect("nothing to do");
    }

    #[test]
    fn a_mark_needs_a_capability() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        match set_mark(&listener, 7) {
            Ok(()) => assert_eq!(SockRef::from(&listener).mark().expect("read"), 7),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
