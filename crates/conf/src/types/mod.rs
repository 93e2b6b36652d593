//! The types of the typed configuration, for the rest of the program. No parsing here.

mod access;
mod auth;
mod budgets;
mod bump;
mod delays;
mod helpers;
mod logs;
mod marks;
mod network;
mod notes;
mod packed_pages;
mod pages;
mod storage;
mod tls;

pub use access::{
    AccessRule, AclDef, AclFlags, AclKind, AclTerm, DenyInfo, HeaderAdd, HeaderReplace, HeaderRule,
    ManagerPassword, MissingFilter, RuleSource, ServerNameFrom, SizeRule, UpgradeRule,
    is_initiator,
};
pub use auth::{
    AuthScheme, Authentication, BasicAuth, DigestAuth, DigestSecrets, HandshakeAuth,
    OfferedSchemes, PasswordCheck,
};
pub use budgets::{BudgetKey, BudgetLimits, BudgetRule, Rate};
pub use bump::{
    BumpPort, BumpRule, BumpVerb, CertAdapt, CertAdaptRule, CertSignRule, UnsupportedProtocolRule,
};
pub use delays::{
    DelayAccess, DelayClass, DelayParameters, DelayRate, ResponsePool, ResponsePoolAccess,
};
pub use helpers::{
    ExternalAclType, HelperChildren, OnTimeout, ReplacementPart, RewriteTimeout, StoreIdRule,
};
pub use humboldt_options::{DirLimits, DirSelect, InTransit, MemoryMode, Scheme, SchemeOptions};
pub use logs::{AccessLog, LogFormat, syslog_priority};
pub(crate) use marks::parse_u32;
pub use marks::{MarkRule, NetfilterMark, QosFlows, QosMarks, TosRule};
pub use network::{
    CachePeer, ConnectionAuth, ForwardedFor, HttpPort, OutgoingAddress, PeerAccess, PeerDomain,
    PeerKind, PeerLogin, PeerSelection, PortMode, RelaxedParser, Socks, TcpKeepalive, UnixPlace,
    UriWhitespace,
};
pub use notes::{Annotation, NoteRule};
pub use packed_pages::PackedPages;
pub use pages::{PageDirectory, PageLanguages, PageTexts, StyleSheet};
pub use storage::{CacheDir, RefreshOptions, RefreshPattern};
pub use tls::{
    CertificateFiles, Cipher, ClientCertificates, ServerVerification, TlsOutgoing, TlsPort,
    TlsSettings,
};

/// The position of a definition; for messages that are made after parsing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Name of the file, as it was given or included.
    pub file: String,
    /// Line in that file, from 1; 0 for built-in definitions.
    pub line: u32,
    /// Column of the first character, from 1, in characters; 0 for built-in definitions.
    pub column: u32,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
