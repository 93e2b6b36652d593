//! Stored answers that become void: after unsafe methods, and after answers that show that they are
//! unusable.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_freshness as freshness;
use humboldt_http::{FieldName, Url};
use humboldt_runtime::turns;
use humboldt_store::{About, FlowWriter, Key, Voiding};

use crate::core::Core;
use crate::fetch::converse::Answer;
use crate::fetch::job::{Job, Stale};

/// Makes stored answers void after an unsafe method succeeded: answers of the URL, and answers that
/// Location and Content-Location name on the same host (RFC 9111 4.4). The returned flow is for the
/// answer itself, which may be stored in their place.
pub(crate) async fn after_unsafe_method(
    core: &Core,
    job: &Job,
    answer: &Answer,
) -> Option<FlowWriter> {
    let (request, head) = (&*job.request, &answer.head);
    // What a server says that is not known to be the one is nothing to the others.
    let is_own = request.is_not_for_others() || answer.has_faults();
    if is_own || !freshness::invalidates(request.head.method, head.status) {
        return None;
    }
    core.count(Counter::Purges, 1);
    for name in [FieldName::Location, FieldName::ContentLocation] {
        let Some(reference) = head.fields.get(name) else { continue };
        if let Some(url) = same_host(&request.url, reference) {
            let key = request.snapshot().rewriting.key_of(url.as_bytes());
            remove_behind(core, core.shared.cache.void(key)).await;
        }
    }
    let (writer, voiding) = core.shared.cache.void_for(request.key, job.purge_number);
    remove_behind(core, voiding).await;
    Some(writer)
}

/// Makes all stored answers of a URL void, because they are unusable.
pub(crate) async fn forget_all(core: &Core, key: Key) {
    remove_behind(core, core.shared.cache.void(key)).await;
}

/// Removes void answers from all indexes now. Their removal from disk continues in the background,
/// so that no answer waits for a disk.
pub(crate) async fn remove_behind(core: &Core, voiding: Voiding) {
    let cache = Arc::clone(&core.shared.cache);
    // The first poll must finish its part, so tokio must not interrupt it for its budget.
    let removal = tokio::task::unconstrained(async move { cache.remove_void(voiding).await });
    let mut removal = Box::pin(removal);
    let is_pending =
        std::future::poll_fn(|cx| Poll::Ready(removal.as_mut().poll(cx).is_pending())).await;
    if is_pending {
        turns::spawn_local(removal);
    }
}

/// The URL of `reference`, if it is on the same host.
pub(crate) fn same_host(base: &Url, reference: &[u8]) -> Option<Url> {
    let mut url = Url::default();
    if reference.starts_with(b"/") && !reference.starts_with(b"//") {
        url.set_parts(base.scheme(), base.authority(), reference).ok()?;
    } else {
        url.set_absolute(reference).ok()?;
    }
    (url.authority() == base.authority() && url.scheme() == base.scheme()).then_some(url)
}

/// A stored answer that was to be validated or served; `None` if it has been purged meanwhile, or a
/// newer one has become complete. Call it when the flow for the answer
/// exists: from then on, a request that would join the flow checks for later purges itself, and
/// joins no flow that is older than a complete answer.
pub(crate) fn unless_void(core: &Core, stale: Option<Stale>) -> Option<Stale> {
    let cache = &core.shared.cache;
    stale.filter(|stale| {
        let about: About<'_> = stale.body.about();
        !cache.is_purged(about.times, about.url, about.head)
            && !stale.since.as_ref().is_some_and(|since| cache.is_void(since, &about.key))
    })
}
