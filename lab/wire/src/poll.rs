//! Waiting for sockets: the only file that knows epoll.
//!
//! Streams are registered once, edge-triggered, for reading, writing and the peer's end, so a
//! request costs no `epoll_ctl`. The price is a rule that every user follows: *after an event, go
//! on until the kernel says no*. Read until a read gives fewer bytes than requested or
//! [`WouldBlock`](io::ErrorKind::WouldBlock) (see [`drained`]), write until everything is written
//! or `WouldBlock`. A user that stops earlier must come back by itself, because no further event
//! will arrive.
//!
//! Timeouts below a millisecond need Linux 5.11. Another system would need in place of this file:
//! one `kqueue` with `EVFILT_READ` and `EVFILT_WRITE` and `EV_CLEAR` for streams, `EVFILT_READ`
//! without it for listeners, `EVFILT_USER` for the waker; the timeout of `kevent` has nanoseconds
//! already.
//!
//! [`drained`]: Poller::drained

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

/// Events taken per call. More wait in the kernel for the next one.
const EVENTS_MAX: usize = 512;

/// The ready operations of one registered descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token of its registration, or [`Poller::WAKE`].
    pub token: u64,
    /// There are bytes, connections, or the end, to be read.
    pub readable: bool,
    /// There is room to write, or a connection is made (or failed: the next write tells).
    pub writable: bool,
    /// The peer sent its end, or the connection broke. Bytes from before may still be there to
    /// read.
    pub closed: bool,
}

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
}

/// Wakes the thread that waits in [`Poller::wait_into`], from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    wake: Arc<OwnedFd>,
}

impl Poller {
    /// The token of events that come from a [`Waker`]. No registration may use it.
    pub const WAKE: u64 = u64::MAX;

    /// Makes an instance with its waker.
    ///
    /// # Errors
    ///
    /// The kernel's error, usually that there are too many open descriptors.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered, every write is an event of its own, and the counter need not be read.
        epoll::add(&epoll, &wake, EventData::new_u64(Self::WAKE), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, wake: Arc::new(wake) })
    }

    /// Registers a stream for everything, edge-triggered. Its first event comes at once if it is
    /// ready already.
    ///
    /// # Errors
    ///
    /// The kernel's error: registered already, or no room for more watches.
    pub fn add_stream(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// Registers a listener for connections, level-triggered: connections left by one round are
    /// reported in the next. If several threads watch one listener, a connection wakes one of them.
    ///
    /// # Errors
    ///
    /// The kernel's error: registered already, or no room for more watches.
    pub fn add_listener(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// Ends a registration. Closing a descriptor that was never duplicated does the same.
    ///
    /// # Errors
    ///
    /// The kernel's error: not registered.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a descriptor is ready or the time is over, and replaces the contents of `list`
    /// by the ready ones: at most 512 at a time. The poller stays free for registrations while the
    /// list is worked through.
    ///
    /// `None` waits for as long as it takes. The timeout has nanoseconds. A signal ends the wait
    /// with an empty list.
    ///
    /// # Errors
    ///
    /// The kernel's error; there is no reason for one.
    pub fn wait_into(
        &mut self,
        list: &mut Vec<Ready>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        list.clear();
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut events, timeout.map(timespec).as_ref()) {
            Ok((events, _)) => list.extend(events.iter().map(ready)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A handle that wakes this poller. Waking before the wait is not lost: the wait then returns
    /// at once.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { wake: Arc::clone(&self.wake) }
    }

    /// The rule of edge-triggered reading: whether a read of `got` bytes into a buffer of `asked`
    /// bytes has emptied the socket, so that the next bytes will come with an event of their own. A
    /// full buffer means: read again.
    ///
    /// The end of the stream is an exception: it follows a short read without a new event if it
    /// arrived together with the bytes. After [`Ready::closed`], read on until 0.
    #[must_use]
    pub fn drained(got: usize, asked: usize) -> bool {
        got < asked
    }
}

impl Waker {
    /// Makes the wait under way, or the next one, return with [`Poller::WAKE`].
    pub fn wake(&self) {
        // Fails only with a counter at its limit, and then the event is pending anyway.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

fn ready(event: &Event) -> Ready {
    let (flags, data) = (event.flags, event.data);
    let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
    let closed = broken || flags.contains(EventFlags::RDHUP);
    Ready {
        token: data.u64(),
        readable: closed || flags.contains(EventFlags::IN),
        writable: broken || flags.contains(EventFlags::OUT),
        closed,
    }
}

fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    const SOON: Option<Duration> = Some(Duration::from_secs(5));

    fn count(poller: &mut Poller, timeout: Duration) -> usize {
        let mut list = Vec::new();
        poller.wait_into(&mut list, Some(timeout)).unwrap();
        list.len()
    }

    fn only_event(poller: &mut Poller) -> Ready {
        let mut list = Vec::new();
        poller.wait_into(&mut list, SOON).unwrap();
        assert_eq!(list.len(), 1, "{list:?}");
        list[0]
    }

    #[test]
    fn a_stream_tells_once_and_a_listener_until_it_is_served() {
        let mut poller = Poller::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        poller.add_listener(&listener, 7).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(only_event(&mut poller).token, 7);
        assert_eq!(only_event(&mut poller).token, 7, "nobody accepted, so it is told again");
        let (mut served, _) = listener.accept().unwrap();
        poller.add_stream(&served, 8).unwrap();
        let first = only_event(&mut poller);
        assert_eq!(first, Ready { token: 8, readable: false, writable: true, closed: false });
        client.write_all(b"ping").unwrap();
        assert!(only_event(&mut poller).readable);
        assert_eq!(count(&mut poller, Duration::from_millis(1)), 0, "an edge is told once");
        let mut buffer = [0; 16];
        let got = served.read(&mut buffer).unwrap();
        assert!(Poller::drained(got, buffer.len()) && !Poller::drained(4, 4));
        drop(client);
        assert!(only_event(&mut poller).closed);
        poller.remove(&served).unwrap();
        poller.remove(&listener).unwrap();
        assert!(poller.remove(&listener).is_err());
    }

    #[test]
    fn a_waker_is_heard_before_and_during_the_wait() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        waker.wake();
        assert_eq!(only_event(&mut poller).token, Poller::WAKE);
        let thread = std::thread::spawn(move || waker.wake());
        assert_eq!(only_event(&mut poller).token, Poller::WAKE);
        thread.join().unwrap();
    }

    #[test]
    fn a_timeout_is_finer_than_a_millisecond_and_never_early() {
        let mut poller = Poller::new().unwrap();
        let asked = Duration::from_micros(300);
        let start = Instant::now();
        let (mut shortest, mut tries) = (Duration::MAX, 0);
        // A busy machine needs more tries.
        while tries < 20
            || shortest >= Duration::from_millis(1) && start.elapsed() < Duration::from_secs(10)
        {
            tries += 1;
            let begin = Instant::now();
            assert_eq!(count(&mut poller, asked), 0);
            shortest = shortest.min(begin.elapsed());
            assert!(shortest >= asked, "{shortest:?}");
        }
        assert!(shortest < Duration::from_millis(1), "{shortest:?}");
    }
}
