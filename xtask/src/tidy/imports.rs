//! Who imports what inside of a crate: folders of `proxy` in the order of the data, and sockets and
//! the words of HTTP/1 only where they belong.

use super::Finding;
use super::modules::{Modules, Paths, Source, by_crate};
use crate::source;
use crate::workspace::File;

/// Where the files of the proxy's pipeline are.
const PROXY: &str = "crates/proxy/src/";

/// Parts of `proxy` from the base to the top. A file imports of its own row and of rows above it,
/// never of a row further down.
const PROXY_ROWS: [&[&str]; 9] = [
    &[
        "config/",
        "budgets.rs",
        "bumped.rs",
        "client_counts.rs",
        "demands.rs",
        "core.rs",
        "cut.rs",
        "errors.rs",
        "handshake.rs",
        "leaf_turns.rs",
        "secure.rs",
        "helped.rs",
        "open_tunnel.rs",
        "outcome.rs",
        "pin.rs",
        "request.rs",
        "request/",
        "shared.rs",
    ],
    &["rules/"],
    &["fetch/"],
    &["lookup/"],
    &["storing/"],
    &["transaction.rs"],
    &["reply/"],
    &["special/"],
    &["lib.rs", "pipeline.rs", "callouts.rs", "queries.rs", "serve.rs"],
];

/// Sockets by their names.
const SOCKETS: [&str; 7] = [
    "TcpListener",
    "TcpSocket",
    "TcpStream",
    "UnixDatagram",
    "UnixListener",
    "UnixSocket",
    "UnixStream",
];

/// The crates that hold sockets and know HTTP/1, with all their files.
const PROTOCOL_CRATES: [&str; 3] = ["crates/exchange/", "crates/http/", "crates/net/"];

/// What other files name of them: sockets, and items of `humboldt_http::h1`.
const EXCEPTIONS: [(&str, &[&str]); 2] = [
    // Lines of logs are sent, and nothing is read.
    ("crates/logs/src/target.rs", &["TcpStream", "UnixDatagram"]),
    // Stored heads have the form of HTTP/1, also on disks. They are read as strictly as others.
    ("crates/store/src/head.rs", &["h1::HEAD_FIELDS_LIMIT", "h1::parse_response"]),
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let sources: Vec<Source<'_>> = files.iter().filter_map(Source::read).collect();
    let crates = by_crate(&sources);
    let mut findings: Vec<Finding> =
        crates.values().flat_map(|members| upward_imports(members)).collect();
    findings.extend(misplaced_words(&sources));
    findings
}

/// Files of `proxy` that import one of a row further down, and files without a row.
fn upward_imports<'a>(members: &[&'a Source<'a>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if members.first().is_none_or(|file| file.root != PROXY) {
        return findings;
    }
    let modules = Modules::of(members);
    for (index, file) in members.iter().enumerate() {
        let Some(row) = row_of(file.name()) else {
            let message = "has no row in the order of `proxy` (xtask/src/tidy/imports.rs)";
            findings.push(file.finding(0, message.to_owned()));
            continue;
        };
        for import in modules.imports(index) {
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
    for path in Paths::of(&file.text).found {
        if let ["humboldt_http", "h1", rest @ ..] = path.segments.as_slice() {
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
    fn sockets_and_http_1_stay_where_they_belong() {
        const STORED: &str = "crates/store/src/head.rs";
        for (path, text, count) in [
            ("crates/net/src/a.rs", "use tokio::net::TcpStream;", 0),
            ("crates/exchange/src/a.rs", "use humboldt_http::h1::parse_request;", 0),
            ("crates/acl/src/a.rs", "use humboldt_http::{Fields, HopByHop};", 0),
            ("crates/acl/src/a.rs", "#[cfg(test)]\nmod tests { use tokio::net::TcpStream; }", 0),
            ("crates/acl/tests/a.rs", "use tokio::net::TcpStream;", 0),
            ("crates/acl/src/a.rs", "use tokio::net::{TcpListener, TcpStream};", 2),
            ("crates/acl/src/a.rs", "use std::os::unix::net::UnixStream;", 1),
            ("crates/acl/src/a.rs", "use humboldt_http::{Fields, h1::{self, HeadError}};", 2),
            ("crates/acl/src/a.rs", "fn f() { humboldt_http::h1::write_field() }", 1),
            (STORED, "use humboldt_http::h1::{HEAD_FIELDS_LIMIT, parse_response};", 0),
            (STORED, "use humboldt_http::h1::{HEAD_FIELDS_LIMIT, HeadError, parse_response};", 1),
            // Exceptions that are not needed any more.
            (STORED, "", 2),
        ] {
            let found = findings(&[(path, text)]);
            assert_eq!(found.len(), count, "{path} {text}: {found:?}");
        }
    }
}
