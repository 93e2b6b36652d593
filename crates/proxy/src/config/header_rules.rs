//! Rules about header fields: `request_header_access`, `request_header_replace`,
//! `request_header_add`, and the same for answers.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{Config, HeaderAdd, HeaderReplace, HeaderRule};
use humboldt_logs::access::{AccessFormat, LogFormat};

use super::conditions::compile_condition;

/// The compiled rules. Each list tells whether the terms of its line match, not whether the line
/// allows.
pub struct HeaderRules {
    pub(crate) request: Vec<(HeaderRule, RuleList)>,
    pub(crate) request_replace: Vec<HeaderReplace>,
    pub(crate) request_add: Vec<Addition>,
    pub(crate) reply: Vec<(HeaderRule, RuleList)>,
    pub(crate) reply_replace: Vec<HeaderReplace>,
    pub(crate) reply_add: Vec<Addition>,
    /// An ACL needs the answer, so its head is parsed for the rules.
    pub(crate) asks_answer: bool,
}

/// A field that is added.
pub(crate) struct Addition {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Value,
    pub(crate) condition: RuleList,
}

pub(crate) enum Value {
    Text(Vec<u8>),
    /// A value in quotes, with the codes of `logformat`.
    Format(AccessFormat),
}

impl HeaderRules {
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Self, Vec<AclError>> {
        let access = |rules: &[HeaderRule]| {
            rules
                .iter()
                .map(|rule| Ok((rule.clone(), compile_condition(acls, &rule.rule.terms)?)))
                .collect::<Result<Vec<_>, Vec<AclError>>>()
        };
        let add = |rules: &[HeaderAdd]| {
            let compiled = rules.iter().map(|rule| Addition::compile(acls, rule));
            compiled.filter_map(Result::transpose).collect::<Result<Vec<_>, Vec<AclError>>>()
        };
        Ok(Self {
            request: access(&config.request_header_access)?,
            request_replace: config.request_header_replace.clone(),
            request_add: add(&config.request_header_add)?,
            reply: access(&config.reply_header_access)?,
            reply_replace: config.reply_header_replace.clone(),
            reply_add: add(&config.reply_header_add)?,
            asks_answer: config.acl.iter().any(|acl| acl.kind.is_about_answers()),
        })
    }

    /// The lists about requests.
    pub(crate) fn lists_of_requests(&self) -> impl Iterator<Item = &RuleList> {
        self.request
            .iter()
            .map(|(_, list)| list)
            .chain(self.request_add.iter().map(|add| &add.condition))
    }

    /// The lists about answers.
    pub(crate) fn lists_of_replies(&self) -> impl Iterator<Item = &RuleList> {
        self.reply
            .iter()
            .map(|(_, list)| list)
            .chain(self.reply_add.iter().map(|add| &add.condition))
    }
}

impl Addition {
    /// `None` if the value has unknown codes, which are reported.
    fn compile(acls: &AclSet, rule: &HeaderAdd) -> Result<Option<Self>, Vec<AclError>> {
        let value = match rule.formatted.then(|| LogFormat::compile(&rule.value)) {
            None => Value::Text(rule.value.clone().into_bytes()),
            Some(Ok(format)) => Value::Format(AccessFormat::Template(format)),
            Some(Err(error)) => {
                tracing::warn!("the field {} is not added: {error}", rule.header);
                return Ok(None);
            }
        };
        let condition = compile_condition(acls, &rule.terms)?;
        Ok(Some(Self { name: rule.header.clone().into_bytes(), value, condition }))
    }
}
