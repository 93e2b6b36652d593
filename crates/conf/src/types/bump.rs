//! The interception of TLS: rules, and what a port needs for it.

use std::sync::Arc;

use humboldt_base::bump::{BumpAction, BumpStep, SignAs};

use super::{AclTerm, CertificateFiles, Location, RuleSource, TlsSettings};

/// The first word of an `ssl_bump` line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BumpVerb {
    /// An action of today. `none` is `Splice`.
    Do(BumpAction),
    /// `client-first`: bump at the first step.
    ClientFirst,
    /// `server-first`: stare at the first two steps, then bump.
    ServerFirst,
}

impl BumpVerb {
    /// The action at a step, if there is one.
    pub fn at(self, step: BumpStep) -> Option<BumpAction> {
        match (self, step) {
            (Self::Do(action), _) => Some(action),
            (Self::ClientFirst, BumpStep::One) => Some(BumpAction::Bump),
            (Self::ClientFirst, _) => None,
            (Self::ServerFirst, BumpStep::Three) => Some(BumpAction::Bump),
            (Self::ServerFirst, _) => Some(BumpAction::Stare),
        }
    }

    /// Whether a certificate has to be made where it applies.
    pub fn decrypts(self) -> bool {
        !matches!(self, Self::Do(BumpAction::Peek | BumpAction::Splice | BumpAction::Terminate))
    }
}

/// One `ssl_bump` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BumpRule {
    /// What is done.
    pub verb: BumpVerb,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
    /// The line.
    pub source: Arc<RuleSource>,
}

/// One `sslproxy_cert_sign` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertSignRule {
    /// How the certificate is signed.
    pub sign: SignAs,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
    /// The line.
    pub source: Arc<RuleSource>,
}

/// A change to a certificate that is made after a server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertAdapt {
    /// `setValidAfter`: it ends when the authority does.
    ValidAfter,
    /// `setValidBefore`: it begins when the authority does.
    ValidBefore,
    /// `setCommonName`: it is for this name; `None`: for that of CONNECT.
    CommonName(Option<String>),
}

/// One `sslproxy_cert_adapt` line. The first that matches counts, for each kind of change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertAdaptRule {
    /// The change.
    pub adapt: CertAdapt,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
    /// The line.
    pub source: Arc<RuleSource>,
}

/// `ssl-bump` of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BumpPort {
    /// The authority that signs certificates; with `generates` off, the certificate that all
    /// clients get. `None`: the port decrypts nothing.
    pub certificate: Option<CertificateFiles>,
    /// `generate-host-certificates`
    pub generates: bool,
    /// `dynamic_cert_mem_cache_size`: memory for certificates that were made; 0 keeps none.
    pub leaf_cache_bytes: u64,
    /// Versions and ciphers towards clients.
    pub settings: TlsSettings,
    /// The line.
    pub location: Location,
}

impl BumpPort {
    /// `dynamic_cert_mem_cache_size` by default.
    pub const LEAF_CACHE_BYTES: u64 = 4 << 20;
}

/// One `on_unsupported_protocol` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedProtocolRule {
    /// `tunnel`: bytes that are no TLS pass unread. Otherwise the connection ends.
    pub tunnels: bool,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
    /// The line.
    pub source: Arc<RuleSource>,
}
