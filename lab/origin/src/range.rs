//! The `Range` of a request.

/// The meaning of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything: no range, one that is not understood, or several, which a server may answer as a
    /// whole.
    Whole,
    /// From byte `first` up to and with byte `last`.
    Part { first: u64, last: u64 },
    /// Nothing that the object has.
    Unsatisfiable,
}

/// Reads `bytes=a-b`, `bytes=a-` and `bytes=-n` for an object of `size_bytes`.
pub(crate) fn wanted(range: &[u8], size_bytes: u64) -> Wanted {
    let Some((first, last)) = one_range(range) else { return Wanted::Whole };
    match (first, last) {
        (Some(first), last) if first < size_bytes => {
            let last = last.unwrap_or(u64::MAX).min(size_bytes - 1);
            Wanted::Part { first, last }
        }
        (None, Some(suffix_bytes)) if suffix_bytes > 0 && size_bytes > 0 => {
            Wanted::Part { first: size_bytes.saturating_sub(suffix_bytes), last: size_bytes - 1 }
        }
        _ => Wanted::Unsatisfiable,
    }
}

/// The two numbers of a single valid range, of which at least one is there.
fn one_range(range: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, spec) = range.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (number(&spec[..dash])?, number(&spec[dash + 1..])?);
    match (first, last) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        both => Some(both),
    }
}

/// `Some(None)` for nothing at all; `None` for text that is no number.
fn number(text: &[u8]) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    });
    digits.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_ranges_are_cut_to_the_object() {
        let part = |first, last| Wanted::Part { first, last };
        let cases = [
            ("bytes=0-0", part(0, 0)),
            ("Bytes=5-", part(5, 99)),
            ("bytes=90-1000", part(90, 99)),
            ("bytes=-1", part(99, 99)),
            ("bytes=-1000", part(0, 99)),
            ("bytes=100-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
        ];
        for (range, expected) in cases {
            assert_eq!(wanted(range.as_bytes(), 100), expected, "{range}");
        }
        assert_eq!(wanted(b"bytes=0-", 0), Wanted::Unsatisfiable);
        assert_eq!(wanted(b"bytes=-5", 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn what_is_not_understood_is_the_whole() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-4",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=+1-2",
        ] {
            assert_eq!(wanted(range.as_bytes(), 100), Wanted::Whole, "{range}");
        }
    }
}
