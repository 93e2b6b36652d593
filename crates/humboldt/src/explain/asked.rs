//! The request that is explained.

use std::net::{IpAddr, ToSocketAddrs};

use humboldt_acl::{Known, Login, Subject};
use humboldt_base::clock::UnixMillis;
use humboldt_conf::{Config, HttpPort, PortMode};
use humboldt_http::text::request_head;
use humboldt_http::uri::Url;
use humboldt_http::{HeadLimits, Method, RequestHead, TargetWhitespace};
use humboldt_proxy::snapshot::Snapshot;
use humboldt_proxy::{is_own_name, own_page_in};
use humboldt_sys::local_time::utc_offset_s;

use super::end::ExplainError;
use crate::cli::Cli;

/// Largest head that is put together from the command line, as the default of
/// `request_header_max_size`.
const LIMITS: HeadLimits = HeadLimits {
    max_head_bytes: 64 << 10,
    max_fields: 256,
    max_target_bytes: 32 << 10,
    relaxed: true,
    whitespace: TargetWhitespace::Refused,
};

/// `--sni` of a client that names no server.
const NO_NAME: &str = "none";

/// A request with what is known about it.
pub(super) struct Asked {
    head: RequestHead,
    url: Url,
    client: IpAddr,
    local_port: u16,
    port_name: Option<String>,
    is_internal: bool,
    /// The port is for clients of a proxy.
    knows_proxy: bool,
    /// The port intercepts TLS.
    intercepts_tls: bool,
    /// A packet filter sends connections there.
    is_redirected: bool,
    /// They begin with TLS.
    is_https: bool,
    /// It can make certificates.
    can_decrypt: bool,
    /// The port ends TLS.
    is_encrypted: bool,
    /// What the client says in TLS: `--sni`.
    sni: Option<String>,
    user: Option<String>,
    /// The addresses of the host, once they have been looked up or given.
    addresses: Option<Vec<IpAddr>>,
    now_s: i64,
}

impl Asked {
    /// The request of the command line.
    pub(super) fn of(cli: &Cli, snapshot: &Snapshot) -> Result<Self, ExplainError> {
        let [method, url] = &cli.asked[..] else {
            return Err(ExplainError::Usage("explain needs a method and a URL".to_owned()));
        };
        let mut asked = Self::new(method, url, &cli.headers, cli.src)
            .map_err(|why| ExplainError::Usage(format!("`{method} {url}` is no request: {why}")))?;
        asked.user.clone_from(&cli.user);
        asked.sni.clone_from(&cli.sni);
        let port = chosen_port(cli, &snapshot.config)?;
        if let Some(port) = port {
            asked.local_port = port.port;
            asked.port_name = Some(port.name.clone());
            asked.knows_proxy = port.mode == PortMode::Forward;
            asked.intercepts_tls = port.bump.is_some();
            asked.is_redirected = port.mode.is_intercepted();
            asked.is_https = port.is_https;
            asked.can_decrypt = port.bump.as_ref().is_some_and(|bump| bump.certificate.is_some());
            asked.is_encrypted = port.tls.is_some();
        }
        asked.is_internal = port.is_some_and(|port| asked.is_own_page(snapshot, port));
        asked.addresses = Some(cli.dst.clone()).filter(|given| !given.is_empty());
        Ok(asked)
    }

    /// A request of now.
    pub(super) fn new(
        method: &str,
        url: &str,
        fields: &[String],
        client: IpAddr,
    ) -> Result<Self, String> {
        let host = url.split("://").nth(1).unwrap_or(url);
        let host = host.split(['/', '?']).next().unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        let mut text = format!("{method} {url} HTTP/1.1\r\n");
        // To an accelerator: the field comes from the command line.
        if !url.starts_with('/') {
            text.push_str(&format!("Host: {host}\r\n"));
        }
        for field in fields {
            text.push_str(field.trim_end());
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        let head = match request_head(text.as_bytes(), &LIMITS) {
            Ok(Some(head)) => head,
            Ok(None) => return Err("a line end within it".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        let mut parsed = Url::default();
        parsed.set_from_request(&head, b"http", None).map_err(|error| error.to_string())?;
        Ok(Self {
            head,
            url: parsed,
            client,
            local_port: 0,
            port_name: None,
            is_internal: false,
            knows_proxy: true,
            intercepts_tls: false,
            is_redirected: false,
            is_https: false,
            can_decrypt: false,
            is_encrypted: false,
            sni: None,
            user: None,
            addresses: None,
            now_s: UnixMillis::now().secs(),
        })
    }

    /// The same at another time.
    pub(super) fn at(self, now_s: i64) -> Self {
        Self { now_s, ..self }
    }

    /// The same of this user.
    pub(super) fn by(self, user: Option<&str>) -> Self {
        Self { user: user.map(ToOwned::to_owned), ..self }
    }

    /// The same at one of the ports of a proxy: which one is not known.
    pub(super) fn of_a_log(self, snapshot: &Snapshot) -> Self {
        let mut ports = snapshot.config.ports();
        let is_internal = ports.any(|port| self.is_own_page(snapshot, port));
        Self { is_internal, ..self }
    }

    /// Whether it is for a page of the proxy's own: at an address of this machine, or under the
    /// proxy's name.
    fn is_own_page(&self, snapshot: &Snapshot, port: &HttpPort) -> bool {
        let is_page = own_page_in(self.url.path_and_query()).is_some();
        let is_address = self.host_ip().is_some_and(|ip| ip.is_loopback() || ip.is_unspecified());
        let is_here = is_address && port.mode == PortMode::Forward
            || is_own_name(snapshot, port, self.url.host());
        is_page && is_here && snapshot.config.ports().any(|port| port.port == self.url.port())
    }

    /// Whether it is for a page of the proxy's own, as far as that is known.
    pub(super) fn is_for_own_page(&self) -> bool {
        self.is_internal
    }

    /// Whether it is a PURGE.
    pub(super) fn is_purge(&self) -> bool {
        self.head.method == Method::Purge
    }

    /// What the explanation leaves out.
    pub(super) fn notes(&self, config: &Config) -> Vec<&'static str> {
        let mut notes = Vec::new();
        let is_forwarded = self.head.fields.get_by_name(b"X-Forwarded-For").is_some();
        if is_forwarded && !config.follow_x_forwarded_for.is_empty() {
            notes.push("X-Forwarded-For is not followed here: say the client's address with --src");
        }
        if self.is_https && self.is_redirected && self.head.method != Method::Connect {
            notes.push(
                "a connection comes to this port as CONNECT ADDRESS:PORT: this is about a request \
                 inside of one",
            );
        }
        notes
    }

    /// Whether its URL may have had a query that a log has left out.
    pub(super) fn may_lack_query(&self) -> bool {
        self.url.as_bytes().ends_with(b"?")
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        let user = self.user.as_ref().map(|user| format!(", user {user}")).unwrap_or_default();
        format!(
            "{} {} from {}{user}",
            String::from_utf8_lossy(self.head.method_bytes()),
            String::from_utf8_lossy(self.url.as_bytes()),
            self.client
        )
    }

    /// Looks the host up with the system's resolver, if a list may need its addresses.
    pub(super) fn look_up_if(&mut self, is_needed: bool) {
        if self.addresses.is_some() || self.host_ip().is_some() || !is_needed {
            return;
        }
        let host = String::from_utf8_lossy(self.url.host()).into_owned();
        let found = (host.as_str(), self.url.port()).to_socket_addrs();
        self.addresses = found.ok().map(|found| found.map(|address| address.ip()).collect());
    }

    /// Whether its port is for connections that a packet filter sends there.
    pub(super) fn is_redirected(&self) -> bool {
        self.is_redirected
    }

    /// Whether a client can be shown something inside of its tunnel.
    pub(super) fn can_decrypt(&self) -> bool {
        self.can_decrypt
    }

    /// Whether the address that the client has chosen is one of the host of `named`, which is the
    /// same request by its name. If not, that leads to the address all the same.
    pub(super) fn agrees_with(&self, named: &mut Self) -> bool {
        let Some(original) = self.host_ip() else { return true };
        named.look_up_if(true);
        let is_its = |known: &Vec<IpAddr>| known.iter().any(|ip| ip.to_canonical() == original);
        let agrees = named.addresses.as_ref().is_some_and(is_its);
        if !agrees {
            named.addresses = Some(vec![original]);
        }
        agrees
    }

    /// Whether `ssl_bump` is asked about it, if there are rules.
    pub(super) fn is_intercepted(&self) -> bool {
        self.intercepts_tls && self.head.method == Method::Connect
    }

    /// The name that the client asks for in TLS; `None`: none. Unless `--sni` says something else,
    /// it is the host.
    pub(super) fn sni(&self) -> Option<String> {
        let host = || String::from_utf8_lossy(self.url.host()).into_owned();
        let of_host = || self.host_ip().is_none().then(host);
        match &self.sni {
            Some(given) => Some(given.to_ascii_lowercase()).filter(|name| name != NO_NAME),
            None => of_host(),
        }
    }

    /// The same to another host.
    pub(super) fn to_host(&self, host: &str) -> Result<Self, ExplainError> {
        let target = format!("{host}:{}", self.url.port());
        let wrong = |why| ExplainError::Usage(format!("`--sni {host}` is no name: {why}"));
        let other = Self::new("CONNECT", &target, &[], self.client).map_err(wrong)?;
        let (user, port_name, sni) = (self.user.clone(), self.port_name.clone(), self.sni.clone());
        Ok(Self {
            user,
            port_name,
            sni,
            head: self.head.clone(),
            local_port: self.local_port,
            knows_proxy: self.knows_proxy,
            intercepts_tls: self.intercepts_tls,
            is_redirected: self.is_redirected,
            is_https: self.is_https,
            can_decrypt: self.can_decrypt,
            // Those that were given for an address can only be meant for the name.
            addresses: self.host_ip().and(self.addresses.clone()),
            is_encrypted: self.is_encrypted,
            now_s: self.now_s,
            ..other
        })
    }

    /// Host of the URL.
    pub(super) fn host(&self) -> &[u8] {
        self.url.host()
    }

    /// The addresses of the host, as far as they are known, of which one that is an address has
    /// itself; `None` on ports whose sites are configured or chosen by address.
    pub(super) fn addresses_of_name(&self) -> Option<Option<Vec<IpAddr>>> {
        let is_judged = !self.is_internal && self.knows_proxy;
        let addresses = || match self.host_ip() {
            Some(ip) => Some(vec![ip]),
            None => self.addresses.clone(),
        };
        is_judged.then(addresses)
    }

    fn host_ip(&self) -> Option<IpAddr> {
        humboldt_http::uri::host_ip(self.url.host())
    }

    /// The request as rules see it.
    pub(super) fn subject(&self) -> Subject<'_> {
        let login = match &self.user {
            Some(user) => Login::User(user),
            None => Login::Missing,
        };
        let dst_ips = self.addresses.as_deref();
        Subject {
            client_ip: self.client,
            local_ip: self.client,
            local_port: self.local_port,
            port_name: self.port_name.as_deref(),
            is_internal: self.is_internal,
            method: self.head.method_bytes(),
            scheme: self.url.scheme(),
            host: self.url.host(),
            port: self.url.port(),
            url: self.url.as_bytes(),
            path: self.url.path_and_query(),
            request: Some(&self.head),
            known: Known { dst_ips, login: Some(login), user_addresses: 1, ..Known::default() },
            now: self.now_s,
            local_offset_s: utc_offset_s(self.now_s),
            connections_from_client: 1,
            is_encrypted: self.is_encrypted,
            ..Subject::default()
        }
    }
}

/// The port that `--port` names, or else the first.
fn chosen_port<'c>(cli: &Cli, config: &'c Config) -> Result<Option<&'c HttpPort>, ExplainError> {
    let Some(wanted) = &cli.to_port else { return Ok(config.ports().next()) };
    let is_wanted = |port: &&HttpPort| port.name == *wanted || port.port.to_string() == *wanted;
    match config.ports().find(is_wanted) {
        Some(port) => Ok(Some(port)),
        None => Err(ExplainError::Usage(format!("no http_port has the name or number `{wanted}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_no_line_of_its_own() {
        let client = IpAddr::from([127, 0, 0, 1]);
        let new = |method, url, field: &str| Asked::new(method, url, &[field.to_owned()], client);
        assert!(new("GET", "http://a.test/x?y", "Cookie: a").is_ok());
        assert!(new("CONNECT", "a.test:443", "A: b").is_ok());
        for (method, url, field) in [
            ("GET", "http://a.test/", "A: b\r\n\r\nGET / HTTP/1.1"),
            ("GET", "nonsense", "A: b"),
            ("G T", "http://a.test/", "A: b"),
            ("CONNECT", "a.test", "A: b"),
        ] {
            assert!(new(method, url, field).is_err(), "{method} {url} {field}");
        }
    }
}
