//! Tells the program, and the laboratory, which commit it was built from.
//!
//! `HUMBOLDT_COMMIT` wins, for builds from an archive without git. Otherwise git is asked, and only
//! where this workspace is the top of a git checkout: an archive inside another repository must not
//! show that repository's commit. Without either, the program has a version and no commit.
//!
//! The result depends on the commit alone, so that two builds of one commit are the same. It is
//! computed again only when the variable, HEAD or the branch changes. Uncommitted changes are not
//! detected: that would need a look at every file in every build.
#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "HUMBOLDT_COMMIT";

/// Enough digits to name a commit of any repository of this size.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let given = std::env::var(VARIABLE).ok();
    let commit = given.or_else(commit_of_checkout).filter(|text| is_commit(text));
    if let Some(commit) = commit {
        println!("cargo::rustc-env=HUMBOLDT_BUILT_FROM={}", &commit[..commit.len().min(DIGITS)]);
    }
}

fn is_commit(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn commit_of_checkout() -> Option<String> {
    // Asked at run time: the program that this file becomes may have been compiled in another
    // checkout that shares the folder of builds.
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let top = here.parent()?.parent()?.canonicalize().ok()?;
    if PathBuf::from(git(&top, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != top {
        return None;
    }
    // HEAD changes with the branch, its log with every commit. A file that does not exist would
    // make cargo run this in every build.
    for name in ["HEAD", "logs/HEAD"] {
        let file = top.join(git(&top, &["rev-parse", "--git-path", name])?);
        if file.exists() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    git(&top, &["rev-parse", "HEAD"])
}

/// The output of a git command, or `None` where it fails or there is no git.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
