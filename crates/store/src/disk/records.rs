//! The records of several directories under one key, and the choice of the newest.

use std::sync::Arc;

use humboldt_freshness::Times;

use crate::dirs::Dir;
use crate::head::StoredHead;
use crate::key::Key;
use crate::scheme::{OpenObject, Reader, Record, RecordKind};
use crate::vary::VaryMarker;

/// Removes an answer that came too late, unless the newer one is there.
pub(crate) async fn remove_own(dir: &Dir, key: &Key, times: &Times) {
    let found = dir.scheme.open(key).await;
    let is_another = matches!(&found, Ok(Some(open)) if open.record.times != *times);
    drop(found);
    if !is_another {
        dir.remove(key).await;
    }
}

/// A directory's record under a key: a response head, or a Vary marker.
pub(super) struct Opened {
    pub(super) key: Key,
    pub(super) url: Box<[u8]>,
    pub(super) times: Times,
    pub(super) head: Result<Arc<StoredHead>, Arc<VaryMarker>>,
    pub(super) reader: Box<dyn Reader>,
    pub(super) dir: Arc<Dir>,
}

impl Opened {
    /// `None` if it does not parse.
    pub(super) fn new(open: OpenObject, dir: Arc<Dir>) -> Option<Self> {
        let OpenObject { record: Record { key, kind, url, head, times }, reader } = open;
        let head = match kind {
            RecordKind::Vary => Err(Arc::new(VaryMarker::from_bytes(&url, &head).ok()?)),
            RecordKind::Object => Ok(Arc::new(StoredHead::from_bytes(head).ok()?)),
        };
        Some(Self { key, url, times, head, reader, dir })
    }
}

/// The records of several directories under one key.
#[derive(Default)]
pub(super) struct Records {
    pub(super) newest: Option<Opened>,
    /// Directories with an older record, or with one whose age cannot be decided.
    pub(super) outdated: Vec<Arc<Dir>>,
    /// The times of the last record whose age cannot be decided.
    unclear: Option<Times>,
}

impl Records {
    pub(super) fn add(&mut self, opened: Opened) {
        let times = opened.times;
        let known = self.newest.as_ref().map(|known| known.times).or(self.unclear);
        match known.map_or(Some(true), |known| is_newer(&times, &known)) {
            Some(true) => {
                self.outdated.extend(self.newest.replace(opened).map(|older| older.dir));
                self.unclear = None;
            }
            Some(false) => self.outdated.push(opened.dir),
            // A miss costs less than an answer that may be older than one that a client has got.
            None => {
                self.unclear = Some(times);
                self.outdated.extend(self.newest.take().map(|known| known.dir));
                self.outdated.push(opened.dir);
            }
        }
    }
}

/// Whether one of two stored answers is newer than the other: requested after a purge that the
/// other preceded, or received later and with no earlier Date. `None`: it cannot be decided.
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
