//! Delay pools: which bytes they hold back, and for whom.
//!
//! The buckets here hold some bytes at first, and then get one byte in a second. So a client that
//! is held back has what was in the bucket, and not much more for as long as any test lasts.
//! `cargo xtask bench delay` measures rates.

use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::{LIMIT, until};
use humboldt_tests::{Client, Origin, Proxy, Reply, World, proxy};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// Bytes in a bucket at first.
const LEVEL: usize = 20_000;

/// Most bytes that come in later, within a test, with the frames of bodies.
const TRICKLE: usize = 1_000;

static BODY: [u8; 60_000] = [b'x'; 60_000];

/// One pool of class 1 for all, with these rules.
fn pool(rules: &str) -> String {
    format!(
        "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 1/{LEVEL}\n\
         delay_initial_bucket_level 100\n{rules}\n"
    )
}

const FOR_ALL: &str = "delay_access 1 allow all";

fn world(lines: &str) -> World {
    let world = World::forward(lines);
    for path in ["/a", "/b", "/c"] {
        world.origin.on(path, Reply::ok(BODY).cachable(600));
    }
    world
}

fn page(proxy: &Proxy) -> String {
    let mut client = proxy.client();
    client.request("GET", &proxy.page("squid-internal-mgr/delay"), &[], b"");
    client.response().expect(200).text()
}

/// Waits until the only bucket is empty.
fn wait_empty(proxy: &Proxy) {
    until("an empty bucket", || page(proxy).contains("\t\tCurrent: 0\n").then_some(()));
}

/// A client at this address.
fn client_at(proxy: &Proxy, address: &str) -> Client {
    Client::from_to(address.parse::<IpAddr>().expect("an address"), proxy.address())
}

/// Begins a request, and reads the head of its answer.
fn begin(world: &World, mut client: Client, path: &str) -> Client {
    client.request("GET", &world.target(path), &[], b"");
    assert_eq!(client.head().word(1), "200");
    client
}

/// Reads the body whole.
fn is_whole(mut client: Client) {
    assert_eq!(client.bytes(BODY.len()).len(), BODY.len());
}

/// Bytes that a client can read at once.
fn readable(client: &mut Client) -> usize {
    let mut bytes = 0;
    while client.has_input() {
        let _ = client.bytes(1);
        bytes += 1;
    }
    bytes
}

/// The client has got what was in the bucket, and no more.
fn is_held_back(client: &mut Client) {
    let _ = client.bytes(LEVEL - TRICKLE);
    let rest = readable(client);
    assert!(rest < 2 * TRICKLE, "{rest} bytes more");
}

#[test]
fn an_answer_from_a_server_is_held_back_and_one_from_the_cache_is_not() {
    let world = world(&pool(FOR_ALL));
    let mut slow = begin(&world, world.client(), "/a");
    wait_empty(&world.proxy);
    is_held_back(&mut slow);
    // The fetch did not wait: the answer is stored.
    until("a stored answer", || {
        let answer = world.ask("HEAD", "/a", &[("Cache-Control", "only-if-cached")]);
        (answer.status() == 200).then_some(())
    });
    is_whole(begin(&world, world.client(), "/a"));
    assert_eq!(world.origin.count("/a"), 1);
    // Another one has to wait for the same bucket, its head too.
    let mut other = world.client();
    other.request("GET", &world.target("/b"), &[], b"");
    world.origin.wait_for("/b", 1);
    assert!(readable(&mut other) < TRICKLE);
}

#[test]
fn rules_choose_the_first_pool_that_allows() {
    let world = world(&format!(
        "acl a urlpath_regex ^/a\nacl html rep_mime_type text/html\ndelay_pools 3\n\
         delay_class 1 1\ndelay_class 2 1\ndelay_class 3 1\n\
         delay_parameters 1 none\ndelay_parameters 2 1/{LEVEL}\ndelay_parameters 3 1/{LEVEL}\n\
         delay_initial_bucket_level 100\ndelay_access 1 allow a\ndelay_access 2 deny all\n\
         delay_access 3 allow html\n"
    ));
    is_whole(begin(&world, world.client(), "/a"));
    is_whole(begin(&world, world.client(), "/b"));
    let html = Reply::ok(BODY).with("Content-Type", "text/html").cachable(600);
    world.origin.on("/html", html);
    let mut slow = begin(&world, world.client(), "/html");
    let empty =
        "Pool: 3\n\tClass: 1\n\n\tAggregate:\n\t\tMax: 20000\n\t\tRestore: 1\n\t\tCurrent: 0\n";
    until("an empty bucket", || page(&world.proxy).contains(empty).then_some(()));
    is_held_back(&mut slow);
}

#[test]
fn clients_of_one_fetch_have_each_its_own_pace() {
    const LARGE: usize = 3 << 20;
    let rules = "acl slow src 127.0.0.2\ndelay_access 1 allow slow";
    let world = world(&pool(rules));
    world.origin.on("/large", Reply::ok(vec![b'y'; LARGE]).cachable(600));
    let mut slow = begin(&world, client_at(&world.proxy, "127.0.0.2"), "/large");
    wait_empty(&world.proxy);
    let mut fast = begin(&world, world.client(), "/large");
    assert_eq!(fast.bytes(LARGE).len(), LARGE);
    assert_eq!(world.origin.count("/large"), 1, "both share a fetch");
    is_held_back(&mut slow);
}

#[test]
fn a_client_that_leaves_while_it_is_held_back_ends_its_request() {
    let world = world(&pool(FOR_ALL));
    let slow = begin(&world, world.client(), "/a");
    wait_empty(&world.proxy);
    slow.reset();
    assert!(world.proxy.logged("/a").contains("TCP_MISS_ABORTED"));
    let slow = {
        let mut client = world.client();
        client.request("GET", &world.target("/b"), &[], b"");
        world.origin.wait_for("/b", 1);
        client
    };
    drop(slow);
    assert!(world.proxy.logged("/b").contains("TCP_MISS_ABORTED"));
}

#[test]
fn a_tunnel_is_held_back_towards_the_client_only() {
    const UP: usize = 300_000;
    let world = world(&pool(FOR_ALL));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = server.local_addr().expect("an address").to_string();
    let mut client = world.client();
    client.request("CONNECT", &host, &[("Host", &host)], b"");
    let (mut end, _) = server.accept().expect("the proxy");
    assert_eq!(client.head().word(1), "200");
    end.write_all(&BODY).expect("sent");
    wait_empty(&world.proxy);
    let sending = std::thread::spawn(move || {
        client.send(vec![b'u'; UP]);
        client
    });
    let mut up = vec![0; UP];
    end.read_exact(&mut up).expect("all that the client sends");
    is_held_back(&mut sending.join().expect("sent"));
}

#[test]
fn an_upload_is_not_held_back() {
    let world = world(&pool(FOR_ALL));
    let mut slow = begin(&world, world.client(), "/a");
    wait_empty(&world.proxy);
    world.origin.on("/up", Reply::ok("done"));
    let mut client = world.client();
    client.request("POST", &world.target("/up"), &[], &[b'u'; 300_000]);
    world.origin.wait_for("/up", 1);
    assert_eq!(world.origin.last("/up").body.bytes.len(), 300_000);
    is_held_back(&mut slow);
}

#[test]
fn a_user_has_a_bucket_of_its_own() {
    let lines = format!(
        "auth_param basic program /usr/lib/squid/basic_ncsa_auth {{dir}}/passwd\n\
         acl users proxy_auth REQUIRED\nhttp_access allow manager\nhttp_access allow users\n\
         http_access deny all\ndelay_pools 1\ndelay_class 1 4\n\
         delay_parameters 1 none none none 1/{LEVEL}\ndelay_initial_bucket_level 100\n{FOR_ALL}\n"
    );
    let world = world(&lines);
    // The password of both is `secret`.
    let password = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    let users = format!("anna:{password}\nbo:{password}\n");
    fs::write(world.proxy.path("passwd"), users).expect("a password file");
    let begin_as = |login: &str, path: &str| {
        let mut client = world.client();
        client.request("GET", &world.target(path), &[("Proxy-Authorization", login)], b"");
        client
    };
    let (anna, bo) = ("Basic YW5uYTpzZWNyZXQ=", "Basic Ym86c2VjcmV0");
    let mut first = begin_as(anna, "/a");
    assert_eq!(first.head().word(1), "200");
    until("an empty bucket", || page(&world.proxy).contains("Current: anna:0\n").then_some(()));
    is_held_back(&mut first);
    let mut second = begin_as(bo, "/b");
    assert_eq!(second.head().word(1), "200", "another user has another bucket");
    let mut third = begin_as(anna, "/c");
    world.origin.wait_for("/c", 1);
    until("bo's bucket", || page(&world.proxy).contains("Current: anna:0 bo:0\n").then_some(()));
    assert!(readable(&mut third) < TRICKLE, "one user has one bucket");
}

#[test]
fn a_tag_of_a_helper_has_a_bucket_of_its_own() {
    let scripts = Scripts::new();
    let helper = scripts.helper("h", "case $line in */a*) echo OK tag=slow;; *) echo OK;; esac");
    let world = world(&format!(
        "external_acl_type h %URI {helper}\nacl x external h\nhttp_access allow manager\n\
         http_access allow x\nhttp_access deny all\ndelay_pools 1\ndelay_class 1 5\n\
         delay_parameters 1 1/{LEVEL}\ndelay_initial_bucket_level 100\n{FOR_ALL}\n"
    ));
    let mut slow = begin(&world, world.client(), "/a");
    until("an empty bucket", || page(&world.proxy).contains("Current: slow:0\n").then_some(()));
    is_held_back(&mut slow);
    is_whole(begin(&world, world.client(), "/b"));
}

#[test]
fn a_parent_without_delay_is_not_slowed_down() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok(BODY));
    let address = origin.address();
    let parent = |options: &str| {
        let port = address.port();
        let line = format!("cache_peer 127.0.0.1 parent {port} 0 originserver {options}");
        Proxy::forward(&format!("{line}\nnever_direct allow all\n{}", pool(FOR_ALL)))
    };
    let ask = |proxy: &Proxy| {
        let mut client = proxy.client();
        client.request("GET", &origin.url("/a"), &[], b"");
        assert_eq!(client.head().word(1), "200");
        client
    };
    is_whole(ask(&parent("no-delay")));
    let proxy = parent("");
    let mut slow = ask(&proxy);
    wait_empty(&proxy);
    is_held_back(&mut slow);
}

#[test]
fn a_client_pool_holds_back_everything_that_its_client_is_sent() {
    let world = world(&format!(
        "acl slow src 127.0.0.2 127.0.0.3\nclient_delay_pools 1\n\
         client_delay_parameters 1 1 {LEVEL}\nclient_delay_initial_bucket_level 100\n\
         client_delay_access 1 allow slow\n"
    ));
    is_whole(begin(&world, world.client(), "/a"));
    // A hit is sent as far as it may be before the next request is read.
    let mut slow = begin(&world, client_at(&world.proxy, "127.0.0.2"), "/a");
    is_whole(begin(&world, world.client(), "/a"));
    is_held_back(&mut slow);
    // The address has one bucket, whatever its connections and requests are.
    let mut again = client_at(&world.proxy, "127.0.0.2");
    again.request("GET", &world.target("/missing"), &[], b"");
    world.origin.wait_for("/missing", 1);
    let mut other = begin(&world, client_at(&world.proxy, "127.0.0.3"), "/a");
    is_whole(begin(&world, world.client(), "/a"));
    is_held_back(&mut other);
    assert!(readable(&mut again) < TRICKLE);
}

#[test]
fn a_client_pool_may_begin_with_more_than_its_size() {
    let world = world(
        "acl slow src 127.0.0.2\nclient_delay_pools 1\nclient_delay_parameters 1 1 1000\n\
         client_delay_initial_bucket_level 2000\nclient_delay_access 1 allow slow\n",
    );
    is_whole(begin(&world, world.client(), "/a"));
    let mut slow = begin(&world, client_at(&world.proxy, "127.0.0.2"), "/a");
    is_whole(begin(&world, world.client(), "/a"));
    is_held_back(&mut slow);
}

#[test]
fn a_response_pool_holds_back_hits_too_each_for_itself() {
    let world = world(&format!(
        "acl slow src 127.0.0.2\nresponse_delay_pool one individual-restore=1 \
         individual-maximum={LEVEL} initial-bucket-level=100\n\
         response_delay_pool_access one deny !slow\nresponse_delay_pool_access one allow all\n"
    ));
    is_whole(begin(&world, world.client(), "/a"));
    let mut slow = begin(&world, client_at(&world.proxy, "127.0.0.2"), "/a");
    let mut other = begin(&world, client_at(&world.proxy, "127.0.0.2"), "/a");
    is_whole(begin(&world, world.client(), "/a"));
    is_held_back(&mut slow);
    is_held_back(&mut other);
}

#[test]
fn a_reconfiguration_neither_fills_a_bucket_nor_frees_who_waits() {
    let lines = pool(FOR_ALL);
    let world = world(&lines);
    let mut slow = begin(&world, world.client(), "/a");
    wait_empty(&world.proxy);
    world.proxy.write_configuration("", &format!("{lines}httpd_suppress_version_string on\n"));
    world.proxy.signal(rustix::process::Signal::HUP);
    until("the new configuration", || {
        world.proxy.text("cache.log").contains("econfigur").then_some(())
    });
    wait_empty(&world.proxy);
    is_held_back(&mut slow);
    // Another rate begins anew.
    let other = lines.replace("1/20000", "2/20000");
    world.proxy.write_configuration("", &other);
    world.proxy.signal(rustix::process::Signal::HUP);
    until("a full bucket", || page(&world.proxy).contains("Current: 20000\n").then_some(()));
}

#[test]
fn the_page_is_that_of_squid() {
    let lines = "delay_pools 5\ndelay_class 1 1\ndelay_class 2 2\ndelay_class 3 3\ndelay_class 4 4\n\
                 delay_class 5 5\ndelay_parameters 1 none\ndelay_parameters 2 1/100 2/200\n\
                 delay_parameters 3 1/100 none 3/300\ndelay_parameters 4 none 1/100 2/200 3/300\n\
                 delay_parameters 5 1/100\ndelay_access 1 deny all\n";
    let own = page(&Proxy::forward(lines));
    assert!(own.starts_with("Delay pools configured: 5\n\nPool: 1\n\tClass: 1\n\n"), "{own}");
    if proxy::is_squid() {
        return;
    }
    assert!(own.contains("\tIndividual:\n\t\tMax: 200\n\t\tRestore: 2\n"), "{own}");
}

/// The client gets as many bytes, and does not wait for its bucket.
fn gets_at_once(client: &mut Client, bytes: usize) {
    let start = Instant::now();
    for _ in 0..bytes / 10 {
        assert_eq!(client.bytes(10).len(), 10);
        assert!(start.elapsed() < LIMIT, "it is held back");
    }
}

#[test]
fn an_idle_connection_keeps_no_bytes_of_a_bucket() {
    let world = world(&format!(
        "client_delay_pools 1\nclient_delay_parameters 1 1 {LEVEL}\n\
         client_delay_initial_bucket_level 100\nclient_delay_access 1 allow all\n"
    ));
    let small = Reply::ok(vec![b'x'; 1000]);
    world.origin.on("/small", small.with("Cache-Control", "no-store"));
    world.origin.on("/half", Reply::ok(vec![b'x'; LEVEL / 2]).cachable(600));
    let get = |path: &str| {
        let mut client = world.client();
        client.request("GET", &world.target(path), &[], b"");
        let _ = client.response().expect(200);
        client
    };
    let _idle: Vec<Client> = (0..4).map(|_| get("/small")).collect();
    gets_at_once(&mut begin(&world, world.client(), "/half"), LEVEL / 2);
}

#[test]
fn an_idle_tunnel_keeps_no_bytes_of_a_bucket() {
    let world = world(&pool(FOR_ALL));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = server.local_addr().expect("an address").to_string();
    let open = |bytes: usize| {
        let mut client = world.client();
        client.request("CONNECT", &host, &[("Host", &host)], b"");
        let (mut end, _) = server.accept().expect("the proxy");
        assert_eq!(client.head().word(1), "200");
        end.write_all(&vec![b'x'; bytes]).expect("sent");
        gets_at_once(&mut client, bytes);
        (client, end)
    };
    let _idle: Vec<_> = (0..8).map(|_| open(10)).collect();
    let _ = open(LEVEL / 2);
}

/// The server answers differently each time, so the client that is held back cannot go on with an
/// answer of its own.
#[test]
fn one_who_is_held_back_does_not_hold_up_others_for_ever() {
    const PIECES: usize = 24;
    const PIECE: usize = 1 << 20;
    let rules = "acl slow src 127.0.0.2\ndelay_access 1 allow slow";
    let world = world(&pool(rules));
    let answers = AtomicU8::new(b'a');
    world.origin.handle("/stream", move |_, wire| {
        wire.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n",
        );
        let piece = vec![answers.fetch_add(1, SeqCst); PIECE];
        for _ in 0..PIECES {
            wire.send(format!("{PIECE:x}\r\n"));
            if !wire.try_send(&piece) {
                return;
            }
            wire.send("\r\n");
        }
        wire.send("0\r\n\r\n");
    });
    let _slow = begin(&world, client_at(&world.proxy, "127.0.0.2"), "/stream");
    let mut fast = TcpStream::connect(world.proxy.address()).expect("a connection");
    fast.set_read_timeout(Some(6 * LIMIT)).expect("a limit");
    let (url, host) = (world.target("/stream"), world.origin.address());
    let head = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    fast.write_all(head.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    fast.read_to_end(&mut answer).expect("all of the answer");
    let count = answer.iter().filter(|byte| **byte == b'a').count();
    assert!(count >= PIECES * PIECE && answer.ends_with(b"0\r\n\r\n"), "{count} bytes");
    // It is the first one, which both share.
    assert!(world.proxy.logged(" 127.0.0.2 ").contains("_ABORTED"));
}
