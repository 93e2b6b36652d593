//! A run in a few figures, at any moment of it.

use crate::controller::WARM_UP_SAMPLES;
use crate::search::UNDER_CEILING;
use crate::{flatness, steadiness, stored};
use humboldt_lab_record::{
    Held, LAST_QUARTER, Run, SPOILED_SHARE_MAX, Sample, Summary, Tally, TimesSummary,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// A cache that answers less than this share of its good moments does not sustain that rate.
const STEADY_SHARE_MIN: f64 = 0.8;

/// A load of at least this share of the sustained one that was too much is its limit.
const NEAR_LIMIT: f64 = 0.8;

/// A level is held if it was sustained in this many samples in a row.
const HELD_SAMPLES_MIN: u32 = 2;

/// Most levels that a summary lists.
const HELD_MAX: usize = 10;

/// Loads that differ by less than this share are one level.
const SAME_LEVEL: f64 = 0.001;

/// Fills `total`, `last_quarter` and `summary` from the samples, and from those of the curve what
/// was wrong in them.
///
/// The last quarter are the samples whose fill ratio is at least 0.75 of the last one's; if nothing
/// was filled, the last quarter of the samples; at least one. A run without samples gets an empty
/// summary.
pub fn summarise(run: &mut Run) {
    let quarter = last_quarter(&run.samples);
    run.total = merged(run.samples.iter());
    run.curve_samples.iter().for_each(|sample| run.total.add_faults_of(&sample.tally));
    // A spoiled sample says nothing, so it is in no figure, unless there are no others.
    let judged = &run.samples[quarter.clone()];
    let good = || judged.iter().filter(|sample| !sample.is_spoiled());
    run.last_quarter = if good().next().is_some() { merged(good()) } else { merged(judged.iter()) };
    run.summary = summary(&run.samples, quarter, &run.total, &run.last_quarter);
    run.summary.stored_ratio = stored::ratio(&run.samples, run.plan.cache_bytes);
}

/// How many samples of the last quarter say something: those that nothing spoiled.
#[must_use]
pub fn samples_that_count(samples: &[Sample]) -> usize {
    let says_something = |sample: &&Sample| !sample.is_spoiled() && !sample.verdict.unjudged;
    samples[last_quarter(samples)].iter().filter(says_something).count()
}

fn summary(samples: &[Sample], quarter: Range<usize>, total: &Tally, last: &Tally) -> Summary {
    let judged = &samples[quarter.clone()];
    let plain = last.hits.answers + last.misses.answers;
    let plain_bytes = last.hits.body_bytes + last.misses.body_bytes;
    let (lab_limited_share, lab_limited) = lab_limited(judged);
    let held = held(samples);
    let sustained_per_s =
        sustained_per_s(judged).filter(|_| lab_limited_share <= SPOILED_SHARE_MAX);
    let held_per_s = held.first().map_or(0.0, |held| held.load_per_s);
    Summary {
        from_fill_ratio: judged.first().map_or(0.0, fill_ratio),
        to_fill_ratio: judged.last().map_or(0.0, fill_ratio),
        samples: u32::try_from(judged.len()).unwrap_or(u32::MAX),
        throughput_per_s: throughput_per_s(judged.iter().filter(|sample| !sample.is_spoiled()))
            .or_else(|| throughput_per_s(judged.iter()))
            .unwrap_or(0.0),
        sustained_per_s,
        limit_reached: Some(
            is_limit_reached(samples, sustained_per_s.unwrap_or(held_per_s))
                && !is_kept_by_laboratory(judged),
        ),
        held,
        response: TimesSummary::from(&last.response()),
        hits: TimesSummary::from(&last.hits.response),
        misses: TimesSummary::from(&last.misses.response),
        hits_added: TimesSummary::from(&last.hits.added),
        misses_added: TimesSummary::from(&last.misses.added),
        hit_ratio: ratio(last.hits.answers, plain),
        byte_hit_ratio: ratio(last.hits.body_bytes, plain_bytes),
        // An offered hit is counted when it is asked, so a few may belong to answers of the next
        // sample.
        offered_hit_ratio: ratio(last.offered_hits, plain).min(1.0),
        faults: total.faults_total(),
        wrong_content: total
            .faults
            .iter()
            .filter(|(kind, _)| kind.is_wrong_content())
            .map(|(_, n)| n)
            .sum(),
        cpu_us_per_answer: cpu_us_per_answer(samples, quarter.clone()),
        resident_bytes_max: samples
            .iter()
            .filter_map(|s| s.resources)
            .map(|r| r.resident_bytes)
            .max(),
        flatness: flatness::of(samples),
        steadiness: steadiness::of(judged),
        stored_ratio: None,
        written_per_stored: stored::written_per_stored(samples, quarter.clone()),
        written_per_offered: stored::written_per_offered(samples, quarter),
        resident_bytes_per_object: stored::resident_bytes_per_object(samples),
        lab_limited_share,
        lab_limited,
    }
}

/// The rate in the samples that were judged sustained; none if it does not hold over the quarter as
/// a whole.
fn sustained_per_s(judged: &[Sample]) -> Option<f64> {
    let all_per_s = throughput_per_s(judged.iter().filter(|sample| !sample.is_spoiled()))?;
    let good_per_s = throughput_per_s(judged.iter().filter(|sample| sample.verdict.sustained))?;
    (all_per_s >= good_per_s * STEADY_SHARE_MIN).then_some(good_per_s)
}

/// Whether a load near `per_s`, or a higher one, was too much for the subject.
fn is_limit_reached(samples: &[Sample], per_s: f64) -> bool {
    samples.iter().skip(WARM_UP_SAMPLES as usize).any(|sample| {
        let verdict = &sample.verdict;
        let was_too_much = !verdict.sustained && !verdict.unjudged && !sample.is_spoiled();
        was_too_much && sample.load_per_s >= per_s * NEAR_LIMIT
    })
}

/// Whether the laboratory's limit has kept the load where it was more often than the subject's. A
/// busy host keeps the search low, and now and then makes one sample too slow as well.
fn is_kept_by_laboratory(judged: &[Sample]) -> bool {
    let fair = || judged.iter().filter(|sample| !sample.is_spoiled() && !sample.verdict.unjudged);
    let too_much = fair().filter(|sample| !sample.verdict.sustained).count();
    fair().filter(|sample| sample.verdict.state == UNDER_CEILING).count() > too_much
}

/// The levels that were held, the highest first.
fn held(samples: &[Sample]) -> Vec<Held> {
    let is_same = |a: f64, b: f64| (a - b).abs() <= b * SAME_LEVEL;
    let in_a_row = samples.chunk_by(|a, b| {
        is_same(a.load_per_s, b.load_per_s) && a.verdict.sustained == b.verdict.sustained
    });
    let mut held: Vec<Held> = Vec::new();
    for level in in_a_row.filter(|level| level.iter().all(|sample| sample.verdict.sustained)) {
        let (Some(last), samples) = (level.last(), u32::try_from(level.len()).unwrap_or(u32::MAX))
        else {
            continue;
        };
        if samples >= HELD_SAMPLES_MIN && last.load_per_s.is_finite() {
            held.push(Held {
                load_per_s: last.load_per_s,
                throughput_per_s: throughput_per_s(level.iter()).unwrap_or(0.0),
                samples,
                fill_ratio: fill_ratio(last),
            });
        }
    }
    held.sort_by(|a, b| b.load_per_s.total_cmp(&a.load_per_s));
    held.truncate(HELD_MAX);
    held
}

fn last_quarter(samples: &[Sample]) -> Range<usize> {
    let end = samples.len();
    let reached = samples.iter().map(fill_ratio).fold(0.0, f64::max);
    let start = if reached > 0.0 {
        // Fill never sinks, so those from the first on are all of them.
        samples.iter().position(|sample| fill_ratio(sample) >= reached * LAST_QUARTER)
    } else {
        Some(end - end.div_ceil(4))
    };
    start.unwrap_or(end)..end
}

fn fill_ratio(sample: &Sample) -> f64 {
    if sample.fill_ratio.is_finite() { sample.fill_ratio } else { 0.0 }
}

pub(crate) fn merged<'a>(samples: impl Iterator<Item = &'a Sample>) -> Tally {
    let mut sum = Tally::default();
    samples.for_each(|sample| sum.merge_later(&sample.tally));
    sum
}

/// Right answers per second of all these samples together; `None` without samples.
pub(crate) fn throughput_per_s<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<f64> {
    let (answers, period_us) = samples.fold((0, 0), |(answers, period_us), sample| {
        (answers + sample.tally.answers(), period_us + sample.tally.period_us)
    });
    (period_us > 0).then(|| answers as f64 * 1e6 / period_us as f64)
}

/// The first and the last sample of the quarter, or the one before it, at whose end the subject was
/// watched.
pub(crate) fn watched(samples: &[Sample], quarter: Range<usize>) -> Option<(usize, usize)> {
    let first = quarter.start.saturating_sub(1);
    let mut watched = (first..quarter.end).filter(|index| samples[*index].resources.is_some());
    Some((watched.next()?, watched.next_back()?))
}

/// CPU time between the first and the last moment at which the subject was watched, by the answers
/// between them. The sample before the quarter is the better beginning, if there is one.
fn cpu_us_per_answer(samples: &[Sample], quarter: Range<usize>) -> Option<f64> {
    let (begin, end) = watched(samples, quarter)?;
    let cpu_us = |index: usize| samples[index].resources.map(|r| r.cpu.user_us + r.cpu.system_us);
    let answers: u64 = samples[begin + 1..=end].iter().map(|sample| sample.tally.answers()).sum();
    // A subject that was restarted counts from zero: then there is no difference to take.
    let used_us = cpu_us(end)?.checked_sub(cpu_us(begin)?)?;
    (answers > 0).then(|| used_us as f64 / answers as f64)
}

/// In which share of the samples the laboratory was the limit, and the commonest reason: the latest
/// of those that differ only in their figures.
fn lab_limited(samples: &[Sample]) -> (f64, Option<String>) {
    let mut reasons: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for reason in samples.iter().filter_map(|sample| sample.lab_limited.as_deref()) {
        let kind = reason.chars().filter(|c| c.is_alphabetic()).collect();
        let entry = reasons.entry(kind).or_insert((0, reason));
        *entry = (entry.0 + 1, reason);
    }
    let limited: usize = reasons.values().map(|(count, _)| count).sum();
    let commonest = reasons.into_values().max_by_key(|(count, _)| *count);
    (ratio(limited as u64, samples.len() as u64), commonest.map(|(_, reason)| reason.to_owned()))
}

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{FaultKind, ProcessorTimes, Resources};

    /// A second with `answers` of 10 ms.
    fn sample(fill_ratio: f64, answers: u64, sustained: bool) -> Sample {
        let mut sample = Sample { fill_ratio, ..Sample::default() };
        sample.tally.period_us = 1_000_000;
        sample.verdict.sustained = sustained;
        for index in 0..answers {
            let class =
                if index % 2 == 0 { &mut sample.tally.hits } else { &mut sample.tally.misses };
            class.add(100, 10_000, 5_000);
        }
        sample
    }

    fn watched(mut sample: Sample, cpu_us: u64, resident_bytes: u64) -> Sample {
        let cpu = ProcessorTimes { user_us: cpu_us / 2, system_us: cpu_us / 2 };
        sample.resources = Some(Resources { cpu, resident_bytes, ..Resources::default() });
        sample
    }

    fn summarised(samples: Vec<Sample>) -> Run {
        let mut run = Run { samples, ..Run::default() };
        summarise(&mut run);
        run
    }

    #[test]
    fn the_last_quarter_is_from_three_quarters_of_the_fill_on() {
        let run = summarised(vec![
            sample(0.5, 900, true),
            sample(1.4, 900, true),
            sample(1.5, 100, true),
            sample(1.8, 200, false),
            sample(2.0, 300, true),
        ]);
        let summary = &run.summary;
        assert_eq!(
            (summary.samples, summary.from_fill_ratio, summary.to_fill_ratio),
            (3, 1.5, 2.0)
        );
        assert_eq!(summary.throughput_per_s, 200.0);
        assert_eq!(summary.sustained_per_s, Some(200.0));
        assert_eq!(summary.hit_ratio, 0.5);
        assert_eq!(
            (summary.response.count, summary.hits.mean_ms, summary.hits_added.mean_ms),
            (600, 10.0, 5.0)
        );
        assert_eq!((run.total.answers(), run.last_quarter.answers()), (2_400, 600));
    }

    #[test]
    fn a_good_moment_among_stalls_is_not_what_a_cache_sustains() {
        let mut samples = vec![sample(1.9, 1_000, true)];
        samples.extend((0..9).map(|_| sample(2.0, 0, false)));
        let summary = summarised(samples).summary;
        assert_eq!((summary.throughput_per_s, summary.sustained_per_s), (100.0, None));
    }

    /// The same at this load.
    fn at(load_per_s: f64, sample: Sample) -> Sample {
        Sample { load_per_s, ..sample }
    }

    fn spoiled(mut sample: Sample) -> Sample {
        sample.lab_limited = Some("the host was busy".into());
        sample.verdict.unjudged = true;
        sample
    }

    #[test]
    fn a_search_that_never_met_its_limit_says_so() {
        let limit_reached = |samples: &[Sample]| summarised(samples.to_vec()).summary.limit_reached;
        // A cold beginning is no limit of what is sustained at the end.
        let mut samples = vec![at(222.0, sample(0.1, 222, false))];
        samples.extend((15..=20).map(|tenth| {
            let load_per_s = 1_000.0 * f64::from(tenth);
            at(load_per_s, sample(f64::from(tenth) / 10.0, load_per_s as u64, true))
        }));
        assert_eq!(limit_reached(&samples), Some(false));
        let too_much = at(21_000.0, sample(2.0, 18_000, false));
        samples.push(spoiled(too_much.clone()));
        assert_eq!(
            limit_reached(&samples),
            Some(false),
            "the laboratory's limit is not the cache's"
        );
        samples.push(too_much);
        assert_eq!(limit_reached(&samples), Some(true));
    }

    /// As on a host that was busy for a tenth of the time: the search stayed at an eighth of what
    /// the cache could do, and one sample of a hundred was a little too slow.
    #[test]
    fn a_search_that_the_laboratory_kept_low_has_not_met_the_caches_limit() {
        let limit_reached = |samples: &[Sample]| summarised(samples.to_vec()).summary.limit_reached;
        let kept = |tenth: u32| {
            let mut sample = at(420.0, sample(f64::from(tenth) / 10.0, 420, true));
            sample.verdict.state = UNDER_CEILING.into();
            sample
        };
        let mut samples: Vec<_> = (1..=20).map(kept).collect();
        samples.push(at(420.0, sample(2.0, 420, false)));
        assert_eq!(limit_reached(&samples), Some(false));
        for sample in &mut samples {
            sample.verdict.state = "hold".into();
        }
        assert_eq!(limit_reached(&samples), Some(true));
    }

    #[test]
    fn spoiled_samples_do_not_count_and_levels_that_were_held_are_kept() {
        let mut samples =
            vec![at(500.0, sample(1.0, 500, true)), at(500.0, sample(1.2, 500, true))];
        samples.extend((0..3).map(|_| at(500.0, sample(2.0, 500, true))));
        samples.push(at(500.0, spoiled(sample(2.0, 10, false))));
        let summary = summarised(samples.clone()).summary;
        assert_eq!(summary.sustained_per_s, Some(500.0));
        let held = summary.held.first().copied().unwrap();
        assert_eq!((held.load_per_s, held.throughput_per_s, held.samples), (500.0, 500.0, 5));
        samples.extend((0..3).map(|_| at(500.0, spoiled(sample(2.0, 10, false)))));
        let summary = summarised(samples).summary;
        assert_eq!((summary.sustained_per_s, summary.held.len()), (None, 1));
    }

    #[test]
    fn what_was_wrong_during_the_curve_counts_and_nothing_else_of_it() {
        let mut wrong = sample(2.0, 50, true);
        wrong.tally.faults.insert(FaultKind::WrongByte, 3);
        let mut run = Run { curve_samples: vec![wrong], ..Run::default() };
        run.samples.push(sample(2.0, 100, true));
        summarise(&mut run);
        assert_eq!((run.summary.wrong_content, run.summary.faults), (3, 3));
        assert_eq!((run.total.answers(), run.last_quarter.faults_total()), (100, 0));
    }

    #[test]
    fn a_run_that_filled_nothing_is_judged_by_its_last_samples() {
        let run = summarised((1..=9).map(|index| sample(0.0, index * 10, false)).collect());
        assert_eq!((run.summary.samples, run.summary.throughput_per_s), (3, 80.0));
        assert_eq!(run.summary.sustained_per_s, None);
    }

    #[test]
    fn a_run_without_anything_has_a_summary_of_zeros() {
        for samples in [Vec::new(), vec![Sample::default()], vec![sample(f64::NAN, 0, true)]] {
            let summary = summarised(samples).summary;
            let ratios = [
                summary.throughput_per_s,
                summary.hit_ratio,
                summary.byte_hit_ratio,
                summary.offered_hit_ratio,
                summary.lab_limited_share,
                summary.from_fill_ratio,
                summary.response.mean_ms,
            ];
            assert_eq!(ratios, [0.0; 7]);
            assert_eq!((summary.cpu_us_per_answer, summary.resident_bytes_max), (None, None));
        }
    }

    #[test]
    fn cpu_per_answer_comes_from_differences() {
        let samples = vec![
            watched(sample(1.0, 100, true), 1_000, 70),
            watched(sample(1.8, 100, true), 3_000, 90),
            sample(1.9, 100, true),
            watched(sample(2.0, 100, true), 10_000, 80),
        ];
        let mut run = summarised(samples);
        assert_eq!(run.summary.cpu_us_per_answer, Some(30.0));
        assert_eq!(run.summary.resident_bytes_max, Some(90));

        // Restarted: its CPU time began again.
        run.samples[3] = watched(sample(2.0, 100, true), 500, 80);
        summarise(&mut run);
        assert_eq!(run.summary.cpu_us_per_answer, None);
    }

    #[test]
    fn faults_are_those_of_the_whole_run_and_the_commonest_reason_of_the_lab_is_named() {
        let mut samples = vec![
            sample(0.1, 10, true),
            sample(1.9, 10, true),
            sample(1.95, 10, true),
            sample(2.0, 10, true),
        ];
        samples[0].tally.faults.insert(FaultKind::Stale, 2);
        samples[3].tally.faults.insert(FaultKind::TimedOut, 3);
        samples[1].lab_limited = Some("robots use 96 % of their cores".into());
        samples[2].lab_limited = Some("origins late".into());
        samples[3].lab_limited = Some("robots use 99 % of their cores".into());
        samples[0].lab_limited = Some("not in the last quarter".into());
        let summary = summarised(samples).summary;
        assert_eq!((summary.faults, summary.wrong_content), (5, 2));
        assert_eq!(summary.lab_limited_share, 1.0);
        assert_eq!(summary.lab_limited.as_deref(), Some("robots use 99 % of their cores"));
    }
}
