//! Large objects on their way: memory stays bounded, slow clients get every byte, the disk gets all
//! of it.
//!
//! `HUMBOLDT_TEST_LARGE_MB=5120` sets the size of the object of these tests; they take minutes
//! then. `HUMBOLDT_TEST_SCHEMES=ring` tries one scheme only.

use humboldt_tests::World;
use humboldt_tests::wait::{Gate, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The schemes that all of this holds for: all but `coss`, whose objects fit into a stripe.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "rock", "ring"];

/// Most memory of the whole process, with `cache_mem 8 MB`: the program itself, flows, buffers.
const RESIDENT_KIB_MAX: u64 = 100 * 1024;

const MIB: u64 = 1 << 20;

/// Size of the large object.
fn large_bytes(usual_mb: u64) -> u64 {
    let wanted = std::env::var("HUMBOLDT_TEST_LARGE_MB").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(usual_mb) * MIB
}

/// Bytes `from..from + out.len()` of every body here; `from` is a multiple of 8. No two places are
/// alike.
fn fill(from: u64, out: &mut [u8]) {
    for (at, word) in out.chunks_mut(8).enumerate() {
        let number = (from / 8 + at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        word.copy_from_slice(&number[..word.len()]);
    }
}

/// A client that checks its bytes and keeps none.
struct Checker {
    stream: TcpStream,
    at: u64,
    head: String,
}

impl Checker {
    /// Asks, and reads the head.
    fn ask(proxy: SocketAddr, url: &str, fields: &str) -> Self {
        let mut stream = TcpStream::connect(proxy).expect("the proxy listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        write!(stream, "GET {url} HTTP/1.1\r\nHost: x\r\n{fields}\r\n").expect("sent");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        Self { stream, at: 0, head: String::from_utf8_lossy(&head).into_owned() }
    }

    /// Reads and compares up to offset `to`.
    fn read_to(&mut self, to: u64) {
        let (mut got, mut expected) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        while self.at < to {
            let len = (to - self.at).min(1 << 16) as usize;
            self.stream
                .read_exact(&mut got[..len])
                .unwrap_or_else(|error| panic!("at byte {}: {error}", self.at));
            fill(self.at, &mut expected[..len]);
            assert!(got[..len] == expected[..len], "wrong bytes behind {}", self.at);
            self.at += len as u64;
        }
    }

    fn is_hit(&self) -> bool {
        self.head.contains("\r\nX-Cache: HIT ")
    }
}

/// Lets the origin serve the large object with a validator, and from any byte on.
fn serve_parts(world: &World, path: &str, bytes: u64) {
    world.origin.handle(path, move |head, wire| {
        let range = head.field("Range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let from: u64 = range.and_then(|from| from.parse().ok()).unwrap_or(0);
        let status = match range {
            Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{bytes}", bytes - 1),
            None => "200 OK".to_owned(),
        };
        let length = bytes - from;
        wire.send(format!(
            "HTTP/1.1 {status}\r\nETag: \"1\"\r\nCache-Control: max-age=3600\r\nContent-Length: {length}\r\n\r\n"
        ));
        let mut part = vec![0; 1 << 18];
        for at in (from / 8 * 8..bytes).step_by(1 << 18) {
            let len = (bytes - at).min(1 << 18) as usize;
            fill(at, &mut part[..len]);
            let skip = from.saturating_sub(at) as usize;
            wire.send(&part[skip..len]);
        }
    });
}

/// Lets the origin serve the large object, with or without a length. It stops after the first part
/// until the gate is open.
fn serve_behind_gate(world: &World, path: &str, bytes: u64, has_length: bool) -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    let for_origin = Arc::clone(&gate);
    world.origin.handle(path, move |_, wire| {
        let length = if has_length {
            format!("Content-Length: {bytes}\r\n")
        } else {
            "Connection: close\r\n".into()
        };
        wire.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n{length}\r\n"));
        let mut part = vec![0; 1 << 18];
        for from in (0..bytes).step_by(1 << 18) {
            let len = (bytes - from).min(1 << 18) as usize;
            fill(from, &mut part[..len]);
            wire.send(&part[..len]);
            for_origin.pass();
        }
    });
    gate
}

/// The same, without a stop.
fn serve(world: &World, path: &str, bytes: u64, has_length: bool) {
    serve_behind_gate(world, path, bytes, has_length).open();
}

fn world(scheme: &str, policy: &str, bytes: u64) -> World {
    // `ring` takes objects up to a third of its size.
    let capacity_mb = bytes / MIB * 3 + 200;
    let world = World::forward(&format!(
        "cache_dir {scheme} {{dir}}/cache {capacity_mb} 4 4\ncache_mem 8 MB\nmaximum_object_size 10 GB\nin_transit {policy}\n"
    ));
    world.proxy.wait_for_directory();
    world
}

/// One large object, fetched by a fast client and a slow one that joins it and leaves it again,
/// then from the disk.
fn comes_through(scheme: &str, policy: &str, bytes: u64, has_length: bool) {
    let world = world(scheme, policy, bytes);
    let gate = serve_behind_gate(&world, "/large", bytes, has_length);
    let (proxy, url) = (world.proxy.address(), world.origin.url("/large"));
    let mut fast = Checker::ask(proxy, &url, "");
    let mut slow = Checker::ask(proxy, &url, "");
    gate.open();
    slow.read_to(MIB);
    fast.read_to(bytes);
    // It has fallen behind by more than memory holds. There is no validator: it goes on with a
    // fetch of its own, which gives the same.
    slow.read_to(bytes);
    assert_eq!(
        world.origin.count("/large"),
        2,
        "{scheme} {policy}: one for both, and one for the slow one"
    );
    until("the object on disk", || (world.metric("humboldt_store_objects") == 1).then_some(()));
    let mut again = Checker::ask(proxy, &url, "");
    again.read_to(bytes);
    assert!(again.is_hit(), "{scheme} {policy}: {}", again.head);
    parts_need_no_more_than_themselves(&world, scheme, &url, bytes);
    assert_eq!(world.origin.count("/large"), 2);
    let resident = world.proxy.memory_kib("VmHWM");
    assert!(resident < RESIDENT_KIB_MAX, "{scheme} {policy}: {resident} KiB");
}

/// Bytes that the proxy has read from its disk: by the directory's own figures, or where it counts
/// none by the kernel's.
fn bytes_read(world: &World) -> u64 {
    let counted = world.metric("humboldt_store_device_read_bytes_total");
    if counted > 0 {
        return counted;
    }
    let io = fs::read_to_string(format!("/proc/{}/io", world.proxy.id())).expect("a running proxy");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("rchar");
    line.parse().expect("a number")
}

/// Ranges come from the disk without the rest.
fn parts_need_no_more_than_themselves(world: &World, scheme: &str, url: &str, bytes: u64) {
    let before = bytes_read(world);
    for part in [bytes / 2, bytes - 100_000, 0] {
        let first = part / 8 * 8;
        let range = format!("Range: bytes={first}-{}\r\n", first + 99_999);
        let mut checker = Checker::ask(world.proxy.address(), url, &range);
        assert!(checker.head.starts_with("HTTP/1.1 206 ") && checker.is_hit(), "{}", checker.head);
        checker.at = first;
        checker.read_to(first + 100_000);
    }
    let read = bytes_read(world) - before;
    // Checksums cover units of 64 KiB, of which a part touches up to three; a head, and the list of
    // checksums, has to be read. `ring` reads fragments whole, a MiB each, of which a part touches
    // up to two.
    let most = if scheme == "ring" { 3 * 2 * (MIB + 64 * 1024) } else { 1_000_000 };
    assert!(
        (300_000..most + bytes / 2_000).contains(&read),
        "{scheme}: {read} bytes read for three parts of 100,000"
    );
}

/// Moves hundreds of MB three times, which takes seconds.
#[test]
fn a_large_object_comes_through_little_memory() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let usual_mb = if matches!(scheme, "ufs" | "ring") { 300 } else { 130 };
        comes_through(scheme, "auto", large_bytes(usual_mb), true);
    }
}

#[test]
fn in_transit_disk_and_memory_cache_large_objects_too() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        comes_through(scheme, "disk", large_bytes(40), true);
        comes_through(scheme, "memory", large_bytes(40), true);
    }
}

#[test]
fn an_object_of_unknown_length_comes_through_little_memory() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let bytes = large_bytes(40);
        let world = world(scheme, "auto", bytes);
        serve(&world, "/large", bytes, false);
        for hit in [false, true] {
            let url = world.origin.url("/large");
            let mut client = Checker::ask(world.proxy.address(), &url, "Connection: close\r\n");
            if hit {
                client.read_to(bytes);
                assert!(client.is_hit(), "{scheme}: {}", client.head);
            } else {
                let mut rest = Vec::new();
                client.stream.read_to_end(&mut rest).expect("to the end");
            }
            until("the object on disk", || {
                (world.metric("humboldt_store_objects") == 1).then_some(())
            });
        }
        assert!(world.proxy.memory_kib("VmHWM") < RESIDENT_KIB_MAX, "{scheme}");
    }
}

#[test]
fn with_in_transit_disk_a_small_object_is_not_kept_in_memory() {
    for (policy, in_memory) in [("disk", false), ("auto", true), ("memory", true)] {
        let world = world("ufs", policy, 20 * MIB);
        serve(&world, "/small", 100_000, true);
        let url = world.origin.url("/small");
        Checker::ask(world.proxy.address(), &url, "").read_to(100_000);
        until("the object on disk", || (world.metric("humboldt_store_objects") == 1).then_some(()));
        Checker::ask(world.proxy.address(), &url, "").read_to(100_000);
        let tag = if in_memory { "TCP_MEM_HIT/200" } else { "TCP_HIT/200" };
        let logged = world.proxy.logged_times("/small", 2);
        assert!(logged.iter().any(|line| line.contains(tag)), "{policy}: {logged:?}");
    }
}

/// A world whose directory has the large object, and two clients that have begun to read it from
/// there: one all of it, the other bytes 8,000,000 to 61,999,999.
fn half_read(scheme: &str, bytes: u64) -> (World, Checker, Checker) {
    let world = world(scheme, "auto", bytes);
    serve_parts(&world, "/large", bytes);
    let (proxy, url) = (world.proxy.address(), world.origin.url("/large"));
    Checker::ask(proxy, &url, "").read_to(bytes);
    until("the object on disk", || (world.metric("humboldt_store_objects") == 1).then_some(()));
    let mut whole = Checker::ask(proxy, &url, "");
    let mut part = Checker::ask(proxy, &url, "Range: bytes=8000000-61999999\r\n");
    assert!(whole.is_hit() && part.is_hit());
    part.at = 8_000_000;
    whole.read_to(MIB);
    part.read_to(8_100_000);
    (world, whole, part)
}

#[test]
fn who_reads_from_a_directory_that_is_opened_anew_gets_every_byte() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let bytes = 60 * MIB;
        let (world, mut whole, mut part) = half_read(scheme, bytes);
        let lines = format!(
            "cache_dir {scheme} {{dir}}/cache 500 4 4\ncache_mem 8 MB\nmaximum_object_size 10 GB\n"
        );
        world.proxy.reconfigure(&lines);
        whole.read_to(bytes);
        part.read_to(62_000_000);
        // A directory is closed, and opened again, after its last reader.
        drop((whole, part));
        until("the new size", || {
            (world.metric("humboldt_store_capacity_bytes") == 500 * MIB).then_some(())
        });
        world.proxy.wait_for_directory();
        let mut again = Checker::ask(world.proxy.address(), &world.origin.url("/large"), "");
        again.read_to(bytes);
        assert!(again.is_hit(), "{scheme}: it is still there");
    }
}

#[test]
fn what_can_no_longer_be_read_from_disk_comes_from_the_server() {
    let bytes = 60 * MIB;
    let (world, mut whole, mut part) = half_read("ufs", bytes);
    let file = fs::OpenOptions::new().write(true).open(world.proxy.path("cache/00/00/00000000"));
    file.and_then(|file| file.set_len(40 * MIB)).expect("the object's file");
    whole.read_to(bytes);
    part.read_to(62_000_000);
    assert_eq!(world.origin.count("/large"), 3, "the first fetch, and the rest of both");
}
