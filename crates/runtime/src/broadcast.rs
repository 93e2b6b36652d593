//! One word from the control thread to every core: reconfigure, shut down.
//!
//! Like a watch channel, it keeps only the newest notice: two reconfigurations that no core has
//! seen yet are one. The sender can wait until every core has dealt with a notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// A notice to a core.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A new configuration is in place: use it for new requests.
    Reconfigure,
    /// Accept nothing new; end when the requests in progress have ended or this long has passed.
    Shutdown(Duration),
}

/// How often each notice was sent. Sequence numbers instead of flags, so that no notice is lost or
/// repeated.
#[derive(Copy, Clone, Debug, Default)]
struct Asked {
    sequence: u64,
    reconfigure: u64,
    shutdown: Option<Duration>,
}

#[derive(Debug)]
struct Shared {
    sender: watch::Sender<Asked>,
    /// For each live subscription the sequence number up to which it has dealt with everything;
    /// `u64::MAX` once it is gone.
    handled: Mutex<Vec<Arc<AtomicU64>>>,
    progress: Notify,
}

/// The sending side; clones send to the same subscribers. Usable from any thread.
#[derive(Clone, Debug)]
pub struct Broadcast {
    shared: Arc<Shared>,
}

impl Default for Broadcast {
    fn default() -> Self {
        Self::new()
    }
}

impl Broadcast {
    /// A broadcast without subscribers.
    pub fn new() -> Self {
        let (sender, _) = watch::channel(Asked::default());
        let shared = Shared { sender, handled: Mutex::default(), progress: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Tells every subscriber. Never blocks; works without subscribers. A second shutdown replaces
    /// the grace of the first.
    pub fn send(&self, notice: Notice) {
        self.shared.sender.send_modify(|asked| {
            asked.sequence += 1;
            match notice {
                Notice::Reconfigure => asked.reconfigure = asked.sequence,
                Notice::Shutdown(grace) => asked.shutdown = Some(grace),
            }
        });
    }

    /// Waits until every subscriber has dealt with everything sent before this call: it asked for
    /// its next notice, or is gone.
    pub async fn settled(&self) {
        let target = self.shared.sender.borrow().sequence;
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable(); // before looking, so that no progress is missed
            if self.all_handled(target) {
                return;
            }
            progress.await;
        }
    }

    fn all_handled(&self, target: u64) -> bool {
        let mut handled = self.shared.handled.lock();
        handled.retain(|seen| seen.load(Ordering::Acquire) != u64::MAX);
        handled.iter().all(|seen| seen.load(Ordering::Acquire) >= target)
    }

    /// A new subscriber. It gets later notices, and a shutdown that was sent already.
    pub fn subscribe(&self) -> Subscription {
        let receiver = self.shared.sender.subscribe();
        let now = *receiver.borrow();
        let handled = Arc::new(AtomicU64::new(now.sequence));
        self.shared.handled.lock().push(Arc::clone(&handled));
        let seen = Asked { shutdown: None, ..now };
        Subscription { receiver, seen, handled, shared: Arc::clone(&self.shared) }
    }
}

/// One core's receiving side.
#[derive(Debug)]
pub struct Subscription {
    receiver: watch::Receiver<Asked>,
    seen: Asked,
    handled: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Subscription {
    /// The next notice; a shutdown goes before all others. Calling it again acknowledges the one
    /// before. Cancel-safe.
    pub async fn next(&mut self) -> Notice {
        loop {
            let asked = *self.receiver.borrow_and_update();
            if let Some(notice) = self.first_unseen(&asked) {
                return notice;
            }
            self.acknowledge(asked.sequence);
            if self.receiver.changed().await.is_err() {
                // The sender lives as long as `shared`, which we hold.
                std::future::pending::<()>().await;
            }
        }
    }

    fn first_unseen(&mut self, asked: &Asked) -> Option<Notice> {
        if asked.shutdown != self.seen.shutdown {
            self.seen.shutdown = asked.shutdown;
            return asked.shutdown.map(Notice::Shutdown);
        }
        if asked.reconfigure != self.seen.reconfigure {
            self.seen.reconfigure = asked.reconfigure;
            return Some(Notice::Reconfigure);
        }
        None
    }

    fn acknowledge(&self, sequence: u64) {
        if self.handled.swap(sequence, Ordering::AcqRel) != sequence {
            self.shared.progress.notify_waiters();
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.acknowledge(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_pending(future: impl Future) -> bool {
        let future = std::pin::pin!(future);
        matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
    }

    #[tokio::test]
    async fn shutdown_goes_first_and_equal_notices_merge() {
        let broadcast = Broadcast::new();
        let mut core = broadcast.subscribe();
        broadcast.send(Notice::Reconfigure);
        broadcast.send(Notice::Reconfigure);
        broadcast.send(Notice::Shutdown(Duration::from_secs(3)));
        assert_eq!(core.next().await, Notice::Shutdown(Duration::from_secs(3)));
        assert_eq!(core.next().await, Notice::Reconfigure);
        assert!(is_pending(core.next()), "nothing is told twice");
    }

    #[tokio::test]
    async fn a_late_subscriber_hears_of_a_shutdown_but_not_of_old_notices() {
        let broadcast = Broadcast::new();
        broadcast.send(Notice::Reconfigure);
        broadcast.send(Notice::Shutdown(Duration::ZERO));
        let mut core = broadcast.subscribe();
        assert_eq!(core.next().await, Notice::Shutdown(Duration::ZERO));
        assert!(is_pending(core.next()));
    }

    #[tokio::test]
    async fn settled_waits_for_every_subscriber_that_still_lives() {
        let broadcast = Broadcast::new();
        let (mut a, b) = (broadcast.subscribe(), broadcast.subscribe());
        broadcast.send(Notice::Reconfigure);
        assert!(is_pending(broadcast.settled()));
        drop(b);
        assert_eq!(a.next().await, Notice::Reconfigure);
        assert!(is_pending(broadcast.settled()), "told, but not dealt with yet");
        assert!(is_pending(a.next()));
        broadcast.settled().await;
    }
}
