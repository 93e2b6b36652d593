//! Rules about header fields: `request_header_access`, `request_header_replace`,
//! `request_header_add`, and the same for answers.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{AclDef, Config, HeaderAdd, HeaderReplace, HeaderRule};
use humboldt_logs::access::{AccessFormat, LogFormat};

use super::conditions::{compile_condition, with_conditions};

/// The compiled rules. Each list tells whether the terms of its line match, not whether the line
/// allows.
pub struct HeaderRules {
    pub(crate) request: MessageRules,
    pub(crate) reply: MessageRules,
    /// An ACL needs the answer, so its head is parsed for the rules.
    pub(crate) asks_answer: bool,
}

/// The rules about requests, or those about answers.
pub(crate) struct MessageRules {
    pub(crate) access: Vec<(HeaderRule, RuleList)>,
    pub(crate) replace: Vec<HeaderReplace>,
    pub(crate) add: Vec<Addition>,
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
        let compile = |access: &[HeaderRule], replace: &[HeaderReplace], add: &[HeaderAdd]| {
            let add = add.iter().map(|rule| Addition::compile(acls, rule));
            Ok::<_, Vec<AclError>>(MessageRules {
                access: with_conditions(acls, access, |rule| (rule.clone(), &rule.rule.terms))?,
                replace: replace.to_vec(),
                add: add.filter_map(Result::transpose).collect::<Result<_, _>>()?,
            })
        };
        Ok(Self {
            request: compile(
                &config.request_header_access,
                &config.request_header_replace,
                &config.request_header_add,
            )?,
            reply: compile(
                &config.reply_header_access,
                &config.reply_header_replace,
                &config.reply_header_add,
            )?,
            asks_answer: config.acl.iter().any(AclDef::asks_answer),
        })
    }
}

impl MessageRules {
    /// All lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &RuleList> {
        let added = self.add.iter().map(|add| &add.condition);
        self.access.iter().map(|(_, list)| list).chain(added)
    }

    /// Whether no rule can change a message: a replacement needs a rule that denies the field.
    pub(crate) fn is_empty(&self) -> bool {
        self.access.is_empty() && self.add.is_empty()
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
