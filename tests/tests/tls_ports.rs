//! `https_port`: accelerators and proxies that speak TLS with their clients.

use humboldt_tests::authority::{Authority, Certificate, Key, openssl};
use humboldt_tests::secured::{Secured, ca, port_line};
use humboldt_tests::servers::{program, run, succeed};
use humboldt_tests::wait::{Gate, free_address, start, until};
use humboldt_tests::{Client, Reply, World};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_proxy_can_be_talked_to_through_tls() {
    let secured = Secured::forward("", "");
    let origin = &secured.world.origin;
    origin.on("/a", Reply::ok("hello").cachable(60));
    for cache in ["MISS", "HIT"] {
        let text = succeed(secured.curl().arg("-i").arg(origin.url("/a")));
        assert!(text.contains(&format!("X-Cache: {cache} ")) && text.ends_with("hello"), "{text}");
    }
    assert_eq!(origin.count("/a"), 1);
    // A tunnel.
    let text = succeed(secured.curl().args(["-p", &origin.url("/a")]));
    assert_eq!(text, "hello");
    // A body larger than all buffers, in both directions.
    let large = vec![b'x'; 9 << 20];
    origin.on("/large", Reply::ok(large.clone()));
    let file = secured.authority.path("large");
    std::fs::write(&file, &large).expect("a file");
    let mut command = secured.curl();
    command.arg("--data-binary").arg(format!("@{}", file.display())).arg(origin.url("/large"));
    assert_eq!(succeed(&mut command).len(), large.len());
    assert_eq!(secured.world.metric("humboldt_client_tls_failures_total"), 0);
    assert!(secured.world.metric("humboldt_client_tls_handshakes_total") >= 4);
}

#[test]
fn an_accelerator_has_https_urls_and_keeps_connections() {
    let secured = Secured::with("accel defaultsite=site.test", "", "");
    secured.world.origin.on("/a", Reply::ok("hello").cachable(60));
    let urls = [secured.site("/a"), secured.site("/a")];
    let mut command = secured.curl_to_site();
    command.args(["-w", " %{num_connects} %{http_code} %{ssl_verify_result}\n"]).args(&urls);
    assert_eq!(succeed(&mut command), "hello 1 200 0\nhello 0 200 0\n");
    let line = secured.world.proxy.logged_times("/a", 2).pop().unwrap_or_default();
    assert!(line.contains("TCP_MEM_HIT/200") && line.contains("https://site.test"), "{line}");
    // The same path of http is another object.
    let mut client = secured.world.client();
    client.request("GET", "/a", &[], b"");
    assert_eq!(client.response().expect(200).cache(), "MISS");
}

#[test]
fn many_clients_are_served_at_once() {
    let secured = Secured::with("accel defaultsite=site.test", "", "workers 2\n");
    let page = vec![b'x'; 100_000];
    secured.world.origin.on("/a", Reply::ok(&page).cachable(60));
    for options in [&["-k"][..], &[]] {
        let mut ab = Command::new(program("ab"));
        ab.args(["-q", "-n", "1000", "-c", "50"]).args(options);
        let text = succeed(ab.arg(format!("https://{}/a", secured.address)));
        for wanted in ["Complete requests:      1000\n", "Failed requests:        0\n"] {
            assert!(text.contains(wanted), "{options:?}: {text}");
        }
    }
    // When it has all answers, it leaves connections on which it was about to ask for more.
    assert!(secured.world.metric("humboldt_client_tls_failures_total") <= 2 * 50);
}

#[test]
fn the_name_and_the_kind_of_key_choose_the_certificate() {
    let authority = Authority::new("tests");
    let issue = |file: &str, key, names: &str| {
        let subject = format!("/CN={file}");
        authority.issue(file, key, &subject, names).options("tls-")
    };
    let certificates = [
        issue("first", Key::Ecdsa, "DNS:first.test"),
        issue("first-rsa", Key::Rsa, "DNS:first.test"),
        issue("wild", Key::Ecdsa, "DNS:*.wild.test"),
        issue("exact", Key::Ecdsa, "DNS:a.wild.test"),
    ];
    let address = free_address();
    let world = World::forward(&format!("https_port {address} {}\n", certificates.join(" ")));
    let secured = Secured { world, authority, address };
    for (options, wanted) in [
        (&["-servername", "first.test"][..], "first"),
        (&["-servername", "a.wild.test"], "exact"),
        (&["-servername", "B.Wild.Test"], "wild"),
        (&["-servername", "c.b.wild.test"], "first"),
        (&["-noservername"], "first"),
        (&["-servername", "first.test", "-sigalgs", "RSA-PSS+SHA256"], "first-rsa"),
        (
            &["-servername", "first.test", "-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
            "first-rsa",
        ),
    ] {
        let text = secured.handshake(options);
        assert!(text.contains(&format!("subject=CN = {wanted}\n")), "{options:?}: {text}");
    }
}

#[test]
fn sessions_are_resumed_on_any_core() {
    for version in ["-tls1_3", "-tls1_2"] {
        let secured = Secured::forward("", "workers 2\n");
        let session = secured.authority.path("session").display().to_string();
        // With TLS 1.3 the tickets come behind the handshake: with the answer at the latest.
        let mut first = openssl("s_client");
        first.args(["-connect", &secured.address.to_string(), version, "-sess_out", &session]);
        first.args(["-quiet", "-ign_eof"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut first = start(first.stderr(Stdio::null())).expect("openssl");
        let page = secured.world.proxy.page("squid-internal-mgr/menu");
        let request = format!("GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        first.stdin.take().expect("a pipe").write_all(request.as_bytes()).expect("sent");
        assert!(first.wait().expect("an end").success());
        for _ in 0..4 {
            let text = secured.handshake(&[version, "-sess_in", &session]);
            assert!(text.contains("Reused, "), "{version}: {text}");
        }
        secured.wait_for("resumed", 4);
    }
}

#[test]
fn a_certificate_of_a_client_is_verified_on_each_connection() {
    for version in ["-tls1_3", "-tls1_2"] {
        let secured = Secured::forward("clientca={ca}", "");
        let own = secured.authority.issue("alice", Key::Ecdsa, "/CN=alice", "");
        let (file, key) = (own.file.display().to_string(), own.key.display().to_string());
        let session = secured.authority.path("session").display().to_string();
        let mut first = openssl("s_client");
        first.args(["-connect", &secured.address.to_string(), version, "-sess_out", &session]);
        first.args(["-cert", &file, "-key", &key, "-quiet", "-ign_eof"]);
        first.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut first = start(&mut first).expect("openssl");
        let page = secured.world.proxy.page("squid-internal-mgr/menu");
        let request = format!("GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        first.stdin.take().expect("a pipe").write_all(request.as_bytes()).expect("sent");
        assert!(first.wait().expect("an end").success());
        // Where there is a session at all, it is not taken up.
        let mut again = vec![version, "-cert", &file, "-key", &key];
        if std::path::Path::new(&session).exists() {
            again.extend(["-sess_in", &session]);
        }
        let text = secured.handshake(&again);
        assert!(text.contains("New, ") && !text.contains("Reused, "), "{version}: {text}");
        secured.wait_for("handshakes", 2);
        secured.wait_for("resumed", 0);
    }
}

#[test]
fn the_scheme_is_that_of_the_port_whatever_a_client_writes() {
    let secured = Secured::with("accel defaultsite=site.test", "", "");
    let origin = &secured.world.origin;
    origin.on("/a", Reply::ok("hello").cachable(60));
    // Over a plain connection, somebody asks for what clients of https will ask for.
    let mut client = secured.world.client();
    let site = secured.site("/a");
    client.send(format!("GET {site} HTTP/1.1\r\nHost: site.test\r\n\r\n"));
    _ = client.response().expect(200);
    let line = secured.world.proxy.logged_times("/a", 1).pop().unwrap_or_default();
    assert!(line.contains(" http://site.test"), "{line}");
    assert_eq!(succeed(secured.curl_to_site().arg(&site)), "hello");
    assert_eq!(origin.count("/a"), 2, "it is another object");
}

#[test]
fn each_unix_socket_has_its_own_settings() {
    let authority = Authority::new("tests");
    let own = authority.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test");
    let path = |name: &str| authority.path(name).display().to_string();
    let line = |name: &str, options: &str| {
        let place = format!("unix:{} accel defaultsite=site.test mode=666", path(name));
        format!("https_port {place} {} {options}\n", own.options("tls-"))
    };
    let lines = line("closed", &format!("clientca={}", ca(&authority))) + &line("open", "");
    let world = World::reverse(&lines);
    world.origin.on("/a", Reply::ok("hello"));
    let ask = |name: &str| {
        let mut command = Command::new(program("curl"));
        command.args(["--silent", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}"]);
        command.arg("--unix-socket").arg(path(name)).arg("--cacert").arg(authority.ca());
        let output = run(command.arg("https://site.test/a"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!((ask("closed"), ask("open")), ("000".to_owned(), "200".to_owned()));
}

#[test]
fn only_versions_and_protocols_of_today_are_spoken() {
    let secured = Secured::forward("", "");
    for old in ["-tls1", "-tls1_1"] {
        let text = secured.handshake(&[old, "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(text.contains("Cipher is (NONE)") && text.contains(" alert "), "{old}: {text}");
    }
    // A client that can verify only another kind of key.
    for rsa in [
        &["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"][..],
        &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
    ] {
        let text = secured.handshake(rsa);
        assert!(text.contains("alert handshake failure"), "{rsa:?}: {text}");
    }
    let text = secured.handshake(&["-alpn", "h2,http/1.1"]);
    assert!(text.contains("ALPN protocol: http/1.1"), "{text}");
    let text = Secured::forward("tls-min-version=1.3", "").handshake(&["-tls1_2"]);
    assert!(text.contains("Cipher is (NONE)") && text.contains(" alert "), "{text}");
}

#[test]
fn clients_show_certificates_and_rules_and_logs_see_them() {
    let lines = "logformat own %ssl::>cert_subject %ssl::>cert_issuer %us %ssl::>negotiated_version %ssl::>negotiated_cipher %Ss/%>Hs %ru\n\
                 access_log stdio:{dir}/own.log own\n\
                 acl alice user_cert CN alice\nacl known ca_cert CN tests\n\
                 http_access allow alice known\n\
                 http_access deny all\n";
    let secured = Secured::forward("clientca={ca} sslflags=CONDITIONAL_AUTH", lines);
    let origin = &secured.world.origin;
    origin.on("/a", Reply::ok("hello"));
    let other = Authority::new("others");
    let ask = |own: Option<&Certificate>| secured.status_with(own, &origin.url("/a"));
    let issue = |name: &str| {
        let subject = format!("/O=Tests/CN={name}/emailAddress={name}@a.test");
        secured.authority.issue(name, Key::Ecdsa, &subject, "")
    };
    assert_eq!(ask(Some(&issue("alice"))), "200");
    assert_eq!(ask(Some(&issue("bob"))), "403");
    assert_eq!(ask(None), "403");
    // One of an authority that is not known ends the connection.
    assert_eq!(ask(Some(&other.issue("alice", Key::Ecdsa, "/CN=alice", ""))), "000");
    let own = until("a line", || {
        let text = secured.world.proxy.text("own.log");
        (text.lines().count() >= 3).then_some(text)
    });
    // Lines of two cores are in no order.
    let first = own.lines().find(|line| line.contains("/CN=alice/")).unwrap_or_default();
    for part in
        ["/CN=alice/O=Tests/", "/CN=tests ", " alice@a.test ", " TLS/1.3 TLS_AES_", "TCP_MISS/200"]
    {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(own.lines().any(|line| line.starts_with("- - - TLS/1.3 ")), "{own}");
}

#[test]
fn required_certificates_are_required_and_revoked_ones_refused() {
    let authority = Authority::new("tests");
    let own = authority.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost");
    let (good, bad) = (
        authority.issue("good", Key::Ecdsa, "/CN=good", ""),
        authority.issue("bad", Key::Ecdsa, "/CN=bad", ""),
    );
    let list = authority.revoke(Some(&bad));
    let address = free_address();
    let options = format!("clientca={} crlfile={}", ca(&authority), list.display());
    let world = World::forward(&port_line(address, "", &own, &options));
    let secured = Secured { world, authority, address };
    let origin = &secured.world.origin;
    origin.on("/a", Reply::ok("hello"));
    let ask = |own: Option<&Certificate>| secured.status_with(own, &origin.url("/a"));
    assert_eq!(
        (ask(Some(&good)), ask(Some(&bad)), ask(None)),
        ("200".into(), "000".into(), "000".into())
    );
    secured.wait_for("failures", 2);
}

#[test]
fn what_is_no_tls_is_answered_or_closed() {
    let secured = Secured::forward("", "");
    let send = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(secured.address).expect("connected");
        socket.write_all(bytes).expect("sent");
        let mut answer = Vec::new();
        _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("speaks https"), "{answer}");
    assert_eq!(send(b"\x00\x01\x02"), "");
    assert_eq!(send(b"\xff"), "");
    // A record of a handshake without one, and one that announces more than there may be.
    for garbage in [&b"\x16\x03\x01\x00\x05hello"[..], b"\x16\x03\x01\xff\xff"] {
        assert!(!send(garbage).contains("HTTP"), "{garbage:?}");
    }
    secured.wait_for("failures", 5);
    assert_eq!(secured.world.metric("humboldt_client_tls_handshakes_total"), 0);
}

/// A way to `address` on which the bytes of the client come one by one.
fn slow_way(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut server = TcpStream::connect(address).expect("connected");
        server.set_nodelay(true).expect("a socket");
        let (mut from, mut to) =
            (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut byte = [0];
        while client.read(&mut byte).is_ok_and(|read| read == 1) {
            if server.write_all(&byte).is_err() {
                return;
            }
        }
        _ = server.shutdown(Shutdown::Write);
    });
    own
}

#[test]
fn a_client_hello_in_pieces_is_read() {
    let mut secured = Secured::forward("", "");
    secured.world.origin.on("/a", Reply::ok("hello"));
    secured.address = slow_way(secured.address);
    assert_eq!(succeed(secured.curl().arg(secured.world.origin.url("/a"))), "hello");
}

#[test]
fn a_client_that_does_not_get_on_is_not_waited_for() {
    let secured = Secured::forward("", "request_start_timeout 1 seconds\n");
    let mut silent = TcpStream::connect(secured.address).expect("connected");
    let mut stalled = TcpStream::connect(secured.address).expect("connected");
    stalled.write_all(b"\x16\x03\x01").expect("sent");
    for socket in [&mut silent, &mut stalled] {
        let mut answer = Vec::new();
        _ = socket.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}

/// Handshakes that are begun and never finished; 20,000 with `HUMBOLDT_TEST_HANDSHAKES=20000`.
#[test]
fn a_flood_of_handshakes_leaves_others_served() {
    let wanted = std::env::var("HUMBOLDT_TEST_HANDSHAKES").ok().and_then(|text| text.parse().ok());
    // More than a core has places for.
    let (count, places) = (wanted.unwrap_or(1_500_usize), 1024);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("what is allowed");
    let secured = Secured::forward("", "workers 1\n");
    secured.world.origin.on("/a", Reply::ok("hello"));
    let mut flood = Vec::new();
    for at in 0..count {
        let mut socket = TcpStream::connect(secured.address).expect("connected");
        // The beginning of a ClientHello.
        socket.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").expect("sent");
        flood.push(socket);
        if at % 500 == 499 {
            assert_eq!(succeed(secured.curl().arg(secured.world.origin.url("/a"))), "hello");
        }
    }
    assert_eq!(succeed(secured.curl().arg(secured.world.origin.url("/a"))), "hello");
    let given_way = count - places;
    until("the oldest to give way", || {
        let closed = secured.world.metric("humboldt_client_tls_given_way_total");
        (closed >= given_way as u64).then_some(())
    });
    assert_eq!(
        secured.world.metric("humboldt_client_tls_handshakes_total"),
        1 + count as u64 / 500
    );
}

#[test]
fn a_client_that_leaves_ends_its_fetch() {
    let secured = Secured::forward("", "quick_abort_min 0 KB\nquick_abort_max 0 KB\n");
    let origin = &secured.world.origin;
    let (gate, asked) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
    let (door, sign) = (Arc::clone(&gate), Arc::clone(&asked));
    origin.handle("/held", move |_, wire| {
        sign.store(true, Ordering::Relaxed);
        door.pass();
        wire.close();
    });
    let mut child =
        start(secured.curl().arg(origin.url("/held")).stdout(Stdio::null()).stderr(Stdio::null()))
            .expect("curl");
    until("the request", || asked.load(Ordering::Relaxed).then_some(()));
    child.kill().expect("killed");
    child.wait().expect("an end");
    let line = secured.world.proxy.logged("/held");
    assert!(line.contains("ABORTED"), "{line}");
    gate.open();
}

#[test]
fn an_answer_that_is_cut_off_has_no_notice_of_its_end() {
    let secured = Secured::forward("", "");
    let origin = &secured.world.origin;
    origin.handle("/cut", |_, wire| {
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart");
        wire.close();
    });
    origin.on("/a", Reply::ok("hello"));
    let ask = |path: &str| {
        let mut command = openssl("s_client");
        command.args(["-connect", &secured.address.to_string(), "-ign_eof", "-trace"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = start(&mut command).expect("openssl");
        let url = origin.url(path);
        let request = format!("GET {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.stdin.as_mut().expect("a pipe").write_all(request.as_bytes()).expect("sent");
        let output = client.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let received = text.split("Received Record").skip(1);
        received.filter(|record| record.contains("close notify")).count()
    };
    assert_eq!((ask("/a"), ask("/cut")), (1, 0));
}

#[test]
fn plain_clients_are_served_beside() {
    let secured = Secured::forward("", "");
    secured.world.origin.on("/a", Reply::ok("hello"));
    let _: Client = secured.world.client();
    assert_eq!(secured.world.get("/a").expect(200).text(), "hello");
}
