//! What several directories have under one key, and which of it is the newest.

use std::sync::Arc;

use humboldt_freshness::Times;

use crate::dirs::Dir;
use crate::head::StoredHead;
use crate::key::Key;
use crate::scheme::{Reader, RecordKind};
use crate::vary::VaryMarker;

/// Removes an answer that came too late, unless the newer one is there.
pub(crate) async fn remove_own(dir: &Dir, key: &Key, times: &Times) {
    let found = dir.scheme.open(key).await;
    let is_another = matches!(&found, Ok(Some(reader)) if reader.record().times != *times);
    drop(found);
    if !is_another {
        dir.remove(key).await;
    }
}

/// What a directory has under a key: a response head, or a Vary marker.
pub(super) struct Opened {
    pub(super) reader: Box<dyn Reader>,
    pub(super) dir: Arc<Dir>,
    pub(super) head: Result<Arc<StoredHead>, Arc<VaryMarker>>,
}

impl Opened {
    /// `None` if it does not parse.
    pub(super) fn new(reader: Box<dyn Reader>, dir: Arc<Dir>) -> Option<Self> {
        let record = reader.record();
        let head = match record.kind {
            RecordKind::Vary => {
                Err(Arc::new(VaryMarker::from_bytes(&record.url, &record.head).ok()?))
            }
            RecordKind::Object => Ok(Arc::new(StoredHead::from_bytes(record.head.clone()).ok()?)),
        };
        Some(Self { reader, dir, head })
    }
}

/// What several directories have under one key.
#[derive(Default)]
pub(super) struct Records {
    pub(super) newest: Option<Opened>,
    /// Directories that have an older one, or one of which nobody knows whether it is.
    pub(super) outdated: Vec<Arc<Dir>>,
    /// The times of the last one of which nobody knows.
    unclear: Option<Times>,
}

impl Records {
    pub(super) fn add(&mut self, opened: Opened) {
        let times = opened.reader.record().times;
        let known = self.newest.as_ref().map(|known| known.reader.record().times).or(self.unclear);
        match known.map_or(Some(true), |known| is_newer(&times, &known)) {
            Some(true) => {
                self.outdated.extend(self.newest.replace(opened).map(|older| older.dir));
                self.unclear = None;
            }
            Some(false) => self.outdated.push(opened.dir),
            // A miss costs less than an answer that may be older than what somebody has got.
            None => {
                self.unclear = Some(times);
                self.outdated.extend(self.newest.take().map(|known| known.dir));
                self.outdated.push(opened.dir);
            }
        }
    }
}

/// Whether one of two stored answers is newer than the other: asked for after a purge that the
/// other came before, or received later and with no earlier Date. `None`: nobody knows.
fn is_newer(one: &Times, other: &Times) -> Option<bool> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match one.purge_number.cmp(&other.purge_number) {
        Greater => return Some(true),
        Less => return Some(false),
        Equal => {}
    }
    match (one.response_time.cmp(&other.response_time), one.date.cmp(&other.date)) {
        (Greater, Greater | Equal) | (Equal, Greater) => Some(true),
        (Less, Less | Equal) | (Equal, Less) => Some(false),
        (Equal, Equal) | (Greater, Less) | (Less, Greater) => None,
    }
}
