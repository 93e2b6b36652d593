//! Addresses of this machine.

use std::net::{IpAddr, UdpSocket};

/// Whether `ip` is an address of this machine, one that a socket may have. Asks the system, without
/// sending anything.
///
/// An address that needs a scope (`fe80::`) is taken for another machine's, as nothing can be
/// connected to it without.
pub fn is_own_address(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
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
