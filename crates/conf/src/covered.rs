//! Values of ACLs that others of the same ACL cover: they change nothing, and often something else
//! was meant.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::types::{AclDef, AclKind};

/// A value that changes nothing, and the value that covers it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Covered<'a> {
    pub(crate) value: &'a str,
    pub(crate) by: &'a str,
}

/// The values of an ACL that other values cover, in the order of the file (of addresses: by
/// address).
pub(crate) fn find(acl: &AclDef) -> Vec<Covered<'_>> {
    match acl.kind {
        AclKind::Src | AclKind::Dst | AclKind::LocalIp => addresses(&acl.values),
        AclKind::DstDomain | AclKind::SrcDomain | AclKind::SslServerName => domains(&acl.values),
        AclKind::Method | AclKind::MyPortName | AclKind::Proto => repeated(&acl.values),
        _ => Vec::new(),
    }
}

fn repeated(values: &[String]) -> Vec<Covered<'_>> {
    let mut seen = HashSet::with_capacity(values.len());
    let again = |value| if seen.insert(value) { None } else { Some(Covered { value, by: value }) };
    values.iter().map(String::as_str).filter_map(again).collect()
}

/// Where a name is first among the values: as itself, and as a domain with everything below it.
#[derive(Default)]
struct Firsts {
    itself: Option<NonZeroU32>,
    subtree: Option<NonZeroU32>,
}

/// `.example.com` is itself and everything below it.
fn domains(values: &[String]) -> Vec<Covered<'_>> {
    let lower: Vec<Cow<'_, str>> = values.iter().map(|value| in_lower_case(value)).collect();
    let mut firsts: hashbrown::HashMap<&str, Firsts> =
        hashbrown::HashMap::with_capacity(values.len());
    // Counted from one. Files are too short for more than 32 bits.
    let number = |index: usize| u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
    for (index, value) in lower.iter().enumerate() {
        match value.strip_prefix('.') {
            Some(name) => {
                let known = firsts.entry(name).or_default();
                known.subtree = known.subtree.or(number(index));
            }
            None => {
                let known = firsts.entry(value).or_default();
                known.itself = known.itself.or(number(index));
            }
        }
    }
    let cover = |index: usize, value: &str| {
        let name = value.strip_prefix('.');
        let known = firsts.get(name.unwrap_or(value));
        let same =
            known.and_then(|known| if name.is_some() { known.subtree } else { known.itself });
        let whole = known.filter(|_| name.is_none()).and_then(|known| known.subtree);
        let domain_above =
            |(dot, _): (usize, &str)| firsts.get(name.unwrap_or(value).get(dot + 1..)?)?.subtree;
        let above = || name.unwrap_or(value).match_indices('.').find_map(domain_above);
        let earlier = same.filter(|first| Some(*first) < number(index));
        earlier.or(whole).or_else(above).map(|first| first.get() as usize - 1)
    };
    let covered =
        |(index, value): (usize, &Cow<'_, str>)| cover(index, value).map(|by| (index, by));
    let pairs: Vec<(usize, usize)> = lower.iter().enumerate().filter_map(covered).collect();
    let text = |index: usize| values.get(index).map_or("", String::as_str);
    pairs.into_iter().map(|(value, by)| Covered { value: text(value), by: text(by) }).collect()
}

fn in_lower_case(value: &str) -> Cow<'_, str> {
    match value.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(value.to_ascii_lowercase()),
        false => Cow::Borrowed(value),
    }
}

fn addresses(values: &[String]) -> Vec<Covered<'_>> {
    let mut ranges: Vec<(Range, &str)> =
        values.iter().filter_map(|value| Some((range(value)?, value.as_str()))).collect();
    // The widest of those that begin together comes first; of equal ones the one above.
    ranges.sort_by_key(|(range, _)| (range.is_v4, range.first, std::cmp::Reverse(range.last)));
    let mut covered = Vec::new();
    let mut widest: Option<(Range, &str)> = None;
    for (range, value) in ranges {
        match widest {
            Some((over, by)) if over.is_v4 == range.is_v4 && over.last >= range.last => {
                covered.push(Covered { value, by });
            }
            _ => widest = Some((range, value)),
        }
    }
    if let Some(all) = values.iter().find(|value| *value == "all") {
        let others = values.iter().filter(|value| *value != "all" && *value != "none");
        covered = others.map(|value| Covered { value, by: all }).collect();
    }
    covered
}

#[derive(Copy, Clone)]
struct Range {
    is_v4: bool,
    first: u128,
    last: u128,
}

/// The addresses of a value; `None` for names, and for values that mean a family.
fn range(text: &str) -> Option<Range> {
    let (span, mask) = match text.rsplit_once('/') {
        Some((span, mask)) => (span, Some(mask)),
        None => (text, None),
    };
    let (first, last) = span.split_once('-').unwrap_or((span, span));
    let (first, last) = (address(first)?, address(last)?);
    let bits = if first.is_ipv4() { 32 } else { 128 };
    let all = u128::MAX >> (128 - bits);
    let net = match mask {
        None => all,
        Some(mask) => match (mask.parse::<u32>(), address(mask)) {
            (Ok(len), _) => all.checked_shl(bits - len.min(bits)).unwrap_or(0) & all,
            (_, Some(mask)) => number(mask),
            _ => return None,
        },
    };
    Some(Range {
        is_v4: first.is_ipv4(),
        first: number(first) & net,
        last: number(last) & net | !net & all,
    })
}

fn address(text: &str) -> Option<IpAddr> {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).parse().ok()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Severity, parse_str};

    /// The warnings about `acl a` with this type and these values.
    fn said(rest: &str) -> Vec<String> {
        let text = format!("http_port 1\nhttp_access allow localhost\nacl a {rest}\n");
        let (_, found) = parse_str("t", &text);
        assert!(!found.has_errors(), "{}", found.render(false));
        let warnings = found.iter().filter(|finding| finding.severity == Severity::Warning);
        warnings.map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn what_another_value_covers_is_said() {
        for (rest, part) in [
            ("src 10.0.0.0/8 10.1.0.0/16", "`10.1.0.0/16` is covered by `10.0.0.0/8`"),
            (
                "src 10.1.2.3 10.0.0.0-10.9.0.0/16",
                "`10.1.2.3` is covered by `10.0.0.0-10.9.0.0/16`",
            ),
            ("src 10.0.0.0/255.0.0.0 10.0.0.1", "`10.0.0.1` is covered"),
            ("src fe80::1 fe80::/10", "`fe80::1` is covered by `fe80::/10`"),
            ("src 10.0.0.1 10.0.0.1", "`10.0.0.1` is there twice"),
            ("src all 10.0.0.1", "`10.0.0.1` is covered by `all`"),
            (
                "dstdomain .example.com www.Example.com",
                "`www.Example.com` is covered by `.example.com`",
            ),
            (
                "dstdomain a.b.example.com .b.example.com",
                "`a.b.example.com` is covered by `.b.example.com`",
            ),
            ("dstdomain .example.com example.com", "`example.com` is covered by `.example.com`"),
            ("dstdomain x.example x.example", "`x.example` is there twice"),
            ("method GET POST GET", "`GET` is there twice"),
        ] {
            let said = said(rest);
            assert!(said.len() == 1 && said[0].contains(part), "{rest}: {said:?}");
        }
        let many = said("dstdomain .example.com a.example.com b.example.com c.example.com");
        assert!(many.len() == 1 && many[0].contains("and 2 more"), "{many:?}");
    }

    #[test]
    fn values_that_only_touch_are_fine() {
        for rest in [
            "src 10.0.0.0/8 11.0.0.0/8 ::a00:0/104",
            "src 10.0.0.1 10.0.0.2 host.example",
            "dstdomain example.com www.example.com .myexample.com .example.net",
            "dstdomain .b.example.com .c.example.com",
            "port 80 443",
        ] {
            assert!(said(rest).is_empty(), "{rest}: {:?}", said(rest));
        }
    }
}
