use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// The message of a real client.
pub(super) fn of_rustls(name: &'static str) -> Vec<u8> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(name).expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("written");
    }
    bytes
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u16;
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), content].concat()
}

/// The extension of a name.
fn sni(name: &[u8]) -> Vec<u8> {
    let length = name.len() as u16;
    let entry = [&[0][..], &length.to_be_bytes(), name].concat();
    extension(SERVER_NAME, &[&(entry.len() as u16).to_be_bytes()[..], &entry].concat())
}

/// The body of a message.
fn body(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    body
}

fn message(body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[CLIENT_HELLO][..], &length, body].concat()
}

/// Records with at most so many bytes of a message each.
fn records(message: &[u8], bytes_each: usize) -> Vec<u8> {
    let parts = message.chunks(bytes_each);
    let record =
        |part: &[u8]| [&[HANDSHAKE, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    parts.flat_map(record).collect()
}

fn hello(extensions: &[u8]) -> Vec<u8> {
    records(&message(&body(extensions)), 16_384)
}

fn read(bytes: &[u8]) -> Result<ClientHello, NotTls> {
    let (hello, end) = read_client_hello(bytes)?.expect("a whole message");
    assert_eq!(end, bytes.len());
    Ok(hello)
}

fn name_of(extensions: &[u8]) -> Result<Option<String>, NotTls> {
    Ok(read(&hello(extensions))?.sni.map(String::from))
}

fn is_broken<T: std::fmt::Debug>(result: Result<T, NotTls>) -> bool {
    matches!(result, Err(NotTls::Broken(_)))
}

#[test]
fn the_message_of_a_real_client_is_read() {
    let bytes = of_rustls("Www.Example.test");
    let found = read(&bytes).expect("a message");
    assert_eq!(found.sni.as_deref(), Some("www.example.test"));
    assert_eq!(found.alpn, [Box::from(*b"h2"), Box::from(*b"http/1.1")]);
    assert_eq!((found.record_version, found.newest_version), (0x0301, 0x0304));
    assert!(!found.has_ech);
    // A client that wants an address sends no name.
    assert_eq!(read(&of_rustls("192.0.2.1")).expect("a message").sni, None);
}

#[test]
fn nothing_is_decided_before_the_message_is_whole() {
    let whole = of_rustls("a.test");
    for end in 0..whole.len() {
        assert_eq!(read_client_hello(&whole[..end]), Ok(None), "{end} bytes");
    }
    // What follows stays.
    let more = [&whole[..], b"more"].concat();
    assert_eq!(read_client_hello(&more).expect("a message").expect("whole").1, whole.len());
}

#[test]
fn a_message_in_many_records_is_the_same_one() {
    let whole = of_rustls("a.test");
    let joined = &whole[5..];
    let expected = read(&whole).expect("a message");
    for bytes_each in [1, 2, 3, 4, 5, 7, 100, joined.len() - 1] {
        let cut = records(joined, bytes_each);
        assert_eq!(read(&cut).as_ref(), Ok(&expected), "{bytes_each}");
        for end in 0..cut.len() {
            assert_eq!(read_client_hello(&cut[..end]), Ok(None), "{end} of {bytes_each}");
        }
    }
}

#[test]
fn names_have_one_spelling_and_addresses_are_none() {
    for (sent, read) in [
        ("a.test", Some("a.test")),
        ("A.Test", Some("a.test")),
        ("a.test.", Some("a.test")),
        ("_srv.a_b.test", Some("_srv.a_b.test")),
        ("xn--bcher-kva.test", Some("xn--bcher-kva.test")),
        ("192.0.2.1", None),
        ("2001:db8::1", None),
    ] {
        assert_eq!(name_of(&sni(sent.as_bytes())), Ok(read.map(str::to_owned)), "{sent}");
    }
    assert_eq!(name_of(&[]), Ok(None));
}

#[test]
fn what_a_server_could_take_for_another_name_is_refused() {
    let long = [b'a'; 300];
    for name in [
        b"" as &[u8],
        b"a b",
        b"a\0.test",
        b"a.test\n",
        b"*.test",
        b"a..test",
        b".test",
        b".",
        b"b\xfccher.test",
        b"[::1]",
        b"a.test:443",
        b"-a.test",
        &long,
    ] {
        assert!(is_broken(name_of(&sni(name))), "{:?}", String::from_utf8_lossy(name));
    }
    // Two names, in one list or in two extensions; another kind; an empty list.
    let entry = |name: &[u8]| [&[0, 0, name.len() as u8][..], name].concat();
    let list =
        |all: &[u8]| extension(SERVER_NAME, &[&(all.len() as u16).to_be_bytes()[..], all].concat());
    assert_eq!(name_of(&list(&entry(b"a.test"))), Ok(Some("a.test".to_owned())));
    let two = [entry(b"a.test"), entry(b"b.test")].concat();
    for extensions in [
        list(&two),
        [sni(b"a.test"), sni(b"b.test")].concat(),
        [sni(b"a.test"), sni(b"a.test")].concat(),
        list(&[1, 0, 1, b'a']),
        list(&[entry(b"a.test"), vec![1, 0]].concat()),
        list(&[]),
        extension(SERVER_NAME, &[]),
        extension(SERVER_NAME, &[0, 9, 0, 0, 6, b'a', b'.', b't', b'e', b's', b't', 0]),
    ] {
        assert!(is_broken(name_of(&extensions)), "{extensions:?}");
    }
}

#[test]
fn versions_protocols_and_encrypted_names_are_told() {
    let found = read(&hello(&extension(SUPPORTED_VERSIONS, &[4, 0x2a, 0x2a, 3, 3])));
    assert_eq!(found.map(|found| found.newest_version), Ok(0x0303));
    // The list counts, and not the version at the front; values of GREASE do not.
    let found = read(&hello(&extension(SUPPORTED_VERSIONS, &[4, 0xfa, 0xfa, 3, 1])));
    assert_eq!(found.map(|found| found.newest_version), Ok(0x0301));
    for bad in [&[] as &[u8], &[0], &[1, 3], &[2, 0x1a, 0x1a], &[2, 3], &[2, 3, 3, 0]] {
        assert!(is_broken(read(&hello(&extension(SUPPORTED_VERSIONS, bad)))), "{bad:?}");
    }
    let found = read(&hello(&extension(ALPN, &[0, 3, 2, b'h', b'2'])));
    assert_eq!(found.map(|found| found.alpn), Ok(vec![Box::from(*b"h2")]));
    for bad in [&[] as &[u8], &[0, 0], &[0, 1, 0], &[0, 2, 2, b'h'], &[0, 2, 1, b'h', 0]] {
        assert!(is_broken(read(&hello(&extension(ALPN, bad)))), "{bad:?}");
    }
    let found = read(&hello(&extension(ENCRYPTED_CLIENT_HELLO, &[0; 40])));
    assert_eq!(found.map(|found| found.has_ech), Ok(true));
    // Old clients have no extensions at all.
    let mut old = body(&[]);
    old.truncate(old.len() - 2);
    let found = read(&records(&message(&old), 16_384)).expect("a message");
    assert_eq!((found.newest_version, found.sni), (0x0303, None));
}

#[test]
fn lengths_that_are_wrong_break_the_message() {
    let good = body(&sni(b"a.test"));
    assert!(read(&records(&message(&good), 100)).is_ok());
    // Each byte that is cut off, or added, is missed.
    for end in 0..good.len() {
        // Without its extensions it is a message too.
        if end != 41 {
            assert!(is_broken(read(&records(&message(&good[..end]), 100))), "{end}");
        }
    }
    assert!(is_broken(read(&records(&message(&[&good[..], &[0]].concat()), 100))));
    // A session's number that is too long, no ciphers, half a cipher, no compression.
    let front = [&[3, 3][..], &[7; 32]].concat();
    for rest in [
        [&[33][..], &[0; 33], &[0, 2, 0x13, 1, 1, 0]].concat(),
        vec![0, 0, 0, 1, 0],
        vec![0, 0, 1, 0x13, 1, 0],
        vec![0, 0, 2, 0x13, 1, 0],
    ] {
        let bad = [&front[..], &rest].concat();
        assert!(is_broken(read(&records(&message(&bad), 100))), "{rest:?}");
    }
    // Something behind it in its record, which nobody may send yet.
    let more = [message(&good), message(&good)].concat();
    assert!(is_broken(read_client_hello(&records(&more, 16_384))));
}

#[test]
fn records_that_are_wrong_are_told_at_once() {
    // An empty one, one that is too long, one of another kind in the middle, another message.
    for bad in [
        vec![22, 3, 1, 0, 0],
        vec![22, 3, 1, 0x40, 1],
        vec![22, 3, 1, 0, 1, 1, 21, 3, 1, 0, 2, 1, 0],
        vec![22, 3, 1, 0, 1, 1, 22, 3, 1, 0, 0],
        vec![22, 3, 1, 0, 4, 2],
        vec![22, 3, 1, 0, 1, 1, 22, 9],
    ] {
        let told = read_client_hello(&bad);
        assert!(told.is_err_and(NotTls::is_broken_tls), "{bad:?}");
    }
}

#[test]
fn other_protocols_are_told_by_their_first_bytes() {
    for other in [
        b"GET / HTTP/1.1\r\n" as &[u8],
        b"SSH-2.0-OpenSSH",
        b"\0",
        b"\x16GET",
        b"\x17\x03\x03\x00\x10",
        b"\x05\x01\0",
        b"\x80\x2e\x02",
    ] {
        assert_eq!(read_client_hello(other), Err(NotTls::OtherProtocol), "{other:?}");
    }
    assert!(!NotTls::OtherProtocol.is_broken_tls());
    // Servers read on behind these, and must not get a first message that nobody has read.
    for broken in [
        b"\x15\x03\x01\x00\x02\x01\x5a\x16\x03\x01" as &[u8],
        b"\x14\x03\x01\x00\x01\x01",
        b"\x16\x00\x00",
        b"\x16\x02",
        b"\x16\x04\x00",
        b"\x15\x0f",
    ] {
        assert!(is_broken(read_client_hello(broken)), "{broken:?}");
    }
    // A message of SSL 2, also if it comes byte by byte: servers may answer it with TLS.
    let old = [0x80, 0x2e, 1, 3, 1, 0, 0x15];
    for end in 0..4 {
        assert_eq!(read_client_hello(&old[..end]), Ok(None));
    }
    assert_eq!(read_client_hello(&old), Err(NotTls::Ssl2));
    assert!(NotTls::Ssl2.is_broken_tls());
}

#[test]
fn the_length_is_bounded_before_the_bytes_are_there() {
    // The length says so.
    let [_, length @ ..] = (HELLO_BYTES_MAX as u32).to_be_bytes();
    let head = [&[22, 3, 1, 0x40, 0, 1][..], &length].concat();
    assert_eq!(read_client_hello(&head), Err(NotTls::TooLong));
    let most = [&[22, 3, 1, 0x40, 0, 1][..], &[0, 0xff, 0xfc]].concat();
    assert_eq!(read_client_hello(&most), Ok(None));
    // The records do, whose heads count.
    let body = body(&extension(99, &[0; 60_000]));
    assert!(read(&records(&message(&body), 16_384)).is_ok());
    let many = records(&message(&body), 1);
    assert_eq!(read_client_hello(&many), Err(NotTls::TooLong));
    assert_eq!(read_client_hello(&many[..HELLO_BYTES_MAX - 1]), Ok(None));
    assert_eq!(read_client_hello(&many[..HELLO_BYTES_MAX]), Err(NotTls::TooLong));
}

#[test]
fn one_of_many_extensions_that_is_there_twice_is_found() {
    let many: Vec<u8> = (0..16_000).flat_map(|n: u16| extension(n + 100, &[])).collect();
    assert!(read(&records(&message(&body(&many)), 16_384)).is_ok());
    let twice = [&many[..], &extension(100, &[])].concat();
    assert!(is_broken(read(&records(&message(&body(&twice)), 16_384))));
}

#[test]
fn a_second_message_may_come_behind_early_data() {
    let name = |bytes: &[u8]| {
        let read = read_second_hello(bytes);
        read.map(|hello| hello.map(|hello| hello.sni.unwrap_or_default().to_string()))
    };
    let hello = of_rustls("www.a.test");
    let change = [CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1];
    let early = [&[APPLICATION_DATA, 3, 3, 0, 50][..], &[9; 50]].concat();
    for before in [&[][..], &change, &early, &[&early[..], &change].concat()] {
        let bytes = [before, &hello].concat();
        assert_eq!(name(&bytes), Ok(Some("www.a.test".to_owned())));
        for end in 0..bytes.len() {
            assert_eq!(name(&bytes[..end]), Ok(None), "{end}");
        }
    }
    let alert = [21, 3, 3, 0, 2, 2, 47];
    assert!(matches!(name(&alert), Err(NotTls::Broken(_))));
    assert!(matches!(name(&[&change[..], b"GET "].concat()), Err(NotTls::OtherProtocol)));
    let endless = early.repeat(SECOND_HELLO_BYTES_MAX / early.len() + 1);
    assert_eq!(name(&endless), Err(NotTls::TooLong));
}
