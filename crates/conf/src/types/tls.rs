//! TLS of ports and of connections to servers.

use super::Location;

/// A file with a certificate and its chain, and the file of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those of its authorities.
    pub certificate: String,
    /// Its key; `None`: it is in the same file.
    pub key: Option<String>,
}

/// A cipher of TLS 1.2. Older ones are not offered; those of TLS 1.3 always are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// `ECDHE-ECDSA-AES256-GCM-SHA384`
    EcdsaAes256,
    /// `ECDHE-ECDSA-AES128-GCM-SHA256`
    EcdsaAes128,
    /// `ECDHE-ECDSA-CHACHA20-POLY1305`
    EcdsaChaCha20,
    /// `ECDHE-RSA-AES256-GCM-SHA384`
    RsaAes256,
    /// `ECDHE-RSA-AES128-GCM-SHA256`
    RsaAes128,
    /// `ECDHE-RSA-CHACHA20-POLY1305`
    RsaChaCha20,
}

/// The settings that ports and connections to servers have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// TLS 1.2 may be spoken.
    pub allows_tls12: bool,
    /// TLS 1.3 may be spoken.
    pub allows_tls13: bool,
    /// The ciphers of TLS 1.2, best first; `None`: all.
    pub ciphers: Option<Vec<Cipher>>,
    /// Our order of ciphers counts, and not that of the client.
    pub prefers_own_order: bool,
    /// Sessions are resumed.
    pub resumes: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            allows_tls12: true,
            allows_tls13: true,
            ciphers: None,
            prefers_own_order: false,
            resumes: true,
        }
    }
}

/// The TLS of an `https_port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPort {
    /// At least one.
    pub certificates: Vec<CertificateFiles>,
    /// Files with answers of OCSP, each with the index of its certificate.
    pub stapled: Vec<(usize, String)>,
    /// Versions and ciphers.
    pub settings: TlsSettings,
    /// Certificates of clients, if they are asked for.
    pub clients: Option<ClientCertificates>,
    /// The line.
    pub location: Location,
}

impl CertificateFiles {
    /// Its files.
    fn files(&self) -> impl Iterator<Item = &str> {
        [Some(&self.certificate), self.key.as_ref()].into_iter().flatten().map(String::as_str)
    }
}

impl TlsPort {
    /// All files that a reconfiguration reads again.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let own = self.certificates.iter().flat_map(CertificateFiles::files);
        let clients = self.clients.iter();
        let of_clients =
            clients.flat_map(|clients| clients.authorities.iter().chain(&clients.revocations));
        let stapled = self.stapled.iter().map(|(_, file)| file);
        own.chain(of_clients.chain(stapled).map(String::as_str))
    }

    /// All directories that a reconfiguration lists again.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.clients.iter().flat_map(|clients| &clients.directories).map(String::as_str)
    }
}

impl TlsOutgoing {
    /// All files that a reconfiguration reads again.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let own = self.certificate.iter().flat_map(CertificateFiles::files);
        own.chain(self.authorities.iter().chain(&self.revocations).map(String::as_str))
    }

    /// All directories that a reconfiguration lists again.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().map(String::as_str)
    }
}

/// How certificates of clients are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Files of authorities.
    pub authorities: Vec<String>,
    /// Directories of authorities.
    pub directories: Vec<String>,
    /// The authorities of the system count too.
    pub trusts_system: bool,
    /// Files that name revoked certificates.
    pub revocations: Vec<String>,
    /// Those of authorities are looked up there too.
    pub checks_whole_chain: bool,
    /// A client without a certificate is served.
    pub is_optional: bool,
}

/// How servers are verified.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerVerification {
    /// Their chain and their name.
    #[default]
    Full,
    /// Their chain (`DONT_VERIFY_DOMAIN`).
    ChainOnly,
    /// Not at all (`DONT_VERIFY_PEER`).
    None,
}

/// TLS of connections to servers, or to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOutgoing {
    /// Our own certificate, for servers that ask for one.
    pub certificate: Option<CertificateFiles>,
    /// Versions and ciphers.
    pub settings: TlsSettings,
    /// Files of authorities.
    pub authorities: Vec<String>,
    /// Directories of authorities.
    pub directories: Vec<String>,
    /// The authorities of the system count too.
    pub trusts_system: bool,
    /// Files that name revoked certificates.
    pub revocations: Vec<String>,
    /// Those of authorities are looked up there too.
    pub checks_whole_chain: bool,
    /// How servers are verified.
    pub verification: ServerVerification,
    /// The name that their certificate must have, in place of the host's.
    pub name: Option<String>,
    /// `disable`: there is no TLS towards servers.
    pub is_disabled: bool,
    /// The line.
    pub location: Location,
}

impl Default for TlsOutgoing {
    fn default() -> Self {
        Self {
            certificate: None,
            settings: TlsSettings::default(),
            authorities: Vec::new(),
            directories: Vec::new(),
            trusts_system: true,
            revocations: Vec::new(),
            checks_whole_chain: false,
            verification: ServerVerification::default(),
            name: None,
            is_disabled: false,
            location: Location::default(),
        }
    }
}
