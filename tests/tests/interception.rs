//! Interception of TLS (`ssl_bump`): tunnels that are decrypted, looked at, or ended by rules.

#[path = "interception/behind.rs"]
mod behind;
#[path = "interception/certificates.rs"]
mod certificates;
#[path = "interception/inside.rs"]
mod inside;
#[path = "interception/servers.rs"]
mod servers;
#[path = "interception/spaces.rs"]
mod spaces;

use humboldt_tests::authority::{Authority, Certificate, Key, client_hello, openssl};
use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::{Server, curl, run, succeed};
use humboldt_tests::wait::{start, until};
use humboldt_tests::{Client, Origin, Proxy, WEB_SOCKET};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the rules see, and the way that was taken.
const LOG: &str = "logformat own %Ss/%03>Hs %rm %ru %ssl::bump_mode %ssl::>sni %un %err_code \
                   %err_detail %Sh\naccess_log stdio:{dir}/own.log own\n";

/// Names of servers on this machine.
const HOSTS: &str = "127.0.0.1 site.test other.test third.test\n";

/// A proxy that makes certificates, a server with TLS, and the authorities of both.
struct Setup {
    proxy: Proxy,
    server: Server,
    /// The authority whose certificates the proxy makes.
    bump: Authority,
    /// That of servers, which the proxy trusts.
    servers: Authority,
    hosts: tempfile::TempDir,
}

/// nginx with this certificate, and a file `/a`.
fn nginx(own: &Certificate, lines: &str) -> Server {
    let (certificate, key) = (own.file.display(), own.key.display());
    let server = Server::nginx(
        "ssl",
        &format!(
            "ssl_certificate {certificate}; ssl_certificate_key {key}; \
             add_header Cache-Control max-age=60; {lines}"
        ),
    );
    server.put("a", "hello");
    server
}

fn port_options(bump: &Authority) -> String {
    let key = bump.path("ca.key");
    // It is read again when root's rights have been given up.
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("readable for all");
    format!("ssl-bump tls-cert={} tls-key={}", bump.ca().display(), key.display())
}

impl Setup {
    fn new(lines: &str) -> Self {
        Self::with_server(lines, |servers| {
            let own =
                servers.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test,DNS:third.test");
            nginx(&own, "")
        })
    }

    fn with_server(lines: &str, server: impl FnOnce(&Authority) -> Server) -> Self {
        Self::of(Authority::new("bump"), Authority::new("servers"), lines, server)
    }

    fn of(
        bump: Authority,
        servers: Authority,
        lines: &str,
        server: impl FnOnce(&Authority) -> Server,
    ) -> Self {
        let hosts = open_folder();
        fs::write(hosts.path().join("hosts"), HOSTS).expect("names");
        let lines = Self::lines(&servers, &hosts, lines);
        let proxy = Proxy::start(&port_options(&bump), &lines);
        let server = server(&servers);
        Self { proxy, server, bump, servers, hosts }
    }

    fn lines(servers: &Authority, hosts: &tempfile::TempDir, lines: &str) -> String {
        format!(
            "{LOG}hosts_file {}\ntls_outgoing_options cafile={}\nworkers 1\n{lines}\n",
            hosts.path().join("hosts").display(),
            servers.ca().display()
        )
    }

    /// Other rules, which count from now on.
    fn reconfigure(&self, lines: &str) {
        let lines = Self::lines(&self.servers, &self.hosts, lines);
        self.proxy.write_configuration(&port_options(&self.bump), &lines);
        self.proxy.signal(Signal::HUP);
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.server.address.port())
    }

    /// curl that trusts the certificates that the proxy makes, and no others.
    fn curl(&self) -> Command {
        let mut command = curl(&self.proxy);
        command.arg("--cacert").arg(self.bump.ca());
        command
    }

    /// curl that trusts the servers, and not the proxy.
    fn curl_unknowing(&self) -> Command {
        let mut command = curl(&self.proxy);
        command.arg("--cacert").arg(self.servers.ca());
        command
    }

    /// Status and body of what is fetched by a client that trusts the proxy.
    fn get(&self, url: &str) -> (u16, String) {
        let mut command = self.curl();
        status_and_body(command.args(["-w", "\n%{http_code}", url]))
    }

    /// `openssl s_client` through the proxy to this host, and what it prints for this input.
    fn s_client(&self, host: &str, options: &[&str], input: &str) -> String {
        let mut command = openssl("s_client");
        command.args(["-proxy", &self.proxy.address().to_string(), "-ign_eof", "-connect"]);
        command.arg(format!("{host}:{}", self.server.address.port())).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start(&mut command).expect("openssl starts");
        let mut to = child.stdin.take().expect("its input");
        to.write_all(input.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("openssl ends");
        drop(to);
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// A connection on which a tunnel to the server was asked for and promised.
    fn tunnel(&self, host: &str) -> Client {
        let mut client = self.proxy.client();
        let place = format!("{host}:{}", self.server.address.port());
        client.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
        assert_eq!(client.head().word(1), "200");
        client
    }

    /// Waits for a line of the log that contains `part`, and returns it.
    fn logged(&self, part: &str) -> String {
        self.logged_times(part, 1).pop().unwrap_or_default()
    }

    /// Waits for that many.
    fn logged_times(&self, part: &str, count: usize) -> Vec<String> {
        until(&format!("{count} lines with `{part}`"), || {
            let text = self.proxy.text("own.log");
            let lines = text.lines().filter(|line| line.contains(part)).map(str::to_owned);
            let lines: Vec<String> = lines.collect();
            (lines.len() >= count).then_some(lines)
        })
    }

    /// The server has been asked for `/a` so often. It writes its log when it has answered.
    fn asked(&self, times: usize) {
        until("the server's log", || (self.server.count("/a") >= times).then_some(()));
        assert_eq!(self.server.count("/a"), times, "{}", self.server.text("access.log"));
    }

    fn metric(&self, name: &str) -> u64 {
        let mut client = self.proxy.client();
        client.request("GET", &self.proxy.page("metrics"), &[], b"");
        let page = client.response().text();
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a figure")
    }
}

fn status_and_body(command: &mut Command) -> (u16, String) {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    (status.parse().unwrap_or(0), body.to_owned())
}

fn fails(command: &mut Command) -> String {
    let output = run(command);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_inside_of_a_tunnel_is_cached_and_logged_by_its_urls() {
    let setup = Setup::new("ssl_bump bump all");
    let url = setup.url("site.test", "/a");
    let mut command = setup.curl();
    // Two requests on one connection.
    command.args(["-i", &url, &url]);
    let text = succeed(&mut command);
    assert!(text.contains("X-Cache: MISS ") && text.contains("X-Cache: HIT "), "{text}");
    assert_eq!(text.matches("hello").count(), 2);
    let connect = setup.logged("CONNECT");
    assert!(
        connect.starts_with("NONE_NONE/200 CONNECT site.test:")
            && connect.contains(" bump site.test "),
        "{connect}"
    );
    assert!(setup.logged("TCP_MISS/200").contains(&format!("GET {url} bump site.test")));
    let hit = setup.logged("TCP_MEM_HIT/200");
    assert!(hit.contains(&format!("GET {url} bump site.test")), "{hit}");
    // Another connection finds both the object and the certificate.
    assert_eq!(setup.get(&url), (200, "hello".to_owned()));
    setup.asked(1);
    assert_eq!(setup.metric("humboldt_bump_certificates_made_total"), 1);
    assert_eq!(setup.metric("humboldt_bump_certificates_found_total"), 1);
    assert_eq!(setup.logged_times("CONNECT", 2).len(), 2);
}

#[test]
fn a_client_that_does_not_trust_the_proxy_is_told_nothing_and_logged() {
    let setup = Setup::new("ssl_bump bump all");
    let why = fails(setup.curl_unknowing().arg(setup.url("site.test", "/a")));
    assert!(why.contains("certificate"), "{why}");
    let line = setup.logged("CONNECT");
    assert!(line.starts_with("NONE_NONE/200 CONNECT "), "{line}");
    assert!(line.contains(" ERR_SECURE_ACCEPT_FAIL no_client_handshake "), "{line}");
    assert_eq!(setup.server.text("access.log"), "");
}

#[test]
fn requests_for_another_server_than_that_of_the_tunnel_are_misdirected() {
    let setup = Setup::new("ssl_bump bump all\nacl purge method PURGE\nhttp_access allow purge");
    let port = setup.server.address.port();
    let place = |host: &str| format!("{host}:{port}");
    for (line, host, status) in [
        ("GET /a", place("site.test"), 200),
        ("GET /a", place("SITE.test."), 200),
        ("GET /a", place("third.test"), 421),
        ("GET /a", "site.test".to_owned(), 421),
        (&format!("GET https://{}/a", place("site.test")), place("site.test"), 200),
        (&format!("GET https://{}/a", place("third.test")), place("site.test"), 421),
        (&format!("GET https://{}/a", place("site.test")), place("third.test"), 421),
        (&format!("GET http://{}/a", place("site.test")), place("site.test"), 421),
        (&format!("CONNECT {}", place("site.test")), place("site.test"), 405),
        ("GET /metrics", format!("localhost:{}", setup.proxy.address().port()), 421),
    ] {
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = setup.s_client("site.test", &["-servername", "site.test"], &request);
        assert!(answer.contains(&format!("HTTP/1.1 {status} ")), "{line} {host}: {answer}");
    }
    // Nothing of it was stored, nor asked of the server.
    setup.asked(1);
    assert!(setup.logged("/421").contains(" ERR_CONFLICT_HOST "));
}

#[test]
fn bytes_pass_unread_where_a_rule_splices() {
    let setup = Setup::new(
        "acl own ssl::server_name site.test\nacl step1 at_step SslBump1\n\
         ssl_bump peek step1\nssl_bump splice own\nssl_bump bump all",
    );
    let url = setup.url("site.test", "/a");
    assert_eq!(succeed(setup.curl_unknowing().arg(&url)), "hello");
    let line = setup.logged("TCP_TUNNEL/200");
    assert!(line.contains(" splice site.test ") && line.ends_with(" HIER_DIRECT"), "{line}");
    // Another name is decrypted.
    assert_eq!(setup.get(&setup.url("third.test", "/a")), (200, "hello".to_owned()));
    assert!(setup.logged("TCP_MISS/200").contains("GET https://third.test:"));
    fails(setup.curl().arg(&url));
}

#[test]
fn connections_are_ended_by_rules() {
    // Before the tunnel is promised, and after.
    let setup = Setup::new("ssl_bump terminate all");
    let why = fails(setup.curl().arg(setup.url("site.test", "/a")));
    assert!(why.contains("CONNECT"), "{why}");
    assert!(setup.logged("NONE_NONE/000").contains(" terminate - "));
    let setup = Setup::new(
        "acl own ssl::server_name_regex ^site\\.\nacl step1 at_step SslBump1\n\
         ssl_bump peek step1\nssl_bump terminate own\nssl_bump splice all",
    );
    fails(setup.curl_unknowing().arg(setup.url("site.test", "/a")));
    let line = setup.logged("NONE_NONE/200");
    assert!(line.contains(" terminate site.test "), "{line}");
    assert_eq!(setup.server.text("access.log"), "");
    assert_eq!(succeed(setup.curl_unknowing().arg(setup.url("third.test", "/a"))), "hello");
}

#[test]
fn a_rule_about_the_name_in_tls_refuses_although_the_tunnel_has_another_name() {
    let lines = "acl bad dstdomain other.test\nhttp_access deny bad\nacl step1 at_step SslBump1\n\
                 acl page port 1-65535\nssl_bump peek step1\n";
    let splicing = Setup::new(&format!("{lines}ssl_bump splice all"));
    // The names agree.
    assert_eq!(succeed(splicing.curl_unknowing().arg(splicing.url("site.test", "/a"))), "hello");
    let answer = splicing.s_client("site.test", &["-servername", "other.test"], "");
    assert!(!answer.contains("BEGIN CERTIFICATE"), "{answer}");
    let line = splicing.logged("TCP_DENIED");
    assert!(line.contains(" splice other.test ") && line.contains("ERR_ACCESS_DENIED"), "{line}");
    // Where the connection is decrypted, there is a page.
    let bumping = Setup::new(&format!("{lines}ssl_bump bump all"));
    let host = format!("other.test:{}", bumping.server.address.port());
    let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = bumping.s_client("site.test", &["-servername", "other.test"], &request);
    assert!(answer.contains("HTTP/1.1 403 ") && answer.contains("ERR_ACCESS_DENIED"), "{answer}");
    for setup in [&splicing, &bumping] {
        setup.asked(usize::from(std::ptr::eq(setup, &splicing)));
    }
    // Names that differ are no tunnel at all, if the file says so.
    let strict = Setup::new(
        "host_verify_strict on\nacl s1 at_step SslBump1\nssl_bump peek s1\nssl_bump splice all",
    );
    assert_eq!(succeed(strict.curl_unknowing().arg(strict.url("site.test", "/a"))), "hello");
    let answer = strict.s_client("site.test", &["-servername", "third.test"], "");
    assert!(!answer.contains("BEGIN CERTIFICATE"), "{answer}");
    assert!(strict.logged("/409").contains("CONNECT site.test:"));
}

#[test]
fn a_refused_tunnel_shows_its_page_inside_where_a_rule_decrypts() {
    let setup = Setup::new("acl bad dstdomain site.test\nhttp_access deny bad\nssl_bump bump all");
    let (status, page) = setup.get(&setup.url("site.test", "/a"));
    assert_eq!(status, 403, "{page}");
    assert!(page.contains("ERR_ACCESS_DENIED"), "{page}");
    assert!(setup.logged("TCP_DENIED/403").contains("GET https://site.test:"));
    setup.reconfigure("acl bad dstdomain site.test\nhttp_access deny bad\nssl_bump splice all");
    until("the rules to change", || {
        let output = run(setup.curl().arg(setup.url("site.test", "/a")));
        String::from_utf8_lossy(&output.stderr).contains("response 403").then_some(())
    });
    assert_eq!(setup.server.text("access.log"), "");
}

const LOGINS: &str = "auth_param basic program /usr/lib/squid/basic_ncsa_auth {dir}/passwd\n\
                      acl users proxy_auth REQUIRED\n";

/// The password of anna is `secret`.
const PASSWORDS: &str = "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

#[test]
fn the_user_of_the_tunnel_is_the_user_of_the_requests_inside() {
    // Asked for at CONNECT, and only inside.
    for rules in [
        "http_access deny !users",
        "acl connect method CONNECT\nhttp_access allow connect\nhttp_access deny !users",
    ] {
        let setup = Setup::new(&format!("{LOGINS}{rules}\nssl_bump bump all"));
        fs::write(setup.proxy.path("passwd"), PASSWORDS).expect("a password file");
        let url = setup.url("site.test", "/a");
        assert_eq!(succeed(setup.curl().args(["-U", "anna:secret", &url])), "hello", "{rules}");
        let line = setup.logged("GET ");
        assert!(line.starts_with("TCP_MISS/200") && line.contains(" anna "), "{line}");
        // Nobody is asked inside: there is no proxy there that could ask.
        let (status, _) = setup.get(&url);
        assert!(!rules.contains("connect") || status == 403, "{rules}: {status}");
        let (status, _) =
            status_and_body(setup.curl().args(["-U", "anna:wrong", "-w", "\n%{http_code}", &url]));
        assert!(status == 403 || status == 0, "{status}");
        if !rules.contains("connect") {
            assert!(setup.logged("/407").starts_with("TCP_DENIED/407 CONNECT"));
        }
    }
}

#[test]
fn a_first_message_may_come_in_any_pieces() {
    let setup = Setup::new("ssl_bump bump all");
    let hello = client_hello("site.test");
    let answers = |client: &mut Client| assert_eq!(client.bytes(3)[..2], [22, 3], "a record");
    // Behind the head of CONNECT, at once.
    let place = format!("site.test:{}", setup.server.address.port());
    let mut client = setup.proxy.client();
    let head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    client.send([head.as_bytes(), &hello].concat());
    assert_eq!(client.head().word(1), "200");
    answers(&mut client);
    // Byte for byte.
    let mut client = setup.tunnel("site.test");
    hello.iter().for_each(|byte| _ = client.send([*byte]));
    answers(&mut client);
    // In many records.
    let pieces = hello[5..].chunks(50).map(|piece| {
        [&[22, 3, 1, 0, u8::try_from(piece.len()).expect("short")][..], piece].concat()
    });
    let pieces: Vec<u8> = pieces.flatten().collect();
    setup.tunnel("site.test").send(&pieces).bytes(3);
    until("handshakes", || {
        (setup.metric("humboldt_bump_certificates_found_total") == 2).then_some(())
    });
}

#[test]
fn what_is_no_tls_ends_or_passes_as_the_file_says() {
    let setup = Setup::new("ssl_bump bump all");
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"SSH-2.0-x\r\n",
        // A message of 16 MB is announced.
        b"\x16\x03\x01\x40\x00\x01\xff\xff\xff\x03\x03",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
        b"\x16\x03\x01\x00\x00",
    ] {
        assert!(setup.tunnel("site.test").send(bytes).closes(), "{bytes:?}");
    }
    let lines = setup.logged_times(" ERR_PROTOCOL_UNKNOWN tunnel_without_tls ", 5);
    assert!(lines[0].starts_with("NONE_NONE/200 CONNECT "), "{lines:?}");
    // 64 KiB without an end.
    let mut client = setup.tunnel("site.test");
    let record = [&b"\x16\x03\x01\x40\x00\x01\x00\xff\xf0"[..], &[0; 16 * 1024 - 4]].concat();
    client.send(&record);
    let next = [&b"\x16\x03\x01\x40\x00"[..], &[0; 16 * 1024]].concat();
    for _ in 0..4 {
        client.send(&next);
    }
    assert!(client.closes());
    // It may pass.
    let setup = Setup::new("ssl_bump bump all\non_unsupported_protocol tunnel all");
    let mut client = setup.tunnel("site.test");
    client.send("GET /a HTTP/1.1\r\nHost: site.test\r\n\r\n");
    assert_eq!(client.response().status(), 400, "nginx wants TLS, and says so in plain text");
    drop(client);
    assert!(setup.logged("TCP_TUNNEL/200").contains(" splice "));
    // TLS that is broken does not: servers exist that answer it, and rules would be evaded.
    for bytes in [&b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"[..], b"\x80\x2e\x01\x03\x01\x00\x15"]
    {
        assert!(setup.tunnel("site.test").send(bytes).closes(), "{bytes:?}");
    }
    let lines = setup.logged_times(" ERR_PROTOCOL_UNKNOWN tunnel_without_tls ", 2);
    assert!(lines.iter().all(|line| line.starts_with("NONE_NONE/200 CONNECT ")), "{lines:?}");
    assert_eq!(setup.metric("humboldt_bump_not_tls_total"), 3);
}

#[test]
fn clients_may_leave_at_every_step() {
    let setup = Setup::new("request_start_timeout 2 seconds\nssl_bump bump all");
    let hello = client_hello("site.test");
    // After CONNECT, in the middle of the message, after it.
    for sent in [&b""[..], &hello[..40], &hello] {
        let mut client = setup.tunnel("site.test");
        client.send(sent);
        drop(client);
    }
    setup.logged_times("CONNECT", 3);
    // One that says nothing is not waited for without end, nor is one that stops.
    for sent in [&b""[..], &hello[..40], &hello] {
        let mut client = setup.tunnel("site.test");
        client.send(sent);
        // Whether it has got something before, or not.
        let _ = client.closes();
    }
    let lines = setup.logged_times("CONNECT", 6);
    assert!(lines[3..].iter().all(|line| line.contains("no_client_handshake")), "{lines:?}");
    assert_eq!(setup.get(&setup.url("site.test", "/a")).0, 200);
}

#[test]
fn rules_change_under_connections_that_are_open() {
    let setup = Setup::new("ssl_bump bump all");
    let host = format!("site.test:{}", setup.server.address.port());
    let mut command = openssl("s_client");
    command.args(["-proxy", &setup.proxy.address().to_string(), "-quiet", "-connect", &host]);
    command.args(["-servername", "site.test"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = start(&mut command).expect("openssl starts");
    let (mut to, mut from) = (child.stdin.take().expect("in"), child.stdout.take().expect("out"));
    let mut ask = |path: &str, word: &str| {
        to.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
            .expect("sent");
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains(word) {
            let mut byte = [0];
            from.read_exact(&mut byte).expect("an answer");
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    assert!(ask("/a", "hello").contains("HTTP/1.1 200 "));
    setup.reconfigure("acl bad urlpath_regex ^/bad\nhttp_access deny bad\nssl_bump bump all");
    until("the rules to change", || {
        let mut client = setup.proxy.client();
        client.request("GET", "http://site.test/bad", &[], b"");
        (client.response().status() == 403).then_some(())
    });
    // The connection is the old one, and its rules are the new ones.
    assert!(ask("/bad", "\r\n\r\n").contains("HTTP/1.1 403 "));
    drop(to);
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn an_end_in_order_does_not_wait_for_idle_connections_inside() {
    let mut setup = Setup::new("shutdown_lifetime 60 seconds\nssl_bump bump all");
    let mut idle = setup.tunnel("site.test");
    let hello = client_hello("site.test");
    let mut half = setup.tunnel("site.test");
    half.send(&hello[..20]);
    let mut whole = setup.tunnel("site.test");
    whole.send(&hello).bytes(3);
    let began = std::time::Instant::now();
    setup.proxy.stop();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(idle.closes() && half.closes());
}

#[test]
fn a_websocket_inside_becomes_a_tunnel() {
    let origin = Origin::new();
    origin.handle("/socket", |head, wire| {
        assert_eq!(head.field("Upgrade"), Some("websocket"));
        wire.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nready",
        );
        let bytes = wire.reader.exactly(5).unwrap_or_default();
        wire.send(bytes.to_ascii_uppercase());
        wire.close();
    });
    let setup = Setup::with_server("ssl_bump bump all", |servers| {
        let own = servers.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test");
        let address = origin.address();
        nginx(
            &own,
            &format!(
                "location /socket {{ proxy_pass http://{address}; proxy_http_version 1.1; \
                 proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}"
            ),
        )
    });
    let host = format!("site.test:{}", setup.server.address.port());
    let mut request = format!("GET /socket HTTP/1.1\r\nHost: {host}\r\n");
    WEB_SOCKET.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
    let answer =
        setup.s_client("site.test", &["-servername", "site.test"], &(request + "\r\nhello"));
    assert!(answer.contains("HTTP/1.1 101 ") && answer.contains("readyHELLO"), "{answer}");
    assert!(setup.logged("TCP_TUNNEL/101").contains("GET https://site.test:"));
}

/// More than a core shakes hands with at a time.
const FLOOD: usize = 1100;

#[test]
fn of_a_flood_of_half_messages_the_oldest_give_way_and_others_are_served() {
    let setup = Setup::new("ssl_bump bump all");
    let hello = client_hello("site.test");
    let mut flood: Vec<Client> = Vec::new();
    for _ in 0..FLOOD {
        let mut client = setup.tunnel("site.test");
        client.send(&hello[..hello.len() - 1]);
        flood.push(client);
    }
    until("some to give way", || {
        (setup.metric("humboldt_client_tls_given_way_total") >= 76).then_some(())
    });
    assert!(flood[0].closes());
    assert_eq!(setup.get(&setup.url("site.test", "/a")), (200, "hello".to_owned()));
    // The youngest have not lost their places.
    let youngest = flood.last_mut().expect("a client");
    youngest.send(&hello[hello.len() - 1..]);
    assert_eq!(youngest.bytes(2), [22, 3]);
}

#[test]
fn a_client_of_socks_is_decrypted_too() {
    let (bump, servers) = (Authority::new("bump"), Authority::new("servers"));
    let socks = humboldt_tests::wait::free_address();
    let port = format!("http_port {socks} socks {}\n", port_options(&bump));
    let setup = Setup::of(bump, servers, &format!("{port}ssl_bump bump all"), |servers| {
        nginx(&servers.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test"), "")
    });
    let mut command = Command::new(humboldt_tests::servers::program("curl"));
    command.args(["-sS", "-m", "20", "--noproxy", "", "-x", &format!("socks5h://{socks}")]);
    command.arg("--cacert").arg(setup.bump.ca()).arg(setup.url("site.test", "/a"));
    assert_eq!(succeed(&mut command), "hello");
    assert!(setup.logged("GET ").contains(" bump site.test "));
}
