//! Keeps values of one ACL apart. Of two domains, ranges or addresses of which one contains the
//! other, Squid ignores one, or does not start; we take both.

use crate::sets::AclLine;
use std::net::IpAddr;

/// Removes values that are related to an earlier one, and lines without values.
pub(crate) fn keep(kind: &str, lines: &mut Vec<AclLine>) {
    let are_related: fn(&str, &str) -> bool = match kind {
        "dstdomain" => |one, other| one.ends_with(other) || other.ends_with(one),
        "http_status" => |one, other| {
            let (one, other) = (statuses(one), statuses(other));
            one.0 <= other.1 && other.0 <= one.1
        },
        "src" | "dst" | "localip" => |one, other| match (range(one), range(other)) {
            (Some(one), Some(other)) => one.0 <= other.1 && other.0 <= one.1,
            _ => true,
        },
        _ => return,
    };
    let bare = |name: &str| name.trim_start_matches('.').to_ascii_lowercase();
    let mut kept: Vec<String> = Vec::new();
    for line in &mut *lines {
        line.values.retain(|value| {
            let one = bare(value);
            let is_new = !kept.iter().any(|other| are_related(&one, other));
            if is_new {
                kept.push(one);
            }
            is_new
        });
    }
    lines.retain(|line| !line.values.is_empty());
}

/// The first and the last status of a value.
fn statuses(value: &str) -> (u16, u16) {
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    (first.parse().unwrap_or(0), last.parse().unwrap_or(u16::MAX))
}

/// The first and the last address of a value; `None` if it has several ranges.
fn range(value: &str) -> Option<(u128, u128)> {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let (addresses, mask) = value.split_once('/').unwrap_or((value, "128"));
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    let width = if first.is_ipv4() { 32 } else { 128 };
    let kept_bits = match mask.parse::<IpAddr>() {
        Ok(IpAddr::V4(mask)) => u32::from(mask).count_ones(),
        _ => mask.parse::<u32>().ok()?.min(width),
    };
    let free = u128::MAX.checked_shr(128 - (width - kept_bits)).unwrap_or(0);
    Some((number(first) & !free, number(last) | free))
}
