//! The helper programs of a configuration.

use std::io;
use std::sync::OnceLock;

use humboldt_helpers::{Definition, Helper, Helpers};

/// The place of a helper among those of its configuration.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HelperId(usize);

/// The helper programs of a configuration. They run once it is in force; before that there is
/// nobody to ask.
#[derive(Default)]
pub struct HelperPrograms {
    definitions: Vec<Definition>,
    running: OnceLock<Vec<Helper>>,
}

impl HelperPrograms {
    /// One more.
    pub fn add(&mut self, definition: Definition) -> HelperId {
        self.definitions.push(definition);
        HelperId(self.definitions.len() - 1)
    }

    /// Starts their processes, and ends those of the configuration before. To be called after
    /// privileges have been dropped, and before requests get the configuration.
    ///
    /// # Errors
    /// There is no thread for them.
    pub fn start(&self, helpers: &Helpers) -> io::Result<()> {
        let running = helpers.adopt(self.definitions.clone())?;
        self.running.get_or_init(|| running);
        Ok(())
    }

    /// The helper that runs; `None` while the configuration is not in force.
    pub fn get(&self, id: HelperId) -> Option<&Helper> {
        self.running.get()?.get(id.0)
    }
}
