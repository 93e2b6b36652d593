//! The request in the form that goes to a server. It is always made anew, and never passed on as
//! bytes (RFC 9110 7.6).

use std::net::IpAddr;

use humboldt_conf::ForwardedFor;
use humboldt_exchange::{AskHead, AskLine, BodyLength};
use humboldt_http::{FieldName, FieldSink, Fields, HopByHop, Method, Url};
use humboldt_store::StoredHead;

use crate::config::peers::{Login, Peer, basic};
use crate::request::{Request, unmapped};
use crate::rules::header::{self, Ruling};
use crate::rules::login;

/// How the request is sent on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Manner<'a> {
    /// The next hop is a proxy: absolute-form target, and credentials for it are kept.
    pub to_proxy: bool,
    /// Host field to send instead of the URL's (`forceddomain=`).
    pub forced_host: Option<&'a str>,
    /// Credentials for it (`login=`): in Authorization for a server, and in Proxy-Authorization for
    /// a proxy.
    pub login: Option<&'a Login>,
    /// Validate this stored answer: its validators become conditions.
    pub validate: Option<&'a StoredHead>,
    /// The answer may be stored, so the client's own conditions and ranges are left out.
    pub whole: bool,
    /// Ask to switch to this protocol.
    pub upgrade: Option<&'a [u8]>,
    /// Credentials that log a connection in go on.
    pub ties_connections: bool,
}

/// A request on its way to a server.
pub(crate) struct Ask<'a> {
    /// The client's request.
    pub request: &'a Request,
    /// How it is sent on.
    pub manner: Manner<'a>,
}

impl AskHead for Ask<'_> {
    fn line(&self) -> AskLine<'_> {
        let (request, manner) = (self.request, &self.manner);
        AskLine {
            method: request.head.method_bytes(),
            url: &request.url,
            host: manner.forced_host.map_or(request.host_field(), str::as_bytes),
            to_proxy: manner.to_proxy,
            asterisk: request.head.method == Method::Options && !request.url.has_path(),
        }
    }

    fn length(&self) -> BodyLength {
        self.request.body
    }

    fn upgrade(&self) -> Option<&[u8]> {
        self.manner.upgrade
    }

    fn persists(&self) -> bool {
        self.request.snapshot().config.server_persistent_connections
    }

    fn write<S: FieldSink>(&self, out: &mut S) {
        let (request, manner) = (self.request, &self.manner);
        copy_fields(out, request, manner);
        write_via(out, request);
        write_forwarded_for(out, request);
        if let Some(stored) = manner.validate {
            write_conditions(out, stored);
        }
        write_login(out, request, manner.login, manner.to_proxy);
        header::add_to_request(out, request);
    }
}

/// A request to a parent for a tunnel to the host and port of the client's CONNECT.
pub(crate) struct AskTunnel<'a> {
    /// The client's request.
    pub request: &'a Request,
    /// Host and port.
    pub place: &'a Url,
    /// See [`Manner::login`].
    pub login: Option<&'a Login>,
}

impl AskHead for AskTunnel<'_> {
    fn line(&self) -> AskLine<'_> {
        let url = self.place;
        AskLine { method: b"CONNECT", url, host: url.as_bytes(), to_proxy: true, asterisk: false }
    }

    fn write<S: FieldSink>(&self, out: &mut S) {
        write_tunnel_login(out, self.request, self.login);
    }
}

/// The credentials for a parent that is to open a tunnel. Inside of the tunnel of the client they
/// are those that it has sent with CONNECT: what it sends there is for servers.
fn write_tunnel_login(out: &mut impl FieldSink, request: &Request, login: Option<&Login>) {
    match (request.inside(), login) {
        (Some(inside), Some(Login::NameOfUser(text))) => {
            let user = login::user(&inside.connect).or(login::user(request));
            let login = name_of_user(&inside.connect, user, text);
            out.field(b"Proxy-Authorization", login.as_bytes());
        }
        (Some(inside), _) => write_login(out, &inside.connect, login, true),
        (None, _) => write_login(out, request, login, true),
    }
}

/// The same as bytes.
pub(crate) fn tunnel_login(request: &Request, login: Option<&Login>) -> Vec<u8> {
    let mut fields = Fields::new();
    write_tunnel_login(&mut fields, request, login);
    let values: Vec<&[u8]> = fields.get_all(FieldName::ProxyAuthorization).collect();
    values.join(&b'\n')
}

/// Schemes that authenticate a connection, not a request (RFC 9110 11.7.3 forbids it): on a
/// connection that clients share, the next one would act as the one before.
const OF_CONNECTIONS: [&[u8]; 3] = [b"NTLM", b"Negotiate", b"Kerberos"];

/// Whether credentials or a challenge may pass on connections that clients share.
///
/// Servers read the scheme in different ways, and may end it at a tab, or take no notice of what
/// follows. So it is enough that a value begins as such a scheme.
pub(crate) fn may_pass(value: &[u8]) -> bool {
    let is_odd = |byte: &&u8| !byte.is_ascii_graphic();
    let value = value.get(value.iter().take_while(is_odd).count()..).unwrap_or_default();
    let begins = |scheme: &&[u8]| {
        value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    !OF_CONNECTIONS.iter().any(begins)
}

/// The credentials for a parent: those of its own, of the client, or of a helper's answer.
fn write_login(out: &mut impl FieldSink, request: &Request, login: Option<&Login>, to_proxy: bool) {
    let (name, id): (&[u8], _) = match to_proxy {
        true => (b"Proxy-Authorization", FieldName::ProxyAuthorization),
        false => (b"Authorization", FieldName::Authorization),
    };
    let has_own = match to_proxy {
        true => request.head.fields.get_all(id).any(may_pass),
        false => request.head.fields.has(id),
    };
    if login.is_some_and(Login::is_of_client) && has_own {
        // A server has got its field with the others.
        if to_proxy {
            write_clients_credentials(out, request);
        }
        return;
    }
    match login {
        Some(Login::Own(login)) => out.field(name, login.as_bytes()),
        Some(Login::NameOfUser(text)) => {
            out.field(name, name_of_user(request, login::user(request), text).as_bytes());
        }
        Some(Login::OfClientForServer) if !to_proxy && has_basic_for_proxy(request) => {
            let values = request.head.fields.get_all(FieldName::ProxyAuthorization);
            values.take(1).for_each(|value| out.field(name, value));
        }
        Some(Login::OfClient | Login::OfClientForServer) => {
            if let Some(login) = told_by_helper(request) {
                out.field(name, basic(&login).as_bytes());
            }
        }
        Some(Login::Unchanged) | None => {}
    }
}

/// Whether this server is told who the client is, in a field Authorization that the client has not
/// sent. The answer is then for this user, as one to an own field is.
pub(crate) fn tells_user(request: &Request, peer: Option<&Peer>) -> bool {
    let Some(peer) = peer.filter(|peer| peer.conf.originserver) else { return false };
    match &peer.login {
        Some(Login::NameOfUser(_)) => {
            let facts = request.helped.facts();
            login::user(request).is_some() || facts.is_some_and(|facts| facts.user.is_some())
        }
        Some(Login::OfClient) => told_by_helper(request).is_some(),
        Some(Login::OfClientForServer) => {
            has_basic_for_proxy(request) || told_by_helper(request).is_some()
        }
        Some(Login::Own(_) | Login::Unchanged) | None => false,
    }
}

/// `login=*TEXT`: `user=` of a helper, or the user who has logged in, or `-`.
fn name_of_user(request: &Request, user: Option<&str>, text: &str) -> String {
    let facts = request.helped.facts();
    let told = facts.as_ref().and_then(|facts| facts.user.as_deref());
    let user = told.or(user.map(str::as_bytes)).unwrap_or(b"-");
    basic(&[user, text.as_bytes()].concat())
}

/// `user=` and `password=` of a helper.
fn told_by_helper(request: &Request) -> Option<Vec<u8>> {
    let facts = request.helped.facts()?;
    let parts = [facts.user.as_deref()?, b":", facts.password.as_deref()?];
    Some(parts.concat())
}

fn has_basic_for_proxy(request: &Request) -> bool {
    let value = request.head.fields.get(FieldName::ProxyAuthorization);
    value.is_some_and(is_basic)
}

/// Whether credentials are a name and a password, which can be sent any number of times.
pub(crate) fn is_basic(value: &[u8]) -> bool {
    let scheme = value.get(..b"Basic ".len());
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Basic "))
}

/// Whether the client's field Authorization stays here. An own one takes its place; and one with
/// which the client has logged in here goes to nobody else, unless the parent is to get it.
fn keeps_authorization(request: &Request, manner: &Manner<'_>) -> bool {
    match manner.login {
        Some(Login::Own(_) | Login::NameOfUser(_)) => {
            !manner.to_proxy || login::uses_authorization(request)
        }
        Some(Login::Unchanged | Login::OfClient | Login::OfClientForServer) => false,
        None => login::uses_authorization(request),
    }
}

/// The client's credentials for a proxy, which this one lets the next one check.
fn write_clients_credentials(out: &mut impl FieldSink, request: &Request) {
    if is_kept(out, request, b"Proxy-Authorization") {
        let values = request.head.fields.get_all(FieldName::ProxyAuthorization);
        values.filter(|value| may_pass(value)).for_each(|value| {
            out.field(b"Proxy-Authorization", value);
        });
    }
}

/// Copies the end-to-end fields. Fields that the proxy makes anew are left out.
fn copy_fields(out: &mut impl FieldSink, request: &Request, manner: &Manner<'_>) {
    let hops = HopByHop::of(&request.head.fields);
    for (id, name, value) in request.head.fields.iter() {
        let made_anew = match id {
            FieldName::Host | FieldName::ContentLength | FieldName::TransferEncoding => true,
            FieldName::Via | FieldName::XForwardedFor => true,
            FieldName::Authorization => {
                keeps_authorization(request, manner)
                    || login::is_step(request, value)
                    || !manner.ties_connections && !may_pass(value)
            }
            FieldName::IfNoneMatch | FieldName::IfModifiedSince => {
                manner.whole || manner.validate.is_some()
            }
            FieldName::IfMatch | FieldName::IfUnmodifiedSince => manner.whole,
            FieldName::Range | FieldName::IfRange => manner.whole,
            FieldName::MaxForwards => forwards_left(request).is_some(),
            FieldName::Expect => request.body == BodyLength::None,
            // The proxy writes its own Upgrade where it wants one.
            FieldName::Upgrade | FieldName::Http2Settings => true,
            _ => false,
        };
        if made_anew || hops.is_hop(id, name) {
            continue;
        }
        header::pass_to_server(out, request, name, value);
    }
    if let Some(left) = forwards_left(request) {
        let left = left.saturating_sub(1);
        out.field(b"Max-Forwards", itoa::Buffer::new().format(left).as_bytes());
    }
}

/// Max-Forwards of the request, if it is TRACE or OPTIONS: only these obey it (RFC 9110 7.6.2).
pub(crate) fn forwards_left(request: &Request) -> Option<u32> {
    if !matches!(request.head.method, Method::Trace | Method::Options) {
        return None;
    }
    let value = request.head.fields.get(FieldName::MaxForwards)?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn write_via(out: &mut impl FieldSink, request: &Request) {
    if !is_kept(out, request, b"Via") {
        return;
    }
    for value in request.head.fields.get_all(FieldName::Via) {
        out.field(b"Via", value);
    }
    if let Some(own) = request.snapshot().names.via(request.head.version) {
        out.field(b"Via", own);
    }
}

/// Whether a field that the proxy makes is written as made. If a rule replaces it, the replacement
/// is written here.
fn is_kept(out: &mut impl FieldSink, request: &Request, name: &[u8]) -> bool {
    match header::of_request(request, name) {
        Ruling::Kept => return true,
        Ruling::Replaced(text) => out.field(name, text),
        Ruling::Removed => {}
    }
    false
}

fn write_forwarded_for(out: &mut impl FieldSink, request: &Request) {
    if !is_kept(out, request, b"X-Forwarded-For") {
        return;
    }
    let mode = request.snapshot().config.forwarded_for;
    let earlier = request.head.fields.get_all(FieldName::XForwardedFor);
    match mode {
        ForwardedFor::Delete => {}
        ForwardedFor::Transparent => {
            earlier.for_each(|value| out.field(b"X-Forwarded-For", value));
        }
        ForwardedFor::Truncate => write_client(out, &[], request, true),
        ForwardedFor::On | ForwardedFor::Off => {
            let mut before = Vec::new();
            for value in earlier {
                before.extend_from_slice(value);
                before.extend_from_slice(b", ");
            }
            write_client(out, &before, request, mode == ForwardedFor::On);
        }
    }
}

fn write_client(out: &mut impl FieldSink, earlier: &[u8], request: &Request, known: bool) {
    let mut text = AddressText::new();
    let ip = unmapped(request.client_ip());
    // A client on a Unix socket has no address.
    let known = known && !ip.is_unspecified();
    let client = if known { text.write(ip) } else { b"unknown" };
    out.parts(b"X-Forwarded-For", &[earlier, client]);
}

/// An address as text, without an allocation.
struct AddressText {
    bytes: [u8; Self::BYTES],
    used: usize,
}

impl AddressText {
    /// The longest text of an IPv6 address has 45 bytes.
    const BYTES: usize = 48;

    fn new() -> Self {
        Self { bytes: [0; Self::BYTES], used: 0 }
    }

    fn write(&mut self, ip: IpAddr) -> &[u8] {
        match ip {
            // Written by hand, since the formatter costs several times as much.
            IpAddr::V4(ip) => {
                for (at, number) in ip.octets().into_iter().enumerate() {
                    if at > 0 {
                        self.push(b".");
                    }
                    self.push(itoa::Buffer::new().format(number).as_bytes());
                }
            }
            IpAddr::V6(ip) => self.push(ip.to_string().as_bytes()),
        }
        self.bytes.get(..self.used).unwrap_or_default()
    }

    fn push(&mut self, text: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.used..self.used + text.len()) {
            place.copy_from_slice(text);
            self.used += text.len();
        }
    }
}

/// The stored answer's validators as conditions (RFC 9111 4.3.1).
fn write_conditions(out: &mut impl FieldSink, stored: &StoredHead) {
    if let Some(tag) = stored.etag() {
        out.field(b"If-None-Match", tag);
    }
    if let Some(modified) = stored.last_modified {
        out.field(b"If-Modified-Since", &humboldt_http::date::format(modified));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_connections_are_known_whatever_follows() {
        for value in [
            "NTLM",
            "ntlm x",
            "NTLM\tx",
            "NTLM\t x",
            "NTLMx y",
            "NTLM,x",
            "\x0bNTLM x",
            "Negotiate x",
            "kerberos\tx",
        ] {
            assert!(!may_pass(value.as_bytes()), "{value:?}");
        }
        for value in ["", "NTL", "Basic NTLM", "Digest x", "Bearer Negotiate"] {
            assert!(may_pass(value.as_bytes()), "{value:?}");
        }
    }

    #[test]
    fn addresses_are_written_as_text() {
        for text in ["0.0.0.0", "127.0.0.1", "255.10.99.100", "::1", "2001:db8::7"] {
            assert_eq!(AddressText::new().write(text.parse().unwrap()), text.as_bytes());
        }
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(AddressText::new().write(longest.parse().unwrap()), longest.as_bytes());
    }
}
