//! Nonces of Digest. Giving one out needs no memory: it proves by itself that it is ours. Only
//! those that somebody has logged in with are remembered, with the numbers of their uses.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use data_encoding::HEXLOWER;
use hashbrown::HashMap;
use humboldt_base::rng;
use humboldt_conf::DigestAuth;
use parking_lot::Mutex;
use siphasher::sip128::{Hasher128, SipHasher24};
use subtle::ConstantTimeEq;

/// Most nonces whose uses are remembered. Beyond it the older half, or all, are forgotten, and are
/// as if they had expired: their clients get new ones without asking people for the password.
pub(crate) const NONCES_MAX: usize = 65_536;

/// Bytes of a nonce: the time, a number, and a hash of both with a secret.
const NONCE_BYTES: usize = 32;

/// A nonce of ours.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nonce {
    made_ms: i64,
    number: u64,
}

/// The uses of a nonce.
#[derive(Default)]
struct Uses {
    highest: u32,
    /// Bit `n`: the number `highest - n` has been used.
    used: u64,
}

impl Uses {
    /// Whether the number is a new one. Connections of one client overtake each other, so that up
    /// to 63 numbers may come late, unless each has to be the next.
    fn take(&mut self, count: u32, is_strict: bool) -> bool {
        if is_strict && count != self.highest.saturating_add(1) {
            return false;
        }
        if count > self.highest {
            self.used = self.used.checked_shl(count - self.highest).unwrap_or(0) | 1;
            self.highest = count;
            return true;
        }
        let bit = 1_u64.checked_shl(self.highest - count).unwrap_or(0);
        let is_new = count > 0 && bit != 0 && self.used & bit == 0;
        self.used |= bit;
        is_new
    }
}

#[derive(Default)]
struct Table {
    uses: HashMap<(i64, u64), Uses>,
    /// Nonces that are not younger have expired.
    forgotten_ms: i64,
    cleared_ms: i64,
}

/// All nonces of the process.
pub(crate) struct Nonces {
    secret: (u64, u64),
    made: AtomicU64,
    table: Mutex<Table>,
}

impl Default for Nonces {
    fn default() -> Self {
        let secret = (rng::secret(), rng::secret());
        Self { secret, made: AtomicU64::new(0), table: Mutex::default() }
    }
}

impl Nonces {
    /// A new one, as text.
    pub(crate) fn make(&self, now_ms: i64) -> String {
        let nonce = Nonce { made_ms: now_ms, number: self.made.fetch_add(1, Relaxed) };
        HEXLOWER.encode(&self.bytes(nonce))
    }

    fn bytes(&self, nonce: Nonce) -> [u8; NONCE_BYTES] {
        let mut bytes = [0; NONCE_BYTES];
        bytes[..8].copy_from_slice(&nonce.made_ms.to_be_bytes());
        bytes[8..16].copy_from_slice(&nonce.number.to_be_bytes());
        let mut hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(&bytes[..16]);
        bytes[16..].copy_from_slice(&hasher.finish128().as_bytes());
        bytes
    }

    /// The nonce with this text, if this process has made it.
    pub(crate) fn read(&self, text: &[u8]) -> Option<Nonce> {
        let mut bytes = [0; NONCE_BYTES];
        if HEXLOWER.decode_len(text.len()) != Ok(NONCE_BYTES) {
            return None;
        }
        HEXLOWER.decode_mut(text, &mut bytes).ok()?;
        let nonce = Nonce {
            made_ms: i64::from_be_bytes(bytes[..8].try_into().ok()?),
            number: u64::from_be_bytes(bytes[8..16].try_into().ok()?),
        };
        bool::from(self.bytes(nonce).ct_eq(&bytes)).then_some(nonce)
    }

    /// Uses a nonce for the `count`th time. `false`: it has expired, or the number has been used.
    pub(crate) fn take(&self, nonce: Nonce, count: u32, now_ms: i64, digest: &DigestAuth) -> bool {
        let lifetime_ms = millis(digest.nonce_max_duration);
        let is_young = |made_ms: i64| (0..lifetime_ms).contains(&now_ms.saturating_sub(made_ms));
        if !is_young(nonce.made_ms) {
            return false;
        }
        if !digest.check_nonce_count {
            return true;
        }
        let table = &mut *self.table.lock();
        if count > digest.nonce_max_count || nonce.made_ms < table.forgotten_ms {
            return false;
        }
        let interval_ms = millis(digest.nonce_garbage_interval);
        let is_full = table.uses.len() >= NONCES_MAX;
        if is_full || now_ms.saturating_sub(table.cleared_ms) >= interval_ms {
            table.cleared_ms = now_ms;
            table.uses.retain(|(made_ms, _), _| is_young(*made_ms));
        }
        let key = (nonce.made_ms, nonce.number);
        for forgotten_ms in [now_ms - lifetime_ms / 2, now_ms + 1] {
            if table.uses.len() >= NONCES_MAX && !table.uses.contains_key(&key) {
                table.forgotten_ms = forgotten_ms;
                table.uses.retain(|(made_ms, _), _| *made_ms >= forgotten_ms);
            }
        }
        if nonce.made_ms < table.forgotten_ms {
            return false;
        }
        table.uses.entry(key).or_default().take(count, digest.nonce_strictness)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().uses.len()
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(nonces: &Nonces, now_ms: i64) -> Nonce {
        nonces.read(nonces.make(now_ms).as_bytes()).expect("ours")
    }

    #[test]
    fn only_nonces_of_this_process_count() {
        let (own, other) = (Nonces::default(), Nonces::default());
        let text = own.make(5);
        assert!(own.read(text.as_bytes()).is_some() && other.read(text.as_bytes()).is_none());
        assert_ne!(own.make(5), own.make(5));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(own.read(&changed).is_none());
            assert!(own.read(&text.as_bytes()[..at]).is_none());
        }
    }

    #[test]
    fn no_number_counts_twice_and_late_ones_count() {
        let digest = DigestAuth::default();
        let nonces = Nonces::default();
        let nonce = made(&nonces, 0);
        let take = |count| nonces.take(nonce, count, 0, &digest);
        let taken = [1, 1, 3, 2, 3, 2, 0, 50, 49, 51, 4, 4].map(take);
        assert_eq!(
            taken,
            [true, false, true, true, false, false, false, true, true, false, true, false]
        );
        let strict = DigestAuth { nonce_strictness: true, ..DigestAuth::default() };
        let nonce = made(&nonces, 0);
        let taken = [1, 3, 2, 2, 3].map(|count| nonces.take(nonce, count, 0, &strict));
        assert_eq!(taken, [true, false, true, false, true]);
        let free = DigestAuth { check_nonce_count: false, ..DigestAuth::default() };
        assert!(nonces.take(nonce, 1, 0, &free) && nonces.take(nonce, 1, 0, &free));
    }

    #[test]
    fn uses_far_behind_are_not_new() {
        let mut uses = Uses::default();
        assert!(uses.take(100, false) && uses.take(37, false) && !uses.take(36, false));
        assert!(uses.take(u32::MAX, false) && !uses.take(100, false));
    }

    #[test]
    fn nonces_expire() {
        let digest =
            DigestAuth { nonce_max_duration: Duration::from_secs(10), ..DigestAuth::default() };
        let nonces = Nonces::default();
        let nonce = made(&nonces, 1000);
        assert!(nonces.take(nonce, 1, 10_999, &digest) && !nonces.take(nonce, 2, 11_000, &digest));
        assert!(!nonces.take(nonce, 3, 999, &digest), "the clock went backwards");
    }

    #[test]
    fn forgotten_nonces_cannot_be_used_again() {
        let digest = DigestAuth::default();
        let nonces = Nonces::default();
        let first = made(&nonces, 1);
        assert!(nonces.take(first, 1, 1, &digest));
        for number in 0..NONCES_MAX as i64 {
            let now_ms = 2 + number / 1000;
            let nonce = made(&nonces, now_ms);
            nonces.take(nonce, 1, now_ms, &digest);
            assert!(nonces.len() <= NONCES_MAX);
        }
        assert!(!nonces.take(first, 1, 100, &digest) && !nonces.take(first, 2, 100, &digest));
        let later = made(&nonces, 1000);
        assert!(nonces.take(later, 1, 1000, &digest), "new ones can");
    }
}
