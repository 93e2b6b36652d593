//! The `%` codes of `logformat`: one table for the parser, the log and the documentation.

macro_rules! codes {
    ($($name:literal => $variant:ident, $doc:literal;)+) => {
        /// The meaning of a `%` code.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum LogCode { $(#[doc = $doc] $variant,)+ }

        /// Names, codes and meanings. A name may begin with another one: the longest that fits
        /// counts.
        const CODES: &[(&str, LogCode, &str)] = &[$(($name, LogCode::$variant, $doc),)+];
    };
}

codes! {
    "%" => Percent, "A percent sign.";
    ">a" => ClientIp, "Address of the client.";
    ">A" => ClientName, "Name of the client; its address, since names are not looked up for the log.";
    ">p" => ClientPort, "Port of the client.";
    ">la" => LocalIp, "Address of ours that the client connected to.";
    ">lp" => LocalPort, "Port of ours that the client connected to.";
    "la" => ListenIp, "Same as >la.";
    "lp" => ListenPort, "Same as >lp.";
    "<a" => PeerIp, "Address of the server, or its name or that of the peer if it was not reached.";
    "<A" => PeerName, "Same as <a, since names are not looked up for the log.";
    "<p" => PeerPort, "Port of the server.";
    "ts" => EndedSecs, "Seconds since the epoch.";
    "tu" => EndedMillis, "Milliseconds of that second.";
    "tS" => StartedSecs, "When it began: seconds since the epoch and milliseconds.";
    "tl" => LocalTime, "Local time, in a strftime format.";
    "tg" => GmtTime, "UTC, in a strftime format.";
    "tr" => ElapsedMs, "How long it took, in ms.";
    ">h" => RequestField, "A field of the request, or all of them; of Authorization and Proxy-Authorization only the scheme.";
    ">Hs" => Status, "Status sent to the client.";
    "<Hs" => ServerStatus, "Status that the server sent; none for a hit, and for a request that shared another's fetch.";
    "Hs" => OldStatus, "Old name of >Hs.";
    "Ss" => ResultName, "Result code.";
    "Sh" => HierarchyName, "Hierarchy code.";
    "un" => User, "Name of the user: of the login, or of a helper of `external_acl_type`; also where the password was wrong, as the status then tells.";
    "ul" => Login, "The same for logins only.";
    "ue" => ExtUser, "Name of the user, as a helper of `external_acl_type` has said (`user=`).";
    "et" => ExtTag, "`tag=` of such a helper.";
    "ea" => ExtLog, "`log=` of such a helper.";
    "mt" => MediaType, "Media type of the answer.";
    "rm" => Method, "Method.";
    ">rm" => ClientMethod, "Same as rm.";
    "ru" => Url, "URL, as `url_rewrite_program` has left it.";
    ">ru" => ClientUrl, "URL as the client has sent it.";
    "rp" => Path, "Path and query of the URL.";
    ">rp" => ClientPath, "The same of the URL that the client has sent.";
    "rs" => UrlScheme, "Scheme of the URL.";
    ">rs" => Scheme, "The same of the URL that the client has sent.";
    "rd" => UrlDomain, "Host of the URL.";
    ">rd" => Domain, "The same of the URL that the client has sent.";
    "rP" => UrlPort, "Port of the URL.";
    ">rP" => Port, "The same of the URL that the client has sent.";
    "rv" => RequestVersion, "HTTP version of the request.";
    ">rv" => ClientVersion, "Same as rv.";
    "<st" => BytesOut, "Bytes sent to the client.";
    "err_code" => ErrorName, "The error: the name of the error page, or a name such as ERR_CLIENT_GONE where an answer is cut off.";
    "note" => Note, "The annotations of this name, with a comma between them, or `%{NAME:;}note` with a semicolon; or, without a name, all of them as `name: value` lines.";
    "err_detail" => ErrorDetail, "More about that: the reason on the error page, behind the name of the ACL where a rule could not be answered; or why the connection was cut off, as in docs/metrics.md.";
    "us" => CertificateUser, "Name of the user in the certificate of the client: its `emailAddress`.";
    "ssl::>cert_subject" => CertificateSubject, "Subject of the certificate of the client, in one line: `/O=Example/CN=alice`.";
    "ssl::>cert_issuer" => CertificateIssuer, "Issuer of that certificate, in the same form.";
    "ssl::>negotiated_version" => TlsVersion, "Version of TLS with the client: `TLS/1.3`.";
    "ssl::>negotiated_cipher" => TlsCipher, "Cipher with the client, as OpenSSL names it.";
    "rule" => Rule, "File and line of the rule that has refused the request or its answer: `/etc/squid/squid.conf:12`.";
}

impl LogCode {
    /// Whether its value is known only when the request has been answered.
    pub(crate) fn is_of_the_answer(self) -> bool {
        use LogCode as C;
        matches!(
            self,
            C::PeerIp
                | C::PeerName
                | C::PeerPort
                | C::ElapsedMs
                | C::Status
                | C::ServerStatus
                | C::OldStatus
                | C::ResultName
                | C::HierarchyName
                | C::MediaType
                | C::BytesOut
                | C::ErrorName
                | C::ErrorDetail
                | C::Rule
        )
    }
}

/// Squid's codes that are always written as `-`, and why. Those that end in `::` stand for all that
/// begin so.
const WITHOUT_VALUE: &[(&[&str], &str)] = &[
    (&["credentials"], "passwords are not logged"),
    (&["ui"], "the ident protocol is not implemented"),
    (&["dt", "<pt", "<tt", "busy_time"], "the time that parts of a request take is not measured"),
    (&[">st", "st", ">sh", "<sh", "<bs"], "these bytes are not counted for each request"),
    (&["<h", ">ha"], "these fields are gone when the line is written"),
    (&["<rm", "<ru", "<rs", "<rd", "<rP", "<rp", "<rv"], "the request to the server is not kept"),
    (&["<la", "<lp"], "our own end of connections to servers is not kept"),
    (&["sn", "master_xaction", "request_attempts"], "requests and attempts are not numbered"),
    (&[">eui"], "hardware addresses are not looked up"),
    (&[">qos", "<qos", ">nfmark", "<nfmark"], "marks of packets are not read"),
    (
        &["ssl::", "tls::"],
        "this is about the interception of TLS, which is not implemented, or about TLS with servers",
    ),
    (&["icap::", "adapt::"], "content adaptation is not implemented"),
    (
        &["proxy_protocol::", "transport::"],
        "headers of the PROXY protocol are not kept, and connections are not numbered",
    ),
    (&[">handshake"], "first bytes of a connection are not kept"),
];

/// A code, or why it has no value.
pub(crate) type Found = Result<LogCode, &'static str>;

/// The code that `text` begins with, and its length in bytes. `http::` in front of it changes
/// nothing.
pub(crate) fn longest(text: &str) -> Option<(Found, usize)> {
    let bare = text.strip_prefix("http::").unwrap_or(text);
    let works = CODES.iter().map(|(name, code, _)| (*name, Ok(*code)));
    let empty =
        WITHOUT_VALUE.iter().flat_map(|(names, why)| names.iter().map(|name| (*name, Err(*why))));
    let (name, found) = works
        .chain(empty)
        .filter(|(name, _)| bare.starts_with(name))
        .max_by_key(|(name, _)| name.len())?;
    let rest = bare.get(name.len()..).unwrap_or("");
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '<' | '>' | ':');
    let more =
        if name.ends_with("::") { rest.find(|c| !is_name(c)).unwrap_or(rest.len()) } else { 0 };
    Some((found, text.len() - bare.len() + name.len() + more))
}

/// The codes as tables for the reference.
pub(crate) fn docs_table() -> String {
    let mut out = "code | value\n--- | ---\n".to_owned();
    for (name, _, doc) in CODES {
        out.push_str(&format!("`%{name}` | {doc}\n"));
    }
    out.push_str("\nThese are written as `-`, with a warning:\n\ncodes | why\n--- | ---\n");
    for (names, why) in WITHOUT_VALUE {
        let names: Vec<_> = names.iter().map(|name| format!("`%{name}`")).collect();
        out.push_str(&format!("{} | {why}\n", names.join(", ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_counts() {
        assert_eq!(longest("<st x"), Some((Ok(LogCode::BytesOut), 3)));
        assert!(longest("st").is_some_and(|(found, len)| found.is_err() && len == 2));
        assert_eq!(longest(">la"), Some((Ok(LogCode::LocalIp), 3)));
        assert_eq!(longest("http::>h x"), Some((Ok(LogCode::RequestField), 8)));
        assert!(longest("ssl::>sni|x").is_some_and(|(found, len)| found.is_err() && len == 9));
        assert_eq!(longest("zz"), None);
    }

    #[test]
    fn no_code_has_a_value_and_none() {
        let empty: Vec<&str> =
            WITHOUT_VALUE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        assert!(CODES.iter().all(|(name, ..)| !empty.contains(name)));
    }
}
