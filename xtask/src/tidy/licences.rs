//! Licences of everything that is linked in, against the list in deny.toml; advisories where a tool
//! is at hand.

use super::Finding;
use crate::Outcome;
use crate::workspace::{self, Package};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

const POLICY: &str = "deny.toml";

pub(super) fn check(root: &Path, packages: &[Package]) -> Outcome<Vec<Finding>> {
    let policy =
        fs::read_to_string(root.join(POLICY)).map_err(|error| format!("{POLICY}: {error}"))?;
    let allowed = allowed_licences(&policy);
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
    warn_of_duplicates(packages);
    Ok(findings)
}

/// The strings of the policy's `allow = [ … ]`.
fn allowed_licences(policy: &str) -> Vec<&str> {
    let list = policy
        .split("\nallow = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .unwrap_or_default();
    let uncommented = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    uncommented.flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

/// Evaluates an SPDX expression: `OR` (also written `/`) needs one side, `AND` both.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any_of(&words, &mut at, allowed) && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut holds = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= all_of(words, at, allowed);
    }
    holds
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut holds = single(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= single(words, at, allowed);
    }
    holds
}

fn single(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let holds = any_of(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return holds && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}").as_str());
    }
    allowed.contains(word)
}

/// Two versions of one package cost build time and memory, but are seldom ours to mend.
fn warn_of_duplicates(packages: &[Package]) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        println!(
            "{POLICY}:1: note: {name} is built in {} versions: {}",
            versions.len(),
            versions.join(", ")
        );
    }
}

/// Runs `cargo deny check advisories`, which needs its data base from the network, if it is
/// installed.
pub(super) fn advisories(root: &Path) -> Outcome {
    let installed =
        Command::new(workspace::cargo()).args(["deny", "--version"]).output()?.status.success();
    if !installed {
        println!("{POLICY}:1: note: cargo-deny is not installed, so advisories were not looked up");
        return Ok(());
    }
    let status = Command::new(workspace::cargo())
        .args(["deny", "check", "advisories", "bans"])
        .current_dir(root)
        .status()?;
    if status.success() { Ok(()) } else { Err("cargo deny found something".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
        let holds = |expression| is_allowed(expression, &allowed);
        assert!(holds("MIT") && holds("MIT/GPL-2.0") && holds("GPL-2.0 OR MIT"));
        assert!(holds("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(holds("Apache-2.0 WITH LLVM-exception"));
        assert!(!holds("Apache-2.0") && !holds("MIT AND GPL-2.0") && !holds("(MIT") && !holds(""));
    }

    #[test]
    fn the_policy_is_read() {
        let policy = "[licenses]\nallow = [\n    \"MIT\", # short \"x\"\n    \"ISC\",\n]\n";
        assert_eq!(allowed_licences(policy), ["MIT", "ISC"]);
    }
}
