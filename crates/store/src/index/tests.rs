//! The index with every policy.

use super::*;

fn key(i: u64) -> IndexKey {
    IndexKey::from(&Key::primary(&i.to_le_bytes()))
}

fn entry(file: u32) -> FileEntry {
    FileEntry { file, size_units: file + 1, flags: (file % 4) as u8 }
}

#[test]
fn agrees_with_a_plain_map_under_random_operations() {
    for policy in Policy::ALL {
        agrees_with_a_plain_map(policy);
    }
}

fn agrees_with_a_plain_map(policy: Policy) {
    let index = FileIndex::sized(policy, if policy == Policy::HeapLfuda { u64::MAX } else { 1000 });
    let mut model = std::collections::HashMap::new();
    let mut state = 7_u64;
    for step in 0..60_000_u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let k = key((state >> 33) % 5000);
        match (state >> 20) % 5 {
            0 | 1 => assert_eq!(index.insert(k, entry(step)), model.insert(k, entry(step))),
            2 => assert_eq!(index.get(k), model.get(&k).copied()),
            3 => assert_eq!(index.remove(k), model.remove(&k)),
            _ if step % 7 == 0 => {
                let popped = index.pop_victim();
                assert_eq!(popped.map(|(k, _)| model.remove(&k)), popped.map(|(_, e)| Some(e)));
            }
            _ => assert_eq!(index.peek(k), model.get(&k).copied()),
        }
        assert_eq!(index.len(), model.len());
    }
    let mut all = Vec::new();
    (0..FileIndex::SHARDS).for_each(|shard| index.snapshot(shard, &mut all));
    assert_eq!(all.into_iter().collect::<std::collections::HashMap<_, _>>(), model);
}

#[test]
fn the_least_recently_used_goes_first() {
    let index = FileIndex::new(Policy::Lru);
    let keys: Vec<IndexKey> = (0..4).map(key).collect();
    for (i, k) in keys.iter().enumerate() {
        index.insert(*k, entry(i as u32));
    }
    index.get(keys[0]);
    index.peek(keys[1]);
    index.insert(keys[2], entry(9));
    let order: Vec<u32> = std::iter::from_fn(|| index.pop_victim()).map(|(_, e)| e.file).collect();
    assert_eq!(order, [1, 3, 0, 9]);
    assert!(index.is_empty());
}

#[test]
fn among_many_the_victim_is_nearly_the_oldest() {
    let index = FileIndex::new(Policy::Lru);
    for i in 0..20_000_u32 {
        index.insert(key(i.into()), entry(i));
    }
    let victims: Vec<u32> =
        (0..2000).filter_map(|_| index.pop_victim()).map(|(_, e)| e.file).collect();
    assert_eq!(victims.len(), 2000);
    assert!(victims.iter().all(|file| *file < 6000), "{:?}", victims.iter().max());
}

#[test]
fn conditional_changes_look_at_what_is_there_now() {
    let index = FileIndex::new(Policy::Lru);
    index.insert(key(1), entry(5));
    assert_eq!(index.remove_if(key(1), 6), None);
    assert!(!index.replace_if(key(1), entry(6), entry(7)));
    assert!(index.replace_if(key(1), entry(5), FileEntry { size_units: 99, ..entry(5) }));
    assert_eq!(index.remove_if(key(1), 5).map(|e| e.size_units), Some(99));
    assert!(!index.replace_if(key(1), entry(5), entry(7)));
}

#[test]
fn index_keys_survive_serialisation() {
    for i in 0..100 {
        assert_eq!(IndexKey::from_bytes(key(i).to_bytes()), key(i));
    }
    let only_high_bits_differ = (Key(5), Key(5 | 1 << 127));
    assert_eq!(IndexKey::from(&only_high_bits_differ.0), IndexKey::from(&only_high_bits_differ.1));
    assert_ne!(IndexKey::from(&Key(5)), IndexKey::from(&Key(5 | 1 << 95)));
}

#[test]
fn a_million_objects_need_at_most_48_bytes_each_with_any_policy() {
    // The worst moment: the tables of the parts double at 917,504 objects on average. `heap LFUDA`
    // is the same heap, and the others have nothing besides the slots. Seconds, because only so
    // many objects make the parts alike.
    for policy in [Policy::HeapGdsf, Policy::S3Fifo, Policy::TinyLfu] {
        let index = FileIndex::new(policy);
        for i in 0..1_000_000_u64 {
            index.insert(key(i), entry(i as u32));
            if i >= 900_000 && i % 10_000 == 0 {
                assert_at_most_48_bytes(policy, &index);
            }
        }
        for i in 0..20_000 {
            index.pop_victim();
            index.insert(key(1_000_000 + i), entry(i as u32));
        }
        assert_at_most_48_bytes(policy, &index);
    }
}

fn assert_at_most_48_bytes(policy: Policy, index: &FileIndex) {
    let per_object = index.memory_bytes() as f64 / index.len() as f64;
    assert!(
        per_object <= 48.0,
        "{policy:?}: {per_object} bytes an object with {} objects",
        index.len()
    );
}

#[test]
fn lru_needs_at_most_48_bytes_from_a_hundred_thousand_objects_on() {
    let index = FileIndex::new(Policy::Lru);
    for i in 0..400_000_u64 {
        index.insert(key(i), entry(i as u32));
        if i >= 100_000 && i % 20_000 == 0 {
            assert_at_most_48_bytes(Policy::Lru, &index);
        }
    }
}

#[test]
fn every_policy_keeps_what_was_used() {
    for policy in Policy::ALL {
        let index = FileIndex::new(policy);
        let insert =
            |n: u64| index.insert(key(n), FileEntry { file: n as u32, size_units: 1, flags: 0 });
        (0..10_000).for_each(|n| _ = insert(n));
        (0..3).for_each(|_| (0..2000).for_each(|n| _ = index.get(key(n))));
        let mut files = std::iter::from_fn(|| index.pop_victim()).map(|(_, entry)| entry.file);
        let used_left = files.by_ref().take(5000).filter(|file| *file < 2000).count();
        assert!(used_left < 100, "{policy:?}: {used_left} of 2000 left among the first half");
        assert_eq!(files.count(), 5000);
    }
}

#[test]
fn gdsf_compares_sizes_across_parts() {
    let index = FileIndex::new(Policy::HeapGdsf);
    for n in 0..1000_u32 {
        index.insert(key(n.into()), FileEntry { file: n, size_units: 1 + n, flags: 0 });
    }
    let order: Vec<u32> = std::iter::from_fn(|| index.pop_victim()).map(|(_, e)| e.file).collect();
    // From 256 units on the key is so coarse that some have the same; then the older leaves.
    let first = &order[..700];
    assert!(
        first.windows(2).all(|pair| 65_536 / (pair[0] + 1) <= 65_536 / (pair[1] + 1)),
        "{first:?}"
    );
    assert_eq!(order[999], 0);
}

#[test]
fn a_snapshot_restores_the_order_nearly() {
    for policy in Policy::ALL {
        let index = FileIndex::new(policy);
        (0..3000).for_each(|n| _ = index.insert(key(n), entry(n as u32)));
        (0..1000).for_each(|n| _ = index.get(key(n * 3)));
        let again = FileIndex::new(policy);
        let mut all = Vec::new();
        (0..FileIndex::SHARDS).for_each(|shard| index.snapshot(shard, &mut all));
        assert_eq!(all.len(), 3000, "{policy:?}");
        all.iter().for_each(|(key, entry)| _ = again.insert(*key, *entry));
        let mut same = 0;
        for shard in 0..FileIndex::SHARDS {
            let third = |index: &FileIndex| {
                let mut part = Vec::new();
                index.snapshot(shard, &mut part);
                part.truncate(part.len() / 3);
                part.into_iter()
                    .map(|(_, entry)| entry.file)
                    .collect::<std::collections::HashSet<u32>>()
            };
            same += third(&index).intersection(&third(&again)).count();
        }
        // Chance would give 333.
        let least = if matches!(policy, Policy::Lru | Policy::HeapLru) { 900 } else { 450 };
        assert!(same >= least, "{policy:?}: {same} of 1000");
    }
}

#[test]
fn replacing_changes_what_the_shares_of_queues_are_reckoned_from() {
    for policy in Policy::ALL {
        let index = FileIndex::new(policy);
        (0..2000).for_each(|n| _ = index.insert(key(n), entry(n as u32)));
        for n in 0..2000 {
            let old = entry(n as u32);
            assert!(index.replace_if(key(n), old, FileEntry { size_units: 1, ..old }));
        }
        (0..500).for_each(|n| _ = index.remove(key(n)));
        assert_eq!(std::iter::from_fn(|| index.pop_victim()).count(), 1500, "{policy:?}");
    }
}

/// Hits among requests for 100,000 objects, the popular ones more often, in a cache of `objects` of
/// one unit each: in the index, with its parts, and in one part.
fn hits_in_parts_and_in_one(policy: Policy, objects: usize) -> (usize, usize) {
    let index = FileIndex::sized(policy, objects as u64);
    let mut one = humboldt_policy::model::ModelCache::new(policy, objects as u64 * 512);
    let mut rng = humboldt_base::rng::Rng::new(1);
    let mut hits = (0, 0);
    for _ in 0..100_000 {
        // The square of a uniform number, three times over: a long tail.
        let uniform = rng.below(1 << 20) as f64 / (1 << 20) as f64;
        let n = (uniform.powi(4) * 100_000.0) as u64;
        hits.1 += usize::from(one.request(n, 512));
        if index.get(key(n)).is_some() {
            hits.0 += 1;
            continue;
        }
        index.insert(key(n), FileEntry { file: n as u32, size_units: 1, flags: 0 });
        if index.len() > objects {
            index.pop_victim();
        }
    }
    hits
}

#[test]
fn parts_cost_few_hits() {
    for policy in Policy::ALL {
        for (objects, least) in [(500, 0.95), (4000, 0.98)] {
            let (parts, one) = hits_in_parts_and_in_one(policy, objects);
            assert!(
                parts as f64 >= one as f64 * least,
                "{policy:?}, {objects} objects: {parts} of {one}"
            );
        }
    }
}
