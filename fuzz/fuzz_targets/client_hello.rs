//! The first message of a client, beside rustls' own reading: what both take has the same name and
//! the same protocols, and what rustls takes is not taken for another protocol.

#![no_main]

use humboldt_tls::{FlightReader, HELLO_BYTES_MAX, NotTls, read_client_hello};
use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;

fuzz_target!(|bytes: &[u8]| {
    _ = FlightReader::default().read(bytes);
    let ours = read_client_hello(bytes);
    if let Ok(Some((_, end))) = &ours {
        assert!(*end <= bytes.len() && *end <= HELLO_BYTES_MAX);
        // It is the same however much follows, and nothing less is whole.
        assert_eq!(read_client_hello(&bytes[..*end]), ours);
        assert_eq!(read_client_hello(&bytes[..*end - 1]), Ok(None));
    }
    let (mut acceptor, mut rest) = (Acceptor::default(), bytes);
    while !rest.is_empty() && acceptor.read_tls(&mut rest).is_ok() {
        let Ok(accepted) = acceptor.accept() else { return };
        let Some(accepted) = accepted else { continue };
        let theirs = accepted.client_hello();
        match &ours {
            Ok(Some((hello, _))) => {
                let name = theirs.server_name().map(str::to_ascii_lowercase);
                let name = name.as_deref().map(|name| name.strip_suffix('.').unwrap_or(name));
                assert_eq!(hello.sni.as_deref(), name);
                let protocols = theirs.alpn().into_iter().flatten();
                assert!(hello.alpn.iter().map(|name| &**name).eq(protocols));
            }
            // Stricter is right; that more is needed, or that it is no TLS, would be wrong.
            Err(NotTls::Broken(_) | NotTls::TooLong) => {}
            other => panic!("{other:?}"),
        }
        return;
    }
});
