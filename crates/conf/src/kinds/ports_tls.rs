//! TLS of ports: their own, and that which passes and is intercepted (`ssl-bump`).

use super::network::{OPTIONS, plain_option};
use super::options::{self, OptionRow, rows};
use super::tls::{Side, TlsReader};
use super::units::parse_size;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::table::Status;
use crate::types::{BumpPort, HttpPort, Location, PortMode};

const NO_DH: Status = Status::Ignored(
    "keys are exchanged over elliptic curves: X25519, P-256, P-384, and with ML-KEM",
);
const OWN_SESSIONS: Status = Status::Ignored("sessions belong to their port anyway");

/// The options that make a port intercept TLS, or go with that.
pub(super) const BUMP: &[OptionRow] = rows! {
    Status::Works => {
        "ssl-bump" "", "TLS that passes is intercepted, as `ssl_bump` says: in tunnels (CONNECT), or on an `https_port` with `intercept` or `tproxy`.";
        "sslBump" "", "Old name of `ssl-bump`.";
        "generate-host-certificates" "[=on|off]", "With `ssl-bump`: certificates are made for the hosts, and signed by `tls-cert=`. `off`: all clients get `tls-cert=` itself. `on` by default.";
        "dynamic_cert_mem_cache_size" "=SIZE", "With `ssl-bump`: memory for certificates that were made; 0 keeps none. 4 MB by default.";
    }
};

/// Options of TLS on every port: on an `http_port` they are for `ssl-bump`.
pub(super) const SECURE: &[OptionRow] = rows! {
    Status::Works => {
        "tls-cert" "=FILE", "Certificate, in PEM, and behind it those of its authorities. There may be several: the name that the client asks for decides, then the kind of key; without a name that fits it is the first. With `ssl-bump`: the one authority that signs.";
        "tls-key" "=FILE", "Key of the certificate in front of it, if that is not in the same file. Keys with a passphrase are refused.";
        "tls-ocsp" "=FILE", "Not in Squid. An answer of OCSP, in DER, that is sent with the certificate in front of it until it is too old.";
        "tls-min-version" "=1.N", "Oldest version of TLS: 1.2, which is the oldest here, or 1.3.";
        "tls-options" "=LIST", "As `options`.";
        "tls-cipher" "=LIST", "As `cipher`.";
        "tls-cafile" "=FILE", "As `cafile`.";
        "tls-capath" "=DIR", "As `capath`.";
        "tls-crlfile" "=FILE", "As `crlfile`.";
        "tls-flags" "=LIST", "As `sslflags`.";
        "tls-clientca" "=FILE", "As `clientca`.";
        "tls-default-ca" "[=off]", "The authorities of the system count for certificates of clients too.";
        "tls-no-npn" "", "No NPN, the predecessor of ALPN: it is so in any case.";
        "cert" "=FILE", "Old name of `tls-cert`.";
        "key" "=FILE", "Old name of `tls-key`.";
        "version" "=N", "Old form of `tls-min-version`: 1 for all, 6 for TLS 1.2 only.";
        "options" "=LIST", "Words with `,` or `:` between them: `NO_TLSv1_2`, `NO_TLSv1_3`, `NO_TICKET`, `CIPHER_SERVER_PREFERENCE`. What OpenSSL says of older versions is so in any case.";
        "cipher" "=LIST", "Ciphers of TLS 1.2, in OpenSSL's language. Those of TLS 1.3 are always offered.";
        "clientca" "=FILE", "Clients must have a certificate from these authorities. Not with `ssl-bump`.";
        "cafile" "=FILE", "Authorities for certificates of clients, in place of `clientca`, which still asks for them.";
        "capath" "=DIR", "The same, one a file.";
        "crlfile" "=FILE", "Certificates of clients that are revoked, PEM or DER. Then each must be covered by a list that is not too old.";
        "sslflags" "=LIST", "`CONDITIONAL_AUTH`: clients without a certificate are served. `DELAYED_AUTH`: nobody is asked for one, with a warning. `NO_SESSION_REUSE`, `NO_DEFAULT_CA`, `VERIFY_CRL`, `VERIFY_CRL_ALL`.";
    }
    NO_DH => {
        "tls-dh" "=[CURVE:]FILE", "Parameters of the key exchange.";
        "dhparams" "=FILE", "Old name of `tls-dh`.";
    }
    OWN_SESSIONS => {
        "tls-context" "=ID", "Identity of sessions.";
        "sslcontext" "=ID", "Old name of `tls-context`.";
    }
};

/// What the options of a line about interception say.
struct BumpReader {
    /// `ssl-bump`
    word: Option<Token>,
    generates: bool,
    leaf_cache_bytes: u64,
    /// An option that is only for `ssl-bump`.
    other: Option<Token>,
}

impl BumpReader {
    fn new() -> Self {
        let leaf_cache_bytes = BumpPort::LEAF_CACHE_BYTES;
        Self { word: None, generates: true, leaf_cache_bytes, other: None }
    }

    /// Takes an option; `false`: it is another one.
    fn option(&mut self, token: &Token, line: &mut Line<'_>) -> Result<bool, Problem> {
        let (name, value) = options::split(token);
        match (name, value) {
            ("ssl-bump", _) => self.word = Some(token.clone()),
            ("sslBump", _) => {
                line.note(token, "this is the old name of `ssl-bump`", Some("write `ssl-bump`"));
                self.word = Some(token.clone());
            }
            ("generate-host-certificates", None | Some("on")) => self.generates = true,
            ("generate-host-certificates", Some("off")) => self.generates = false,
            ("generate-host-certificates", Some(_)) => {
                let problem = token.error("the value is neither `on` nor `off`");
                return Err(problem.with_help("write `generate-host-certificates=on`"));
            }
            ("dynamic_cert_mem_cache_size", Some(size)) => {
                self.leaf_cache_bytes = parse_size(size).ok_or_else(|| {
                    let problem = token.error(format!("`{size}` is not a size"));
                    problem.with_help("write a number and a unit, such as `4MB`")
                })?;
            }
            _ => return Ok(false),
        }
        if !matches!(name, "ssl-bump" | "sslBump") {
            self.other = Some(token.clone());
        }
        Ok(true)
    }

    /// What the port needs, if it intercepts.
    fn port(
        self,
        tls: TlsReader,
        mode: PortMode,
        line: &mut Line<'_>,
        location: Location,
    ) -> Result<Option<Box<BumpPort>>, Problem> {
        let Some(word) = self.word else {
            if let Some(other) = self.other {
                let (name, _) = options::split(&other);
                let message = format!("`{name}` has no effect without `ssl-bump`");
                line.warn(&other, message, None);
            }
            return Ok(None);
        };
        if mode == PortMode::Accel {
            let problem = word.error("`ssl-bump` is for proxies, and this port is an accelerator");
            return Err(problem.with_help("give each a port of its own"));
        }
        let (certificate, settings) = tls.bump(&word, line)?;
        Ok(Some(Box::new(BumpPort {
            certificate,
            generates: self.generates,
            leaf_cache_bytes: self.leaf_cache_bytes,
            settings,
            location,
        })))
    }
}

/// Takes an option of a port.
fn take(
    port: &mut HttpPort,
    tls: &mut TlsReader,
    bump: &mut BumpReader,
    token: &Token,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    let (name, value) = options::split(token);
    let bare = match name {
        "sslflags" => "flags",
        name => name.strip_prefix("tls-").unwrap_or(name),
    };
    if bump.option(token, line)? || tls.option(Side::Port, bare, value, token, line)? {
        return Ok(());
    }
    plain_option(port, token)
}

/// The options of an `http_port`.
pub(super) fn plain(port: &mut HttpPort, line: &mut Line<'_>) -> Result<(), Problem> {
    let location = line.location(&line.name.clone());
    let mut tokens = Vec::new();
    while let Some(token) = line.next()? {
        tokens.push(token);
    }
    let is_bump = |token: &Token| matches!(options::split(token).0, "ssl-bump" | "sslBump");
    let bumps = tokens.iter().any(is_bump);
    let (mut tls, mut bump) = (TlsReader::default(), BumpReader::new());
    for token in &tokens {
        let (name, _) = options::split(token);
        let is_of_tls = BUMP.iter().chain(SECURE).any(|row| row.name == name);
        if is_of_tls && !bumps {
            let help = "for a port with TLS write `https_port`";
            line.warn(token, format!("`{name}` has no effect without `ssl-bump`"), Some(help));
        } else if options::is_wanted(OPTIONS.iter().chain(BUMP).chain(SECURE), token, line)? {
            take(port, &mut tls, &mut bump, token, line)?;
        }
    }
    if let (Some(word), true) = (&bump.word, port.mode.is_intercepted()) {
        let message = "on an `http_port` with `intercept` or `tproxy` this is for CONNECT requests \
                       only";
        let help = "connections with TLS belong on an `https_port` with `intercept ssl-bump`";
        line.warn(word, message, Some(help));
    }
    port.bump = bump.port(tls, port.mode, line, location)?;
    Ok(())
}

/// The options of an `https_port`.
pub(super) fn secure(port: &mut HttpPort, line: &mut Line<'_>) -> Result<(), Problem> {
    let location = line.location(&line.name.clone());
    let (mut tls, mut bump) = (TlsReader::default(), BumpReader::new());
    while let Some(token) = line.next()? {
        if options::is_wanted(OPTIONS.iter().chain(BUMP).chain(SECURE), &token, line)? {
            take(port, &mut tls, &mut bump, &token, line)?;
        }
    }
    match (&bump.word, port.mode.is_intercepted()) {
        // As in Squid.
        (Some(word), false) => {
            let problem = word.error("`ssl-bump` on an `https_port` needs `intercept` or `tproxy`");
            return Err(problem.with_help("for clients that know the proxy write `http_port`"));
        }
        (None, true) => {
            let message = "redirected connections are encrypted for their servers";
            let problem = line.name.error(message);
            return Err(problem.with_help("write `ssl-bump` behind `intercept` or `tproxy`"));
        }
        _ => {}
    }
    if bump.word.is_some() {
        port.bump = bump.port(tls, port.mode, line, location)?;
        return Ok(());
    }
    bump.port(TlsReader::default(), port.mode, line, location.clone())?;
    port.tls = Some(Box::new(tls.port(line, location)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{BumpPort, Config, PortMode, Severity, parse_str};

    fn parse(line: &str) -> (Config, String, usize) {
        let text = format!("http_access allow localhost\nssl_bump splice all\n{line}\n");
        let (config, found) = parse_str("t", &text);
        let errors = match found.has_errors() {
            true => found.render_from(false, Severity::Error),
            false => String::new(),
        };
        (config, errors, found.count(Severity::Warning))
    }

    #[test]
    fn a_port_that_intercepts_has_its_authority_and_settings() {
        let (config, errors, warnings) = parse(
            "http_port 3128 ssl-bump generate-host-certificates=on \
             dynamic_cert_mem_cache_size=20MB cert=/ca.pem key=/ca.key options=NO_TLSv1_3 \
             cipher=HIGH:!aNULL name=a",
        );
        assert_eq!((errors.as_str(), warnings), ("", 0));
        let port = &config.http_port[0];
        let bump = port.bump.as_ref().expect("bump");
        let files = bump.certificate.as_ref().expect("a certificate");
        assert_eq!((&*files.certificate, files.key.as_deref()), ("/ca.pem", Some("/ca.key")));
        assert_eq!((bump.generates, bump.leaf_cache_bytes), (true, 20 << 20));
        assert!(bump.settings.allows_tls12 && !bump.settings.allows_tls13);
        assert_eq!((bump.location.line, &*port.name), (3, "a"));
        let (config, errors, _) = parse("http_port 3128 generate-host-certificates=off ssl-bump");
        let bump = config.http_port[0].bump.as_ref().expect("bump");
        assert_eq!((&*errors, bump.generates, &bump.certificate), ("", false, &None));
        assert_eq!(bump.leaf_cache_bytes, BumpPort::LEAF_CACHE_BYTES);
        let (config, errors, _) = parse("http_port 1 ssl-bump key=/k cert=/c");
        let bump = config.http_port[0].bump.as_ref();
        let files = bump.and_then(|bump| bump.certificate.as_ref()).expect("a certificate");
        assert_eq!((&*errors, files.key.as_deref()), ("", Some("/k")));
        let (config, ..) = parse("http_port 1 ssl-bump dynamic_cert_mem_cache_size=0");
        assert_eq!(config.http_port[0].bump.as_ref().map(|bump| bump.leaf_cache_bytes), Some(0));
    }

    #[test]
    fn an_https_port_intercepts_where_connections_are_redirected() {
        for mode in ["intercept", "tproxy"] {
            let (config, errors, warnings) =
                parse(&format!("https_port 3129 {mode} ssl-bump tls-cert=/ca.pem"));
            assert_eq!((errors.as_str(), warnings), ("", 0));
            let port = &config.https_port[0];
            assert!(port.tls.is_none() && port.bump.is_some() && port.mode != PortMode::Forward);
            assert!(port.intercepts_connections());
            // Plain connections come here.
            let (config, errors, _) =
                parse(&format!("http_port 3129 {mode} ssl-bump tls-cert=/ca.pem"));
            let port = &config.http_port[0];
            assert_eq!((&*errors, port.bump.is_some()), ("", true));
            assert!(!port.intercepts_connections());
        }
        for (line, wanted) in [
            ("https_port 1 ssl-bump cert=/x", "needs `intercept` or `tproxy`"),
            ("https_port 1 intercept cert=/x", "write `ssl-bump` behind"),
            ("http_port 1 accel ssl-bump cert=/x", "is an accelerator"),
            ("http_port 1 ssl-bump cert=/x clientca=/y", "cannot be asked for certificates"),
            ("http_port 1 ssl-bump key=/x", "belongs to the certificate in front"),
            ("http_port 1 ssl-bump generate-host-certificates=maybe", "neither `on` nor `off`"),
            ("http_port 1 ssl-bump dynamic_cert_mem_cache_size=many", "not a size"),
            ("http_port 1 ssl-bump=x", "is not how `ssl-bump` is written"),
            ("http_port 1 ssl-bumpp", "did you mean `ssl-bump`?"),
        ] {
            let (_, errors, _) = parse(line);
            assert!(errors.contains(wanted), "{line}: {errors}");
        }
    }

    #[test]
    fn what_does_nothing_is_a_warning() {
        for line in [
            "http_port 1 ssl-bump cert=/x cert=/y",
            "http_port 1 ssl-bump cert=/x capath=/y",
            "http_port 1 ssl-bump cert=/x sslflags=CONDITIONAL_AUTH",
            "http_port 1 ssl-bump cert=/x dhparams=/y",
            "http_port 1 intercept ssl-bump cert=/x",
            "https_port 1 cert=/x generate-host-certificates=on\nhttp_port 2 ssl-bump",
        ] {
            let (_, errors, warnings) = parse(line);
            assert_eq!((errors.as_str(), warnings), ("", 1), "{line}");
        }
    }
}
