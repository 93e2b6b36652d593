//! The addresses from which each user has come lately, for `max_user_ip`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::user::User;

/// Most addresses of one user that are remembered; further ones are counted, and not remembered.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// Most users whose addresses are remembered; beyond it another one's are forgotten.
pub(crate) const USERS_MAX: usize = 65_536;

/// A limit of `max_user_ip`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// More addresses than this match.
    pub(crate) addresses_max: u32,
    /// `-s`: the new address is the one too many. Otherwise all are forgotten, so that users can
    /// move to another machine.
    pub(crate) is_strict: bool,
}

/// Addresses with the time of their last use.
type Places = Vec<(IpAddr, i64)>;

/// The addresses of all users.
#[derive(Default)]
pub(crate) struct Addresses(Mutex<HashMap<Arc<str>, Places>>);

impl Addresses {
    /// Notes that the user comes from an address, and gives the number of addresses within the
    /// last `lifetime` (`authenticate_ip_ttl`). If it is above the limit, the address is not noted
    /// (strict), or all are forgotten.
    pub(crate) fn note(
        &self,
        user: &User,
        from: IpAddr,
        now_ms: i64,
        lifetime: Duration,
        limit: Limit,
    ) -> u32 {
        let mut users = self.0.lock();
        if users.len() >= USERS_MAX && !users.contains_key(user.name()) {
            let other = users.keys().next().cloned();
            other.and_then(|other| users.remove(&other));
        }
        let places = users.entry(user.shared_name()).or_default();
        let lifetime_ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
        let is_recent = |used_ms: i64| (0..lifetime_ms).contains(&(now_ms - used_ms));
        places.retain(|(place, used_ms)| *place != from && is_recent(*used_ms));
        let count = u32::try_from(places.len() + 1).unwrap_or(u32::MAX);
        match (count > limit.addresses_max, limit.is_strict) {
            (true, true) => {}
            (true, false) => places.clear(),
            (false, _) if places.len() < ADDRESSES_MAX => places.push((from, now_ms)),
            (false, _) => {}
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Told;

    fn counts(is_strict: bool, steps: &[(u8, i64)]) -> Vec<u32> {
        let (addresses, user) = (Addresses::default(), User::new("anna", Told::default()));
        let limit = Limit { addresses_max: 2, is_strict };
        let lifetime = Duration::from_secs(10);
        let note = |&(place, now_s): &(u8, i64)| {
            addresses.note(&user, [192, 0, 2, place].into(), now_s * 1000, lifetime, limit)
        };
        steps.iter().map(note).collect()
    }

    #[test]
    fn a_strict_limit_keeps_the_first_addresses_and_the_other_forgets_all() {
        let steps = [(1, 0), (2, 1), (1, 2), (3, 3), (1, 4), (3, 5), (2, 6)];
        assert_eq!(counts(true, &steps), [1, 2, 2, 3, 2, 3, 2]);
        assert_eq!(counts(false, &steps), [1, 2, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn addresses_are_forgotten_after_their_time() {
        assert_eq!(counts(true, &[(1, 0), (2, 5), (3, 9), (3, 11), (1, 21)]), [1, 2, 3, 2, 1]);
    }

    #[test]
    fn more_users_and_addresses_than_the_bounds_are_not_remembered() {
        let addresses = Addresses::default();
        let limit = Limit { addresses_max: u32::MAX, is_strict: true };
        let note = |user: &User, from: u32| {
            addresses.note(user, IpAddr::V4(from.into()), 0, Duration::from_secs(10), limit)
        };
        let anna = User::new("anna", Told::default());
        let most = (0..2 * ADDRESSES_MAX as u32).map(|from| note(&anna, from)).max();
        assert_eq!(most, Some(ADDRESSES_MAX as u32 + 1));
        for number in 0..USERS_MAX + 10 {
            note(&User::new(number.to_string(), Told::default()), 1);
        }
        assert_eq!(addresses.0.lock().len(), USERS_MAX);
    }
}
