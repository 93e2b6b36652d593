//! What the servers of the page serve, made on the spot: a Debian package, a Python wheel, a web page, a large object.

use super::stage::Stage;
use crate::Outcome;
use std::fs;
use std::path::Path;

const CONTROL: &str = "Package: humboldt-hello\nVersion: 1.0\nArchitecture: all\n\
                       Maintainer: Nobody <nobody@example.org>\nDescription: says hello\n";

/// A repository with one package, and a configuration of apt that knows no other.
pub(super) fn debian_repository(stage: &Stage) -> Outcome {
    stage.put("build/DEBIAN/control", CONTROL)?;
    stage.put("build/usr/share/humboldt-hello/hello.txt", "Hello from a package.\n")?;
    fs::create_dir_all(stage.path("site/debian"))?;
    stage.shell("dpkg-deb --root-owner-group --build build site/debian/hello.deb")?;
    let (package_sum, package_bytes) = sum(stage, "site/debian/hello.deb")?;
    let entry = format!("{CONTROL}Filename: ./hello.deb\nSize: {package_bytes}\nSHA256: {package_sum}\n");
    stage.put("site/debian/Packages", entry)?;
    let (index_sum, index_bytes) = sum(stage, "site/debian/Packages")?;
    let date = stage.shell("date --utc --rfc-email")?.replace("+0000", "UTC");
    let release = format!(
        "Origin: first-run\nSuite: stable\nDate: {}\nArchitectures: all\nSHA256:\n {index_sum} {index_bytes} Packages\n",
        date.trim()
    );
    stage.put("site/debian/Release", release)?;
    for folder in ["apt/state/lists/partial", "apt/cache/archives/partial"] {
        fs::create_dir_all(stage.path(folder))?;
    }
    stage.put("apt/status", "")?;
    stage.put("sources.list", stage.fill("deb [trusted=yes] http://{origin}/debian ./\n"))?;
    let text = stage.fill(
        "Acquire::http::Proxy \"http://{proxy}\";\n\n\
         Dir::Etc::Parts \"none\";\nDir::Etc::SourceList \"sources.list\";\nDir::Etc::SourceParts \"none\";\n\
         Dir::State \"apt/state\";\nDir::State::status \"apt/status\";\nDir::Cache \"apt/cache\";\n\
         Acquire::Languages \"none\";\nAPT::Sandbox::User \"\";\n",
    );
    let here = format!("\"{}/", stage.path("").display().to_string().trim_end_matches('/'));
    let absolute = ["none", "sources.list", "apt/"].into_iter().fold(text, |text, name| {
        // Languages are not a path.
        text.replace(&format!("Dir::Etc::Parts \"{name}"), &format!("Dir::Etc::Parts {here}{name}"))
            .replace(&format!("Parts \"{name}"), &format!("Parts {here}{name}"))
            .replace(&format!("List \"{name}"), &format!("List {here}{name}"))
            .replace(&format!(" \"{name}"), &if name == "apt/" { format!(" {here}{name}") } else { format!(" \"{name}") })
    });
    stage.put("apt.conf", absolute)
}

/// SHA-256 and length of a file.
fn sum(stage: &Stage, name: &str) -> Outcome<(String, u64)> {
    let printed = stage.shell(&format!("sha256sum {name}"))?;
    let sum = printed.split(' ').next().unwrap_or_default().to_owned();
    Ok((sum, fs::metadata(stage.path(name))?.len()))
}
