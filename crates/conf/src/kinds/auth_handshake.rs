//! `auth_param negotiate|ntlm PARAMETER VALUE`, and `auth_schemes`.

use super::Kind;
use super::access::read_terms;
use super::auth::{read_command, warn_of_program, warn_of_unknown};
use super::helpers::read_children;
use super::logs::check_early_log_format;
use super::scalar::OnOff;
use crate::diagnostics::{Problem, Severity};
use crate::line::Line;
use crate::state::State;
use crate::types::{
    AuthScheme, Authentication, CachePeer, HandshakeAuth, OfferedSchemes, PeerLogin,
};

const PARAMETERS: &[&str] = &["program", "children", "key_extras", "keep_alive"];

/// `scheme` is its name in the file.
pub(super) fn read_handshake(
    auth: &mut HandshakeAuth,
    scheme: &'static str,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    let parameter = line.expect("a parameter")?;
    match parameter.text.as_str() {
        "program" => {
            let (program, arguments) = read_command(line)?;
            warn_of_program(&program, line);
            let words = std::iter::once(program).chain(arguments);
            auth.program = Some(words.map(|word| word.text).collect());
        }
        "children" => {
            auth.children = read_children(line)?;
            if auth.children.concurrency > 0 {
                auth.children.concurrency = 0;
                let why = format!("a process of `{scheme}` leads one handshake at a time");
                line.warn(&parameter, why, Some("remove `concurrency=`, which changes nothing"));
            }
        }
        "keep_alive" => OnOff::apply(&mut auth.keep_alive, line)?,
        "key_extras" => {
            let format = line.next_quoted()?.ok_or_else(|| line.missing("a format"))?;
            check_early_log_format(&format, line);
            auth.key_extras = Some(format.text);
        }
        "realm" | "utf8" => {
            line.rest()?;
            let why = format!("`{scheme}` has no use for `{}`", parameter.text);
            line.note(&parameter, why, Some("remove the line"));
        }
        _ => warn_of_unknown(&parameter, scheme, PARAMETERS, line)?,
    }
    Ok(())
}

/// `SCHEME[,SCHEME…] [ACL…]`
pub(crate) struct SchemeLists;

/// The name of all schemes.
const ALL: &str = "ALL";

impl Kind for SchemeLists {
    type Out = Vec<OfferedSchemes>;
    const NAME: &'static str = "schemes and ACLs";

    fn apply(out: &mut Vec<OfferedSchemes>, line: &mut Line<'_>) -> Result<(), Problem> {
        let names = line.next_quoted()?.ok_or_else(|| line.missing("a scheme"))?;
        let mut schemes = Vec::new();
        for name in names.text.split([',', ' ']).filter(|name| !name.is_empty()) {
            schemes.push(match AuthScheme::of(name.as_bytes()) {
                None if name == ALL => None,
                None => {
                    let why = format!("`{name}` is no scheme of authentication");
                    let help = "write `basic`, `digest`, `negotiate`, `ntlm` or `ALL`, with commas";
                    return Err(names.error(why).with_help(help));
                }
                known => known,
            });
        }
        if schemes.is_empty() {
            return Err(names.error("no scheme is named"));
        }
        let location = line.location(&names);
        out.push(OfferedSchemes { schemes, terms: read_terms(line)?, location });
        Ok(())
    }
}

/// Only schemes with which clients can log in are offered.
pub(crate) fn check_offered(lists: &[OfferedSchemes], auth: &Authentication, state: &mut State) {
    for list in lists {
        let named = list.schemes.iter().flatten();
        for scheme in named.filter(|scheme| !auth.has_way(**scheme)) {
            let name = scheme.name().to_ascii_lowercase();
            let message = format!(
                "{}: `auth_schemes` offers `{name}`, with which nobody can log in",
                list.location
            );
            let help = format!("write `auth_param {name} program …`, or leave `{name}` out");
            state.report_general(Severity::Error, &message, &help);
        }
        if list.schemes.contains(&None) && auth.ways().next().is_none() {
            let message = format!("{}: there is no scheme to offer", list.location);
            state.report_general(Severity::Error, &message, "write `auth_param` lines");
        }
    }
}

/// Handshakes leave no password that a parent could get.
pub(crate) fn check_passed_logins(peers: &[CachePeer], auth: &Authentication, state: &mut State) {
    let of_connections = [AuthScheme::Negotiate, AuthScheme::Ntlm];
    let Some(scheme) = of_connections.into_iter().find(|scheme| auth.has_way(*scheme)) else {
        return;
    };
    let passes = |peer: &&CachePeer| {
        use PeerLogin::{OfClient, OfClientForServer, Unchanged};
        matches!(peer.login, Some(Unchanged | OfClient | OfClientForServer))
    };
    for peer in peers.iter().filter(passes) {
        let name = scheme.name().to_ascii_lowercase();
        let message = format!(
            "cache_peer {}: users who log in with `{name}` have no password to pass on, and are \
             nobody to this parent",
            peer.name
        );
        let help = "write `login=*:PASSWORD` to tell it the name of the user";
        state.report_general(Severity::Warning, &message, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_str;
    use crate::types::HelperChildren;

    fn parse(text: &str) -> (crate::Config, String, bool) {
        let (config, diagnostics) = parse_str("t", &format!("http_port 1\n{text}\n"));
        (config, diagnostics.render(false), diagnostics.has_errors())
    }

    #[test]
    fn all_parameters_are_read() {
        let (config, text, errors) = parse(
            "auth_param ntlm program /bin/cat -x \"a b\"\n\
             auth_param ntlm children 7 startup=1 idle=2 queue-size=3 reservation-timeout=4 \
             on-persistent-overload=ERR\n\
             auth_param ntlm keep_alive off\nauth_param ntlm key_extras \"%>a\"\n\
             auth_param negotiate program /bin/cat\nauth_param negotiate realm x y\n\
             auth_param negotiate utf8 on",
        );
        assert!(!errors, "{text}");
        let auth = &config.auth_param;
        let children = HelperChildren {
            startup: 1,
            idle: 2,
            queue_size: 3,
            reservation_timeout: std::time::Duration::from_secs(4),
            ..HelperChildren::new(7)
        };
        let wanted = HandshakeAuth {
            program: Some(["/bin/cat", "-x", "a b"].map(str::to_owned).to_vec()),
            children,
            key_extras: Some("%>a".to_owned()),
            keep_alive: false,
        };
        assert_eq!(auth.ntlm, Some(wanted));
        assert!(auth.negotiate.as_ref().is_some_and(|auth| auth.keep_alive));
        assert_eq!(auth.order, [AuthScheme::Ntlm, AuthScheme::Negotiate]);
        assert!(
            text.contains("no use for `realm`") && text.contains("no use for `utf8`"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_done_is_said() {
        for (line, is_error, wanted) in [
            ("auth_param negotiate program /no/own", false, "cannot start /no/own: No such file"),
            ("auth_param negotiate program", true, "a program is missing"),
            ("auth_param ntlm children 5 concurrency=3", false, "one handshake at a time"),
            ("auth_param ntlm keep_alive perhaps", true, "`on` or `off`"),
            ("auth_param ntlm keepalive on", false, "did you mean `keep_alive`?"),
        ] {
            let (config, text, errors) = parse(line);
            assert_eq!(errors, is_error, "{line}: {text}");
            assert!(text.contains(wanted), "{line}: {text}");
            let ntlm = config.auth_param.ntlm.unwrap_or_default();
            assert_eq!(ntlm.children.concurrency, 0);
        }
    }

    #[test]
    fn the_order_is_that_of_the_first_lines() {
        let lines = "auth_param ntlm program /bin/cat\nauth_param basic realm x\n\
                     auth_param negotiate program /bin/cat\n\
                     auth_param basic program /x/ncsa_auth /etc/passwd\n";
        let (config, ..) = parse(lines);
        let ways: Vec<_> = config.auth_param.ways().collect();
        assert_eq!(ways, [AuthScheme::Ntlm, AuthScheme::Basic, AuthScheme::Negotiate]);
    }

    #[test]
    fn offers_have_schemes_and_conditions() {
        let lines = "auth_param ntlm program /bin/cat\n\
                     auth_param basic program /x/ncsa_auth /etc/passwd\nacl x src 10.0.0.0/8\n";
        let (config, text, errors) = parse(&format!(
            "{lines}auth_schemes basic,NTLM !x\nauth_schemes \"basic, ALL\" x all\nauth_schemes ALL"
        ));
        assert!(!errors, "{text}");
        let found = config.auth_schemes.iter();
        let found: Vec<_> = found.map(|list| (list.schemes.clone(), list.terms.len())).collect();
        let (basic, ntlm) = (Some(AuthScheme::Basic), Some(AuthScheme::Ntlm));
        let wanted = [(vec![basic, ntlm], 1), (vec![basic, None], 2), (vec![None], 0)];
        assert_eq!(found, wanted);
        for (list, wanted) in [
            ("basic,kerberos all", "`kerberos` is no scheme"),
            ("digest,basic all", "t:5:14: `auth_schemes` offers `digest`"),
            ("basic nobody", "no ACL is named"),
            ("basic users", "`users`"),
            (", all", "no scheme is named"),
        ] {
            let users = "external_acl_type x %SRC /bin/cat\nacl users external x\n";
            let users = if list.ends_with("users") { users } else { "" };
            let (_, text, errors) = parse(&format!("{lines}{users}auth_schemes {list}"));
            assert!(errors && text.contains(wanted), "{list}: {text}");
        }
        let (_, text, errors) = parse("auth_schemes ALL all");
        assert!(errors && text.contains("no scheme to offer"), "{text}");
    }

    #[test]
    fn a_parent_that_wants_passwords_of_handshakes_is_a_warning() {
        for (option, warns) in
            [("login=PASS", true), ("login=PROXYPASS", true), ("login=*:x", false), ("", false)]
        {
            let peer = format!("cache_peer p parent 1 0 no-query {option}\n");
            let (_, text, errors) = parse(&format!("{peer}auth_param ntlm program /bin/cat"));
            assert!(!errors, "{text}");
            assert_eq!(text.contains("no password to pass on"), warns, "{option}: {text}");
            assert!(!parse(&peer).1.contains("no password to pass on"));
        }
    }
}
