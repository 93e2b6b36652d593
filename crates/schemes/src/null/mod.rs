//! `null`: no disk. It admits nothing, so that only the memory tier stores; the yardstick of the
//! other schemes. Configurations of thirty years say `cache_dir null /tmp`: the path is kept for
//! display and never touched.

use std::future::ready;
use std::path::{Path, PathBuf};

use humboldt_store::Key;
use humboldt_store::scheme::{
    Confirmed, IoFuture, OpenObject, Record, Scheme, SchemeError, SchemeStats, Writer,
};

/// Name in squid.conf.
pub(crate) const NAME: &str = "null";

/// The scheme without a disk.
pub(crate) struct Null {
    path: PathBuf,
}

impl Null {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Scheme for Null {
    fn name(&self) -> &'static str {
        NAME
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn admits(&self, _body_bytes: Option<u64>) -> bool {
        false
    }

    fn load(&self) -> u16 {
        0
    }

    fn contains(&self, _key: &Key) -> bool {
        false
    }

    fn knows_all(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, _key: &'a Key) -> IoFuture<'a, Option<OpenObject>> {
        Box::pin(ready(Ok(None)))
    }

    fn create<'a>(
        &'a self,
        _record: Record,
        _body_bytes: Option<u64>,
    ) -> IoFuture<'a, Box<dyn Writer>> {
        Box::pin(ready(Err(SchemeError::Busy("null stores nothing"))))
    }

    fn update<'a>(&'a self, _record: &'a Record, _confirmed: &'a Confirmed) -> IoFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    fn remove<'a>(&'a self, _key: &'a Key) -> IoFuture<'a, bool> {
        Box::pin(ready(Ok(false)))
    }

    fn maintain(&self) -> IoFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn close(&self) -> Result<(), SchemeError> {
        Ok(())
    }

    fn stats(&self) -> SchemeStats {
        SchemeStats { rebuild_percent: 100, ..SchemeStats::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_and_holds_nothing_and_touches_no_path() {
        let null = Null::new(Path::new("/no/such/place"));
        assert!(!null.admits(Some(1)) && !null.admits(None));
        assert!(!null.contains(&Key(1)));
        assert_eq!(null.stats().objects, 0);
        assert!(!Path::new("/no/such/place").exists());
    }
}
