//! Stores answers in memory and in cache directories.

use std::rc::Rc;
use std::sync::Arc;

use humboldt_base::counters::Counter;
use humboldt_http::FieldName;
use humboldt_runtime::turns;
use humboldt_store::scheme::Record;
use humboldt_store::{
    Dir, Fate, FlowReader, FlowWriter, ReaderKind, SwapOutError, VaryMarker, Writing,
};

use crate::core::Core;
use crate::fetch::job::Job;

/// Writes a flow to a cache directory, from its first byte. The Vary marker is written at the same
/// time: if that takes long, neither the body nor its readers must wait.
pub(crate) fn swap_out(
    core: &Rc<Core>,
    dir: Arc<Dir>,
    reader: FlowReader,
    record: Record,
    marker: Option<(Arc<VaryMarker>, Writing)>,
) {
    let epoch = reader.flow().epoch();
    let core = Rc::clone(core);
    turns::spawn_local(async move {
        let (cache, times) = (&core.shared.cache, record.times);
        let write_marker = async {
            if let Some((marker, _writing)) = marker
                && cache.is_to_be_written(epoch, &marker)
            {
                _ = cache.write_vary(epoch, &marker, times).await;
            }
        };
        let ((), outcome) = tokio::join!(write_marker, cache.swap_out(reader, record, dir));
        count_swap_out(&core, outcome);
    });
}

fn count_swap_out(core: &Core, outcome: Result<u64, SwapOutError>) {
    match outcome {
        Ok(bytes) => {
            core.count(Counter::SwapOuts, 1);
            core.count(Counter::SwapOutBytes, bytes);
        }
        Err(error) => {
            if matches!(error, SwapOutError::Scheme(_)) {
                core.count(Counter::SwapOutErrors, 1);
            }
            tracing::debug!("not written to disk: {error}");
        }
    }
}

/// Stores an answer whose whole body arrived with its head, if its client can be served without a
/// copy in memory. `false`: the answer must be received as usual.
pub(crate) async fn store_lending(
    core: &Rc<Core>,
    job: &Job,
    writer: &mut FlowWriter,
    dir: &Arc<Dir>,
    body: &[u8],
) -> bool {
    let (cache, url) = (&core.shared.cache, job.request.cache_url());
    // A task cuts ranges out of a flow, and may take its time; and so may a list that waits. The
    // memory of the scheme would stay meanwhile.
    let rules = job.request.snapshot().reply_rules.as_ref();
    let may_wait = rules.is_some_and(|rules| rules.access_may_wait);
    if may_wait || job.request.head.fields.has(FieldName::Range) {
        return false;
    }
    let Some(head) = cache.store_lending(writer, url, dir, body) else { return false };
    drop(writer.take_place());
    if let Some(about) = head.about(url, body.len() as u64) {
        count_swap_out(core, cache.finish_write(writer.epoch(), &about, dir).await);
    }
    true
}

/// Stores an answer whose body is complete: in memory, and in the directory that waits for it.
pub(crate) async fn store(core: &Rc<Core>, job: &Job, writer: FlowWriter, dir: Option<Arc<Dir>>) {
    let cache = &core.shared.cache;
    let Some(head) = writer.flow().published() else { return };
    let (epoch, key, writing) = (writer.epoch(), head.info.key, writer.writing());
    let is_for_memory = matches!(head.info.fate(), Fate::Memory { .. });
    let is_newest = || cache.is_newest(epoch, &key);
    // Until the directory has written it, requests find it in flight.
    let until_written = dir.as_ref().and_then(|_| writer.subscribe(ReaderKind::Disk));
    let place = writer.take_place();
    let stored = cache.store(writer, job.request.cache_url(), dir.as_deref());
    if stored.as_ref().is_some_and(|stored| stored.in_memory) {
        core.count(Counter::MemoryStores, 1);
    }
    match (stored, dir) {
        // No directory takes it. Their stored answer is outdated now; so is one that they will find
        // when they have read their indexes.
        (_, None) if cache.has_dirs() && is_newest() && is_for_memory => {
            if let (Some(marker), Some(times)) = (&head.info.vary, head.info.times) {
                _ = Box::pin(cache.write_vary(epoch, marker, times)).await;
            }
            cache.remove_from_disk(&key).await;
        }
        (_, None) => {}
        (Some(stored), Some(dir)) if stored.on_disk => {
            drop(place);
            count_swap_out(core, cache.finish_write(epoch, &stored.object.about(), &dir).await);
        }
        (Some(stored), Some(dir)) => {
            let core = Rc::clone(core);
            turns::spawn_local(async move {
                let cache = &core.shared.cache;
                let outcome = cache.write_object(epoch, &stored.object, dir, place).await;
                count_swap_out(&core, outcome);
                drop(writing); // before those go on who wait for it
                drop(until_written);
            });
        }
        // Memory was too short to keep the answer whole. The answer on disk is outdated
        // nevertheless.
        (None, Some(_)) if is_newest() => drop(cache.remove_from_disk(&key).await),
        (None, Some(_)) => {}
    }
}
