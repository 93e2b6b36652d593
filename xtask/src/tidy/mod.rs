//! `cargo xtask tidy`: the rules of this project that neither rustfmt nor clippy checks.

mod circles;
mod columns;
mod constants;
mod dependencies;
mod imports;
mod layers;
mod lengths;
mod licences;
mod limits;
mod links;
mod modules;
mod parsed;
mod public;
mod words;

use crate::{Outcome, workspace};

/// One broken rule, printed as `file:line: message` so that editors can jump to it.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

/// Runs every rule and fails if one is broken.
pub(crate) fn run() -> Outcome {
    let root = workspace::root();
    let rust = workspace::files(&root, &[".rs"])?;
    let texts = workspace::files(&root, &[".rs", ".md", ".toml", ".sh", ".conf", ".html", ".run"])?;
    let packages = workspace::packages(&root)?;

    let rules: [(&str, Vec<Finding>); 14] = [
        ("layers", layers::check(&packages)),
        ("imports", imports::check(&rust)),
        ("circles", circles::check(&rust)),
        ("lengths", lengths::check(&rust)),
        ("columns", columns::check(&texts)),
        ("limits", limits::check(&rust, &texts)),
        ("public items", public::check(&rust)),
        ("values of squid.conf", parsed::check(&rust)),
        ("unsafe code", words::check_unsafe(&rust)),
        ("left-over marks", words::check_marks(&texts)),
        ("links in documents", links::check(&root, &texts)),
        ("reasons of dependencies", dependencies::check(&texts)),
        ("unused dependencies", dependencies::check_use(&rust, &packages)),
        ("licences", licences::check(&root, &packages)?),
    ];
    let mut broken = 0;
    for (name, mut findings) in rules {
        findings.sort();
        for finding in &findings {
            println!("{}:{}: {} ({name})", finding.path, finding.line, finding.message);
        }
        broken += findings.len();
    }
    licences::advisories(&root)?;
    if broken > 0 {
        return Err(format!("tidy: {broken} finding{}", if broken == 1 { "" } else { "s" }).into());
    }
    println!("tidy: {} files, {} packages: nothing to say", texts.len(), packages.len());
    Ok(())
}
