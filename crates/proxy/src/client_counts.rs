//! Open connections by client address, for `maxconn` ACLs. Counted over all cores, and only when
//! such an ACL exists.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

/// The counts. There are never more entries than open connections.
#[derive(Default)]
pub(crate) struct ClientCounts {
    by_address: Mutex<HashMap<IpAddr, Arc<AtomicU32>>>,
}

/// The current number of connections from one address.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<AtomicU32>);

impl Connections {
    /// The number of connections.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// One connection, counted until this is dropped.
pub(crate) struct Counted {
    counts: Arc<ClientCounts>,
    address: IpAddr,
    connections: Connections,
}

impl ClientCounts {
    /// Counts a connection from `address`.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Counted {
        let count = {
            let mut by_address = self.by_address.lock();
            let count = by_address.entry(address).or_default();
            // Under the lock, so that the last connection cannot remove the entry in between.
            count.fetch_add(1, Relaxed);
            Arc::clone(count)
        };
        Counted { counts: Arc::clone(self), address, connections: Connections(count) }
    }
}

impl Counted {
    /// The number of connections from the same address.
    pub(crate) fn connections(&self) -> Connections {
        self.connections.clone()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_address = self.counts.by_address.lock();
        if self.connections.0.fetch_sub(1, Relaxed) == 1 {
            by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_while_they_are_open_and_leave_nothing_behind() {
        let counts = Arc::new(ClientCounts::default());
        let (one, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let first = counts.enter(one);
        let second = counts.enter(one);
        let third = counts.enter(other);
        assert_eq!((first.connections().get(), third.connections().get()), (2, 1));
        drop(second);
        assert_eq!(first.connections().get(), 1);
        drop((first, third));
        assert!(counts.by_address.lock().is_empty());
    }
}
