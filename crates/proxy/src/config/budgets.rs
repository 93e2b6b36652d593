//! `client_budget`: the lines.

use std::sync::Arc;

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_base::xxh3::xxh3_64;
use humboldt_conf::{BudgetLimits, BudgetRule, RuleSource};

use super::conditions::compile_condition;

/// A compiled line.
pub struct BudgetLine {
    /// Its limits, if it has any.
    pub(crate) limits: Option<BudgetLimits>,
    /// The requests for which it holds.
    pub(crate) condition: RuleList,
    /// Where it stands.
    pub source: Arc<RuleSource>,
    /// Which accounts belong to it: those of a line with the same words, wherever that stands.
    pub id: u64,
}

/// Compiles the lines.
pub(crate) fn compile(
    acls: &AclSet,
    rules: &[BudgetRule],
) -> Result<Vec<BudgetLine>, Vec<AclError>> {
    let line = |rule: &BudgetRule| {
        Ok(BudgetLine {
            limits: rule.limits.clone(),
            condition: compile_condition(acls, &rule.terms)?,
            source: Arc::clone(&rule.source),
            id: xxh3_64(rule.source.text.as_bytes()),
        })
    };
    rules.iter().map(line).collect()
}
