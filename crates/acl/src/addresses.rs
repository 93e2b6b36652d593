//! Sets of IP addresses. IPv4 addresses have their place in the mapped range `::ffff:0:0/96`, so
//! that a range may hold both. They are kept apart, in a quarter of the memory.

use std::net::{IpAddr, ToSocketAddrs};

use crate::error::AclProblem;
use crate::ranges::RangeSet;

/// First and last IPv4-mapped address.
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// Old ways to write "everybody" that Squid takes for `all`, which includes IPv6.
const ANY: [&str; 6] =
    ["all", "0/0", "0.0.0.0/0", "0.0.0.0/0.0.0.0", "0.0.0.0-255.255.255.255", "0.0.0.0-0.0.0.0/0"];

/// The values of a `src`, `dst` or `localip` ACL.
#[derive(Clone, Debug)]
pub(crate) struct AddressSet {
    v4: RangeSet<u32>,
    /// Without the mapped range.
    v6: RangeSet<u128>,
    /// `none` is among the values: a host without addresses matches.
    pub(crate) none: bool,
    /// `all` is among them: it matches clients without an address too.
    pub(crate) all: bool,
}

impl AddressSet {
    /// Compiles `all`, `ipv4`, `ipv6`, `none`, addresses, ranges `a-b`, either with `/prefix` or
    /// `/mask`, and names of hosts, which are looked up here and now, as Squid does: this blocks.
    pub(crate) fn compile(values: &[String]) -> Result<Self, AclProblem> {
        let mut ranges = Vec::with_capacity(values.len());
        let (mut none, mut all) = (false, false);
        for value in values {
            match value.as_str() {
                any if ANY.contains(&any) => {
                    all = true;
                    ranges.push((0, u128::MAX));
                }
                "ipv4" => ranges.push(MAPPED),
                // Not IPv4 in its mapped form: `::/0` must not allow more than `ipv6`.
                "ipv6" | "::/0" => ranges.extend([(0, MAPPED.0 - 1), (MAPPED.1 + 1, u128::MAX)]),
                "none" => none = true,
                name if is_host_name(name) => resolve(name, &mut ranges)?,
                text => ranges.push(parse(text).ok_or_else(|| AclProblem::Value {
                    value: value.clone(),
                    expected: "an address, a range of addresses or a network",
                })?),
            }
        }
        let v4 = ranges.iter().filter_map(|range| v4_part(*range)).collect();
        let v6 = ranges.iter().flat_map(|range| v6_parts(*range)).collect();
        Ok(Self { v4: RangeSet::new(v4), v6: RangeSet::new(v6), none, all })
    }

    /// Whether the set contains `address`.
    #[inline]
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        match v4_of(number) {
            Some(v4) => self.v4.contains(v4),
            None => self.v6.contains(number),
        }
    }
}

/// The IPv4 address at a place among all addresses, if there is one.
#[inline]
fn v4_of(number: u128) -> Option<u32> {
    u32::try_from(number.checked_sub(MAPPED.0)?).ok()
}

/// The IPv4 addresses of a range.
fn v4_part((first, last): (u128, u128)) -> Option<(u32, u32)> {
    Some((v4_of(first.max(MAPPED.0))?, v4_of(last.min(MAPPED.1))?))
}

/// What a range has below and above the IPv4 addresses.
fn v6_parts((first, last): (u128, u128)) -> impl Iterator<Item = (u128, u128)> {
    let below = (first, last.min(MAPPED.0 - 1));
    let above = (first.max(MAPPED.1 + 1), last);
    [below, above].into_iter().filter(|(first, last)| first <= last)
}

/// The place of an address among all addresses.
#[inline]
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) | MAPPED.0,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// A name rather than a mistyped address: it has a letter and neither colon nor slash.
fn is_host_name(text: &str) -> bool {
    let sound = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    sound && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn resolve(host: &str, ranges: &mut Vec<(u128, u128)>) -> Result<(), AclProblem> {
    let found = (host, 0).to_socket_addrs().map_err(|error| AclProblem::Unresolved {
        host: host.to_string(),
        reason: error.to_string(),
    })?;
    ranges.extend(found.map(|address| number(address.ip())).map(|address| (address, address)));
    Ok(())
}

fn parse(text: &str) -> Option<(u128, u128)> {
    let (addresses, mask) = match text.split_once('/') {
        Some((addresses, mask)) => (addresses, Some(mask)),
        None => (text, None),
    };
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let (first, last) = (parse_address(first)?, parse_address(last)?);
    if first.is_ipv4() != last.is_ipv4() {
        return None;
    }
    let host_bits = match mask {
        Some(mask) => host_bits(mask, first.is_ipv4())?,
        None => 0,
    };
    let (first, last) = (number(first) & !host_bits, number(last) | host_bits);
    (first <= last).then_some((first, last))
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

/// The bits that a prefix length or a contiguous mask leaves to the host.
fn host_bits(mask: &str, is_ipv4: bool) -> Option<u128> {
    let width = if is_ipv4 { 32 } else { 128 };
    if let Ok(length) = mask.parse::<u32>() {
        let free = u32::checked_sub(width, length)?;
        return Some(u128::MAX.checked_shr(128 - free).unwrap_or(0));
    }
    let inverted = match (mask.parse().ok()?, is_ipv4) {
        (IpAddr::V4(mask), true) => u128::from(!mask.to_bits()),
        (IpAddr::V6(mask), false) => !mask.to_bits(),
        _ => return None,
    };
    let contiguous = inverted & inverted.wrapping_add(1) == 0;
    contiguous.then_some(inverted)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Places in and around the mapped range, often the same ones.
    fn places() -> impl Strategy<Value = u128> {
        let near =
            |at: u128| (0_u128..4).prop_map(move |step| at.wrapping_add(step).wrapping_sub(2));
        prop_oneof![
            near(0),
            near(MAPPED.0),
            near(MAPPED.0 + 1000),
            near(MAPPED.1),
            near(u128::MAX),
            any::<u128>()
        ]
    }

    proptest! {
        #[test]
        fn the_set_means_what_its_ranges_mean(
            ranges in prop::collection::vec((places(), places()), 0..12),
            asked in prop::collection::vec(places(), 1..40),
        ) {
            let ordered = |(a, b): &(u128, u128)| (*a.min(b), *a.max(b));
            let ranges: Vec<(u128, u128)> = ranges.iter().map(ordered).collect();
            let text = |place: u128| Ipv6Addr::from_bits(place).to_string();
            let value = |(first, last): &(u128, u128)| format!("{}-{}", text(*first), text(*last));
            let set = AddressSet::compile(&ranges.iter().map(value).collect::<Vec<_>>()).unwrap();
            for place in asked {
                let expected = ranges.iter().any(|(first, last)| (first..=last).contains(&&place));
                let v6 = IpAddr::V6(Ipv6Addr::from_bits(place));
                prop_assert_eq!(set.contains(v6), expected, "{:?} {}", ranges, v6);
                if let Some(v4) = v4_of(place) {
                    let v4 = IpAddr::V4(Ipv4Addr::from_bits(v4));
                    prop_assert_eq!(set.contains(v4), expected, "{:?} {}", ranges, v4);
                }
            }
        }
    }

    fn has(values: &[&str], address: &str) -> bool {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        AddressSet::compile(&values).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn membership() {
        let rows: [(&[&str], &[&str], &[&str]); 14] = [
            (&["all"], &["1.2.3.4", "::1", "ff::"], &[]),
            (&["0/0"], &["1.2.3.4", "::1"], &[]),
            (&["0.0.0.0/0.0.0.0"], &["1.2.3.4", "2001:db8::1"], &[]),
            (&["::/0"], &["::1", "2001:db8::1"], &["1.2.3.4"]),
            (&["ipv4"], &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"], &["::1", "ff::"]),
            (
                &["ipv6"],
                &["::", "::1", "ffff::"],
                &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"],
            ),
            (&["10.1.2.3"], &["10.1.2.3", "::ffff:10.1.2.3"], &["10.1.2.4"]),
            (
                &["10.0.0.0/8"],
                &["10.0.0.0", "10.255.255.255"],
                &["9.255.255.255", "11.0.0.0", "::a00:1"],
            ),
            (&["10.0.0.0/255.0.0.0"], &["10.9.9.9"], &["11.0.0.0"]),
            (&["10.1.2.3/8"], &["10.9.9.9"], &["11.0.0.0"]),
            (&["10.0.0.5-10.0.0.9"], &["10.0.0.5", "10.0.0.9"], &["10.0.0.4", "10.0.0.10"]),
            (
                &["10.1.0.0-10.2.0.0/16"],
                &["10.1.0.0", "10.2.255.255"],
                &["10.3.0.0", "10.0.255.255"],
            ),
            (&["fe80::/10", "::1"], &["fe80::1", "febf::1", "::1"], &["fec0::1", "::2"]),
            (&["[2001:db8::]/32"], &["2001:db8:1::"], &["2001:db9::"]),
        ];
        for (values, inside, outside) in rows {
            assert!(inside.iter().all(|address| has(values, address)), "{values:?}");
            assert!(!outside.iter().any(|address| has(values, address)), "{values:?}");
        }
    }

    #[test]
    fn names_are_resolved_and_none_is_no_address() {
        assert!(has(&["localhost"], "127.0.0.1") || has(&["localhost"], "::1"));
        let unknown = AddressSet::compile(&["host.invalid".to_string()]);
        assert!(matches!(unknown, Err(AclProblem::Unresolved { .. })));
        let none = AddressSet::compile(&["none".to_string()]).unwrap();
        assert!(none.none && !none.contains("0.0.0.0".parse().unwrap()));
    }

    #[test]
    fn refused() {
        for bad in [
            "",
            "host.example/8",
            "host name",
            "10/8",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/255.0.255.0",
            "10.0.0.9-10.0.0.1",
            "10.0.0.1-::2",
            "10.0.0.0/ffff::",
            "1.2.3",
            "1.2.3.4/",
            "1.2.3.4-",
        ] {
            assert!(AddressSet::compile(&[bad.to_string()]).is_err(), "{bad}");
        }
    }
}
