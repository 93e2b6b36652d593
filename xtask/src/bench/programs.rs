//! The source of the measured programs.
//!
//! Normally they are built for release. If `HUMBOLDT_BINARY` names a built program, it is used,
//! with the programs beside it; only missing ones are built.

use crate::{Outcome, workspace};
use std::path::PathBuf;
use std::process::Command;

const VARIABLE: &str = "HUMBOLDT_BINARY";

/// The cache; `None` if it does not build, so that an older one is not measured in its place.
pub(super) fn humboldt() -> Outcome<Option<PathBuf>> {
    match std::env::var_os(VARIABLE).map(PathBuf::from) {
        Some(path) if path.is_file() => Ok(Some(std::path::absolute(path)?)),
        Some(path) => {
            Err(format!("{VARIABLE} names {}, which is not a file", path.display()).into())
        }
        None => built(&["--package", "humboldt"], "humboldt"),
    }
}

/// Another program of the workspace, whose package has its name.
pub(super) fn program(package: &str) -> Outcome<Option<PathBuf>> {
    match beside(package) {
        Some(path) => Ok(Some(path)),
        None => built(&["--package", package], package),
    }
}

/// An example of a package.
pub(super) fn example(package: &str, name: &str) -> Outcome<PathBuf> {
    let file = format!("examples/{name}");
    let found = match beside(&file) {
        Some(path) => Some(path),
        None => built(&["--package", package, "--example", name], &file)?,
    };
    found.ok_or_else(|| format!("the example {name} of {package} does not build").into())
}

fn beside(file: &str) -> Option<PathBuf> {
    let humboldt = std::path::absolute(std::env::var_os(VARIABLE)?).ok()?;
    Some(humboldt.parent()?.join(file)).filter(|path| path.is_file())
}

fn built(what: &[&str], file: &str) -> Outcome<Option<PathBuf>> {
    let root = workspace::root();
    let status = Command::new(workspace::cargo())
        .args(["build", "--quiet", "--release"])
        .args(what)
        .current_dir(&root)
        .status()?;
    Ok(if status.success() {
        Some(workspace::target_dir(&root)?.join("release").join(file))
    } else {
        None
    })
}
