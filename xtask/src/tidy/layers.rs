//! A crate depends only on crates in rows above it.

use super::Finding;
use crate::workspace::Package;

/// From the bottom of the program to its top.
const ROWS: [&str; 23] = [
    // For tests only.
    "humboldt-model",
    "humboldt-base",
    "humboldt-policy",
    "humboldt-options",
    "humboldt-sys",
    "humboldt-runtime",
    "humboldt-http",
    "humboldt-freshness",
    "humboldt-conf",
    "humboldt-acl",
    "humboldt-store",
    "humboldt-schemes",
    "humboldt-stores",
    "humboldt-logs",
    "humboldt-tls",
    "humboldt-net",
    "humboldt-helpers",
    "humboldt-logins",
    "humboldt-exchange",
    "humboldt-proxy",
    "humboldt-admin",
    "humboldt",
    "humboldt-simulation",
];

/// The laboratory has rows of its own: it shares no code with the program, so that an error of one
/// cannot cancel out in a measurement by the other.
const LAB_ROWS: [&str; 10] = [
    "humboldt-lab-record",
    "humboldt-lab-workload",
    "humboldt-lab-wire",
    "humboldt-lab-tls",
    "humboldt-lab-origin",
    "humboldt-lab-robots",
    "humboldt-lab-peak",
    "humboldt-lab-subjects",
    "humboldt-lab-report",
    "humboldt-lab",
];

/// The one thing that the laboratory takes from the program, and its user: `simulate` would be
/// worth nothing if it compared other replacement policies than those that run. They are no
/// protocol: an error of theirs is a miss, on which no measurement of the laboratory depends.
const SHARED: (&str, &str) = ("humboldt-lab", "humboldt-policy");

/// Packages beside the program that nothing may depend on, and which depend on none of its crates,
/// so that an error of the program cannot hide in what tests and measures it.
const BESIDE: [&str; 2] = ["humboldt-tests", "xtask"];

/// The one of them whose load generators are made of the laboratory's parts.
const MEASURING: &str = "xtask";

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| package.is_member) {
        let row = row_of(&package.name);
        if row.is_none() && !BESIDE.contains(&package.name.as_str()) {
            let message = format!(
                "`{}` has no row in the layer rule (xtask/src/tidy/layers.rs)",
                package.name
            );
            findings.push(Finding::new(&package.manifest, 1, message));
        }
        for dependency in package.dependencies.iter().filter(|dependency| dependency.is_path) {
            let is_above = matches!((row, row_of(&dependency.name)), (Some((tower, own)), Some((same, used))) if tower == same && used < own);
            let is_measuring =
                package.name == MEASURING && LAB_ROWS.contains(&dependency.name.as_str());
            if !is_above
                && !is_measuring
                && (package.name.as_str(), dependency.name.as_str()) != SHARED
            {
                let message = format!(
                    "`{}` may not depend on `{}`: it is not in a row above",
                    package.name, dependency.name
                );
                findings.push(Finding::new(&package.manifest, 1, message));
            }
        }
    }
    findings
}

/// Which tower, and which row of it.
fn row_of(name: &str) -> Option<(u8, usize)> {
    let row_in = |rows: &[&str]| rows.iter().position(|row| *row == name);
    row_in(&ROWS).map(|row| (0, row)).or_else(|| row_in(&LAB_ROWS).map(|row| (1, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, dependency: &str) -> Package {
        Package {
            name: name.into(),
            version: "1".into(),
            licence: None,
            manifest: "Cargo.toml".into(),
            is_member: true,
            dependencies: vec![Dependency { name: dependency.into(), is_path: true }],
        }
    }

    #[test]
    fn only_rows_above_may_be_used() {
        assert_eq!(check(&[package("humboldt-store", "humboldt-http")]), []);
        assert_eq!(check(&[package("humboldt-http", "humboldt-store")]).len(), 1);
        assert_eq!(check(&[package("humboldt-http", "humboldt-http")]).len(), 1);
        assert_eq!(check(&[package("humboldt-lab-robots", "humboldt-lab-wire")]), []);
        assert_eq!(check(&[package("humboldt-lab", "humboldt-http")]).len(), 1);
        assert_eq!(check(&[package("humboldt-lab", "humboldt-policy")]), []);
        assert_eq!(check(&[package("humboldt-lab-robots", "humboldt-policy")]).len(), 1);
        assert_eq!(check(&[package("humboldt", "humboldt-lab-wire")]).len(), 1);
        assert_eq!(check(&[package("xtask", "humboldt-base")]).len(), 1);
        assert_eq!(check(&[package("xtask", "humboldt-lab-wire")]), []);
        assert_eq!(check(&[package("humboldt-tests", "humboldt-lab-wire")]).len(), 1);
        assert_eq!(check(&[package("humboldt-lab-wire", "xtask")]).len(), 1);
        assert_eq!(check(&[package("humboldt-new", "humboldt-base")]).len(), 2);
    }
}
