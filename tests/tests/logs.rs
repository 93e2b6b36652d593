//! Each request has one line in access.log, whatever becomes of it, and a connection that is cut
//! off is counted with its reason.

#[path = "logs/cuts.rs"]
mod cuts;

use humboldt_tests::wait::{Gate, free_address, free_listener, until};
use humboldt_tests::{Client, Reply, World};
use rustix::net::sockopt::set_socket_linger;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The fields that `logformat` writes of a request here.
const FORMAT: &str = "logformat mine %Ss/%03>Hs %rm %ru %Sh/%<a %err_code %err_detail\n\
                      acl metrics url_regex /metrics$\n\
                      access_log stdio:{dir}/mine.log mine !metrics\n";

/// A proxy, and the expected lines of its log.
struct Played {
    world: World,
    lines: usize,
    cuts: BTreeMap<&'static str, u64>,
}

impl Played {
    fn new(lines: &str) -> Self {
        Self { world: World::forward(&format!("{FORMAT}{lines}")), lines: 0, cuts: BTreeMap::new() }
    }

    /// Waits for the next line, which must be this one.
    #[track_caller]
    fn logs(&mut self, wanted: &str) {
        let at = self.lines;
        self.lines += 1;
        let line = until(&format!("a line such as `{wanted}`"), || {
            let text = self.world.proxy.text("mine.log");
            text.ends_with('\n').then(|| text.lines().nth(at).map(str::to_owned)).flatten()
        });
        assert_eq!(line, wanted, "\n{}", self.world.proxy.text("mine.log"));
    }

    /// The same for a request whose connection is cut off.
    #[track_caller]
    fn logs_cut(&mut self, reason: &'static str, wanted: &str) {
        *self.cuts.entry(reason).or_default() += 1;
        self.logs(wanted);
    }

    /// Ends the proxy: there must be nothing else in the log, and the counters must agree.
    fn ends(mut self) {
        let page = self.world.proxy.page("metrics");
        let page =
            self.world.client().request("GET", &page, &[], b"").response().expect(200).text();
        let counted: BTreeMap<&str, u64> = page
            .lines()
            .filter_map(|line| line.strip_prefix("humboldt_client_connections_cut_total{reason=\""))
            .filter_map(|line| line.split_once("\"} "))
            .map(|(reason, count)| (reason, count.parse().expect("a number")))
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, self.cuts);
        self.world.proxy.stop();
        let log = self.world.proxy.text("mine.log");
        assert_eq!(log.lines().count(), self.lines, "{log}");
    }

    fn ask(&self, method: &str, target: &str) -> u16 {
        let mut client = self.world.client();
        client.request(method, target, &[], b"");
        client.response_to(method).status()
    }

    /// A connection on which this has been sent.
    fn sent(&self, bytes: &str) -> Client {
        let mut client = self.world.client();
        client.send(bytes);
        client
    }

    /// The head of a request for a path of the origin, without its end.
    fn head(&self, method: &str, path: &str) -> String {
        let host = self.world.origin.address();
        format!("{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n")
    }

    /// Answers a path with this, once the gate is open, and closes.
    fn serves(&self, path: &str, answer: &'static str) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let closed = Arc::clone(&gate);
        self.world.origin.handle(path, move |_, wire| {
            closed.pass();
            wire.send(answer);
        });
        gate
    }
}

/// A server for tunnels.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = free_listener();
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    drop(stream);
}

#[test]
fn what_the_cache_answers_has_one_line() {
    let mut played = Played::new("maximum_object_size_in_memory 64 MB\n");
    played.world.origin.on("/a", Reply::ok("x").cachable(60));
    let url = played.world.target("/a");
    for (method, wanted) in
        [("GET", "TCP_MISS/200"), ("GET", "TCP_MEM_HIT/200"), ("HEAD", "TCP_MEM_HIT/200")]
    {
        assert_eq!(played.ask(method, &url), 200);
        let server = if wanted.contains("MISS") { "HIER_DIRECT/127.0.0.1" } else { "HIER_NONE/-" };
        played.logs(&format!("{wanted} {method} {url} {server} - -"));
    }
    let url = played.world.target("/large");
    played.world.origin.on("/large", Reply::ok(vec![b'x'; 30 << 20]).cachable(60));
    assert_eq!(played.ask("GET", &url), 200);
    played.logs(&format!("TCP_MISS/200 GET {url} HIER_DIRECT/127.0.0.1 - -"));
    let mut leaving = played.sent(&(played.head("GET", "/large") + "\r\n"));
    assert_eq!(leaving.head().word(1), "200");
    leaving.abort();
    played.logs_cut(
        "client_gone",
        &format!("TCP_MEM_HIT_ABORTED/200 GET {url} HIER_NONE/- ERR_CLIENT_GONE client_gone"),
    );
    let absent = played.world.target("/absent");
    let _ = played
        .world
        .client()
        .request("GET", &absent, &[("Cache-Control", "only-if-cached")], b"")
        .response()
        .expect(504);
    played.logs(&format!("TCP_MISS/504 GET {absent} HIER_NONE/- ERR_ONLY_IF_CACHED_MISS -"));
    let menu = format!("http://{}/squid-internal-mgr/menu", played.world.proxy.address());
    assert_eq!(played.ask("GET", &menu), 200);
    played.logs(&format!("NONE_NONE/200 GET {menu} HIER_NONE/- - -"));
    assert_eq!(played.ask("GET", &format!("{menu}x")), 404);
    played.logs(&format!("NONE_NONE/404 GET {menu}x HIER_NONE/- ERR_NOT_FOUND -"));
    played.ends();
}

#[test]
fn what_is_refused_has_one_line() {
    let mut played = Played::new(
        "acl denied url_regex /denied\nacl reset url_regex /reset\nacl limited url_regex /limited\n\
         acl missing url_regex /missing\nacl purge method PURGE\n\
         http_access deny denied\nhttp_access deny reset\nhttp_access allow purge\nmiss_access deny missing\n\
         deny_info TCP_RESET reset\nreply_body_max_size 1 KB limited\nrequest_body_max_size 100 KB\n",
    );
    let target = |played: &Played, path: &str| played.world.target(path);
    let url = target(&played, "/denied");
    assert_eq!(played.ask("GET", &url), 403);
    played.logs(&format!("TCP_DENIED/403 GET {url} HIER_NONE/- ERR_ACCESS_DENIED -"));
    let url = target(&played, "/reset");
    assert!(played.sent(&(played.head("GET", "/reset") + "\r\n")).closes());
    played.logs_cut(
        "deny_info",
        &format!("TCP_DENIED/403 GET {url} HIER_NONE/- ERR_ACCESS_DENIED deny_info"),
    );
    let url = target(&played, "/missing");
    assert_eq!(played.ask("GET", &url), 403);
    played.logs(&format!("TCP_MISS/403 GET {url} HIER_NONE/- ERR_FORWARDING_DENIED -"));
    let url = target(&played, "/limited");
    played.world.origin.on("/limited", Reply::ok(vec![b'x'; 5000]));
    assert_eq!(played.ask("GET", &url), 403);
    played.logs(&format!("TCP_DENIED_REPLY/403 GET {url} HIER_DIRECT/127.0.0.1 ERR_TOO_BIG -"));
    let url = target(&played, "/limited/chunked");
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024)).repeat(2);
    let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    played.world.origin.on("/limited/chunked", Reply::raw(chunked));
    assert!(!played.world.get("/limited/chunked").expect(200).is_complete);
    played.logs_cut(
        "reply_too_large",
        &format!(
            "TCP_MISS_ABORTED/200 GET {url} HIER_DIRECT/127.0.0.1 ERR_TOO_BIG reply_too_large"
        ),
    );
    let url = target(&played, "/a");
    let _ = played
        .sent(&(played.head("POST", "/a") + "Content-Length: 200000\r\n\r\n"))
        .response()
        .expect(413);
    let detail = "request_body_max_size%20is%20102400%20bytes";
    played.logs(&format!("NONE_NONE/413 POST {url} HIER_NONE/- ERR_TOO_BIG {detail}"));
    let _ = played
        .sent(&(played.head("GET", "/a") + "Via: 1.1 proxy.test (humboldt/0)\r\n\r\n"))
        .response();
    played.logs(&format!("NONE_NONE/508 GET {url} HIER_NONE/- ERR_FORWARDING_LOOP -"));
    for (method, status) in [("PURGE", 404), ("PRI", 405)] {
        assert_eq!(played.ask(method, &url), status);
        let error = if method == "PRI" {
            "ERR_METHOD_NOT_ALLOWED PRI%20begins%20a%20connection%20of%20HTTP/2"
        } else {
            "- -"
        };
        played.logs(&format!("NONE_NONE/{status} {method} {url} HIER_NONE/- {error}"));
    }
    played.ends();
}

#[test]
fn what_cannot_be_read_has_one_line_as_squid_writes_it() {
    let mut played = Played::new("");
    let url = played.world.target("/a");
    played.world.origin.on("/a", Reply::ok("x"));
    let long = format!("GET http://a.test/{} HTTP/1.1\r\n\r\n", "a".repeat(100_000));
    let wide =
        played.head("GET", "/a") + &format!("A: {}\r\n", "a".repeat(60_000)).repeat(2) + "\r\n";
    for (request, status, wanted) in [
        (
            &*long,
            414,
            "GET error:request-too-large HIER_NONE/- ERR_URI_TOO_LONG request%20target%20too%20long",
        ),
        (
            &wide,
            431,
            "GET error:request-too-large HIER_NONE/- ERR_HEADERS_TOO_BIG head%20too%20large",
        ),
        (
            "\x16\x03\x01\r\n\r\n",
            400,
            "- error:invalid-request HIER_NONE/- ERR_INVALID_REQ malformed%20request%20line",
        ),
        (
            "G@T / HTTP/1.1\r\n\r\n",
            400,
            "G error:invalid-request HIER_NONE/- ERR_INVALID_REQ malformed%20request%20line",
        ),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nA B: c\r\n\r\n",
            400,
            "GET http://a.test/ HIER_NONE/- ERR_INVALID_REQ malformed%20field%20line",
        ),
        (
            "GET http://a.test/ HTTP/2.5\r\n\r\n",
            505,
            "GET http://a.test/ HIER_NONE/- ERR_UNSUP_HTTPVERSION unsupported%20HTTP%20version",
        ),
    ] {
        let _ = played.sent(request).response().expect(status);
        played.logs(&format!("NONE_NONE/{status} {wanted}"));
    }
    // Behind a good one on the same connection.
    let mut both = played.sent(&(played.head("GET", "/a") + "\r\nHELLO\r\n\r\n"));
    let _ = both.response().expect(200);
    let _ = both.response().expect(400);
    played.logs(&format!("TCP_MISS/200 GET {url} HIER_DIRECT/127.0.0.1 - -"));
    played.logs(
        "NONE_NONE/400 HELLO error:invalid-request HIER_NONE/- ERR_INVALID_REQ malformed%20request%20line",
    );
    // A head that does not come to its end; and a connection on which nothing came, which was no
    // request.
    played.sent("GET http://a.test/ HT").abort();
    played.logs_cut(
        "client_gone",
        "NONE_NONE/000 - error:transaction-end-before-headers HIER_NONE/- ERR_CLIENT_GONE client_gone",
    );
    played.world.client().abort();
    played.ends();
}

#[test]
fn what_the_server_does_not_answer_has_one_line() {
    let mut played = Played::new("");
    let closed = free_address();
    let url = format!("http://{closed}/");
    let refused =
        format!("HIER_DIRECT/127.0.0.1 ERR_CONNECT_FAIL connection%20refused%20by%20{closed}");
    for method in ["GET", "HEAD", "DELETE"] {
        assert_eq!(played.ask(method, &url), 503);
        played.logs(&format!("TCP_MISS/503 {method} {url} {refused}"));
    }
    assert_eq!(played.ask("CONNECT", &closed.to_string()), 503);
    played.logs(&format!("TCP_TUNNEL/503 CONNECT {closed} {refused}"));
    let _ = played
        .sent(&format!("POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"))
        .response()
        .expect(503);
    played.logs(&format!("TCP_MISS/503 POST {url} {refused}"));
    for (path, answer, status, error) in [
        ("/nothing", "", 502, "ERR_READ_ERROR the%20connection%20closed%20without%20an%20answer"),
        (
            "/garbage",
            "\0\r\n\r\n",
            502,
            "ERR_INVALID_RESP invalid%20answer:%20malformed%20status%20line",
        ),
    ] {
        played.world.origin.on(path, Reply::raw(answer));
        for method in ["GET", "POST"] {
            let fields = if method == "POST" { "Content-Length: 1\r\n\r\nx" } else { "\r\n" };
            let _ = played.sent(&(played.head(method, path) + fields)).response().expect(status);
            let url = played.world.target(path);
            played.logs(&format!("TCP_MISS/{status} {method} {url} HIER_DIRECT/127.0.0.1 {error}"));
        }
    }
    for (path, answer, reason, error) in [
        (
            "/cut",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
            "server_truncated",
            "ERR_READ_ERROR",
        ),
        (
            "/bad",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n",
            "server_malformed",
            "ERR_INVALID_RESP",
        ),
    ] {
        for method in ["GET", "POST"] {
            let gate = played.serves(path, answer);
            gate.open();
            let fields = if method == "POST" { "Content-Length: 1\r\n\r\nx" } else { "\r\n" };
            let _ = played.sent(&(played.head(method, path) + fields)).response();
            let url = played.world.target(path);
            let wanted = format!("{method} {url} HIER_DIRECT/127.0.0.1 {error} {reason}");
            played.logs_cut(reason, &format!("TCP_MISS_ABORTED/200 {wanted}"));
        }
    }
    // A server whose connection breaks.
    let (listener, address) = listener();
    let mut client =
        played.sent(&format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let (mut server, _) = listener.accept().expect("the proxy");
    let _ = server.read(&mut [0; 1000]);
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx").expect("sent");
    assert_eq!(client.head().word(1), "200");
    reset(server);
    assert_eq!(client.bytes(1), b"x");
    assert!(client.closes());
    played.logs_cut(
        "server_failed",
        &format!(
            "TCP_MISS_ABORTED/200 GET http://{address}/ HIER_DIRECT/127.0.0.1 ERR_READ_ERROR server_failed"
        ),
    );
    // A stored answer that cannot be validated.
    let url = played.world.target("/stale");
    let stale = "HTTP/1.1 200 OK\r\nCache-Control: max-age=1, must-revalidate\r\nAge: 9\r\nETag: \"1\"\r\nContent-Length: 1\r\n\r\nx";
    played.world.origin.on_each("/stale", vec![Reply::raw(stale), Reply::raw("")]);
    assert_eq!(played.ask("GET", &url), 200);
    played.logs(&format!("TCP_MISS/200 GET {url} HIER_DIRECT/127.0.0.1 - -"));
    assert_eq!(played.ask("GET", &url), 502);
    let error = "ERR_READ_ERROR the%20connection%20closed%20without%20an%20answer";
    played.logs(&format!("TCP_REFRESH_FAIL_ERR/502 GET {url} HIER_DIRECT/127.0.0.1 {error}"));
    played.ends();
}

#[test]
fn a_client_that_leaves_has_one_line() {
    let mut played = Played::new("http_upgrade_request_protocols own allow all\n");
    let gone = "ERR_CLIENT_GONE client_gone";
    // Before the head of the answer.
    let gate = played.serves("/head", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    let leaving = played.sent(&(played.head("GET", "/head") + "\r\n"));
    played.world.origin.wait_for("/head", 1);
    // Another one shares the fetch, and leaves first.
    let sharing = played.sent(&(played.head("GET", "/head") + "\r\n"));
    until("it shares the fetch", || {
        (played.world.metric("humboldt_client_http_collapsed_total") == 1).then_some(())
    });
    sharing.abort();
    let url = played.world.target("/head");
    played
        .logs_cut("client_gone", &format!("TCP_CF_MISS_ABORTED/000 GET {url} HIER_NONE/- {gone}"));
    leaving.abort();
    played.logs_cut(
        "client_gone",
        &format!("TCP_MISS_ABORTED/000 GET {url} HIER_DIRECT/127.0.0.1 {gone}"),
    );
    gate.open();
    // In the middle of the body.
    let (listener, address) = listener();
    let mut leaving =
        played.sent(&format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let (mut server, _) = listener.accept().expect("the proxy");
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx").expect("sent");
    assert_eq!(leaving.head().word(1), "200");
    leaving.abort();
    let url = format!("http://{address}/");
    played.logs_cut(
        "client_gone",
        &format!("TCP_MISS_ABORTED/200 GET {url} HIER_DIRECT/127.0.0.1 {gone}"),
    );
    drop(server);
    // In the middle of an upload.
    let leaving = played
        .sent(&format!("POST {url} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9\r\n\r\nx"));
    let (server, _) = listener.accept().expect("the proxy");
    leaving.abort();
    played.logs_cut(
        "client_gone",
        &format!("TCP_MISS_ABORTED/000 POST {url} HIER_DIRECT/127.0.0.1 {gone}"),
    );
    drop(server);
    // Before it is told that its tunnel is there.
    let gate = played.serves(
        "/up",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: own\r\nConnection: upgrade\r\n\r\n",
    );
    let upgrade = "Connection: upgrade\r\nUpgrade: own\r\n\r\n";
    let mut leaving = TcpStream::connect(played.world.proxy.address()).expect("the proxy");
    leaving.write_all((played.head("GET", "/up") + upgrade).as_bytes()).expect("sent");
    played.world.origin.wait_for("/up", 1);
    reset(leaving);
    gate.open();
    let (url, at) = (played.world.target("/up"), played.lines);
    let line =
        until("a line", || played.world.proxy.text("mine.log").lines().nth(at).map(str::to_owned));
    assert!(line.contains("_ABORTED/"), "{line}");
    played.logs_cut("client_gone", &line);
    assert!(line.ends_with(&format!(" GET {url} HIER_DIRECT/127.0.0.1 {gone}")), "{line}");
    played.ends();
}

#[test]
fn who_shares_a_fetch_that_fails_has_a_line_of_its_own() {
    let mut played = Played::new("");
    let gate = played.serves("/fails", "\0\r\n\r\n");
    let mut first = played.sent(&(played.head("GET", "/fails") + "\r\n"));
    played.world.origin.wait_for("/fails", 1);
    let mut second = played.sent(&(played.head("GET", "/fails") + "\r\n"));
    until("it shares the fetch", || {
        (played.world.metric("humboldt_client_http_collapsed_total") == 1).then_some(())
    });
    gate.open();
    assert_eq!((first.response().status(), second.response().status()), (502, 502));
    let (url, at) = (played.world.target("/fails"), played.lines);
    played.lines += 2;
    let mut lines = until("two lines", || {
        let text = played.world.proxy.text("mine.log");
        let lines: Vec<String> = text.lines().skip(at).map(str::to_owned).collect();
        (text.ends_with('\n') && lines.len() == 2).then_some(lines)
    });
    lines.sort_unstable();
    let why = |text: &str| format!("ERR_INVALID_RESP {}", text.replace(' ', "%20"));
    let (own, shared) = (
        why("invalid answer: malformed status line"),
        why("the fetch that this request had joined failed"),
    );
    assert_eq!(
        lines,
        [
            format!("TCP_CF_MISS/502 GET {url} HIER_NONE/- {shared}"),
            format!("TCP_MISS/502 GET {url} HIER_DIRECT/127.0.0.1 {own}"),
        ]
    );
    played.ends();
}

#[test]
fn a_tunnel_has_one_line() {
    let mut played = Played::new("http_upgrade_request_protocols own allow all\n");
    let (listener, address) = listener();
    let connect = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let open = |played: &Played| {
        let mut client = played.sent(&connect);
        let (server, _) = listener.accept().expect("the proxy");
        assert_eq!(client.head().word(1), "200");
        (client, server)
    };
    let line = format!("TCP_TUNNEL/200 CONNECT {address} HIER_DIRECT/127.0.0.1 - -");
    let (mut client, server) = open(&played);
    drop(server);
    assert!(client.closes());
    client.abort();
    played.logs(&line);
    let (client, server) = open(&played);
    reset(server);
    played.logs_cut("tunnel_broken", &line);
    client.abort();
    let (client, server) = open(&played);
    client.abort();
    drop(server);
    played.logs(&line);
    // By Upgrade.
    played
        .serves(
            "/up",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: own\r\nConnection: upgrade\r\n\r\n",
        )
        .open();
    let mut client =
        played.sent(&(played.head("GET", "/up") + "Connection: upgrade\r\nUpgrade: own\r\n\r\n"));
    assert_eq!(client.head().word(1), "101");
    assert!(client.closes());
    client.abort();
    played.logs(&format!(
        "TCP_TUNNEL/101 GET {} HIER_DIRECT/127.0.0.1 - -",
        played.world.target("/up")
    ));
    // A server that does not switch, and one that is not there.
    played.world.origin.on("/no", Reply::ok("x"));
    let upgrade = "Connection: upgrade\r\nUpgrade: own\r\n\r\n";
    let _ = played.sent(&(played.head("GET", "/no") + upgrade)).response().expect(200);
    played.logs(&format!(
        "TCP_MISS/200 GET {} HIER_DIRECT/127.0.0.1 - -",
        played.world.target("/no")
    ));
    let closed = free_address();
    let _ = played
        .sent(&format!("GET http://{closed}/ HTTP/1.1\r\nHost: {closed}\r\n{upgrade}"))
        .response()
        .expect(503);
    let refused = format!("ERR_CONNECT_FAIL connection%20refused%20by%20{closed}");
    played.logs(&format!("TCP_MISS/503 GET http://{closed}/ HIER_DIRECT/127.0.0.1 {refused}"));
    played.ends();
}

#[test]
fn what_takes_too_long_has_one_line() {
    let mut played = Played::new(
        "request_timeout 3 seconds\nread_timeout 3 seconds\nwrite_timeout 3 seconds\n\
         maximum_object_size_in_memory 64 MB\n",
    );
    let _ = played.sent("GET http://a.test/ HT").response().expect(408);
    played.logs(
        "NONE_NONE/408 - error:transaction-end-before-headers HIER_NONE/- ERR_REQUEST_TIMEOUT -",
    );
    let gate = played.serves("/slow", "");
    let url = played.world.target("/slow");
    assert_eq!(played.ask("GET", &url), 504);
    gate.open();
    played.logs(&format!(
        "TCP_MISS/504 GET {url} HIER_DIRECT/127.0.0.1 ERR_READ_TIMEOUT no%20answer%20in%20time"
    ));
    let (listener, address) = listener();
    let url = format!("http://{address}/");
    let mut client = played.sent(&format!("GET {url} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let (mut server, _) = listener.accept().expect("the proxy");
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx").expect("sent");
    assert!(!client.response().expect(200).is_complete);
    let error = "ERR_READ_TIMEOUT server_timed_out";
    played.logs_cut(
        "server_timed_out",
        &format!("TCP_MISS_ABORTED/200 GET {url} HIER_DIRECT/127.0.0.1 {error}"),
    );
    drop(server);
    // A client that takes nothing of a hit, and one that takes nothing of a miss.
    played.world.origin.on("/large", Reply::ok(vec![b'x'; 30 << 20]).cachable(60));
    let url = played.world.target("/large");
    let error = "ERR_CLIENT_GONE client_stalled";
    let stalled = played.sent(&(played.head("GET", "/large") + "\r\n"));
    played.logs_cut(
        "client_stalled",
        &format!("TCP_MISS_ABORTED/200 GET {url} HIER_DIRECT/127.0.0.1 {error}"),
    );
    assert_eq!(played.ask("GET", &url), 200);
    let at = played.lines;
    played.lines += 1;
    until("its line", || played.world.proxy.text("mine.log").lines().nth(at).map(drop));
    let stalled_too = played.sent(&(played.head("GET", "/large") + "\r\n"));
    played.logs_cut(
        "client_stalled",
        &format!("TCP_MEM_HIT_ABORTED/200 GET {url} HIER_NONE/- {error}"),
    );
    stalled.abort();
    stalled_too.abort();
    played.ends();
}

#[test]
fn a_connection_that_has_lived_too_long_has_one_line() {
    let mut played = Played::new("client_lifetime 1 seconds\n");
    let gate = played.serves("/slow", "");
    let url = played.world.target("/slow");
    assert!(played.sent(&(played.head("GET", "/slow") + "\r\n")).closes());
    gate.open();
    let line = format!("GET {url} HIER_DIRECT/127.0.0.1 ERR_LIFETIME_EXP client_lifetime");
    played.logs_cut("client_lifetime", &format!("TCP_MISS_TIMEDOUT/000 {line}"));
    played.ends();
}

#[test]
fn what_is_still_being_served_when_the_proxy_ends_has_one_line() {
    let mut played = Played::new("");
    let gate = played.serves("/slow", "");
    let mut client = played.sent(&(played.head("GET", "/slow") + "\r\n"));
    played.world.origin.wait_for("/slow", 1);
    let _half = played.sent("GET http://a.test/ HT");
    let connections = "humboldt_client_connections_open";
    until("both are there", || (played.world.metric(connections) >= 3).then_some(()));
    played.world.proxy.stop();
    assert!(client.closes());
    gate.open();
    let log = played.world.proxy.text("mine.log");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let url = played.world.target("/slow");
    let shut_down = "HIER_NONE/- ERR_SHUTTING_DOWN shut_down";
    assert_eq!(
        lines,
        [
            format!("NONE_NONE/000 - error:transaction-end-before-headers {shut_down}"),
            format!("NONE_NONE_ABORTED/000 GET {url} {shut_down}"),
        ]
    );
}

#[test]
fn what_cannot_be_read_from_a_directory_has_one_line() {
    let mut played = Played::new(
        "cache_dir ufs {dir}/cache 50 4 4\ncache_mem 1 MB\nmaximum_object_size_in_memory 8 KB\n\
         maximum_object_size 20 MB\n",
    );
    let url = played.world.target("/large");
    played.world.origin.on("/large", Reply::ok(vec![b'x'; 5 << 20]).cachable(600));
    assert_eq!(played.ask("GET", &url), 200);
    played.logs(&format!("TCP_MISS/200 GET {url} HIER_DIRECT/127.0.0.1 - -"));
    until("it is stored", || {
        let answer = played.world.ask("GET", "/large", &[("Cache-Control", "only-if-cached")]);
        played.lines += 1;
        (answer.status() == 200).then_some(())
    });
    played.world.proxy.stop();
    let file = played.world.proxy.path("cache/00/00/00000000");
    let mut bytes = std::fs::read(&file).expect("the stored file");
    bytes[3 << 20..][..4096].fill(b'y');
    std::fs::write(&file, bytes).expect("a damaged file");
    played.world.proxy.launch();
    played.world.origin.on("/large", Reply::raw(""));
    let answer = played.world.get("/large").expect(200);
    assert!(!answer.is_complete && answer.body.iter().all(|&byte| byte == b'x'));
    played.logs_cut(
        "disk_failed",
        &format!("TCP_HIT_ABORTED/200 GET {url} HIER_NONE/- ERR_INTERNAL disk_failed"),
    );
    played.ends();
}

#[test]
fn logs_have_the_part_of_the_address_that_the_file_says() {
    let world = World::forward("client_netmask 255.255.0.0\n");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = Client::from_to([127, 3, 4, 5].into(), world.proxy.address());
    let _ = client.request("GET", &world.target("/a"), &[], b"").response().expect(200);
    assert!(world.proxy.logged("/a").contains(" 127.3.0.0 "));
}
