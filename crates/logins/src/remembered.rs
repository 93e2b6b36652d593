//! The results of checks, by a keyed hash of the credentials.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use humboldt_base::rng;
use parking_lot::Mutex;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::user::User;

/// Most credentials that are remembered in all. When a shard is full, one of its credentials is
/// forgotten, an expired one if there is one: they are checked again.
pub(crate) const REMEMBERED_MAX: usize = 65_536;

/// Parts with a lock each. Their number is a power of two.
const SHARDS: usize = 64;

/// Most credentials of one shard.
const OF_SHARD_MAX: usize = REMEMBERED_MAX / SHARDS;

/// Entries of a full shard that are looked at for one to forget.
const LOOKED_AT: usize = 16;

/// A hash of credentials. Without the secret of this process nobody can find credentials with the
/// same hash, nor guess passwords from it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u128);

/// How long right credentials are remembered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lifetimes {
    /// Since they were checked (`credentialsttl`).
    pub(crate) checked: Duration,
    /// Since their last use (`authenticate_ttl`).
    pub(crate) unused: Duration,
}

struct Entry {
    user: Arc<User>,
    checked_ms: i64,
    used_ms: i64,
}

impl Entry {
    /// A clock that went backwards makes it expire: its age is not known any more.
    fn is_valid(&self, now_ms: i64, lifetimes: Lifetimes) -> bool {
        is_valid(self.checked_ms, self.used_ms, now_ms, lifetimes)
    }
}

/// Whether something that was checked and used at these times still counts.
pub(crate) fn is_valid(checked_ms: i64, used_ms: i64, now_ms: i64, lifetimes: Lifetimes) -> bool {
    let is_within = |since_ms: i64, lifetime: Duration| {
        let age_ms = u128::try_from(now_ms.saturating_sub(since_ms));
        age_ms.is_ok_and(|age_ms| age_ms < lifetime.as_millis())
    };
    is_within(checked_ms, lifetimes.checked) && is_within(used_ms, lifetimes.unused)
}

/// The credentials that were right.
pub(crate) struct Remembered {
    secret: (u64, u64),
    shards: Box<[Mutex<HashMap<Fingerprint, Entry>>]>,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            secret: (rng::secret(), rng::secret()),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Remembered {
    /// The hash of a field's value, and of further texts that belong to the question.
    pub(crate) fn fingerprint(&self, texts: &[&[u8]]) -> Fingerprint {
        let mut hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
        for text in texts {
            hasher.write(text);
            // The length keeps two texts apart from one that has both.
            hasher.write_usize(text.len());
        }
        Fingerprint(hasher.finish128().as_u128())
    }

    fn shard(&self, of: Fingerprint) -> &Mutex<HashMap<Fingerprint, Entry>> {
        &self.shards[of.0 as usize & (SHARDS - 1)]
    }

    /// The user with these credentials, if they were right not long ago.
    pub(crate) fn get(
        &self,
        of: Fingerprint,
        now_ms: i64,
        lifetimes: Lifetimes,
    ) -> Option<Arc<User>> {
        let mut shard = self.shard(of).lock();
        let entry = shard.get_mut(&of)?;
        if !entry.is_valid(now_ms, lifetimes) {
            shard.remove(&of);
            return None;
        }
        entry.used_ms = now_ms;
        Some(Arc::clone(&entry.user))
    }

    /// Remembers credentials that are right.
    pub(crate) fn insert(
        &self,
        of: Fingerprint,
        user: Arc<User>,
        now_ms: i64,
        lifetimes: Lifetimes,
    ) {
        let mut shard = self.shard(of).lock();
        if shard.len() >= OF_SHARD_MAX && !shard.contains_key(&of) {
            let mut some = shard.iter().take(LOOKED_AT);
            let expired = some.find(|(_, entry)| !entry.is_valid(now_ms, lifetimes));
            let leaving = expired
                .or_else(|| shard.iter().take(LOOKED_AT).min_by_key(|(_, entry)| entry.used_ms));
            if let Some(leaving) = leaving.map(|(of, _)| *of) {
                shard.remove(&leaving);
            }
        }
        shard.insert(of, Entry { user, checked_ms: now_ms, used_ms: now_ms });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Told;

    const LIFETIMES: Lifetimes =
        Lifetimes { checked: Duration::from_secs(100), unused: Duration::from_secs(10) };

    fn user() -> Arc<User> {
        Arc::new(User::new("anna", Told::default()))
    }

    #[test]
    fn credentials_expire_by_the_check_and_by_their_last_use() {
        let remembered = Remembered::default();
        let of = remembered.fingerprint(&[b"Basic YTpi"]);
        remembered.insert(of, user(), 0, LIFETIMES);
        let known = |now_s: i64| remembered.get(of, now_s * 1000, LIFETIMES).is_some();
        assert!((0..100).step_by(9).all(known), "each use counts");
        assert!(!known(100), "but not beyond the time since the check");
        remembered.insert(of, user(), 0, LIFETIMES);
        assert!(known(9) && !known(19));
        remembered.insert(of, user(), 1000, LIFETIMES);
        assert!(!known(0), "the clock went backwards");
    }

    #[test]
    fn other_credentials_and_other_processes_have_other_hashes() {
        let (one, two) = (Remembered::default(), Remembered::default());
        assert_eq!(one.fingerprint(&[b"a"]), one.fingerprint(&[b"a"]));
        assert_ne!(one.fingerprint(&[b"a"]), one.fingerprint(&[b"b"]));
        assert_ne!(one.fingerprint(&[b"a"]), two.fingerprint(&[b"a"]));
    }

    #[test]
    fn more_credentials_than_the_bound_are_not_remembered() {
        let remembered = Remembered::default();
        for number in 0..2 * REMEMBERED_MAX {
            let of = remembered.fingerprint(&[&number.to_ne_bytes()]);
            remembered.insert(of, user(), number as i64, LIFETIMES);
            assert!(remembered.get(of, number as i64, LIFETIMES).is_some());
        }
        assert!(remembered.len() <= REMEMBERED_MAX);
    }
}
