//! Answers that the proxy makes itself: errors, manager pages, TRACE.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use humboldt_base::counters::Counter;
use humboldt_conf::{PortMode, RuleSource};
use humboldt_exchange::{BodyLength, ReplyHead, ReplySink, is_bodiless_status, reason};
use humboldt_freshness::languages::preferred;
use humboldt_http::{FieldName, Fields, Method, Version, date};
use humboldt_logs::access::Tag;

use crate::bumped::Inside;
use crate::config::cache_status::Usage;
use crate::config::denials::Instead;
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::{self, ErrorContext, ErrorPage, Form};
use crate::fetch::job::Failure;
use crate::outcome::{Content, Fault, Outcome, RouteTaken};
use crate::reply::template::{self, PageFacts};
use crate::reply::{challenge, head};
use crate::request::Request;
use crate::rules::access;
use crate::rules::codes::{self, Facts};
use crate::rules::denial::{Refusal, Unanswered};
use crate::transaction::Transaction;

/// A future that few requests need. It has more than a kilobyte, which every request that waits
/// would have if it were not boxed.
type Boxed<F> = Pin<Box<F>>;

/// An answer in memory.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// Status code.
    pub status: u16,
    /// Fields of this answer.
    pub fields: Fields,
    /// The body.
    pub body: Vec<u8>,
    /// The error, if this is an error page.
    pub fault: Option<Box<Fault>>,
    /// Proxy-Status, if this is an error: its type and its details.
    pub error: Option<(&'static str, String)>,
}

impl Local {
    /// An answer with a body of this media type, which nobody may store.
    pub(crate) fn page(status: u16, media_type: &str, body: Vec<u8>) -> Self {
        let mut fields = Fields::new();
        fields.push(FieldName::ContentType, media_type.as_bytes());
        fields.push(FieldName::CacheControl, b"no-store");
        Self { status, fields, body, fault: None, error: None }
    }
}

/// The head of a local answer.
struct LocalHead<'a> {
    local: &'a Local,
    /// The request, whose configuration has the proxy's names.
    request: &'a Request,
}

impl ReplyHead for LocalHead<'_> {
    fn status(&self) -> u16 {
        self.local.status
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        let local = self.local;
        sink.status(local.status, reason(local.status).as_bytes());
        local.fields.iter().for_each(|(_, name, value)| sink.field(name, value));
        let names = &self.request.snapshot().names;
        names.cache_status.write(sink, Usage::Local);
        if let Some((error, details)) = &local.error {
            names.cache_status.write_error(sink, error, details);
        }
    }
}

/// Answers with an error page.
pub(crate) fn error(
    transaction: &mut Transaction<'_>,
    page: ErrorPage,
    detail: &str,
) -> Boxed<impl Future<Output = Outcome>> {
    let tag = match page {
        ErrorPage::OnlyIfCached => Tag::Miss,
        _ => Tag::None,
    };
    failed(transaction, Failure::new(page, detail), Outcome::local(tag, 0))
}

/// Answers a request that could not be fulfilled. `outcome` has everything but the status.
pub(crate) fn failed(
    transaction: &mut Transaction<'_>,
    failure: Failure,
    outcome: Outcome,
) -> Boxed<impl Future<Output = Outcome>> {
    Box::pin(send_failed(transaction, failure, outcome))
}

/// Answers, as `deny_info` says, when a rule denies the request or its answer. `route` says where
/// the answer came from.
pub(crate) fn refused(
    transaction: &mut Transaction<'_>,
    refusal: Refusal,
    route: Option<RouteTaken>,
) -> Boxed<impl Future<Output = Outcome>> {
    Box::pin(send_refused(transaction, refusal, route))
}

/// The future of [`failed`].
async fn send_failed(
    transaction: &mut Transaction<'_>,
    failure: Failure,
    outcome: Outcome,
) -> Outcome {
    if let Some(refusal) = failure.refusal {
        return refused(transaction, *refusal, outcome.route).await;
    }
    transaction.core.count(Counter::ClientErrors, 1);
    let (core, request) = (transaction.core, transaction.request);
    if request.inside().is_some() && failure.is_of_connection {
        transaction.client.close_behind();
    }
    let server = outcome.route.as_ref().and_then(|route| route.peer);
    let about = About { server, ..About::new(request.shown_url(), &failure.detail) };
    let local = error_page(core, request, failure.page, &about);
    let outcome = Outcome { status: local.status, ..outcome };
    send(transaction, local, outcome).await
}

/// The future of [`refused`].
async fn send_refused(
    transaction: &mut Transaction<'_>,
    refusal: Refusal,
    route: Option<RouteTaken>,
) -> Outcome {
    if refusal.page.asks_login() {
        challenge::make_way(transaction).await;
    }
    let (core, request) = (transaction.core, &**transaction.request);
    let client = &mut *transaction.client;
    challenge::close_behind_failure(client, request);
    let unanswered = refusal.unanswered.as_ref();
    let counter = unanswered.map_or(Counter::ClientDenied, |_| Counter::ClientErrors);
    // A refusal that stands for a whole tunnel was counted with that.
    let was_counted = request.inside().is_some_and(Inside::has_verdict);
    core.count(counter, u64::from(!was_counted));
    let why = |rule: &Unanswered| access::why_unanswered(request, rule.need);
    let shown = refusal.rule.as_deref().filter(|_| explains(request)).map(RuleSource::for_clients);
    let what = if refusal.page.asks_login() { "login demanded by" } else { "refused by" };
    let facts = refusal.facts.as_deref();
    let by_rule = || {
        let facts = facts.map(|facts| format!("{facts}: ")).unwrap_or_default();
        shown.as_ref().map(|rule| format!("{facts}{what} {rule}"))
    };
    let alone = || facts.filter(|_| explains(request)).map(ToOwned::to_owned);
    let detail = unanswered.map(why).or_else(by_rule).or_else(alone).unwrap_or_default();
    let server = route.as_ref().and_then(|route| route.peer);
    let outcome = |status| Outcome::miss(refusal.tag, status, route);
    let about = |status| {
        let url = request.shown_url();
        About { url, detail: &detail, server, status, rule: shown.as_ref() }
    };
    let mut page = |page: ErrorPage, status: Option<u16>| {
        // A page about logins has the status of the refusal, which may ask for none; one that asks
        // keeps its status under another page.
        let status = status.unwrap_or(match refusal.page.asks_login() || page.asks_login() {
            true => refusal.page.status(),
            false => page.status(),
        });
        let answer = error_page(core, request, page, &about(Some(status)));
        // The log names the rule; the client need not know it.
        let acl = unanswered.map(|rule| &*rule.acl).filter(|acl| !acl.is_empty());
        let of_acl = |acl| Fault::of_page(page, &format!("acl {acl}: {detail}"));
        let fault = acl.map(of_acl).or(facts.map(|facts| Fault::of_page(page, facts)));
        let fault = fault.or(answer.fault);
        let mut answer = Local { fault, ..answer };
        challenge::add(client, request, status, &mut answer.fields);
        answer
    };
    let retry_after_s = refusal.retry_after_s;
    let local = match refusal.info.and_then(|info| request.snapshot().denials.get(info)) {
        None => page(refusal.page, None),
        Some(Instead::Page(other, status)) => page(*other, status.or(Some(refusal.page.status()))),
        Some(Instead::Own(name, text, status)) => {
            let facts = about(None).facts(core, request, name);
            let status = status.unwrap_or(refusal.page.status());
            let mut fields = errors::fields(name, errors::HTML, core.now());
            challenge::add(client, request, status, &mut fields);
            let fault = Some(Fault::of_own_page(name));
            let body = template::expand(text, &facts);
            Local { status, fields, body, fault, error: None }
        }
        Some(Instead::Redirect(status, url)) => {
            let facts = Facts { request, server, now_s: core.now().secs() };
            let fault = Some(Fault::of_page(refusal.page, ""));
            Local { fault, ..denied_redirect(&facts, *status, url) }
        }
        Some(Instead::Reset) => {
            let outcome = outcome(refusal.page.status()).without_answer(Cut::Denied);
            return outcome.by_rule(refusal.rule);
        }
    };
    let error = Some(proxy_status(request, refusal.page, &detail));
    let outcome = outcome(local.status);
    let mut local = Local { error, ..local };
    if let Some(seconds) = retry_after_s {
        local.fields.push(FieldName::RetryAfter, seconds.to_string().as_bytes());
    }
    send(transaction, local, outcome).await.by_rule(refusal.rule)
}

/// Whether clients may know which rule refuses them.
fn explains(request: &Request) -> bool {
    request.snapshot().config.explain_refusals && knows_the_proxy(request)
}

/// Whether the client uses a proxy, and knows it. To others, who are the public, a proxy tells
/// nothing about what is behind it.
fn knows_the_proxy(request: &Request) -> bool {
    request.facts().port.mode == PortMode::Forward
}

/// The type of an error for Proxy-Status, and its details for those who may know them.
fn proxy_status(request: &Request, page: ErrorPage, detail: &str) -> (&'static str, String) {
    let detail = if knows_the_proxy(request) { detail } else { "" };
    (page.proxy_error(), detail.to_owned())
}

/// A redirect to this URL.
pub(crate) fn redirect(core: &Core, status: u16, url: &[u8]) -> Local {
    let mut fields = Fields::new();
    fields.push(FieldName::Date, &date::format(core.now().secs()));
    fields.push(FieldName::Location, url);
    fields.push(FieldName::CacheControl, b"no-store");
    Local { status, fields, ..Local::default() }
}

/// The redirect of `deny_info`.
fn denied_redirect(facts: &Facts<'_>, status: Option<u16>, url: &str) -> Local {
    let head = &facts.request.head;
    // A 302 would turn another method into GET.
    let is_get =
        matches!(head.method, Method::Get | Method::Head) || head.version == Version::Http10;
    let status = status.unwrap_or(if is_get { 302 } else { 307 });
    let mut fields = Fields::new();
    fields.push(FieldName::Date, &date::format(facts.now_s));
    fields.push(FieldName::Location, &codes::expand(url, facts));
    fields.push(FieldName::CacheControl, b"no-store");
    fields.push_named(b"X-Squid-Error", b"403 Access Denied");
    Local { status, fields, ..Local::default() }
}

/// The facts about an error that its page tells.
pub(crate) struct About<'a> {
    /// The URL as the client sent it; empty if it could not be read.
    pub(crate) url: &'a [u8],
    /// The error in detail.
    pub(crate) detail: &'a str,
    /// The server that was asked.
    pub(crate) server: Option<SocketAddr>,
    /// The status, if not that of the page.
    pub(crate) status: Option<u16>,
    /// The line of the rule that refuses, if the client may know it.
    pub(crate) rule: Option<&'a RuleSource>,
}

impl<'a> About<'a> {
    /// An error without a server and without a rule.
    pub(crate) fn new(url: &'a [u8], detail: &'a str) -> Self {
        Self { url, detail, server: None, status: None, rule: None }
    }

    fn facts(&self, core: &Core, request: &'a Request, name: &'a str) -> PageFacts<'a> {
        let Self { url, detail, server, rule, .. } = *self;
        // Templates are Squid's, which says nothing about the rule.
        let detail = if rule.is_some() { "" } else { detail };
        PageFacts { request, url, name, detail, server, now_s: core.now().secs() }
    }
}

/// The error page as an answer to `request`.
pub(crate) fn error_answer(core: &Core, request: &Request, page: ErrorPage, detail: &str) -> Local {
    let about = About::new(request.shown_url(), detail);
    error_page(core, request, page, &about)
}

/// The error page about this request: that of a template, or the built-in one as HTML or plain
/// text.
pub(crate) fn error_page(
    core: &Core,
    request: &Request,
    page: ErrorPage,
    about: &About<'_>,
) -> Local {
    // The log has a code of its own for the rule.
    let reason = if about.rule.is_some() { "" } else { about.detail };
    let fault = Some(Fault::of_page(page, reason));
    let form = errors::wanted_form(request.head.fields.list(FieldName::Accept));
    let html = form == Form::Html;
    let pages = &request.snapshot().pages;
    let is_negotiated = html && pages.have_languages();
    let wanted = match is_negotiated {
        true => preferred(&request.head.fields),
        false => Vec::new(),
    };
    let (mut fields, body) = match pages.find(page, html, &wanted) {
        Some(found) => {
            let mut fields = errors::fields(page.name(), errors::HTML, core.now());
            if let Some(language) = found.language {
                fields.push(FieldName::ContentLanguage, language.as_bytes());
            }
            (fields, template::expand(found.text, &about.facts(core, request, page.name())))
        }
        None => built_in(core, page, about, form),
    };
    if is_negotiated {
        fields.push(FieldName::Vary, b"Accept-Language");
    }
    let error = Some(proxy_status(request, page, about.detail));
    Local { status: about.status.unwrap_or(page.status()), fields, body, fault, error }
}

/// Fields and body of the built-in page.
fn built_in(core: &Core, page: ErrorPage, about: &About<'_>, form: Form) -> (Fields, Vec<u8>) {
    let snapshot = core.snapshot();
    let context = ErrorContext {
        page,
        status: about.status.unwrap_or(page.status()),
        rule: about.rule,
        url: about.url,
        detail: about.detail,
        hostname: &snapshot.names.hostname,
        contact: &snapshot.names.contact,
        show_version: !snapshot.config.httpd_suppress_version_string,
        now: core.now(),
    };
    errors::render(&context, form)
}

/// Sends an answer.
pub(crate) async fn send(
    transaction: &mut Transaction<'_>,
    mut local: Local,
    mut outcome: Outcome,
) -> Outcome {
    let request = &**transaction.request;
    let is_bodiless = is_bodiless_status(local.status);
    let length = match is_bodiless {
        true => BodyLength::None,
        false => BodyLength::Known(local.body.len() as u64),
    };
    let client = &mut *transaction.client;
    let head = LocalHead { local: &local, request };
    head::send(client, request, &head, Usage::Local, length);
    let whole = client.keep_body(&local.body).and_then(|()| client.finish(None));
    let sent = match whole {
        Ok(()) => client.flush().await.map_err(Cut::from),
        // The body has just the length that was announced.
        Err(_) => Err(Cut::FetchEnded),
    };
    outcome.fault = local.fault.take();
    if let Some(media_type) = local.fields.get(FieldName::ContentType) {
        outcome.content = Content::Type(media_type.into());
    }
    outcome.end(sent.err());
    outcome
}
