//! Sessions that are intercepted: first messages that were read already, servers that are judged
//! after the handshake, certificates that are made.

use humboldt_base::bump::SignAs;
use humboldt_conf::{BumpPort, CertificateFiles, TlsOutgoing, TlsSettings};
use humboldt_tls::{BumpAuthority, Files, LeafWish, OnDisk, make_authority, read_client_hello};

use super::tests::{over_tcp, read_some, sides};
use super::*;

/// Sends bytes on the way that a client's have come.
async fn pass(from: &Stream, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    let read = poll_fn(|cx| from.poll_read_shared(cx, &mut buffer)).await.expect("read");
    bytes.extend_from_slice(&buffer[..read]);
}

/// Reads a client's first message, and not more than is there.
async fn hello(stream: &Stream) -> Vec<u8> {
    let mut early = Vec::new();
    while read_client_hello(&early).expect("a message").is_none() {
        pass(stream, &mut early).await;
    }
    early
}

async fn says_hello(ours: &Stream, theirs: &Stream) {
    assert_eq!(ours.try_write(b"ping").expect("written"), 4);
    assert_eq!(read_some(theirs, 10).await.expect("read"), b"ping");
    assert_eq!(theirs.try_write(b"pong").expect("written"), 4);
    assert_eq!(read_some(ours, 10).await.expect("read"), b"pong");
}

#[tokio::test]
async fn a_first_message_that_was_read_already_is_taken() {
    let (server, client) = sides(|_, _| {});
    let (ours, theirs) = over_tcp().await;
    let serving = async {
        let early = hello(&theirs).await;
        accept_with(theirs, &early, &server).await
    };
    let (ours, theirs) = tokio::join!(connect(ours, &client, b"a.test"), serving);
    says_hello(&ours.expect("agreed"), &theirs.expect("agreed")).await;
    // So is a part of it, and the rest comes through the socket.
    for taken in [1, 5, 6, 100, 250] {
        let (ours, theirs) = over_tcp().await;
        let serving = async {
            let mut early = vec![0; taken];
            poll_fn(|cx| theirs.poll_read_shared(cx, &mut early)).await.expect("read");
            accept_with(theirs, &early, &server).await
        };
        let (ours, theirs) = tokio::join!(connect(ours, &client, b"a.test"), serving);
        says_hello(&ours.expect("agreed"), &theirs.expect("agreed")).await;
    }
}

#[tokio::test]
async fn a_session_goes_through_another_one() {
    let (server, client) = sides(|_, _| {});
    let (ours, theirs) = over_tcp().await;
    let (ours, theirs) = tokio::join!(connect(ours, &client, b"a.test"), accept(theirs, &server));
    let (ours, theirs) = (ours.expect("agreed"), theirs.expect("agreed"));
    let serving = async {
        let early = hello(&theirs).await;
        accept_with(theirs, &early, &server).await
    };
    let (ours, theirs) = tokio::join!(connect(ours, &client, b"a.test"), serving);
    says_hello(&ours.expect("agreed"), &theirs.expect("agreed")).await;
}

#[tokio::test]
async fn early_bytes_that_are_no_message_are_answered_with_an_alert() {
    let (server, _) = sides(|_, _| {});
    for early in [b"GET / HTTP/1.1\r\n" as &[u8], &[22, 3, 1, 0, 4, 9, 0, 0, 0]] {
        let (ours, theirs) = over_tcp().await;
        let fault = accept_with(theirs, early, &server).await.expect_err("no TLS");
        assert!(matches!(fault, Fault::NotTls | Fault::Protocol(_)), "{fault:?}");
        assert_eq!(read_some(&ours, 100).await.expect("read")[0], 21);
    }
}

#[tokio::test]
async fn a_server_is_judged_after_the_handshake() {
    let (server, trusting) = sides(|_, _| {});
    // Another one, which trusts another authority.
    let (_, strange) = bumping();
    for (side, host, faults) in [
        (&trusting, "a.test", &[][..]),
        (&trusting, "b.test", &["SQUID_X509_V_ERR_DOMAIN_MISMATCH"]),
        (&strange, "a.test", &["X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"]),
        (
            &strange,
            "b.test",
            &["X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT", "SQUID_X509_V_ERR_DOMAIN_MISMATCH"],
        ),
    ] {
        // Also where the session goes on.
        for is_resumed in [false, true] {
            let (ours, theirs) = over_tcp().await;
            let connecting = connect_lenient(ours, side, host.as_bytes());
            let (ours, theirs) = tokio::join!(connecting, accept(theirs, &server));
            let (ours, theirs) = (ours.expect("agreed"), theirs.expect("agreed"));
            assert_eq!(ours.server.faults, faults);
            assert_eq!(ours.faults.len(), faults.len());
            assert_eq!(ours.server.names, ["a.test"]);
            assert_eq!(ours.server.version, 0x0304);
            assert_eq!(ours.server.cipher, Some("TLS_AES_256_GCM_SHA384"));
            let facts = ours.stream.tls().expect("TLS");
            assert_eq!(facts.is_resumed, is_resumed, "{host}");
            assert_eq!(facts.server.as_ref(), Some(&ours.server));
            says_hello(&ours.stream, &theirs).await;
        }
    }
    // A connection of the strict kind does not go on with one of these sessions.
    for (side, host) in [(&strange, b"a.test"), (&trusting, b"b.test")] {
        let (ours, theirs) = over_tcp().await;
        let (ours, _) = tokio::join!(connect(ours, side, host), accept(theirs, &server));
        assert!(matches!(ours, Err(Fault::Certificate(_))), "{ours:?}");
    }
}

/// An authority of a port, and a client that trusts it.
fn bumping() -> (BumpAuthority, ClientSide) {
    let made = make_authority("Test", 100, now_s()).expect("an authority");
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("ca.pem").display().to_string();
    std::fs::write(&path, made.certificate + &made.key).expect("a file");
    let files: &dyn Files = &OnDisk::default();
    let port = BumpPort {
        certificate: Some(CertificateFiles { certificate: path.clone(), key: None }),
        generates: true,
        leaf_cache_bytes: BumpPort::LEAF_CACHE_BYTES,
        settings: TlsSettings::default(),
        location: humboldt_conf::Location::default(),
    };
    let outgoing =
        TlsOutgoing { authorities: vec![path], trusts_system: false, ..TlsOutgoing::default() };
    let authority = BumpAuthority::new(&port, files).expect("files").expect("an authority");
    (authority, ClientSide::new(&outgoing, files).expect("settings"))
}

fn now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs() as i64
}

/// What a client gets that asks for `host`.
async fn bumped(
    authority: &BumpAuthority,
    client: &ClientSide,
    host: &str,
    wish: &LeafWish<'_>,
) -> Result<(Stream, Stream), Fault> {
    let leaf = authority.leaf(wish, now_s()).expect("a certificate");
    let (ours, theirs) = over_tcp().await;
    let serving = async {
        let early = hello(&theirs).await;
        accept_with(theirs, &early, &leaf.side).await
    };
    let (ours, theirs) = tokio::join!(connect(ours, client, host.as_bytes()), serving);
    let (ours, theirs) = (ours?, theirs.expect("agreed"));
    says_hello(&ours, &theirs).await;
    Ok((ours, theirs))
}

#[tokio::test]
async fn clients_get_certificates_that_were_made_for_their_server() {
    let (authority, client) = bumping();
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    let (ours, _theirs) = bumped(&authority, &client, "a.test", &wish).await.expect("agreed");
    let facts = ours.tls().expect("TLS");
    let own = facts.certificate.expect("a certificate");
    assert_eq!(own.subject.line, "/CN=a.test");
    assert_eq!(own.issuer.line, "/CN=Test");
    let other = bumped(&authority, &client, "b.test", &wish).await;
    assert!(matches!(other, Err(Fault::Certificate(CertificateFault::WrongName(_)))));
    for (sign, fault) in [
        (SignAs::Untrusted, CertificateFault::UnknownIssuer),
        (SignAs::SelfSigned, CertificateFault::SelfSigned),
    ] {
        let refused = bumped(&authority, &client, "a.test", &LeafWish { sign, ..wish }).await;
        assert_eq!(refused.expect_err("nobody is to trust it"), Fault::Certificate(fault));
    }
}

/// A session goes on with the same certificate only: with another one, such as one that shows a
/// fault that the server has had since, there is a new handshake.
#[tokio::test]
async fn a_session_does_not_outlive_its_certificate() {
    let (authority, client) = bumping();
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    let is_resumed = async |wish: &LeafWish<'_>| {
        let (ours, _theirs) = bumped(&authority, &client, "a.test", wish).await?;
        Ok::<bool, Fault>(ours.tls().is_some_and(|facts| facts.is_resumed))
    };
    assert_eq!(is_resumed(&wish).await, Ok(false));
    assert_eq!(is_resumed(&wish).await, Ok(true));
    let more = LeafWish { names: &["a.test", "b.test"], ..wish };
    assert_eq!(is_resumed(&more).await, Ok(false));
    let strange = LeafWish { sign: SignAs::Untrusted, ..wish };
    assert_eq!(
        is_resumed(&strange).await,
        Err(Fault::Certificate(CertificateFault::UnknownIssuer))
    );
}
