//! The part of what could have been stored that was, and its cost in writes and memory.

use crate::summary::watched;
use humboldt_lab_record::{Resources, Sample};
use std::ops::Range;

/// From fewer new objects nothing follows about the memory of one.
const OBJECTS_MIN: u64 = 1_000;

/// Bytes of the store at the end ÷ cache size; `None` if the subject does not say it.
pub(crate) fn ratio(samples: &[Sample], cache_bytes: u64) -> Option<f64> {
    let last = samples.iter().rev().find_map(|sample| sample.resources?.stored_bytes)?;
    (cache_bytes > 0).then(|| last as f64 / cache_bytes as f64)
}

/// Growth of the bytes that the disks wrote: those of the store's own devices, if they did anything
/// in the whole run, otherwise those that the processes caused.
fn written(samples: &[Sample], quarter: Range<usize>) -> Option<u64> {
    let has_devices = samples
        .iter()
        .filter_map(|sample| sample.resources)
        .any(|now| now.device_reads + now.device_writes > 0);
    growth(samples, quarter, |now| {
        Some(if has_devices { now.device_write_bytes } else { now.write_bytes })
    })
}

/// Growth of a figure between the ends of a quarter; `None` if it is not known, or sank because
/// the subject was restarted.
fn growth(
    samples: &[Sample],
    quarter: Range<usize>,
    of: impl Fn(&Resources) -> Option<u64>,
) -> Option<u64> {
    let (begin, end) = watched(samples, quarter)?;
    let at = |index: usize| samples[index].resources.as_ref().and_then(&of);
    at(end)?.checked_sub(at(begin)?)
}

/// Bytes written in the quarter ÷ bytes of the objects that the subject stored in it, where it
/// counts them.
pub(crate) fn written_per_stored(samples: &[Sample], quarter: Range<usize>) -> Option<f64> {
    let written = written(samples, quarter.clone())?;
    let taken = growth(samples, quarter, |now| now.taken_bytes)?;
    (taken > 0).then(|| written as f64 / taken as f64)
}

/// Bytes written in the quarter ÷ bytes that could have been stored in it. `None` without writes:
/// a subject that has no disk wears none.
pub(crate) fn written_per_offered(samples: &[Sample], quarter: Range<usize>) -> Option<f64> {
    let written = written(samples, quarter.clone())?;
    let (begin, end) = watched(samples, quarter)?;
    let bytes = |sample: &Sample| sample.tally.fill_bytes + sample.tally.refill_bytes;
    let offered: u64 = samples[begin + 1..=end].iter().map(bytes).sum();
    (written > 0 && offered > 0).then(|| written as f64 / offered as f64)
}

/// Growth of resident memory ÷ growth of the number of objects, from the first sample on; `None` if
/// the subject does not say how many it has, or has few more, or not more memory.
pub(crate) fn resident_bytes_per_object(samples: &[Sample]) -> Option<f64> {
    let known = |sample: &Sample| {
        let resources = sample.resources?;
        Some((resources.resident_bytes, resources.stored_objects?))
    };
    let (first_bytes, first_objects) = samples.iter().find_map(known)?;
    let (bytes, objects) = samples.iter().rev().find_map(known)?;
    let more = objects.checked_sub(first_objects).filter(|more| *more >= OBJECTS_MIN)?;
    let grown = bytes.checked_sub(first_bytes).filter(|grown| *grown > 0)?;
    Some(grown as f64 / more as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample after which this many bytes were written, stored, and are in this many objects.
    fn sample(offered: u64, written: u64, taken: Option<u64>, objects: Option<u64>) -> Sample {
        let resources = Resources {
            write_bytes: written,
            resident_bytes: 1_000_000 + 100 * objects.unwrap_or(0),
            taken_bytes: taken,
            stored_objects: objects,
            stored_bytes: objects.map(|objects| 1_000 * objects),
            ..Resources::default()
        };
        let mut sample = Sample { resources: Some(resources), ..Sample::default() };
        sample.tally.fill_bytes = offered;
        sample
    }

    #[test]
    fn writes_are_compared_with_what_was_stored_and_what_could_have_been() {
        let samples = [
            sample(500, 1_000, Some(500), Some(5_000)),
            sample(400, 1_600, Some(700), Some(9_000)),
            sample(400, 2_200, Some(900), Some(10_000)),
        ];
        assert_eq!(written_per_stored(&samples, 1..3), Some(3.0));
        assert_eq!(written_per_offered(&samples, 1..3), Some(1.5));
        assert_eq!(resident_bytes_per_object(&samples), Some(100.0));
        assert_eq!(ratio(&samples, 20_000_000), Some(0.5));
    }

    #[test]
    fn a_device_of_its_own_is_the_better_witness() {
        let mut samples = [sample(0, 10, Some(0), None), sample(100, 20, Some(100), None)];
        for (sample, bytes) in samples.iter_mut().zip([1_000, 1_250]) {
            let resources = sample.resources.as_mut().unwrap();
            (resources.device_writes, resources.device_write_bytes) = (bytes, bytes);
        }
        assert_eq!(written_per_stored(&samples, 1..2), Some(2.5));
    }

    #[test]
    fn the_witness_is_the_same_at_both_ends() {
        let mut samples = [sample(0, 1_000, Some(0), None), sample(100, 1_900, Some(100), None)];
        let resources = samples[1].resources.as_mut().unwrap();
        (resources.device_writes, resources.device_write_bytes) = (1, 250);
        assert_eq!(written_per_stored(&samples, 0..2), Some(2.5));
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        let samples = [sample(100, 0, None, None), sample(100, 0, None, Some(7))];
        assert_eq!(written_per_stored(&samples, 1..2), None);
        assert_eq!(written_per_offered(&samples, 1..2), None, "nothing was written");
        assert_eq!(resident_bytes_per_object(&samples), None, "seven objects say nothing");
        assert_eq!((ratio(&samples[..1], 100), ratio(&samples, 0)), (None, None));
    }
}
