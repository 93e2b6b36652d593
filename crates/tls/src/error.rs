//! Why TLS cannot be set up.

use humboldt_conf::Location;
use thiserror::Error;

/// A line of squid.conf whose TLS cannot be set up.
#[derive(Debug, Error)]
#[error("{location}: {problem}")]
pub struct SetupError {
    /// The line.
    pub location: Location,
    /// The problem.
    pub problem: SetupProblem,
}

/// A problem with the files or settings of a line.
#[derive(Debug, Error)]
pub enum SetupProblem {
    /// A file cannot be read.
    #[error("{file} cannot be read: {why}")]
    Unreadable {
        /// Its path.
        file: String,
        /// The system's words.
        why: String,
    },
    /// A file without any certificate.
    #[error("{file} has no certificate in PEM form (`-----BEGIN CERTIFICATE-----`)")]
    NoCertificate {
        /// Its path.
        file: String,
    },
    /// A certificate that cannot be read.
    #[error("certificate {number} of {file} cannot be read: {why}")]
    BadCertificate {
        /// The path.
        file: String,
        /// Its place in the file, from 1.
        number: usize,
        /// The reason.
        why: String,
    },
    /// A file without a private key.
    #[error("{file} has no private key in PEM form; name its file with `tls-key=`")]
    NoKey {
        /// Its path.
        file: String,
    },
    /// The key is protected by a passphrase.
    #[error(
        "the key in {file} is encrypted, and nobody can be asked for its passphrase; decrypt it \
         once: openssl pkey -in {file} -out NEWFILE"
    )]
    EncryptedKey {
        /// The path.
        file: String,
    },
    /// A key of a kind that is not supported.
    #[error("the key in {file} cannot be used: {why}")]
    BadKey {
        /// The path.
        file: String,
        /// The reason.
        why: String,
    },
    /// The key does not belong to the certificate.
    #[error("the key in {key} does not belong to the certificate in {certificate}")]
    Mismatch {
        /// Path of the certificate.
        certificate: String,
        /// Path of the key.
        key: String,
    },
    /// Certificates are to be signed with a certificate that may not sign any.
    #[error(
        "{file} cannot sign certificates: {why}; `humboldt ca new` makes an authority that can, \
         and `generate-host-certificates=off` sends this one to all clients"
    )]
    NoSigner {
        /// Its path.
        file: String,
        /// The reason.
        why: &'static str,
    },
    /// A list of revoked certificates that cannot be read.
    #[error("{file} has no list of revoked certificates that can be read")]
    BadRevocations {
        /// Its path.
        file: String,
    },
    /// A file that is no good answer of OCSP for its certificate.
    #[error("{file} cannot be sent with the certificate: {why}")]
    BadOcsp {
        /// Its path.
        file: String,
        /// The reason.
        why: &'static str,
    },
    /// Clients or servers are to be verified, and nobody is trusted.
    #[error("there is no authority to verify certificates by")]
    NoAuthority,
    /// The name of the other side is none.
    #[error("`{name}` is not a host name")]
    BadName {
        /// The name.
        name: String,
    },
    /// The library does not take the settings.
    #[error("{0}")]
    Settings(String),
}
