//! Byte ranges (RFC 9110 14).

use crate::syntax::{parse_digits, trim_ows};

/// Most ranges in one request; a longer list is ignored, so that the answer is the whole content
/// (RFC 9110 14.2 allows that, and many small ranges are an attack).
pub const RANGES_MAX: usize = 16;

/// One range as requested.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Spec {
    /// From a byte on, to the end or to a last byte.
    From { first: u64, last: Option<u64> },
    /// This many bytes at the end.
    Suffix { len: u64 },
    /// An unused place.
    #[default]
    Unused,
}

/// The ranges of one `Range` field, not yet compared with a length.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RangeSet {
    specs: [Spec; RANGES_MAX],
}

/// A satisfiable range: first and last byte, both included, within the content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ByteRange {
    /// First byte.
    pub first: u64,
    /// Last byte, at least `first`.
    pub last: u64,
}

impl ByteRange {
    /// Number of bytes.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }
}

/// The meaning of a `Range` field for content of a known length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// 206 with these ranges, at least one, in the order requested.
    Satisfiable(Vec<ByteRange>),
    /// 416 with `Content-Range: bytes */len`.
    Unsatisfiable,
    /// 200 with the whole content: the ranges together ask for more than there is.
    Whole,
}

impl RangeSet {
    /// The first byte that is asked for, counted from the beginning; `None` where the end of the
    /// content must be known.
    #[must_use]
    pub fn first_byte(&self) -> Option<u64> {
        let mut first = None;
        for spec in &self.specs {
            match *spec {
                Spec::From { first: own, .. } => {
                    first = Some(first.map_or(own, |least: u64| least.min(own)))
                }
                Spec::Suffix { .. } => return None,
                Spec::Unused => {}
            }
        }
        first
    }

    /// Number of requested bytes, if only the last ones are requested.
    #[must_use]
    pub fn suffix_bytes(&self) -> Option<u64> {
        match self.specs.as_slice() {
            [Spec::Suffix { len }, Spec::Unused, ..] => Some(*len),
            _ => None,
        }
    }
}

/// Reads a `Range` value. `None` when the unit is not `bytes`, the text is malformed or the list
/// too long; the field is then ignored.
#[must_use]
pub fn parse_range(value: &[u8]) -> Option<RangeSet> {
    let (unit, list) = value.split_at_checked(value.iter().position(|&byte| byte == b'=')?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut set = RangeSet { specs: [Spec::Unused; RANGES_MAX] };
    let mut places = set.specs.iter_mut();
    let elements =
        list.get(1..)?.split(|&byte| byte == b',').map(trim_ows).filter(|text| !text.is_empty());
    for element in elements {
        *places.next()? = parse_spec(element)?;
    }
    (set.specs.first() != Some(&Spec::Unused)).then_some(set)
}

/// `first-`, `first-last` or `-suffix`.
fn parse_spec(text: &[u8]) -> Option<Spec> {
    let (first, rest) = text.split_at_checked(text.iter().position(|&byte| byte == b'-')?)?;
    let last = rest.get(1..)?;
    if first.is_empty() {
        return parse_digits(last).map(|len| Spec::Suffix { len });
    }
    let first = parse_digits(first)?;
    let last = if last.is_empty() { None } else { Some(parse_digits(last)?) };
    if last.is_some_and(|last| last < first) {
        return None;
    }
    Some(Spec::From { first, last })
}

/// Compares requested ranges with content of `len` bytes (RFC 9110 14.1.2).
#[must_use]
pub fn resolve(set: &RangeSet, len: u64) -> Resolved {
    let ranges: Vec<ByteRange> =
        set.specs.iter().filter_map(|spec| resolve_one(spec, len)).collect();
    let wanted = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.byte_count()));
    if ranges.is_empty() {
        Resolved::Unsatisfiable
    } else if wanted > len {
        Resolved::Whole
    } else {
        Resolved::Satisfiable(ranges)
    }
}

/// The part of one range that exists.
fn resolve_one(spec: &Spec, len: u64) -> Option<ByteRange> {
    let end = len.checked_sub(1)?;
    match *spec {
        Spec::From { first, last } if first < len => {
            Some(ByteRange { first, last: last.map_or(end, |last| last.min(end)) })
        }
        Spec::Suffix { len: suffix @ 1.. } => {
            Some(ByteRange { first: len.saturating_sub(suffix), last: end })
        }
        _ => None,
    }
}

/// A `Content-Range` value in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ContentRange {
    /// The part enclosed; `None` in a 416.
    pub range: Option<ByteRange>,
    /// Length of the whole content, if known.
    pub complete_bytes: Option<u64>,
}

impl ContentRange {
    /// Reads `bytes first-last/length`, with `*` for an unknown length or an unsatisfied range.
    /// `None` when it is malformed or contradicts itself; a 206 with such a value must not be used.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let (unit, rest) = value.split_at_checked(value.iter().position(|&byte| byte == b' ')?)?;
        let rest = trim_ows(rest);
        let (range, complete) =
            rest.split_at_checked(rest.iter().position(|&byte| byte == b'/')?)?;
        if !unit.eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let complete_bytes = match complete.get(1..)? {
            b"*" => None,
            digits => Some(parse_digits(digits)?),
        };
        if range == b"*" {
            // Only with a length does an unsatisfied range say anything.
            return complete_bytes.map(|_| ContentRange { range: None, complete_bytes });
        }
        let Spec::From { first, last: Some(last) } = parse_spec(range)? else { return None };
        let fits = complete_bytes.is_none_or(|complete| last < complete) && last < u64::MAX;
        fits.then_some(ContentRange { range: Some(ByteRange { first, last }), complete_bytes })
    }

    /// Appends the value.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(b"bytes ");
        match self.range {
            None => out.push(b'*'),
            Some(range) => {
                out.extend_from_slice(digits.format(range.first).as_bytes());
                out.push(b'-');
                out.extend_from_slice(digits.format(range.last).as_bytes());
            }
        }
        out.push(b'/');
        match self.complete_bytes {
            None => out.push(b'*'),
            Some(complete) => out.extend_from_slice(digits.format(complete).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(value: &str, len: u64) -> Option<Resolved> {
        parse_range(value.as_bytes()).map(|set| resolve(&set, len))
    }

    fn satisfiable(pairs: &[(u64, u64)]) -> Option<Resolved> {
        Some(Resolved::Satisfiable(
            pairs.iter().map(|&(first, last)| ByteRange { first, last }).collect(),
        ))
    }

    #[test]
    fn satisfiable_ranges() {
        assert_eq!(ranges("bytes=0-499", 10_000), satisfiable(&[(0, 499)]));
        assert_eq!(ranges("Bytes=9500-", 10_000), satisfiable(&[(9500, 9999)]));
        assert_eq!(ranges("bytes=-500", 10_000), satisfiable(&[(9500, 9999)]));
        assert_eq!(ranges("bytes=-20000", 100), satisfiable(&[(0, 99)]));
        assert_eq!(ranges("bytes=5-1000", 100), satisfiable(&[(5, 99)]));
        assert_eq!(ranges("bytes=0-0, -1 ,,500-", 100), satisfiable(&[(0, 0), (99, 99)]));
    }

    #[test]
    fn unsatisfiable_and_ignored_ranges() {
        assert_eq!(ranges("bytes=100-", 100), Some(Resolved::Unsatisfiable));
        assert_eq!(ranges("bytes=-0", 100), Some(Resolved::Unsatisfiable));
        assert_eq!(ranges("bytes=0-", 0), Some(Resolved::Unsatisfiable));
        assert_eq!(ranges("bytes=0-,0-", 100), Some(Resolved::Whole));
        for bad in [
            "bytes",
            "bytes=",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=-",
            "lines=0-1",
            "bytes=1-2-3",
            "bytes=+1-2",
        ] {
            assert_eq!(ranges(bad, 100), None, "{bad}");
        }
        let many = format!("bytes={}", "0-0,".repeat(RANGES_MAX + 1));
        assert_eq!(ranges(&many, 100), None);
        assert!(ranges(&many[..many.len() - 4], 100).is_some());
    }

    #[test]
    fn content_range() {
        for text in ["bytes 0-499/1234", "bytes 5-5/*", "bytes */1234"] {
            let mut out = Vec::new();
            ContentRange::parse(text.as_bytes()).unwrap().write(&mut out);
            assert_eq!(out, text.as_bytes());
        }
        for bad in [
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes */*",
            "bytes 0-/10",
            "bytes -5/10",
            "lines 0-1/2",
            "bytes 0-1",
        ] {
            assert_eq!(ContentRange::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
