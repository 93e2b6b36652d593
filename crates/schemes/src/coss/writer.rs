//! Writing objects. A record is collected in memory and gets a place in a stripe when it is
//! complete: a slow download holds no stripe back, and one that is given up leaves no trace.

use std::future::ready;
use std::sync::Arc;

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{IoFuture, Place, Record, SchemeError, Writer};
use humboldt_store::{About, Borrowed};

use super::dir::{Dir, Hold};
use super::record::Builder;
use super::stripes::{Condition, Step};

/// Longest body that is stored at once: a copy of this length delays the other requests of a core
/// only briefly.
pub(super) const PUT_NOW_BYTES_MAX: u64 = 128 * 1024;

/// An object being written.
pub(super) struct CossWriter {
    dir: Arc<Dir>,
    key: IndexKey,
    builder: Builder,
    hold: Hold,
    /// Until it is in a stripe.
    place: Option<Place>,
}

impl CossWriter {
    /// Starts an object; `Busy` if it does not fit, or if too much is waiting.
    pub(super) fn create(
        dir: &Arc<Dir>,
        record: &Record,
        body_bytes: Option<u64>,
    ) -> Result<Self, SchemeError> {
        dir.in_service()?;
        if !dir.is_rebuilt() {
            return Err(SchemeError::Busy("the index is being rebuilt"));
        }
        let limits = dir.options.min_bytes..=dir.geometry.body_bytes_max;
        if body_bytes.is_some_and(|bytes| !limits.contains(&bytes)) {
            return Err(SchemeError::Busy("min-size or max-size"));
        }
        if !dir.has_free_membuf() {
            return Err(dir.shed("maxfullbufs"));
        }
        let expected = body_bytes.unwrap_or(0);
        let builder = Builder::new(record, expected as usize);
        let builder = builder.ok_or(SchemeError::Busy("head or URL is too long"))?;
        let hold = Hold::to_store(dir, builder.len() as u64 + expected)?;
        Ok(Self {
            dir: Arc::clone(dir),
            key: IndexKey::from(&record.key),
            builder,
            hold,
            place: None,
        })
    }

    fn append(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), SchemeError> {
        self.dir.in_service()?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let end =
            offset.checked_add(bytes as u64).ok_or(SchemeError::Busy("offset out of range"))?;
        if end > self.dir.geometry.body_bytes_max {
            return Err(SchemeError::Busy("max-size"));
        }
        self.hold.grow_to((self.builder.len() + bytes) as u64)?;
        self.builder.append(offset, parts)
    }

    async fn finish(self, body_bytes: Option<u64>) -> Result<(), SchemeError> {
        let Self { dir, key, builder, hold: _hold, place: _place } = self;
        dir.in_service()?;
        if body_bytes.is_some_and(|bytes| bytes < builder.body_end()) {
            return Err(SchemeError::Busy("more was written than the length of the body"));
        }
        if body_bytes.is_some_and(|bytes| bytes < dir.options.min_bytes) {
            return Err(SchemeError::Busy("min-size"));
        }
        let object = builder.finish(body_bytes, dir.id);
        match dir.store(key, object, Condition::Always).await? {
            Step::Appended => Ok(()),
            Step::Refused(why) => Err(SchemeError::Busy(why)),
            Step::Changed | Step::Wait => Err(SchemeError::Busy("not stored")),
        }
    }
}

/// Stores a complete object without waiting, and lends the copy that was made for that. `None`: it
/// does not fit, or has to wait for a stripe.
pub(super) fn put_now(dir: &Arc<Dir>, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
    let body_bytes = about.body_bytes;
    if body_bytes > PUT_NOW_BYTES_MAX {
        return None;
    }
    let CossWriter { key, mut builder, hold: _hold, .. } =
        CossWriter::create(dir, &about.record(), Some(body_bytes)).ok()?;
    builder.append(0, body).ok()?;
    let stored = dir.store_now(key, builder.finish(Some(body_bytes), dir.id))?;
    let part = stored.stored_range();
    Borrowed::new(Arc::new(stored.bytes), part)
}

impl Writer for CossWriter {
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()> {
        Box::pin(ready(self.append(offset, parts)))
    }

    fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    fn commit(self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()> {
        Box::pin(self.finish(body_bytes))
    }
}
