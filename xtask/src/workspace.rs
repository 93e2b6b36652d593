//! The project's files, and the packages of `cargo metadata`.

use crate::Outcome;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that hold no source of ours.
const SKIPPED_FOLDERS: [&str; 6] =
    ["target", ".git", "node_modules", "corpus", "artifacts", "proptest-regressions"];

/// The checkout's top folder; this crate lies directly below it.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// One text file of the project.
pub(crate) struct File {
    /// Relative to the root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every file whose name ends in one of `endings`, sorted by path; files that are not UTF-8 are
/// left out.
pub(crate) fn files(root: &Path, endings: &[&str]) -> Outcome<Vec<File>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                folders.push(entry.path());
            } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                let Ok(text) = fs::read_to_string(entry.path()) else { continue };
                let path = entry.path().strip_prefix(root)?.to_string_lossy().into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// A package as `cargo metadata` describes it.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    /// The manifest, relative to the root for members of the workspace.
    pub(crate) manifest: String,
    pub(crate) is_member: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

pub(crate) struct Dependency {
    /// Its name in the package that depends on it.
    pub(crate) name: String,
    /// Set for packages of this checkout.
    pub(crate) is_path: bool,
}

fn metadata(root: &Path, arguments: &[&str]) -> Outcome<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Cargo's target directory.
pub(crate) fn target_dir(root: &Path) -> Outcome<PathBuf> {
    let metadata = metadata(root, &["--no-deps"])?;
    Ok(PathBuf::from(
        metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?,
    ))
}

/// All packages that a build for this machine's kind can reach.
pub(crate) fn packages(root: &Path) -> Outcome<Vec<Package>> {
    let metadata = metadata(root, &["--filter-platform", "x86_64-unknown-linux-gnu"])?;
    let members: Vec<&str> =
        items(&metadata["workspace_members"]).filter_map(Value::as_str).collect();
    let reachable: Vec<&str> =
        items(&metadata["resolve"]["nodes"]).filter_map(|node| node["id"].as_str()).collect();
    let wanted = items(&metadata["packages"])
        .filter(|package| package["id"].as_str().is_some_and(|id| reachable.contains(&id)));
    Ok(wanted.map(|package| read_package(package, &members, root)).collect())
}

fn read_package(package: &Value, members: &[&str], root: &Path) -> Package {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let manifest = text("manifest_path");
    let relative =
        Path::new(&manifest).strip_prefix(root).map(|path| path.to_string_lossy().into_owned());
    let dependencies = items(&package["dependencies"]).map(|dependency| Dependency {
        name: dependency["rename"]
            .as_str()
            .or(dependency["name"].as_str())
            .unwrap_or_default()
            .to_owned(),
        is_path: dependency["path"].is_string(),
    });
    Package {
        name: text("name"),
        version: text("version"),
        licence: package["license"].as_str().map(str::to_owned),
        is_member: members.contains(&package["id"].as_str().unwrap_or_default()),
        dependencies: dependencies.collect(),
        manifest: relative.unwrap_or(manifest),
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
