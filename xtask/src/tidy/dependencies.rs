//! Every dependency is declared once, in the root manifest, with the reason beside it, and is used.

use super::Finding;
use super::modules::{PathUse, Paths};
use crate::source;
use crate::workspace::{File, Package};
use std::path::Path;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let is_root = file.path == "Cargo.toml";
    let is_member = file.path.ends_with("/Cargo.toml")
        && !file.path.starts_with("fuzz/")
        && !file.path.contains("/fuzz/");
    if !is_root && !is_member {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut section = "";
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let Some((name, value)) =
            line.split_once('=').filter(|_| section.ends_with("dependencies]"))
        else {
            continue;
        };
        let name = name.trim();
        if is_root && !value.contains("path =") && !value.contains('#') {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                format!("`{name}` has no `# reason`"),
            ));
        }
        let is_inherited = name.ends_with(".workspace") || value.contains("workspace = true");
        if is_member && !is_inherited && !name.starts_with('#') {
            let message = format!(
                "`{name}` takes its version from the root: write `{name}.workspace = true`"
            );
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
    findings
}

/// A package that depends on something uses its name somewhere, as `cargo machete` has it.
pub(super) fn check_use(files: &[File], packages: &[Package]) -> Vec<Finding> {
    let members = packages.iter().filter(|package| package.is_member);
    members.flat_map(|package| unused(files, package)).collect()
}

fn unused(files: &[File], package: &Package) -> Vec<Finding> {
    let folder = Path::new(&package.manifest).parent().unwrap_or(Path::new(""));
    let own = files.iter().filter(|file| Path::new(&file.path).starts_with(folder));
    let masked: Vec<String> = own.map(|file| source::mask(&file.text)).collect();
    let is_unused = |name: &&str| {
        let name = name.replace('-', "_");
        !masked.iter().any(|text| uses(text, &name))
    };
    let names = package.dependencies.iter().map(|dependency| dependency.name.as_str());
    let message = |name| format!("`{name}` is used in no source file of the package");
    names.filter(is_unused).map(|name| Finding::new(&package.manifest, 1, message(name))).collect()
}

/// Whether a file uses the crate `name`: a path begins with it. Where the file has a module of that
/// name, declared or imported, only `::name` is the crate.
fn uses(text: &str, name: &str) -> bool {
    let tokens = source::tokens(text);
    let names_it =
        |word: &str| tokens.windows(2).any(|pair| [pair[0].text, pair[1].text] == [word, name]);
    let paths = Paths::of(text).found;
    let imports_module = |path: &PathUse<'_>| {
        path.name == Some(name) && matches!(path.segments[0], "crate" | "self" | "super")
    };
    let has_module = names_it("mod") || paths.iter().any(imports_module);
    names_it("crate")
        || paths.iter().any(|path| match path.segments[..] {
            ["", first, ..] => first == name,
            [first, ..] => first == name && !has_module,
            [] => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check_file(&File { path: path.into(), text: text.into() })
            .into_iter()
            .map(|found| found.line)
            .collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let root = "[workspace.dependencies]\na = \"1\" # why\nb = \"1\"\nc = { path = \"c\" }\n[profile.dev]\nx = 1\n";
        assert_eq!(lines("Cargo.toml", root), [3]);
        assert_eq!(
            lines("crates/a/Cargo.toml", "[dependencies]\na.workspace = true\nb = \"1\"\n"),
            [3]
        );
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let text = "//! With b.\nuse a_one::A;\nfn c() -> &'static str { \"c\" }\n";
        let files = [("crates/x/src/lib.rs", text), ("crates/xy/src/lib.rs", "use b::B;")];
        let files = files.map(|(path, text)| File { path: path.into(), text: text.into() });
        let names = ["a-one", "b"];
        let package = Package {
            name: "x".into(),
            version: "1.0.0".into(),
            licence: None,
            manifest: "crates/x/Cargo.toml".into(),
            is_member: true,
            dependencies: names.map(|name| Dependency { name: name.into(), is_path: false }).into(),
        };
        let found = check_use(&files, &[package]);
        let message = "`b` is used in no source file of the package";
        assert_eq!(found, [Finding::new("crates/x/Cargo.toml", 1, message)]);
    }

    #[test]
    fn a_use_of_a_crate_is_a_path_that_begins_with_it() {
        let is_used = |text: &str| uses(&source::mask(text), "a");
        for text in [
            "use a::B;",
            "use a;",
            "use a as b;",
            "extern crate a;",
            "use {b::C, a::D};",
            "fn f() { a::g() }",
            "#[a::test]\nfn f() {}",
            "#[derive(a::B)]\nstruct C;",
            "mod a;\nuse ::a::B;",
            "use super::a;\nfn f() -> ::a::B { a::c() }",
            "use a::{a, b};\nfn f() { a(b) }",
        ] {
            assert!(is_used(text), "{text}");
        }
        for text in [
            "// a::B",
            "let a = 1;",
            "use super::a::B;",
            "b.a::<C>()",
            "struct B { a: C }",
            "mod a;\nfn f() { a::g() }",
            "use super::a;\nfn f() { a::g() }",
            "use super::{a, b};\nfn f() { a::g() }",
        ] {
            assert!(!is_used(text), "{text}");
        }
    }
}
