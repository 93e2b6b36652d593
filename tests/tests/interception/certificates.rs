//! Certificates that are made: how many a client may have, and what becomes of them in a
//! reconfiguration.

use super::*;

/// Connections that come at once, and those of them that get a certificate although they are one
/// client's: as many as it may have in a second, and in the two for which a connection may wait.
const CONNECTIONS: u64 = 150;
const SHARE: u64 = 20 + 40;

const MADE: &str = "humboldt_bump_certificates_made_total";
const FOUND: &str = "humboldt_bump_certificates_found_total";

#[test]
fn a_client_with_many_new_names_waits_for_its_turns_and_others_of_its_connections_end() {
    let setup =
        Setup::of(Authority::slow("bump"), Authority::new("servers"), "ssl_bump bump all", |own| {
            nginx(&own.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test"), "")
        });
    let hello = client_hello("n000.test");
    let at = hello.windows(4).position(|part| part == b"n000").expect("the name");
    let of = |number: u64| {
        let mut hello = hello.clone();
        hello[at..at + 4].copy_from_slice(format!("n{number:03}").as_bytes());
        hello
    };
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| setup.tunnel("site.test")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(of(number as u64));
    }
    let refused = || {
        let text = setup.proxy.text("own.log");
        text.lines().filter(|line| line.contains("too_many_certificates")).count() as u64
    };
    let made = until("an answer to each", || {
        let (made, refused) = (setup.metric(MADE), refused());
        (made + refused == CONNECTIONS).then_some(made)
    });
    assert!((SHARE..CONNECTIONS).contains(&made), "{made}");
    let waited = setup.metric("humboldt_bump_certificates_waited_total");
    assert!((1..=made - 20).contains(&waited), "{waited} of {made}");
    let line = setup.logged("too_many_certificates");
    assert!(line.starts_with("NONE_NONE/200 CONNECT ") && line.contains("ERR_SECURE_ACCEPT_FAIL"));
    // Those that are there are for everybody.
    assert_eq!(clients[0].bytes(2), [22, 3]);
    let mut again = setup.tunnel("site.test");
    again.send(of(0));
    assert_eq!(again.bytes(2), [22, 3]);
    assert_eq!((setup.metric(MADE), setup.metric(FOUND)), (made, 1));
}

#[test]
fn certificates_and_sessions_stay_in_a_reconfiguration_as_long_as_the_authority_does() {
    let setup = Setup::new("ssl_bump bump all");
    let session = setup.hosts.path().join("session").display().to_string();
    let place = format!("site.test:{}", setup.server.address.port());
    let ask = format!("GET /a HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    let seen = setup.s_client("site.test", &["-sess_out", &session], &ask);
    assert!(seen.contains("hello") && setup.metric(MADE) == 1, "{seen}");
    // Rules that show when they are in force.
    let reconfigured = |word: &str| {
        setup.reconfigure(&format!(
            "acl bad urlpath_regex ^/{word}\nhttp_access deny bad\nssl_bump bump all"
        ));
        until("the rules to change", || {
            let mut client = setup.proxy.client();
            client.request("GET", &format!("http://site.test/{word}"), &[], b"");
            (client.response().status() == 403).then_some(())
        });
    };
    reconfigured("first");
    let seen = setup.s_client("site.test", &["-sess_in", &session], &ask);
    assert!(seen.contains("Reused, ") && seen.contains("hello"), "{seen}");
    assert_eq!(setup.get(&setup.url("site.test", "/a")).0, 200);
    assert_eq!((setup.metric(MADE), setup.metric(FOUND)), (1, 2));
    let other = Authority::new("another");
    for file in ["ca.pem", "ca.key"] {
        fs::copy(other.path(file), setup.bump.path(file)).expect("copied");
    }
    reconfigured("second");
    assert_eq!(setup.get(&setup.url("site.test", "/a")).0, 200);
    assert_eq!((setup.metric(MADE), setup.metric(FOUND)), (2, 2));
    let seen = setup.s_client("site.test", &["-sess_in", &session], &ask);
    assert!(seen.contains("New, ") && seen.contains("hello"), "{seen}");
}
