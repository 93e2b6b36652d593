//! The facts about a request at its end.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use humboldt_base::bump::BumpFacts;
use humboldt_base::certificate::Certificate;
use humboldt_base::clock::UnixMillis;
use humboldt_base::notes::Notes;
use humboldt_http::{Fields, Version};

use super::{Hierarchy, ResultTag};

/// The other end of the server connection.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Peer<'a> {
    /// No server was asked.
    #[default]
    None,
    /// Its address.
    Ip(IpAddr),
    /// Its name: of a `cache_peer`, or of a server that was not reached.
    Name(&'a [u8]),
}

/// One finished request. Borrows everything; made on the stack for the time of writing one line.
#[derive(Copy, Clone, Debug)]
pub struct AccessRecord<'a> {
    /// When it ended.
    pub ended: UnixMillis,
    /// From the first byte of the request to the last of the answer.
    pub elapsed_ms: u64,
    /// The client.
    pub client: SocketAddr,
    /// The address of ours that the client connected to.
    pub local: Option<SocketAddr>,
    /// Its result.
    pub tag: ResultTag,
    /// Status sent to the client; 0 when none was sent.
    pub status: u16,
    /// Status the server sent, if one was asked.
    pub server_status: Option<u16>,
    /// Bytes sent to the client, head included.
    pub bytes_out: u64,
    /// Method as sent; empty when the request was not understood.
    pub method: &'a [u8],
    /// Effective URL, or `host:port` of a CONNECT; empty when the request was not understood.
    pub url: &'a [u8],
    /// The URL that the client has sent, if a helper has put another one in its place.
    pub client_url: Option<&'a [u8]>,
    /// Version of the request.
    pub version: Option<Version>,
    /// The way in which the server was chosen.
    pub hierarchy: Hierarchy,
    /// Which server.
    pub peer: Peer<'a>,
    /// Its port, if a server was asked.
    pub peer_port: Option<u16>,
    /// The name of the client, if it has been looked up.
    pub client_name: Option<&'a str>,
    /// The name of the server, or that of a `cache_peer`.
    pub server_name: &'a [u8],
    /// Our end of the connection to the server, if a format wants it.
    pub server_local: Option<SocketAddr>,
    /// Connections to servers that were tried.
    pub attempts: u32,
    /// The user that the client names, right or wrong.
    pub user: Option<&'a str>,
    /// The user that a helper of `external_acl_type` has named.
    pub ext_user: Option<&'a [u8]>,
    /// Its `tag=`.
    pub ext_tag: Option<&'a [u8]>,
    /// Its `log=`.
    pub ext_log: Option<&'a [u8]>,
    /// Content-Type of the answer.
    pub content_type: Option<&'a [u8]>,
    /// Name of the error page sent (`ERR_DNS_FAIL`), or of the reason why the answer was cut off,
    /// if any.
    pub error: Option<&'a str>,
    /// More about that error, written by this program.
    pub error_detail: Option<&'a str>,
    /// File and line of the rule that has refused; line 0 for the directive itself.
    pub rule: Option<(&'a str, u32)>,
    /// What rules would have done, had they not only been to report it: file and line of the rule
    /// that would have refused; `Some(None)` if a rule had no answer.
    pub reported: Option<Option<(&'a str, u32)>>,
    /// Number of the configuration under which it was served.
    pub generation: u64,
    /// The client's hardware address, where it is known.
    pub hardware: Option<[u8; 6]>,
    /// Time spent waiting for look-ups of names, in ms.
    pub dns_ms: Option<u64>,
    /// Number of the request, unique until the program ends.
    pub number: u64,
    /// Fields of the request as received; wanted when the format `needs_fields`.
    pub request: Option<&'a Fields>,
    /// The certificate of the client.
    pub certificate: Option<&'a Certificate>,
    /// Version and cipher of TLS with the client.
    pub tls: Option<(&'a str, &'a str)>,
    /// The interception of its TLS.
    pub bump: Option<&'a BumpFacts>,
    /// Head of the answer from the server or the cache: its status, and lines `name: value`.
    pub response: Option<&'a [u8]>,
    /// Its annotations, which rules may change between one log and the next.
    pub notes: Option<&'a RefCell<Notes>>,
}

impl<'a> AccessRecord<'a> {
    /// A record of which nothing is known but whose it is and when it ended.
    pub fn new(ended: UnixMillis, client: SocketAddr) -> Self {
        Self {
            ended,
            elapsed_ms: 0,
            client,
            local: None,
            tag: ResultTag::default(),
            status: 0,
            server_status: None,
            bytes_out: 0,
            method: b"",
            url: b"",
            client_url: None,
            version: None,
            hierarchy: Hierarchy::None,
            peer: Peer::None,
            peer_port: None,
            client_name: None,
            server_name: b"",
            server_local: None,
            attempts: 0,
            user: None,
            ext_user: None,
            ext_tag: None,
            ext_log: None,
            content_type: None,
            error: None,
            error_detail: None,
            rule: None,
            reported: None,
            generation: 0,
            hardware: None,
            dns_ms: None,
            number: 0,
            request: None,
            certificate: None,
            tls: None,
            bump: None,
            response: None,
            notes: None,
        }
    }

    /// Whether a server was asked, or one was to be that could not be reached.
    pub(super) fn has_asked(&self) -> bool {
        self.peer != Peer::None
    }

    /// The name of the user: of the login, or else of a helper.
    pub(super) fn any_user(&self) -> &'a [u8] {
        self.user.map(str::as_bytes).or(self.ext_user).unwrap_or_default()
    }

    /// The URL, cut after the first `?` if asked for (the `?` stays, as in Squid).
    pub(super) fn url(&self, strip_query_terms: bool) -> &'a [u8] {
        cut(self.url, strip_query_terms)
    }

    /// The same of the URL that the client has sent.
    pub(super) fn client_url(&self, strip_query_terms: bool) -> &'a [u8] {
        cut(self.client_url.unwrap_or(self.url), strip_query_terms)
    }
}

/// A URL, cut in this way.
pub(super) fn cut(url: &[u8], strip_query_terms: bool) -> &[u8] {
    match memchr::memchr(b'?', url).filter(|_| strip_query_terms) {
        Some(at) => &url[..=at],
        None => url,
    }
}
