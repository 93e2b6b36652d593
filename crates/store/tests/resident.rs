//! Memory is what was asked for. In a process of its own, since it looks at all of the process's
//! memory.

use std::sync::Arc;

use humboldt_base::rng::Rng;
use humboldt_freshness::{Times, TimesFlags};
use humboldt_http::{ResponseHead, Version};
use humboldt_store::{
    Arrived, Begin, Cache, CacheSettings, DirSelect, InTransit, Key, MemoryMode, NoEvents, Policy,
    ReaderKind, Storable, StoredHead,
};

const MIB: u64 = 1024 * 1024;
const CACHE_MEM_BYTES: u64 = 64 * MIB;

/// Resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

fn times() -> Times {
    Times {
        response_time: 0,
        date: 0,
        last_modified: Times::UNKNOWN,
        initial_age_s: 0,
        lifetime_s: 60,
        swr_s: 0,
        sie_s: 0,
        flags: TimesFlags::default(),
        purge_number: 0,
        serial: 0,
    }
}

/// Polls a future that never waits, as there is one reader that keeps up.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("had to wait"),
    }
}

/// Fetches objects of all sizes, 1 byte to 512 KB, until `bytes` have been stored.
fn churn(cache: &Arc<Cache>, seed: u64, bytes: u64) {
    let mut rng = Rng::new(seed);
    let body = vec![b'x'; 512 * 1024];
    let mut head = ResponseHead::default();
    head.set_line(Version::Http11, 200, b"OK");
    head.fields.push_named(b"X-Some-Field", &[b'v'; 300]);
    let mut stored = 0;
    while stored < bytes {
        let url = format!("http://host.example/{}/{}", seed, rng.next_u64());
        let key = Key::primary(url.as_bytes());
        let Begin::Lead(mut writer) = cache.begin_or_join(key, key, b"") else {
            panic!("nobody else has this URL")
        };
        let magnitude = rng.below(20);
        let len = 1 + rng.below(1 << magnitude) as usize;
        let reader = writer.subscribe(ReaderKind::Client);
        let stored_head = StoredHead::from_response(&head, |_, _| false);
        let (info, _) = cache.fate(Arrived {
            url: url.as_bytes(),
            head: &stored_head,
            key,
            body_bytes: Some(len as u64),
            vary: None,
            storable: Storable::Yes(times()),
        });
        writer.publish_head(Arc::new(stored_head), info);
        now(writer.append(&body[..len])).expect("memory is there");
        writer.finish(None);
        cache.store(writer, url.as_bytes(), None);
        drop(reader);
        stored += len as u64;
    }
}

#[test]
fn resident_memory_stays_near_cache_mem() {
    let before = resident_bytes();
    let settings = CacheSettings {
        cache_mem_bytes: CACHE_MEM_BYTES,
        memory_policy: Policy::Lru,
        memory_object_bytes_max: 512 * 1024,
        disk_object_bytes_max: 0,
        read_ahead_bytes: 16 * 1024,
        dir_select: DirSelect::LeastLoad,
        memory_mode: MemoryMode::Auto,
        in_transit: InTransit::Auto,
    };
    let cache = Cache::new(settings, 2, Vec::new(), Arc::new(NoEvents));
    assert!(resident_bytes() - before < MIB, "an empty cache needs nothing");
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let cache = &cache;
            scope.spawn(move || churn(cache, seed, 10 * CACHE_MEM_BYTES));
        }
    });
    let (resident, stats) = (resident_bytes(), cache.mem().stats());
    println!(
        "resident {} KB, counted {} KB, {} entries",
        resident / 1024,
        stats.used_bytes / 1024,
        stats.entries
    );
    assert!(stats.used_bytes > CACHE_MEM_BYTES / 10 * 9, "the memory is used: {stats:?}");
    assert!(
        resident < CACHE_MEM_BYTES * 115 / 100 + 20 * MIB,
        "{resident} bytes resident, {stats:?}"
    );
    cache.reconfigure(CacheSettings { cache_mem_bytes: 0, ..settings }, Vec::new());
    assert!(
        resident_bytes() < before + CACHE_MEM_BYTES / 2,
        "memory goes back when cache_mem shrinks"
    );
}
