//! No big circles of files that import each other: to understand one of them, a reader has to read
//! all.

use super::Finding;
use super::modules::{Import, Modules, Source, by_crate};
use crate::workspace::File;
use std::collections::BTreeSet;

/// Most files that may import each other in a circle.
const CIRCLE_FILES_MAX: usize = 3;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let sources: Vec<Source<'_>> = files.iter().filter_map(Source::read).collect();
    let crates = by_crate(&sources);
    let finding = |circle: Circle<'_>| {
        let names: Vec<&str> = circle.files.iter().map(|file| file.name()).collect();
        let message = format!(
            "a circle of {} files, at most {CIRCLE_FILES_MAX} may import each other: {}",
            names.len(),
            names.join(", ")
        );
        circle.files[0].finding(circle.at, message)
    };
    crates.values().flat_map(|members| circles(members)).map(finding).collect()
}

/// More than [`CIRCLE_FILES_MAX`] files that import each other.
struct Circle<'a> {
    files: Vec<&'a Source<'a>>,
    /// Where the first one imports another.
    at: usize,
}

fn circles<'a>(members: &[&'a Source<'a>]) -> Vec<Circle<'a>> {
    let modules = Modules::of(members);
    let imports: Vec<Vec<Import>> = (0..members.len()).map(|file| modules.imports(file)).collect();
    let reached: Vec<BTreeSet<usize>> =
        (0..members.len()).map(|from| reachable(&imports, from)).collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for first in 0..members.len() {
        let in_circle =
            |&other: &usize| reached[first].contains(&other) && reached[other].contains(&first);
        let circle: Vec<usize> = (0..members.len()).filter(in_circle).collect();
        if circle.len() > CIRCLE_FILES_MAX && seen.insert(circle.clone()) {
            let import = imports[first].iter().find(|import| circle.contains(&import.to));
            let files = circle.iter().map(|&file| members[file]).collect();
            found.push(Circle { files, at: import.map_or(0, |import| import.at) });
        }
    }
    found
}

/// The files that `from` imports, directly or by others.
fn reachable(imports: &[Vec<Import>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        open.extend(imports[file].iter().map(|import| import.to).filter(|&to| reached.insert(to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let files: Vec<File> = files.iter().map(file).collect();
        let line = |found: Finding| format!("{}:{}: {}", found.path, found.line, found.message);
        check(&files).into_iter().map(line).collect()
    }

    #[test]
    fn circles_of_more_than_three_files_are_found_once() {
        let circle = |last: &'static str| {
            [
                ("crates/a/src/b.rs", "\nuse crate::c;"),
                ("crates/a/src/c/mod.rs", "use crate::{d::D, b};"),
                ("crates/a/src/d.rs", "fn f() -> super::e::E {}"),
                ("crates/a/src/e.rs", last),
                ("crates/z/src/b.rs", "use crate::e;"),
            ]
        };
        for import in ["use crate::b::B;", "use super::b::B;", "struct C { b: super::b::B }"] {
            let expected = "crates/a/src/b.rs:2: a circle of 4 files, at most 3 may import each \
                other: b.rs, c/mod.rs, d.rs, e.rs";
            assert_eq!(findings(&circle(import)), [expected]);
        }
        for harmless in ["", "// crate::b", "#[cfg(test)]\nmod tests { use crate::b; }"] {
            assert_eq!(findings(&circle(harmless)), [""; 0], "{harmless}");
        }
        let mut for_tests = circle("use crate::b;").to_vec();
        for_tests.push(("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod d;"));
        assert_eq!(findings(&for_tests), [""; 0]);
        let three = [
            ("crates/a/src/b.rs", "use crate::c;"),
            ("crates/a/src/c.rs", "use crate::d;"),
            ("crates/a/src/d.rs", "use crate::b;"),
        ];
        assert_eq!(findings(&three), [""; 0]);
    }

    #[test]
    fn a_module_and_files_inside_of_it_make_circles_like_others() {
        let module = |last: &'static str| {
            [
                ("crates/a/src/m/mod.rs", "mod b;\nmod c;\nmod d;\nuse b::B;\nfn f() { d::f() }"),
                ("crates/a/src/m/b.rs", "use super::c::C;"),
                ("crates/a/src/m/c.rs", "use super::M;"),
                ("crates/a/src/m/d.rs", last),
            ]
        };
        assert_eq!(findings(&module("")), [""; 0]);
        assert_eq!(findings(&module("use super::M;")).len(), 1);
        // A file that passes an item on has no import of its own.
        let mut files = module("use super::M;");
        files[0].1 = "mod b;\nmod c;\nmod d;\npub use b::B;\npub use d::D;";
        assert_eq!(findings(&files), [""; 0]);
    }
}
