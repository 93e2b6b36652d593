//! The part of an address that a client cannot choose itself.

use std::net::{IpAddr, Ipv6Addr};

/// The length of the prefix of an IPv6 network that counts as one client.
pub const V6_PREFIX_BITS: u32 = 64;

/// An IPv4 address, or the network of one of IPv6: a client can have all addresses of its network.
/// An IPv4 address within one of IPv6 is what it stands for.
pub fn client_network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & u128::MAX << V6_PREFIX_BITS).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_is_its_network() {
        let network = |text: &str| client_network(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("10.1.2.3"), "10.1.2.3");
        assert_eq!(network("::ffff:10.1.2.3"), "10.1.2.3");
    }
}
