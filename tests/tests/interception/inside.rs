//! What holds for all requests, inside of a tunnel that is decrypted: pools, rewriters, the address
//! that a load balancer tells, an end in order, and chains that are not whole.

use humboldt_tests::authority::{Authority, Key};
use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::{end, free_address, start, until};
use std::fs;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Setup, client_hello, nginx, port_options, status_and_body};

/// Bytes in a bucket at first. It gets one in a second then.
const LEVEL: u64 = 20_000;

/// Most bytes that come in later, within a test.
const TRICKLE: u64 = 1_000;

const BIG: u64 = 300_000;

fn setup_with_big(lines: &str) -> Setup {
    let setup = Setup::new(lines);
    setup.server.put("big", vec![b'x'; BIG as usize]);
    setup
}

/// Begins to fetch `/big`, and says where it goes.
fn fetch_big(setup: &Setup) -> (Child, std::path::PathBuf) {
    let file = setup.proxy.path("big");
    let mut command = setup.curl();
    command.args(["--no-buffer", "-o"]).arg(&file).arg(setup.url("site.test", "/big"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    (start(&mut command).expect("curl starts"), file)
}

fn length(file: &std::path::Path) -> u64 {
    fs::metadata(file).map_or(0, |facts| facts.len())
}

#[test]
fn pools_hold_back_what_is_inside() {
    let pool = format!(
        "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 1/{LEVEL}\n\
         delay_initial_bucket_level 100\n"
    );
    let client_pool = format!(
        "client_delay_pools 1\nclient_delay_initial_bucket_level 100\n\
         client_delay_parameters 1 1 {LEVEL}\nclient_delay_access 1 allow all\n"
    );
    // The rules see URLs, which are those inside.
    let big = format!("{pool}acl big urlpath_regex ^/big\ndelay_access 1 allow big\n");
    let none = format!("{pool}acl none urlpath_regex ^/none\ndelay_access 1 allow none\n");
    for (lines, is_held_back) in [(&big, true), (&client_pool, true), (&none, false)] {
        for way in ["ssl_bump bump all", "ssl_bump stare all\nssl_bump bump all"] {
            let setup = setup_with_big(&format!("{lines}{way}"));
            let (mut child, file) = fetch_big(&setup);
            if is_held_back {
                until("what the bucket held", || (length(&file) > LEVEL / 2).then_some(()));
                // Nothing more comes in the time in which all of it would.
                let (began, most) = (Instant::now(), LEVEL + TRICKLE);
                while began.elapsed() < Duration::from_secs(1) {
                    assert!(length(&file) <= most, "{lines}: {}", length(&file));
                    thread::sleep(Duration::from_millis(20));
                }
                end(&mut child);
            } else {
                assert!(child.wait().expect("curl ends").success());
                assert_eq!(length(&file), BIG);
            }
        }
    }
}

/// A helper that sees the URL as `$url`, and the address of the server as `$server`.
fn helper(scripts: &Scripts, setup: &Setup, answer: &str) -> String {
    scripts.write("server", &format!("site.test:{}", setup.server.address.port()));
    scripts.helper("h", &format!("url=${{line%% *}}\nserver=$(cat DIR/server)\n{answer}"))
}

const BUMP: &str = "ssl_bump bump all";

#[test]
fn urls_are_rewritten_inside() {
    let scripts = Scripts::new();
    let setup = Setup::new(BUMP);
    let command = helper(
        &scripts,
        &setup,
        "case $url in */old) echo OK rewrite-url=https://$server/a;;
         */third) echo OK rewrite-url=https://third.test:${server#*:}/a;;
         */see) echo 'OK status=302 url=https://x.test/';; *) echo ERR;; esac",
    );
    setup.reconfigure(&format!("url_rewrite_program {command}\n{BUMP}"));
    let get = |path: &str| setup.get(&setup.url("site.test", path));
    // The reconfiguration is in force when the helper is asked.
    until("the helper", || (get("/old") == (200, "hello".to_owned())).then_some(()));
    assert_eq!(get("/third"), (200, "hello".to_owned()), "another server of the same certificate");
    assert_eq!(get("/see").0, 302);
    assert_eq!(get("/other").0, 404);
    let asked = scripts.asked("h");
    let url = setup.url("site.test", "/old");
    assert!(asked.iter().any(|line| line.contains(&url)), "whole URLs: {asked:?}");
}

#[test]
fn urls_inside_are_one_object_where_a_helper_says_so() {
    let scripts = Scripts::new();
    let setup = Setup::new(BUMP);
    let command = helper(
        &scripts,
        &setup,
        "case $url in https://*/m[12]/f) echo OK store-id=https://one.internal/f;;
         *) echo ERR;; esac",
    );
    for path in ["m1/f", "m2/f", "m3/f"] {
        setup.server.put(path, "hello");
    }
    setup.reconfigure(&format!("store_id_program {command}\n{BUMP}"));
    let get = |path: &str| setup.get(&setup.url("site.test", path));
    until("the helper", || {
        assert_eq!(get("/a").0, 200);
        (!scripts.asked("h").is_empty()).then_some(())
    });
    for path in ["/m1/f", "/m2/f", "/m3/f"] {
        assert_eq!(get(path), (200, "hello".to_owned()));
    }
    for (path, tag) in [("/m1/f", "TCP_MISS"), ("/m2/f", "TCP_MEM_HIT"), ("/m3/f", "TCP_MISS")] {
        let line = setup.logged(path);
        assert!(line.contains(&format!("{tag}/200")), "{line}");
    }
    assert_eq!(setup.server.count("/m2/f"), 0);
}

/// A load balancer in front of `port` that tells this client.
fn balancer(port: SocketAddr, client: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let mut far = TcpStream::connect(port).expect("the proxy");
            let head = format!("PROXY TCP4 {client} 198.51.100.2 50000 443\r\n");
            far.write_all(head.as_bytes()).expect("written");
            for (mut from, mut to) in
                [(near.try_clone().expect("a copy"), far.try_clone().expect("a copy")), (far, near)]
            {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn the_client_that_a_balancer_tells_is_the_one_inside() {
    let port = free_address();
    let (bump, servers) = (Authority::new("bump"), Authority::new("servers"));
    let lines = format!(
        "http_port {port} require-proxy-header {}\nproxy_protocol_access allow localhost\n\
         logformat who %>a %rm %ru %>Hs\naccess_log stdio:{{dir}}/who.log who\n\
         acl banned src 192.0.2.9\nacl paths urlpath_regex ^/\nhttp_access deny banned paths\n\
         {BUMP}",
        port_options(&bump)
    );
    let setup = Setup::of(bump, servers, &lines, |servers| {
        nginx(&servers.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test"), "")
    });
    let get = |client: &'static str| {
        let mut command = setup.curl();
        command.args(["-x", &format!("http://{}", balancer(port, client)), "-w", "\n%{http_code}"]);
        status_and_body(command.arg(setup.url("site.test", "/a")))
    };
    assert_eq!(get("192.0.2.1"), (200, "hello".to_owned()));
    assert_eq!(get("192.0.2.9").0, 403, "a rule about the client, and a URL that is inside");
    for line in ["192.0.2.1 CONNECT site.test", "192.0.2.1 GET https://", "192.0.2.9 GET https://"]
    {
        until(line, || setup.proxy.text("who.log").contains(line).then_some(()));
    }
}

#[test]
fn an_end_in_order_does_not_wait_for_a_server_that_is_looked_at() {
    for way in ["ssl_bump stare all\nssl_bump bump all", "ssl_bump peek all\nssl_bump splice all"] {
        let mut setup = Setup::new(&format!("shutdown_lifetime 60 seconds\n{way}"));
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = format!("site.test:{}", silent.local_addr().expect("an address").port());
        let mut client = setup.proxy.client();
        client.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
        assert_eq!(client.head().word(1), "200");
        client.send(client_hello("site.test"));
        // The third step waits for it from now on.
        let (_server, _) = silent.accept().expect("a connection");
        let began = Instant::now();
        setup.proxy.stop();
        assert!(began.elapsed() < Duration::from_secs(20), "{way}");
        assert!(client.closes());
        let line = setup.logged(&format!("CONNECT {place}"));
        assert!(line.contains("shut_down"), "{way}: {line}");
    }
}

/// A server whose authority is below that of the servers, and which does not send it.
fn incomplete(lines: &str) -> (Setup, Authority) {
    let (bump, servers) = (Authority::new("bump"), Authority::new("servers"));
    let below = servers.below("between");
    let lines = lines.replace("BETWEEN", &below.ca().display().to_string());
    let setup = Setup::of(bump, servers, &lines, |_| {
        nginx(&below.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test"), "")
    });
    (setup, below)
}

#[test]
fn a_chain_that_is_not_whole_is_refused_unless_the_file_completes_it() {
    for way in [BUMP, "ssl_bump stare all\nssl_bump bump all"] {
        let (setup, _below) = incomplete(way);
        let (status, page) = setup.get(&setup.url("site.test", "/a"));
        assert_eq!(status, 503, "{way}: {page}");
        assert!(page.contains("X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY"), "{page}");
        let lines = format!("sslproxy_foreign_intermediate_certs BETWEEN\n{way}");
        let (setup, _below) = incomplete(&lines);
        assert_eq!(setup.get(&setup.url("site.test", "/a")), (200, "hello".to_owned()), "{way}");
    }
}
