//! Asks helpers about the URL of a request: which one takes its place, and which object it is.

use humboldt_base::seldom::Seldom;
use humboldt_helpers::{NoAnswer, Outcome, Reply};
use humboldt_http::{Method, Url};

use crate::config::rewriting::{Asker, Late};
use crate::core::Core;
use crate::request::Request;
use crate::rules::access::{self, Asks};
use crate::rules::denial::Refusal;
use crate::rules::{external, format};

/// How often the helper is asked again after an answer that was late (`on_timeout=retry`).
const LATE_RETRIES_MAX: usize = 2;

/// Most bytes of the name of an object.
const STORE_ID_BYTES_MAX: usize = 8192;

/// Most bytes of a URL in a message.
const URL_SHOWN_BYTES_MAX: usize = 512;

/// The statuses of a redirect, as in Squid.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// What becomes of the URL of a request.
#[derive(Debug)]
pub(crate) enum Rewritten {
    /// It stays.
    Unchanged,
    /// This one takes its place.
    Url(Url),
    /// The client is sent there, with this status.
    Redirect(u16, Vec<u8>),
}

/// Why the URL of a request cannot be rewritten.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The rules about it have no answer.
    Refused(Refusal),
    /// The helper has none.
    NoAnswer(String),
}

/// Asks the helper of `url_rewrite_program`.
pub(crate) async fn rewrite(core: &Core, request: &Request) -> Result<Rewritten, Failed> {
    let snapshot = request.snapshot();
    let Some(rewriter) = &snapshot.rewriting.rewriter else { return Ok(Rewritten::Unchanged) };
    let asker = &rewriter.asker;
    match access::asks(core, asker.access.as_ref(), request).await {
        Asks::No => return Ok(Rewritten::Unchanged),
        Asks::Yes => {}
        Asks::Unanswered(refusal) => return Err(Failed::Refused(refusal)),
    }
    let retries = if matches!(rewriter.on_timeout, Late::Retry) { LATE_RETRIES_MAX } else { 0 };
    let mut told = ask(asker, request).await;
    for _ in 0..retries {
        if told == Err(NoAnswer::TimedOut) {
            told = ask(asker, request).await;
        }
    }
    let outcome = match (told, &rewriter.on_timeout) {
        (Ok(reply), _) => take(request, &reply),
        (Err(NoAnswer::TimedOut), Late::Bypass) => Ok(Rewritten::Unchanged),
        (Err(NoAnswer::TimedOut), Late::Answer(reply)) => take(request, reply),
        (Err(why), _) => Err(why.to_string()),
    };
    outcome.or_else(|why| {
        static SELDOM: Seldom = Seldom::new();
        warn(&SELDOM, "url_rewrite_program", request, &why);
        match asker.bypass {
            true => Ok(Rewritten::Unchanged),
            // The client need not know what the helper has said.
            false => Err(Failed::NoAnswer("the helper has given no usable answer".to_owned())),
        }
    })
}

/// Says once in a minute that a helper has no usable answer.
pub(crate) fn warn(seldom: &Seldom, directive: &str, request: &Request, why: &str) {
    let Some(others) = seldom.pass(request.received.secs()) else { return };
    let url = request.url.as_bytes();
    let shown = url.get(..URL_SHOWN_BYTES_MAX).unwrap_or(url).escape_ascii();
    match others {
        0 => tracing::warn!("{directive}: {shown}: {why}"),
        _ => tracing::warn!("{directive}: {shown}: {why}; so {others} other requests before it"),
    }
}

/// The name of the object that the helper of `store_id_program` says; `None`: its URL.
///
/// # Errors
/// Nobody knows.
pub(crate) async fn name(core: &Core, request: &Request) -> Result<Option<Box<[u8]>>, String> {
    let snapshot = request.snapshot();
    let Some(asker) = &snapshot.rewriting.namer else { return Ok(None) };
    let has_object =
        !matches!(request.head.method, Method::Connect | Method::Trace | Method::Options);
    if !has_object || request.store_id.is_some() {
        return Ok(None);
    }
    match access::asks(core, asker.access.as_ref(), request).await {
        Asks::No => return Ok(None),
        Asks::Yes => {}
        Asks::Unanswered(_) => return Err("a rule has no answer".to_owned()),
    }
    let reply = ask(asker, request).await.map_err(|why| why.to_string())?;
    external::learn_notes(request, &reply);
    match reply.outcome {
        Outcome::Err => Ok(None),
        Outcome::Ok => match reply.get("store-id") {
            Some(name) if is_name(name) => Ok(Some(name.into())),
            Some(name) => Err(format!("its name is none: {}", name.escape_ascii())),
            None => Ok(None),
        },
        _ => Err(NoAnswer::Unclear.to_string()),
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_text = |byte: &u8| !byte.is_ascii_control() && *byte != b' ';
    !name.is_empty() && name.len() <= STORE_ID_BYTES_MAX && name.iter().all(is_text)
}

/// Sends the URL and the further words.
async fn ask(asker: &Asker, request: &Request) -> Result<Reply, NoAnswer> {
    let snapshot = request.snapshot();
    let helper = snapshot.helpers.get(asker.helper).ok_or(NoAnswer::NotRunning)?;
    let mut line = request.url.as_bytes().to_vec();
    if let Some(extras) = &asker.extras {
        line.push(b' ');
        line.extend_from_slice(&format::early(extras, request));
    }
    helper.ask(&line).await
}

/// What an answer says about the URL.
fn take(request: &Request, reply: &Reply) -> Result<Rewritten, String> {
    external::learn_notes(request, reply);
    match reply.outcome {
        Outcome::Err => Ok(Rewritten::Unchanged),
        Outcome::Ok => match (reply.get("url"), reply.get("rewrite-url")) {
            (Some(url), _) => {
                let status = reply.get("status").map_or(Some(302), number);
                redirect(status, url)
            }
            (None, Some(url)) => replace(request, url),
            (None, None) => Ok(Rewritten::Unchanged),
        },
        Outcome::Unknown => take_old(request, &reply.text),
        Outcome::Broken | Outcome::Challenge => Err(NoAnswer::Unclear.to_string()),
    }
}

/// The old form of answers: a URL, or `30N:URL`. Some helpers send the whole line back: only its
/// first word counts. A group in front (`!GROUP!URL`) has no meaning any more.
fn take_old(request: &Request, text: &[u8]) -> Result<Rewritten, String> {
    let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    let word = match word.strip_prefix(b"!") {
        Some(rest) => match rest.iter().position(|byte| *byte == b'!') {
            Some(end) => rest.get(end + 1..).unwrap_or_default(),
            None => word,
        },
        None => word,
    };
    match word.split_at_checked(4) {
        Some((status, url)) if status.ends_with(b":") => {
            match number(&status[..3]).filter(|status| REDIRECTS.contains(status)) {
                Some(status) => redirect(Some(status), url),
                None => replace(request, word),
            }
        }
        _ if word.is_empty() => Ok(Rewritten::Unchanged),
        _ => replace(request, word),
    }
}

fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn redirect(status: Option<u16>, url: &[u8]) -> Result<Rewritten, String> {
    let is_text = |byte: &u8| !byte.is_ascii_control();
    match status.filter(|status| REDIRECTS.contains(status)) {
        Some(status) if !url.is_empty() && url.iter().all(is_text) => {
            Ok(Rewritten::Redirect(status, url.to_vec()))
        }
        Some(_) => Err("the URL of its redirect is none".to_owned()),
        None => Err("the status of its redirect is none".to_owned()),
    }
}

/// The URL that takes the place of the request's.
fn replace(request: &Request, text: &[u8]) -> Result<Rewritten, String> {
    if text == request.url.as_bytes() {
        return Ok(Rewritten::Unchanged);
    }
    let mut url = Url::default();
    // A blank of an answer that was percent-encoded is written so again; other bytes beyond ASCII
    // are as the client may have sent them.
    let encoded = text.iter().flat_map(|byte| match byte {
        b' ' => b"%20",
        other => std::slice::from_ref(other),
    });
    let text: &[u8] = &encoded.copied().collect::<Vec<u8>>();
    let is_text = !text.iter().any(u8::is_ascii_control);
    let set = match request.head.method {
        Method::Connect => url.set_authority(text),
        _ => url.set_absolute(text),
    };
    match is_text && set.is_ok() {
        true if url.as_bytes() == request.url.as_bytes() => Ok(Rewritten::Unchanged),
        true => Ok(Rewritten::Url(url)),
        false => Err(format!("its URL is none: {}", text.escape_ascii())),
    }
}
