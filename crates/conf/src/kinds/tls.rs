//! The options of TLS, which ports, peers and `tls_outgoing_options` have in common.

use super::Kind;
use super::ciphers;
use super::options::{self, OptionRow, rows};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::table::Status;
use crate::types::{
    CertificateFiles, ClientCertificates, Location, ServerVerification, TlsOutgoing, TlsPort,
    TlsSettings,
};

/// `tls_outgoing_options`
pub(crate) struct OutgoingTls;

const ANYWAY: Status = Status::Ignored("it is so in any case");

/// The options of `tls_outgoing_options`.
pub(super) const OPTIONS: &[OptionRow] = rows! {
    Status::Works => {
        "disable" "", "No TLS to servers: `https://` URLs are refused.";
        "cert" "=FILE", "Our own certificate, in PEM, for servers that ask for one, and its chain.";
        "key" "=FILE", "Its key, if that is not in the same file.";
        "min-version" "=1.N", "Oldest version of TLS: 1.2, which is the oldest here, or 1.3.";
        "options" "=LIST", "Words with `,` or `:` between them: `NO_TLSv1_2`, `NO_TLSv1_3`, `NO_TICKET`. What OpenSSL says of older versions is so in any case.";
        "cipher" "=LIST", "Ciphers of TLS 1.2, in OpenSSL's language. Those of TLS 1.3 are always offered.";
        "cafile" "=FILE", "Authorities, in PEM, beside those of the system.";
        "capath" "=DIR", "The same, one a file.";
        "default-ca" "[=off]", "Whether the authorities of the system count; they do by default.";
        "crlfile" "=FILE", "Certificates that are revoked, PEM or DER. Then each certificate of a server must be covered by a list that is not too old.";
        "flags" "=LIST", "`DONT_VERIFY_PEER`: servers are not verified, with a warning. `DONT_VERIFY_DOMAIN`: their names are not. `NO_DEFAULT_CA`, `NO_SESSION_REUSE`, `VERIFY_CRL`, `VERIFY_CRL_ALL`.";
        "domain" "=NAME", "Name that the certificate must have, in place of the host's.";
    }
    ANYWAY => {
        "no-npn" "", "No NPN, the predecessor of ALPN.";
    }
};

/// The options that a line has given so far.
#[derive(Default)]
pub(super) struct TlsReader {
    certificates: Vec<CertificateFiles>,
    stapled: Vec<(usize, String)>,
    /// A key in front of all certificates.
    early_key: Option<String>,
    settings: TlsSettings,
    authorities: Vec<String>,
    directories: Vec<String>,
    client_authorities: Vec<String>,
    revocations: Vec<String>,
    default_authorities: Option<bool>,
    checks_crl: bool,
    checks_whole_chain: bool,
    verification: ServerVerification,
    asks_conditionally: bool,
    asks_never: bool,
    name: Option<String>,
    is_disabled: bool,
}

/// Whose certificates are verified.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Those of clients, on a port.
    Port,
    /// Those of servers.
    Server,
}

impl TlsReader {
    /// Goes on behind other lines.
    fn behind(lines: &TlsOutgoing) -> Self {
        let lines = lines.clone();
        Self {
            certificates: lines.certificate.into_iter().collect(),
            settings: lines.settings,
            authorities: lines.authorities,
            directories: lines.directories,
            revocations: lines.revocations,
            default_authorities: Some(lines.trusts_system),
            checks_whole_chain: lines.checks_whole_chain,
            verification: lines.verification,
            name: lines.name,
            is_disabled: lines.is_disabled,
            ..Self::default()
        }
    }

    /// Takes an option by its name without `tls-` or `ssl`; `false`: it is none of these.
    pub(super) fn option(
        &mut self,
        side: Side,
        name: &str,
        value: Option<&str>,
        token: &Token,
        line: &mut Line<'_>,
    ) -> Result<bool, Problem> {
        let missing = || token.error(format!("the value of `{name}` is missing"));
        let text = || value.filter(|text| !text.is_empty()).map(str::to_owned).ok_or_else(missing);
        match name {
            "cert" => {
                let key = self.early_key.take();
                self.certificates.push(CertificateFiles { certificate: text()?, key });
            }
            "key" => {
                let key = Some(text()?);
                match self.certificates.last_mut() {
                    Some(last) => last.key = key,
                    // Files of old versions of Squid may have it in front of the only certificate.
                    None => self.early_key = key,
                }
            }
            "ocsp" if side == Side::Port => {
                let without = || {
                    let problem = token.error("an answer of OCSP is for a certificate");
                    problem.with_help("write `tls-cert=FILE tls-ocsp=FILE`")
                };
                let last = self.certificates.len().checked_sub(1).ok_or_else(without)?;
                self.stapled.push((last, text()?));
            }
            "cafile" => self.authorities.push(text()?),
            "capath" => self.directories.push(text()?),
            "crlfile" => self.revocations.push(text()?),
            "clientca" if side == Side::Port => self.client_authorities.push(text()?),
            "default-ca" => {
                self.default_authorities = Some(match value {
                    None | Some("on") => true,
                    Some("off") => false,
                    Some(other) => {
                        let problem = token.error(format!("`{other}` is neither `on` nor `off`"));
                        return Err(problem.with_help("write `default-ca=off`"));
                    }
                });
            }
            "cipher" => self.ciphers(&text()?, token, line)?,
            "options" => self.options(side, &text()?, token, line)?,
            "flags" => self.flags(side, &text()?, token, line)?,
            "min-version" => self.min_version(&text()?, token, line)?,
            "version" => self.version(&text()?, token)?,
            "domain" if side == Side::Server => self.name = Some(text()?),
            "disable" if side == Side::Server => self.is_disabled = true,
            "no-npn" => {}
            "dh" | "dhparams" => {
                let why = "keys are exchanged over elliptic curves: X25519, P-256, P-384, and with ML-KEM";
                line.warn(token, format!("`{}` has no effect: {why}", token.text), None);
            }
            "context" => {
                let why = "sessions belong to their port anyway";
                line.warn(token, format!("`{}` has no effect: {why}", token.text), None);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn min_version(
        &mut self,
        text: &str,
        token: &Token,
        line: &mut Line<'_>,
    ) -> Result<(), Problem> {
        match text {
            "1.0" | "1.1" => {
                let message = "TLS 1.0 and 1.1 are not spoken: the oldest version is 1.2";
                line.warn(token, message, Some("write `min-version=1.2`"));
            }
            "1.2" => {}
            "1.3" => self.settings.allows_tls12 = false,
            _ => return Err(token.error(format!("`{text}` is not a version: 1.2 or 1.3"))),
        }
        Ok(())
    }

    /// Squid's old numbers of versions.
    fn version(&mut self, text: &str, token: &Token) -> Result<(), Problem> {
        match text {
            "0" | "1" => Ok(()),
            "6" => {
                self.settings.allows_tls13 = false;
                Ok(())
            }
            "2" | "3" | "4" | "5" => Err(token
                .error(
                    "this allows only a version of SSL or TLS that is broken, and not spoken here",
                )
                .with_help("leave it out, or write `tls-min-version=1.2`")),
            _ => Err(token.error(format!("`{text}` is not one of 1 to 6"))),
        }
    }

    fn ciphers(&mut self, list: &str, token: &Token, line: &mut Line<'_>) -> Result<(), Problem> {
        let chosen = ciphers::choose(list);
        if chosen.ciphers.is_empty() && self.settings.allows_tls12 {
            let problem =
                token.error("none of these ciphers is offered: they are broken or outdated");
            return Err(problem.with_help(
                "leave `cipher=` out, or name ciphers such as ECDHE-RSA-AES128-GCM-SHA256",
            ));
        }
        if !chosen.missing.is_empty() {
            let missing = chosen.missing.join(" ");
            line.warn(
                token,
                format!("these ciphers are not offered, being outdated: {missing}"),
                None,
            );
        }
        self.settings.ciphers = Some(chosen.ciphers);
        Ok(())
    }

    fn options(
        &mut self,
        side: Side,
        list: &str,
        token: &Token,
        line: &mut Line<'_>,
    ) -> Result<(), Problem> {
        for word in list.split([',', ':']).filter(|word| !word.is_empty()) {
            match word {
                "NO_TLSv1_2" => self.settings.allows_tls12 = false,
                "NO_TLSv1_3" => self.settings.allows_tls13 = false,
                "NO_TICKET" => self.settings.resumes = false,
                "CIPHER_SERVER_PREFERENCE" if side == Side::Server => {
                    line.warn(token, format!("`{word}` has no effect: the server chooses"), None);
                }
                "CIPHER_SERVER_PREFERENCE" => self.settings.prefers_own_order = true,
                "NO_SSLv2"
                | "NO_SSLv3"
                | "NO_TLSv1"
                | "NO_TLSv1_1"
                | "SINGLE_DH_USE"
                | "SINGLE_ECDH_USE"
                | "NO_COMPRESSION"
                | "ALL"
                | "NO_RENEGOTIATION"
                | "NO_SESSION_RESUMPTION_ON_RENEGOTIATION"
                | "EPHEMERAL_RSA" => {}
                // A slip must not leave a version on that somebody wants to be off.
                other if other.contains("TLSv") || other.contains("SSLv") => {
                    let problem = token.error(format!("`{other}` is not an option of a version"));
                    return Err(problem.with_help("write NO_TLSv1_2 or NO_TLSv1_3"));
                }
                other => {
                    let message = format!("`{other}` has no effect: it is a setting of OpenSSL");
                    line.warn(token, message, None);
                }
            }
        }
        if self.settings.allows_tls12 || self.settings.allows_tls13 {
            return Ok(());
        }
        Err(token.error("no version is left: TLS 1.2 and 1.3 are the ones that are spoken"))
    }

    fn flags(
        &mut self,
        side: Side,
        list: &str,
        token: &Token,
        line: &mut Line<'_>,
    ) -> Result<(), Problem> {
        for word in list.split([',', ':']).filter(|word| !word.is_empty()) {
            match (word, side) {
                ("NO_DEFAULT_CA", _) => self.default_authorities = Some(false),
                ("NO_SESSION_REUSE", _) => self.settings.resumes = false,
                ("VERIFY_CRL", _) => self.checks_crl = true,
                ("VERIFY_CRL_ALL", _) => (self.checks_crl, self.checks_whole_chain) = (true, true),
                ("DONT_VERIFY_PEER", Side::Server) => {
                    self.verification = ServerVerification::None;
                    let message = "servers are not verified: anyone on the way can read and change \
                                   what is sent";
                    line.warn(token, message, Some("name their authority with `cafile=`"));
                }
                ("DONT_VERIFY_DOMAIN", Side::Server) => {
                    if self.verification == ServerVerification::Full {
                        self.verification = ServerVerification::ChainOnly;
                    }
                    let message = "names of servers are not verified: anyone with a certificate \
                                   can take their place";
                    line.warn(token, message, Some("name the expected name with `domain=`"));
                }
                ("CONDITIONAL_AUTH", Side::Port) => self.asks_conditionally = true,
                ("DELAYED_AUTH", Side::Port) => {
                    self.asks_never = true;
                    let message = "no client is asked for a certificate, as in Squid, where a rule \
                                   that needs one never gets it";
                    line.warn(token, message, Some("write CONDITIONAL_AUTH"));
                }
                _ => {
                    return Err(token.error(format!("`{word}` is not a flag of this line")));
                }
            }
        }
        Ok(())
    }

    /// Flags that only make sense with other options.
    fn check(&self, line: &Line<'_>) -> Result<(), Problem> {
        if self.early_key.is_some() {
            let problem = line.name.error("a key belongs to the certificate in front of it");
            return Err(problem.with_help("write `tls-cert=FILE tls-key=FILE`"));
        }
        if self.checks_crl && self.revocations.is_empty() {
            let problem = line.name.error("revocations are to be looked up, and no file names any");
            return Err(problem.with_help("name one with `crlfile=`"));
        }
        if !self.settings.allows_tls12 && !self.settings.allows_tls13 {
            let message = "no version is left: TLS 1.2 and 1.3 are the ones that are spoken";
            return Err(line.name.error(message));
        }
        Ok(())
    }

    /// The TLS of a port.
    pub(super) fn port(self, line: &mut Line<'_>, location: Location) -> Result<TlsPort, Problem> {
        self.check(line)?;
        if self.certificates.is_empty() {
            let problem = line.name.error("a port with TLS needs a certificate");
            return Err(problem
                .with_help("write `tls-cert=FILE`, and `tls-key=FILE` if the key is elsewhere"));
        }
        let judges = !self.authorities.is_empty()
            || !self.directories.is_empty()
            || !self.revocations.is_empty()
            || self.asks_conditionally;
        if judges && self.client_authorities.is_empty() {
            let name = line.name.clone();
            let message =
                "no client is asked for a certificate, as in Squid: only `clientca=` asks";
            line.warn(&name, message, Some("name the authority with `clientca=`"));
        }
        let asks = !self.client_authorities.is_empty() && !self.asks_never;
        // As in Squid, other authorities count in place of those that clients are told of.
        let authorities = match self.authorities.is_empty() && self.directories.is_empty() {
            true => self.client_authorities,
            false => self.authorities,
        };
        let clients = asks.then(|| ClientCertificates {
            authorities,
            directories: self.directories,
            trusts_system: self.default_authorities.unwrap_or(false),
            revocations: self.revocations,
            checks_whole_chain: self.checks_whole_chain,
            is_optional: self.asks_conditionally,
        });
        let (certificates, stapled, settings) = (self.certificates, self.stapled, self.settings);
        Ok(TlsPort { certificates, stapled, settings, clients, location })
    }

    /// The authority and the settings of a port that intercepts.
    pub(super) fn bump(
        self,
        word: &Token,
        line: &mut Line<'_>,
    ) -> Result<(Option<CertificateFiles>, TlsSettings), Problem> {
        self.check(line)?;
        if !self.client_authorities.is_empty() {
            let problem = word.error("clients cannot be asked for certificates with `ssl-bump`");
            return Err(
                problem.with_help("remove `clientca=`, or ask on an `https_port` of its own")
            );
        }
        let mut certificates = self.certificates.into_iter();
        let certificate = certificates.next();
        if certificates.next().is_some() {
            let message = "only the first certificate signs: the others have no effect";
            line.warn(word, message, None);
        }
        let judges = !self.authorities.is_empty()
            || !self.directories.is_empty()
            || !self.revocations.is_empty()
            || self.asks_conditionally
            || self.asks_never;
        if judges {
            let message = "options about certificates of clients have no effect with `ssl-bump`";
            let help = "servers are verified by `tls_outgoing_options cafile=`";
            line.warn(word, message, Some(help));
        }
        Ok((certificate, self.settings))
    }

    /// TLS to servers.
    pub(super) fn outgoing(
        self,
        line: &Line<'_>,
        location: Location,
    ) -> Result<TlsOutgoing, Problem> {
        self.check(line)?;
        let mut certificates = self.certificates.into_iter();
        let certificate = certificates.next();
        if certificates.next().is_some() {
            return Err(line.name.error("there can be one certificate only"));
        }
        Ok(TlsOutgoing {
            certificate,
            settings: self.settings,
            authorities: self.authorities,
            directories: self.directories,
            trusts_system: self.default_authorities.unwrap_or(true),
            revocations: self.revocations,
            checks_whole_chain: self.checks_whole_chain,
            verification: self.verification,
            name: self.name,
            is_disabled: self.is_disabled,
            location,
        })
    }
}

impl Kind for OutgoingTls {
    type Out = TlsOutgoing;
    const NAME: &'static str = "TLS options";

    fn apply(out: &mut TlsOutgoing, line: &mut Line<'_>) -> Result<(), Problem> {
        let location = line.location(&line.name.clone());
        // Further lines add to the first.
        let mut reader = TlsReader::behind(out);
        while let Some(token) = line.next()? {
            if options::is_wanted(OPTIONS, &token, line)? {
                let (name, value) = options::split(&token);
                reader.option(Side::Server, name, value, &token, line)?;
                if name == "domain" {
                    let message = "every server needs a certificate for this one name";
                    line.warn(&token, message, Some("leave it out: names are those of the URLs"));
                }
            }
        }
        *out = reader.outgoing(line, location)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Severity, parse_str};

    fn parse(line: &str) -> (Config, String, String) {
        let (config, found) =
            parse_str("t", &format!("http_port 1\nhttp_access allow all\n{line}\n"));
        let errors = if found.has_errors() {
            found.render_from(false, Severity::Error)
        } else {
            String::new()
        };
        let warnings = match found.count(Severity::Warning) {
            0 => String::new(),
            _ => found.render_from(false, Severity::Warning),
        };
        (config, errors, warnings)
    }

    #[test]
    fn every_option_is_read_ignored_with_a_warning_or_refused_as_the_table_says() {
        let example = |name: &str| match name {
            "min-version" => "=1.2",
            "options" => "=NO_SSLv3",
            "cipher" => "=HIGH",
            "default-ca" => "=off",
            "flags" => "=NO_DEFAULT_CA",
            _ => "=/x",
        };
        let line = |option: &str| match option.starts_with("key") {
            true => format!("http_port 1\ntls_outgoing_options cert=/y {option}"),
            false => format!("http_port 1\ntls_outgoing_options {option}"),
        };
        // It works, with a warning of its own: see below.
        let rows = OPTIONS.iter().filter(|row| row.name != "domain");
        options::tests::check_rows(rows, line, example);
    }

    #[test]
    fn trust_in_the_authorities_of_the_system_is_not_widened_by_a_slip() {
        for (value, wanted) in
            [("", Some(true)), ("=on", Some(true)), ("=off", Some(false)), ("=no", None)]
        {
            let (config, errors, _) =
                parse(&format!("https_port 2 tls-cert=/c clientca=/a tls-default-ca{value}"));
            let clients =
                config.https_port.first().and_then(|port| port.tls.as_ref()?.clients.as_ref());
            assert_eq!(clients.map(|clients| clients.trusts_system), wanted, "{value} {errors}");
            assert_eq!(errors.is_empty(), wanted.is_some(), "{value}");
        }
        let (_, errors, _) = parse("tls_outgoing_options default-ca=none");
        assert!(errors.contains("neither `on` nor `off`"), "{errors}");
    }

    #[test]
    fn options_that_would_do_nothing_are_named() {
        for option in ["cafile=/a", "capath=/d", "crlfile=/r", "sslflags=CONDITIONAL_AUTH"] {
            let (_, errors, warnings) = parse(&format!("https_port 2 tls-cert=/c {option}"));
            assert_eq!(errors, "", "{option}");
            assert!(warnings.contains("only `clientca=` asks"), "{option}: {warnings}");
            let asking = format!("https_port 2 tls-cert=/c clientca=/a {option}");
            assert_eq!(parse(&asking).2, "", "{option}");
        }
        let (_, errors, warnings) = parse("tls_outgoing_options domain=a.test");
        assert!(errors.is_empty() && warnings.contains("this one name"), "{errors}{warnings}");
        let (_, _, warnings) = parse("tls_outgoing_options options=CIPHER_SERVER_PREFERENCE");
        assert!(warnings.contains("the server chooses"), "{warnings}");
        for (line, wanted) in [
            ("https_port 2 tls-cert=/c tls-options=NO_TLSv1.3", "not an option of a version"),
            ("tls_outgoing_options min-version=1.3 options=NO_TLSv1_3", "no version is left"),
            ("tls_outgoing_options options=NO_TLSv1_3 min-version=1.3", "no version is left"),
        ] {
            assert!(parse(line).1.contains(wanted), "{line}: {}", parse(line).1);
        }
    }

    #[test]
    fn options_of_old_files_have_their_meaning_of_today() {
        let (config, errors, _) = parse(
            "tls_outgoing_options options=NO_SSLv3,NO_TLSv1,NO_TLSv1_1 cipher=HIGH:!aNULL \
             cert=/c key=/k cafile=/a capath=/d crlfile=/r flags=VERIFY_CRL_ALL domain=a.test",
        );
        assert_eq!(errors, "");
        let tls = &config.tls_outgoing_options;
        assert_eq!(tls.settings.ciphers.as_ref().map(Vec::len), Some(6));
        assert!(tls.trusts_system && tls.settings.allows_tls12 && tls.checks_whole_chain);
        assert_eq!(tls.verification, ServerVerification::Full);
        assert_eq!(tls.name.as_deref(), Some("a.test"));
        let key = tls.certificate.as_ref().and_then(|own| own.key.as_deref());
        assert_eq!((key, tls.location.line), (Some("/k"), 3));
    }

    #[test]
    fn what_is_dangerous_is_a_warning_and_what_is_broken_an_error() {
        for (options, wanted) in [
            ("flags=DONT_VERIFY_PEER", "not verified"),
            ("flags=DONT_VERIFY_DOMAIN", "names of servers"),
            ("min-version=1.0", "oldest version is 1.2"),
            ("cipher=HIGH:ECDHE-RSA-RC4-SHA", "ECDHE-RSA-RC4-SHA"),
            ("options=LEGACY_X", "LEGACY_X"),
        ] {
            let (_, errors, warnings) = parse(&format!("tls_outgoing_options {options}"));
            assert_eq!(errors, "", "{options}");
            assert!(warnings.contains(wanted), "{options}: {warnings}");
        }
        for (options, wanted) in [
            ("min-version=2", "not a version"),
            ("cipher=RC4-SHA", "none of these ciphers"),
            ("options=NO_TLSv1_2,NO_TLSv1_3", "no version is left"),
            ("flags=NO_SUCH", "not a flag"),
            ("flags=CONDITIONAL_AUTH", "not a flag"),
            ("flags=VERIFY_CRL", "crlfile"),
            ("key=/k", "belongs to the certificate"),
            ("cert=", "missing"),
        ] {
            let (_, errors, _) = parse(&format!("tls_outgoing_options {options}"));
            assert!(errors.contains(wanted), "{options}: {errors}");
        }
    }
}
