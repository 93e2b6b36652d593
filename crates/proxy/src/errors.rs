//! Error pages: one table, rendered as HTML for people and as plain text for programs.
//!
//! No text from a client or a server is repeated unescaped. In HTML every variable part is escaped.
//! Plain text is sent as `text/plain` with `nosniff`, its control characters replaced.

use humboldt_base::clock::UnixMillis;
use humboldt_conf::RuleSource;
use humboldt_http::{FieldName, Fields, date, escape};
use serde_json::json;

/// Most bytes of a URL that an error page repeats; the rest is cut.
const URL_SHOWN_BYTES_MAX: usize = 512;

/// The media type of pages for people.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

macro_rules! error_pages {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $status:literal, $error:literal, $title:literal, $advice:literal;)+) => {
        /// Every error that the proxy itself answers with. The names are Squid's where it has one.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum ErrorPage { $($(#[doc = $doc])+ $variant,)+ }

        impl ErrorPage {
            /// Every page.
            const ALL: &[Self] = &[$(ErrorPage::$variant,)+];

            /// The page with this name.
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|page| page.name() == name)
            }

            /// The page's name, as in `X-Squid-Error` and `deny_info`.
            pub fn name(self) -> &'static str {
                match self { $(ErrorPage::$variant => $name,)+ }
            }

            /// Status code of the answer.
            pub fn status(self) -> u16 {
                match self { $(ErrorPage::$variant => $status,)+ }
            }

            /// The error type in Proxy-Status (RFC 9209 2.3).
            pub(crate) fn proxy_error(self) -> &'static str {
                match self { $(ErrorPage::$variant => $error,)+ }
            }

            /// Whether it is about logins: its status goes with fields that ask for one.
            pub(crate) fn asks_login(self) -> bool {
                matches!(self, Self::ProxyLoginRequired | Self::LoginRequired)
            }

            /// Whether there was no connection to the server.
            pub(crate) fn is_about_connecting(self) -> bool {
                matches!(
                    self,
                    Self::ConnectFailure
                        | Self::ConnectTimeout
                        | Self::BadCertificate
                        | Self::TlsRefused
                        | Self::NoTls
                )
            }

            fn title(self) -> &'static str {
                match self { $(ErrorPage::$variant => $title,)+ }
            }

            fn advice(self) -> &'static str {
                match self { $(ErrorPage::$variant => $advice,)+ }
            }
        }
    };
}

error_pages! {
    /// The request does not follow the grammar or is ambiguous.
    InvalidRequest = "ERR_INVALID_REQ", 400, "http_request_error", "Invalid request",
        "The request is not valid HTTP, or could be read in more than one way. The connection has been closed.";
    /// The URL cannot be used.
    InvalidUrl = "ERR_INVALID_URL", 400, "http_request_error", "Invalid URL",
        "The address is incomplete or malformed. Check the part before the first slash.";
    /// An access rule refuses the request.
    AccessDenied = "ERR_ACCESS_DENIED", 403, "http_request_denied", "Access denied",
        "The access rules of this proxy do not allow this request. If you think they should, ask its administrator.";
    /// An access rule asks the client of a proxy for a login, or for another one.
    ProxyLoginRequired = "ERR_CACHE_ACCESS_DENIED", 407, "http_request_denied", "Login required",
        "This proxy does not know you. Log in with a name and a password that may do this.";
    /// The same where the client takes the proxy for the server.
    LoginRequired = "ERR_CACHE_ACCESS_DENIED", 401, "http_request_denied", "Login required",
        "You are not logged in. Log in with a name and a password that may do this.";
    /// `miss_access` refuses a request that the cache cannot answer.
    ForwardingDenied = "ERR_FORWARDING_DENIED", 403, "http_request_denied", "Not in the cache",
        "This proxy does not have what was asked for, and may not fetch it for you.";
    /// The name of the host leads to an address that is not public (`private_destinations`).
    PrivateDestination = "ERR_PRIVATE_DESTINATION", 403, "destination_ip_prohibited", "Destination not allowed",
        "The name of this server leads into a private network, where this proxy goes only if its administrator says so.";
    /// The client is over its budget (`client_budget`).
    OverBudget = "ERR_OVER_BUDGET", 429, "http_request_denied", "Too many requests",
        "You have used more of this proxy than its administrator lets you. Try again later.";
    /// Host does not agree with the URL, or with the address that the client connected to.
    HostConflict = "ERR_CONFLICT_HOST", 409, "http_request_denied", "Host conflict",
        "The host that the request names is not the one that it was sent to.";
    /// A request inside of an intercepted connection is for another server than the connection.
    Misdirected = "ERR_CONFLICT_HOST", 421, "http_request_denied", "Misdirected request",
        "The host that the request names is not the one that this secure connection is with.";
    /// No server and no parent may be used for the request.
    NoForward = "ERR_CANNOT_FORWARD", 503, "destination_unavailable", "Cannot forward",
        "No server and no parent cache may be used for this request.";
    /// The method cannot be served here.
    UnsupportedMethod = "ERR_UNSUP_REQ", 501, "http_request_error", "Method or coding not supported",
        "This proxy cannot do what the request asks for.";
    /// The URL's scheme cannot be served.
    UnsupportedScheme = "ERR_UNSUP_PROTO", 501, "http_request_error", "Protocol not supported",
        "This proxy forwards URLs of http and https.";
    /// `Expect` other than 100-continue.
    ExpectationFailed = "ERR_EXPECT", 417, "http_request_error", "Expectation failed",
        "The only expectation that is understood is 100-continue.";
    /// HTTP version other than 1.0 and 1.1.
    UnsupportedVersion = "ERR_UNSUP_HTTPVERSION", 505, "http_request_error", "HTTP version not supported",
        "Use HTTP/1.1.";
    /// A method is misused, as in TRACE with a body.
    MethodNotAllowed = "ERR_METHOD_NOT_ALLOWED", 405, "http_request_error", "Method not allowed",
        "The method cannot be used in this way.";
    /// Request body longer than `request_body_max_size`.
    TooLarge = "ERR_TOO_BIG", 413, "http_request_error", "Request or reply too large",
        "The body is larger than this proxy accepts.";
    /// Body of an answer longer than `reply_body_max_size`.
    ReplyTooLarge = "ERR_TOO_BIG", 403, "http_response_body_size", "Reply too large",
        "What was asked for is larger than this proxy passes on.";
    /// Request target longer than the limit.
    UriTooLong = "ERR_URI_TOO_LONG", 414, "http_request_error", "Address too long",
        "The address is longer than this proxy accepts.";
    /// Request head longer than `request_header_max_size`.
    HeadTooLarge = "ERR_HEADERS_TOO_BIG", 431, "http_request_error", "Header fields too large",
        "The header fields are larger than this proxy accepts. Deleting the site's cookies often helps.";
    /// The request did not arrive in time.
    RequestTimeout = "ERR_REQUEST_TIMEOUT", 408, "http_request_error", "Request timed out",
        "The request did not arrive in time.";
    /// `only-if-cached` and not in the cache.
    OnlyIfCached = "ERR_ONLY_IF_CACHED_MISS", 504, "proxy_internal_response", "Not in the cache",
        "The request asked for a cached answer only, and there is none that may be used.";
    /// The host name does not resolve.
    DnsFailure = "ERR_DNS_FAIL", 503, "dns_error", "Host name not found",
        "The name of the server could not be looked up. Check the spelling.";
    /// A rule needs a fact about the client that is not known.
    Undecided = "ERR_ACCESS_UNDECIDED", 503, "proxy_internal_error", "Access not decided",
        "A rule of this proxy needs a fact about the client that could not be found out. Try again in a moment.";
    /// The server refused or could not be reached.
    ConnectFailure = "ERR_CONNECT_FAIL", 503, "destination_unavailable", "Connection failed",
        "The server could not be reached. It may be down or busy.";
    /// The certificate of the server is not accepted.
    BadCertificate = "ERR_SECURE_CONNECT_FAIL", 503, "tls_certificate_error", "No secure connection",
        "The server cannot prove that it is the right one, so nothing was sent to it.";
    /// The server refuses the TLS that it is offered.
    TlsRefused = "ERR_SECURE_CONNECT_FAIL", 503, "tls_alert_received", "No secure connection",
        "The server refuses a secure connection, so nothing was sent to it.";
    /// There is no TLS with the server.
    NoTls = "ERR_SECURE_CONNECT_FAIL", 503, "tls_protocol_error", "No secure connection",
        "No secure connection to the server could be made, so nothing was sent to it.";
    /// No connection within `connect_timeout`.
    ConnectTimeout = "ERR_CONNECT_TIMEOUT", 504, "connection_timeout", "Connection timed out",
        "The server did not accept a connection in time.";
    /// The server's answer did not arrive within `read_timeout`.
    ReadTimeout = "ERR_READ_TIMEOUT", 504, "http_response_timeout", "Server too slow",
        "The server accepted the request but did not answer in time.";
    /// The server closed the connection or reset it before it answered.
    ReadError = "ERR_READ_ERROR", 502, "connection_terminated", "No answer from the server",
        "The server closed the connection without an answer.";
    /// The request could not be sent.
    WriteError = "ERR_WRITE_ERROR", 502, "connection_terminated", "Request could not be sent",
        "The connection to the server broke while the request was being sent.";
    /// The server's answer is not HTTP, or ambiguous.
    InvalidResponse = "ERR_INVALID_RESP", 502, "http_protocol_error", "Invalid answer from the server",
        "The server's answer is not valid HTTP and has not been passed on.";
    /// `forward_timeout` or all tries used up.
    ForwardTimeout = "ERR_FORWARDING_TIMEOUT", 504, "http_response_timeout", "Forwarding timed out",
        "No server answered in the time allowed.";
    /// The request has passed through this proxy before.
    ForwardLoop = "ERR_FORWARDING_LOOP", 508, "proxy_loop_detected", "Forwarding loop",
        "The request has already passed through this proxy: the configuration of a proxy on its way sends it back.";
    /// A manager page that does not exist.
    NotFound = "ERR_NOT_FOUND", 404, "proxy_internal_response", "No such page",
        "This proxy has no such page. /squid-internal-mgr/menu lists those it has.";
    /// A helper that rewrites URLs has no answer.
    GatewayFailure = "ERR_GATEWAY_FAILURE", 502, "proxy_internal_error", "Gateway failure",
        "A program that this proxy asks about each request has not answered. Try again in a moment.";
    /// Something inside the proxy went wrong.
    Internal = "ERR_INTERNAL", 500, "proxy_internal_error", "Internal error",
        "The proxy could not serve the request. Its administrator finds the reason in cache.log.";
    /// The proxy is shutting down.
    ShuttingDown = "ERR_SHUTTING_DOWN", 503, "proxy_internal_error", "Shutting down",
        "The proxy is shutting down. Try again in a moment.";
}

/// The facts about one request on an error page.
#[derive(Clone, Debug)]
pub struct ErrorContext<'a> {
    /// The page.
    pub page: ErrorPage,
    /// The status that it is sent with.
    pub status: u16,
    /// The URL as the client sent it; cut and escaped before it is shown.
    pub url: &'a [u8],
    /// The error in detail, written by this program (never by client or server):
    /// `connection refused by 192.0.2.1:80`.
    pub detail: &'a str,
    /// The host name of this proxy.
    pub hostname: &'a str,
    /// The line of the rule that has refused, if the client may know it.
    pub rule: Option<&'a RuleSource>,
    /// Address of the administrator (`cache_mgr`).
    pub contact: &'a str,
    /// Whether to name the software's version.
    pub show_version: bool,
    /// Time of the answer.
    pub now: UnixMillis,
}

/// The forms of an error page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Html,
    /// For programs that print it.
    Plain,
    /// For programs that read it: problem details (RFC 9457).
    Json,
}

/// Fields and body of an error answer.
pub fn render(context: &ErrorContext<'_>, form: Form) -> (Fields, Vec<u8>) {
    let (media_type, body) = match form {
        Form::Html => (HTML, html_body(context)),
        Form::Plain => ("text/plain; charset=utf-8", plain_body(context)),
        Form::Json => ("application/problem+json", json_body(context)),
    };
    (fields(context.page.name(), media_type, context.now), body)
}

/// Fields of an error answer with this page.
pub(crate) fn fields(page: &str, media_type: &str, now: UnixMillis) -> Fields {
    let mut fields = Fields::new();
    fields.push(FieldName::Date, &date::format(now.secs()));
    fields.push(FieldName::ContentType, media_type.as_bytes());
    fields.push_named(b"X-Content-Type-Options", b"nosniff");
    fields.push(FieldName::CacheControl, b"no-store");
    fields.push_named(b"X-Squid-Error", format!("{page} 0").as_bytes());
    fields
}

/// The form that `Accept` (RFC 9110 12.5.1) prefers. A client that names neither HTML nor JSON
/// (curl, apt, pip) gets plain text. So does a client that likes several equally but names only
/// plain text.
pub fn wanted_form<'a>(accept: impl Iterator<Item = &'a [u8]>) -> Form {
    let (mut html, mut json, mut problem, mut plain) = (None, None, None, None);
    let (mut text, mut any) = (None, None);
    for range in accept {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(weight_permille).unwrap_or(1000);
        for (name, found) in [
            (&b"text/html"[..], &mut html),
            (b"application/json", &mut json),
            (b"application/problem+json", &mut problem),
            (b"text/plain", &mut plain),
            (b"text/*", &mut text),
            (b"*/*", &mut any),
        ] {
            if kind.eq_ignore_ascii_case(name) {
                *found = Some(weight);
            }
        }
    }
    let json = json.max(problem).unwrap_or(0);
    if json > html.unwrap_or(0) && json >= plain.unwrap_or(0) {
        return Form::Json;
    }
    // If HTML is not wanted at all, plain text is sent even if it is not named.
    match html {
        Some(html) if html > 0 && html >= plain.or(text).or(any).unwrap_or(0) => Form::Html,
        _ => Form::Plain,
    }
}

/// `q=0.8` in thousandths. A weight that cannot be read counts as 1.
fn weight_permille(parameter: &[u8]) -> Option<u32> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let weight: f32 =
        std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1.0);
    Some((weight.clamp(0.0, 1.0) * 1000.0) as u32)
}

fn shown_url(url: &[u8]) -> String {
    let cut = &url[..url.len().min(URL_SHOWN_BYTES_MAX)];
    let mut text: String = String::from_utf8_lossy(cut)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if cut.len() < url.len() {
        text.push('…');
    }
    text
}

/// The name of this program for pages.
pub(crate) fn product(show_version: bool) -> &'static str {
    if show_version { concat!("Humboldt/", env!("CARGO_PKG_VERSION")) } else { "Humboldt" }
}

fn plain_body(context: &ErrorContext<'_>) -> Vec<u8> {
    let page = context.page;
    let mut text = format!("{} ({})\n\n{}\n", page.title(), page.name(), page.advice());
    if !context.url.is_empty() {
        text.push_str(&format!("\nURL:    {}\n", shown_url(context.url)));
    }
    if !context.detail.is_empty() {
        text.push_str(&format!("Reason: {}\n", context.detail));
    }
    text.push_str(&format!("\n{} at {}", product(context.show_version), context.hostname));
    if !context.contact.is_empty() {
        text.push_str(&format!(", administrator: {}", context.contact));
    }
    text.push('\n');
    text.into_bytes()
}

/// Problem details. The members after `instance` are our own.
fn json_body(context: &ErrorContext<'_>) -> Vec<u8> {
    let page = context.page;
    let rule = context.rule.map(|rule| match rule.line {
        0 => json!({ "text": rule.text, "directive": rule.file }),
        line => json!({ "text": rule.text, "file": rule.file, "line": line }),
    });
    let answer = json!({
        "type": "about:blank",
        "title": page.title(),
        "status": context.status,
        "detail": if context.detail.is_empty() { page.advice() } else { context.detail },
        "instance": shown_url(context.url),
        "error": page.name(),
        "rule": rule,
        "proxy": context.hostname,
        "contact": context.contact,
    });
    let mut body = answer.to_string().into_bytes();
    body.push(b'\n');
    body
}

fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    escape::write_html(&mut escaped, text.as_bytes());
    escaped
}

fn html_body(context: &ErrorContext<'_>) -> Vec<u8> {
    let page = context.page;
    let mut rows = String::new();
    if !context.url.is_empty() {
        let url = html(&shown_url(context.url));
        rows.push_str(&format!("<dt>Address</dt><dd><code>{url}</code></dd>"));
    }
    if !context.detail.is_empty() {
        rows.push_str(&format!("<dt>Reason</dt><dd>{}</dd>", html(context.detail)));
    }
    if !context.contact.is_empty() {
        rows.push_str(&format!("<dt>Administrator</dt><dd>{}</dd>", html(context.contact)));
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>\
         body{{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:12vh auto;padding:0 1.5rem;\
         color:#222;background:#fff}}h1{{font-size:1.6rem}}dt{{color:#666;font-size:.85rem}}\
         dd{{margin:0 0 .8rem;overflow-wrap:anywhere}}footer{{margin-top:2rem;color:#666;font-size:.85rem}}\
         @media(prefers-color-scheme:dark){{body{{color:#ddd;background:#181818}}}}</style></head><body>\
         <h1>{title}</h1><p>{advice}</p><dl>{rows}</dl>\
         <footer>{status} {name} &middot; {product} at {host}</footer></body></html>\n",
        title = page.title(),
        advice = page.advice(),
        status = page.status(),
        name = page.name(),
        product = product(context.show_version),
        host = html(context.hostname),
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(url: &[u8]) -> ErrorContext<'_> {
        ErrorContext {
            page: ErrorPage::DnsFailure,
            status: 503,
            rule: None,
            url,
            detail: "no such name",
            hostname: "cache.example",
            contact: "ops@example",
            show_version: true,
            now: UnixMillis(0),
        }
    }

    #[test]
    fn nothing_from_the_url_reaches_the_page_unescaped() {
        let (_, body) = render(&context(b"http://x/<script>alert(\"1\")</script>&'"), Form::Html);
        let page = String::from_utf8(body).unwrap();
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"));
    }

    #[test]
    fn control_characters_do_not_reach_the_plain_page() {
        let (fields, body) = render(&context(b"http://x/\r\nSet-Cookie: a=b\x1b[31m"), Form::Plain);
        assert!(!body.contains(&0x1b) && !body.windows(4).any(|w| w == b"\r\nSe"));
        assert_eq!(fields.get_by_name(b"X-Squid-Error"), Some(&b"ERR_DNS_FAIL 0"[..]));
    }

    #[test]
    fn long_urls_are_cut() {
        let url = vec![b'a'; 10_000];
        let (_, body) = render(&context(&url), Form::Plain);
        assert!(body.len() < 1_000);
    }

    #[test]
    fn programs_get_plain_text_and_browsers_html() {
        for (accept, form) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Form::Html),
            ("text/html", Form::Html),
            ("TEXT/HTML ; Q=0.5", Form::Html),
            ("text/html, text/plain", Form::Html),
            ("text/html;q=0.5, text/plain", Form::Plain),
            ("text/html;q=0.5, */*", Form::Plain),
            ("text/html;q=0.5, text/*;q=0.4, */*", Form::Html),
            ("text/html;q=0, text/plain", Form::Plain),
            ("text/html;q=0", Form::Plain),
            ("text/html;level=1;q=0", Form::Plain),
            ("text/html;q=x", Form::Html),
            ("text/htmlx", Form::Plain),
            ("text/plain", Form::Plain),
            ("*/*", Form::Plain),
            ("", Form::Plain),
            ("application/json", Form::Json),
            ("application/json, text/plain, */*", Form::Json),
            ("application/problem+json;q=0.5, */*", Form::Json),
            ("text/html, application/json", Form::Html),
            ("text/plain, application/json;q=0.9", Form::Plain),
            ("application/json;q=0", Form::Plain),
        ] {
            assert_eq!(wanted_form(accept.split(',').map(str::as_bytes)), form, "{accept}");
        }
    }

    #[test]
    fn programs_that_read_json_get_the_rule() {
        let text = "http_access deny \"x\"".to_owned();
        let rule = RuleSource { text, file: "squid.conf".to_owned(), line: 7 };
        let context = ErrorContext { rule: Some(&rule), ..context(b"http://x/\"\n<b>") };
        let (fields, body) = render(&context, Form::Json);
        assert_eq!(fields.get(FieldName::ContentType), Some(&b"application/problem+json"[..]));
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(read["rule"]["text"], "http_access deny \"x\"");
        assert_eq!((&read["rule"]["line"], &read["status"]), (&json!(7), &json!(503)));
        assert_eq!(read["instance"], "http://x/\"?<b>");
    }

    #[test]
    fn rules_know_all_codes_of_logs() {
        use crate::cut::Cut;
        use humboldt_conf::AclKind;
        use humboldt_logs::access::Hierarchy;
        let errors = AclKind::SquidError.words().unwrap_or_default();
        let pages = ErrorPage::ALL.iter().map(|page| page.name());
        for name in pages.chain(Cut::ALL.iter().filter_map(|cut| cut.error())) {
            assert!(errors.contains(&name), "{name}");
        }
        let ways: Vec<_> = Hierarchy::ALL.iter().map(|way| way.name()).collect();
        assert_eq!(AclKind::HierCode.words(), Some(&ways[..]));
    }

    #[test]
    fn pages_are_found_by_the_name_they_are_sent_with() {
        assert_eq!(ErrorPage::from_name("ERR_DNS_FAIL"), Some(ErrorPage::DnsFailure));
        assert_eq!(ErrorPage::from_name("ERR_NO_SUCH_PAGE"), None);
    }
}
