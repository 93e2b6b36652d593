//! The settings of connections to servers.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use humboldt_conf::{ServerVerification, TlsOutgoing};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::ALPN;
use crate::error::SetupProblem;
use crate::files::{self, Files};
use crate::identity::{Identified, Judge, JudgedLater, identify};
use crate::intermediates::Completing;
use crate::provider::{provider, versions};
use crate::server::identity;
use crate::sessions::{Proofs, Sessions};
use crate::verify::Verifier;

/// The next number of settings.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The settings of connections to servers, shared by all cores. Sessions are resumed within the
/// same settings only.
#[derive(Clone)]
pub struct ClientSide {
    config: Arc<ClientConfig>,
    number: u32,
    name: Option<ServerName<'static>>,
    verifier: Arc<dyn Judge>,
    verification: ServerVerification,
    /// See [`ClientSide::lenient_config`].
    lenient: Arc<OnceLock<Arc<ClientConfig>>>,
    resumes: bool,
    proofs: Arc<Proofs>,
    lenient_proofs: Arc<Proofs>,
}

impl fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSide").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ClientSide {
    /// The settings of a line.
    ///
    /// # Errors
    /// A file that cannot be read or used.
    pub fn new(options: &TlsOutgoing, files: &dyn Files) -> Result<Self, SetupProblem> {
        let provider = provider(&options.settings);
        let verifier: Arc<dyn Judge> = Arc::new(Verifier::new(options, &provider, files)?);
        let proofs = Arc::default();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(&options.settings))
            .map_err(|error| SetupProblem::Settings(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>);
        let mut config = match &options.certificate {
            Some(pair) => {
                let own = identity(pair, &provider, files)?;
                builder
                    .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(own)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = match options.settings.resumes {
            true => Resumption::store(Arc::new(Sessions::new(Arc::clone(&proofs)))),
            false => Resumption::disabled(),
        };
        let name = match &options.name {
            Some(name) => Some(
                name_of(name.as_bytes())
                    .ok_or_else(|| SetupProblem::BadName { name: name.clone() })?,
            ),
            None => None,
        };
        Ok(Self {
            config: Arc::new(config),
            number: NEXT.fetch_add(1, Relaxed),
            name,
            verifier,
            verification: options.verification,
            lenient: Arc::default(),
            resumes: options.settings.resumes,
            proofs,
            lenient_proofs: Arc::default(),
        })
    }

    /// The same, and the certificates of a file may stand for those that servers fail to send.
    ///
    /// # Errors
    /// A file that cannot be read or used.
    pub fn with_intermediates(self, path: &str, files: &dyn Files) -> Result<Self, SetupProblem> {
        let verifier = Completing::new(self.verifier, files::certificates(files, path)?);
        let verifier: Arc<dyn Judge> = Arc::new(verifier);
        let mut config = ClientConfig::clone(&self.config);
        config
            .dangerous()
            .set_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>);
        Ok(Self { config: Arc::new(config), verifier, lenient: Arc::default(), ..self })
    }

    /// For a connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// For a connection whose server is judged after the handshake, by [`ClientSide::identify`].
    /// Such connections have sessions of their own: a connection of the other kind never goes on
    /// with one that nobody has judged.
    pub fn lenient_config(&self) -> Arc<ClientConfig> {
        let make = || {
            let mut config = ClientConfig::clone(&self.config);
            let verifier = JudgedLater(Arc::clone(&self.verifier));
            config.dangerous().set_certificate_verifier(Arc::new(verifier));
            if self.resumes {
                let sessions = Sessions::new(Arc::clone(&self.lenient_proofs));
                config.resumption = Resumption::store(Arc::new(sessions));
            }
            Arc::new(config)
        };
        Arc::clone(self.lenient.get_or_init(make))
    }

    /// Judges the certificates that a server has shown, its own first, for `host` and for the
    /// present moment. They are those of a handshake with [`ClientSide::lenient_config`], or were
    /// seen on the way ([`FlightReader`](crate::FlightReader)); then nobody has proved
    /// that they are the server's.
    pub fn identify(&self, host: &[u8], chain: &[CertificateDer<'_>]) -> Option<Identified> {
        let name = self.name_for(host)?;
        Some(identify(&*self.verifier, self.verification, chain, &name, UnixTime::now()))
    }

    /// Notes that the server of `host` has just proved in a handshake of its own that it has the
    /// key of the first of these certificates. Only then may its sessions be taken up.
    /// `is_lenient`: under [`ClientSide::lenient_config`].
    pub fn has_proved(&self, host: &[u8], chain: &[CertificateDer<'_>], is_lenient: bool) {
        let (Some(name), Some((own, others))) = (self.name_for(host), chain.split_first()) else {
            return;
        };
        let proofs = if is_lenient { &self.lenient_proofs } else { &self.proofs };
        proofs.note(&name, own, others, UnixTime::now());
    }

    /// The number of these settings, which no others of this process have, and which is never 0. A
    /// connection is only used again under the settings that it was verified by.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes them ready to verify servers, if they are not. A thread that may block does that
    /// before a connection is made.
    pub fn unprepared(&self) -> Option<impl FnOnce() + Send + 'static> {
        let verifier = (!self.verifier.is_ready()).then(|| Arc::clone(&self.verifier))?;
        Some(move || verifier.prepare())
    }

    /// The name that the certificate of `host` must have: that of the settings, or the host's.
    pub fn name_for(&self, host: &[u8]) -> Option<ServerName<'static>> {
        self.name.clone().or_else(|| name_of(host))
    }
}

/// A host of a URL as a name for certificates.
fn name_of(host: &[u8]) -> Option<ServerName<'static>> {
    let text = std::str::from_utf8(host).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(ServerName::IpAddress(ip.into()));
    }
    ServerName::try_from(text.strip_suffix('.').unwrap_or(text).to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_urls_are_names() {
        let text = |host: &str| name_of(host.as_bytes()).map(|name| name.to_str().into_owned());
        for (host, name) in [
            ("a.test", "a.test"),
            ("a.test.", "a.test"),
            ("[::1]", "::1"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(text(host).as_deref(), Some(name));
        }
        for none in ["", "a b", "-"] {
            assert_eq!(text(none), None, "{none}");
        }
    }
}
