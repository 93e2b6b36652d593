//! Removing objects for good: the beginning of every slot that holds one is overwritten. A purge is
//! answered when that is done; the removal of an object that a younger one has replaced is not
//! waited for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use humboldt_store::Key;
use humboldt_store::index::IndexKey;
use humboldt_store::scheme::SchemeError;
use tokio::sync::oneshot;

use super::device::Pass;
use super::dir::Dir;
use super::rebuild::Rebuild;
use super::slots::{Run, Tag};
use crate::block::replied;

/// A purge waits no longer than this for a write that is under way.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A slot to be overwritten, which belongs to the purge meanwhile.
struct Claim {
    slot: u32,
    /// Whose objects may begin in it.
    tags: Vec<Tag>,
    /// The slots that are given back afterwards.
    runs: Vec<Run>,
}

impl Claim {
    fn of(slot: u32, tags: Vec<Tag>) -> Self {
        Self { slot, tags, runs: vec![Run { start: slot, len: 1 }] }
    }
}

/// The result of one look at the directory.
#[derive(Default)]
struct Step {
    was_there: bool,
    /// The ends of the writes that were begun.
    writes: Vec<oneshot::Receiver<Result<(), SchemeError>>>,
    /// Something of this key is being written just now.
    must_wait: bool,
}

/// Removes a key: neither a reader nor a crash brings it back. From the first poll on no look-up
/// finds it, also during a rebuild; the wait for disks comes after that.
pub(crate) async fn remove(dir: &Arc<Dir>, key: &Key) -> Result<bool, SchemeError> {
    dir.device.in_service()?;
    let key = IndexKey::from(key);
    let mut to_forget = Some(dir.rebuild.forget(dir, Tag::from(key)));
    let mut was_there = false;
    loop {
        let mut changed = pin!(dir.changed.notified());
        changed.as_mut().enable();
        let step = step(dir, key)?;
        was_there |= step.was_there;
        // Having waited for the log of the rebuild, it looks again.
        let is_logged = match to_forget.take() {
            Some(forgotten) => Rebuild::logged(dir, forgotten?).await?,
            None => false,
        };
        if step.writes.is_empty() && !step.must_wait && !is_logged {
            return Ok(was_there);
        }
        for write in step.writes {
            replied(&*dir.device.file, write).await.unwrap_or(Err(SchemeError::Down))?;
        }
        if step.must_wait {
            let waited = tokio::time::timeout(WAIT_MAX, changed).await;
            waited.map_err(|_| SchemeError::Busy("the object is being written"))?;
        }
    }
}

fn step(dir: &Arc<Dir>, key: IndexKey) -> Result<Step, SchemeError> {
    let pass = dir.device.pass()?;
    let tag = Tag::from(key);
    let mut step = Step::default();
    let claims = {
        let mut changes = dir.lock_key(key);
        *changes += 1;
        let removed = dir.index.remove(key);
        let mut slots = dir.slots.lock();
        let mut claims = Vec::new();
        for slot in slots.stale_of(tag) {
            match slots.take_exactly(slot) {
                Some(tags) => claims.push(Claim::of(slot, tags)),
                None => step.must_wait = true,
            }
        }
        if let Some(entry) = removed {
            step.was_there = true;
            slots.add_stale(tag, entry.file);
            let runs = slots.runs(entry.file, dir.slots_of(entry));
            claims.push(Claim { slot: entry.file, tags: vec![tag], runs });
        }
        claims
    };
    step.writes = claims.into_iter().map(|claim| overwrite(dir, &pass, claim)).collect();
    Ok(step)
}

fn overwrite(
    dir: &Arc<Dir>,
    pass: &Pass<'_>,
    claim: Claim,
) -> oneshot::Receiver<Result<(), SchemeError>> {
    let (reply, written) = oneshot::channel();
    let offset = dir.device.geometry.offset(claim.slot);
    let len = dir.zeros.reserved();
    let for_end = Arc::clone(dir);
    dir.device.charge(1);
    dir.device.write(pass, offset, &dir.zeros, 0..len, move |outcome| {
        give_back(&for_end, &claim, outcome.is_ok());
        for_end.changed.notify_waiters();
        let _ = reply.send(outcome); // who asked may have gone
    });
    written
}

fn give_back(dir: &Dir, claim: &Claim, is_overwritten: bool) {
    let mut slots = dir.slots.lock();
    for tag in &claim.tags {
        if is_overwritten {
            slots.forget_stale(*tag, claim.slot);
        } else {
            slots.give_back_stale(claim.slot, *tag);
        }
    }
    let total = slots.total();
    let unread = slots.held.keep(&claim.runs, total);
    drop(slots);
    dir.rebuild.give_back(&dir.slots, &unread);
}

/// Overwrites an object that has been replaced: its slots are in `runs`, it begins in the `first`.
pub(crate) fn discard(dir: &Arc<Dir>, tag: Tag, first: u32, runs: Vec<Run>) {
    let claim = Claim { slot: first, tags: vec![tag], runs };
    match dir.device.pass() {
        Ok(pass) => drop(overwrite(dir, &pass, claim)),
        Err(_) => give_back(dir, &claim, false),
    }
}

/// Overwrites the remains of evicted objects of a key of which a younger one is being stored.
pub(crate) fn tidy(dir: &Arc<Dir>, pass: &Pass<'_>, key: IndexKey) {
    let claims: Vec<Claim> = {
        let mut slots = dir.slots.lock();
        let stale = slots.stale_of(Tag::from(key));
        stale
            .into_iter()
            .filter_map(|slot| Some(Claim::of(slot, slots.take_exactly(slot)?)))
            .collect()
    };
    for claim in claims {
        drop(overwrite(dir, pass, claim));
    }
}
