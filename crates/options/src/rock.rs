//! Options of `rock`.

use std::time::Duration;

use crate::common::{self, THREADS};
use crate::option::{DirOption, OutOfRange, Step, Value, at, check, number, position, small};
use crate::{Io, Overload};

/// Options of `rock`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RockOptions {
    /// `threads=`: threads that do I/O where io_uring is not used.
    pub threads: u32,
    /// `io=`: how the device is used.
    pub io: Io,
    /// `overload=`: what happens while the disk cannot keep up.
    pub overload: Overload,
    /// `slot-size=`: size of a slot in bytes.
    pub slot_bytes: u32,
    /// `max-swap-rate=`: most writes a second; `None` for no limit.
    pub max_swap_rate: Option<u32>,
    /// `swap-timeout=`: objects whose reading or writing would wait longer are not read or written;
    /// `None` for no limit.
    pub swap_timeout: Option<Duration>,
}

impl Default for RockOptions {
    /// Squid's, and ours where Squid has none.
    fn default() -> Self {
        Self {
            threads: THREADS,
            io: Io::default(),
            overload: Overload::default(),
            slot_bytes: 16 * 1024,
            max_swap_rate: None,
            swap_timeout: None,
        }
    }
}

pub(crate) const OPTIONS: &[DirOption<RockOptions>] = &[
    common::threads(
        |options, count| options.threads = small(count),
        |options| Some(options.threads.into()),
    ),
    common::io(|options, word| options.io = at(word), |options| position(options.io)),
    common::overload(
        |options, word| options.overload = at(word),
        |options| position(options.overload),
    ),
    DirOption {
        name: "slot-size",
        value: Value::Number {
            unit: "bytes",
            min: 4096,
            max: 1 << 20,
            step: Step::MultipleOf(512),
        },
        unset: "",
        doc: "Size of a slot; an object takes as many as it needs.",
        set: |options, bytes| options.slot_bytes = small(bytes),
        get: |options| Some(options.slot_bytes.into()),
    },
    DirOption {
        name: "max-swap-rate",
        value: number("writes a second", 0, u32::MAX as u64),
        unset: "0",
        doc: "Writes wait so that there are not more of them; 0 is no limit.",
        set: |options, rate| options.max_swap_rate = Some(small(rate)).filter(|rate| *rate > 0),
        get: |options| options.max_swap_rate.map(u64::from),
    },
    DirOption {
        name: "swap-timeout",
        value: number("milliseconds", 0, 3_600_000),
        unset: "0",
        doc: "An operation that would probably wait longer is not begun; 0 is no limit.",
        set: |options, time_ms| {
            options.swap_timeout = (time_ms > 0).then(|| Duration::from_millis(time_ms));
        },
        get: |options| options.swap_timeout.map(|time| time.as_millis() as u64),
    },
];

impl RockOptions {
    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(OPTIONS, self)?;
        if self.max_swap_rate == Some(0) {
            return Err(OutOfRange::new("max-swap-rate", "above 0"));
        }
        Ok(())
    }
}
