//! `client_budget`: the line that holds for a request. How much of it is left, only the running
//! proxy knows.

use std::fmt::Write as _;

use humboldt_acl::{AclError, RuleList, Verdict};
use humboldt_conf::AccessRule;
use humboldt_proxy::snapshot::Snapshot;

use super::asked::Asked;
use super::unknown::{Missing, unknown_in};

/// Writes which line holds, if there are any.
pub(super) fn explain(
    out: &mut String,
    snapshot: &Snapshot,
    asked: &Asked,
) -> Result<(), Vec<AclError>> {
    let (config, subject) = (&snapshot.config, asked.subject());
    if config.client_budget.is_empty() {
        return Ok(());
    }
    out.push_str("\nclient_budget: how much may the client use?\n");
    for line in &config.client_budget {
        let (terms, place) = (line.terms.clone(), line.source.place());
        let rule = AccessRule { allow: true, terms, source: Some(line.source.clone()) };
        let list = RuleList::compile(&snapshot.acls, std::slice::from_ref(&rule), false)?;
        let is_unknown = list.steps(&subject).any(|(_, step)| {
            unknown_in(&config.acl, &rule.terms, step, Missing::default()).is_some()
        });
        let (end, says) = match list.check(&subject) {
            _ if is_unknown => (true, "only the running proxy knows"),
            Verdict::Allowed { rule: Some(_) } => (true, "holds"),
            Verdict::Allowed { .. } | Verdict::Denied { .. } | Verdict::Challenge { .. } => {
                (false, "does not hold")
            }
            Verdict::Needs(_) => (true, "not known here"),
        };
        let _ = writeln!(out, "  {place}: {}: {says}", line.source.text);
        if end {
            return Ok(());
        }
    }
    out.push_str("  → as much as it likes: no line holds\n");
    Ok(())
}
