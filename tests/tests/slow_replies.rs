//! `http_reply_access` and `cache` with an ACL that waits for the addresses of a name: an answer
//! that a list has not decided about yet goes to nobody, wherever it comes from.

use humboldt_tests::dns::{NameServer, Says, loopback};
use humboldt_tests::message::Head;
use humboldt_tests::origin::Wire;
use humboldt_tests::wait::{Gate, LIMIT, until, until_within};
use humboldt_tests::{Client, Origin, Proxy, Reply, Response};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The host of most requests. Its address decides, and may change between two requests.
const HOST: &str = "turns.test";

/// Hosts at this address are bad.
const BAD: &str = "acl bad dst 127.0.0.2\n";
const DENY_BAD: &str = "http_reply_access deny bad\n";

/// Objects are on disk only.
const ON_DISK: &str = "cache_mem 0\ncache_dir ring {dir}/store 64\n";

/// A request for a part.
type Way = (&'static str, &'static [(&'static str, &'static str)], u16);

/// A proxy that asks a parent for everything: it looks names up for its lists only.
struct Stage {
    dns: NameServer,
    parent: Origin,
    proxy: Proxy,
}

impl Stage {
    fn new(lines: &str) -> Self {
        let (dns, parent) = (NameServer::new(), Origin::new());
        let proxy = Proxy::forward(&format!(
            "cache_peer 127.0.0.1 parent {} 0 no-query\nnever_direct allow all\n\
             {}dns_timeout 5 minutes\n{BAD}{lines}",
            parent.address().port(),
            dns.lines()
        ));
        let stage = Self { dns, parent, proxy };
        stage.host_is_good(true);
        stage
    }

    /// Whether the host is at a permitted address from now on.
    fn host_is_good(&self, is_good: bool) {
        self.dns.on(HOST, loopback(if is_good { 1 } else { 2 }));
    }

    fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Response {
        let mut client = self.proxy.client();
        client.request(method, &url(path), fields, body);
        client.response_to(method)
    }

    fn get(&self, path: &str) -> Response {
        self.ask("GET", path, &[], b"")
    }

    /// Has an answer stored, and returns how often the parent was asked for it.
    fn store(&self, path: &str) -> usize {
        until("a hit", || (self.get(path).cache() == "HIT").then_some(()));
        self.parent.count(path)
    }
}

fn url(path: &str) -> String {
    format!("http://{HOST}{path}")
}

/// An answer with the mark that no refused client may see.
fn secret(body_bytes: usize) -> Reply {
    let body = b"SECRET".iter().copied().cycle().take(body_bytes).collect::<Vec<u8>>();
    Reply::ok(body).cachable(600).with("ETag", "\"secret\"").with("X-Secret", "yes")
}

/// Checks that nothing of an answer has come, but a refusal.
#[track_caller]
fn is_refused(answer: Response, what: &str) {
    assert_eq!(answer.status(), 403, "{what}: {:?}\n{}", answer.head, answer.text());
    assert_eq!((answer.field("X-Secret"), answer.field("ETag")), (None, None), "{what}");
    assert!(!answer.text().contains("SECRET"), "{what}");
    assert!(answer.interim.is_empty(), "{what}: {:?}", answer.interim);
}

/// Asks once while the host is good, and once while it is bad.
#[track_caller]
fn is_decided_by_the_address(stage: &Stage, path: &str, ways: &[Way]) {
    for &(method, fields, status) in ways {
        let what = format!("{method} {path} {fields:?}");
        stage.host_is_good(true);
        let answer = stage.ask(method, path, fields, b"");
        assert_eq!(answer.status(), status, "{what}: {:?}", answer.head);
        assert_eq!(answer.text().contains("SECRET"), method == "GET" && status < 300, "{what}");
        assert!(answer.is_complete, "{what}");
        assert_eq!(stage.dns.asked(HOST), 1, "{what}");
        stage.host_is_good(false);
        is_refused(stage.ask(method, path, fields, b""), &what);
        assert_eq!(stage.dns.asked(HOST), 1, "{what}");
    }
}

/// The ways in which a stored object is asked for.
const WAYS: [Way; 5] = [
    ("GET", &[], 200),
    ("HEAD", &[], 200),
    ("GET", &[("Range", "bytes=6-17")], 206),
    ("GET", &[("Range", "bytes=0-5,12-17")], 206),
    ("GET", &[("If-None-Match", "\"secret\"")], 304),
];

#[test]
fn an_answer_from_disk_waits_for_what_its_list_needs() {
    let stage = Stage::new(&format!("{ON_DISK}{DENY_BAD}"));
    for (path, body_bytes) in [("/small", 60), ("/large", 3_000_000)] {
        stage.parent.on(path, secret(body_bytes));
        stage.host_is_good(true);
        let asked = stage.store(path);
        is_decided_by_the_address(&stage, path, &WAYS);
        assert_eq!(stage.parent.count(path), asked, "{path} came from disk");
    }
}
