//! Bodies: bytes that follow from a key, at any offset, without the bytes before them.

use crate::mix::{GOLDEN, below, luck, mix};
use crate::name::HEX_DIGITS;

/// Lengths of the two tables: primes, so that the pattern of a body repeats only after 8 × 16,381 ×
/// 16,369 bytes, which is more than the largest object. Together they fit a first-level cache.
const TABLE_A_BYTES: usize = 16_381;
const TABLE_B_BYTES: usize = 16_369;

static TABLE_A: [u8; TABLE_A_BYTES] = noise(1);
static TABLE_B: [u8; TABLE_B_BYTES] = noise(2);

const fn noise<const N: usize>(seed: u64) -> [u8; N] {
    let mut table = [0; N];
    let mut index = 0;
    while index < N {
        table[index] =
            (mix((seed << 32).wrapping_add(index as u64).wrapping_mul(GOLDEN)) >> 24) as u8;
        index += 1;
    }
    table
}

/// The key of one body: of one version of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyKey {
    start_a: u32,
    start_b: u32,
    word: u64,
    compressible: bool,
}

/// The first wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its position in the body.
    pub offset: u64,
    /// The byte of this body.
    pub expected: u8,
    /// The byte that was there.
    pub got: u8,
}

impl BodyKey {
    pub(crate) fn new(body_luck: u64, compressible: bool) -> Self {
        Self {
            start_a: below(luck(body_luck, 1), TABLE_A_BYTES as u64) as u32,
            start_b: below(luck(body_luck, 2), TABLE_B_BYTES as u64) as u32,
            word: luck(body_luck, 3),
            compressible,
        }
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut offset = offset;
        let mut out = out;
        while !out.is_empty() {
            let len;
            if self.compressible {
                let line = self.line_at(offset);
                len = line.len().min(out.len());
                out[..len].copy_from_slice(&line.bytes()[..len]);
            } else {
                let run = self.run(offset, out.len());
                len = run.a.len();
                run.fill(&mut out[..len]);
            }
            offset += len as u64;
            out = &mut out[len..];
        }
    }

    /// Compares bytes with the body's bytes from `offset` on.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, offset: u64, got: &[u8]) -> Result<(), Mismatch> {
        let mut offset = offset;
        let mut got = got;
        while !got.is_empty() {
            let (len, difference) = if self.compressible {
                let line = self.line_at(offset);
                let len = line.len().min(got.len());
                (len, line.first_difference(&got[..len]))
            } else {
                let run = self.run(offset, got.len());
                let len = run.a.len();
                (len, run.first_difference(&got[..len]))
            };
            if let Some((index, expected, got)) = difference {
                return Err(Mismatch { offset: offset + index as u64, expected, got });
            }
            offset += len as u64;
            got = &got[len..];
        }
        Ok(())
    }

    fn line_at(&self, offset: u64) -> LineRest {
        let number = offset / LINE_BYTES as u64;
        LineRest {
            line: line(self.word, self.start_a, number),
            from: (offset % LINE_BYTES as u64) as usize,
        }
    }

    /// The longest run of bytes from `offset` on in which neither table wraps around, at most
    /// `len_max`.
    fn run(&self, offset: u64, len_max: usize) -> Run {
        let a = ((u64::from(self.start_a) + offset) % TABLE_A_BYTES as u64) as usize;
        let b = ((u64::from(self.start_b) + offset) % TABLE_B_BYTES as u64) as usize;
        let len = len_max.min(TABLE_A_BYTES - a).min(TABLE_B_BYTES - b);
        let turn = (offset % 8) as u32 * 8;
        Run { a: &TABLE_A[a..a + len], b: &TABLE_B[b..b + len], word: self.word.rotate_right(turn) }
    }
}

/// Two stretches of the tables of equal length, and the word, turned so that its first byte is the
/// run's first.
struct Run {
    a: &'static [u8],
    b: &'static [u8],
    word: u64,
}

/// A line of a compressible body, from a byte on.
struct LineRest {
    line: [u8; LINE_BYTES],
    from: usize,
}

impl LineRest {
    fn bytes(&self) -> &[u8] {
        &self.line[self.from..]
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn first_difference(&self, got: &[u8]) -> Option<(usize, u8, u8)> {
        let index = self.bytes().iter().zip(got).position(|(expected, got)| expected != got)?;
        Some((index, self.bytes()[index], got[index]))
    }
}

/// Bytes compared between two looks at the result: long enough to vectorise, short enough to stop
/// soon.
const BLOCK_BYTES: usize = 1_024;

impl Run {
    fn fill(&self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        let (a, a_rest) = self.a.as_chunks::<8>();
        let (b, b_rest) = self.b.as_chunks::<8>();
        for ((out, a), b) in words.iter_mut().zip(a).zip(b) {
            *out = (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b) ^ self.word).to_le_bytes();
        }
        let word = self.word.to_le_bytes();
        for (((out, a), b), word) in rest.iter_mut().zip(a_rest).zip(b_rest).zip(word) {
            *out = a ^ b ^ word;
        }
    }

    /// Index, expected and found byte.
    fn first_difference(&self, got: &[u8]) -> Option<(usize, u8, u8)> {
        let blocks =
            self.a.chunks(BLOCK_BYTES).zip(self.b.chunks(BLOCK_BYTES)).zip(got.chunks(BLOCK_BYTES));
        let block = blocks
            .map(|((a, b), got)| differences(a, b, self.word, got))
            .position(|bits| bits != 0)?;
        let word = self.word.to_le_bytes();
        (block * BLOCK_BYTES..got.len()).find_map(|index| {
            let expected = self.a[index] ^ self.b[index] ^ word[index % 8];
            (expected != got[index]).then(|| (index, expected, got[index]))
        })
    }
}

/// Zero if all bytes are right.
#[inline]
fn differences(a: &[u8], b: &[u8], word: u64, got: &[u8]) -> u64 {
    let (got_words, got_rest) = got.as_chunks::<8>();
    let (a_words, a_rest) = a.as_chunks::<8>();
    let (b_words, b_rest) = b.as_chunks::<8>();
    let mut bits = 0;
    for ((got, a), b) in got_words.iter().zip(a_words).zip(b_words) {
        bits |= u64::from_le_bytes(*got) ^ u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b) ^ word;
    }
    for (((got, a), b), word) in got_rest.iter().zip(a_rest).zip(b_rest).zip(word.to_le_bytes()) {
        bits |= u64::from(got ^ a ^ b ^ word);
    }
    bits
}

/// Bytes of a line of a compressible body: 48 of words, 15 keyed hexadecimal digits, a line feed.
const LINE_BYTES: usize = 64;
const LINE_WORDS_BYTES: usize = 48;

/// The text of compressible bodies.
const TEXT: &[u8] = b"the traveller who has climbed the mountain sees the river in the plain, the forest at its foot, \
the snow above the clouds, and writes down the height, the warmth of the air, the weight of the air, the plants that \
grow at this height and the stones that lie beside them; then he goes on, measures again, and in the evening he \
compares what he has written with what others saw in other lands, until the numbers of one day become a line on a \
map, and the lines of many maps become a picture of the whole, in which every part depends on every other part. ";

/// Writes one line of a compressible body.
fn line(word: u64, start: u32, number: u64) -> [u8; LINE_BYTES] {
    let mut line = [b'\n'; LINE_BYTES];
    let first = (u64::from(start) + number * LINE_WORDS_BYTES as u64)
        % (TEXT.len() - LINE_WORDS_BYTES) as u64;
    line[..LINE_WORDS_BYTES].copy_from_slice(&TEXT[first as usize..][..LINE_WORDS_BYTES]);
    let digits = luck(word, number);
    for (place, byte) in line[LINE_WORDS_BYTES..LINE_BYTES - 1].iter_mut().enumerate() {
        *byte = HEX_DIGITS[(digits >> (4 * place)) as usize & 15];
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const GOLDEN_BYTES: [u8; 8] = [91, 214, 202, 112, 191, 191, 124, 2];

    fn body(key: &BodyKey, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        key.fill(offset, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_bytes(
            luck: u64, compressible: bool, offset in 0_u64..1 << 30, len in 0_usize..60_000, cut in 0.0..1.0_f64,
        ) {
            let key = BodyKey::new(luck, compressible);
            let whole = body(&key, offset, len);
            let cut = (len as f64 * cut) as usize;
            let parts = [body(&key, offset, cut), body(&key, offset + cut as u64, len - cut)].concat();
            prop_assert!(whole == parts);
            prop_assert_eq!(key.check(offset, &whole), Ok(()));
            prop_assert_eq!(key.check(offset + cut as u64, &whole[cut..]), Ok(()));
        }

        #[test]
        fn the_first_wrong_byte_is_named(
            luck: u64, compressible: bool, offset in 0_u64..1 << 30, len in 1_usize..40_000, at in 0.0..1.0_f64, flip in 1_u8..,
        ) {
            let key = BodyKey::new(luck, compressible);
            let mut bytes = body(&key, offset, len);
            let at = ((len as f64 * at) as usize).min(len - 1);
            let expected = bytes[at];
            bytes[at] ^= flip;
            // Later bytes may be wrong as well.
            bytes[at + 1..].fill(0);
            let mismatch = Mismatch { offset: offset + at as u64, expected, got: expected ^ flip };
            prop_assert_eq!(key.check(offset, &bytes), Err(mismatch));
        }
    }

    #[test]
    fn two_bodies_differ_in_nearly_every_word() {
        let first = body(&BodyKey::new(1, false), 0, 1 << 16);
        for other_luck in 2..50 {
            let other = body(&BodyKey::new(other_luck, false), 0, 1 << 16);
            let equal =
                first.chunks(8).zip(other.chunks(8)).filter(|(left, right)| left == right).count();
            assert_eq!(equal, 0, "luck {other_luck}");
        }
    }

    #[test]
    fn bytes_are_even_and_nothing_repeats() {
        let bytes = body(&BodyKey::new(9, false), 0, 1 << 20);
        let mut counts = [0_u32; 256];
        for byte in &bytes {
            counts[usize::from(*byte)] += 1;
        }
        assert!(
            counts.iter().all(|count| (3_600..4_600).contains(count)),
            "4096 of each are expected: {counts:?}"
        );
        let mut windows = HashSet::new();
        // Windows at odd steps against windows at every 64th byte: a compressor would find any
        // distance.
        assert!(bytes.chunks_exact(16).all(|window| windows.insert(window)));
        let found =
            bytes.windows(16).skip(1).step_by(7).filter(|window| windows.contains(window)).count();
        let own =
            bytes.windows(16).enumerate().skip(1).step_by(7).filter(|(at, _)| at % 16 == 0).count();
        assert_eq!(found, own);
    }

    #[test]
    fn compressible_bodies_are_lines_of_text() {
        let bytes = body(&BodyKey::new(9, true), 0, 64 * 100);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.lines().all(|line| line.len() == 63), "{text}");
        let different: HashSet<&str> = text.lines().collect();
        assert_eq!(different.len(), 100);
        assert_ne!(text.as_bytes(), body(&BodyKey::new(10, true), 0, 6_400).as_slice());
    }

    #[test]
    fn bodies_of_old_runs_stay_true() {
        // These bytes must never change: robots and origins of different builds must agree.
        assert_eq!(body(&BodyKey::new(42, false), 1_000_000, 8), GOLDEN_BYTES);
    }
}
