//! Whole files: what must load, what must not, and what is said about it.

use std::path::Path;

use humboldt_conf::{Config, Diagnostics, Scheme, Severity, load, parse_str};

fn text_of(found: &Diagnostics) -> String {
    found.render(false)
}

fn loads(text: &str) -> (Config, Diagnostics) {
    let (config, found) = parse_str("test.conf", text);
    assert!(!found.has_errors(), "{}", text_of(&found));
    (config, found)
}

#[test]
fn a_file_with_every_kind_of_value_loads() {
    let (config, found) = loads(include_str!("fixtures/everything.conf"));
    assert_eq!(found.count(Severity::Warning), 0, "{}", text_of(&found));
    assert_eq!(
        (config.http_port.len(), config.cache_dir.len(), config.http_access.len()),
        (3, 2, 5)
    );
    assert!(!config.via, "the macro after `workers 2` is 1");
    assert_eq!(config.hosts_file.as_deref(), Some("/etc/hosts"));
    assert_eq!(config.client_idle_pconn_timeout.as_secs(), 5400);
}

#[test]
fn defaults_need_no_file() {
    let (config, found) = loads("http_port 3128\nhttp_access allow localhost\n");
    assert_eq!(found.iter().count(), 0, "{}", text_of(&found));
    assert_eq!((config.cache_mem, config.maximum_object_size), (256 << 20, 4 << 20));
    assert_eq!(
        (config.cache_swap_low, config.cache_swap_high, config.quick_abort_pct),
        (90, 95, 95)
    );
    assert_eq!(config.max_stale.as_secs(), 7 * 86_400);
    assert!(config.collapsed_forwarding && config.via && !config.half_closed_clients);
    assert_eq!(config.acl.len(), 11);
}

/// The configuration of a well-known comparison of file systems, as published.
const BENCHMARK: &str = "\
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

#[test]
fn the_benchmark_configuration_loads_as_published() {
    let (config, found) = parse_str("squid.conf", BENCHMARK);
    // It relies on port 3128 being the default, as it was in Squid 2.
    let errors: Vec<_> =
        found.iter().filter(|d| d.severity == Severity::Error).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{}", text_of(&found));
    assert_eq!(config.cache_dir.len(), 3);
    assert!(
        config
            .cache_dir
            .iter()
            .all(|dir| dir.scheme() == Scheme::Aufs && dir.size_bytes == 7500 << 20)
    );
    assert_eq!(config.http_access[0].terms[0].name, "all");
    assert_eq!(config.access_log[0].place.as_deref(), Some("/dev/null"));
    assert_eq!(
        (config.logfile_rotate, config.cache_effective_group.as_deref()),
        (0, Some("nobody"))
    );
    assert_eq!(config.http_port[0].port, 3128);
}

#[test]
fn old_names_work_and_are_noted() {
    let (config, found) =
        loads("http_port 1\nhttp_access allow all\nno_cache deny all\ncache_access_log none\n");
    assert_eq!((config.cache.len(), found.count(Severity::Warning)), (1, 0), "{}", text_of(&found));
    let text = text_of(&found);
    assert!(
        text.contains("`no_cache` is an old name of `cache`") && text.contains("test.conf:3:1"),
        "{text}"
    );
    assert!(text.contains("`cache_access_log` is an old name of `access_log`"), "{text}");
}

#[test]
fn the_same_text_with_its_line_breaks_lost_is_explained() {
    let (_, found) = parse_str("squid.conf", &BENCHMARK.replace('\n', " "));
    assert!(found.has_errors());
    let text = text_of(&found);
    assert!(text.contains("squid.conf:1:40"), "{text}");
    assert!(text.contains("`acl` is a directive: were line breaks lost?"), "{text}");
}

#[test]
fn the_lines_of_the_tuning_article() {
    let text = "http_port 3128\nhttp_access allow localhost\ncache_mem 32 MB\ncache_store_log none\n\
                max_open_disk_fds 90\nhalf_closed_clients off\nmaximum_object_size 1024 KB\n\
                cache_swap_high 100%\ncache_swap_low 80%\n";
    let (config, found) = loads(text);
    assert_eq!(found.iter().count(), 0, "{}", text_of(&found));
    assert_eq!((config.cache_mem, config.maximum_object_size), (32 << 20, 1 << 20));
    assert_eq!(
        (config.cache_swap_low, config.cache_swap_high, config.max_open_disk_fds),
        (80, 100, 90)
    );
    let (_, found) = parse_str("squid.conf", "http_port 3128\ncache_dir 6000 14 256\n");
    let text = text_of(&found);
    assert!(text.contains("squid.conf:2:11") && text.contains("^^^^"), "{text}");
    assert!(text.contains("write `cache_dir ufs /path/to/cache 6000 14 256`"), "{text}");
}

#[test]
fn directives_that_are_not_obeyed_say_so() {
    let text = "http_port 1\nhttp_access allow localhost\numask 022\npconn_lifetime 5\n\
                hierarchy_stoplist cgi-bin ?\nhttpd_accel_host x\n";
    let (_, found) = loads(text);
    assert_eq!(
        (found.count(Severity::Note), found.count(Severity::Warning)),
        (1, 3),
        "{}",
        text_of(&found)
    );
    let (_, found) = parse_str("t", "http_port 1\nhtpt_access allow all\n");
    assert!(text_of(&found).contains("did you mean `http_access`?"), "{}", text_of(&found));
}

#[test]
fn interception_that_filters_is_never_left_out_silently() {
    let base = "http_port 3128 ssl-bump\nhttp_access allow localhost\n";
    let has_errors = |text: &str| parse_str("t", &format!("{base}{text}\n")).1.has_errors();
    assert!(!has_errors("ssl_bump splice all\nssl_bump peek all\nssl_bump terminate all"));
    assert!(has_errors("ssl_bump bump all") && has_errors("ssl_bump stare all"));
    assert!(has_errors("sslcrtvalidator_program /x"));
    let (_, found) = parse_str("t", &format!("{base}ssl_bump bump all\nrun_without ssl_bump\n"));
    assert!(!found.has_errors() && found.render(false).contains("are left out"));
}

#[test]
fn conditions_nest() {
    let text = "http_port 1\nif false\nif true\nvia off\nendif\nelse\nif 0x10 = 16\nhalf_closed_clients on\nendif\nendif\n";
    let (config, _) = loads(text);
    assert!(config.via && config.half_closed_clients);
    for bad in [
        "if true\n",
        "else\n",
        "endif\n",
        "if maybe\nendif\n",
        "if 1 = x\nendif\n",
        "if true\nelse\nelse\nendif\n",
    ] {
        assert!(parse_str("t", &format!("http_port 1\n{bad}")).1.has_errors(), "{bad}");
    }
}

#[test]
fn files_are_included_by_pattern_and_not_in_circles() {
    let dir = tempfile::tempdir().expect("dir");
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("write");
    let main = dir.path().join("squid.conf");
    let at = dir.path().display();
    write(
        "squid.conf",
        &format!("include {at}/d?.inc \"{at}/last\" # why\nhttp_access allow lan\n"),
    );
    write("d1.inc", "http_port 1\nacl lan src 192.0.2.0/24\n");
    write("d2.inc", "acl lan src 198.51.100.0/24\nvia\n");
    write("last", "visible_hostname x\n");
    let (config, found) = load(&main);
    assert_eq!(found.count(Severity::Error), 1, "{}", text_of(&found));
    assert!(text_of(&found).contains("d2.inc:2:1"), "{}", text_of(&found));
    assert_eq!(
        config.acl.iter().find(|acl| acl.name == "lan").map(|acl| acl.values.len()),
        Some(2)
    );
    assert_eq!(config.visible_hostname.as_deref(), Some("x"));

    write("squid.conf", &format!("http_port 1\ninclude {at}/loop\n"));
    write("loop", &format!("include {at}/squid.conf\n"));
    let (_, found) = load(&main);
    assert!(text_of(&found).contains("includes itself"), "{}", text_of(&found));

    for depth in 0..20 {
        write(&format!("n{depth}"), &format!("include {at}/n{}\n", depth + 1));
    }
    write("n20", "http_port 1\n");
    let (_, found) = load(&dir.path().join("n0"));
    assert!(text_of(&found).contains("more than 16 deep"), "{}", text_of(&found));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let (_, found) = load(Path::new("/nonexistent/squid.conf"));
    assert!(found.has_errors() && text_of(&found).contains("/nonexistent/squid.conf"));
}

#[test]
fn blanks_that_are_none_are_pointed_out() {
    let (_, found) = parse_str("t", "http_port 3127\u{a0}\n");
    assert!(text_of(&found).contains("U+00A0"), "{}", text_of(&found));
}

#[test]
fn bytes_that_are_not_utf8_do_no_harm() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c");
    std::fs::write(&path, b"# caf\xe9\nhttp_port 1\nhttp_access allow localhost # \xff\n")
        .expect("write");
    let (config, found) = load(&path);
    assert!(!found.has_errors(), "{}", text_of(&found));
    assert_eq!(config.http_access.len(), 1);
}

/// Real files from the net, when there are some: `HUMBOLDT_CORPUS` names a directory with
/// `squidconf/*.conf` and `squidconf/squid57-parse.tsv`, what Squid 5.7 said about each.
#[test]
fn what_squid_accepts_is_accepted_or_refused_for_a_reason() {
    let Some(corpus) = std::env::var_os("HUMBOLDT_CORPUS") else { return };
    let dir = Path::new(&corpus).join("squidconf");
    let verdicts = std::fs::read_to_string(dir.join("squid57-parse.tsv")).expect("verdicts");
    let accepted =
        verdicts.lines().filter_map(|line| line.split_once("\trc=0\t").map(|(file, _)| file));
    let reasons = ["cannot read", "cannot be evaluated", "not supported", "not implemented"];
    let mut files = 0;
    for file in accepted {
        let (_, found) = load(&dir.join(file));
        files += 1;
        for error in found.iter().filter(|d| d.severity == Severity::Error) {
            let known = reasons.iter().any(|reason| error.message.contains(reason));
            assert!(known, "{file}:{}: {}", error.line, error.message);
        }
    }
    assert!(files > 50);
}

#[test]
fn a_proxy_that_leaves_names_to_its_parents_is_warned_of_rules_that_look_them_up() {
    let child = "http_port 1\ncache_peer 127.0.0.1 parent 3128 0\nnever_direct allow all\n";
    let warned = |lines: &str| {
        let (_, found) = loads(&format!("{lines}http_access allow all\n"));
        text_of(&found).matches("looks up the name of every host").count()
    };
    assert_eq!(warned(&format!("{child}http_access deny to_localhost\n")), 1);
    assert_eq!(warned(&format!("{child}miss_access deny to_localhost\n")), 1);
    assert_eq!(warned(&format!("{child}acl d dst -n 127.0.0.0/8\nhttp_access deny d\n")), 0);
    assert_eq!(warned("http_port 1\nhttp_access deny to_localhost\n"), 0);
    assert_eq!(warned(child), 0);
}
