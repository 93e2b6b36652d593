//! Readers for the values of each type of directive.
//!
//! A kind is a marker type named in the table of directives; its output is the type of the field in
//! [`crate::Config`].

mod access;
mod acl;
mod acl_values;
mod annotations;
mod auth;
mod auth_digest;
mod auth_handshake;
mod budgets;
mod bump;
mod cache_dir;
mod ciphers;
mod delays;
mod dir_options;
mod external;
mod headers;
mod helpers;
mod logs;
mod marks;
mod network;
mod options;
mod pages;
mod peers;
mod ports_tls;
mod queries;
mod reference;
mod rewriting;
mod scalar;
mod storage;
mod tls;
mod units;
mod unix_port;

pub(crate) use access::{DenyInfos, ManagerPasswords, MissingFilters, Rules, SizeRules, Upgrades};
pub(crate) use acl::Acls;
pub(crate) use annotations::NoteRules;
pub(crate) use auth::{AuthParams, check_logins};
pub(crate) use auth_handshake::{SchemeLists, check_offered, check_passed_logins};
pub(crate) use budgets::Budgets;
pub(crate) use bump::{BumpRules, CertAdaptRules, CertSignRules, UnsupportedProtocolRules};
pub(crate) use cache_dir::CacheDirs;
pub(crate) use delays::{
    ClientDelayRates, ClientDelayRules, ClientPoolCount, DelayClasses, DelayRates, DelayRules,
    PoolCount, ResponsePoolRules, ResponsePools, check_pools,
};
pub(crate) use external::ExternalAclTypes;
pub(crate) use headers::{HeaderAdds, HeaderReplaces, HeaderRules};
pub(crate) use logs::{AccessLogs, DebugOptions, JsonLogFormats, LogFormats, LogPath, LogPlace};
pub(crate) use marks::{ConnectionMarkRules, Flows, MarkRules, TosRules};
pub(crate) use network::{
    ForwardedForKind, HttpsPorts, OutgoingAddresses, Ports, RelaxedParserKind, UriWhitespaceKind,
};
pub(crate) use pages::{Directory, Language, RestOfLine, Style};
pub(crate) use peers::{PeerDomains, PeerRules, Peers};
pub(crate) use queries::{AnyAddress, UdpPort};
pub(crate) use reference::options_table;
pub(crate) use rewriting::{Children, EarlyFormat, HelperCommand, RewriteTimeouts, StoreIdRules};
pub(crate) use scalar::{Count, FieldLines, Limit, OnOff, OptText, Percent, Text, Words};
pub(crate) use storage::{
    DirSelectKind, InTransitKind, MemoryModeKind, PolicyName, RefreshPatterns,
};
pub(crate) use tls::OutgoingTls;
pub(crate) use units::{Bytes, HeadBytes, KBytes, Millis, Seconds};

use crate::diagnostics::Problem;
use crate::line::Line;

/// A type of value.
pub(crate) trait Kind {
    /// The field's type.
    type Out: Default + Clone;
    /// The type's name in the documentation.
    const NAME: &'static str;
    /// True when lines add to the built-in value instead of replacing it.
    const EXTENDS_DEFAULT: bool = false;

    /// Reads one line into the field. On error the field may hold anything: the configuration will
    /// not be used.
    fn apply(out: &mut Self::Out, line: &mut Line<'_>) -> Result<(), Problem>;
}
