//! `ssl_bump` as `-k explain` shows it.

use humboldt_tests::authority::Authority;
use humboldt_tests::proxy::{open_folder, run};

/// `-k explain` with these arguments: its exit status and what it prints.
fn explain(lines: &str, arguments: &[&str]) -> (i32, String) {
    explain_file(&format!("http_port 3128 ssl-bump\n{lines}"), arguments)
}

/// The same of a whole file.
fn explain_file(text: &str, arguments: &[&str]) -> (i32, String) {
    let folder = open_folder();
    let file = folder.path().join("squid.conf");
    std::fs::write(&file, text).expect("a configuration");
    let file = file.display().to_string();
    let output = run(&[&["-f", &file, "-k", "explain"], arguments].concat());
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).replace(&file, "squid.conf");
    (output.status.code().unwrap_or(-1), text)
}

fn check(lines: &str, arguments: &[&str], code: i32, parts: &[&str]) {
    let arguments = [&["CONNECT", "www.good.test:443", "--dst", "192.0.2.1"], arguments].concat();
    let (found, text) = explain(lines, &arguments);
    assert_eq!(found, code, "{arguments:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

const NAMES: &str = "acl step1 at_step SslBump1\nacl good ssl::server_name .good.test\n\
                     acl bad dstdomain .bad.test\nhttp_access deny bad\nhttp_access allow all\n\
                     ssl_bump peek step1\nssl_bump splice good\nssl_bump terminate all\n";

#[test]
fn explain_shows_what_becomes_of_a_tunnel_at_each_step() {
    check(
        NAMES,
        &[],
        0,
        &[
            "ssl_bump, step 1",
            "squid.conf:7: peek step1: applies",
            "The client asks for www.good.test in TLS.",
            "ssl_bump, step 2",
            "squid.conf:7: peek step1: `step1` does not match",
            "squid.conf:8: splice good: applies\n  → splice",
            "The request is let in.",
        ],
    );
    check(
        NAMES,
        &["--sni", "Other.test"],
        3,
        &[
            "http_access, about CONNECT other.test:443",
            "squid.conf:8: splice good: `good` does not match",
            "squid.conf:9: terminate all: applies\n  → terminate",
            "The request is refused.",
        ],
    );
    check(NAMES, &["--sni", "www.bad.test"], 3, &["squid.conf:5: deny bad: applies"]);
    // Without a name, the host of CONNECT is what counts.
    check(NAMES, &["--sni", "none"], 0, &["names no server in TLS", "→ splice"]);
    let strict = format!("{NAMES}host_verify_strict on\n");
    check(&strict, &["--sni", "b.good.test"], 3, &["another name than that of CONNECT"]);
    // One that is refused before has no steps.
    let (code, text) = explain(NAMES, &["CONNECT", "www.bad.test:443", "--dst", "192.0.2.1"]);
    assert!(code == 3 && !text.contains("ssl_bump"), "{text}");
    let (code, text) = explain(NAMES, &["GET", "http://www.good.test/", "--dst", "192.0.2.1"]);
    assert!(code == 0 && !text.contains("ssl_bump"), "{text}");
}

#[test]
fn explain_says_what_only_the_running_proxy_sees() {
    let all = "http_access allow all\n";
    let guarded = format!("{all}ssl_bump terminate ssl::certUntrusted\nssl_bump peek all\n");
    check(&guarded, &[], 4, &["ssl_bump, step 3: splice, unless", "squid.conf:3"]);
    let plain = format!("{all}ssl_bump peek all\n");
    check(&plain, &[], 0, &["step 3: only splice can follow", "The request is let in."]);
    let sha1 = "07:".repeat(19) + "07";
    let fingerprint = format!("acl x server_cert_fingerprint {sha1}\n{all}ssl_bump splice !x\n");
    let waits = ["lets nothing pass", "→ peek, as no rule applies for certain"];
    check(&fingerprint, &[], 0, &waits);
    let chance = format!("acl x random 0.5\n{all}ssl_bump terminate x\n");
    check(&chance, &[], 4, &["only the running proxy knows `x`"]);
}

#[test]
fn explain_goes_on_with_the_name_of_a_redirected_connection() {
    let rules = "https_port 3129 intercept ssl-bump\nacl good dstdomain .good.test\n\
                 acl step1 at_step SslBump1\nhttp_access allow all\nssl_bump peek step1\n\
                 ssl_bump splice good\nssl_bump terminate all\n";
    let ask = |lines: &str, dst: &str| {
        let name = ["--sni", "www.good.test", "--port", "3129", "--dst", dst];
        explain(lines, &[&["CONNECT", "192.0.2.1:443"], &name[..]].concat())
    };
    let (code, text) = ask(rules, "192.0.2.1");
    assert!(code == 0 && text.contains("splice good: applies\n  → splice"), "{text}");
    assert!(!text.contains("none of that name"), "{text}");
    let (code, text) = ask(rules, "192.0.2.2");
    assert!(code == 0 && text.contains("the address is none of that name, so"), "{text}");
    let inside = ["GET", "https://www.good.test/", "--port", "3129", "--dst", "192.0.2.1"];
    assert!(explain(rules, &inside).1.contains("comes to this port as CONNECT ADDRESS:PORT"));
    let strict = format!("{rules}host_verify_strict on\n");
    assert_eq!(ask(&strict, "192.0.2.1").0, 0);
    let (code, text) = ask(&strict, "192.0.2.2");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("host_verify_strict: the address is none of that name"), "{text}");
}

#[test]
fn explain_says_what_is_seen_of_a_refusal() {
    let authority = Authority::new("ca");
    let rules = |last: &str| {
        let files = authority.ca().display().to_string();
        let key = files.replace("ca.pem", "ca.key");
        format!(
            "http_port 3129 ssl-bump tls-cert={files} tls-key={key}\nacl bad dstdomain .bad.test\n\
             acl step1 at_step SslBump1\nhttp_access deny bad\nhttp_access allow all\n{last}\n"
        )
    };
    let inside = "The client sees the refusal inside of its tunnel";
    let ends = "The client sees no page: the connection ends.";
    for (last, connect, by_name) in [
        ("ssl_bump bump all", inside, inside),
        ("ssl_bump stare step1\nssl_bump terminate all", inside, ends),
        ("ssl_bump peek step1\nssl_bump bump all", "The refusal is the answer.", inside),
        ("ssl_bump peek all", "The refusal is the answer.", ends),
        ("ssl_bump terminate all", ends, ""),
    ] {
        let lines = rules(last);
        let at = ["--port", "3129", "--dst", "192.0.2.1"];
        let (code, text) =
            explain_file(&lines, &[&["CONNECT", "www.bad.test:443"], &at[..]].concat());
        assert!(code == 3 && text.contains(connect), "{last}: {text}");
        let named = ["CONNECT", "www.good.test:443", "--sni", "www.bad.test"];
        let (code, text) = explain_file(&lines, &[&named, &at[..]].concat());
        assert!(code == 3 && text.contains(by_name), "{last}: {text}");
    }
}

#[test]
fn a_log_does_not_tell_what_was_asked_inside_of_tunnels() {
    let folder = open_folder();
    let (file, log) = (folder.path().join("squid.conf"), folder.path().join("access.log"));
    let rules = "http_port 3128 ssl-bump\nacl inner at_step SslBump2\n\
                 acl named ssl::server_name .good.test\nacl plain dstdomain .plain.test\n\
                 http_access allow plain\nhttp_access deny inner\nhttp_access deny named\n\
                 http_access allow all\n";
    std::fs::write(&file, rules).expect("a configuration");
    let line = |what: &str| format!("1066036250.129 5 10.0.0.7 {what} - HIER_NONE/- -\n");
    let lines = line("NONE_NONE/200 0 CONNECT www.good.test:443")
        + &line("TCP_MISS/200 9 GET https://www.good.test/")
        + &line("TCP_MISS/200 9 GET http://a.plain.test/");
    std::fs::write(&log, lines).expect("a log");
    let (file, log) = (file.display().to_string(), log.display().to_string());
    let output = run(&["-f", &file, "-k", "explain", "--against-log", &log]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("3 lines: 1 as before, 0 would change, 2 depend on what"), "{text}");
}
