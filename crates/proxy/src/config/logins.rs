//! The logins of a configuration, with their helper program.

use humboldt_conf::Config;
use humboldt_helpers::Helper;
use humboldt_logins::Logins;
use humboldt_logs::access::AccessFormat;

use super::helpers::{HelperId, HelperPrograms};
use super::note_rules::format;

/// The logins of a configuration.
pub(crate) struct ConfiguredLogins {
    pub(crate) logins: Logins,
    /// The format of `key_extras`.
    pub(crate) key_extras: Option<AccessFormat>,
    helper: Option<HelperId>,
}

impl ConfiguredLogins {
    /// `None` if the configuration has no way to check logins.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let logins = Logins::new(config)?;
        let key_extras = logins.key_extras().map(format);
        Some(Self { logins, key_extras, helper: None })
    }

    /// Adds the helper program, if there is one, to those of the configuration.
    pub(crate) fn add_helper(&mut self, programs: &mut HelperPrograms) {
        self.helper = self.logins.helper().map(|definition| programs.add(definition));
    }

    /// The helper program that runs.
    pub(crate) fn running<'p>(&self, programs: &'p HelperPrograms) -> Option<&'p Helper> {
        programs.get(self.helper?)
    }
}
