//! What one object costs in a cache directory:
//! `cargo run --release -p humboldt-schemes --example file_schemes -- SCHEME [OBJECTS [HOW [MB]]]`
//! stores objects of 13 KiB in a temporary directory of 8 GB or as many MB, then (unless HOW is
//! `store`) reads them, one after another and by 32 tasks of one core. Under `valgrind
//! --tool=callgrind` it counts instructions; two runs with different numbers of objects give those
//! of an object, in an empty directory or in one that replaces what it has.

#![allow(clippy::print_stderr, reason = "a program that prints its findings")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_freshness::{Times, TimesFlags};
use humboldt_schemes::{DirOptions, Levels, SchemeKind};
use humboldt_store::Key;
use humboldt_store::scheme::{Record, RecordKind, Scheme, SchemeError};

const BODY_BYTES: usize = 13 * 1024;

/// The time to the next try.
const PAUSE: Duration = Duration::from_millis(1);

/// Tasks that read at the same time.
const READERS: usize = 32;

fn record(i: u64) -> Record {
    let url = format!("http://example.com/objects/{i}").into_bytes();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"abc\"\r\n".as_slice();
    let times = Times {
        response_time: 1_700_000_000,
        date: 1_700_000_000,
        last_modified: Times::UNKNOWN,
        initial_age_s: 0,
        lifetime_s: 3600,
        swr_s: 0,
        sie_s: 0,
        flags: TimesFlags::HAS_VALIDATOR,
        purge_number: 0,
        serial: 0,
    };
    Record {
        key: Key::primary(&url),
        kind: RecordKind::Object,
        url: url.into(),
        head: head.into(),
        times,
    }
}

async fn store(scheme: &dyn Scheme, i: u64, body: &[u8]) -> Result<(), SchemeError> {
    let mut writer = scheme.create(record(i), Some(body.len() as u64)).await?;
    let parts: Vec<&[u8]> = body.chunks(4096).collect();
    writer.write(0, &parts).await?;
    writer.commit(Some(body.len() as u64)).await
}

async fn hit(scheme: &dyn Scheme, key: &Key, buffer: &mut [u8]) -> Result<bool, SchemeError> {
    let Some(mut open) = scheme.open(key).await? else { return Ok(false) };
    Ok(open.reader.read(0, buffer).await? == BODY_BYTES)
}

async fn read_all(scheme: Arc<dyn Scheme>, keys: Vec<Key>) -> u64 {
    let mut buffer = vec![0; 64 * 1024];
    let mut hits = 0;
    for key in &keys {
        hits += u64::from(hit(&*scheme, key, &mut buffer).await.unwrap_or(false));
    }
    hits
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "ufs".to_owned());
    let objects: u64 = words.next().map_or(Ok(10_000), |word| word.parse())?;
    let only_store = words.next().is_some_and(|word| word == "store");
    let mib: u64 = words.next().map_or(Ok(8192), |word| word.parse())?;
    let dir = tempfile::tempdir()?;
    let mut own = SchemeKind::named(&name).ok_or("no such scheme")?.defaults();
    if let Some(levels) = own.levels_mut() {
        *levels = Levels { l1: 2, l2: 16 };
    }
    let options = DirOptions::of(own, dir.path(), mib << 20);
    let scheme = humboldt_schemes::open(&options)?;
    let body = vec![7; BODY_BYTES];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let start = Instant::now();
        for i in 0..objects {
            // While the index is read, or a disk is behind, it waits.
            while let Err(error) = store(&*scheme, i, &body).await {
                if !matches!(error, SchemeError::Busy(_)) {
                    return Err(error);
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        let ns = |start: Instant| start.elapsed().as_nanos() / u128::from(objects.max(1));
        eprintln!("{name}: {} ns to store", ns(start));
        let keys: Vec<Key> = (0..objects).map(|i| record(i).key).collect();
        let mut buffer = vec![0; 64 * 1024];
        let start = Instant::now();
        let mut hits = 0;
        for key in keys.iter().filter(|_| !only_store) {
            hits += u64::from(hit(&*scheme, key, &mut buffer).await?);
        }
        eprintln!("{name}: {} ns for a hit, {hits} hits", ns(start));
        let start = Instant::now();
        let readers: Vec<_> = (0..READERS)
            .map(|first| {
                let keys: Vec<Key> = keys.iter().skip(first).step_by(READERS).copied().collect();
                tokio::task::spawn_local(read_all(
                    Arc::clone(&scheme),
                    if only_store { Vec::new() } else { keys },
                ))
            })
            .collect();
        let mut hits = 0;
        for reader in readers {
            hits += reader.await.unwrap_or(0);
        }
        eprintln!("{name}: {} ns for a hit of {READERS} readers, {hits} hits", ns(start));
        Ok::<(), SchemeError>(())
    })?;
    scheme.close()?;
    Ok(())
}
