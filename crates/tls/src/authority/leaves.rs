//! The certificates that have been made, within a bound.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use humboldt_base::bump::SignAs;
use parking_lot::Mutex;
use rustls::ServerConfig;
use sha2::{Digest, Sha256};

use super::draft::period;
use super::wish::{LeafFault, LeafWish};
use crate::server::ServerSide;

/// Memory for a certificate beside its own bytes: its settings, which are a copy of the port's, its
/// places here, and what the allocator rounds up.
const LEAF_BYTES: usize = size_of::<ServerConfig>() + 1024;

/// Everything that makes a certificate differ from others.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// It is a digest that nobody can find a second wish for: servers choose their certificates.
    pub(super) fn of(wish: &LeafWish<'_>, now_s: i64) -> Self {
        let LeafWish { names, mimic, within_s, has_faults: _, sign, changes } = wish;
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        add(&[
            match sign {
                SignAs::Trusted => 0,
                SignAs::Untrusted => 1,
                SignAs::SelfSigned => 2,
            },
            changes.ends_with_authority.into(),
            changes.begins_with_authority.into(),
            changes.common_name.is_some().into(),
            mimic.is_some().into(),
            within_s.is_some().into(),
        ]);
        let (begins_s, ends_s) = within_s.unwrap_or_default();
        add(&begins_s.to_le_bytes());
        add(&ends_s.to_le_bytes());
        add(changes.common_name.unwrap_or_default().as_bytes());
        match mimic {
            Some(der) => add(der),
            None => {
                add(&period(now_s).to_le_bytes());
                for name in *names {
                    add(name.as_bytes());
                }
            }
        }
        Self(digest.finalize().into())
    }
}

/// Certificates that have been made. Those that nobody has asked for since they came give way to
/// new ones, oldest first.
pub(super) struct Leaves {
    bytes_max: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    places: HashMap<Key, Arc<Place>>,
    /// Those that are made, oldest first, with their sizes.
    order: VecDeque<(Key, usize)>,
    bytes: usize,
}

/// The place of a certificate. Its lock is held while the certificate is made, so that no two cores
/// make the same one.
#[derive(Default)]
struct Place {
    leaf: Mutex<Option<ServerSide>>,
    was_asked_for: AtomicBool,
}

impl Leaves {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, table: Mutex::default() }
    }

    /// The certificate of a key, if it is there.
    pub(super) fn get(&self, key: Key) -> Option<ServerSide> {
        let place = Arc::clone(self.table.lock().places.get(&key)?);
        // One that is being made is there soon.
        let leaf = place.leaf.lock().clone()?;
        place.was_asked_for.store(true, Relaxed);
        Some(leaf)
    }

    /// The certificate of a key; if there is none, the one that `make` makes, which also says how
    /// many bytes it has. Whether it was made comes with it.
    pub(super) fn get_or_make(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<(ServerSide, usize), LeafFault>,
    ) -> Result<(ServerSide, bool), LeafFault> {
        let place = Arc::clone(self.table.lock().places.entry(key).or_default());
        let mut leaf = place.leaf.lock();
        if let Some(side) = &*leaf {
            place.was_asked_for.store(true, Relaxed);
            return Ok((side.clone(), false));
        }
        match make() {
            Ok((side, bytes)) => {
                *leaf = Some(side.clone());
                drop(leaf);
                self.keep(key, &place, bytes + LEAF_BYTES);
                Ok((side, true))
            }
            Err(fault) => {
                self.table.lock().forget(key, &place);
                Err(fault)
            }
        }
    }

    fn keep(&self, key: Key, place: &Arc<Place>, bytes: usize) {
        let mut table = self.table.lock();
        // Somebody who waited for one that could not be made has made it, in a place that is
        // nobody's any more.
        if !table.has(key, place) {
            return;
        }
        table.order.push_back((key, bytes));
        table.bytes += bytes;
        // Each is passed over once at most.
        while table.bytes > self.bytes_max {
            let Some((oldest, its_bytes)) = table.order.pop_front() else { return };
            let is_used = |place: &Arc<Place>| place.was_asked_for.swap(false, Relaxed);
            if its_bytes <= self.bytes_max && table.places.get(&oldest).is_some_and(is_used) {
                table.order.push_back((oldest, its_bytes));
                continue;
            }
            table.places.remove(&oldest);
            table.bytes -= its_bytes;
        }
    }
}

impl Table {
    fn has(&self, key: Key, place: &Arc<Place>) -> bool {
        self.places.get(&key).is_some_and(|other| Arc::ptr_eq(other, place))
    }

    fn forget(&mut self, key: Key, place: &Arc<Place>) {
        if self.has(key, place) {
            self.places.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
