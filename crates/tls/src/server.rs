//! The settings of a port.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use humboldt_conf::{CertificateFiles, ClientCertificates, Location, TlsPort};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig};

use crate::ALPN;
use crate::certificates::names;
use crate::error::SetupProblem;
use crate::files::{self, Authorities, Files};
use crate::named::{ByName, Named, WithAnswer};
use crate::provider::{provider, versions};
use crate::stapled::Stapled;

/// The settings of a port, shared by all its connections on all cores. Sessions are resumed by
/// tickets, so that any core can go on with a session that another one began. A reconfiguration
/// makes new settings, whose tickets have new keys. Ports that ask for certificates of clients have
/// no tickets: each connection has its own, which is verified.
#[derive(Clone)]
pub struct ServerSide {
    config: Arc<ServerConfig>,
    demands: u64,
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
        for (at, file) in &port.stapled {
            if let Some(named) = certificates.get_mut(*at) {
                staple(named, file, files)?;
            }
        }
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(&port.settings))
            .map_err(|error| SetupProblem::Settings(error.to_string()))?;
        let mut demands = DefaultHasher::new();
        format!("{:?} {:?}", port.settings, port.clients).hash(&mut demands);
        let builder = match &port.clients {
            Some(clients) => {
                hash_contents(clients, files, &mut demands)?;
                let verifier = client_verifier(clients, &port.location, &provider, files)?;
                builder.with_client_cert_verifier(verifier)
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
        Ok(Self { config: Arc::new(config), demands: demands.finish() })
    }

    /// A number for what is asked of clients: versions, ciphers, and the contents of the files that
    /// their certificates are verified by. Other demands have another number.
    pub fn demands(&self) -> u64 {
        self.demands
    }

    /// Settings that are made elsewhere.
    pub(crate) fn of(config: ServerConfig) -> Self {
        Self { config: Arc::new(config), demands: 0 }
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
    Named { key: Arc::new(identity), names, stapled: None }
}

/// Adds an answer of OCSP to a certificate.
fn staple(named: &mut Named, file: &str, files: &dyn Files) -> Result<(), SetupProblem> {
    let mut key = CertifiedKey::clone(&named.key);
    let Some(own) = key.cert.first() else { return Ok(()) };
    let Stapled { answer, until_s } = Stapled::new(files, file, own)?;
    if until_s <= UnixTime::now().as_secs() {
        // A port without it serves its clients; no port would not.
        tracing::warn!("{file}: this answer of OCSP is too old, and is not sent: renew the file");
        return Ok(());
    }
    key.ocsp = Some(answer);
    let (key, file) = (Arc::new(key), file.to_owned());
    named.stapled = Some(WithAnswer { key, until_s, file, told: AtomicBool::new(false) });
    Ok(())
}

/// The contents of the files that certificates of clients are verified by.
fn hash_contents(
    clients: &ClientCertificates,
    files: &dyn Files,
    hasher: &mut DefaultHasher,
) -> Result<(), SetupProblem> {
    for path in clients.authorities.iter().chain(&clients.revocations) {
        files::read(files, path)?.hash(hasher);
    }
    for path in clients.directories.iter().filter_map(|path| files.list(path).ok()).flatten() {
        (files.read(&path).ok(), path).hash(hasher);
    }
    Ok(())
}

fn client_verifier(
    clients: &ClientCertificates,
    location: &Location,
    provider: &Arc<CryptoProvider>,
    files: &dyn Files,
) -> Result<Arc<dyn ClientCertVerifier>, SetupProblem> {
    let Authorities { store: mut roots, unusable, .. } =
        files::authorities(files, &clients.authorities, &clients.directories)?;
    unusable.tell(location);
    if clients.trusts_system {
        // Clients are told whom a certificate may be from, so it must be known now.
        let system = files.system_roots().read();
        roots.roots.extend(system.iter().flat_map(|system| system.roots.iter().cloned()));
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
