//! The facts about an object: size, cachability, its life as a sequence of versions.

use crate::body::BodyKey;
use crate::mix::{below, luck, mix, unit};
use crate::name::{HEX_DIGITS, ObjectName, push_decimal};
use crate::plan::{Kind, Plan};

/// Shortest mean time between two modifications, in µs. With [`VARIANCE_MAX`] two modifications are
/// at least one second apart, so that HTTP's dates (whole seconds) tell versions apart.
pub(crate) const CYCLE_US_MIN: u64 = 2_000_000;

/// Longest, in µs: 25 years, so that every clock of today is several cycles after the beginning of
/// Unix time.
pub(crate) const CYCLE_US_MAX: u64 = 25 * 365 * 86_400 * 1_000_000;

/// Most that the time between two modifications may differ from its mean, as a share of it.
pub(crate) const VARIANCE_MAX: f64 = 0.5;

/// Cycles that were over at the beginning of Unix time. More than one, so that jitter cannot reach
/// below zero for any version that a clock of today can meet.
const CYCLES_BEFORE_EPOCH: u64 = 2;

const MICROS_PER_S: u64 = 1_000_000;

const PURPOSE_SIZE: u64 = 11;
const PURPOSE_CACHABLE: u64 = 12;
const PURPOSE_CYCLE: u64 = 13;
const PURPOSE_PHASE: u64 = 14;
const PURPOSE_JITTER: u64 = 15;
const PURPOSE_BODY: u64 = 16;

/// The facts that follow from a name and the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Size of the body in bytes, 1 to [`OBJECT_BYTES_MAX`] (0 only if the name says so). All
    /// versions have it.
    ///
    /// [`OBJECT_BYTES_MAX`]: crate::OBJECT_BYTES_MAX
    pub size_bytes: u64,
    /// Whether a cache may store the answer to a GET.
    pub cachable: bool,
    /// Index of the content type.
    pub kind: u8,
    /// The number of (seed, name): in the ETag, and the root of the body.
    pub key: u64,
    pub(crate) compressible: bool,
    pub(crate) life: Life,
}

/// When an object changes: modification `n` is due at `phase + n * cycle`, moved by up to `jitter`
/// either way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Life {
    pub(crate) cycle_us: u64,
    pub(crate) phase_us: u64,
    /// Largest shift of one modification; below a quarter of the cycle, so that the order is kept.
    pub(crate) jitter_us: u64,
}

/// One version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Number, rising by one with every modification.
    pub number: u64,
    /// Unix seconds of the modification that made it: `Last-Modified`.
    pub modified_s: u64,
    /// Unix seconds of the next modification, when this version is no longer right: `Expires`.
    /// Always later than `modified_s`.
    pub expires_s: u64,
}

/// The facts of a name; one that has an unknown kind is uncachable and has one byte.
pub(crate) fn of(plan: &Plan, seed: u64, name: &ObjectName) -> Facts {
    let key = key(seed, name);
    let Some(kind) = plan.kinds.get(usize::from(name.kind)) else {
        let life = Life { cycle_us: CYCLE_US_MAX, phase_us: 0, jitter_us: 0 };
        return Facts {
            size_bytes: 1,
            cachable: false,
            kind: name.kind,
            key,
            compressible: false,
            life,
        };
    };
    let size_bytes = size_bytes(kind, name, key);
    let cycle_us = kind.cycle.whole_at(unit(luck(key, PURPOSE_CYCLE)), CYCLE_US_MIN, CYCLE_US_MAX);
    Facts {
        size_bytes,
        cachable: kind.cachable.happens(luck(key, PURPOSE_CACHABLE)),
        kind: name.kind,
        key,
        compressible: kind.compressible,
        life: Life {
            cycle_us,
            phase_us: below(luck(key, PURPOSE_PHASE), cycle_us),
            jitter_us: (cycle_us as f64 * kind.variance * 0.5) as u64,
        },
    }
}

fn size_bytes(kind: &Kind, name: &ObjectName, key: u64) -> u64 {
    name.size.unwrap_or_else(|| {
        kind.size.whole_at(unit(luck(key, PURPOSE_SIZE)), kind.size_min, kind.size_max)
    })
}

/// The size alone, in bytes: [`of`] is several times as slow.
pub(crate) fn size_of(plan: &Plan, seed: u64, name: &ObjectName) -> u64 {
    let kind = plan.kinds.get(usize::from(name.kind));
    kind.map_or(1, |kind| size_bytes(kind, name, key(seed, name)))
}

/// The size in bytes of an object that may be stored; `None` for others.
pub(crate) fn cachable_size_of(plan: &Plan, seed: u64, name: &ObjectName) -> Option<u64> {
    let kind = plan.kinds.get(usize::from(name.kind))?;
    let key = key(seed, name);
    let is_cachable = kind.cachable.happens(luck(key, PURPOSE_CACHABLE));
    is_cachable.then(|| size_bytes(kind, name, key))
}

/// One word for (seed, name); names of the same world and kind never share one.
#[inline]
fn key(seed: u64, name: &ObjectName) -> u64 {
    let place = mix((u64::from(name.world) << 8) | u64::from(name.kind)) ^ mix(seed);
    let key = luck(mix(place), name.number);
    name.size.map_or(key, |size| luck(key, size.wrapping_add(1)))
}

/// Reads a tag of [`Facts::write_etag`]; a cache may have made it weak.
pub(crate) fn parse_etag(tag: &[u8]) -> Option<(u64, u64)> {
    let tag = tag.strip_prefix(b"W/").unwrap_or(tag);
    let tag = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let (key, version) = tag.split_at_checked(16)?;
    let version = std::str::from_utf8(version.strip_prefix(b".")?).ok()?;
    let key = std::str::from_utf8(key).ok()?;
    // The parsers of the standard library take a sign.
    if key.starts_with('+') || version.starts_with('+') {
        return None;
    }
    Some((u64::from_str_radix(key, 16).ok()?, version.parse().ok()?))
}

impl Facts {
    /// The version that is right at a moment (Unix time in µs).
    #[must_use]
    pub fn version_at(&self, unix_us: u64) -> Version {
        // Modifications happen at whole seconds, as HTTP's dates can say.
        let now_s = unix_us / MICROS_PER_S;
        let since_us = unix_us
            .saturating_add(self.life.cycle_us * CYCLES_BEFORE_EPOCH)
            .saturating_sub(self.life.phase_us);
        let mut number = since_us / self.life.cycle_us;
        // Jitter and rounding to seconds move a modification by less than one cycle.
        while number > 0 && self.modified_s(number) > now_s {
            number -= 1;
        }
        while self.modified_s(number + 1) <= now_s {
            number += 1;
        }
        self.version(number)
    }

    /// A version by its number.
    #[must_use]
    pub fn version(&self, number: u64) -> Version {
        let next = number.saturating_add(1);
        Version { number, modified_s: self.modified_s(number), expires_s: self.modified_s(next) }
    }

    /// The body of a version.
    #[must_use]
    pub fn body(&self, version_number: u64) -> BodyKey {
        let body_luck = luck(self.key ^ luck(version_number, PURPOSE_BODY), PURPOSE_BODY);
        BodyKey::new(body_luck, self.compressible)
    }

    fn modified_s(&self, number: u64) -> u64 {
        let Life { cycle_us, phase_us, jitter_us } = self.life;
        let moved_us =
            below(luck(self.key ^ luck(number, PURPOSE_JITTER), PURPOSE_JITTER), 2 * jitter_us + 1);
        let due_us =
            number.saturating_mul(cycle_us).saturating_add(phase_us).saturating_add(moved_us);
        due_us.saturating_sub(cycle_us * CYCLES_BEFORE_EPOCH + jitter_us) / MICROS_PER_S
    }

    pub(crate) fn write_etag(&self, version: u64, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend((0..16).rev().map(|place| HEX_DIGITS[(self.key >> (4 * place)) as usize & 15]));
        out.push(b'.');
        push_decimal(version, out);
        out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use proptest::prelude::*;

    const GOLDEN_FACTS: (u64, u64, bool) = (17_719_492_196_400_159_279, 3_585, true);

    fn polymix() -> Workload {
        Workload::builtin("polymix-4").unwrap().unwrap()
    }

    fn name(kind: u8, number: u64) -> ObjectName {
        ObjectName { world: 1, kind, number, size: None }
    }

    proptest! {
        #[test]
        fn versions_follow_each_other(
            seed: u64, kind in 0_u8..4, number: u64, now_s in 1_600_000_000_u64..4_000_000_000,
        ) {
            let facts = polymix().facts(seed, &name(kind, number));
            let version = facts.version_at(now_s * MICROS_PER_S);
            prop_assert!(version.modified_s <= now_s && now_s < version.expires_s);
            prop_assert_eq!(facts.version(version.number), version);
            let at_birth = facts.version_at(version.modified_s * MICROS_PER_S);
            prop_assert_eq!(at_birth, version);
            let before_end = facts.version_at(version.expires_s * MICROS_PER_S - 1);
            prop_assert_eq!(before_end, version);
            let next = facts.version_at(version.expires_s * MICROS_PER_S);
            prop_assert_eq!((next.number, next.modified_s), (version.number + 1, version.expires_s));
        }

        #[test]
        fn the_fastest_lives_keep_their_order(key: u64, now_us in 1_600_000_000_000_000_u64..4_000_000_000_000_000) {
            let life = Life { cycle_us: CYCLE_US_MIN, phase_us: key % CYCLE_US_MIN, jitter_us: CYCLE_US_MIN / 4 };
            let facts = Facts { size_bytes: 1, cachable: true, kind: 0, key, compressible: false, life };
            let version = facts.version_at(now_us);
            prop_assert!(version.modified_s < version.expires_s);
            prop_assert!(version.modified_s * MICROS_PER_S <= now_us && now_us < version.expires_s * MICROS_PER_S);
        }
    }

    #[test]
    fn cycles_are_those_of_the_file() {
        let workload = polymix();
        let days = |kind: u8| -> f64 {
            let cycles = (0..20_000)
                .map(|number| workload.facts(7, &name(kind, number)).life.cycle_us as f64);
            cycles.sum::<f64>() / 20_000.0 / 86_400e6
        };
        assert!((days(0) - 30.0).abs() < 0.3, "images: {}", days(0));
        assert!((days(1) - 7.0).abs() < 0.1, "HTML: {}", days(1));
        assert!((days(3) - 183.0).abs() < 3.0, "other: {}", days(3));
    }

    #[test]
    fn sizes_and_cachability_are_those_of_the_file() {
        let workload = polymix();
        for (kind, bytes, cachable_share) in
            [(0, 4_608.0, 0.80), (1, 8_704.0, 0.90), (2, 307_200.0, 0.95), (3, 25_600.0, 0.72)]
        {
            let facts: Vec<Facts> =
                (0..50_000).map(|number| workload.facts(3, &name(kind, number))).collect();
            let mean = facts.iter().map(|facts| facts.size_bytes as f64).sum::<f64>() / 50_000.0;
            let cachable = facts.iter().filter(|facts| facts.cachable).count() as f64 / 50_000.0;
            assert!((mean / bytes - 1.0).abs() < 0.02, "type {kind}: {mean} B");
            assert!((cachable - cachable_share).abs() < 0.01, "type {kind}: {cachable}");
        }
    }

    #[test]
    fn facts_of_old_runs_stay_true() {
        // These numbers must never change: robots and origins of different builds must agree.
        let facts = polymix().facts(42, &name(0, 4_711));
        assert_eq!((facts.key, facts.size_bytes, facts.cachable), GOLDEN_FACTS);
    }

    #[test]
    fn etags_name_object_and_version() {
        let facts = polymix().facts(1, &name(2, 9));
        let mut tag = Vec::new();
        Workload::etag(&facts, 1_234, &mut tag);
        assert_eq!(tag, format!("\"{:016x}.1234\"", facts.key).into_bytes());
        assert_eq!(Workload::parse_etag(&tag), Some((facts.key, 1_234)));
        assert_eq!(
            Workload::parse_etag(&[b"W/", tag.as_slice()].concat()),
            Some((facts.key, 1_234))
        );
        for wrong in [
            "",
            "\"",
            "\"\"",
            "\"0123456789abcdef\"",
            "\"0123456789abcdef.\"",
            "\"+123456789abcdef.1\"",
            "x",
        ] {
            assert_eq!(Workload::parse_etag(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn unknown_kinds_and_explicit_sizes() {
        let workload = polymix();
        let strange = name(200, 1);
        assert!(!workload.knows(&strange));
        assert!(!workload.facts(1, &strange).cachable);
        let sized = ObjectName { size: Some(77), ..name(1, 1) };
        assert_eq!(workload.facts(1, &sized).size_bytes, 77);
        assert_ne!(workload.facts(1, &sized).key, workload.facts(1, &name(1, 1)).key);
    }
}
