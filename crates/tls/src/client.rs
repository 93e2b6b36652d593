//! The settings of connections to servers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use humboldt_conf::TlsOutgoing;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;

use crate::ALPN;
use crate::error::SetupProblem;
use crate::files::Files;
use crate::provider::{provider, versions};
use crate::server::identity;
use crate::sessions::Sessions;
use crate::system::SystemRoots;
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
    system: Option<Arc<SystemRoots>>,
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
        let verifier = Arc::new(Verifier::new(options, &provider, files)?);
        let system = verifier.system().cloned();
        let sessions = Sessions::new(Arc::clone(verifier.proofs()));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(&options.settings))
            .map_err(|error| SetupProblem::Settings(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
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
            true => Resumption::store(Arc::new(sessions)),
            false => Resumption::disabled(),
        };
        let name = match &options.name {
            Some(name) => Some(
                name_of(name.as_bytes())
                    .ok_or_else(|| SetupProblem::BadName { name: name.clone() })?,
            ),
            None => None,
        };
        Ok(Self { config: Arc::new(config), number: NEXT.fetch_add(1, Relaxed), name, system })
    }

    /// For a connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The number of these settings, which no others of this process have, and which is never 0. A
    /// connection is only used again under the settings that it was verified by.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The authorities of the system, if servers are verified by them and nobody has read them. A
    /// thread that may block does that before a connection is made.
    pub fn unread_authorities(&self) -> Option<Arc<SystemRoots>> {
        self.system.as_ref().filter(|system| !system.are_read()).cloned()
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
