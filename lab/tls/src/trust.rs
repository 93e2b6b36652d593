//! The client's end: whom it trusts, and the sessions that each user remembers.

use crate::{ALPN, TlsError};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Users with a memory of their own. Beyond it two users share one, and resume a little more often
/// than real ones do.
const USERS_MAX: usize = 4096;

/// Sessions that one user remembers: eight for each of eight servers.
const SESSIONS_MAX: usize = 64;

/// The authorities that clients trust, and whether they resume sessions.
#[derive(Clone, Debug)]
pub struct Trust {
    config: ClientConfig,
    resume: bool,
}

impl Trust {
    /// Trusts the authorities in a text of certificates in PEM form, and nobody else. With
    /// `resume` a user goes on with the session of an earlier connection, as browsers do.
    ///
    /// # Errors
    ///
    /// The text has no certificate, or one that is damaged.
    pub fn from_pem(pem: &str, resume: bool) -> Result<Self, TlsError> {
        Self::with_provider(pem, resume, ring::default_provider())
    }

    /// The same, but with TLS 1.3, AES-128 and X25519 only, so that all servers do the same work.
    ///
    /// # Errors
    ///
    /// As [`Trust::from_pem`].
    pub fn with_one_cipher(pem: &str, resume: bool) -> Result<Self, TlsError> {
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
        provider.kx_groups = vec![ring::kx_group::X25519];
        Self::with_provider(pem, resume, provider)
    }

    fn with_provider(pem: &str, resume: bool, provider: CryptoProvider) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate
                .map_err(|error| TlsError::Pem { what: format!("not readable ({error})") })?;
            roots.add(certificate)?;
        }
        if roots.is_empty() {
            return Err(TlsError::Pem { what: "there is no certificate".to_owned() });
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config, resume })
    }

    /// The users of one thread, who remember nothing yet.
    #[must_use]
    pub fn users(&self) -> Users {
        Users { config: self.config.clone(), resume: self.resume, memories: Vec::new() }
    }

    /// The name that a server's certificate must have, from the host of a URL: `HOST`, `HOST:PORT`,
    /// or an address.
    ///
    /// # Errors
    ///
    /// No certificate can be for such a name.
    pub fn server_name(authority: &str) -> Result<ServerName<'static>, TlsError> {
        let host = host_of(authority);
        ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
    }
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match authority.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => authority,
    }
}

/// The users of one thread, each with the sessions that it can resume.
#[derive(Debug)]
pub struct Users {
    config: ClientConfig,
    resume: bool,
    memories: Vec<Option<Arc<ClientConfig>>>,
}

impl Users {
    /// The settings of a user's next connection.
    pub(crate) fn of(&mut self, user: u32) -> Arc<ClientConfig> {
        let index = if self.resume { user as usize % USERS_MAX } else { 0 };
        if self.memories.len() <= index {
            self.memories.resize(index + 1, None);
        }
        let (config, resume) = (&self.config, self.resume);
        let new = || {
            let mut config = config.clone();
            if resume {
                config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
            }
            Arc::new(config)
        };
        Arc::clone(self.memories[index].get_or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_host_of_an_authority() {
        for (authority, host) in [
            ("www.lab.example", "www.lab.example"),
            ("www.lab.example:443", "www.lab.example"),
            ("127.0.0.1:8443", "127.0.0.1"),
            ("[::1]:8443", "::1"),
            ("::1", "::1"),
        ] {
            assert_eq!(host_of(authority), host);
            assert!(Trust::server_name(authority).is_ok(), "{authority}");
        }
        assert!(Trust::server_name("no name").is_err());
    }

    #[test]
    fn a_text_without_certificates_is_no_authority() {
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
            let error = Trust::from_pem(text, true).expect_err("no certificate").to_string();
            assert!(error.contains("PEM"), "{text}: {error}");
        }
    }
}
