//! Helpers of `external_acl_type`, and the ACLs that ask them.

use std::sync::Arc;

use humboldt_acl::AclSet;
use humboldt_conf::{Config, ExternalAclType, ExternalQuoting};
use humboldt_helpers::{Answers, Definition, Keeping, Kind, Overload};

use super::helpers::{HelperId, HelperPrograms};
use super::quoting;

/// The compiled lines.
#[derive(Default)]
pub(crate) struct Externals {
    types: Vec<Arc<ExternalType>>,
    /// In the order of [`AclSet::externals`].
    acls: Vec<Option<ExternalAcl>>,
}

/// One `external_acl_type`.
pub(crate) struct ExternalType {
    /// As configured.
    pub(crate) conf: ExternalAclType,
    /// Its processes.
    pub(crate) helper: HelperId,
    /// Its answers.
    pub(crate) answers: Answers,
}

/// One ACL `external`.
pub(crate) struct ExternalAcl {
    /// Its name.
    pub(crate) name: Box<str>,
    /// Its arguments, as `%DATA` sends them.
    pub(crate) data: Vec<u8>,
    /// The helper that answers.
    pub(crate) of: Arc<ExternalType>,
}

impl Externals {
    /// Compiles the lines, and adds their helpers to `programs`.
    pub(crate) fn compile(acls: &AclSet, config: &Config, programs: &mut HelperPrograms) -> Self {
        let types: Vec<Arc<ExternalType>> =
            config.external_acl_type.iter().map(|conf| start(conf, programs)).collect();
        // The parser has refused ACLs whose type there is not.
        let acl = |acl: &humboldt_acl::External| {
            let of = types.iter().find(|one| *one.conf.name == *acl.helper)?;
            let data = data(&acl.arguments, of.conf.quoting);
            Some(ExternalAcl { name: acl.acl.clone(), data, of: Arc::clone(of) })
        };
        let acls = acls.externals().iter().map(acl).collect();
        Self { types, acls }
    }

    /// The ACL of this number.
    pub(crate) fn acl(&self, number: usize) -> Option<&ExternalAcl> {
        self.acls.get(number)?.as_ref()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

fn start(conf: &ExternalAclType, programs: &mut HelperPrograms) -> Arc<ExternalType> {
    let (command, children) = (conf.command.clone(), conf.children.clone());
    let definition = Definition::new(Kind::ExternalAcl, &conf.name, command, children);
    // As in Squid, a rule does not wait in a queue that is full.
    let definition = Definition { overload: Overload::Refuse, ..definition };
    let keeping = Keeping {
        ok: conf.ttl,
        err: conf.negative_ttl,
        grace_percent: conf.grace_percent,
        entries_max: conf.cache_entries as usize,
    };
    let helper = programs.add(definition);
    Arc::new(ExternalType { conf: conf.clone(), helper, answers: Answers::new(keeping) })
}

/// The arguments of an ACL, each quoted, with blanks between them.
fn data(arguments: &[String], quoting: ExternalQuoting) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        match quoting {
            ExternalQuoting::Shell => quoting::shell(&mut out, argument.as_bytes()),
            _ => quoting::url_whole(&mut out, argument.as_bytes()),
        }
    }
    out
}
