//! A certificate authority for one run, and the certificates that it signs.

use crate::{ALPN, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// An authority whose key lives as long as a run. Nobody else should trust it.
///
/// It can be sent to other machines of the laboratory: there it signs certificates of their own
/// servers.
#[derive(Clone, Serialize, Deserialize)]
pub struct Authority {
    name: String,
    key_pem: String,
    certificate_pem: String,
}

/// A server's certificate with its key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, in PEM form.
    pub certificate_pem: String,
    /// Its private key, in PEM form.
    pub key_pem: String,
}

/// Without its private key, which belongs in no log.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Without its private key, which belongs in no log.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certificate = &self.certificate_pem;
        f.debug_struct("Identity").field("certificate_pem", certificate).finish_non_exhaustive()
    }
}

/// The settings of a server's end, shared by all of its connections.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
}

impl Authority {
    /// Makes a key and the authority's own certificate. Clients show the name in their messages.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn new(name: &str) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let name = name_of(name, &key);
        let certificate = authority(&name)?.self_signed(&key)?;
        Ok(Self { name, key_pem: key.serialize_pem(), certificate_pem: certificate.pem() })
    }

    /// An authority that [`new`](Self::new) made with this name, from its certificate and key.
    ///
    /// # Errors
    ///
    /// They are not in PEM form, or do not belong together.
    pub fn of(name: &str, certificate_pem: &str, key_pem: &str) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(key_pem)?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| TlsError::Pem { what: format!("not readable ({error})") })?;
        // The certificate ends with a signature; before it stands the key, as it is.
        let own = key.public_key_raw();
        if !certificate.windows(own.len()).any(|part| part == own) {
            return Err(TlsError::Pem { what: "the key belongs to another certificate".into() });
        }
        Ok(Self {
            name: name_of(name, &key),
            key_pem: key_pem.to_owned(),
            certificate_pem: certificate_pem.to_owned(),
        })
    }

    /// The certificate for those who are to trust it, in PEM form.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Its private key in PEM form: for a proxy that signs certificates in its name.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// A new certificate for a server with these names: host names and IP addresses.
    ///
    /// # Errors
    ///
    /// A name that no certificate can have, or an authority that came damaged.
    pub fn issue(&self, names: &[String]) -> Result<Identity, TlsError> {
        let issuer = Issuer::new(authority(&self.name)?, KeyPair::from_pem(&self.key_pem)?);
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        let own = names.first().map_or("server", String::as_str);
        params.distinguished_name.push(DnType::CommonName, own);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// Two authorities have two names. Otherwise a client that trusts one of them would say of the
/// other's certificates that their signature is wrong, and not that nobody knows their issuer.
fn name_of(name: &str, key: &KeyPair) -> String {
    let last = key.public_key_raw().iter().rev().take(4);
    last.fold(format!("{name} "), |name, byte| format!("{name}{byte:02x}"))
}

fn authority(name: &str) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

impl Identity {
    /// The settings of a server that has this certificate. Sessions are resumed by tickets, so any
    /// thread can go on with a session that another one began.
    ///
    /// # Errors
    ///
    /// The certificate and the key do not fit together, or the system gives no random numbers.
    pub fn server(&self) -> Result<ServerTls, TlsError> {
        let damaged = |what: &str| TlsError::Pem { what: what.to_owned() };
        let certificate = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|_| damaged("the server's certificate is damaged"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .map_err(|_| damaged("the server's key is damaged"))?;
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.ticketer = ring::Ticketer::new()?;
        Ok(ServerTls { config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_debug_text_has_a_private_key() {
        let authority = Authority::new("a").unwrap();
        let identity = authority.issue(&["localhost".to_owned()]).unwrap();
        let shown = format!("{authority:?} {identity:?}");
        assert!(shown.contains("CERTIFICATE") && !shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn an_authority_that_was_kept_signs_as_before() {
        let (first, other) = (Authority::new("a").unwrap(), Authority::new("a").unwrap());
        assert_ne!(first.name, other.name);
        let kept = Authority::of("a", first.certificate_pem(), first.key_pem()).unwrap();
        assert_eq!(kept.name, first.name);
        assert!(kept.issue(&["localhost".to_owned()]).unwrap().server().is_ok());
        assert!(Authority::of("a", other.certificate_pem(), first.key_pem()).is_err());
        assert!(Authority::of("a", "no certificate", first.key_pem()).is_err());
    }
}
