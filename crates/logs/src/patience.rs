//! Writing to a receiver that may take nothing for a while: how long that is waited for.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest time that a receiver takes nothing; then it is begun with anew.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);

/// The same for a log that is no longer in the configuration.
pub(crate) const ABANDONED_STALL_MAX: Duration = Duration::from_secs(3);

/// Time between two looks whether the log is still used, while a receiver takes nothing.
const POLL_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a receiver may take nothing.
#[derive(Copy, Clone)]
pub(crate) struct Patience<'a> {
    /// Whether one that has taken nothing since then is given up.
    pub(crate) is_over: &'a dyn Fn(Instant) -> bool,
}

impl Patience<'_> {
    /// Does something with a descriptor that is non-blocking, as soon as that can be done; or it is
    /// too late (`TimedOut`).
    pub(crate) fn wait_for<T>(
        &self,
        descriptor: &impl AsFd,
        mut step: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let since = Instant::now();
        loop {
            match step() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if (self.is_over)(since) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match poll(&mut [PollFd::new(descriptor, PollFlags::OUT)], Some(&POLL_EVERY)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes everything to a descriptor that is non-blocking.
    pub(crate) fn write_all<W>(&self, out: &W, mut bytes: &[u8]) -> io::Result<()>
    where
        W: AsFd,
        for<'w> &'w W: Write,
    {
        while !bytes.is_empty() {
            let mut writer = out;
            let count = self.wait_for(out, || writer.write(bytes))?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }
}
