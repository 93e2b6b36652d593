//! Helpers that rewrite URLs, and those that say which URLs are one object.

use std::time::Duration;

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{AccessRule, Config, HelperChildren, OnTimeout, ReplacementPart, StoreIdRule};
use humboldt_helpers::{Definition, Kind, Overload, Reply};
use humboldt_logs::access::{AccessFormat, LogFormat};
use humboldt_store::Key;

use super::conditions::compile_optional;
use super::helpers::{HelperId, HelperPrograms};

/// The compiled directives.
#[derive(Default)]
pub(crate) struct Rewriting {
    /// `url_rewrite_program`.
    pub(crate) rewriter: Option<Rewriter>,
    /// `store_id_program`.
    pub(crate) namer: Option<Asker>,
    /// `store_id_rule`.
    rules: Vec<StoreIdRule>,
}

/// A helper that gets URLs.
pub(crate) struct Asker {
    /// Its processes.
    pub(crate) helper: HelperId,
    /// Which requests are sent to it, if not all.
    pub(crate) access: Option<RuleList>,
    /// The words behind the URL.
    pub(crate) extras: Option<AccessFormat>,
    /// Requests go on without an answer.
    pub(crate) bypass: bool,
}

/// The helper of `url_rewrite_program`.
pub(crate) struct Rewriter {
    /// What it is asked.
    pub(crate) asker: Asker,
    /// The field Host follows the new URL.
    pub(crate) rewrites_host: bool,
    /// What happens without an answer in time.
    pub(crate) on_timeout: Late,
}

/// What happens without an answer in time.
pub(crate) enum Late {
    /// As without any other answer.
    Fail,
    /// The request goes on.
    Bypass,
    /// The helper is asked again.
    Retry,
    /// This is the answer.
    Answer(Reply),
}

/// A helper as configured.
struct Given<'a> {
    kind: Kind,
    name: &'static str,
    command: &'a [String],
    children: &'a HelperChildren,
    access: &'a [AccessRule],
    extras: &'a str,
    bypass: bool,
    limit: Option<Duration>,
}

impl Rewriting {
    /// Compiles the directives, and adds their helpers to `programs`.
    pub(crate) fn compile(
        acls: &AclSet,
        config: &Config,
        programs: &mut HelperPrograms,
    ) -> Result<Self, Vec<AclError>> {
        let mut children = config.url_rewrite_children.clone();
        if config.url_rewrite_concurrency > 0 {
            let most = HelperChildren::CHANNELS_MAX;
            children.concurrency = config.url_rewrite_concurrency.min(most);
        }
        let given = Given {
            kind: Kind::Redirector,
            name: "url_rewrite_program",
            command: &config.url_rewrite_program,
            children: &children,
            access: &config.url_rewrite_access,
            extras: &config.url_rewrite_extras,
            bypass: config.url_rewrite_bypass,
            limit: config.url_rewrite_timeout.limit,
        };
        let rewriter = given.compile(acls, programs)?.map(|asker| Rewriter {
            asker,
            rewrites_host: config.url_rewrite_host_header,
            on_timeout: match &config.url_rewrite_timeout.on_timeout {
                OnTimeout::Fail => Late::Fail,
                OnTimeout::Bypass => Late::Bypass,
                OnTimeout::Retry => Late::Retry,
                OnTimeout::Answer(line) => Late::Answer(Reply::parse(line.as_bytes())),
            },
        });
        let given = Given {
            kind: Kind::StoreId,
            name: "store_id_program",
            command: &config.store_id_program,
            children: &config.store_id_children,
            access: &config.store_id_access,
            extras: &config.store_id_extras,
            bypass: config.store_id_bypass,
            limit: None,
        };
        let namer = given.compile(acls, programs)?;
        Ok(Self { rewriter, namer, rules: config.store_id_rule.clone() })
    }

    /// Whether a helper has to be asked about requests.
    pub(crate) fn asks_helpers(&self) -> bool {
        self.rewriter.is_some() || self.namer.is_some()
    }

    /// The name of the object of this URL, if a `store_id_rule` gives it one.
    pub(crate) fn name_by_rule(&self, url: &[u8]) -> Option<Box<[u8]>> {
        let mut rules = self.rules.iter();
        let (rule, found) = rules.find_map(|rule| Some((rule, rule.regex.captures(url)?)))?;
        let mut name = Vec::with_capacity(url.len());
        for part in &rule.replacement {
            name.extend_from_slice(match part {
                ReplacementPart::Text(text) => text.as_bytes(),
                ReplacementPart::Group(number) => {
                    found.get(*number).map(|group| group.as_bytes()).unwrap_or_default()
                }
            });
        }
        (!name.is_empty()).then(|| name.into())
    }

    /// The key of another URL than that of a request. Helpers are not asked about it.
    pub(crate) fn key_of(&self, url: &[u8]) -> Key {
        Key::primary(self.name_by_rule(url).as_deref().unwrap_or(url))
    }
}

impl Given<'_> {
    fn compile(
        self,
        acls: &AclSet,
        programs: &mut HelperPrograms,
    ) -> Result<Option<Asker>, Vec<AclError>> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let (command, children) = (self.command.to_vec(), self.children.clone());
        let mut definition = Definition::new(self.kind, self.name, command, children);
        definition.timeout = self.limit.unwrap_or(definition.timeout);
        if self.bypass {
            definition.overload = Overload::Refuse;
        }
        // The parser has refused formats with errors.
        let extras = LogFormat::compile(self.extras).ok().filter(|_| !self.extras.is_empty());
        Ok(Some(Asker {
            helper: programs.add(definition),
            access: compile_optional(acls, self.access, true)?,
            extras: extras.map(AccessFormat::Template),
            bypass: self.bypass,
        }))
    }
}
