//! Budget, eviction and policies of the memory tier.

use std::sync::Arc;

use humboldt_base::rng::Rng;
use parking_lot::Mutex;

use super::*;
use crate::events::NoEvents;
use crate::testing::{body_of, key, object_of, pattern, tier};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Stores an object as the cache does: pages from the shared pool, while others are evicted.
fn store(tier: &MemTier, key: Key, bytes: usize) -> bool {
    let mut pages = Vec::new();
    for start in (0..bytes).step_by(PAGE_BYTES) {
        let mut page = tier.alloc_page(0).expect("pages are there");
        page.append(&pattern(start, bytes.min(start + PAGE_BYTES)));
        pages.push(page.share());
    }
    tier.insert(key, Entry::Object(object_of(key, crate::body::Body::from_pages(pages.iter()))))
}

#[test]
fn entries_are_found_replaced_and_removed() {
    let tier = tier(MIB);
    assert!(tier.get(&key(1)).is_none());
    assert!(store(&tier, key(1), 100) && store(&tier, key(2), 10_000));
    assert!(tier.insert(key(3), Entry::HitForMiss { until: 9 }));
    assert!(matches!(tier.get(&key(1)), Some(Entry::Object(object)) if object.body_bytes() == 100));
    assert!(matches!(tier.get(&key(3)), Some(Entry::HitForMiss { until: 9 })));
    assert!(store(&tier, key(1), 200));
    assert!(matches!(tier.get(&key(1)), Some(Entry::Object(object)) if object.body_bytes() == 200));
    assert_eq!((tier.stats().entries, tier.stats().stored_page_bytes), (3, 2 * PAGE_BYTES as u64));
    assert!(
        tier.remove(&key(1)).is_some() && tier.remove(&key(1)).is_none() && !tier.contains(&key(1))
    );
    assert!(tier.remove(&key(2)).is_some() && tier.remove(&key(3)).is_some());
    assert_eq!(
        (tier.used_bytes(), tier.stats().entries, tier.stats().stored_page_bytes),
        (0, 0, 0)
    );
}

#[test]
fn the_budget_holds_whatever_is_stored() {
    for policy in Policy::ALL {
        let limit = 4 * MIB;
        let tier = MemTier::new(limit, 2, policy, Arc::new(NoEvents));
        let mut rng = Rng::new(1);
        let mut stored = 0;
        for n in 0..10_000 {
            // All sizes, small ones more often.
            let magnitude = rng.below(19);
            let bytes = 1 + rng.below(1 << magnitude) as usize;
            store(&tier, key(rng.below(30_000)), bytes);
            stored += bytes as u64;
            assert!(tier.used_bytes() <= limit, "{policy:?} after {n}: {}", tier.used_bytes());
            if n % 3 == 0 {
                tier.get(&key(rng.below(1000)));
            }
        }
        assert_eq!(tier.stats().stored_page_bytes, tier.stats().page_bytes, "nothing is in flight");
        assert!(stored > 10 * limit && tier.stats().evictions > 1000);
        assert!(tier.used_bytes() > limit / 10 * 9, "room is used: {}", tier.used_bytes());
        for n in 0..30_000 {
            tier.remove(&key(n));
        }
        assert_eq!(tier.used_bytes(), 0, "accounting is exact");
    }
}

#[test]
fn lru_evicts_in_order_of_use_across_shards() {
    let tier = tier(MIB);
    let each = 50 * KIB as usize;
    // Twenty objects, nineteen of which fit.
    for n in 0..19 {
        assert!(store(&tier, key(n), each));
    }
    assert!(tier.get(&key(0)).is_some());
    assert!(store(&tier, key(100), each) && store(&tier, key(101), each));
    let left: Vec<u64> = (0..19).filter(|n| tier.contains(&key(*n))).collect();
    assert!(left.contains(&0), "just used");
    assert!(!left.contains(&1), "the oldest");
    assert!(left.windows(2).all(|pair| pair[0] == 0 || pair[1] == pair[0] + 1), "{left:?}");
}

/// Number of survivors among a hundred used objects, after `others` objects that are never
/// requested again.
fn survivors_of_a_scan(policy: Policy, others: u64) -> usize {
    let tier = MemTier::new(4 * MIB, 1, policy, Arc::new(NoEvents));
    for n in 0..100 {
        store(&tier, key(n), 8000);
    }
    for _ in 0..3 {
        assert!((0..100).all(|n| tier.get(&key(n)).is_some()));
    }
    for n in 1000..1000 + others {
        store(&tier, key(n), 8000);
    }
    (0..100).filter(|n| tier.contains(&key(*n))).count()
}

#[test]
fn all_but_lru_keep_what_is_used_through_a_scan() {
    for policy in Policy::ALL {
        let kept = survivors_of_a_scan(policy, 1000);
        if matches!(policy, Policy::Lru | Policy::HeapLru) {
            assert_eq!(kept, 0);
        } else {
            // TinyLFU estimates: it takes some of the others for more popular than they are.
            let least = if policy == Policy::TinyLfu { 65 } else { 80 };
            assert!(kept > least, "{policy:?}: {kept} of 100 survived the scan");
        }
    }
    let kept = survivors_of_a_scan(Policy::S3Fifo, 4000);
    assert!(kept > 80, "{kept} of 100 survived the long scan");
}

#[test]
fn a_new_version_inherits_the_uses_of_the_old_one() {
    let tier = MemTier::new(4 * MIB, 1, Policy::HeapLfuda, Arc::new(NoEvents));
    (0..20).for_each(|n| assert!(store(&tier, key(n), 8000)));
    assert!((0..5).all(|_| tier.get(&key(0)).is_some()));
    assert!(store(&tier, key(0), 30_000) && store(&tier, key(0), 8000));
    (1000..2500).for_each(|n| assert!(store(&tier, key(n), 8000)));
    assert!(tier.contains(&key(0)) && !tier.contains(&key(1)));
}

#[test]
fn a_change_of_policy_keeps_the_entries() {
    let tier = tier(MIB);
    (0..50).for_each(|n| assert!(store(&tier, key(n), 3000)));
    for policy in Policy::ALL.into_iter().chain([Policy::Lru]) {
        tier.set_policy(policy);
        assert!((0..50).all(|n| tier.get(&key(n)).is_some()), "{policy:?}");
    }
    assert_eq!(tier.stats().entries, 50);
    (0..500).for_each(|n| assert!(store(&tier, key(n), 9000)));
    assert!(tier.used_bytes() <= MIB && tier.contains(&key(499)));
}

#[test]
fn a_lower_limit_evicts_at_once_and_zero_stores_nothing() {
    let tier = tier(4 * MIB);
    (0..100).for_each(|n| assert!(store(&tier, key(n), 30_000)));
    tier.set_limit(MIB);
    assert!(tier.used_bytes() <= MIB && tier.used_bytes() > MIB / 2);
    tier.set_limit(0);
    assert_eq!(tier.used_bytes(), 0);
    assert!(!store(&tier, key(1), 10));
}

#[test]
fn an_object_too_large_replaces_nothing_but_removes_the_older_one() {
    let tier = tier(64 * KIB);
    assert!(store(&tier, key(1), 100));
    let pool = PagePool::new(100);
    assert!(
        !tier.insert(key(1), Entry::Object(object_of(key(1), body_of(&pool, &pattern(0, 60_000)))))
    );
    assert!(!tier.contains(&key(1)));
}

#[test]
fn pages_beyond_the_budget_are_granted_up_to_the_guarantee() {
    let tier = tier(16 * PAGE_BYTES as u64);
    let mut held: Vec<_> = (0..8).map(|n| tier.alloc_page(n).expect("in the share")).collect();
    assert_eq!(tier.alloc_page(FLOW_PAGES_GUARANTEED).err(), Some(PageShortage::Wait));
    held.extend((0..FLOW_PAGES_GUARANTEED).map(|n| tier.alloc_page(n).expect("guaranteed")));
    assert_eq!(tier.alloc_page(FLOW_PAGES_GUARANTEED).err(), Some(PageShortage::Wait));
    held.truncate(7);
    assert!(tier.alloc_page(100).is_ok());
}

#[test]
fn what_is_in_flight_leaves_half_of_the_budget_to_what_is_stored() {
    let tier = tier(MIB);
    (0..200).for_each(|n| assert!(store(&tier, key(n), 8_000)));
    assert!(tier.used_bytes() > MIB * 9 / 10);
    // The minimum of many transfers, and a request for more.
    let guaranteed: Vec<_> = (0..1000)
        .map(|n| tier.alloc_page(n % FLOW_PAGES_GUARANTEED).expect("guaranteed"))
        .collect();
    assert_eq!(tier.alloc_page(FLOW_PAGES_GUARANTEED).err(), Some(PageShortage::Wait));
    let stored = tier.used_bytes() - tier.in_flight_bytes();
    assert!((MIB / 2 - 20 * KIB..=MIB / 2).contains(&stored), "{stored}");
    assert_eq!(tier.in_flight_bytes(), 1000 * PAGE_BYTES as u64);
    assert!(
        store(&tier, key(999), 8_000) && tier.contains(&key(999)),
        "half of the budget is still there"
    );
    assert!(tier.stats().stored_page_bytes <= MIB / 2);
    drop(guaranteed);
    (0..200).for_each(|n| assert!(store(&tier, key(n), 8_000)));
    assert!(tier.used_bytes() > MIB * 9 / 10 && tier.used_bytes() <= MIB, "all of it again");
}

#[test]
fn what_is_still_sent_after_it_had_to_leave_does_not_empty_memory() {
    let tier = tier(MIB);
    let mut readers = Vec::new();
    for n in 0..1000 {
        assert!(store(&tier, key(n), 12_000));
        if n >= 10 {
            // A client that reads nothing keeps it.
            readers.extend(tier.get(&key(n)));
        }
        assert!(tier.stats().stored_page_bytes >= MIB / 2 - 64 * KIB || n < 50, "{n}");
    }
    assert!((980..1000).all(|n| tier.contains(&key(n))), "the newest are there");
    assert_eq!(tier.alloc_page(FLOW_PAGES_GUARANTEED).err(), Some(PageShortage::Wait));
}

#[test]
fn reservations_count_as_in_flight_up_to_its_share() {
    let tier = tier(MIB);
    let half = MIB / IN_FLIGHT_PART;
    let most = tier.reserve(half, 0).expect("just its share");
    assert!(
        tier.reserve(FLOW_BYTES_GUARANTEED + 1, 0).is_none() && tier.reserve(half, half).is_none()
    );
    assert!(tier.reserve(FLOW_BYTES_GUARANTEED, 0).is_some(), "each transfer may have that");
    assert!(tier.reserve(half, 2 * half).is_some(), "a minimum whatever the budget is");
    assert_eq!(tier.alloc_page(FLOW_PAGES_GUARANTEED).err(), Some(PageShortage::Wait));
    assert_eq!((tier.in_flight_bytes(), tier.stats().reserved_bytes), (half, half));
    drop(most);
    let mut part = tier.reserve(half, 0).expect("its share");
    part.use_up(half / 2);
    assert_eq!(tier.in_flight_bytes(), half / 2);
    part.use_up(half);
    drop(part);
    assert_eq!(tier.in_flight_bytes(), 0);
}

#[test]
fn what_is_held_counts_also_beyond_the_share() {
    let tier = tier(MIB);
    let held = tier.hold(MIB);
    assert!(tier.in_flight_bytes() == MIB && !tier.has_in_flight_room(0));
    assert_eq!(tier.stats().waiting_bytes, MIB);
    assert!(tier.reserve(FLOW_BYTES_GUARANTEED + 1, 0).is_none());
    assert!(tier.reserve(MIB, MIB).is_some(), "it takes nothing from what may be lent in any case");
    drop(held);
    assert_eq!(tier.in_flight_bytes(), 0);
}

#[test]
fn evictions_are_told_with_what_was_released() {
    struct Recorder(Mutex<Vec<(StoreEventKind, Key, u64)>>);
    impl StoreEvents for Recorder {
        fn event(&self, event: &StoreEvent<'_>) {
            assert_eq!(
                (event.status, event.dir, event.content_type),
                (200, None, &b"text/plain"[..])
            );
            self.0.lock().push((event.kind, event.key, event.body_bytes));
        }
    }
    // Each tier spreads keys over its shards in its own way; the oldest leaves from any of them.
    for _ in 0..50 {
        let recorder = Arc::new(Recorder(Mutex::default()));
        let tier = MemTier::new(100 * KIB, 1, Policy::Lru, recorder.clone());
        (0..3).for_each(|n| assert!(store(&tier, key(n), 40_000)));
        assert_eq!(*recorder.0.lock(), [(StoreEventKind::Release, key(0), 40_000)]);
    }
}

#[test]
fn many_threads_at_once_stay_within_the_budget() {
    let limit = 2 * MIB;
    let tier = tier(limit);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tier = &tier;
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..3000 {
                    let number = rng.below(400);
                    match tier.get(&key(number)) {
                        Some(Entry::Object(object)) => assert_eq!(object.key, key(number)),
                        _ => _ = store(tier, key(number), 1 + rng.below(40_000) as usize),
                    }
                    // Each of four threads may be between asking and taking, with one page.
                    assert!(tier.used_bytes() <= limit + 4 * PAGE_BYTES as u64 + 4 * KIB);
                }
            });
        }
    });
    (0..400).for_each(|n| _ = tier.remove(&key(n)));
    assert_eq!(tier.used_bytes(), 0);
}
