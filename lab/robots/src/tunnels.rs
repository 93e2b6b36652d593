//! Tunnels through a proxy: how fast it makes them, and how many bytes go through.
//!
//! The near end asks the proxy for tunnels (CONNECT) to the far end, a server of the laboratory.
//! Each end sends bytes that follow from the number of the tunnel, and checks those of the other.
//! The last byte that the far end sends says that all bytes of the near end were right.

mod far;
mod near;

pub use far::FarEnd;

use crate::plan::RobotsError;
use humboldt_lab_record::{Fault, FaultKind, FaultSample, Histogram};
use humboldt_lab_workload::{BodyKey, ObjectName, Workload};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most tunnels at a time.
pub const TUNNELS_MAX: usize = 4_000;

/// Faults that are kept with their evidence; all are counted.
const FAULTS_SHOWN_MAX: usize = 20;

/// After this many faults without one good tunnel there will be none.
const FAULTS_IN_VAIN_MAX: u64 = 100;

/// Bytes that an end makes or reads at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// After this many bytes of one tunnel the others have their turn.
const TURN_BYTES: usize = 1024 * 1024;

/// The first bytes in a tunnel: its number, bytes up, bytes down, each as a big-endian `u64`.
const HEADER_BYTES: usize = 24;

/// How often the caller is told that time goes by, in µs.
const TICK_US: u64 = 100_000;

/// The settings of one measurement.
#[derive(Clone, Debug)]
pub struct Tunnels {
    /// The proxy.
    pub proxy: SocketAddr,
    /// Tunnels at a time: 1 to [`TUNNELS_MAX`].
    pub tunnels: usize,
    /// Bytes from the near end to the far end in each tunnel.
    pub up_bytes: u64,
    /// Bytes from the far end to the near end in each tunnel: at least 1, and 2 with bytes up. The
    /// first says that the tunnel is open, the last that all bytes up were right.
    pub down_bytes: u64,
    /// A tunnel that is done is followed by another until the time is up.
    pub renews: bool,
    /// The end of it all, in s.
    pub time_max_s: f64,
    /// A tunnel that is not open after this time is given up, in s.
    pub timeout_s: f64,
}

/// The result of one measurement.
#[derive(Clone, Debug, Default)]
pub struct TunnelReport {
    /// Tunnels that were asked for.
    pub begun: u64,
    /// Tunnels that have carried all their bytes.
    pub done: u64,
    /// Right bytes from the near end to the far end.
    pub up_bytes: u64,
    /// Right bytes from the far end to the near end.
    pub down_bytes: u64,
    /// From the begin of a connection to the first byte from the far end.
    pub opened: Histogram,
    /// Length of the measurement in µs.
    pub wall_us: u64,
    /// CPU time of the near end in µs.
    pub near_cpu_us: u64,
    /// CPU time of the far end in µs.
    pub far_cpu_us: u64,
    /// This host had no more ports or descriptors for the laboratory, which ended the measurement:
    /// the system's words.
    pub own_limit: Option<String>,
    /// What went wrong, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The first of them, with evidence.
    pub fault_samples: Vec<FaultSample>,
}

impl TunnelReport {
    fn add_fault(&mut self, number: u64, at_us: u64, fault: Fault) {
        *self.faults.entry(fault.kind).or_default() += 1;
        if self.fault_samples.len() < FAULTS_SHOWN_MAX {
            self.fault_samples.push(FaultSample { at_us, url: format!("tunnel {number}"), fault });
        }
    }

    fn is_in_vain(&self) -> bool {
        self.done == 0 && self.faults.values().sum::<u64>() >= FAULTS_IN_VAIN_MAX
    }
}

/// The state of a measurement, ten times a second.
#[derive(Clone, Copy, Debug)]
pub struct TunnelTick {
    /// Since the begin, in µs.
    pub at_us: u64,
    /// Tunnels that are done.
    pub done: u64,
    /// Right bytes so far, in both directions.
    pub bytes: u64,
    /// Faults so far.
    pub faults: u64,
}

impl Tunnels {
    /// Measures until all tunnels are done or the time is up. `on_tick` ends it early with `false`.
    ///
    /// # Errors
    ///
    /// The settings contradict themselves, or the system refuses a descriptor.
    pub fn run(
        &self,
        far: &FarEnd,
        on_tick: &mut dyn FnMut(TunnelTick) -> bool,
    ) -> Result<TunnelReport, RobotsError> {
        self.check()?;
        near::run(self, far, on_tick)
    }

    fn check(&self) -> Result<(), RobotsError> {
        let refuse = |why: String| Err(RobotsError::Plan(why));
        if self.tunnels == 0 || self.tunnels > TUNNELS_MAX {
            return refuse(format!("{} tunnels; give 1 to {TUNNELS_MAX}", self.tunnels));
        }
        let least = if self.up_bytes > 0 { 2 } else { 1 };
        if self.down_bytes < least {
            let given = self.down_bytes;
            return refuse(format!("{given} bytes from the far end; give at least {least}"));
        }
        for limit_s in [self.time_max_s, self.timeout_s] {
            if !(limit_s > 0.0 && limit_s.is_finite()) {
                return refuse(format!("a time limit of {limit_s} s; it must be above 0"));
            }
        }
        Ok(())
    }
}

/// The tunnels whose turn it is: those that can go on and those with events, each once.
fn turns(unfinished: Vec<u32>, ready: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut turns = unfinished;
    turns.extend(ready);
    turns.sort_unstable();
    turns.dedup();
    turns
}

/// The bytes of one direction of a tunnel, and how far they have come.
#[derive(Clone, Copy, Debug)]
struct Flow {
    key: BodyKey,
    at: u64,
    end: u64,
}

impl Flow {
    fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Makes the next bytes, at most `max` of them.
    fn fill<'b>(&self, max: u64, buffer: &'b mut [u8]) -> &'b [u8] {
        let room = buffer.len().min(PIECE_BYTES);
        // Not more than the room, so it fits.
        let count = max.min(room as u64) as usize;
        self.key.fill(self.at, &mut buffer[..count]);
        &buffer[..count]
    }

    /// Checks the next bytes.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.len() as u64 > self.left() {
            let got = format!("{} bytes more", bytes.len() as u64 - self.left());
            let expected = format!("{} bytes", self.end);
            return Err(Fault { kind: FaultKind::TooLong, offset: Some(self.end), expected, got });
        }
        if let Err(wrong) = self.key.check(self.at, bytes) {
            let expected = "the byte of this tunnel at this place".to_owned();
            let at = usize::try_from(wrong.offset - self.at).unwrap_or(0);
            let got = bytes.get(at).map_or_else(String::new, |byte| format!("{byte:02x}"));
            let offset = Some(wrong.offset);
            return Err(Fault { kind: FaultKind::WrongByte, offset, expected, got });
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// The bytes of all tunnels.
#[derive(Debug)]
struct Contents {
    workload: Workload,
}

impl Contents {
    /// A workload of the laboratory whose objects give the keys.
    fn new() -> Result<Self, RobotsError> {
        let workload = Workload::builtin("fixed-1k").and_then(Result::ok);
        let missing = || RobotsError::Plan("the workload fixed-1k is not built in".into());
        Ok(Self { workload: workload.ok_or_else(missing)? })
    }

    /// The bytes up and the bytes down of a tunnel.
    fn flows(&self, number: u64, up_bytes: u64, down_bytes: u64) -> (Flow, Flow) {
        let flow = |direction: u64, end| {
            let number = number.wrapping_mul(2).wrapping_add(direction);
            let name = ObjectName { world: 0, kind: 0, number, size: None };
            Flow { key: self.workload.facts(number, &name).body(0), at: 0, end }
        };
        (flow(0, up_bytes), flow(1, down_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_can_go_on_has_one_turn_also_with_an_event() {
        assert_eq!(turns(vec![3, 1], [1, 2, 3].into_iter()), [1, 2, 3]);
    }
}
