use std::net::Ipv4Addr;

use humboldt_conf::{CertificateFiles, TlsOutgoing, TlsPort};
use humboldt_tls::{Files, OnDisk};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::pool::Poolable;

/// The two sides of a server of `a.test`.
pub(super) fn sides(change: impl Fn(&mut TlsPort, &mut TlsOutgoing)) -> (ServerSide, ClientSide) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("own.pem").display().to_string();
    let text = cert.pem() + &signing_key.serialize_pem();
    std::fs::write(&path, text).expect("a file");
    let own = CertificateFiles { certificate: path.clone(), key: None };
    let mut port = TlsPort { certificates: vec![own], ..TlsPort::default() };
    let mut outgoing =
        TlsOutgoing { authorities: vec![path], trusts_system: false, ..Default::default() };
    change(&mut port, &mut outgoing);
    let files: &dyn Files = &OnDisk::default();
    let server = ServerSide::new(&port, files).expect("settings of a port");
    (server, ClientSide::new(&outgoing, files).expect("settings of a client"))
}

pub(super) async fn over_tcp() -> (Stream, Stream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let connecting = TcpStream::connect(listener.local_addr().expect("an address"));
    let (ours, theirs) = tokio::join!(connecting, listener.accept());
    (ours.expect("connected").into(), theirs.expect("accepted").0.into())
}

/// A client and a server that have agreed.
async fn pair() -> (Stream, Stream) {
    let (server, client) = sides(|_, _| {});
    let (ours, theirs) = over_tcp().await;
    let (ours, theirs) = tokio::join!(connect(ours, &client, b"a.test"), accept(theirs, &server));
    (ours.expect("agreed"), theirs.expect("agreed"))
}

pub(super) async fn read_some(stream: &Stream, most: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; most];
    let read = poll_fn(|cx| stream.poll_read_shared(cx, &mut buffer)).await?;
    buffer.truncate(read);
    Ok(buffer)
}

async fn read_all(stream: &Stream, most: usize) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let some = read_some(stream, most).await?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
}

/// The same as the stream's only user.
async fn read_alone(stream: &mut Stream, most: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; most];
    let read = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await?;
    buffer.truncate(read);
    Ok(buffer)
}

async fn read_all_alone(stream: &mut Stream, most: usize) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let some = read_alone(stream, most).await?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
}

fn carrier(stream: &Stream) -> &Stream {
    match stream {
        Stream::Tls(tls) => tls.carrier(),
        _ => panic!("no TLS"),
    }
}

#[tokio::test]
async fn bytes_go_through_whole_with_their_end_whatever_the_sizes_of_reads() {
    let bytes: Vec<u8> = (0..3_000_000).map(|at: usize| (at / 251) as u8).collect();
    let sizes = [1_000, 4_096, 20_000, 64 * 1024];
    for (most, is_alone) in sizes.into_iter().flat_map(|most| [(most, false), (most, true)]) {
        let (ours, mut theirs) = pair().await;
        let sending = async {
            let mut rest = &bytes[..];
            poll_fn(|cx| ours.poll_write_all(cx, &mut rest)).await.expect("written");
            assert!(rest.is_empty() && !ours.has_unsent());
            poll_fn(|cx| ours.poll_shut_down_write(cx)).await.expect("ended");
        };
        let reading = async {
            match is_alone {
                true => read_all_alone(&mut theirs, most).await,
                false => read_all(&theirs, most).await,
            }
        };
        let ((), received) = tokio::join!(sending, reading);
        assert!(received.expect("read") == bytes, "{most} {is_alone}");
        // The other way is open.
        let parts = [IoSlice::new(b"an"), IoSlice::new(b""), IoSlice::new(b"swer")];
        assert_eq!(theirs.try_write_vectored(&parts).expect("written"), 6);
        assert_eq!(read_some(&ours, 10).await.expect("read"), b"answer");
    }
}

/// Whether a read of the socket may find something, as far as is known without one.
async fn seems_readable(stream: &Stream) -> bool {
    poll_fn(|cx| Poll::Ready(stream.poll_read_ready(cx).is_ready())).await
}

#[tokio::test]
async fn a_request_takes_one_read_of_the_socket() {
    let (ours, mut theirs) = pair().await;
    for round in 0..3 {
        assert!(!seems_readable(&theirs).await, "{round}");
        assert_eq!(ours.try_write(b"question").expect("written"), 8);
        assert_eq!(read_alone(&mut theirs, 4).await.expect("read"), b"ques");
        assert!(seems_readable(&theirs).await, "a part is unread");
        assert_eq!(read_alone(&mut theirs, 100).await.expect("read"), b"tion");
    }
    // What has come with the end of the connection is read before it.
    assert_eq!(ours.try_write(b"last").expect("written"), 4);
    drop(ours);
    assert_eq!(read_alone(&mut theirs, 100).await.expect("read"), b"last");
    assert_eq!(read_alone(&mut theirs, 100).await.expect("the end"), b"");
    assert_eq!(read_alone(&mut theirs, 100).await.expect("the end"), b"");
}

#[tokio::test]
async fn an_answer_of_100_kib_is_taken_at_once() {
    let (ours, theirs) = pair().await;
    let (head, body) = (vec![1; 400], vec![2; 100 << 10]);
    let parts = [IoSlice::new(&head), IoSlice::new(&body)];
    assert_eq!(theirs.try_write_vectored(&parts).expect("written"), head.len() + body.len());
    let sending = poll_fn(|cx| theirs.poll_shut_down_write(cx));
    let (sent, received) = tokio::join!(sending, read_all(&ours, 10_000));
    sent.expect("sent");
    assert!(received.expect("read") == [head, body].concat());
}

#[tokio::test]
async fn plaintext_that_is_there_is_readable_although_the_socket_has_nothing() {
    let (ours, theirs) = pair().await;
    assert_eq!(ours.try_write(b"0123456789").expect("written"), 10);
    assert_eq!(read_some(&theirs, 3).await.expect("read"), b"012");
    // The socket is empty, and says so.
    let raw = carrier(&theirs).try_read(&mut [0; 10]);
    assert!(raw.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    assert_eq!(read_some(&theirs, 3).await.expect("read"), b"345");
    assert!(!theirs.is_reusable(), "something is unread");
    assert_eq!(read_some(&theirs, 30).await.expect("read"), b"6789");
    let nothing = theirs.try_read(&mut [0; 10]);
    assert!(nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    assert!(theirs.is_reusable() && ours.is_reusable());
}

#[tokio::test]
async fn the_end_of_the_socket_is_not_the_end_of_the_stream() {
    let (ours, theirs) = pair().await;
    assert_eq!(theirs.try_write(b"part").expect("written"), 4);
    // A server says nothing of an end that is none.
    drop(theirs);
    assert_eq!(read_some(&ours, 10).await.expect("read"), b"part");
    let cut = read_some(&ours, 10).await.expect_err("cut");
    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    assert!(cut.to_string().contains("was cut"), "{cut}");
    assert_eq!(read_some(&ours, 10).await.expect_err("cut").kind(), io::ErrorKind::UnexpectedEof);
    // A client does, unless its end is left to the caller.
    for is_left in [false, true] {
        let (ours, theirs) = pair().await;
        if is_left {
            ours.leave_end_to_caller();
        }
        drop(ours);
        assert_eq!(read_some(&theirs, 10).await.is_ok_and(|end| end.is_empty()), !is_left);
    }
}

#[tokio::test]
async fn a_peer_that_reads_nothing_bounds_what_is_taken() {
    let (ours, theirs) = pair().await;
    let (block, mut taken) = (vec![7; 1 << 20], 0);
    loop {
        match ours.try_write(&block) {
            Ok(written) => {
                assert!(written <= UNSENT_BYTES_MAX, "{written}");
                taken += written;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(ours.has_unsent());
    // All that was taken arrives, once there is room.
    let sending = poll_fn(|cx| ours.poll_shut_down_write(cx));
    let (sent, received) = tokio::join!(sending, read_all(&theirs, 64 * 1024));
    sent.expect("sent");
    assert_eq!(received.expect("read").len(), taken);
}

#[tokio::test]
async fn keys_are_changed_on_the_way() {
    let (ours, theirs) = pair().await;
    for round in 0..3 {
        if let Stream::Tls(tls) = &ours {
            let session = &mut *tls.session.borrow_mut();
            session.connection.refresh_traffic_keys().expect("TLS 1.3");
        }
        assert_eq!(ours.try_write(b"question").expect("written"), 8, "{round}");
        assert_eq!(read_some(&theirs, 10).await.expect("read"), b"question");
        assert_eq!(theirs.try_write(b"answer").expect("written"), 6);
        assert_eq!(read_some(&ours, 10).await.expect("read"), b"answer");
    }
}

#[tokio::test]
async fn garbage_behind_the_handshake_is_an_error_and_not_data() {
    let (ours, mut theirs) = pair().await;
    assert_eq!(ours.try_write(b"good").expect("written"), 4);
    carrier(&ours).try_write(b"\x17\x03\x03\x00\x10garbage-garbage-").expect("written");
    assert_eq!(read_alone(&mut theirs, 10).await.expect("read"), b"good");
    for _ in 0..2 {
        let error = read_alone(&mut theirs, 10).await.expect_err("an error");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
    let error = read_some(&theirs, 10).await.expect_err("an error");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(!theirs.is_reusable());
    assert!(theirs.try_write(b"x").is_err());
}

#[tokio::test]
async fn faults_have_names() {
    let handshake = async |change: fn(&mut TlsPort, &mut TlsOutgoing), host: &[u8]| {
        let (server, client) = sides(change);
        let (ours, theirs) = over_tcp().await;
        let (ours, theirs) = tokio::join!(connect(ours, &client, host), accept(theirs, &server));
        (ours.err().map(|fault| fault.name()), theirs.err())
    };
    assert_eq!(handshake(|_, _| {}, b"a.test").await, (None, None));
    let (name, told) = handshake(|_, _| {}, b"b.test").await;
    assert_eq!(name, Some("SQUID_X509_V_ERR_DOMAIN_MISMATCH"));
    assert!(matches!(told, Some(Fault::Alert(_))), "{told:?}");
    let (name, _) = handshake(|_, client| client.authorities.clear(), b"a.test").await;
    assert_eq!(name, Some("X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"));
    let versions = |server: &mut TlsPort, client: &mut TlsOutgoing| {
        server.settings.allows_tls13 = false;
        client.settings.allows_tls12 = false;
    };
    let (name, told) = handshake(versions, b"a.test").await;
    assert_eq!(name, Some("SQUID_TLS_ERR_CONNECT+TLS_ALERT"));
    assert!(matches!(told, Some(Fault::NothingInCommon(_))), "{told:?}");
    let (name, _) = handshake(|_, _| {}, b"").await;
    assert_eq!(name, Some("SQUID_TLS_ERR_CONNECT+TLS_NO_NAME"));
}

#[tokio::test]
async fn what_was_agreed_upon_is_known() {
    let (ours, theirs) = pair().await;
    let facts = ours.tls().expect("TLS");
    assert_eq!((facts.version, facts.cipher), ("TLS/1.3", "TLS_AES_256_GCM_SHA384"));
    assert!(facts.certificate.is_some() && !facts.is_resumed);
    assert!(theirs.tls().is_some_and(|facts| facts.certificate.is_none()));
    assert!(over_tcp().await.0.tls().is_none());
}

#[tokio::test]
async fn tls_goes_over_tls() {
    let (server, client) = sides(|_, _| {});
    let (ours, theirs) = pair().await;
    let (ours, theirs) = tokio::join!(connect(ours, &client, b"a.test"), accept(theirs, &server));
    let (ours, theirs) = (ours.expect("agreed"), theirs.expect("agreed"));
    assert_eq!(ours.try_write(b"inside").expect("written"), 6);
    assert_eq!(read_some(&theirs, 10).await.expect("read"), b"inside");
    poll_fn(|cx| theirs.poll_shut_down_write(cx)).await.expect("ended");
    assert_eq!(read_some(&ours, 10).await.expect("read"), b"");
}

/// The handshake of a server whose session is wanted itself.
async fn shake_by_hand(carrier: &Stream, mut session: ServerConnection) -> ServerConnection {
    loop {
        while session.wants_write() {
            poll_fn(|cx| carrier.poll_write_ready(cx)).await.expect("writable");
            session.write_tls(&mut Writer(carrier)).expect("sent");
        }
        if !session.is_handshaking() {
            return session;
        }
        let read = read_some(carrier, HANDSHAKE_BYTES).await.expect("read");
        session.read_tls(&mut &read[..]).expect("taken");
        session.process_new_packets().expect("a valid handshake");
    }
}

/// A sender of records that are valid and hold no data, but tickets, and a client for them.
async fn with_empty_records() -> (Stream, impl FnMut() -> Vec<u8>, Stream) {
    use rustls::crypto::cipher::{OutboundChunks, OutboundPlainMessage};
    use rustls::{ConnectionTrafficSecrets, ContentType, SupportedCipherSuite};

    let (server, client) = sides(|_, _| {});
    let mut config = (*server.config()).clone();
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    let (ours, theirs) = over_tcp().await;
    let session = ServerConnection::new(config.into()).expect("a session");
    let (ours, session) =
        tokio::join!(connect(ours, &client, b"a.test"), shake_by_hand(&theirs, session));
    let Some(SupportedCipherSuite::Tls13(suite)) = session.negotiated_cipher_suite() else {
        panic!("not TLS 1.3");
    };
    let (mut number, secrets) = session.dangerous_extract_secrets().expect("secrets").tx;
    let (key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
        _ => panic!("another cipher"),
    };
    let mut encrypter = suite.aead_alg.encrypter(key, iv);
    let next = move || {
        // Four bytes of a head, a lifetime, an age, a nonce, the ticket, and no extensions. Empty
        // records are bounded by the library.
        let head = [4, 0, 0, 113, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 100];
        let ticket = [&head[..], &[7; 100], &[0, 0]].concat();
        let nothing = OutboundPlainMessage {
            typ: ContentType::Handshake,
            version: ProtocolVersion::TLSv1_3,
            payload: OutboundChunks::Single(&ticket),
        };
        let record = encrypter.encrypt(nothing, number).expect("encrypted").encode();
        number += 1;
        record
    };
    (ours.expect("agreed"), next, theirs)
}

#[tokio::test]
async fn records_without_data_end_the_connection_at_their_bound() {
    let (ours, mut next, theirs) = with_empty_records().await;
    let mut sent = 0;
    // A few are nothing; more are refused, whoever waits.
    let mut records = next();
    sent += records.len();
    poll_fn(|cx| theirs.poll_write_all(cx, &mut &records[..])).await.expect("sent");
    poll_fn(|cx| carrier(&ours).poll_read_ready(cx)).await.expect("readable");
    assert!(ours.is_reusable());
    records.clear();
    while sent <= 2 * EMPTY_BYTES_MAX {
        let record = next();
        sent += record.len();
        records.extend(record);
    }
    let sending = async {
        let mut rest = &records[..];
        _ = poll_fn(|cx| theirs.poll_write_all(cx, &mut rest)).await;
    };
    let (read, ()) = tokio::join!(read_some(&ours, 4096), sending);
    let error = read.expect_err("refused");
    assert!(error.to_string().contains("without data"), "{error}");
    assert!(!ours.is_reusable());
}

#[tokio::test]
async fn what_came_before_a_fault_is_read() {
    let (ours, theirs) = pair().await;
    assert_eq!(theirs.try_write(b"early").expect("written"), 5);
    let garbage = [&[23, 3, 3, 0, 40][..], &[7; 40]].concat();
    let mut rest = &garbage[..];
    poll_fn(|cx| carrier(&theirs).poll_write_all(cx, &mut rest)).await.expect("written");
    let mut ahead = [0; 4096];
    loop {
        let seen = poll_fn(|cx| carrier(&ours).poll_peek(cx, &mut ahead)).await.expect("bytes");
        if ahead[..seen].ends_with(&garbage) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(read_some(&ours, 4096).await.expect("read"), b"early");
    assert!(read_some(&ours, 4096).await.is_err());
}

#[test]
fn names_of_certificates_are_read_in_every_form_or_not_at_all() {
    use rcgen::string::{BmpString, TeletexString, UniversalString};
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    let made = |name: DnValue| {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    };
    for name in [
        DnValue::BmpString(BmpString::try_from("alice").expect("text")),
        DnValue::UniversalString(UniversalString::try_from("alice").expect("text")),
        DnValue::TeletexString(TeletexString::try_from("alice").expect("text")),
        DnValue::Utf8String("alice".to_owned()),
    ] {
        let facts = certificate_facts(&made(name)).expect("facts");
        assert_eq!(facts.subject.value("CN"), Some("alice"));
    }
    let mut broken = made(DnValue::Utf8String("alice".to_owned()));
    while let Some(at) = broken.windows(5).position(|part| part == b"alice") {
        broken[at] = 0xff;
    }
    assert!(certificate_facts(&broken).is_none());
}
