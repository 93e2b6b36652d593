//! The `%` codes of `external_acl_type`: one table for the parser and the documentation.

macro_rules! codes {
    ($($variant:ident = $($name:literal)+, $doc:literal;)+) => {
        /// A fact that a helper of `external_acl_type` gets.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum ExternalCode { $(#[doc = $doc] $variant,)+ }

        /// Names, codes and meanings.
        const CODES: &[(&[&str], ExternalCode, &str)] =
            &[$((&[$($name),+], ExternalCode::$variant, $doc),)+];
    };
}

codes! {
    ClientIp = "SRC" ">a", "Address of the client.";
    ClientPort = "SRCPORT" ">p", "Port of the client.";
    LocalIp = "MYADDR" ">la" "la", "Address of ours that the client connected to.";
    LocalPort = "MYPORT" ">lp" "lp", "Port of ours that the client connected to.";
    Method = "METHOD" "rm" ">rm", "Method.";
    Url = "URI" "ru" ">ru", "URL.";
    Scheme = "PROTO" "rs" ">rs", "Scheme of the URL.";
    Host = "DST" "rd" ">rd", "Host of the URL.";
    Port = "PORT" "rP" ">rP", "Port of the URL.";
    Path = "PATH" "rp" ">rp", "Path and query of the URL.";
    Version = "rv" ">rv", "HTTP version of the request.";
    RequestField = ">h" ">ha", "A field of the request: `%{Field}>h`, or a member of its list: `%{Cookie:;name}>h`. Also written `%>{Field}`.";
    ResponseField = "<h", "A field of the answer, where there is one. Also written `%<{Field}`.";
    Login = "LOGIN" "ul", "Name of the user who has logged in. The client is asked for a login first.";
    User = "un", "Name of the user: of the login, or of an earlier helper.";
    ExtUser = "EXT_USER" "ue", "`user=` of an earlier helper.";
    ExtTag = "EXT_TAG" "et", "`tag=` of an earlier helper.";
    Note = "note", "An annotation: `%{name}note`.";
    ExtLog = "EXT_LOG" "ea", "`log=` of an earlier helper.";
    Sni = "ssl::>sni", "Name of the server that the client asks for in TLS, on ports with `ssl-bump`; known from the second step of `ssl_bump` on.";
    BumpMode = "ssl::bump_mode", "The last action that `ssl_bump` chose.";
    ServerSubject = "ssl::<cert_subject", "Subject of the certificate of a server that `ssl_bump` has looked at; known from the third step on.";
    ServerIssuer = "ssl::<cert_issuer", "Issuer of that certificate.";
    ServerFaults = "ssl::<cert_errors", "Its faults, with a colon between them.";
    Acl = "ACL", "Name of the ACL.";
    Data = "DATA", "Arguments of the ACL; added at the end of a format that lacks it.";
    Percent = "%", "A percent sign.";
}

/// The treatment of values that come from elsewhere.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ExternalQuoting {
    /// `%XX` for bytes that cannot stand in a word.
    #[default]
    Url,
    /// In double quotes with backslashes, where that is necessary (`protocol=2.5`).
    Shell,
    /// `%XX`, also for `%`: the modifier `#`.
    UrlWhole,
    /// The value as it is, but for control characters: the modifier `'`.
    None,
}

/// One word of a question to a helper of `external_acl_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPart {
    /// The fact.
    pub code: ExternalCode,
    /// A modifier of its own, if it has one.
    pub quoting: Option<ExternalQuoting>,
    /// Name of the field.
    pub field: String,
    /// Separator and name of the member of its list that is meant, if not all of it.
    pub member: Option<(char, String)>,
}

impl ExternalPart {
    /// Reads a word such as `%SRC`, `%{Host}>h` or `%>{Host}`.
    ///
    /// # Errors
    /// A sentence for people.
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let mut rest = word.strip_prefix('%').unwrap_or(word);
        let mut quoting = None;
        let modifiers = [
            ('#', ExternalQuoting::UrlWhole),
            ('\'', ExternalQuoting::None),
            ('/', ExternalQuoting::Shell),
            ('"', ExternalQuoting::Shell),
        ];
        for (modifier, meaning) in modifiers {
            if let Some(after) = rest.strip_prefix(modifier) {
                (quoting, rest) = (Some(meaning), after);
                break;
            }
        }
        let (mut argument, rest) = braces(rest)?;
        let rest = rest.strip_prefix("http::").unwrap_or(rest);
        let (mut name, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        if argument.is_none() {
            let (behind, end) = braces(after)?;
            if !end.is_empty() {
                return Err(format!("`{word}` is more than one code: a blank goes between two"));
            }
            argument = behind;
            // The old form.
            name = match (name, argument) {
                (">", Some(_)) => ">h",
                ("<", Some(_)) => "<h",
                (name, _) => name,
            };
        } else if !after.is_empty() {
            return Err(format!("`{word}` is more than one code: a blank goes between two"));
        }
        let known = CODES.iter().find(|(names, ..)| names.contains(&name));
        let Some((_, code, _)) = known else { return Err(unknown(word, name)) };
        let is_field = matches!(
            code,
            ExternalCode::RequestField | ExternalCode::ResponseField | ExternalCode::Note
        );
        if is_field != argument.is_some() {
            return Err(match is_field {
                true => format!("`{word}` has no field: write `%{{Field}}{name}`"),
                false => format!("`{{{}}}` does not go with `%{name}`", argument.unwrap_or("")),
            });
        }
        let argument = argument.unwrap_or("");
        let (field, member) = match argument.split_once(':') {
            None => (argument, None),
            Some((field, member)) => match member.chars().next() {
                Some(separator @ (',' | ';' | ':')) => {
                    (field, Some((separator, member.get(1..).unwrap_or("").to_owned())))
                }
                _ => (field, Some((',', member.to_owned()))),
            },
        };
        Ok(Self { code: *code, quoting, field: field.to_owned(), member })
    }
}

fn braces(text: &str) -> Result<(Option<&str>, &str), String> {
    let Some(inside) = text.strip_prefix('{') else { return Ok((None, text)) };
    let (argument, rest) = inside.split_once('}').ok_or("a `{` without `}`")?;
    Ok((Some(argument), rest))
}

fn unknown(word: &str, name: &str) -> String {
    let why = match name {
        "IDENT" | "ui" => "the ident protocol is not implemented",
        "SRCEUI48" | "SRCEUI64" | ">eui" => {
            "the hardware address is not known to ACLs that ask a helper"
        }
        ">A" => "the names of clients are not looked up for helpers",
        _ if name.starts_with("USER_") || name.starts_with("CA_CERT") => {
            "certificates of clients are not sent to helpers"
        }
        _ if name.starts_with("ssl::") || name.starts_with("tls::") => {
            "this fact about TLS is for logs only"
        }
        _ => match crate::log_codes::longest(name) {
            Some((_, length)) if length == name.len() => "this is not known when a rule is asked",
            _ => "there is no such code",
        },
    };
    format!("`{word}` cannot be sent to a helper: {why}")
}

/// The codes as a table for the reference.
pub(crate) fn docs_table() -> String {
    let mut out = "code | value\n--- | ---\n".to_owned();
    for (names, _, doc) in CODES {
        let names: Vec<_> = names.iter().map(|name| format!("`%{name}`")).collect();
        out.push_str(&format!("{} | {doc}\n", names.join(", ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_one_code() {
        let read = |word: &str| ExternalPart::parse(word).expect(word);
        assert_eq!(read("%SRC").code, ExternalCode::ClientIp);
        assert_eq!(read("%http::>a").code, ExternalCode::ClientIp);
        assert_eq!(read("%ssl::>sni").code, ExternalCode::Sni);
        assert_eq!(read("%%").code, ExternalCode::Percent);
        assert_eq!(read("%#DATA").quoting, Some(ExternalQuoting::UrlWhole));
        for word in ["%{Host}>h", "%>{Host}", "%>h{Host}", "%{Host}>ha"] {
            let part = read(word);
            assert_eq!((part.code, &*part.field), (ExternalCode::RequestField, "Host"), "{word}");
        }
        assert_eq!(read("%<{Via}").code, ExternalCode::ResponseField);
        assert_eq!(read("%>{Cookie:;id}").member, Some((';', "id".to_owned())));
        assert_eq!(read("%{Accept:text}>h").member, Some((',', "text".to_owned())));
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        for (word, why) in [
            ("%Ss", "when a rule is asked"),
            ("%NOSUCH", "no such code"),
            ("%SRC%DST", "no such code"),
            ("%USER_CERT_CN", "certificates"),
            ("%ssl::<cert", "TLS"),
            ("%>h", "has no field"),
            ("%{x}SRC", "does not go with"),
            ("%{x", "without `}`"),
            ("%>{x}%SRC", "more than one"),
        ] {
            let said = ExternalPart::parse(word).expect_err(word);
            assert!(said.contains(why), "{word}: {said}");
        }
    }
}
