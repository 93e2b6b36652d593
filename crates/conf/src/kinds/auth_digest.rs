//! `auth_param digest PARAMETER VALUE`

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Kind;
use super::auth::{read_command, warn_of_program, warn_of_unknown, warn_of_unreadable};
use super::helpers::{number, read_children};
use super::scalar::OnOff;
use super::units::read_time;
use crate::diagnostics::Problem;
use crate::line::Line;
use crate::types::{DigestAuth, DigestSecrets};

/// Name of Squid's helper for files.
const FILE_HELPER: &str = "digest_file_auth";

/// Its option for files with hashes.
const HASHED: &str = "-c";

const PARAMETERS: &[&str] = &[
    "program",
    "realm",
    "children",
    "nonce_garbage_interval",
    "nonce_max_duration",
    "nonce_max_count",
    "nonce_strictness",
    "check_nonce_count",
    "post_workaround",
];

pub(super) fn read_digest(digest: &mut DigestAuth, line: &mut Line<'_>) -> Result<(), Problem> {
    const SECOND: Duration = Duration::from_secs(1);
    let parameter = line.expect("a parameter")?;
    match parameter.text.as_str() {
        "program" => digest.secrets = Some(read_program(line)?),
        "realm" => {
            digest.realm = line.rest()?.ok_or_else(|| line.missing("the realm"))?.text;
        }
        "children" => digest.children = read_children(line)?,
        "nonce_garbage_interval" => digest.nonce_garbage_interval = read_time(line, SECOND)?,
        "nonce_max_duration" => digest.nonce_max_duration = read_time(line, SECOND)?,
        "nonce_max_count" => {
            let count = line.expect("a number of uses")?;
            digest.nonce_max_count = number(&count, &count.text, 1, u32::MAX)?;
        }
        "nonce_strictness" => OnOff::apply(&mut digest.nonce_strictness, line)?,
        "check_nonce_count" => OnOff::apply(&mut digest.check_nonce_count, line)?,
        "post_workaround" => OnOff::apply(&mut digest.post_workaround, line)?,
        known @ ("key_extras" | "utf8") => {
            while line.next_quoted()?.is_some() {}
            let why = format!("`{known}` of `digest` is not implemented, and changes nothing");
            line.warn(&parameter, why, Some("remove the line"));
        }
        "keep_alive" => {
            line.next()?;
            line.note(&parameter, "`digest` does not need it", Some("remove the line"));
        }
        _ => warn_of_unknown(&parameter, "digest", PARAMETERS, line)?,
    }
    Ok(())
}

/// The command of `program PROGRAM [ARGUMENT …]`. Squid's helper for files is replaced.
fn read_program(line: &mut Line<'_>) -> Result<DigestSecrets, Problem> {
    let (program, mut arguments) = read_command(line)?;
    let name = Path::new(&program.text).file_name().and_then(|name| name.to_str());
    if name != Some(FILE_HELPER) {
        warn_of_program(&program, line);
        let words = std::iter::once(program).chain(arguments);
        return Ok(DigestSecrets::Program(words.map(|word| word.text).collect()));
    }
    let is_hashed = arguments.iter().any(|argument| argument.text == HASHED);
    arguments.retain(|argument| argument.text != HASHED);
    let [file] = arguments.as_slice() else {
        let why = format!("`{}` takes `-c` and one argument, the file", program.text);
        return Err(program.error(why));
    };
    let message =
        format!("secrets are read from {} without the program, on threads of the proxy", file.text);
    line.note(&program, message, None);
    warn_of_unreadable(file, line);
    Ok(DigestSecrets::File { path: PathBuf::from(&file.text), is_hashed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_str;
    use crate::types::HelperChildren;

    fn parse(text: &str) -> (Option<DigestAuth>, String, bool) {
        let (config, diagnostics) = parse_str("t", &format!("http_port 1\n{text}\n"));
        (config.auth_param.digest, diagnostics.render(false), diagnostics.has_errors())
    }

    #[test]
    fn all_parameters_are_read() {
        let (digest, text, errors) = parse(
            "auth_param digest program /usr/lib/squid/digest_file_auth -c /etc/passwd\n\
             auth_param digest realm My realm\nauth_param digest children 3\n\
             auth_param digest nonce_garbage_interval 1 minutes\n\
             auth_param digest nonce_max_duration 2 minutes\n\
             auth_param digest nonce_max_count 7\nauth_param digest nonce_strictness on\n\
             auth_param digest check_nonce_count off\nauth_param digest post_workaround on",
        );
        assert!(!errors && text.contains("without the program"), "{text}");
        let wanted = DigestAuth {
            secrets: Some(DigestSecrets::File { path: "/etc/passwd".into(), is_hashed: true }),
            realm: "My realm".into(),
            children: HelperChildren::new(3),
            nonce_garbage_interval: Duration::from_secs(60),
            nonce_max_duration: Duration::from_secs(120),
            nonce_max_count: 7,
            nonce_strictness: true,
            check_nonce_count: false,
            post_workaround: true,
        };
        assert_eq!(digest, Some(wanted));
    }

    #[test]
    fn what_is_not_done_is_said() {
        for (line, is_error, wanted) in [
            ("program /x/digest_file_auth", true, "takes `-c` and one argument"),
            ("program /x/digest_file_auth a b", true, "takes `-c` and one argument"),
            ("program /no/such/program x", false, "cannot start /no/such/program"),
            ("nonce_max_count 0", true, "from 1"),
            ("key_extras \"%>a\"", false, "changes nothing"),
            ("nonce_max_cuont 4", false, "did you mean `nonce_max_count`?"),
        ] {
            let (_, text, errors) = parse(&format!("auth_param digest {line}"));
            assert_eq!(errors, is_error, "{line}: {text}");
            assert!(text.contains(wanted), "{line}: {text}");
        }
    }
}
