//! Purges under load: a request after an acknowledged purge gets nothing from before it, in any
//! case.

use humboldt_tests::World;
use humboldt_tests::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Purges in each course.
const PURGES: u64 = 100;

/// Clients that ask at the same time.
const CLIENTS: usize = 4;

/// The use of each path's answers: fresh, to be validated, served stale while they are validated,
/// large.
const PATHS: [(&str, &str, usize); 5] = [
    ("/x/fresh", "max-age=600", 3_000),
    ("/x/validated", "max-age=0", 3_000),
    ("/x/stale", "max-age=0, stale-while-revalidate=600", 3_000),
    ("/x/large", "max-age=600", 300_000),
    ("/x/varies", "max-age=600", 3_000),
];

/// Serves the version that counts now. Its validator stays, as if the origin had not noticed the
/// change.
fn serve(world: &World, version: &Arc<AtomicU64>) {
    for (path, cache_control, bytes) in PATHS {
        let version = Arc::clone(version);
        world.origin.handle(path, move |head, wire| {
            let body = format!("{:07} ", version.load(SeqCst)).repeat(bytes / 8);
            let vary = if path.ends_with("varies") { "Vary: Accept-Language\r\n" } else { "" };
            let fields = format!(
                "Cache-Control: {cache_control}\r\nSurrogate-Key: all\r\nETag: \"1\"\r\n{vary}"
            );
            match head.field("If-None-Match") {
                Some(_) => wire.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n")),
                None => wire.send(format!(
                    "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}",
                    body.len()
                )),
            }
        });
    }
}

/// The state that clients and purges share.
#[derive(Default)]
struct Course {
    /// Nothing older may be answered.
    oldest: AtomicU64,
    is_over: AtomicBool,
    answers: AtomicUsize,
    hits: AtomicUsize,
}

/// Asks until the purges are over.
fn ask(world: &World, course: &Course, number: usize) {
    let mut client = world.client();
    for turn in number.. {
        if course.is_over.load(SeqCst) {
            return;
        }
        let (path, ..) = PATHS[turn % PATHS.len()];
        let allowed = course.oldest.load(SeqCst);
        let fields: &[(&str, &str)] = match turn % 7 {
            0 => &[("Range", "bytes=0-6")],
            1..4 => &[("Accept-Language", "de")],
            _ => &[],
        };
        let answer = client.request("GET", &world.target(path), fields, b"").response();
        let version: u64 = answer.text()[..7].parse().expect("a version");
        assert!(
            version >= allowed,
            "{path}: {version} after the purge of {allowed}: {:?}",
            answer.head
        );
        course.hits.fetch_add(usize::from(answer.cache() == "HIT"), SeqCst);
        course.answers.fetch_add(1, SeqCst);
        // An answer that is purged while it is read from disk may end early, with a sign of that.
        if !answer.is_complete || answer.field("Connection") == Some("close") {
            client = world.client();
        }
    }
}

/// Makes new versions and purges the old ones, by tag and by prefix in turn.
fn purge(world: &World, version: &AtomicU64, course: &Course) {
    let mut client = world.client();
    let target = world.target("/x/");
    for turn in 0..PURGES {
        let next = version.fetch_add(1, SeqCst) + 1;
        let field = if turn % 2 == 0 { ("Cache-Tag", "all") } else { ("X-Purge-Method", "prefix") };
        let _ = client.request("PURGE", &target, &[field], b"").response().expect(200);
        course.oldest.store(next, SeqCst);
        // Now at once, now when much is in the cache again.
        let enough = course.answers.load(SeqCst) + (turn % 5 * 10) as usize;
        let hits = course.hits.load(SeqCst) + usize::from(turn % 5 != 0);
        let has_come = || course.answers.load(SeqCst) >= enough && course.hits.load(SeqCst) >= hits;
        until("more answers, and hits among them", || has_come().then_some(()));
    }
}

/// Lets the clients end also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

pub(super) fn play(world: &World, what: &str) {
    let (version, course) = (Arc::new(AtomicU64::new(1)), Course::default());
    serve(world, &version);
    std::thread::scope(|threads| {
        let _end = EndOnDrop(&course.is_over);
        for number in 0..CLIENTS {
            let course = &course;
            threads.spawn(move || ask(world, course, number));
        }
        purge(world, &version, &course);
    });
    let (hits, answers) = (course.hits.into_inner(), course.answers.into_inner());
    assert!(answers > hits, "{what}: nothing was fetched again: {hits} hits of {answers}");
}
