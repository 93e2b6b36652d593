//! The facts that rules ask about.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use humboldt_base::bump::{BumpFacts, BumpStep};
use humboldt_base::certificate::Certificate;
use humboldt_http::uri::host_ip;
use humboldt_http::{RequestHead, ResponseHead};

use crate::annotations::Annotated;
use crate::question::Known;

/// Facts that are known late, and only to few lists.
#[derive(Copy, Clone, Debug)]
pub struct Late<'a> {
    /// `name=` of the parent that a connection is made to.
    pub peer_name: Option<&'a str>,
    /// Code of the way in which the server was chosen.
    pub hierarchy: Option<&'a str>,
    /// Code of the error with which it ended; `ERR_NONE` for none.
    pub error: Option<&'a str>,
    /// The one fault of a certificate that is being judged.
    pub tls_fault: Option<&'a str>,
    /// What is not known about the certificate of a server counts as matched.
    pub unknown_matches: bool,
}

impl Late<'_> {
    /// None of them is known.
    pub const NONE: Self = Self {
        peer_name: None,
        hierarchy: None,
        error: None,
        tls_fault: None,
        unknown_matches: false,
    };
}

/// The facts about a transaction that helpers have told, for ACLs.
pub trait Told {
    /// Whether the helper says that the ACL matches; `None` if it has not been asked, or if there
    /// is no answer. The number is that of [`crate::AclSet::externals`]. What the answer says about
    /// the user and the rest is true of the transaction from now on.
    fn external(&self, number: usize, subject: &Subject<'_>) -> Option<bool>;

    /// Calls `test` with the user whom a helper has named, if one has.
    fn ext_user(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;

    /// Calls `test` with the tag that a helper has set, if one has.
    fn tag(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

impl fmt::Debug for dyn Told + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

/// One transaction, as far as it is known when a list is checked. Everything is borrowed.
///
/// The default is a transaction without known facts, for callers that have no HTTP request and fill
/// in those they know. Every caller has a client and a time.
#[derive(Copy, Clone, Debug)]
pub struct Subject<'a> {
    /// Address of the client; 0.0.0.0 for one that has none, on a Unix socket. No other has that:
    /// neither X-Forwarded-For nor the PROXY protocol can tell it.
    pub client_ip: IpAddr,
    /// Address the client connected to; 0.0.0.0 for a Unix socket.
    pub local_ip: IpAddr,
    /// Port the client connected to.
    pub local_port: u16,
    /// `name=` of the `http_port`, if it has one.
    pub port_name: Option<&'a str>,
    /// The certificate of the client, if it has shown one.
    pub certificate: Option<&'a Certificate>,
    /// The interception of TLS: of a tunnel that is judged by `ssl_bump`, of a certificate of a
    /// server, and of requests inside of a connection that is decrypted.
    pub bump: Option<&'a BumpFacts>,
    /// The client's connection, or the one inside of its tunnel, is one with TLS that ends here.
    pub is_encrypted: bool,
    /// Method as in the request line.
    pub method: &'a [u8],
    /// Scheme of the URL, such as `http`; empty for CONNECT.
    pub scheme: &'a [u8],
    /// Host of the URL: lower-case, without brackets.
    pub host: &'a [u8],
    /// The address that the request goes to, whatever its host is.
    pub original_ip: Option<IpAddr>,
    /// Port of the URL.
    pub port: u16,
    /// The whole URL; for CONNECT `host:port`.
    pub url: &'a [u8],
    /// Path and query; empty for CONNECT.
    pub path: &'a [u8],
    /// The request, once there is one.
    pub request: Option<&'a RequestHead>,
    /// The response, once there is one.
    pub response: Option<&'a ResponseHead>,
    /// Answers to the questions of earlier checks.
    pub known: Known<'a>,
    /// Facts that only few lists know.
    pub late: &'a Late<'a>,
    /// The facts that helpers have told.
    pub told: Option<&'a dyn Told>,
    /// Its annotations; without them none is found or written.
    pub annotated: Option<&'a dyn Annotated>,
    /// Unix seconds.
    pub now: i64,
    /// Offset of local time from UTC in seconds, positive in the east.
    pub local_offset_s: i32,
    /// Open connections from `client_ip`, this one included.
    pub connections_from_client: u32,
    /// Uniformly random bits, other ones for every transaction and list. Each `random` ACL draws
    /// its own from them; without them none matches.
    pub random: Option<u64>,
    /// It asks for a page of the proxy's own: the ACL `manager` matches these.
    pub is_internal: bool,
}

impl Default for Subject<'_> {
    fn default() -> Self {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            client_ip: nobody,
            local_ip: nobody,
            local_port: 0,
            port_name: None,
            certificate: None,
            bump: None,
            is_encrypted: false,
            method: b"",
            scheme: b"",
            host: b"",
            original_ip: None,
            port: 0,
            url: b"",
            path: b"",
            request: None,
            response: None,
            known: Known::default(),
            late: &Late::NONE,
            told: None,
            annotated: None,
            now: 0,
            local_offset_s: 0,
            connections_from_client: 0,
            random: None,
            is_internal: false,
        }
    }
}

impl Subject<'_> {
    /// The address that the request goes to, if that needs no look-up: the host is one.
    pub fn host_ip(&self) -> Option<IpAddr> {
        self.original_ip.or_else(|| host_ip(self.host))
    }

    /// The client's address, if it has one.
    #[inline]
    pub(crate) fn client(&self) -> Option<IpAddr> {
        Some(self.client_ip).filter(|ip| !ip.is_unspecified())
    }

    /// Whether the server was asked for its certificate, and it was not to be seen (TLS 1.3).
    pub(crate) fn has_hidden_server(&self) -> bool {
        self.bump.is_some_and(|facts| {
            let is_shown = facts.server.as_ref().is_some_and(|server| !server.der.is_empty());
            facts.step == BumpStep::Three && !is_shown
        })
    }

    /// The address that the client connected to, if it has one.
    #[inline]
    pub(crate) fn local(&self) -> Option<IpAddr> {
        Some(self.local_ip).filter(|ip| !ip.is_unspecified())
    }
}
