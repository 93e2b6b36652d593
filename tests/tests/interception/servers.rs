//! Servers whose certificates are looked at before their clients are decrypted, or not accepted.

use humboldt_tests::World;
use humboldt_tests::authority::{Authority, Certificate, Key, self_signed};
use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::succeed;
use std::fs;

use super::{Setup, fails, nginx};

/// The three ways to be decrypted: at each step.
const WAYS: [&str; 3] = [
    "ssl_bump bump all",
    "acl step1 at_step SslBump1\nssl_bump peek step1\nssl_bump bump all",
    "ssl_bump stare all\nssl_bump bump all",
];

/// A server with a fault, the name of the fault, and what curl says of a certificate with it.
type Faulty = (&'static str, &'static str, &'static str);

const FAULTS: [Faulty; 5] = [
    ("expired", "X509_V_ERR_CERT_HAS_EXPIRED", "expired"),
    ("wrong", "SQUID_X509_V_ERR_DOMAIN_MISMATCH", "no alternative certificate subject name"),
    ("self", "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT", "self-signed certificate"),
    ("unknown", "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "unable to get local issuer"),
    // It has no fault that could be seen, so its issuer is nobody's.
    ("revoked", "X509_V_ERR_CERT_REVOKED", "unable to get local issuer"),
];

fn faulty(kind: &str, servers: &Authority) -> Certificate {
    let names = "DNS:site.test";
    match kind {
        "expired" => servers.issue_expired("own", "/CN=site.test", names),
        "wrong" => servers.issue("own", Key::Ecdsa, "/CN=x", "DNS:wrong.test"),
        "self" => self_signed(&open_folder(), "/CN=site.test", names).kept(),
        "unknown" => Authority::new("unknown").issue("own", Key::Ecdsa, "/CN=x", names).kept(),
        _ => servers.issue("revoked", Key::Ecdsa, "/CN=x", names),
    }
}

/// Copies of its files, which outlive their folder.
trait Kept {
    fn kept(self) -> Certificate;
}

impl Kept for Certificate {
    fn kept(self) -> Certificate {
        let folder = open_folder().keep();
        let copy = Certificate { file: folder.join("own.pem"), key: folder.join("own.key") };
        fs::copy(&self.file, &copy.file).expect("a copy");
        fs::copy(&self.key, &copy.key).expect("a copy");
        copy
    }
}

fn setup(kind: &str, lines: &str) -> Setup {
    let (bump, servers) = (Authority::new("bump"), Authority::new("servers"));
    let own = faulty(kind, &servers);
    let list = servers.revoke((kind == "revoked").then_some(&own));
    let lines = format!("tls_outgoing_options crlfile={}\n{lines}", list.display());
    Setup::of(bump, servers, &lines, |_| nginx(&own, ""))
}

#[test]
fn a_server_that_is_not_accepted_is_a_page_in_every_way() {
    for (kind, name, _) in FAULTS {
        for way in WAYS {
            let setup = setup(kind, way);
            let (status, page) = setup.get(&setup.url("site.test", "/a"));
            assert_eq!(status, 503, "{kind}: {way}: {page}");
            assert!(page.contains("ERR_SECURE_CONNECT_FAIL"), "{page}");
            let line = setup.logged("/503 GET");
            assert!(line.contains(&format!("({name})")), "{kind}: {line}");
            assert_eq!(setup.server.text("access.log"), "", "nothing was sent");
        }
    }
}

#[test]
fn a_fault_that_is_forgiven_is_the_clients_to_see() {
    for (kind, name, words) in FAULTS {
        for way in WAYS {
            let lines =
                format!("acl known ssl_error {name}\nsslproxy_cert_error allow known\n{way}");
            let setup = self::setup(kind, &lines);
            let url = setup.url("site.test", "/a");
            let why = fails(setup.curl().arg(&url));
            assert!(why.contains(words), "{kind}: {way}: {why}");
            // Who goes on all the same gets the answers, and they are nobody else's.
            for _ in 0..2 {
                let text = succeed(setup.curl().args(["-k", "-i", &url, &url]));
                assert_eq!(text.matches("X-Cache: MISS ").count(), 2, "{kind}: {way}: {text}");
            }
            setup.asked(4);
            // Another fault is not forgiven.
            let other = if kind == "expired" { "self" } else { "expired" };
            let lines = format!(
                "acl known ssl_error {}\nsslproxy_cert_error allow known\n{way}",
                FAULTS.iter().find(|fault| fault.0 == other).expect("a fault").1
            );
            let setup = self::setup(kind, &lines);
            assert_eq!(setup.get(&setup.url("site.test", "/a")).0, 503, "{kind}: {way}");
        }
    }
}

#[test]
fn what_is_forgiven_for_urls_of_a_proxy_is_not_stored_either() {
    let setup = setup("self", "sslproxy_cert_error allow all\nssl_bump splice all");
    for count in 1..3 {
        let mut client = setup.proxy.client();
        client.request("GET", &setup.url("site.test", "/a"), &[], b"");
        let answer = client.response().expect(200);
        assert_eq!(answer.cache(), "MISS");
        setup.asked(count);
    }
}

#[test]
fn certificates_can_be_made_better_than_those_of_servers() {
    let rule = "sslproxy_cert_error allow all\nsslproxy_cert_sign signTrusted all\n\
                ssl_bump stare all\nssl_bump bump all\n";
    for (kind, change, words) in [
        ("self", "", None),
        ("unknown", "", None),
        ("expired", "", Some("expired")),
        ("expired", "sslproxy_cert_adapt setValidAfter all", None),
        ("wrong", "sslproxy_cert_adapt setCommonName ssl::certDomainMismatch", None),
        ("wrong", "sslproxy_cert_adapt setCommonName{other.test} all", Some("no alternative")),
    ] {
        let setup = setup(kind, &format!("{rule}{change}"));
        let url = setup.url("site.test", "/a");
        match words {
            None => assert_eq!(succeed(setup.curl().arg(&url)), "hello", "{kind} {change}"),
            Some(words) => {
                let why = fails(setup.curl().arg(&url));
                assert!(why.contains(words), "{kind} {change}: {why}");
            }
        }
    }
}

#[test]
fn a_certificate_is_like_that_of_the_server_that_was_looked_at() {
    let servers = |servers: &Authority| {
        let names = "DNS:site.test,DNS:*.site.test";
        nginx(&servers.issue("own", Key::Rsa, "/O=Example/CN=site.test", names), "")
    };
    let setup = Setup::with_server("ssl_bump stare all\nssl_bump bump all", servers);
    let host = format!("site.test:{}", setup.server.address.port());
    let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let options = ["-servername", "site.test", "-CAfile", &setup.bump.ca().display().to_string()];
    let answer = setup.s_client("site.test", &options, &request);
    assert!(answer.contains("subject=CN = site.test, O = Example"), "{answer}");
    assert!(answer.contains("issuer=CN = bump") && answer.contains("Verify return code: 0"));
    assert!(answer.contains("HTTP/1.1 200 ") && answer.contains("\r\n\r\nhello"), "{answer}");
    // The request went by the connection that was made to look.
    assert_eq!(setup.metric("humboldt_server_connections_total"), 1);
    assert_eq!(setup.metric("humboldt_server_connection_reuses_total"), 1);
    assert!(setup.logged("CONNECT").contains(" bump site.test "));
    // Its certificate decides, too.
    let rules = "acl other ssl::server_name --server-provided .other.test\n\
                 ssl_bump stare all\nssl_bump terminate !other\nssl_bump bump all";
    setup.reconfigure(rules);
    humboldt_tests::wait::until("the rules to change", || {
        (setup.get(&setup.url("site.test", "/a")).0 == 0).then_some(())
    });
    assert!(setup.logged(" terminate ").starts_with("NONE_NONE/200 CONNECT "));
}

#[test]
fn a_server_that_shows_its_certificate_to_all_is_looked_at_without_decrypting() {
    let rules = "acl step3 at_step SslBump3\nssl_bump terminate step3 ssl::certHasExpired\n\
                 ssl_bump splice step3\nssl_bump peek all";
    for (kind, protocol, passes) in [
        ("good", "TLSv1.2", true),
        ("expired", "TLSv1.2", false),
        // Nobody can tell, so nothing is risked.
        ("good", "TLSv1.3", false),
    ] {
        let server = |servers: &Authority| {
            let own = match kind {
                "good" => servers.issue("own", Key::Ecdsa, "/CN=x", "DNS:site.test"),
                _ => faulty(kind, servers),
            };
            nginx(&own, &format!("ssl_protocols {protocol};"))
        };
        let setup = Setup::with_server(rules, server);
        let mut command = setup.curl_unknowing();
        command.args(["-k", &setup.url("site.test", "/a")]);
        if passes {
            assert_eq!(succeed(&mut command), "hello");
            assert!(setup.logged("TCP_TUNNEL/200").contains(" splice site.test "));
        } else {
            fails(&mut command);
            let line = setup.logged("NONE_NONE/200");
            assert!(line.contains(" terminate site.test "));
            assert_eq!(line.contains(" certificate_hidden "), protocol == "TLSv1.3", "{line}");
        }
        setup.asked(usize::from(passes));
    }
}

#[test]
fn a_rule_about_the_name_is_not_logged_as_one_about_a_hidden_certificate() {
    let rules = "acl step3 at_step SslBump3\nacl own ssl::server_name site.test\n\
                 ssl_bump terminate step3 own\nssl_bump peek all";
    let setup = Setup::with_server(rules, |servers| {
        let own = servers.issue("own", Key::Ecdsa, "/CN=x", "DNS:site.test");
        nginx(&own, "ssl_protocols TLSv1.3;")
    });
    fails(setup.curl_unknowing().arg(setup.url("site.test", "/a")));
    let line = setup.logged("NONE_NONE/200");
    assert!(line.contains(" terminate site.test ") && !line.contains("hidden"), "{line}");
}

#[test]
fn a_server_that_is_not_there_is_a_page_or_an_end() {
    let rules = "acl step1 at_step SslBump1\nacl own ssl::server_name other.test\n\
                 ssl_bump peek step1\nssl_bump splice own\nssl_bump stare all\nssl_bump bump all";
    let setup = Setup::new(rules);
    let port = humboldt_tests::wait::free_address().port();
    let (status, page) = setup.get(&format!("https://site.test:{port}/"));
    assert_eq!((status, page.contains("ERR_CONNECT_FAIL")), (503, true), "{page}");
    fails(setup.curl().arg(format!("https://other.test:{port}/")));
    let line = setup.logged(" splice ");
    assert!(line.starts_with("NONE_NONE/503 CONNECT ") && line.contains("ERR_CONNECT_FAIL"));
}

/// A proxy that knows the names of the servers here.
fn parent(setup_hosts: &str) -> World {
    World::forward(&format!("hosts_file {setup_hosts}\nunique_hostname parent.test\n"))
}

#[test]
fn what_was_encrypted_goes_through_a_parent_in_a_tunnel() {
    for way in [WAYS[0], WAYS[2]] {
        let setup = Setup::new(way);
        let hosts = setup.hosts.path().join("hosts").display().to_string();
        let parent = parent(&hosts);
        let address = parent.proxy.address();
        let peer = format!(
            "cache_peer {} parent {} 0 no-query\nnever_direct allow all\n",
            address.ip(),
            address.port()
        );
        let setup = Setup::new(&format!("{peer}{way}"));
        let url = setup.url("site.test", "/a");
        for cache in ["MISS", "HIT"] {
            let text = succeed(setup.curl().args(["-i", &url]));
            assert!(text.contains(&format!("X-Cache: {cache} ")) && text.contains("hello"));
        }
        assert!(setup.logged("TCP_MISS/200 GET").ends_with("FIRSTUP_PARENT"));
        // A server behind it is verified all the same.
        let (status, page) = setup.get(&setup.url("other.test", "/a"));
        assert!(status == 503 && page.contains("DOMAIN_MISMATCH"), "{page}");
        // Its log has tunnels when they end.
        drop(setup);
        let _ = parent.proxy.logged("CONNECT site.test:");
        assert!(!parent.proxy.text("access.log").contains("GET https:"));
    }
}

#[test]
fn what_was_encrypted_is_not_sent_in_clear_text() {
    let origin = World::forward("");
    let address = origin.origin.address();
    let setup = Setup::new(&format!(
        "cache_peer {} parent {} 0 no-query originserver\nnever_direct allow all\n\
         ssl_bump bump all",
        address.ip(),
        address.port()
    ));
    let (status, page) = setup.get(&setup.url("site.test", "/a"));
    assert!(status == 503 && page.contains("in clear text"), "{page}");
    assert_eq!(origin.origin.connections(), 0);
    // A parent that opens no tunnel.
    let parent = World::forward("acl connect method CONNECT\nhttp_access deny connect\n");
    let address = parent.proxy.address();
    let setup = Setup::new(&format!(
        "cache_peer {} parent {} 0 no-query\nnever_direct allow all\nssl_bump bump all",
        address.ip(),
        address.port()
    ));
    let (status, page) = setup.get(&setup.url("site.test", "/a"));
    assert!(status == 503 && page.contains("it says 403"), "{page}");
}
