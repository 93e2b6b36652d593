//! Prints what the memory tier costs on a hit, and a flow on a miss:
//! `cargo run --release -p humboldt-store --example memory_cost`.
#![allow(clippy::print_stdout, reason = "prints its result")]

use std::sync::Arc;
use std::time::Instant;

use humboldt_base::rng::Rng;
use humboldt_freshness::Times;
use humboldt_http::{ResponseHead, Version};
use humboldt_store::{
    Arrived, Begin, Cache, CacheSettings, DirSelect, Entry, InTransit, Key, MemTier, MemoryMode,
    NoEvents, Policy, ReaderKind, Storable, StoredHead, VaryMarker,
};

/// Entries in the tier.
const ENTRIES: u64 = 100_000;
/// Look-ups measured.
const LOOKUPS: u64 = 10_000_000;
/// Misses measured.
const MISSES: u64 = 300_000;
/// Body of a miss in bytes.
const BODY_BYTES: usize = 13 * 1024;

fn main() {
    hits();
    misses();
}

fn hits() {
    for policy in [Policy::Lru, Policy::S3Fifo] {
        let tier = MemTier::new(1 << 30, 2, policy, Arc::new(NoEvents));
        for n in 0..ENTRIES {
            let marker = VaryMarker::new(b"http://a.example/", b"accept");
            tier.insert(Key::primary(&n.to_le_bytes()), Entry::Vary(Arc::new(marker)));
        }
        for (what, range) in [("all entries", ENTRIES), ("a hot thousand", 1000)] {
            let mut rng = Rng::new(1);
            let start = Instant::now();
            let hits = (0..LOOKUPS)
                .filter(|_| tier.get(&Key::primary(&rng.below(range).to_le_bytes())).is_some())
                .count();
            let ns = start.elapsed().as_nanos() as f64 / LOOKUPS as f64;
            println!("hit, {policy:?}, {what}: {ns:.0} ns each, {hits} hits");
        }
    }
}

fn misses() {
    let settings = CacheSettings {
        cache_mem_bytes: 64 << 20,
        memory_policy: Policy::Lru,
        memory_object_bytes_max: 512 * 1024,
        disk_object_bytes_max: 0,
        read_ahead_bytes: 16 * 1024,
        dir_select: DirSelect::LeastLoad,
        memory_mode: MemoryMode::Auto,
        in_transit: InTransit::Auto,
    };
    let cache = Cache::new(settings, 2, Vec::new(), Arc::new(NoEvents));
    let mut head = ResponseHead::default();
    head.set_line(Version::Http11, 200, b"OK");
    (0..8).for_each(|_| head.fields.push_named(b"X-Field", b"some value of a field"));
    let start = Instant::now();
    for n in 0..MISSES {
        miss(&cache, Key::primary(&n.to_le_bytes()), &head);
    }
    let ns = start.elapsed().as_nanos() as f64 / MISSES as f64;
    println!("miss of {BODY_BYTES} bytes, cache full: {ns:.0} ns each, {:?}", cache.mem().stats());
}

fn miss(cache: &Cache, key: Key, head: &ResponseHead) {
    let Begin::Lead(mut writer) = cache.begin_or_join(key, key, b"") else { return };
    let Some(mut reader) = writer.subscribe(ReaderKind::Client) else { return };
    let url = b"http://a.example/some/path";
    let stored_head = StoredHead::from_response(head, |_, _| false);
    let (info, _) = cache.fate(Arrived {
        url,
        head: &stored_head,
        key,
        body_bytes: Some(BODY_BYTES as u64),
        vary: None,
        storable: Storable::Yes(Times::from_bytes(&[0; Times::BYTES])),
    });
    writer.publish_head(Arc::new(stored_head), info);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let body = [b'x'; BODY_BYTES];
    // One reader that keeps up: never pending.
    let _ = writer.poll_append(&mut cx, &body);
    let _ = reader.poll_head(&mut cx);
    let _ = reader.poll_data(&mut cx);
    let mut slices = Vec::with_capacity(4);
    let bytes = reader.slices(&mut slices, u64::MAX);
    reader.advance(bytes);
    writer.finish(None);
    cache.store(writer, url, None);
}
