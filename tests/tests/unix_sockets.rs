//! Ports that are Unix sockets: real clients, files, rules about clients without an address.

use humboldt_tests::proxy;
use humboldt_tests::servers::{program, succeed};
use humboldt_tests::wait::until;
use humboldt_tests::{Reply, World};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

const PORT: &str = "http_port unix:{dir}/proxy.sock name=agents\n";

/// A forward proxy that listens on a Unix socket too.
fn world(rules: &str) -> (World, PathBuf) {
    let world = World::forward(&format!("{PORT}{rules}"));
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    let path = world.proxy.path("proxy.sock");
    // It is opened behind the other port.
    until("the socket to be there", || path.exists().then_some(()));
    (world, path)
}

/// curl, which believes that the server listens on the socket, but for the target of its request.
fn curl(path: &Path, url: &str) -> Command {
    let mut command = Command::new(program("curl"));
    command.args(["--silent", "--show-error", "--max-time", "20", "--unix-socket"]).arg(path);
    command.args(["--request-target", url, url]);
    command
}

/// The whole answer to bytes.
fn answer(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn curl_is_served_on_a_unix_socket_and_logged_without_an_address() {
    let (world, path) = world("");
    let url = world.target("/a");
    let first = succeed(curl(&path, &url).arg("--include"));
    assert!(first.contains("X-Cache: MISS") && first.ends_with("hello"), "{first}");
    // The same cache as that of the other port.
    assert_eq!(world.get("/a").cache(), "HIT");
    assert!(succeed(curl(&path, &url).arg("--include")).contains("X-Cache: HIT"));
    let line = world.proxy.logged("TCP_MISS/200");
    assert_eq!(line.split_whitespace().nth(2), Some("0.0.0.0"), "{line}");
    assert_eq!(world.origin.last("/a").field("X-Forwarded-For"), Some("unknown"));
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn an_accelerator_listens_on_a_unix_socket() {
    let world = World::reverse("http_port unix:{dir}/proxy.sock accel defaultsite=site.test\n");
    world.origin.on("/a", Reply::ok("hello"));
    let mut command = Command::new(program("curl"));
    command.args(["--silent", "--max-time", "20", "--unix-socket"]);
    let got = succeed(command.arg(world.proxy.path("proxy.sock")).arg("http://site.test/a"));
    assert_eq!(got, "hello");
}

/// Nothing about an address allows it, and what is denied by address is refused.
#[test]
fn rules_see_that_a_client_has_no_address() {
    for (rules, over_unix, over_tcp) in [
        ("acl bad src 192.0.2.0/24\nhttp_access deny bad\n", 403, 200),
        ("acl bad src 192.0.2.0/24\nhttp_access allow !bad\nhttp_access deny all\n", 403, 200),
        ("acl low src 0.0.0.0/8\nhttp_access allow low\nhttp_access deny all\n", 403, 403),
        ("http_access deny !localhost\n", 403, 200),
        ("http_access allow localhost\nhttp_access deny all\n", 403, 200),
        ("acl sockets src none\nhttp_access allow sockets\nhttp_access deny all\n", 200, 403),
        ("acl name srcdomain .test\nhttp_access allow !name\nhttp_access deny all\n", 403, 200),
        ("acl agents myportname agents\nhttp_access deny agents\n", 403, 200),
        ("acl any src 0.0.0.0/0.0.0.0\nhttp_access deny any\n", 403, 403),
        ("acl mac arp 00:00:00:00:00:01\nhttp_access deny mac\n", 200, 200),
        ("acl mac arp 00:00:00:00:00:01\nhttp_access deny !mac\n", 403, 403),
    ] {
        let (world, path) = world(rules);
        let url = world.target("/a");
        let format = ["--output", "/dev/null", "--write-out", "%{http_code}"];
        let status = succeed(curl(&path, &url).args(format));
        assert_eq!(status, over_unix.to_string(), "{rules}");
        assert_eq!(world.get("/a").status(), over_tcp, "{rules}");
    }
}

/// All clients of Unix sockets count as one.
#[test]
fn connections_on_unix_sockets_are_counted_together() {
    let (world, path) = world("acl many maxconn 2\nhttp_access deny many\n");
    let host = world.host();
    let ask = |stream: &mut UnixStream| {
        let request = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", world.target("/a"));
        stream.write_all(request.as_bytes()).expect("sent");
        let mut start = [0; 12];
        stream.read_exact(&mut start).expect("an answer");
        String::from_utf8_lossy(&start[9..]).into_owned()
    };
    let mut held: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).expect("a socket")).collect();
    let statuses: Vec<_> = held.iter_mut().map(&ask).collect();
    assert_eq!(statuses.last().map(String::as_str), Some("403"), "{statuses:?}");
    assert_eq!(world.get("/a").status(), 200);
}

/// A Unix socket has no reset, so a client of HTTP/1.0 could not tell a cut answer from a whole
/// one.
#[test]
fn an_answer_whose_end_could_not_be_seen_is_refused() {
    let (world, path) = world("");
    world.origin.on(
        "/chunked",
        Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    );
    let ask = |version: &str, path: &str| {
        format!(
            "GET {} HTTP/1.{version}\r\nHost: a\r\nConnection: close\r\n\r\n",
            world.target(path)
        )
    };
    let refused = answer(&path, &ask("0", "/chunked"));
    assert!(refused.starts_with("HTTP/1.1 505 "), "{refused}");
    assert!(refused.contains("HTTP/1.0 cannot mark the end"), "{refused}");
    assert!(world.proxy.logged("/505").contains("/chunked"));
    let chunked = answer(&path, &ask("1", "/chunked"));
    assert!(chunked.contains("5\r\nhello\r\n0\r\n\r\n"), "{chunked}");
    let with_length = answer(&path, &ask("0", "/a"));
    assert!(with_length.contains("200 OK") && with_length.ends_with("hello"), "{with_length}");
    // Without the effect at the server.
    let post = "POST http://a/post HTTP/1.0\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let target = world.target("/post");
    world.origin.on("/post", Reply::ok("done"));
    let refused = answer(&path, &post.replace("http://a/post", &target));
    assert!(refused.starts_with("HTTP/1.1 505 "), "{refused}");
    let done = answer(
        &path,
        &post.replace("http://a/post", &target).replace("1.0\r\n", "1.1\r\nConnection: close\r\n"),
    );
    assert!(done.ends_with("done"), "{done}");
    assert_eq!(world.origin.count("/post"), 1);
    // TCP has a reset.
    let mut over_tcp = world.client();
    over_tcp.send(ask("0", "/chunked"));
    assert_eq!(over_tcp.response().expect(200).text(), "hello");
}

#[test]
fn a_client_that_has_sent_all_may_close_its_half() {
    let (world, path) = world("half_closed_clients on\n");
    let mut stream = UnixStream::connect(&path).expect("connected");
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", world.target("/a"));
    stream.write_all(request.as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("hello"), "{answer}");
}

#[test]
fn several_cores_share_a_socket() {
    let (world, path) = world("workers 3\n");
    let request =
        format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", world.target("/a"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert!(answer(&path, &request).ends_with("hello"));
                }
            });
        }
    });
    assert_eq!(world.proxy.logged_times("GET", 200).len(), 200);
}

#[test]
fn the_file_goes_with_the_proxy_and_is_replaced_if_it_was_left_behind() {
    let (mut world, path) = world("");
    world.proxy.kill();
    assert!(fs::metadata(&path).expect("left behind").file_type().is_socket());
    assert!(UnixStream::connect(&path).is_err());
    world.proxy.launch();
    // It is opened after the port, at which the start was seen.
    until("the socket", || UnixStream::connect(&path).ok());
    assert_eq!(succeed(&mut curl(&path, &world.target("/a"))), "hello");
    assert!(world.proxy.stop().success());
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_dead_socket_stays_and_the_start_says_so() {
    let (mut world, path) = world("");
    world.proxy.stop();
    let fails = |what: &str| {
        let ended = proxy::run(&["-N", "-f", &world.proxy.configuration()]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && said.contains(what), "{said}");
    };
    fs::write(&path, "mine").expect("a file");
    fails("is a file of another kind");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "mine");
    fs::remove_file(&path).expect("removed");
    let other = UnixListener::bind(&path).expect("a socket");
    fails("is in use: another process listens there");
    let _client = UnixStream::connect(&path).expect("it still listens");
    drop(other);
}

#[test]
fn a_reconfiguration_opens_and_closes_sockets() {
    let world = World::forward("");
    let path = world.proxy.path("proxy.sock");
    world.origin.on("/a", Reply::ok("hello"));
    let reload = |lines: &str, is_there: bool| {
        world.proxy.write_configuration("", lines);
        world.proxy.signal(Signal::HUP);
        until("the socket to come or go", || (path.exists() == is_there).then_some(()));
    };
    reload(PORT, true);
    until("a core to accept", || {
        (succeed(&mut curl(&path, &world.target("/a"))) == "hello").then_some(())
    });
    reload("", false);
    assert!(UnixStream::connect(&path).is_err());
    reload(PORT, true);
    assert_eq!(succeed(&mut curl(&path, &world.target("/a"))), "hello");
}

/// A balancer on the same machine tells the address of its client over a Unix socket.
#[test]
fn the_proxy_protocol_comes_over_a_unix_socket() {
    let (world, path) = world(
        "http_port unix:{dir}/balanced.sock require-proxy-header\n\
         proxy_protocol_access allow all\nacl far src 192.0.2.7\nhttp_access deny far\n",
    );
    drop(path);
    let path = world.proxy.path("balanced.sock");
    until("the socket to be there", || path.exists().then_some(()));
    let request = |client: &str| {
        let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", world.target("/a"));
        let request = request.replace("Host", "Connection: close\r\nHost");
        format!("PROXY TCP4 {client} 192.0.2.1 4000 80\r\n{request}")
    };
    assert!(answer(&path, &request("192.0.2.7")).starts_with("HTTP/1.1 403 "));
    assert!(answer(&path, &request("192.0.2.8")).ends_with("hello"));
    assert!(world.proxy.logged("192.0.2.8").contains("/200"));
}
