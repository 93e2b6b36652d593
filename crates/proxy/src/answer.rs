//! Answers that the proxy makes itself: errors, manager pages, TRACE.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_http::{FieldName, Method, Version};
use humboldt_logs::access::Tag;

use crate::access;
use crate::client::{After, ClientConn, page_for};
use crate::core::Core;
use crate::cut::Cut;
use crate::denial::{self, Instead, Refusal};
use crate::errors::{self, ErrorContext, ErrorPage};
use crate::hit::{is_bodiless_status, write_connection};
use crate::job::{Failure, Report};
use crate::log::{self, Fault, Outcome, Route, Watch};
use crate::request::Request;
use crate::unparsed;

/// An answer in memory: its fields serialised, each line ended.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// Status code.
    pub status: u16,
    /// Field lines, without Content-Length and Connection.
    pub fields: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
    /// What went wrong, where it is an error page.
    pub fault: Option<Box<Fault>>,
}

impl Local {
    /// Its Content-Type, for the log; none where there is no body to have one.
    fn content_type(&self) -> Option<&[u8]> {
        let values = self.fields.split(|&byte| byte == b'\n').filter_map(|line| {
            let (name, value) =
                line.split_at_checked(line.iter().position(|&byte| byte == b':')?)?;
            name.eq_ignore_ascii_case(b"Content-Type").then(|| value.trim_ascii_start())
        });
        values.map(|value| value.strip_prefix(b":").unwrap_or(value).trim_ascii()).next()
    }
}

/// The reason phrase of a status (RFC 9110 15); empty for one without.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "",
    }
}

/// Answers a complete request with an error page.
pub(crate) async fn error(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    page: ErrorPage,
    detail: &str,
) -> After {
    let tag = match page {
        ErrorPage::OnlyIfCached => Tag::Miss,
        _ => Tag::None,
    };
    failed(core, conn, request, Failure::new(page, detail), (tag, None)).await
}

/// Answers a request that could not be fulfilled; `way` is the result code and where the answer
/// should have come from.
pub(crate) async fn failed(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    failure: Failure,
    (tag, route): (Tag, Option<Route>),
) -> After {
    failed_with(core, conn, request, failure, Outcome::miss(tag, 0, route)).await
}

/// The same, with all that is known of what became of it but for the status.
pub(crate) async fn failed_with(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    failure: Failure,
    outcome: Outcome,
) -> After {
    core.count(Counter::ClientErrors, 1);
    let local = error_answer(core, request, failure.page, &failure.detail);
    let outcome = Outcome { status: local.status, ..outcome };
    send(core, conn, request, local, outcome).await
}

/// Answers a request that a rule denies, or whose answer it denies, as `deny_info` says. `route` is
/// where the answer came from.
pub(crate) async fn refused(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    refusal: Refusal,
    route: Option<Route>,
) -> After {
    let is_denied = refusal.page != ErrorPage::DnsFailure;
    core.count(if is_denied { Counter::ClientDenied } else { Counter::ClientErrors }, 1);
    let detail = if is_denied { String::new() } else { access::why_unanswered(request) };
    let outcome = |status| Outcome::miss(refusal.tag, status, route);
    let page = |page: ErrorPage, status: Option<u16>| {
        let answer = error_answer(core, request, page, &detail);
        // The log says which rule it was; the client need not know.
        let of_acl = |acl| Fault::of_page(page, &format!("acl {acl}: {detail}"));
        let fault = refusal.unanswered.as_deref().map(of_acl).or(answer.fault);
        Local { status: status.unwrap_or(answer.status), fault, ..answer }
    };
    let local = match refusal.info.and_then(|info| request.snapshot().denials.get(info)) {
        None => page(refusal.page, None),
        Some(Instead::Page(other, status)) => page(*other, *status),
        Some(Instead::Redirect(status, url)) => {
            let fault = Some(Fault::of_page(refusal.page, ""));
            Local { fault, ..redirect(core, request, *status, url) }
        }
        Some(Instead::Reset) => {
            let fault = Fault::of_cut(Cut::Denied);
            let outcome = Outcome { fault, ..outcome(refusal.page.status()) };
            log::transaction(core, request, &outcome, None);
            return After::Abort(Cut::Denied);
        }
    };
    let outcome = outcome(local.status);
    send(core, conn, request, local, outcome).await
}

fn redirect(core: &Core, request: &Request, status: u16, url: &str) -> Local {
    let mut fields = Vec::with_capacity(256);
    humboldt_http::h1::write_field(
        &mut fields,
        b"Date",
        &humboldt_http::date::format(core.now().secs()),
    );
    humboldt_http::h1::write_field(&mut fields, b"Location", &denial::expand(url, request));
    humboldt_http::h1::write_field(&mut fields, b"Cache-Control", b"no-store");
    Local { status, fields, ..Local::default() }
}

/// The page as an answer.
pub(crate) fn error_answer(core: &Core, request: &Request, page: ErrorPage, detail: &str) -> Local {
    let snapshot = core.snapshot();
    let context = ErrorContext {
        page,
        url: request.shown_url(),
        detail,
        hostname: &snapshot.names.hostname,
        contact: &snapshot.names.contact,
        show_version: !snapshot.config.httpd_suppress_version_string,
        now: core.now(),
    };
    let html = errors::wants_html(request.head.fields.list(FieldName::Accept));
    let (fields, body) = errors::render(&context, html);
    Local { status: page.status(), fields, body, fault: Some(Fault::of_page(page, detail)) }
}

/// Sends an answer, logs it, and says whether the connection goes on: not when a request body was
/// left unread.
pub(crate) async fn send(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    mut local: Local,
    mut outcome: Outcome,
) -> After {
    let keep_alive =
        request.snapshot.as_ref().is_some_and(|snapshot| snapshot.keeps_alive(request))
            && !request.has_body()
            && request.head.method != Method::Connect
            && !core.is_draining();
    let mut bytes = serialise(&local, core.snapshot().names.cache_status.local());
    if let Some(snapshot) = &request.snapshot {
        snapshot.header_rules.apply_to_reply(&mut bytes, 0, request);
    }
    write_connection(&mut bytes, request.head.version, keep_alive);
    bytes.extend_from_slice(b"\r\n");
    if request.head.method != Method::Head && !is_bodiless_status(local.status) {
        bytes.extend_from_slice(&local.body);
    }
    let result = write_all(conn, core, &bytes).await.map_err(|error| conn.cut_by(&error));
    outcome.bytes_out = bytes.len() as u64;
    outcome.fault = local.fault.take();
    outcome.end(result.err());
    log::transaction(core, request, &outcome, local.content_type());
    match result {
        Ok(()) if keep_alive => After::Keep,
        Ok(()) => After::Close,
        Err(cut) => After::Abort(cut),
    }
}

/// The head of an answer of our own, but for Connection and the empty line.
fn serialise(local: &Local, fields: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(local.fields.len() + local.body.len() + 256);
    humboldt_http::h1::write_status_line(
        &mut bytes,
        Version::Http11,
        local.status,
        reason(local.status).as_bytes(),
    );
    bytes.extend_from_slice(&local.fields);
    if !is_bodiless_status(local.status) {
        bytes.extend_from_slice(b"Content-Length: ");
        bytes.extend_from_slice(itoa::Buffer::new().format(local.body.len()).as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(fields);
    bytes
}

/// Answers a head that does not parse; the connection ends.
pub(crate) async fn refuse(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    refused: &unparsed::Refused,
) -> After {
    let page = page_for(refused.error);
    let target = refused.target_for_the_log(page.status());
    let unparsed = unparsed::request(core, conn, &refused.method, target);
    answer_without_request(core, conn, unparsed, page, &refused.error.to_string()).await
}

/// Answers a head that did not arrive in time.
pub(crate) async fn time_out(core: &Rc<Core>, conn: &mut ClientConn) -> After {
    let unparsed = unparsed::request(core, conn, b"", unparsed::UNFINISHED);
    answer_without_request(core, conn, unparsed, ErrorPage::RequestTimeout, "").await
}

/// Logs a head of which the rest does not come.
pub(crate) fn give_up_head(core: &Rc<Core>, conn: &ClientConn, cut: Cut) -> After {
    core.count(Counter::ClientRequests, 1);
    let unparsed = unparsed::request(core, conn, b"", unparsed::UNFINISHED);
    let fault = Fault::of_cut(cut);
    log::transaction(core, &unparsed, &Outcome { fault, ..Outcome::local(Tag::None, 0) }, None);
    After::Abort(cut)
}

/// Logs a request whose client has left, or has been there for too long, before it got anything.
pub(crate) fn gone(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Rc<Request>,
    tag: Tag,
    report: Option<&Rc<Report>>,
) -> After {
    gone_as(core, conn, request, Outcome::miss(tag, 0, report.map(|report| report.route())))
}

/// The same for a request that waited for a fetch: its own (`report`) or another's.
pub(crate) fn gone_waiting(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Rc<Request>,
    tag: Tag,
    report: Option<&Rc<Report>>,
) -> After {
    let outcome = Outcome::miss(tag, 0, report.map(|report| report.route()));
    gone_as(core, conn, request, Outcome { collapsed: report.is_none(), ..outcome })
}

fn gone_as(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Rc<Request>,
    mut outcome: Outcome,
) -> After {
    let cut = conn.cut_by_client();
    outcome.end(Some(cut));
    log::transaction(core, request, &outcome, None);
    After::Abort(cut)
}

async fn answer_without_request(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    unparsed: Rc<Request>,
    page: ErrorPage,
    detail: &str,
) -> After {
    let _watch = Watch::new(core, &unparsed);
    core.count(Counter::ClientRequests, 1);
    // The page does not repeat what could not be read.
    let local = error_answer(core, &Request::default(), page, detail);
    core.count(Counter::ClientErrors, 1);
    match send(core, conn, &unparsed, local, Outcome::local(Tag::None, page.status())).await {
        After::Keep => After::Close,
        after => after,
    }
}

/// Writes all of `bytes` within `write_timeout` for each step.
pub(crate) async fn write_all(conn: &ClientConn, core: &Core, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match conn.stream.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                core.count(Counter::ClientOutBytes, n as u64);
                bytes = bytes.get(n..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable(conn, core).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the client's socket takes more, at most `write_timeout`.
pub(crate) async fn writable(conn: &ClientConn, core: &Core) -> io::Result<()> {
    conn.deadline.arm(core.snapshot().config.write_timeout);
    let result = poll_fn(|cx| {
        if conn.poll_out_of_time(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        conn.stream.poll_write_ready(cx)
    })
    .await;
    conn.deadline.disarm();
    result
}
