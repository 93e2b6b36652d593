//! Harm that a reconfiguration or a crash must not do to requests of the same time.

use super::{
    NO_MEMORY, SCHEMES, body, count, fetch, figure, is_hit, wait_for_objects, wait_until_ready,
};
use humboldt_tests::wait::until;
use humboldt_tests::{Client, Reply, World};

/// The fields of a client that wants no stored answer.
const RELOAD: &[(&str, &str)] = &[("Cache-Control", "no-cache")];

/// The version that a client gets of an object of 5,000 bytes.
fn version(world: &World, index: usize, fields: &[(&str, &str)]) -> usize {
    let text = world.ask("GET", &format!("/v/{index}"), fields).expect(200).text();
    text.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("version N ...")
}

fn serve_version(world: &World, objects: usize, version: usize) {
    for index in 0..objects {
        let body = format!("version {version} {}", body(index, 5_000));
        world.origin.on(&format!("/v/{index}"), Reply::ok(body).cachable(3_600));
    }
}

/// After a crash, an answer that is reloaded or fetched before the index has been read is the one
/// for all later requests, also after a clean restart.
#[test]
fn what_comes_while_an_index_is_read_is_never_older_afterwards() {
    const OBJECTS: usize = 60;
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let lines = format!("cache_dir {scheme} {{dir}}/a 20 4 4\n{NO_MEMORY}");
        let mut world = World::forward(&lines);
        // The files of a tree are known at once when there are few.
        let reads_at_once = ["ufs", "aufs", "diskd"].contains(&scheme);
        // A directory that comes with a reconfiguration is read from the next round of housekeeping
        // on, a second later at most.
        let was_unread = (1..=10).map(|round| 2 * round).any(|newest| {
            wait_until_ready(&world, &["a"]);
            let on_device =
                || figure(&world, "humboldt_store_device_written_bytes_total", "a").unwrap_or(0.0);
            let before = on_device();
            serve_version(&world, OBJECTS, newest - 1);
            (0..OBJECTS).for_each(|index| assert_eq!(version(&world, index, RELOAD), newest - 1));
            until("all on the device", || {
                (on_device() >= before + OBJECTS as f64 * 5_000.0).then_some(())
            });
            world.proxy.kill();
            world.proxy.write_configuration("", NO_MEMORY);
            world.proxy.launch();
            serve_version(&world, OBJECTS, newest);
            world.proxy.reconfigure(&lines);
            let ask = |index: usize| {
                version(&world, index, if index.is_multiple_of(2) { RELOAD } else { &[] })
            };
            let mut got: Vec<usize> = (0..20).map(ask).collect();
            let is_read = figure(&world, "humboldt_store_rebuild_ratio", "a") == Some(1.0);
            got.extend((20..OBJECTS).map(ask));
            let check = |world: &World, when: &str| {
                wait_until_ready(world, &["a"]);
                for (index, got) in got.iter().enumerate() {
                    let now = version(world, index, &[("Cache-Control", "max-stale")]);
                    assert!(now >= *got, "{scheme}, object {index}, {when}: {now} after {got}");
                }
            };
            check(&world, "when the index was read");
            world.proxy.restart();
            check(&world, "after a clean restart");
            reads_at_once || !is_read
        });
        assert!(was_unread, "{scheme}: the index was always read before the requests came");
    }
}

/// A client that reads an object so slowly that most of it has not left its directory.
struct SlowReader {
    client: Client,
    body: String,
    got: Vec<u8>,
}

impl SlowReader {
    /// Asks for an object that is stored, and reads the beginning.
    fn start(world: &World, index: usize, bytes: usize) -> Self {
        let mut client = world.client();
        client.request("GET", &world.target(&format!("/{bytes}/{index}")), &[], b"");
        let head = client.head();
        assert!(head.field("X-Cache").is_some_and(|value| value.starts_with("HIT")), "{head:?}");
        let got = client.bytes(100_000);
        Self { client, body: body(index, bytes), got }
    }

    /// Reads the rest.
    fn end(mut self, what: &str) {
        let rest = self.body.len() - self.got.len();
        self.got.extend(self.client.bytes(rest));
        assert!(self.got == self.body.as_bytes(), "{what}: not the origin's bytes");
    }
}

/// A reader of a directory that leaves the configuration, or changes, reads to the end. Then the
/// directory is closed, and opened again if it is configured; also if it returns during the
/// reading.
#[test]
fn who_reads_from_a_directory_reads_to_the_end_whatever_becomes_of_it() {
    std::thread::scope(|threads| {
        for scheme in humboldt_tests::schemes(&["ufs", "aufs", "diskd", "rock", "ring"]) {
            threads.spawn(move || reads_to_the_end(scheme));
        }
    });
}

fn reads_to_the_end(scheme: &str) {
    const BYTES: usize = 24 << 20; // more than sockets hold
    let other = format!(
        "cache_dir {scheme} {{dir}}/b 20 4 4 max-size=1000\nmaximum_object_size 64 MB\n{NO_MEMORY}"
    );
    let lines = |mbytes: u32| format!("cache_dir {scheme} {{dir}}/a {mbytes} 4 4\n{other}");
    let world = World::forward(&lines(200));
    wait_until_ready(&world, &["a", "b"]);
    assert!(!fetch(&world, 0, BYTES));
    wait_for_objects(&world, &["a"], 1);
    let closed = format!("cache_dir {}: closed", world.proxy.path("a").display());
    let mut closings = 0;
    let mut waits_for_closing = |reader: SlowReader, what: &str| {
        assert_eq!(count(&world, &closed), closings, "{scheme}, {what}: closed too early");
        reader.end(&format!("{scheme}, {what}"));
        closings += 1;
        until("the directory to be closed", || (count(&world, &closed) == closings).then_some(()));
    };

    let reader = SlowReader::start(&world, 0, BYTES);
    world.proxy.reconfigure(&lines(160));
    waits_for_closing(reader, "resized");
    until("its new size", || {
        let capacity = figure(&world, "humboldt_store_capacity_bytes", "a")?;
        (capacity as u32 >> 20 == 160).then_some(())
    });
    wait_until_ready(&world, &["a"]);

    let reader = SlowReader::start(&world, 0, BYTES);
    world.proxy.reconfigure(&other);
    assert_eq!(
        figure(&world, "humboldt_store_down", "a"),
        None,
        "{scheme}: out of the configuration"
    );
    waits_for_closing(reader, "removed");

    world.proxy.reconfigure(&lines(160));
    wait_until_ready(&world, &["a"]);
    let reader = SlowReader::start(&world, 0, BYTES);
    world.proxy.reconfigure(&other);
    world.proxy.reconfigure(&lines(160));
    wait_until_ready(&world, &["a"]);
    assert!(is_hit(&world, 0, BYTES), "{scheme}: back at once");
    assert_eq!(count(&world, &closed), 2, "{scheme}: it was never closed");
    reader.end(&format!("{scheme}, back"));
    assert_eq!(count(&world, "going on without it"), 0);
}
