//! Annotations: the lines of `note`, and the formats of ACLs that annotate.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{AclDef, Config, NoteRule};
use humboldt_logs::access::{AccessFormat, LogFormat};

use super::conditions::compile_condition;
use super::header_rules::Value;

/// The compiled rules.
#[derive(Default)]
pub(crate) struct NoteRules {
    /// The lines of `note`, in their order.
    pub(crate) at_end: Vec<Note>,
    /// The formats of [`AclSet::formats`].
    pub(crate) formats: Vec<AccessFormat>,
    /// An ACL annotates.
    pub(crate) acls_annotate: bool,
}

/// One line of `note`.
pub(crate) struct Note {
    pub(crate) name: String,
    pub(crate) value: Value,
    pub(crate) condition: RuleList,
}

impl NoteRules {
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Self, Vec<AclError>> {
        let compile = |rule: &NoteRule| {
            let value = match rule.formatted {
                true => Value::Format(format(&rule.value)),
                false => Value::Text(rule.value.clone().into_bytes()),
            };
            let condition = compile_condition(acls, &rule.terms)?;
            Ok::<_, Vec<AclError>>(Note { name: rule.name.clone(), value, condition })
        };
        Ok(Self {
            at_end: config.note.iter().map(compile).collect::<Result<_, _>>()?,
            formats: acls.formats().iter().map(|text| format(text)).collect(),
            acls_annotate: config.acl.iter().map(|acl: &AclDef| acl.kind).any(|k| k.annotates()),
        })
    }

    /// All lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &RuleList> {
        self.at_end.iter().map(|note| &note.condition)
    }
}

/// The parser has refused formats with errors; should one come here, its text is the value.
pub(crate) fn format(text: &str) -> AccessFormat {
    let as_it_is = || text.replace('%', "%%");
    let compiled = LogFormat::compile(text).or_else(|_| LogFormat::compile(&as_it_is()));
    compiled.map_or(AccessFormat::Squid, AccessFormat::Template)
}
