//! `http_reply_access` and `cache` with an ACL that waits for the addresses of a name: an answer
//! that a list has not decided about yet goes to nobody, wherever it comes from.

use humboldt_tests::dns::{NameServer, Says, loopback};
use humboldt_tests::message::Head;
use humboldt_tests::origin::Wire;
use humboldt_tests::wait::{Gate, LIMIT, until, until_within};
use humboldt_tests::{Client, Origin, Proxy, Reply, Response, WEB_SOCKET};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The host of most requests. Its address decides, and may change between two requests.
const HOST: &str = "turns.test";

/// Hosts at this address are bad.
const BAD: &str = "acl bad dst 127.0.0.2\n";
const DENY_BAD: &str = "http_reply_access deny bad\n";

/// Objects are on disk only.
const ON_DISK: &str = "cache_mem 0\ncache_dir ring {dir}/store 64\n";

/// Objects are in memory only.
const IN_MEMORY: &str = "cache_mem 64 MB\nmaximum_object_size_in_memory 8 MB\n";

/// The method and the fields of a request, and the status of its answer.
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
             {}dns_timeout 5 minutes\ndns_retransmit_interval 3 seconds\n{BAD}{lines}",
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

    /// The parent's answer to `/new` stops in its middle, until `gate` is opened.
    fn parent_sends_half_of_new(&self, gate: &Arc<Gate>) {
        let gate = Arc::clone(gate);
        self.parent.handle("/new", move |_, wire| {
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nX-Secret: yes\r\n");
            wire.send("Content-Length: 12\r\n\r\nSECRET");
            gate.pass();
            wire.send("SECRET");
        });
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

/// Checks that nothing of an answer has come, but a refusal by a list that denies.
#[track_caller]
fn is_refused(answer: Response, what: &str) {
    has_nothing_of_it(answer, 403, what);
}

#[track_caller]
fn has_nothing_of_it(answer: Response, status: u16, what: &str) {
    assert_eq!(answer.status(), status, "{what}: {:?}\n{}", answer.head, answer.text());
    assert_eq!((answer.field("X-Secret"), answer.field("ETag")), (None, None), "{what}");
    assert!(!answer.text().contains("SECRET"), "{what}");
    assert!(answer.interim.is_empty(), "{what}: {:?}", answer.interim);
}

/// Asks once while the host is good, once while it is bad, and once while it has no address.
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
        stage.dns.on(HOST, Says::NoSuchName);
        has_nothing_of_it(stage.ask(method, path, fields, b""), 503, &what);
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

#[test]
fn an_answer_that_is_read_from_disk_into_memory_waits_for_what_its_list_needs() {
    let mut stage = Stage::new(&format!("cache_dir ring {{dir}}/store 64\n{DENY_BAD}"));
    stage.proxy.wait_for_directory();
    stage.parent.on("/a", secret(60));
    let asked = stage.store("/a");
    until("it on disk", || (stage.proxy.metric("humboldt_store_objects") > 0).then_some(()));
    stage.proxy.restart();
    stage.proxy.wait_for_directory();
    stage.host_is_good(false);
    is_refused(stage.get("/a"), "before it was ever served");
    is_decided_by_the_address(&stage, "/a", &WAYS);
    assert_eq!(stage.parent.count("/a"), asked, "it came from the cache");
}

#[test]
fn an_answer_that_the_server_confirms_waits_for_what_its_list_needs() {
    let stage = Stage::new(DENY_BAD);
    stage.parent.on("/old", secret(60).with("Cache-Control", "no-cache"));
    let _ = stage.get("/old").expect(200);
    is_decided_by_the_address(&stage, "/old", &WAYS);
    assert_eq!(stage.parent.last("/old").field("If-None-Match"), Some("\"secret\""));
}

/// Sends the part that is asked for of ten bytes.
fn send_part(head: &Head, wire: &mut Wire) {
    let range = head.field("Range").unwrap_or("bytes=0-9").trim_start_matches("bytes=");
    let (first, last) = range.split_once('-').unwrap_or_default();
    let (first, last) = (first.parse().unwrap_or(0), last.parse().unwrap_or(9));
    let body = "SECRETabcd".get(first..=last).unwrap_or_default();
    wire.send(format!(
        "HTTP/1.1 206 Partial Content\r\nETag: \"a\"\r\nX-Secret: yes\r\n\
         Cache-Control: max-age=600\r\nContent-Range: bytes {first}-{last}/10\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
}

#[test]
fn parts_that_are_put_together_wait_for_what_their_list_needs() {
    let stage = Stage::new(DENY_BAD);
    stage.parent.handle("/part", send_part);
    let part = |range| stage.ask("GET", "/part", &[("Range", range)], b"");
    assert_eq!(part("bytes=0-5").expect(206).text(), "SECRET");
    until("a hit of the part", || (part("bytes=0-5").cache() == "HIT").then_some(()));
    let asked = stage.parent.count("/part");
    let stored: Way = ("GET", &[("Range", "bytes=0-5")], 206);
    is_decided_by_the_address(&stage, "/part", &[stored]);
    assert_eq!(stage.parent.count("/part"), asked, "the part was stored");
    // With a gap.
    stage.host_is_good(false);
    is_refused(part("bytes=0-7"), "a stored part and a missing one");
    assert_eq!(stage.parent.count("/part"), asked, "the gap was fetched for nobody");
    stage.host_is_good(true);
    assert_eq!(part("bytes=0-7").expect(206).text(), "SECRETab");
    assert_eq!(stage.parent.last("/part").field("Range"), Some("bytes=6-7"));
    assert_eq!(stage.dns.asked(HOST), 1);
}

#[test]
fn a_client_that_joins_a_fetch_waits_for_what_its_list_needs() {
    for is_good in [true, false] {
        let rules = "acl guest req_header X-Guest yes\nhttp_reply_access deny guest bad\n";
        let (stage, gate) = (Stage::new(rules), Arc::new(Gate::default()));
        stage.host_is_good(is_good);
        stage.parent_sends_half_of_new(&gate);
        let mut first = stage.proxy.client();
        first.request("GET", &url("/new"), &[], b"");
        let _ = first.head();
        assert_eq!(first.bytes(6), b"SECRET");
        assert_eq!(stage.dns.asked(HOST), 0, "the list does not come to the question");
        let mut guest = stage.proxy.client();
        guest.request("GET", &url("/new"), &[("X-Guest", "yes")], b"");
        if is_good {
            assert_eq!((guest.head().word(1), &*guest.bytes(6)), ("200", &b"SECRET"[..]));
        } else {
            is_refused(guest.response(), "a guest");
        }
        gate.open();
        assert_eq!(first.bytes(6), b"SECRET");
        if is_good {
            assert_eq!(guest.bytes(6), b"SECRET");
        }
        assert_eq!((stage.dns.asked(HOST), stage.parent.count("/new")), (1, 1));
    }
}

#[test]
fn a_client_whose_list_waits_holds_up_nobody_and_gets_the_same_answer_later() {
    let rules = "acl guest req_header X-Guest yes\nhttp_reply_access deny guest bad\n";
    let on_disk = format!("maximum_object_size 32 MB\n{ON_DISK}");
    // The longer body is longer than clients of one fetch may be apart.
    for (lines, body_bytes, is_guest_first, fetches) in [
        (IN_MEMORY, 8_000_000, false, 1),
        ("", 8_000_000, false, 1),
        ("", 20_000_000, false, 2),
        ("", 20_000_000, true, 2),
        (&on_disk, 20_000_000, false, 1),
        (&on_disk, 20_000_000, true, 1),
    ] {
        let what = format!("{lines}{body_bytes} {is_guest_first}");
        let body: Vec<u8> = (0..body_bytes).map(|n: u32| (n >> 8) as u8 ^ n as u8).collect();
        let (stage, gate) = (Stage::new(&format!("{lines}{rules}")), Arc::new(Gate::default()));
        stage.dns.on(HOST, Says::Nothing);
        let (at_parent, sent) = (Arc::clone(&gate), body.clone());
        stage.parent.handle("/new", move |_, wire| {
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nETag: \"1\"\r\n");
            wire.send(format!("Content-Length: {body_bytes}\r\n\r\n"));
            at_parent.pass();
            wire.send(&sent);
        });
        let (mut other, mut guest) = (stage.proxy.client(), stage.proxy.client());
        for is_guest in [is_guest_first, !is_guest_first] {
            if is_guest {
                guest.request("GET", &url("/new"), &[("X-Guest", "yes")], b"");
                until("the guest's question", || (stage.dns.asked(HOST) > 0).then_some(()));
            } else {
                other.request("GET", &url("/new"), &[], b"");
                let _ = other.head();
            }
        }
        gate.open();
        assert!(other.bytes(body.len()) == body, "the other client, {what}");
        assert!(!guest.has_input(), "the guest has something that no list has permitted, {what}");
        stage.host_is_good(true);
        assert!(guest.response().expect(200).body == body, "the guest, {what}");
        assert_eq!(stage.parent.count("/new"), fetches, "{what}");
    }
}

/// Sends 103 and then 200.
fn hint_and_answer(_: &Head, wire: &mut Wire) {
    wire.send("HTTP/1.1 103 Early Hints\r\nLink: </SECRET.css>\r\n\r\n");
    wire.send("HTTP/1.1 200 OK\r\nX-Secret: yes\r\nContent-Length: 6\r\n\r\nSECRET");
}

#[test]
fn an_interim_answer_waits_for_what_its_list_needs() {
    let of_hints = "acl hints http_status 103\nhttp_reply_access deny hints bad\n";
    for rules in [of_hints, DENY_BAD] {
        let stage = Stage::new(rules);
        stage.parent.handle("/hints", hint_and_answer);
        for (method, body) in [("GET", ""), ("POST", ""), ("POST", "body")] {
            let what = format!("{method} {body} {rules}");
            stage.host_is_good(true);
            let answer = stage.ask(method, "/hints", &[], body.as_bytes()).expect(200);
            let hints: Vec<_> = answer.interim.iter().map(|head| head.word(1)).collect();
            assert_eq!((hints, answer.text().as_str()), (vec!["103"], "SECRET"), "{what}");
            assert_eq!(stage.dns.asked(HOST), 1, "{what}");
            for (says, refused) in [(loopback(2), 403), (Says::NoSuchName, 503)] {
                stage.dns.on(HOST, says);
                let answer = stage.ask(method, "/hints", &[], body.as_bytes());
                assert!(answer.interim.is_empty(), "{what}: {:?}", answer.interim);
                if rules == DENY_BAD {
                    has_nothing_of_it(answer, refused, &what);
                } else {
                    assert_eq!(answer.expect(200).text(), "SECRET", "{what}");
                }
            }
        }
    }
}

const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                        Connection: Upgrade\r\nX-Secret: yes\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nSECRET";

#[test]
fn a_tunnel_by_upgrade_waits_for_what_the_list_of_its_101_needs() {
    for rules in [DENY_BAD, "acl switch http_status 101\nhttp_reply_access deny switch bad\n"] {
        let stage = Stage::new(rules);
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        stage.parent.handle("/socket", move |_, wire| {
            wire.send(SWITCHES);
            let heard = wire.reader.exactly(5).unwrap_or_default();
            let _ = tell.lock().expect("no thread panics here").send(heard);
        });
        stage.parent.on("/plain", Reply::ok("plain"));
        stage.dns.on("good.test", loopback(1));
        let mut client = stage.proxy.client();
        let answer = client.request("GET", &url("/socket"), &WEB_SOCKET, b"").response();
        assert_eq!(client.send("hello").bytes(6), b"SECRET", "{:?}", answer.expect(101).head);
        assert_eq!(told.recv_timeout(LIMIT).as_deref(), Ok(&b"hello"[..]));
        assert_eq!(stage.dns.asked(HOST), 1, "{rules}");

        for (says, status) in [(loopback(2), 403), (Says::NoSuchName, 503)] {
            stage.dns.on(HOST, says);
            let mut client = stage.proxy.client();
            client.request("GET", &url("/socket"), &WEB_SOCKET, b"");
            has_nothing_of_it(client.response(), status, rules);
            // What the client sends from now on is another request.
            client.request("GET", "http://good.test/plain", &[], b"");
            assert!(client.try_response_to("GET").is_none_or(|answer| answer.text() == "plain"));
            assert_eq!(told.recv_timeout(LIMIT).as_deref(), Ok(&b""[..]), "the parent heard it");
        }
    }
}

/// Long enough for a busy machine; a client that leaves is noticed at once.
const SOON: Duration = Duration::from_secs(3);

/// The lines of left.log for the requests with this mark.
fn lines_of(proxy: &Proxy, mark: &str) -> Vec<String> {
    let text = proxy.text("left.log");
    text.lines().filter(|line| line.starts_with(&format!("{mark} "))).map(str::to_owned).collect()
}

/// Makes a request while the name server is silent; returns when a list waits for the name.
#[track_caller]
fn wait_for_a_question(
    stage: &Stage,
    mark: &str,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
) -> Client {
    stage.dns.on(HOST, Says::Nothing);
    let mut client = stage.proxy.client();
    let mut fields = vec![("X-Mark", mark)];
    fields.extend(more);
    client.request(method, &url(path), &fields, b"");
    until(&format!("the question of {mark}"), || (stage.dns.asked(HOST) > 0).then_some(()));
    assert!(!client.has_input(), "{mark}: something came before the list has decided");
    assert_eq!(lines_of(&stage.proxy, mark), Vec::<String>::new());
    client
}

/// Waits for the end of a request whose client has left.
#[track_caller]
fn ends_soon(stage: &Stage, mark: &str) {
    until_within(SOON, &format!("the end of {mark}"), || {
        (!lines_of(&stage.proxy, mark).is_empty()).then_some(())
    });
    stage.host_is_good(true);
}

/// Stops the proxy, and checks that each of these requests has one line.
#[track_caller]
fn have_one_line_each<'m>(stage: &mut Stage, marks: impl IntoIterator<Item = &'m str>) {
    stage.proxy.stop();
    for mark in marks {
        let lines = lines_of(&stage.proxy, mark);
        assert_eq!(lines.len(), 1, "{mark}: {lines:?}");
        assert!(lines[0].contains("/000 ") || lines[0].contains("ABORTED"), "{lines:?}");
    }
}

/// The mark of a request, its method, its path and its fields.
type Leaving<'f> = (&'f str, &'f str, &'f str, &'f [(&'f str, &'f str)]);

const LEFT_LOG: &str = "logformat left %{X-Mark}>h %Ss/%03>Hs %rm %ru\n\
                        access_log stdio:{dir}/left.log left\n";

#[test]
fn a_client_that_leaves_while_a_list_waits_ends_its_request_with_one_line() {
    for lines in [IN_MEMORY, ON_DISK] {
        let mut stage = Stage::new(&format!("{lines}{LEFT_LOG}{DENY_BAD}"));
        stage.parent.on("/stored", secret(60));
        stage.parent.on("/large", secret(3_000_000));
        stage.parent.on("/new", secret(60));
        stage.parent.handle("/part", send_part);
        stage.parent.handle("/hints", hint_and_answer);
        stage.parent.handle("/socket", |_, wire| wire.send(SWITCHES));
        stage.store("/stored");
        stage.store("/large");
        let part = [("Range", "bytes=0-5")];
        let _ = stage.ask("GET", "/part", &part, b"").expect(206);
        let ways: [Leaving<'_>; 11] = [
            ("miss", "GET", "/new", &[]),
            ("hit", "GET", "/stored", &[]),
            ("head", "HEAD", "/stored", &[]),
            ("large", "GET", "/large", &[]),
            ("range", "GET", "/large", &[("Range", "bytes=6-17")]),
            ("ranges", "GET", "/large", &[("Range", "bytes=0-5,12-17")]),
            ("part", "GET", "/part", &part),
            ("gap", "GET", "/part", &[("Range", "bytes=0-7")]),
            ("hints", "GET", "/hints", &[]),
            ("upload", "POST", "/hints", &[]),
            ("socket", "GET", "/socket", &WEB_SOCKET),
        ];
        for (mark, method, path, fields) in ways {
            wait_for_a_question(&stage, mark, method, path, fields).abort();
            ends_soon(&stage, mark);
        }
        assert_eq!(stage.get("/stored").expect(200).body.len(), 60, "it serves others");
        have_one_line_each(&mut stage, ways.map(|(mark, ..)| mark));
    }
}

#[test]
fn a_list_that_waits_long_loses_nothing_of_an_answer() {
    let lines = format!("maximum_object_size 32 MB\n{ON_DISK}{LEFT_LOG}{DENY_BAD}");
    let stage = Stage::new(&lines);
    for path in ["/stored", "/new"] {
        stage.parent.on(path, secret(20_000_000));
    }
    stage.parent.handle("/hints", hint_and_answer);
    stage.parent.handle("/socket", |_, wire| wire.send(SWITCHES));
    stage.store("/stored");
    let ways: [(Leaving<'_>, usize); 5] = [
        (("miss", "GET", "/new", &[]), 20_000_000),
        (("large", "GET", "/stored", &[]), 20_000_000),
        (("range", "GET", "/stored", &[("Range", "bytes=6-10000005")]), 10_000_000),
        (("upload", "POST", "/hints", &[("Content-Length", "4")]), 6),
        (("socket", "GET", "/socket", &WEB_SOCKET), 6),
    ];
    for ((mark, method, path, fields), bytes) in ways {
        let mut client = wait_for_a_question(&stage, mark, method, path, fields);
        if method == "POST" {
            client.send("body");
        }
        stage.host_is_good(true);
        if mark == "upload" {
            assert_eq!(client.head().word(1), "103");
        }
        let _ = client.head();
        let text = client.bytes(bytes);
        assert!(text.chunks(6).all(|chunk| b"SECRET".starts_with(chunk)), "{mark}");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_upload_while_a_list_waits_is_noticed() {
    let mut stage = Stage::new(&format!("{LEFT_LOG}{DENY_BAD}"));
    let gate = Arc::new(Gate::default());
    let at_parent = Arc::clone(&gate);
    // It reads nothing of the body.
    stage.parent.handle("/upload", move |_, wire| {
        wire.send("HTTP/1.1 103 Early Hints\r\nLink: </SECRET.css>\r\n\r\n");
        at_parent.pass();
    });
    let length = [("Content-Length", "64000000")];
    for mark in ["closed", "reset", "stuffed"] {
        let mut client = wait_for_a_question(&stage, mark, "POST", "/upload", &length);
        match mark {
            "closed" => client.abort(),
            "reset" => client.reset(),
            _ => {
                assert!(client.stuff(64_000_000) < 64_000_000, "all of it was taken");
                client.reset();
            }
        }
        ends_soon(&stage, mark);
    }
    gate.open();
    have_one_line_each(&mut stage, ["closed", "reset", "stuffed"]);
}

#[test]
fn a_client_that_leaves_while_cache_waits_ends_its_request_with_one_line() {
    let mut stage = Stage::new(&format!("{LEFT_LOG}cache deny bad\n"));
    stage.parent.on("/a", Reply::ok("x").cachable(600));
    for (mark, method) in [("get", "GET"), ("head", "HEAD")] {
        wait_for_a_question(&stage, mark, method, "/a", &[]).abort();
        ends_soon(&stage, mark);
    }
    assert_eq!(stage.parent.count("/a"), 0, "nobody was asked for a client that had left");
    have_one_line_each(&mut stage, ["get", "head"]);
}

#[test]
fn cache_is_not_asked_about_requests_that_do_not_use_it() {
    let stage = Stage::new("cache deny bad\n");
    stage.dns.on(HOST, Says::Nothing);
    stage.parent.on("/a", Reply::ok("x").cachable(600));
    let _ = stage.ask("POST", "/a", &[], b"body").expect(200);
    assert_eq!(stage.dns.asked(HOST), 0, "a name was looked up for nothing");
}

#[test]
fn a_client_that_leaves_while_its_list_waits_takes_the_answer_from_nobody() {
    let rules = "acl guest req_header X-Guest yes\nhttp_reply_access deny guest bad\n";
    for is_guest_first in [true, false] {
        let mut stage = Stage::new(&format!("{LEFT_LOG}{rules}"));
        let gate = Arc::new(Gate::default());
        stage.parent_sends_half_of_new(&gate);
        let begin = || {
            let mut other = stage.proxy.client();
            other.request("GET", &url("/new"), &[], b"");
            assert_eq!((other.head().word(1), &*other.bytes(6)), ("200", &b"SECRET"[..]));
            other
        };
        let guest = || wait_for_a_question(&stage, "guest", "GET", "/new", &[("X-Guest", "yes")]);
        let (guest, mut other) = if is_guest_first {
            let guest = guest();
            (guest, begin())
        } else {
            let other = begin();
            (guest(), other)
        };
        guest.abort();
        ends_soon(&stage, "guest");
        gate.open();
        assert_eq!(other.bytes(6), b"SECRET");
        assert_eq!(stage.parent.count("/new"), 1);
        have_one_line_each(&mut stage, ["guest"]);
    }
}

#[test]
fn each_request_of_a_connection_has_its_own_decision_of_cache() {
    for is_pipelined in [false, true] {
        let stage = Stage::new("cache deny bad\n");
        stage.dns.on("bad.test", loopback(2));
        stage.dns.on("good.test", loopback(1));
        for path in ["/bad", "/good"] {
            stage.parent.on(path, Reply::ok(path).cachable(600));
        }
        let mut client = stage.proxy.client();
        let mut both = |caches: [&str; 2]| {
            let urls = ["http://bad.test/bad", "http://good.test/good"];
            if is_pipelined {
                for url in urls {
                    client.request("GET", url, &[], b"");
                }
            }
            for (url, cache) in urls.into_iter().zip(caches) {
                if !is_pipelined {
                    client.request("GET", url, &[], b"");
                }
                let answer = client.response().expect(200);
                assert!(url.ends_with(&answer.text()), "{url}");
                assert_eq!(answer.cache(), cache, "{url}");
            }
        };
        both(["MISS", "MISS"]);
        both(["MISS", "HIT"]);
        both(["MISS", "HIT"]);
        assert_eq!((stage.parent.count("/bad"), stage.parent.count("/good")), (3, 1));
        assert_eq!((stage.dns.asked("bad.test"), stage.dns.asked("good.test")), (3, 3));
    }
}

#[test]
fn cache_decides_anew_when_the_address_of_a_host_has_changed() {
    let stage = Stage::new("cache deny bad\n");
    stage.parent.on("/a", Reply::ok("x").cachable(600));
    let mut client = stage.proxy.client();
    for (is_good, cache, asked) in [
        (false, "MISS", 1),
        (false, "MISS", 2),
        (true, "MISS", 3),
        (true, "HIT", 3),
        (false, "MISS", 4),
        (true, "HIT", 4),
    ] {
        stage.host_is_good(is_good);
        let answer = client.request("GET", &url("/a"), &[], b"").response().expect(200);
        assert_eq!((answer.cache(), stage.parent.count("/a")), (cache, asked), "{is_good}");
        assert_eq!(stage.dns.asked(HOST), 1);
    }
}

#[test]
fn a_random_acl_has_one_answer_for_a_list_that_waits() {
    const REQUESTS: usize = 200;
    let half = format!("{IN_MEMORY}acl half random 1/2\n");
    let stage = Stage::new(&format!("{half}http_reply_access deny half bad\n"));
    stage.parent.on("/", Reply::ok("body").cachable(60));
    for _ in 0..REQUESTS {
        let _ = stage.get("/").expect(200);
    }
    let stage = Stage::new(&format!("{half}cache deny half !bad\n"));
    for number in 0..REQUESTS {
        let path = format!("/{number}");
        stage.parent.on(&path, Reply::ok("body").cachable(60));
        let _ = stage.get(&path).expect(200);
        let _ = stage.get(&path).expect(200);
    }
    // A second request is a hit if neither is denied: a quarter. Asked twice, each would be denied
    // in one of four cases only, and more than half were hits.
    let fetched: usize =
        (0..REQUESTS).map(|number| stage.parent.count(&format!("/{number}"))).sum();
    let hits = 2 * REQUESTS - fetched;
    assert!((20..80).contains(&hits), "{hits} hits of {REQUESTS}");
}
