//! Records of libCacheSim's oracleGeneral.

use super::trace::{Request, clamped};

/// Time u32, id u64, size u32, next access i64; little-endian, without gaps.
pub(super) const RECORD_BYTES: usize = 24;

/// The request of a record. Its next access is only looked at to see that this is such a record.
pub(super) fn parse(record: &[u8; RECORD_BYTES]) -> Result<Request, &'static str> {
    let [_, _, _, _, id @ .., s0, s1, s2, s3, n0, n1, n2, n3, n4, n5, n6, n7] = *record;
    let next = i64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
    if next < -1 {
        return Err("its next access is less than -1, which stands for none");
    }
    let bytes = u32::from_le_bytes([s0, s1, s2, s3]);
    Ok(Request { id: u64::from_le_bytes(id), bytes: clamped(bytes.into()) })
}
