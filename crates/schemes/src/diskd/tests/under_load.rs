//! A whole cache directory while its helper is killed, or lies: reads are right or missing.

use humboldt_sys::sysv::QueueMessage;

use super::*;
use crate::battery::{body, key, record, wait_for_rebuild};
use crate::diskd::engine::Remote;
use crate::tree::TreeScheme;
use crate::{DirOptions, DiskdOptions, Levels, diskd};
use humboldt_store::scheme::{OpenObject, Scheme, SchemeError};

const SIZES: [u64; 4] = [700, 13_000, 70_000, 200_000];

/// An open directory, and the exchange behind it.
fn open(options: &DirOptions<DiskdOptions>) -> (TreeScheme, Arc<Exchange>) {
    let mut exchange = None;
    let scheme = TreeScheme::open_with(diskd::NAME, &options.map(|own| own.levels), |tree| {
        let service = diskd::service(options, &tree, PACE)?;
        exchange = Some(Arc::clone(&service.exchange));
        Ok(Arc::new(Remote::new(service)))
    });
    let scheme = scheme.expect("opened");
    wait_for_rebuild(&scheme);
    (scheme, exchange.expect("made"))
}

async fn put(scheme: &dyn Scheme, url: &str, version: u8, len: u64) -> Result<(), SchemeError> {
    let mut writer = scheme.create(record(url, version), Some(len)).await?;
    for start in (0..len).step_by(50_000) {
        writer.write(start, &[&body(url, version, start, len.min(start + 50_000))]).await?;
    }
    writer.commit(Some(len)).await
}

/// Reads an object; wrong bytes end the test, whatever else is wrong is an error.
async fn look(scheme: &dyn Scheme, url: &str) -> Result<bool, SchemeError> {
    let Some(OpenObject { record: stored, mut reader }) = scheme.open(&key(url)).await? else {
        return Ok(false);
    };
    let version = u8::try_from(stored.times.response_time - 1_700_000_000).expect("a version");
    assert_eq!(stored, record(url, version), "head and times belong together");
    let len = reader.body_bytes().expect("a whole object");
    let (mut buf, mut offset) = (vec![0; 60_000], 0);
    while offset < len {
        let read = reader.read(offset, &mut buf).await? as u64;
        assert!(
            read > 0 && buf[..read as usize] == body(url, version, offset, offset + read),
            "{url}"
        );
        offset += read;
    }
    Ok(true)
}

/// Stores, reads and removes the same few keys until `is_over`.
fn load(scheme: &dyn Scheme, seed: u64, is_over: &AtomicBool, hits: &AtomicU64) {
    let mut state = seed;
    while !is_over.load(Ordering::Relaxed) {
        let url = format!("http://shared/{}", random(&mut state) % 12);
        let outcome = match random(&mut state) % 10 {
            0..4 => {
                let len = SIZES[random(&mut state) as usize % SIZES.len()];
                run(put(scheme, &url, random(&mut state) as u8, len))
            }
            4 => run(scheme.remove(&key(&url))).map(drop),
            5 => run(scheme.maintain()),
            _ => run(look(scheme, &url)).map(|was_found| {
                hits.fetch_add(u64::from(was_found), Ordering::Relaxed);
            }),
        };
        match outcome {
            Ok(()) | Err(SchemeError::Busy(_) | SchemeError::Corrupt(_)) => {}
            Err(other) => panic!("{url}: {other}"),
        }
    }
}

/// Calls `disturb` again and again while two threads load a directory, until it returns that it is
/// enough. Afterwards everything must be as it should be, also after a restart.
fn disturbed(mut disturb: impl FnMut(&Exchange) -> bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let own = DiskdOptions { levels: Levels { l1: 2, l2: 4 }, ..DiskdOptions::default() };
    let options = DirOptions::of(own, dir.path(), 4 << 20);
    let (scheme, exchange) = open(&options);
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for seed in [3, 4] {
            let (scheme, is_over, hits) = (&scheme, &is_over, &hits);
            threads.spawn(move || load(scheme, seed, is_over, hits));
        }
        let _over = Over(&is_over);
        let start = Instant::now();
        while !disturb(&exchange) || hits.load(Ordering::Relaxed) < 50 {
            assert!(start.elapsed() < LIMIT, "no progress: {} hits", hits.load(Ordering::Relaxed));
        }
    });
    wait_for(|| match scheme.stats().open_files {
        0 => Some(()),
        _ => run(scheme.maintain()).err().map(drop),
    });
    assert!(!scheme.stats().down);
    // a helper may still have to be started
    wait_for(|| run(put(&scheme, "http://after/", 1, 13_000)).ok());
    assert!(run(look(&scheme, "http://after/")).expect("read"));
    scheme.close().expect("a clean stop");
    let objects = scheme.stats().objects;
    drop(scheme);
    let (scheme, _) = open(&options);
    assert_eq!(scheme.stats().objects, objects);
    assert!(run(look(&scheme, "http://after/")).expect("read"));
}

#[test]
fn killed_again_and_again_it_never_gives_wrong_bytes_and_hangs_nobody() {
    let mut kills = 0;
    let mut state = 11;
    disturbed(|exchange| {
        let process = exchange.link().and_then(|link| link.process());
        if let Some(process) = process.filter(|_| exchange.phase() == Phase::Running) {
            kills += u32::from(rustix::process::kill_process(process, Signal::KILL).is_ok());
        }
        // at any moment of an operation
        std::thread::sleep(Duration::from_millis(random(&mut state) % 20));
        kills >= 25
    });
}

/// Answers in place of the helper: success, and nothing was done. The slot holds another object's
/// bytes.
#[test]
fn a_helper_that_claims_what_it_has_not_done_makes_misses() {
    let mut lies = 0;
    let mut state = 5;
    disturbed(|exchange| {
        if let Some(link) = exchange.link()
            && random(&mut state).is_multiple_of(4)
            && let Ok(Some(QueueMessage::Text(request))) = link.requests.receive(false)
        {
            let length = Message::decode(&request).map_or(0, |message| message.length);
            let short = random(&mut state) as u32 % (length + 1);
            let reply = Message::decode(&request).map(|message| match random(&mut state) % 4 {
                0 => Message { length: short, ..message },
                1 if message.op == Op::ReadFile => {
                    Message { status: Errno::NOENT.raw_os_error(), length: 0, ..message }
                }
                _ => message,
            });
            let reply = reply.expect("the proxy speaks well");
            lies += u32::from(link.replies.send(&reply.encode(), false).is_ok());
        }
        std::thread::yield_now();
        lies >= 300
    });
}
