//! Who imports what inside of a crate: folders of `proxy` in the order of the data, no big circles,
//! and sockets and the words of HTTP/1 only where they belong.

use super::Finding;
use crate::source::{self, Token};
use crate::workspace::File;
use std::collections::{BTreeMap, BTreeSet};

/// Where the files of the proxy's pipeline are.
const PROXY: &str = "crates/proxy/src/";

/// Parts of `proxy` from the base to the top. A file imports of its own row and of rows above it,
/// never of a row further down.
const PROXY_ROWS: [&[&str]; 9] = [
    &[
        "config/",
        "client_counts.rs",
        "core.rs",
        "cut.rs",
        "errors.rs",
        "outcome.rs",
        "request.rs",
        "shared.rs",
    ],
    &["rules/"],
    &["fetch/"],
    &["lookup/"],
    &["storing/"],
    &["transaction.rs"],
    &["reply/"],
    &["special/"],
    &["lib.rs", "pipeline.rs", "serve.rs"],
];

/// Most files that may import each other in a circle.
const CIRCLE_FILES_MAX: usize = 3;

/// Sockets by their names.
const SOCKETS: [&str; 3] = ["TcpListener", "TcpSocket", "TcpStream"];

/// The crates that hold sockets and know HTTP/1, with all their files.
const PROTOCOL_CRATES: [&str; 3] = ["crates/exchange/", "crates/http/", "crates/net/"];

/// What other files name of them: sockets, and items of `humboldt_http::h1`.
const EXCEPTIONS: [(&str, &[&str]); 7] = [
    // Ports are opened before privileges are given up, and handed to `net`.
    ("crates/humboldt/src/ports.rs", &["TcpListener"]),
    // Limits as configured.
    ("crates/proxy/src/config/snapshot.rs", &["h1::HeadLimits"]),
    // Which error page an error of a head becomes.
    ("crates/proxy/src/fetch/converse.rs", &["h1::HeadError"]),
    ("crates/proxy/src/special/unparsed.rs", &["h1::HeadError"]),
    // Fields inside a body: multipart/byteranges, message/http.
    ("crates/proxy/src/reply/assemble.rs", &["h1::write_field"]),
    ("crates/proxy/src/special/internal.rs", &["h1::write_field", "h1::write_request_line"]),
    // Stored heads have the form of HTTP/1.
    (
        "crates/store/src/head.rs",
        &["h1::HEAD_FIELDS_LIMIT", "h1::HeadLimits", "h1::parse_response"],
    ),
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let sources: Vec<Source<'_>> = files.iter().filter_map(Source::read).collect();
    let crates = by_crate(&sources);
    let mut findings = Vec::new();
    for members in crates.values() {
        findings.extend(circles(members));
        findings.extend(upward_imports(members));
    }
    findings.extend(misplaced_words(&sources));
    findings
}

/// A source file of a crate, without comments, literals and tests.
struct Source<'a> {
    path: &'a str,
    /// The folder of its crate's source, with a `/` at its end.
    root: &'a str,
    text: String,
}

impl<'a> Source<'a> {
    /// `None` for a file that is no part of a crate of the program, or a test.
    fn read(file: &'a File) -> Option<Self> {
        let path = file.path.as_str();
        let src = path.strip_prefix("crates/")?.find("/src/")? + "crates/".len() + "/src/".len();
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let text = source::without_tests(&source::mask(&file.text));
        (!is_test).then_some(Self { path, root: &path[..src], text })
    }

    /// The path below the source folder.
    fn name(&self) -> &'a str {
        &self.path[self.root.len()..]
    }

    /// The module as its segments; none for the crate's root.
    fn module(&self) -> Vec<&'a str> {
        let name = self.name().trim_end_matches(".rs");
        let mut segments: Vec<&str> = name.split('/').collect();
        if matches!(segments.last(), Some(&("mod" | "lib" | "main"))) {
            segments.pop();
        }
        segments
    }

    fn finding(&self, at: usize, message: String) -> Finding {
        Finding::new(self.path, source::line_of(&self.text, at), message)
    }
}

/// The sources of each crate by its source folder.
fn by_crate<'s>(sources: &'s [Source<'s>]) -> BTreeMap<&'s str, Vec<&'s Source<'s>>> {
    let mut crates = BTreeMap::<_, Vec<_>>::new();
    for source in sources {
        crates.entry(source.root).or_default().push(source);
    }
    crates
}

/// A path in the source, for example of a `use` item, and where it begins.
struct PathUse<'t> {
    segments: Vec<&'t str>,
    at: usize,
}

/// All paths that begin with `first`; groups in braces are taken apart.
fn paths<'t>(text: &'t str, first: &str) -> Vec<PathUse<'t>> {
    let tokens = source::tokens(text);
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at].text == first) {
        // `a::crate` and `a.super` do not begin here.
        if at == 0 || !matches!(tokens[at - 1].text, ":" | ".") {
            let mut reader = PathReader { tokens: &tokens, at: at + 1, found: &mut found };
            reader.rest(&mut Vec::new(), tokens[at].at);
        }
    }
    found
}

struct PathReader<'r, 't> {
    tokens: &'r [Token<'t>],
    at: usize,
    found: &'r mut Vec<PathUse<'t>>,
}

impl<'t> PathReader<'_, 't> {
    fn word(&self, ahead: usize) -> &'t str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    /// What follows `path`: more segments, a group, or its end.
    fn rest(&mut self, path: &mut Vec<&'t str>, begin: usize) {
        let is_path = self.word(0) == ":" && self.word(1) == ":";
        let next = self.word(2);
        if is_path && next == "{" {
            self.at += 3;
            self.group(path);
        } else if is_path && next.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            self.at += 3;
            path.push(next);
            self.rest(path, begin);
            path.pop();
        } else if !path.is_empty() || is_path {
            // Behind `::` there may be `*`, or `<`.
            self.at += if is_path { 3 } else { 0 };
            self.found.push(PathUse { segments: path.clone(), at: begin });
        }
    }

    /// The members of a group, up to its closing brace.
    fn group(&mut self, path: &mut Vec<&'t str>) {
        while !matches!(self.word(0), "" | "}") {
            let (word, begin) = (self.word(0), self.tokens[self.at].at);
            self.at += 1;
            match word {
                "," => {}
                "self" | "*" => self.found.push(PathUse { segments: path.clone(), at: begin }),
                "as" => self.at += 1,
                _ => {
                    path.push(word);
                    self.rest(path, begin);
                    path.pop();
                }
            }
        }
        self.at += 1;
    }
}

/// An import of one file of a crate by another.
struct Import {
    /// Index of the file that is imported.
    to: usize,
    at: usize,
}

/// Finds the files that paths lead to.
struct Modules<'a> {
    files: BTreeMap<Vec<&'a str>, usize>,
    /// Files of the items that the crate's root names as its own.
    exported: BTreeMap<&'a str, usize>,
}

impl<'a> Modules<'a> {
    fn of(members: &[&'a Source<'a>]) -> Self {
        let files = members.iter().enumerate().map(|(index, file)| (file.module(), index));
        let mut modules = Self { files: files.collect(), exported: BTreeMap::new() };
        let Some(root) = modules.file(&[]).map(|index| members[index]) else { return modules };
        for file in members {
            let [module] = file.module()[..] else { continue };
            for mut path in paths(&root.text, module) {
                path.segments.insert(0, module);
                let to = modules.file(&path.segments);
                modules.exported.extend(path.segments.last().copied().zip(to));
            }
        }
        modules
    }

    /// The file of the longest part of the path that is a module, or of an item that the root
    /// names.
    fn file(&self, path: &[&str]) -> Option<usize> {
        let named = || self.exported.get(path.first()?).copied();
        let module = (1..=path.len()).rev().find_map(|len| self.files.get(&path[..len]).copied());
        module.or_else(named).or_else(|| self.files.get(&[][..]).copied())
    }

    /// Imports by paths that begin with `crate`.
    fn imports(&self, file: &Source<'_>) -> Vec<Import> {
        let found = paths(&file.text, "crate").into_iter();
        found
            .filter_map(|path| Some(Import { to: self.file(&path.segments)?, at: path.at }))
            .collect()
    }

    /// Imports by paths that begin with `super`.
    fn relative_imports(&self, file: &Source<'_>) -> Vec<Import> {
        let mut imports = Vec::new();
        for path in paths(&file.text, "super") {
            let mut base = file.module();
            base.pop();
            let mut segments = path.segments.as_slice();
            while let ["super", rest @ ..] = segments {
                base.pop();
                segments = rest;
            }
            base.extend(segments);
            imports.extend(self.file(&base).map(|to| Import { to, at: path.at }));
        }
        imports
    }
}

/// Files of `proxy` that import one of a row further down, and files without a row.
fn upward_imports<'a>(members: &[&'a Source<'a>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if members.first().is_none_or(|file| file.root != PROXY) {
        return findings;
    }
    let modules = Modules::of(members);
    for file in members {
        let Some(row) = row_of(file.name()) else {
            let message = "has no row in the order of `proxy` (xtask/src/tidy/imports.rs)";
            findings.push(file.finding(0, message.to_owned()));
            continue;
        };
        for import in modules.imports(file).into_iter().chain(modules.relative_imports(file)) {
            let other = members[import.to];
            if row_of(other.name()).is_some_and(|used| used > row) {
                let message = format!("may not import `{}`, which is further down", other.name());
                findings.push(file.finding(import.at, message));
            }
        }
    }
    findings
}

fn row_of(name: &str) -> Option<usize> {
    let is_part = |part: &&str| name == *part || part.ends_with('/') && name.starts_with(part);
    PROXY_ROWS.iter().position(|parts| parts.iter().any(is_part))
}

/// Circles of more files than [`CIRCLE_FILES_MAX`].
fn circles<'a>(members: &[&'a Source<'a>]) -> Vec<Finding> {
    let modules = Modules::of(members);
    let imports: Vec<Vec<Import>> = members.iter().map(|file| modules.imports(file)).collect();
    let reached: Vec<BTreeSet<usize>> =
        (0..members.len()).map(|from| reachable(&imports, from)).collect();
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for first in 0..members.len() {
        let in_circle =
            |&other: &usize| reached[first].contains(&other) && reached[other].contains(&first);
        let circle: Vec<usize> = (0..members.len()).filter(in_circle).collect();
        if circle.len() <= CIRCLE_FILES_MAX || !seen.insert(circle.clone()) {
            continue;
        }
        let names: Vec<&str> = circle.iter().map(|&file| members[file].name()).collect();
        let at = imports[first].iter().find(|import| circle.contains(&import.to));
        let message = format!(
            "a circle of {} files, at most {CIRCLE_FILES_MAX} may import each other: {}",
            names.len(),
            names.join(", ")
        );
        findings.push(members[first].finding(at.map_or(0, |import| import.at), message));
    }
    findings
}

/// The files that `from` imports, directly or by others.
fn reachable(imports: &[Vec<Import>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        // A file that names its own module is no circle.
        let next = imports[file].iter().map(|import| import.to).filter(|&to| to != file);
        open.extend(next.filter(|&to| reached.insert(to)));
    }
    reached
}

/// Sockets, and items of HTTP/1, in files that have no business with them; exceptions that nobody
/// needs any more.
fn misplaced_words(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = |file: &&Source<'_>| !PROTOCOL_CRATES.iter().any(|one| file.path.starts_with(one));
    for file in sources.iter().filter(others) {
        let listed = EXCEPTIONS.iter().find(|(path, _)| *path == file.path);
        let permitted = listed.map_or(&[][..], |(_, names)| names);
        let used = words_of_protocols(file);
        for (name, at) in &used {
            if !permitted.contains(&name.as_str()) {
                let message = format!("`{name}` belongs into `exchange`, `net` or `http`");
                findings.push(file.finding(*at, message));
            }
        }
        for name in permitted.iter().filter(|name| used.iter().all(|(other, _)| other != *name)) {
            let message = format!("`{name}` needs no exception (xtask/src/tidy/imports.rs)");
            findings.push(file.finding(0, message));
        }
    }
    findings
}

/// What a file names, and where.
fn words_of_protocols(file: &Source<'_>) -> Vec<(String, usize)> {
    let tokens = source::tokens(&file.text);
    let sockets = tokens.iter().filter(|token| SOCKETS.contains(&token.text));
    let mut found: Vec<(String, usize)> =
        sockets.map(|token| (token.text.to_owned(), token.at)).collect();
    for path in paths(&file.text, "humboldt_http") {
        if let ["h1", rest @ ..] = path.segments.as_slice() {
            found.push((format!("h1::{}", rest.first().unwrap_or(&"*")), path.at));
        }
    }
    found
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
    fn paths_are_read_through_groups_aliases_and_expressions() {
        let text = "use crate::a::{self, b::{C, D as E}, f::*};\nlet x = crate::g::H { crate: 1 };
            pub(crate) fn i() { $crate::j::k!(crate::l::<u8>) }";
        let found: Vec<String> =
            paths(text, "crate").iter().map(|path| path.segments.join("::")).collect();
        let expected = ["a", "a::b::C", "a::b::D", "a::f", "g::H", "j::k", "l"];
        assert_eq!(found, expected);
    }

    #[test]
    fn files_of_the_proxy_import_nothing_from_further_down() {
        let below = [
            ("crates/proxy/src/reply/mod.rs", "use crate::storing::decide;"),
            ("crates/proxy/src/storing/mod.rs", "use super::request::Request;"),
            ("crates/proxy/src/request.rs", "use crate::{core::Core, config::names};"),
            ("crates/proxy/src/config/mod.rs", "//! See [`crate::rules`].\nuse crate::request::A;"),
            ("crates/proxy/src/core.rs", ""),
            ("crates/proxy/src/special/a.rs", "use crate::reply::a;"),
            ("crates/proxy/src/pipeline.rs", "use crate::special::a;"),
        ];
        assert_eq!(findings(&below), [""; 0]);
        for (path, text) in [
            ("crates/proxy/src/core.rs", "\nuse crate::{rules::header};"),
            ("crates/proxy/src/rules/a.rs", "\nuse crate::fetch::job;"),
            ("crates/proxy/src/rules/a.rs", "\nfn f() { super::super::fetch::job() }"),
            ("crates/proxy/src/config/mod.rs", "\nuse super::fetch;"),
            ("crates/proxy/src/lookup/a.rs", "\nuse crate::transaction::Transaction;"),
            ("crates/proxy/src/storing/a.rs", "\nuse crate::pipeline;"),
            ("crates/proxy/src/reply/a.rs", "\nuse crate::special;"),
            // Through the crate's root.
            ("crates/proxy/src/reply/b.rs", "\nuse crate::Tunnel;"),
        ] {
            let others = [
                ("crates/proxy/src/lib.rs", "mod special;\npub use special::{Tunnel};"),
                ("crates/proxy/src/pipeline.rs", ""),
                ("crates/proxy/src/transaction.rs", ""),
                ("crates/proxy/src/rules/header.rs", ""),
                ("crates/proxy/src/fetch/mod.rs", ""),
                ("crates/proxy/src/special/mod.rs", ""),
            ];
            let found = findings(&[&others[..], &[(path, text)]].concat());
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            let start = format!("{path}:2: may not import");
            assert!(found[0].starts_with(&start), "{found:?}");
        }
    }

    #[test]
    fn a_file_of_the_proxy_without_a_row_is_found() {
        assert_eq!(findings(&[("crates/proxy/src/extra.rs", "")]).len(), 1);
        assert_eq!(findings(&[("crates/proxy/src/tests/a.rs", "use crate::b;")]), [""; 0]);
    }

    #[test]
    fn circles_of_more_than_three_files_are_found_once() {
        let circle = |last: &'static str| {
            [
                ("crates/a/src/b.rs", "\nuse crate::c;"),
                ("crates/a/src/c/mod.rs", "use crate::{d::D, b};"),
                ("crates/a/src/d.rs", "fn f() -> crate::e::E {}"),
                ("crates/a/src/e.rs", last),
                ("crates/z/src/b.rs", "use crate::e;"),
            ]
        };
        let found = findings(&circle("use crate::b::B;"));
        let expected = "crates/a/src/b.rs:2: a circle of 4 files, at most 3 may import each other: \
            b.rs, c/mod.rs, d.rs, e.rs";
        assert_eq!(found, [expected]);
        for harmless in ["", "// crate::b", "#[cfg(test)]\nmod tests { use crate::b; }"] {
            assert_eq!(findings(&circle(harmless)), [""; 0], "{harmless}");
        }
        let three = [
            ("crates/a/src/b.rs", "use crate::c;"),
            ("crates/a/src/c.rs", "use crate::d;"),
            ("crates/a/src/d.rs", "use crate::b;"),
        ];
        assert_eq!(findings(&three), [""; 0]);
    }

    #[test]
    fn sockets_and_http_1_stay_where_they_belong() {
        for (path, text, count) in [
            ("crates/net/src/a.rs", "use tokio::net::TcpStream;", 0),
            ("crates/exchange/src/a.rs", "use humboldt_http::h1::parse_request;", 0),
            ("crates/acl/src/a.rs", "use humboldt_http::{Fields, HopByHop};", 0),
            ("crates/acl/src/a.rs", "#[cfg(test)]\nmod tests { use tokio::net::TcpStream; }", 0),
            ("crates/acl/tests/a.rs", "use tokio::net::TcpStream;", 0),
            ("crates/acl/src/a.rs", "use tokio::net::{TcpListener, TcpStream};", 2),
            ("crates/acl/src/a.rs", "use humboldt_http::{Fields, h1::{self, HeadError}};", 2),
            ("crates/acl/src/a.rs", "fn f() { humboldt_http::h1::write_field() }", 1),
            ("crates/humboldt/src/ports.rs", "use std::net::TcpListener;", 0),
            ("crates/humboldt/src/ports.rs", "use std::net::{TcpListener, TcpStream};", 1),
            // An exception that is not needed any more.
            ("crates/humboldt/src/ports.rs", "", 1),
        ] {
            let found = findings(&[(path, text)]);
            assert_eq!(found.len(), count, "{path} {text}: {found:?}");
        }
    }
}
