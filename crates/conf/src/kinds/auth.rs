//! `auth_param SCHEME PARAMETER VALUE`

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Kind;
use super::auth_digest::read_digest;
use super::auth_handshake::read_handshake;
use super::helpers::read_children;
use super::logs::check_early_log_format;
use super::scalar::OnOff;
use super::units::read_time;
use crate::diagnostics::{Problem, Severity};
use crate::line::{Line, Token};
use crate::lists::Need;
use crate::state::State;
use crate::suggest::suggest;
use crate::types::{AclDef, AuthScheme, Authentication, BasicAuth, PasswordCheck};

/// Parameters of schemes of authentication; lines add up.
pub(crate) struct AuthParams;

/// Names of Squid's helper for password files.
const FILE_HELPERS: [&str; 2] = ["basic_ncsa_auth", "ncsa_auth"];

/// Parameters of Basic.
const PARAMETERS: &[&str] =
    &["program", "realm", "children", "credentialsttl", "casesensitive", "utf8", "key_extras"];

impl Kind for AuthParams {
    type Out = Authentication;
    const NAME: &'static str = "parameters of authentication";

    fn apply(out: &mut Authentication, line: &mut Line<'_>) -> Result<(), Problem> {
        let scheme = line.expect("a scheme")?;
        let Some(known) = AuthScheme::of(scheme.text.as_bytes()) else {
            return Err(scheme
                .error(format!("`{}` is no scheme of authentication", scheme.text))
                .with_help("write `auth_param basic …`"));
        };
        if !out.order.contains(&known) {
            out.order.push(known);
        }
        match known {
            AuthScheme::Basic => read_basic(out.basic.get_or_insert_default(), line),
            AuthScheme::Digest => read_digest(out.digest.get_or_insert_default(), line),
            AuthScheme::Negotiate => {
                read_handshake(out.negotiate.get_or_insert_default(), "negotiate", line)
            }
            AuthScheme::Ntlm => read_handshake(out.ntlm.get_or_insert_default(), "ntlm", line),
        }
    }
}

fn read_basic(basic: &mut BasicAuth, line: &mut Line<'_>) -> Result<(), Problem> {
    let parameter = line.expect("a parameter")?;
    match parameter.text.as_str() {
        "program" => basic.check = Some(read_program(line)?),
        "realm" => {
            basic.realm = line.rest()?.ok_or_else(|| line.missing("the realm"))?.text;
        }
        "children" => basic.children = read_children(line)?,
        "credentialsttl" => basic.credentials_ttl = read_time(line, Duration::from_secs(1))?,
        "casesensitive" => OnOff::apply(&mut basic.case_sensitive, line)?,
        "utf8" => OnOff::apply(&mut basic.utf8, line)?,
        "key_extras" => {
            let format = line.next_quoted()?.ok_or_else(|| line.missing("a format"))?;
            check_early_log_format(&format, line);
            basic.key_extras = Some(format.text);
        }
        "keep_alive" => {
            line.next()?;
            line.note(&parameter, "`basic` does not need it", Some("remove the line"));
        }
        _ => warn_of_unknown(&parameter, "basic", PARAMETERS, line)?,
    }
    Ok(())
}

/// A parameter that does not exist changes nothing, as in Squid.
pub(super) fn warn_of_unknown(
    parameter: &Token,
    scheme: &str,
    known: &'static [&'static str],
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    while line.next()?.is_some() {}
    let name = &parameter.text;
    let help = suggest(name, known.iter().copied());
    let help = help.map(|name| format!("did you mean `{name}`?"));
    let why = format!("`{name}` is no parameter of `{scheme}`, and changes nothing");
    line.warn(parameter, why, help.as_deref());
    Ok(())
}

/// A program and its arguments.
pub(super) fn read_command(line: &mut Line<'_>) -> Result<(Token, Vec<Token>), Problem> {
    let program = line.next_quoted()?.ok_or_else(|| line.missing("a program"))?;
    let mut arguments = Vec::new();
    while let Some(argument) = line.next_quoted()? {
        arguments.push(argument);
    }
    Ok((program, arguments))
}

/// The command of `program PROGRAM [ARGUMENT …]`. Squid's helper for password files is replaced.
fn read_program(line: &mut Line<'_>) -> Result<PasswordCheck, Problem> {
    let (program, arguments) = read_command(line)?;
    let name = Path::new(&program.text).file_name().and_then(|name| name.to_str());
    if !name.is_some_and(|name| FILE_HELPERS.contains(&name)) {
        warn_of_program(&program, line);
        let words = std::iter::once(program).chain(arguments);
        return Ok(PasswordCheck::Program(words.map(|word| word.text).collect()));
    }
    let [file] = arguments.as_slice() else {
        let count = arguments.len();
        let why = format!("`{}` takes one argument, the password file, not {count}", program.text);
        return Err(program.error(why));
    };
    let message = format!(
        "logins are checked against {} without the program, on threads of the proxy",
        file.text
    );
    line.note(&program, message, None);
    warn_of_unreadable(file, line);
    Ok(PasswordCheck::File(PathBuf::from(&file.text)))
}

pub(super) fn warn_of_unreadable(file: &Token, line: &mut Line<'_>) {
    if let Err(error) = std::fs::File::open(&file.text) {
        let why = format!("cannot read {}: {error}", file.text);
        let help = "until the file can be read, requests that need a login are refused";
        line.warn(file, why, Some(help));
    }
}

pub(super) fn warn_of_program(program: &Token, line: &mut Line<'_>) {
    let why = match std::fs::metadata(&program.text) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return,
        Ok(_) => "it is no program".to_owned(),
        Err(error) => error.to_string(),
    };
    let help = "until it can be started, requests that need a login are refused";
    line.warn(program, format!("cannot start {}: {why}", program.text), Some(help));
}

/// An ACL about users needs a way to check them.
pub(crate) fn check_logins(auth: &Authentication, acls: &[AclDef], state: &mut State) {
    if auth.ways().next().is_some() {
        return;
    }
    let Some(acl) =
        acls.iter().find(|acl| acl.kind.need() == Some(Need::User) || acl.flags.needs_user)
    else {
        return;
    };
    let message =
        format!("{}: acl {} is about users, and nobody can log in", acl.location, acl.name);
    let help = "write `auth_param basic program /usr/lib/squid/basic_ncsa_auth FILE`";
    state.report_general(Severity::Error, &message, help);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_str;
    use crate::types::HelperChildren;

    fn parse(text: &str) -> (Authentication, String, bool) {
        let (config, diagnostics) = parse_str("t", &format!("http_port 1\n{text}\n"));
        (config.auth_param, diagnostics.render(false), diagnostics.has_errors())
    }

    #[test]
    fn all_parameters_of_basic_are_read() {
        let (auth, text, errors) = parse(
            "auth_param basic program /usr/lib/squid3/basic_ncsa_auth /etc/passwd\n\
             auth_param basic realm Private proxy. Please log in.\n\
             auth_param basic children 5 startup=0 idle=1 queue-size=7 concurrency=2\n\
             auth_param basic credentialsttl 5 hours\n\
             auth_param basic casesensitive on\nauth_param basic utf8 on\n\
             auth_param basic key_extras \"%>a %>rm\"",
        );
        assert!(!errors, "{text}");
        let wanted = BasicAuth {
            check: Some(PasswordCheck::File("/etc/passwd".into())),
            realm: "Private proxy. Please log in.".into(),
            children: HelperChildren { concurrency: 2, queue_size: 7, ..HelperChildren::new(5) },
            key_extras: Some("%>a %>rm".into()),
            credentials_ttl: Duration::from_secs(5 * 3600),
            case_sensitive: true,
            utf8: true,
        };
        assert_eq!(auth.basic, Some(wanted));
        assert!(text.contains("without the program"), "{text}");
    }

    #[test]
    fn a_program_has_arguments() {
        let (auth, text, errors) =
            parse("auth_param basic program /bin/cat -b \"dc=a, dc=b\" -f uid=%s localhost");
        assert!(!errors && !text.contains("cannot"), "{text}");
        let words = ["/bin/cat", "-b", "dc=a, dc=b", "-f", "uid=%s", "localhost"];
        let wanted = PasswordCheck::Program(words.map(str::to_owned).to_vec());
        assert_eq!(auth.basic.and_then(|basic| basic.check), Some(wanted));
    }

    #[test]
    fn what_is_not_done_is_said() {
        for (line, is_error, wanted) in [
            ("auth_param basic program /no/own", false, "cannot start /no/own: No such file"),
            ("auth_param basic program /etc/passwd", false, "cannot start /etc/passwd: it is no"),
            ("auth_param basic program /x/ncsa_auth", true, "takes one argument"),
            ("auth_param basic program /x/ncsa_auth a b", true, "takes one argument"),
            ("auth_param kerberos program /x y", true, "no scheme"),
            ("auth_param basic children 0", true, "from 1"),
            ("auth_param basic realm", true, "the realm is missing"),
            ("auth_param basic credentiaacltl 2 hours", false, "did you mean `credentialsttl`?"),
            ("auth_param basic key_extras \"%ui\"", false, "ui"),
            ("auth_param basic program /x/ncsa_auth /no/such/file", false, "cannot read /no/such"),
        ] {
            let (_, text, errors) = parse(line);
            assert_eq!(errors, is_error, "{line}: {text}");
            assert!(text.contains(wanted), "{line}: {text}");
            assert!(text.matches("error").count() <= 1, "{line}: {text}");
        }
    }

    #[test]
    fn acls_about_users_need_a_way_to_log_in() {
        let acl = "acl u proxy_auth REQUIRED\n";
        let program = "auth_param basic program /x/ncsa_auth /etc/passwd\n";
        let (_, text, errors) = parse(acl);
        assert!(errors && text.contains("nobody can log in"), "{text}");
        assert!(parse(&format!("auth_param basic realm x\n{acl}")).2);
        let rule = "http_access allow u\n";
        let (_, text, errors) = parse(&format!("{acl}{rule}{program}"));
        assert!(!errors, "{text}");
    }
}
