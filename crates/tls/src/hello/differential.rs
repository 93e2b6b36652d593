//! Changed messages, beside rustls' own reading: what both take has the same name and the same
//! protocols. `fuzz/fuzz_targets/client_hello.rs` asks the same of a fuzzer's bytes.

use humboldt_base::rng::Rng;
use rustls::server::Acceptor;

use super::tests::of_rustls;
use super::*;

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What rustls reads: name and protocols; `None`: it takes no message.
fn theirs(bytes: &[u8]) -> Option<(Option<String>, Vec<Vec<u8>>)> {
    let (mut acceptor, mut rest) = (Acceptor::default(), bytes);
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            let hello = accepted.client_hello();
            let name = hello.server_name().map(str::to_ascii_lowercase);
            let name = name.map(|name| name.strip_suffix('.').unwrap_or(&name).to_owned());
            let protocols = hello.alpn().into_iter().flatten();
            return Some((name, protocols.map(<[u8]>::to_vec).collect()));
        }
    }
    None
}

/// Changes a message here and there, and cuts it into records anew.
fn changed(whole: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut below = |most: usize| random.below(most as u64) as usize;
    let mut message = whole.get(5..).unwrap_or_default().to_vec();
    for _ in 0..below(4) {
        let at = below(message.len());
        match below(4) {
            0 => message[at] = below(256) as u8,
            1 => message[at] ^= 1 << below(8),
            2 => message.insert(at, below(256) as u8),
            _ => _ = message.remove(at),
        }
    }
    if below(2) == 0 {
        // Its length is right nevertheless.
        let length = (message.len() - MESSAGE_HEAD_BYTES) as u32;
        message[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
    }
    let each = 1 + below(message.len());
    let mut bytes = Vec::new();
    for part in message.chunks(each) {
        bytes.extend([HANDSHAKE, 3, below(5) as u8]);
        bytes.extend((part.len() as u16).to_be_bytes());
        bytes.extend(part);
    }
    if below(8) == 0 {
        bytes.truncate(below(bytes.len()));
    }
    bytes
}

#[test]
fn a_second_reader_finds_the_same_names() {
    let mut random = Rng::new(number("HUMBOLDT_FUZZ_SEED", 1));
    let names = ["a.test", "Www.Example.test.", "192.0.2.1"].map(of_rustls);
    let (mut both, mut stricter) = (0, 0);
    for case in 0..number("HUMBOLDT_FUZZ_CASES", 20_000) {
        let bytes = changed(&names[case as usize % names.len()], &mut random);
        let ours = read_client_hello(&bytes);
        let Some((name, protocols)) = theirs(&bytes) else { continue };
        match ours {
            Ok(Some((hello, end))) => {
                assert_eq!(hello.sni.as_deref(), name.as_deref(), "{bytes:?}");
                let own: Vec<Vec<u8>> = hello.alpn.iter().map(|one| one.to_vec()).collect();
                assert_eq!(own, protocols, "{bytes:?}");
                assert_eq!(end, bytes.len());
                both += 1;
            }
            Err(NotTls::Broken(_)) => stricter += 1,
            other => panic!("{other:?}: {bytes:?}"),
        }
    }
    assert!(both > 1000 && stricter < both / 10, "{both} read alike, {stricter} only there");
}
