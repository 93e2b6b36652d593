//! Marks of packets and connections.

use super::AclTerm;

/// A line of `tcp_outgoing_tos` or `clientside_tos`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TosRule {
    /// The type of service; 0 is the system's own.
    pub tos: u8,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
}

/// A line of `tcp_outgoing_mark`, `mark_client_packet` or `mark_client_connection`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// The mark.
    pub mark: NetfilterMark,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
}

/// `VALUE[/MASK]`
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NetfilterMark {
    /// The value.
    pub value: u32,
    /// The bits that count; all of them without a mask.
    pub(crate) mask: u32,
}

impl NetfilterMark {
    /// Reads `VALUE[/MASK]`.
    pub fn parse(text: &str) -> Option<Self> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (value, parse_u32(mask)?),
            None => (text, u32::MAX),
        };
        Some(Self { value: parse_u32(value)?, mask })
    }

    /// Whether a connection with this mark is meant.
    pub fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    /// The mark of a connection that has had the mark `before`, as iptables does with --set-mark.
    pub fn apply(self, before: u32) -> u32 {
        before & !self.mask | self.value
    }
}

/// `qos_flows`
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct QosFlows {
    /// Types of service.
    pub tos: Option<QosMarks>,
    /// Netfilter marks.
    pub mark: Option<QosMarks>,
}

/// Marks of answers by their source.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct QosMarks {
    /// Of answers from the cache.
    pub local_hit: u32,
    /// Of all others.
    pub miss: u32,
}

/// Decimal, 0x hexadecimal or 0 octal.
pub(crate) fn parse_u32(text: &str) -> Option<u32> {
    let is_signed = text.starts_with(['+', '-']);
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    u32::from_str_radix(digits, radix).ok().filter(|_| !is_signed && !digits.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_keeps_the_bits_that_do_not_count() {
        let mark = NetfilterMark::parse("0xAB/0xF").expect("a mark");
        assert_eq!(mark.apply(0x5f), 0xfb, "the example of Squid's manual");
        assert!(NetfilterMark::parse("0x5/0xf").expect("a mark").matches(0x35));
        assert!(!mark.matches(0xab), "a value beyond its mask is never met, as in Squid");
        assert_eq!(NetfilterMark::parse("010").map(|mark| mark.apply(99)), Some(8));
        for bad in ["", "x", "-1", "+1", "0x", "0x+1", "1/", "1/x", "4294967296", "1/2/3", "09"] {
            assert_eq!(NetfilterMark::parse(bad), None, "{bad}");
        }
    }
}
