//! Looks up answers on disk, and decides whether they may be served.

use std::rc::Rc;

use humboldt_base::counters::Counter;
use humboldt_freshness::Disposition;
use humboldt_logs::access::Tag;
use humboldt_store::disk::{DiskEntry, DiskHit, Lookup};
use humboldt_store::{Entry, Held, Key, PARTIAL};

use crate::config::cache_status::Forward;
use crate::core::Core;
use crate::fetch::job::{Stale, StaleBody};
use crate::lookup::judge_age;
use crate::lookup::memory::{self, Found, HitObject};
use crate::lookup::parts;
use crate::lookup::selection::has_several_ranges;
use crate::request::Request;
use crate::rules::access;

/// The result of a look-up on disk.
pub(crate) enum Stored {
    /// An answer to serve.
    Object(HitObject),
    /// An answer that is too large for memory, to be streamed.
    Stream(Box<DiskHit>),
    /// An answer that may not be served as it is: `Found` says how to continue.
    Judged,
}

/// Looks a request up in the cache directories. `None`: nothing is stored there.
pub(crate) async fn look_up(
    core: &Rc<Core>,
    request: &Rc<Request>,
    found: &mut Found,
) -> Option<Stored> {
    let cache = &core.shared.cache;
    let mut key = found.key?;
    // A Vary marker leads to a second look-up, never to a third.
    for _ in 0..2 {
        let entry = match cache.open(request.key, &key, request.cache_url()).await {
            Lookup::Absent => return None,
            Lookup::Found(entry) => entry,
            Lookup::Failed => {
                core.count(Counter::SwapInErrors, 1);
                found.swap_failed = true;
                return None;
            }
        };
        match entry {
            DiskEntry::Object(hit) => return Some(judge(core, request, hit, found).await),
            DiskEntry::Vary(marker) => {
                key = memory::variant_key(request, &marker);
                found.key = Some(key);
                found.forward = Forward::VaryMiss;
                if let Some(Entry::Object(_)) = cache.lookup(&key) {
                    return Some(look_up_again(core, request, found));
                }
            }
        }
    }
    None
}

/// Whether an answer on disk would be a hit, for one who only wants to know: nothing of it is read
/// into memory, and it does not count as used. A stale one is a hit with `also_stale`.
pub(crate) async fn would_be_hit(
    core: &Rc<Core>,
    request: &Request,
    mut key: Key,
    also_stale: bool,
) -> bool {
    let cache = &core.shared.cache;
    for _ in 0..2 {
        match cache.open(request.key, &key, request.cache_url()).await {
            Lookup::Found(DiskEntry::Object(hit)) => {
                let may_serve = access::may_send_hit(request, &hit.head)
                    && hit.head.status != PARTIAL
                    && hit.is_complete()
                    && !memory::needs_origin(request);
                return may_serve
                    && match judge_age(request, &hit.times) {
                        Disposition::Fresh => true,
                        Disposition::StaleWhileRevalidate | Disposition::Revalidate { .. } => {
                            also_stale
                        }
                        Disposition::Refetch | Disposition::GatewayTimeout => false,
                    };
            }
            Lookup::Found(DiskEntry::Vary(marker)) => {
                key = memory::variant_key(request, &marker);
                if let Some(Entry::Object(_)) = cache.lookup(&key) {
                    return match memory::look_up(core, request) {
                        Ok(_) => true,
                        Err(found) => also_stale && found.stale.is_some(),
                    };
                }
            }
            Lookup::Absent | Lookup::Failed => return false,
        }
    }
    false
}

/// Decides what to do with an answer on disk.
async fn judge(
    core: &Rc<Core>,
    request: &Rc<Request>,
    mut hit: DiskHit,
    found: &mut Found,
) -> Stored {
    if !access::may_send_hit(request, &hit.head) {
        *found = Found { key: found.key, ..Found::passed_over() };
        return Stored::Judged;
    }
    if hit.head.status == PARTIAL {
        match hit.into_object(&core.shared.cache).await {
            Some(list) => *found = parts::judge(request, list.key, list),
            None => found.swap_failed = true,
        }
        return Stored::Judged;
    }
    if !hit.is_complete() || memory::needs_origin(request) {
        (found.pass, found.forward) = (true, Forward::Request);
        return Stored::Judged;
    }
    let disposition = judge_age(request, &hit.times);
    let body_bytes = hit.body_bytes().unwrap_or(0);
    let needs_pages = disposition != Disposition::Fresh || has_several_ranges(request);
    // An answer for which memory has no room now is streamed, like a larger one.
    let small = body_bytes <= core.shared.cache.memory_object_bytes_max()
        && hit.reserve(&core.shared.cache, needs_pages);
    core.count(Counter::SwapIns, 1);
    core.count(Counter::SwapInBytes, body_bytes);
    match disposition {
        Disposition::Refetch => found.reload = true,
        Disposition::GatewayTimeout => found.refuse = true,
        Disposition::Fresh if small => match hold(core, request, hit).await {
            Some(object) => return Stored::Object(HitObject::new(object, Tag::Hit)),
            None => {
                core.count(Counter::SwapInErrors, 1);
                found.swap_failed = true;
            }
        },
        Disposition::Fresh => {
            hit.count_memory(&core.shared.cache);
            return Stored::Stream(Box::new(hit));
        }
        Disposition::StaleWhileRevalidate | Disposition::Revalidate { .. } => {
            found.serve_stale = small && disposition == Disposition::StaleWhileRevalidate;
            let may_serve_on_error = match disposition {
                Disposition::Revalidate { may_serve_stale_on_error } => may_serve_stale_on_error,
                _ => true,
            };
            let since = Some(Box::new(hit.since()));
            let body = stale(core, hit, small).await;
            found.stale = body.map(|body| Stale { body, may_serve_on_error, since });
            found.serve_stale &= found.stale.is_some();
            found.swap_failed = found.stale.is_none();
        }
    }
    Stored::Judged
}

/// The whole answer. `None`: it cannot be read, or memory is short.
async fn hold(core: &Core, request: &Request, hit: DiskHit) -> Option<Held> {
    let cache = &core.shared.cache;
    // Several ranges can be put together only from an object in memory.
    match has_several_ranges(request) {
        true => hit.into_object(cache).await.map(Held::Memory),
        false => hit.hold(cache).await,
    }
}

async fn stale(core: &Rc<Core>, mut hit: DiskHit, small: bool) -> Option<StaleBody> {
    let cache = &core.shared.cache;
    if small {
        return hit.into_object(cache).await.map(StaleBody::Memory);
    }
    hit.count_memory(cache);
    Some(StaleBody::Disk(Box::new(hit)))
}

/// Repeats the look-up in memory after a Vary marker was read from disk.
fn look_up_again(core: &Core, request: &Request, found: &mut Found) -> Stored {
    match memory::look_up(core, request) {
        Ok(hit) => Stored::Object(hit),
        Err(newer) => {
            *found = newer;
            Stored::Judged
        }
    }
}
