//! The servers.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use humboldt_exchange::memory::{Asked, Server};
use humboldt_http::h1;
use humboldt_http::{FieldName, HeadLimits, ResponseHead};

use crate::bodies::Body;
use crate::chance::Chance;
use crate::clock;
use crate::plan::Plan;
use crate::site::{Resource, Scope, Site};
use crate::trace;

/// How a server lets its client down.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The connection breaks before the head.
    BreaksEarly,
    /// It breaks within the body.
    BreaksLate,
    /// The answer is an error.
    Error,
    /// Nothing comes any more.
    Silent,
}

/// Answers one request.
pub(crate) async fn serve(
    site: Rc<Site>,
    plan: Rc<Plan>,
    peer: SocketAddr,
    server: Server,
    mut chance: Chance,
) {
    let troubled = Cell::new(None);
    let told = async {
        let asked = server.asked().await;
        answer(&site, &plan, &server, &asked, &troubled, &mut chance).await;
    };
    tokio::pin!(told);
    tokio::select! {
        biased;
        () = server.given_up() => {}
        () = &mut told => server.given_up().await,
    }
    // What was broken or silent until now.
    if let Some(resource) = troubled.take() {
        site.resources[resource].is_in_trouble();
    }
    trace::line(|| format!("server {peer}: over"));
}

async fn answer(
    site: &Site,
    plan: &Plan,
    server: &Server,
    asked: &Asked,
    troubled: &Cell<Option<usize>>,
    chance: &mut Chance,
) {
    let host = asked.fields.get(FieldName::Host).unwrap_or_default();
    let Some(resource) = site.find(host, &asked.url) else {
        let url = String::from_utf8_lossy(&asked.url);
        site.wrong(format!("a server was asked for {url} of {}", String::from_utf8_lossy(host)));
        return server.fail();
    };
    tokio::time::sleep(chance.delay(plan.server_ms)).await;
    let fault = match chance.per_mille(plan.server_fails_per_mille) {
        false => Fault::None,
        true => {
            resource.is_in_trouble();
            troubled.set(Some(resource.number));
            chance.one(&[Fault::BreaksEarly, Fault::BreaksLate, Fault::Error, Fault::Silent])
        }
    };
    let is_safe = matches!(&*asked.method, b"GET" | b"HEAD");
    let is_early = !is_safe && fault == Fault::None && chance.per_mille(plan.early_per_mille);
    if is_early && asked.length.has_body() {
        return answer_early(site, plan, server, resource, asked, chance).await;
    }
    if !is_safe {
        let upload = if asked.length.has_body() { server.upload().await } else { Vec::new() };
        check_upload(site, asked, &upload);
    }
    match fault {
        Fault::BreaksEarly => return server.fail(),
        Fault::Silent => return std::future::pending().await,
        Fault::Error => {
            let status = chance.one(&[500, 502, 503]);
            return say_briefly(server, status, "", b"Sorry");
        }
        Fault::None | Fault::BreaksLate => {}
    }
    if !is_safe {
        let version = resource.change();
        tokio::time::sleep(chance.delay(plan.server_ms)).await;
        return say_briefly(server, 200, &format!("X-Version: {version}\r\n"), b"Done");
    }
    reply(plan, server, resource, asked, fault == Fault::BreaksLate, chance).await;
}

/// Answers a POST before all of its body is there, and takes the rest of it or not.
async fn answer_early(
    site: &Site,
    plan: &Plan,
    server: &Server,
    resource: &Resource,
    asked: &Asked,
    chance: &mut Chance,
) {
    let body = crate::client::upload(number(asked, b"X-Id"));
    let part = server.upload_part(chance.below(body.bytes + 1) as usize).await;
    if body.differs(0, &part).is_some() {
        let id = number(asked, b"X-Id");
        site.wrong(format!("the body of request {id} arrives wrong"));
    }
    site.totals.add("early answers", 1);
    let version = resource.change();
    let text = format!("X-Version: {version}\r\nContent-Length: 8\r\n");
    server.send_head(head(200, &text));
    server.send_body(b"Done");
    match chance.below(4) {
        // The rest of the answer comes behind the rest of the body.
        0 => check_upload(site, asked, &server.upload().await),
        1 => {}
        2 => server.stop_taking(),
        _ => server.refuse_more(),
    }
    tokio::time::sleep(chance.delay(plan.server_ms)).await;
    server.send_body(b"Done");
    server.end(None);
}

fn check_upload(site: &Site, asked: &Asked, upload: &[u8]) {
    let id = number(asked, b"X-Id");
    let body = crate::client::upload(id);
    if body.differs(0, upload).is_some() || upload.len() as u64 != body.bytes {
        site.wrong(format!("the body of request {id} arrived wrong, {} bytes", upload.len()));
    }
}

/// The number in a field of a request.
fn number(asked: &Asked, name: &[u8]) -> u64 {
    let value = asked.fields.get_by_name(name).unwrap_or_default();
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Sends what the resource is now.
async fn reply(
    plan: &Plan,
    server: &Server,
    resource: &Resource,
    asked: &Asked,
    breaks: bool,
    chance: &mut Chance,
) {
    let (version, id) = (resource.version(), number(asked, b"X-Id"));
    let variant = number(asked, b"X-Variant") as usize;
    let body = resource.body(version, variant, id);
    let etag = etag(version, variant);
    let is_current = asked.fields.get(FieldName::IfNoneMatch).is_some_and(|tags| {
        let tags = String::from_utf8_lossy(tags);
        resource.has_etag && tags.split(',').any(|tag| tag.trim() == etag)
    });
    trace::line(|| {
        let method = String::from_utf8_lossy(&asked.method).into_owned();
        let range = asked.fields.get(FieldName::Range).map(String::from_utf8_lossy);
        let fault = if breaks { ", breaks" } else { "" };
        let tags = asked.fields.get(FieldName::IfNoneMatch).map(String::from_utf8_lossy);
        let url = &resource.url;
        format!("server: {method} {url} {range:?} {tags:?} for {id}: version {version}{fault}")
    });
    let about = fields(resource, version, variant, id);
    if is_current {
        server.send_head(head(304, &about));
        return server.end(None);
    }
    let range = range(resource, asked, &etag, body);
    let (from, to) = range.unwrap_or((0, body.bytes));
    let mut lines = about;
    if range.is_some() {
        lines += &format!("Content-Range: bytes {from}-{}/{}\r\n", to - 1, body.bytes);
    }
    let is_head = *asked.method == *b"HEAD";
    if !resource.is_chunked || is_head || range.is_some() {
        lines += &format!("Content-Length: {}\r\n", to - from);
    }
    server.send_head(head(if range.is_some() { 206 } else { 200 }, &lines));
    if is_head {
        return server.end(None);
    }
    send(plan, server, body, (from, to), breaks, chance).await;
}

async fn send(
    plan: &Plan,
    server: &Server,
    body: Body,
    (from, to): (u64, u64),
    breaks: bool,
    chance: &mut Chance,
) {
    let break_at = if breaks { from + chance.below(to - from + 1) } else { u64::MAX };
    let (mut at, piece) = (from, chance.one(&[1_000, 16_384, 50_000, 400_000]));
    while at < to {
        if chance.per_mille(100) {
            tokio::time::sleep(chance.delay(plan.server_ms)).await;
        }
        let end = (at + piece).min(to).min(break_at);
        server.send_body(&body.part(at, end));
        at = end;
        if at == break_at {
            return server.fail();
        }
    }
    if breaks { server.fail() } else { server.end(None) }
}

/// The range of the body that was requested, if it is to be sent.
fn range(resource: &Resource, asked: &Asked, etag: &str, body: Body) -> Option<(u64, u64)> {
    let wanted = asked.fields.get(FieldName::Range).filter(|_| resource.has_ranges)?;
    if let Some(only_if) = asked.fields.get(FieldName::IfRange)
        && (only_if != etag.as_bytes() || !resource.has_etag)
    {
        return None;
    }
    let wanted = std::str::from_utf8(wanted).ok()?.strip_prefix("bytes=")?;
    let (from, to) = wanted.split_once('-')?;
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(last)) => (from, last.saturating_add(1)),
        (Ok(from), Err(_)) => (from, body.bytes),
        (Err(_), Ok(last)) => (body.bytes.saturating_sub(last), body.bytes),
        (Err(_), Err(_)) => return None,
    };
    let to = to.min(body.bytes);
    (from < to).then_some((from, to))
}

/// The entity tag of a version.
pub(crate) fn etag(version: u32, variant: usize) -> String {
    format!("\"{version}-{variant}\"")
}

/// A short answer that is not about a version.
fn say_briefly(server: &Server, status: u16, lines: &str, body: &[u8]) {
    let lines = format!("{lines}Content-Length: {}\r\n", body.len());
    server.send_head(head(status, &lines));
    server.send_body(body);
    server.end(None);
}

/// A head: its status and its fields, each with its line end.
fn head(status: u16, lines: &str) -> ResponseHead {
    let text = format!("HTTP/1.1 {status} Text\r\n{lines}\r\n");
    let mut head = ResponseHead::default();
    let parsed = h1::parse_response(text.as_bytes(), &HeadLimits::default(), &mut head);
    assert_eq!(parsed, Ok(Some(text.len())), "{text}");
    head
}

/// The fields that all answers about a version have.
fn fields(resource: &Resource, version: u32, variant: usize, id: u64) -> String {
    let now = clock::truth();
    let date = humboldt_http::date::format(now.secs());
    let mut lines = format!(
        "Date: {}\r\nX-Version: {version}\r\nX-Born: {}\r\nX-For: {id}\r\nX-Secret: 1\r\nSurrogate-Key: {}\r\n",
        String::from_utf8_lossy(&date),
        now.0,
        resource.tag,
    );
    if resource.varies {
        lines += &format!("Vary: X-Variant\r\nX-Served-Variant: {variant}\r\n");
    }
    let age = resource.lifetime_s;
    lines += &match resource.scope {
        Scope::Public => format!("Cache-Control: max-age={age}"),
        Scope::Confirmed => format!("Cache-Control: no-cache, max-age={age}"),
        Scope::Private => format!("Cache-Control: private, max-age={age}"),
        Scope::NoStore => "Cache-Control: no-store".into(),
    };
    if resource.stale_s > 0 {
        lines += &format!(", stale-while-revalidate={}", resource.stale_s);
    }
    lines += "\r\n";
    if resource.has_etag {
        lines += &format!("ETag: {}\r\n", etag(version, variant));
    }
    lines
}
