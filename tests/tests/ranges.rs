//! Ranges: of whole stored objects, of stored parts, and of objects fetched for the purpose.

use humboldt_tests::origin::http_date;
use humboldt_tests::{Reply, Response, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A byte of version `version` of the content.
fn byte(version: u64, at: u64) -> u8 {
    let mixed = (at ^ (version << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

fn content(version: u64, range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|at| byte(version, at)).collect()
}

/// A server's treatment of ranges.
struct Server {
    /// Changes the content, and with it the tag.
    version: AtomicU64,
    /// Bytes of bodies sent.
    sent_bytes: AtomicU64,
    length: u64,
}

impl Server {
    /// Answers `path` with content of this length, and parts of it.
    fn on(world: &World, path: &str, length: u64) -> Arc<Self> {
        let server =
            Arc::new(Self { version: AtomicU64::new(1), sent_bytes: AtomicU64::new(0), length });
        let (own, date) = (Arc::clone(&server), http_date(0));
        world.origin.handle(path, move |head, wire| {
            let version = own.version.load(Ordering::SeqCst);
            let tag = format!("\"v{version}\"");
            let applies = head.field("If-Range").is_none_or(|wanted| wanted == tag);
            let range = head.field("Range").filter(|_| applies).and_then(|text| own.resolve(text));
            let whole = 0..own.length;
            let status = match &range {
                Some(part) => format!(
                    "206 Partial Content\r\nContent-Range: bytes {}-{}/{}",
                    part.start,
                    part.end - 1,
                    own.length
                ),
                None => "200 OK".to_owned(),
            };
            let part = range.unwrap_or(whole);
            own.sent_bytes.fetch_add(part.end - part.start, Ordering::SeqCst);
            wire.send(format!(
                "HTTP/1.1 {status}\r\nDate: {date}\r\nETag: {tag}\r\nContent-Type: text/x\r\nCache-Control: max-age=600\r\n\
                 Content-Length: {}\r\n\r\n",
                part.end - part.start
            ));
            wire.send(content(version, part));
        });
        server
    }

    fn resolve(&self, text: &str) -> Option<std::ops::Range<u64>> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        if first.is_empty() {
            return Some(self.length.saturating_sub(last.parse().ok()?)..self.length);
        }
        let first = first.parse().ok()?;
        let end = last.parse().map_or(self.length, |last: u64| (last + 1).min(self.length));
        (first < end).then_some(first..end)
    }

    /// Bytes sent since the last call.
    fn sent(&self) -> u64 {
        self.sent_bytes.swap(0, Ordering::SeqCst)
    }
}

fn range(world: &World, path: &str, range: &str) -> Response {
    world.ask("GET", path, &[("Range", &format!("bytes={range}"))])
}

#[track_caller]
fn assert_part(answer: Response, bytes: std::ops::Range<u64>, length: u64) {
    let answer = answer.expect(206);
    let said = format!("bytes {}-{}/{length}", bytes.start, bytes.end - 1);
    assert_eq!(answer.field("Content-Range"), Some(&*said));
    assert!(answer.is_complete && answer.body == content(1, bytes), "wrong bytes in {said}");
}

#[test]
fn a_part_is_stored_and_ranges_within_it_need_no_server() {
    let world = World::forward("");
    let server = Server::on(&world, "/a", 1000);
    assert_part(range(&world, "/a", "100-299"), 100..300, 1000);
    for (text, bytes) in [("100-299", 100..300), ("150-199", 150..200), ("299-299", 299..300)] {
        let answer = range(&world, "/a", text);
        assert_eq!(answer.cache(), "HIT");
        assert_part(answer, bytes, 1000);
    }
    assert_eq!((world.origin.count("/a"), server.sent()), (1, 200));
    // Connections may be served by different cores, whose lines are written in any order.
    let hits =
        world.proxy.logged_times("/a", 4).into_iter().filter(|line| line.contains("TCP_HIT/206"));
    assert_eq!(hits.count(), 3);
}

#[test]
fn what_is_missing_is_fetched_and_no_more() {
    let world = World::forward("");
    let server = Server::on(&world, "/a", 1000);
    assert_part(range(&world, "/a", "0-99"), 0..100, 1000);
    assert_part(range(&world, "/a", "300-399"), 300..400, 1000);
    assert_part(range(&world, "/a", "50-349"), 50..350, 1000);
    assert_eq!(world.origin.last("/a").field("Range"), Some("bytes=100-299"));
    assert_eq!(world.origin.last("/a").field("If-Range"), Some("\"v1\""));
    assert_eq!(server.sent(), 400);
    assert_part(range(&world, "/a", "0-399"), 0..400, 1000);
    let whole = world.get("/a").expect(200);
    assert_eq!((whole.field("Content-Range"), &*whole.body), (None, &*content(1, 0..1000)));
    assert_eq!(world.origin.last("/a").field("Range"), Some("bytes=400-"));
    assert_eq!(server.sent(), 600);
    let again = world.get("/a").expect(200);
    assert_eq!((again.cache(), &*again.body), ("HIT", &*content(1, 0..1000)));
    assert_part(range(&world, "/a", "-10"), 990..1000, 1000);
    assert_eq!(server.sent(), 0);
}

#[test]
fn parts_of_two_versions_never_meet() {
    let world = World::forward("");
    let server = Server::on(&world, "/a", 1000);
    assert_part(range(&world, "/a", "0-99"), 0..100, 1000);
    server.version.store(2, Ordering::SeqCst);
    // The gap is asked for with If-Range, and the server sends the new version whole; the client
    // gets its range of that.
    let answer = range(&world, "/a", "50-149").expect(206);
    assert_eq!((answer.field("ETag"), &*answer.body), (Some("\"v2\""), &*content(2, 50..150)));
    let whole = world.get("/a").expect(200);
    assert_eq!((whole.cache(), &*whole.body), ("HIT", &*content(2, 0..1000)));
    server.version.store(3, Ordering::SeqCst);
    let reload = [("Range", "bytes=0-9"), ("Cache-Control", "no-cache")];
    let answer = world.ask("GET", "/a", &reload).expect(206);
    assert_eq!(answer.body, content(3, 0..10));
}

#[test]
fn a_server_that_ignores_if_range_does_not_get_its_new_part_behind_an_old_one() {
    let world = World::forward("");
    let part = |tag: &str, from: u64, body: &str| {
        let range = format!("bytes {from}-{}/10", from + body.len() as u64 - 1);
        let reply = Reply::status("206 Partial Content", body).cachable(60);
        reply.with("Content-Range", &range).with("ETag", tag)
    };
    let replies =
        vec![part("\"1\"", 0, "aaaaa"), part("\"2\"", 5, "bbbbb"), part("\"2\"", 0, "bbbbbbbbb")];
    world.origin.on_each("/a", replies);
    assert_eq!(range(&world, "/a", "0-4").expect(206).text(), "aaaaa");
    assert_eq!(range(&world, "/a", "0-8").expect(206).text(), "bbbbbbbbb");
    let asked: Vec<_> = world
        .origin
        .requests("/a")
        .iter()
        .map(|it| it.field("Range").unwrap().to_owned())
        .collect();
    assert_eq!(asked, ["bytes=0-4", "bytes=5-8", "bytes=0-8"]);
}

#[test]
fn a_new_version_of_a_part_replaces_the_list() {
    let world = World::forward("");
    let server = Server::on(&world, "/a", 1000);
    assert_part(range(&world, "/a", "0-99"), 0..100, 1000);
    server.version.store(2, Ordering::SeqCst);
    assert_eq!(range(&world, "/a", "500-599").expect(206).body, content(2, 500..600));
    server.sent();
    assert_eq!(
        range(&world, "/a", "0-99").expect(206).body,
        content(2, 0..100),
        "the old part is not used"
    );
}

#[test]
fn a_purge_takes_the_parts_along() {
    let world = World::forward("acl purge method PURGE\nhttp_access allow purge\n");
    let server = Server::on(&world, "/a", 1000);
    assert_part(range(&world, "/a", "0-99"), 0..100, 1000);
    let _ = world.ask("PURGE", "/a", &[]).expect(200);
    server.version.store(2, Ordering::SeqCst);
    let answer = range(&world, "/a", "0-99").expect(206);
    assert_eq!((answer.cache(), &*answer.body), ("MISS", &*content(2, 0..100)));
}

#[test]
fn parts_without_a_strong_validator_are_not_combined() {
    let world = World::forward("");
    let part = |from: u64, body: &str| {
        let range = format!("bytes {from}-{}/10", from + body.len() as u64 - 1);
        Reply::status("206 Partial Content", body)
            .cachable(60)
            .with("Content-Range", &range)
            .with("ETag", "W/\"a\"")
    };
    world.origin.on_each("/weak", vec![part(0, "01234"), part(5, "56789"), part(3, "3456")]);
    assert_eq!(range(&world, "/weak", "0-4").expect(206).text(), "01234");
    assert_eq!(range(&world, "/weak", "0-2").expect(206).cache(), "HIT");
    assert_eq!(range(&world, "/weak", "5-9").expect(206).text(), "56789");
    let across = range(&world, "/weak", "3-6").expect(206);
    assert_eq!((across.text().as_str(), across.cache()), ("3456", "MISS"));
    assert_eq!(world.origin.last("/weak").field("Range"), Some("bytes=3-6"));
}

#[test]
fn a_part_that_contradicts_itself_is_passed_on_and_not_stored() {
    for (content_range, body) in [
        ("bytes 0-9/100", "01234"),
        ("bytes 0-2/100", "01234"),
        ("bytes 0-4/*", "01234"),
        ("bytes x", "01234"),
    ] {
        let world = World::forward("");
        let reply = Reply::status("206 Partial Content", body)
            .cachable(60)
            .with("Content-Range", content_range);
        world.origin.on("/a", reply);
        assert_eq!(range(&world, "/a", "0-4").text(), body);
        assert_eq!(range(&world, "/a", "0-4").cache(), "MISS", "{content_range}");
    }
}

#[test]
fn several_ranges_come_as_multipart() {
    for lines in ["", "maximum_object_size_in_memory 1 KB\ncache_dir ufs {dir}/cache 10 4 4\n"] {
        let world = World::forward(lines);
        let server = Server::on(&world, "/a", 5000);
        let _ = world.get("/a").expect(200);
        if !lines.is_empty() {
            humboldt_tests::wait::until("the object on disk", || {
                (world.get("/a").cache() == "HIT").then_some(())
            });
        }
        server.sent();
        let answer = range(&world, "/a", "0-9, 100-199,-5").expect(206);
        check_multipart(&answer, 5000, &[0..10, 100..200, 4995..5000]);
        assert_eq!(server.sent(), 0);
        let one = range(&world, "/a", "7-8,9000-").expect(206);
        assert_eq!(
            (one.field("Content-Range"), &*one.body),
            (Some("bytes 7-8/5000"), &*content(1, 7..9))
        );
        let too_much = range(&world, "/a", "0-,0-,0-").expect(200);
        assert_eq!(too_much.body.len(), 5000, "more than there is: the whole");
    }
}

#[test]
fn several_ranges_come_from_stored_parts() {
    let world = World::forward("");
    let server = Server::on(&world, "/a", 1000);
    for part in ["0-99", "100-149", "500-599"] {
        let _ = range(&world, "/a", part).expect(206);
    }
    server.sent();
    let answer = range(&world, "/a", "90-119,550-559").expect(206);
    check_multipart(&answer, 1000, &[90..120, 550..560]);
    assert_eq!((answer.cache(), server.sent()), ("HIT", 0));
}

#[track_caller]
fn check_multipart(answer: &Response, length: u64, ranges: &[std::ops::Range<u64>]) {
    let media_type = answer.field("Content-Type").expect("a type");
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").expect(media_type);
    assert_eq!(answer.field("Content-Range"), None);
    let mut expected = Vec::new();
    for range in ranges {
        expected
            .extend_from_slice(format!("\r\n--{boundary}\r\nContent-Type: text/x\r\n").as_bytes());
        let part =
            format!("Content-Range: bytes {}-{}/{length}\r\n\r\n", range.start, range.end - 1);
        expected.extend_from_slice(part.as_bytes());
        expected.extend(content(1, range.clone()));
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(answer.is_complete && answer.body == expected, "{}", answer.text());
}

#[test]
fn range_offset_limit_fetches_the_whole_for_early_ranges() {
    let world = World::forward("range_offset_limit 500 B\n");
    let server = Server::on(&world, "/early", 10_000);
    assert_part(range(&world, "/early", "500-599"), 500..600, 10_000);
    assert_eq!((world.origin.last("/early").field("Range"), server.sent()), (None, 10_000));
    let later = range(&world, "/early", "9000-");
    assert_eq!(later.cache(), "HIT");
    assert_part(later, 9000..10_000, 10_000);
    let server = Server::on(&world, "/late", 10_000);
    assert_part(range(&world, "/late", "501-599"), 501..600, 10_000);
    assert_part(range(&world, "/late", "-9"), 9991..10_000, 10_000);
    assert_eq!(server.sent(), 108);
    let world = World::forward("range_offset_limit none\n");
    let server = Server::on(&world, "/any", 10_000);
    assert_part(range(&world, "/any", "-9"), 9991..10_000, 10_000);
    assert_eq!(server.sent(), 10_000);
}

#[test]
fn the_answer_to_a_missed_condition_is_stored() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60).with("ETag", "\"new\""));
    let _ = world.ask("GET", "/a", &[("If-None-Match", "\"old\"")]).expect(200);
    assert_eq!(world.get("/a").expect(200).cache(), "HIT");
    world.origin.on("/b", Reply::ok("hello").cachable(60).with("ETag", "\"new\""));
    let _ = world.ask("GET", "/b", &[("If-None-Match", "\"new\"")]).expect(304);
    assert_eq!(world.get("/b").expect(200).text(), "hello", "a 304 is nothing to store");
}

/// Many clients request ranges of an answer that changes again and again: each gets bytes of one
/// version, that of its tag.
#[test]
fn many_clients_and_a_changing_answer() {
    for lines in
        ["", "cache_mem 1 MB\nmaximum_object_size_in_memory 8 KB\ncache_dir ring {dir}/cache 64\n"]
    {
        let world = World::forward(lines);
        let length = 100_000;
        let server = Server::on(&world, "/a", length);
        let answers = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for number in 0..6_u64 {
                let (world, server, answers) = (&world, &server, &answers);
                threads.spawn(move || {
                    let mut client = world.client();
                    let mut state = number + 7;
                    for _ in 0..300 {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let (first, span) = ((state >> 33) % length, (state >> 20) % 20_000);
                        let last = (first + span).min(length - 1);
                        let text = format!("bytes={first}-{last}");
                        let own = [("Range", &*text)];
                        let fields: &[(&str, &str)] =
                            if state.is_multiple_of(16) { &[] } else { &own };
                        client.request("GET", &world.target("/a"), fields, b"");
                        check_version(&client.response(), first..last + 1, length);
                        if answers.fetch_add(1, Ordering::SeqCst) % 50 == 49 {
                            server.version.fetch_add(1, Ordering::SeqCst);
                            let reload = [("Cache-Control", "no-cache"), ("Range", &*text)];
                            client.request("GET", &world.target("/a"), &reload, b"");
                            check_version(&client.response(), first..last + 1, length);
                        }
                    }
                });
            }
        });
    }
}

#[track_caller]
fn check_version(answer: &Response, wanted: std::ops::Range<u64>, length: u64) {
    let tag = answer.field("ETag").expect("a tag");
    let version: u64 = tag.trim_matches(['"', 'v']).parse().expect("a number");
    let bytes = if answer.status() == 206 { wanted } else { 0..length };
    assert!(matches!(answer.status(), 200 | 206) && answer.is_complete, "{:?}", answer.head);
    assert!(answer.body == content(version, bytes), "not what {tag} is: {:?}", answer.head);
}

/// Any ranges in any order, across restarts, in memory and on disk: always the right bytes, and
/// each byte comes once from the server while nothing is evicted.
#[test]
fn any_ranges_in_any_order() {
    for scheme in ["", "ufs", "ring", "rock"] {
        let dir = if scheme.is_empty() {
            String::new()
        } else {
            format!("cache_dir {scheme} {{dir}}/cache 64 4 4\n")
        };
        let mut world = World::forward(&format!(
            "{dir}maximum_object_size_in_memory 20 KB\nmaximum_object_size 8 MB\ncache_mem 16 MB\n"
        ));
        let length = 300_000;
        let server = Server::on(&world, "/a", length);
        let mut state = 42_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..60 {
            let first = random(length);
            let last = (first + random(40_000)).min(length - 1);
            assert_part(range(&world, "/a", &format!("{first}-{last}")), first..last + 1, length);
            if round % 20 == 19 && !scheme.is_empty() {
                world.proxy.restart();
            }
        }
        let whole = world.get("/a").expect(200);
        assert!(whole.is_complete && whole.body == content(1, 0..length), "{scheme}");
        let sent = server.sent();
        assert!(sent >= length / 2 && sent < 4 * length, "{scheme}: the server sent {sent} bytes");
        assert_eq!(world.get("/a").expect(200).body, content(1, 0..length));
    }
}
