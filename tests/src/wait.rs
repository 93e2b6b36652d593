//! Waiting for events, always with a bound.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Nothing on loopback takes this long unless it is broken.
pub const LIMIT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(10);

/// Asks until there is an answer.
///
/// # Panics
/// After [`LIMIT`], with what was waited for.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {LIMIT:?} for {what}");
        std::thread::sleep(PAUSE);
    }
}

/// An address on 127.0.0.1 where nobody listens now, below the range from which connections take their own ports, and
/// given out once in this process.
///
/// # Panics
/// If thousands of ports in a row are taken.
#[must_use]
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST_PORT: u32 = 12_000;
    const PORTS: u32 = 18_000;
    // Processes start at different places, as cargo may run several test programs at once.
    let own_start = std::process::id().wrapping_mul(101);
    for _ in 0..PORTS {
        let offset = own_start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(FIRST_PORT + offset).unwrap_or_default();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().expect("its address");
        }
    }
    panic!("no free port");
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
    /// After three times [`LIMIT`]: longer than any client waits, so that the client's own message comes first.
    pub fn pass(&self) {
        let guard = self.open.lock().expect("no thread panics here");
        let (guard, _) =
            self.changed.wait_timeout_while(guard, 3 * LIMIT, |open| !*open).expect("no thread panics here");
        assert!(*guard, "nobody opened the gate");
    }
}
