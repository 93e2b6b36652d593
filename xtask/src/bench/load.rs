//! A closed loop for a time, and the time that the server needs for it.

use super::Plan;
use super::drive::Drive;
use super::subjects::Subject;
use crate::Outcome;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// One turn of one subject.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) cpu_us: u64,
    pub(super) p99_us: u64,
    /// Handshakes of TLS.
    pub(super) full: u64,
    pub(super) resumed: u64,
}

impl Sample {
    pub(super) fn cpu_us_per_request(&self) -> f64 {
        self.cpu_us as f64 / self.requests.max(1) as f64
    }

    pub(super) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-6)
    }
}

/// A load without end for this subject; [`turn`] ends it.
pub(super) fn endless(subject: &Subject, origin: SocketAddr, body_bytes: usize) -> Drive {
    Drive { style: subject.style, ..Drive::new(origin, body_bytes) }
}

/// Lets a load work for one turn, and takes the subject's CPU time before and after.
pub(super) fn turn(plan: &Plan, subject: &Subject, load: Drive) -> Outcome<Sample> {
    turn_at(plan, subject, subject.address, load)
}

/// The same at another address of the subject.
pub(super) fn turn_at(
    plan: &Plan,
    subject: &Subject,
    address: SocketAddr,
    load: Drive,
) -> Outcome<Sample> {
    let cpu_before_us = subject.process.cpu_us()?;
    let driven = Drive { limit: plan.turn(), ..load }.ask(plan, address)?;
    let cpu_us = subject.process.cpu_us()? - cpu_before_us;
    let (requests, errors) = (driven.requests, driven.errors);
    if errors > requests / 1000 || requests == 0 {
        return Err(format!("{}: {errors} errors in {requests} requests", subject.name).into());
    }
    Ok(Sample {
        requests,
        seconds: driven.seconds,
        cpu_us,
        p99_us: driven.p99_us,
        full: driven.full,
        resumed: driven.resumed,
    })
}

/// A deadline for loops over many requests.
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    pub(super) fn check(&self) -> Outcome {
        if Instant::now() > self.0 { Err("the benchmark took too long".into()) } else { Ok(()) }
    }
}
