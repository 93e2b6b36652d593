//! The turns of one subject: of misses, or of hits.

use super::subjects::{Family, Stored};
use crate::Outcome;
use crate::bench::Plan;
use crate::bench::drive::{CONNECTIONS, Drive, Driven};
use crate::bench::manager::{Device, Swaps};
use crate::bench::subjects::Subject;
use std::net::SocketAddr;
use std::time::Duration;

/// All objects have this length.
pub(in crate::bench) const BODY_BYTES: usize = 13 << 10;

/// `diskd` turns requests away when more than `Q1` messages are under way, here and in Squid: with
/// many connections it stores next to nothing.
const DISKD_CONNECTIONS: usize = 8;

/// An answer to a miss does not wait for its writes. At this rate both store all objects; at twice
/// the rate, Squid's `diskd` stores a part.
pub(super) const DISKD_MISSES_PER_S: f64 = 2_000.0;

/// Squid's `diskd` answers two hundred hits a second: a turn of all would take minutes.
pub(super) const DISKD_REQUESTS: u64 = 5_000;

/// For objects that are stored gently.
const FEW_CONNECTIONS: usize = 4;

/// Less than this share on disk, or from there, and the figure is for something else.
const SHARE_MIN: f64 = 0.95;

/// When this share is stored, the search for missing objects is not worthwhile.
const SHARE_COMPLETE: f64 = 0.999;

/// Work deferred until after the last answer is part of the cost: writing buffers, closing files.
const SETTLING: Duration = Duration::from_millis(1500);

/// One turn.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Turn {
    pub(in crate::bench) cpu_us: f64,
    pub(in crate::bench) requests_per_s: f64,
    pub(in crate::bench) p99_ms: f64,
    /// The part of the requests with the intended result: stored on disk, or read from there.
    pub(in crate::bench) share: f64,
}

impl Turn {
    fn of(driven: Driven, cpu_us: f64, share: f64) -> Self {
        let requests = driven.requests as f64;
        Self {
            cpu_us: cpu_us / requests,
            requests_per_s: requests / driven.seconds.max(1e-6),
            p99_ms: driven.p99_us as f64 / 1e3,
            share,
        }
    }

    /// Whether the figure measures the intended case.
    pub(in crate::bench) fn counts(&self) -> bool {
        self.share >= SHARE_MIN
    }
}

/// The common settings of all turns of a run.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Course {
    pub(in crate::bench) origin: SocketAddr,
    /// Requests in a turn.
    pub(in crate::bench) requests: u64,
    /// Requests before them that are in no figure: a server that was idle since its last turn has
    /// to find its way back into the processor's caches, and the faster it is, the shorter is its
    /// turn.
    pub(in crate::bench) lead_in: u64,
    /// `diskd` gets fewer requests, and misses only as fast as it stores them.
    pub(in crate::bench) is_gentle_to_diskd: bool,
}

impl Course {
    fn drive(&self, stored: &Stored, first: u64) -> Drive {
        self.drive_of(stored.kind.scheme, first)
    }

    fn drive_of(&self, scheme: &str, first: u64) -> Drive {
        Drive {
            first: first + self.lead_in,
            requests: self.requests_of(scheme),
            connections: if scheme == "diskd" { DISKD_CONNECTIONS } else { CONNECTIONS },
            ..Drive::new(self.origin, BODY_BYTES)
        }
    }

    /// Requests in a turn.
    pub(super) fn requests_of(&self, scheme: &str) -> u64 {
        if self.spares(scheme) { self.requests.min(DISKD_REQUESTS) } else { self.requests }
    }

    /// The same with the lead-in before them.
    pub(super) fn all_requests_of(&self, scheme: &str) -> u64 {
        self.requests_of(scheme) + self.lead_in_of(self.requests_of(scheme))
    }

    fn lead_in_of(&self, requests: u64) -> u64 {
        self.lead_in * requests / self.requests.max(1)
    }

    /// Numbers that a turn uses for its objects.
    pub(in crate::bench) fn objects(&self) -> u64 {
        self.lead_in + self.requests
    }

    /// The lead-in of a turn, which begins with the objects of lower numbers.
    fn lead_in(&self, plan: &Plan, subject: &Subject, drive: &Drive) -> Outcome {
        let requests = self.lead_in_of(drive.requests);
        if requests > 0 {
            let before = Drive { first: drive.first - self.lead_in, requests, ..*drive };
            before.run(plan, subject.name, subject.address)?;
        }
        Ok(())
    }

    fn spares(&self, scheme: &str) -> bool {
        self.is_gentle_to_diskd && scheme == "diskd"
    }

    /// New objects, numbered from `first` on.
    pub(in crate::bench) fn misses(
        &self,
        plan: &Plan,
        stored: &Stored,
        first: u64,
    ) -> Outcome<Turn> {
        let requests_per_s = self.spares(stored.kind.scheme).then_some(DISKD_MISSES_PER_S);
        let drive = Drive { requests_per_s, ..self.drive(stored, first) };
        self.lead_in(plan, &stored.subject, &drive)?;
        let turn = measured(plan, stored, drive, SETTLING, |before, after, driven| {
            match stored.kind.scheme {
                // Without a store there is nothing to be stored.
                "null" => driven.requests,
                // Some that came before may still have been on their way.
                _ => (after.outs - before.outs).min(driven.requests),
            }
        })?;
        stored.sync()?;
        Ok(turn)
    }

    /// Objects that are stored, from `first` on.
    pub(in crate::bench) fn hits(&self, plan: &Plan, stored: &Stored, first: u64) -> Outcome<Turn> {
        let drive = self.drive(stored, first);
        self.lead_in(plan, &stored.subject, &drive)?;
        measured(plan, stored, drive, Duration::ZERO, |before, after, driven| {
            driven.hits.min(after.ins - before.ins)
        })
    }

    /// Requests the objects of a turn slowly, so that those that were not stored under load are
    /// stored now.
    pub(in crate::bench) fn complete(
        &self,
        plan: &Plan,
        stored: &Stored,
        first: u64,
        turn: Turn,
    ) -> Outcome {
        if turn.share < SHARE_COMPLETE {
            let drive = self.drive(stored, first);
            Drive { connections: FEW_CONNECTIONS, ..drive }.run(
                plan,
                stored.kind.name,
                stored.subject.address,
            )?;
        }
        stored.sync()
    }
}

/// New objects through the floor.
pub(in crate::bench) fn relayed(
    plan: &Plan,
    course: &Course,
    relay: &Subject,
    first: u64,
) -> Outcome<Turn> {
    let drive = course.drive_of("null", first);
    course.lead_in(plan, relay, &drive)?;
    let cpu_before_us = relay.process.cpu_us()?;
    let driven = drive.run(plan, relay.name, relay.address)?;
    let cpu_us = (relay.process.cpu_us()? - cpu_before_us) as f64;
    Ok(Turn::of(driven, cpu_us, 1.0))
}

/// Works through a list, and returns its cost; `meant` counts the requests with the intended
/// result.
pub(in crate::bench) fn measured(
    plan: &Plan,
    stored: &Stored,
    drive: Drive,
    settling: Duration,
    meant: impl Fn(Swaps, Swaps, Driven) -> u64,
) -> Outcome<Turn> {
    let subject = &stored.subject;
    let before = Swaps::read(subject.address)?;
    let cpu_before_us = subject.process.cpu_us()?;
    let driven = drive.run(plan, subject.name, subject.address)?;
    std::thread::sleep(settling);
    let cpu_us = (subject.process.cpu_us()? - cpu_before_us) as f64;
    let after = Swaps::read(subject.address)?;
    Ok(Turn::of(driven, cpu_us, meant(before, after, driven) as f64 / driven.requests as f64))
}

/// Figures of the device; none of Squid, which does not have them.
pub(in crate::bench) fn device(stored: &Stored) -> Outcome<Option<Device>> {
    match stored.kind.family {
        Family::Humboldt | Family::Old if stored.kind.scheme != "null" => {
            Device::read(stored.subject.address).map(Some)
        }
        _ => Ok(None),
    }
}
