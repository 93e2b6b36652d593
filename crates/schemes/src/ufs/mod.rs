//! `ufs`: one file per object in a tree of directories, blocking I/O on the request's own core.
//!
//! The format is in `docs/formats/ufs.md`. From the outside in: this file implements the trait; `reader`, `writer` and
//! `update` do what it says on one object each; `dir` is what they share; `rebuild` fills it at the start; `log`, `files`,
//! `format`, `layout`, `numbers` and `space` each own one kind of thing on disk or one kind of book-keeping.

mod dir;
pub(crate) mod files;
mod format;
mod layout;
mod log;
pub(crate) mod numbers;
pub(crate) mod object;
mod reader;
mod rebuild;
mod space;
#[cfg(test)]
mod tests;
mod update;
mod writer;

use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use humboldt_store::Key;
use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{IoFuture, Reader, Record, Scheme, SchemeError, SchemeStats, Writer};
use rustix::io::Errno;

use self::dir::Dir;
use self::layout::Claimed;
use self::log::SwapLog;
use self::rebuild::{Job, ReadLog, Rebuild};
use self::writer::UfsWriter;
use crate::{DirOptions, OpenError};

/// Name in squid.conf.
pub(crate) const NAME: &str = "ufs";

/// Squid's constant: blocking I/O is always nearly as busy as can be, so that any other scheme is preferred.
const LOAD: u16 = 999;

/// Creates the directory and its tree.
pub(crate) fn create(options: &DirOptions) -> Result<(), OpenError> {
    layout::claim(options).map(drop)
}

/// A cache directory of this scheme.
pub(crate) struct Ufs {
    dir: Arc<Dir>,
}

impl Ufs {
    /// Claims the directory and reads its swap log, or begins to.
    pub(crate) fn open(options: &DirOptions) -> Result<Self, OpenError> {
        let Claimed { tree, lock, is_new } = layout::claim(options)?;
        let failed = |operation, error: Errno| OpenError::Io {
            operation,
            path: options.path.join(log::FILE),
            source: error.into(),
        };
        let fs = rustix::fs::fstatvfs(tree.root()).map_err(|e| failed("look at the file system of", e))?;
        let found = log::find(tree.root()).map_err(|e| failed("open", e))?;
        let (log, job) = match found {
            Some(found) => {
                let job = Job::ReadLog(ReadLog::new(&found).map_err(|e| failed("open", e))?);
                (SwapLog::resume(found.file, found.header, found.len), Some(job))
            }
            None => {
                let log = SwapLog::create(tree.root(), is_new).map_err(|e| failed("create", e))?;
                (log, (!is_new).then_some(Job::Search))
            }
        };
        let dir = Dir::new(options.clone(), tree, lock, log, Rebuild::new(job), fs.f_frsize);
        let dir = Arc::new(dir);
        rebuild::begin(&dir);
        Ok(Self { dir })
    }
}

impl Drop for Ufs {
    fn drop(&mut self) {
        self.dir.rebuild.stop();
    }
}

impl Scheme for Ufs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn path(&self) -> &Path {
        &self.dir.options.path
    }

    fn admits(&self, body_bytes: Option<u64>) -> bool {
        let options = &self.dir.options;
        let fits = match body_bytes {
            Some(bytes) => (options.min_bytes..=options.max_bytes).contains(&bytes),
            None => options.min_bytes == 0,
        };
        fits && self.dir.in_service().is_ok()
            && self.dir.rebuild.may_store()
            && self.dir.space.admits(body_bytes.unwrap_or(0))
    }

    fn load(&self) -> u16 {
        LOAD
    }

    fn contains(&self, key: &Key) -> bool {
        self.dir.in_service().is_ok() && self.dir.index.peek(IndexKey::from(key)).is_some()
    }

    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<Box<dyn Reader>>> {
        Box::pin(ready(reader::open(&self.dir, key)))
    }

    fn create<'a>(&'a self, record: Record, body_bytes: Option<u64>) -> IoFuture<'a, Box<dyn Writer>> {
        let writer = UfsWriter::create(&self.dir, record, body_bytes);
        Box::pin(ready(writer.map(|writer| Box::new(writer) as Box<dyn Writer>)))
    }

    fn update<'a>(&'a self, record: &'a Record) -> IoFuture<'a, ()> {
        Box::pin(ready(update::update(&self.dir, record)))
    }

    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool> {
        Box::pin(ready(self.dir.remove(key)))
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        if self.dir.in_service().is_ok() {
            rebuild::go_on(&self.dir);
            self.dir.maintain();
        }
        Box::pin(ready(Ok(())))
    }

    fn close(&self) -> Result<(), SchemeError> {
        if self.dir.set_closed() {
            return Ok(());
        }
        self.dir.rebuild.stop();
        self.dir.close().map_err(|error| SchemeError::Io {
            operation: format!("write {}", self.path().join(log::FILE).display()),
            source: error.into(),
        })
    }

    fn stats(&self) -> SchemeStats {
        self.dir.stats()
    }
}
