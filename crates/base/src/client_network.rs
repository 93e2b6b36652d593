//! The part of an address that a client cannot choose itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of the prefix of an IPv6 network that counts as one client.
pub const V6_PREFIX_BITS: u32 = 64;

/// An IPv4 address, or the network of one of IPv6: a client can have all addresses of its network.
/// An IPv4 address within one of IPv6 is what it stands for.
pub fn client_network(ip: IpAddr) -> IpAddr {
    network(ip, Ipv4Addr::BITS, V6_PREFIX_BITS)
}

/// The network of an address, with prefixes of these lengths.
pub fn network(ip: IpAddr, v4_bits: u32, v6_bits: u32) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let rest = u32::MAX.checked_shr(v4_bits).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & !rest).into()
        }
        IpAddr::V6(ip) => {
            let rest = u128::MAX.checked_shr(v6_bits).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & !rest).into()
        }
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

    #[test]
    fn prefixes_may_have_any_length() {
        for (ip, v4_bits, v6_bits, wanted) in [
            ("10.1.2.3", 24, 64, "10.1.2.0"),
            ("10.1.2.3", 32, 64, "10.1.2.3"),
            ("10.1.2.3", 0, 64, "0.0.0.0"),
            ("::ffff:10.1.2.3", 9, 64, "10.0.0.0"),
            ("2001:db8:1:2:3:4:5:6", 24, 48, "2001:db8:1::"),
            ("2001:db8:1:2:3:4:5:6", 24, 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 24, 0, "::"),
        ] {
            let network = network(ip.parse().unwrap(), v4_bits, v6_bits);
            assert_eq!(network.to_string(), wanted, "{ip}");
        }
    }
}
