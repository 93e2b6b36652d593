use std::sync::Arc;

use humboldt_conf::TlsSettings;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::*;
use crate::provider::{provider, versions};

/// The first answer of a real server, and the certificate that it has.
fn of_rustls(is_tls13: bool) -> (Vec<u8>, Vec<u8>) {
    let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let settings =
        TlsSettings { allows_tls13: is_tls13, allows_tls12: !is_tls13, ..Default::default() };
    let provider = provider(&settings);
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(&settings))
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .expect("a server");
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from("a.test").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    client.write_tls(&mut asked).expect("written");
    server.read_tls(&mut &asked[..]).expect("read");
    server.process_new_packets().expect("agreed");
    while server.wants_write() {
        server.write_tls(&mut answered).expect("written");
    }
    (answered, own.cert.der().to_vec())
}

fn record_of(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(content.len() as u16).to_be_bytes(), content].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// A ServerHello of TLS 1.2.
fn hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0, 0xc0, 0x2f, 0]].concat();
    message(SERVER_HELLO, &body)
}

fn chosen(chain: Option<Vec<CertificateDer<'static>>>) -> ServerFlight {
    ServerFlight::Chosen { version: 0x0303, cipher: 0xc02f, chain }
}

fn read_whole(bytes: &[u8]) -> Result<ServerFlight, NotTls> {
    read_server_flight(bytes).map(|flight| flight.expect("a whole answer"))
}

#[test]
fn real_servers_show_their_certificate_up_to_tls_1_2() {
    let (answer, own) = of_rustls(false);
    let ServerFlight::Chosen { version, cipher, chain } = read_whole(&answer).expect("an answer")
    else {
        panic!("refused")
    };
    assert_eq!(version, 0x0303);
    assert!(crate::cipher_name(cipher).is_some_and(|name| name.starts_with("ECDHE-ECDSA-")));
    assert_eq!(chain, Some(vec![CertificateDer::from(own)]));
    // It is in one record, and nothing is told before that is whole.
    for end in 0..answer.len() {
        assert_eq!(read_server_flight(&answer[..end]), Ok(None), "{end} of {}", answer.len());
    }
    let (answer, _) = of_rustls(true);
    assert!(matches!(
        read_whole(&answer),
        Ok(ServerFlight::Chosen { version: TLS13, cipher: 0x1301..=0x1303, chain: None })
    ));
}

#[test]
fn a_message_may_lie_in_many_records_and_a_record_may_have_many_messages() {
    let der = [5; 300];
    let list = [&[0, 1, 47][..], &[0, 1, 44], &der].concat();
    let both = [hello(), message(CERTIFICATE, &list)].concat();
    let expected = Ok(chosen(Some(vec![CertificateDer::from(der.to_vec())])));
    for bytes_each in [1, 3, 50, 16_000] {
        let cut: Vec<u8> =
            both.chunks(bytes_each).flat_map(|part| record_of(HANDSHAKE, part)).collect();
        assert_eq!(read_whole(&cut), expected, "{bytes_each}");
        for end in 0..cut.len() {
            assert_eq!(read_server_flight(&cut[..end]), Ok(None));
        }
    }
}

#[test]
fn a_session_that_goes_on_shows_no_certificate() {
    let hello = record_of(HANDSHAKE, &hello());
    let encrypted = [&hello[..], &record_of(CHANGE_CIPHER_SPEC, &[1])].concat();
    assert_eq!(read_whole(&encrypted), Ok(chosen(None)));
    let ticket = [&hello[..], &record_of(HANDSHAKE, &message(4, &[0; 20]))].concat();
    assert_eq!(read_whole(&ticket), Ok(chosen(None)));
    // A list without any.
    let none = [&hello[..], &record_of(HANDSHAKE, &message(CERTIFICATE, &[0, 0, 0]))].concat();
    assert_eq!(read_whole(&none), Ok(chosen(None)));
}

#[test]
fn alerts_and_other_bytes_are_told() {
    assert_eq!(read_whole(&record_of(ALERT, &[2, 40])), Ok(ServerFlight::Refused(40)));
    assert_eq!(read_whole(&record_of(ALERT, &[1, 0])), Ok(ServerFlight::Refused(0)));
    // That it does not know the name is a warning.
    let warned = [record_of(ALERT, &[1, 112]), record_of(HANDSHAKE, &hello())].concat();
    assert_eq!(read_server_flight(&warned), Ok(None));
    let cut = record_of(HANDSHAKE, &hello()[..10]);
    let broken = |bytes: &[u8]| matches!(read_server_flight(bytes), Err(NotTls::Broken(_)));
    assert!(broken(&[&cut[..], &record_of(ALERT, &[2, 40])].concat()));
    assert!(broken(&record_of(CHANGE_CIPHER_SPEC, &[1])));
    assert!(broken(&record_of(HANDSHAKE, &message(CERTIFICATE, &[0, 0, 0]))));
    assert!(broken(&record_of(ALERT, &[2])));
    // Lists whose lengths are wrong.
    for list in
        [&[0, 0][..], &[0, 0, 1, 0], &[0, 0, 3, 0, 0, 0], &[0, 0, 3, 0, 0, 9], &[0, 0, 0, 0]]
    {
        let bad =
            [record_of(HANDSHAKE, &hello()), record_of(HANDSHAKE, &message(CERTIFICATE, list))];
        assert!(broken(&bad.concat()), "{list:?}");
    }
    assert_eq!(read_server_flight(b"HTTP/1.1 400"), Err(NotTls::OtherProtocol));
}

#[test]
fn the_length_is_bounded() {
    let [_, length @ ..] = (FLIGHT_BYTES_MAX as u32 + 1).to_be_bytes();
    let long = [&[CERTIFICATE][..], &length].concat();
    let bytes = [record_of(HANDSHAKE, &hello()), record_of(HANDSHAKE, &long)].concat();
    assert_eq!(read_server_flight(&bytes), Err(NotTls::TooLong));
    // Warnings without end.
    let many = record_of(ALERT, &[1, 112]).repeat(FLIGHT_BYTES_MAX / 7 + 1);
    assert_eq!(read_server_flight(&many), Err(NotTls::TooLong));
    // More certificates than a chain has.
    let one = [0, 0, 1, 9];
    let list = [&[0, 0, 4 * 33][..], &one.repeat(33)].concat();
    let bytes =
        [record_of(HANDSHAKE, &hello()), record_of(HANDSHAKE, &message(CERTIFICATE, &list))];
    assert_eq!(read_server_flight(&bytes.concat()), Err(NotTls::TooLong));
}

#[test]
fn a_server_may_ask_for_another_message() {
    let hello = |random: &[u8]| {
        let versions = [0, 43, 0, 2, 3, 4];
        let body = [&[3, 3][..], random, &[0, 0x13, 0x01, 0, 0, 6], &versions].concat();
        record_of(HANDSHAKE, &message(SERVER_HELLO, &body))
    };
    let asks = ServerFlight::AsksAgain { version: TLS13, cipher: 0x1301 };
    assert_eq!(read_whole(&hello(&ASKS_AGAIN)), Ok(asks));
    let other = ServerFlight::Chosen { version: TLS13, cipher: 0x1301, chain: None };
    assert_eq!(read_whole(&hello(&[7; 32])), Ok(other));
}
