//! First messages of TLS (ClientHello) that come slowly, in pieces, or without end, on every kind
//! of port that reads them, and an authority whose certificates do not fit into its memory.

use humboldt_tests::authority::{Authority, Key, client_hello};
use humboldt_tests::proxy::run;
use humboldt_tests::wait::{free_address, until};
use humboldt_tests::{Client, Proxy};
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// A proxy with all kinds of ports.
struct Ports {
    proxy: Proxy,
    /// `https_port`: a proxy behind TLS, and an accelerator.
    secure: [SocketAddr; 2],
    /// `http_port … socks ssl-bump`
    socks: SocketAddr,
    authority: Authority,
}

/// A port, and how its client gets to the point at which it speaks TLS.
type Kind = (&'static str, fn(&Ports) -> Client);

const KINDS: [Kind; 4] = [
    ("https_port", |ports| Client::to(ports.secure[0])),
    ("https_port accel", |ports| Client::to(ports.secure[1])),
    ("http_port ssl-bump", |ports| {
        let mut client = ports.proxy.client();
        client.send("CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\n\r\n");
        assert_eq!(client.head().word(1), "200");
        client
    }),
    ("http_port socks ssl-bump", |ports| {
        let mut client = Client::to(ports.socks);
        client.send(b"\x05\x01\0");
        assert_eq!(client.bytes(2), b"\x05\0");
        client.send([&b"\x05\x01\0\x03\x09site.test"[..], &443_u16.to_be_bytes()].concat());
        assert_eq!(client.bytes(10)[..2], [5, 0]);
        client
    }),
];

impl Ports {
    fn new(lines: &str) -> Self {
        let authority = Authority::new("tests");
        let key = authority.path("ca.key");
        fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("readable for all");
        let own = authority.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test");
        let bump =
            format!("ssl-bump tls-cert={} tls-key={}", authority.ca().display(), key.display());
        let (secure, socks) = ([free_address(), free_address()], free_address());
        let lines = format!(
            "https_port {} {own}\nhttps_port {} accel defaultsite=site.test {own}\n\
             http_port {socks} socks {bump}\nworkers 1\nssl_bump bump all\n{lines}\n",
            secure[0],
            secure[1],
            own = own.options("tls-"),
        );
        let proxy = Proxy::start(&bump, &lines);
        Self { proxy, secure, socks, authority }
    }

    fn metric(&self, name: &str) -> u64 {
        let mut client = self.proxy.client();
        client.request("GET", &self.proxy.page("metrics"), &[], b"");
        let page = client.response().text();
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a figure")
    }
}

/// The message in records of this many bytes.
fn in_records(hello: &[u8], bytes_each: usize) -> Vec<u8> {
    let pieces = hello[5..].chunks(bytes_each).map(|piece| {
        let length = u16::try_from(piece.len()).expect("short").to_be_bytes();
        [&[22, 3, 1][..], &length, piece].concat()
    });
    pieces.flatten().collect()
}

/// The server answers with a ServerHello.
fn is_answered(client: &mut Client, what: &str) {
    let record = client.bytes(6);
    assert_eq!((record[0], record[1], record[5]), (22, 3, 2), "{what}: {record:?}");
}

#[test]
fn they_are_read_in_any_pieces() {
    let ports = Ports::new("");
    let hello = client_hello("site.test");
    for (kind, open) in KINDS {
        let mut client = open(&ports);
        hello.iter().for_each(|byte| _ = client.send([*byte]));
        is_answered(&mut client, kind);
        for bytes_each in [1, 7, 100] {
            let mut client = open(&ports);
            client.send(in_records(&hello, bytes_each));
            is_answered(&mut client, kind);
        }
    }
}

#[test]
fn those_without_an_end_are_not_read_on() {
    // One that may still become a message has that time.
    let ports = Ports::new("request_start_timeout 2 seconds");
    let hello = client_hello("site.test");
    // One of 16 MB is announced; 64 KiB come; records without data; another kind in its middle.
    let announced = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff\x03\x03".to_vec();
    let begun = [&b"\x16\x03\x01\x40\x00\x01\x00\xff\xf0"[..], &[0; 16 * 1024 - 4]].concat();
    let more = [&b"\x16\x03\x01\x40\x00"[..], &[0; 16 * 1024]].concat();
    let endless = [&begun[..], &more, &more, &more, &more].concat();
    let empty = b"\x16\x03\x01\x00\x00".repeat(2000);
    let mixed = [&in_records(&hello, 100)[..105], b"\x17\x03\x03\x00\x01x"].concat();
    let garbage: Vec<u8> =
        (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (kind, open) in KINDS {
        let bad = [
            ("announced", &announced),
            ("endless", &endless),
            ("empty", &empty),
            ("mixed", &mixed),
            ("garbage", &garbage),
        ];
        for (what, bytes) in bad {
            let mut client = open(&ports);
            // It may be closed before all of it is sent.
            client.send(bytes);
            let answer = client.rest();
            // Nothing, or an alert.
            assert!(answer.is_empty() || answer[0] == 21, "{kind}, {what}: {answer:?}");
            assert!(answer.len() < 64, "{kind}, {what}: {answer:?}");
        }
        // Others are served.
        let mut client = open(&ports);
        client.send(&hello);
        is_answered(&mut client, kind);
    }
}

#[test]
fn who_sends_one_slowly_is_not_waited_for_and_holds_up_nobody() {
    let ports = Ports::new("request_start_timeout 2 seconds");
    let hello = client_hello("site.test");
    for (kind, open) in KINDS {
        let (mut slow, began) = (open(&ports), Instant::now());
        let mut sent = hello.iter();
        // A byte now and then does not give it more time.
        until("the end of a slow client", || {
            let is_closed = slow.has_input();
            if !is_closed {
                slow.send([*sent.next().expect("a long message")]);
                let mut other = open(&ports);
                other.send(&hello);
                is_answered(&mut other, kind);
            }
            is_closed.then_some(())
        });
        assert!(began.elapsed().as_secs() >= 1, "{kind}");
        assert!(slow.closes(), "{kind}");
    }
}

#[test]
fn certificates_that_do_not_fit_give_way_and_others_are_served() {
    let ports = Ports::new("");
    let key = ports.authority.path("ca.key");
    let small = format!(
        "http_port {} ssl-bump tls-cert={} tls-key={} dynamic_cert_mem_cache_size=16KB\n",
        ports.socks,
        ports.authority.ca().display(),
        key.display()
    );
    drop(ports.proxy);
    let ports = Ports { proxy: Proxy::start("", &format!("{small}ssl_bump bump all\n")), ..ports };
    let hellos: Vec<Vec<u8>> = (0..12).map(|at| client_hello(&format!("h{at}.test"))).collect();
    let ask = |at: usize| {
        let mut client = Client::to(ports.socks);
        client.send("CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\n\r\n");
        assert_eq!(client.head().word(1), "200");
        client.send(&hellos[at]);
        is_answered(&mut client, "a small memory");
        client
    };
    let made = || ports.metric("humboldt_bump_certificates_made_total");
    let open: Vec<Client> = (0..12).map(ask).collect();
    assert_eq!(made(), 12);
    // The newest is there, the oldest is made again.
    drop((ask(11), ask(0)));
    assert_eq!((made(), ports.metric("humboldt_bump_certificates_found_total")), (13, 1));
    drop(open);
}

#[test]
fn a_key_of_an_authority_that_cannot_be_used_is_one_line() {
    let authority = Authority::new("tests");
    let other = authority.issue("other", Key::Ecdsa, "/CN=a", "DNS:a");
    let (ca, file) = (authority.ca().display().to_string(), authority.path("squid.conf"));
    fs::write(authority.path("broken.key"), "-----BEGIN PRIVATE KEY-----\nAAAA\n").expect("a file");
    let path = |name: &str| authority.path(name).display().to_string();
    for (key, wanted) in [
        (path("missing.key"), "cannot be read: No such file"),
        (path(""), "cannot be read: "),
        (path("broken.key"), "has no private key in PEM form"),
        (other.key.display().to_string(), "does not belong to the certificate in"),
    ] {
        let line = format!("http_port {} ssl-bump tls-cert={ca} tls-key={key}", free_address());
        fs::write(&file, format!("http_access deny all\n{line}\nssl_bump bump all\n"))
            .expect("a file");
        for arguments in [&["-N"][..], &["-k", "parse"]] {
            let file = file.display().to_string();
            let output = run(&[arguments, &["-f", &file]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{arguments:?} {key}: {said}");
            assert!(said.contains(wanted) && said.contains("squid.conf:2:"), "{key}: {said}");
            let errors = said.lines().filter(|line| line.contains(wanted)).count();
            assert_eq!(errors, 1, "{arguments:?} {key}: {said}");
        }
    }
}
