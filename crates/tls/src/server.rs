//! The settings of a port.

use std::fmt;
use std::sync::Arc;

use humboldt_conf::{CertificateFiles, ClientCertificates, TlsPort};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig};

use crate::ALPN;
use crate::certificates::names;
use crate::error::SetupProblem;
use crate::files::{self, Files};
use crate::named::{ByName, Named};
use crate::provider::{provider, versions};

/// The settings of a port, shared by all its connections on all cores. Sessions are resumed by
/// tickets, so that any core can go on with a session that another one began. A reconfiguration
/// makes new settings, whose tickets have new keys. Ports that ask for certificates of clients have
/// no tickets: each connection has its own, which is verified.
#[derive(Clone)]
pub struct ServerSide {
    config: Arc<ServerConfig>,
}

impl fmt::Debug for ServerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSide").finish_non_exhaustive()
    }
}

impl ServerSide {
    /// The settings of a port.
    ///
    /// # Errors
    /// A file that cannot be read or used.
    pub fn new(port: &TlsPort, files: &dyn Files) -> Result<Self, SetupProblem> {
        let provider = provider(&port.settings);
        let mut certificates = Vec::new();
        for pair in &port.certificates {
            certificates.push(named(identity(pair, &provider, files)?));
        }
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(&port.settings))
            .map_err(|error| SetupProblem::Settings(error.to_string()))?;
        let builder = match &port.clients {
            Some(clients) => {
                builder.with_client_cert_verifier(client_verifier(clients, &provider, files)?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName::new(certificates)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.ignore_client_order = port.settings.prefers_own_order;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // The library does not verify a certificate again when its session is resumed, and each
        // resumption brings a new ticket: a client would be known for ever.
        match port.settings.resumes && port.clients.is_none() {
            true => {
                config.ticketer = aws_lc_rs::Ticketer::new()
                    .map_err(|error| SetupProblem::Settings(error.to_string()))?;
            }
            false => config.send_tls13_tickets = 0,
        }
        Ok(Self { config: Arc::new(config) })
    }

    /// For a connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// A certificate, its chain and its key, which belong together.
pub(crate) fn identity(
    pair: &CertificateFiles,
    provider: &CryptoProvider,
    files: &dyn Files,
) -> Result<CertifiedKey, SetupProblem> {
    let chain = files::certificates(files, &pair.certificate)?;
    let key_file = pair.key.as_ref().unwrap_or(&pair.certificate);
    let key = files::key(files, key_file)?;
    let bad = |why: String| SetupProblem::BadKey { file: key_file.clone(), why };
    let key = provider.key_provider.load_private_key(key).map_err(|why| bad(why.to_string()))?;
    let identity = CertifiedKey::new(chain, key);
    match identity.keys_match() {
        // They fit together, or the library cannot tell.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(identity),
        Err(Error::InconsistentKeys(_)) => Err(SetupProblem::Mismatch {
            certificate: pair.certificate.clone(),
            key: key_file.clone(),
        }),
        // The certificate cannot be read.
        Err(why) => Err(SetupProblem::Settings(format!("{}: {why}", pair.certificate))),
    }
}

fn named(identity: CertifiedKey) -> Named {
    let own = identity.cert.first().and_then(|own| x509_parser::parse_x509_certificate(own).ok());
    let names = own.map(|(_, certificate)| names(&certificate)).unwrap_or_default();
    Named { key: Arc::new(identity), names }
}

fn client_verifier(
    clients: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
    files: &dyn Files,
) -> Result<Arc<dyn ClientCertVerifier>, SetupProblem> {
    let mut roots = RootCertStore::empty();
    for file in &clients.authorities {
        roots.add_parsable_certificates(files::certificates(files, file)?);
    }
    for directory in &clients.directories {
        roots.add_parsable_certificates(files::certificates_of_directory(files, directory)?);
    }
    if clients.trusts_system {
        roots.add_parsable_certificates(files.system_roots());
    }
    if roots.is_empty() {
        return Err(SetupProblem::NoAuthority);
    }
    let provider = Arc::clone(provider);
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let revocations = files::revocations(files, &clients.revocations)?;
    if !revocations.is_empty() {
        builder = builder.with_crls(revocations).enforce_revocation_expiration();
        if !clients.checks_whole_chain {
            builder = builder.only_check_end_entity_revocation();
        }
    }
    if clients.is_optional {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|error| SetupProblem::Settings(error.to_string()))?;
    Ok(verifier)
}
