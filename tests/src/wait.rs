//! Waiting for events, always with a bound.

use rustix::process::{Pid, Signal, kill_process};
use std::io::Result;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nothing on loopback takes this long unless it is broken.
pub const LIMIT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(10);

/// Asks until there is an answer.
///
/// # Panics
/// After [`LIMIT`], with a text that names the missing event.
pub fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    until_within(LIMIT, what, ask)
}

/// As [`until`], for an event that may take longer.
///
/// # Panics
/// After `limit`, with a text that names the missing event.
pub fn until_within<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Held while a program is started. Between fork and exec a new process has all sockets of this
/// one: a socket that is only opened to find a free port would hold that port, and take connections
/// meant for another.
static STARTING: Mutex<()> = Mutex::new(());

/// Starts a program while no port is being looked for.
///
/// # Errors
/// Those of the system.
pub fn start(command: &mut Command) -> Result<Child> {
    let _guard = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Asks a program to end, and kills it if it has not after [`LIMIT`].
pub fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + LIMIT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// An address on 127.0.0.1 that is free now, below the range from which connections take their own
/// ports, and given out once in this process.
///
/// # Panics
/// If thousands of ports in a row are taken.
#[must_use]
pub fn free_address() -> SocketAddr {
    let _guard = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    free_listener().local_addr().expect("its address")
}

/// The same, with a listener on it.
///
/// # Panics
/// If thousands of ports in a row are taken.
#[must_use]
pub fn free_listener() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST_PORT: u32 = 12_000;
    const PORTS: u32 = 18_000;
    // Processes start at different places, as cargo may run several test programs at once.
    let own_start = std::process::id().wrapping_mul(101);
    for _ in 0..PORTS {
        let offset = own_start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(FIRST_PORT + offset).unwrap_or_default();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
    }
    panic!("no free port");
}

/// Sets a flag when it is dropped, also when a test fails: threads that look at it end.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A door that one thread opens and others wait at, so that a test decides when a server goes on.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Lets everyone through, now and later.
    pub fn open(&self) {
        *self.open.lock().expect("no thread panics here") = true;
        self.changed.notify_all();
    }

    /// Waits until the gate is open.
    ///
    /// # Panics
    /// After three times [`LIMIT`]: longer than any client waits, so that the client's own message
    /// comes first.
    pub fn pass(&self) {
        let guard = self.open.lock().expect("no thread panics here");
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, 3 * LIMIT, |open| !*open)
            .expect("no thread panics here");
        assert!(*guard, "nobody opened the gate");
    }
}
