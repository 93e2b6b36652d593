//! A run that never took place, for looking at the pages and for the tests. Nothing of it was
//! measured.

use humboldt_lab_record::{
    Fault, FaultKind, FaultSample, KindTally, Manifest, OriginTally, Outcome, ProcessorTimes,
    Resources, Run, Sample, Summary, Tally, TimesSummary, Verdict,
};

/// Mean size of an answer in bytes, and how many stand for a sample's answers in its histograms.
const OBJECT_BYTES: f64 = 10_700.0;
const DRAWN_ANSWERS: u32 = 400;
const SAMPLE_S: f64 = 6.0;

/// Numbers between 0 and 1 that are always the same.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, with mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// A plausible course until the cache was filled twice, or of `samples_max` samples: the load
/// climbs to the capacity, which sinks when the cache is full.
pub(crate) fn run(
    subject: &str,
    variant: &str,
    capacity_per_s: f64,
    cache_bytes: u64,
    samples_max: u32,
    seed: u64,
) -> Run {
    let mut chance = Chance(seed);
    let mut run = Run { format: 1, started_s: 1_763_769_600 + seed * 3600, ..Run::default() };
    plan(&mut run, subject, variant, seed);
    run.plan.cache_bytes = cache_bytes.max(1);
    run.calibration = Some(capacity_per_s * 6.0);
    let mut used = Resources { at_us: run.started_s * 1_000_000, ..Resources::default() };
    let (mut load, mut fill) = (capacity_per_s / 3.0, 0.0);
    for index in 0..samples_max {
        if fill >= 2.0 {
            break;
        }
        let limit =
            capacity_per_s * if fill < 1.0 { 1.0 } else { 0.8 } * (1.0 + 0.02 * chance.normal());
        let (tally, overload) = tally(load, limit, fill, &mut chance);
        fill += tally.fill_bytes as f64 / run.plan.cache_bytes as f64;
        let next = if overload { load * 0.93 } else { load * if index < 12 { 1.12 } else { 1.02 } };
        use_resources(&mut used, &tally, index);
        let state = if overload { "back off" } else { "climb" };
        let reason =
            if overload { "p95 added to hits 312 ms > 250 ms" } else { "all within limits" };
        let mut sample = Sample {
            index,
            at_s: f64::from(index + 1) * SAMPLE_S,
            load_per_s: load,
            fill_ratio: fill,
            origin: origin(&tally),
            tally,
            resources: Some(used),
            verdict: Verdict {
                next_load_per_s: next,
                sustained: !overload,
                unjudged: false,
                state: state.to_owned(),
                reason: reason.to_owned(),
            },
            lab_limited: None,
            ..Sample::default()
        };
        sample.compact();
        run.samples.push(sample);
        load = next;
    }
    summarise(&mut run);
    run
}

fn plan(run: &mut Run, subject: &str, variant: &str, seed: u64) {
    run.plan.subject = subject.to_owned();
    run.plan.variant = variant.to_owned();
    run.plan.workload = "synthetic".to_owned();
    run.plan.workload_text = "# A synthetic example: nothing here was measured.\n".to_owned();
    run.plan.controller = "robust".to_owned();
    run.plan.settings = vec![
        ("hits added, p95".to_owned(), "250 ms".to_owned()),
        ("misses added, p95".to_owned(), "500 ms".to_owned()),
        ("mean response".to_owned(), "3.00 s".to_owned()),
        ("step".to_owned(), "2 %".to_owned()),
    ];
    run.plan.seed = seed;
    run.plan.time_scale = 0.1;
    run.plan.goal.fill_ratio = 2.0;
    run.plan.sample_s = SAMPLE_S;
    run.plan.ideal_hit_ratio = 0.58;
    run.manifest = Manifest {
        lab_version: "synthetic".to_owned(),
        facts: vec![
            ("Kernel".to_owned(), "none: this run is synthetic".to_owned()),
            ("Processor".to_owned(), "none: this run is synthetic".to_owned()),
        ],
        files: [("squid.conf".to_owned(), "cache_dir aufs /cache 1024 16 256\n".to_owned())].into(),
        skipped: vec!["drop of page caches needs root".to_owned()],
        ..Manifest::default()
    };
}

fn tally(load: f64, limit: f64, fill: f64, chance: &mut Chance) -> (Tally, bool) {
    let overload = load > limit;
    let answered = (load.min(limit) * SAMPLE_S).max(1.0);
    let warm = (fill * 3.0).min(1.0);
    let hit_share = 0.9 * 0.575 * warm * (1.0 + 0.02 * chance.normal());
    let queue_ms = if overload { 60.0 } else { 2.0 / (1.02 - (load / limit).min(1.0)) };
    let mut tally = Tally { period_us: (SAMPLE_S * 1e6) as u64, ..Tally::default() };
    for _ in 0..DRAWN_ANSWERS {
        let wait = -queue_ms * chance.next().max(1e-9).ln();
        let kind = chance.next();
        let bytes = (-OBJECT_BYTES * chance.next().max(1e-9).ln()) as u64;
        let think = (250.0 + 100.0 * chance.normal()).max(1.0);
        let us = |ms: f64| (ms * 1e3) as u64;
        if kind > 0.9 {
            tally.others.add(bytes, us(wait + think + 1.0), us(wait + 1.0));
        } else if kind < hit_share {
            tally.hits.add(bytes, us(wait + 0.4), us(wait + 0.4));
        } else {
            tally.misses.add(bytes, us(wait + think + 0.9), us(wait + 0.9));
        }
    }
    let factor = answered / f64::from(DRAWN_ANSWERS);
    let scaled = |count: u64| (count as f64 * factor).round() as u64;
    for class in [&mut tally.hits, &mut tally.misses, &mut tally.others] {
        class.answers = scaled(class.answers);
        class.body_bytes = scaled(class.body_bytes);
    }
    let plain = tally.hits.answers + tally.misses.answers;
    tally.offered_hits = (plain as f64 * 0.58 * warm.max(0.2)) as u64;
    tally.offered_hit_bytes = (tally.offered_hits as f64 * OBJECT_BYTES * 1.02) as u64;
    tally.fill_bytes = (tally.misses.body_bytes as f64 * 0.62) as u64;
    tally.due = (load * SAMPLE_S) as u64;
    tally.sent = tally.due;
    tally.backlog = if overload { (load * 0.4) as u64 } else { (load * 0.15) as u64 };
    tally.waiting = if overload { tally.backlog / 2 } else { 0 };
    tally.connections = (load * 0.5) as u64;
    tally.connects = (load * SAMPLE_S * 0.07) as u64;
    tally.cpu_us = (answered * 45.0) as u64;
    tally.threads = 1;
    (1..50).for_each(|us| tally.lag.record_us(us * 4));
    kinds(&mut tally);
    (tally, overload)
}

fn kinds(tally: &mut Tally) {
    let (answers, hits, bytes) = (tally.answers(), tally.hits.answers, tally.body_bytes());
    let part = |share: f64| KindTally {
        answers: (answers as f64 * share) as u64,
        hits: (hits as f64 * share) as u64,
        body_bytes: (bytes as f64 * share) as u64,
    };
    tally.by_type = [("image", 0.65), ("html", 0.15), ("download", 0.005), ("other", 0.195)]
        .map(|(name, share)| (name.to_owned(), part(share)))
        .into();
    let others = KindTally { hits: 0, ..part(0.05) };
    tally.by_kind =
        [("plain", part(0.8)), ("ims_304", part(0.1)), ("ims_200", others), ("reload", others)]
            .map(|(name, part)| (name.to_owned(), part))
            .into();
}

fn origin(tally: &Tally) -> OriginTally {
    let mut origin = OriginTally {
        period_us: tally.period_us,
        requests: tally.misses.answers + tally.others.answers,
        body_bytes: tally.misses.body_bytes + tally.others.body_bytes,
        cpu_us: tally.cpu_us / 2,
        threads: 1,
        ..OriginTally::default()
    };
    (1..50).for_each(|us| origin.lag.record_us(us * 7));
    origin
}

fn use_resources(used: &mut Resources, tally: &Tally, index: u32) {
    let answers = tally.answers();
    used.at_us += tally.period_us;
    used.processes = 2;
    used.threads = 34;
    used.cpu = ProcessorTimes {
        user_us: used.cpu.user_us + answers * 90,
        system_us: used.cpu.system_us + answers * 140,
    };
    used.resident_bytes = (60 << 20) + u64::from(index.min(60)) * (3 << 20);
    used.anonymous_bytes = used.resident_bytes - (20 << 20);
    used.shared_bytes = 8 << 20;
    used.minor_faults += answers / 3;
    used.descriptors = 40 + u32::try_from(tally.connections).unwrap_or(u32::MAX);
    used.voluntary_switches += answers * 2;
    used.involuntary_switches += answers / 20;
    used.device_writes += answers / 4;
    used.device_reads += answers / 5;
    used.device_write_bytes += tally.fill_bytes;
    used.device_read_bytes += tally.hits.body_bytes / 2;
}

fn summarise(run: &mut Run) {
    let end = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    let mut sustained = Vec::new();
    for sample in &run.samples {
        run.total.merge_later(&sample.tally);
        if sample.fill_ratio >= 0.75 * end {
            run.last_quarter.merge_later(&sample.tally);
            run.summary.samples += 1;
            sustained.extend(sample.verdict.sustained.then(|| sample.throughput_per_s()));
        }
    }
    let last = &run.last_quarter;
    let seconds = (last.period_us as f64 / 1e6).max(1e-9);
    let plain = (last.hits.answers + last.misses.answers).max(1) as f64;
    let plain_bytes = (last.hits.body_bytes + last.misses.body_bytes).max(1) as f64;
    run.summary = Summary {
        from_fill_ratio: 0.75 * end,
        to_fill_ratio: end,
        throughput_per_s: last.answers() as f64 / seconds,
        sustained_per_s: (!sustained.is_empty())
            .then(|| sustained.iter().sum::<f64>() / sustained.len() as f64),
        limit_reached: Some(true),
        response: TimesSummary::from(&last.response()),
        hits: (&last.hits.response).into(),
        misses: (&last.misses.response).into(),
        hits_added: (&last.hits.added).into(),
        misses_added: (&last.misses.added).into(),
        hit_ratio: last.hits.answers as f64 / plain,
        byte_hit_ratio: last.hits.body_bytes as f64 / plain_bytes,
        offered_hit_ratio: last.offered_hits as f64 / plain,
        cpu_us_per_answer: Some(230.0),
        resident_bytes_max: run
            .samples
            .iter()
            .filter_map(|s| s.resources.map(|now| now.resident_bytes))
            .max(),
        ..run.summary.clone()
    };
    run.outcome = if end >= run.plan.goal.fill_ratio { Outcome::Filled } else { Outcome::TimeUp };
}

/// Adds wrong answers and a laboratory that was too slow to a run.
pub(crate) fn spoil(run: &mut Run, url: &str, got: &str) {
    for (kind, offset) in [(FaultKind::WrongByte, Some(4096)), (FaultKind::TimedOut, None)] {
        let expected =
            if offset.is_some() { "8f 0a 11 c3 5e 90 7b 02" } else { "an answer within 30 s" };
        let fault = Fault { kind, offset, expected: expected.to_owned(), got: got.to_owned() };
        run.total.add_fault(FaultSample {
            at_us: run.started_s * 1_000_000,
            url: url.to_owned(),
            fault,
        });
    }
    run.summary.faults = 2;
    run.summary.wrong_content = 1;
    run.summary.lab_limited_share = 0.35;
    run.summary.lab_limited = Some("the robots' threads were busy 97 % of the time".to_owned());
}
