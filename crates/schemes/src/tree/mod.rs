//! A tree of directories with one file per object: all that `ufs`, `aufs` and `diskd` have in
//! common.
//!
//! The format is in `docs/formats/ufs.md`. From the outside in: this file implements the trait;
//! `reader`, `writer` and `update` work on one object each; `dir` is their common state; `rebuild`
//! fills it at the start. Their file operations are done by an `engine`, the only difference
//! between the schemes; `blocking` is the simplest of them, `pool` has threads for others. `log`,
//! `files`, `format`, `layout`, `numbers`, `new_file` and `space` each own one kind of thing on
//! disk or one kind of book-keeping.

pub(crate) mod blocking;
mod dir;
#[cfg(test)]
mod disorder;
mod engine;
mod evict;
pub(crate) mod files;
mod format;
mod layout;
mod log;
mod new_file;
pub(crate) mod numbers;
pub(crate) mod object;
mod operation;
mod pool;
mod reader;
mod rebuild;
mod refill;
mod simulated;
mod space;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod update;
mod waiters;
mod writer;

use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{
    Confirmed, IoFuture, OpenObject, Place, Record, Scheme, SchemeError, SchemeStats, Writer,
};
use humboldt_store::{About, Borrowed, Key};
use rustix::io::Errno;

pub(crate) use self::blocking::Blocking;
use self::dir::Dir;
pub(crate) use self::dir::Unlinked;
pub(crate) use self::engine::{Closer, Engine, EngineError, File, Handle, Keep, OpenFor, Work};
pub(crate) use self::files::Tree;
pub(crate) use self::format::{BLOCK_BYTES, WHOLE_FILE_BYTES_MAX};
use self::layout::Claimed;
use self::log::SwapLog;
pub(crate) use self::operation::{Completer, Counted, Operation};
pub(crate) use self::pool::Pool;
use self::rebuild::{Job, ReadLog, Rebuild};
pub(crate) use self::simulated::Simulated;
use self::writer::TreeWriter;
use crate::{Levels, OpenError};

/// What `cache_dir` says about one directory of these schemes.
pub(crate) type DirOptions = crate::DirOptions<Levels>;

/// Creates the directory and its tree.
pub(crate) fn create(options: &DirOptions) -> Result<(), OpenError> {
    layout::claim(options).map(drop)
}

/// A cache directory of one of these schemes.
pub(crate) struct TreeScheme {
    name: &'static str,
    dir: Arc<Dir>,
}

impl TreeScheme {
    /// Claims the directory and reads its swap log, or begins to. `name` is the scheme's in
    /// squid.conf; `engine` makes the engine, without starting threads.
    pub(crate) fn open(
        name: &'static str,
        options: &DirOptions,
        engine: impl FnOnce(Arc<Tree>) -> Arc<dyn Engine>,
    ) -> Result<Self, OpenError> {
        Self::open_with(name, options, |tree| Ok(engine(tree)))
    }

    /// The same with an engine whose creation may fail. It is made with the directory locked.
    pub(crate) fn open_with(
        name: &'static str,
        options: &DirOptions,
        engine: impl FnOnce(Arc<Tree>) -> Result<Arc<dyn Engine>, OpenError>,
    ) -> Result<Self, OpenError> {
        let Claimed { tree, lock, is_new } = layout::claim(options)?;
        let failed = |operation, error: Errno| OpenError::Io {
            operation,
            path: options.path.join(log::FILE),
            source: error.into(),
        };
        let fs = rustix::fs::fstatvfs(tree.root())
            .map_err(|e| failed("look at the file system of", e))?;
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
        let tree = Arc::new(tree);
        let engine = engine(Arc::clone(&tree))?;
        let dir =
            Dir::new(options.clone(), tree, engine, lock, log, Rebuild::new(job), fs.f_frsize);
        let dir = Arc::new(dir);
        dir.limit_turns();
        refill::begin(&dir);
        Ok(Self { name, dir })
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.dir.engine
    }
}

impl Drop for TreeScheme {
    fn drop(&mut self) {
        self.dir.rebuild.stop();
        self.dir.engine.stop();
    }
}

impl Scheme for TreeScheme {
    fn name(&self) -> &'static str {
        self.name
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
        self.dir.engine.load()
    }

    fn contains(&self, key: &Key) -> bool {
        self.dir.in_service().is_ok() && self.dir.index.peek(IndexKey::from(key)).is_some()
    }

    fn knows_all(&self) -> bool {
        self.dir.in_service().is_ok() && self.dir.rebuild.is_done()
    }

    fn turn(&self, _body_bytes: Option<u64>) -> Option<IoFuture<'_, Place>> {
        let turns = self.dir.engine.turns()?;
        if turns.is_waited() && !self.dir.engine.admits() {
            // It has dropped what was given up: there may be room now.
            turns.look();
        }
        turns.turn(1)
    }

    fn open<'a>(&'a self, key: &'a Key) -> IoFuture<'a, Option<OpenObject>> {
        match self.dir.engine.turns() {
            Some(turns) => turns.in_time(Box::pin(reader::open(&self.dir, key))),
            None => Box::pin(reader::open(&self.dir, key)),
        }
    }

    fn create<'a>(
        &'a self,
        record: Record,
        body_bytes: Option<u64>,
    ) -> IoFuture<'a, Box<dyn Writer>> {
        Box::pin(async move {
            let writer = TreeWriter::create(&self.dir, record, body_bytes).await?;
            Ok(Box::new(writer) as Box<dyn Writer>)
        })
    }

    fn whole_bytes_max(&self) -> u64 {
        BLOCK_BYTES as u64
    }

    fn put(&self, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
        if self.dir.engine.blocks() { writer::put_now(&self.dir, about, body) } else { None }
    }

    fn update<'a>(&'a self, record: &'a Record, confirmed: &'a Confirmed) -> IoFuture<'a, ()> {
        Box::pin(update::update(&self.dir, record, confirmed))
    }

    fn remove<'a>(&'a self, key: &'a Key) -> IoFuture<'a, bool> {
        Box::pin(self.dir.remove(key))
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        if self.dir.in_service().is_err() {
            return Box::pin(ready(Ok(())));
        }
        refill::go_on(&self.dir);
        Box::pin(async {
            self.dir.maintain().await;
            Ok(())
        })
    }

    fn close(&self) -> Result<(), SchemeError> {
        self.dir.close().map_err(|error| SchemeError::Io {
            operation: format!("write {}", self.path().join(log::FILE).display()),
            source: error.into(),
        })
    }

    fn stats(&self) -> SchemeStats {
        self.dir.stats()
    }
}
