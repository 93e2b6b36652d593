//! The schemes Negotiate and NTLM: a helper program leads a handshake with the client of a
//! connection, with Squid's protocol. The client's first token goes to a process of its own as
//! `YR TOKEN`, each further one as `KK TOKEN`. The process answers with a token for the client, or
//! with the result.

use std::sync::Arc;

use humboldt_conf::AuthScheme;
use humboldt_helpers::{Helper, NoAnswer, Outcome, Reply};
use zeroize::Zeroizing;

use crate::basic::as_text;
use crate::connection::{ConnectionLogin, Of};
use crate::failure::Failure;
use crate::remembered::Fingerprint;
use crate::user::{Checked, Handshake, Told, User};

/// Longest token that is passed on between a client and a program, in bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// The result of a step.
pub(crate) enum Step {
    /// The client is this user.
    User(Arc<User>),
    /// It is nobody yet, or not at all.
    Missing(Checked),
}

/// The scheme with which the value of a field begins.
pub(crate) fn scheme_of(value: &[u8]) -> Option<AuthScheme> {
    AuthScheme::of(value.split(|byte| matches!(byte, b' ' | b'\t')).next()?)
}

/// The token behind the name of the scheme; `None` if there is none that can be passed on.
pub(crate) fn token_of(value: &[u8]) -> Option<&[u8]> {
    let blank = value.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    Some(value.get(blank..)?.trim_ascii()).filter(|token| is_token(token))
}

/// A `token68` (RFC 9110 11.2): nothing in it ends a line, a word or a field.
fn is_token(text: &[u8]) -> bool {
    let is_of_token = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    };
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.iter().all(is_of_token)
}

/// The value of the field that asks for a login, with a token of the program.
pub(crate) fn challenge(scheme: AuthScheme, token: Option<&str>) -> String {
    match token {
        Some(token) => format!("{} {token}", scheme.name()),
        None => scheme.name().to_owned(),
    }
}

/// Hands the client's token to the program: to the process that leads the handshake, or to one that
/// begins another.
pub(crate) async fn step(
    connection: &ConnectionLogin,
    of: Of,
    helper: &Helper,
    token: &[u8],
    extras: &[u8],
    credentials: Fingerprint,
) -> Result<Step, Failure> {
    let unknown = |why: NoAnswer| {
        tracing::warn!("{}: a login could not be checked: {why}", of.scheme.name());
        match why {
            NoAnswer::Overloaded => Failure::Busy,
            _ => Failure::NoAnswer,
        }
    };
    // While the process has the question, the reservation is here: it is given back when the client
    // leaves.
    let (word, process) = match connection.take(of) {
        Some(process) => (&b"KK "[..], process),
        None => (&b"YR "[..], helper.reserve().await.map_err(unknown)?),
    };
    let mut line = Zeroizing::new([word, token].concat());
    if !extras.is_empty() {
        line.push(b' ');
        line.extend_from_slice(extras);
    }
    let reply = match process.ask(&line).await {
        Ok(reply) => reply,
        // It serves another client, since this one has taken its time; or it has ended meanwhile.
        Err(NoAnswer::Unreserved) => return Ok(failed(of.scheme, None, Told::default())),
        Err(why) => return Err(unknown(why)),
    };
    let answer = read(of.scheme, reply);
    Ok(match answer {
        Answer::Next(token, told) => {
            connection.begin(of, process);
            let handshake = Some(Handshake::Next { scheme: of.scheme, token });
            Step::Missing(Checked::Missing { name: None, told, is_stale: false, handshake })
        }
        Answer::User(user) => {
            let user = Arc::new(user);
            connection.log_in(of, credentials, Arc::clone(&user));
            Step::User(user)
        }
        Answer::Failed(token, told) => failed(of.scheme, token, told),
    })
}

fn failed(scheme: AuthScheme, token: Option<Box<str>>, told: Told) -> Step {
    let handshake = Some(Handshake::Failed { scheme, token });
    Step::Missing(Checked::Missing { name: None, told, is_stale: false, handshake })
}

/// The answer of a process.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Next(Box<str>, Told),
    User(User),
    Failed(Option<Box<str>>, Told),
}

/// As in Squid, everything that is no clear yes is a no.
fn read(scheme: AuthScheme, reply: Reply) -> Answer {
    let token = reply.get("token");
    // `TT token=…` is in some descriptions, where Squid takes the word as it is.
    let token = token.map(|token| token.strip_prefix(b"token=").unwrap_or(token));
    let token = token.filter(|token| is_token(token));
    let token = token.and_then(|token| std::str::from_utf8(token).ok()).map(Box::from);
    let name = reply.get("user").filter(|name| is_name(name)).map(as_text);
    let why = || String::from_utf8_lossy(reply.get("message").unwrap_or_default()).into_owned();
    let outcome = reply.outcome;
    if matches!(outcome, Outcome::Broken | Outcome::Unknown) {
        tracing::warn!("{}: the program cannot check a login: {}", scheme.name(), why());
    }
    if outcome == Outcome::Ok && name.is_none() {
        tracing::error!("{}: the program says OK, and not who the user is", scheme.name());
    }
    if outcome == Outcome::Challenge && token.is_none() {
        tracing::error!("{}: the program has no token that can be sent", scheme.name());
    }
    let told = Told::new(reply.pairs.into_iter().filter(|(key, _)| &**key != "token").collect());
    match (outcome, token, name) {
        (Outcome::Challenge, Some(token), _) => Answer::Next(token, told),
        (Outcome::Ok, _, Some(name)) => Answer::User(User::new(name, told)),
        (Outcome::Err, token, _) => Answer::Failed(token, told),
        _ => Answer::Failed(None, told),
    }
}

/// One line of a log has one name.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_a_scheme_and_a_token() {
        for (value, scheme, token) in [
            ("Negotiate YII=", Some(AuthScheme::Negotiate), Some("YII=")),
            ("ntlm  TlRM+/== ", Some(AuthScheme::Ntlm), Some("TlRM+/==")),
            ("NTLM\tabc", Some(AuthScheme::Ntlm), Some("abc")),
            ("Negotiate", Some(AuthScheme::Negotiate), None),
            ("NTLM ", Some(AuthScheme::Ntlm), None),
            ("NTLM a b", Some(AuthScheme::Ntlm), None),
            ("NTLM a\"b", Some(AuthScheme::Ntlm), None),
            ("NTLMabc", None, None),
            ("", None, None),
        ] {
            assert_eq!(scheme_of(value.as_bytes()), scheme, "{value}");
            assert_eq!(token_of(value.as_bytes()), token.map(str::as_bytes), "{value}");
        }
        let long = |bytes: usize| format!("NTLM {}", "a".repeat(bytes));
        assert!(token_of(long(TOKEN_BYTES_MAX).as_bytes()).is_some());
        assert!(token_of(long(TOKEN_BYTES_MAX + 1).as_bytes()).is_none());
    }

    #[test]
    fn only_a_clear_yes_logs_in() {
        let read = |line: &str| read(AuthScheme::Ntlm, Reply::parse(line.as_bytes()));
        let told = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            Told::new(pairs.map(|(key, value)| ((*key).into(), value.as_bytes().into())).collect())
        };
        let user = |name: &str| User::new(name, told(&[("user", name)]));
        assert_eq!(read("AF DOM\\anna"), Answer::User(user("DOM\\anna")));
        assert_eq!(read("AF tok= anna@R"), Answer::User(user("anna@R")));
        assert_eq!(read("OK user=anna token=x password=y"), Answer::User(user("anna")));
        assert_eq!(read("TT tok="), Answer::Next("tok=".into(), told(&[])));
        assert_eq!(read("TT token=tok="), Answer::Next("tok=".into(), told(&[])));
        let no = |token: Option<&str>, pairs: &[(&str, &str)]| {
            Answer::Failed(token.map(Box::from), told(pairs))
        };
        assert_eq!(read("NA wrong word"), no(None, &[("message", "wrong word")]));
        assert_eq!(read("ERR token=t message=no"), no(Some("t"), &[("message", "no")]));
        assert_eq!(read("BH broken"), no(None, &[("message", "broken")]));
        for line in ["OK", "OK token=x", "TT", "TT token=\"a b\"", "yes", "", "OK user=\"a\\nb\""] {
            assert!(matches!(read(line), Answer::Failed(None, _)), "{line}");
        }
    }
}
