//! PURGE: one URL, everything with a tag, or everything below a prefix.
//! Its manual is [docs/purging.md](../../../docs/purging.md).

use std::rc::Rc;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_runtime::turns;
use humboldt_store::purges::{PURGE_BYTES_MAX, cache_tags, surrogate_keys};
use humboldt_store::{Purge, Purged};

use crate::core::Core;
use crate::reply::local::Local;
use crate::request::Request;
use crate::storing::invalidate;

/// Most tags of one request.
const TAGS_MAX: usize = 256;

/// The subject of a PURGE.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Url,
    Tags(Vec<Purge>),
    Prefix(Purge),
}

/// The text for [`Purged::Owed`].
const NOT_LASTING: &[u8] = b"Purged for now only: a cache_dir could not write it down, as cache.log says. It is not used until that has \
been made up for; but after a restart it may have what was purged.\n";

/// How long a PURGE waits for the cache directories.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The text for a directory that does not answer in time.
const NOT_WRITTEN: &[u8] = b"Purged for now only: a cache_dir did not answer in time. Nobody gets what was purged, and it is removed \
from there as soon as that is possible; but if the proxy ends before, it may have it after a restart. Repeat the request to be sure.\n";

/// Most purges in progress on one core. They wait for disks, and continue if their clients leave.
const UNDER_WAY_MAX: usize = 1024;

/// Carries out a PURGE in a task of its own. It finishes even if the client leaves: half a purge
/// would be worse than none, and not every client reads the answer.
pub(crate) async fn answer(core: &Rc<Core>, request: &Rc<Request>) -> Local {
    let under_way = Rc::clone(&core.purges_under_way);
    // Each purge holds one reference, and the core holds one.
    if Rc::strong_count(&under_way) > UNDER_WAY_MAX + 1 {
        return text(503, b"Not purged: too many purges wait for a disk.\n".to_vec());
    }
    let (its_core, its_request) = (Rc::clone(core), Rc::clone(request));
    let purge = turns::spawn_local(async move {
        let local = carry_out(&its_core, &its_request).await;
        drop(under_way);
        local
    });
    purge.await.unwrap_or_else(|_| text(500, b"Not purged: the proxy ends.\n".to_vec()))
}

/// Carries out a PURGE. A PURGE of a URL gets 200 if the URL was stored and 404 if not, as in
/// Squid; 500 if a crash could bring it back; 503 if a directory takes longer than [`WAIT_MAX`] to
/// remove it.
async fn carry_out(core: &Core, request: &Request) -> Local {
    let (purges, counter) = match wanted(request) {
        Ok(Wanted::Url) => {
            core.count(Counter::Purges, 1);
            let purged = tokio::time::timeout(WAIT_MAX, core.shared.cache.purge(request.key)).await;
            return match purged {
                Ok(Purged::Found) => Local { status: 200, ..Local::default() },
                Ok(Purged::Absent) => Local { status: 404, ..Local::default() },
                Ok(Purged::Owed) => text(500, NOT_LASTING.to_vec()),
                Err(_) => {
                    tracing::warn!(
                        "a PURGE did not get through to a cache_dir within {} s",
                        WAIT_MAX.as_secs()
                    );
                    invalidate::remove_behind(core, core.shared.cache.void(request.key)).await;
                    text(503, NOT_WRITTEN.to_vec())
                }
            };
        }
        Ok(Wanted::Tags(tags)) => (tags, Counter::TagPurges),
        Ok(Wanted::Prefix(prefix)) => (vec![prefix], Counter::PrefixPurges),
        Err(why) => return text(400, format!("Not purged: {why}.\n").into_bytes()),
    };
    match core.shared.cache.purges().register(purges.clone()).await {
        Ok(()) => {
            core.count(counter, purges.len() as u64);
            text(200, purges.iter().flat_map(line).collect())
        }
        Err(error) => {
            tracing::error!("not purged: {error}");
            text(500, format!("Not purged: {error}.\n").into_bytes())
        }
    }
}

fn text(status: u16, body: Vec<u8>) -> Local {
    Local::page(status, "text/plain", body)
}

fn line(purge: &Purge) -> Vec<u8> {
    let (kind, bytes): (&[u8], _) = match purge {
        Purge::Tag(tag) => (b"Purged tag: ", tag),
        Purge::Prefix(prefix) => (b"Purged prefix: ", prefix),
    };
    [kind, bytes, b"\n"].concat()
}

/// The subject of a PURGE, from the fields of the request. An unclear one is refused.
fn wanted(request: &Request) -> Result<Wanted, String> {
    let values = |wanted: &'static [u8]| {
        let named = move |name: &[u8]| name.eq_ignore_ascii_case(wanted);
        request
            .head
            .fields
            .iter()
            .filter(move |(_, name, _)| named(name))
            .map(|(_, _, value)| value)
    };
    let mut methods = values(b"x-purge-method");
    let method = methods.next();
    if methods.next().is_some() {
        return Err("X-Purge-Method is there twice".into());
    }
    let is_prefix = match method {
        None => false,
        Some(method) if method.eq_ignore_ascii_case(b"prefix") => true,
        Some(method) if method.eq_ignore_ascii_case(b"exact") => false,
        Some(method) => {
            let method = method.escape_ascii();
            return Err(format!("X-Purge-Method is exact or prefix, not \"{method}\""));
        }
    };
    let keys = values(b"surrogate-key").flat_map(surrogate_keys);
    let tags: Vec<&[u8]> = keys.chain(values(b"cache-tag").flat_map(cache_tags)).collect();
    let has_tags = values(b"surrogate-key").chain(values(b"cache-tag")).next().is_some();
    match (has_tags, method) {
        (true, Some(_)) => Err("Surrogate-Key and Cache-Tag do not go with X-Purge-Method".into()),
        (true, None) if tags.is_empty() => {
            Err("there is no tag in Surrogate-Key or Cache-Tag".into())
        }
        (true, None) if tags.len() > TAGS_MAX => Err(format!("more than {TAGS_MAX} tags")),
        (true, None) => tags_of(&tags),
        (false, _) if is_prefix => match Purge::prefix(request.url.as_bytes()) {
            Some(prefix) => Ok(Wanted::Prefix(prefix)),
            None => Err(format!("the URL is longer than {PURGE_BYTES_MAX} bytes")),
        },
        (false, _) => Ok(Wanted::Url),
    }
}

fn tags_of(tags: &[&[u8]]) -> Result<Wanted, String> {
    let purges: Option<Vec<Purge>> = tags.iter().map(|tag| Purge::tag(tag)).collect();
    let why = || format!("a tag is longer than {PURGE_BYTES_MAX} bytes, or has control characters");
    purges.map(Wanted::Tags).ok_or_else(why)
}
