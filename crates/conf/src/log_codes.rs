//! The `%` codes of `logformat`: one table for the parser, the logs and the documentation.

macro_rules! codes {
    ($($name:literal => $variant:ident, $field:literal $kind:ident, $doc:literal;)+) => {
        /// The meaning of a `%` code.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum LogCode { $(#[doc = $doc] $variant,)+ }

        /// Names, codes and meanings. A name may begin with another one: the longest that fits
        /// counts.
        const CODES: &[(&str, LogCode, &str)] = &[$(($name, LogCode::$variant, $doc),)+];

        impl LogCode {
            /// The form of its value in JSON.
            pub fn json_kind(self) -> JsonKind {
                match self { $(Self::$variant => JsonKind::$kind,)+ }
            }

            /// Its name in JSON; empty for a code that has the value of another one.
            pub(crate) fn field(self) -> &'static str {
                match self { $(Self::$variant => $field,)+ }
            }
        }
    };
}

/// The form of a value in JSON.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// A string.
    Text,
    /// A number.
    Number,
}

codes! {
    "%" => Percent, "" Text, "A percent sign.";
    ">a" => ClientIp, "client_ip" Text, "Address of the client.";
    ">A" => ClientName, "client_name" Text, "Name of the client, if a rule has looked it up; otherwise its address, since names are not looked up for the log.";
    ">p" => ClientPort, "client_port" Number, "Port of the client.";
    ">eui" => ClientHardware, "client_hardware" Text, "Hardware address of the client, where the kernel knew it when the client connected; only with an ACL `arp`, or with this code in a format.";
    ">la" => LocalIp, "local_ip" Text, "Address of ours that the client connected to.";
    ">lp" => LocalPort, "local_port" Number, "Port of ours that the client connected to.";
    "la" => ListenIp, "" Text, "Same as >la.";
    "lp" => ListenPort, "" Number, "Same as >lp.";
    "<a" => PeerIp, "server" Text, "Address of the server, or its name or that of the peer if it was not reached.";
    "<A" => PeerName, "server_name" Text, "Name of the server, or that of the parent.";
    "<p" => PeerPort, "server_port" Number, "Port of the server.";
    "<la" => ServerLocalIp, "" Text, "Address of ours on the connection to the server.";
    "<lp" => ServerLocalPort, "" Number, "Port of ours on it.";
    "request_attempts" => Attempts, "attempts" Number, "Connections to servers that were tried; 0 for a hit, and for a request that shared another's fetch.";
    "iso_time" => IsoTime, "time" Text, "When it ended, in UTC as RFC 3339 has it, with milliseconds: `2026-11-26T05:50:23.004Z`. Not in Squid.";
    "ts" => EndedSecs, "ended_s" Number, "Seconds since the epoch.";
    "tu" => EndedMillis, "ended_ms" Number, "Milliseconds of that second.";
    "tS" => StartedSecs, "started_s" Number, "When it began: seconds since the epoch and milliseconds.";
    "tl" => LocalTime, "local_time" Text, "Local time, in a strftime format.";
    "tg" => GmtTime, "utc_time" Text, "UTC, in a strftime format.";
    "tr" => ElapsedMs, "elapsed_ms" Number, "How long it took, in ms.";
    "dt" => DnsMs, "dns_ms" Number, "How long it waited for look-ups of names, in ms; none without one.";
    "sn" => SequenceNumber, "number" Number, "Number of the request: unique until the program ends, and growing on each core.";
    "master_xaction" => Transaction, "" Number, "Same as sn.";
    ">h" => RequestField, "request_fields" Text, "A field of the request, or all of them; of Authorization and Proxy-Authorization only the scheme, of Referer not the query with `strip_query_terms`. `%{NAME:;MEMBER}>h`: the member of a list that is separated so (by default with commas).";
    ">ha" => AdaptedField, "" Text, "Same as >h, since nothing adapts requests.";
    "<h" => ResponseField, "response_fields" Text, "The same of the answer, as the server or the cache has sent it, Set-Cookie too; of WWW-Authenticate and Proxy-Authenticate only the scheme if it is Negotiate or NTLM, of Location not the query with `strip_query_terms`; none for answers that the proxy makes, and for tunnels.";
    ">Hs" => Status, "status" Number, "Status sent to the client.";
    "<Hs" => ServerStatus, "server_status" Number, "Status that the server sent; none for a hit, and for a request that shared another's fetch.";
    "Hs" => OldStatus, "" Number, "Old name of >Hs.";
    "Ss" => ResultName, "result" Text, "Result code.";
    "Sh" => HierarchyName, "hierarchy" Text, "Hierarchy code.";
    "un" => User, "user" Text, "Name of the user: of the login, or of a helper of `external_acl_type`; also where the password was wrong, as the status then tells.";
    "ul" => Login, "login" Text, "The same for logins only.";
    "ue" => ExtUser, "helper_user" Text, "Name of the user, as a helper of `external_acl_type` has said (`user=`).";
    "et" => ExtTag, "helper_tag" Text, "`tag=` of such a helper.";
    "ea" => ExtLog, "helper_log" Text, "`log=` of such a helper.";
    "mt" => MediaType, "media_type" Text, "Media type of the answer.";
    "rm" => Method, "method" Text, "Method.";
    ">rm" => ClientMethod, "" Text, "Same as rm.";
    "<rm" => ServerMethod, "" Text, "Same as rm, if a server was asked.";
    "ru" => Url, "url" Text, "URL, as `url_rewrite_program` has left it.";
    ">ru" => ClientUrl, "client_url" Text, "URL as the client has sent it.";
    "<ru" => ServerUrl, "" Text, "Same as ru, if a server was asked.";
    "rp" => Path, "path" Text, "Path and query of the URL.";
    ">rp" => ClientPath, "client_url_path" Text, "The same of the URL that the client has sent.";
    "<rp" => ServerPath, "" Text, "Same as rp, if a server was asked.";
    "rs" => UrlScheme, "scheme" Text, "Scheme of the URL.";
    ">rs" => Scheme, "client_url_scheme" Text, "The same of the URL that the client has sent.";
    "<rs" => ServerScheme, "" Text, "Same as rs, if a server was asked.";
    "rd" => UrlDomain, "host" Text, "Host of the URL.";
    ">rd" => Domain, "client_url_host" Text, "The same of the URL that the client has sent.";
    "<rd" => ServerDomain, "" Text, "Same as rd, if a server was asked.";
    "rP" => UrlPort, "port" Number, "Port of the URL.";
    ">rP" => Port, "client_url_port" Number, "The same of the URL that the client has sent.";
    "<rP" => ServerPort, "" Number, "Same as rP, if a server was asked.";
    "rv" => RequestVersion, "version" Text, "HTTP version of the request.";
    ">rv" => ClientVersion, "" Text, "Same as rv.";
    "<st" => BytesOut, "bytes" Number, "Bytes sent to the client.";
    "err_code" => ErrorName, "error" Text, "The error: the name of the error page, or a name such as ERR_CLIENT_GONE where an answer is cut off.";
    "note" => Note, "annotations" Text, "The annotations of this name, with a comma between them, or `%{NAME:;}note` with a semicolon; or, without a name, all of them as `name: value` lines.";
    "err_detail" => ErrorDetail, "error_detail" Text, "More about that: the reason on the error page, behind the name of the ACL where a rule could not be answered; or why the connection was cut off, as in docs/metrics.md.";
    "us" => CertificateUser, "certificate_user" Text, "Name of the user in the certificate of the client: its `emailAddress`.";
    "ssl::>cert_subject" => CertificateSubject, "certificate_subject" Text, "Subject of the certificate of the client, in one line: `/O=Example/CN=alice`.";
    "ssl::>cert_issuer" => CertificateIssuer, "certificate_issuer" Text, "Issuer of that certificate, in the same form.";
    "ssl::>negotiated_version" => TlsVersion, "tls_version" Text, "Version of TLS with the client: `TLS/1.3`.";
    "ssl::>negotiated_cipher" => TlsCipher, "tls_cipher" Text, "Cipher with the client, as OpenSSL names it.";
    "ssl::>sni" => Sni, "sni" Text, "Name of the server that the client asks for in TLS, on ports with `ssl-bump`.";
    "ssl::bump_mode" => BumpMode, "bump_mode" Text, "The last action that `ssl_bump` chose for the connection: `splice`, `bump`, `peek`, `stare` or `terminate`; none where it was not asked.";
    "ssl::>received_hello_version" => ClientHelloVersion, "" Text, "Version in the head of the first message in TLS of a client, on ports with `ssl-bump`: `TLS/1.0`, as a rule.";
    "ssl::>received_supported_version" => ClientTlsVersion, "" Text, "Newest version that such a client speaks: `TLS/1.3`.";
    "ssl::<cert_subject" => ServerSubject, "server_certificate_subject" Text, "Subject of the certificate of a server that `ssl_bump` has looked at (`peek` or `stare` at the second step), in one line. With `peek` it is known up to TLS 1.2.";
    "ssl::<cert_issuer" => ServerIssuer, "server_certificate_issuer" Text, "Issuer of that certificate, in the same form.";
    "ssl::<cert_errors" => ServerFaults, "server_certificate_errors" Text, "Its faults, with a colon between them, or another separator: `%ssl::<cert_errors{,}`. Their names are those of `ssl_error`.";
    "ssl::<cert" => ServerCertificate, "server_certificate" Text, "That certificate, in PEM.";
    "ssl::<negotiated_version" => ServerTlsVersion, "server_tls_version" Text, "Version of TLS with that server.";
    "ssl::<negotiated_cipher" => ServerTlsCipher, "server_tls_cipher" Text, "Cipher with that server, as OpenSSL names it.";
    "ssl::<received_hello_version" => ServerHelloVersion, "" Text, "Version in the old field of its first message: `TLS/1.2`, for TLS 1.3 too.";
    "ssl::<received_supported_version" => ServerSupportedVersion, "" Text, "Version that it has chosen.";
    "rule" => Rule, "rule" Text, "File and line of the rule that has refused the request or its answer: `/etc/squid/squid.conf:12`. Not in Squid.";
    "reported_rule" => ReportedRule, "reported_rule" Text, "The same of the rule that would have refused the request, had that not only been to be reported (`report_only`, `http_access_report_only`); `unanswered` if a rule had no answer. Not in Squid.";
    "generation" => Generation, "generation" Number, "Number of the configuration that the request was served under: 1 at the start, and one more with each reconfiguration. Not in Squid.";
}

/// Names in JSON for fields of messages, and their codes.
pub(crate) const FIELD_NAMES: &[(&str, &str)] =
    &[("referer", "%{Referer}>h"), ("user_agent", "%{User-Agent}>h")];

/// The fields of the format `json`, which needs no definition.
pub const BUILT_IN_JSON: &str = "time elapsed_ms client_ip client_port local_ip local_port method \
                                 url version status result bytes user hierarchy server server_port \
                                 server_status media_type referer user_agent error error_detail rule \
                                 reported_rule generation";

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
                | C::ReportedRule
                | C::IsoTime
                | C::ServerLocalIp
                | C::ServerLocalPort
                | C::Attempts
                | C::DnsMs
                | C::ResponseField
                | C::ServerMethod
                | C::ServerUrl
                | C::ServerPath
                | C::ServerScheme
                | C::ServerDomain
                | C::ServerPort
        )
    }
}

/// Squid's codes that are always written as `-`, and why. Those that end in `::` stand for all that
/// begin so.
const WITHOUT_VALUE: &[(&[&str], &str)] = &[
    (&["credentials"], "passwords are not logged"),
    (&["ui"], "the ident protocol is not implemented"),
    (&["<pt", "<tt", "busy_time"], "the time that servers take is not measured"),
    (
        &[">st", "st", ">sh", "<sh", "<bs", "<sH", "<sS"],
        "these bytes are not counted for each request",
    ),
    (&["<rv"], "the version of requests to servers is not kept: it is 1.1"),
    (&[">qos", "<qos", ">nfmark", "<nfmark"], "marks of packets are not read"),
    (&["ssl::", "tls::"], "this is nothing that is kept of a connection with TLS"),
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

/// The code with this name in JSON: its text, with the percent sign.
pub(crate) fn by_field(name: &str) -> Option<String> {
    if let Some((_, code)) = FIELD_NAMES.iter().find(|(known, _)| *known == name) {
        return Some((*code).to_owned());
    }
    let mut codes = CODES.iter().filter(|_| !name.is_empty());
    let (code, ..) = codes.find(|(_, code, _)| code.field() == name)?;
    Some(format!("%{code}"))
}

/// All names in JSON.
pub(crate) fn fields() -> impl Iterator<Item = &'static str> {
    let of_codes = CODES.iter().map(|(_, code, _)| code.field()).filter(|name| !name.is_empty());
    of_codes.chain(FIELD_NAMES.iter().map(|(name, _)| *name))
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

/// The names in JSON as a table for the reference.
pub(crate) fn json_table() -> String {
    let mut out = "field | code | form\n--- | --- | ---\n".to_owned();
    for (name, code, _) in CODES.iter().filter(|(_, code, _)| !code.field().is_empty()) {
        let kind = match code.json_kind() {
            JsonKind::Text => "string",
            JsonKind::Number => "number",
        };
        out.push_str(&format!("`{}` | `%{name}` | {kind}\n", code.field()));
    }
    for (name, code) in FIELD_NAMES {
        out.push_str(&format!("`{name}` | `{code}` | string\n"));
    }
    out.push_str(&format!("\n`json` has these: `{}`.\n", BUILT_IN_JSON.replace(' ', "`, `")));
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
        assert_eq!(longest("ssl::>sni|x"), Some((Ok(LogCode::Sni), 9)));
        assert_eq!(longest("ssl::<cert|x"), Some((Ok(LogCode::ServerCertificate), 10)));
        assert_eq!(longest("ssl::<cert_errors"), Some((Ok(LogCode::ServerFaults), 17)));
        assert!(longest("ssl::>other|x").is_some_and(|(found, len)| found.is_err() && len == 11));
        assert_eq!(longest("zz"), None);
    }

    #[test]
    fn every_field_has_one_code_and_the_built_in_format_has_known_ones() {
        let mut names: Vec<_> = fields().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for name in fields() {
            let code = by_field(name).expect(name);
            assert!(longest(&code[code.find('}').map_or(1, |at| at + 1)..]).is_some(), "{code}");
        }
        assert!(BUILT_IN_JSON.split(' ').all(|name| by_field(name).is_some()));
        assert!(by_field("").is_none() && by_field("nothing").is_none());
    }

    #[test]
    fn no_code_has_a_value_and_none() {
        let empty: Vec<&str> =
            WITHOUT_VALUE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        assert!(CODES.iter().all(|(name, ..)| !empty.contains(name)));
    }
}
