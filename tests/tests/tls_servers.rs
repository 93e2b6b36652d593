//! TLS towards servers and parents: absolute `https://` URLs, accelerators, peers, and servers
//! whose certificates are not accepted.

use humboldt_tests::authority::{Authority, Certificate, Key, openssl, self_signed};
use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::{Server, succeed};
use humboldt_tests::wait::{Gate, free_address, start, until};
use humboldt_tests::{Proxy, Reply, Response, World};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// nginx with this certificate, and a file `/a`.
fn nginx(own: &Certificate, lines: &str) -> Server {
    let (certificate, key) = (own.file.display(), own.key.display());
    let server = Server::nginx(
        "ssl",
        &format!("ssl_certificate {certificate}; ssl_certificate_key {key}; {lines}"),
    );
    server.put("a", "hello");
    server
}

fn ask(proxy: &Proxy, url: &str) -> Response {
    let mut client = proxy.client();
    client.request("GET", url, &[], b"");
    client.response()
}

fn url(server: &Server, path: &str) -> String {
    format!("https://localhost:{}{path}", server.address.port())
}

fn issue(authority: &Authority) -> Certificate {
    authority.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost")
}

/// The line that trusts an authority.
fn trust(authority: &Authority) -> String {
    format!("tls_outgoing_options cafile={}\n", authority.ca().display())
}

#[test]
fn a_proxy_fetches_https_urls_and_caches_them() {
    let authority = Authority::new("tests");
    let server =
        nginx(&issue(&authority), "add_header Cache-Control max-age=60; keepalive_timeout 60;");
    let proxy = Proxy::forward(&format!("workers 1\n{}", trust(&authority)));
    server.put("b", vec![b'x'; 5 << 20]);
    for cache in ["MISS", "HIT"] {
        let answer = ask(&proxy, &url(&server, "/a")).expect(200);
        assert_eq!((answer.cache(), answer.text().as_str()), (cache, "hello"));
    }
    assert_eq!(ask(&proxy, &url(&server, "/b")).expect(200).body.len(), 5 << 20);
    assert_eq!(server.count("/a"), 1);
    // The connection was used again.
    let page = ask(&proxy, &proxy.page("metrics")).text();
    assert!(page.contains("humboldt_server_connection_reuses_total 1\n"), "{page}");
    // The key of the object has the scheme.
    let other = ask(&proxy, &url(&server, "/a").replace("https:", "http:"));
    assert_eq!(other.status(), 400, "nginx is not fooled, and neither is the cache");
}

#[test]
fn uploads_reach_servers_over_tls() {
    let authority = Authority::new("tests");
    let lines = "location /up { client_max_body_size 64m; dav_methods PUT; client_body_in_single_buffer on; }";
    let server = nginx(&issue(&authority), lines);
    let proxy = Proxy::forward(&trust(&authority));
    let body: Vec<u8> = (0..3 << 20).map(|at: usize| (at / 251) as u8).collect();
    let mut client = proxy.client();
    client.request("PUT", &url(&server, "/up"), &[], &body);
    assert_eq!(client.response().status(), 201);
    assert!(std::fs::read(server.folder.path().join("site/up")).expect("a file") == body);
}

/// The page, the log and Proxy-Status for an answer that there is not.
fn refused(proxy: &Proxy, url: &str, words: &str, code: &str) {
    let answer = ask(proxy, url).expect(503);
    assert_eq!(answer.field("X-Squid-Error"), Some("ERR_SECURE_CONNECT_FAIL 0"));
    assert!(answer.text().contains(words), "{words}: {}", answer.text());
    let status = answer.field("Proxy-Status").unwrap_or_default();
    assert!(status.contains("error=tls_certificate_error"), "{status}");
    let line = proxy.logged(code);
    assert!(line.starts_with("ERR_SECURE_CONNECT_FAIL "), "{line}");
}

const LOG: &str = "logformat own %err_code %err_detail\naccess_log stdio:{dir}/access.log own\n";

#[test]
fn servers_that_cannot_prove_who_they_are_are_refused_in_every_way() {
    let (authority, folder) = (Authority::new("tests"), open_folder());
    let other = Authority::new("others");
    let expired = authority.issue_expired("expired", "/CN=localhost", "DNS:localhost");
    let revoked = authority.issue("revoked", Key::Rsa, "/CN=localhost", "DNS:localhost");
    let cases = [
        (
            authority.issue("wrong", Key::Ecdsa, "/CN=localhost", "DNS:other.test"),
            "for another name: other.test",
            "SQUID_X509_V_ERR_DOMAIN_MISMATCH",
        ),
        (expired, "has expired", "X509_V_ERR_CERT_HAS_EXPIRED"),
        (
            self_signed(&folder, "/CN=localhost", "DNS:localhost"),
            "signed by itself",
            "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT",
        ),
        (
            other.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost"),
            "signed by no authority",
            "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
        ),
        (revoked.clone(), "revoked", "X509_V_ERR_CERT_REVOKED"),
    ];
    let list = authority.revoke(Some(&revoked));
    let trusted = format!("cafile={} crlfile={}", authority.ca().display(), list.display());
    for (own, words, code) in cases {
        let server = nginx(&own, "");
        let port = server.address.port();
        // By a URL.
        let forward = Proxy::forward(&format!("tls_outgoing_options {trusted}\n{LOG}"));
        refused(&forward, &url(&server, "/a"), words, code);
        // By an accelerator, and by a parent that is a proxy.
        let options = trusted.split(' ').map(|option| format!("tls-{option}"));
        let options = options.collect::<Vec<_>>().join(" ");
        for kind in ["originserver", ""] {
            let peer = format!(
                "cache_peer localhost parent {port} 0 no-query {kind} tls {options}\nnever_direct allow all\n{LOG}"
            );
            refused(&Proxy::forward(&peer), "http://site.test/a", words, code);
        }
        assert_eq!(server.text("access.log"), "", "nothing was sent");
        // Said to be of no interest.
        let proxy = Proxy::forward("tls_outgoing_options flags=DONT_VERIFY_PEER\n");
        assert_eq!(ask(&proxy, &url(&server, "/a")).expect(200).text(), "hello");
    }
}

#[test]
fn servers_with_weak_or_forbidden_certificates_are_refused() {
    let authority = Authority::new("tests");
    let narrow = Authority::for_domain("narrow", "elsewhere.test");
    let of_servers =
        |authority: &Authority, key| authority.issue("own", key, "/CN=localhost", "DNS:localhost");
    let weak = authority.issue_weakly("weak", "/CN=localhost", "DNS:localhost");
    // nginx itself takes such ones at a lower level of OpenSSL's only.
    let lower = "ssl_ciphers DEFAULT:@SECLEVEL=0; ";
    for (own, authority, words, code) in [
        (weak, &authority, "a method that is too weak", "X509_V_ERR_CA_MD_TOO_WEAK"),
        (
            of_servers(&authority, Key::Short),
            &authority,
            "key of the certificate is too short",
            "X509_V_ERR_EE_KEY_TOO_SMALL",
        ),
        (
            of_servers(&narrow, Key::Ecdsa),
            &narrow,
            "may not sign certificates for this name",
            "X509_V_ERR_PERMITTED_VIOLATION",
        ),
    ] {
        let server = nginx(&own, lower);
        let forward = Proxy::forward(&format!("{}{LOG}", trust(authority)));
        refused(&forward, &url(&server, "/a"), words, code);
        let peer = format!(
            "cache_peer localhost parent {} 0 no-query originserver tls tls-cafile={}\n{LOG}",
            server.address.port(),
            authority.ca().display()
        );
        refused(&Proxy::start("accel defaultsite=site.test", &peer), "/a", words, code);
        assert_eq!(server.text("access.log"), "", "nothing was sent");
    }
}

#[test]
fn the_systems_authorities_do_not_know_ours_and_the_own_certificate_can_be_named() {
    let folder = open_folder();
    let own = self_signed(&folder, "/CN=localhost", "DNS:localhost");
    let server = nginx(&own, "");
    let proxy = Proxy::forward(LOG);
    refused(&proxy, &url(&server, "/a"), "signed by itself", "SELF_SIGNED");
    let proxy = Proxy::forward(&format!("tls_outgoing_options cafile={}\n", own.file.display()));
    assert_eq!(ask(&proxy, &url(&server, "/a")).expect(200).text(), "hello");
    // It is trusted for its own names only.
    let lines =
        format!("tls_outgoing_options cafile={} domain=other.test\n{LOG}", own.file.display());
    refused(&Proxy::forward(&lines), &url(&server, "/a"), "another name", "DOMAIN_MISMATCH");
    let lines = format!(
        "tls_outgoing_options cafile={} domain=other.test flags=DONT_VERIFY_DOMAIN\n",
        own.file.display()
    );
    assert_eq!(ask(&Proxy::forward(&lines), &url(&server, "/a")).expect(200).text(), "hello");
}

#[test]
fn a_peer_has_its_own_names_authorities_and_certificate() {
    let authority = Authority::new("tests");
    let server_side = authority.issue("server", Key::Ecdsa, "/CN=x", "DNS:backend.test");
    let client_side = authority.issue("client", Key::Rsa, "/CN=proxy", "");
    let ca = authority.ca().display().to_string();
    let lines = format!(
        "ssl_client_certificate {ca}; ssl_verify_client on; add_header X-Client $ssl_client_s_dn; \
         add_header X-Name $ssl_server_name;"
    );
    let server = nginx(&server_side, &lines);
    let options =
        format!("ssl sslcafile={ca} ssldomain=backend.test {}", client_side.options("ssl"));
    let peer = format!(
        "cache_peer 127.0.0.1 parent {} 0 no-query originserver {options}\n",
        server.address.port()
    );
    let proxy = Proxy::start("accel defaultsite=site.test", &peer);
    let answer = ask(&proxy, "/a").expect(200);
    assert_eq!(answer.field("X-Client"), Some("CN=proxy"));
    assert_eq!(answer.field("X-Name"), Some("backend.test"));
}

#[test]
fn a_parent_proxy_can_be_talked_to_through_tls() {
    let authority = Authority::new("tests");
    let own = issue(&authority);
    let address = free_address();
    let parent = World::forward(&format!(
        "https_port {address} {}\nunique_hostname parent.test\n",
        own.options("tls-")
    ));
    parent.origin.on("/a", Reply::ok("hello"));
    let child = Proxy::forward(&format!(
        "cache_peer localhost parent {} 0 no-query tls tls-cafile={}\nnever_direct allow all\n",
        address.port(),
        authority.ca().display()
    ));
    assert_eq!(ask(&child, &parent.origin.url("/a")).expect(200).text(), "hello");
    // A tunnel in the tunnel.
    let mut curl = humboldt_tests::servers::curl(&child);
    assert_eq!(succeed(curl.args(["-p", &parent.origin.url("/a")])), "hello");
    assert_eq!(parent.metric("humboldt_client_tls_handshakes_total"), 2);
}

#[test]
fn a_parent_is_not_to_blame_for_authorities_that_cannot_be_read() {
    let (authority, folder) = (Authority::new("tests"), open_folder());
    let own = issue(&authority);
    let address = free_address();
    let parent = World::forward(&format!(
        "https_port {address} {}\nunique_hostname parent.test\n",
        own.options("tls-")
    ));
    parent.origin.on("/a", Reply::ok("hello"));
    let mut child = Proxy::forward(&format!(
        "cache_peer localhost parent {} 0 no-query connect-timeout=3 connect-fail-limit=1 tls \
         tls-cafile={}\nnever_direct allow all\n",
        address.port(),
        authority.ca().display()
    ));
    child.stop();
    // Whoever opens it for reading waits until somebody writes.
    let pipe = folder.path().join("system.pem");
    succeed(std::process::Command::new("mkfifo").arg(&pipe));
    child.launch_with("SSL_CERT_FILE", &pipe);
    let url = parent.origin.url("/a");
    for _ in 0..2 {
        let answer = ask(&child, &url).expect(503);
        assert!(answer.text().contains("could not be read in time"), "{}", answer.text());
    }
    assert!(!child.text("cache.log").contains("DEAD"), "{}", child.text("cache.log"));
    std::fs::write(&pipe, "").expect("written");
    assert_eq!(ask(&child, &url).expect(200).text(), "hello");
}

#[test]
fn what_speaks_no_tls_is_no_secure_server() {
    let proxy = Proxy::forward(LOG);
    let plain = Server::nginx("", "");
    let answer = ask(&proxy, &url(&plain, "/a")).expect(503);
    assert!(answer.text().contains("does not speak TLS"), "{}", answer.text());
    let status = answer.field("Proxy-Status").unwrap_or_default();
    assert!(status.contains("error=tls_protocol_error"), "{status}");
    // One that closes at once.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || drop(listener.accept()));
    let answer = ask(&proxy, &format!("https://localhost:{port}/a")).expect(503);
    assert!(answer.text().contains("during the handshake"), "{}", answer.text());
    let proxy = Proxy::forward("tls_outgoing_options disable\n");
    assert_eq!(ask(&proxy, &url(&plain, "/a")).status(), 501);
}

#[test]
fn a_server_that_never_answers_the_handshake_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let proxy = Proxy::forward("connect_timeout 1 seconds\n");
    let answer = ask(&proxy, &format!("https://127.0.0.1:{port}/a")).expect(504);
    assert!(answer.text().contains("the handshake took too long"), "{}", answer.text());
    drop(listener);
}

/// The lines for a host whose addresses are 127.0.0.2 and 127.0.0.1, in this order.
fn two_addresses(authority: &Authority, lines: &str) -> String {
    let hosts = authority.path("hosts");
    std::fs::write(&hosts, "127.0.0.2 two.test\n127.0.0.1 two.test\n").expect("a file");
    format!("hosts_file {}\n{}{LOG}{lines}", hosts.display(), trust(authority))
}

#[test]
fn a_handshake_that_fails_is_tried_with_the_next_address() {
    let authority = Authority::new("tests");
    let own = authority.issue("own", Key::Ecdsa, "/CN=two.test", "DNS:two.test");
    let server = nginx(&own, "");
    let port = server.address.port();
    let url = format!("https://two.test:{port}/a");
    // One that closes, one that speaks no TLS, and one that says nothing.
    for (answer, closes) in
        [(&b""[..], true), (b"HTTP/1.1 400 Bad Request\r\n\r\n", true), (b"", false)]
    {
        let listener = TcpListener::bind(("127.0.0.2", port)).expect("the port");
        let asked = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a connection");
            let mut hello = [0; 16];
            socket.read_exact(&mut hello).expect("a handshake");
            socket.write_all(answer).expect("sent");
            if !closes {
                // Until the proxy gives up.
                _ = socket.read_to_end(&mut Vec::new());
            }
        });
        let proxy = Proxy::forward(&two_addresses(&authority, "connect_timeout 4 seconds\n"));
        assert_eq!(ask(&proxy, &url).expect(200).text(), "hello", "{closes}");
        asked.join().expect("the first address was asked");
    }
    until("nginx's log", || (server.count("/a") == 3).then_some(()));
}

#[test]
fn behind_a_handshake_that_fails_few_addresses_are_asked() {
    let authority = Authority::new("tests");
    // A port that is free at one address may be taken at another, by a test beside this one.
    let bind_all = || {
        let first = TcpListener::bind("127.0.0.2:0").ok()?;
        let port = first.local_addr().ok()?.port();
        let bind = |last: u8| TcpListener::bind((std::net::Ipv4Addr::new(127, 0, 0, last), port));
        let others: Vec<TcpListener> = (3..8).map(bind).collect::<Result<_, _>>().ok()?;
        Some((port, others.into_iter().chain([first]).collect::<Vec<_>>()))
    };
    let (port, listeners) = (0..20).find_map(|_| bind_all()).expect("a port at six addresses");
    let names: String = (2..8).map(|last| format!("127.0.0.{last} six.test\n")).collect();
    let hosts = authority.path("hosts");
    std::fs::write(&hosts, names).expect("a file");
    let asked = Arc::new(AtomicUsize::new(0));
    for listener in listeners {
        let asked = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                asked.fetch_add(1, Ordering::Relaxed);
                // Its answer is the end, behind the client's first message.
                _ = socket.read(&mut [0; 4096]);
            }
        });
    }
    let proxy = Proxy::forward(&format!("hosts_file {}\n", hosts.display()));
    let answer = ask(&proxy, &format!("https://six.test:{port}/a")).expect(503);
    assert!(answer.text().contains("during the handshake"), "{}", answer.text());
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[test]
fn a_certificate_that_is_refused_is_not_looked_for_at_another_address() {
    let (authority, other) = (Authority::new("tests"), Authority::new("others"));
    let own = authority.issue("own", Key::Ecdsa, "/CN=two.test", "DNS:two.test");
    let server = nginx(&own, "");
    let port = server.address.port();
    let forged = other.issue("own", Key::Ecdsa, "/CN=two.test", "DNS:two.test");
    let mut command = openssl("s_server");
    command.args(["-accept", &format!("127.0.0.2:{port}"), "-quiet"]);
    command.arg("-cert").arg(&forged.file).arg("-key").arg(&forged.key);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut forger = start(&mut command).expect("openssl");
    until("the server", || TcpStream::connect(("127.0.0.2", port)).ok());
    let proxy = Proxy::forward(&two_addresses(&authority, ""));
    refused(&proxy, &format!("https://two.test:{port}/a"), "no authority", "ISSUER_CERT");
    assert_eq!(server.count("/a"), 0);
    _ = forger.kill();
    _ = forger.wait();
}

#[test]
fn a_session_is_taken_up_again_and_new_settings_ask_for_a_new_proof() {
    let authority = Authority::new("tests");
    let lines = "keepalive_timeout 0; add_header Cache-Control no-store; add_header X-Resumed $ssl_session_reused;";
    let own = issue(&authority);
    let server = nginx(&own, lines);
    let list = authority.revoke(None);
    let trusted = format!(
        "workers 1\ntls_outgoing_options cafile={} crlfile={}\n{LOG}",
        authority.ca().display(),
        list.display()
    );
    let proxy = Proxy::forward(&trusted);
    let resumed = || {
        let answer = ask(&proxy, &url(&server, "/a")).expect(200);
        answer.field("X-Resumed").unwrap_or_default().to_owned()
    };
    assert_eq!((resumed(), resumed()), (".".to_owned(), "r".to_owned()));
    // Now it is revoked: the session does not help after the reload.
    assert_eq!(authority.revoke(Some(&own)), list);
    proxy.signal(rustix::process::Signal::HUP);
    until("the new list", || (ask(&proxy, &url(&server, "/a")).status() == 503).then_some(()));
    assert!(proxy.logged("X509_V_ERR_CERT_REVOKED").starts_with("ERR_SECURE_CONNECT_FAIL "));
}

#[test]
fn a_kept_connection_is_not_used_under_other_settings() {
    let authority = Authority::new("tests");
    let server = nginx(&issue(&authority), "keepalive_timeout 60;");
    let port = server.address.port();
    // The same server as a parent: it is trusted by the one line and not by the other.
    let lines = format!(
        "workers 1\n{}cache_peer localhost parent {port} 0 no-query originserver name=strict tls tls-default-ca=off\n\
         acl strict urlpath_regex strict\ncache_peer_access strict allow strict\n\
         never_direct allow strict\nalways_direct allow !strict\nserver_persistent_connections on\n{LOG}",
        trust(&authority)
    );
    let proxy = Proxy::forward(&lines);
    assert_eq!(ask(&proxy, &url(&server, "/a")).expect(200).text(), "hello");
    assert_eq!(ask(&proxy, &url(&server, "/strict")).status(), 503);
    assert_eq!(server.count("/strict"), 0);
    assert_eq!(ask(&proxy, &url(&server, "/a?again")).expect(200).text(), "hello");
    let page = ask(&proxy, &proxy.page("metrics")).text();
    assert!(page.contains("humboldt_server_connection_reuses_total 1\n"), "{page}");
}

#[test]
fn a_list_of_revocations_that_is_too_old_says_nothing() {
    let authority = Authority::new("tests");
    let server = nginx(&issue(&authority), "");
    let list = authority.revoke_until("20200101000000Z");
    let lines = format!(
        "tls_outgoing_options cafile={} crlfile={}\n{LOG}",
        authority.ca().display(),
        list.display()
    );
    refused(&Proxy::forward(&lines), &url(&server, "/a"), "no valid list", "GET_CRL");
}

#[test]
fn another_protocol_is_spoken_through_tls() {
    let authority = Authority::new("tests");
    let own = issue(&authority);
    let address = free_address();
    let mut command = openssl("s_server");
    command.args(["-accept", &address.to_string(), "-quiet"]);
    command.arg("-cert").arg(&own.file).arg("-key").arg(&own.key);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = start(&mut command).expect("openssl");
    until("the server", || TcpStream::connect(address).ok());
    let proxy = Proxy::forward(&format!(
        "http_upgrade_request_protocols echo allow all\n{}",
        trust(&authority)
    ));
    let mut client = proxy.client();
    let port = address.port();
    client.send(format!(
        "GET https://localhost:{port}/a HTTP/1.1\r\nHost: localhost:{port}\r\n\
         Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    ));
    let mut from = server.stdout.take().expect("a pipe");
    let mut to = server.stdin.take().expect("a pipe");
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(from.read(&mut byte).expect("read"), 1);
        request.push(byte[0]);
    }
    assert!(String::from_utf8_lossy(&request).contains("Upgrade: echo"), "{request:?}");
    to.write_all(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
        .expect("sent");
    to.flush().expect("sent");
    assert!(client.head().start.contains(" 101 "));
    assert_eq!(client.bytes(5), b"early");
    client.send("late");
    let mut late = [0; 4];
    from.read_exact(&mut late).expect("read");
    assert_eq!(&late, b"late");
    _ = server.kill();
    _ = server.wait();
}

/// A server with TLS that sends this answer, and is killed when the client has it: `openssl
/// s_server`.
fn killed_server(own: &Certificate, answer: &'static [u8], has_it: &Arc<Gate>) -> u16 {
    let has_it = Arc::clone(has_it);
    let address = free_address();
    let mut command = openssl("s_server");
    // The first connection asks whether it is there.
    command.args(["-accept", &address.to_string(), "-quiet", "-naccept", "2"]);
    command.arg("-cert").arg(&own.file).arg("-key").arg(&own.key);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = start(&mut command).expect("openssl");
    until("the server", || TcpStream::connect(address).ok());
    std::thread::spawn(move || {
        let mut from = server.stdout.take().expect("a pipe");
        let mut to = server.stdin.take().expect("a pipe");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if from.read(&mut byte).unwrap_or(0) == 0 {
                break;
            }
            request.push(byte[0]);
        }
        _ = to.write_all(answer);
        // Killed by the signal of the broken pipe, or by this: never with a word.
        has_it.pass();
        _ = server.kill();
        _ = server.wait();
    });
    address.port()
}

#[test]
fn an_answer_that_ends_with_the_connection_is_whole_only_with_its_notice() {
    let authority = Authority::new("tests");
    let own = issue(&authority);
    let proxy = Proxy::forward(&trust(&authority));
    // nginx does not know the length of a page that it makes, and may not send chunks.
    let server = nginx(&own, "chunked_transfer_encoding off; ssi on; ssi_types *;");
    let whole = ask(&proxy, &url(&server, "/a")).expect(200);
    assert!(whole.is_complete && whole.text() == "hello", "{whole:?}");
    let has_it = Arc::new(Gate::default());
    let answer = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nhello";
    let port = killed_server(&own, answer, &has_it);
    let mut client = proxy.client();
    client.request("GET", &format!("https://localhost:{port}/a"), &[], b"");
    assert_eq!(client.head().field("Transfer-Encoding"), Some("chunked"));
    assert_eq!(client.bytes(10), b"5\r\nhello\r\n");
    has_it.open();
    assert!(client.closes(), "without a last chunk");
    assert!(proxy.logged(&format!(":{port}/a")).contains("ABORTED"));
}
