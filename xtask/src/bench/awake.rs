//! Keeps idle processors from sleeping while something is measured.
//!
//! Sending a message to a sleeping processor includes the cost of waking it: an interrupt between
//! processors, and on a virtual machine a call of the host. Over loopback the server under test is
//! charged for waking the load generator, as no server is charged for its clients' processors; and
//! the faster it is, the more often they sleep.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The kernel's list of processes that want short latencies: as long as it is open, the written
/// value is a bound.
const LATENCIES: &str = "/dev/cpu_dma_latency";

/// No state of sleep wakes as fast as this: idle processors look for work in a loop. Where two of
/// them share a core, that slows the other one.
const LATENCY_US: i32 = 0;

/// While it exists, idle processors wait without sleeping. `None` where they cannot be kept from
/// it.
pub(super) struct Awake(Option<File>);

impl Awake {
    /// From now on; prints a line if it cannot be done.
    pub(super) fn hold() -> Self {
        let held = Self::open();
        if let Err(error) = &held {
            println!(
                "note: idle processors sleep, and servers pay for waking those of the load: {LATENCIES}: {error}"
            );
        }
        Self(held.ok())
    }

    fn open() -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).open(LATENCIES)?;
        file.write_all(&LATENCY_US.to_ne_bytes())?;
        Ok(file)
    }

    /// Whether they are kept from sleeping.
    pub(super) fn is_held(&self) -> bool {
        self.0.is_some()
    }
}
