//! Addresses that are not of the public network (the registries of RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Kinds of networks in which an organisation has its machines.
const PRIVATE: &str = "private";
const SHARED: &str = "shared by a provider's customers";

/// The kinds of IPv4 networks: network, length of its prefix, and its kind in words.
const V4: [(Ipv4Addr, u32, &str); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, PRIVATE),
    // That of Alibaba's machines.
    (Ipv4Addr::new(100, 100, 100, 200), 32, "metadata"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, SHARED),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // The address at which Azure's machines find their platform.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "metadata"),
    // Also that of the metadata of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, PRIVATE),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "for protocols"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "for relays"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, PRIVATE),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// The same of IPv6. All outside of `2000::/3` that is not here is reserved.
const V6: [(Ipv6Addr, u32, &str); 10] = [
    (Ipv6Addr::UNSPECIFIED, 128, "this network"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "of a local translation to IPv4"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "of a tunnel to IPv4"),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, "for benchmarks"),
    // That of Amazon's machines.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, "metadata"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, PRIVATE),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, PRIVATE),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// The kind of an address that is not of the public network, in words; `None` for a public one.
///
/// An IPv6 address that stands for one of IPv4 (mapped, NAT64, 6to4) is what that is. The networks
/// for documentation count as public: nothing is there.
pub fn special_use(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => match embedded(ip) {
            Some(within) => special_v4(within),
            None => special_v6(ip),
        },
    }
}

/// Whether an address is of a network in which an organisation has its machines (RFC 1918, RFC
/// 4193, RFC 6598), and not that of a platform's metadata.
pub fn is_private_network(ip: IpAddr) -> bool {
    matches!(special_use(ip), Some(PRIVATE | SHARED))
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let is_in = |network: Ipv4Addr, length: u32| {
        (ip.to_bits() ^ network.to_bits()).checked_shr(32 - length).is_none_or(|rest| rest == 0)
    };
    V4.iter().find(|(network, length, _)| is_in(*network, *length)).map(|(_, _, kind)| *kind)
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let is_in = |network: Ipv6Addr, length: u32| {
        (ip.to_bits() ^ network.to_bits()).checked_shr(128 - length).is_none_or(|rest| rest == 0)
    };
    let found = V6.iter().find(|(network, length, _)| is_in(*network, *length));
    let is_global = || is_in(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    found.map(|(_, _, kind)| *kind).or_else(|| (!is_global()).then_some("reserved"))
}

/// The IPv4 address that an IPv6 address stands for: `::ffff:a.b.c.d` (RFC 4291),
/// `64:ff9b::a.b.c.d` (RFC 6052) and `2002:a.b.c.d::` (RFC 3056).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let words = ip.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match words {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(v4(high, low))
        }
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_is_known_in_each_of_its_forms() {
        for (text, kind) in [
            ("0.0.0.0", "this network"),
            ("0.1.2.3", "this network"),
            ("10.0.0.1", "private"),
            ("100.64.0.1", "shared by a provider's customers"),
            ("100.127.255.255", "shared by a provider's customers"),
            ("100.100.100.200", "metadata"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.0", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "for protocols"),
            ("192.168.1.1", "private"),
            ("198.19.0.1", "for benchmarks"),
            ("224.0.0.1", "multicast"),
            ("239.1.1.1", "multicast"),
            ("250.1.1.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "this network"),
            ("::1", "loopback"),
            ("::7f00:1", "reserved"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.1.2.3", "private"),
            ("::ffff:0:127.0.0.1", "reserved"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b:1::1", "of a local translation to IPv4"),
            ("2002:7f00:1::", "loopback"),
            ("2002:c0a8:101::1", "private"),
            ("2001::1", "of a tunnel to IPv4"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "metadata"),
            ("fd00:ec2::253", "private"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "private"),
            ("ff02::1", "multicast"),
            ("5f00::1", "reserved"),
            ("100::1", "reserved"),
        ] {
            assert_eq!(special_use(text.parse().expect(text)), Some(kind), "{text}");
        }
    }

    #[test]
    fn machines_of_an_organisation_are_in_private_networks() {
        let is_private = |text: &str| is_private_network(text.parse().expect(text));
        for text in ["10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd01::1"] {
            assert!(is_private(text), "{text}");
        }
        for text in ["127.0.0.1", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "::1"] {
            assert!(!is_private(text) && !is_private("9.9.9.9"), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.17",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.2.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2001:db8::1",
        ] {
            assert_eq!(special_use(text.parse().expect(text)), None, "{text}");
        }
    }
}
