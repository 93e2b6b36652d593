//! The value under the primary key of a URL whose answers vary.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use humboldt_base::clock::UnixMillis;

use crate::key::Key;

/// Longest serialised marker in bytes; a longer list of fields is not cached.
pub const VARY_BYTES_MAX: usize = 8 * 1024;

/// Stored bytes are not a Vary marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored Vary list does not parse")]
pub struct MalformedVary;

/// Says which request fields select among the variants of a URL.
///
/// The generation is part of every variant's key. Removing the marker therefore removes all
/// variants at once: a new marker has a new generation, and whatever was stored under the old one
/// is never found again.
#[derive(Debug)]
pub struct VaryMarker {
    /// The URL.
    pub url: Box<[u8]>,
    /// Names of the fields as the caller normalised them, separated by commas.
    pub fields: Box<[u8]>,
    /// Distinguishes this marker from earlier ones of the same URL.
    pub generation: u64,
    /// A directory has got it. It may have lost it since.
    pub(crate) is_written: AtomicBool,
}

impl PartialEq for VaryMarker {
    fn eq(&self, other: &Self) -> bool {
        (&self.url, &self.fields, self.generation) == (&other.url, &other.fields, other.generation)
    }
}

impl Eq for VaryMarker {}

impl VaryMarker {
    /// A marker with a generation that this URL has not had before.
    pub fn new(url: &[u8], fields: &[u8]) -> Self {
        let is_written = AtomicBool::new(false);
        Self { url: url.into(), fields: fields.into(), generation: next_generation(), is_written }
    }

    /// The key of the variant with these normalised values.
    pub fn variant_key(&self, primary: Key, parts: &[u8]) -> Key {
        Key(primary.0 ^ u128::from(self.generation)).variant(parts)
    }

    /// The serialised form, without the URL: generation (8 bytes, big-endian), then the names.
    pub fn to_bytes(&self) -> Box<[u8]> {
        [&self.generation.to_be_bytes()[..], &self.fields].concat().into_boxed_slice()
    }

    /// Reads the serialised form.
    pub fn from_bytes(url: &[u8], bytes: &[u8]) -> Result<Self, MalformedVary> {
        if bytes.len() > VARY_BYTES_MAX {
            return Err(MalformedVary);
        }
        let (generation, fields) = bytes.split_first_chunk::<8>().ok_or(MalformedVary)?;
        let (generation, is_written) = (u64::from_be_bytes(*generation), AtomicBool::new(true));
        Ok(Self { url: url.into(), fields: fields.into(), generation, is_written })
    }
}

/// Larger than any before it in this process, and than any of an earlier process unless the clock
/// went back.
pub(crate) fn next_generation() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = (UnixMillis::now().0.max(0) as u64) << 20;
    let last = LAST.fetch_max(now, Relaxed);
    if last < now { now } else { LAST.fetch_add(1, Relaxed) + 1 }
}

/// A number for [`humboldt_freshness::Times::serial`]: no answer of the same second has it.
pub fn next_serial() -> u32 {
    // A process that was started in the same second begins elsewhere.
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new((UnixMillis::now().0 as u32).wrapping_mul(16_411)));
    NEXT.fetch_add(1, Relaxed) & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_marker_makes_old_variants_unreachable() {
        let primary = Key::primary(b"http://a/");
        let (old, new) =
            (VaryMarker::new(b"http://a/", b"accept"), VaryMarker::new(b"http://a/", b"accept"));
        assert_ne!(old.variant_key(primary, b"x"), new.variant_key(primary, b"x"));
        assert_eq!(old.variant_key(primary, b"x"), old.variant_key(primary, b"x"));
        assert_ne!(old.variant_key(primary, b"x"), old.variant_key(primary, b"y"));
    }

    #[test]
    fn generations_never_repeat() {
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..1000).map(|_| next_generation()).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4000);
    }

    #[test]
    fn serialised_form_round_trips() {
        let marker = VaryMarker::new(b"http://a/", b"accept,accept-encoding");
        assert_eq!(VaryMarker::from_bytes(b"http://a/", &marker.to_bytes()), Ok(marker));
        assert_eq!(VaryMarker::from_bytes(b"http://a/", b"short"), Err(MalformedVary));
        assert_eq!(
            VaryMarker::from_bytes(b"http://a/", &[0; VARY_BYTES_MAX + 1]),
            Err(MalformedVary)
        );
    }
}
