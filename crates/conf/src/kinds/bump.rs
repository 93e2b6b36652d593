//! The interception of TLS: `ssl_bump` and the directives about certificates that are made here.

use humboldt_base::bump::{BumpAction, SignAs};

use super::Kind;
use super::access::{read_terms, source};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::types::{
    AclTerm, BumpRule, BumpVerb, CertAdapt, CertAdaptRule, CertSignRule, UnsupportedProtocolRule,
};

/// `ssl_bump ACTION ACL…`
pub(crate) struct BumpRules;
/// `sslproxy_cert_sign ALGORITHM ACL…`
pub(crate) struct CertSignRules;
/// `sslproxy_cert_adapt ALGORITHM ACL…`
pub(crate) struct CertAdaptRules;
/// `on_unsupported_protocol tunnel|respond ACL…`
pub(crate) struct UnsupportedProtocolRules;

/// The words of `ssl_bump`; the last two are those of Squid 3.1.
const VERBS: [(&str, BumpVerb); 10] = [
    ("peek", BumpVerb::Do(BumpAction::Peek)),
    ("stare", BumpVerb::Do(BumpAction::Stare)),
    ("splice", BumpVerb::Do(BumpAction::Splice)),
    ("bump", BumpVerb::Do(BumpAction::Bump)),
    ("terminate", BumpVerb::Do(BumpAction::Terminate)),
    ("none", BumpVerb::Do(BumpAction::Splice)),
    ("client-first", BumpVerb::ClientFirst),
    ("server-first", BumpVerb::ServerFirst),
    ("allow", BumpVerb::ClientFirst),
    ("deny", BumpVerb::Do(BumpAction::Splice)),
];

impl Kind for BumpRules {
    type Out = Vec<BumpRule>;
    const NAME: &'static str = "action and ACLs";

    fn apply(out: &mut Vec<BumpRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("an action")?;
        let Some((_, verb)) = VERBS.into_iter().find(|(name, _)| *name == token.text) else {
            let names = VERBS.iter().map(|(name, _)| *name).take(5);
            let problem = unknown(&token, "an action of `ssl_bump`", names);
            return Err(problem.with_help("write peek, stare, splice, bump or terminate"));
        };
        warn_of_old_word(&token, line);
        let is_old = matches!(token.text.as_str(), "allow" | "deny");
        if line.state.bump_style.is_some_and(|before| before != is_old) {
            let message = "`allow` and `deny` cannot be mixed with the actions of today";
            let help = "write `client-first` in place of `allow`, and `splice` in place of `deny`";
            return Err(token.error(message).with_help(help));
        }
        line.state.bump_style = Some(is_old);
        let terms = read_terms(line)?;
        warn_without_acls(&token, &terms, line);
        let source = source(line, &token, &terms);
        out.push(BumpRule { verb, terms, source });
        Ok(())
    }
}

fn warn_of_old_word(token: &Token, line: &mut Line<'_>) {
    let (message, help) = match token.text.as_str() {
        "none" | "deny" => ("this is the old word for `splice`", "write `splice`"),
        "client-first" | "allow" => (
            "this is the old word for `bump` at the first step",
            "write `bump`, which sees more of the server with `stare` before it",
        ),
        "server-first" => (
            "this is the old word for `stare` at the first two steps and `bump` at the third",
            "write `stare` and `bump`",
        ),
        _ => return,
    };
    line.warn(token, message, Some(help));
}

/// As in Squid, a line without ACLs is about everything.
fn warn_without_acls(token: &Token, terms: &[AclTerm], line: &mut Line<'_>) {
    if terms.is_empty() {
        line.warn(token, "no ACL follows: this is about everything", Some("add `all`"));
    }
}

fn unknown<'n>(token: &Token, what: &str, names: impl Iterator<Item = &'n str>) -> Problem {
    let problem = token.error(format!("`{}` is not {what}", token.text));
    match suggest(&token.text.to_ascii_lowercase(), names) {
        Some(name) => problem.with_help(format!("did you mean `{name}`?")),
        None => problem,
    }
}

impl Kind for CertSignRules {
    type Out = Vec<CertSignRule>;
    const NAME: &'static str = "signature and ACLs";

    fn apply(out: &mut Vec<CertSignRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("`signTrusted`, `signUntrusted` or `signSelf`")?;
        let sign = match token.text.as_str() {
            "signTrusted" => SignAs::Trusted,
            "signUntrusted" => SignAs::Untrusted,
            "signSelf" => SignAs::SelfSigned,
            _ => {
                let problem = token.error(format!("`{}` is not a way to sign", token.text));
                return Err(problem.with_help("write signTrusted, signUntrusted or signSelf"));
            }
        };
        let terms = read_terms(line)?;
        warn_without_acls(&token, &terms, line);
        let source = source(line, &token, &terms);
        out.push(CertSignRule { sign, terms, source });
        Ok(())
    }
}

impl Kind for CertAdaptRules {
    type Out = Vec<CertAdaptRule>;
    const NAME: &'static str = "change and ACLs";

    fn apply(out: &mut Vec<CertAdaptRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("`setValidAfter`, `setValidBefore` or `setCommonName`")?;
        let adapt = read_adapt(&token)?;
        let terms = read_terms(line)?;
        warn_without_acls(&token, &terms, line);
        let source = source(line, &token, &terms);
        out.push(CertAdaptRule { adapt, terms, source });
        Ok(())
    }
}

/// Longest common name in a certificate (RFC 5280, ub-common-name), in bytes.
const COMMON_NAME_BYTES_MAX: usize = 64;

fn read_adapt(token: &Token) -> Result<CertAdapt, Problem> {
    let text = token.text.as_str();
    match text {
        "setValidAfter" => return Ok(CertAdapt::ValidAfter),
        "setValidBefore" => return Ok(CertAdapt::ValidBefore),
        "setCommonName" => return Ok(CertAdapt::CommonName(None)),
        _ => {}
    }
    let name = text.strip_prefix("setCommonName{").and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) if !name.is_empty() && name.len() <= COMMON_NAME_BYTES_MAX => {
            Ok(CertAdapt::CommonName(Some(name.to_owned())))
        }
        Some(_) => {
            Err(token.error(format!("a common name has 1 to {COMMON_NAME_BYTES_MAX} bytes")))
        }
        None => {
            let problem = token.error(format!("`{text}` is not a change of a certificate"));
            Err(problem.with_help("write setValidAfter, setValidBefore or setCommonName{NAME}"))
        }
    }
}

impl Kind for UnsupportedProtocolRules {
    type Out = Vec<UnsupportedProtocolRule>;
    const NAME: &'static str = "action and ACLs";

    fn apply(out: &mut Vec<UnsupportedProtocolRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("`tunnel` or `respond`")?;
        let tunnels = match token.text.as_str() {
            "tunnel" => true,
            "respond" => false,
            _ => {
                return Err(unknown(
                    &token,
                    "`tunnel` or `respond`",
                    ["tunnel", "respond"].into_iter(),
                ));
            }
        };
        let terms = read_terms(line)?;
        warn_without_acls(&token, &terms, line);
        let source = source(line, &token, &terms);
        out.push(UnsupportedProtocolRule { tunnels, terms, source });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use humboldt_base::bump::SignAs;

    use crate::{CertAdapt, Config, Severity, parse_str};

    fn parse(text: &str) -> (Config, String) {
        let (config, found) = parse_str("t", &format!("http_port 1\n{text}\n"));
        let errors = match found.has_errors() {
            true => found.render_from(false, Severity::Error),
            false => String::new(),
        };
        (config, errors)
    }

    #[test]
    fn certificates_are_signed_and_changed_by_rules() {
        let (config, errors) = parse(
            "sslproxy_cert_sign signUntrusted ssl::certUntrusted\n\
             sslproxy_cert_sign signSelf ssl::certSelfSigned\n\
             sslproxy_cert_sign signTrusted all\n\
             sslproxy_cert_adapt setCommonName{a.test} localhost\n\
             sslproxy_cert_adapt setCommonName ssl::certDomainMismatch\n\
             sslproxy_cert_adapt setValidAfter all\n\
             sslproxy_cert_adapt setValidBefore all",
        );
        assert_eq!(errors, "");
        let signs: Vec<_> = config.sslproxy_cert_sign.iter().map(|rule| rule.sign).collect();
        assert_eq!(signs, [SignAs::Untrusted, SignAs::SelfSigned, SignAs::Trusted]);
        let adapts: Vec<_> =
            config.sslproxy_cert_adapt.iter().map(|rule| rule.adapt.clone()).collect();
        let name = Some("a.test".to_owned());
        use CertAdapt::*;
        assert_eq!(adapts, [CommonName(name), CommonName(None), ValidAfter, ValidBefore]);
        for (line, wanted) in [
            ("sslproxy_cert_sign signtrusted all", "signTrusted, signUntrusted or signSelf"),
            ("sslproxy_cert_adapt setCommonName{} all", "1 to 64 bytes"),
            ("sslproxy_cert_adapt setIssuer all", "setValidAfter"),
            ("sslproxy_cert_error allow nothing", "no ACL is named"),
            ("sslproxy_cert_sign", "is missing"),
        ] {
            let (_, errors) = parse(line);
            assert!(errors.contains(wanted), "{line}: {errors}");
        }
    }

    #[test]
    fn a_line_without_acls_is_about_everything_with_a_warning() {
        for line in ["ssl_bump splice", "sslproxy_cert_sign signSelf"] {
            let (_, found) =
                parse_str("t", &format!("http_port 1 ssl-bump\nhttp_access allow all\n{line}\n"));
            assert!(!found.has_errors(), "{line}");
            assert!(found.render(false).contains("this is about everything"), "{line}");
        }
        // As for other lists, where the opposite of the last rule would hold.
        assert!(parse("sslproxy_cert_error allow").1.contains("no ACL follows"));
    }
}
