//! What answers look like.

use crate::client::{Client, Got};
use crate::world::{BIG, BIG_BYTES, PAGE_BYTES, PRIVATE, Running, World, of_kind, page};
use humboldt_lab_wire::{http_date, parse_http_date};
use humboldt_lab_workload::{ObjectName, Version, Workload};
use std::time::{SystemTime, UNIX_EPOCH};

fn unix_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

fn version(running: &Running, name: ObjectName) -> Version {
    running.facts(name).version_at(unix_us())
}

fn tag(running: &Running, name: ObjectName) -> String {
    let mut tag = Vec::new();
    Workload::etag(&running.facts(name), version(running, name).number, &mut tag);
    String::from_utf8(tag).unwrap()
}

fn date(unix_s: u64) -> String {
    let mut date = Vec::new();
    http_date(unix_s, &mut date);
    String::from_utf8(date).unwrap()
}

fn assert_body(running: &Running, name: ObjectName, first: u64, got: &Got) {
    let facts = running.facts(name);
    facts.body(version(running, name).number).check(first, &got.body).unwrap();
}

#[test]
fn a_cachable_object_comes_with_validators_and_an_end_of_life() {
    let running = World::default().start();
    let (name, mut client) = (page(7), Client::connect(running.address()));
    let got = client.ask("GET", &running.path(name), "Lab-Request: 00000000000000ab\r\n");
    let version = version(&running, name);
    assert_eq!((got.status, got.body.len() as u64, got.keep_alive), (200, PAGE_BYTES, true));
    assert_body(&running, name, 0, &got);
    assert_eq!(got.field("Content-Type"), Some("text/html"));
    assert_eq!(got.field("ETag"), Some(&tag(&running, name)[..]));
    assert_eq!(got.field("Last-Modified"), Some(&date(version.modified_s)[..]));
    assert_eq!(got.field("Expires"), Some(&date(version.expires_s)[..]));
    assert_eq!((got.field("Cache-Control"), got.field("Connection")), (Some("public"), None));
    assert_eq!(got.field("Lab-Request"), Some("00000000000000ab"));
    let date_s = parse_http_date(got.field("Date").unwrap().as_bytes()).unwrap();
    assert!(date_s.abs_diff(unix_us() / 1_000_000) <= 60);
}

#[test]
fn what_may_not_be_stored_says_so_in_several_ways() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    let mut ways: Vec<String> = Vec::new();
    for number in 0..40 {
        let got = client.get(&running.path(of_kind(PRIVATE, number)));
        assert_eq!((got.status, got.field("Expires")), (200, None));
        ways.push(got.field("Cache-Control").unwrap().to_owned());
    }
    ways.sort();
    ways.dedup();
    assert_eq!(ways, ["no-store", "private", "private, no-store"]);
}

#[test]
fn large_and_empty_objects_are_whole() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    let got = client.get(&running.path(of_kind(BIG, 1)));
    assert_eq!(got.body.len() as u64, BIG_BYTES);
    assert_body(&running, of_kind(BIG, 1), 0, &got);
    let empty = ObjectName { size: Some(0), ..page(3) };
    let got = client.get(&running.path(empty));
    assert_eq!((got.status, got.field("Content-Length"), got.body.len()), (200, Some("0"), 0));
    let explicit = ObjectName { size: Some(70_001), ..page(3) };
    let got = client.get(&running.path(explicit));
    assert_eq!(got.body.len(), 70_001);
    assert_body(&running, explicit, 0, &got);
    drop(client);
    let tally = running.sample_until(|tally| tally.connections == 0);
    assert_eq!((tally.requests, tally.body_bytes), (3, BIG_BYTES + 70_001));
}

#[test]
fn chunks_carry_the_same_bytes() {
    let running = World { chunked_share: 1.0, ..World::default() }.start();
    let mut client = Client::connect(running.address());
    for name in [page(1), of_kind(BIG, 2), ObjectName { size: Some(0), ..page(3) }, page(4)] {
        let got = client.get(&running.path(name));
        assert_eq!((got.status, got.is_chunked, got.field("Content-Length")), (200, true, None));
        assert_eq!(got.body.len() as u64, running.facts(name).size_bytes);
        assert_body(&running, name, 0, &got);
    }
    client.send(format!("GET {} HTTP/1.0\r\n\r\n", running.path(page(1))).as_bytes());
    assert!(!client.answer("GET").is_chunked, "HTTP/1.0 has no chunks");
}

#[test]
fn a_head_announces_what_a_get_would_give() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    let path = running.path(page(1));
    let (head, get) = (client.ask("HEAD", &path, ""), client.get(&path));
    assert_eq!((head.status, head.body.len()), (200, 0));
    let without_date = |got: &Got| {
        got.fields.iter().filter(|(name, _)| name != "Date").cloned().collect::<Vec<_>>()
    };
    assert_eq!(without_date(&head), without_date(&get));
}

#[test]
fn what_the_client_has_is_not_sent_again() {
    let running = World::default().start();
    let (name, mut client) = (page(9), Client::connect(running.address()));
    let (path, tag, version) = (running.path(name), tag(&running, name), version(&running, name));
    for (condition, status) in [
        (format!("If-None-Match: {tag}"), 304),
        (format!("If-Modified-Since: {}", date(version.modified_s)), 304),
        (format!("If-Modified-Since: {}", date(version.modified_s - 1)), 200),
        ("If-None-Match: \"other\"".to_owned(), 200),
    ] {
        let got = client.ask("GET", &path, &format!("{condition}\r\n"));
        assert_eq!((got.status, got.body.is_empty()), (status, status == 304), "{condition}");
        assert_eq!(got.field("ETag"), Some(&tag[..]));
        assert_eq!(got.field("Expires"), Some(&date(version.expires_s)[..]));
    }
    assert_eq!(running.origin.sample().not_modified, 2);
}

#[test]
fn ranges_are_parts_of_the_same_bytes() {
    let running = World::default().start();
    let (name, mut client) = (page(9), Client::connect(running.address()));
    let (path, tag) = (running.path(name), tag(&running, name));
    for (range, first, last) in
        [("10-19", 10, 19), ("4990-", 4990, 4999), ("-5", 4995, 4999), ("0-9999", 0, 4999)]
    {
        let got = client.ask("GET", &path, &format!("Range: bytes={range}\r\nIf-Range: {tag}\r\n"));
        assert_eq!((got.status, got.body.len() as u64), (206, last - first + 1), "{range}");
        assert_eq!(got.field("Content-Range"), Some(&format!("bytes {first}-{last}/5000")[..]));
        assert_body(&running, name, first, &got);
    }
    let whole =
        ["Range: bytes=1-2,5-6", "Range: bytes=1-2\r\nIf-Range: \"old\"", "Range: bytes=2-1"];
    for fields in whole {
        let got = client.ask("GET", &path, &format!("{fields}\r\n"));
        assert_eq!((got.status, got.body.len() as u64), (200, PAGE_BYTES), "{fields}");
    }
    let got = client.ask("GET", &path, "Range: bytes=5000-\r\n");
    assert_eq!((got.status, got.field("Content-Range")), (416, Some("bytes */5000")));
    assert_eq!(client.ask("HEAD", &path, "Range: bytes=1-2\r\n").status, 200);
    assert_eq!(running.origin.sample().partial, 4);
}
