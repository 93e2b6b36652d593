//! Why a handshake failed, in words that a person can act on.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Most bytes of a name that a message repeats.
const NAME_BYTES_MAX: usize = 80;

/// Most names of a certificate that a message repeats.
const NAMES_MAX: usize = 4;

/// The fault of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// Its time is over.
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// It is for other names: these.
    WrongName(Vec<String>),
    /// Nobody who is trusted has signed it.
    UnknownIssuer,
    /// It is signed by itself, and not one of those that are trusted.
    SelfSigned,
    /// Its authority has revoked it.
    Revoked,
    /// No list says whether it is revoked, or the list is too old.
    UnknownRevocation,
    /// Its signature, or that of the handshake, is not what its key would make.
    BadSignature,
    /// It is signed with a method that nobody should rely on.
    WeakSignature,
    /// Its key is so short that it proves nothing.
    WeakKey,
    /// Its authority may not sign certificates for this name.
    NotPermitted,
    /// It may not be used for this.
    WrongPurpose,
    /// The other side has sent none.
    Missing,
    /// It cannot be read, or breaks another rule.
    Invalid,
}

/// Why a handshake, or a connection after it, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The certificate of the other side is not accepted.
    Certificate(CertificateFault),
    /// The other side has refused: the name of its alert.
    Alert(String),
    /// The two sides have no version, cipher or key exchange in common.
    NothingInCommon(String),
    /// What the other side sends is no TLS.
    NotTls,
    /// What the other side sends breaks the protocol.
    Protocol(String),
    /// The other side has closed the connection in the middle.
    Closed,
    /// The connection broke.
    Io(io::ErrorKind),
    /// It took too long.
    TimedOut,
    /// There is no name that could be verified.
    NoName,
}

impl CertificateFault {
    /// The name that Squid and OpenSSL have for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Expired => "X509_V_ERR_CERT_HAS_EXPIRED",
            Self::NotYetValid => "X509_V_ERR_CERT_NOT_YET_VALID",
            Self::WrongName(_) => "SQUID_X509_V_ERR_DOMAIN_MISMATCH",
            Self::UnknownIssuer => "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
            Self::SelfSigned => "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT",
            Self::Revoked => "X509_V_ERR_CERT_REVOKED",
            Self::UnknownRevocation => "X509_V_ERR_UNABLE_TO_GET_CRL",
            Self::BadSignature => "X509_V_ERR_CERT_SIGNATURE_FAILURE",
            Self::WeakSignature => "X509_V_ERR_CA_MD_TOO_WEAK",
            Self::WeakKey => "X509_V_ERR_EE_KEY_TOO_SMALL",
            Self::NotPermitted => "X509_V_ERR_PERMITTED_VIOLATION",
            Self::WrongPurpose => "X509_V_ERR_INVALID_PURPOSE",
            Self::Missing => "SQUID_X509_V_ERR_NO_CERTIFICATE",
            Self::Invalid => "X509_V_ERR_CERT_REJECTED",
        }
    }
}

impl Fault {
    /// A short name for logs: that of the certificate's fault, or of the kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Certificate(fault) => fault.name(),
            Self::Alert(_) => "SQUID_TLS_ERR_CONNECT+TLS_ALERT",
            Self::NothingInCommon(_) => "SQUID_TLS_ERR_CONNECT+TLS_NOTHING_IN_COMMON",
            Self::NotTls => "SQUID_TLS_ERR_CONNECT+TLS_NOT_TLS",
            Self::Protocol(_) => "SQUID_TLS_ERR_CONNECT+TLS_PROTOCOL",
            Self::Closed => "SQUID_TLS_ERR_CONNECT+TLS_CLOSED",
            Self::Io(_) => "SQUID_TLS_ERR_CONNECT+TLS_IO",
            Self::TimedOut => "SQUID_TLS_ERR_CONNECT+TLS_TIMEOUT",
            Self::NoName => "SQUID_TLS_ERR_CONNECT+TLS_NO_NAME",
        }
    }

    /// The fault behind an error of a socket.
    pub fn of_io(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => Self::from(error),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            None => Self::Io(error.kind()),
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Expired => "the certificate has expired",
            Self::NotYetValid => "the certificate is not valid yet",
            Self::WrongName(names) if names.is_empty() => "the certificate is for no host name",
            Self::WrongName(names) => {
                let named = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
                let more = if names.len() > NAMES_MAX { ", …" } else { "" };
                return write!(f, "the certificate is for another name: {named}{more}");
            }
            Self::UnknownIssuer => "the certificate is signed by no authority that is trusted here",
            Self::SelfSigned => "the certificate is signed by itself, and not trusted here",
            Self::Revoked => "the certificate has been revoked",
            Self::UnknownRevocation => "no valid list says whether the certificate is revoked",
            Self::BadSignature => "the signature of the certificate is wrong",
            Self::WeakSignature => "the certificate is signed with a method that is too weak",
            Self::WeakKey => "the key of the certificate is too short",
            Self::NotPermitted => "its authority may not sign certificates for this name",
            Self::WrongPurpose => "the certificate is not meant for this",
            Self::Missing => "there is no certificate",
            Self::Invalid => "the certificate is not valid",
        };
        f.write_str(text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(fault) => write!(f, "{fault}"),
            Self::Alert(alert) => write!(f, "the other side refused TLS: {alert}"),
            Self::NothingInCommon(what) => {
                write!(f, "the two sides have nothing in common: {what}")
            }
            Self::NotTls => f.write_str("the other side does not speak TLS"),
            Self::Protocol(what) => write!(f, "the other side breaks TLS: {what}"),
            Self::Closed => f.write_str("the connection was closed during the handshake"),
            Self::Io(kind) => write!(f, "the connection broke during the handshake: {kind}"),
            Self::TimedOut => f.write_str("the handshake took too long"),
            Self::NoName => f.write_str("there is no name that a certificate could have"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<&CertificateError> for CertificateFault {
    fn from(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::NotValidForName => Self::WrongName(Vec::new()),
            E::NotValidForNameContext { presented, .. } => {
                Self::WrongName(presented.iter().map(|name| shown(name)).collect())
            }
            E::UnknownIssuer => Self::UnknownIssuer,
            E::Revoked => Self::Revoked,
            E::UnknownRevocationStatus
            | E::ExpiredRevocationList
            | E::ExpiredRevocationListContext { .. } => Self::UnknownRevocation,
            E::BadSignature => Self::BadSignature,
            E::UnsupportedSignatureAlgorithmContext { .. }
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Self::WeakSignature,
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::WrongPurpose,
            E::Other(other) if other.0.is::<SelfSigned>() => Self::SelfSigned,
            E::Other(other) if other.0.is::<WeakKey>() => Self::WeakKey,
            // The library has no name of its own for it. A test fails where it writes another one.
            E::Other(other) if other.to_string().contains("NameConstraintViolation") => {
                Self::NotPermitted
            }
            _ => Self::Invalid,
        }
    }
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::Certificate(error.into()),
            Error::NoCertificatesPresented => Self::Certificate(CertificateFault::Missing),
            Error::AlertReceived(alert) => Self::Alert(alert_name(*alert)),
            Error::PeerIncompatible(what) => Self::NothingInCommon(format!("{what:?}")),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            other => Self::Protocol(other.to_string()),
        }
    }
}

fn alert_name(alert: AlertDescription) -> String {
    let mut name = String::new();
    let mut was_upper = true;
    for letter in format!("{alert:?}").chars() {
        if letter.is_ascii_uppercase() && !was_upper {
            name.push(' ');
        }
        was_upper = letter.is_ascii_uppercase();
        name.extend(letter.to_lowercase());
    }
    name
}

/// A name from a certificate, in a form that can go into a log or onto a page.
fn shown(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    let text: String = name.chars().map(letter).take(NAME_BYTES_MAX).collect();
    // The library writes `DnsName("a.test")`.
    match text.split_once("(\"").and_then(|(_, rest)| rest.strip_suffix("\")")) {
        Some(bare) => bare.to_owned(),
        None => text,
    }
}

/// Marks a certificate whose key is too short.
#[derive(Debug)]
pub(crate) struct WeakKey;

impl fmt::Display for WeakKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key too short")
    }
}

impl std::error::Error for WeakKey {}

/// Marks a certificate that is signed by itself, among those of unknown issuers.
#[derive(Debug)]
pub(crate) struct SelfSigned;

impl fmt::Display for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("self-signed certificate")
    }
}

impl std::error::Error for SelfSigned {}
