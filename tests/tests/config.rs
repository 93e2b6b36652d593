//! squid.conf: accepted and refused files, the clarity of messages, and the effect of access rules.

use humboldt_tests::wait::free_address;
use humboldt_tests::{Origin, Proxy, Reply, World, proxy};
use std::fs;
use std::process::Output;
use tempfile::TempDir;

/// `-k parse` on a text; the directory is removed with the returned guard.
fn parse(text: &str) -> (bool, String, TempDir) {
    let folder = proxy::open_folder();
    let path = folder.path().join("squid.conf");
    fs::write(&path, text).expect("a configuration file");
    let output = proxy::run(&["-k", "parse", "-f", &path.display().to_string()]);
    (output.status.success(), said(&output), folder)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The configuration of the published measurements, as printed.
const PUBLISHED: &str = "\
visible_hostname linux-squid.bench.tst
acl All src 0/0
http_access allow All
cache_dir aufs /cache0 7500 16 256
cache_dir aufs /cache1 7500 16 256
cache_dir aufs /cache2 7500 16 256
cache_effective_user nobody
cache_effective_group nobody
cache_access_log /dev/null
cache_store_log none
logfile_rotate 0
";

/// The lines of a tuning article, as printed, but for its `cache_dir 6000 14 256`.
const TUNING_ARTICLE: &str = "\
cache_mem 32 MB
cache_store_log none
half_closed_clients off
maximum_object_size 1024 KB
cache_swap_high 100%
cache_swap_low 80%
";

const GOOD: &[(&str, &str)] = &[
    ("nothing at all", ""),
    ("comments and blank lines", "# one\n\n   # two\nhttp_port 3128 # three\n"),
    ("a line continued", "acl a src 10.0.0.0/8 \\\n  192.168.0.0/16\nhttp_access allow a\n"),
    ("the published measurements", PUBLISHED),
    ("the tuning article", TUNING_ARTICLE),
    (
        "predefined rules",
        "http_access deny manager !localhost\nhttp_access deny CONNECT\nhttp_access allow localhost\nhttp_access deny to_localhost\nhttp_access allow all\n",
    ),
    (
        "all access list types",
        "acl a src 10.0.0.0/8\nacl b dst 10.0.0.1\nacl c dstdomain .example.org\nacl d dstdom_regex -i ^www\nacl e url_regex ^http\nacl f urlpath_regex \\.gif$\nacl g port 80 1025-65535\nacl h method GET POST\nacl i proto HTTP\nacl j time MTWHF 08:00-17:00\n",
    ),
    (
        "units",
        "cache_mem 1 GB\nmaximum_object_size 512 KB\nread_timeout 5 minutes\nclient_lifetime 1 day\n",
    ),
    ("stores of the field", "cache_dir ufs /tmp/a 100 16 256\ncache_dir null /tmp\n"),
    (
        "an accelerator",
        "http_port 80 accel defaultsite=a.test vhost\ncache_peer 10.0.0.1 parent 8080 0 no-query originserver name=o\n",
    ),
    (
        "refresh patterns",
        "refresh_pattern ^ftp: 1440 20% 10080\nrefresh_pattern -i (/cgi-bin/|\\?) 0 0% 0\nrefresh_pattern . 0 20% 4320 override-expire ignore-reload\n",
    ),
    ("logs", "access_log stdio:/dev/stdout squid\ncache_log /dev/null\nlogfile_rotate 5\n"),
];

#[test]
fn configurations_of_the_field_are_accepted() {
    for (name, text) in GOOD {
        let (is_good, said, _) = parse(text);
        assert!(is_good, "{name}: {said}");
    }
}

/// A text with one error, its line, and the words that the message must have.
const BAD: &[(&str, &str, usize, &[&str])] = &[
    (
        "an unknown directive",
        "http_port 3128\nhttp_acess allow all\n",
        2,
        &["http_acess", "http_access"],
    ),
    ("an access list that does not exist", "http_access allow nobody\n", 1, &["nobody"]),
    ("an access list type that does not exist", "acl a srk 10.0.0.0/8\n", 1, &["srk"]),
    ("an address that is none", "\nacl a src 10.0.0.300\n", 2, &["10.0.0.300"]),
    ("a port out of range", "http_port 70000\n", 1, &["70000"]),
    ("a broken regular expression", "acl a url_regex ((x\n", 1, &["((x"]),
    ("a size without sense", "cache_mem many MB\n", 1, &["many"]),
    ("a time without sense", "read_timeout 5 parsecs\n", 1, &["parsecs"]),
    ("a store that does not exist", "cache_dir tape /dev/st0 100 16 256\n", 1, &["tape"]),
    ("on or off", "via perhaps\n", 1, &["perhaps"]),
    (
        "a file that cannot be included",
        "include /nowhere/at/all.conf\n",
        1,
        &["/nowhere/at/all.conf"],
    ),
];

#[test]
fn errors_name_the_file_the_line_and_the_cause() {
    let mut wrong = Vec::new();
    for (name, text, line, parts) in BAD {
        let (is_good, said, folder) = parse(text);
        if is_good {
            wrong.push(format!("{name}: accepted"));
        }
        // `file:line:column`, as compilers write it and editors read it.
        let place = format!("{}:{line}:", folder.path().join("squid.conf").display());
        for part in [place.as_str()].iter().chain(*parts) {
            if !said.contains(part) {
                wrong.push(format!("{name}: no `{part}` in:\n{said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_cannot_be_meant_is_said_with_its_place() {
    let (_, text, folder) = parse(&format!("{TUNING_ARTICLE}cache_dir 6000 14 256\n"));
    let file = folder.path().join("squid.conf").display().to_string();
    assert!(text.contains(&format!("{file}:7:")) && text.contains("6000"), "{text}");
}

#[test]
fn a_known_directive_without_support_says_so() {
    let (_, said, _) = parse("ssl_bump bump all\n");
    assert!(said.contains("ssl_bump"), "{said}");
    assert!(!said.to_lowercase().contains("unknown"), "{said}");
}

#[test]
fn files_can_be_included_and_errors_in_them_are_placed_there() {
    let folder = proxy::open_folder();
    let (main, part) = (folder.path().join("squid.conf"), folder.path().join("part.conf"));
    fs::write(&main, format!("include {}\n", part.display())).expect("a file");
    fs::write(&part, "acl good src 10.0.0.0/8\nbad_directive on\n").expect("a file");
    let output = proxy::run(&["-k", "parse", "-f", &main.display().to_string()]);
    assert!(!output.status.success());
    assert!(said(&output).contains(&format!("{}:2:", part.display())), "{}", said(&output));
}

#[test]
fn a_server_does_not_start_with_a_broken_configuration() {
    let folder = proxy::open_folder();
    let path = folder.path().join("squid.conf");
    fs::write(&path, format!("http_port {}\nhttp_acess allow all\n", free_address()))
        .expect("a file");
    let output = proxy::run(&["-N", "-f", &path.display().to_string()]);
    assert!(!output.status.success());
    assert!(said(&output).contains("http_acess"), "{}", said(&output));
}

#[test]
fn the_version_is_shown() {
    let output = proxy::run(&["-v"]);
    assert!(output.status.success());
    // The same beginning as Squid's, for scripts that look for it.
    let said = said(&output);
    assert!(said.lines().next().is_some_and(|line| line.contains("Cache: Version ")), "{said}");
    assert!(said.contains("Version 0.1") || proxy::is_squid(), "{said}");
}

#[test]
fn an_unknown_option_is_an_error() {
    assert!(!proxy::run(&["--no-such-option"]).status.success());
}

/// Access rules, a request, and whether it is allowed. `{o}` is the origin's address, `{p}` its
/// port.
const RULES: &[(&str, &str, &str, bool)] = &[
    (
        "nothing matches: the opposite of the last rule",
        "acl a src 10.9.9.9\nhttp_access deny a\n",
        "/",
        true,
    ),
    ("src allows", "acl a src 127.0.0.0/8\nhttp_access allow a\nhttp_access deny all\n", "/", true),
    ("src as a range", "acl a src 127.0.0.1-127.0.0.9\nhttp_access deny a\n", "/", false),
    ("dst", "acl a dst 127.0.0.1\nhttp_access deny a\n", "/", false),
    ("port", "acl a port {p}\nhttp_access deny a\n", "/", false),
    ("another port", "acl a port 80 443\nhttp_access deny !a\n", "/", false),
    ("url_regex", "acl a url_regex -i FORBIDDEN\nhttp_access deny a\n", "/forbidden", false),
    (
        "url_regex minds the case",
        "acl a url_regex FORBIDDEN\nhttp_access deny a\n",
        "/forbidden",
        true,
    ),
    ("urlpath_regex", "acl a urlpath_regex ^/x\nhttp_access deny a\n", "/x1", false),
    ("method", "acl a method GET\nhttp_access deny a\n", "/", false),
    ("another method", "acl a method POST\nhttp_access deny a\n", "/", true),
    ("proto", "acl a proto HTTP\nhttp_access deny a\n", "/", false),
    ("a time that is always", "acl a time SMTWHFA\nhttp_access deny a\n", "/", false),
    (
        "all terms of a line must hold",
        "acl a method GET\nacl b urlpath_regex ^/x\nhttp_access deny a b\n",
        "/",
        true,
    ),
    (
        "the first matching line wins",
        "acl a method GET\nhttp_access allow a\nhttp_access deny all\n",
        "/",
        true,
    ),
    (
        "a list in two lines",
        "acl a urlpath_regex ^/x\nacl a urlpath_regex ^/y\nhttp_access deny a\n",
        "/y",
        false,
    ),
    ("localhost", "http_access deny localhost\n", "/", false),
    ("to_localhost", "http_access deny to_localhost\n", "/", false),
    ("CONNECT is something else", "http_access deny CONNECT\n", "/", true),
];

#[test]
fn access_rules_decide_as_squids_do() {
    let origin = Origin::new();
    let mut wrong = Vec::new();
    for (name, lines, path, is_allowed) in RULES {
        origin.on(path, Reply::ok("x"));
        let proxy = Proxy::forward(&lines.replace("{p}", &origin.address().port().to_string()));
        let mut client = proxy.client();
        let status = client.request("GET", &origin.url(path), &[], b"").response().status();
        if status != if *is_allowed { 200 } else { 403 } {
            wrong.push(format!("{name}: {status}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn domains_match_themselves_and_with_a_dot_everything_below() {
    let folder = proxy::open_folder();
    let hosts = folder.path().join("hosts");
    let names = ["example.test", "www.example.test", "badexample.test", "other.test"];
    fs::write(&hosts, names.map(|name| format!("127.0.0.1 {name}\n")).concat())
        .expect("a hosts file");
    let origin = Origin::new();
    origin.on("/", Reply::ok("x"));
    let port = origin.address().port();
    for (list, denied) in [
        ("dstdomain example.test", vec!["example.test"]),
        ("dstdomain .example.test", vec!["example.test", "www.example.test"]),
        ("dstdom_regex example", vec!["example.test", "www.example.test", "badexample.test"]),
    ] {
        let lines = format!("hosts_file {}\nacl a {list}\nhttp_access deny a\n", hosts.display());
        let proxy = Proxy::forward(&lines);
        for name in names {
            let mut client = proxy.client();
            let target = format!("http://{name}:{port}/");
            let status = client.request("GET", &target, &[], b"").response().status();
            assert_eq!(status == 403, denied.contains(&name), "{list}: {name}: {status}");
        }
    }
}

#[test]
fn lists_can_come_from_files() {
    let folder = proxy::open_folder();
    let list = folder.path().join("list");
    fs::write(&list, "# comment\n^/forbidden\n\n^/also\n").expect("a list");
    let world = World::forward(&format!(
        "acl a urlpath_regex \"{}\"\nhttp_access deny a\n",
        list.display()
    ));
    for (path, status) in [("/forbidden", 403), ("/also/this", 403), ("/fine", 200)] {
        world.origin.on(path, Reply::ok("x"));
        let _ = world.get(path).expect(status);
    }
}
