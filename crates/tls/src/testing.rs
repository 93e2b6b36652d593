//! For tests: files that are not on a disk.

use std::sync::Arc;

use crate::files::Files;
use crate::system::SystemRoots;

/// Files in memory.
pub(crate) struct InMemory(pub(crate) Vec<(&'static str, String)>);

impl Files for InMemory {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(own, _)| *own == path);
        found.map(|(_, text)| text.clone().into_bytes()).ok_or_else(|| "No such file".to_owned())
    }

    fn list(&self, _: &str) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn system_roots(&self) -> Arc<SystemRoots> {
        Arc::new(SystemRoots::new(Default::default))
    }
}
