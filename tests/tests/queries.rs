//! Other caches that ask with ICP: Squid, and messages made by hand.

#![allow(clippy::print_stderr, reason = "says why a test is skipped")]

use humboldt_tests::wait::{LIMIT, free_address, until};
use humboldt_tests::{Client, Reply, World};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

/// Opcodes of RFC 2186.
const HIT: u8 = 2;
const MISS: u8 = 3;
const ERROR: u8 = 4;
const DENIED: u8 = 22;

/// A proxy with a port for queries, and a socket connected to it.
fn world(lines: &str) -> (World, UdpSocket) {
    let port = free_address().port();
    let world =
        World::forward(&format!("icp_port {port}\nudp_incoming_address 127.0.0.1\n{lines}"));
    // It is opened behind the port of HTTP.
    until("the port", || world.proxy.text("cache.log").contains("queries of").then_some(()));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(("127.0.0.1", port)).expect("connected");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    (world, socket)
}

fn query(number: u8, url: &str) -> Vec<u8> {
    let mut message = vec![1, 2, 0, 0, 0, 0, 0, number];
    message.resize(24, 0);
    message.extend_from_slice(url.as_bytes());
    message.push(0);
    let bytes = u16::try_from(message.len()).expect("short").to_be_bytes();
    message[2..4].copy_from_slice(&bytes);
    message
}

/// The opcode of the reply to a query.
fn ask(socket: &UdpSocket, url: &str) -> u8 {
    socket.send(&query(9, url)).expect("sent");
    let mut reply = [0; 2048];
    let bytes = socket.recv(&mut reply).expect("a reply");
    assert_eq!((reply[1], reply[7]), (2, 9), "version and number");
    assert_eq!(usize::from(u16::from_be_bytes([reply[2], reply[3]])), bytes);
    assert_eq!(&reply[20..bytes], format!("{url}\0").as_bytes());
    reply[0]
}

#[test]
fn what_is_fresh_in_the_cache_is_a_hit() {
    let (world, socket) = world("icp_access allow all\n");
    world.origin.on("/a", Reply::ok("x").cachable(60));
    world.origin.on("/stale", Reply::ok("x").with("ETag", "\"1\"").cachable(0));
    let (a, stale) = (world.origin.url("/a"), world.origin.url("/stale"));
    assert_eq!(ask(&socket, &a), MISS);
    let _ = world.get("/a").expect(200);
    let _ = world.get("/stale").expect(200);
    assert_eq!((ask(&socket, &a), ask(&socket, &stale)), (HIT, MISS));
    let head = "http://a.test/ HTTP/1.1\r\nCache-Control: only-if-cached\r\nX:/";
    for nonsense in ["nonsense", "http://", "http://a b/", "http://a.test/\r\nX: y", head] {
        assert_eq!(ask(&socket, nonsense), ERROR, "{nonsense}");
    }
    assert!(world.proxy.logged(" ICP_QUERY nonsense -").contains(" UDP_INVALID/000 "));
    assert_eq!(world.origin.count("/a"), 1, "a query asks no server");
    let line = world.proxy.logged("UDP_HIT/000");
    assert!(
        line.contains(" 127.0.0.1 ") && line.contains(&format!(" ICP_QUERY {a} - HIER_NONE/- -"))
    );
}

#[test]
fn what_is_on_disk_is_a_hit() {
    let (mut world, socket) =
        world("icp_access allow all\ncache_mem 8 MB\ncache_dir ufs {dir}/store 50\n");
    let body = vec![b'x'; 2_000_000];
    world.origin.on("/large", Reply::ok(body).cachable(600));
    let _ = world.get("/large").expect(200);
    let url = world.origin.url("/large");
    until("a hit", || (ask(&socket, &url) == HIT).then_some(()));
    world.proxy.restart();
    until("a hit after a restart", || {
        socket.send(&query(1, &url)).ok()?;
        let mut reply = [0; 2048];
        socket.recv(&mut reply).ok()?;
        (reply[0] == HIT).then_some(())
    });
}

#[test]
fn only_those_may_ask_whom_the_rules_allow() {
    let (world, socket) =
        world("acl other src 192.0.2.1\nicp_access allow other\nlog_icp_queries off\n");
    assert_eq!(ask(&socket, "http://a.test/"), DENIED);
    assert_eq!(ask(&socket, "nonsense"), DENIED, "the rules are asked first");
    let (nobody, socket) = self::world("");
    assert_eq!(ask(&socket, "http://a.test/"), DENIED, "without rules");
    assert_eq!(ask(&socket, "nonsense"), DENIED, "without rules");
    assert!(nobody.proxy.logged("ICP_QUERY").contains("UDP_DENIED/000"));
    let _ = world.get("/x").expect(404);
    assert!(world.proxy.logged("/x").contains("404"));
    assert!(!world.proxy.text("access.log").contains("ICP_QUERY"));
}

#[test]
fn a_stale_object_is_a_hit_if_the_file_says_so() {
    let (world, socket) = world("icp_access allow all\nicp_hit_stale on\n");
    world.origin.on("/stale", Reply::ok("x").with("ETag", "\"1\"").cachable(0));
    let _ = world.get("/stale").expect(200);
    assert_eq!(ask(&socket, &world.origin.url("/stale")), HIT);
}

/// Real Squid understands the reply of its sibling here.
#[test]
fn squid_asks_and_understands_the_reply() {
    let squid = Path::new("/usr/sbin/squid");
    if !squid.exists() {
        eprintln!("squid is not installed: it asks nothing (apt-get install squid)");
        return;
    }
    let (world, socket) = world("icp_access allow all\n");
    world.origin.on("/a", Reply::ok("x").cachable(600));
    let _ = world.get("/a").expect(200);
    let port = socket.peer_addr().expect("an address").port();
    let folder = humboldt_tests::proxy::open_folder();
    let (listen, path) = (free_address(), folder.path().display().to_string());
    let text = format!(
        "http_port {listen}\nicp_port {}\npid_filename {path}/pid\ncache_log {path}/cache.log\n\
         access_log stdio:{path}/access.log\ncoredump_dir {path}\nhttp_access allow all\n\
         cache_peer 127.0.0.1 sibling {} {port}\nshutdown_lifetime 0 seconds\n\
         pinger_enable off\nvisible_hostname localhost\n",
        free_address().port(),
        world.proxy.address().port()
    );
    let file = folder.path().join("squid.conf");
    std::fs::write(&file, text).expect("a configuration");
    let mut command = Command::new(squid);
    command.args(["-N", "-n", &format!("icp{}", listen.port()), "-f"]).arg(&file);
    let mut process = humboldt_tests::wait::start(&mut command).expect("squid starts");
    let mut client = until("squid", || Client::try_to(listen));
    // It waits for no reply of a sibling that it has not heard of yet.
    let _ = client.request("GET", &world.origin.url("/a"), &[], b"").response().expect(200);
    let page = format!("http://localhost:{}/squid-internal-mgr/server_list", listen.port());
    let understood = || {
        let mut client = Client::to(listen);
        let text = client.request("GET", &page, &[], b"").response().expect(200).text();
        let acked = text.lines().find_map(|line| line.strip_prefix("PINGS ACKED:"))?;
        acked.split_whitespace().next().filter(|count| *count != "0").map(|_| ())
    };
    until("a reply that squid has understood", understood);
    humboldt_tests::wait::end(&mut process);
    assert!(world.proxy.logged("ICP_QUERY").contains("UDP_HIT/000"));
}
