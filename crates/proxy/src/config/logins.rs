//! The logins of a configuration, with their helper program.

use humboldt_conf::Config;
use humboldt_logins::{Logins, Running};
use humboldt_logs::access::AccessFormat;

use super::helpers::{HelperId, HelperPrograms};
use super::note_rules::format;

/// The logins of a configuration.
pub(crate) struct ConfiguredLogins {
    pub(crate) logins: Logins,
    /// The format of `key_extras`.
    pub(crate) key_extras: Option<AccessFormat>,
    basic: Option<HelperId>,
    digest: Option<HelperId>,
}

impl ConfiguredLogins {
    /// `None` if the configuration has no way to check logins.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let logins = Logins::new(config)?;
        let key_extras = logins.key_extras().map(format);
        Some(Self { logins, key_extras, basic: None, digest: None })
    }

    /// Adds the helper programs, if there are any, to those of the configuration.
    pub(crate) fn add_helpers(&mut self, programs: &mut HelperPrograms) {
        self.basic = self.logins.basic_helper().map(|definition| programs.add(definition));
        self.digest = self.logins.digest_helper().map(|definition| programs.add(definition));
    }

    /// The helper programs that run.
    pub(crate) fn running<'p>(&self, programs: &'p HelperPrograms) -> Running<'p> {
        Running {
            basic: self.basic.and_then(|id| programs.get(id)),
            digest: self.digest.and_then(|id| programs.get(id)),
        }
    }
}
