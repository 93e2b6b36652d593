//! Ciphers and versions.

use std::sync::Arc;

use humboldt_conf::{Cipher, TlsSettings};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

/// The cryptography with the ciphers of `settings`, in their order. Those of TLS 1.3 are always
/// there, as with OpenSSL.
pub(crate) fn provider(settings: &TlsSettings) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if let Some(ciphers) = &settings.ciphers {
        let mut left = std::mem::take(&mut provider.cipher_suites);
        let suite_of = |cipher: &Cipher| suite(*cipher);
        let mut wanted: Vec<CipherSuite> = ciphers.iter().map(suite_of).collect();
        wanted.splice(0..0, left.iter().map(|s| s.suite()).filter(is_of_tls13));
        for name in wanted {
            if let Some(at) = left.iter().position(|suite| suite.suite() == name) {
                provider.cipher_suites.push(left.remove(at));
            }
        }
    }
    Arc::new(provider)
}

/// The versions of `settings`.
pub(crate) fn versions(settings: &TlsSettings) -> Vec<&'static SupportedProtocolVersion> {
    let mut versions = Vec::new();
    if settings.allows_tls13 {
        versions.push(&TLS13);
    }
    if settings.allows_tls12 {
        versions.push(&TLS12);
    }
    versions
}

fn is_of_tls13(suite: &CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
    )
}

fn suite(cipher: Cipher) -> CipherSuite {
    match cipher {
        Cipher::EcdsaAes256 => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        Cipher::EcdsaAes128 => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        Cipher::EcdsaChaCha20 => CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        Cipher::RsaAes256 => CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        Cipher::RsaAes128 => CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Cipher::RsaChaCha20 => CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_of_tls13_are_always_there_and_the_others_as_they_are_named() {
        let ciphers = Some(vec![Cipher::RsaChaCha20, Cipher::EcdsaAes128]);
        let chosen = provider(&TlsSettings { ciphers, ..TlsSettings::default() });
        let names: Vec<_> = chosen.cipher_suites.iter().map(|suite| suite.suite()).collect();
        assert_eq!(names.iter().filter(|name| is_of_tls13(name)).count(), 3);
        assert_eq!(names[3..], [suite(Cipher::RsaChaCha20), suite(Cipher::EcdsaAes128)]);
        assert_eq!(provider(&TlsSettings::default()).cipher_suites.len(), 9);
    }
}
