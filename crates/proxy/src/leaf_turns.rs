//! Turns of clients whose connections need certificates that are not there yet (`ssl_bump`).
//!
//! A client causes a signature of the authority by each name that it invents, and all others of the
//! core wait for it. So each client has a share: as many certificates as it may have in a second
//! are made at once, further ones in turn, and those that would wait for too long are not made.
//!
//! What a client owes is one number, the time at which it owes nothing any more (GCRA): there are
//! no timers and no queues. It is in time and not in certificates, so that ports with other
//! authorities take from the same share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use humboldt_base::client_network::client_network;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;

/// Most clients that owe something, over all parts. Further ones have one share together, for each
/// part.
pub(crate) const LEAF_CLIENTS_MAX: usize = 65_536;

/// Longest wait of a connection for the turn of its certificate.
pub(crate) const LEAF_WAIT_MAX: Duration = Duration::from_secs(2);

/// What a client may owe without waiting.
const FREE: Duration = Duration::from_secs(1);

/// Least time between two looks for clients that owe nothing, where there was none.
const LOOK_PAUSE_NS: u64 = 100_000_000;

/// The share of a client is used up, and so is the time for which one may wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedUp;

/// What clients owe.
pub(crate) struct LeafTurns {
    shards: [Mutex<Shard>; SHARDS],
    clients_per_shard: usize,
    began: Instant,
}

#[derive(Default)]
struct Shard {
    /// When each owes nothing any more, in ns.
    clients: HashMap<IpAddr, u64>,
    /// The same of all for whom there was no place.
    others_ns: u64,
    /// When it may be looked for places again.
    look_ns: u64,
}

impl Default for LeafTurns {
    fn default() -> Self {
        Self::with_room(LEAF_CLIENTS_MAX)
    }
}

impl LeafTurns {
    fn with_room(clients: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            clients_per_shard: clients / SHARDS,
            began: Instant::now(),
        }
    }

    /// How long a connection has to wait before its certificate is made, of which its client may
    /// have `per_s` in a second.
    ///
    /// # Errors
    /// It would be too long, and none must be made.
    pub(crate) fn take(&self, client: IpAddr, per_s: u32) -> Result<Duration, UsedUp> {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let client = client_network(client);
        let mut shard = self.shards[shard(client)].lock();
        shard.take(client, self.clients_per_shard, now_ns, per_s)
    }

    /// Gives back what one has taken for a certificate that somebody else had made meanwhile.
    pub(crate) fn give_back(&self, client: IpAddr, per_s: u32) {
        let client = client_network(client);
        self.shards[shard(client)].lock().give_back(client, per_s);
    }
}

/// The low bits tell clients of one network apart.
fn shard(client: IpAddr) -> usize {
    let bits = match client {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    };
    bits as usize % SHARDS
}

impl Shard {
    fn take(
        &mut self,
        client: IpAddr,
        room: usize,
        now_ns: u64,
        per_s: u32,
    ) -> Result<Duration, UsedUp> {
        if self.clients.len() >= room && !self.clients.contains_key(&client) {
            self.look_for_places(now_ns);
        }
        let has_place = self.clients.len() < room || self.clients.contains_key(&client);
        let free_ns = match has_place {
            true => self.clients.entry(client).or_default(),
            false => &mut self.others_ns,
        };
        let cost = Duration::from_secs(1) / per_s.max(1);
        let owed = Duration::from_nanos(free_ns.saturating_sub(now_ns)) + cost;
        let wait = owed.saturating_sub(FREE);
        if wait > LEAF_WAIT_MAX {
            return Err(UsedUp);
        }
        *free_ns = now_ns.saturating_add(u64::try_from(owed.as_nanos()).unwrap_or(u64::MAX));
        Ok(wait)
    }

    fn give_back(&mut self, client: IpAddr, per_s: u32) {
        let free_ns = self.clients.get_mut(&client).unwrap_or(&mut self.others_ns);
        let cost = Duration::from_secs(1) / per_s.max(1);
        *free_ns = free_ns.saturating_sub(u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Forgets clients that owe nothing: they are as those who have never come.
    fn look_for_places(&mut self, now_ns: u64) {
        if now_ns >= self.look_ns {
            self.clients.retain(|_, free_ns| *free_ns > now_ns);
            self.look_ns = now_ns.saturating_add(LOOK_PAUSE_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn a_seconds_worth_is_free_then_each_waits_for_its_turn_and_at_the_bound_none_is_made() {
        let mut shard = Shard::default();
        let mut take = |client, now_ns| shard.take(client, 10, now_ns, 20);
        assert!((0..20).all(|_| take(ip(1), 0) == Ok(Duration::ZERO)));
        // The turns of those who come at once are one after the other.
        for turn in 1..=40 {
            assert_eq!(take(ip(1), 0), Ok(Duration::from_millis(50 * turn)));
        }
        assert_eq!(take(ip(1), 0), Err(UsedUp));
        assert_eq!(take(ip(2), 0), Ok(Duration::ZERO), "nobody else pays for it");
        // One that was refused owes nothing for it.
        assert_eq!(take(ip(1), SECOND_NS / 20), Ok(LEAF_WAIT_MAX));
        assert_eq!(take(ip(1), SECOND_NS / 20), Err(UsedUp));
        assert!((0..20).all(|_| take(ip(1), 4 * SECOND_NS) == Ok(Duration::ZERO)));
    }

    #[test]
    fn a_turn_that_is_given_back_is_as_if_never_taken() {
        let mut shard = Shard::default();
        assert!((0..60).all(|_| shard.take(ip(1), 10, 0, 20).is_ok()));
        assert_eq!(shard.take(ip(1), 10, 0, 20), Err(UsedUp));
        (0..45).for_each(|_| shard.give_back(ip(1), 20));
        assert!((0..5).all(|_| shard.take(ip(1), 10, 0, 20) == Ok(Duration::ZERO)));
        assert_eq!(shard.take(ip(1), 10, 0, 20), Ok(Duration::from_millis(50)));
        // More than was taken is not owed by us.
        (0..100).for_each(|_| shard.give_back(ip(1), 20));
        assert!((0..20).all(|_| shard.take(ip(1), 10, 0, 20) == Ok(Duration::ZERO)));
    }

    #[test]
    fn other_authorities_take_from_the_same_share() {
        let mut shard = Shard::default();
        assert!((0..10).all(|_| shard.take(ip(1), 10, 0, 20) == Ok(Duration::ZERO)));
        assert!((0..500).all(|_| shard.take(ip(1), 10, 0, 1000) == Ok(Duration::ZERO)));
        assert_eq!(shard.take(ip(1), 10, 0, 1000), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn who_finds_no_place_shares_one_with_others_until_a_client_owes_nothing() {
        let mut shard = Shard::default();
        let mut take = |client, now_ns| shard.take(client, 2, now_ns, 1);
        assert!(take(ip(1), 0).is_ok() && take(ip(2), 0).is_ok());
        assert_eq!(take(ip(3), 0), Ok(Duration::ZERO));
        assert_eq!(take(ip(4), 0), Ok(Duration::from_secs(1)));
        assert_eq!(take(ip(5), 0), Ok(Duration::from_secs(2)));
        assert_eq!(take(ip(6), 0), Err(UsedUp));
        // Those with a place have what is theirs.
        assert_eq!(take(ip(2), SECOND_NS / 2), Ok(Duration::from_millis(500)));
        assert_eq!(take(ip(2), SECOND_NS / 2), Ok(Duration::from_millis(1500)));
        assert_eq!(take(ip(6), 2 * SECOND_NS), Ok(Duration::ZERO));
        assert_eq!(shard.clients.len(), 1 + 1, "1 has left, 2 owes");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let turns = LeafTurns::with_room(SHARDS);
        let take = |ip: &str| turns.take(ip.parse().expect("an address"), 1);
        assert_eq!(take("2001:db8::1"), Ok(Duration::ZERO));
        assert!(take("2001:db8::2").is_ok_and(|wait| wait > Duration::ZERO));
        assert_eq!(take("2001:db8:0:1::1"), Ok(Duration::ZERO));
    }
}
