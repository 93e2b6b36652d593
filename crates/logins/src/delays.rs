//! Delays of checks after wrong passwords, so that nobody tries passwords by the thousand.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use humboldt_base::client_network::client_network;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Wrong logins of an address that cost it nothing: people mistype.
const FREE_FAILURES: u32 = 5;

/// The pause between two checks for an address after the first wrong login that is not free; twice
/// as long after each further one.
const PAUSE_MS: i64 = 125;

/// Longest pause between two checks for one address. Many people may share it, so it is short; but
/// a guesser has no more than one try in this time.
pub(crate) const PAUSE_MS_MAX: i64 = 1000;

/// Longest time that a check waits for its turn; a client that would wait longer is refused.
pub(crate) const TURN_WAIT_MS_MAX: i64 = 10_000;

/// Most checks for one address at a time; further ones wait for a place. Guesses sent all at once
/// are no more before the first of them has failed, and the others' checks have places left.
pub(crate) const PLACES_MAX: usize = 16;

/// An address without a wrong login for this time is forgotten.
const FORGOTTEN_AFTER_MS: i64 = 60_000;

/// Most addresses with wrong logins that are remembered; beyond it one of the others is forgotten,
/// an old one if there is one.
pub(crate) const SUSPECTS_MAX: usize = 16_384;

/// Entries of the full table that are looked at for one to forget.
const LOOKED_AT: usize = 16;

struct Suspect {
    /// Checks that have a place, or wait for one.
    users: u32,
    places: Arc<Semaphore>,
    failures: u32,
    last_failure_ms: i64,
    /// The next check may begin then.
    next_ms: i64,
}

impl Suspect {
    fn new(now_ms: i64) -> Self {
        let places = Arc::new(Semaphore::new(PLACES_MAX));
        Self { users: 0, places, failures: 0, last_failure_ms: now_ms, next_ms: now_ms }
    }

    /// Forgets what was long ago.
    fn refresh(&mut self, now_ms: i64) {
        if self.is_forgotten(now_ms) {
            (self.failures, self.last_failure_ms, self.next_ms) = (0, now_ms, now_ms);
        }
    }

    fn pause_ms(&self) -> i64 {
        match self.failures.checked_sub(FREE_FAILURES + 1) {
            None => 0,
            Some(doublings) => PAUSE_MS.saturating_mul(1 << doublings.min(16)).min(PAUSE_MS_MAX),
        }
    }

    fn is_forgotten(&self, now_ms: i64) -> bool {
        !(0..FORGOTTEN_AFTER_MS).contains(&(now_ms - self.last_failure_ms))
            && self.next_ms <= now_ms
    }
}

/// The addresses with wrong logins.
#[derive(Default)]
pub(crate) struct Delays(Mutex<HashMap<IpAddr, Suspect>>);

/// The client has to come back later.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Delays {
    /// Waits for a place among the checks of this address.
    pub(crate) async fn place(&self, of: IpAddr, now_ms: i64) -> Result<Place<'_>, TooMany> {
        let of = client_network(of);
        let places = {
            let mut suspects = self.0.lock();
            make_room(&mut suspects, of)?;
            let suspect = suspects.entry(of).or_insert_with(|| Suspect::new(now_ms));
            suspect.users += 1;
            Arc::clone(&suspect.places)
        };
        let mut place = Place { delays: self, of, reserved_ms: 0, permit: None };
        let longest = Duration::from_millis(TURN_WAIT_MS_MAX.unsigned_abs());
        let permit = timeout(longest, places.acquire_owned()).await;
        place.permit = Some(permit.map_err(|_| TooMany)?.map_err(|_| TooMany)?);
        Ok(place)
    }

    /// The time in ms that a check for this address has to wait. The checks of an address take
    /// turns, however many connections it has.
    #[cfg(test)]
    pub(crate) fn turn_ms(&self, of: IpAddr, now_ms: i64) -> Result<i64, TooMany> {
        self.reserve(of, now_ms).map(|(wait_ms, _)| wait_ms)
    }

    /// Reserves the next turn of this address: the wait for it, and the time that is given back if
    /// the check does not begin, both in ms.
    fn reserve(&self, of: IpAddr, now_ms: i64) -> Result<(i64, i64), TooMany> {
        let mut suspects = self.0.lock();
        let Some(suspect) = suspects.get_mut(&client_network(of)) else { return Ok((0, 0)) };
        if suspect.users == 0 && suspect.is_forgotten(now_ms) {
            suspects.remove(&client_network(of));
            return Ok((0, 0));
        }
        suspect.refresh(now_ms);
        // A clock that went backwards does not make anybody wait.
        let begins_ms = match suspect.next_ms.saturating_sub(now_ms) {
            0..=TURN_WAIT_MS_MAX => suspect.next_ms,
            ahead if ahead > TURN_WAIT_MS_MAX + PAUSE_MS_MAX => now_ms,
            ahead if ahead > 0 => return Err(TooMany),
            _ => now_ms,
        };
        let before_ms = suspect.next_ms;
        suspect.next_ms = begins_ms + suspect.pause_ms();
        Ok((begins_ms - now_ms, suspect.next_ms - before_ms))
    }

    /// The time at which the next check for this network may begin.
    #[cfg(test)]
    fn next_ms(&self, of: IpAddr) -> i64 {
        self.0.lock().get(&of).map_or(0, |suspect| suspect.next_ms)
    }

    /// Notes a wrong login.
    pub(crate) fn failed(&self, of: IpAddr, now_ms: i64) {
        let mut suspects = self.0.lock();
        let key = client_network(of);
        if make_room(&mut suspects, key).is_err() {
            return;
        }
        let suspect = suspects.entry(key).or_insert_with(|| Suspect::new(now_ms));
        suspect.refresh(now_ms);
        suspect.failures = suspect.failures.saturating_add(1);
        suspect.last_failure_ms = now_ms;
        suspect.next_ms = suspect.next_ms.max(now_ms + suspect.pause_ms());
    }
}

/// Makes room for one more address, if it is not there; none of those with a check leaves.
fn make_room(suspects: &mut HashMap<IpAddr, Suspect>, of: IpAddr) -> Result<(), TooMany> {
    if suspects.len() < SUSPECTS_MAX || suspects.contains_key(&of) {
        return Ok(());
    }
    let some = suspects.iter().filter(|(_, suspect)| suspect.users == 0).take(LOOKED_AT);
    let oldest = some.min_by_key(|(_, suspect)| suspect.last_failure_ms).map(|(of, _)| *of);
    suspects.remove(&oldest.ok_or(TooMany)?);
    Ok(())
}

/// A place among the checks of an address, until it is dropped.
pub(crate) struct Place<'d> {
    delays: &'d Delays,
    of: IpAddr,
    /// Time that is given back if the check does not begin.
    reserved_ms: i64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Place<'_> {
    /// Waits for the turn of the check; `true` if it took time.
    pub(crate) async fn turn(&mut self, now_ms: i64) -> Result<bool, TooMany> {
        let (wait_ms, reserved_ms) = self.delays.reserve(self.of, now_ms)?;
        let Ok(wait @ 1..) = u64::try_from(wait_ms) else { return Ok(false) };
        self.reserved_ms = reserved_ms;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.reserved_ms = 0;
        Ok(true)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut suspects = self.delays.0.lock();
        let Some(suspect) = suspects.get_mut(&self.of) else { return };
        suspect.users -= 1;
        suspect.next_ms -= self.reserved_ms.max(0);
        if suspect.users == 0 && suspect.failures == 0 {
            suspects.remove(&self.of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_first_wrong_logins_cost_nothing_and_later_ones_more_and_more() {
        let (delays, guesser) = (Delays::default(), ip("192.0.2.1"));
        let mut waited = Vec::new();
        let mut now_ms = 1_000_000;
        for _ in 0..11 {
            let wait_ms = delays.turn_ms(guesser, now_ms).expect("a turn");
            waited.push(wait_ms);
            now_ms += wait_ms;
            delays.failed(guesser, now_ms);
        }
        assert_eq!(waited, [0, 0, 0, 0, 0, 0, 125, 250, 500, 1000, 1000]);
        assert_eq!(delays.turn_ms(ip("192.0.2.2"), now_ms), Ok(0));
        assert_eq!(delays.turn_ms(guesser, now_ms + FORGOTTEN_AFTER_MS), Ok(0));
        assert!(delays.0.lock().is_empty());
    }

    #[test]
    fn connections_of_one_address_take_turns_and_the_last_are_refused() {
        let (delays, guesser) = (Delays::default(), ip("2001:db8::1"));
        for _ in 0..20 {
            delays.failed(guesser, 0);
        }
        let neighbour = ip("2001:db8::2:3");
        let turns: Vec<_> = (0..12).map(|_| delays.turn_ms(neighbour, 0)).collect();
        let wanted: Vec<_> = (1..=10).map(|turn| Ok(turn * 1000)).collect();
        assert_eq!(turns[..10], wanted);
        assert_eq!(turns[10..], [Err(TooMany); 2]);
        assert_eq!(delays.turn_ms(neighbour, 2000), Ok(9000), "time passes");
        assert_eq!(delays.turn_ms(ip("2001:db8:0:1::1"), 0), Ok(0));
    }

    #[test]
    fn more_suspects_than_the_bound_are_not_remembered() {
        let delays = Delays::default();
        for number in 0..2 * SUSPECTS_MAX as u32 {
            delays.failed(IpAddr::V4(number.into()), i64::from(number));
        }
        assert_eq!(delays.0.lock().len(), SUSPECTS_MAX);
    }

    #[test]
    fn guesses_that_are_sent_at_once_have_no_more_places_than_the_bound() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (delays, guesser) = (Delays::default(), ip("192.0.2.1"));
            let mut places = Vec::new();
            for _ in 0..PLACES_MAX {
                places.push(delays.place(guesser, 0).await.expect("a place"));
            }
            let soon = Duration::from_millis(1);
            assert!(timeout(soon, delays.place(guesser, 0)).await.is_err());
            assert!(timeout(soon, delays.place(ip("192.0.2.2"), 0)).await.is_ok());
            places.pop();
            assert!(timeout(soon, delays.place(guesser, 0)).await.is_ok());
            drop(places);
            assert!(delays.0.lock().is_empty(), "nobody is left without a wrong login");
        });
    }

    #[test]
    fn who_leaves_before_the_turn_gives_it_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (delays, guesser) = (Delays::default(), ip("192.0.2.1"));
            for _ in 0..20 {
                delays.failed(guesser, 0);
            }
            let before = delays.next_ms(guesser);
            for _ in 0..12 {
                let mut place = delays.place(guesser, 0).await.expect("a place");
                _ = timeout(Duration::from_millis(1), place.turn(0)).await;
            }
            assert_eq!(delays.next_ms(guesser), before);
        });
    }
}
