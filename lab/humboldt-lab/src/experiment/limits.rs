//! Whether a sample shows the limits of the laboratory rather than of the subject.

use humboldt_lab_record::{OriginTally, Resources, Tally};
use humboldt_lab_subjects::Taken;

/// A thread that computes for more than this share of the time has no reserve for bursts.
const BUSY_MAX: f64 = 0.85;

/// Robots or origins that are later than this at the 95th percentile put their own lateness into
/// the response times.
const LAG_MAX_US: u64 = 5_000;

/// And only if the lateness is more than this share of the time that the cache added.
const LAG_SHARE: f64 = 0.2;

/// A cache between users and servers costs them more than no cache: nearer than this to the
/// calibrated capacity, the laboratory is the suspect.
const CAPACITY_SHARE_MAX: f64 = 0.9;

/// Others that have more than this share of the processors leave too little to the subject.
const FOREIGN_MAX: f64 = 0.1;

/// The same for the host of a virtual machine.
const STEAL_MAX: f64 = 0.05;

/// A subject that lacks more than this share of the processor that is asked for has another one.
const SHORT_MAX: f64 = 0.05;

/// A subject that uses less than this share of what it is allowed does not miss the rest.
const USED_MIN: f64 = 0.85;

/// Why the sample shows the laboratory, or its machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    MachineBusy(f64),
    HostBusy(f64),
    MachineSlow(f64),
    RobotsBusy(f64),
    OriginsBusy(f64),
    AllBusy(f64),
    RobotsLate(u64),
    OriginsLate(u64),
    Capacity(f64),
}

impl Limit {
    /// Whether it is the machine's, which may pass.
    pub(crate) fn is_of_machine(self) -> bool {
        matches!(self, Self::MachineBusy(_) | Self::HostBusy(_) | Self::MachineSlow(_))
    }

    /// A few words.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::MachineBusy(_) => "other processes were busy",
            Self::HostBusy(_) => "the host of this virtual machine was busy",
            Self::MachineSlow(_) => "the machine was slower than the CPU speed that is asked for",
            Self::RobotsBusy(_) => "its users were busy",
            Self::OriginsBusy(_) => "its servers were busy",
            Self::AllBusy(_) => "its processors were busy",
            Self::RobotsLate(_) => "its users were late",
            Self::OriginsLate(_) => "its servers were late",
            Self::Capacity(_) => "its capacity was reached",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self.short();
        match self {
            Self::RobotsBusy(share) | Self::OriginsBusy(share) | Self::AllBusy(share) => {
                write!(f, "{words} ({:.0} % of their CPU time)", share * 100.0)
            }
            Self::MachineSlow(share) => write!(f, "{words} ({:.0} % lacked)", share * 100.0),
            Self::MachineBusy(share) | Self::HostBusy(share) => {
                write!(f, "{words} ({:.0} % of the processors)", share * 100.0)
            }
            Self::RobotsLate(lag_us) | Self::OriginsLate(lag_us) => {
                write!(f, "{words} ({:.1} ms at the 95th percentile)", *lag_us as f64 / 1e3)
            }
            Self::Capacity(share) => {
                write!(f, "{words} ({:.0} % of its rate without a cache)", share * 100.0)
            }
        }
    }
}

/// The laboratory's own limit in this sample, without regard to its calibration.
pub(crate) fn of(robots: &Tally, origins: &OriginTally) -> Option<Limit> {
    let share = |cpu_us: u64, period_us: u64, threads: u32| {
        cpu_us as f64 / (period_us.max(1) as f64 * f64::from(threads.max(1)))
    };
    let robots_busy = share(robots.cpu_us, robots.period_us, robots.threads);
    let origins_busy = share(origins.cpu_us, origins.period_us, origins.threads);
    // Both have a thread on each of the same processors.
    let all_busy = share(
        robots.cpu_us + origins.cpu_us,
        robots.period_us,
        robots.threads.max(origins.threads),
    );
    if robots_busy > BUSY_MAX {
        return Some(Limit::RobotsBusy(robots_busy));
    }
    if origins_busy > BUSY_MAX {
        return Some(Limit::OriginsBusy(origins_busy));
    }
    if all_busy > BUSY_MAX {
        return Some(Limit::AllBusy(all_busy));
    }
    // A lateness that is a small part of the time that the cache added does not explain that time.
    let added = [&robots.hits.added, &robots.misses.added];
    let added_us = added.map(|times| times.percentile_us(95.0)).into_iter().max().unwrap_or(0);
    let explains = |lag_us: u64| lag_us > LAG_MAX_US && lag_us as f64 > added_us as f64 * LAG_SHARE;
    let robots_lag_us = robots.lag.percentile_us(95.0);
    if explains(robots_lag_us) {
        return Some(Limit::RobotsLate(robots_lag_us));
    }
    let origins_lag_us = origins.lag.percentile_us(95.0);
    explains(origins_lag_us).then_some(Limit::OriginsLate(origins_lag_us))
}

/// Whether others had too much of the processors.
pub(crate) fn of_machine(taken: Taken) -> Option<Limit> {
    if taken.steal > STEAL_MAX {
        return Some(Limit::HostBusy(taken.steal));
    }
    (taken.foreign > FOREIGN_MAX).then_some(Limit::MachineBusy(taken.foreign))
}

/// Whether the subject missed more of its processor than it may, in a period in which its resources
/// grew from `before` to `now`.
pub(crate) fn of_speed(before: &Resources, now: &Resources) -> Option<Limit> {
    let grown = |figure: fn(&Resources) -> u64| figure(now).saturating_sub(figure(before)) as f64;
    let allowed_us = grown(|at| at.allowed_cpu_us.unwrap_or(0));
    let short_us = grown(|at| at.short_cpu_us.unwrap_or(0));
    let used_us = grown(|at| at.cpu.user_us + at.cpu.system_us);
    let share = short_us / (allowed_us + short_us).max(1.0);
    (share > SHORT_MAX && used_us > allowed_us * USED_MIN).then_some(Limit::MachineSlow(share))
}

/// The limit of the machine or of the laboratory, or whether the sample came too near to the
/// laboratory's highest rate.
pub(crate) fn of_sample(
    robots: &Tally,
    origins: &OriginTally,
    calibration: Option<f64>,
    taken: Option<Taken>,
) -> Option<Limit> {
    taken.and_then(of_machine).or_else(|| of(robots, origins)).or_else(|| {
        let throughput_per_s = robots.answers() as f64 * 1e6 / robots.period_us.max(1) as f64;
        let share = throughput_per_s / calibration.filter(|per_s| *per_s > 0.0)?;
        (share > CAPACITY_SHARE_MAX).then_some(Limit::Capacity(share))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::ProcessorTimes;

    fn tallies(robots_cpu_us: u64, origins_cpu_us: u64) -> (Tally, OriginTally) {
        let robots =
            Tally { period_us: 1_000_000, cpu_us: robots_cpu_us, threads: 1, ..Tally::default() };
        let origins = OriginTally {
            period_us: 1_000_000,
            cpu_us: origins_cpu_us,
            threads: 1,
            ..OriginTally::default()
        };
        (robots, origins)
    }

    #[test]
    fn a_laboratory_with_reserve_is_not_the_limit() {
        let (robots, origins) = tallies(300_000, 300_000);
        assert_eq!(of_sample(&robots, &origins, Some(1e5), Some(Taken::default())), None);
    }

    #[test]
    fn a_subject_that_misses_a_part_of_its_processor_is_not_measured() {
        let at = |allowed_us, short_us, used_us| Resources {
            allowed_cpu_us: Some(allowed_us),
            short_cpu_us: Some(short_us),
            cpu: ProcessorTimes { user_us: used_us, system_us: 0 },
            ..Resources::default()
        };
        let before = at(1_000_000, 500_000, 1_000_000);
        let judged = |now: &Resources| of_speed(&before, now).map(|limit| limit.to_string());
        assert_eq!(judged(&at(2_000_000, 500_000, 2_000_000)), None);
        assert_eq!(judged(&at(2_000_000, 540_000, 2_000_000)), None, "a little");
        assert_eq!(judged(&at(2_000_000, 1_500_000, 1_500_000)), None, "it does not need it");
        let limit = of_speed(&before, &at(2_000_000, 750_000, 2_000_000)).expect("a limit");
        assert!(limit.is_of_machine() && limit.to_string().ends_with("(20 % lacked)"), "{limit}");
        assert_eq!(
            of_speed(&Resources::default(), &Resources::default()),
            None,
            "none is asked for"
        );
    }

    #[test]
    fn a_busy_or_late_laboratory_is() {
        let busy = |robots_cpu_us, origins_cpu_us| {
            let (robots, origins) = tallies(robots_cpu_us, origins_cpu_us);
            of(&robots, &origins).map(Limit::short)
        };
        assert_eq!(busy(900_000, 0), Some("its users were busy"));
        assert_eq!(busy(0, 900_000), Some("its servers were busy"));
        assert_eq!(busy(450_000, 450_000), Some("its processors were busy"));
        let (mut robots, origins) = tallies(100_000, 100_000);
        (0..100).for_each(|_| robots.lag.record_us(8_000));
        assert_eq!(of(&robots, &origins).map(Limit::short), Some("its users were late"));
    }

    #[test]
    fn a_busy_machine_is_named_first() {
        let (robots, origins) = tallies(900_000, 0);
        let limit = |foreign, steal| {
            let taken = Some(Taken { foreign, steal });
            of_sample(&robots, &origins, None, taken).map(Limit::short)
        };
        assert_eq!(limit(0.5, 0.0), Some("other processes were busy"));
        assert_eq!(limit(0.0, 0.2), Some("the host of this virtual machine was busy"));
        assert_eq!(limit(0.05, 0.01), Some("its users were busy"));
    }

    #[test]
    fn nearness_to_the_calibrated_capacity_is_suspect() {
        let (mut robots, origins) = tallies(100_000, 100_000);
        robots.misses.answers = 950;
        assert!(of_sample(&robots, &origins, Some(1000.0), None).is_some());
        assert!(of_sample(&robots, &origins, Some(2000.0), None).is_none());
        assert!(of_sample(&robots, &origins, None, None).is_none());
    }
}
