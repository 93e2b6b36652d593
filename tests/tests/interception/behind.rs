//! What goes wrong in an intercepted tunnel or behind it, and whom that concerns.

use humboldt_tests::World;
use humboldt_tests::authority::{Key, openssl};
use humboldt_tests::servers::{run, succeed};
use humboldt_tests::wait::{free_address, start, until};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use super::{LOGINS, PASSWORDS, Setup, client_hello, fails, nginx, status_and_body};

const STARING: &str = "ssl_bump stare all\nssl_bump bump all";
const PEEKING: &str = "acl step1 at_step SslBump1\nssl_bump peek step1\nssl_bump bump all";

/// A parent that knows the names of the servers, and a proxy that asks nobody else.
fn behind_a_parent(of_parent: &str, options: &str, lines: &str) -> (World, Setup) {
    let hosts = humboldt_tests::proxy::open_folder().keep().join("hosts");
    fs::write(&hosts, super::HOSTS).expect("names");
    let parent = World::forward(&format!(
        "hosts_file {}\nunique_hostname parent.test\n{of_parent}\n",
        hosts.display()
    ));
    fs::write(parent.proxy.path("passwd"), PASSWORDS).expect("a password file");
    let address = parent.proxy.address();
    let (ip, port) = (address.ip(), address.port());
    let setup = Setup::new(&format!("cache_peer {ip} parent {port} 0 no-query {options}\n{lines}"));
    (parent, setup)
}

#[test]
fn servers_that_are_not_accepted_leave_their_parent_alive() {
    let lines = format!("never_direct allow all\n{STARING}");
    let (_parent, setup) = behind_a_parent("", "connect-fail-limit=2", &lines);
    for _ in 0..4 {
        let (status, page) = setup.get(&setup.url("other.test", "/a"));
        assert!(status == 503 && page.contains("DOMAIN_MISMATCH"), "{page}");
    }
    assert_eq!(setup.get(&setup.url("site.test", "/a")), (200, "hello".to_owned()));
    assert!(!setup.proxy.text("cache.log").contains("DEAD"));
}

#[test]
fn a_tunnel_of_one_user_is_not_used_by_another() {
    let logins = format!("{LOGINS}http_access deny !users");
    for way in ["ssl_bump bump all", STARING] {
        let lines = format!("never_direct allow all\n{way}");
        let (_parent, setup) = behind_a_parent(&logins, "login=PASS", &lines);
        let url = |path: &str| setup.url("site.test", path);
        let user = ["-U", "anna:secret", "--proxy-basic"];
        assert_eq!(succeed(setup.curl().args(user).arg(url("/a?1"))), "hello", "{way}");
        // Neither without a login, nor with one that is sent to the server.
        for field in ["X-Nothing: x", "Proxy-Authorization: Basic YW5uYTpzZWNyZXQ="] {
            let mut command = setup.curl();
            command.args(["-H", field, "-w", "\n%{http_code}"]).arg(url("/a?2"));
            let (status, page) = status_and_body(&mut command);
            assert!(status == 503 && page.contains("it says 407"), "{way}: {page}");
        }
        assert_eq!(succeed(setup.curl().args(user).arg(url("/a?3"))), "hello");
        // The server writes its log when it has answered.
        let asked = |path| setup.server.count(path);
        until("the server's log", || (asked("/a?1") + asked("/a?3") >= 2).then_some(()));
        assert_eq!((asked("/a?1"), asked("/a?2"), asked("/a?3")), (1, 0, 1));
    }
}

#[test]
fn a_tunnel_by_credentials_that_count_once_is_for_one_connection() {
    for way in ["ssl_bump bump all", STARING] {
        for (login, shares) in [("Digest nc=00000001", false), ("Basic YW5uYTpzZWNyZXQ=", true)] {
            let lines = format!("never_direct allow all\n{way}");
            let (parent, setup) = behind_a_parent("", "login=PASS", &lines);
            let field = format!("Proxy-Authorization: {login}");
            // Two requests on one connection; both may be stored, so that others might share them.
            let (one, two) = (setup.url("site.test", "/a?1"), setup.url("site.test", "/a?2"));
            for run in 1..=2 {
                let mut command = setup.curl();
                command.args(["--proxy-header", &field, "-H", "Cache-Control: no-cache"]);
                assert_eq!(succeed(command.args([&one, &two])), "hellohello", "{way}, {login}");
                if !shares {
                    // The tunnel has ended with the client's connection.
                    let _ = parent.proxy.logged_times("CONNECT site.test:", run);
                }
            }
            // A look is a connection of its own, which the first request then uses.
            let looks = way == STARING;
            let made = if shares && !looks { 1 } else { 2 };
            let reuses = if looks { 4 } else { 4 - made };
            assert_eq!(setup.metric("humboldt_server_connections_total"), made, "{way}, {login}");
            let reused = setup.metric("humboldt_server_connection_reuses_total");
            assert_eq!(reused, reuses, "{way}, {login}");
        }
    }
}

#[test]
fn a_parent_that_wants_another_login_ends_the_clients_connection() {
    let logins = format!("{LOGINS}http_access deny !users");
    for way in ["ssl_bump bump all", "ssl_bump stare all\nssl_bump bump all"] {
        let lines = format!("never_direct allow all\n{way}");
        let (_parent, setup) = behind_a_parent(&logins, "login=PASS", &lines);
        let url = setup.url("site.test", "/a");
        let text =
            String::from_utf8_lossy(&run(setup.curl().args(["-i", &url])).stdout).into_owned();
        assert!(text.contains("it says 407") && text.contains("Connection: close"), "{text}");
    }
}

#[test]
fn a_server_is_looked_at_by_the_way_of_the_requests() {
    for way in [PEEKING, STARING] {
        let (_parent, setup) = behind_a_parent("", "", way);
        assert_eq!(setup.get(&setup.url("site.test", "/a")), (200, "hello".to_owned()));
        assert!(setup.logged("GET ").ends_with(" FIRSTUP_PARENT"));
        assert!(setup.logged("CONNECT ").ends_with(" FIRSTUP_PARENT"));
        assert_eq!(setup.metric("humboldt_server_connections_total"), 1, "{way}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told_whatever_rules_say_of_certificates() {
    let setup = Setup::new(
        "acl bad server_cert_fingerprint \
         11:22:33:44:55:66:77:88:99:00:11:22:33:44:55:66:77:88:99:00\n\
         ssl_bump stare all\nssl_bump terminate bad\nssl_bump bump all",
    );
    let port = free_address().port();
    let url = format!("https://site.test:{port}/");
    let (status, page) = setup.get(&url);
    assert_eq!((status, page.contains("ERR_CONNECT_FAIL")), (503, true), "{page}");
    let line = setup.logged("CONNECT ");
    assert!(line.contains("ERR_CONNECT_FAIL") && line.ends_with(" HIER_DIRECT"), "{line}");
    // The page ends the connection: the server may be there for the next one.
    let mut command = setup.curl();
    let text = String::from_utf8_lossy(&run(command.args(["-i", &url])).stdout).into_owned();
    assert!(text.contains("Connection: close"), "{text}");
}

#[test]
fn a_denied_tunnel_is_logged_as_denied_also_if_nobody_sees_the_page() {
    let rules = "acl bad dstdomain site.test\nhttp_access deny bad\nssl_bump bump all";
    let setup = Setup::new(rules);
    fails(setup.curl_unknowing().arg(setup.url("site.test", "/a")));
    let line = setup.logged("CONNECT ");
    assert!(line.starts_with("TCP_DENIED/200 CONNECT site.test:"), "{line}");
    assert_eq!(setup.metric("humboldt_client_http_denied_total"), 1);
    // Nor is it counted once more where somebody does.
    assert_eq!(setup.get(&setup.url("site.test", "/a")).0, 403);
    assert_eq!(setup.logged_times("TCP_DENIED/200 CONNECT", 2).len(), 2);
    assert_eq!(setup.metric("humboldt_client_http_denied_total"), 2);
    // A rule that closes the connection is not answered with a page.
    let setup = Setup::new(&format!("{rules}\ndeny_info TCP_RESET bad"));
    fails(setup.curl().arg(setup.url("site.test", "/a")));
    assert!(setup.logged("TCP_DENIED/403").contains("CONNECT "));
}

#[test]
fn a_login_is_not_demanded_inside() {
    let setup = Setup::new(&format!(
        "{LOGINS}acl own dstdomain site.test\nacl connect method CONNECT\n\
         http_access allow connect own\nhttp_access deny !users\n{PEEKING}"
    ));
    fs::write(setup.proxy.path("passwd"), PASSWORDS).expect("a password file");
    let host = format!("third.test:{}", setup.server.address.port());
    let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = setup.s_client("site.test", &["-servername", "third.test"], &request);
    assert!(answer.contains("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn a_user_who_is_removed_is_refused_inside_of_his_tunnel() {
    let setup = Setup::new(&format!(
        "auth_param basic credentialsttl 1 second\n{LOGINS}http_access deny !users\n\
         ssl_bump bump all"
    ));
    fs::write(setup.proxy.path("passwd"), PASSWORDS).expect("a password file");
    let host = format!("site.test:{}", setup.server.address.port());
    let mut command = openssl("s_client");
    command.args(["-proxy", &setup.proxy.address().to_string(), "-quiet", "-connect", &host]);
    command.args(["-proxy_user", "anna", "-proxy_pass", "pass:secret"]);
    command.args(["-servername", "site.test"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = start(&mut command).expect("openssl starts");
    let (mut to, mut from) = (child.stdin.take().expect("in"), child.stdout.take().expect("out"));
    let mut ask = || {
        let request = format!("HEAD /a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        to.write_all(request.as_bytes()).expect("sent");
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            from.read_exact(&mut byte).expect("an answer");
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    assert!(ask().contains("HTTP/1.1 200 "));
    fs::write(setup.proxy.path("passwd"), "bert:x\n").expect("a password file");
    until("the refusal", || ask().contains("HTTP/1.1 403 ").then_some(()));
    drop(to);
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn other_protocols_pass_for_the_reasons_that_the_file_names() {
    let setup = Setup::new(
        "ssl_bump bump all\nacl foreign squid_error ERR_PROTOCOL_UNKNOWN\n\
         on_unsupported_protocol tunnel foreign",
    );
    let mut client = setup.tunnel("site.test");
    client.send("GET /a HTTP/1.1\r\nHost: site.test\r\n\r\n");
    assert_eq!(client.response().status(), 400, "nginx wants TLS, and says so in plain text");
    // A server that speaks first.
    for (error, passes) in [("ERR_REQUEST_START_TIMEOUT", true), ("ERR_PROTOCOL_UNKNOWN", false)] {
        let setup = Setup::new(&format!(
            "ssl_bump bump all\nrequest_start_timeout 2 seconds\nacl silent squid_error {error}\n\
             on_unsupported_protocol tunnel silent"
        ));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            _ = stream.write_all(b"220 hello");
        });
        let mut client = setup.proxy.client();
        let place = format!("site.test:{port}");
        client.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
        assert_eq!(client.head().word(1), "200");
        if passes {
            assert_eq!(client.bytes(9), b"220 hello");
            server.join().expect("a server");
        } else {
            assert!(client.closes());
            assert!(setup.logged("CONNECT").contains("no_client_handshake"));
        }
    }
}

#[test]
fn a_tunnel_that_is_decrypted_has_a_place_in_the_budget() {
    let setup = Setup::new("client_budget tunnels=1\nssl_bump bump all");
    let mut open = setup.tunnel("site.test");
    open.send(client_hello("site.test")).bytes(3);
    let place = format!("site.test:{}", setup.server.address.port());
    let connect = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    let mut next = setup.proxy.client();
    next.send(&connect);
    assert_eq!(next.head().word(1), "429");
    drop((open, next));
    until("the place to be free", || {
        let mut next = setup.proxy.client();
        next.send(&connect);
        (next.head().word(1) == "200").then_some(())
    });
}

#[test]
fn a_client_that_looks_names_up_itself_is_strict_enough() {
    let setup = Setup::new(&format!("host_verify_strict on\n{PEEKING}"));
    let host = format!("site.test:{}", setup.server.address.port());
    let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = setup.s_client("127.0.0.1", &["-servername", "site.test"], &request);
    assert!(answer.contains("HTTP/1.1 200 "), "{answer}");
    let answer = setup.s_client("127.0.0.2", &["-servername", "site.test"], &request);
    assert!(answer.contains("HTTP/1.1 409 "), "{answer}");
}

#[test]
fn a_server_that_ends_at_the_first_message_is_told_in_the_log() {
    let setup = Setup::new("ssl_bump peek all");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // Nothing; and half an alert, which is for the client.
    for says in [&b""[..], b"\x15\x03\x03\x00"] {
        let mut client = setup.proxy.client();
        let place = format!("site.test:{port}");
        client.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
        assert_eq!(client.head().word(1), "200");
        client.send(client_hello("site.test"));
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut first = [0; 5];
        stream.read_exact(&mut first).expect("the message");
        stream.write_all(says).expect("sent");
        let mut rest = vec![0; usize::from(u16::from_be_bytes([first[3], first[4]]))];
        stream.read_exact(&mut rest).expect("the rest");
        drop(stream);
        match says {
            b"" => {
                assert!(client.closes());
                let line = setup.logged("CONNECT ");
                assert!(line.contains(" ERR_READ_ERROR "), "{line}");
            }
            _ => assert_eq!(client.bytes(4), says),
        }
    }
}

#[test]
fn rules_that_come_later_are_for_connections_that_are_open_too() {
    let setup = Setup::new("ssl_bump bump all");
    let lines = Setup::lines(
        &setup.servers,
        &setup.hosts,
        "acl bad urlpath_regex ^/bad\n\
                             http_access deny bad",
    );
    setup.proxy.write_configuration("", &lines);
    setup.proxy.signal(rustix::process::Signal::HUP);
    let mut client = until("the rules to change", || {
        let mut client = setup.proxy.client();
        client.request("GET", "http://site.test/bad", &[], b"");
        (client.response().status() == 403).then_some(client)
    });
    setup.reconfigure("ssl_bump bump all");
    until("the rules to change", || {
        let mut client = setup.proxy.client();
        client.request("GET", "http://site.test/bad", &[], b"");
        (client.response().status() != 403).then_some(())
    });
    let place = format!("site.test:{}", setup.server.address.port());
    client.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
    assert_eq!(client.head().word(1), "200");
    client.send(client_hello("site.test")).bytes(3);
    assert_eq!(setup.metric("humboldt_bump_certificates_made_total"), 1);
}

#[test]
fn what_only_would_be_refused_by_its_name_in_tls_is_reported() {
    let setup = Setup::new(
        "logformat told %rm %reported_rule\naccess_log stdio:{dir}/told.log told\n\
         report_only allow all\nacl bad dstdomain third.test\nhttp_access deny bad\n\
         acl step1 at_step SslBump1\nssl_bump peek step1\nssl_bump splice all",
    );
    let request = "GET /a HTTP/1.1\r\nHost: third.test\r\nConnection: close\r\n\r\n";
    let answer = setup.s_client("site.test", &["-servername", "third.test"], request);
    assert!(answer.contains("HTTP/1.1 200 "), "{answer}");
    until("the line", || setup.proxy.text("told.log").contains("CONNECT /").then_some(()));
}

#[test]
fn what_was_forgiven_stays_forgiven_on_a_connection_that_logs_in() {
    let setup =
        Setup::with_server("sslproxy_cert_error allow all\nssl_bump splice all", |servers| {
            let own = servers.issue("own", Key::Ecdsa, "/CN=x", "DNS:wrong.test");
            nginx(&own, "add_header Cache-Control public;")
        });
    let mut client = setup.proxy.client();
    let url = setup.url("site.test", "/a");
    for login in [Some("NTLM abc"), None, None] {
        let fields: Vec<(&str, &str)> = login.iter().map(|it| ("Authorization", *it)).collect();
        client.request("GET", &url, &fields, b"");
        assert_eq!(client.response().expect(200).cache(), "MISS");
    }
    setup.asked(3);
    assert_eq!(setup.metric("humboldt_server_connections_total"), 1);
    // When the rule is gone, so is the connection.
    setup.reconfigure("ssl_bump splice all");
    until("the rules to change", || {
        client.request("GET", &url, &[], b"");
        (client.response().status() == 503).then_some(())
    });
}

#[test]
fn a_parent_in_place_of_the_server_is_looked_at_and_its_name_is_not_shown() {
    let setup = Setup::new("ssl_bump splice all");
    let (port, authority) = (setup.server.address.port(), setup.servers.ca());
    setup.reconfigure(&format!(
        "cache_peer 127.0.0.1 parent {port} 0 no-query originserver tls tls-domain=site.test \
         tls-cafile={}\nnever_direct allow all\nacl bad server_cert_fingerprint \
         11:22:33:44:55:66:77:88:99:00:11:22:33:44:55:66:77:88:99:00\n\
         ssl_bump stare all\nssl_bump terminate bad\nssl_bump bump all",
        authority.display()
    ));
    until("the rules to change", || {
        (setup.get(&setup.url("site.test", "/a")).0 == 200).then_some(())
    });
    assert_eq!(setup.get(&setup.url("other.test", "/a")), (200, "hello".to_owned()));
}

/// A ServerHello that asks for another first message (HelloRetryRequest), with the group P-384.
fn retry_request() -> Vec<u8> {
    const RANDOM: [u8; 32] = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8,
        0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8,
        0x33, 0x9c,
    ];
    // Version, random number, session, cipher, compression, extensions: version 1.3, the group.
    let extensions = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 24];
    let hello = [&[3, 3][..], &RANDOM, &[0, 0x13, 0x01, 0, 0, extensions.len() as u8], &extensions]
        .concat();
    let message = [&[2, 0, 0, hello.len() as u8][..], &hello].concat();
    [&[22, 3, 3, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn the_second_message_of_a_client_has_the_name_of_the_first() {
    let change = vec![20, 3, 3, 0, 1, 1];
    // A record of early data that looks like the message that is waited for.
    let fake = client_hello("site.test");
    let [high, low] = u16::try_from(fake.len()).expect("a short message").to_be_bytes();
    let head_of_early_data = vec![23, 3, 3, high, low];
    for way in [
        "acl step1 at_step SslBump1\nssl_bump peek step1\nssl_bump splice all",
        "ssl_bump peek all\nssl_bump splice all",
    ] {
        // What comes with the first message, and what before the second one.
        for (with_first, before, second, passes) in [
            (vec![], &change, "site.test", true),
            (vec![], &change, "other.test", false),
            (head_of_early_data.clone(), &fake, "site.test", true),
            (head_of_early_data.clone(), &fake, "other.test", false),
        ] {
            let setup = Setup::new(way);
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let place = format!("site.test:{}", listener.local_addr().expect("a port").port());
            let mut client = setup.proxy.client();
            client.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
            assert_eq!(client.head().word(1), "200");
            let first = client_hello("site.test");
            client.send([&first[..], &with_first[..]].concat());
            let (mut server, _) = listener.accept().expect("a connection");
            let mut got = vec![0; first.len()];
            server.read_exact(&mut got).expect("the first message");
            assert_eq!(got, first);
            let asked = retry_request();
            server.write_all(&asked).expect("written");
            assert_eq!(client.bytes(asked.len()), asked, "{way}");
            let hello = [&before[..], &client_hello(second)].concat();
            // In two parts.
            client.send(&hello[..100]);
            client.send(&hello[100..]);
            if passes {
                let sent = [&with_first[..], &hello[..]].concat();
                let mut got = vec![0; sent.len()];
                server.read_exact(&mut got).expect("the second message");
                assert_eq!(got, sent);
                server.write_all(b"more").expect("written");
                assert_eq!(client.bytes(4), b"more");
            } else {
                let mut got = Vec::new();
                let _ = server.read_to_end(&mut got);
                assert!(got.is_empty(), "{way}: nothing of it reaches the server");
                assert!(client.closes());
                assert!(setup.logged("CONNECT").contains("tunnel_without_tls"), "{way}");
            }
        }
    }
}
