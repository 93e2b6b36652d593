//! Chains that are being read in pieces: their slots are not used again before that has ended, also
//! when the object has been evicted, replaced or removed.
//!
//! The first slot is never kept: a reader has it in memory, and a purge overwrites it. So a chain
//! is known here by its second slot. Part of a directory at most is kept in this way
//! ([`KEPT_ONE_IN`]): beyond it slots are used again at once, and the reader cannot go on.

use std::collections::HashMap;
use std::sync::Arc;

use super::slots::Run;

/// One slot in this many may be kept for readers: clients that read slowly leave most of the
/// directory to stored objects.
const KEPT_ONE_IN: u32 = 4;

/// The right to find a chain unchanged; to be given to [`HeldChains::release`].
#[derive(Debug)]
pub(crate) struct Hold {
    second: u32,
    token: Arc<()>,
}

/// A chain that is being read.
#[derive(Debug)]
struct HeldChain {
    token: Arc<()>,
    readers: u32,
    /// Its slots, when no look-up finds it any more.
    kept: Vec<Run>,
}

/// The chains that are being read, by their second slots.
#[derive(Debug, Default)]
pub(crate) struct HeldChains {
    chains: HashMap<u32, HeldChain>,
    kept_slots: u32,
}

impl HeldChains {
    /// Somebody begins to read a chain of at least two slots, which can be found now.
    pub(crate) fn hold(&mut self, runs: &[Run]) -> Option<Hold> {
        let second = behind_first(runs).first()?.start;
        let new = || HeldChain { token: Arc::default(), readers: 0, kept: Vec::new() };
        let chain = self.chains.entry(second).or_insert_with(new);
        chain.readers += 1;
        Some(Hold { second, token: Arc::clone(&chain.token) })
    }

    /// Of the slots of a chain that no look-up finds any more, those that can be used again now.
    pub(crate) fn keep(&mut self, runs: &[Run], total_slots: u32) -> Vec<Run> {
        let rest = behind_first(runs);
        let (Some(first), Some(second)) = (runs.first(), rest.first()) else {
            return runs.to_vec();
        };
        let Some(chain) = self.chains.get_mut(&second.start) else { return runs.to_vec() };
        let kept_slots = self.kept_slots + slots_of(&rest);
        if kept_slots > total_slots / KEPT_ONE_IN {
            self.chains.remove(&second.start);
            return runs.to_vec();
        }
        self.kept_slots = kept_slots;
        chain.kept = rest;
        vec![Run { start: first.start, len: 1 }]
    }

    /// A reader has ended. Returns slots that can be used again.
    pub(crate) fn release(&mut self, hold: &Hold) -> Vec<Run> {
        let is_it = |chain: &&mut HeldChain| Arc::ptr_eq(&chain.token, &hold.token);
        let Some(chain) = self.chains.get_mut(&hold.second).filter(is_it) else {
            return Vec::new();
        };
        chain.readers -= 1;
        if chain.readers > 0 {
            return Vec::new();
        }
        let kept = self.chains.remove(&hold.second).map(|chain| chain.kept).unwrap_or_default();
        self.kept_slots -= slots_of(&kept);
        kept
    }
}

fn slots_of(runs: &[Run]) -> u32 {
    runs.iter().map(|run| run.len).sum()
}

/// A chain without its first slot.
fn behind_first(runs: &[Run]) -> Vec<Run> {
    let mut rest = runs.to_vec();
    if let Some(first) = rest.first_mut() {
        (first.start, first.len) = (first.start + 1, first.len - 1);
    }
    rest.retain(|run| run.len > 0);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, len: u32) -> Run {
        Run { start, len }
    }

    #[test]
    fn slots_are_kept_until_the_last_reader_has_ended() {
        let mut held = HeldChains::default();
        let chain = [run(7, 1), run(3, 2), run(20, 5)];
        assert_eq!(held.keep(&chain, 100), chain, "nobody reads it");
        let holds = [(); 2].map(|()| held.hold(&chain).expect("a chain"));
        assert_eq!(held.keep(&chain, 100), [run(7, 1)]);
        assert_eq!(held.release(&holds[0]), []);
        assert_eq!(held.release(&holds[1]), chain[1..]);
        assert_eq!(held.release(&holds[1]), [], "once");
        assert_eq!((held.chains.len(), held.kept_slots), (0, 0));
        assert!(held.hold(&[run(4, 1)]).is_none() && held.hold(&[]).is_none());
    }

    #[test]
    fn what_ends_while_it_can_still_be_found_keeps_nothing() {
        let mut held = HeldChains::default();
        let hold = held.hold(&[run(0, 4)]).expect("a chain");
        assert_eq!(held.release(&hold), []);
        assert_eq!(held.keep(&[run(0, 4)], 100), [run(0, 4)]);
    }

    #[test]
    fn no_more_is_kept_than_a_part_of_the_directory() {
        let mut held = HeldChains::default();
        let (one, two) = ([run(0, 14)], [run(14, 14)]);
        let holds = [&one, &two].map(|chain| held.hold(chain).expect("a chain"));
        assert_eq!(held.keep(&one, 100), [run(0, 1)]);
        assert_eq!(held.keep(&two, 100), two, "one slot too many");
        // The same slots belong to another object now.
        let other = held.hold(&two).expect("a chain");
        assert_eq!(held.release(&holds[1]), []);
        assert_eq!(held.release(&holds[0]), [run(1, 13)]);
        assert_eq!(held.keep(&two, 100), [run(14, 1)]);
        assert_eq!(held.release(&other), [run(15, 13)]);
        assert_eq!((held.chains.len(), held.kept_slots), (0, 0));
    }
}
