//! Licences of everything that is linked in, against the list in deny.toml. `cargo deny` does what
//! the rest of that file says, where it is installed.

use super::Finding;
use crate::Outcome;
use crate::workspace::{self, Package};
use spdx::{Expression, Licensee, ParseMode};
use std::fs;
use std::path::Path;
use std::process::Command;
use toml::{Table, Value};

const POLICY: &str = "deny.toml";

pub(super) fn check(root: &Path, packages: &[Package]) -> Outcome<Vec<Finding>> {
    let allowed = fs::read_to_string(root.join(POLICY))
        .map_err(Into::into)
        .and_then(|policy| allowed_licences(&policy))
        .map_err(|error| format!("{POLICY}: {error}"))?;
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| !package.is_member) {
        let label = format!("{} {}", package.name, package.version);
        let message = match &package.licence {
            None => format!("{label} names no licence"),
            Some(expression) if !is_allowed(expression, &allowed) => {
                format!("{label} has the licence `{expression}`, which the policy does not allow")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(POLICY, 1, message));
    }
    Ok(findings)
}

/// The policy's list `allow` under `[licenses]`.
fn allowed_licences(policy: &str) -> Outcome<Vec<Licensee>> {
    let policy: Table = policy.parse()?;
    let list = policy.get("licenses").and_then(|licences| licences.get("allow"));
    let list = list.and_then(Value::as_array).ok_or("`licenses.allow` is no list")?;
    let licence = |word: &Value| {
        let word = word.as_str().ok_or("`licenses.allow` holds something that is no text")?;
        Ok(Licensee::parse(word)?)
    };
    list.iter().map(licence).collect()
}

/// Old packages write `/` for `OR`, which is no SPDX. An expression that cannot be read is not
/// allowed.
fn is_allowed(expression: &str, allowed: &[Licensee]) -> bool {
    Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|asked| allowed.iter().any(|licence| licence.satisfies(asked)))
    })
}

/// Runs `cargo deny check`, which needs a data base from the network, if it is installed.
pub(super) fn advisories(root: &Path) -> Outcome {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(workspace::cargo());
        command.args(arguments).current_dir(root);
        command
    };
    if !cargo(&["deny", "--version"]).output()?.status.success() {
        println!("{POLICY}:1: note: cargo-deny is not installed, so advisories were not looked up");
        return Ok(());
    }
    let status = cargo(&["deny", "check", "licenses", "advisories", "bans", "sources"]).status()?;
    if status.success() { Ok(()) } else { Err("cargo deny found something".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_compared_with_the_policy() {
        let policy = "[bans]\nallow = [1]\n[licenses]\nallow = [\n    \"MIT\", # short \"x\"\n    \
                      \"Unicode-3.0\",\n    \"Apache-2.0 WITH LLVM-exception\",\n]\n";
        let allowed = allowed_licences(policy).unwrap();
        let holds = |expression| is_allowed(expression, &allowed);
        assert!(holds("MIT") && holds("MIT/GPL-2.0") && holds("GPL-2.0-only OR MIT"));
        assert!(holds("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(holds("Apache-2.0 WITH LLVM-exception"));
        assert!(!holds("Apache-2.0") && !holds("MIT AND GPL-2.0") && !holds("(MIT") && !holds(""));
    }

    #[test]
    fn a_policy_without_a_list_or_with_an_unknown_licence_is_an_error() {
        assert!(allowed_licences("[licenses]\n").is_err());
        assert!(allowed_licences("[licenses]\nallow = [\"NIT\"]\n").is_err());
    }
}
