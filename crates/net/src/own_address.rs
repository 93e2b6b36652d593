//! Addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Any port would do.
const DISCARD_PORT: u16 = 9;

/// Whether `ip` is an address of this machine, one that a socket may have. Asks the system, without
/// sending anything.
///
/// An address that needs a scope (`fe80::`) is taken for another machine's, as nothing can be
/// connected to it without.
pub fn is_own_address(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok() && is_reached_from_itself(ip)
}

/// Whether packets to `ip` would leave from there. A system that lets programs use foreign
/// addresses (`ip_nonlocal_bind`) lets a socket have any.
fn is_reached_from_itself(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Connecting such a socket sends nothing: it asks for the route.
        socket.connect((ip, DISCARD_PORT))?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::is_own_address;

    #[test]
    fn loopback_is_own_and_an_example_is_not() {
        for own in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(is_own_address(own.parse().expect("an address")), "{own}");
        }
        for other in ["192.0.2.1", "198.51.100.7", "2001:db8::1"] {
            assert!(!is_own_address(other.parse().expect("an address")), "{other}");
        }
    }
}
