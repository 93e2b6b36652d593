//! Bodies whose every byte tells what it belongs to.

/// The identity of a body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// Follows from resource, version, variant, and the asker where it is private.
    pub(crate) identity: u64,
    pub(crate) bytes: u64,
}

/// Bytes that are made at a time.
const WORD: u64 = 8;

impl Body {
    /// Bytes `from..to` of it.
    pub(crate) fn part(self, from: u64, to: u64) -> Vec<u8> {
        let to = to.min(self.bytes);
        let mut made = Vec::with_capacity(to.saturating_sub(from) as usize + WORD as usize);
        let first = from / WORD;
        for word in first..to.div_ceil(WORD) {
            made.extend_from_slice(&mix(self.identity ^ word).to_le_bytes());
        }
        made.truncate((to - (first * WORD).min(to)) as usize);
        made.drain(..((from - first * WORD) as usize).min(made.len()));
        made
    }

    /// The first offset from `from` on at which `seen` differs.
    pub(crate) fn differs(self, from: u64, seen: &[u8]) -> Option<u64> {
        let right = self.part(from, from + seen.len() as u64);
        if right.len() < seen.len() {
            return Some(from + right.len() as u64);
        }
        let at = right.iter().zip(seen).position(|(right, seen)| right != seen)?;
        Some(from + at as u64)
    }
}

/// A number that looks like chance.
pub(crate) fn mix(of: u64) -> u64 {
    let mut mixed = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_parts_of_the_whole() {
        let body = Body { identity: 7, bytes: 1001 };
        let whole = body.part(0, 1001);
        assert_eq!(whole.len(), 1001);
        for (from, to) in [(0, 0), (0, 1), (3, 20), (8, 16), (999, 1001), (1000, 2000)] {
            let part = body.part(from, to);
            assert_eq!(part, whole[from as usize..to.min(1001) as usize]);
            assert_eq!(body.differs(from, &part), None);
        }
        assert_eq!(body.differs(5, &whole[6..9]), Some(5));
        assert_eq!(body.differs(1000, &[whole[1000], 0]), Some(1001));
    }
}
