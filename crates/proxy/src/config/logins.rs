//! The logins of a configuration, with their helper programs.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{AuthScheme, Config};
use humboldt_logins::{Logins, Running};
use humboldt_logs::access::AccessFormat;

use super::conditions::with_conditions;
use super::helpers::{HelperId, HelperPrograms};
use super::note_rules::format;

/// The logins of a configuration.
pub(crate) struct ConfiguredLogins {
    pub(crate) logins: Logins,
    /// `auth_schemes`: each list of schemes, of which `None` stands for all, and its condition.
    pub(crate) offers: Vec<(Vec<Option<AuthScheme>>, RuleList)>,
    ways: [Way; AuthScheme::ALL.len()],
}

/// What belongs to one scheme.
struct Way {
    scheme: AuthScheme,
    /// The format of `key_extras`.
    extras: Option<AccessFormat>,
    helper: Option<HelperId>,
}

impl ConfiguredLogins {
    /// `None` if the configuration has no way to check logins.
    ///
    /// # Errors
    /// Those of the conditions of `auth_schemes`.
    pub(crate) fn new(acls: &AclSet, config: &Config) -> Result<Option<Self>, Vec<AclError>> {
        let Some(logins) = Logins::new(config) else { return Ok(None) };
        let offers = with_conditions(acls, &config.auth_schemes, |list| {
            (list.schemes.clone(), &list.terms)
        })?;
        let ways = AuthScheme::ALL.map(|scheme| {
            let extras = logins.key_extras(scheme).map(format);
            Way { scheme, extras, helper: None }
        });
        Ok(Some(Self { logins, offers, ways }))
    }

    /// Adds the helper programs, if there are any, to those of the configuration.
    pub(crate) fn add_helpers(&mut self, programs: &mut HelperPrograms) {
        for way in &mut self.ways {
            let definition = match way.scheme {
                AuthScheme::Basic => self.logins.basic_helper(),
                AuthScheme::Digest => self.logins.digest_helper(),
                other => self.logins.handshake_helper(other),
            };
            way.helper = definition.map(|definition| programs.add(definition));
        }
    }

    /// The helper programs that run.
    pub(crate) fn running<'p>(&self, programs: &'p HelperPrograms) -> Running<'p> {
        let of = |scheme| {
            let way = self.ways.iter().find(|way| way.scheme == scheme)?;
            programs.get(way.helper?)
        };
        Running {
            basic: of(AuthScheme::Basic),
            digest: of(AuthScheme::Digest),
            negotiate: of(AuthScheme::Negotiate),
            ntlm: of(AuthScheme::Ntlm),
        }
    }

    /// The format of `key_extras` of the scheme of these credentials.
    pub(crate) fn extras_of(&self, credentials: &[u8]) -> Option<&AccessFormat> {
        let has_any = self.ways.iter().any(|way| way.extras.is_some());
        let scheme = self.logins.scheme_of(credentials).filter(|_| has_any)?;
        self.ways.iter().find(|way| way.scheme == scheme)?.extras.as_ref()
    }
}
