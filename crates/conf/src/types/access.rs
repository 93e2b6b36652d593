//! Access rules: `acl` definitions and the lists that use them.

use std::sync::Arc;

use super::{Annotation, Location};
use crate::lists::{List, Need};

/// One named `acl`, all its lines taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclDef {
    /// Name as first written. Names are compared without regard to ASCII case, as in Squid.
    pub name: String,
    /// The fact that the values are compared with.
    pub kind: AclKind,
    /// Flags of the definition.
    pub flags: AclFlags,
    /// Of `annotate_transaction` and `annotate_client`: the pairs, which are no values.
    pub annotations: Vec<Annotation>,
    /// The values in order, those from files included.
    ///
    /// In kinds whose values are regular expressions a value `-i` switches case-insensitive
    /// matching on for the values that follow it, `+i` switches it off; the list starts
    /// case-sensitive. For `req_header` and `rep_header` (and `note`, `external`) the first value
    /// is the name of the field (note, helper). In `all-of` each value is one line of the file:
    /// names separated by single spaces, all of which must match; lines are alternatives. In `time`
    /// too each value is one line: days and hours separated by single spaces. In `src`, `dst` and
    /// `localip` every way to write "any address" is normalised to `all`.
    pub values: Vec<String>,
    /// The position of its first definition.
    pub location: Location,
}

impl AclDef {
    /// The fact that the ACL needs before it can decide; for groups see their members.
    pub fn need(&self) -> Option<Need> {
        self.kind.need().filter(|need| !(self.flags.no_lookup && *need == Need::DstIps))
    }

    /// Whether it looks at the answer, where there is one.
    pub fn asks_answer(&self) -> bool {
        let asks_for_one = || self.values.iter().any(|value| value == "response");
        self.kind.is_about_answers() || self.kind == AclKind::Has && asks_for_one()
    }
}

/// Flags between the type and the values of an `acl`, except those of kinds that are not evaluated
/// yet, and except `-i` and `+i` of regular expressions (see [`AclDef::values`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclFlags {
    /// `-n`: no name or address look-ups for this ACL.
    pub no_lookup: bool,
    /// `-i` of kinds with names of users: the names have no case.
    pub ignore_case: bool,
    /// `REQUIRED` of kinds with names of users: every user matches.
    pub every_user: bool,
    /// `-s` of `max_user_ip`: see there.
    pub strict: bool,
    /// Of `external`: its question names a user, who has to be checked first.
    pub needs_user: bool,
    /// `--client-requested` and so on, of ACLs with names of servers.
    pub server_name: ServerNameFrom,
    /// `-m=DELIMITERS`: values of annotations are lists, which these characters divide.
    pub delimiters: Option<String>,
}

/// Where the name of a server comes from (`ssl::server_name`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerNameFrom {
    /// From its certificate, if that is known, and otherwise from the client.
    #[default]
    Any,
    /// `--client-requested`: from the client.
    Client,
    /// `--server-provided`: from its certificate.
    Server,
    /// `--consensus`: from the client, if the certificate is for that name or not known.
    Consensus,
}

impl ServerNameFrom {
    /// The one with this flag.
    pub(crate) fn from_flag(flag: &str) -> Option<Self> {
        match flag {
            "--client-requested" => Some(Self::Client),
            "--server-provided" => Some(Self::Server),
            "--consensus" => Some(Self::Consensus),
            _ => None,
        }
    }
}

macro_rules! acl_kinds {
    ($($variant:ident = $name:literal, $need:expr, $support:expr;)+) => {
        /// Every type of ACL that Squid knows.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum AclKind { $(#[doc = concat!("`", $name, "`")] $variant,)+ }

        impl AclKind {
            /// All kinds, in the order of the documentation.
            pub const ALL: &[AclKind] = &[$(AclKind::$variant,)+];

            /// The name in squid.conf.
            pub fn name(self) -> &'static str {
                match self { $(AclKind::$variant => $name,)+ }
            }

            /// Why Humboldt cannot evaluate ACLs of this kind yet; `None` when it can.
            pub fn unsupported(self) -> Option<&'static str> {
                match self { $(AclKind::$variant => $support,)+ }
            }

            /// The fact that ACLs of this kind need from elsewhere, if any: see
            /// [`AclDef::need`]. Groups need the facts that their members need.
            pub fn need(self) -> Option<Need> {
                match self { $(AclKind::$variant => $need,)+ }
            }
        }
    };
}

const NO_ADAPTATION: Option<&str> = Some("content adaptation is not implemented yet");

// The tags [fast] and [slow] of Squid's manual, and the needs of the slow kinds. Those of `arp`,
// `note` and `client_connection_mark` are met without waiting.
const FAST: Option<Need> = None;
const HARDWARE: Option<Need> = Some(Need::Hardware);
const MARK: Option<Need> = Some(Need::Mark);
const NOTES: Option<Need> = Some(Need::Notes);
const ADDRESSES: Option<Need> = Some(Need::DstIps);
const CLIENT_NAME: Option<Need> = Some(Need::ClientName);
const USER: Option<Need> = Some(Need::User);
const HELPER: Option<Need> = Some(Need::Helper);
const IDENT: Option<Need> = Some(Need::Ident);

acl_kinds! {
    Src = "src", FAST, None;
    Dst = "dst", ADDRESSES, None;
    LocalIp = "localip", FAST, None;
    Arp = "arp", HARDWARE, None;
    Eui64 = "eui64", FAST, None;
    SrcDomain = "srcdomain", CLIENT_NAME, None;
    DstDomain = "dstdomain", FAST, None;
    SrcDomRegex = "srcdom_regex", CLIENT_NAME, None;
    DstDomRegex = "dstdom_regex", FAST, None;
    SrcAs = "src_as", FAST, Some("autonomous system numbers are not looked up");
    DstAs = "dst_as", ADDRESSES, Some("autonomous system numbers are not looked up");
    PeerName = "peername", FAST, None;
    PeerNameRegex = "peername_regex", FAST, None;
    Time = "time", FAST, None;
    UrlRegex = "url_regex", FAST, None;
    UrlLogin = "urllogin", FAST, None;
    UrlPathRegex = "urlpath_regex", FAST, None;
    Port = "port", FAST, None;
    LocalPort = "localport", FAST, None;
    MyPortName = "myportname", FAST, None;
    Proto = "proto", FAST, None;
    Method = "method", FAST, None;
    HttpStatus = "http_status", FAST, None;
    Browser = "browser", FAST, None;
    RefererRegex = "referer_regex", FAST, None;
    ProxyAuth = "proxy_auth", USER, None;
    ProxyAuthRegex = "proxy_auth_regex", USER, None;
    SnmpCommunity = "snmp_community", FAST, Some("SNMP is not implemented");
    MaxConn = "maxconn", FAST, None;
    MaxUserIp = "max_user_ip", USER, None;
    ReqMimeType = "req_mime_type", FAST, None;
    ReqHeader = "req_header", FAST, None;
    RepMimeType = "rep_mime_type", FAST, None;
    RepHeader = "rep_header", FAST, None;
    External = "external", HELPER, None;
    UserCert = "user_cert", FAST, None;
    CaCert = "ca_cert", FAST, None;
    ExtUser = "ext_user", FAST, None;
    ExtUserRegex = "ext_user_regex", FAST, None;
    Ident = "ident", IDENT, Some("the ident protocol is not implemented");
    IdentRegex = "ident_regex", IDENT, Some("the ident protocol is not implemented");
    Tag = "tag", FAST, None;
    HierCode = "hier_code", FAST, None;
    Note = "note", NOTES, None;
    AnnotateTransaction = "annotate_transaction", FAST, None;
    AnnotateClient = "annotate_client", FAST, None;
    AdaptationService = "adaptation_service", FAST, NO_ADAPTATION;
    SslError = "ssl_error", FAST, None;
    ServerCertFingerprint = "server_cert_fingerprint", FAST, None;
    AtStep = "at_step", FAST, None;
    SslServerName = "ssl::server_name", FAST, None;
    SslServerNameRegex = "ssl::server_name_regex", FAST, None;
    ConnectionsEncrypted = "connections_encrypted", FAST, None;
    ClientConnectionMark = "client_connection_mark", MARK, None;
    TransactionInitiator = "transaction_initiator", FAST, None;
    Has = "has", FAST, None;
    SquidError = "squid_error", FAST, None;
    Random = "random", FAST, None;
    AnyOf = "any-of", FAST, None;
    AllOf = "all-of", FAST, None;
}

/// The steps of `ssl_bump`, and one at which nothing is asked here.
const STEPS: [&str; 4] = ["SslBump1", "SslBump2", "SslBump3", "GeneratingCONNECT"];

/// The initiators of transactions that Squid knows.
const INITIATORS: [&str; 14] = [
    "client",
    "all",
    "internal",
    "certificate-fetching",
    "cache-digest",
    "htcp",
    "icp",
    "icmp",
    "peer-pool",
    "peer-mcast",
    "ipc",
    "adaptation",
    "icon",
    "server",
];

/// Squid's codes of the ways in which a server is chosen; `%Sh` in logs.
const HIERARCHY_CODES: [&str; 23] = [
    "HIER_NONE",
    "HIER_DIRECT",
    "SIBLING_HIT",
    "PARENT_HIT",
    "DEFAULT_PARENT",
    "SINGLE_PARENT",
    "FIRSTUP_PARENT",
    "FIRST_PARENT_MISS",
    "CLOSEST_PARENT_MISS",
    "CLOSEST_PARENT",
    "CLOSEST_DIRECT",
    "NO_DIRECT_FAIL",
    "SOURCE_FASTEST",
    "ROUNDROBIN_PARENT",
    "CD_PARENT_HIT",
    "CD_SIBLING_HIT",
    "CARP",
    "ANY_OLD_PARENT",
    "USERHASH_PARENT",
    "SOURCEHASH_PARENT",
    "PINNED",
    "ORIGINAL_DST",
    "STANDBY_POOL",
];

/// The names of errors, of this program and of Squid; `%err_code` in logs. `ERR_NONE`: there was no
/// error.
const ERRORS: [&str; 64] = [
    "ERR_NONE",
    "ERR_ACCESS_DENIED",
    "ERR_ACCESS_UNDECIDED",
    "ERR_AGENT_CONFIGURE",
    "ERR_AGENT_WPAD",
    "ERR_CACHE_ACCESS_DENIED",
    "ERR_CACHE_MGR_ACCESS_DENIED",
    "ERR_CANNOT_FORWARD",
    "ERR_CLIENT_GONE",
    "ERR_CONFLICT_HOST",
    "ERR_CONNECT_FAIL",
    "ERR_CONNECT_TIMEOUT",
    "ERR_DIR_LISTING",
    "ERR_DNS_FAIL",
    "ERR_ESI",
    "ERR_EXPECT",
    "ERR_FORWARDING_DENIED",
    "ERR_FORWARDING_LOOP",
    "ERR_FORWARDING_TIMEOUT",
    "ERR_FTP_DISABLED",
    "ERR_FTP_FAILURE",
    "ERR_FTP_FORBIDDEN",
    "ERR_FTP_NOT_FOUND",
    "ERR_FTP_PUT_CREATED",
    "ERR_FTP_PUT_ERROR",
    "ERR_FTP_PUT_MODIFIED",
    "ERR_FTP_UNAVAILABLE",
    "ERR_GATEWAY_FAILURE",
    "ERR_HEADERS_TOO_BIG",
    "ERR_ICAP_FAILURE",
    "ERR_INTERNAL",
    "ERR_INVALID_REQ",
    "ERR_INVALID_RESP",
    "ERR_INVALID_URL",
    "ERR_LIFETIME_EXP",
    "ERR_METHOD_NOT_ALLOWED",
    "ERR_NOT_FOUND",
    "ERR_NO_RELAY",
    "ERR_ONLY_IF_CACHED_MISS",
    "ERR_OVER_BUDGET",
    "ERR_PRECONDITION_FAILED",
    "ERR_PRIVATE_DESTINATION",
    "ERR_PROTOCOL_UNKNOWN",
    "ERR_READ_ERROR",
    "ERR_READ_TIMEOUT",
    "ERR_RELAY_REMOTE",
    "ERR_REQUEST_PARSE_TIMEOUT",
    "ERR_REQUEST_START_TIMEOUT",
    "ERR_REQUEST_TIMEOUT",
    "ERR_SECURE_ACCEPT_FAIL",
    "ERR_SECURE_CONNECT_FAIL",
    "ERR_SHUTTING_DOWN",
    "ERR_SOCKET_FAILURE",
    "ERR_TOO_BIG",
    "ERR_UNSUP_HTTPVERSION",
    "ERR_UNSUP_PROTO",
    "ERR_UNSUP_REQ",
    "ERR_URI_TOO_LONG",
    "ERR_URN_RESOLVE",
    "ERR_WRITE_ERROR",
    "ERR_ZERO_SIZE_OBJECT",
    "ERR_SQUID_SIGNATURE",
    "MGR_INDEX",
    "TCP_RESET",
];

/// Whether this value of `transaction_initiator` matches. Every transaction comes from a client, so
/// it does so always or never.
pub fn is_initiator(value: &str) -> bool {
    matches!(value, "client" | "all")
}

impl AclKind {
    /// The kind with this name, or with an old name of it (`myip`, `myport`, `clientside_mark`).
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "myip" => return Some(Self::LocalIp),
            "myport" => return Some(Self::LocalPort),
            "clientside_mark" => return Some(Self::ClientConnectionMark),
            "ssl_error_regex" => return Some(Self::SslError),
            _ => {}
        }
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The only values that ACLs of this kind take; `None` if they are not a few words.
    pub fn words(self) -> Option<&'static [&'static str]> {
        match self {
            Self::TransactionInitiator => Some(&INITIATORS),
            Self::Has => Some(&["request", "response", "ALE"]),
            Self::HierCode => Some(&HIERARCHY_CODES),
            Self::SquidError => Some(&ERRORS),
            Self::AtStep => Some(&STEPS),
            _ => None,
        }
    }

    /// The only lists that know the fact that ACLs of this kind are about; empty for all.
    pub(crate) fn only_lists(self) -> &'static [List] {
        match self {
            Self::PeerName | Self::PeerNameRegex => &[List::TcpOutgoingAddress],
            Self::HierCode => &[List::AccessLog],
            Self::SquidError => &[List::AccessLog, List::OnUnsupportedProtocol],
            _ => &[],
        }
    }

    /// True for kinds that say nothing about an answer, so that rules about answers cannot use
    /// them.
    pub(crate) fn is_about_requests(self) -> bool {
        self == Self::ConnectionsEncrypted
    }

    /// True for kinds that make no sense where there is no answer.
    pub(crate) fn is_about_answers(self) -> bool {
        matches!(self, Self::HttpStatus | Self::RepMimeType | Self::RepHeader)
    }

    /// True for kinds that write annotations, and always match.
    pub fn annotates(self) -> bool {
        matches!(self, Self::AnnotateTransaction | Self::AnnotateClient)
    }

    /// True when each value is one line of the file with all its words.
    pub(crate) fn keeps_lines(self) -> bool {
        matches!(self, Self::AllOf | Self::Time)
    }

    /// True when the values (after the first, for header kinds) are regular expressions.
    pub fn is_regex(self) -> bool {
        matches!(
            self,
            Self::SrcDomRegex
                | Self::DstDomRegex
                | Self::PeerNameRegex
                | Self::UrlRegex
                | Self::UrlLogin
                | Self::UrlPathRegex
                | Self::Browser
                | Self::RefererRegex
                | Self::ProxyAuthRegex
                | Self::ReqMimeType
                | Self::ReqHeader
                | Self::RepMimeType
                | Self::RepHeader
                | Self::ExtUserRegex
                | Self::IdentRegex
                | Self::SslServerNameRegex
        )
    }
}

/// One use of an ACL in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclTerm {
    /// Name of the ACL, spelled as in its definition.
    pub name: String,
    /// True for `!name`.
    pub negated: bool,
}

/// One line of an access list: it matches when all its terms do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// `allow` or `deny`.
    pub allow: bool,
    /// All must match; empty only in lists that allow rules without ACLs.
    pub terms: Vec<AclTerm>,
    /// Its line; `None` for a rule that the program makes itself.
    pub source: Option<Arc<RuleSource>>,
}

/// The line of a rule, for those who ask why it decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSource {
    /// The directive and its words.
    pub text: String,
    /// Name of the file, as it was given or included.
    pub file: String,
    /// Line in that file, from 1; 0 for what holds without a line: `file` is the directive then.
    pub line: u32,
}

impl RuleSource {
    /// The same without the directory of the file, which is nothing to clients.
    #[must_use]
    pub fn for_clients(&self) -> Self {
        let file = self.file.rsplit('/').next().unwrap_or_default().to_owned();
        Self { text: self.text.clone(), file, line: self.line }
    }

    /// `FILE:LINE`.
    pub fn place(&self) -> String {
        match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}", self.file),
        }
    }
}

impl std::fmt::Display for RuleSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.text),
            line => write!(f, "{} ({}:{line})", self.text, self.file),
        }
    }
}

/// A limit in bytes for the transactions that match all terms (`reply_body_max_size`,
/// `range_offset_limit`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeRule {
    /// The limit in bytes; `None` for no limit.
    pub limit_bytes: Option<u64>,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
}

/// One line of `request_header_access` or `reply_header_access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// Name of the field, or `All`, or `Other` for fields that have no name of their own in the
    /// program.
    pub header: String,
    /// Whether matching transactions keep the field.
    pub rule: AccessRule,
}

/// One line of `request_header_replace` or `reply_header_replace`: the text that takes the place of
/// a field that `…_header_access` removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderReplace {
    /// Name of the field.
    pub header: String,
    /// Its new value.
    pub value: String,
}

/// One line of `request_header_add` or `reply_header_add`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderAdd {
    /// Name of the field.
    pub header: String,
    /// Its value; may contain `logformat` codes when `formatted`.
    pub value: String,
    /// True when the value was quoted, so that `%` codes in it are to be expanded.
    pub formatted: bool,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
}

/// One line of `http_upgrade_request_protocols`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeRule {
    /// Name of the protocol (`websocket`, `OTHER` for those not named elsewhere).
    pub protocol: String,
    /// Whether matching requests may upgrade to it.
    pub rule: AccessRule,
}

/// One line of `deny_info`: the page for a client when one of the ACLs was the last one in the rule
/// that denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyInfo {
    /// `NNN:URL`, a URL to redirect to, an error page's name, or `TCP_RESET`.
    pub page: String,
    /// Names of ACLs.
    pub acls: Vec<String>,
    /// The line.
    pub(crate) location: Location,
    /// The template of the page, if there is a file for it.
    pub text: Option<Arc<[u8]>>,
}

/// A filter that is not implemented, or not wanted, and can be left out by `run_without`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MissingFilter {
    /// `adaptation`: ICAP and eCAP services.
    Adaptation,
    /// `ssl_bump`: looking into TLS, and ending it.
    SslBump,
    /// `sslcrtvalidator_program`: a helper that judges certificates.
    CertValidator,
}

impl MissingFilter {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Adaptation, Self::SslBump, Self::CertValidator];

    /// Its word in squid.conf.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Adaptation => "adaptation",
            Self::SslBump => "ssl_bump",
            Self::CertValidator => "sslcrtvalidator_program",
        }
    }
}

/// One line of `cachemgr_passwd`. The password itself is not kept: nothing asks for one yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerPassword {
    /// `none`: these pages need no password. Otherwise they are shown to nobody.
    pub is_open: bool,
    /// Names of pages; `all` is every page that no line above names.
    pub pages: Vec<String>,
}
