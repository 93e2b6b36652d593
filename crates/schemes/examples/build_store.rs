//! Builds a cache directory full of small objects, through the interface that the proxy uses, so
//! that a start with millions of objects can be measured (`cargo xtask bench restart`):
//!
//! ```text
//! cargo run --release -p humboldt-schemes --example build_store -- \
//!     SCHEME DIR MBYTES OBJECTS BODY_BYTES URL_PREFIX
//! ```
//!
//! The object with number n has the URL `URL_PREFIX` followed by n. All are fresh for a day.
#![allow(clippy::print_stderr, reason = "says what it did")]

use std::cell::Cell;
use std::error::Error;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use humboldt_freshness::{Times, TimesFlags};
use humboldt_schemes::{DirOptions, SchemeKind};
use humboldt_store::Key;
use humboldt_store::scheme::{Record, RecordKind, Scheme, SchemeError};
use tokio::task::{LocalSet, spawn_local};

/// Objects being written at a time.
const WRITERS: u64 = 32;

/// How often housekeeping is called, as in the proxy.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// How long a store may refuse objects because it is busy, or read its index, before this gives up.
const BUSY_LIMIT: Duration = Duration::from_secs(60);
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// What is to be built.
struct Job {
    objects: u64,
    body: Vec<u8>,
    prefix: String,
    now_s: i64,
    /// Number of the next object.
    next: Cell<u64>,
}

impl Job {
    fn record(&self, number: u64) -> Record {
        let url = format!("{}{number}", self.prefix).into_bytes();
        let length = self.body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             ETag: \"{length:x}\"\r\nCache-Control: max-age=86400\r\nAccept-Ranges: none\r\n"
        );
        let times = Times {
            response_time: self.now_s,
            date: self.now_s,
            last_modified: Times::UNKNOWN,
            initial_age_s: 0,
            lifetime_s: 86_400,
            swr_s: 0,
            sie_s: 0,
            flags: TimesFlags::HAS_VALIDATOR,
            purge_number: 0,
            serial: 0,
        };
        let head = head.into_bytes().into();
        Record { key: Key::primary(&url), kind: RecordKind::Object, url: url.into(), head, times }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, dir, mbytes, objects, body_bytes, prefix] = words.as_slice() else {
        return Err("arguments: SCHEME DIR MBYTES OBJECTS BODY_BYTES URL_PREFIX".into());
    };
    let own = SchemeKind::named(name).ok_or("no such scheme")?.defaults();
    let capacity_bytes = mbytes.parse::<u64>()? << 20;
    let options = DirOptions {
        object_bytes_avg: 1024,
        ..DirOptions::of(own, Path::new(dir), capacity_bytes)
    };
    let scheme = humboldt_schemes::open(&options)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let job = Rc::new(Job {
        objects: objects.parse()?,
        body: (0..body_bytes.parse()?).map(|at: usize| b'a' + (at % 26) as u8).collect(),
        prefix: prefix.clone(),
        now_s: now.as_secs().cast_signed(),
        next: Cell::new(0),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let start = Instant::now();
    LocalSet::new().block_on(&runtime, build(&scheme, &job))?;
    let us = start.elapsed().as_secs_f64() * 1e6 / job.objects.max(1) as f64;
    scheme.close()?;
    eprintln!("{name}: {} objects, {us:.1} µs each", job.objects);
    Ok(())
}

async fn build(scheme: &Arc<dyn Scheme>, job: &Rc<Job>) -> Result<(), SchemeError> {
    let keeper = spawn_local({
        let scheme = Arc::clone(scheme);
        async move {
            loop {
                _ = scheme.maintain().await;
                tokio::time::sleep(HOUSEKEEPING).await;
            }
        }
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (scheme, job) = (Arc::clone(scheme), Rc::clone(job));
            spawn_local(async move { write(&*scheme, &job).await })
        })
        .collect();
    for writer in writers {
        // A writer that panicked has said so.
        writer.await.unwrap_or(Err(SchemeError::Down))?;
    }
    keeper.abort();
    scheme.maintain().await
}

/// Writes objects until all have been written.
async fn write(scheme: &dyn Scheme, job: &Job) -> Result<(), SchemeError> {
    loop {
        let number = job.next.get();
        if number >= job.objects {
            return Ok(());
        }
        job.next.set(number + 1);
        let start = Instant::now();
        loop {
            match store(scheme, job.record(number), &job.body).await {
                Ok(()) => break,
                Err(SchemeError::Busy(_)) if start.elapsed() < BUSY_LIMIT => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

async fn store(scheme: &dyn Scheme, record: Record, body: &[u8]) -> Result<(), SchemeError> {
    let mut writer = scheme.create(record, Some(body.len() as u64)).await?;
    writer.write(0, &[body]).await?;
    writer.commit(Some(body.len() as u64)).await
}
