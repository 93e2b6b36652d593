//! Names of objects, as numbers and as paths.

use crate::mix::{luck, mix};
use crate::workload::Workload;

/// Largest object, in bytes. Larger sizes are cut to it.
pub const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// Longest file name extension of a content type, in bytes.
pub(crate) const EXTENSION_BYTES_MAX: usize = 8;

/// The name of one object. Everything else about it follows from the name and the seed.
///
/// As a path: `/l/{world:x}/{kind:x}/{number:x}.ext`, or with an explicit size
/// `/l/{world:x}/{kind:x}/{number:x}/{size}.ext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The stream of requests that the object belongs to; worlds never share names.
    pub world: u32,
    /// Index of the content type in [`Workload::types`].
    pub kind: u8,
    /// Number within its world.
    pub number: u64,
    /// Size in bytes where it does not follow from the seed (replayed logs), at most
    /// [`OBJECT_BYTES_MAX`].
    pub size: Option<u64>,
}

impl ObjectName {
    /// Reads a path; `None` if it is not exactly what [`ObjectName::write_path`] writes (any
    /// extension will do). The kind may be one that a workload does not have: see
    /// [`Workload::knows`].
    #[must_use]
    pub fn parse(path: &[u8]) -> Option<Self> {
        let rest = path.strip_prefix(b"/l/")?;
        let (world, rest) = hex(rest)?;
        let (kind, rest) = hex(rest.strip_prefix(b"/")?)?;
        let (number, rest) = hex(rest.strip_prefix(b"/")?)?;
        let (size, rest) = match rest.strip_prefix(b"/") {
            Some(rest) => {
                let (size, rest) = decimal(rest)?;
                (Some(size).filter(|size| *size <= OBJECT_BYTES_MAX)?.into(), rest)
            }
            None => (None, rest),
        };
        let extension = rest.strip_prefix(b".")?;
        is_extension(extension).then_some(())?;
        Some(Self {
            world: u32::try_from(world).ok()?,
            kind: u8::try_from(kind).ok()?,
            number,
            size,
        })
    }

    /// Appends the path.
    pub fn write_path(&self, workload: &Workload, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/l/");
        push_hex(u64::from(self.world), out);
        out.push(b'/');
        push_hex(u64::from(self.kind), out);
        out.push(b'/');
        push_hex(self.number, out);
        if let Some(size) = self.size {
            out.push(b'/');
            push_decimal(size, out);
        }
        out.push(b'.');
        out.extend_from_slice(workload.extension(self.kind).as_bytes());
    }

    /// Which of `origins` servers has this object: always the same one. 0 if there are none.
    #[must_use]
    pub fn origin_index(&self, origins: usize) -> usize {
        (self.server_luck() as usize).checked_rem(origins).unwrap_or(0)
    }

    /// Depends on the name only, not even on the seed.
    #[inline]
    pub(crate) fn server_luck(&self) -> u32 {
        let place = (u64::from(self.world) << 8) | u64::from(self.kind);
        (luck(mix(place), self.number) >> 32) as u32
    }
}

pub(crate) fn is_extension(text: &[u8]) -> bool {
    (1..=EXTENSION_BYTES_MAX).contains(&text.len())
        && text.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Lower-case hexadecimal digits without leading zeros, and the rest.
fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    digits(text, 16, |byte| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    })
}

fn decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    digits(text, 10, |byte| byte.is_ascii_digit().then(|| byte - b'0'))
}

#[inline]
fn digits(text: &[u8], base: u64, digit: impl Fn(u8) -> Option<u8>) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut count = 0;
    while let Some(digit) = text.get(count).and_then(|byte| digit(*byte)) {
        value = value.checked_mul(base)?.checked_add(u64::from(digit))?;
        count += 1;
    }
    let canonical = count == 1 || (count > 1 && text.first() != Some(&b'0'));
    canonical.then(|| (value, text.get(count..).unwrap_or_default()))
}

/// Appends a number in hexadecimal, without leading zeros.
pub(crate) fn push_hex(number: u64, out: &mut Vec<u8>) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(HEX_DIGITS[(number >> (4 * place)) as usize & 15]);
    }
}

pub(crate) const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends a number in decimal.
pub(crate) fn push_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_is_read_as_it_was_written(
            world: u32, kind in 0_u8..4, number: u64, size in proptest::option::of(0..=OBJECT_BYTES_MAX),
        ) {
            let workload = Workload::builtin("polymix-4").unwrap().unwrap();
            let name = ObjectName { world, kind, number, size };
            let mut path = Vec::new();
            name.write_path(&workload, &mut path);
            prop_assert_eq!(ObjectName::parse(&path), Some(name));
        }

        #[test]
        fn any_bytes_are_a_name_or_not(path in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = ObjectName::parse(&path);
            let _ = ObjectName::parse(&[b"/l/", path.as_slice()].concat());
        }
    }

    #[test]
    fn only_canonical_paths_are_names() {
        for path in [
            "/l/0/0/0.html",
            "/l/ffffffff/1/ffffffffffffffff.gif",
            "/l/1/2/3/4711.bin",
            "/l/1/2/3/1073741824.bin",
        ] {
            assert!(ObjectName::parse(path.as_bytes()).is_some(), "{path}");
        }
        for path in [
            "",
            "/",
            "/l/",
            "/l/1/2/3",
            "/l/1/2/3.",
            "/l/01/2/3.gif",
            "/l/A/2/3.gif",
            "/l/1/100/3.gif",
            "/l/100000000/0/3.gif",
            "/l/1/2/10000000000000000.gif",
            "/l/1/2/3/4/5.gif",
            "/l/1/2/3/1073741825.bin",
            "/l/1/2/3/.bin",
            "/l/1/2/3.GIF",
            "/l/1/2/3.gif?x",
            "/l/1/2/3.verylongext",
            "/l/1//3.gif",
        ] {
            assert_eq!(ObjectName::parse(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn an_object_lives_on_one_server() {
        let mut counts = [0; 4];
        for number in 0..4_000 {
            let name = ObjectName { world: 3, kind: 1, number, size: None };
            counts[name.origin_index(4)] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!(ObjectName { world: 1, kind: 0, number: 5, size: None }.origin_index(0), 0);
    }
}
